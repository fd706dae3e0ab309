//! Rows with one key, whose value comes through unrounded.

use super::super::numerics::{Exp, MaxInit, Numerics, ScaleAt, Store};
use super::Facts;
use crate::number::Dtype;

/// Whether a row with one key and no sink can only be that key's value, rounded once by the store.
///
/// Not under an exponential that need not give 1 for 0; nor a fused `fma(s, scale, -round(m * scale))`, which need not be 0
/// (pytorch/pytorch#121558); nor a maximum that begins above a score; nor where the value passes a narrow format, or a scale.
pub fn one_key_passes_through(numerics: &Numerics, facts: &Facts) -> bool {
    let Numerics { score, softmax, value, grid, store, .. } = numerics;
    softmax.exp == Exp::CorrectlyRounded
        && softmax.max_init == MaxInit::NegInf
        && !(score.scale == ScaleAt::FoldedLog2e && score.fma)
        && value.acc == Dtype::F32
        && grid.partial_dtype == Dtype::F32
        && *store == Store::Rne
        && facts.kv_scales.is_none()
}
