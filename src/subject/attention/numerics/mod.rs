//! The arithmetic contract of a kernel, written out in full. With the [recipe](super::recipe) of a row it explains every bit.

mod choice;
mod draw;
mod rule;

pub(crate) use choice::fields;
pub use choice::{
    Block, Context, Descale, Exp, Finish, GridAnchor, MaxInit, Merge, Order, Passes, Rescale, ScaleAt, Scope, Split, Store,
    SumOf, Traverse,
};
pub(super) use rule::MAX_SPLITS;
pub use rule::{BlockRule, Launch, SplitRule};

use super::plan::ContextParallel;
use crate::input_error::unknown;
use crate::number::Dtype;

/// q.k.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Order over the head dim.
    pub order: Order,
    /// Fused multiply-add (no effect under `fused(w)`, whose products are exact).
    pub fma: bool,
    /// Accumulator: every product and sum is rounded to f32 and then to this.
    pub acc: Dtype,
    /// Format in which finished scores are kept (after scale, softcap and bias; under `folded_log2e` without either, the raw dot).
    pub store: Dtype,
    /// Where the scale enters.
    pub scale: ScaleAt,
}

/// The softmax loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    /// Online or two-pass.
    pub passes: Passes,
    /// Block length.
    pub block: Block,
    /// Order of blocks.
    pub traverse: Traverse,
    /// Lazy rescale.
    pub rescale: Rescale,
    /// Row or tile.
    pub scope: Scope,
    /// The exponential.
    pub exp: Exp,
    /// Initial maximum.
    pub max_init: MaxInit,
}

/// The weights as the PV product sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probs {
    /// Format before PV.
    pub dtype: Dtype,
    /// Divided by the row sum first (needs `two_pass` and no split).
    pub normalised: bool,
}

/// The row sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rowsum {
    /// Order inside a block; block sums are added to the running sum.
    pub order: Order,
    /// Accumulator.
    pub acc: Dtype,
    /// What is added.
    pub of: SumOf,
}

/// P.V.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// Order over keys inside a block. `sequential` adds straight into the running accumulator.
    pub order: Order,
    /// Fused multiply-add.
    pub fma: bool,
    /// Accumulator.
    pub acc: Dtype,
}

/// Keys and values in an 8-bit format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kv {
    /// Where their scales enter.
    pub descale: Descale,
}

/// Block and split grid, and the merge of partial results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Where it starts.
    pub anchor: GridAnchor,
    /// Splits.
    pub split: Split,
    /// Merge order.
    pub merge: Merge,
    /// Format of a partial's log-sum-exp.
    pub lse_dtype: Dtype,
    /// Format of a partial's normalised output.
    pub partial_dtype: Dtype,
    /// How context-parallel ranks work together.
    pub context: Context,
}

impl Grid {
    /// Whether results pass through partials, even a single one, in a call of these ranks.
    pub fn has_partials(&self, ranks: Option<ContextParallel>) -> bool {
        let by_rank = ranks.is_some() && matches!(self.context, Context::GatherPartials | Context::RingLse);
        self.split != Split::None || by_rank
    }

    /// How partials are merged in a call of these ranks: around a ring one after the other, whatever `grid.merge` says.
    pub fn merge_under(&self, ranks: Option<ContextParallel>) -> Merge {
        match self.context {
            Context::RingLse if ranks.is_some() => Merge::Sequential,
            _ => self.merge,
        }
    }
}

/// The arithmetic contract of an attention kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numerics {
    /// `kv.*`
    pub kv: Kv,
    /// `score.*`
    pub score: Score,
    /// `softmax.*`
    pub softmax: Softmax,
    /// `probs.*`
    pub probs: Probs,
    /// `rowsum.*`
    pub rowsum: Rowsum,
    /// `value.*`
    pub value: Value,
    /// `grid.*`
    pub grid: Grid,
    /// `finish`
    pub finish: Finish,
    /// `store`
    pub store: Store,
}

/// One table for reading, writing and listing the fields.
macro_rules! numerics_fields {
    ($($name:literal => $($path:ident).+ as $kind:ident, $values:literal;)+) => {
        impl Numerics {
            /// Field names, in canonical order.
            pub const FIELDS: &[&str] = &[$($name),+];

            /// The value of a field as text; `None` for an unknown name.
            pub fn get(&self, field: &str) -> Option<String> {
                match field {
                    $($name => Some(self.$($path).+.to_string()),)+
                    _ => None,
                }
            }

            /// The fields in which two numerics differ, in canonical order.
            pub fn differing(&self, other: &Numerics) -> impl Iterator<Item = &'static str> + use<> {
                [$((self.$($path).+ != other.$($path).+).then_some($name)),+].into_iter().flatten()
            }

            /// The values a field may have, in words; `None` for an unknown name.
            pub fn values(field: &str) -> Option<&'static str> {
                match field {
                    $($name => Some($values),)+
                    _ => None,
                }
            }

            /// Sets a field from text. Does not check fields against each other: see [`Numerics::validate`].
            ///
            /// # Errors
            /// The reason, naming the allowed values, or the nearest field name.
            pub fn set(&mut self, field: &str, value: &str) -> Result<(), String> {
                match field {
                    $($name => self.$($path).+ = numerics_fields!(@parse $kind, value)?,)+
                    _ => return Err(unknown("field", field, Self::FIELDS)),
                }
                Ok(())
            }
        }
    };
    (@parse wide, $value:expr) => { wide_dtype($value) };
    (@parse text, $value:expr) => { $value.parse() };
    (@parse flag, $value:expr) => { flag($value) };
}

