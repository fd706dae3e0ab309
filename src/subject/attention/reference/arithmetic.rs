//! The steps of the mathematics, each as the numerics and conventions of a kernel want it.

use super::exponential::{Exponential, LOG2_E};
use super::narrow::multiply_add;
use crate::subject::attention::conventions::{AlibiForm, CapOrder, Conventions, ScalesConvention};
use crate::subject::attention::kernel::Attributes;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::numerics::{Descale, Finish, Numerics, ScaleAt};

/// What is the same for every row of a call.
pub(super) struct Arithmetic<'a> {
    pub numerics: &'a Numerics,
    pub actual: &'a Conventions,
    pub attributes: &'a Attributes<'a>,
    pub exponential: Exponential,
    /// Weights are `exp2(score * factor - max * factor)`; `None`: `exp(score - max)`.
    factor: Option<f32>,
    /// What turns a stored score into a natural one: the scale where scores are kept raw.
    raw_scale: Option<f32>,
    /// What a query, a finished dot product or a raw score is multiplied with.
    pub scale: f32,
    /// What keys and values are multiplied with as they are read.
    pub on_load: [f32; 2],
    /// What the finished output is multiplied with.
    pub on_output: f32,
    pub mutant: Option<Mutant>,
    /// What a fault adds to the output behind a sequence's last key, `[d_v]`; empty without one.
    pub unused: Vec<f32>,
}

impl<'a> Arithmetic<'a> {
    pub(super) fn new(
        numerics: &'a Numerics,
        actual: &'a Conventions,
        attributes: &'a Attributes<'a>,
        mutant: Option<Mutant>,
    ) -> Self {
        let mut arithmetic = Arithmetic {
            numerics,
            actual,
            attributes,
            exponential: Exponential::new(numerics.softmax.exp),
            factor: None,
            raw_scale: None,
            scale: attributes.softmax_scale,
            on_load: [1.0; 2],
            on_output: 1.0,
            mutant,
            unused: Vec::new(),
        };
        arithmetic.at(0);
        arithmetic
    }

    /// Takes the scales of a KV head.
    ///
    /// Folded as FlashAttention 3 does it (hopper/flash_fwd_kernel_sm90.h, mainloop_fwd_sm90_tma_gmma_ws.hpp and softmax.h): the
    /// key's scale is multiplied, in f32, into the softmax scale, or into its product with log2 e where scores stay raw; the value's
    /// into the final normalisation, `acc * ((1 / l) * scale)`, or `(acc / l) * scale` where that divides. A split's partial
    /// is normalised, and so scaled, before it is merged.
    pub(super) fn at(&mut self, kv_head: usize) {
        let attributes = self.attributes;
        let scales = attributes.kv_scales.filter(|_| self.actual.kv_scales == ScalesConvention::Applied);
        let (k, v) = scales.map_or((1.0, 1.0), |scales| scales.of(kv_head));
        let on_scale = match self.numerics.kv.descale {
            Descale::OnLoad => {
                (self.on_load, self.on_output) = ([k, v], 1.0);
                1.0
            }
            Descale::Folded => {
                (self.on_load, self.on_output) = ([1.0; 2], v);
                k
            }
        };
        let folded = self.numerics.score.scale == ScaleAt::FoldedLog2e;
        let raw = folded && attributes.softcap.is_none() && attributes.alibi_slopes.is_none();
        self.scale = attributes.softmax_scale * on_scale;
        // The product with log2 e is taken in double, as FlashAttention's host code does, and rounded once.
        let by_log2e = (f64::from(attributes.softmax_scale) * std::f64::consts::LOG2_E) as f32;
        self.factor = folded.then_some(if raw { by_log2e * on_scale } else { LOG2_E });
        self.raw_scale = raw.then_some(self.scale);
    }

