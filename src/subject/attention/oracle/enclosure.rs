//! Step 1: every output of one row in `f64`, with a bound on its distance from the truth.
//!
//! # The analysis
//!
//! `u = 2^-53`; `fl` is one rounding; hats are computed numbers. Three facts carry everything.
//!
//! 1. A sum errs by at most `((1+u)^h - 1) sum|terms|`, where `h` is the height of its tree; adding to a zero accumulator is exact
//!    and does not count. `(1+u)^k - 1 <= k u (1 + 2^-30)` for `k <= 2^20`. Sums here are arranged to be low: see [`dot_height`] and
//!    [`key_height`].
//! 2. Every *bound* below is built from non-negative numbers by +, *, / with fewer than 2^20 roundings on any path, so its
//!    computed value is short of its exact one by a factor of at most `1 - 2^-32`. That, and the `1 + 2^-30` of fact 1, are
//!    covered once, by multiplying the finished bound by [`SLACK`] = 1 + 2^-28. Rows with `n + d > 2^18` are not attempted.
//! 3. Queries are F32 or narrower; keys and values too, or 8-bit numbers (4 significant bits) times an F32 scale, 28 bits together:
//!    `q k` is exact in `f64` (at most 52 bits, exponents within +-320), and no score can overflow or underflow (between 2^-600
//!    and 2^600, softcap's quotient included). Underflow concerns weights and their products only.
//!
//! **Scores.** `G = scale * sum|q k|`. The dot product errs by fact 1, the scaling by one rounding: together
//! `|s^ - s| <= (h + 1) u G`. Softcap: `z = c tanh(s/c)` has slope at most 1 in `s`, so the error so far passes
//! unmagnified; the division's rounding moves `tanh(x)` by at most `u x (1 - tanh(x)^2) <= u |tanh x|`, tanh is correctly
//! rounded, and so is the product: three relative errors `u` of `z`, counted as `4 u |z|`. When the error so far is a fair part
//! of `c`, saturation is used instead: `|z|` lies between `c tanh((|s^| - error) / c)` and `c`. Bias: `b = slope * distance` errs
//! by `u |b|`, the subtraction by `u |s^|`; counted as `2 u |b| + 2 u |s^|`.
//!
//! **Weights.** `m` is the largest `s^`, a number like any other, so `out = sum W v / sum W` and `lse = m + ln sum W` with
//! `W_j = e^(s_j - m)` exactly. `t_j = fl(s^_j - m)` gives `s_j - m = t_j + theta`, `|theta| <= delta_j = |s^_j - s_j| + u|t_j|`, counted
//! as `2 u |t_j|`. `w_j = exp(t_j)` is correctly rounded (CORE-MATH: proven; never the platform's). For `delta <= 2^-20`,
//! `e^delta - 1 <= delta + delta^2`, hence
//! `|W_j - w_j| <= w_j ((1+u)(delta + delta^2) + u) + 4 * 2^-1075 <= w_j (delta + delta^2 + 3u) + 2^-1073`, where the last term covers a
//! subnormal or vanished `w_j`. A key of larger `delta` but `t + delta < -800` has `W < 2^-1154`: it takes `w = 0` and falls under that
//! term. Any other large `delta` ends the attempt: the sums would mean little to the accuracy bound, whatever they prove.
//!
//! **Sums.** `N = sum W v`, `L = sum W` (a sink is one more term of `L`). `w v` is *not* exact in `f64`: one rounding. With fact 1,
//! `|N - N^| <= sum w_j (delta_j + delta_j^2 + 3u + (h + 1) u) |v_j|` plus underflow. So with
//! `a_j = w_j (delta_j + delta_j^2 + (h + 6) u)`: `E_N = sum a_j |v_j|`, `E_L = sum a_j`. Underflow adds at most, for each key,
//! `2^-1073 |v|` (weight), `2^-1075 |v|` (`a`), and `2^-1075` for each of the two products: below `2^-1072 (|v| + 1)` together, `n + 1` times.
//!
//! **Quotient.** `|N/L - N^/L^| <= (E_N + |N^/L^| E_L) / (L^ - E_L)`, and one rounding of `y^`. The ends `y^ -+ r` are rounded too, by
//! at most `u (|y^| + r)`: `4 u |y^|` and the slack cover both. `L^ >= 1`, since the key at the maximum has `t = 0`.
//!
//! **Log-sum-exp.** `|ln L - ln L^| <= E_L / (L^ - E_L)`; CORE-MATH's log is correctly rounded, `u ln L^`; the sum with `m` is rounded
//! once: `4 u (ln L^ + |l^|)` covers these and the ends.

