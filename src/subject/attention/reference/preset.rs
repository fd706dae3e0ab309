//! Named numerics: the default, and what published kernels do.

use crate::number::Dtype;
use crate::subject::attention::numerics::{
    Block, BlockRule, Context, Descale, Exp, Finish, Grid, GridAnchor, Kv, MaxInit, Merge, Numerics, Order, Passes, Probs,
    Rescale, Rowsum, ScaleAt, Scope, Score, Softmax, Split, SplitRule, Store, SumOf, Traverse, Value,
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
    kv: Kv { descale: Descale::OnLoad },
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
        context: Context::AllGather,
    },
    finish: Finish::Divide,
    store: Store::Rne,
};

/// Splits of one size from position 0; partials of ranks are merged by their place in the sequence, as those of splits are.
const fn fixed_split(size: u32) -> Numerics {
    Numerics { grid: Grid { split: Split::FixedSize(size), context: Context::GatherPartials, ..ALIGNED.grid }, ..ALIGNED }
}

const FA2: Numerics = Numerics {
    score: Score { scale: ScaleAt::FoldedLog2e, fma: true, ..ALIGNED.score },
    softmax: Softmax { block: Block::Size(128), traverse: Traverse::Backward, ..ALIGNED.softmax },
    probs: Probs { dtype: Dtype::BF16, ..ALIGNED.probs },
    finish: Finish::Reciprocal,
    ..ALIGNED
};

/// FlashAttention 3 keeps the softmax of FlashAttention 2 (hopper/softmax.h) and picks its tiles by a rule.
const fn fa3(rule: BlockRule) -> Numerics {
    Numerics { softmax: Softmax { block: Block::Rule(rule), ..FA2.softmax }, ..FA2 }
}

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
        numerics: FA2,
    },
    Preset {
        name: "fa3",
        about: "FlashAttention 3 on sm_90, 16-bit (hopper/tile_size.h, flash_api.cpp): the KV tile follows from head dim, mask, pages \
                and whether the batch decodes; otherwise as fa2",
        numerics: fa3(BlockRule::Fa3),
    },
    Preset {
        name: "fa3-one-wg",
        about: "fa3 with the one-warp-group kernels of serving builds (vllm-project/flash-attention#63): another tile while the batch's \
                longest entry has at most 64 rows times heads per KV head",
        numerics: fa3(BlockRule::Fa3OneWg),
    },
    Preset {
        name: "fa3-fp8kv",
        about: "fa3 with the tiles of its 8-bit kernels (for every format of KV) and folded scales: at head dim 128, 96 in decode and \
                224 in prefill",
        numerics: Numerics { kv: Kv { descale: Descale::Folded }, ..fa3(BlockRule::Fa3Fp8) },
    },
    Preset {
        name: "flash-decoding",
        about: "aligned with blocks of 128 and as many splits as keep 132 SMs busy (num_splits_heuristic of hopper/heuristics.h): the \
                count follows the batch",
        numerics: Numerics {
            softmax: Softmax { block: Block::Size(128), ..ALIGNED.softmax },
            grid: Grid { split: Split::Rule(SplitRule::Occupancy, 132), ..ALIGNED.grid },
            ..ALIGNED
        },
    },
    Preset {
        name: "fixed-split",
        about: "splits of 64 keys from position 0, merged left to right: what deterministic serving does with 2048 or 4096, small enough \
                to show at short lengths",
        numerics: fixed_split(64),
    },
    Preset {
        name: "fixed-split-2048",
        about: "splits of 2048 keys from position 0: decode in sglang's deterministic mode on FlashInfer (sglang#10645)",
        numerics: fixed_split(2048),
    },
    Preset {
        name: "fixed-split-4096",
        about: "splits of 4096 keys from position 0: prefill in that mode",
        numerics: fixed_split(4096),
    },
    Preset {
        name: "uncached-split",
        about: "as fixed-split, but the grid starts at the first token after the prefix-cache hit (sglang#10721, a known bug)",
        numerics: Numerics {
            grid: Grid { split: Split::FixedSize(64), anchor: GridAnchor::Uncached, ..ALIGNED.grid },
            ..ALIGNED
        },
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
