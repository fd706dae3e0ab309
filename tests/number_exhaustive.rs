//! Every pattern of the 8- and 16-bit formats: decoding, classes, neighbours, distances, and rounding at every boundary.
//!
//! The expectations come from the formats' definitions (IEEE 754-2019 section 3, OCP OFP8 1.0), written here a second time with
//! integer shifts and a sorted list of all values, so that nothing is judged by the code under test.

use lastbit::number::{Class, Dtype, Ulps, fractional_ulps, round_mpfr, truncate_f64, ulp_distance, ulp_size};
use rug::Float;

const SMALL: [Dtype; 4] = [Dtype::F16, Dtype::BF16, Dtype::E4M3, Dtype::E5M2];

/// Exponent bits, fraction bits, bias; whether the top exponent means infinity and NaN.
fn layout(dtype: Dtype) -> (u32, u32, i32, bool) {
    match dtype {
        Dtype::F32 => (8, 23, 127, true),
        Dtype::F16 => (5, 10, 15, true),
        Dtype::BF16 => (8, 7, 127, true),
        Dtype::E4M3 => (4, 3, 7, false),
        Dtype::E5M2 => (5, 2, 15, true),
    }
}

/// The value by the format's definition; `None` for NaN.
fn defined_value(dtype: Dtype, bits: u32) -> Option<f64> {
    let (exponent_bits, fraction_bits, bias, ieee) = layout(dtype);
    let fraction = bits & ((1 << fraction_bits) - 1);
    let exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    let negative = bits >> (exponent_bits + fraction_bits) & 1 == 1;
    let top = exponent == (1 << exponent_bits) - 1;
    let magnitude = if top && ieee {
        if fraction != 0 {
            return None;
        }
        f64::INFINITY
    } else if top && fraction == (1 << fraction_bits) - 1 {
        return None;
    } else {
        let (lead, exponent) = if exponent == 0 { (0, 1) } else { (1 << fraction_bits, exponent as i32) };
        f64::from(lead + fraction) * 2f64.powi(exponent - bias - fraction_bits as i32)
    };
    Some(if negative { -magnitude } else { magnitude })
}

fn patterns(dtype: Dtype) -> impl Iterator<Item = u32> {
    0..1u32 << dtype.bits()
}

/// All finite non-negative values, ascending, with their patterns.
fn magnitudes(dtype: Dtype) -> Vec<(f64, u32)> {
    let mut all: Vec<_> = patterns(dtype)
        .filter(|bits| bits >> (dtype.bits() - 1) == 0)
        .filter_map(|bits| defined_value(dtype, bits).filter(|value| value.is_finite()).map(|value| (value, bits)))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// What an overflow rounds to: infinity, or E4M3's NaN.
fn overflow(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 0x7f80_0000,
        Dtype::F16 => 0x7c00,
        Dtype::BF16 => 0x7f80,
        Dtype::E4M3 => 0x7f,
        Dtype::E5M2 => 0x7c,
    }
}

/// Every road from a real number to a pattern, in both signs.
fn assert_rounds(dtype: Dtype, value: f64, expected: u32) {
    for (value, expected) in [(value, expected), (-value, expected | 1 << (dtype.bits() - 1))] {
        let case = format!("{dtype} from {value:e} (0x{:016x})", value.to_bits());
        assert_eq!(dtype.hex(dtype.round_f64(value)), dtype.hex(expected), "round_f64: {case}");
        assert_eq!(dtype.hex(round_mpfr(dtype, &Float::with_val(53, value))), dtype.hex(expected), "round_mpfr: {case}");
        if f64::from(value as f32) == value {
            assert_eq!(dtype.hex(dtype.round_f32(value as f32)), dtype.hex(expected), "round_f32: {case}");
        }
    }
}

