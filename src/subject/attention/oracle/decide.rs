//! Step 2, second half: the rounding of an output that the first step left open.

use super::boundary::{Between, beside, between};
use super::exact::{BITS, Exact, Score};
use super::inputs::Row;
use super::sign::{CAPPED_BITS, LAST_BITS, Term, sign};
use super::{Answer, Truth};
use crate::number::Dtype;
use rug::float::Round;
use rug::{Assign, Float};
use std::cmp::Ordering;

/// A value in MPFR and a bound on its distance from the truth.
pub(super) struct Ball {
    pub value: Float,
    pub radius: Float,
}

impl Ball {
    /// The ends, rounded outward to `f64`.
    pub fn ends(&self) -> (f64, f64) {
        let precision = self.value.prec() + 64;
        let lo = Float::with_val_round(precision, &self.value - &self.radius, Round::Down).0;
        let hi = Float::with_val_round(precision, &self.value + &self.radius, Round::Up).0;
        (lo.to_f64_round(Round::Down), hi.to_f64_round(Round::Up))
    }

    /// As a truth that is not decided yet.
    pub fn truth(&self) -> Truth {
        let value = self.value.to_f64();
        // The rounding to f64 errs by at most 2^-53 |value|, or 2^-1075 among subnormals.
        let radius = self.radius.to_f64_round(Round::Up) + value.abs() * f64::EPSILON + f64::from_bits(1);
        Truth { value, radius: radius.next_up(), answer: Answer::Undecided }
    }
}

/// `o` of lane `x`; `open` is what step 1 knows.
pub(super) fn output(exact: &mut Exact, row: &Row, x: usize, open: Truth) -> Truth {
    let sums = exact.value_sums(row, x);
    // Exact cancellation first: no precision would settle it.
    if sums.iter().all(Float::is_zero) {
        return exactly(row.out, 0.0);
    }
    let coefficients = |exact: &Exact, boundary: f64| -> Vec<Float> {
        let pairs = sums.iter().zip(&exact.groups);
        pairs.map(|(sum, group)| Float::with_val(BITS, sum - Float::with_val(BITS, boundary) * group.count)).collect()
    };
    // A tie needs no exponential at all.
    if let Between::One(boundary) = between(row.out, open.value - open.radius, open.value + open.radius)
        && coefficients(exact, boundary).iter().all(Float::is_zero)
    {
        return exactly(row.out, boundary);
    }
    let last = last_bits(row);
    let ball = |exact: &mut Exact, precision| exact.quotient(&sums, precision);
    narrow(row.out, exact, last, ball, |exact, boundary| {
        let coefficients = coefficients(exact, boundary).into_iter();
        let terms = coefficients.zip(&exact.groups).map(|(coefficient, group)| Term { coefficient, score: &group.score });
        sign(terms.collect(), exact.cap)
    })
}

/// `lse`: on which side of a boundary `c` it lies is the sign of `sum n_g e^(s_g) - e^c`, where a group at `s_g = c` meets the
/// last term and cancels exactly.
pub(super) fn lse(exact: &mut Exact, row: &Row) -> Truth {
    let last = last_bits(row);
    narrow(Dtype::F32, exact, last, Exact::log_sum, |exact, boundary| {
        let boundary = Score::Exact(Float::with_val(BITS, boundary));
        let count = |n: f64| Float::with_val(64, n);
        let groups = exact.groups.iter().map(|group| Term { coefficient: count(group.count.into()), score: &group.score });
        let last = Term { coefficient: count(-1.0), score: &boundary };
        sign(groups.chain([last]).collect(), exact.cap)
    })
}

/// Ever narrower balls until no boundary is left in one, or a single one: then the sign tells the side.
fn narrow(
    dtype: Dtype,
    exact: &mut Exact,
    last: u32,
    ball: impl Fn(&mut Exact, u32) -> Ball,
    side: impl Fn(&Exact, f64) -> Option<Ordering>,
) -> Truth {
    let mut precision = 128;
    loop {
        let ball = ball(exact, precision);
        let (lo, hi) = ball.ends();
        let truth = ball.truth();
        match between(dtype, lo, hi) {
            Between::Nothing(bits) => return Truth { answer: Answer::Decided(bits), ..truth },
            Between::One(boundary) => {
                return match side(exact, boundary) {
                    Some(Ordering::Equal) => exactly(dtype, boundary),
                    Some(side) => Truth { answer: Answer::Decided(beside(dtype, boundary, side)), ..truth },
                    None => truth,
                };
            }
            Between::Many if precision >= last => return truth,
            Between::Many => precision *= 2,
        }
    }
}

