//! What a row leaves open of scores and values.

use super::read::{scale, usual_scale};
use super::value::{Kind, Kv8, Scale};
use crate::number::Dtype;
use crate::source::{Choose, Source, Stream};
use crate::subject::attention::case::{Fp8Kv, Problem, Regime};

pub(super) fn slope(source: &mut Stream, head: usize) -> f32 {
    match source.below(3) {
        0 | 1 => f32::from_bits((126 - head.min(100) as u32) << 23),
        _ => f32::from_bits(0x3e00_0000 | source.below(1 << 24) as u32),
    }
}

pub(super) fn softmax_scale(source: &mut Stream, wanted: Scale, d_qk: u32) -> f32 {
    match wanted {
        Scale::Usual => usual_scale(d_qk),
        Scale::Power => {
            let one = source.pick(&[1.0, 0.5, 0.0625]);
            if scale(one, d_qk) == Scale::Power { one } else { 2.0 }
        }
        // All of the significand, which does not commute with rounding; odd, so never a power of two.
        Scale::Any => f32::from_bits(0x3e00_0001 | source.below(1 << 24) as u32),
    }
}

pub(super) fn fp8_kv(source: &mut Stream, wanted: Kv8, kv_heads: usize) -> Option<Fp8Kv> {
    let dtype = match wanted {
        Kv8::Plain => return None,
        Kv8::E4m3 => Dtype::E4M3,
        Kv8::E5m2 => Dtype::E5M2,
    };
    let each = source.chance(1, 2);
    let any = source.chance(1, 2);
    let mut scales = |first: f32| -> Vec<f32> {
        let scale = |n: usize| match any {
            // From 1/64 up to 2, every significand bit in use.
            true => f32::from_bits((121 << 23) + source.below(7 << 23) as u32),
            false => first * [1.0, 2.0, 0.5, 4.0][n % 4],
        };
        (0..if each { kv_heads } else { 1 }).map(scale).collect()
    };
    Some(Fp8Kv { dtype, k_scales: scales(0.25), v_scales: scales(0.5) })
}

pub(super) fn regime(source: &mut Stream, kind: Kind, problem: &Problem, row: std::ops::Range<u32>) -> Regime {
    match kind {
        Kind::Normal => Regime::Normal,
        Kind::Equal => Regime::Equal,
        Kind::Dominant => {
            Regime::Dominant { gap: source.pick(&[1.0, 20.0, 88.0, 1e4]), lane: source.below(u64::from(problem.d_qk)) as u32 }
        }
        Kind::Deep if problem.dtype == Dtype::F16 => Regime::Deep { level: source.pick(&[-1e3, -1e4, -6e4]) },
        Kind::Deep => Regime::Deep { level: source.pick(&[-1e3, -1e4, -6e4, -3e38]) },
        Kind::Overflow => Regime::Overflow,
        Kind::Subnormal => Regime::Subnormal,
        Kind::Quantised => Regime::Quantised,
        Kind::Tail => Regime::Tail,
        Kind::ZeroPeak => Regime::ZeroPeak,
        Kind::Rising => Regime::Rising { step: source.pick(&[0.25, 1.0, 0.03125, 8.0]) },
        Kind::Wide => Regime::Wide,
        Kind::OnehotV => Regime::OnehotV,
        Kind::ConstantV => Regime::ConstantV,
        Kind::Mirror => mirror(source, row),
    }
}

/// Pairs that are closed before the last row, inside what it sees.
pub(super) fn mirror(source: &mut Stream, row: std::ops::Range<u32>) -> Regime {
    let length = row.end.saturating_sub(row.start);
    let span = source.pick(&[3, 4, 8, 16]).min(length).max(2);
    Regime::Mirror { span, phase: row.end % span }
}
