//! What exact arithmetic gives for a step inside a row, given the true inputs: for any keys, against any key's score.
//!
//! Values are computed in MPFR and rounded once; unlike the answers for whole rows they come without a proof. A sum that cancels is computed
//! again with more bits, and at the last precision what is left below its rounding error is called zero.

use super::exact::{self, BITS, Score, exponential};
use super::inputs::Row;
use crate::subject::attention::Problem;
use rug::Float;
use std::ops::Range;

/// Working precisions, tried in turn.
const PRECISIONS: [u32; 3] = [256, 1024, 4096];

/// Bits of a sum that must be left after cancellation.
const LEFT: u32 = 100;

/// What weights are measured against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reference {
    /// A key's score.
    Key(u32),
    /// A number.
    Number(f64),
}

/// The steps of one row and head.
#[derive(Debug)]
pub struct Steps<'a> {
    row: Row<'a>,
    visible: Range<u32>,
    /// Of every key of the sequence.
    scores: Vec<Score>,
    /// Near enough to order keys by.
    rough: Vec<f64>,
    /// The largest of them and the sink: weights are held against it, so that none overflows.
    largest: Option<Reference>,
    cap: f64,
    k_scale: f64,
    v_scale: f64,
    /// For each precision: `e^(s_j - s_largest)` of the visible keys' largest.
    weights: [Option<Vec<Float>>; PRECISIONS.len()],
}

