//! Intervals that hold every value that f32 operations may give, in any order.

use crate::number::Dtype;

/// f32's unit roundoff, with room for the roundings of this evaluation in f64: 2^-16 of it is 2^-40, and no result here is the end of
/// more than some thousand f64 operations.
pub(super) const U: f64 = 5.960_464_477_539_063e-8 * (1.0 + 1.0 / 65_536.0);

/// Half of f32's least subnormal.
const ETA: f64 = 7.006_492_321_624_085e-46;

/// How good an exponential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exponential {
    /// Within 20 units in the last place of f32: every libm, CUDA's `ex2.approx`, vector libraries.
    Fine,
    /// Within 2^-13 of the value: the cubic of Malossi, Ineichen, Bekas and Curioni, "Fast exponential computation on SIMD
    /// architectures" (2015), whose largest relative error is 1.07e-4. PyTorch has it as `fexp_u20`, for 16-bit attention on CPUs.
    Coarse,
}

impl Exponential {
    /// Its relative error.
    fn error(self) -> f64 {
        match self {
            Exponential::Fine => 40.0 * U,
            Exponential::Coarse => 1.0 / 8192.0,
        }
    }
}

/// Roundings to nearest that one addition may be off by: tensor cores cut a sum off where others round it.
pub(super) const SUM: f64 = 2.0;

/// `lo..=hi`, both finite and ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub lo: f64,
    pub hi: f64,
}

impl Interval {
    pub(super) fn point(value: f64) -> Self {
        Interval { lo: value, hi: value }
    }

    /// As far as `radius` to both sides.
    pub(super) fn around(self, radius: f64) -> Self {
        Interval { lo: self.lo - radius, hi: self.hi + radius }
    }

    /// The largest magnitude.
    pub(super) fn magnitude(self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    pub(super) fn plus(self, other: Interval) -> Self {
        Interval { lo: self.lo + other.lo, hi: self.hi + other.hi }
    }

    pub(super) fn times(self, other: Interval) -> Self {
        let products = [self.lo * other.lo, self.lo * other.hi, self.hi * other.lo, self.hi * other.hi];
        let least = products.iter().copied().fold(f64::INFINITY, f64::min);
        let most = products.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Interval { lo: least, hi: most }
    }

    /// A quotient; `other` lies above zero.
    pub(super) fn over(self, other: Interval) -> Self {
        let (near, far) = (1.0 / other.hi, 1.0 / other.lo);
        Interval { lo: self.lo * if self.lo < 0.0 { far } else { near }, hi: self.hi * if self.hi < 0.0 { near } else { far } }
    }

    /// After at most `roundings` roundings to f32, one on top of the other.
    pub(super) fn rounded(self, roundings: f64) -> Self {
        let growth = core_math::expm1(roundings * U * (1.0 + U));
        self.around(self.magnitude() * growth + roundings * ETA)
    }

    /// After one rounding to nearest in a format. Rounding is monotone: no value of the interval lands outside.
    pub(super) fn cut(self, dtype: Dtype) -> Self {
        if dtype == Dtype::F32 {
            return self;
        }
        Interval { lo: dtype.to_f64(dtype.round_f64(self.lo)), hi: dtype.to_f64(dtype.round_f64(self.hi)) }
    }

    /// `e^self`, computed in f32 by any exponential that is so good.
    pub(super) fn exp(self, by: Exponential) -> Self {
        let grown = |x: f64, by: f64| core_math::exp(x) * (1.0 + by);
        Interval { lo: grown(self.lo, -by.error()), hi: grown(self.hi, by.error()) }.around(ETA)
    }
}

/// `sum a_j b_j` in f32, in any order, fused or not, rounded or cut off: each term passes through at most one product and as many sums as
/// there are terms.
pub(super) fn dot(terms: impl Iterator<Item = (Interval, Interval)>) -> Interval {
    let (mut sum, mut magnitudes, mut count) = (Interval::point(0.0), 0.0, 0.0);
    for (a, b) in terms {
        let product = a.times(b);
        sum = sum.plus(product);
        magnitudes += product.magnitude();
        count += 1.0;
    }
    let roundings = SUM * (count + 1.0);
    sum.around(magnitudes * core_math::expm1(roundings * U * (1.0 + U)) + roundings * ETA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_in_any_order_lies_inside() {
        let terms: Vec<(f32, f32)> = (0..40u8).map(|n| (1.0 / f32::from(n + 3), (f32::from(n) - 17.3) * 0.37)).collect();
        let forward = terms.iter().fold(0.0f32, |sum, &(a, b)| sum + a * b);
        let backward = terms.iter().rev().fold(0.0f32, |sum, &(a, b)| a.mul_add(b, sum));
        let all = dot(terms.iter().map(|&(a, b)| (Interval::point(f64::from(a)), Interval::point(f64::from(b)))));
        // Cut off after each addition, as tensor cores do.
        let cut = |x: f64| {
            let near = x as f32;
            if f64::from(near).abs() > x.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
        };
        let truncated = terms.iter().fold(0.0f32, |sum, &(a, b)| cut(f64::from(sum) + f64::from(a) * f64::from(b)));
        for sum in [forward, backward, truncated] {
            assert!(all.lo <= f64::from(sum) && f64::from(sum) <= all.hi, "{sum} in {all:?}");
        }
        assert!(all.hi - all.lo < 1e-3);
    }

    #[test]
    fn a_quotient_keeps_signs_and_ends() {
        let by = Interval { lo: 2.0, hi: 4.0 };
        assert_eq!(Interval { lo: -8.0, hi: -4.0 }.over(by), Interval { lo: -4.0, hi: -1.0 });
        assert_eq!(Interval { lo: -8.0, hi: 4.0 }.over(by), Interval { lo: -4.0, hi: 2.0 });
        assert_eq!(Interval { lo: 4.0, hi: 8.0 }.over(by), Interval { lo: 1.0, hi: 4.0 });
    }

    #[test]
    fn a_cut_interval_holds_every_cut_value() {
        let interval = Interval { lo: 1.003_9, hi: 1.004_0 };
        let cut = interval.cut(Dtype::BF16);
        assert_eq!((cut.lo, cut.hi), (1.0, 1.007_812_5));
        assert_eq!(Interval::point(0.3).cut(Dtype::F32), Interval::point(0.3));
    }
}