#[test]
fn every_pattern_decodes_to_its_defined_value_and_class() {
    for dtype in SMALL {
        let least_normal = 2f64.powi(1 - layout(dtype).2);
        for bits in patterns(dtype) {
            let class = dtype.class(bits);
            let hex = dtype.hex(bits);
            let Some(value) = defined_value(dtype, bits) else {
                assert_eq!(class, Class::Nan, "{dtype} {hex}");
                assert!(dtype.to_f32(bits).is_nan() && dtype.to_f64(bits).is_nan(), "{dtype} {hex}");
                assert_eq!(dtype.round_f32(dtype.to_f32(bits)), dtype.nan_bits(), "{dtype} {hex}");
                assert_eq!(dtype.rank(bits), None);
                assert_eq!((dtype.next_up(bits), dtype.next_down(bits)), (bits, bits));
                continue;
            };
            let expected = match value.abs() {
                0.0 => Class::Zero,
                f64::INFINITY => Class::Infinite,
                small if small < least_normal => Class::Subnormal,
                _ => Class::Normal,
            };
            assert_eq!(class, expected, "{dtype} {hex}");
            assert_eq!(class.is_finite(), value.is_finite());
            // Bits, not values: the sign of zero counts.
            assert_eq!(dtype.to_f64(bits).to_bits(), value.to_bits(), "{dtype} {hex}");
            assert_eq!(f64::from(dtype.to_f32(bits)).to_bits(), value.to_bits(), "{dtype} {hex}");
            assert_eq!(dtype.round_f64(value), bits, "{dtype} {hex}");
            assert_eq!(dtype.round_f32(value as f32), bits, "{dtype} {hex}");
            assert_eq!(round_mpfr(dtype, &Float::with_val(53, value)), bits, "{dtype} {hex}");
            assert_eq!(truncate_f64(dtype, value), bits, "{dtype} {hex}");
            assert_eq!(dtype.squeeze(value as f32).to_bits(), (value as f32).to_bits());
        }
    }
}

#[test]
fn parameters_agree_with_the_patterns() {
    for dtype in Dtype::ALL {
        let (exponent_bits, fraction_bits, bias, _) = layout(dtype);
        assert_eq!(dtype.bits(), 1 + exponent_bits + fraction_bits);
        assert_eq!(dtype.bytes() as u32 * 8, dtype.bits());
        assert_eq!((dtype.precision(), dtype.emin()), (fraction_bits + 1, 1 - bias));
        assert_eq!(defined_value(dtype, dtype.max_finite_bits()), Some(dtype.max_finite()));
        assert_eq!(defined_value(dtype, dtype.nan_bits()), None);
        assert_eq!(defined_value(dtype, 1), Some(dtype.least_subnormal()));
        assert_eq!(defined_value(dtype, 1 << fraction_bits), Some(dtype.least_normal()));
        assert_eq!(dtype.infinity_bits(), (dtype != Dtype::E4M3).then_some(overflow(dtype)));
        let one = dtype.round_f64(1.0);
        assert_eq!(dtype.to_f64(dtype.next_up(one)) - 1.0, 2.0 * dtype.unit_roundoff());
        assert_eq!(dtype.name().parse(), Ok(dtype));
        assert_eq!(dtype.hex(1).len(), dtype.bytes() * 2);
    }
    assert!("f64".parse::<Dtype>().unwrap_err().contains("`f64`"));
}

#[test]
fn every_midpoint_rounds_to_even_and_its_neighbours_to_the_nearer_side() {
    for dtype in SMALL {
        let values = magnitudes(dtype);
        let mut checked = 0;
        for (n, &(low, low_bits)) in values.iter().enumerate() {
            // Above the largest finite number the format goes on as if its exponent were unbounded; what rounds there overflows.
            let (high, high_bits) =
                values.get(n + 1).copied().unwrap_or_else(|| (low + (low - values[n - 1].0), overflow(dtype)));
            let middle = low + (high - low) / 2.0;
            assert_eq!(middle - low, high - middle, "midpoints are exact in f64");
            let even = if low_bits % 2 == 0 { low_bits } else { high_bits };
            assert_rounds(dtype, middle, even);
            assert_rounds(dtype, middle.next_up(), high_bits);
            assert_rounds(dtype, middle.next_down(), low_bits);
            assert_rounds(dtype, f64::from((middle as f32).next_up()), high_bits);
            assert_rounds(dtype, f64::from((middle as f32).next_down()), low_bits);
            // Offsets that f64 cannot hold.
            for (sign, expected) in [(1, high_bits), (-1, low_bits)] {
                let mut near = Float::with_val(2200, middle);
                near += Float::with_val(2, sign) >> 2000u32;
                assert_eq!(round_mpfr(dtype, &near), expected, "{dtype} at {middle:e} {sign:+} 2^-2000");
            }
            checked += 1;
        }
        assert_eq!(checked, dtype.max_finite_bits() + 1);
    }
}

