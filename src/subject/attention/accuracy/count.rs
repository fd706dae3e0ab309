//! How often a key is rounded, rescaled and merged under given numerics, at most.

use super::super::numerics::{
    Block, Context, Descale, Exp, Finish, Grid, GridAnchor, Kv, MAX_SPLITS, MaxInit, Merge, Numerics, Order, Passes, Probs,
    Rescale, Rowsum, ScaleAt, Scope, Score, Softmax, Split, Store, SumOf, Traverse, Value,
};
use super::Facts;
use crate::number::Dtype;
use core_math::{exp, log, log1p};

/// f32's unit roundoff.
pub(super) const U: f64 = 5.960_464_477_539_063e-8;
/// Half of f32's least subnormal.
pub(super) const ETA: f64 = 7.006_492_321_624_085e-46;
/// Absorbs the f64 rounding inside `fused(w)` sums (at most 65 * 2^-53 beside an `u` of 2^-24).
const FUSED: f64 = 1.0 + 1.0 / (1 << 20) as f64;

/// Error of one step that is rounded to f32 and then to `dtype`: relative, and absolute where it underflows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub relative: f64,
    pub tiny: f64,
}

pub(super) fn step(dtype: Dtype) -> Step {
    let extra = round(dtype);
    Step { relative: (U + extra.relative + U * extra.relative) * FUSED, tiny: extra.tiny + 2.0 * ETA }
}

/// Error of rounding an f32 to `dtype`; none for F32.
pub(super) fn round(dtype: Dtype) -> Step {
    match dtype {
        Dtype::F32 => Step { relative: 0.0, tiny: 0.0 },
        _ => Step { relative: dtype.unit_roundoff(), tiny: dtype.least_subnormal() / 2.0 },
    }
}

/// The range of a product of factors `1 + d`, kept as logarithms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Factors {
    up: f64,
    down: f64,
}

impl Factors {
    /// Multiplies by `count` factors with `|d| <= u`. `count * u >= 1` makes the product unbounded.
    pub fn times(&mut self, count: f64, u: f64) -> &mut Factors {
        if count * u >= 1.0 {
            *self = Factors { up: f64::INFINITY, down: f64::NEG_INFINITY };
        } else {
            self.up += count * log1p(u);
            self.down += count * log1p(-u);
        }
        self
    }

    /// The largest deviation from 1 (upwards: `(1+u)^n - 1 >= 1 - (1-u)^n`); infinite if unbounded.
    pub fn excess(self) -> f64 {
        core_math::expm1(self.up)
    }

    /// The least value; 0 if unbounded.
    pub fn least(self) -> f64 {
        exp(self.down)
    }
}

/// What is assumed of a kernel that declares nothing: f32 everywhere, any order, any block length, the largest of the costs of the
/// three places of the scale, an f32 combination of partial results (two of each context-parallel chunk), a reciprocal, and
/// [an exponential of 4 u](Counts::exp).
const UNDECLARED: Numerics = Numerics {
    kv: Kv { descale: Descale::OnLoad },
    score: Score { order: Order::Sequential, fma: false, acc: Dtype::F32, store: Dtype::F32, scale: ScaleAt::FoldedLog2e },
    softmax: Softmax {
        passes: Passes::Online,
        block: Block::Size(1),
        traverse: Traverse::Forward,
        rescale: Rescale::Always,
        scope: Scope::Row,
        exp: Exp::CorrectlyRounded,
        max_init: MaxInit::NegInf,
    },
    probs: Probs { dtype: Dtype::F32, normalised: false },
    rowsum: Rowsum { order: Order::Sequential, acc: Dtype::F32, of: SumOf::P },
    value: Value { order: Order::Sequential, fma: false, acc: Dtype::F32 },
    grid: Grid {
        anchor: GridAnchor::Sequence,
        split: Split::FixedCount(2),
        merge: Merge::Sequential,
        lse_dtype: Dtype::F32,
        partial_dtype: Dtype::F32,
        context: Context::GatherPartials,
    },
    finish: Finish::Reciprocal,
    store: Store::Rne,
};

/// Numerics with the counts that follow from them for at most so many keys and slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts<'a> {
    pub numerics: &'a Numerics,
    pub declared: bool,
    pub keys: f64,
    /// Products with a rescale factor in the softmax loop.
    pub rescales: f64,
    /// Whether results pass through partials, even a single one.
    pub partials: bool,
    /// Merges that a partial passes through, a sink's not included.
    pub merges: f64,
    /// How far a score may lie above the running maximum, in natural units.
    pub lag: f64,
    /// Relative error of one exponential, as an exponent.
    pub exp: f64,
    /// Error of the exponential's argument as a share of the argument.
    pub exp_argument: f64,
}

