//! What a kernel says of itself: the `kernel` object of `docs/protocol.md`.

use crate::input_error::{shorten, unknown};
use crate::number::Dtype;
use crate::subject::attention::capabilities::{Capabilities, Form, Format, HeadDims, Knob};
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::feature::Feature;
use crate::subject::attention::kernel::Identity;
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::reference::Reference;
use serde_json::{Map, Value};

/// A kernel's description.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) identity: Identity,
    pub(super) capabilities: Capabilities,
    pub(super) conventions: Conventions,
    /// Whether it writes `lse`.
    pub(super) lse: bool,
    /// For a storage format, or for all that are not named.
    numerics: Vec<(Option<Dtype>, Numerics)>,
}

impl Declared {
    /// The arithmetic declared for a storage format; `None` is that of all formats that are not named.
    pub(super) fn numerics_for(&self, storage: Option<Dtype>) -> Option<Numerics> {
        let of =
            |wanted: Option<Dtype>| self.numerics.iter().find(|(storage, _)| *storage == wanted).map(|(_, numerics)| *numerics);
        of(storage).or_else(|| of(None))
    }
}

/// Reads a description.
///
/// # Errors
/// What is wrong with which field.
pub(super) fn parse(text: &str) -> Result<Declared, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
    let mut identity = None;
    let mut declared = Declared {
        identity: Identity::cpu("", ""),
        capabilities: Capabilities::default(),
        conventions: Conventions::default(),
        lse: true,
        numerics: Vec::new(),
    };
    for (key, value) in object(&value)? {
        field(&mut declared, &mut identity, key, value).map_err(|reason| format!("`{}`: {reason}", shorten(key)))?;
    }
    declared.identity = identity.ok_or("`identity` is missing")?;
    Ok(declared)
}

/// Fields of the object, in the order of the protocol's page.
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

fn field(declared: &mut Declared, read: &mut Option<Identity>, key: &str, value: &Value) -> Result<(), String> {
    let capabilities = &mut declared.capabilities;
    match key {
        "identity" => *read = Some(identity(value)?),
        // A library is handed its tensors in memory of the caller's, guarded, whatever it says.
        "shared_memory" | "guarded" => drop(flag(value)?),
        "lse" => declared.lse = flag(value)?,
        "compiles" => capabilities.compiles = flag(value)?,
        "forms" => {
            capabilities.forms = Some(list(value, |it| named(text(it)?, "form", &Form::ALL, Form::name))?);
        }
        "features" => {
            capabilities.features = Some(list(value, |it| named(text(it)?, "feature", &Feature::ALL, Feature::name))?);
        }
        "formats" => capabilities.formats = Some(list(value, |it| format(text(it)?))?),
        "head_dims" => capabilities.head_dims = Some(head_dims(value)?),
        "page_sizes" => capabilities.page_sizes = Some(list(value, positive)?),
        "max_rows" => capabilities.max_rows = Some(positive(value)?),
        "empty_rows" => capabilities.no_empty_rows = !flag(value)?,
        "empty_sequences" => capabilities.no_empty_sequences = !flag(value)?,
        "ragged" => capabilities.no_ragged = !flag(value)?,
        "knobs" => capabilities.knobs = knobs(value)?,
        "conventions" => {
            for (name, value) in object(value)? {
                declared.conventions.set(name, text(value)?)?;
            }
        }
        "numerics" => {
            for (storage, words) in object(value)? {
                declared.numerics.push(numerics(storage, text(words)?)?);
            }
        }
        other => return Err(unknown("field", other, &FIELDS)),
    }
    Ok(())
}

