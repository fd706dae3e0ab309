//! The exponentials of the reference kernel: the same bits on every machine.

use crate::subject::attention::numerics::Exp;
use std::sync::OnceLock;

/// Largest degree of [`Exp::Exp2Poly`].
const MAX_DEGREE: usize = 8;

/// log2 e, rounded to f32.
pub(super) const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// One of the exponentials, ready for use.
#[derive(Clone, Copy)]
pub(in crate::subject::attention) enum Exponential {
    Exact,
    /// Coefficients of the polynomial, highest degree first.
    Poly(&'static [f32]),
}

impl Exponential {
    pub(in crate::subject::attention) fn new(exp: Exp) -> Self {
        match exp {
            Exp::CorrectlyRounded => Exponential::Exact,
            Exp::Exp2Poly(degree) => Exponential::Poly(coefficients(degree as usize)),
        }
    }

    /// e^x.
    #[inline]
    pub(in crate::subject::attention) fn exp(self, x: f32) -> f32 {
        match self {
            // Equal scores are common, and e^0 = 1 exactly.
            Exponential::Exact if x == 0.0 => 1.0,
            Exponential::Exact => core_math::expf(x),
            Exponential::Poly(coefficients) => exp2_poly(coefficients, x * LOG2_E),
        }
    }

    /// 2^t.
    #[inline]
    pub(in crate::subject::attention) fn exp2(self, t: f32) -> f32 {
        match self {
            Exponential::Exact if t == 0.0 => 1.0,
            Exponential::Exact => core_math::exp2f(t),
            Exponential::Poly(coefficients) => exp2_poly(coefficients, t),
        }
    }
}

/// `2^floor(t)` times the polynomial in the rest, by Horner's rule in f32; the last scaling is rounded once.
fn exp2_poly(coefficients: &[f32], t: f32) -> f32 {
    if t < -150.0 {
        return 0.0;
    }
    if t >= 129.0 {
        return f32::INFINITY;
    }
    let whole = t.floor();
    let rest = t - whole;
    let value = coefficients.iter().fold(0.0f32, |sum, &c| sum * rest + c);
    // The power of two is a normal f64 and the product exact there. A NaN passes through `value`.
    let power = f64::from_bits(((whole as i64 + 1023) as u64) << 52);
    (f64::from(value) * power) as f32
}

/// The interpolant of 2^x on [0, 1] at the `degree + 1` Chebyshev nodes, computed in f64 and rounded to f32.
fn coefficients(degree: usize) -> &'static [f32] {
    static TABLES: [OnceLock<Vec<f32>>; MAX_DEGREE + 1] = [const { OnceLock::new() }; MAX_DEGREE + 1];
    TABLES[degree].get_or_init(|| interpolate(degree))
}

fn interpolate(degree: usize) -> Vec<f32> {
    let count = degree + 1;
    let nodes: Vec<f64> = (0..count).map(|i| 0.5 + 0.5 * core_math::cospi((2 * i + 1) as f64 / (2 * count) as f64)).collect();
    // Newton's divided differences, then expanded into powers of x.
    let mut newton: Vec<f64> = nodes.iter().map(|&x| core_math::exp2(x)).collect();
    for step in 1..count {
        for i in (step..count).rev() {
            newton[i] = (newton[i] - newton[i - 1]) / (nodes[i] - nodes[i - step]);
        }
    }
    let mut powers = vec![0.0f64; count];
    for i in (0..count).rev() {
        // powers = powers * (x - nodes[i]) + newton[i]
        for p in (0..count).rev() {
            let below = if p > 0 { powers[p - 1] } else { 0.0 };
            powers[p] = below - powers[p] * nodes[i];
        }
        powers[0] += newton[i];
    }
    powers.iter().rev().map(|&c| c as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polynomials_approach_the_exponential() {
        // Interpolation error on [0, 1]: about 2 (ln 2 / 4)^(k+1) / (k+1)!, then f32 rounding of Horner's rule.
        for (degree, bound) in [(2, 2.5e-3), (3, 1.2e-4), (4, 5e-6), (5, 5e-7), (6, 4e-7), (8, 4e-7)] {
            let exp = Exponential::new(Exp::Exp2Poly(degree));
            let worst = (-4000..=400)
                .map(|n| {
                    let t = n as f32 / 40.0;
                    (f64::from(exp.exp2(t)) / core_math::exp2(f64::from(t)) - 1.0).abs()
                })
                .fold(0.0, f64::max);
            assert!(worst < bound, "degree {degree}: {worst}");
        }
    }

    #[test]
    fn edges() {
        let exp = Exponential::new(Exp::Exp2Poly(5));
        assert_eq!(exp.exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp.exp2(-151.0), 0.0);
        assert!(exp.exp2(-149.0) > 0.0);
        assert_eq!(exp.exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp.exp(90.0), f32::INFINITY);
        assert!(exp.exp(f32::NAN).is_nan());
        let exact = Exponential::new(Exp::CorrectlyRounded);
        assert_eq!((exact.exp(-0.0), exact.exp(f32::NEG_INFINITY)), (1.0, 0.0));
        assert!(exact.exp(f32::NAN).is_nan());
    }

    /// The tables are part of the numerics: these bits must never change.
    #[test]
    fn tables_are_fixed() {
        let bits: Vec<String> = coefficients(3).iter().map(|c| format!("{:08x}", c.to_bits())).collect();
        assert_eq!(bits, ["3da1b996", "3e6615f6", "3f324257", "3f7ff977"]);
    }
}
