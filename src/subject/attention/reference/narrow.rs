//! Rounding of accumulators, and the fused multiply-add, in a form that compilers turn into vector code.
//!
//! `f32::mul_add` is a library call on targets whose baseline has no FMA, and [`Dtype::squeeze`] branches on the format; both sit in
//! the innermost loops. What stands here has the same bits.

use crate::number::Dtype;

/// An accumulator format.
pub(super) trait Narrow {
    /// One rounding of an f32, to nearest even, as [`Dtype::squeeze`].
    fn narrow(x: f32) -> f32;
}

/// F32: nothing to round.
pub(super) struct Single;
/// BF16.
pub(super) struct Brain;
/// F16.
pub(super) struct Half;

impl Narrow for Single {
    #[inline(always)]
    fn narrow(x: f32) -> f32 {
        x
    }
}

impl Narrow for Brain {
    #[inline(always)]
    fn narrow(x: f32) -> f32 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
        f32::from_bits(if x.is_nan() { 0x7fc0_0000 } else { rounded })
    }
}

impl Narrow for Half {
    #[inline(always)]
    fn narrow(x: f32) -> f32 {
        let bits = x.to_bits();
        let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
        let normal = magnitude.wrapping_add(0xfff + ((magnitude >> 13) & 1)) & !0x1fff;
        // 65520 and above round to infinity.
        let normal = if normal >= 0x4780_0000 { 0x7f80_0000 } else { normal };
        // Below 2^-14 the grid is 2^-24, the last place of numbers from 1/2 to 1.
        let subnormal = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
        let rounded = if magnitude < 0x3880_0000 { subnormal } else { normal };
        f32::from_bits(if x.is_nan() { 0x7fc0_0000 } else { sign | rounded })
    }
}

/// `a * b + c`, rounded once to f32.
///
/// The product is exact in f64. The sum is rounded to odd there, after which rounding to f32 gives the correctly rounded result
/// (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008: 53 bits are at least 24 + 2).
#[inline(always)]
pub(super) fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // Knuth's two-sum: what the addition lost.
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    let inexact = (lost > 0.0) | (lost < 0.0);
    let away = (lost > 0.0) == (sum > 0.0);
    let bits = sum.to_bits();
    let neighbour = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f64::from_bits(if inexact & (bits & 1 == 0) { neighbour } else { bits }) as f32
}

/// Whether an accumulator may have this format.
pub(super) fn is_accumulator(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Calls a function that is generic in the accumulator's format and in fused multiply-add. Other formats than F32, F16 and BF16 are
/// refused before a call is computed.
macro_rules! by_format {
    ($acc:expr, $fma:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match ($acc, $fma) {
            (crate::number::Dtype::BF16, false) => $function::<super::narrow::Brain, false>($($argument),*),
            (crate::number::Dtype::BF16, true) => $function::<super::narrow::Brain, true>($($argument),*),
            (crate::number::Dtype::F16, false) => $function::<super::narrow::Half, false>($($argument),*),
            (crate::number::Dtype::F16, true) => $function::<super::narrow::Half, true>($($argument),*),
            (_, false) => $function::<super::narrow::Single, false>($($argument),*),
            (_, true) => $function::<super::narrow::Single, true>($($argument),*),
        }
    };
}
pub(super) use by_format;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    /// Every pattern that a 16-bit format rounds in its own way: all upper halves with the lower halves that matter.
    #[test]
    fn narrowing_is_squeeze() {
        for upper in 0..=0xffffu32 {
            for lower in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff] {
                let x = f32::from_bits(upper << 16 | lower);
                assert!(same(Brain::narrow(x), Dtype::BF16.squeeze(x)), "{x:e}");
                assert!(same(Half::narrow(x), Dtype::F16.squeeze(x)), "{x:e}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn fused_is_mul_add_on_any_bits(a: u32, b: u32, c: u32) {
            let (a, b, c) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            prop_assert!(same(multiply_add(a, b, c), a.mul_add(b, c)), "{:e} {:e} {:e}", a, b, c);
        }

        #[test]
        fn fused_is_mul_add_near_cancellation_and_midpoints(
            a in any::<u32>(), b in any::<u32>(), ea in 100u32..150, eb in 100u32..150, c: u32, shift in -60i32..60, snap: bool,
        ) {
            let one = |bits: u32, e: u32| f32::from_bits(bits & 0x807f_ffff | e << 23);
            let (a, b) = (one(a, ea), one(b, eb));
            // An addend at a chosen distance from the product, or the rounded product itself.
            let exponent = ((ea + eb) as i32 - 127 + shift).clamp(0, 254) as u32;
            let c = if snap { -(a * b) } else { one(c, exponent) };
            prop_assert!(same(multiply_add(a, b, c), a.mul_add(b, c)), "{:e} {:e} {:e}", a, b, c);
            let short = |x: f32| f32::from_bits(x.to_bits() & 0xffff_f000);
            let (a, b, c) = (short(a), short(b), f32::from_bits(c.to_bits() & 0xfff0_0000));
            prop_assert!(same(multiply_add(a, b, c), a.mul_add(b, c)), "{:e} {:e} {:e}", a, b, c);
        }
    }
}
