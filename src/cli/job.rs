//! What a run is of: everything its results depend on, and the words in which it was asked for.

use super::shard::Shard;
use super::{Failure, kernel};
use crate::external::name::Consent;
use crate::lab::Length;
use crate::subject::Subject;
use crate::subject::attention::Attention;
use crate::subject::attention::captured::Captured;
use crate::subject::attention::check::Pair;
use crate::subject::attention::draw::Profile;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel_fields;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::pin::Pins;
use crate::subject::attention::text::{CaseFile, KernelFields, KernelText, Run, print as print_case};
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;
use std::sync::Arc;

/// Cases whose text tells one generator from another.
const GENERATOR_CASES: u64 = 64;

/// The field that only a part of a run has.
const SHARD: &str = "shard";

/// A run, as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) train: String,
    pub(super) infer: String,
    pub(super) seed: u64,
    pub(super) profile: Profile,
    pub(super) oracle: Mode,
    pub(super) pins: Pins,
    pub(super) data: Option<PathBuf>,
    pub(super) keep_going: bool,
    /// The part that is run here, of a run that is spread over machines.
    pub(super) shard: Option<Shard>,
    /// May be another each time that a run goes on.
    pub(super) length: Length,
}

impl Job {
    /// The index of the case that comes after `n` cases of what is run here.
    pub(super) fn index(&self, n: u64) -> u64 {
        self.shard.map_or(n, |shard| shard.unit(n))
    }

    /// The kernels by name, started where they are processes, and the tensors from their file.
    ///
    /// # Errors
    /// Which option is wrong, and why.
    pub(super) fn attention(&self, consent: Consent) -> Result<Attention, Failure> {
        let pair = Pair {
            train: kernel("--train", &self.train, consent)?,
            infer: kernel("--infer", &self.infer, consent)?,
            oracle: self.oracle,
            captured: self.data.as_deref().map(Captured::load).transpose()?.map(Arc::new),
            witness: true,
        };
        if pair.captured.is_some() && self.pins.shape() {
            return Err(Failure::Usage(
                "--pin: head dims and heads are those of --data; pin dtype or causal, or leave one of them out".into(),
            ));
        }
        let attention = Attention { pair, profile: self.profile, pins: self.pins };
        attention.start().map_err(Failure::Usage)?;
        Ok(attention)
    }

    /// All that the bytes of the results depend on, field by field: presets and defaults change, so nothing is left to a name.
    pub(super) fn configuration(&self, attention: &Attention) -> Configuration {
        let pair = &attention.pair;
        let mut fields = vec![("lastbit".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        fields.extend(kernel_fields("train", &pair.train));
        fields.extend(kernel_fields("infer", &pair.infer));
        let data = pair.captured.as_ref().map_or("none", |captured| &captured.sha256);
        fields.extend(
            [
                ("seed", self.seed.to_string()),
                ("profile", self.profile.to_string()),
                ("oracle", self.oracle.to_string()),
                ("pins", self.pins.to_string()),
                ("data", data.to_owned()),
                ("keep_going", self.keep_going.to_string()),
                ("generator", generator(attention, self.seed)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        fields.extend(self.shard.map(|shard| (SHARD.to_owned(), shard.to_string())));
        Configuration(fields)
    }
}

fn kernel_fields(side: &str, kernel: &Implementation) -> impl Iterator<Item = (String, String)> {
    kernel_fields::fields(kernel).into_iter().map(move |(field, value)| (format!("{side}.{field}"), value))
}

/// SHA-256 of the first cases' text: two builds of one version may draw other cases.
pub(super) fn generator(attention: &Attention, seed: u64) -> String {
    let mut digest = Sha256::new();
    for index in 0..GENERATOR_CASES {
        let none = || KernelText::Reference(KernelFields(Vec::new()));
        let run = Run { train: none(), infer: none(), oracle: String::new(), relation: None, expect: String::new() };
        let case = attention.draw(seed, index).case;
        digest.update(print_case(&CaseFile { comment: String::new(), case, run }));
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names and values, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Configuration(pub(super) Vec<(String, String)>);

impl Configuration {
    /// A field's value, or that there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("not set", |(_, value)| value)
    }

    /// That of the run of which this is a part.
    pub(super) fn without_shard(mut self) -> Configuration {
        self.0.retain(|(name, _)| name != SHARD);
        self
    }

    /// The first field that differs, with the value here and there.
    pub(super) fn difference<'a>(&'a self, other: &'a Configuration) -> Option<(&'a str, &'a str, &'a str)> {
        let names = self.0.iter().chain(&other.0).map(|(name, _)| name.as_str());
        names.map(|name| (name, self.get(name), other.get(name))).find(|(_, here, there)| here != there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(fields: &[(&str, &str)]) -> Configuration {
        Configuration(fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let one = configuration(&[("a", "1"), ("b", "2"), ("c", "3")]);
        assert_eq!(one.difference(&one), None);
        let other = configuration(&[("a", "1"), ("b", "4"), ("c", "5")]);
        assert_eq!(one.difference(&other), Some(("b", "2", "4")));
        // A field that one side does not have: on either side.
        let shorter = configuration(&[("a", "1"), ("c", "3")]);
        assert_eq!(one.difference(&shorter), Some(("b", "2", "not set")));
        assert_eq!(shorter.difference(&one), Some(("b", "not set", "2")));
    }

    #[test]
    fn what_results_depend_on_is_in_the_configuration() {
        let job = Job {
            train: "ref:aligned".into(),
            infer: "ref:aligned".into(),
            seed: 1,
            profile: Profile::Quick,
            oracle: Mode::Enclosure,
            pins: Pins::default(),
            data: None,
            keep_going: false,
            shard: None,
            length: Length::Cases(1),
        };
        let of = |job: &Job| job.configuration(&job.attention(Consent::default()).unwrap());
        let base = of(&job);
        let differs = |job: Job| base.difference(&of(&job)).map(|(name, _, _)| name.to_owned());
        assert_eq!(differs(Job { length: Length::Cases(2), ..job.clone() }), None);
        assert_eq!(differs(Job { train: "ref:aligned,softmax.block=64".into(), ..job.clone() }), None, "another spelling");
        for (other, name) in [
            (Job { train: "ref:aligned,softmax.block=16".into(), ..job.clone() }, "train.softmax.block"),
            (Job { infer: "ref:aligned,actual.anchor=top_left".into(), ..job.clone() }, "infer.actual.anchor"),
            (Job { infer: "ref:aligned,profile=p-bf16".into(), ..job.clone() }, "infer.profile.kv.descale"),
            (Job { seed: 2, ..job.clone() }, "seed"),
            (Job { profile: Profile::Mixed, ..job.clone() }, "profile"),
            (Job { oracle: Mode::Off, ..job.clone() }, "oracle"),
            (Job { data: Some("tests/captures/minilm-slice.safetensors".into()), ..job.clone() }, "data"),
            (Job { pins: "causal=none".parse().unwrap(), ..job.clone() }, "pins"),
            (Job { keep_going: true, ..job.clone() }, "keep_going"),
            (Job { shard: Some("2/7".parse().unwrap()), ..job.clone() }, "shard"),
        ] {
            assert_eq!(differs(other).as_deref(), Some(name));
        }
    }
}
