//! Partial results: which keys go into which, and in what order they are merged.
//!
//! A partial is normalised by its own row sum and weighted by its `lse` when it is merged. `M` and `-M` in two partials then cancel only
//! where those roundings happen to agree, so that the masks of a plain sum do not count across partials. That is how partials are found: with
//! random scores for all other keys, `M` and `-M` at equal scores leave exactly 0 inside one partial, in every draw.
//!
//! The order of the merges is then asked with one key of each partial, three at a time: partials of one key each have one `lse`, and
//! those whose keys all have vanishing weight change nothing.

use super::finishing::Finishing;
use super::stand::Stand;
use super::weights::Weights;
use crate::number::{Dtype, truncate_f64};
use crate::reveal::{Accumulator, Arithmetic, Fused, Mask, Refusal, Summation};
use crate::source::{Source, Stream};
use crate::subject::attention::numerics::{Numerics, Store};
use crate::subject::attention::reference::Exponential;
use crate::tree::Tree;

/// Draws of the other keys' scores. Two partials pass for one in one of them in about one case of eight.
const DRAWS: u64 = 10;

/// Small enough for every format, large enough that what is left of it shows in each.
const MASK: f32 = 8192.0;

/// The keys of each partial, in the order of their first keys.
pub(super) fn partition(stand: &mut Stand<'_>) -> Result<Vec<Vec<u32>>, Refusal> {
    let lanes = stand.lanes();
    let mut rest: Vec<u32> = stand.keys().collect();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let first = rest.remove(0);
        let mut same = rest.clone();
        for draw in 0..DRAWS {
            let mut kept = Vec::with_capacity(same.len());
            for chunk in same.chunks(lanes) {
                stand.set_scores(|key| match key == first || chunk.contains(&key) {
                    true => 0.0,
                    false => Stream::new(draw, u64::from(key)).below(256) as f32 / -256.0,
                });
                stand.clear_values();
                for (lane, &key) in chunk.iter().enumerate() {
                    stand.set_value(first, lane, MASK);
                    stand.set_value(key, lane, -MASK);
                }
                let output = stand.output();
                let o = stand.run()?.o;
                kept.extend(chunk.iter().zip(o).filter(|(_, bits)| output.to_f32(*bits) == 0.0).map(|(&key, _)| key));
            }
            same = kept;
        }
        rest.retain(|key| !same.contains(key));
        parts.push([vec![first], same].concat());
    }
    Ok(parts)
}

/// How partials are merged: by their `lse`, two at a time, as the reference kernel does it.
pub(super) struct Merging {
    lse_dtype: Dtype,
    partial_dtype: Dtype,
    exponential: Exponential,
    truncates: bool,
}

/// A normalised partial and its `lse`.
type Partial = (f32, f32);

impl Merging {
    pub(super) fn new(numerics: &Numerics) -> Self {
        Merging {
            lse_dtype: numerics.grid.lse_dtype,
            partial_dtype: numerics.grid.partial_dtype,
            exponential: Exponential::new(numerics.softmax.exp),
            truncates: numerics.store == Store::Truncate,
        }
    }

    /// The partial of a finished sum over so many keys of score 0.
    pub(super) fn partial(&self, finishing: &Finishing, sum: f64) -> Partial {
        let value = self.partial_dtype.squeeze(finishing.divided(sum) as f32);
        (value, self.lse_dtype.squeeze(core_math::logf(finishing.row_sum)))
    }

    fn merge(&self, a: Partial, b: Partial) -> Partial {
        let max = if b.1 > a.1 { b.1 } else { a.1 };
        let [x, y] = [a.1, b.1].map(|lse| self.exponential.exp(lse - max));
        let sum = x + y;
        let value = self.partial_dtype.squeeze((a.0 * x + b.0 * y) / sum);
        (value, self.lse_dtype.squeeze(max + core_math::logf(sum)))
    }

