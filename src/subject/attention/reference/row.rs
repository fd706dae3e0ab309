//! One row of one head: scores, the softmax loop over the recipe's cells, split partials, the merge, the store.

use super::exponential::{Exponential, LOG2_E};
use super::narrow::multiply_add;
use super::planted::{self, Flaw};
use super::sum::{self, SumScratch};
use super::trace::{Label, Recorder};
use super::view::Gathered;
use crate::number::{Dtype, truncate_f64};
use crate::subject::attention::conventions::{AlibiForm, CapOrder, Conventions, EmptyRow, LseBase, ScalesConvention, SinkInLse};
use crate::subject::attention::kernel::Attributes;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::numerics::{Descale, Finish, MaxInit, Merge, Numerics, Passes, Rescale, ScaleAt, Store, SumOf};
use crate::subject::attention::recipe::{Cell, Layout};
use std::ops::Range;

/// What is the same for every row of a call.
pub(super) struct Arithmetic<'a> {
    pub numerics: &'a Numerics,
    pub actual: &'a Conventions,
    pub attributes: &'a Attributes<'a>,
    exponential: Exponential,
    /// Weights are `exp2(score * factor - max * factor)`; `None`: `exp(score - max)`.
    factor: Option<f32>,
    /// What turns a stored score into a natural one: the scale where scores are kept raw.
    raw_scale: Option<f32>,
    /// What a query, a finished dot product or a raw score is multiplied with.
    pub scale: f32,
    /// What keys and values are multiplied with as they are read.
    pub on_load: [f32; 2],
    /// What the finished output is multiplied with.
    on_output: f32,
    mutant: Option<Mutant>,
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
    fn score(&self, dot: f32, head: usize, position: i64, key: u32) -> f32 {
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
    fn weights(&self, scores: &[f32], max: f32, out: &mut [f32]) {
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
    fn rescale(&self, old: f32, new: f32) -> f32 {
        match self.factor {
            None => self.exponential.exp(old - new),
            Some(factor) => self.exponential.exp2((old - new) * factor),
        }
    }

    /// A maximum in natural units.
    fn natural(&self, max: f32) -> f32 {
        self.raw_scale.map_or(max, |scale| max * scale)
    }

    fn divide(&self, acc: f32, l: f32) -> f32 {
        match self.numerics.finish {
            Finish::Divide => acc / l * self.on_output,
            Finish::Reciprocal => acc * (1.0 / l * self.on_output),
        }
    }

    /// Weights of a cell, and those of padding lanes with the score of a softcapped -inf.
    fn padded(&self, terms: &[f32], padding: usize, max: f32) -> Vec<f32> {
        let mut padded = terms.to_vec();
        padded.resize(terms.len() + padding, 0.0);
        let cap = self.attributes.softcap.unwrap_or(f32::INFINITY);
        self.weights(&vec![-cap; padding], max, &mut padded[terms.len()..]);
        padded
    }

    /// What partial outputs are weighed with, given the weights of their sums.
    fn shares(&self, lse: [f32; 2], max: f32, weights: [f32; 2]) -> [f32; 2] {
        match self.mutant {
            Some(Mutant::MergeTakesBaseTwo) => lse.map(|lse| self.exponential.exp((lse - max) * LOG2_E)),
            _ => weights,
        }
    }

    /// The head whose ALiBi slope a head takes.
    fn slope_head(&self, head: usize) -> usize {
        match self.mutant {
            Some(Mutant::SlopesByKvHead) => head / (self.attributes.q_heads / self.attributes.kv_heads),
            _ => head,
        }
    }

    /// How often the sink joins the merge of so many partials.
    fn sinks_merged(&self, parts: usize) -> usize {
        if self.mutant == Some(Mutant::SinkInEverySplit) { parts.max(1) } else { 1 }
    }

    fn sink(&self, head: usize) -> Option<f32> {
        self.attributes.sinks.map(|sinks| sinks[head])
    }

    fn unsplit(&self) -> bool {
        !self.numerics.grid.has_partials(self.attributes.context)
    }
}

/// The maximum that comparisons find: a NaN score never wins.
#[inline]
fn larger(max: f32, x: f32) -> f32 {
    if x > max { x } else { max }
}

/// One row of one head on its way; the buffers are kept between rows.
#[derive(Default)]
pub(super) struct Row {
    /// The cuts; shared by the heads of a group.
    pub layout: Layout,
    /// From which ALiBi measures.
    pub position: i64,
    pub flaw: Flaw,
    head: usize,
    keys: Range<u32>,
    /// One for each key in `keys`.
    scores: Vec<f32>,
    weights: Vec<f32>,
    /// Number of cells done.
    done: usize,
    /// The part in work.
    part: usize,
    max: f32,
    sum: f32,
    /// `[d_v]`.
    acc: Vec<f32>,
    rounded: Vec<f32>,
    /// `[parts, d_v]` and `[parts]`.
    partials: Vec<f32>,
    partial_lse: Vec<f32>,
    merging: Vec<(u32, usize)>,
    /// Output patterns, `[d_v]`.
    pub stored: Vec<u32>,
}

impl Row {
    /// Computes the scores and makes ready for the first cell. `q`: the row's query, decoded (and scaled, under `on_query`).
    pub(super) fn begin<R: Recorder>(
        &mut self,
        arithmetic: &Arithmetic<'_>,
        head: usize,
        q: &[f32],
        gathered: &Gathered,
        scratch: &mut SumScratch,
        recorder: &mut R,
    ) {
        self.head = head;
        self.keys = self.layout.keys();
        self.scores.clear();
        if !self.keys.is_empty() {
            let slope_head = arithmetic.slope_head(head);
            for (first, lanes) in gathered.groups(self.keys.clone()) {
                let dots = sum::dot(&arithmetic.numerics.score, q, lanes, scratch);
                for (key, dot) in (first..).zip(dots) {
                    if self.keys.contains(&key) {
                        recorder.record(|| Label::Dot { key }, dot);
                        self.scores.push(arithmetic.score(dot, slope_head, self.position, key));
                    }
                }
            }
        }
        if let Some(mutant) = arithmetic.mutant {
            self.flaw.rescore(mutant, self.keys.start, arithmetic.attributes, &mut self.scores);
        }
        if R::ON {
            for (key, &score) in self.keys.clone().zip(&self.scores) {
                recorder.record(|| Label::Score { key }, score);
            }
        }
        self.weights.clear();
        self.weights.resize(self.scores.len(), 0.0);
        self.partials.clear();
        self.partial_lse.clear();
        (self.part, self.done) = (0, 0);
        self.begin_part(arithmetic, scratch, recorder);
    }

    /// The next cell to visit.
    pub(super) fn next(&self) -> Option<&Cell> {
        self.layout.cells.get(self.done)
    }

    fn index(&self, keys: &Range<u32>) -> Range<usize> {
        (keys.start - self.keys.start) as usize..(keys.end - self.keys.start) as usize
    }

    fn block_max(&self, keys: &Range<u32>) -> f32 {
        self.scores[self.index(keys)].iter().fold(f32::NEG_INFINITY, |max, &s| larger(max, s))
    }

    fn begin_part<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, scratch: &mut SumScratch, recorder: &mut R) {
        self.max = match arithmetic.numerics.softmax.max_init {
            MaxInit::NegInf => f32::NEG_INFINITY,
            MaxInit::Finite(x) => x,
        };
        self.sum = 0.0;
        self.acc.clear();
        self.acc.resize(arithmetic.attributes.d_v, 0.0);
        if self.flaw.masked_tile && self.part == 0 {
            let factor = arithmetic.rescale(self.max, self.max);
            recorder.record(|| Label::Rescale { keys: 0..self.keys.start }, factor);
            self.sum *= factor;
            self.acc.iter_mut().for_each(|x| *x *= factor);
        }
        let Some(part) = self.layout.parts.get(self.part) else { return };
        if arithmetic.numerics.softmax.passes == Passes::Online {
            return;
        }
        for n in part.cells.clone() {
            let keys = self.layout.cells[n].keys.clone();
            self.max = larger(self.max, self.block_max(&keys));
            recorder.record(|| Label::Max { keys }, self.max);
        }
        if arithmetic.numerics.probs.normalised {
            for n in part.cells.clone() {
                self.weigh(arithmetic, n, scratch, recorder);
            }
        }
    }

    /// Weights of one cell, and the row sum with them.
    fn weigh<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, cell: usize, scratch: &mut SumScratch, recorder: &mut R) {
        let Cell { keys, slot } = self.layout.cells[cell].clone();
        let numerics = arithmetic.numerics;
        let index = self.index(&keys);
        let weights = &mut self.weights[index.clone()];
        arithmetic.weights(&self.scores[index], self.max, weights);
        if let Some(mutant) = arithmetic.mutant {
            self.flaw.reweigh(mutant, keys.start, weights);
        }
        if R::ON {
            for (key, &w) in keys.clone().zip(weights.iter()) {
                recorder.record(|| Label::Weight { key }, w);
            }
        }
        self.rounded.clear();
        if arithmetic.mutant == Some(Mutant::TruncatedWeights) {
            self.rounded.extend(planted::truncated_to_bf16(weights));
        } else {
            self.rounded.extend(weights.iter().map(|&w| numerics.probs.dtype.squeeze(w)));
        }
        if R::ON {
            for (key, &w) in keys.clone().zip(&self.rounded) {
                recorder.record(|| Label::Rounded { key }, w);
            }
        }
        let mut terms = if numerics.rowsum.of == SumOf::P { &*weights } else { &self.rounded };
        let padded;
        if self.flaw.padding > 0 && keys.end == self.flaw.end {
            padded = arithmetic.padded(terms, self.flaw.padding, self.max);
            terms = &padded;
        }
        let block = sum::row_sum(&numerics.rowsum, terms, slot, scratch);
        recorder.record(|| Label::BlockSum { keys: keys.clone() }, block);
        self.sum = numerics.rowsum.acc.squeeze(self.sum + block);
        recorder.record(|| Label::RowSum { keys }, self.sum);
    }

    /// Whether this row's rule asks for a rescale at its next cell.
    pub(super) fn wants_rescale(&self, arithmetic: &Arithmetic<'_>) -> bool {
        self.next().is_some_and(|cell| self.must_rescale(arithmetic, larger(self.max, self.block_max(&cell.keys))))
    }

    fn must_rescale(&self, arithmetic: &Arithmetic<'_>, max: f32) -> bool {
        match arithmetic.numerics.softmax.rescale {
            Rescale::Always => max > self.max,
            // The first maximum is always taken: a raw scale that underflowed to 0 would make a NaN of its distance from -inf.
            Rescale::Threshold(limit) => {
                max > self.max && (self.max == f32::NEG_INFINITY || arithmetic.natural(max - self.max) > limit)
            }
        }
    }

    /// Visits the next cell. `rescale` is the decision of the row's tile, or `None`: the row decides (unread with two passes).
    pub(super) fn visit<R: Recorder>(
        &mut self,
        arithmetic: &Arithmetic<'_>,
        rescale: Option<bool>,
        gathered: &Gathered,
        scratch: &mut SumScratch,
        recorder: &mut R,
    ) {
        let numerics = arithmetic.numerics;
        let Some(Cell { keys, slot }) = self.next().cloned() else { return };
        if numerics.softmax.passes == Passes::Online {
            let max = larger(self.max, self.block_max(&keys));
            if max > self.max && rescale.unwrap_or_else(|| self.must_rescale(arithmetic, max)) {
                // Before the first cell of a part the sums are +0, and stay so.
                if self.layout.parts[self.part].cells.start != self.done {
                    let factor = arithmetic.rescale(self.max, max);
                    recorder.record(|| Label::Rescale { keys: keys.clone() }, factor);
                    self.sum = numerics.rowsum.acc.squeeze(self.sum * factor);
                    let format = numerics.value.acc;
                    self.acc.iter_mut().for_each(|x| *x = format.squeeze(*x * factor));
                }
                self.max = max;
            }
            recorder.record(|| Label::Max { keys: keys.clone() }, self.max);
        }
        if numerics.probs.normalised {
            self.normalise(arithmetic, &keys, recorder);
        } else {
            self.weigh(arithmetic, self.done, scratch, recorder);
        }
        sum::weighted_values(&numerics.value, &self.rounded, gathered.values(&keys), slot, &mut self.acc, scratch);
        if keys.end == self.flaw.end {
            self.acc.iter_mut().zip(&arithmetic.unused).for_each(|(x, &product)| *x += product);
        }
        if R::ON {
            for (lane, &x) in sum::block_values(&numerics.value, scratch, self.acc.len()).iter().enumerate() {
                recorder.record(|| Label::BlockValue { keys: keys.clone(), lane }, x);
            }
            for (lane, &x) in self.acc.iter().enumerate() {
                recorder.record(|| Label::Accumulator { keys: keys.clone(), lane }, x);
            }
        }
        self.done += 1;
        if self.done == self.layout.parts[self.part].cells.end {
            self.end_part(arithmetic, scratch, recorder);
        }
    }

    /// One cell's weights divided by the row sum, a sink's share included, and rounded.
    fn normalise<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, keys: &Range<u32>, recorder: &mut R) {
        let (_, factor, sum) = self.with_sink(arithmetic);
        let index = self.index(keys);
        let format = arithmetic.numerics.probs.dtype;
        self.rounded.clear();
        self.rounded.extend(self.weights[index].iter().map(|&w| format.squeeze(w * factor / sum)));
        if R::ON {
            for (key, &p) in keys.clone().zip(&self.rounded) {
                recorder.record(|| Label::Probability { key }, p);
            }
        }
    }

    /// The natural maximum once the sink has joined, what that multiplies earlier sums with, and the row sum.
    fn with_sink(&self, arithmetic: &Arithmetic<'_>) -> (f32, f32, f32) {
        let max = arithmetic.natural(self.max);
        match arithmetic.sink(self.head).filter(|_| !self.flaw.sink_missing) {
            None => (max, 1.0, self.sum),
            Some(sink) => {
                let joined = larger(max, sink);
                let factor = arithmetic.exponential.exp(max - joined);
                (joined, factor, self.sum * factor + arithmetic.exponential.exp(sink - joined))
            }
        }
    }

    fn end_part<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, scratch: &mut SumScratch, recorder: &mut R) {
        if arithmetic.unsplit() {
            return;
        }
        let grid = &arithmetic.numerics.grid;
        let part = self.part;
        let lse = grid.lse_dtype.squeeze(arithmetic.natural(self.max) + core_math::logf(self.sum));
        recorder.record(|| Label::PartialLse { part }, lse);
        self.partial_lse.push(lse);
        let rounded = arithmetic.mutant == Some(Mutant::RoundedPartials) && self.layout.parts.len() > 1;
        let format = if rounded { Dtype::BF16 } else { grid.partial_dtype };
        for (lane, &x) in self.acc.iter().enumerate() {
            let o = format.squeeze(arithmetic.divide(x, self.sum));
            recorder.record(|| Label::Partial { part, lane }, o);
            self.partials.push(o);
        }
        self.part += 1;
        self.begin_part(arithmetic, scratch, recorder);
    }

    /// Writes [`Row::stored`] and returns `lse`.
    pub(super) fn finish<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, recorder: &mut R) -> f32 {
        let lse = if self.layout.cells.is_empty() && self.flaw.empty_splits == [0; 2] {
            self.finish_empty(arithmetic)
        } else if arithmetic.unsplit() {
            self.finish_unsplit(arithmetic, recorder)
        } else {
            self.finish_split(arithmetic, recorder)
        };
        let out = arithmetic.attributes.out_dtype;
        let lse = match arithmetic.actual.lse_base {
            LseBase::E => lse,
            LseBase::Two => lse * LOG2_E,
        };
        self.stored.clear();
        for (lane, &x) in self.acc.iter().enumerate() {
            recorder.record(|| Label::Finish { lane }, x);
            let bits = match arithmetic.numerics.store {
                Store::Rne if arithmetic.mutant == Some(Mutant::StoreTiesAway) && out == Dtype::BF16 => {
                    planted::bf16_with_ties_away(x)
                }
                Store::Rne => out.round_f32(x),
                Store::Truncate => truncate_f64(out, f64::from(x)),
            };
            recorder.record(|| Label::Store { lane }, out.to_f32(bits));
            self.stored.push(bits);
        }
        let lse = f32::from_bits(Dtype::F32.round_f32(lse));
        recorder.record(|| Label::Lse, lse);
        lse
    }

    fn finish_empty(&mut self, arithmetic: &Arithmetic<'_>) -> f32 {
        self.acc.fill(0.0);
        match (arithmetic.sink(self.head), arithmetic.actual.sink_in_lse, arithmetic.actual.empty_row) {
            (Some(sink), SinkInLse::Yes, _) => sink,
            (None, _, _) if self.flaw.unguarded => {
                self.acc.fill(f32::NAN);
                f32::NAN
            }
            (None, _, EmptyRow::ZeroNegInf) if arithmetic.mutant == Some(Mutant::EmptyRowFiniteLse) => -5e4,
            (Some(_), SinkInLse::No, _) | (None, _, EmptyRow::ZeroNegInf) => f32::NEG_INFINITY,
            (None, _, EmptyRow::ZeroPosInf) => f32::INFINITY,
            (None, _, EmptyRow::Nan) => {
                self.acc.fill(f32::NAN);
                f32::NAN
            }
        }
    }

    fn finish_unsplit<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, recorder: &mut R) -> f32 {
        let (max, factor, sum) = self.with_sink(arithmetic);
        if R::ON && arithmetic.attributes.sinks.is_some() {
            recorder.record(|| Label::SinkSum, sum);
        }
        if arithmetic.numerics.probs.normalised {
            self.acc.iter_mut().for_each(|x| *x *= arithmetic.on_output);
        } else {
            let joined = arithmetic.attributes.sinks.is_some();
            for x in &mut self.acc {
                *x = arithmetic.divide(if joined { *x * factor } else { *x }, sum);
            }
        }
        match arithmetic.actual.sink_in_lse {
            SinkInLse::Yes => max + core_math::logf(sum),
            SinkInLse::No => arithmetic.natural(self.max) + core_math::logf(self.sum),
        }
    }

    /// Merges the partials, and the sink last; the result lies in `acc`.
    fn finish_split<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, recorder: &mut R) -> f32 {
        let d = arithmetic.attributes.d_v;
        if self.flaw.empty_splits != [0; 2] {
            let [before, behind] = self.flaw.empty_splits;
            self.partial_lse.splice(0..0, std::iter::repeat_n(f32::NEG_INFINITY, before));
            self.partials.splice(0..0, std::iter::repeat_n(0.0, before * d));
            self.partial_lse.extend(std::iter::repeat_n(f32::NEG_INFINITY, behind));
            self.partials.extend(std::iter::repeat_n(0.0, behind * d));
            if R::ON {
                for n in 0..before + behind {
                    recorder.record(|| Label::EmptySplit { before: n < before }, f32::NEG_INFINITY);
                }
            }
        }
        match arithmetic.numerics.grid.merge_under(arithmetic.attributes.context) {
            Merge::Sequential if self.flaw.merged_back => {
                for part in (1..self.partial_lse.len()).rev() {
                    self.merge(arithmetic, 0, part, recorder);
                }
            }
            Merge::Sequential => {
                for part in 1..self.partial_lse.len() {
                    self.merge(arithmetic, 0, part, recorder);
                }
            }
            Merge::Tree => {
                let mut nodes = std::mem::take(&mut self.merging);
                nodes.clear();
                nodes.extend(self.layout.parts.iter().enumerate().map(|(n, part)| (part.index, n)));
                while nodes.len() > 1 {
                    let mut kept = 0;
                    for n in 0..nodes.len() {
                        let (half, held) = (nodes[n].0 / 2, nodes[n].1);
                        if kept > 0 && nodes[kept - 1].0 == half {
                            self.merge(arithmetic, nodes[kept - 1].1, held, recorder);
                        } else {
                            nodes[kept] = (half, held);
                            kept += 1;
                        }
                    }
                    nodes.truncate(kept);
                }
                self.merging = nodes;
            }
        }
        let keys_only = self.partial_lse[0];
        if let Some(sink) = arithmetic.sink(self.head) {
            let part = self.partial_lse.len();
            self.partial_lse.push(sink);
            self.partials.resize((part + 1) * d, 0.0);
            for _ in 0..arithmetic.sinks_merged(self.layout.parts.len()) {
                self.merge(arithmetic, 0, part, recorder);
            }
        }
        self.acc.copy_from_slice(&self.partials[..d]);
        match arithmetic.actual.sink_in_lse {
            SinkInLse::Yes => self.partial_lse[0],
            SinkInLse::No => keys_only,
        }
    }

    /// Merges partial `b` into partial `a`.
    fn merge<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, a: usize, b: usize, recorder: &mut R) {
        let grid = &arithmetic.numerics.grid;
        let d = arithmetic.attributes.d_v;
        let max = match arithmetic.mutant {
            Some(Mutant::MergeWithoutMaximum) => self.partial_lse[a],
            _ => larger(self.partial_lse[a], self.partial_lse[b]),
        };
        let weight_a = arithmetic.exponential.exp(self.partial_lse[a] - max);
        let weight_b = arithmetic.exponential.exp(self.partial_lse[b] - max);
        let sum = weight_a + weight_b;
        let [share_a, share_b] = arithmetic.shares([self.partial_lse[a], self.partial_lse[b]], max, [weight_a, weight_b]);
        let shares = share_a + share_b;
        let (low, high) = self.partials.split_at_mut(b * d);
        for (lane, (x, &y)) in low[a * d..(a + 1) * d].iter_mut().zip(&high[..d]).enumerate() {
            *x = grid.partial_dtype.squeeze((*x * share_a + y * share_b) / shares);
            recorder.record(|| Label::Merged { left: a, right: b, lane }, *x);
        }
        let lse = grid.lse_dtype.squeeze(max + core_math::logf(sum));
        recorder.record(|| Label::MergedLse { left: a, right: b }, lse);
        self.partial_lse[a] = lse;
    }
}
