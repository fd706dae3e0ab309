//! Every weight and cap of the generator. In each list the first entry is the simplest: choice 0.

use super::Profile;
use crate::subject::attention::mask::Anchor;

/// How large a profile's cases get.
#[derive(Debug)]
pub(super) struct Caps {
    /// Positions of a typical sequence.
    pub typical_kv: u32,
    /// Positions of a sequence in the tail.
    pub tail_kv: u32,
    /// Sequences out of 16 that may reach the tail.
    pub tail_share: u32,
    /// Head-dim lanes, q.k and v each.
    pub d: u32,
    /// Query heads.
    pub q_heads: u32,
    /// Bounds on the multiply-adds of a case (sum of q * kv * q heads * (d_qk + d_v)), and how often each holds. The mean work of
    /// a case, and so cases per second, hangs on these.
    pub work: &'static [(u32, u64)],
}

impl Caps {
    pub(super) fn of(profile: Profile) -> &'static Caps {
        match profile {
            Profile::Quick => &CAPS[0],
            Profile::Mixed => &CAPS[1],
            Profile::Long => &CAPS[2],
        }
    }
}

/// Quick, mixed, long.
const CAPS: [Caps; 3] = [
    // A fuzzer gains more from ten small cases than from one large one.
    Caps { typical_kv: 24, tail_kv: 80, tail_share: 3, d: 16, q_heads: 4, work: &[(3, 1 << 14), (1, 1 << 17)] },
    // Most bugs show below 300 positions; 600 is past two blocks of every published kernel.
    Caps { typical_kv: 80, tail_kv: 600, tail_share: 3, d: 64, q_heads: 8, work: &[(8, 1 << 17), (6, 1 << 19), (2, 1 << 22)] },
    // Split sizes of serving engines are 2048 and 4096.
    Caps { typical_kv: 600, tail_kv: 8192, tail_share: 8, d: 8, q_heads: 2, work: &[(3, 1 << 19), (1, 1 << 22)] },
];

/// Steps that one request may take: each is a kernel call.
pub(super) const MAX_STEPS: u32 = 32;
/// Largest drawn page.
pub(super) const MAX_PAGE: u32 = 64;
/// Largest drawn span of `mirror`: pairs stay short, so that many rows see them closed.
pub(super) const MAX_SPAN: u32 = 64;

/// Sequences in a batch. Company matters from two on; the empty batch is a case of its own.
pub(super) const SEQUENCES: &[(u32, usize)] = &[(44, 1), (31, 2), (18, 3), (6, 4), (1, 0)];

/// (KV heads, query heads of each). Mostly not square: with equal numbers a swapped head map goes unseen (HipKittens#22).
pub(super) const HEADS: &[(u32, (u32, u32))] = &[
    (34, (1, 1)),
    (16, (2, 1)),
    (14, (1, 2)),
    (3, (2, 2)),
    (7, (1, 3)),
    (6, (3, 1)),
    (6, (2, 3)),
    (4, (3, 2)),
    (3, (1, 4)),
    (2, (4, 1)),
    (2, (2, 4)),
    (2, (4, 2)),
    (1, (1, 8)),
    (1, (8, 1)),
];

/// Head-dim lanes. Odd ones find lane-order mistakes, large ones cost without finding more.
pub(super) const DIMS: &[(u32, u32)] =
    &[(8, 1), (10, 2), (8, 3), (14, 4), (6, 5), (5, 7), (18, 8), (4, 9), (3, 12), (14, 16), (1, 17), (4, 32), (1, 33), (2, 64)];

/// The causal mask. More than one step, prefix hits and budgets need the bottom-right one, so it leads.
pub(super) const CAUSAL: &[(u32, Option<Anchor>)] = &[(15, None), (79, Some(Anchor::BottomRight)), (6, Some(Anchor::TopLeft))];

/// `n` in `m` cases have keys and values in an 8-bit format: where q is in 16 bits, and where it is in f32, which no serving
/// engine pairs with an 8-bit cache. One case in six in all: the scales meet every regime, layout and mask in a few thousand cases,
/// and the other formats lose little.
pub(super) const FP8: [(u32, u32); 2] = [(2, 9), (1, 16)];

/// Where the scales of 8-bit keys and values come from. Scales of 1 hide a kernel that ignores them, and equal ones a kernel that takes
/// one for the other (flashinfer#4979).
#[derive(Clone, Copy, Debug)]
pub(super) enum Scales {
    /// 1.
    One,
    /// 0.25 for keys, 0.5 for values.
    Quarter,
    /// Powers of two: the result is that of the same numbers in a wider format, bit for bit.
    Power,
    /// Every significand bit in use.
    Any,
}