use super::inputs::Row;

/// Unit roundoff of `f64`.
pub(super) const U: f64 = f64::EPSILON / 2.0;
/// See fact 2.
pub(super) const SLACK: f64 = 1.0 + 1.0 / (1u32 << 28) as f64;
/// See fact 2.
const LARGEST: usize = 1 << 18;
/// 2^-20, see "Weights".
const LARGEST_DELTA: f64 = 1.0 / (1u32 << 20) as f64;
/// 2^-1072, see "Sums".
const UNDERFLOW: f64 = f64::from_bits(4);

/// The arrays of one row. Keys come first; a sink is the last entry.
#[derive(Debug, Default)]
pub(super) struct Enclosure {
    /// `s^`.
    score: Vec<f64>,
    /// `G + |bias|`; `|sink|` for a sink.
    pub magnitude: Vec<f64>,
    /// Bound of `|s^ - s|`.
    score_error: Vec<f64>,
    /// `t`.
    pub distance: Vec<f64>,
    /// `delta`.
    pub delta: Vec<f64>,
    /// `w`.
    pub weight: Vec<f64>,
    /// `a`.
    coefficient: Vec<f64>,
    /// `m`, and its distance from the number that the distances were measured from (0 where `m` is that number).
    pub max_score: f64,
    max_score_error: f64,
    /// `L^` and `E_L`.
    pub total: f64,
    total_error: f64,
    /// `[d_v]`: `N^`, then `y^`.
    pub output: Vec<f64>,
    /// `[d_v]`: `E_N`, then the radius of `y^`; infinite where the attempt ended.
    pub radius: Vec<f64>,
    /// `l^` and its radius.
    pub lse: f64,
    pub lse_radius: f64,
}

impl Enclosure {
    /// Scores and their errors. False: the row is too long for the analysis. `homogeneous` keeps to bounds that are
    /// proportional to `u`, here and in [`Enclosure::weigh`], and so refuses what is out of reach of `f64`.
    pub fn score(&mut self, row: &Row, homogeneous: bool) -> bool {
        for array in [&mut self.score, &mut self.magnitude, &mut self.score_error] {
            array.clear();
        }
        self.max_score_error = 0.0;
        let dot_error = (dot_height(row.d_qk) + 1.0) * U;
        for n in 0..row.n {
            let (dot, absolute) = dot(row.q, &row.k[n * row.d_qk..][..row.d_qk]);
            let mut score = dot * row.scale;
            let mut magnitude = absolute * row.scale;
            let mut error = dot_error * magnitude;
            if let Some(cap) = row.cap {
                (score, error) = softcap(score, error, cap, homogeneous);
            }
            if let Some(slope) = row.slope {
                let bias = slope * row.distance(n);
                score -= bias;
                magnitude += bias.abs();
                error += 2.0 * U * (bias.abs() + score.abs());
            }
            self.score.push(score);
            self.magnitude.push(magnitude);
            self.score_error.push(error);
        }
        if let Some(sink) = row.sink {
            self.score.push(sink);
            self.magnitude.push(sink.abs());
            self.score_error.push(0.0);
        }
        self.max_score = self.score.iter().fold(f64::NEG_INFINITY, |max, &score| score.max(max));
        self.distance.clear();
        self.distance.extend(self.score.iter().map(|score| score - self.max_score));
        row.n + row.d_qk <= LARGEST
    }