/// The precision past which a row is left undecided.
fn last_bits(row: &Row) -> u32 {
    if row.cap.is_some() { CAPPED_BITS } else { LAST_BITS }
}

/// A value known exactly.
fn exactly(dtype: Dtype, value: f64) -> Truth {
    Truth { value, radius: 0.0, answer: Answer::Decided(beside(dtype, value, Ordering::Equal)) }
}

/// 2^-699999999: above what a vanished weight can be.
fn vanished() -> Float {
    Float::with_val(64, 1) >> 699_999_999u32
}

impl Exact {
    /// `sum w V / sum w n`, where `sums` are the groups' `V`.
    ///
    /// Each weight errs by less than `4 * 2^-p` relative or is one of the vanished; with the product's rounding and the
    /// additions, numerator and denominator err by less than `(groups + 8) 2^-p` of their sums of magnitudes, doubled for the
    /// roundings of the bound itself. The denominator is at least 1.
    fn quotient(&mut self, sums: &[Float], precision: u32) -> Ball {
        let (total, total_error) = self.total(precision);
        let weights = &self.weights(precision).values;
        let mut value = Float::new(precision);
        let mut term = Float::new(precision);
        let mut magnitude = Float::new(64);
        let mut all = Float::new(64);
        for (sum, weight) in sums.iter().zip(weights) {
            term.assign(sum * weight);
            value += &term;
            term.abs_mut();
            magnitude += &term;
            all += sum.clone().abs();
        }
        let error = ((magnitude * (sums.len() + 8) as f64) >> (precision - 1)) + all * vanished();
        value /= &total;
        let size = Float::with_val(64, value.abs_ref());
        let room = Float::with_val(64, &total - &total_error);
        let mut radius = (error + Float::with_val(64, &size * &total_error)) / room;
        radius += size >> (precision - 1);
        Ball { value, radius: radius * 1.001 }
    }

    /// The log-sum-exp.
    fn log_sum(&mut self, precision: u32) -> Ball {
        let (total, total_error) = self.total(precision);
        let log = Float::with_val(precision, total.ln_ref());
        let room = Float::with_val(64, &total - &total_error);
        let mut radius = total_error / room;
        // The rounding of the logarithm; the error of the largest score and the rounding of the sum, each far below 2^-p.
        radius += Float::with_val(64, &log + 1u32) >> (precision - 1);
        let value = Float::with_val(precision + 640, &self.weights(precision).max + &log);
        Ball { value, radius: radius * 1.001 }
    }

