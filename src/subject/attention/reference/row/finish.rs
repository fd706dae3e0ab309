//! The end of a row: sink, division, the merge of split partials, the store.

use super::Row;
use crate::number::{Dtype, truncate_f64};
use crate::subject::attention::conventions::{EmptyRow, LseBase, SinkInLse};
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::numerics::{Merge, Store};
use crate::subject::attention::reference::arithmetic::{Arithmetic, larger};
use crate::subject::attention::reference::exponential::LOG2_E;
use crate::subject::attention::reference::planted;
use crate::subject::attention::reference::trace::{Label, Recorder};

impl Row {
    /// Writes [`Row::stored`] and returns `lse`.
    pub(in super::super) fn finish<R: Recorder>(&mut self, arithmetic: &Arithmetic<'_>, recorder: &mut R) -> f32 {
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
