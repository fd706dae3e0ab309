//! The sum over head-dim lanes in a score, read from `lse`: with one key, `lse` is its score.

use super::stand::Stand;
use crate::number::Dtype;
use crate::reveal::{Accumulator, Arithmetic, Mask, Refusal, Summation};
use crate::subject::attention::conventions::LseBase;
use crate::subject::attention::numerics::{Numerics, ScaleAt};
use crate::subject::attention::reference::Exponential;
use crate::tree::Tree;
use std::collections::HashMap;
use std::f32::consts::LOG2_E;

/// The lanes of one key under a query of ones; the scale is 1.
pub(super) struct Scores<'s, 'k> {
    stand: &'s mut Stand<'k>,
    key: u32,
    lanes: usize,
    declared: Numerics,
    base: LseBase,
    mask: Mask,
    counts: HashMap<u32, f64>,
}

impl<'s, 'k> Scores<'s, 'k> {
    pub(super) fn new(stand: &'s mut Stand<'k>, declared: Numerics, base: LseBase) -> Self {
        let lanes = stand.problem().d_qk as usize;
        stand.set_scale(1.0);
        stand.set_query(&vec![1.0; lanes]);
        let key = stand.keys().start;
        // Far below whatever the terms add up to, and finite.
        let mask = Mask::of(stand.inputs(), declared.score.acc, Dtype::F32);
        let low = if stand.inputs().max_finite() > 1e30 { -1e25 } else { -32_768.0 };
        for other in stand.keys().skip(1) {
            stand.set_key(other, &vec![low; lanes]);
        }
        let mut scores = Scores { stand, key, lanes, declared, base, mask, counts: HashMap::new() };
        for count in 0..lanes.min(mask.reach) {
            if scores.counts.contains_key(&scores.bits(count as f64 * mask.unit)) {
                scores.mask.reach = scores.mask.reach.min(count + 1);
                break;
            }
            scores.counts.insert(scores.bits(count as f64 * mask.unit), count as f64);
        }
        scores
    }

    /// A finished sum as `lse` has it.
    fn bits(&self, sum: f64) -> u32 {
        let Numerics { score, softmax, .. } = &self.declared;
        let value = score.store.squeeze(sum as f32);
        let natural = match score.scale {
            // The one weight is not 1 where the product with log2 e is fused: what its rounding left is in it.
            ScaleAt::FoldedLog2e if score.fma => {
                let left = value.mul_add(LOG2_E, -(value * LOG2_E));
                value + core_math::logf(Exponential::new(softmax.exp).exp2(left))
            }
            _ => value,
        };
        let lse = match self.base {
            LseBase::E => natural,
            LseBase::Two => natural * LOG2_E,
        };
        Dtype::F32.round_f32(lse)
    }
}

impl Summation for Scores<'_, '_> {
    fn leaves(&self) -> usize {
        self.lanes
    }

    fn mask(&self) -> Mask {
        self.mask
    }

    fn probe(&mut self, plus: usize, minus: usize, present: Option<&[bool]>) -> Result<f64, Refusal> {
        let Mask { large, unit, .. } = self.mask;
        let values: Vec<f32> = (0..self.lanes)
            .map(|lane| match lane {
                _ if lane == plus => large as f32,
                _ if lane == minus => -large as f32,
                _ if present.is_none_or(|present| present[lane]) => unit as f32,
                _ => 0.0,
            })
            .collect();
        let bits = self.run(&values)?;
        Ok(self.counts.get(&bits).copied().unwrap_or(f64::from(f32::from_bits(bits)) / unit))
    }

    fn run(&mut self, values: &[f32]) -> Result<u32, Refusal> {
        self.stand.set_key(self.key, values);
        Ok(self.stand.run()?.lse)
    }

    fn evaluate(&self, tree: &Tree, arithmetic: Arithmetic, values: &[f32]) -> u32 {
        self.bits(arithmetic.sum(tree, &|lane| values[lane as usize]))
    }

    fn arithmetics(&self) -> Vec<Arithmetic> {
        let mut all = Arithmetic::ALL.to_vec();
        all.sort_by_key(|it| it.accumulate != Accumulator::Of(self.declared.score.acc));
        all
    }
}