impl<'a> Steps<'a> {
    pub(super) fn new(row: Row<'a>, visible: Range<u32>, problem: &Problem, head: usize) -> Option<Steps<'a>> {
        if row.broken || (0..row.d_v).any(|x| row.lane_broken(x)) {
            return None;
        }
        let kv_head = head / problem.group_ids.len().max(1);
        let scale = |scales: &[f32]| f64::from(scales[if scales.len() > 1 { kv_head } else { 0 }]);
        let (k_scale, v_scale) = problem.fp8_kv.as_ref().map_or((1.0, 1.0), |kv| (scale(&kv.k_scales), scale(&kv.v_scales)));
        let scores: Vec<Score> = (0..row.n).map(|n| exact::score(&row, n)).collect();
        let (cap, weights) = (row.cap.unwrap_or(1.0), [const { None }; PRECISIONS.len()]);
        let rough = scores.iter().map(|score| score.evaluate(64, cap).to_f64()).collect();
        let mut steps = Steps { row, visible, scores, rough, largest: None, cap, k_scale, v_scale, weights };
        steps.largest = steps.find_largest();
        Some(steps)
    }

    /// The keys that the row sees.
    pub fn visible(&self) -> Range<u32> {
        self.visible.clone()
    }

    /// A key's score, near enough to order keys by; `None` beyond the sequence.
    pub fn rough_score(&self, key: u32) -> Option<f64> {
        self.rough.get(key as usize).copied()
    }

    /// `q . k` of a key, perhaps times the softmax scale; of keys `as_stored` in 8 bits, or times their scale.
    pub fn dot(&self, key: u32, softmax_scale: bool, as_stored: bool) -> Option<Float> {
        if key as usize >= self.row.n || as_stored && self.k_scale == 0.0 {
            return None;
        }
        let mut dot = exact::dot(&self.row, key as usize);
        if softmax_scale {
            dot *= self.row.scale;
        }
        if as_stored {
            // The scale is a factor of each term: the quotient is exact.
            dot /= self.k_scale;
        }
        Some(dot)
    }

    /// A key's score.
    pub fn score(&self, key: u32) -> Option<Float> {
        Some(self.scores.get(key as usize)?.evaluate(PRECISIONS[0], self.cap))
    }

    /// `e^(a - b)`.
    pub fn factor(&self, a: Reference, b: Reference) -> Option<Float> {
        self.between(a, b, PRECISIONS[0])
    }

    fn between(&self, a: Reference, b: Reference, precision: u32) -> Option<Float> {
        let (a, b) = (self.level(a, precision)?, self.level(b, precision)?);
        Some(exponential(&a, &b, precision).unwrap_or_else(|| Float::new(precision)))
    }

    fn level(&self, reference: Reference, precision: u32) -> Option<Float> {
        match reference {
            Reference::Key(key) => Some(self.scores.get(key as usize)?.evaluate(precision, self.cap)),
            Reference::Number(x) => x.is_finite().then(|| Float::with_val(BITS, x)),
        }
    }

    /// The sum of the weights of some keys, and of the sink where asked for, against a reference.
    pub fn sum(&mut self, keys: &[Range<u32>], sink: bool, against: Reference) -> Option<Float> {
        let precision = PRECISIONS[0];
        let mut sum = self.plain(0, keys, sink, None)?;
        sum *= self.between(self.largest?, against, precision)?;
        Some(sum)
    }

    /// The sum of `weight * v` over some keys in one lane, against a reference; of values `as_stored`, or times their scale.
    pub fn product(&mut self, keys: &[Range<u32>], lane: usize, against: Reference, as_stored: bool) -> Option<Float> {
        let mut sum = self.cancelled(keys, lane)?;
        sum *= self.between(self.largest?, against, PRECISIONS[0])?;
        self.stored(sum, as_stored)
    }

    /// What some keys add to one lane of the attention over others and the sink; of values `as_stored`, or times their scale.
    pub fn share(&mut self, keys: &[Range<u32>], over: &[Range<u32>], lane: usize, as_stored: bool) -> Option<Float> {
        let share = self.output(keys, over, true, lane)?;
        self.stored(share, as_stored)
    }

    fn stored(&self, sum: Float, as_stored: bool) -> Option<Float> {
        match (as_stored, self.v_scale) {
            (false, _) => Some(sum),
            (true, 0.0) => None,
            (true, scale) => Some(sum / scale),
        }
    }

    /// One lane of the attention over some keys, and the sink where asked for. `over`: the keys of the denominator.
    pub fn output(&mut self, keys: &[Range<u32>], over: &[Range<u32>], sink: bool, lane: usize) -> Option<Float> {
        let sum = self.plain(0, over, sink, None)?;
        let value = self.cancelled(keys, lane)?;
        if sum.is_zero() { Some(sum) } else { Some(value / sum) }
    }

    /// A key's share of the attention over some keys, and the sink where asked for.
    pub fn probability(&mut self, key: u32, over: &[Range<u32>], sink: bool) -> Option<Float> {
        let sum = self.plain(0, over, sink, None)?;
        let weight = self.plain(0, &[Range { start: key, end: key + 1 }], false, None)?;
        if sum.is_zero() { None } else { Some(weight / sum) }
    }

    /// The log-sum-exp of some keys, and the sink where asked for; `None` for no key.
    pub fn lse(&mut self, keys: &[Range<u32>], sink: bool) -> Option<Float> {
        let sum = self.plain(0, keys, sink, None)?;
        let level = self.level(self.largest?, PRECISIONS[0])?;
        if sum.is_zero() {
            return None;
        }
        // Wide enough to keep the logarithm's bits beside a score of any size.
        Some(Float::with_val(PRECISIONS[0] + 640, level + sum.ln()))
    }

    /// A sink that takes part.
    pub fn sink(&self) -> Option<f64> {
        self.row.sink
    }

    fn find_largest(&self) -> Option<Reference> {
        let best = (0..).zip(self.rough.iter().copied());
        let best = best.fold(None::<(u32, f64)>, |best, it| if best.is_none_or(|best| it.1 > best.1) { Some(it) } else { best });
        match (best, self.row.sink) {
            (Some((_, score)), Some(sink)) if sink > score => Some(Reference::Number(sink)),
            (Some((key, _)), _) => Some(Reference::Key(key)),
            (None, sink) => sink.map(Reference::Number),
        }
    }

    /// A sum of `weight * v` with enough bits left after cancellation; zero where even the last precision shows none.
    fn cancelled(&mut self, keys: &[Range<u32>], lane: usize) -> Option<Float> {
        for (n, precision) in PRECISIONS.into_iter().enumerate() {
            let mut magnitude = Float::new(64);
            let sum = self.plain(n, keys, false, Some((lane, &mut magnitude)))?;
            let noise = magnitude >> (precision - LEFT);
            if sum.is_zero() || sum.cmp_abs(&noise) == Some(std::cmp::Ordering::Greater) {
                return Some(sum);
            }
        }
        Some(Float::new(PRECISIONS[0]))
    }

    /// A sum against the largest score: of weights, or of weights times a lane of V with the sum of magnitudes.
    fn plain(&mut self, n: usize, keys: &[Range<u32>], sink: bool, mut lane: Option<(usize, &mut Float)>) -> Option<Float> {
        if keys.iter().any(|keys| keys.end as usize > self.row.n) {
            return None;
        }
        let precision = PRECISIONS[n];
        self.weigh(n)?;
        let weights = self.weights[n].as_ref().expect("just computed");
        let mut sum = Float::new(precision);
        for key in keys.iter().flat_map(|keys| keys.clone()) {
            let weight = &weights[key as usize];
            match &mut lane {
                None => sum += weight,
                Some((lane, magnitude)) => {
                    let term = Float::with_val(precision, weight * self.row.value(key as usize, *lane));
                    sum += &term;
                    **magnitude += term.abs();
                }
            }
        }
        if let (true, Some(sink)) = (sink, self.row.sink) {
            sum += self.between(Reference::Number(sink), self.largest?, precision)?;
        }
        Some(sum)
    }

    fn weigh(&mut self, n: usize) -> Option<()> {
        if self.weights[n].is_none() {
            let precision = PRECISIONS[n];
            let largest = self.level(self.largest?, precision)?;
            let weight = |score: &Score| {
                exponential(&score.evaluate(precision, self.cap), &largest, precision).unwrap_or_else(|| Float::new(precision))
            };
            self.weights[n] = Some(self.scores.iter().map(weight).collect());
        }
        Some(())
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of key ranges, of which there may be one")]
mod tests {
    use super::super::{Answer, Mode, Oracle};
    use super::{Reference as Against, Steps};
    use crate::number::{Dtype, round_mpfr};
    use crate::subject::Subject;
    use crate::subject::attention::Attention;
    use crate::subject::attention::check::Pair;
    use crate::subject::attention::draw::Profile;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::reference::Reference;
    use crate::subject::attention::{Fp8Kv, Mask, Problem, Sequence};
    use crate::tensor::Tensor;
    use rug::Float;

    /// The steps of one row and head over keys of one lane, and values of one lane; keys and values in 8 bits where they have scales.
    fn steps(q: f64, k: &[f64], v: &[f64], scales: Option<[f32; 2]>, sink: Option<f32>, look: impl FnOnce(Steps<'_>)) {
        let kv = if scales.is_some() { Dtype::E4M3 } else { Dtype::F32 };
        let problem = Problem {
            sequences: vec![Sequence { id: 0, q: 1, kv: k.len() as u32 }],
            kv_head_ids: vec![0],
            group_ids: vec![0],
            d_qk: 1,
            d_v: 1,
            mask: Mask::default(),
            softcap: None,
            sinks: sink.map(|sink| vec![sink]),
            alibi_slopes: None,
            softmax_scale: 0.5,
            dtype: Dtype::F32,
            fp8_kv: scales.map(|[k, v]| Fp8Kv { dtype: Dtype::E4M3, k_scales: vec![k], v_scales: vec![v] }),
            out_dtype: Dtype::F32,
        };
        let tensor = |dtype: Dtype, values: &[f64]| {
            let mut tensor = Tensor::filled(dtype, &[values.len(), 1, 1], 0);
            tensor.bits.iter_mut().zip(values).for_each(|(bits, &value)| *bits = dtype.round_f64(value));
            tensor
        };
        let (q, k, v) = (tensor(Dtype::F32, &[q]), tensor(kv, k), tensor(kv, v));
        let mut oracle = Oracle::new(Mode::Enclosure);
        oracle.begin(&problem, &q, &k, &v);
        look(oracle.steps(&problem, 0, 0, 0).expect("finite inputs"));
    }

    #[track_caller]
    fn near(value: Option<Float>, expected: f64) {
        let value = value.expect("a value").to_f64();
        assert!((value - expected).abs() <= expected.abs() * 1e-14, "{value} for {expected}");
    }

    /// Scores 1/2, 1/2, -1/4 and a sink of 3/4.
    #[test]
    fn each_step_of_a_small_row() {
        let e = f64::exp;
        steps(2.0, &[1.0, 1.0, -0.5], &[1.0, 3.0, 8.0], Some([0.5, 0.25]), Some(0.75), |mut it| {
            assert_eq!((it.visible(), it.sink()), (0..3, Some(0.75)));
            assert_eq!([0, 1, 2, 3].map(|key| it.rough_score(key)), [Some(0.5), Some(0.5), Some(-0.25), None]);
            for (key, [plain, stored]) in [(0, [1.0, 2.0]), (1, [1.0, 2.0]), (2, [-0.5, -1.0])] {
                near(it.dot(key, false, false), plain);
                near(it.dot(key, true, false), plain / 2.0);
                near(it.dot(key, false, true), stored);
                near(it.dot(key, true, true), stored / 2.0);
                near(it.score(key), plain / 2.0);
            }
            assert!(it.dot(3, false, false).is_none() && it.score(3).is_none());
            near(it.factor(Against::Key(0), Against::Key(2)), e(0.75));
            near(it.factor(Against::Number(1.0), Against::Key(2)), e(1.25));
            assert!(it.factor(Against::Key(3), Against::Key(0)).is_none());
            let (all, two) = ([0..3], [0..1, 2..3]);
            near(it.sum(&all, true, Against::Key(0)), 2.0 + e(-0.75) + e(0.25));
            near(it.sum(&two, false, Against::Key(2)), e(0.75) + 1.0);
            near(it.product(&two, 0, Against::Key(2), false), 0.25 * e(0.75) + 2.0);
            near(it.product(&two, 0, Against::Key(2), true), e(0.75) + 8.0);
            let (keys, sink) = (2.0 * e(0.5) + e(-0.25), e(0.75));
            near(it.output(&all, &all, true, 0), (e(0.5) + 2.0 * e(-0.25)) / (keys + sink));
            near(it.output(&all, &all, false, 0), (e(0.5) + 2.0 * e(-0.25)) / keys);
            near(it.share(&two, &all, 0, false), (0.25 * e(0.5) + 2.0 * e(-0.25)) / (keys + sink));
            near(it.share(&two, &all, 0, true), (e(0.5) + 8.0 * e(-0.25)) / (keys + sink));
            near(it.probability(2, &all, true), e(-0.25) / (keys + sink));
            near(it.probability(2, &all, false), e(-0.25) / keys);
            near(it.lse(&all, true), (keys + sink).ln());
            near(it.lse(&all, false), keys.ln());
            assert!(it.lse(&[], false).is_none() && it.probability(2, &[], false).is_none());
            assert!(it.sum(&[0..4], false, Against::Key(0)).is_none());
        });
        steps(2.0, &[1.0], &[1.0], None, None, |mut it| {
            assert_eq!(it.sink(), None);
            near(it.dot(0, false, true), 2.0);
            near(it.lse(&[Against::Key(0)].map(|_| 0..1), true), 1.0);
        });
    }

    /// Weights are held against the largest score, wherever it stands: none is beyond what MPFR holds.
    #[test]
    fn scores_far_apart() {
        let large = 2f64.powi(100);
        for k in [[1.0, large, -large], [large, -large, 1.0], [-large, 1.0, large]] {
            for sink in [None, Some(-1e30), Some(1.0)] {
                steps(2.0, &k, &[4.0, 4.0, 4.0], None, sink, |mut it| {
                    let all = [0..3];
                    near(it.lse(&all, true), large);
                    near(it.output(&all, &all, true, 0), 4.0);
                    let largest = k.iter().position(|&k| k == large).expect("one of them") as u32;
                    near(it.probability(largest, &all, true), 1.0);
                    near(it.sum(&all, true, Against::Key(largest)), 1.0);
                });
            }
        }
        steps(2.0, &[1.0, -large], &[4.0, 4.0], None, Some(1e32), |mut it| {
            near(it.sum(&[0..2], true, Against::Number(1e32f32.into())), 1.0);
            near(it.output(&[0..2], &[0..2], true, 0), 0.0);
        });
    }

    /// What cancels exactly is zero, whatever the roundings leave; what cancels in part keeps its bits.
    #[test]
    fn sums_that_cancel() {
        for n in 1..64 {
            let (a, b) = (f64::from(n) * 0.371, f64::from(n * n % 41) * 0.173);
            steps(1.0, &[a, b, b, a], &[1.0, 1.0, -1.0, -1.0], None, None, |mut it| {
                let output = it.output(&[0..4], &[0..4], true, 0).expect("a value");
                assert!(output.is_zero(), "{n}: {output}");
            });
        }
        steps(1.0, &[1.0, 1.0], &[1.0, -0.9375], None, None, |mut it| near(it.output(&[0..2], &[0..2], true, 0), 0.03125));
    }

    /// The oracle's zeros have no sign.
    fn signless(dtype: Dtype, bits: u32) -> u32 {
        if bits & dtype.magnitude_mask() == 0 { 0 } else { bits }
    }

    /// Over all visible keys the steps give what is proven for the row.
    #[test]
    fn whole_rows_are_the_proven_ones() {
        let kernel = Implementation::reference(Reference::default());
        let pair = Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Enclosure, captured: None, witness: false };
        let attention = Attention { profile: Profile::Quick, ..Attention::of(pair) };
        let mut oracle = Oracle::new(Mode::Enclosure);
        let (mut outputs, mut zeros) = (0, 0);
        for index in 0..300 {
            let case = attention.draw(11, index).case;
            let (problem, inputs) = (&case.problem, attention.pair.inputs(&case));
            oracle.begin(problem, &inputs.q, &inputs.k, &inputs.v);
            for (sequence, it) in problem.sequences.iter().enumerate() {
                for row in 0..it.q.min(4) {
                    let truth = oracle.row(sequence, row, 0, &[]).clone();
                    let Some(mut steps) = oracle.steps(problem, sequence, row, 0) else { continue };
                    let visible = [steps.visible()];
                    for (lane, truth) in truth.o.iter().enumerate() {
                        let Answer::Decided(bits) = truth.answer else { continue };
                        let float = steps.output(&visible, &visible, true, lane).map_or(0, |x| round_mpfr(problem.out_dtype, &x));
                        assert_eq!(
                            signless(problem.out_dtype, float),
                            bits,
                            "case {index} sequence {sequence} row {row} lane {lane}"
                        );
                        outputs += 1;
                        zeros += u32::from(bits == 0 && !visible[0].is_empty());
                    }
                    if let (Answer::Decided(bits), Some(lse)) = (truth.lse.answer, steps.lse(&visible, true)) {
                        let lse = signless(Dtype::F32, round_mpfr(Dtype::F32, &lse));
                        assert_eq!(lse, bits, "case {index} sequence {sequence} row {row} lse");
                    }
                }
            }
        }
        assert!(outputs > 1000 && zeros > 0, "{outputs} outputs, {zeros} of them zero");
    }
}
