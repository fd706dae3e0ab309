//! What can be chosen at each step: orders, places, rules; each with its text.

use super::rule::{BlockRule, SplitRule};
use std::fmt;
use std::str::FromStr;

/// Defines an enum whose variants have fixed text, with `Display`, `FromStr` and `ALL`.
macro_rules! fields {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every value.
            pub const ALL: &[$name] = &[$($name::$variant),+];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$variant => $text),+ })
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => Err(format!("`{text}` is not one of {}", [$($text),+].join(", "))),
                }
            }
        }
    };
}
pub(crate) use fields;

/// The order in which terms are added. Trees lie over slots (head-dim lanes, or absolute key slots of a block), split at powers of
/// two, and skip absent slots, so that they do not depend on how much is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// One accumulator, slots ascending (descending for key slots under `traverse = backward` blocks: the blocks only).
    Sequential,
    /// `n` accumulators (a power of two): slot `s` goes to `s % n`; then halves are added until one is left.
    Lanes(u32),
    /// A balanced tree over the slots, split at powers of two.
    Pairwise,
    /// Groups of `w` slots and the accumulator are summed in f64 and rounded once (a tensor core's multi-term addition).
    Fused(u32),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Sequential => f.write_str("sequential"),
            Order::Lanes(n) => write!(f, "lanes({n})"),
            Order::Pairwise => f.write_str("pairwise"),
            Order::Fused(w) => write!(f, "fused({w})"),
        }
    }
}

/// A rule by its name.
fn rule<R: FromStr<Err = String>>(name: &str) -> Result<R, String> {
    name.parse().map_err(|reason| format!("rule {reason}"))
}

/// Parses `name(n)`, or `name:n`, which needs no quotes in a shell.
fn call(text: &str) -> Option<(&str, &str)> {
    match text.strip_suffix(')') {
        Some(text) => text.split_once('('),
        None => text.split_once(':'),
    }
}

impl FromStr for Order {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not one of sequential, lanes(n), pairwise, fused(n)");
        match text {
            "sequential" => return Ok(Order::Sequential),
            "pairwise" => return Ok(Order::Pairwise),
            _ => {}
        }
        let (name, n) = call(text).ok_or_else(bad)?;
        let n: u32 = n.parse().map_err(|_| bad())?;
        match name {
            "lanes" if n.is_power_of_two() && n <= 64 => Ok(Order::Lanes(n)),
            "lanes" => Err(format!("lanes({n}): the count must be a power of two, at most 64")),
            "fused" if (1..=64).contains(&n) => Ok(Order::Fused(n)),
            "fused" => Err(format!("fused({n}): the width must be 1 to 64")),
            _ => Err(bad()),
        }
    }
}

fields! {
    /// Where the softmax scale enters.
    pub enum ScaleAt {
        /// Each query lane is multiplied first, rounded to f32.
        OnQuery = "on_query",
        /// The finished dot product is multiplied.
        OnScore = "on_score",
        /// Scores stay raw; weights are `exp2(score * c - max * c)` with `c = f32(scale * log2 e)`; `score.fma` fuses the first product.
        FoldedLog2e = "folded_log2e",
    }
}
fields! {
    /// How the maximum is found.
    pub enum Passes {
        /// A running maximum, block by block.
        Online = "online",
        /// The maximum of the whole range first.
        TwoPass = "two_pass",
    }
}
fields! {
    /// Order of the blocks.
    pub enum Traverse {
        /// First to last.
        Forward = "forward",
        /// Last to first (FlashAttention).
        Backward = "backward",
    }
}
fields! {
    /// Who decides on a rescale.
    pub enum Scope {
        /// Each row for itself.
        Row = "row",
        /// All rows of a query tile rescale when one must.
        Tile = "tile",
    }
}
fields! {
    /// What the row sum adds.
    pub enum SumOf {
        /// The f32 weights.
        P = "p",
        /// The weights as rounded for the PV product.
        RoundedP = "rounded_p",
    }
}
fields! {
    /// Where the block and split grid starts.
    pub enum GridAnchor {
        /// The sequence's first token.
        Sequence = "sequence",
        /// The first slot of the padded buffer.
        Buffer = "buffer",
        /// The first token after the prefix-cache hit (a known bug).
        Uncached = "uncached",
    }
}
fields! {
    /// Where the scales of an 8-bit KV cache enter.
    pub enum Descale {
        /// Each key and value is multiplied first, rounded to f32.
        OnLoad = "on_load",
        /// The key's scale is multiplied into the softmax scale, `f32(scale * k_scale)`, or under `folded_log2e` into
        /// `c`, `f32(c * k_scale)`, while scores stay raw; the value's into the final normalisation: `f32(acc / l) * v_scale`, or
        /// `acc * f32(f32(1 / l) * v_scale)`. A split does so before its partial is merged (FlashAttention 3).
        Folded = "folded",
    }
}
fields! {
    /// How context-parallel ranks work together.
    pub enum Context {
        /// Keys and values are gathered in position order: as on one rank.
        AllGather = "all_gather",
        /// Each chunk gives partials, gathered and merged by their place in the sequence (decode context parallelism).
        GatherPartials = "gather_partials",
        /// The unnormalised state goes around the ring, beginning with the row's own rank (ring attention).
        RingState = "ring_state",
        /// Each rank gives a partial, merged as they arrive around the ring, the row's own rank first (ring-flash-attention).
        RingLse = "ring_lse",
    }
}
fields! {
    /// How split partials are merged.
    pub enum Merge {
        /// Left to right.
        Sequential = "sequential",
        /// Pairwise over the split index, split at powers of two.
        Tree = "tree",
    }
}
fields! {
    /// The final division.
    pub enum Finish {
        /// `acc / l`.
        Divide = "divide",
        /// `acc * (1 / l)`.
        Reciprocal = "reciprocal",
    }
}
fields! {
    /// Rounding of the stored output.
    pub enum Store {
        /// To nearest, ties to even.
        Rne = "rne",
        /// Towards zero.
        Truncate = "truncate",
    }
}