fn identity(value: &Value) -> Result<Identity, String> {
    const KNOWN: [&str; 5] = ["name", "version", "device", "digest", "details"];
    let map = object(value)?;
    if let Some(other) = map.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return Err(unknown("field", other, &KNOWN));
    }
    let required = |name: &str| {
        let value = map.get(name).ok_or_else(|| format!("`{name}` is missing"))?;
        let text = text(value).map_err(|reason| format!("`{name}`: {reason}"))?;
        if text.is_empty() { Err(format!("`{name}` is empty")) } else { Ok(text.to_owned()) }
    };
    let digest = match map.get("digest") {
        None | Some(Value::Null) => None,
        Some(value) => Some(text(value).map_err(|reason| format!("`digest`: {reason}"))?.to_owned()),
    };
    let details = match map.get("details") {
        None => Vec::new(),
        Some(details) => object(details)
            .and_then(|details| details.iter().map(|(name, value)| Ok((name.clone(), text(value)?.to_owned()))).collect())
            .map_err(|reason: String| format!("`details`: {reason}"))?,
    };
    Ok(Identity { name: required("name")?, version: required("version")?, device: required("device")?, digest, details })
}

fn format(text: &str) -> Result<Format, String> {
    let (storage, out) = text.split_once("->").unwrap_or((text, text));
    let wide = |text: &str| {
        let dtype: Dtype = text.trim().parse()?;
        match dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => Ok(dtype),
            Dtype::E4M3 | Dtype::E5M2 => Err(format!("`{dtype}` is a format of the KV cache: declare the feature `fp8_kv`")),
        }
    };
    Ok(Format { storage: wide(storage)?, out: wide(out)? })
}

fn head_dims(value: &Value) -> Result<HeadDims, String> {
    let Value::Object(map) = value else {
        return Ok(HeadDims::Only(list(value, |pair| match list(pair, positive)?[..] {
            [d_qk, d_v] => Ok((d_qk, d_v)),
            _ => Err(format!("`{}` is not a pair of d_qk and d_v", shorten(&pair.to_string()))),
        })?));
    };
    const KNOWN: [&str; 2] = ["max", "multiple_of"];
    if let Some(other) = map.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return Err(unknown("field", other, &KNOWN));
    }
    let max = positive(map.get("max").ok_or("`max` is missing")?)?;
    Ok(HeadDims::UpTo { max, multiple_of: map.get("multiple_of").map_or(Ok(1), positive)? })
}

fn knobs(value: &Value) -> Result<Vec<Knob>, String> {
    object(value)?
        .iter()
        .map(|(name, values)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(format!("the name `{}` is not letters, digits and `_`", shorten(name)));
            }
            let values = list(values, |it| Ok(text(it)?.to_owned())).map_err(|reason| format!("`{name}`: {reason}"))?;
            match values.iter().find(|value| value.chars().any(char::is_control)) {
                Some(value) => Err(format!("`{name}`: the value `{}` holds a control character", shorten(value))),
                None if values.is_empty() => Err(format!("`{name}` has no value")),
                None => Ok(Knob { name: name.clone(), values }),
            }
        })
        .collect()
}

fn numerics(storage: &str, words: &str) -> Result<(Option<Dtype>, Numerics), String> {
    let storage = match storage {
        "*" => None,
        name => Some(name.parse()?),
    };
    let reference = Reference::parse(&format!("ref:{words}"))?;
    if reference != Reference::new(reference.numerics) {
        return Err(format!("`{}` says more than numerics; conventions have a field of their own", shorten(words)));
    }
    Ok((storage, reference.numerics))
}

fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| is_not(value, "an object"))
}

fn list<T>(value: &Value, item: impl FnMut(&Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    value.as_array().ok_or_else(|| is_not(value, "a list"))?.iter().map(item).collect()
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| is_not(value, "a text"))
}

fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| is_not(value, "true or false"))
}

fn positive(value: &Value) -> Result<u32, String> {
    let number = value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n >= 1);
    number.ok_or_else(|| is_not(value, "a whole number from 1 to 4294967295"))
}

fn is_not(value: &Value, what: &str) -> String {
    format!("`{}` is not {what}", shorten(&value.to_string()))
}

