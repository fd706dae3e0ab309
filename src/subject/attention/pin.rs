//! Pins: features of one model that every case of a campaign is held to. Drawing honours them, and shrinking never leaves them.

use super::case::Problem;
use super::mask::Anchor;
use super::validate::{MAX_DIM, MAX_HEADS};
use crate::input_error::unknown;
use crate::number::Dtype;
use std::fmt;
use std::str::FromStr;

/// What is fixed; `None` is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// Head dim of queries and keys.
    pub d_qk: Option<u32>,
    /// Head dim of values.
    pub d_v: Option<u32>,
    /// Query heads and KV heads; the second divides the first.
    pub heads: Option<(u32, u32)>,
    /// Storage of q, k and v.
    pub dtype: Option<Dtype>,
    /// Storage of k and v: an 8-bit format, or that of q.
    pub kv_dtype: Option<KvPin>,
    /// The causal mask; `Some(None)` is none at all.
    pub causal: Option<Option<Anchor>>,
}

/// What storage of keys and values is pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvPin {
    /// That of q.
    Plain,
    /// E4M3 or E5M2, with scales.
    Fp8(Dtype),
}

impl KvPin {
    fn of(problem: &Problem) -> KvPin {
        problem.fp8_kv.as_ref().map_or(KvPin::Plain, |kv| KvPin::Fp8(kv.dtype))
    }
}

/// One name that can be pinned.
struct Pin {
    name: &'static str,
    /// What it takes, in words.
    values: &'static str,
    /// The pins that a value stands for; `None` for a value it cannot have.
    read: fn(&str) -> Option<Pins>,
}

const FREE: Pins = Pins { d_qk: None, d_v: None, heads: None, dtype: None, kv_dtype: None, causal: None };

/// Every pin.
const PINS: [Pin; 7] = [
    Pin {
        name: "d",
        values: "both head dims, 1 to 512",
        read: |text| dim(text).map(|d| Pins { d_qk: Some(d), d_v: Some(d), ..FREE }),
    },
    Pin { name: "d_qk", values: "1 to 512", read: |text| dim(text).map(|d| Pins { d_qk: Some(d), ..FREE }) },
    Pin { name: "d_v", values: "1 to 512", read: |text| dim(text).map(|d| Pins { d_v: Some(d), ..FREE }) },
    Pin {
        name: "heads",
        values: "query heads/KV heads, e.g. 16/2: at most 256, the second divides the first, at most 64 to one KV head",
        read: |text| {
            let (q, kv) = text.split_once('/')?;
            let (q, kv): (u32, u32) = (q.parse().ok()?, kv.parse().ok()?);
            let valid = (1..=q).contains(&kv) && q <= MAX_HEADS as u32 && q.is_multiple_of(kv) && q / kv <= MAX_GROUP;
            valid.then_some(Pins { heads: Some((q, kv)), ..FREE })
        },
    },
    Pin {
        name: "dtype",
        values: "f32, bf16, f16",
        read: |text| {
            let dtype = [Dtype::F32, Dtype::BF16, Dtype::F16].into_iter().find(|it| it.name() == text)?;
            Some(Pins { dtype: Some(dtype), ..FREE })
        },
    },
    Pin {
        name: "kv_dtype",
        values: "e4m3, e5m2, or plain: as q",
        read: |text| {
            let kv = match text {
                "plain" => KvPin::Plain,
                _ => KvPin::Fp8([Dtype::E4M3, Dtype::E5M2].into_iter().find(|it| it.name() == text)?),
            };
            Some(Pins { kv_dtype: Some(kv), ..FREE })
        },
    },
    Pin {
        name: "causal",
        values: "bottom_right, top_left, none",
        read: |text| {
            let causal = match text {
                "bottom_right" => Some(Anchor::BottomRight),
                "top_left" => Some(Anchor::TopLeft),
                "none" => None,
                _ => return None,
            };
            Some(Pins { causal: Some(causal), ..FREE })
        },
    },
];

/// Query heads of one KV head that have labels (see [`super::validate()`]).
const MAX_GROUP: u32 = 64;

fn dim(text: &str) -> Option<u32> {
    text.parse().ok().filter(|d| (1..=MAX_DIM).contains(d))
}

impl Pins {
    /// Adds the pins of a list `name=value,name=value`.
    ///
    /// # Errors
    /// An unknown name, with the nearest; a value that a name cannot have; a name pinned twice to different values.
    pub fn add(&mut self, list: &str) -> Result<(), String> {
        for text in list.split(',') {
            let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not of the form name=value"))?;
            let names = PINS.map(|pin| pin.name);
            let pin = PINS.iter().find(|pin| pin.name == name.trim()).ok_or_else(|| unknown("pin", name.trim(), &names))?;
            let only = (pin.read)(value.trim()).ok_or_else(|| format!("{name}={value}: takes {}", pin.values))?;
            let before = *self;
            self.d_qk = only.d_qk.or(self.d_qk);
            self.d_v = only.d_v.or(self.d_v);
            self.heads = only.heads.or(self.heads);
            self.dtype = only.dtype.or(self.dtype);
            self.kv_dtype = only.kv_dtype.or(self.kv_dtype);
            self.causal = only.causal.or(self.causal);
            if !before.agree(self) {
                return Err(format!("{name}={value}: pinned before to another value"));
            }
        }
        Ok(())
    }

