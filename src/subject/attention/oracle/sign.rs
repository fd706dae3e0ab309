//! The sign of a sum of exponentials with exact coefficients, by Ziv's loop.
//!
//! `sum C_i e^(S_i)` with non-zero `C_i` and distinct algebraic `S_i` is never zero (Lindemann-Weierstrass), so evaluating it at
//! ever higher precision ends. The largest exponent is factored out, and MPFR's exponents reach 2^-700000000, so gaps between the
//! scores cost nothing; what lies below even that goes into the error radius.
//!
//! Softcapped scores are not algebraic, and two of them may differ by less than any practical precision shows: far out,
//! `cap tanh(x)` is `sign(x) cap` minus a tail of `2 cap e^(-2|x|)`, give or take. With `f = e^(-2|x|)` such an exponential is split as
//! `C e^(cap - b) + C e^(cap - b) (e^(-tail) - 1)`: the first parts have exact exponents and are merged exactly; the second parts are
//! `f` times a moderate factor, so their size too is a matter of exponents and not of precision. What remains open is
//! cancellation between transcendental numbers that nothing proves to be zero: there the loop is capped.

use super::exact::{BITS, Score, exponential};
use rug::Float;
use rug::ops::NegAssign;
use std::cmp::Ordering;

/// Precision at which a sum with softcapped scores is left undecided.
pub(super) const CAPPED_BITS: u32 = 4096;
/// Precision at which any sum is left undecided. The loop ends by itself; this bounds what one element may cost.
pub(super) const LAST_BITS: u32 = 1 << 16;

/// One term: an exact coefficient and a score.
pub(super) struct Term<'a> {
    pub coefficient: Float,
    pub score: &'a Score,
}

/// `C M e^X`.
struct Part<'a> {
    /// `C`, exact.
    coefficient: Float,
    exponent: Exponent<'a>,
}

enum Exponent<'a> {
    /// `X` exact, `M = 1`.
    Exact(Float),
    /// `X` a capped score, `M = 1`.
    Capped(&'a Score),
    /// The tail of a saturated score: `X = base - 2 |before| / cap`, `M = (e^(-+tail) - 1) / e^(-2 |before| / cap)`.
    Tail { base: Float, before: &'a Float },
}

/// The sign of a sum over terms of distinct scores; zero coefficients are dropped. `None`: not decided within the caps.
pub(super) fn sign(terms: Vec<Term>, cap: f64) -> Option<Ordering> {
    let mut exact: Vec<(Float, Float)> = Vec::new();
    let mut parts = Vec::new();
    let mut transcendental = false;
    for Term { coefficient, score } in terms {
        if coefficient.is_zero() {
            continue;
        }
        match score {
            Score::Exact(score) => exact.push((score.clone(), coefficient)),
            Score::Capped { before, bias } => {
                transcendental = true;
                if saturated(before, cap) {
                    let mut base = Float::with_val(BITS, if before.is_sign_negative() { -cap } else { cap });
                    base -= bias;
                    exact.push((base.clone(), coefficient.clone()));
                    parts.push(Part { coefficient, exponent: Exponent::Tail { base, before } });
                } else {
                    parts.push(Part { coefficient, exponent: Exponent::Capped(score) });
                }
            }
        }
    }
    exact.sort_by(|a, b| a.0.partial_cmp(&b.0).expect("scores are finite"));
    for (score, coefficient) in exact {
        match parts.last_mut() {
            Some(Part { coefficient: sum, exponent: Exponent::Exact(last) }) if *last == score => *sum += coefficient,
            _ => parts.push(Part { coefficient, exponent: Exponent::Exact(score) }),
        }
    }
    parts.retain(|part| !part.coefficient.is_zero());
    match parts.as_slice() {
        [] => return Some(Ordering::Equal),
        [Part { coefficient, exponent: Exponent::Exact(_) | Exponent::Capped(_) }] => return coefficient.cmp0(),
        _ => {}
    }
    let last = if transcendental { CAPPED_BITS } else { LAST_BITS };
    let mut precision = 64;
    while precision <= last {
        let (sum, radius) = evaluate(&parts, cap, precision);
        if sum.cmp_abs(&radius) == Some(Ordering::Greater) {
            return sum.cmp0();
        }
        precision *= 2;
    }
    None
}

/// The sum over its largest exponential, and a bound on its error.
///
/// Each part has at most six roundings, and an exponent error far below one: a relative error below `16 * 2^-p`. The additions add
/// at most `n 2^-p` of the sum of magnitudes (the magnitudes' own sum, rounded the same way, is short by less than a factor 2).
fn evaluate(parts: &[Part], cap: f64, precision: u32) -> (Float, Float) {
    let evaluated: Vec<(Float, Option<Float>)> = parts.iter().map(|part| part.exponent.evaluate(precision, cap)).collect();
    let mut max = &evaluated[0].0;
    for (exponent, _) in &evaluated {
        if exponent > max {
            max = exponent;
        }
    }
    let mut sum = Float::new(precision);
    let mut magnitude = Float::new(64);
    let mut vanished = Float::new(64);
    for (part, (exponent, factor)) in parts.iter().zip(&evaluated) {
        let mut term = Float::with_val(precision, &part.coefficient);
        if let Some(factor) = factor {
            term *= factor;
        }
        match exponential(exponent, max, precision) {
            Some(power) => {
                term *= power;
                sum += &term;
                magnitude += term.abs();
            }
            None => vanished += term.abs(),
        }
    }
    let radius = ((magnitude * (parts.len() + 16) as f64) >> (precision - 1)) + (vanished >> 699_999_999);
    (sum, radius)
}

impl Exponent<'_> {
    /// `X` with an absolute error below 2^(-precision - 75), and `M`, unless it is 1, with a relative error below
    /// `12 * 2^-precision`.
    fn evaluate(&self, precision: u32, cap: f64) -> (Float, Option<Float>) {
        match self {
            Exponent::Exact(score) => (score.clone(), None),
            Exponent::Capped(score) => (score.evaluate(precision, cap), None),
            Exponent::Tail { base, before } => {
                // |before| / cap is below 2^560; at this width its error is below 2^(-precision - 79).
                let mut twice = Float::with_val(precision + 640, *before / cap);
                twice.abs_mut();
                twice *= 2;
                let exponent = Float::with_val(precision + 640, base - &twice);
                let mut factor = Float::with_val(precision, cap);
                factor *= 2;
                if let Some(f) = exponential(&Float::new(1), &twice, precision) {
                    // tail = 2 cap f / (1 + f), below 0.05 by `saturated`: e^tail - 1 is as well conditioned as its argument.
                    let one_more = Float::with_val(precision, &f + 1u32);
                    factor *= &f;
                    factor /= one_more;
                    if !before.is_sign_negative() {
                        factor.neg_assign();
                    }
                    factor.exp_m1_mut();
                    factor /= f;
                } else if !before.is_sign_negative() {
                    // f < 2^-700000000: the factor is -+2 cap (1 + O(cap f)).
                    factor.neg_assign();
                }
                (exponent, Some(factor))
            }
        }
    }
}

