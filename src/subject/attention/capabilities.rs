//! What a kernel can do, declared: cases are drawn within it.

use super::feature::Feature;
use super::validate::MAX_DIM;
use crate::number::Dtype;
use std::fmt;

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

impl fmt::Display for Format {
    /// `bf16`, or `bf16->f32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.storage == self.out {
            true => write!(f, "{}", self.storage),
            false => write!(f, "{}->{}", self.storage, self.out),
        }
    }
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
            HeadDims::UpTo { max, multiple_of } => {
                [d_qk, d_v].iter().all(|d| d <= max && d.is_multiple_of((*multiple_of).max(1)))
            }
            HeadDims::Only(pairs) => pairs.contains(&(d_qk, d_v)),
        }
    }

    /// Those that are in both.
    pub fn and(&self, other: &HeadDims) -> HeadDims {
        match (self, other) {
            (HeadDims::UpTo { max, multiple_of }, HeadDims::UpTo { max: most, multiple_of: of }) => {
                // The least common multiple: the first multiple of one that the other divides.
                let (one, other) = ((*multiple_of).max(1), (*of).max(1));
                let common = (1..=MAX_DIM).map(|n| n.saturating_mul(one)).find(|it| it.is_multiple_of(other));
                HeadDims::UpTo { max: *max.min(most), multiple_of: common.unwrap_or(u32::MAX) }
            }
            (HeadDims::Only(pairs), rest) | (rest, HeadDims::Only(pairs)) => {
                HeadDims::Only(pairs.iter().copied().filter(|&(d_qk, d_v)| rest.allow(d_qk, d_v)).collect())
            }
        }
    }
}

impl fmt::Display for HeadDims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeadDims::UpTo { max, multiple_of: 1 } => write!(f, "up to {max}"),
            HeadDims::UpTo { max, multiple_of } => write!(f, "multiples of {multiple_of} up to {max}"),
            HeadDims::Only(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(d_qk, d_v)| format!("{d_qk}/{d_v}")).collect();
                f.write_str(&pairs.join(", "))
            }
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A write outside its outputs would be seen: the harness has allocated them with guards around, or the kernel is safe Rust, which
    /// cannot write outside a slice.
    pub guarded: bool,
}

impl Default for Capabilities {
    /// Everything, by a kernel in Rust. Whoever speaks for one from outside says whether it is guarded.
    fn default() -> Self {
        Capabilities {
            forms: None,
            features: None,
            formats: None,
            head_dims: None,
            page_sizes: None,
            max_rows: None,
            no_empty_rows: false,
            no_empty_sequences: false,
            no_ragged: false,
            knobs: Vec::new(),
            compiles: false,
            guarded: true,
        }
    }
}
