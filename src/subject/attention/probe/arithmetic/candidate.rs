//! A class of arithmetic: where a kernel rounds coarsely. Everything else is f32, in any order.

use super::interval::{Exponential, Interval, SUM, U, dot};
use crate::number::{Dtype, truncate_f64};
use crate::subject::attention::numerics::Store;

/// What is done with the weights before the product with V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probs {
    /// They stay in f32, normalised or not.
    Kept,
    /// Relative to the running maximum, rounded.
    Unnormalised(Dtype),
    /// Divided by their sum, then rounded.
    Normalised(Dtype),
}

/// What the row sum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    /// The weights before they are rounded, in f32.
    OfWeights,
    /// The rounded weights, in f32.
    OfRounded,
    /// The weights, in an accumulator of this format and order.
    In(Dtype, Order),
}

/// Where products with V are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accumulator {
    /// In f32.
    Wide,
    /// In f32, and rounded once to this format before the row sum divides it.
    RoundedOnce(Dtype),
    /// In this format and order; products are rounded to it too, or fused into the sum.
    In(Dtype, Order, Product),
}

/// A product before it is added to a narrow accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    Rounded,
    Fused,
}

/// Orders of a narrow accumulator: in f32 the order does not matter here, in a narrow one it decides bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Forward,
    Backward,
    /// A tree of neighbours, its leaves as they are.
    Pairwise,
    /// A tree of neighbours, its leaves rounded.
    PairwiseRounded,
    /// So many accumulators, then halves.
    Lanes(usize),
}

/// Orders that are tried.
pub(super) const ORDERS: [Order; 6] =
    [Order::Forward, Order::Backward, Order::Pairwise, Order::PairwiseRounded, Order::Lanes(4), Order::Lanes(2)];

/// Operands as they enter the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operands {
    Whole,
    Cut(Dtype),
    /// The ten bits of TF32, P too: it is an operand of the tensor cores like V.
    Tf32(Tf32),
}

/// How an f32 number becomes a TF32 one: instructions and libraries differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tf32 {
    TiesToEven,
    /// `cvt.rna.tf32.f32`.
    TiesAway,
    /// Bits that the tensor core does not read.
    Truncated,
}

impl Tf32 {
    const ALL: [Tf32; 3] = [Tf32::TiesToEven, Tf32::TiesAway, Tf32::Truncated];

    fn of(self, value: f64) -> f64 {
        let bits = (value as f32).to_bits();
        let bits = match self {
            Tf32::TiesToEven => bits.wrapping_add(0xfff + ((bits >> 13) & 1)),
            Tf32::TiesAway => bits.wrapping_add(0x1000),
            Tf32::Truncated => bits,
        };
        f64::from(f32::from_bits(bits & !0x1fff))
    }
}

impl Operands {
    /// An operand as the products see it.
    pub(super) fn of(self, value: f64) -> f64 {
        match self {
            Operands::Whole => value,
            Operands::Cut(dtype) => dtype.to_f64(dtype.round_f64(value)),
            Operands::Tf32(how) => how.of(value),
        }
    }

    /// A weight as the product with V sees it. Monotone, so the ends are those of the interval.
    fn weight(self, weight: Interval) -> Interval {
        match self {
            Operands::Tf32(how) => Interval { lo: how.of(weight.lo), hi: how.of(weight.hi) },
            // A kernel that is given operands in a narrower format computes with them in f32.
            Operands::Whole | Operands::Cut(_) => weight,
        }
    }
}

/// How keys are cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Keys in a block; at least the row's for one block.
    pub(super) length: usize,
    /// Last block first.
    pub(super) backward: bool,
}

/// One block, whatever the row.
pub(super) const ONE_BLOCK: Blocks = Blocks { length: usize::MAX, backward: false };

/// Where a kernel rounds coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) exponential: Exponential,
    pub(super) operands: Operands,
    pub(super) scores: Dtype,
    pub(super) probs: Probs,
    pub(super) sum: Sum,
    pub(super) accumulator: Accumulator,
    /// A format that finished results pass through before they are stored.
    pub(super) results: Dtype,
    pub(super) store: Store,
}

/// f32 everywhere and one rounding at the end.
pub(super) const SINGLE: Candidate = Candidate {
    exponential: Exponential::Fine,
    operands: Operands::Whole,
    scores: Dtype::F32,
    probs: Probs::Kept,
    sum: Sum::OfWeights,
    accumulator: Accumulator::Wide,
    results: Dtype::F32,
    store: Store::Rne,
};