    /// Whether every pin of these has the same value in others.
    fn agree(&self, other: &Pins) -> bool {
        fn same<T: PartialEq>(pin: Option<T>, other: Option<T>) -> bool {
            pin.is_none() || pin == other
        }
        same(self.d_qk, other.d_qk)
            && same(self.d_v, other.d_v)
            && same(self.heads, other.heads)
            && same(self.dtype, other.dtype)
            && same(self.kv_dtype, other.kv_dtype)
            && same(self.causal, other.causal)
    }

    /// Whether a problem keeps them all.
    pub fn hold(&self, problem: &Problem) -> bool {
        self.agree(&Pins {
            d_qk: Some(problem.d_qk),
            d_v: Some(problem.d_v),
            heads: Some((problem.q_heads() as u32, problem.kv_heads() as u32)),
            dtype: Some(problem.dtype),
            kv_dtype: Some(KvPin::of(problem)),
            causal: Some(problem.mask.causal),
        })
    }

    /// Whether the shape of a head, or their number, is pinned: captured tensors bring their own.
    pub fn shape(&self) -> bool {
        self.d_qk.is_some() || self.d_v.is_some() || self.heads.is_some()
    }
}

impl fmt::Display for Pins {
    /// As [`Pins::add`] reads it; `none` without any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causal = |causal: Option<Anchor>| match causal {
            Some(Anchor::BottomRight) => "bottom_right",
            Some(Anchor::TopLeft) => "top_left",
            None => "none",
        };
        let list: Vec<String> = [
            self.d_qk.map(|d| format!("d_qk={d}")),
            self.d_v.map(|d| format!("d_v={d}")),
            self.heads.map(|(q, kv)| format!("heads={q}/{kv}")),
            self.dtype.map(|dtype| format!("dtype={dtype}")),
            self.kv_dtype.map(|it| match it {
                KvPin::Plain => "kv_dtype=plain".into(),
                KvPin::Fp8(dtype) => format!("kv_dtype={dtype}"),
            }),
            self.causal.map(|it| format!("causal={}", causal(it))),
        ]
        .into_iter()
        .flatten()
        .collect();
        if list.is_empty() { f.write_str("none") } else { f.write_str(&list.join(",")) }
    }
}

impl FromStr for Pins {
    type Err = String;
    fn from_str(list: &str) -> Result<Self, String> {
        let mut pins = Pins::default();
        if list != "none" {
            pins.add(list)?;
        }
        Ok(pins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let pins: Pins = "d_qk=192,d_v=128,heads=16/2".parse().unwrap();
        assert_eq!((pins.d_qk, pins.d_v, pins.heads), (Some(192), Some(128), Some((16, 2))));
        let pins: Pins = "d=64, dtype=bf16,causal=none".parse().unwrap();
        assert_eq!((pins.d_qk, pins.d_v, pins.dtype, pins.causal), (Some(64), Some(64), Some(Dtype::BF16), Some(None)));
        for text in ["none", "d_qk=192,d_v=128,heads=16/2,dtype=f16,kv_dtype=e4m3,causal=none", "causal=top_left"] {
            assert_eq!(text.parse::<Pins>().unwrap().to_string(), text);
        }
        // Repeated options add up, and may repeat themselves.
        let mut pins = Pins::default();
        pins.add("d=64").unwrap();
        pins.add("d_v=64,causal=bottom_right").unwrap();
        assert_eq!(pins.causal, Some(Some(Anchor::BottomRight)));
    }

    #[test]
    fn mistakes_are_named() {
        for (list, reason) in [
            ("", "name=value"),
            ("d", "name=value"),
            ("hads=1/1", "did you mean `heads`?"),
            ("size=64", "known: d, d_qk, d_v, heads, dtype, kv_dtype, causal"),
            ("d=0", "takes both head dims, 1 to 512"),
            ("d=513", "takes"),
            ("heads=3/2", "query heads/KV heads"),
            ("heads=8x2", "query heads/KV heads"),
            ("heads=130/2", "query heads/KV heads"),
            ("dtype=e4m3", "takes f32, bf16, f16"),
            ("kv_dtype=f16", "takes e4m3, e5m2, or plain"),
            ("causal=yes", "takes bottom_right, top_left, none"),
            ("d=64,d_v=128", "d_v=128: pinned before to another value"),
        ] {
            let error = list.parse::<Pins>().unwrap_err();
            assert!(error.contains(reason), "{list}: {error}");
        }
    }
}
