//! Step 2, first half: the scores of one row as exact numbers, grouped where they are exactly equal.
//!
//! Operands are dyadic rationals, so a score without softcap is one too: between 2^-470 and 2^410, 880 bits in all (the extremes
//! are those of an 8-bit key with a scale), held exactly in an MPFR number of [`BITS`] bits. A softcapped score is transcendental
//! unless it is zero; it is held as the exact pair (score before the cap, bias), and only equal pairs are called equal.

use super::inputs::Row;
use rug::Float;
use std::cmp::Ordering;

/// Enough for every score, every sum of values and every multiple of a rounding boundary to be exact.
pub(super) const BITS: u32 = 1280;

/// Extra bits at which exponents are evaluated, so that their *absolute* error stays below 2^(-p - 70) at working precision `p`:
/// scores (and, of capped ones, `score / cap`) are below 2^560.
const EXPONENT_BITS: u32 = 640;

/// The exact score of a key or a sink, relative to nothing.
#[derive(Clone, Debug)]
pub(super) enum Score {
    /// The score itself.
    Exact(Float),
    /// `cap * tanh(before / cap) - bias`, `before` not zero.
    Capped { before: Float, bias: Float },
}

impl Score {
    /// An order in which equal means equal as exact numbers, or as exact pairs.
    pub fn order(&self, other: &Score) -> Ordering {
        let compare = |a: &Float, b: &Float| a.partial_cmp(b).expect("scores are finite");
        match (self, other) {
            (Score::Exact(a), Score::Exact(b)) => compare(a, b),
            (Score::Exact(_), Score::Capped { .. }) => Ordering::Less,
            (Score::Capped { .. }, Score::Exact(_)) => Ordering::Greater,
            (Score::Capped { before: a, bias: c }, Score::Capped { before: b, bias: d }) => compare(a, b).then(compare(c, d)),
        }
    }

    /// The score with an absolute error below 2^(-precision - 75); exact for [`Score::Exact`].
    pub fn evaluate(&self, precision: u32, cap: f64) -> Float {
        match self {
            Score::Exact(score) => score.clone(),
            Score::Capped { before, bias } => {
                // Four relative roundings, none above 2^(161 - precision - EXPONENT_BITS) absolute: the cap and the bias are
                // below 2^160, and tanh is no steeper than its argument's relative error.
                let mut score = Float::with_val(precision + EXPONENT_BITS, before / cap);
                score.tanh_mut();
                score *= cap;
                score -= bias;
                score
            }
        }
    }
}

/// Keys (and perhaps the sink) of exactly equal score.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub score: Score,
    /// Keys and sink.
    pub count: u32,
    /// The group's keys: a range of [`Exact::order`].
    pub members: std::ops::Range<usize>,
}

/// The exact view of one row.
#[derive(Debug)]
pub(super) struct Exact {
    pub groups: Vec<Group>,
    /// Keys, group by group.
    pub order: Vec<u32>,
    /// For each key, then the sink: its group.
    pub group_of: Vec<u32>,
    pub cap: f64,
    /// The latest evaluation of the weights.
    weights: Option<Weights>,
}

/// `e^(s_g - max)` for each group, each with a relative error below `4 * 2^-precision`, or 0 where it is below 2^-700000000.
#[derive(Debug)]
pub(super) struct Weights {
    precision: u32,
    /// The largest score, with an absolute error below 2^(-precision - 75).
    pub max: Float,
    pub values: Vec<Float>,
}

impl Exact {
    /// Computes and groups the scores of a row.
    pub fn new(row: &Row) -> Self {
        let mut scores: Vec<Score> = (0..row.n).map(|n| score(row, n)).collect();
        if let Some(sink) = row.sink {
            scores.push(Score::Exact(Float::with_val(BITS, sink)));
        }
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        order.sort_by(|&a, &b| scores[a as usize].order(&scores[b as usize]).then(a.cmp(&b)));
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of = vec![0; scores.len()];
        let mut keys = Vec::with_capacity(row.n);
        for at in order {
            let score = &scores[at as usize];
            if groups.last().is_none_or(|group| group.score.order(score).is_ne()) {
                groups.push(Group { score: score.clone(), count: 0, members: keys.len()..keys.len() });
            }
            group_of[at as usize] = groups.len() as u32 - 1;
            let group = groups.last_mut().expect("just pushed");
            group.count += 1;
            if (at as usize) < row.n {
                keys.push(at);
                group.members.end += 1;
            }
        }
        Exact { groups, order: keys, group_of, cap: row.cap.unwrap_or(1.0), weights: None }
    }