/// One row of one head, decoded: `k` is `[keys][d_qk]`, `v` is `[keys][d_v]`.
pub(super) struct Row<'a> {
    pub(super) q: &'a [f64],
    pub(super) k: &'a [Vec<f64>],
    pub(super) v: &'a [Vec<f64>],
    pub(super) scale: f64,
    /// Every product and every partial sum of a dot product, and its product with the scale, is an f32 number.
    pub(super) exact: bool,
    pub(super) out: Dtype,
}

/// The rescale factors that a weight may pass through where weights are not rounded: splits and blocks may lie anywhere.
const MERGES: f64 = 8.0;

impl Candidate {
    /// In words, without the order of narrow sums.
    pub(super) fn name(&self) -> String {
        let mut parts = Vec::new();
        match self.operands {
            Operands::Whole => {}
            Operands::Cut(dtype) => parts.push(format!("cuts operands to {dtype}")),
            Operands::Tf32(_) => parts.push("cuts operands to tf32".to_owned()),
        }
        match (self.scores, self.probs) {
            (Dtype::F32, Probs::Kept) => {}
            (scores, Probs::Kept) => parts.push(format!("rounds scores to {scores}")),
            (Dtype::F32, Probs::Unnormalised(dtype)) => parts.push(format!("rounds unnormalised P to {dtype}")),
            (Dtype::F32, Probs::Normalised(dtype)) => parts.push(format!("rounds normalised P to {dtype}")),
            (_, Probs::Unnormalised(dtype)) => parts.push(format!("rounds scores and unnormalised P to {dtype}")),
            (_, Probs::Normalised(dtype)) => parts.push(format!("rounds scores and normalised P to {dtype}")),
        }
        match self.sum {
            Sum::OfWeights => {}
            Sum::OfRounded => parts.push("row sum of the rounded P".to_owned()),
            Sum::In(dtype, _) => parts.push(format!("row sum kept in {dtype}")),
        }
        match self.accumulator {
            Accumulator::Wide => {}
            Accumulator::RoundedOnce(dtype) => parts.push(format!("PV rounded to {dtype} before the division")),
            Accumulator::In(dtype, ..) => parts.push(format!("PV accumulated in {dtype}")),
        }
        if self.results != Dtype::F32 {
            parts.push(format!("results rounded to {} first", self.results));
        }
        if parts.is_empty() {
            parts.push("f32 throughout, one rounding at the end".to_owned());
        }
        if self.exponential == Exponential::Coarse {
            parts.push("an exponential good to 2^-13".to_owned());
        }
        if self.store == Store::Truncate {
            parts.push("truncating store".to_owned());
        }
        parts.join(", ")
    }

    /// Every score of a row: what is stored of it.
    fn score(&self, row: &Row<'_>, key: &[f64]) -> Interval {
        let products = row.q.iter().zip(key).map(|(&q, &k)| (self.operands.of(q), self.operands.of(k)));
        let exact = match row.exact {
            true => Interval::point(products.map(|(q, k)| q * k).sum::<f64>() * row.scale),
            false => dot(products.map(|(q, k)| (Interval::point(q), Interval::point(k))))
                .times(Interval::point(row.scale))
                .rounded(2.0),
        };
        exact.cut(self.scores)
    }

    /// What the row's results may be, one for each lane.
    pub(super) fn results(&self, row: &Row<'_>, blocks: Blocks) -> Vec<Interval> {
        let scores: Vec<Interval> = row.k.iter().map(|key| self.score(row, key)).collect();
        let lanes = row.v.first().map_or(0, Vec::len);
        let count = scores.len();
        let mut starts: Vec<usize> = (0..count).step_by(blocks.length.min(count.max(1))).collect();
        if blocks.backward {
            starts.reverse();
        }
        let mut max: Option<Interval> = None;
        let mut sum = Interval::point(0.0);
        let mut acc = vec![Interval::point(0.0); lanes];
        for start in starts {
            let keys = start..count.min(start.saturating_add(blocks.length));
            let block = scores[keys.clone()].iter().copied().reduce(larger).expect("a block has keys");
            let new = max.map_or(block, |max| larger(max, block));
            // Scores that are intervals: the maximum may have changed where its interval has not.
            if let Some(old) = max
                && block.hi > old.lo
            {
                let factor = argument(old, new).exp(self.exponential);
                sum = sum.times(factor).rounded(1.0);
                acc.iter_mut().for_each(|x| *x = x.times(factor).rounded(1.0));
            }
            max = Some(new);
            let weights: Vec<Interval> = scores[keys.clone()].iter().map(|&score| self.weight(score, new)).collect();
            let rounded: Vec<Interval> = match self.probs {
                Probs::Unnormalised(dtype) => weights.iter().map(|weight| weight.cut(dtype)).collect(),
                _ => weights.clone(),
            };
            let added = self.row_sum(&weights, &rounded);
            sum = if sum == Interval::point(0.0) { added } else { sum.plus(added).rounded(SUM) };
            // Divided weights need the whole sum: they have one block here.
            let weights = match self.probs {
                Probs::Normalised(dtype) => rounded.iter().map(|weight| weight.over(sum).rounded(2.0).cut(dtype)).collect(),
                _ => rounded,
            };
            for (lane, acc) in acc.iter_mut().enumerate() {
                let values = row.v[keys.clone()].iter().map(|v| Interval::point(self.operands.of(v[lane])));
                let weights = weights.iter().map(|&weight| self.operands.weight(weight));
                let added = self.weighted(weights.zip(values));
                *acc = if *acc == Interval::point(0.0) { added } else { acc.plus(added).rounded(SUM) };
            }
        }
        let finish = |acc: Interval| {
            let finished = match (self.probs, self.accumulator) {
                (Probs::Normalised(_), _) => acc,
                (_, Accumulator::RoundedOnce(dtype)) => acc.cut(dtype).over(sum).rounded(3.0),
                _ => acc.over(sum).rounded(3.0),
            };
            self.stored(finished.cut(self.results), row.out)
        };
        acc.into_iter().map(finish).collect()
    }

