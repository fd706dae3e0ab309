//! The attributes of a call as JSON, and back.

use super::fields::{self, Fields};
use crate::number::Dtype;
use crate::subject::attention::kernel::Attributes;
use crate::subject::attention::{Anchor, ContextParallel, Mask, Shards};
use serde_json::{Map, Value, json};

/// As JSON. `lse`: results are wanted with it.
pub(super) fn text(attributes: &Attributes<'_>, lse: bool) -> String {
    // No `..`: an attribute that is added must be sent, or be dismissed here by name.
    let Attributes {
        q_heads,
        kv_heads,
        d_qk,
        d_v,
        softmax_scale,
        mask: Mask { causal, window_left, window_right },
        softcap,
        sinks: _,
        alibi_slopes: _,
        block_q,
        kv_scales: _,
        context,
        out_dtype,
        knobs,
    } = attributes;
    // By hand, since small calls are made by the thousand. Numbers are printed as f64, which reads back exactly.
    fn or_null(value: Option<impl std::fmt::Display>) -> String {
        value.map_or("null".into(), |value| value.to_string())
    }
    let causal = causal.map(|anchor| match anchor {
        Anchor::BottomRight => "\"bottom_right\"",
        Anchor::TopLeft => "\"top_left\"",
    });
    let context = context.map(|ContextParallel { ranks, shards, length }| {
        let shards = match shards {
            Shards::Contiguous => "contiguous",
            Shards::Zigzag => "zigzag",
        };
        json!({"ranks": ranks, "shards": shards, "length": length})
    });
    let knobs = knobs.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>();
    let (scale, softcap) = (f64::from(*softmax_scale), or_null(softcap.map(|cap| format!("{:?}", f64::from(cap)))));
    let (causal, context, knobs) = (or_null(causal), or_null(context), Value::Object(knobs));
    let (left, right) = (or_null(*window_left), or_null(*window_right));
    format!(
        "{{\"q_heads\":{q_heads},\"kv_heads\":{kv_heads},\"d_qk\":{d_qk},\"d_v\":{d_v},\"softmax_scale\":{scale:?},\"causal\":{causal},\
         \"window_left\":{left},\"window_right\":{right},\"softcap\":{softcap},\"block_q\":{block_q},\"out_dtype\":\"{out_dtype}\",\
         \"lse\":{lse},\"context\":{context},\"knobs\":{knobs}}}"
    )
}

/// What the attributes of a call hold, owned.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub q_heads: usize,
    pub kv_heads: usize,
    pub d_qk: usize,
    pub d_v: usize,
    pub softmax_scale: f32,
    pub mask: Mask,
    pub softcap: Option<f32>,
    pub block_q: usize,
    pub context: Option<ContextParallel>,
    pub out_dtype: Dtype,
    pub lse: bool,
    pub knobs: Vec<(String, String)>,
}

impl Owned {
    /// Reads JSON.
    pub fn parse(text: &str) -> Result<Owned, String> {
        const KNOWN: [&str; 14] = [
            "q_heads",
            "kv_heads",
            "d_qk",
            "d_v",
            "softmax_scale",
            "causal",
            "window_left",
            "window_right",
            "softcap",
            "block_q",
            "out_dtype",
            "lse",
            "context",
            "knobs",
        ];
        let value: Value = serde_json::from_str(text).map_err(|error| format!("attributes: {error}"))?;
        let mut fields = Fields::of("attributes", value, &KNOWN)?;
        let mut size = |name: &str| Ok::<_, String>(fields.count(name)?.ok_or(format!("attributes.{name}: missing"))? as usize);
        let [q_heads, kv_heads, d_qk, d_v, block_q] =
            [size("q_heads")?, size("kv_heads")?, size("d_qk")?, size("d_v")?, size("block_q")?];
        let mut real = |name: &str| match fields.take(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number as f32)),
                None => Err(format!("attributes.{name}: {value} is no number")),
            },
        };
        let softmax_scale = real("softmax_scale")?.ok_or("attributes.softmax_scale: missing")?;
        let softcap = real("softcap")?;
        let mut window = |name: &str| match fields.take(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().and_then(|it| u32::try_from(it).ok()) {
                Some(window) => Ok(Some(window)),
                None => Err(format!("attributes.{name}: {value} is no window")),
            },
        };
        let (window_left, window_right) = (window("window_left")?, window("window_right")?);
        let anchors = [("bottom_right", Anchor::BottomRight), ("top_left", Anchor::TopLeft)];
        let causal = fields.take("causal").map(|value| fields::named("anchor", "attributes.causal", &value, &anchors));
        let out_dtype = fields.required_text("out_dtype")?;
        Ok(Owned {
            q_heads,
            kv_heads,
            d_qk,
            d_v,
            softmax_scale,
            mask: Mask { causal: causal.transpose()?, window_left, window_right },
            softcap,
            block_q,
            context: fields.take("context").map(context).transpose()?,
            out_dtype: out_dtype.parse().map_err(|reason| format!("attributes.out_dtype: {reason}"))?,
            lse: fields.flag("lse", true)?,
            knobs: fields.texts("knobs")?,
        })
    }
}

fn context(value: Value) -> Result<ContextParallel, String> {
    let at = "attributes.context";
    let mut fields = Fields::of(at, value, &["ranks", "shards", "length"])?;
    let shards = fields.take("shards").ok_or_else(|| format!("{at}.shards: missing"))?;
    let all = [("contiguous", Shards::Contiguous), ("zigzag", Shards::Zigzag)];
    Ok(ContextParallel {
        ranks: fields.count("ranks")?.ok_or_else(|| format!("{at}.ranks: missing"))?,
        shards: fields::named("shards", "attributes.context.shards", &shards, &all)?,
        length: fields.count("length")?.ok_or_else(|| format!("{at}.length: missing"))?,
    })
}
