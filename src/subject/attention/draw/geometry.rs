//! The problem and its data.

use super::table::{CAUSAL, Caps, DIMS, FP8, HEADS, Kind, MAX_SPAN, REGIMES, ROWS, Rows, SCALES, SEQUENCES, Scales};
use super::within::Within;
use super::{CapturedShape, Hints};
use crate::number::Dtype;
use crate::source::{Choose, Source};
use crate::subject::attention::capabilities::{Format, HeadDims};
use crate::subject::attention::case::{Data, Fp8Kv, Problem, Regime, Sequence};
use crate::subject::attention::mask::{Anchor, Mask};
use crate::subject::attention::pin::KvPin;

/// Draws what is computed, and on which values.
///
/// `even`: all sequences must be of one length.
pub(super) fn problem(
    source: &mut dyn Source,
    caps: &Caps,
    granules: &[u32],
    hints: &Hints<'_>,
    within: &mut Within<'_>,
    even: bool,
) -> (Problem, Data) {
    let (pins, captured) = (&hints.pins, hints.captured);
    let dtype = source.weighted(&[(35, Dtype::F32), (40, Dtype::BF16), (25, Dtype::F16)]);
    let dtype = pins.dtype.unwrap_or(dtype);
    let out_dtype = if source.chance(1, 8) { Dtype::F32 } else { dtype };
    let Format { storage: dtype, out: out_dtype } = within.format(source, Format { storage: dtype, out: out_dtype }, pins.dtype);
    let (mut kv_head_ids, mut group_ids) = heads(source, caps, captured);
    let mut wide = pins.shape();
    let (d_qk, d_v) = match captured {
        Some(shape) => (shape.d_qk, shape.d_v),
        None => {
            if let Some((q, kv)) = pins.heads {
                (kv_head_ids, group_ids) = ((0..kv).collect(), (0..q / kv).collect());
            }
            let (d_qk, d_v) = dims(source, caps, &hints.head_dims);
            let drawn = (pins.d_qk.unwrap_or(d_qk), pins.d_v.unwrap_or(d_v));
            let fitting = within.dims(source, pins, drawn);
            wide |= fitting != drawn;
            fitting
        }
    };
    if within.one_group(&group_ids) {
        group_ids.truncate(1);
    }
    let q_heads = kv_head_ids.len() * group_ids.len();
    let mut pair_cost = q_heads as u64 * u64::from(d_qk + d_v);
    if wide {
        // Who pins a wide model, or has a kernel for nothing else, wants its lengths all the same.
        pair_cost = pair_cost.min(PINNED_PAIR_COST);
    }
    let pairs = (source.weighted(caps.work) / pair_cost).max(16);
    let causal = source.weighted(CAUSAL);
    let causal = within.causal(pins.causal.unwrap_or(causal));
    let mut sequences = sequences(source, caps, granules, captured, pairs);
    within.sequences(&mut sequences, captured, even);
    let mut mask = mask(source, causal, granules, &sequences);
    within.mask(&mut mask, &mut sequences, captured);
    let softmax_scale = match captured {
        Some(shape) => shape.softmax_scale,
        None => scale(source, d_qk),
    };
    let data = match captured {
        Some(shape) => Data::Captured { sha256: shape.sha256.clone() },
        None => {
            let row = longest_row(&mask, &sequences);
            drawn(source, dtype, out_dtype, d_qk, row)
        }
    };
    let mirror = matches!(data, Data::Drawn { regime: Regime::Mirror { .. }, .. });
    let softcap = source.chance(1, 16).then(|| source.pick(&[1.0, 2.0, 15.0, 30.0, 50.0]));
    let sinks = source.chance(1, 8).then(|| (0..q_heads).map(|_| sink(source)).collect());
    // The bias would set the two scores of a pair apart. What `mirror` leaves is little in 16 bits, hence the high share.
    let alibi_slopes = (!mirror && source.chance(1, 4)).then(|| (0..q_heads).map(|head| slope(source, head)).collect());
    let mut problem = Problem {
        sequences,
        kv_head_ids,
        group_ids,
        d_qk,
        d_v,
        mask,
        softcap,
        sinks,
        alibi_slopes,
        softmax_scale,
        dtype,
        fp8_kv: None,
        out_dtype,
    };
    within.scores(&mut problem);
    (problem, data)
}

