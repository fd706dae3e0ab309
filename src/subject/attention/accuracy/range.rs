//! Whether an intermediate can leave the range of its format.

use super::super::numerics::{Finish, MaxInit, Numerics, ScaleAt, Store, SumOf};
use super::count::{Counts, Factors, U, log_keys, step};
use super::descaled::Descaled;
use super::{Facts, RowSums};
use crate::number::{Dtype, ulp_size};
use core_math::{exp, log1p};

/// Covers the few roundings of a value that is not an accumulated sum, and the evaluation here.
const MARGIN: f64 = 1.0 + 1.0 / 1024.0;

/// How far below a finite initial maximum a row's largest weight may lie, in natural units, before the row is taken for lost. The
/// least normal number of f32 and bf16 is `e^-87`, that of f16 `e^-9.7`.
fn deepest(n: &Numerics) -> f64 {
    let narrow = n.rowsum.acc == Dtype::F16 || n.rowsum.of == SumOf::RoundedP && n.probs.dtype == Dtype::F16;
    if narrow { 9.0 } else { 80.0 }
}

/// The excess of a finite initial maximum over the row's, in natural units; 0 without one.
pub(super) fn excess(counts: &Counts<'_>, facts: &Facts, sums: &RowSums) -> f64 {
    start(counts, facts).map_or(0.0, |start| (start - sums.max_score).max(0.0))
}

/// A finite initial maximum in natural units.
fn start(counts: &Counts<'_>, facts: &Facts) -> Option<f64> {
    let MaxInit::Finite(start) = counts.numerics.softmax.max_init else { return None };
    let start = f64::from(start);
    // Under `folded_log2e` the maximum may be kept before the scale.
    Some(if counts.folded() { start.max(start * Descaled::of(counts, facts).scale) } else { start })
}

/// How far rounding may lift an exponent above 0, in natural units: a fused `s * c - round(m * c)` keeps what the rounding of
/// `m * c` took away, in each weight and each rescale.
pub(super) fn rise(counts: &Counts<'_>, facts: &Facts, sums: &RowSums) -> f64 {
    if !(counts.folded() && counts.numerics.score.fma) {
        return 0.0;
    }
    let sink = facts.sink.map_or(0.0, f64::abs);
    (counts.rescales + 3.0) * 2.0 * U * (sums.magnitude_max + sink)
}

/// Whether a sum of `count` terms whose magnitudes add up to `magnitudes` may overflow its accumulator. A sum without a bound is
/// reported as such elsewhere.
fn sum_overflows(magnitudes: f64, count: f64, dtype: Dtype) -> bool {
    let mut growth = Factors::default();
    growth.times(count, step(dtype).relative);
    let excess = growth.excess();
    // Without a bound on the error each step may still grow the sum by no more than its own rounding.
    let grown = if excess.is_finite() { 1.0 + excess } else { exp(count * log1p(step(dtype).relative)) };
    magnitudes * grown * MARGIN > dtype.max_finite()
}