impl Counts<'_> {
    pub fn of<'a>(numerics: Option<&'a Numerics>, facts: &Facts) -> Counts<'a> {
        let (keys, slots) = (facts.keys, facts.slots);
        let n = numerics.unwrap_or(&UNDECLARED);
        let context = facts.context.filter(|_| n.grid.context != Context::AllGather);
        // Valid keys are contiguous; the last chunk holds whatever is left.
        let chunks =
            context.map_or(1, |it| (keys.saturating_sub(1) / it.length).saturating_add(2).min(it.chunks()).min(keys.max(1)));
        // Each chunk may cut short one block or split of those that would otherwise be full.
        let cut = |size: u32, chunks: u32| keys.div_ceil(size.max(1)).saturating_add(chunks).min(keys);
        // Chunks that one running state goes through.
        let held = match (context, n.grid.context) {
            (Some(_), Context::RingState) => chunks,
            // A rank's own, which are at most two; a rule may give no split.
            (Some(it), Context::RingLse) if matches!(n.grid.split, Split::None | Split::Rule(..)) => {
                chunks.min(it.chunks() / it.ranks)
            }
            _ => 1,
        };
        // Only cells that hold a valid key are visited.
        let blocks = match n.softmax.block {
            Block::Whole => held.min(keys),
            Block::Size(size) => cut(size, held),
            // Which call made a row is not known here.
            Block::Rule(rule) => cut(rule.shortest(), held),
        };
        let (splits, split_slots) = match (n.grid.split, context) {
            (Split::None, Some(it)) => match n.grid.context {
                Context::RingState => (1, 1),
                Context::RingLse => (chunks.min(it.ranks), chunks),
                Context::AllGather | Context::GatherPartials => (chunks, chunks),
            },
            (Split::None, None) => (1, 1),
            (Split::FixedSize(size), _) => {
                let size = size.max(1);
                let before =
                    context.map_or(0, |it| (it.chunks() - 1).min(slots / it.length).saturating_mul(it.length.div_ceil(size)));
                (cut(size, chunks), slots.div_ceil(size).saturating_add(1).saturating_add(before))
            }
            (Split::FixedCount(count), Some(it)) => (keys.min(count.saturating_mul(chunks)), count.saturating_mul(it.chunks())),
            // The grid may start before the first key (padding, a prefix), and then cuts one part more.
            (Split::FixedCount(count), None) => (keys.min(count.saturating_add(1)), count.saturating_add(2)),
            (Split::CacheBoundary, _) => (keys.min(2), 2),
            (Split::Rule(..), Some(it)) => (keys.min(MAX_SPLITS.saturating_mul(chunks)), MAX_SPLITS.saturating_mul(it.chunks())),
            (Split::Rule(..), None) => (keys.min(MAX_SPLITS + 1), MAX_SPLITS + 2),
        };
        let mut merges = f64::from(splits.max(1) - 1);
        if n.grid.merge_under(facts.context) == Merge::Tree {
            merges = merges.min(log2_ceil(split_slots));
        }
        let rescales = if n.softmax.passes == Passes::TwoPass { 0 } else { blocks.max(1) - 1 };
        let lag = match n.softmax.rescale {
            Rescale::Threshold(x) if n.softmax.passes == Passes::Online => f64::from(x) * 1.01,
            _ => 0.0,
        };
        let declared = numerics.is_some();
        let folded = n.score.scale == ScaleAt::FoldedLog2e;
        let (exp, exp_argument) = match n.softmax.exp {
            // CUDA's ex2.approx is within 2^-22.5 relative, the libms within 1 ulp.
            Exp::CorrectlyRounded if !declared => (4.0 * U, 1.5 * U),
            Exp::CorrectlyRounded => (U, 0.0),
            Exp::Exp2Poly(degree) => (polynomial(degree), if folded { 0.0 } else { 1.5 * U }),
        };
        Counts {
            numerics: n,
            declared,
            keys: f64::from(keys),
            rescales: f64::from(rescales),
            partials: n.grid.has_partials(facts.context),
            merges,
            lag,
            exp,
            exp_argument,
        }
    }

    pub fn folded(&self) -> bool {
        self.numerics.score.scale == ScaleAt::FoldedLog2e
    }
}

fn log2_ceil(n: u32) -> f64 {
    f64::from(32 - n.max(1).saturating_sub(1).leading_zeros())
}

/// Relative error, as an exponent, of `exp2` by a polynomial of this degree on [0, 1], without its argument's.
fn polynomial(degree: u32) -> f64 {
    let terms = degree + 1;
    let mut interpolation = 4.0;
    for i in 1..=terms {
        interpolation *= std::f64::consts::LN_2 / (4.0 * f64::from(i));
    }
    // All coefficients are positive and sum to nearly 2; each is rounded once and takes part in at most 2k roundings.
    let mut roundings = Factors::default();
    roundings.times(f64::from(2 * degree + 1), U);
    // `t - floor(t)` is exact but for t just below 0, where it rounds by at most u/2.
    let relative = interpolation + 2.1 * roundings.excess() + U;
    -log1p(-relative)
}

/// ln(n + 1), a bound on the logarithm of a sum of n weights of at most 1 and a sink's.
pub(super) fn log_keys(keys: f64) -> f64 {
    log(keys + 1.0)
}