    /// Replaces the distances by exact ones, rounded once; `max` is their origin, rounded once as well.
    pub fn set_distances(&mut self, distances: impl Iterator<Item = f64>, max: f64) {
        self.distance.clear();
        self.distance.extend(distances);
        // The origin of capped scores and their distances come from MPFR with an absolute error far below this.
        let exact_error = 2f64.powi(-100);
        self.score_error.iter_mut().for_each(|error| *error = exact_error);
        self.max_score = max;
        self.max_score_error = 2.0 * U * max.abs() + exact_error;
    }

    /// Weights, their error coefficients and the denominator, from the distances. False: some `delta` is too large.
    pub fn weigh(&mut self, homogeneous: bool) -> bool {
        for array in [&mut self.delta, &mut self.weight, &mut self.coefficient] {
            array.clear();
        }
        let terms = self.distance.len();
        let sum_error = (key_height(terms) + 6.0) * U;
        let mut sound = terms <= LARGEST;
        let mut total_error = 0.0;
        for (&t, &error) in self.distance.iter().zip(&self.score_error) {
            let delta = error + 2.0 * U * t.abs();
            let weight = if t < -746.0 { 0.0 } else { core_math::exp(t) };
            let coefficient = if delta <= LARGEST_DELTA {
                weight * (delta + delta * delta + sum_error)
            } else {
                // The tenfold margin below -745 also covers the roundings of `delta` itself.
                sound &= t + delta * SLACK < -800.0 && !homogeneous;
                0.0
            };
            let weight = if delta <= LARGEST_DELTA { weight } else { 0.0 };
            total_error += coefficient;
            self.delta.push(delta);
            self.weight.push(weight);
            self.coefficient.push(coefficient);
        }
        self.total = self.weight.chunks(BLOCK).map(|block| block.iter().sum::<f64>()).sum();
        self.total_error = (total_error + (terms + 1) as f64 * UNDERFLOW) * SLACK;
        sound
    }

    /// The value sums alone; the output is not finished.
    pub fn sum(&mut self, row: &Row) {
        self.reset(row.d_v);
        let (weight, coefficient) = (&self.weight[..row.n], &self.coefficient[..row.n]);
        value_sums(row, [weight], [coefficient], [&mut self.output], [&mut self.radius]);
    }

    /// The value sums, with two more that the accuracy bound wants: `sum w |v|` and `sum r |v|` for coefficients `r`.
    pub fn sum_with(&mut self, row: &Row, absolute: &mut [f64], r: &[f64], bound: &mut [f64]) {
        self.reset(row.d_v);
        let (weight, coefficient) = (&self.weight[..row.n], &self.coefficient[..row.n]);
        value_sums(row, [weight], [coefficient, weight, r], [&mut self.output], [&mut self.radius, absolute, bound]);
    }

    fn reset(&mut self, d_v: usize) {
        for array in [&mut self.output, &mut self.radius] {
            array.clear();
            array.resize(d_v, 0.0);
        }
    }

    /// Quotients and log-sum-exp with their radii.
    pub fn finish(&mut self, row: &Row) {
        let (total, total_error) = (self.total, self.total_error);
        // Every weight that counts errs by less than 2^-19 of itself.
        let room = total - total_error;
        debug_assert!(room > 0.5 * total && total.is_finite(), "{total} +- {total_error}");
        let underflow = (row.n + 1) as f64 * UNDERFLOW * (row.v_max + 1.0);
        let inverse = 1.0 / room;
        for (y, r) in self.output.iter_mut().zip(&mut self.radius) {
            *y /= total;
            *r = ((*r + underflow + y.abs() * total_error) * inverse + 4.0 * U * y.abs()) * SLACK + UNDERFLOW;
        }
        let log = core_math::log(total);
        self.lse = self.max_score + log;
        let rounding = 4.0 * U * (log.abs() + self.lse.abs()) + self.max_score_error;
        self.lse_radius = (total_error * inverse + rounding) * SLACK + UNDERFLOW;
    }

    /// Nothing is known.
    pub fn give_up(&mut self, d_v: usize) {
        self.output.clear();
        self.output.resize(d_v, 0.0);
        self.radius.clear();
        self.radius.resize(d_v, f64::INFINITY);
        self.lse = 0.0;
        self.lse_radius = f64::INFINITY;
    }
}

