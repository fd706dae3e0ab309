//! Distance in units in the last place: between two patterns, and of a pattern from a real number.

use super::dtype::{Dtype, exp2i};

/// The distance between two patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ulps {
    /// Steps on the ordered line of numbers; 0 for equal patterns and for +0 against -0 (which still differ in bits).
    Steps(u64),
    /// One side is NaN, or infinite, and the other is something else: no distance.
    Incomparable,
}

/// Steps between two patterns of one format. Two NaNs are at distance 0; one NaN, or one infinity, is `Incomparable`.
pub fn ulp_distance(dtype: Dtype, a: u32, b: u32) -> Ulps {
    match (dtype.rank(a), dtype.rank(b)) {
        (None, None) => Ulps::Steps(0),
        (Some(x), Some(y)) => {
            let infinite = |bits| !dtype.class(bits).is_finite();
            if x != y && (infinite(a) || infinite(b)) { Ulps::Incomparable } else { Ulps::Steps(x.abs_diff(y)) }
        }
        _ => Ulps::Incomparable,
    }
}

/// One ULP at a finite real number: `2^(max(floor(log2|x|), emin) - p + 1)`, the least subnormal for zero. Beyond the largest
/// finite number the format counts as if its exponent had no end.
#[inline]
pub fn ulp_size(dtype: Dtype, x: f64) -> f64 {
    exp2i(dtype.quantum_exponent(x.abs()))
}

/// `value - truth` in ULPs of the true value: positive when `value` is too large. Relative error at most 2^-53 (one rounded
/// subtraction), none where the two are within a factor of two.
///
/// `truth` must be finite; a non-finite `value` gives that infinity or NaN.
pub fn fractional_ulps(dtype: Dtype, bits: u32, truth: f64) -> f64 {
    (dtype.to_f64(bits) - truth) / ulp_size(dtype, truth)
}