    /// Merges in the order of a tree over numbers of partials.
    pub(super) fn merged(&self, tree: &Tree, partial: &impl Fn(u32) -> Partial) -> Partial {
        match tree {
            Tree::Leaf(n) => partial(*n),
            Tree::Sum(children) | Tree::Fused(children) => children
                .iter()
                .map(|child| self.merged(child, partial))
                .reduce(|a, b| self.merge(a, b))
                .unwrap_or((0.0, f32::NEG_INFINITY)),
        }
    }

    /// A result as it is stored.
    pub(super) fn stored(&self, output: Dtype, value: f32) -> u32 {
        if self.truncates { truncate_f64(output, f64::from(value)) } else { output.round_f32(value) }
    }
}

/// The merges as a sum over partials: one key of each has weight 1.
pub(super) struct Merges<'s, 'k> {
    pub(super) stand: &'s mut Stand<'k>,
    /// One key of each partial.
    pub(super) keys: Vec<u32>,
    pub(super) merging: Merging,
}

impl Merges<'_, '_> {
    fn run_with(&mut self, present: Option<&[bool]>, value: impl Fn(usize) -> f32) -> Result<u32, Refusal> {
        let here = |leaf: usize| present.is_none_or(|present| present[leaf]);
        let keys = self.keys.iter().enumerate().filter(|&(leaf, _)| here(leaf)).map(|(_, &key)| key);
        let mut carriers: Vec<u32> = keys.collect();
        carriers.sort_unstable();
        Weights::only(carriers).put(self.stand);
        self.stand.clear_values();
        for (leaf, &key) in self.keys.iter().enumerate().filter(|&(leaf, _)| here(leaf)) {
            self.stand.set_value(key, 0, value(leaf));
        }
        Ok(self.stand.run()?.o[0])
    }
}

impl Summation for Merges<'_, '_> {
    fn leaves(&self) -> usize {
        self.keys.len()
    }

    fn mask(&self) -> Mask {
        let usual = Mask::of(self.stand.inputs(), Dtype::F32, Dtype::F32);
        // Three at a time: more have other `lse` after the first merge than single ones. A third of the unit is a normal number of any
        // output, and the unit vanishes beside M.
        Mask { unit: if usual.unit == 1.0 { 1.0 } else { 2f64.powi(-10) }, reach: 3, output: self.stand.output(), ..usual }
    }

    fn probe(&mut self, plus: usize, minus: usize, present: Option<&[bool]>) -> Result<f64, Refusal> {
        let Mask { large, unit, output, .. } = self.mask();
        let bits = self.run_with(present, |leaf| match leaf {
            _ if leaf == plus => large as f32,
            _ if leaf == minus => -large as f32,
            _ => unit as f32,
        })?;
        let here = present.map_or(self.keys.len(), |present| present.iter().filter(|&&here| here).count());
        let measured = output.to_f64(bits) * here as f64 / unit;
        // Merge weights round, so that what is left of one unit is near 1. What is large is what is left of M where the unit was merged
        // with one of the two before they met: lost as surely as where they cancel to 0.
        Ok(match measured {
            _ if (measured - 1.0).abs() < 1.0 / 64.0 => 1.0,
            _ if measured.abs() > 2.0 => 0.0,
            _ => measured,
        })
    }

    fn run(&mut self, values: &[f32]) -> Result<u32, Refusal> {
        self.run_with(None, |leaf| values[leaf])
    }

    fn evaluate(&self, tree: &Tree, _: Arithmetic, values: &[f32]) -> u32 {
        let (value, _) = self.merging.merged(tree, &|leaf| (values[leaf as usize], 0.0));
        self.merging.stored(self.stand.output(), value)
    }

    fn arithmetics(&self) -> Vec<Arithmetic> {
        vec![Arithmetic { accumulate: Accumulator::Of(Dtype::F32), fused: Fused::Nearest }]
    }
}
