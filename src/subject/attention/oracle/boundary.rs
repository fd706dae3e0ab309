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

/// The common rounding of an interval in the range of normal numbers, if the interval does not even touch a boundary; much
/// cheaper than [`between`], which answers for everything that this leaves open.
#[inline]
pub(super) fn quickly(dtype: Dtype, lo: f64, hi: f64) -> Option<u32> {
    // Of one sign: the pattern without its sign grows with the magnitude.
    let (a, b) = (lo.to_bits(), hi.to_bits());
    let magnitude = |bits: u64| bits & (u64::MAX >> 1);
    let (near, far) = (magnitude(a).min(magnitude(b)), magnitude(a).max(magnitude(b)));
    let fraction_bits = dtype.precision() - 1;
    let dropped = 52 - fraction_bits;
    let half = 1u64 << (dropped - 1);
    // Half up; it differs from half to even on ties only, and `near` is seen not to be one.
    let rounded = (near + half) >> dropped;
    let least = ((1023 + dtype.emin()) as u64) << fraction_bits;
    let bits = rounded.wrapping_sub(least).wrapping_add(1 << fraction_bits);
    let normal = near >> dropped >= least && bits <= u64::from(dtype.max_finite_bits());
    let clear = (far + half) >> dropped == rounded && (near + half) & (2 * half - 1) != 0;
    let one_sign = (a ^ b) >> 63 == 0;
    let sign = if a >> 63 != 0 { dtype.sign_mask() } else { 0 };
    (normal && clear && one_sign).then_some(sign | bits as u32)
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
    fn the_quick_answer_is_the_full_one() {
        let mut state = 1u64;
        let mut quick = 0;
        for round in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let dtype = Dtype::ALL[round % 5];
            // Near patterns and near midpoints of every binade, subnormals and overflow included.
            let bits = (state >> 32) as u32 & (dtype.sign_mask() | dtype.magnitude_mask());
            let value = dtype.to_f64(bits);
            if !value.is_finite() {
                continue;
            }
            let half = ulp_size(dtype, value) / 2.0;
            let centre = value + [0.0, half, -half, half * 0.9][(state >> 20) as usize % 4];
            let radius = half * [0.0, 1e-9, 0.3, 1.0][(state >> 22) as usize % 4];
            let (lo, hi) = (centre - radius, centre + radius);
            if let Some(bits) = quickly(dtype, lo, hi) {
                assert_eq!(between(dtype, lo, hi), Between::Nothing(bits), "{dtype} {lo:e} {hi:e}");
                quick += 1;
            }
        }
        assert!(quick > 50_000, "{quick}");
        assert_eq!(quickly(Dtype::BF16, f64::NAN, f64::NAN), None);
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