    /// The sum of lane `x` over each group: exact.
    pub fn value_sums(&self, row: &Row, x: usize) -> Vec<Float> {
        let sum = |group: &Group| exact_sum(self.order[group.members.clone()].iter().map(|&n| row.value(n as usize, x)));
        self.groups.iter().map(sum).collect()
    }

    /// The weights of the groups at some precision, kept until another is asked for.
    pub fn weights(&mut self, precision: u32) -> &Weights {
        if self.weights.as_ref().is_none_or(|weights| weights.precision != precision) {
            let scores: Vec<Float> = self.groups.iter().map(|group| group.score.evaluate(precision, self.cap)).collect();
            let max = scores.iter().fold(None::<&Float>, |max, score| match max {
                Some(max) if max >= score => Some(max),
                _ => Some(score),
            });
            let max = max.expect("a row with groups").clone();
            let values = scores.iter().map(|score| exponential(score, &max, precision).unwrap_or_else(|| Float::new(precision)));
            let values = values.collect();
            self.weights = Some(Weights { precision, max, values });
        }
        self.weights.as_ref().expect("just computed")
    }

    /// `s - max` of each key, then of the sink, in `f64`, and `max`.
    pub fn distances(&self) -> (Vec<f64>, f64) {
        let scores: Vec<Float> = self.groups.iter().map(|group| group.score.evaluate(64, self.cap)).collect();
        let mut max = &scores[0];
        for score in &scores {
            if score > max {
                max = score;
            }
        }
        let of_group: Vec<f64> = scores.iter().map(|score| Float::with_val(BITS, score - max).to_f64()).collect();
        (self.group_of.iter().map(|&group| of_group[group as usize]).collect(), max.to_f64())
    }
}

/// `e^(a - b)` with a relative error below `2 * 2^-precision`, from exponents that err by less than 2^(-precision - 75). `None` if
/// it is below 2^-700000000, near the end of MPFR's exponent range.
pub(super) fn exponential(a: &Float, b: &Float, precision: u32) -> Option<Float> {
    // Below 2^29 where it matters: this rounding is below 2^(-precision - 80).
    let distance = Float::with_val(precision + 110, a - b);
    if distance < -5e8 {
        return None;
    }
    Some(Float::with_val(precision, distance.exp_ref()))
}

/// The exact score of the n-th visible key.
pub(super) fn score(row: &Row, n: usize) -> Score {
    let mut score = dot(row, n);
    score *= row.scale;
    let mut bias = Float::new(BITS);
    if let Some(slope) = row.slope {
        bias += slope;
        bias *= row.distance(n);
    }
    if row.cap.is_some() && !score.is_zero() {
        return Score::Capped { before: score, bias };
    }
    score -= bias;
    Score::Exact(score)
}

/// The exact dot product of the query and the n-th visible key.
pub(super) fn dot(row: &Row, n: usize) -> Float {
    let key = &row.k[n * row.d_qk..][..row.d_qk];
    exact_sum(row.q.iter().zip(key).map(|(q, k)| q * k))
}

/// The exact sum of `f64` terms whose exponents span less than [`BITS`].
///
/// Two `f64` usually hold it (Knuth's two-sum has no error but the term it returns); where they do not, MPFR does.
fn exact_sum(terms: impl Iterator<Item = f64> + Clone) -> Float {
    let (mut high, mut low) = (0.0, 0.0);
    for term in terms.clone() {
        let (sum, error) = two_sum(high, term);
        let (rest, lost) = two_sum(low, error);
        if lost != 0.0 {
            let mut exact = Float::new(BITS);
            for term in terms {
                exact += term;
            }
            return exact;
        }
        (high, low) = (sum, rest);
    }
    let mut exact = Float::with_val(BITS, high);
    exact += low;
    exact
}