#[test]
fn truncation_drops_towards_zero_at_every_step() {
    for dtype in SMALL {
        for pair in magnitudes(dtype).windows(2) {
            let [(low, low_bits), (high, _)] = [pair[0], pair[1]];
            for value in [low, low.next_up(), low + (high - low) / 2.0, high.next_down()] {
                assert_eq!(truncate_f64(dtype, value), low_bits, "{dtype} {value:e}");
                assert_eq!(truncate_f64(dtype, -value), low_bits | dtype.sign_mask(), "{dtype} {value:e}");
            }
        }
        for value in [dtype.max_finite().next_up(), f64::MAX] {
            assert_eq!(truncate_f64(dtype, value), dtype.max_finite_bits());
            assert_eq!(truncate_f64(dtype, -value), dtype.max_finite_bits() | dtype.sign_mask());
        }
        assert_eq!(truncate_f64(dtype, f64::INFINITY), overflow(dtype));
        assert_eq!(truncate_f64(dtype, f64::NAN), dtype.nan_bits());
    }
}

#[test]
fn named_traps() {
    // half-rs#151: rounding twice loses the last bit.
    let sticky = 1.0 + 2f64.powi(-8) + 2f64.powi(-50);
    assert_rounds(Dtype::BF16, sticky, 0x3f81);
    assert_rounds(Dtype::BF16, f64::from_bits(0x3ef0_9000_0000_0001), 0x3785);
    assert_rounds(Dtype::F16, 1.0 + 2f64.powi(-11) + 2f64.powi(-50), 0x3c01);
    // Overflow thresholds.
    assert_rounds(Dtype::E4M3, 464.0, 0x7e);
    assert_rounds(Dtype::E4M3, 464f64.next_up(), 0x7f);
    assert_rounds(Dtype::E5M2, 61440.0, 0x7c);
    assert_rounds(Dtype::E5M2, 61440f64.next_down(), 0x7b);
    assert_rounds(Dtype::F16, 65520.0, 0x7c00);
    assert_rounds(Dtype::F16, 65520f64.next_down(), 0x7bff);
    let bf16_edge = 2f64.powi(128) - 2f64.powi(119);
    assert_rounds(Dtype::BF16, bf16_edge, 0x7f80);
    assert_rounds(Dtype::BF16, bf16_edge.next_down(), 0x7f7f);
    let f32_edge = 2f64.powi(128) - 2f64.powi(103);
    assert_rounds(Dtype::F32, f32_edge, 0x7f80_0000);
    assert_rounds(Dtype::F32, f32_edge.next_down(), 0x7f7f_ffff);
    for dtype in Dtype::ALL {
        // Both ends of f64, and zeros with their sign.
        assert_rounds(dtype, f64::MAX, overflow(dtype));
        assert_rounds(dtype, f64::INFINITY, overflow(dtype));
        assert_rounds(dtype, f64::MIN_POSITIVE, 0);
        assert_rounds(dtype, f64::from_bits(1), 0);
        assert_rounds(dtype, 0.0, 0);
        // Half the least subnormal is a tie with zero.
        let half = dtype.least_subnormal() / 2.0;
        assert_rounds(dtype, half, 0);
        assert_rounds(dtype, half.next_up(), 1);
        // The edge between subnormal and normal numbers.
        let edge = dtype.least_normal() - half;
        assert_rounds(dtype, edge, 1 << (dtype.precision() - 1));
        assert_rounds(dtype, edge.next_down(), (1 << (dtype.precision() - 1)) - 1);
        // Far outside f64.
        for (exponent, expected) in [(1_000_000, overflow(dtype)), (-1_000_000, 0)] {
            let far = Float::with_val(64, 3) << exponent;
            assert_eq!(round_mpfr(dtype, &far), expected);
            assert_eq!(round_mpfr(dtype, &-far), expected | dtype.sign_mask());
        }
        for nan in [f64::NAN, -f64::NAN] {
            assert_eq!(dtype.round_f64(nan), dtype.nan_bits());
            assert_eq!(dtype.round_f32(nan as f32), dtype.nan_bits());
            assert_eq!(round_mpfr(dtype, &Float::with_val(64, nan)), dtype.nan_bits());
        }
    }
}

