//! One row of one head: scores, and the softmax loop over the recipe's cells.

mod finish;

use super::arithmetic::{Arithmetic, larger};
use super::planted::{self, Flaw};
use super::sum::{self, SumScratch};
use super::trace::{Label, Recorder};
use super::view::Gathered;
use crate::number::Dtype;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::numerics::{MaxInit, Passes, Rescale, SumOf};
use crate::subject::attention::recipe::{Cell, Layout};
use std::ops::Range;

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
}