fn named<T: Copy>(name: &str, what: &str, all: &[T], name_of: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|&it| name_of(it) == name);
    found.ok_or_else(|| unknown(what, name, &all.iter().map(|&it| name_of(it)).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: &str = r#""identity": {"name": "k", "version": "1", "device": "cpu"}"#;

    #[test]
    fn everything_that_the_protocol_lists_is_read() {
        let text = r#"{
          "identity": {"name": "k", "version": "1.2", "device": "cpu", "digest": "ab", "details": {"threads": "2"}},
          "shared_memory": false, "lse": false, "guarded": false, "compiles": true,
          "forms": ["varlen", "contiguous"], "features": ["causal", "fp8_kv"], "formats": ["f32", "bf16->f32"],
          "head_dims": {"max": 256, "multiple_of": 8}, "page_sizes": [16, 256], "max_rows": 4096,
          "empty_rows": false, "empty_sequences": true, "ragged": true,
          "knobs": {"num_splits": ["1", "2"]},
          "conventions": {"anchor": "top_left", "lse_base": "2"},
          "numerics": {"bf16": "aligned,probs.dtype=bf16", "*": "naive"}
        }"#;
        let declared = parse(text).unwrap();
        assert_eq!(declared.identity.details, [("threads".to_owned(), "2".to_owned())]);
        assert!(!declared.lse);
        let expected = Capabilities {
            forms: Some(vec![Form::Varlen, Form::Contiguous]),
            features: Some(vec![Feature::Causal, Feature::Fp8Kv]),
            formats: Some(vec![
                Format { storage: Dtype::F32, out: Dtype::F32 },
                Format { storage: Dtype::BF16, out: Dtype::F32 },
            ]),
            head_dims: Some(HeadDims::UpTo { max: 256, multiple_of: 8 }),
            page_sizes: Some(vec![16, 256]),
            max_rows: Some(4096),
            no_empty_rows: true,
            knobs: vec![Knob { name: "num_splits".into(), values: vec!["1".into(), "2".into()] }],
            compiles: true,
            ..Capabilities::default()
        };
        assert_eq!(declared.capabilities, expected);
        assert_eq!(declared.conventions.get("anchor").unwrap(), "top_left");
        let naive = Reference::parse("ref:naive").unwrap().numerics;
        assert_eq!(declared.numerics_for(Some(Dtype::BF16)), Some(Reference::parse("ref:p-bf16").unwrap().numerics));
        assert_eq!((declared.numerics_for(Some(Dtype::F16)), declared.numerics_for(None)), (Some(naive), Some(naive)));
        assert_eq!(parse(&format!("{{{IDENTITY}}}")).unwrap().capabilities, Capabilities::default());
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        let refused = [
            (r#""frms": ["varlen"]"#, "`frms`: unknown field `frms`; did you mean `forms`?"),
            (r#""forms": ["pagd"]"#, "`forms`: unknown form `pagd`; did you mean `paged`?"),
            (r#""forms": "paged""#, "`forms`: `\"paged\"` is not a list"),
            (r#""formats": ["e4m3"]"#, "`formats`: `e4m3` is a format of the KV cache: declare the feature `fp8_kv`"),
            (r#""head_dims": [[64]]"#, "`head_dims`: `[64]` is not a pair of d_qk and d_v"),
            (r#""head_dims": {"max": 0}"#, "`head_dims`: `0` is not a whole number from 1 to 4294967295"),
            (r#""lse": "no""#, "`lse`: `\"no\"` is not true or false"),
            (r#""knobs": {"a b": ["1"]}"#, "`knobs`: the name `a b` is not letters, digits and `_`"),
            (r#""knobs": {"a": []}"#, "`knobs`: `a` has no value"),
            (r#""conventions": {"anchr": "top_left"}"#, "`conventions`: unknown convention `anchr`; did you mean `anchor`?"),
            (r#""numerics": {"*": "alined"}"#, "did you mean `aligned`?"),
            (r#""numerics": {"*": "aligned,actual.lse_base=2"}"#, "says more than numerics"),
        ];
        for (field, expected) in refused {
            let error = parse(&format!("{{{IDENTITY}, {field}}}")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(parse("{}").unwrap_err(), "`identity` is missing");
        assert!(parse("{").unwrap_err().starts_with("is not JSON: "));
        let error = parse(r#"{"identity": {"name": "k", "version": "1"}}"#).unwrap_err();
        assert_eq!(error, "`identity`: `device` is missing");
    }
}
