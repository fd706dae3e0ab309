//! Named numerics: the default, and what published kernels do.

use crate::number::Dtype;
use crate::subject::attention::numerics::{
    Block, Exp, Finish, Grid, GridAnchor, MaxInit, Merge, Numerics, Order, Passes, Probs, Rescale, Rowsum, ScaleAt, Scope, Score,
    Softmax, Split, Store, SumOf, Traverse, Value,
};

/// A named set of numerics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// As in `ref:<name>`.
    pub name: &'static str,
    /// One line on what it is and where it comes from.
    pub about: &'static str,
    /// The numerics.
    pub numerics: Numerics,
}

/// Everything in f32, in position order, on a grid from the sequence's first token: equal on every plan.
pub const ALIGNED: Numerics = Numerics {
    score: Score { order: Order::Sequential, fma: false, acc: Dtype::F32, store: Dtype::F32, scale: ScaleAt::OnScore },
    softmax: Softmax {
        passes: Passes::Online,
        block: Block::Size(64),
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
        split: Split::None,
        merge: Merge::Sequential,
        lse_dtype: Dtype::F32,
        partial_dtype: Dtype::F32,
    },
    finish: Finish::Divide,
    store: Store::Rne,
};

const FIXED_SPLIT: Numerics = Numerics { grid: Grid { split: Split::FixedSize(64), ..ALIGNED.grid }, ..ALIGNED };

/// All presets, the default first.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "aligned",
        about: "f32 throughout, blocks of 64 from the sequence's first token, no split: the same bits on every plan (the default)",
        numerics: ALIGNED,
    },
    Preset {
        name: "naive",
        about: "textbook softmax: the whole row at once, weights divided by their sum before the product with V (PyTorch's math backend)",
        numerics: Numerics {
            softmax: Softmax { passes: Passes::TwoPass, block: Block::Whole, ..ALIGNED.softmax },
            probs: Probs { normalised: true, ..ALIGNED.probs },
            ..ALIGNED
        },
    },
    Preset {
        name: "fa2",
        about: "FlashAttention 2: key blocks of 128 (flash_fwd_launch_template.h, head dims 32 and 64), last to first, folded log2 e with \
                fused multiply-add (softmax.h), P in bf16, row sum in f32, one reciprocal at the end",
        numerics: Numerics {
            score: Score { scale: ScaleAt::FoldedLog2e, fma: true, ..ALIGNED.score },
            softmax: Softmax { block: Block::Size(128), traverse: Traverse::Backward, ..ALIGNED.softmax },
            probs: Probs { dtype: Dtype::BF16, ..ALIGNED.probs },
            finish: Finish::Reciprocal,
            ..ALIGNED
        },
    },
    Preset {
        name: "fixed-split",
        about: "splits of 64 keys from position 0, merged left to right: what deterministic serving does with 2048 or 4096, small enough \
                to show at short lengths",
        numerics: FIXED_SPLIT,
    },
    Preset {
        name: "uncached-split",
        about: "as fixed-split, but the grid starts at the first token after the prefix-cache hit (sglang#10721, a known bug)",
        numerics: Numerics { grid: Grid { anchor: GridAnchor::Uncached, ..FIXED_SPLIT.grid }, ..FIXED_SPLIT },
    },
    Preset {
        name: "ascend-two-pass",
        about: "an Ascend C deterministic attention: 64-key tiles, first the maximum, then row sum and PV; no split, f32 inside",
        numerics: Numerics { softmax: Softmax { passes: Passes::TwoPass, ..ALIGNED.softmax }, ..ALIGNED },
    },
    Preset {
        name: "p-bf16",
        about: "aligned with the weights rounded to bf16 before the product with V (as tensor-core kernels must)",
        numerics: Numerics { probs: Probs { dtype: Dtype::BF16, ..ALIGNED.probs }, ..ALIGNED },
    },
    Preset {
        name: "acc-bf16",
        about: "aligned with a bf16 accumulator in the product with V (the 16-bit accumulator class of ik_llama.cpp#1196)",
        numerics: Numerics { value: Value { acc: Dtype::BF16, ..ALIGNED.value }, ..ALIGNED },
    },
    Preset {
        name: "scores-bf16",
        about: "aligned with the scores kept in bf16 (transformers#33317)",
        numerics: Numerics { score: Score { store: Dtype::BF16, ..ALIGNED.score }, ..ALIGNED },
    },
    Preset {
        name: "folded-log2e",
        about: "aligned with exp2 and scale * log2 e folded into one factor (pytorch#121558 adds score.fma=true)",
        numerics: Numerics { score: Score { scale: ScaleAt::FoldedLog2e, ..ALIGNED.score }, ..ALIGNED },
    },
];

/// The preset of that name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The preset that differs from `numerics` in the fewest fields; the first of equals.
pub(super) fn closest(numerics: &Numerics) -> &'static Preset {
    PRESETS.iter().min_by_key(|preset| preset.numerics.differing(numerics).count()).unwrap_or(&PRESETS[0])
}

/// The fields in which `numerics` differs from `base`, with their values, in canonical order.
pub(super) fn changed(base: &Numerics, numerics: &Numerics) -> Vec<(&'static str, String)> {
    base.differing(numerics).filter_map(|field| Some((field, numerics.get(field)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_and_distinct() {
        for (n, preset) in PRESETS.iter().enumerate() {
            preset.numerics.validate().unwrap();
            assert!(PRESETS[..n].iter().all(|other| other.name != preset.name && other.numerics != preset.numerics));
            assert_eq!(closest(&preset.numerics).name, preset.name);
        }
    }
}
