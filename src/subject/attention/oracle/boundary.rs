//! Rounding boundaries: the real numbers at which a format's rounding steps from one value to the next.
//!
//! A boundary is the midpoint of two neighbours, or, at the top, the overflow threshold `max + ulp(max) / 2`. It has one bit
//! more than the format and is exact in `f64` for all of them. A number that *is* a boundary is a tie; `Dtype::round_f64` sends
//! it to the even side.

use crate::number::{Dtype, ulp_size};

/// Boundaries inside a closed interval, endpoints included where they do not round to the same side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Between {
    /// Every number of the interval rounds to this pattern (+0 for both zeros).
    Nothing(u32),
    /// One boundary.
    One(f64),
    /// Two or more, or an end is NaN.
    Many,
}

/// The boundaries between `lo` and `hi`; rests on `round_f64` being monotone.
pub(super) fn between(dtype: Dtype, lo: f64, hi: f64) -> Between {
    if lo.is_nan() || hi.is_nan() {
        return Between::Many;
    }
    let (a, b) = (dtype.round_f64(lo), dtype.round_f64(hi));
    if a == b {
        return Between::Nothing(without_zero_sign(dtype, a));
    }
    let (below, above) = (place(dtype, a), place(dtype, b));
    match above - below {
        0 => Between::Nothing(0),
        // The sum is exact: both are multiples of the format's quantum at `above`, or at `below` if that is the larger.
        1 => Between::One((value(dtype, below) + value(dtype, above)) / 2.0),
        _ => Between::Many,
    }
}

/// The pattern of a number known to lie beyond a boundary: above it, below it, or exactly on it.
pub(super) fn beside(dtype: Dtype, boundary: f64, side: std::cmp::Ordering) -> u32 {
    let near = match side {
        std::cmp::Ordering::Less => boundary.next_down(),
        std::cmp::Ordering::Equal => boundary,
        std::cmp::Ordering::Greater => boundary.next_up(),
    };
    without_zero_sign(dtype, dtype.round_f64(near))
}

/// Zero's sign is free to the oracle: it says +0.
pub(super) fn without_zero_sign(dtype: Dtype, bits: u32) -> u32 {
    if bits & dtype.magnitude_mask() == 0 { 0 } else { bits }
}

/// Place on the ordered line; the pattern that stands for overflow (infinity, NaN in E4M3) follows the largest finite number.
fn place(dtype: Dtype, bits: u32) -> i64 {
    let magnitude = i64::from(bits & dtype.magnitude_mask());
    if bits & dtype.sign_mask() != 0 { -magnitude } else { magnitude }
}

/// The number at a place; overflow stands where the next number would.
fn value(dtype: Dtype, place: i64) -> f64 {
    let magnitude = place.unsigned_abs() as u32;
    let value = if magnitude > dtype.max_finite_bits() {
        dtype.max_finite() + ulp_size(dtype, dtype.max_finite())
    } else {
        dtype.to_f64(magnitude)
    };
    if place < 0 { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    #[test]
    fn every_boundary_of_the_small_formats_is_where_rounding_steps() {
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::E4M3, Dtype::E5M2] {
            let top = i64::from(dtype.max_finite_bits()) + 1;
            for at in -top..top {
                let (below, above) = (value(dtype, at), value(dtype, at + 1));
                let Between::One(boundary) = between(dtype, below, above) else { panic!("{dtype} {at}") };
                assert!(below < boundary && boundary < above);
                let bits = |x: f64| without_zero_sign(dtype, dtype.round_f64(x));
                assert_eq!(beside(dtype, boundary, Ordering::Less), bits(below), "{dtype} {at}");
                assert_eq!(beside(dtype, boundary, Ordering::Greater), bits(above), "{dtype} {at}");
                let tie = beside(dtype, boundary, Ordering::Equal);
                assert!(tie == bits(below) || tie == bits(above));
            }
        }
    }

    #[test]
    fn f32_overflow_and_zero() {
        let max = f32::MAX as f64;
        let threshold = max + 2f64.powi(103);
        assert_eq!(between(Dtype::F32, max, 1e39), Between::One(threshold));
        assert_eq!(beside(Dtype::F32, threshold, Ordering::Equal), f32::INFINITY.to_bits());
        assert_eq!(between(Dtype::F32, -1e-60, 1e-60), Between::Nothing(0));
        assert_eq!(between(Dtype::F32, f64::NAN, 1.0), Between::Many);
    }
}
