//! Draws cases: one generator behind the campaign, the fuzz targets and the property tests.
//!
//! Every drawn case is valid. Choice 0 is the simplest everywhere, so a source that has run dry gives the smallest case: one
//! sequence with one row and one key, one head, one lane, dense without padding against a contiguous cache.

mod geometry;
mod ranks;
mod schedule;
mod table;
mod within;

use super::case::{Case, Data, Problem};
use super::pin::Pins;
use super::scope::Scope;
use crate::finding::Path;
use crate::source::{Bytes, Source};
use std::fmt;
use std::str::FromStr;
use table::Caps;
use within::Within;

/// How large the drawn cases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// Small cases: a smoke test, a fuzz target.
    Quick,
    /// Mostly small, with a tail to hundreds of positions.
    Mixed,
    /// Up to thousands of positions with tiny heads.
    Long,
}

impl Profile {
    /// Every profile, smallest first.
    pub const ALL: [Profile; 3] = [Profile::Quick, Profile::Mixed, Profile::Long];

    fn name(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Mixed => "mixed",
            Profile::Long => "long",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Profile::ALL.into_iter().find(|profile| profile.name() == text);
        known.ok_or_else(|| format!("unknown profile `{text}` (one of quick, mixed, long)"))
    }
}

/// What a captured file holds, as far as drawing needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedShape {
    /// SHA-256 of the file, lower-case hex; goes into the case.
    pub sha256: String,
    /// Tokens of each sequence; a sequence's id is its index here.
    pub lengths: Vec<u32>,
    /// KV heads, labelled from 0; at least one.
    pub kv_heads: u32,
    /// Query heads of each KV head, labelled from 0; at least one.
    pub groups: u32,
    /// Head dim of queries and keys.
    pub d_qk: u32,
    /// Head dim of values.
    pub d_v: u32,
    /// The scale the activations were computed for.
    pub softmax_scale: f32,
}

/// What a campaign knows about its kernels and data.
#[derive(Clone, Debug, Default)]
pub struct Hints<'a> {
    /// Block and split sizes in play; lengths are drawn around them. Empty: 4, 16 and 64.
    pub granules: Vec<u32>,
    /// Head dims to draw now and then, beside the usual ones.
    pub head_dims: Vec<u32>,
    /// What every case is held to. Head dims and heads of captured sequences are the file's.
    pub pins: Pins,
    /// Draw sequences of this file instead of values; at least one sequence has tokens.
    pub captured: Option<&'a CapturedShape>,
    /// What the kernels can do: what is drawn beyond it is replaced.
    pub scope: Scope,
}

/// A case, and what it would have had if the kernels could do more.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// Valid, and inside the [scope](Hints::scope).
    pub case: Case,
    /// Reasons, each once: what was drawn and left out.
    pub left_out: Vec<String>,
}

/// Draws a valid case.
pub fn draw(source: &mut dyn Source, profile: Profile, hints: &Hints<'_>) -> Case {
    draw_within(source, profile, hints).case
}

/// Draws a valid case that the kernels can do. A choice that they cannot is replaced after it was made, so that kernels that can do
/// anything have the same cases as without a scope.
pub fn draw_within(source: &mut dyn Source, profile: Profile, hints: &Hints<'_>) -> Drawn {
    let mut within = Within::new(&hints.scope);
    let caps = Caps::of(profile);
    let mut granules = if hints.granules.is_empty() { vec![4, 16, 64] } else { hints.granules.clone() };
    let cache = schedule::cache(source, &granules);
    let cache = within.cache(source, cache);
    // Pages and chunks are granules of their own: lengths around them are as telling as those around blocks.
    granules.extend(schedule::page(&cache));
    let chunk = source.boundary(&granules, caps.typical_kv);
    granules.push(chunk);
    let even = within.must_be_even(&cache);
    let (mut problem, data) = geometry::problem(source, caps, &granules, hints, &mut within, even);
    let one_rank = |path| !hints.scope.side(path).context_parallel();
    let mut train = schedule::train(source, &problem, &granules);
    within.train(&mut train, &problem);
    (train.context, train.head_ranks) = ranks::ranks(source, &problem, &granules, one_rank(Path::Train));
    let mut infer = schedule::infer(source, &problem, cache, &granules, chunk);
    within.infer(&mut infer, &problem);
    (infer.context, infer.head_ranks) = ranks::ranks(source, &problem, &granules, one_rank(Path::Infer));
    geometry::fp8_kv(source, &mut problem, hints.pins.kv_dtype);
    within.fp8_kv(&mut problem);
    train.knobs = within.knobs(source, Path::Train);
    infer.knobs = within.knobs(source, Path::Infer);
    Drawn { case: Case { problem, train, infer, data }, left_out: within.left_out }
}

/// Draws other values for a problem: regime and seed.
pub fn draw_data(source: &mut dyn Source, problem: &Problem) -> Data {
    geometry::data(source, problem)
}

/// Positions of the longest sequence that may be drawn.
pub(super) fn longest(profile: Profile, hints: &Hints<'_>) -> u32 {
    geometry::longest(Caps::of(profile), hints)
}

impl<'a> arbitrary::Arbitrary<'a> for Case {
    /// A case of [`Profile::Quick`] from a fuzzer's bytes; no bytes are the smallest case.
    fn arbitrary(bytes: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(draw(&mut Bytes::new(bytes), Profile::Quick, &Hints::default()))
    }
}

#[cfg(test)]
mod tests;