    /// From a finished dot product to the stored score.
    #[inline]
    pub(super) fn score(&self, dot: f32, head: usize, position: i64, key: u32) -> f32 {
        let scaled = match self.numerics.score.scale {
            ScaleAt::OnQuery => dot,
            ScaleAt::FoldedLog2e if self.raw_scale.is_some() => dot,
            ScaleAt::OnScore | ScaleAt::FoldedLog2e => dot * self.scale,
        };
        let cap = |s: f32| self.attributes.softcap.map_or(s, |cap| cap * core_math::tanhf(s / cap));
        let biased = |s: f32| match (self.attributes.alibi_slopes, self.actual.alibi) {
            (None, _) => s,
            (Some(slopes), AlibiForm::Distance) => s - slopes[head] * (position - i64::from(key)).unsigned_abs() as f32,
            (Some(slopes), AlibiForm::KeyIndex) => s + slopes[head] * key as f32,
        };
        let score = match self.actual.cap_order {
            CapOrder::CapThenBias => biased(cap(scaled)),
            CapOrder::BiasThenCap => cap(biased(scaled)),
        };
        self.numerics.score.store.squeeze(score)
    }

    /// Weights of scores against a maximum.
    pub(super) fn weights(&self, scores: &[f32], max: f32, out: &mut [f32]) {
        let pairs = out.iter_mut().zip(scores);
        match self.factor {
            None => pairs.for_each(|(w, &s)| *w = self.exponential.exp(s - max)),
            Some(factor) => {
                let shift = max * factor;
                if self.numerics.score.fma || self.mutant == Some(Mutant::FusedExponent) {
                    pairs.for_each(|(w, &s)| *w = self.exponential.exp2(multiply_add(s, factor, -shift)));
                } else {
                    pairs.for_each(|(w, &s)| *w = self.exponential.exp2(s * factor - shift));
                }
            }
        }
    }

    /// What earlier sums are multiplied with when the maximum moves. Under a folded scale the difference is taken first, as in
    /// FlashAttention 2 (softmax.h).
    #[inline]
    pub(super) fn rescale(&self, old: f32, new: f32) -> f32 {
        match self.factor {
            None => self.exponential.exp(old - new),
            Some(factor) => self.exponential.exp2((old - new) * factor),
        }
    }

    /// A maximum in natural units.
    #[inline]
    pub(super) fn natural(&self, max: f32) -> f32 {
        self.raw_scale.map_or(max, |scale| max * scale)
    }

    #[inline]
    pub(super) fn divide(&self, acc: f32, l: f32) -> f32 {
        match self.numerics.finish {
            Finish::Divide => acc / l * self.on_output,
            Finish::Reciprocal => acc * (1.0 / l * self.on_output),
        }
    }

    /// Weights of a cell, and those of padding lanes with the score of a softcapped -inf.
    pub(super) fn padded(&self, terms: &[f32], padding: usize, max: f32) -> Vec<f32> {
        let mut padded = terms.to_vec();
        padded.resize(terms.len() + padding, 0.0);
        let cap = self.attributes.softcap.unwrap_or(f32::INFINITY);
        self.weights(&vec![-cap; padding], max, &mut padded[terms.len()..]);
        padded
    }

    /// What partial outputs are weighed with, given the weights of their sums.
    pub(super) fn shares(&self, lse: [f32; 2], max: f32, weights: [f32; 2]) -> [f32; 2] {
        match self.mutant {
            Some(Mutant::MergeTakesBaseTwo) => lse.map(|lse| self.exponential.exp((lse - max) * LOG2_E)),
            _ => weights,
        }
    }

    /// The head whose ALiBi slope a head takes.
    pub(super) fn slope_head(&self, head: usize) -> usize {
        match self.mutant {
            Some(Mutant::SlopesByKvHead) => head / (self.attributes.q_heads / self.attributes.kv_heads),
            _ => head,
        }
    }

    /// How often the sink joins the merge of so many partials.
    pub(super) fn sinks_merged(&self, parts: usize) -> usize {
        if self.mutant == Some(Mutant::SinkInEverySplit) { parts.max(1) } else { 1 }
    }

    pub(super) fn sink(&self, head: usize) -> Option<f32> {
        self.attributes.sinks.map(|sinks| sinks[head])
    }

    pub(super) fn unsplit(&self) -> bool {
        !self.numerics.grid.has_partials(self.attributes.context)
    }
}

/// The maximum that comparisons find: a NaN score never wins.
#[inline]
pub(super) fn larger(max: f32, x: f32) -> f32 {
    if x > max { x } else { max }
}