/// `c tanh(s/c)` and the bound on its error, from that of `s`.
fn softcap(score: f64, error: f64, cap: f64, homogeneous: bool) -> (f64, f64) {
    let capped = cap * core_math::tanh(score / cap);
    let mut passed = error;
    if !homogeneous && error > cap * 2f64.powi(-40) {
        let least = score.abs() - error * SLACK;
        if least > 0.0 {
            // tanh is increasing and correctly rounded; 4 u covers the quotient's and its own rounding.
            passed = passed.min(cap * (1.0 - core_math::tanh(least / cap) + 4.0 * U));
        }
    }
    (capped, passed + 4.0 * U * capped.abs())
}

/// Keys are summed in blocks of this many, and the blocks' sums one after another.
const BLOCK: usize = 32;

/// The height of a sum over keys: a chain inside a block, then a chain of blocks; no more than all terms in one chain.
fn key_height(terms: usize) -> f64 {
    terms.min(BLOCK + terms / BLOCK) as f64
}

/// The height of [`dot`]: `d / 8 - 1` additions in a chain, three to fold the chains, one for the rest, whose own chain and
/// last addition are at most seven; no more than all terms in one chain.
fn dot_height(d: usize) -> f64 {
    d.min(d / 8 + 7) as f64
}

/// `sum q k` and `sum |q k|`, in eight independent chains.
fn dot(q: &[f64], k: &[f64]) -> (f64, f64) {
    let mut sum = [0.0; 8];
    let mut absolute = [0.0; 8];
    let (q_chunks, q_rest) = q.as_chunks::<8>();
    let (k_chunks, k_rest) = k.as_chunks::<8>();
    for (q, k) in q_chunks.iter().zip(k_chunks) {
        for lane in 0..8 {
            let product = q[lane] * k[lane];
            sum[lane] += product;
            absolute[lane] += product.abs();
        }
    }
    let (mut rest, mut rest_absolute) = (0.0, 0.0);
    for (q, k) in q_rest.iter().zip(k_rest) {
        let product = q * k;
        rest += product;
        rest_absolute += product.abs();
    }
    let fold = |x: [f64; 8]| ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
    (fold(sum) + rest, fold(absolute) + rest_absolute)
}

/// `S` sums of coefficient times value and `A` of coefficient times |value|, for all lanes at once.
///
/// A tile of lanes keeps its sums in registers while it walks down the keys.
pub(super) fn value_sums<const S: usize, const A: usize>(
    row: &Row,
    signed: [&[f64]; S],
    absolute: [&[f64]; A],
    signed_into: [&mut [f64]; S],
    absolute_into: [&mut [f64]; A],
) {
    let mut signed_into = signed_into;
    let mut absolute_into = absolute_into;
    let mut x = 0;
    while x + 4 <= row.d_v {
        let (s, a) = tile::<4, S, A>(row, x, &signed, &absolute);
        for (into, sums) in signed_into.iter_mut().zip(s).chain(absolute_into.iter_mut().zip(a)) {
            into[x..x + 4].copy_from_slice(&sums);
        }
        x += 4;
    }
    while x < row.d_v {
        let (s, a) = tile::<1, S, A>(row, x, &signed, &absolute);
        for (into, sums) in signed_into.iter_mut().zip(s).chain(absolute_into.iter_mut().zip(a)) {
            into[x] = sums[0];
        }
        x += 1;
    }
}