numerics_fields! {
    "kv.descale" => kv.descale as text, "on_load, folded";
    "score.order" => score.order as text, "sequential, lanes(n), pairwise, fused(n)";
    "score.fma" => score.fma as flag, "true, false";
    "score.acc" => score.acc as wide, "f32, bf16, f16";
    "score.store" => score.store as wide, "f32, bf16, f16";
    "score.scale" => score.scale as text, "on_query, on_score, folded_log2e";
    "softmax.passes" => softmax.passes as text, "online, two_pass";
    "softmax.block" => softmax.block as text, "whole, a length, or rule(fa3), rule(fa3-one-wg), rule(fa3-fp8)";
    "softmax.traverse" => softmax.traverse as text, "forward, backward";
    "softmax.rescale" => softmax.rescale as text, "always, threshold(x)";
    "softmax.scope" => softmax.scope as text, "row, tile";
    "softmax.exp" => softmax.exp as text, "correctly_rounded, exp2_poly(2..8)";
    "softmax.max_init" => softmax.max_init as text, "-inf, or a number";
    "probs.dtype" => probs.dtype as wide, "f32, bf16, f16";
    "probs.normalised" => probs.normalised as flag, "true, false (needs two_pass and no split)";
    "rowsum.order" => rowsum.order as text, "sequential, lanes(n), pairwise, fused(n)";
    "rowsum.acc" => rowsum.acc as wide, "f32, bf16, f16";
    "rowsum.of" => rowsum.of as text, "p, rounded_p";
    "value.order" => value.order as text, "sequential, lanes(n), pairwise, fused(n)";
    "value.fma" => value.fma as flag, "true, false";
    "value.acc" => value.acc as wide, "f32, bf16, f16";
    "grid.anchor" => grid.anchor as text, "sequence, buffer, uncached";
    "grid.split" => grid.split as text, "none, fixed_size(n), fixed_count(n), cache_boundary, rule(occupancy,sms)";
    "grid.merge" => grid.merge as text, "sequential, tree";
    "grid.lse_dtype" => grid.lse_dtype as wide, "f32, bf16, f16";
    "grid.partial_dtype" => grid.partial_dtype as wide, "f32, bf16, f16";
    "grid.context" => grid.context as text, "all_gather, gather_partials, ring_state, ring_lse";
    "finish" => finish as text, "divide, reciprocal";
    "store" => store as text, "rne, truncate";
}

fn wide_dtype(text: &str) -> Result<Dtype, String> {
    match text.parse() {
        Ok(dtype @ (Dtype::F32 | Dtype::F16 | Dtype::BF16)) => Ok(dtype),
        _ => Err(format!("`{text}` is not one of f32, bf16, f16")),
    }
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("`{text}` is neither true nor false"))
}

impl Numerics {
    /// Checks fields against each other.
    ///
    /// # Errors
    /// The first conflict, naming both fields.
    pub fn validate(&self) -> Result<(), String> {
        if self.probs.normalised && (self.softmax.passes != Passes::TwoPass || self.grid.split != Split::None) {
            return Err("probs.normalised=true needs softmax.passes=two_pass and grid.split=none".into());
        }
        if self.softmax.scope == Scope::Tile && self.softmax.passes == Passes::TwoPass {
            return Err("softmax.scope=tile needs softmax.passes=online: two passes never rescale".into());
        }
        if self.grid.context != Context::AllGather {
            let plain = self.grid.anchor == GridAnchor::Sequence && self.grid.split != Split::CacheBoundary;
            if !plain || self.probs.normalised || self.softmax.scope == Scope::Tile {
                return Err("grid.context other than all_gather needs grid.anchor=sequence, a split other than cache_boundary, \
                            probs.normalised=false and softmax.scope=row"
                    .into());
            }
        }
        if self.grid.context == Context::RingState && (self.grid.split != Split::None || self.softmax.passes != Passes::Online) {
            return Err("grid.context=ring_state needs grid.split=none and softmax.passes=online: one state goes round".into());
        }
        Ok(())
    }
}
