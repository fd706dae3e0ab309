//! What depends on where the scales of an 8-bit KV cache enter.

use super::super::numerics::Descale;
use super::Facts;
use super::count::{Counts, ETA, U};

/// Sizes and roundings under one way of descaling; of a kernel that declares nothing, the worst of both ways for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descaled {
    /// What a query, a dot product or a raw score is multiplied with: the most,
    pub scale: f64,
    /// and the least.
    pub least_scale: f64,
    /// The largest key as it is multiplied.
    pub key_max: f64,
    /// The largest value as it is multiplied.
    pub value_max: f64,
    /// The largest true value.
    pub true_value_max: f64,
    /// What the finished output is multiplied with: the most,
    pub on_output: f64,
    /// and the least.
    pub least_on_output: f64,
    /// Relative error of what stands for a key's scale.
    pub key_error: f64,
    /// Absolute error of a key that underflows as it is loaded; of a value likewise.
    pub load_tiny: f64,
    /// Relative error of what stands for a value's scale.
    pub value_error: f64,
    /// Whether scales may be multiplied on load; whether they may be folded.
    pub on_load: bool,
    pub folded: bool,
}

impl Descaled {
    pub fn of(counts: &Counts<'_>, facts: &Facts) -> Descaled {
        let Some([k, v]) = facts.kv_scales else {
            return Descaled {
                scale: facts.scale,
                least_scale: facts.scale,
                key_max: facts.key_max,
                value_max: facts.value_max,
                true_value_max: facts.value_max,
                on_output: 1.0,
                least_on_output: 1.0,
                key_error: 0.0,
                load_tiny: 0.0,
                value_error: 0.0,
                on_load: false,
                folded: false,
            };
        };
        let on_load = !counts.declared || counts.numerics.kv.descale == Descale::OnLoad;
        let folded = !counts.declared || counts.numerics.kv.descale == Descale::Folded;
        // What a scale is where it is multiplied on load, and where it is folded.
        let ways = |loaded: f64, kept: f64| match (on_load, folded) {
            (true, true) => (loaded.max(kept), loaded.min(kept)),
            (true, false) => (loaded, loaded),
            _ => (kept, kept),
        };
        let (scale, least_scale) = ways(facts.scale, facts.scale * k);
        let (on_output, least_on_output) = ways(1.0, v);
        Descaled {
            scale,
            least_scale,
            key_max: ways(facts.key_max * k, facts.key_max).0,
            value_max: ways(facts.value_max * v, facts.value_max).0,
            true_value_max: facts.value_max * v,
            on_output,
            least_on_output,
            key_error: rounding(k) + if folded { ETA / (facts.scale * k) } else { 0.0 },
            load_tiny: if on_load { ETA } else { 0.0 },
            value_error: rounding(v),
            on_load,
            folded,
        }
    }
}

/// Relative error of a product with this scale, underflow aside: powers of two are exact.
fn rounding(scale: f64) -> f64 {
    if scale.to_bits() & ((1 << 52) - 1) == 0 { 0.0 } else { U }
}