#[inline]
fn tile<const W: usize, const S: usize, const A: usize>(
    row: &Row,
    x: usize,
    signed: &[&[f64]; S],
    absolute: &[&[f64]; A],
) -> ([[f64; W]; S], [[f64; W]; A]) {
    let mut s = [[0.0; W]; S];
    let mut a = [[0.0; W]; A];
    let signed = signed.map(|weights| &weights[..row.n]);
    let absolute = absolute.map(|weights| &weights[..row.n]);
    for first in (0..row.n).step_by(BLOCK) {
        let mut block_s = [[0.0; W]; S];
        let mut block_a = [[0.0; W]; A];
        for n in first..row.n.min(first + BLOCK) {
            let values: &[f64; W] = row.v[n * row.d_v + x..].first_chunk().expect("the tile lies inside the row");
            for (sums, weights) in block_s.iter_mut().zip(&signed) {
                for lane in 0..W {
                    sums[lane] += weights[n] * values[lane];
                }
            }
            for (sums, weights) in block_a.iter_mut().zip(&absolute) {
                for lane in 0..W {
                    sums[lane] += weights[n] * values[lane].abs();
                }
            }
        }
        for (sums, block) in s.iter_mut().zip(block_s).chain(a.iter_mut().zip(block_a)) {
            for lane in 0..W {
                sums[lane] += block[lane];
            }
        }
    }
    (s, a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rug::Float;

    /// Products and sums of small integers have no rounding: every length, every rest, signs alternating.
    #[test]
    fn dot_products_are_complete() {
        for d in 0..40 {
            let q: Vec<f64> = (0..d).map(|n| f64::from(n + 1)).collect();
            let k: Vec<f64> = (0..d).map(|n| f64::from(if n % 2 == 0 { n + 3 } else { -n })).collect();
            let terms: Vec<i64> = (0..i64::from(d)).map(|n| (n + 1) * if n % 2 == 0 { n + 3 } else { -n }).collect();
            let sum: i64 = terms.iter().sum();
            let absolute: i64 = terms.iter().map(|term| term.abs()).sum();
            assert_eq!(dot(&q, &k), (sum as f64, absolute as f64), "{d}");
        }
    }

    /// Whatever score the error allows, its capped value lies within the bound: looked at in MPFR, at both ends and at the score itself.
    #[test]
    fn softcap_bounds_what_the_error_allows() {
        for cap in [0.5, 30.0, 1e4] {
            for steps in [-80.0, -3.0, -0.7, 0.0, 0.01, 1.0, 9.0, 25.0] {
                for error in [0.0, 1e-16, 1e-9, 1e-3, 0.5, 2.0, 60.0] {
                    for homogeneous in [false, true] {
                        let (score, error) = (steps * cap, error * cap);
                        let (capped, bound) = softcap(score, error, cap, homogeneous);
                        for end in [score - error, score, score + error] {
                            let truth = (Float::with_val(300, end) / cap).tanh() * cap;
                            let distance = (truth - capped).abs();
                            assert!(distance <= bound, "cap {cap} score {score} error {error} end {end}: {distance} > {bound}");
                        }
                        // tanh narrows: never wider than the error and the roundings.
                        assert!(bound <= error + 4.0 * U * cap, "cap {cap} score {score} error {error}: {bound}");
                    }
                }
            }
        }
    }

    /// Far out nothing is left of an error, however large; where radii are to stay proportional to `u` it is kept.
    #[test]
    fn saturation_forgets_the_error() {
        for score in [90.0, -90.0] {
            let (capped, bound) = softcap(score, 30.0, 1.0, false);
            assert_eq!(capped, score.signum());
            assert!(bound < 1e-14, "{bound}");
            assert!(softcap(score, 0.5, 1.0, false).1 < 1e-14);
            assert!(softcap(score, 30.0, 1.0, true).1 >= 30.0);
        }
    }

    /// Numbers in -1..1 that fill a significand.
    fn spread(count: usize, seed: usize) -> Vec<f64> {
        let golden = 0.618_033_988_749_894_9;
        (0..count).map(|n| ((n as f64 + 1.0) * golden + seed as f64 * 0.377).fract() * 2.0 - 1.0).collect()
    }

    fn row<'a>([q, k, v]: [&'a [f64]; 3], n: usize) -> Row<'a> {
        let (d_qk, d_v) = (q.len(), v.len() / n);
        Row {
            q,
            k,
            v,
            n,
            d_qk,
            d_v,
            first: 2,
            position: n as i64 + 1,
            scale: 0.75,
            cap: None,
            slope: None,
            sink: None,
            out: crate::number::Dtype::F32,
            v_max: 1.0,
            broken: false,
            look_at_v: false,
            offsets: [0; 3],
        }
    }

    /// But for the slack and for underflow.
    #[track_caller]
    fn near(value: f64, derived: f64) {
        assert!((value - derived).abs() <= derived.abs() * 1e-8, "{value:e}, derived {derived:e}");
    }

    #[test]
    fn heights_of_sums() {
        for (terms, height) in [(0, 0.0), (1, 1.0), (32, 32.0), (33, 33.0), (34, 33.0), (64, 34.0), (1000, 63.0)] {
            assert_eq!(key_height(terms), height, "{terms} keys");
        }
        for (d, height) in [(0, 0.0), (3, 3.0), (8, 8.0), (9, 8.0), (64, 15.0), (100, 19.0)] {
            assert_eq!(dot_height(d), height, "{d} lanes");
        }
    }

    /// Every number and every radius, recomputed from the analysis above in the order in which it is written there: of short rows and
    /// long ones, with errors of scores that are nothing and that are all they may be, with a bias and a sink and without.
    #[test]
    fn radii_are_those_of_the_analysis() {
        for (n, d_qk, d_v) in [(1, 1, 1), (3, 9, 4), (7, 40, 5), (40, 3, 9), (100, 64, 2)] {
            for (size, slope, sink) in
                [(1.0, None, None), (2f64.powi(27), None, None), (1.0, Some(0.5), Some(0.25)), (1.0, Some(0.125), None)]
            {
                // Of a large score nearly everything cancels, but not its error.
                let mut q = spread(d_qk, 1);
                q[0] = size;
                let mut k = spread(n * d_qk, 2);
                k.iter_mut().step_by(d_qk).for_each(|k| *k = if size > 1.0 { 1.0 + *k / size } else { *k });
                let v = spread(n * d_v, 3);
                let row = Row { slope, sink, ..row([&q, &k, &v], n) };
                let mut it = Enclosure::default();
                assert!(it.score(&row, false) && it.weigh(false));
                let terms = n + usize::from(sink.is_some());
                let mut scores = Vec::new();
                for n in 0..n {
                    let products = q.iter().zip(&k[n * d_qk..]).map(|(q, k)| q * k);
                    let (dot, absolute) = products.fold((0.0, 0.0), |(sum, absolute), it| (sum + it, absolute + it.abs()));
                    let bias = slope.unwrap_or(0.0) * (row.n - 1 - n) as f64;
                    let (score, magnitude) = (0.75 * dot - bias, 0.75 * absolute);
                    scores.push(score);
                    near(it.magnitude[n], magnitude + bias);
                    let bias_error = if bias > 0.0 { 2.0 * U * (bias + it.score[n].abs()) } else { 2.0 * U * it.score[n].abs() };
                    let error = (dot_height(d_qk) + 1.0) * U * magnitude + slope.map_or(0.0, |_| bias_error);
                    near(it.score_error[n], error);
                    assert!((it.score[n] - score).abs() <= 2.0 * error + 1e-300);
                }
                if let Some(sink) = sink {
                    assert_eq!((it.score[n], it.magnitude[n], it.score_error[n]), (sink, sink, 0.0));
                }
                let max = it.score.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                assert_eq!((it.max_score, it.max_score_error), (max, 0.0));
                let height = (key_height(terms) + 6.0) * U;
                let mut sums = [0.0; 2];
                for n in 0..terms {
                    assert_eq!(it.distance[n], it.score[n] - max);
                    let delta = it.score_error[n] + 2.0 * U * it.distance[n].abs();
                    near(it.delta[n], delta);
                    near(it.weight[n], it.distance[n].exp());
                    near(it.coefficient[n], it.weight[n] * (delta + delta * delta + height));
                    sums = [sums[0] + it.weight[n], sums[1] + it.coefficient[n]];
                }
                let [total, total_error] = sums;
                near(it.total, total);
                near(it.total_error, total_error);
                let (mut absolute, mut bound) = (vec![0.0; d_v], vec![0.0; d_v]);
                let r = spread(n, 4);
                it.sum_with(&row, &mut absolute, &r, &mut bound);
                let (with_output, with_radius) = (it.output.clone(), it.radius.clone());
                it.sum(&row);
                assert_eq!((&it.output, &it.radius), (&with_output, &with_radius));
                it.finish(&row);
                let room = total - total_error;
                for x in 0..d_v {
                    let lane = |of: &dyn Fn(usize, f64) -> f64| (0..n).map(|n| of(n, row.value(n, x))).sum::<f64>();
                    near(absolute[x], lane(&|n, v| it.weight[n] * v.abs()));
                    assert!((bound[x] - lane(&|n, v| r[n] * v.abs())).abs() < 1e-13);
                    let y = lane(&|n, v| it.weight[n] * v) / total;
                    assert!((it.output[x] - y).abs() < 1e-13);
                    let error = lane(&|n, v| it.coefficient[n] * v.abs());
                    let y = it.output[x].abs();
                    near(it.radius[x], (error + y * total_error) / room + 4.0 * U * y);
                }
                near(it.lse, max + total.ln());
                near(it.lse_radius, total_error / room + 4.0 * U * (total.ln().abs() + it.lse.abs()));
            }
        }
    }

    /// Where all values are zero, only what may have vanished is left.
    #[test]
    fn underflow() {
        let row = row([&[1.0], &[0.0; 3], &[0.0; 3]], 3);
        let mut it = Enclosure::default();
        assert!(it.score(&row, false) && it.weigh(false));
        it.sum(&row);
        it.finish(&row);
        let unit = UNDERFLOW;
        // Four times 2^-1072 (1 + 1), over a sum of three weights.
        assert_eq!(it.radius, [8.0 * unit / 3.0 + unit]);
    }

    /// Exact distances leave the error of their origin, and no other.
    #[test]
    fn distances_that_are_set() {
        let row = row([&[1.0], &[0.5, 1.0], &[1.0, 1.0]], 2);
        let mut it = Enclosure::default();
        assert!(it.score(&row, false));
        it.set_distances([-3.0, 0.0].into_iter(), -6.0);
        let least = 2f64.powi(-100);
        assert_eq!((&it.distance, &it.score_error), (&vec![-3.0, 0.0], &vec![least; 2]));
        assert_eq!((it.max_score, it.max_score_error), (-6.0, 12.0 * U + least));
        assert!(it.weigh(false));
        it.sum(&row);
        it.finish(&row);
        near(it.lse, -6.0 + (1.0 + (-3f64).exp()).ln());
        let derived = it.total_error / (it.total - it.total_error) + 4.0 * U * (it.total.ln() + it.lse.abs()) + 12.0 * U;
        near(it.lse_radius, derived);
    }

    /// A weight of a large error counts as none where it is far enough below; elsewhere the attempt ends.
    #[test]
    fn large_errors() {
        for (t, delta, sound) in [
            (-900.0, 1e-3, true),
            (-900.0, 150.0, false),
            (-900.0, 99.0, true),
            (-800.9, 0.5, true),
            (-800.2, 0.5, false),
            (-10.0, 1e-3, false),
            (-10.0, 1e-9, true),
            (-1e4, 1e-9, true),
        ] {
            let mut it = Enclosure { distance: vec![0.0, t], score_error: vec![0.0, delta], ..Enclosure::default() };
            assert_eq!(it.weigh(false), sound, "{t} +- {delta}");
            assert_eq!(it.weigh(true), delta < LARGEST_DELTA, "{t} +- {delta}");
            let counts = delta < LARGEST_DELTA;
            assert_eq!(it.weight, [1.0, if counts { t.exp() } else { 0.0 }]);
            assert_eq!(it.coefficient[1] > 0.0, counts && t > -700.0);
        }
    }

    #[test]
    fn rows_beyond_the_analysis() {
        let (q, zeros) = (vec![0.0; 512], vec![0.0; 1024 * 512]);
        let long = row([&q, &zeros, &zeros[..1024]], 1024);
        assert!(Enclosure::default().score(&long, false));
        let k = vec![0.0; LARGEST];
        let mut it = Enclosure::default();
        assert!(!it.score(&row([&[0.0], &k, &k], LARGEST), false));
        assert!(it.score(&Row { n: LARGEST - 1, ..row([&[0.0], &k, &k], LARGEST) }, false));
    }
}
