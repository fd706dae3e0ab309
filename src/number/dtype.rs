//! The storage formats: parameters, classes, neighbours, exact decoding.

use std::fmt;
use std::str::FromStr;

/// A storage format. Bits live in the low [`Dtype::bits`] bits of a `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: binary32 with the low 16 bits cut off.
    BF16,
    /// OCP 8-bit float E4M3 ("fn": no infinities, one NaN magnitude, largest finite 448).
    E4M3,
    /// OCP 8-bit float E5M2 (IEEE-like, with infinities, largest finite 57344).
    E5M2,
}

/// What a bit pattern stands for, as far as comparison goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// +0 or -0.
    Zero,
    /// Nonzero, below the least normal number.
    Subnormal,
    /// Any other finite number.
    Normal,
    /// +inf or -inf.
    Infinite,
    /// Any NaN; payloads are not told apart.
    Nan,
}

impl Class {
    /// True for zero, subnormal and normal.
    pub fn is_finite(self) -> bool {
        matches!(self, Class::Zero | Class::Subnormal | Class::Normal)
    }
}

impl Dtype {
    /// All formats, widest first.
    pub const ALL: [Dtype; 5] = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::E4M3, Dtype::E5M2];

    /// The name used in case files, kernel names and reports.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::BF16 => "bf16",
            Dtype::E4M3 => "e4m3",
            Dtype::E5M2 => "e5m2",
        }
    }

    /// Width in bits.
    #[inline]
    pub fn bits(self) -> u32 {
        match self {
            Dtype::F32 => 32,
            Dtype::F16 | Dtype::BF16 => 16,
            Dtype::E4M3 | Dtype::E5M2 => 8,
        }
    }

    /// Width in bytes.
    pub fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// Significand bits, the hidden one included (`p` in IEEE 754).
    #[inline]
    pub fn precision(self) -> u32 {
        match self {
            Dtype::F32 => 24,
            Dtype::F16 => 11,
            Dtype::BF16 => 8,
            Dtype::E4M3 => 4,
            Dtype::E5M2 => 3,
        }
    }

    /// Exponent of the least normal number (`emin` in IEEE 754).
    #[inline]
    pub fn emin(self) -> i32 {
        match self {
            Dtype::F32 | Dtype::BF16 => -126,
            Dtype::F16 | Dtype::E5M2 => -14,
            Dtype::E4M3 => -6,
        }
    }

    /// The largest finite value.
    #[inline]
    pub fn max_finite(self) -> f64 {
        match self {
            Dtype::F32 => f32::MAX as f64,
            Dtype::F16 => 65504.0,
            Dtype::BF16 => 3.3895313892515355e38,
            Dtype::E4M3 => 448.0,
            Dtype::E5M2 => 57344.0,
        }
    }

    /// Half the distance from 1 to the next number: the relative error of one rounding to nearest (`u`), as 2^-precision.
    pub fn unit_roundoff(self) -> f64 {
        exp2i(-(self.precision() as i32))
    }

    /// The least positive subnormal number.
    pub fn least_subnormal(self) -> f64 {
        exp2i(self.emin() - self.precision() as i32 + 1)
    }

    /// The least positive normal number.
    pub fn least_normal(self) -> f64 {
        exp2i(self.emin())
    }

    /// The sign bit.
    #[inline]
    pub fn sign_mask(self) -> u32 {
        1 << (self.bits() - 1)
    }

    /// Bits below the sign: the magnitude, ordered as an integer.
    #[inline]
    pub fn magnitude_mask(self) -> u32 {
        self.sign_mask() - 1
    }

    /// The pattern of the largest finite magnitude.
    #[inline]
    pub fn max_finite_bits(self) -> u32 {
        match self {
            Dtype::F32 => 0x7f7f_ffff,
            Dtype::F16 => 0x7bff,
            Dtype::BF16 => 0x7f7f,
            Dtype::E4M3 => 0x7e,
            Dtype::E5M2 => 0x7b,
        }
    }

    /// The quiet NaN this crate writes.
    pub fn nan_bits(self) -> u32 {
        match self {
            Dtype::F32 => 0x7fc0_0000,
            Dtype::F16 => 0x7e00,
            Dtype::BF16 => 0x7fc0,
            Dtype::E4M3 => 0x7f,
            Dtype::E5M2 => 0x7e,
        }
    }

    /// +inf, or `None` for E4M3, which has no infinities.
    pub fn infinity_bits(self) -> Option<u32> {
        match self {
            Dtype::E4M3 => None,
            other => Some(other.max_finite_bits() + 1),
        }
    }

    /// The class of a pattern.
    #[inline]
    pub fn class(self, bits: u32) -> Class {
        let magnitude = bits & self.magnitude_mask();
        if magnitude == 0 {
            Class::Zero
        } else if magnitude > self.max_finite_bits() {
            if Some(magnitude) == self.infinity_bits() { Class::Infinite } else { Class::Nan }
        } else if magnitude < 1 << (self.precision() - 1) {
            Class::Subnormal
        } else {
            Class::Normal
        }
    }

    /// The value of a pattern; exact. NaN payloads are not kept.
    #[inline]
    pub fn to_f32(self, bits: u32) -> f32 {
        match self {
            Dtype::F32 => f32::from_bits(bits),
            Dtype::BF16 => f32::from_bits(bits << 16),
            Dtype::F16 => {
                let magnitude = bits & 0x7fff;
                if magnitude >= 0x7c00 {
                    return half::f16::from_bits(bits as u16).to_f32();
                }
                // The same exponent and fraction mean 2^112 times more in f16; subnormals included, the product is exact.
                f32::from_bits((bits & 0x8000) << 16 | magnitude << 13) * f32::from_bits((127 + 112) << 23)
            }
            Dtype::E4M3 if bits & 0x7f == 0x7f => f32::NAN,
            // As above: 2^120 times more.
            Dtype::E4M3 => f32::from_bits((bits & 0x80) << 24 | (bits & 0x7f) << 20) * f32::from_bits((127 + 120) << 23),
            // The upper half of an f16.
            Dtype::E5M2 => Dtype::F16.to_f32(bits << 8),
        }
    }

    /// The value of a pattern; exact.
    #[inline]
    pub fn to_f64(self, bits: u32) -> f64 {
        self.to_f32(bits) as f64
    }

    /// The next pattern towards +inf. The two zeros count as one number: the number above -0 is the least subnormal, and a step
    /// onto zero gives +0. Saturates at +inf (E4M3: at 448); a NaN is returned unchanged.
    pub fn next_up(self, bits: u32) -> u32 {
        self.at_rank(self.rank(bits).map(|rank| rank + 1), bits)
    }

    /// The next pattern towards -inf; the mirror image of [`Dtype::next_up`].
    pub fn next_down(self, bits: u32) -> u32 {
        self.at_rank(self.rank(bits).map(|rank| rank - 1), bits)
    }

    /// Position on the ordered line of numbers, both zeros at 0; `None` for NaN.
    pub fn rank(self, bits: u32) -> Option<i64> {
        if self.class(bits) == Class::Nan {
            return None;
        }
        let magnitude = i64::from(bits & self.magnitude_mask());
        Some(if bits & self.sign_mask() != 0 { -magnitude } else { magnitude })
    }

    fn at_rank(self, rank: Option<i64>, unchanged: u32) -> u32 {
        let Some(rank) = rank else { return unchanged };
        let top = i64::from(self.infinity_bits().unwrap_or(self.max_finite_bits()));
        let rank = rank.clamp(-top, top);
        if rank < 0 { self.sign_mask() | (-rank) as u32 } else { rank as u32 }
    }

    /// Hex of the pattern, zero-padded to the width of the format.
    pub fn hex(self, bits: u32) -> String {
        format!("{bits:0width$x}", width = self.bytes() * 2)
    }
}

/// 2^e as `f64`, for `e` in -1022..=1023.
#[inline]
pub(crate) fn exp2i(e: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&e));
    f64::from_bits(((e + 1023) as u64) << 52)
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Dtype::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| format!("unknown dtype `{text}` (one of f32, f16, bf16, e4m3, e5m2)"))
    }
}