/// `fl(a + b)` and what it leaves out.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let virtual_b = sum - a;
    (sum, (a - (sum - virtual_b)) + (b - virtual_b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rug::Rational;

    #[test]
    fn sums_are_exact_with_and_without_mpfr() {
        let hard = [1e300, 1.0, 1e-40, -1e300, 3.0, -1e-40];
        for terms in [&hard[..], &[0.5, -0.25, 1e-5, 1e5], &[], &[1.5]] {
            let expected = terms.iter().fold(Rational::new(), |sum, &term| sum + Rational::from_f64(term).unwrap());
            assert_eq!(exact_sum(terms.iter().copied()).to_rational().unwrap(), expected);
        }
    }

    fn capped(before: f64, bias: f64) -> Score {
        Score::Capped { before: Float::with_val(BITS, before), bias: Float::with_val(BITS, bias) }
    }

    #[test]
    fn capped_scores() {
        for (before, bias, cap) in [(1.0, 0.5, 2.0), (-3.0, 0.25, 0.5), (700.0, -2.0, 30.0)] {
            let score = capped(before, bias).evaluate(100, cap).to_f64();
            let expected = cap * f64::tanh(before / cap) - bias;
            assert!((score - expected).abs() < 1e-14, "{score} for {expected}");
        }
    }

    /// Weights are held against the largest score, which of capped and other scores need not be the last; and are made anew where
    /// another precision is asked for.
    #[test]
    fn weights_of_groups() {
        let group = |score| Group { score, count: 1, members: 0..0 };
        for (first, second, max) in [(0.0, -1.0, 0.0), (0.0, 1.0, f64::tanh(1.0)), (3.0, 0.5, 3.0)] {
            let groups = vec![group(Score::Exact(Float::with_val(BITS, first))), group(capped(second, 0.0))];
            let mut exact = Exact { groups, order: Vec::new(), group_of: vec![1, 0], cap: 1.0, weights: None };
            let scores = [first, f64::tanh(second)];
            for precision in [64, 300] {
                let weights = exact.weights(precision);
                assert!((weights.max.to_f64() - max).abs() < 1e-15);
                for (weight, score) in weights.values.iter().zip(scores) {
                    assert_eq!(weight.prec(), precision);
                    assert!((weight.to_f64() - (score - max).exp()).abs() < 1e-15, "{weight}");
                }
            }
            let (distances, largest) = exact.distances();
            assert!((largest - max).abs() < 1e-15);
            for (distance, score) in distances.iter().zip([scores[1], scores[0]]) {
                assert!((distance - (score - max)).abs() < 1e-15);
            }
        }
    }

    /// A two-sum leaves nothing out, and its first part is the rounded sum.
    #[test]
    fn two_sums() {
        for a in [1.0, -3.5, 1e16, -0.1, 0.0, 1e-300] {
            for b in [1.0, 1e-3, -1e16, 0.3, 2f64.powi(60), -1e-300] {
                let (sum, rest) = two_sum(a, b);
                assert_eq!(sum, a + b);
                let exact = |x: f64, y: f64| Float::with_val(BITS, x) + y;
                assert_eq!(exact(sum, rest), exact(a, b), "{a} + {b}");
            }
        }
    }

    /// Scale, bias and cap of one key, three positions away.
    #[test]
    fn the_score_of_a_key() {
        let row = |cap, slope| Row {
            q: &[2.0],
            k: &[3.0],
            v: &[1.0],
            n: 1,
            d_qk: 1,
            d_v: 1,
            first: 2,
            position: 5,
            scale: 0.5,
            cap,
            slope,
            sink: None,
            out: crate::number::Dtype::F32,
            v_max: 1.0,
            broken: false,
            look_at_v: false,
            offsets: [0; 3],
        };
        for (slope, bias) in [(None, 0.0), (Some(0.25), 0.75)] {
            let Score::Exact(score) = score(&row(None, slope), 0) else { panic!("not capped") };
            assert_eq!(score, 3.0 - bias);
            let Score::Capped { before, bias: capped } = super::score(&row(Some(2.0), slope), 0) else { panic!("capped") };
            assert_eq!((before.to_f64(), capped.to_f64()), (3.0, bias));
        }
    }
}
