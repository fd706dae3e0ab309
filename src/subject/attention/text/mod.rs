//! The case as text: canonical TOML that a person can read and edit, and that replays by itself.
//!
//! ```text
//! # top-left anchor against bottom-right: semantics
//! format = 1
//!
//! [problem]
//! dtype = "f32"                  # f32, f16 or bf16: storage of q, k and v
//! out_dtype = "bf16"             # storage of o
//! d_qk = 8
//! d_v = 8
//! kv_head_ids = [0]              # labels: they name data, so dropping one leaves the others' values
//! group_ids = [0, 1]
//! softmax_scale = 0.35355338     # f32, the shortest decimal; "0x3eb504f3" is accepted too
//! causal = "bottom_right"        # or "top_left"; absent: not causal
//! window_left = 4                # absent: unlimited; so are window_right, softcap, sinks, alibi_slopes
//! sequences = [
//!   { id = 0, q = 3, kv = 9 },
//! ]
//!
//! [train]
//! layout = "dense"               # with side, pad_q, pad_kv; or "varlen"
//! side = "right"
//! pad_q = 0
//! pad_kv = 2
//! order = [0]
//! block_q = 64
//!
//! [infer]
//! cache = "paged"                # with page, spare, shuffle, recycled; or "contiguous" with spare
//! page = 4
//! spare = 1
//! shuffle = 0
//! recycled = false
//! order = [0]
//! rotate = false
//! bucket = 1                     # budget: absent is none
//! requests = [                   # one for each sequence; what is left out is hit = 0, join = 0, chunks = [], then = 1,
//!   { chunks = [2] },            # reject = 0, and no preempt
//! ]
//!
//! [data]
//! from = "drawn"                 # with seed, regime and its parameters; or "literal" with q, k, v; or "captured" with sha256
//! seed = 7
//! regime = "mirror"
//! span = 4
//! phase = 0
//!
//! [run]
//! oracle = "enclosure"           # or "mpfr" or "off"
//! expect = "match"               # relation: absent is none
//!
//! [run.train]
//! kernel = "ref"
//! score.order = "sequential"     # every field of the numerics and conventions, in the kernel's own order
//!
//! [run.infer]
//! kernel = "ref"
//! score.order = "sequential"
//! ```
//!
//! A kernel from outside is named, not spelled out:
//!
//! ```text
//! [run.infer]
//! kernel = "external"
//! name = "tiny-attention"
//! version = "0.1.0"
//! device = "cpu"
//! digest = "9f86d081884c7d65..."                # absent: it has none
//! source = "process:python my_kernel.py"       # the words of the command line that named it; absent: a Rust type
//! ```
//!
//! `source` is there to be read, and is never run: a file must not be able to start a program. A replay needs the same words on its
//! command line (the refusal prints them); a Rust type is replayed by its own crate's [suite](crate::suite).
//!
//! Literal values are hex patterns, one string for each row (or position) with ` | ` between heads, sequences in problem order.
//! Integers above 2^63 - 1, which TOML does not promise to keep, are hex strings.
//!
//! **Canonical.** [`print()`] has one text for each value: a fixed order of fields, no field that means nothing, optional fields only
//! when set, request fields only off their default. Cases with the same bits have the same text.
//!
//! **8-bit KV**: `kv_dtype`, `k_scales` and `v_scales` in `[problem]`, all three or none. **Ranks**: `context_ranks`, with
//! `context_shards` and `context_length`, and `head_ranks` in `[train]` and `[infer]`; absent means 1. **Knobs** of the kernel's own
//! that are off their default: `knobs = { num_splits = "2" }` in `[train]` and `[infer]`.

pub(crate) mod fields;
mod parse;
mod print;
#[cfg(test)]
mod tests;

pub use parse::{load, parse};
pub use print::print;
pub(super) use print::regime_name;

use super::Case;
use std::fmt;

/// The format this version writes. Older ones load for ever.
pub const FORMAT: u32 = 1;

/// Bytes of the longest case file that is read: room for [`super::validate::MAX_LITERAL`] values. The parser takes up to
/// 90 times the text (measured, a file of nothing but brackets), so 380 MiB at worst.
pub const MAX_TEXT: usize = 1 << 22;

/// A kept case: why it is kept, what it computes and how it was run.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseFile {
    /// The comment at the top, without the `# `; its first line says why the case is kept. Lines are split at `\n`; control
    /// characters are printed as spaces.
    pub comment: String,
    /// What is tested.
    pub case: Case,
    /// How.
    pub run: Run,
}

/// Both kernels, spelled out in full (presets change, files must not), and what a replay must find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The training kernel.
    pub train: KernelText,
    /// The inference kernel.
    pub infer: KernelText,
    /// One of [`ORACLES`].
    pub oracle: String,
    /// The relation that failed, with its concrete variant; one line.
    pub relation: Option<String>,
    /// The verdict a replay must give; one line.
    pub expect: String,
}

/// The oracle's modes.
pub const ORACLES: [&str; 3] = ["enclosure", "mpfr", "off"];

/// How a case file names a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelText {
    /// `kernel = "ref"`: the reference kernel, spelled out.
    Reference(KernelFields),
    /// `kernel = "external"`: a kernel from outside.
    External(External),
}

/// Who an external kernel is. A file cannot rebuild it: it is named on the command line, or replayed by the [suite](crate::suite) of the
/// kernel's own crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Its name, one line.
    pub name: String,
    /// The version that showed what the file is kept for, one line.
    pub version: String,
    /// Where it ran, one line.
    pub device: String,
    /// The digest of its source, one line.
    pub digest: Option<String>,
    /// The words under which a command line named it, one line. Never run.
    pub source: Option<String>,
}

impl fmt::Display for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name, self.version, self.device)
    }
}

/// `(field, value)` pairs of the reference kernel, in its own order: `("score.order", "sequential")`.
///
/// `kernel` is not among them. Names are dotted paths, each at most once and none a prefix of another; a value is one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFields(pub Vec<(String, String)>);

/// What `kernel` may be: the reference, or a kernel from outside.
const KERNELS: [&str; 2] = ["ref", "external"];

/// Regime names, in the order of [`super::Regime`].
const REGIMES: [&str; 14] = [
    "normal",
    "equal",
    "dominant",
    "deep",
    "overflow",
    "subnormal",
    "quantised",
    "tail",
    "zero_peak",
    "rising",
    "wide",
    "onehot_v",
    "constant_v",
    "mirror",
];