fn drawn(source: &mut dyn Source, dtype: Dtype, out: Dtype, d_qk: u32, row: std::ops::Range<u32>) -> Data {
    let regime = regime(source, dtype, out, d_qk, row);
    // 32 bits, so that a case's text stays short.
    Data::Drawn { seed: source.below(1 << 32), regime }
}

/// Draws values for a problem that stands.
pub(super) fn data(source: &mut dyn Source, problem: &Problem) -> Data {
    let row = match problem.alibi_slopes {
        // No pairs of equal scores there: see `problem`.
        Some(_) => 0..0,
        None => longest_row(&problem.mask, &problem.sequences),
    };
    drawn(source, problem.dtype, problem.out_dtype, problem.d_qk, row)
}

/// Draws whether keys and values are in an 8-bit format, and its scales.
///
/// It comes after everything else, so that the other choices of a case do not depend on it.
pub(super) fn fp8_kv(source: &mut dyn Source, problem: &mut Problem, pin: Option<KvPin>) {
    let (share, of) = FP8[usize::from(problem.dtype == Dtype::F32)];
    if !source.chance(share, of) && !matches!(pin, Some(KvPin::Fp8(_))) || pin == Some(KvPin::Plain) {
        return;
    }
    let dtype = source.pick(&[Dtype::E4M3, Dtype::E5M2]);
    let dtype = if let Some(KvPin::Fp8(pinned)) = pin { pinned } else { dtype };
    let kind = source.weighted(SCALES);
    let mut scales = |first: f32| -> Vec<f32> {
        let heads = if problem.kv_heads() > 1 && source.chance(1, 2) { problem.kv_heads() } else { 1 };
        let scale = |n: usize| match kind {
            Scales::One => 1.0,
            // Heads apart by a factor of two each.
            Scales::Quarter => first * [1.0, 2.0, 0.5, 4.0][n % 4],
            Scales::Power => f32::from_bits((121 + source.below(8) as u32) << 23),
            // From 1/64 up to 2.
            Scales::Any => f32::from_bits((121 << 23) + source.below(7 << 23) as u32),
        };
        (0..heads).map(scale).collect()
    };
    problem.fp8_kv = Some(Fp8Kv { dtype, k_scales: scales(0.25), v_scales: scales(0.5) });
}

/// Lengths of a pinned shape are drawn as for no more than so many multiply-adds for each row and key.
const PINNED_PAIR_COST: u64 = 256;

/// Labels of the KV heads and of the query heads in a group.
fn heads(source: &mut dyn Source, caps: &Caps, captured: Option<&CapturedShape>) -> (Vec<u32>, Vec<u32>) {
    match captured {
        Some(shape) => {
            // Real heads are wide: one or two at a time.
            let most = shape.kv_heads.min(2);
            let count = source.range(1, most);
            let first = source.range(0, shape.kv_heads - count);
            let groups = source.range(1, shape.groups.min(caps.q_heads / count).max(1));
            ((first..first + count).collect(), (0..groups).collect())
        }
        None => {
            let (kv, groups) = source.weighted(HEADS);
            // Too many heads for the profile: the group first, then as many KV heads as fit.
            let groups = groups.min(caps.q_heads);
            let kv = kv.min(caps.q_heads / groups);
            ((0..kv).collect(), (0..groups).collect())
        }
    }
}

fn dims(source: &mut dyn Source, caps: &Caps, wanted: &[u32]) -> (u32, u32) {
    if !wanted.is_empty() && source.chance(1, 2) {
        let d = source.pick(wanted);
        return (d, d);
    }
    let d_qk = source.weighted(DIMS).min(caps.d);
    // Unequal dims catch a kernel that takes one for the other (MLA has 192 and 128).
    let d_v = if source.chance(1, 2) { source.weighted(DIMS).min(caps.d) } else { d_qk };
    (d_qk, d_v)
}

/// The coarsest block or split that lengths are stretched for.
const FARTHEST_GRANULE: u32 = 8192;