    /// A weight in f32.
    fn weight(&self, score: Interval, max: Interval) -> Interval {
        let weight = argument(score, max).exp(self.exponential);
        match (self.probs, self.exponential) {
            // Weights that are not rounded may have been taken against another maximum first. (With a coarse exponential that would
            // leave nothing to see: there the class has one block.)
            (Probs::Kept, Exponential::Fine) => {
                weight.rounded(MERGES * (40.0 + 4.0 + 3.0 * (max.magnitude() + score.magnitude())))
            }
            _ => weight,
        }
    }

    fn row_sum(&self, weights: &[Interval], rounded: &[Interval]) -> Interval {
        let one = Interval::point(1.0);
        let plain = |terms: &[Interval]| dot(terms.iter().map(|&term| (term, one)));
        match self.sum {
            Sum::OfWeights => plain(weights),
            Sum::OfRounded => plain(rounded),
            Sum::In(dtype, order) => narrow(rounded.iter().copied(), dtype, order),
        }
    }

    fn weighted(&self, terms: impl Iterator<Item = (Interval, Interval)>) -> Interval {
        match self.accumulator {
            Accumulator::Wide | Accumulator::RoundedOnce(_) => dot(terms),
            Accumulator::In(dtype, order, product) => {
                let products = terms.map(|(weight, value)| match product {
                    Product::Rounded => weight.times(value).rounded(1.0).cut(dtype),
                    Product::Fused => weight.times(value),
                });
                narrow(products, dtype, order)
            }
        }
    }

    fn stored(&self, value: Interval, out: Dtype) -> Interval {
        match self.store {
            Store::Rne if out == Dtype::F32 => value,
            Store::Rne => value.cut(out),
            Store::Truncate => {
                let cut = |x: f64| out.to_f64(truncate_f64(out, x));
                Interval { lo: cut(value.lo), hi: cut(value.hi) }
            }
        }
    }
}

/// The larger of two, as far as it is known.
fn larger(a: Interval, b: Interval) -> Interval {
    Interval { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi) }
}

/// `score - max` as an f32 exponential sees it. Folded, both are multiplied with a constant that was rounded twice, fused or not: three
/// roundings of each; else one of the difference; then the product with log2 e and its constant.
fn argument(score: Interval, max: Interval) -> Interval {
    let difference = Interval { lo: score.lo - max.hi, hi: score.hi - max.lo };
    difference.around(3.0 * U * (score.magnitude() + max.magnitude() + difference.magnitude()))
}

/// A sum that is rounded to f32 and then to a format after each addition.
fn narrow(terms: impl Iterator<Item = Interval>, dtype: Dtype, order: Order) -> Interval {
    let add = |a: Interval, b: Interval| a.plus(b).rounded(1.0).cut(dtype);
    let zero = Interval::point(0.0);
    let mut terms: Vec<Interval> = terms.collect();
    match order {
        Order::Forward => terms.into_iter().fold(zero, add),
        Order::Backward => terms.into_iter().rev().fold(zero, add),
        Order::Pairwise | Order::PairwiseRounded => {
            if order == Order::PairwiseRounded || terms.len() == 1 {
                terms.iter_mut().for_each(|term| *term = add(zero, *term));
            }
            while terms.len() > 1 {
                terms = terms.chunks(2).map(|pair| pair.iter().copied().reduce(add).expect("a chunk has terms")).collect();
            }
            terms.first().copied().unwrap_or(zero)
        }
        Order::Lanes(count) => {
            let mut lanes = vec![zero; count];
            for (n, term) in terms.into_iter().enumerate() {
                lanes[n % count] = add(lanes[n % count], term);
            }
            while lanes.len() > 1 {
                let half = lanes.len() / 2;
                lanes = (0..half).map(|n| add(lanes[n], lanes[n + half])).collect();
            }
            lanes[0]
        }
    }
}