/// See [`Scales`].
pub(super) const SCALES: &[(u32, Scales)] = &[(2, Scales::One), (3, Scales::Quarter), (4, Scales::Power), (7, Scales::Any)];

/// How many of a sequence's positions are new rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows {
    /// One: decode.
    One,
    /// All of them: a whole sequence, as in training.
    All,
    /// Some, after a context.
    Part,
    /// None.
    None,
    /// More rows than positions: the first are empty.
    Excess,
}

/// See [`Rows`].
pub(super) const ROWS: &[(u32, Rows)] = &[(16, Rows::One), (48, Rows::All), (28, Rows::Part), (2, Rows::None), (6, Rows::Excess)];

/// How a request's rows are cut into steps.
#[derive(Clone, Copy, Debug)]
pub(super) enum Steps {
    /// One step.
    Whole,
    /// A prefill step, then one row at a time.
    Decode,
    /// A prefill step, then several rows at a time.
    Verify,
    /// Chunks of one size.
    EvenChunks,
    /// Chunks of any sizes.
    Chunks,
}

/// See [`Steps`].
pub(super) const STEPS: &[(u32, Steps)] =
    &[(20, Steps::Whole), (26, Steps::Decode), (20, Steps::Verify), (18, Steps::EvenChunks), (16, Steps::Chunks)];

/// Context-parallel ranks of a plan that has them. Two partial results commute, so order needs three; eight leave ranks empty
/// wherever sequences are short.
pub(super) const CONTEXT_RANKS: &[(u32, u32)] = &[(24, 2), (32, 3), (26, 4), (18, 8)];

/// How long the chunks of context-parallel ranks are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunks {
    /// Each chunk as much of the longest sequence: what schedulers do.
    Even,
    /// Around blocks, splits and pages, and anything else that fits into the longest sequence.
    Boundary,
    /// A multiple of a block, split or page: where the grid of one rank can be kept.
    OnGrid,
    /// At least the longest sequence: every rank but the first is empty.
    Long,
}

/// See [`Chunks`].
pub(super) const CHUNKS: &[(u32, Chunks)] =
    &[(30, Chunks::Even), (40, Chunks::Boundary), (20, Chunks::OnGrid), (10, Chunks::Long)];

/// Head-parallel ranks of a plan that has them. With as many as query heads a rank has one head, and KV heads are replicated.
pub(super) const HEAD_RANKS: &[(u32, u32)] = &[(50, 2), (30, 4), (12, 3), (8, 8)];

/// The kinds of [`Regime`](crate::subject::attention::Regime), without their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Equal,
    Dominant,
    Deep,
    Overflow,
    Subnormal,
    Quantised,
    Tail,
    ZeroPeak,
    Rising,
    Wide,
    OnehotV,
    ConstantV,
    Mirror,
}

/// A regime's weight: with f32 outputs, with 16-bit outputs.
///
/// Through a 16-bit rounding only `mirror` shows a changed order, so it takes four fifths there; f32 outputs show order under
/// most regimes, and `mirror` only sharpens it. What each of the others is for:
pub(super) const REGIMES: &[(Kind, u32, u32)] = &[
    // The plain case; in f32 it shows order in half of the elements at 4 keys, in nearly all cases at 64.
    (Kind::Normal, 16, 4),
    // Every exponent is exactly 0: fused multiply-subtract in the exponent (pytorch#121558), a uniform row sum.
    (Kind::Equal, 6, 3),
    // The running maximum jumps: rescale thresholds, weights that vanish (flash-attention#2067).
    (Kind::Dominant, 6, 3),
    // Finite stand-ins for minus infinity clip it (flashinfer#4267).
    (Kind::Deep, 4, 3),
    // 16-bit scores and accumulators leave their range (ik_llama.cpp#1196).
    (Kind::Overflow, 3, 2),
    // Flushing to zero (llama.cpp#7843).
    (Kind::Subnormal, 2, 2),
    // Ties, exact sums, zeros of either sign.
    (Kind::Quantised, 4, 2),
    // Many small weights next to a large one: low-precision row sums stall.
    (Kind::Tail, 4, 1),
    // Weights below 2^-126 are all there is: exponentials that flush to zero (ex2.approx.ftz) need 14,000 cases without it, some dozens with.
    (Kind::ZeroPeak, 1, 1),
    // Every block moves the maximum: a changed block length shows at the first position past it.
    (Kind::Rising, 5, 2),
    // Operands cut to fewer bits, as TF32 does (pytorch#161022).
    (Kind::Wide, 6, 2),
    // The output is the probability row: which keys were read.
    (Kind::OnehotV, 2, 1),
    // The output is the mass, and the head's name (HipKittens#22).
    (Kind::ConstantV, 1, 1),
    (Kind::Mirror, 45, 90),
];
