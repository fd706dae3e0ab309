//! Who a kernel is and what it can do, as JSON.

use super::fields::{self, Fields};
use crate::external::frame::{Body, Layout};
use crate::input_error::tame;
use crate::number::Dtype;
use crate::subject::attention::capabilities::{Capabilities, Form, Format, HeadDims, Knob};
use crate::subject::attention::conventions::{AnchorConvention, Conventions};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::kernel::{AttentionKernel, Identity};
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::validate::MAX_LENGTH;
use serde_json::{Map, Value, json};

/// A kernel's answer to hello.
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// Who it is.
    pub identity: Identity,
    /// It has mapped the shared memory.
    pub shared_memory: bool,
    /// Its results have `lse`.
    pub lse: bool,
    /// What its calls mean.
    pub conventions: Conventions,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The arithmetic it declares for a storage format, or (`None`) for all others.
    pub numerics: Vec<(Option<Dtype>, Numerics)>,
}

const FIELDS: [&str; 17] = [
    "identity",
    "shared_memory",
    "lse",
    "guarded",
    "compiles",
    "forms",
    "features",
    "formats",
    "head_dims",
    "page_sizes",
    "max_rows",
    "empty_rows",
    "empty_sequences",
    "ragged",
    "knobs",
    "conventions",
    "numerics",
];

/// Characters of the longest name, version and device: they stand in every report.
const TEXT: usize = 4096;

impl Welcome {
    /// That of a kernel of this crate.
    pub fn of(kernel: &dyn AttentionKernel, shared_memory: bool) -> Welcome {
        let mut capabilities = kernel.capabilities();
        if !kernel.context_parallel() {
            // On the wire this is a feature like others.
            let features = capabilities.features.get_or_insert_with(|| Feature::ALL.to_vec());
            features.retain(|&feature| feature != Feature::ContextParallel);
        }
        let declared: Vec<_> = Dtype::ALL.iter().filter_map(|&it| Some((Some(it), kernel.numerics_for(it)?))).collect();
        let numerics = match &declared[..] {
            [(_, first), rest @ ..] if declared.len() == Dtype::ALL.len() && rest.iter().all(|(_, it)| it == first) => {
                vec![(None, *first)]
            }
            _ => declared,
        };
        Welcome {
            identity: kernel.identity(),
            shared_memory,
            lse: kernel.has_lse(),
            conventions: kernel.conventions(),
            capabilities,
            numerics,
        }
    }

