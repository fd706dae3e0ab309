//! What a kernel can do, declared: cases are drawn within it.

use super::feature::Feature;
use crate::number::Dtype;

/// A way of laying a call out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// Packed, with `cu_seqlens`.
    Varlen,
    /// Padded to the left.
    DenseLeft,
    /// Padded to the right.
    DenseRight,
    /// A KV cache in pages.
    Paged,
    /// A KV cache with one row of slots for each sequence.
    Contiguous,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 5] = [Form::Varlen, Form::DenseLeft, Form::DenseRight, Form::Paged, Form::Contiguous];

    /// The name in declarations of capabilities.
    pub fn name(self) -> &'static str {
        match self {
            Form::Varlen => "varlen",
            Form::DenseLeft => "dense_left",
            Form::DenseRight => "dense_right",
            Form::Paged => "paged",
            Form::Contiguous => "contiguous",
        }
    }
}

/// Storage of q, k and v, and the format of `o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Format {
    /// Of q, and of k and v where they are not in an 8-bit format.
    pub storage: Dtype,
    /// Of `o`.
    pub out: Dtype,
}

/// Head dims that a kernel takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadDims {
    /// Any pair up to this, each a multiple of the other number.
    UpTo {
        /// The largest.
        max: u32,
        /// At least 1.
        multiple_of: u32,
    },
    /// These pairs of `d_qk` and `d_v`.
    Only(Vec<(u32, u32)>),
}

impl HeadDims {
    /// Whether a pair is among them.
    pub fn allow(&self, d_qk: u32, d_v: u32) -> bool {
        match self {
            HeadDims::UpTo { max, multiple_of } => [d_qk, d_v].iter().all(|d| d <= max && d.is_multiple_of(*multiple_of)),
            HeadDims::Only(pairs) => pairs.contains(&(d_qk, d_v)),
        }
    }
}

/// A setting of the kernel's own that may change bits: `num_splits`, `pack_gqa`, `layout`, `threads`, `workspace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Its name: letters, digits and `_`.
    pub name: String,
    /// What it may be, the default first; at least one, none with a line break.
    pub values: Vec<String>,
}

/// What a kernel can do. `None` in a list is "anything that a case may ask for".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Call forms.
    pub forms: Option<Vec<Form>>,
    /// Features of a call.
    pub features: Option<Vec<Feature>>,
    /// Formats.
    pub formats: Option<Vec<Format>>,
    /// Head dims.
    pub head_dims: Option<HeadDims>,
    /// Slots in a page.
    pub page_sizes: Option<Vec<u32>>,
    /// The most query rows, keys or batch entries of one call; `None` is no limit.
    pub max_rows: Option<u32>,
    /// It cannot do rows without valid keys (more rows than keys under a causal mask, a window beyond the keys).
    pub no_empty_rows: bool,
    /// It cannot do sequences without rows, or without keys.
    pub no_empty_sequences: bool,
    /// It cannot do sequences of unlike lengths in one dense call or one step over a contiguous cache.
    pub no_ragged: bool,
    /// Its own settings.
    pub knobs: Vec<Knob>,
    /// It compiles for each new shape: cases are drawn so that shapes come back.
    pub compiles: bool,
    /// It writes into outputs that the harness has allocated with guards around them: a write outside is seen.
    pub guarded: bool,
}