    /// `sum w n` and a bound on its error.
    fn total(&mut self, precision: u32) -> (Float, Float) {
        self.weights(precision);
        let counts: Vec<u32> = self.groups.iter().map(|group| group.count).collect();
        let mut total = Float::new(precision);
        for (weight, count) in self.weights(precision).values.iter().zip(&counts) {
            total += Float::with_val(precision, weight * *count);
        }
        let terms = counts.iter().map(|&count| f64::from(count)).sum::<f64>();
        let error = ((Float::with_val(64, &total) * (counts.len() + 8) as f64) >> (precision - 1)) + vanished() * terms;
        (total, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of one lane over keys of given scores and values.
    fn row<'a>(scores: &'a [f64], values: &'a [f64], cap: Option<f64>) -> Row<'a> {
        Row {
            q: &[1.0],
            k: scores,
            v: values,
            n: scores.len(),
            d_qk: 1,
            d_v: 1,
            first: 0,
            position: scores.len() as i64 - 1,
            scale: 1.0,
            cap,
            slope: None,
            sink: None,
            out: Dtype::F32,
            v_max: 1.0,
            broken: false,
            look_at_v: false,
            offsets: [0; 3],
        }
    }

    /// Numbers in -1..1 that fill a significand.
    fn spread(count: usize, seed: u64) -> Vec<f64> {
        let golden = 0.618_033_988_749_894_9;
        (0..count).map(|n| ((n as f64 + 1.0) * golden + seed as f64 * 0.377).fract() * 2.0 - 1.0).collect()
    }

    /// The ball of each precision holds what a far higher one gives, and is not wider than its derivation says: with `g`
    /// groups, `2 (g + 8) 2^-p` of the sums of magnitudes above and below the line, and the last roundings.
    #[test]
    fn balls_hold_the_truth_and_no_more() {
        for keys in [1, 2, 3, 7, 8, 9, 40, 120] {
            for seed in 0..6 {
                // Values of both signs, of one sign, and such that the sum nearly cancels.
                let mut values = spread(keys, seed);
                match seed % 3 {
                    0 => {}
                    1 => values.iter_mut().for_each(|v| *v = 0.5 + v.abs() / 2.0),
                    _ => (1..keys).step_by(2).for_each(|n| values[n] = -values[n - 1]),
                }
                let scores: Vec<f64> = spread(keys, seed + 100).iter().map(|s| s * 3.0).collect();
                for cap in [None, Some(2.0)] {
                    let row = row(&scores, &values, cap);
                    let mut exact = Exact::new(&row);
                    let (sums, groups) = (exact.value_sums(&row, 0), exact.groups.len() as f64);
                    let best = [exact.quotient(&sums, 400).value, exact.log_sum(400).value];
                    for precision in [64, 100] {
                        let unit = 2f64.powi(-(precision as i32));
                        let log = (keys as f64).ln();
                        let widths = [4.0 * (groups + 9.0) * unit, 2.0 * (groups + 9.0 + log) * unit];
                        let balls = [exact.quotient(&sums, precision), exact.log_sum(precision)];
                        for ((ball, best), width) in balls.iter().zip(&best).zip(widths) {
                            let error = Float::with_val(2048, &ball.value - best).abs();
                            assert!(error <= ball.radius, "{keys} keys, seed {seed}: off by {error}, radius {}", ball.radius);
                            assert!(
                                ball.radius <= width * 1.01,
                                "{keys} keys, seed {seed}: radius {} above {width}",
                                ball.radius
                            );
                            let (lo, hi) = ball.ends();
                            assert!(*best >= lo && *best <= hi);
                            let truth = ball.truth();
                            assert!(Float::with_val(2048, best - truth.value).abs() <= truth.radius, "{truth:?}");
                            assert!(truth.radius <= (width + truth.value.abs() * f64::EPSILON) * 1.01 + 1e-320, "{truth:?}");
                        }
                    }
                }
            }
        }
    }

    /// Radii as they are derived: see [`Exact::quotient`], `log_sum` and `total`.
    #[test]
    fn radii_are_those_of_the_derivation() {
        let near = |value: &Float, derived: f64| {
            let value = value.to_f64();
            assert!((value - derived).abs() <= derived * 1e-5, "{value:e}, derived {derived:e}");
        };
        for keys in [1, 2, 9, 40] {
            for seed in 0..3 {
                let (scores, values) = (spread(keys, seed + 7), spread(keys, seed));
                // Some keys have equal scores.
                let scores: Vec<f64> = (0..keys).map(|n| scores[n - n % 2] * 4.0).collect();
                let row = row(&scores, &values, None);
                let mut exact = Exact::new(&row);
                let sums = exact.value_sums(&row, 0);
                let weights: Vec<f64> = exact.weights(300).values.iter().map(Float::to_f64).collect();
                let counts: Vec<f64> = exact.groups.iter().map(|group| group.count.into()).collect();
                let total: f64 = weights.iter().zip(&counts).map(|(weight, count)| weight * count).sum();
                let products: Vec<f64> = weights.iter().zip(&sums).map(|(weight, sum)| weight * sum.to_f64()).collect();
                let magnitude: f64 = products.iter().map(|it| it.abs()).sum();
                let output = products.iter().sum::<f64>().abs() / total;
                for precision in [64, 100] {
                    let unit = 2f64.powi(1 - precision as i32);
                    let many = (weights.len() + 8) as f64 * unit;
                    let (sum, error) = exact.total(precision);
                    near(&sum, total);
                    near(&error, many * total);
                    let ball = exact.quotient(&sums, precision);
                    near(&ball.radius, ((many * magnitude + output * many * total) / total + output * unit) * 1.001);
                    let ball = exact.log_sum(precision);
                    near(&ball.radius, (many + (total.ln() + 1.0) * unit) * 1.001);
                }
            }
        }
    }
}