/// Positions of the longest sequence that [`sequences`] may give.
pub(super) fn longest(caps: &Caps, hints: &Hints<'_>) -> u32 {
    let pins = &hints.pins;
    let listed = hints.scope.head_dims();
    let dims = match &listed {
        Some(HeadDims::Only(pairs)) => pairs.iter().map(|(d_qk, d_v)| d_qk + d_v).min().unwrap_or(2),
        Some(HeadDims::UpTo { multiple_of, .. }) => 2 * multiple_of,
        None => pins.d_qk.unwrap_or(1) + pins.d_v.unwrap_or(1),
    };
    let cost = u64::from(pins.heads.map_or(1, |(q, _)| q)) * u64::from(dims);
    let cost = if pins.shape() || listed.is_some() { cost.min(PINNED_PAIR_COST) } else { cost };
    let work = caps.work.iter().map(|&(_, work)| work).max().unwrap_or(0);
    let affordable = u32::try_from((work / cost.max(1)).max(16)).unwrap_or(u32::MAX);
    let tokens = hints.captured.map_or(u32::MAX, |shape| shape.lengths.iter().copied().max().unwrap_or(0));
    let coarsest = hints.granules.iter().copied().max().unwrap_or(0).min(FARTHEST_GRANULE);
    let far = if coarsest >= caps.tail_kv { 2 * coarsest + 1 } else { 0 };
    caps.tail_kv.max(far).min(affordable).min(tokens)
}

/// Sequences whose `q * kv` add up to about `pairs` at most.
fn sequences(
    source: &mut dyn Source,
    caps: &Caps,
    granules: &[u32],
    captured: Option<&CapturedShape>,
    pairs: u64,
) -> Vec<Sequence> {
    let ids: Vec<u32> = match captured {
        // Which of the file's sequences: a random selection.
        Some(shape) => source.permutation(shape.lengths.len()),
        None => (0..4).collect(),
    };
    let count = source.weighted(SEQUENCES).min(ids.len());
    let share = pairs / count.max(1) as u64;
    let mut drawn = Vec::with_capacity(count);
    for &id in &ids[..count] {
        let tail = source.chance(caps.tail_share, 16);
        let most = if tail { caps.tail_kv } else { caps.typical_kv };
        // A block or split beyond the profile's lengths must be crossed all the same, now and then and by few rows.
        let coarsest = granules.iter().copied().max().unwrap_or(0).min(FARTHEST_GRANULE);
        let far = coarsest >= caps.tail_kv && source.chance(1, 12);
        let most = if far { 2 * coarsest + 1 } else { most };
        let most = captured.map_or(most, |shape| shape.lengths[id as usize].min(most));
        let most = most.min(u32::try_from(share).unwrap_or(u32::MAX));
        let kv = match source.weighted(&[(28, 0), (11, 1), (1, 2)]) {
            0 => source.boundary(granules, most),
            // A captured sequence may have no token.
            1 => source.range(1, most).min(most),
            _ => 0,
        };
        let wanted = match source.weighted(ROWS) {
            Rows::One => 1,
            Rows::All => kv.max(1),
            Rows::Part => source.boundary(granules, kv.max(1)),
            Rows::None => 0,
            Rows::Excess => kv + source.range(1, 6),
        };
        let affordable = (share / u64::from(kv.max(1))).max(1);
        drawn.push(Sequence { id, q: wanted.min(u32::try_from(affordable).unwrap_or(u32::MAX)), kv });
    }
    drawn
}

/// Windows around what the sequences and granules make telling: 0, 1, one less and one more than all, a tile and its neighbours.
fn mask(source: &mut dyn Source, causal: Option<Anchor>, granules: &[u32], sequences: &[Sequence]) -> Mask {
    let longest = sequences.iter().map(|s| s.kv).max().unwrap_or(0);
    let mut mask = Mask { causal, ..Mask::default() };
    if source.chance(1, 4) {
        mask.window_left = Some(window(source, granules, longest));
    }
    if causal.is_none() && source.chance(1, 3) {
        mask.window_right = Some(window(source, granules, longest));
    }
    mask
}

