//! A kernel call as a body, and back.

use super::fields::{self, Fields};
use crate::external::frame::{Body, Element, Layout};
use crate::number::Dtype;
use crate::subject::attention::kernel::{Attributes, BlockTable, Call, DenseCall, KvScales, PagedCall, VarlenCall};
use crate::subject::attention::{Anchor, ContextParallel, Mask, Shards, Side};
use crate::tensor::Tensor;
use serde_json::{Map, Value, json};
use std::io::{self, Read};

/// The body of a call. `lse`: results are wanted with it.
pub fn body<'a>(call: Call<'a>, lse: bool) -> Body<'a> {
    let attributes = match call {
        Call::Varlen(call) => call.attributes,
        Call::Dense(call) => call.attributes,
        Call::Paged(call) => call.attributes,
    };
    let form = match call {
        Call::Varlen(_) => "varlen",
        Call::Dense(_) => "dense",
        Call::Paged(_) => "paged",
    };
    let mut body = Body::default().scalar("form", form).scalar("attributes", text(attributes, lse));
    body = match call {
        Call::Varlen(call) => body
            .tensor("q", call.q)
            .tensor("k", call.k)
            .tensor("v", call.v)
            .integers("cu_seqlens_q", call.cu_seqlens_q)
            .integers("cu_seqlens_k", call.cu_seqlens_k),
        Call::Dense(call) => body
            .scalar("padding", side_name(call.padding))
            .tensor("q", call.q)
            .tensor("k", call.k)
            .tensor("v", call.v)
            .integers("lengths_q", call.lengths_q)
            .integers("lengths_kv", call.lengths_kv),
        Call::Paged(call) => {
            let body = body
                .tensor("q", call.q)
                .tensor("k_cache", call.k_cache)
                .tensor("v_cache", call.v_cache)
                .integers("cu_seqlens_q", call.cu_seqlens_q)
                .integers("cache_seqlens", call.cache_seqlens)
                .integers("prefix_lens", call.prefix_lens);
            match call.block_table {
                Some(BlockTable { pages, width }) => body.table("block_table", pages, [call.cache_seqlens.len(), width]),
                None => body.integers("cache_rows", call.cache_rows),
            }
        }
    };
    if let Some(sinks) = attributes.sinks {
        body = body.floats("sinks", sinks);
    }
    if let Some(slopes) = attributes.alibi_slopes {
        body = body.floats("alibi_slopes", slopes);
    }
    match attributes.kv_scales {
        Some(KvScales { k, v }) => body.floats("k_scales", k).floats("v_scales", v),
        None => body,
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Left => "left",
        Side::Right => "right",
    }
}

fn text(attributes: &Attributes<'_>, lse: bool) -> String {
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
    let causal = causal.map(|anchor| match anchor {
        Anchor::BottomRight => "bottom_right",
        Anchor::TopLeft => "top_left",
    });
    let context = context.map(|ContextParallel { ranks, shards, length }| {
        let shards = match shards {
            Shards::Contiguous => "contiguous",
            Shards::Zigzag => "zigzag",
        };
        json!({"ranks": ranks, "shards": shards, "length": length})
    });
    let knobs = knobs.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>();
    let value = json!({
        "q_heads": q_heads, "kv_heads": kv_heads, "d_qk": d_qk, "d_v": d_v, "softmax_scale": softmax_scale,
        "causal": causal, "window_left": window_left, "window_right": window_right, "softcap": softcap, "block_q": block_q,
        "out_dtype": out_dtype.name(), "lse": lse, "context": context, "knobs": knobs,
    });
    value.to_string()
}

/// What the attributes of a call hold, owned.
#[derive(Clone, Debug)]
struct Owned {
    q_heads: usize,
    kv_heads: usize,
    d_qk: usize,
    d_v: usize,
    softmax_scale: f32,
    mask: Mask,
    softcap: Option<f32>,
    block_q: usize,
    context: Option<ContextParallel>,
    out_dtype: Dtype,
    lse: bool,
    knobs: Vec<(String, String)>,
}