    /// As a body.
    pub fn body(&self) -> Body<'static> {
        Body::default().scalar("kernel", self.json().to_string())
    }

    /// Reads a body.
    ///
    /// # Errors
    /// The field that is missing, unknown, or has a value it cannot have, and why.
    pub fn read(layout: &Layout) -> Result<Welcome, String> {
        let text = layout.scalar("kernel").ok_or("welcome: no `kernel` in the metadata")?;
        Welcome::parse(text)
    }

    /// The arithmetic declared for a storage format.
    pub fn numerics_for(&self, storage: Dtype) -> Option<Numerics> {
        let of = |wanted| self.numerics.iter().find(|(dtype, _)| *dtype == wanted).map(|(_, numerics)| *numerics);
        of(Some(storage)).or_else(|| of(None))
    }

    /// What of a kernel that was started again is not what it was; `None` where all that bits and verdicts depend on is.
    pub fn change(&self, after: &Welcome) -> Option<String> {
        let (a, b) = (&self.identity, &after.identity);
        let text = |digest: &Option<String>| digest.clone().unwrap_or_else(|| "none".into());
        let fields = [
            ("name", a.name.clone(), b.name.clone()),
            ("version", a.version.clone(), b.version.clone()),
            ("device", a.device.clone(), b.device.clone()),
            ("digest", text(&a.digest), text(&b.digest)),
        ];
        if let Some((name, before, after)) = fields.into_iter().find(|(_, before, after)| before != after) {
            let [before, after] = [before, after].map(|text| tame(&text, TEXT));
            return Some(format!("identity.{name} was `{before}` and is `{after}`"));
        }
        let same = [
            ("capabilities", self.capabilities == after.capabilities),
            ("conventions", self.conventions == after.conventions),
            ("numerics", self.numerics == after.numerics),
            ("lse", self.lse == after.lse),
            ("shared_memory", self.shared_memory == after.shared_memory),
        ];
        same.into_iter().find(|(_, same)| !same).map(|(name, _)| format!("its {name} is another"))
    }

    fn json(&self) -> Value {
        let Identity { name, version, device, digest, details } = &self.identity;
        let texts = |pairs: &[(String, String)]| {
            Value::Object(pairs.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>())
        };
        let Capabilities {
            forms,
            features,
            formats,
            head_dims,
            page_sizes,
            max_rows,
            no_empty_rows,
            no_empty_sequences,
            no_ragged,
            knobs,
            compiles,
            guarded,
        } = &self.capabilities;
        let names = |list: Vec<String>| json!(list);
        let mut map = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(name.to_owned(), value);
            }
        };
        let identity = json!({"name": name, "version": version, "device": device, "digest": digest, "details": texts(details)});
        put("identity", Some(identity));
        put("shared_memory", Some(json!(self.shared_memory)));
        put("lse", Some(json!(self.lse)));
        put("guarded", Some(json!(guarded)));
        put("compiles", Some(json!(compiles)));
        put("forms", forms.as_ref().map(|all| names(all.iter().map(|it| it.name().to_owned()).collect())));
        put("features", features.as_ref().map(|all| names(all.iter().map(|it| it.name().to_owned()).collect())));
        put("formats", formats.as_ref().map(|all| names(all.iter().map(format_name).collect())));
        put(
            "head_dims",
            head_dims.as_ref().map(|dims| match dims {
                HeadDims::UpTo { max, multiple_of } => json!({"max": max, "multiple_of": multiple_of}),
                HeadDims::Only(pairs) => json!(pairs),
            }),
        );
        put("page_sizes", page_sizes.as_ref().map(|all| json!(all)));
        put("max_rows", max_rows.map(|it| json!(it)));
        put("empty_rows", Some(json!(!no_empty_rows)));
        put("empty_sequences", Some(json!(!no_empty_sequences)));
        put("ragged", Some(json!(!no_ragged)));
        let knobs = knobs.iter().map(|knob| (knob.name.clone(), json!(knob.values))).collect::<Map<_, _>>();
        put("knobs", Some(Value::Object(knobs)));
        let conventions = Conventions::FIELDS.map(|field| (field.to_owned(), self.conventions.get(field).unwrap_or_default()));
        put("conventions", Some(texts(&conventions)));
        let words = self.numerics.iter().map(|(dtype, numerics)| {
            let words = Reference::new(*numerics).to_string();
            (dtype.map_or("*", Dtype::name).to_owned(), words.trim_start_matches("ref:").to_owned())
        });
        put("numerics", Some(texts(&words.collect::<Vec<_>>())));
        Value::Object(map)
    }

    /// Reads the JSON text.
    ///
    /// # Errors
    /// As [`Welcome::read`].
    pub fn parse(text: &str) -> Result<Welcome, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("welcome: `kernel` is no JSON: {error}"))?;
        let mut fields = Fields::of("welcome", value, &FIELDS)?;
        let identity = fields.take("identity").ok_or("welcome.identity: missing")?;
        let conventions = conventions(fields.texts("conventions")?)?;
        let capabilities = Capabilities {
            forms: fields
                .list("forms", |path, value| fields::named("form", path, value, &Form::ALL.map(|form| (form.name(), form))))?,
            features: fields.list("features", |path, value| {
                fields::named("feature", path, value, &Feature::ALL.map(|feature| (feature.name(), feature)))
            })?,
            formats: fields.list("formats", format)?,
            head_dims: fields.take("head_dims").map(head_dims).transpose()?,
            page_sizes: fields.list("page_sizes", fields::count)?,
            max_rows: fields.count("max_rows")?,
            no_empty_rows: !fields.flag("empty_rows", true)?,
            no_empty_sequences: !fields.flag("empty_sequences", true)?,
            no_ragged: !fields.flag("ragged", true)?,
            knobs: knobs(fields.take("knobs"))?,
            compiles: fields.flag("compiles", false)?,
            guarded: fields.flag("guarded", false)?,
        };
        contradictions(&capabilities, &conventions)?;
        Ok(Welcome {
            identity: self::identity(identity)?,
            shared_memory: fields.flag("shared_memory", false)?,
            lse: fields.flag("lse", true)?,
            conventions,
            capabilities,
            numerics: numerics(fields.texts("numerics")?)?,
        })
    }
}

fn identity(value: Value) -> Result<Identity, String> {
    let mut fields = Fields::of("welcome.identity", value, &["name", "version", "device", "digest", "details"])?;
    let identity = Identity {
        name: fields.required_text("name")?,
        version: fields.required_text("version")?,
        device: fields.required_text("device")?,
        digest: fields.text("digest")?,
        details: fields.texts("details")?,
    };
    if identity.name.trim().is_empty() {
        return Err("welcome.identity.name: empty".into());
    }
    for (field, text) in [("name", &identity.name), ("version", &identity.version), ("device", &identity.device)] {
        if text.chars().nth(TEXT).is_some() {
            return Err(format!("welcome.identity.{field}: is longer than {TEXT} characters"));
        }
    }
    match &identity.digest {
        Some(digest) if digest.len() != 64 || !digest.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')) => {
            Err(format!("welcome.identity.digest: `{digest}` is no SHA-256 in lower-case hex"))
        }
        _ => Ok(identity),
    }
}

fn conventions(texts: Vec<(String, String)>) -> Result<Conventions, String> {
    let mut conventions = Conventions::default();
    for (field, value) in texts {
        conventions.set(&field, &value).map_err(|reason| format!("welcome.conventions.{field}: {reason}"))?;
    }
    Ok(conventions)
}