fn window(source: &mut dyn Source, granules: &[u32], longest: u32) -> u32 {
    match source.below(8) {
        0 => source.range(0, 1),
        1 => (longest + source.range(0, 2)).saturating_sub(1),
        // Kernels count the row itself or not: a size and the key before it.
        _ => source.boundary(granules, longest.max(2)) - source.below(2) as u32,
    }
}

fn scale(source: &mut dyn Source, d_qk: u32) -> f32 {
    match source.weighted(&[(70, 0), (10, 1), (10, 2), (10, 3)]) {
        0 => (1.0 / f64::from(d_qk).sqrt()) as f32,
        1 => 1.0,
        // Every significand bit in use: a scale that does not commute with rounding.
        2 => f32::from_bits(0x3e00_0000 | source.below(1 << 24) as u32),
        _ => source.pick(&[0.5, 2.0, 0.3, 1.5, 0.0625]),
    }
}

/// Mostly a tenth of the mass or more, so that losing it shows (imp#1303), sometimes far off on either side.
fn sink(source: &mut dyn Source) -> f32 {
    let quarters = source.below(33) as i32 - 8;
    let quarters = if quarters == -8 { 0 } else { quarters };
    source.pick(&[0.25, 0.25, 0.25, -1.0, 8.0]) * quarters as f32
}

/// The powers of two of the ALiBi paper, or any slope in 1/8..1/2.
fn slope(source: &mut dyn Source, head: usize) -> f32 {
    match source.below(3) {
        0 | 1 => f32::from_bits((126 - head.min(100) as u32) << 23),
        _ => f32::from_bits(0x3e00_0000 | source.below(1 << 24) as u32),
    }
}

/// The longest valid range of a last row.
fn longest_row(mask: &Mask, sequences: &[Sequence]) -> std::ops::Range<u32> {
    let rows = sequences.iter().filter(|s| s.q > 0).map(|s| mask.keys(s.q - 1, s.q, s.kv));
    rows.max_by_key(ExactSizeIterator::len).unwrap_or(0..0)
}

fn regime(source: &mut dyn Source, dtype: Dtype, out: Dtype, d_qk: u32, row: std::ops::Range<u32>) -> Regime {
    let mut weights = [(0, Kind::Normal); REGIMES.len()];
    for (slot, &(kind, wide, narrow)) in weights.iter_mut().zip(REGIMES) {
        let weight = if out == Dtype::F32 { wide } else { narrow };
        // A pair and a key to swamp: three keys, or there is nothing to see.
        let possible = kind != Kind::Mirror || row.len() >= 3;
        *slot = (if possible { weight } else { 0 }, kind);
    }
    match source.weighted(&weights) {
        Kind::Normal => Regime::Normal,
        Kind::Equal => Regime::Equal,
        Kind::Dominant => {
            Regime::Dominant { gap: source.pick(&[1.0, 20.0, 88.0, 1e4]), lane: source.below(u64::from(d_qk)) as u32 }
        }
        // f16 ends at 65504; the 8-bit exponents reach the end of f32.
        Kind::Deep if dtype == Dtype::F16 => Regime::Deep { level: source.pick(&[-1e3, -1e4, -6e4]) },
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
        Kind::Mirror => {
            let span = span(source, &row);
            Regime::Mirror { span, phase: row.end % span }
        }
    }
}

/// A span no longer than the row's keys. Where a window cuts the row off, one that divides its length if any does, so that no
/// pair is torn at the window's edge: a torn pair's large value hides everything else.
fn span(source: &mut dyn Source, row: &std::ops::Range<u32>) -> u32 {
    let length = row.end - row.start;
    let most = length.min(MAX_SPAN);
    if row.start > 0 {
        let divisors = (3..=most).filter(|span| length.is_multiple_of(*span));
        let count = divisors.clone().count() as u64;
        if count > 0 {
            return divisors.clone().nth(source.below(count) as usize).unwrap_or(3);
        }
    }
    match source.below(4) {
        0 | 1 => source.range(3, most.min(8)),
        2 => source.range(3, most.min(16)),
        _ => most,
    }
}
