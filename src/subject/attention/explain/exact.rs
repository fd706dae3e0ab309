//! The exact value of a step, from the oracle.

use crate::number::{Dtype, round_mpfr, ulp_size};
use crate::subject::attention::Problem;
use crate::subject::attention::conventions::{Conventions, LseBase, SinkInLse};
use crate::subject::attention::oracle::{self, ReferenceScore};
use crate::subject::attention::reference::trace::{Against, Definition, Stage};
use rug::Float;

/// What exact arithmetic gives for a step.
pub(super) struct Truth {
    float: Float,
    /// The format in which the step's result is kept at the end: that of the output for what is stored, else F32.
    dtype: Dtype,
}

impl Truth {
    /// Its f32 pattern, rounded to the step's format.
    pub fn bits(&self) -> u32 {
        self.dtype.to_f32(round_mpfr(self.dtype, &self.float)).to_bits()
    }

    /// One ULP at the exact value, in the step's format. Beside zero that would be the least subnormal, and counts of it say nothing:
    /// there it is one of the larger result.
    pub fn ulp(&self, results: [u32; 2]) -> f64 {
        let value = self.float.to_f64().abs();
        let finite = results.map(|bits| f64::from(f32::from_bits(bits)).abs()).into_iter().filter(|x| x.is_finite());
        ulp_size(self.dtype, if value < self.dtype.least_normal() { finite.fold(value, f64::max) } else { value })
    }

    /// How far an f32 pattern is from it; NaN for a NaN.
    pub fn distance(&self, bits: u32) -> f64 {
        let value = f32::from_bits(bits);
        if value.is_infinite() && self.float.to_f64() == f64::from(value) {
            return 0.0;
        }
        let distance = Float::with_val(self.float.prec().max(64) + 64, &self.float - value);
        distance.to_f64().abs()
    }
}

/// The exact steps of a row, asked by definition.
pub(super) struct Exact<'a> {
    pub steps: oracle::Steps<'a>,
    problem: &'a Problem,
    /// What the kernels say that a call means.
    declared: Conventions,
}

impl<'a> Exact<'a> {
    pub fn new(steps: oracle::Steps<'a>, problem: &'a Problem, declared: Conventions) -> Self {
        Exact { steps, problem, declared }
    }

    /// The exact value of a step; `None` where it has none.
    pub fn of(&mut self, definition: &Definition) -> Option<Truth> {
        let dtype = if definition.stage == Stage::Store { self.problem.out_dtype } else { Dtype::F32 };
        Some(Truth { float: self.float(definition)?, dtype })
    }

    fn float(&mut self, definition: &Definition) -> Option<Float> {
        let Definition { stage, keys, lane, against, before, sink, unit } = definition;
        let key = || keys.first().map(|keys| keys.start);
        let visible = [self.steps.visible()];
        let sink = *sink && self.steps.sink().is_some();
        match stage {
            Stage::Dot => self.steps.dot(key()?, unit.softmax_scale, unit.as_stored),
            Stage::Score => self.score(key()?, unit.softmax_scale, unit.as_stored),
            Stage::Maximum => {
                let key = self.peak(keys)?;
                self.score(key, unit.softmax_scale, unit.as_stored)
            }
            Stage::Rescale => self.steps.factor(self.reference((*before)?)?, self.reference((*against)?)?),
            Stage::Weight | Stage::RoundedWeight => self.steps.factor(ReferenceScore::Key(key()?), self.reference((*against)?)?),
            Stage::BlockSum | Stage::RowSum => self.steps.sum(keys, false, self.reference((*against)?)?),
            Stage::SinkSum => {
                let (peak, sink) = (self.peak(keys)?, self.steps.sink());
                let above = sink.filter(|&sink| self.steps.rough_score(peak).is_none_or(|score| sink > score));
                self.steps.sum(keys, true, above.map_or(ReferenceScore::Key(peak), ReferenceScore::Number))
            }
            Stage::Probability => self.steps.probability(key()?, &visible, true),
            Stage::BlockValue | Stage::Accumulator => match (*against)? {
                Against::Sum => self.steps.share(keys, &visible, (*lane)?, unit.as_stored),
                against => self.steps.product(keys, (*lane)?, self.reference(against)?, unit.as_stored),
            },
            Stage::PartialLse | Stage::MergedLse => self.steps.lse(keys, sink),
            Stage::Partial | Stage::Merged => self.steps.output(keys, keys, sink, (*lane)?),
            Stage::Finish | Stage::Store => self.steps.output(&visible, &visible, true, (*lane)?),
            Stage::Lse => match (self.declared.lse_base, self.declared.sink_in_lse) {
                (LseBase::E, SinkInLse::Yes) => {
                    self.steps.lse(&visible, true).or_else(|| Some(Float::with_val(53, f64::NEG_INFINITY)))
                }
                _ => None,
            },
        }
    }

    fn score(&self, key: u32, softmax_scale: bool, as_stored: bool) -> Option<Float> {
        if softmax_scale { self.steps.score(key) } else { self.steps.dot(key, false, as_stored) }
    }

    /// The key of the largest score.
    fn peak(&self, keys: &[std::ops::Range<u32>]) -> Option<u32> {
        let scored = keys.iter().flat_map(|keys| keys.clone()).filter_map(|key| Some((key, self.steps.rough_score(key)?)));
        scored
            .fold(None::<(u32, f64)>, |best, it| if best.is_none_or(|best| it.1 > best.1) { Some(it) } else { best })
            .map(|it| it.0)
    }

    fn reference(&self, against: Against) -> Option<ReferenceScore> {
        match against {
            Against::Key(key) => Some(ReferenceScore::Key(key)),
            Against::Start { bits, raw } => {
                let scale = if raw { f64::from(self.problem.softmax_scale) } else { 1.0 };
                // A product of two f32 is exact in f64.
                Some(ReferenceScore::Number(f64::from(f32::from_bits(bits)) * scale))
            }
            Against::Sum => None,
        }
    }
}