#[test]
fn neighbours_and_ranks_walk_the_sorted_values() {
    for dtype in SMALL {
        let mut line: Vec<_> = patterns(dtype).filter_map(|bits| defined_value(dtype, bits).map(|value| (value, bits))).collect();
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        let negatives = line.iter().filter(|(value, _)| value.is_sign_negative()).count();
        assert_eq!(line.len(), 2 * negatives);
        for (n, &(value, bits)) in line.iter().enumerate() {
            // -0 is the last of the negatives and +0 the first of the others; both have rank 0.
            let rank = if n < negatives { n as i64 + 1 - negatives as i64 } else { (n - negatives) as i64 };
            assert_eq!(dtype.rank(bits), Some(rank), "{dtype} {value:e}");
            let above = line[n..].iter().find(|(other, _)| *other > value);
            let below = line[..n].iter().rev().find(|(other, _)| *other < value);
            let up = dtype.next_up(bits);
            let down = dtype.next_down(bits);
            assert_eq!(dtype.to_f64(up), above.map_or(value, |&(other, _)| other), "{dtype} above {value:e}");
            assert_eq!(dtype.to_f64(down), below.map_or(value, |&(other, _)| other), "{dtype} below {value:e}");
            // A step onto zero lands on +0 from either side.
            assert!(dtype.class(up) != Class::Zero || up == 0);
            assert!(dtype.class(down) != Class::Zero || down == 0);
        }
    }
}

#[test]
fn distances_are_symmetric_and_additive() {
    let steps = |dtype, a, b| match ulp_distance(dtype, a, b) {
        Ulps::Steps(n) => Some(n),
        Ulps::Incomparable => None,
    };
    for dtype in [Dtype::E4M3, Dtype::E5M2] {
        let finite: Vec<_> = patterns(dtype).filter(|&bits| dtype.class(bits).is_finite()).collect();
        for &a in &finite {
            for &b in &finite {
                let ab = steps(dtype, a, b).expect("finite");
                assert_eq!(steps(dtype, b, a), Some(ab));
                assert_eq!(ab == 0, dtype.to_f32(a) == dtype.to_f32(b));
                for &c in &finite {
                    // Additive along the line, a triangle otherwise.
                    let (ac, bc) = (steps(dtype, a, c).expect("finite"), steps(dtype, b, c).expect("finite"));
                    let (x, y, z) = (dtype.to_f32(a), dtype.to_f32(b), dtype.to_f32(c));
                    let between = (x <= y && y <= z) || (z <= y && y <= x);
                    assert!(if between { ab + bc == ac } else { ab + bc > ac || ab == 0 || bc == 0 });
                }
            }
        }
    }
    for dtype in SMALL {
        let infinite = |bits| dtype.class(bits) == Class::Infinite;
        for bits in patterns(dtype) {
            let up = dtype.next_up(bits);
            let crosses = infinite(bits) != infinite(up);
            let expected = if crosses { None } else { Some(u64::from(dtype.to_f32(bits) < dtype.to_f32(up))) };
            assert_eq!(steps(dtype, bits, up), expected, "{dtype} {}", dtype.hex(bits));
            assert_eq!(steps(dtype, up, bits), expected);
            assert_eq!(steps(dtype, bits, bits), Some(0));
            let nan = dtype.class(bits) == Class::Nan;
            assert_eq!(steps(dtype, bits, dtype.nan_bits()), nan.then_some(0));
            // From -max through both zeros: the rank counts the steps.
            if let (Some(rank), true) = (dtype.rank(bits), dtype.class(bits).is_finite()) {
                let bottom = dtype.max_finite_bits() | dtype.sign_mask();
                assert_eq!(steps(dtype, bottom, bits), Some((rank + i64::from(dtype.max_finite_bits())) as u64));
            }
        }
        if let Some(infinity) = dtype.infinity_bits() {
            assert_eq!(steps(dtype, infinity, infinity | dtype.sign_mask()), None);
        }
    }
}

#[test]
fn one_ulp_is_the_gap_above_in_magnitude() {
    for dtype in SMALL {
        for pair in magnitudes(dtype).windows(2) {
            let [(low, low_bits), (high, high_bits)] = [pair[0], pair[1]];
            let gap = high - low;
            for x in [low, low.next_up(), high.next_down(), -low, -high.next_down()] {
                // `low.next_up()` of zero is the least f64, still in the first step.
                assert_eq!(ulp_size(dtype, x), gap, "{dtype} {x:e}");
            }
            assert_eq!(fractional_ulps(dtype, high_bits, low), 1.0);
            assert_eq!(fractional_ulps(dtype, low_bits, low + gap / 4.0), -0.25);
            assert_eq!(fractional_ulps(dtype, low_bits | dtype.sign_mask(), -low - gap / 4.0), 0.25);
            assert_eq!(fractional_ulps(dtype, low_bits, low), 0.0);
        }
        assert_eq!(ulp_size(dtype, 0.0), dtype.least_subnormal());
        if let Some(infinity) = dtype.infinity_bits() {
            assert_eq!(fractional_ulps(dtype, infinity, 1.0), f64::INFINITY);
        }
        assert!(fractional_ulps(dtype, dtype.nan_bits(), 1.0).is_nan());
    }
}
