//! Masks: which `M` and which unit suit a sum's formats, and how many terms one probe then reaches.
//!
//! Four conditions:
//!
//! (a) `M` is exact in the inputs and finite in the accumulator, and `M + (-M) = 0`.
//!
//! (b) All units present vanish against `M` and against `-M` in the accumulator. Below a power of two numbers lie twice as dense, so
//! that `-M + units` falls into that binade and the units may add up to a quarter ULP of `M` only. `M = 1.5 2^e` has its own binade on
//! both sides: half a ULP, twice the terms.
//!
//! (c) `k` units are exact in the accumulator and in the output, for all `k` up to the number of terms: `2^precision`.
//!
//! (d) `M + units` is exact in f64, so that a multi-term addition that is exact there shows as one: with masks of `2^127` it would show
//! the order in which it happens to add in f64, which no result depends on.
//!
//! The numbers of terms that follow were measured with sequential, reversed and pairwise orders; `tests` below keeps them.

use crate::number::Dtype;

/// The masks for a sum's formats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    /// The value that swamps, `M`.
    pub large: f64,
    /// The unit that is counted.
    pub unit: f64,
    /// Most terms that may be present in one probe; `2` and less cannot show anything.
    pub reach: usize,
    /// Format of the terms.
    pub inputs: Dtype,
    /// Format of the result.
    pub output: Dtype,
}

impl Mask {
    /// The masks that reach furthest for terms of a format that are added as they are (or times exactly 1).
    pub fn of(inputs: Dtype, accumulate: Dtype, output: Dtype) -> Mask {
        Mask::with_least(inputs, accumulate, output, Dtype::least_subnormal)
    }

    /// As [`Mask::of`] where subnormal numbers are flushed to zero.
    pub fn flushed(inputs: Dtype, accumulate: Dtype, output: Dtype) -> Mask {
        Mask::with_least(inputs, accumulate, output, Dtype::least_normal)
    }

    fn with_least(inputs: Dtype, accumulate: Dtype, output: Dtype, least: impl Fn(Dtype) -> f64) -> Mask {
        let formats = [inputs, accumulate, output];
        let exponent = |dtype: Dtype| dtype.max_finite().log2().floor() as i32;
        // (a) M lives in the terms and in the accumulator; the result never holds it.
        let highest = exponent(inputs).min(exponent(accumulate));
        // With a range as wide as that of f32, 1 is far enough below M, and no kernel flushes it. Else the least that all hold.
        let unit = if highest > EXACT { 1.0 } else { formats.map(least).into_iter().fold(0.0, f64::max) };
        let large = 1.5 * 2f64.powi(highest.min(EXACT));
        Mask { large, unit, reach: Mask::reach(large, unit, accumulate, output), inputs, output }
    }

    /// The most terms that may be present in one probe with masks of `large` and units of `unit`, which may be products of two operands.
    pub fn reach(large: f64, unit: f64, accumulate: Dtype, output: Dtype) -> usize {
        let exponent = large.log2().floor();
        let ulp = 2f64.powf(exponent - f64::from(accumulate.precision() - 1));
        let room = if large == 2f64.powf(exponent) { ulp / 4.0 } else { ulp / 2.0 };
        let countable = 2f64.powi(accumulate.precision().min(output.precision()) as i32);
        (room / unit).min(countable) as usize
    }
}

/// (d) for units of 1, with room for 2^7 masks' worth of terms: `2^45`. In f32 it swamps 2^21 of them.
const EXACT: i32 = 45;

#[cfg(test)]
mod tests {
    use super::*;
    use Dtype::{BF16, E4M3, E5M2, F16, F32};

    /// Measured: the largest power of two of terms at which every probe of three orders was right, the next one being wrong, or the
    /// largest tried.
    #[test]
    fn reach_is_what_was_measured() {
        let reach = |large: f64, unit: i32, accumulate, output| Mask::reach(large, 2f64.powi(unit), accumulate, output);
        let power = |e: i32| 2f64.powi(e);
        assert_eq!(reach(power(127), 0, F32, F32), 1 << 24);
        assert_eq!(reach(power(127), 0, F32, BF16), 256);
        assert_eq!(reach(power(15), -24, F32, F16), 2048);
        assert_eq!(reach(power(15), -24, F16, F16), 2048);
        assert_eq!(reach(power(15), -24, F32, F32), 16_384);
        assert_eq!(reach(1.5 * power(15), -24, F32, F32), 32_768);
        assert_eq!(reach(power(15), -14, F32, F32), 16);
        assert_eq!(reach(1.5 * power(15), -14, F32, F32), 32);
        assert_eq!(reach(power(8), -9, F32, F32), 0, "an operand in e4m3 cannot swamp");
        assert_eq!(reach(power(16), -18, F32, F32), 512, "products of e4m3");
        assert_eq!(reach(384.0 * power(8), -18, F32, F32), 1024, "products of e4m3");
        assert_eq!(reach(power(30), -32, F32, F32), 1 << 24, "products of e5m2");
    }

    #[test]
    fn masks_of_formats_reach_furthest() {
        assert_eq!(Mask::of(F16, F32, F32).reach, 32_768);
        assert_eq!(Mask::flushed(F16, F32, F32).reach, 32);
        assert_eq!(Mask::of(F16, F16, F16).reach, 2048);
        assert_eq!(Mask::of(F32, F16, F16).reach, 2048);
        assert_eq!(Mask::of(BF16, F32, BF16).reach, 256);
        assert_eq!(Mask::of(BF16, BF16, BF16).reach, 256);
        assert_eq!(Mask::of(BF16, F32, F32).reach, 1 << 21);
        assert_eq!(Mask::of(E4M3, F32, F32).reach, 0);
        for inputs in Dtype::ALL {
            for accumulate in [F32, F16, BF16] {
                let mask = Mask::of(inputs, accumulate, F32);
                for dtype in [inputs, accumulate] {
                    assert_eq!(dtype.to_f64(dtype.round_f64(mask.large)), mask.large, "{inputs:?} {accumulate:?}");
                }
                assert_eq!(inputs.to_f64(inputs.round_f64(mask.unit)), mask.unit, "{inputs:?} {accumulate:?}");
            }
        }
        assert_eq!(Mask::of(E5M2, F32, F32).unit, 2f64.powi(-16));
    }
}