/// Far enough out that the tail is below 0.05 and below 2^-20 of the cap.
fn saturated(before: &Float, cap: f64) -> bool {
    let x = (before.to_f64() / cap).abs();
    x > 16.0 + core_math::log(1.0 + cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(x: f64) -> Score {
        Score::Exact(Float::with_val(BITS, x))
    }

    fn capped(before: f64, bias: f64) -> Score {
        Score::Capped { before: Float::with_val(BITS, before), bias: Float::with_val(BITS, bias) }
    }

    fn sign_of(terms: &[(f64, Score)], cap: f64) -> Option<Ordering> {
        let terms = terms.iter().map(|(c, score)| Term { coefficient: Float::with_val(BITS, *c), score });
        sign(terms.collect(), cap)
    }

    #[test]
    fn gaps_cost_nothing() {
        assert_eq!(sign_of(&[(0.0, exact(1e4)), (1.0, exact(0.0)), (-1.0, exact(-1.0))], 1.0), Some(Ordering::Greater));
        assert_eq!(sign_of(&[(1e-40, exact(3e38)), (-1e38, exact(-3e38))], 1.0), Some(Ordering::Greater));
        let hair_below = Score::Exact(Float::with_val(BITS, -1e4) - 1e-250);
        assert_eq!(sign_of(&[(1.0, exact(-1e4)), (-1.0, hair_below)], 1.0), Some(Ordering::Greater));
        assert_eq!(sign_of(&[(0.0, exact(1.0))], 1.0), Some(Ordering::Equal));
    }

    #[test]
    fn saturated_scores_differ_by_their_tails() {
        for level in [40.0, 900.0, 1e5, 3e38] {
            // The score of the larger argument is larger: the sum takes its sign.
            let terms = [(1.0, capped(1e3 * level, 0.0)), (-1.0, capped(level, 0.0))];
            assert_eq!(sign_of(&terms, 30.0), Some(Ordering::Greater), "{level}");
            let terms = [(1.0, capped(-1e3 * level, 2.0)), (-1.0, capped(-level, 2.0))];
            assert_eq!(sign_of(&terms, 30.0), Some(Ordering::Less), "{level}");
        }
        // Against their common limit as an exact score: below it from the positive side.
        assert_eq!(sign_of(&[(1.0, capped(1e6, 0.0)), (-1.0, exact(30.0))], 30.0), Some(Ordering::Less));
        assert_eq!(sign_of(&[(1.0, capped(-1e6, 0.0)), (-1.0, exact(-30.0))], 30.0), Some(Ordering::Greater));
        // A huge cap is linear here, not saturated.
        assert_eq!(sign_of(&[(1.0, capped(20.0, 0.0)), (-1.0, exact(20.0))], 3e38), Some(Ordering::Less));
    }

    #[test]
    fn what_no_proof_reaches_is_left_open() {
        // tanh is odd: the scores sum to zero, and e^z e^-z = 1, but these are sums of exponentials, which differ.
        assert_eq!(sign_of(&[(1.0, capped(1.0, 0.0)), (-1.0, capped(-1.0, 0.0))], 2.0), Some(Ordering::Greater));
    }

    /// The radius covers the error of every precision, for exponents of all three kinds, and is no wider than its derivation says.
    #[test]
    fn the_radius_covers_the_error_and_no_more() {
        let cap = 2.0;
        let before: Vec<Float> = (0..40).map(|n| Float::with_val(BITS, [-1.0, 1.0][n % 2] * (19.0 + 0.37 * n as f64))).collect();
        let scores: Vec<Score> = (0..40).map(|n| capped(f64::from(n) * 0.1 - 2.0, 0.3)).collect();
        for count in [2, 3, 15, 17, 40] {
            for kinds in 1..4 {
                let parts: Vec<Part> = (0..count)
                    .map(|n| {
                        let coefficient = Float::with_val(BITS, [1.0, -0.7][n % 2] / (n as f64 + 3.0));
                        let exponent = match n % kinds {
                            0 => Exponent::Exact(Float::with_val(BITS, -0.01 * n as f64)),
                            1 => Exponent::Capped(&scores[n]),
                            _ => Exponent::Tail { base: Float::with_val(BITS, 1.5 + n as f64), before: &before[n] },
                        };
                        Part { coefficient, exponent }
                    })
                    .collect();
                let (best, _) = evaluate(&parts, cap, 2048);
                // The largest exponential is factored out; the factor of a tail is about twice the cap.
                let magnitudes: f64 = parts.iter().map(|part| part.coefficient.to_f64().abs() * 2.0 * cap).sum();
                for precision in [64, 90, 256] {
                    let (sum, radius) = evaluate(&parts, cap, precision);
                    let error = Float::with_val(4096, &sum - &best).abs();
                    assert!(error <= radius, "{count} parts of {kinds} kinds: off by {error}, radius {radius}");
                    let width = Float::with_val(64, 2.0 * (count as f64 + 16.0) * magnitudes) >> precision;
                    assert!(radius <= width * 1.01, "{count} parts of {kinds} kinds: radius {radius}");
                }
            }
        }
    }

    /// `M e^X` of a tail is what is left of `e^score` beside `e^base`: looked at in MPFR at far more bits, of scores that are and are
    /// not far out.
    #[test]
    fn tails() {
        for cap in [0.75f64, 4.0] {
            for x in [2.0f64, -2.0, 5.5, 20.0, -30.0] {
                let (before, bias) = (Float::with_val(BITS, x * cap), 0.5f64);
                let limit: Float = Float::with_val(BITS, if x < 0.0 { -cap } else { cap }) - bias;
                let (exponent, factor) = Exponent::Tail { base: limit.clone(), before: &before }.evaluate(200, cap);
                let wide = |it: &Float| Float::with_val(2000, it);
                let score: Float = wide(&before) / cap;
                let score: Float = score.tanh() * cap - bias;
                let left: Float = score.exp() - wide(&limit).exp();
                let found: Float = wide(&factor.expect("a factor")) * wide(&exponent).exp();
                let error: Float = Float::with_val(64, &found - &left) / &left;
                assert!(error.abs() < 2f64.powi(-190), "cap {cap}, {x}");
                // As one part of two, in units of the larger exponential.
                let part = |coefficient: f64, exponent| Part { coefficient: Float::with_val(BITS, coefficient), exponent };
                let tail = Exponent::Tail { base: limit.clone(), before: &before };
                let (sum, radius) = evaluate(&[part(3.0, tail), part(0.5, Exponent::Exact(limit.clone()))], cap, 200);
                let sum: Float = wide(&sum) * wide(&limit).exp();
                let expected: Float = left * 3.0 + wide(&limit).exp() / 2.0;
                let error: Float = Float::with_val(64, &sum - &expected).abs() / wide(&limit).exp();
                assert!(error <= radius && radius < 2f64.powi(-190), "cap {cap}, {x}: {error}, {radius}");
            }
        }
    }
}
