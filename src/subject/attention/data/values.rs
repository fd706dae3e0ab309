//! Bits to numbers: the addresses' hash chain and exact recipes for values.

use crate::number::Dtype;
use crate::source::mix;

/// Tags that keep the hash chains of different purposes apart. Fixed: kept cases depend on them.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// Values of Q.
    Q = 0,
    /// Values of K.
    K = 1,
    /// Values of V.
    V = 2,
    /// Where a head's peak stands.
    Peak = 3,
    /// How a span's slots are paired.
    Pairs = 4,
}

/// The 64 bits of an address: (seed, purpose, sequence, position or span, head label), each part one [`mix`].
#[inline]
pub(super) fn address(seed: u64, purpose: Purpose, sequence: u32, position: i64, head: u64) -> u64 {
    mix(mix(mix(mix(seed, purpose as u64), u64::from(sequence)), position as u64), head)
}

/// About N(0, 1.15): the sum of four 16-bit uniforms, centred, in steps of 2^-15. 17 significant bits, exact in f32; |x| < 4.
#[inline]
pub(super) fn normal(bits: u64) -> f32 {
    let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    (sum as i32 - 131_070) as f32 * (1.0 / 32_768.0)
}

/// Every significand bit of f32 in use, either sign, exponent uniform in `low..=high`.
#[inline]
pub(super) fn wide(bits: u64, low: i32, high: i32) -> f32 {
    let exponent = low + ((bits >> 32 & 0xffff) % (high - low + 1) as u64) as i32;
    f32::from_bits((bits as u32 & 0x807f_ffff) | (((exponent + 127) as u32) << 23))
}

/// 1, 1.125 ... 1.875: four significand bits, exact in every format but E5M2.
#[inline]
pub(super) fn eighths(bits: u64) -> f32 {
    1.0 + (bits & 7) as f32 * 0.125
}

/// 2^e for an `e` in the normal range of f32.
pub(super) fn exp2(e: i32) -> f32 {
    debug_assert!((-126..=127).contains(&e));
    f32::from_bits(((e + 127) as u32) << 23)
}

/// Fills a row: lane `x` gets `value(x, bits)` with `bits` the lane's own 64 bits, rounded to nearest even and kept finite.
#[inline]
pub(super) fn fill(row: &mut [u32], dtype: Dtype, key: u64, value: impl Fn(usize, u64) -> f32) {
    let lanes = row.iter_mut().enumerate();
    match dtype {
        Dtype::F32 => lanes.for_each(|(x, slot)| *slot = value(x, mix(key, x as u64)).to_bits()),
        Dtype::BF16 => lanes.for_each(|(x, slot)| *slot = Dtype::BF16.round_f32(value(x, mix(key, x as u64)))),
        Dtype::F16 => lanes.for_each(|(x, slot)| *slot = round_f16(value(x, mix(key, x as u64)))),
        _ => {
            let max = dtype.max_finite() as f32;
            lanes.for_each(|(x, slot)| *slot = dtype.round_f32(value(x, mix(key, x as u64)).clamp(-max, max)));
        }
    }
}

/// [`Dtype::round_f32`] for F16, with a short way for its normal range, where nearly every value lies.
#[inline]
fn round_f16(value: f32) -> u32 {
    let magnitude = value.abs();
    if (6.103_515_6e-5..65_504.0).contains(&magnitude) {
        let bits = magnitude.to_bits();
        // Drops 13 bits to nearest even and moves the exponent bias from 127 to 15.
        let rounded = (bits + 0xfff + (bits >> 13 & 1)) >> 13;
        return (value.to_bits() >> 16 & 0x8000) | (rounded - (112 << 10));
    }
    Dtype::F16.round_f32(value.clamp(-65_504.0, 65_504.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_to_f16_is_the_same() {
        let mut key = 0;
        for n in 0..200_000u64 {
            key = mix(key, n);
            let value = wide(key, -28, 15);
            if value.abs() < 65_504.0 {
                assert_eq!(round_f16(value), Dtype::F16.round_f32(value), "{value}");
            }
        }
        for bits in 0..=0x7bff {
            let value = Dtype::F16.to_f32(bits);
            for ends in [value, value.next_up(), value.next_down(), value * (1.0 + 1.0 / 2048.0)] {
                if ends.abs() < 65_504.0 {
                    assert_eq!(round_f16(ends), Dtype::F16.round_f32(ends), "{ends}");
                }
            }
        }
    }

    #[test]
    fn normal_is_centred_with_deviation_about_one() {
        let (mut sum, mut squares) = (0.0, 0.0);
        for n in 0..100_000 {
            let x = f64::from(normal(mix(1, n)));
            sum += x;
            squares += x * x;
        }
        assert!((sum / 1e5).abs() < 0.02 && (squares / 1e5 - 4.0 / 3.0).abs() < 0.02);
    }

    #[test]
    fn wide_uses_every_bit() {
        let (mut any, mut all) = (0, u32::MAX);
        for n in 0..1000 {
            let bits = wide(mix(9, n), -4, 3).to_bits();
            any |= bits;
            all &= bits;
        }
        assert_eq!(any & 0x807f_ffff, 0x807f_ffff);
        assert_eq!(all & 0x807f_ffff, 0);
    }
}