/// Every class that is tried for operands in a format, each with the orders that a narrow sum may have. Classes of one name are one.
pub(super) fn candidates(storage: Dtype, out: Dtype) -> Vec<Candidate> {
    let mut all = vec![SINGLE];
    let narrow = if storage == Dtype::F16 { [Dtype::F16, Dtype::BF16] } else { [Dtype::BF16, Dtype::F16] };
    for dtype in narrow {
        let rounded = Candidate { probs: Probs::Unnormalised(dtype), ..SINGLE };
        let of_rounded = Candidate { sum: Sum::OfRounded, ..rounded };
        let normalised = Candidate { probs: Probs::Normalised(dtype), ..SINGLE };
        all.extend([rounded, of_rounded, normalised]);
        for with_probs in [SINGLE, rounded, of_rounded, normalised] {
            all.push(Candidate { scores: dtype, ..with_probs });
        }
        for base in [SINGLE, rounded] {
            all.extend(ORDERS.map(|order| Candidate { sum: Sum::In(dtype, order), ..base }));
        }
        for base in [SINGLE, rounded, of_rounded, normalised] {
            if !matches!(base.probs, Probs::Normalised(_)) {
                all.push(Candidate { accumulator: Accumulator::RoundedOnce(dtype), ..base });
            }
            for product in [Product::Rounded, Product::Fused] {
                all.extend(ORDERS.map(|order| Candidate { accumulator: Accumulator::In(dtype, order, product), ..base }));
            }
        }
        if dtype.precision() < out.precision() {
            all.push(Candidate { results: dtype, ..SINGLE });
            all.push(Candidate { results: dtype, ..rounded });
        }
        if dtype.precision() < storage.precision() {
            all.push(Candidate { operands: Operands::Cut(dtype), ..SINGLE });
        }
    }
    if storage == Dtype::F32 {
        all.extend(Tf32::ALL.map(|how| Candidate { operands: Operands::Tf32(how), ..SINGLE }));
    }
    // What has passed through a narrower format is stored exactly.
    let truncated = |it: &Candidate| it.accumulator == Accumulator::Wide && it.results == Dtype::F32;
    if out != Dtype::F32 {
        let plain: Vec<Candidate> = all.iter().copied().filter(truncated).collect();
        all.extend(plain.into_iter().map(|it| Candidate { store: Store::Truncate, ..it }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_keeps_ten_bits_in_each_way() {
        let unit = 2.0f64.powi(-10);
        let ways = |value: f64| Tf32::ALL.map(|how| how.of(value));
        assert_eq!(ways(1.0 + unit), [1.0 + unit; 3]);
        assert_eq!(ways(1.0 + unit / 2.0), [1.0, 1.0 + unit, 1.0], "a tie");
        assert_eq!(ways(-1.0 - unit * 1.5), [-1.0 - 2.0 * unit, -1.0 - 2.0 * unit, -1.0 - unit], "a tie");
        assert_eq!(ways(1.0 + 0.9 * unit), [1.0 + unit, 1.0 + unit, 1.0]);
    }

    /// The tensor cores read P like V: a kernel on them is inside its class.
    #[test]
    fn tf32_cuts_weights_too() {
        let (q, k, v) = (vec![0.3f32 as f64], vec![vec![1.0], vec![0.7f32 as f64]], vec![vec![1.0], vec![-0.4f32 as f64]]);
        let row = Row { q: &q, k: &k, v: &v, scale: 1.0, exact: false, out: Dtype::F32 };
        for how in Tf32::ALL {
            let cut = |x: f64| how.of(x);
            let scores: Vec<f64> = k.iter().map(|key| cut(q[0]) * cut(key[0])).collect();
            let weights: Vec<f64> = scores.iter().map(|score| (score - scores[0]).exp()).collect();
            let result: f64 =
                weights.iter().zip(&v).map(|(weight, v)| cut(*weight) * cut(v[0])).sum::<f64>() / weights.iter().sum::<f64>();
            let inside = |operands| {
                let allowed = Candidate { operands, ..SINGLE }.results(&row, ONE_BLOCK)[0];
                allowed.lo <= result && result <= allowed.hi
            };
            assert!(inside(Operands::Tf32(how)), "{how:?}");
            // Rounded, this one lies within what merges may do to an f32 kernel.
            assert_eq!(inside(Operands::Whole), how != Tf32::Truncated, "{how:?}");
        }
    }
}