/// Block length of the online softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    /// The whole row (of a split) is one block.
    Whole,
    /// Blocks of so many slots, at least 1.
    Size(u32),
    /// A length that the launcher picks for each call.
    Rule(BlockRule),
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::Whole => f.write_str("whole"),
            Block::Size(n) => write!(f, "{n}"),
            Block::Rule(rule) => write!(f, "rule({rule})"),
        }
    }
}

impl FromStr for Block {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse(), call(text)) {
            ("whole", ..) => Ok(Block::Whole),
            (_, Ok(n), _) if n >= 1 => Ok(Block::Size(n)),
            (_, _, Some(("rule", name))) => Ok(Block::Rule(rule(name)?)),
            _ => Err(format!("`{text}` is neither `whole`, a block length from 1 to {}, nor rule(name)", u32::MAX)),
        }
    }
}

/// When the running maximum is moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rescale {
    /// Whenever a block has a larger one.
    Always,
    /// Only when it grew by more than this (natural units), finite and at least 0.
    Threshold(f32),
}

impl fmt::Display for Rescale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rescale::Always => f.write_str("always"),
            Rescale::Threshold(x) => write!(f, "threshold({x})"),
        }
    }
}

impl FromStr for Rescale {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, call(text).map(|(name, x)| (name, x.parse::<f32>()))) {
            ("always", _) => Ok(Rescale::Always),
            (_, Some(("threshold", Ok(x)))) if x.is_finite() && x >= 0.0 => Ok(Rescale::Threshold(x + 0.0)),
            _ => Err(format!("`{text}` is neither `always` nor threshold(x) with x >= 0")),
        }
    }
}

/// The exponential in use. The platform's `exp` is not offered: it differs between platforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exp {
    /// CORE-MATH's correctly rounded f32 `exp` (`exp2` under `folded_log2e`).
    CorrectlyRounded,
    /// `exp2` by range reduction and a polynomial of degree `k` (2 to 8) in f32, after a multiplication by log2 e.
    Exp2Poly(u32),
}

impl fmt::Display for Exp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exp::CorrectlyRounded => f.write_str("correctly_rounded"),
            Exp::Exp2Poly(k) => write!(f, "exp2_poly({k})"),
        }
    }
}

impl FromStr for Exp {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, call(text).map(|(name, k)| (name, k.parse()))) {
            ("correctly_rounded", _) => Ok(Exp::CorrectlyRounded),
            (_, Some(("exp2_poly", Ok(k)))) if (2..=8).contains(&k) => Ok(Exp::Exp2Poly(k)),
            _ => Err(format!("`{text}` is neither `correctly_rounded` nor exp2_poly(k) with k from 2 to 8")),
        }
    }
}

/// Where the running maximum starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MaxInit {
    /// -inf.
    NegInf,
    /// A finite number (a known bug where scores lie below it).
    Finite(f32),
}

impl fmt::Display for MaxInit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxInit::NegInf => f.write_str("-inf"),
            MaxInit::Finite(x) => write!(f, "{x}"),
        }
    }
}

impl FromStr for MaxInit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f32>() {
            Ok(x) if x == f32::NEG_INFINITY => Ok(MaxInit::NegInf),
            Ok(x) if x.is_finite() => Ok(MaxInit::Finite(x)),
            _ => Err(format!("`{text}` is neither -inf nor a finite number")),
        }
    }
}

/// How a row's keys are divided between partial results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// One pass.
    None,
    /// Splits of so many slots, from the grid's anchor.
    FixedSize(u32),
    /// So many splits of the sequence's keys as they stand at this step, each a whole number of blocks.
    FixedCount(u32),
    /// One split below the prefix-cache hit, one from it on.
    CacheBoundary,
    /// A count that the launcher picks for each call, on a device with so many multiprocessors, at least 1.
    Rule(SplitRule, u32),
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Split::None => f.write_str("none"),
            Split::FixedSize(n) => write!(f, "fixed_size({n})"),
            Split::FixedCount(n) => write!(f, "fixed_count({n})"),
            Split::CacheBoundary => f.write_str("cache_boundary"),
            Split::Rule(rule, sms) => write!(f, "rule({rule},{sms})"),
        }
    }
}

impl FromStr for Split {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(("rule", arguments)) = call(text) {
            let (name, sms) = arguments.split_once([',', ':']).unwrap_or((arguments, ""));
            let sms = sms.trim().parse().ok().filter(|&sms| sms >= 1);
            let sms = sms.ok_or_else(|| {
                format!("`{text}` lacks the number of multiprocessors, at least 1 and at most {}: rule({name},132)", u32::MAX)
            })?;
            return Ok(Split::Rule(rule(name)?, sms));
        }
        match (text, call(text).map(|(name, n)| (name, n.parse()))) {
            ("none", _) => Ok(Split::None),
            ("cache_boundary", _) => Ok(Split::CacheBoundary),
            (_, Some(("fixed_size", Ok(n)))) if n >= 1 => Ok(Split::FixedSize(n)),
            (_, Some(("fixed_count", Ok(n)))) if (1..=128).contains(&n) => Ok(Split::FixedCount(n)),
            _ => Err(format!(
                "`{text}` is not one of none, fixed_size(n) with n from 1 to {}, fixed_count(n) with n from 1 to 128, cache_boundary, \
                 rule(name,sms)",
                u32::MAX
            )),
        }
    }
}
