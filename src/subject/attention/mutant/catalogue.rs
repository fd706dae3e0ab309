//! The list.

use super::{CauseKind, Entry};

macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $value:expr),* $(,)? })*) => {
        /// A planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// All of them, in the order of the catalogue.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name),*];

            /// What is known of it.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Mutant::$name => const { &Entry { $($field: $value),* } },)*
                }
            }
        }
    };
}

catalogue! {
    /// Causal limit anchored top-left.
    CausalTopLeft {
        id: "A-M1",
        source: "NVIDIA/cutlass#2336",
        edit: "the causal limit is j <= i instead of j <= i + (kv - q)",
        silent: "q = kv, or no bottom-right causal mask",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M1.case"),
    }
    /// Padding lanes get the softcap.
    PaddingBeforeSoftcap {
        id: "A-M2",
        source: "ggml-org/llama.cpp#29034",
        edit: "lanes behind the last key are set to -inf before the softcap instead of after it, so that each counts with the score -cap",
        silent: "no softcap, a mask or ALiBi given (it sets the lanes to -inf again), or kv a multiple of the tile",
        cause: CauseKind::Semantics,
        settings: &[("softmax.block", "4")],
        smallest: include_str!("../../../../corpora/mutants/A-M2.case"),
    }
    /// A page allocated ahead is taken for a full one.
    PageAheadCounted {
        id: "A-M3",
        source: "pegainfer-project/pegainfer#291, Dao-AILab/flash-attention#2374",
        edit: "the length is (pages - 1) * page + last_page_len with a page list that may hold a page allocated ahead: one page too many is read",
        silent: "a cache without pages, or no page allocated ahead, or kv never a multiple of the page",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M3.case"),
    }
    /// The window shows one key more.
    WindowOneMore {
        id: "A-M4",
        source: "huggingface/transformers#39408",
        edit: "a window of w keys is handed to a kernel whose left bound is inclusive: w + 1 keys are visible",
        silent: "no left window, or one that reaches the first key",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M4.case"),
    }
    /// The window does not count the row itself.
    WindowOneLess {
        id: "A-M5",
        source: "microsoft/onnxruntime#25927",
        edit: "the row's own key takes one place of a window that should hold it besides: one key too few is visible",
        silent: "no left window, or one that reaches beyond the first key",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M5.case"),
    }
    /// ALiBi off during decode.
    AlibiOverQueryLength {
        id: "A-M6",
        source: "keras-team/keras-hub#2861",
        edit: "the bias is built over the query length instead of the cache length: a call with fewer rows than keys adds zeros",
        silent: "no ALiBi, or calls in which the longest q is at least the longest kv",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M6.case"),
    }
    /// The head map uses the group size for the number of KV heads.
    HeadMapByGroupSize {
        id: "A-M7",
        source: "HazyResearch/HipKittens#22",
        edit: "heads are numbered (n % G) * G + n / G with the group size G as modulus and stride, where the modulus should be the number of KV heads",
        silent: "one KV head, groups of one, or as many KV heads as query heads in a group",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M7.case"),
    }
    /// An unbounded window is read as a number.
    WindowSentinelLiteral {
        id: "A-M8",
        source: "NVIDIA/TransformerEngine#3528",
        edit: "a causal call passes the window (-1, 0); -1 is taken for a bound instead of for none, and no row sees a key",
        silent: "no causal mask, or a left window given",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M8.case"),
    }
    /// Values of unused slots are multiplied with 0.
    UnusedValueSlots {
        id: "A-M9",
        source: "Dao-AILab/flash-attention#2374, Dao-AILab/flash-attention#1745",
        edit: "the V tile is loaded whole: slots of the page or cache row behind the last key enter the product with weight 0",
        silent: "kv a multiple of the tile, no slot behind the last key, or finite values there",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M9.case"),
    }
    /// The mask reaches the first head only.
    MaskOfFirstHead {
        id: "A-M10",
        source: "tracel-ai/burn#4778",
        edit: "a mask that should be broadcast over the heads is applied to head 0 of a call; every other head sees all keys",
        silent: "one query head in each call, or no mask",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M10.case"),
    }
    /// ALiBi distances of the paged kernel are one too large.
    PagedAlibiOneMore {
        id: "A-M11",
        source: "vllm-project/vllm#945",
        edit: "the paged kernel measures ALiBi distances from the position behind the row's own",
        silent: "no ALiBi, or a cache without pages",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M11.case"),
    }
    /// The last tile is dropped where it is not full.
    TailTileDropped {
        id: "A-M12",
        source: "pytorch/pytorch#159247, pytorch/pytorch#133717",
        edit: "the number of KV tiles is kv / tile instead of its ceiling, but at least 1: keys behind the last full tile are not read",
        silent: "kv below the tile, or a multiple of it",
        cause: CauseKind::Semantics,
        settings: &[("softmax.block", "128")],
        smallest: include_str!("../../../../corpora/mutants/A-M12.case"),
    }
    /// A window without a causal mask is ignored.
    WindowNeedsCausal {
        id: "A-M13",
        source: "jax-ml/jax#32300",
        edit: "the window is applied inside the branch that handles the causal limit: a call that is not causal sees all keys",
        silent: "a causal mask, or no window, or one that reaches all keys",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M13.case"),
    }
    /// A chunk of prefill does not see the chunks before it.
    SecondChunkLosesHistory {
        id: "A-M14",
        source: "sgl-project/sglang#22020",
        edit: "a paged call with several rows and no prefix-cache hit is taken for a first chunk: only the keys it brings itself are read",
        silent: "a cache without pages, one row in each call, or no keys before the call's rows without a prefix-cache hit",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M14.case"),
    }
    /// A last tile of one key is not read.
    TailOfOneKeyDropped {
        id: "A-M15",
        source: "pytorch/pytorch#191937",
        edit: "under a mask, with bf16 keys, kv % 32 = 1 and kv above 32, the last key is not read",
        silent: "kv % 32 other than 1, kv = 1, no mask, or keys in another format",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M15.case"),
    }
    /// ALiBi slopes are indexed by KV head.
    SlopesByKvHead {
        id: "A-M16",
        source: "own reading: a kernel whose blocks go over KV heads takes its slope by blockIdx, as it takes K and V",
        edit: "query head h takes the slope of head h / group size",
        silent: "no ALiBi, groups of one, or equal slopes",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M16.case"),
    }
    /// One of three paths lacks the sink.
    SinkMissingBetweenPaths {
        id: "A-M17",
        source: "kekzl/imp#1303",
        edit: "short rows and rows of 256 keys and more have code of their own; the path between, at 49 to 255 keys, leaves the sink out",
        silent: "no sinks, or kv below 49 or above 255",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M17.case"),
    }
    /// Context-parallel ranks share out whole chunks only.
    ContextTailDropped {
        id: "A-M18",
        source: "NVIDIA/TransformerEngine#3331",
        edit: "the lengths of ranks are kv / chunks, rounded down: the keys of the rest belong to nobody",
        silent: "one rank, or kv a multiple of the number of chunks",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/A-M18.case"),
    }
    /// The first tile is that of the last row's window.
    WindowOfLastRow {
        id: "A-M19",
        source: "own reading: the lower bound of the KV loop of a windowed flash kernel, taken from the wrong end of the row tile",
        edit: "the KV loop begins at the tile in which the window of the row tile's last row begins, instead of its first row's",
        silent: "no left window, row tiles of one row, or windows that begin in the same tile",
        cause: CauseKind::Semantics,
        settings: &[("softmax.block", "16")],
        smallest: include_str!("../../../../corpora/mutants/A-M19.case"),
    }
    /// The split count follows the longest sequence of the batch.
    SplitsOfBatchMax {
        id: "B-M1",
        source: "Dao-AILab/flash-attention#1570, flashinfer-ai/flashinfer#696",
        edit: "the number of splits is that of the longest kv of the batch instead of the row's own; a row whose own number is another is cut evenly into as many",
        silent: "one sequence, lengths with as many splits, or kv <= 2",
        cause: CauseKind::Order,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/B-M1.case"),
    }
    /// Another tile where every sequence has one row.
    TileOfBatchMaxQ {
        id: "B-M2",
        source: "vllm-project/vllm#51902, vllm-project/flash-attention#169",
        edit: "a batch whose longest q is 1 runs in tiles of 64 keys, any other in tiles of 32",
        silent: "kv <= 32, or a longer q in every call",
        cause: CauseKind::Blocking,
        settings: &[("softmax.block", "32")],
        smallest: include_str!("../../../../corpora/mutants/B-M2.case"),
    }
    /// The split grid begins at the uncached part.
    SplitsFromUncached {
        id: "B-M4",
        source: "sgl-project/sglang#10721",
        edit: "splits of a fixed size are counted from the end of the prefix-cache hit instead of from position 0",
        silent: "no prefix hit, hits of whole splits, or kv <= 2",
        cause: CauseKind::Order,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/B-M4.case"),
    }
    /// The order of q.k follows the number of rows.
    DotOrderByRows {
        id: "B-M5",
        source: "vllm-project/vllm#34046, vllm-project/vllm#33123",
        edit: "a call with one row adds up head_dim in 8 lanes (a GEMV), any other one after the other (a GEMM)",
        silent: "head_dim <= 2, or no call with one row",
        cause: CauseKind::Order,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/B-M5.case"),
    }
    /// The order of the merge follows the size of the call.
    MergeOrderByRows {
        id: "B-M6",
        source: "ROCm/rocm-systems#11661, NVIDIA/nccl#157",
        edit: "partial results are merged from the first to the last in calls of up to 8 rows, and from the last back to the first in larger ones",
        silent: "at most two splits, or calls of up to 8 rows",
        cause: CauseKind::Order,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/B-M6.case"),
    }
    /// Tiles are visited in the order of their pages in memory.
    PhysicalPageOrder {
        id: "B-M7",
        source: "pytorch/pytorch#182593",
        edit: "the tiles of a row are visited by ascending place in the cache instead of by position",
        silent: "one tile, or pages in ascending order",
        cause: CauseKind::Order,
        settings: &[("softmax.block", "4")],
        smallest: include_str!("../../../../corpora/mutants/B-M7.case"),
    }
    /// A prefix that all sequences share is a part of its own.
    SharedPrefixCascade {
        id: "B-M8",
        source: "vllm-project/vllm#32561",
        edit: "with several sequences in a call, all with a prefix-cache hit, the keys up to the shortest hit are computed apart and merged (cascade attention)",
        silent: "a call with one sequence, or with one that has no hit",
        cause: CauseKind::Order,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/B-M8.case"),
    }
    /// The split grid runs over the batch.
    SplitsOverBatch {
        id: "B-M9",
        source: "own reading: stream-K and persistent schedulers cut the keys of a whole batch into equal work items",
        edit: "splits of a fixed size are counted over the keys of all sequences of the call, one after the other",
        silent: "the sequences before have a multiple of the size in keys, all together",
        cause: CauseKind::Order,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/B-M9.case"),
    }
    /// No guard for a maximum that is still -inf.
    NoGuardOfMaximum {
        id: "C-M1",
        source: "pytorch/pytorch#127055",
        edit: "the rescale factor is exp(m_old - m_new) also while both are -inf, which is NaN",
        silent: "the first tile of every row has a visible key",
        cause: CauseKind::Blocking,
        settings: &[("softmax.block", "4")],
        smallest: include_str!("../../../../corpora/mutants/C-M1.case"),
    }
    /// Finite numbers for minus infinity.
    FiniteMaskAndMaximum {
        id: "C-M2",
        source: "flashinfer-ai/flashinfer#4267",
        edit: "masked keys inside a visited tile get the score -1e4, and the running maximum begins there",
        silent: "every visible score is above -1e4 + 104",
        cause: CauseKind::Precision,
        settings: &[("softmax.block", "4")],
        smallest: include_str!("../../../../corpora/mutants/C-M2.case"),
    }
    /// The combine step weighs base-2 lse as natural ones.
    MergeTakesBaseTwo {
        id: "C-M3",
        source: "vllm-project/vllm#47079, sgl-project/sglang#33064",
        edit: "partial outputs are weighed with exp of a log-sum-exp in base 2",
        silent: "one split, one split with keys and no sink, or equal masses",
        cause: CauseKind::Semantics,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/C-M3.case"),
    }
    /// Splits without a key are merged.
    EmptySplitsMerged {
        id: "C-M4",
        source: "vllm-project/vllm#28181, vllm-project/vllm#39148, flashinfer-ai/flashinfer#4051",
        edit: "splits that show the row no key are merged as (0, -inf) instead of skipped; two of them first make NaN",
        silent: "fewer than two splits without a key before the row's first",
        cause: CauseKind::Blocking,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/C-M4.case"),
    }
    /// A row without keys reports a finite lse.
    EmptyRowFiniteLse {
        id: "C-M5",
        source: "flashinfer-ai/flashinfer#4452, vllm-project/vllm#49294",
        edit: "a row without keys reports the finite number at which its maximum began, -5e4, instead of -inf",
        silent: "every row has a key or a sink",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/C-M5.case"),
    }
    /// A row without keys reports lse = +inf.
    EmptyRowPositiveLse {
        id: "C-M6",
        source: "Dao-AILab/flash-attention#978",
        edit: "a row without keys reports +inf instead of -inf",
        silent: "every row has a key or a sink",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/C-M6.case"),
    }
    /// An empty sequence writes the lse of another.
    EmptySequenceDenseLse {
        id: "C-M7",
        source: "Dao-AILab/flash-attention#2842",
        edit: "the early exit of a sequence without keys writes lse at b * max_seqlen_q, the offset of a padded batch, instead of at cu_seqlens_q[b]",
        silent: "padded calls, no sequence that has rows and no keys, or all before it as long as the longest",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/C-M7.case"),
    }
    /// A finite score for masked keys.
    FiniteMaskValue {
        id: "C-M8",
        source: "ohdearquant/lattice#361",
        edit: "masked keys inside a visited tile get the score -1e4 instead of -inf",
        silent: "every visible score is above -1e4 + 104, or no tile holds a masked key",
        cause: CauseKind::Semantics,
        settings: &[("softmax.block", "4")],
        smallest: include_str!("../../../../corpora/mutants/C-M8.case"),
    }
    /// The merge takes its maximum from the left alone.
    MergeWithoutMaximum {
        id: "C-M9",
        source: "zhuzilin/ring-flash-attention#30",
        edit: "lse = lse_a + log(1 + exp(lse_b - lse_a)): the exponential overflows where the later partial is the larger by 89",
        silent: "no later partial, the sink included, has a larger lse than those before it together",
        cause: CauseKind::Precision,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/C-M9.case"),
    }
    /// The threshold of the lazy rescale is in the wrong unit.
    LazyRescaleTooLate {
        id: "C-M10",
        source: "Dao-AILab/flash-attention#2067",
        edit: "the maximum is moved only when it rose by 127, the limit for exp2, where exponentials are natural: weights overflow from 89 on",
        silent: "one tile, or no row whose maximum rises by more than 8",
        cause: CauseKind::Precision,
        settings: &[("softmax.block", "4"), ("softmax.rescale", "threshold(8)")],
        smallest: include_str!("../../../../corpora/mutants/C-M10.case"),
    }
    /// The maximum is taken before the mask.
    MaximumOfMaskedKeys {
        id: "C-M11",
        source: "own reading: a mask applied to P instead of S",
        edit: "masked keys inside a visited tile count in the row maximum, and get the weight 0 afterwards",
        silent: "no masked key of a visited tile has a larger score than the visible keys up to that tile",
        cause: CauseKind::Precision,
        settings: &[("softmax.block", "4")],
        smallest: include_str!("../../../../corpora/mutants/C-M11.case"),
    }
    /// Every split adds the sink.
    SinkInEverySplit {
        id: "C-M12",
        source: "own reading: the sink moved from the epilogue into the split kernel, whose partials are merged",
        edit: "the sink joins the denominator once for each split with keys",
        silent: "no sinks, or at most one split with keys",
        cause: CauseKind::Semantics,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/C-M12.case"),
    }
    /// Fast-math removes the guard of masked rows.
    NoGuardOfEmptyRow {
        id: "C-M13",
        source: "ROCm/TransformerEngine#69",
        edit: "the test for a row whose keys are all masked is compiled away (no infinities): its results are 0 / 0",
        silent: "every row of a sequence with keys sees one, or sinks",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/C-M13.case"),
    }
    /// The store cuts off instead of rounding.
    TruncatedStore {
        id: "D-M1",
        source: "triton-lang/triton#11217",
        edit: "the store drops the low bits instead of rounding to nearest even",
        silent: "results that the output format holds exactly, and f32 outputs",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M1.case"),
    }
    /// Split partials are kept in bf16.
    RoundedPartials {
        id: "D-M2",
        source: "vllm-project/vllm-xpu-kernels#204",
        edit: "with several splits the partial output is divided by the local sum and stored in bf16; the combine step multiplies the sum back",
        silent: "one split with keys, or partial means that bf16 holds exactly",
        cause: CauseKind::Precision,
        settings: &[("grid.split", "fixed_size(4)")],
        smallest: include_str!("../../../../corpora/mutants/D-M2.case"),
    }
    /// The exponent in one fused multiply-add.
    FusedExponent {
        id: "D-M3",
        source: "pytorch/pytorch#121558, deepseek-ai/FlashMLA#68",
        edit: "the exponent is fma(s, scale, -round(m * scale)): m * scale is rounded, s * scale is not",
        silent: "raw scores that are 0 or a power of two",
        cause: CauseKind::Precision,
        settings: &[("score.scale", "folded_log2e")],
        smallest: include_str!("../../../../corpora/mutants/D-M3.case"),
    }
    /// Scores are kept in the storage format.
    ScoresInStorageFormat {
        id: "D-M4",
        source: "huggingface/transformers#33317",
        edit: "q.k is stored in the 16-bit format of q before the softmax",
        silent: "f32 storage, or scores that the format holds exactly",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M4.case"),
    }
    /// P.V is accumulated in f16.
    HalfAccumulator {
        id: "D-M5",
        source: "ikawrakow/ik_llama.cpp#1196",
        edit: "the unnormalised sum of P * V is kept in f16 and overflows at 65504",
        silent: "every sum is exact in f16, as with one key and f16 values",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M5.case"),
    }
    /// q.k of f32 tensors in TF32.
    ReducedMantissaDot {
        id: "D-M6",
        source: "pytorch/pytorch#161022",
        edit: "f32 queries and keys lose all but 10 bits of their mantissas before they are multiplied",
        silent: "16-bit queries, or numbers of at most 11 significant bits",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M6.case"),
    }
    /// Subnormal keys and values are flushed.
    SubnormalsFlushed {
        id: "D-M7",
        source: "ggml-org/llama.cpp#7843, antirez/gguf-tools#16",
        edit: "keys and values below 2^-126 become zeros as they are converted to f32",
        silent: "f16 and 8-bit storage, or no subnormal numbers",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M7.case"),
    }
    /// An index product wraps.
    IndexWraps {
        id: "D-M8",
        source: "Dao-AILab/flash-attention#2260, facebookresearch/xformers#719",
        edit: "slot * stride, in elements of the K or V tensor, is a 16-bit product before it is widened",
        silent: "slot * stride below 65536 for every slot",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M8.case"),
    }
    /// Scales of an 8-bit cache never arrive.
    KvScalesIgnored {
        id: "D-M9",
        source: "flashinfer-ai/flashinfer#4979, flashinfer-ai/flashinfer#1023, vllm-project/vllm#42580",
        edit: "stored keys and values are used without their scales",
        silent: "no 8-bit keys and values, or scales of 1",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M9.case"),
    }
    /// E4M3 is read as its FNUZ variant.
    FnReadAsFnuz {
        id: "D-M10",
        source: "vllm-project/vllm#45720",
        edit: "patterns of e4m3fn are decoded as e4m3fnuz: half the number, and NaN for -0",
        silent: "keys and values in another format, or zeros of positive sign alone",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M10.case"),
    }
    /// -0 of an E4M3 cache is NaN.
    NegativeZeroIsNan {
        id: "D-M11",
        source: "own reading: a conversion from e4m3fn to e4m3fnuz that doubles the scale, and forgets that the pattern of -0 is NaN there",
        edit: "keys and values of -0 become NaN",
        silent: "keys and values in another format than e4m3, or no -0 among them",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M11.case"),
    }
    /// Ties round away from zero.
    StoreTiesAway {
        id: "D-M12",
        source: "hw-native-sys/pypto-lib#844",
        edit: "the bf16 store adds 0x8000 and drops the low half: ties go away from zero instead of to even",
        silent: "no result halfway between two bf16 numbers, or outputs in another format",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M12.case"),
    }
    /// P is cut off on its way to bf16.
    TruncatedWeights {
        id: "D-M13",
        source: "own reading: a packed conversion that takes the upper halves (PRMT) in place of a rounding one, as ROCm/flash-attention#78 replaced",
        edit: "weights drop their low 16 bits instead of rounding to the nearest bf16",
        silent: "weights that bf16 holds exactly, as with equal scores",
        cause: CauseKind::Precision,
        settings: &[("probs.dtype", "bf16")],
        smallest: include_str!("../../../../corpora/mutants/D-M13.case"),
    }
    /// tanh of 11 bits.
    CoarseTanh {
        id: "D-M14",
        source: "own reading: tanh.approx.f32, relative error 2^-11, in the softcap of a kernel that declares a correct one",
        edit: "the softcap keeps 11 significant bits of tanh",
        silent: "no softcap, ALiBi, or scores of 0",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M14.case"),
    }
    /// Subnormal weights are flushed.
    SubnormalWeightsFlushed {
        id: "D-M15",
        source: "own reading: ex2.approx.ftz.f32, and the flag for flushing that iree-org/iree#22041 sets",
        edit: "exponentials below 2^-126 become 0",
        silent: "every score is within 87 of the row maximum as it stands",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: include_str!("../../../../corpora/mutants/D-M15.case"),
    }
}