/// The reason why an intermediate of this row may overflow, or its weights vanish; `None` if that is excluded.
pub(super) fn check(counts: &Counts<'_>, facts: &Facts, sums: &RowSums) -> Option<&'static str> {
    let n = counts.numerics;
    let keys = f64::from(sums.keys);
    if sums.keys == 0 {
        return None;
    }
    let exceeds = |value: f64, dtype: Dtype| value * MARGIN > dtype.max_finite();
    let it = Descaled::of(counts, facts);
    let [k_scale, v_scale] = facts.kv_scales.unwrap_or([1.0; 2]);
    if it.on_load && (exceeds(facts.key_max * k_scale, Dtype::F32) || exceeds(it.true_value_max, Dtype::F32)) {
        return Some("a key or value times its scale may overflow f32");
    }
    if it.folded && exceeds(facts.scale * k_scale * std::f64::consts::LOG2_E, Dtype::F32) {
        return Some("the softmax scale times a key's scale may overflow f32");
    }

    // sum_x |q_x k_x|: from the row, or from the largest operands.
    let (dot, scaled) = {
        let operands = f64::from(facts.d_qk) * facts.query_max * facts.key_max * k_scale;
        let scaled = sums.score_magnitude_max.min(operands * facts.scale);
        (scaled / it.least_scale, scaled)
    };
    let accumulated = if n.score.scale == ScaleAt::OnQuery { scaled } else { dot };
    let d = f64::from(facts.d_qk);
    if sum_overflows(accumulated, d + 1.0, n.score.acc) || (!counts.declared && sum_overflows(dot, d, Dtype::F32)) {
        return Some("a dot product may overflow score.acc");
    }
    if n.score.scale == ScaleAt::OnQuery && exceeds(facts.query_max * it.scale, Dtype::F32) {
        return Some("a scaled query may overflow f32");
    }
    if counts.folded() && exceeds((scaled + it.scale) * std::f64::consts::LOG2_E, Dtype::F32) {
        return Some("a score times log2 e may overflow f32");
    }
    let plain = facts.softcap.is_none() && !facts.bias;
    let score = match facts.softcap {
        Some(cap) if !facts.bias => sums.score_magnitude_max.min(cap.abs()),
        _ if facts.bias => sums.score_magnitude_max,
        _ => scaled,
    };
    let stored = if counts.folded() && plain { dot } else { score };
    if exceeds(scaled, Dtype::F32) || exceeds(stored, n.score.store) {
        return Some("a score may overflow score.store");
    }

    if let Some(start) = start(counts, facts) {
        // The least maximum of any partial: a split or, with a sink, all keys may lie far below m.
        let spread = if counts.partials || sums.sink { sums.magnitude_max } else { 0.0 };
        if start - (sums.max_score - spread) > deepest(n) {
            return Some("scores may lie so far below softmax.max_init that all weights underflow");
        }
        if it.folded && n.finish == Finish::Reciprocal && exceeds(v_scale * exp(deepest(n)), Dtype::F32) {
            return Some("a value's scale over a row sum may overflow f32");
        }
    }

    let largest_weight = exp(counts.lag + rise(counts, facts, sums));
    if exceeds(largest_weight, n.probs.dtype) {
        return Some("a weight above the running maximum (threshold, or a fused folded scale) may overflow probs.dtype");
    }
    if sum_overflows(largest_weight * (keys + 1.0), keys + 2.0, n.rowsum.acc) {
        return Some("a row sum may overflow rowsum.acc");
    }
    if n.finish == Finish::Reciprocal && largest_weight * (keys + 1.0) > 8.0e37 {
        return Some("the reciprocal of a row sum may be subnormal");
    }
    // Weights are taken against the maximum so far, so an early block may weigh more than in the end.
    let mut accumulated = largest_weight * keys * it.value_max;
    if counts.rescales == 0.0 && !counts.partials && !sums.sink {
        let whole = sums.value_abs.iter().copied().fold(0.0, f64::max);
        // The kernel's scores move the weights; where they keep three digits, a percent covers it.
        if largest_weight == 1.0 && (0..sums.value_error.len()).all(|i| weights_hold(sums, i)) {
            accumulated = accumulated.min(whole / it.least_on_output * 1.01);
        }
    }
    if sum_overflows(accumulated, keys + 2.0, n.value.acc) {
        return Some("a sum of weighted values may overflow value.acc");
    }
    if counts.partials {
        if exceeds(it.true_value_max, n.grid.partial_dtype) || exceeds(2.0 * it.true_value_max, Dtype::F32) {
            return Some("a partial output may overflow grid.partial_dtype");
        }
        let sink = facts.sink.map_or(0.0, f64::abs);
        if exceeds(score.max(sink) + log_keys(keys) + counts.lag, n.grid.lse_dtype) {
            return Some("a partial log-sum-exp may overflow grid.lse_dtype");
        }
    }
    None
}

/// Whether the weights' errors under a weighting are below a part in a thousand, in the sum and in each lane.
fn weights_hold(sums: &RowSums, weighting: usize) -> bool {
    sums.weight_error[weighting] <= 1e-3 * sums.weight
        && sums.value_error[weighting].iter().zip(&sums.value_abs).all(|(error, value)| *error <= 1e-3 * value)
}

/// The least magnitude whose store can give infinity; none where the store truncates.
pub(super) fn store_overflow(dtype: Dtype, store: Store) -> Option<f64> {
    let largest = dtype.max_finite();
    (store == Store::Rne).then(|| largest + ulp_size(dtype, largest) / 2.0)
}