fn format_name(format: &Format) -> String {
    match format {
        Format { storage, out } if storage == out => storage.to_string(),
        Format { storage, out } => format!("{storage}->{out}"),
    }
}

fn format(path: &str, value: &Value) -> Result<Format, String> {
    let text = value.as_str().ok_or_else(|| format!("{path}: {value} is no text"))?;
    let (storage, out) = text.split_once("->").unwrap_or((text, text));
    let dtype = |name: &str| match name.trim().parse::<Dtype>() {
        Ok(dtype) if dtype.bits() > 8 => Ok(dtype),
        Ok(dtype) => Err(format!("{path}: q and o are not stored as {dtype}; 8-bit keys and values are the feature `fp8_kv`")),
        Err(reason) => Err(format!("{path}: {reason}")),
    };
    Ok(Format { storage: dtype(storage)?, out: dtype(out)? })
}

fn head_dims(value: Value) -> Result<HeadDims, String> {
    let at = "welcome.head_dims";
    if value.is_array() {
        let pair = |path: &str, value: &Value| match value.as_array().map(Vec::as_slice) {
            Some([d_qk, d_v]) => Ok((fields::count(path, d_qk)?, fields::count(path, d_v)?)),
            _ => Err(format!("{path}: {value} is no pair of d_qk and d_v")),
        };
        return Ok(HeadDims::Only(fields::list(at, &value, pair)?));
    }
    let mut fields = Fields::of(at, value, &["max", "multiple_of"])?;
    let max = fields.count("max")?.ok_or_else(|| format!("{at}.max: missing"))?;
    let multiple_of = fields.count("multiple_of")?.unwrap_or(1);
    if multiple_of > max {
        return Err(format!("{at}: no multiple of {multiple_of} is at most {max}"));
    }
    Ok(HeadDims::UpTo { max, multiple_of })
}

fn knobs(value: Option<Value>) -> Result<Vec<Knob>, String> {
    let at = "welcome.knobs";
    let Some(value) = value else { return Ok(Vec::new()) };
    let Value::Object(map) = value else { return Err(format!("{at}: {value} is no JSON object")) };
    let knob = |(name, values): (String, Value)| {
        let path = format!("{at}.{name}");
        if name.is_empty() || !name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_') {
            return Err(format!("{path}: a knob's name has letters, digits and `_`"));
        }
        let text = |path: &str, value: &Value| match value.as_str() {
            Some(text) if !text.contains(char::is_control) => Ok(text.to_owned()),
            _ => Err(format!("{path}: {value} is no text of one line")),
        };
        Ok(Knob { name, values: fields::list(&path, &values, text)? })
    };
    map.into_iter().map(knob).collect()
}

fn numerics(texts: Vec<(String, String)>) -> Result<Vec<(Option<Dtype>, Numerics)>, String> {
    let read = |(storage, words): (String, String)| {
        let path = format!("welcome.numerics.{storage}");
        let dtype = match storage.as_str() {
            "*" => None,
            name => Some(name.parse().map_err(|reason| format!("{path}: {reason}"))?),
        };
        let reference = Reference::parse(&format!("ref:{words}")).map_err(|reason| format!("{path}: {reason}"))?;
        if reference != Reference::new(reference.numerics) {
            return Err(format!("{path}: `{words}` has words about conventions or a profile; only numerics are declared here"));
        }
        Ok((dtype, reference.numerics))
    };
    texts.into_iter().map(read).collect()
}

/// Refuses declarations that no call can satisfy.
fn contradictions(capabilities: &Capabilities, conventions: &Conventions) -> Result<(), String> {
    let masks = [Feature::Causal, Feature::CausalTopLeft, Feature::NotCausal];
    if let Some(features) = &capabilities.features {
        if !masks.iter().any(|mask| features.contains(mask)) {
            return Err("welcome.features: every call has one of causal, causal_top_left, not_causal; none is listed".into());
        }
        let meant = match conventions.anchor {
            AnchorConvention::TopLeft => Some(Feature::CausalTopLeft),
            AnchorConvention::BottomRight => Some(Feature::Causal),
            AnchorConvention::AsCalled | AnchorConvention::Strict => None,
        };
        let causal = masks[..2].iter().any(|mask| features.contains(mask));
        if let Some(meant) = meant.filter(|meant| causal && !features.contains(meant)) {
            return Err(format!(
                "welcome.conventions.anchor: {} contradicts welcome.features, which lack {}",
                conventions.anchor,
                meant.name()
            ));
        }
    }
    if let Some(page) = capabilities.page_sizes.iter().flatten().find(|&&page| page > MAX_LENGTH) {
        return Err(format!("welcome.page_sizes: {page} is more than a page of a case may have, {MAX_LENGTH} slots"));
    }
    let paged = capabilities.forms.as_ref().is_none_or(|forms| forms.contains(&Form::Paged));
    if capabilities.page_sizes.is_some() && !paged {
        return Err("welcome.page_sizes: welcome.forms lack paged".into());
    }
    Ok(())
}