impl Owned {
    fn parse(text: &str) -> Result<Owned, String> {
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

/// A call that came, with the tensors it owns.
#[derive(Debug)]
pub struct Received {
    attributes: Owned,
    form: String,
    padding: Side,
    tensors: Vec<(String, Element, Tensor)>,
}

/// A call that cannot be understood.
#[derive(Debug)]
pub enum Unreadable {
    /// The source failed or ended; nothing after it can be read.
    Source(io::Error),
    /// It was read to its end, and is no call.
    Call(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Unreadable::Source(error)
    }
}

impl Received {
    /// Reads a body of `length` bytes. `spare` holds vectors of former calls, to be used again.
    ///
    /// # Errors
    /// [`Unreadable::Source`] also for a body that is no safetensors blob: its end is not known.
    pub fn read(from: &mut impl Read, length: u64, spare: &mut Vec<Vec<u32>>) -> Result<Received, Unreadable> {
        let layout = Layout::read(from, length)?;
        let mut tensors = Vec::with_capacity(layout.tensors.len());
        for stored in &layout.tensors {
            // The one that fits best: first calls make vectors, later ones find them.
            let at = (0..spare.len()).min_by_key(|&n| spare[n].len().abs_diff(stored.elements));
            let mut bits = at.map(|n| spare.swap_remove(n)).unwrap_or_default();
            stored.read(&mut bits, from)?;
            let dtype = match stored.element {
                Element::Float(dtype) => dtype,
                Element::I32 => Dtype::F32,
            };
            tensors.push((stored.name.clone(), stored.element, Tensor { dtype, dims: stored.dims.clone(), bits }));
        }
        let scalar = |name: &str| layout.scalar(name).ok_or_else(|| Unreadable::Call(format!("no `{name}` in the metadata")));
        let form = scalar("form")?.to_owned();
        let attributes = Owned::parse(scalar("attributes")?).map_err(Unreadable::Call)?;
        let padding = match layout.scalar("padding") {
            Some("left") => Side::Left,
            Some("right") => Side::Right,
            None if form != "dense" => Side::Right,
            other => return Err(Unreadable::Call(format!("padding {other:?}"))),
        };
        Ok(Received { attributes, form, padding, tensors })
    }

    /// Gives the vectors back.
    pub fn into_spare(self, spare: &mut Vec<Vec<u32>>) {
        spare.extend(self.tensors.into_iter().map(|(_, _, tensor)| tensor.bits));
    }

    /// Whether results are wanted with `lse`.
    pub fn lse(&self) -> bool {
        self.attributes.lse
    }

    /// Format and sizes of `o`.
    ///
    /// # Errors
    /// When there is no `q` to say them.
    pub fn output(&self) -> Result<(Dtype, Vec<usize>), String> {
        let mut dims = self.float("q")?.dims.clone();
        *dims.last_mut().ok_or("q has no dims")? = self.attributes.d_v;
        let elements = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
        // As long an answer as a body may be.
        let fits = elements.is_some_and(|it| it as u64 <= crate::external::frame::BODY_LIMIT / 4);
        if fits { Ok((self.attributes.out_dtype, dims)) } else { Err(format!("an output of {dims:?} elements")) }
    }

    fn float(&self, name: &str) -> Result<&Tensor, String> {
        match self.tensors.iter().find(|(it, ..)| it == name) {
            Some((_, Element::Float(_), tensor)) => Ok(tensor),
            Some((_, element, _)) => Err(format!("`{name}` is {}", element.name())),
            None => Err(format!("no tensor `{name}`")),
        }
    }

    fn integers(&self, name: &str) -> Result<&Tensor, String> {
        match self.tensors.iter().find(|(it, ..)| it == name) {
            Some((_, Element::I32, tensor)) => Ok(tensor),
            Some((_, element, _)) => Err(format!("`{name}` is {}", element.name())),
            None => Err(format!("no tensor `{name}`")),
        }
    }

    fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, String> {
        if !self.tensors.iter().any(|(it, ..)| it == name) {
            return Ok(None);
        }
        let tensor = self.float(name)?;
        if tensor.dtype == Dtype::F32 { Ok(Some(tensor.to_f32())) } else { Err(format!("`{name}` is {}", tensor.dtype)) }
    }

    /// Makes the call.
    ///
    /// # Errors
    /// What of it is missing or of another kind.
    pub fn make<R>(&self, run: impl FnOnce(Call<'_>) -> R) -> Result<R, String> {
        let (sinks, slopes) = (self.floats("sinks")?, self.floats("alibi_slopes")?);
        let scales = match (self.floats("k_scales")?, self.floats("v_scales")?) {
            (Some(k), Some(v)) if !k.is_empty() && !v.is_empty() => Some((k, v)),
            (None, None) => None,
            _ => return Err("`k_scales` and `v_scales` come together".into()),
        };
        let it = &self.attributes;
        let attributes = Attributes {
            q_heads: it.q_heads,
            kv_heads: it.kv_heads,
            d_qk: it.d_qk,
            d_v: it.d_v,
            softmax_scale: it.softmax_scale,
            mask: it.mask,
            softcap: it.softcap,
            sinks: sinks.as_deref(),
            alibi_slopes: slopes.as_deref(),
            block_q: it.block_q,
            kv_scales: scales.as_ref().map(|(k, v)| KvScales { k, v }),
            context: it.context,
            out_dtype: it.out_dtype,
            knobs: &it.knobs,
        };
        let attributes = &attributes;
        let list = |name: &str| Ok::<_, String>(self.integers(name)?.bits.as_slice());
        let (q, float) = (self.float("q")?, |name: &str| self.float(name));
        match self.form.as_str() {
            "varlen" => Ok(run(Call::Varlen(&VarlenCall {
                attributes,
                q,
                k: float("k")?,
                v: float("v")?,
                cu_seqlens_q: list("cu_seqlens_q")?,
                cu_seqlens_k: list("cu_seqlens_k")?,
            }))),
            "dense" => Ok(run(Call::Dense(&DenseCall {
                attributes,
                q,
                k: float("k")?,
                v: float("v")?,
                padding: self.padding,
                lengths_q: list("lengths_q")?,
                lengths_kv: list("lengths_kv")?,
            }))),
            "paged" => {
                let table = self.tensors.iter().any(|(name, ..)| name == "block_table");
                let table = if table { Some(self.integers("block_table")?) } else { None };
                let block_table = match table.map(|table| (table, &table.dims[..])) {
                    Some((table, &[_, width])) => Some(BlockTable { pages: &table.bits, width }),
                    Some((_, dims)) => return Err(format!("block_table is {dims:?}")),
                    None => None,
                };
                Ok(run(Call::Paged(&PagedCall {
                    attributes,
                    q,
                    k_cache: float("k_cache")?,
                    v_cache: float("v_cache")?,
                    block_table,
                    cache_rows: if block_table.is_some() { &[] } else { list("cache_rows")? },
                    cache_seqlens: list("cache_seqlens")?,
                    cu_seqlens_q: list("cu_seqlens_q")?,
                    prefix_lens: list("prefix_lens")?,
                })))
            }
            other => Err(format!("form `{other}`")),
        }
    }
}
