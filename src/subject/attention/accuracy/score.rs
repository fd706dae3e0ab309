//! Steps 1, 2 and 5 of the derivation: the error of a key's weight.

use super::super::numerics::{Numerics, ScaleAt};
use super::count::{Counts, ETA, Factors, U, log_keys, round, step};
use super::descaled::Descaled;
use super::{Facts, Weighting};
use core_math::{expm1, log1p};

/// Error of a row's exponents.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExponentError {
    /// What the oracle weighs with.
    pub weighting: Weighting,
    /// Multiplies the error of the maximum found.
    pub second_order: f64,
}

/// What the oracle must weigh with for these numerics (`None`: undeclared, f32 everywhere in any order) on this problem.
///
/// Where the numerics bound nothing (a score sum with `n u >= 1`) both parts are 0, and [`RowBound`](super::RowBound) says so.
pub fn weighting(numerics: Option<&Numerics>, facts: &Facts) -> Weighting {
    exponent_error(&Counts::of(numerics, facts), facts)
        .map_or(Weighting { per_magnitude: 0.0, constant: 0.0 }, |error| error.weighting)
}

/// `None` if unbounded.
pub(super) fn exponent_error(counts: &Counts<'_>, facts: &Facts) -> Option<ExponentError> {
    let score = &counts.numerics.score;
    let it = Descaled::of(counts, facts);
    let (d, scale, folded) = (f64::from(facts.d_qk), it.scale, counts.folded());
    let acc = step(score.acc);

    // Step 1: relative to G_j + |bias_j|, and absolute.
    let mut relative = Factors::default();
    relative.times(d, acc.relative);
    let mut tiny = d * acc.tiny * if score.scale == ScaleAt::OnQuery { 1.0 } else { scale };
    match score.scale {
        ScaleAt::OnQuery => {
            relative.times(1.0, U);
            tiny += d * ETA * it.key_max;
        }
        ScaleAt::OnScore => {
            relative.times(1.0, U);
            tiny += ETA;
        }
        ScaleAt::FoldedLog2e => {
            // The constant underflows where the scale does.
            relative.times(1.0, 2.0 * U + ETA / facts.scale);
            tiny += ETA;
        }
    }
    if !counts.declared {
        tiny += d * ETA * it.key_max;
    }
    relative.times(1.0, it.key_error);
    tiny += d * it.load_tiny * facts.query_max * facts.scale;
    if let Some(cap) = facts.softcap {
        relative.times(3.0, U);
        tiny += 2.0 * cap.abs() * ETA + ETA;
    }
    if facts.bias {
        relative.times(2.0, U);
        tiny += ETA;
    }
    if folded && (facts.softcap.is_some() || facts.bias) {
        // The score is scaled before its cap or bias, and by log2 e after.
        relative.times(1.0, U);
    }
    let store = round(score.store);
    relative.times(1.0, store.relative);
    tiny += store.tiny * scale.max(1.0);
    let mut per = relative.excess();
    let mut constant = tiny * (1.0 + per);

    // Step 2: arguments of the exponentials, then the exponentials. A sink is one more rescale.
    let sink = if facts.sink.is_some() { 1.0 } else { 0.0 };
    let path = U + counts.exp_argument;
    constant += path * (constant + 3.0 * counts.lag);
    per += path * (1.0 + per);
    if folded {
        let roundings = if score.fma { counts.rescales + sink + 2.0 } else { 2.0 } + 4.0 * sink;
        constant += roundings * U * (constant + counts.lag) + 8.0 * ETA * (counts.rescales + 4.0);
        per += roundings * U * (1.0 + per);
    }
    constant += (counts.rescales + sink + 1.0) * counts.exp;

    // Step 5: the log-sum-exps of the partials.
    let mut merge = 0.0;
    if counts.partials {
        let lse = round(counts.numerics.grid.lse_dtype);
        let stages = counts.merges + sink + 1.0;
        let roundings = expm1(stages * log1p(2.0 * U + lse.relative));
        let difference = U + counts.exp_argument.max(if folded { 2.0 * U } else { 0.0 });
        merge = roundings + difference * (1.0 + 2.0 * roundings);
        let extent = log_keys(counts.keys) + counts.lag;
        constant += merge * (constant + extent) + stages * (counts.exp + 2.0 * U * (1.0 + extent) + lse.tiny + ETA);
        per += merge * (1.0 + per);
    }
    if !per.is_finite() || !constant.is_finite() {
        return None;
    }
    Some(ExponentError {
        weighting: Weighting { per_magnitude: per, constant },
        second_order: 2.0 * (path + merge + if folded { (counts.rescales + 6.0) * U } else { 0.0 }),
    })
}
