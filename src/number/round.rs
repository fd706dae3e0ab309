//! Rounding to nearest, ties to even, from `f64` and from MPFR, into every format.
//!
//! `half`'s `from_f64` is not used: it rounds twice (half-rs#151; `1 + 2^-8 + 2^-50` becomes 1.0 in bf16).
//! Overflow follows the formats: infinity for F32, F16, BF16 and E5M2; NaN for E4M3, which has no infinity (the OCP and
//! PyTorch conversion without saturation).

use super::dtype::{Dtype, exp2i};

impl Dtype {
    /// Rounds to nearest, ties to even. A NaN becomes [`Dtype::nan_bits`]; the sign of zero is kept.
    #[inline]
    pub fn round_f64(self, value: f64) -> u32 {
        match self {
            Dtype::F32 if value.is_nan() => self.nan_bits(),
            // The `as` cast is IEEE round to nearest even.
            Dtype::F32 => (value as f32).to_bits(),
            _ => self.round_bits(value),
        }
    }

    /// Rounds to nearest, ties to even, from `f32`.
    #[inline]
    pub fn round_f32(self, value: f32) -> u32 {
        match self {
            Dtype::F32 if value.is_nan() => self.nan_bits(),
            Dtype::F32 => value.to_bits(),
            Dtype::BF16 => {
                if value.is_nan() {
                    return self.nan_bits();
                }
                let bits = value.to_bits();
                (bits + 0x7fff + ((bits >> 16) & 1)) >> 16
            }
            _ => self.round_bits(value as f64),
        }
    }

    /// Rounds an intermediate to this format and gives it back as `f32`.
    #[inline]
    pub fn squeeze(self, value: f32) -> f32 {
        match self {
            Dtype::F32 => value,
            _ => self.to_f32(self.round_f32(value)),
        }
    }

    fn round_bits(self, value: f64) -> u32 {
        if value.is_nan() {
            return self.nan_bits();
        }
        let sign = if value.is_sign_negative() { self.sign_mask() } else { 0 };
        let magnitude = value.abs();
        let overflow = sign | self.infinity_bits().unwrap_or(self.nan_bits());
        if magnitude.is_infinite() {
            return overflow;
        }
        // One unit in the last place of the binade that holds the value.
        let quantum = self.quantum_exponent(magnitude);
        // Scaling by a power of two is exact: large numbers only come down, to below 2^precision; small ones only go up.
        let steps = (magnitude * exp2i(-quantum)).round_ties_even();
        // `steps` may be 2^precision, the next binade: the packing below carries into the exponent by itself.
        let fraction_bits = self.precision() - 1;
        let exponent_field = (quantum + fraction_bits as i32 - self.emin()) as u32;
        let packed = (exponent_field << fraction_bits) + steps as u32;
        if packed > self.max_finite_bits() { overflow } else { sign | packed }
    }

    /// The exponent of one ULP at a magnitude, never below that of the least subnormal.
    #[inline]
    pub(super) fn quantum_exponent(self, magnitude: f64) -> i32 {
        floor_log2(magnitude).max(self.emin()) - (self.precision() as i32 - 1)
    }
}

/// Rounds towards zero: the store of a kernel that drops low bits. Finite values beyond the range become the largest finite
/// number. A NaN becomes [`Dtype::nan_bits`]; infinities stay infinite where the format has them and become NaN in E4M3.
pub fn truncate_f64(dtype: Dtype, value: f64) -> u32 {
    if value.is_nan() || value.is_infinite() {
        return dtype.round_f64(value);
    }
    if value.abs() >= dtype.max_finite() {
        let sign = if value < 0.0 { dtype.sign_mask() } else { 0 };
        return sign | dtype.max_finite_bits();
    }
    let nearest = dtype.round_f64(value);
    if dtype.to_f64(nearest).abs() <= value.abs() { nearest } else { nearest - 1 }
}

/// Rounds an MPFR value once, to nearest even, subnormals and overflow included.
///
/// Zeros keep MPFR's sign; infinities and NaN map as in [`Dtype::round_f64`]. `rug`'s `subnormalize_ieee_round` is not used: it
/// does nothing at precision 8.
pub fn round_mpfr(dtype: Dtype, value: &rug::Float) -> u32 {
    let Some(exponent) = value.get_exp() else {
        return dtype.round_f64(value.to_f64());
    };
    // MPFR's significand lies in [1/2, 1): floor(log2|value|) is one less than its exponent.
    let floor_log2 = exponent - 1;
    let quantum = floor_log2.max(dtype.emin()) - (dtype.precision() as i32 - 1);
    let mut steps = rug::Float::with_val(value.prec(), value >> quantum);
    steps.round_even_mut();
    steps <<= quantum;
    // At most `precision` bits remain: exact, or infinite where the value is beyond f64 and so beyond every format.
    let rounded = steps.to_f64();
    if rounded == 0.0 && value.is_sign_negative() { dtype.sign_mask() } else { dtype.round_f64(rounded) }
}

/// floor(log2 x) for positive finite `x`; the least exponent for zero.
#[inline]
pub(super) fn floor_log2(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52) as i32 & 0x7ff;
    if biased != 0 {
        return biased - 1023;
    }
    let fraction = x.to_bits() & ((1 << 52) - 1);
    if fraction == 0 { -1074 } else { -1074 + 63 - fraction.leading_zeros() as i32 }
}
