//! The seam to implementations: three call forms that attention libraries already have.
//!
//! A kernel only computes. Layouts, page tables, poison, canaries and the sequence of steps belong to the [driver](super::drive).

use super::capabilities::Capabilities;
use super::case::Problem;
use super::conventions::{AnchorConvention, Conventions};
use super::mask::{Anchor, Mask};
use super::numerics::Numerics;
use super::plan::{ContextParallel, Side};
use crate::finding::Breakage;
use crate::number::Dtype;
use crate::tensor::Tensor;
use std::sync::Arc;

/// Name, version and origin of a kernel, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Short name, e.g. `ref:aligned`.
    pub name: String,
    /// Version of the implementation.
    pub version: String,
    /// Where it runs, e.g. `cpu`.
    pub device: String,
    /// SHA-256, lower-case hex, of its source and of the libraries it loads; `None` where it was built into this program.
    pub digest: Option<String>,
    /// What else its bits may depend on, by name: library versions, threads, environment flags, an autotuned configuration.
    pub details: Vec<(String, String)>,
}

/// What stored keys and values are multiplied with: one scale each for the tensor, or one for each KV head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvScales<'a> {
    /// `[1]` or `[kv_heads]`.
    pub k: &'a [f32],
    /// `[1]` or `[kv_heads]`.
    pub v: &'a [f32],
}

impl KvScales<'_> {
    /// The scales of a KV head's keys and values.
    pub fn of(&self, kv_head: usize) -> (f32, f32) {
        let pick = |scales: &[f32]| if scales.len() == 1 { scales[0] } else { scales[kv_head] };
        (pick(self.k), pick(self.v))
    }
}

impl Identity {
    /// A kernel that runs on the CPU.
    pub fn cpu(name: &str, version: &str) -> Self {
        Identity {
            name: name.to_owned(),
            version: version.to_owned(),
            device: "cpu".to_owned(),
            digest: None,
            details: Vec::new(),
        }
    }
}

/// What is the same in every call of one problem.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    /// Query heads.
    pub q_heads: usize,
    /// KV heads; divides `q_heads`. Query head `h` reads KV head `h / (q_heads / kv_heads)`.
    pub kv_heads: usize,
    /// Head dim of q and k.
    pub d_qk: usize,
    /// Head dim of v and o.
    pub d_v: usize,
    /// Multiplies q.k.
    pub softmax_scale: f32,
    /// Valid keys. In a call with `q` rows and `kv` keys of a sequence, row `i` stands at position `i + kv - q`.
    pub mask: Mask,
    /// `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// `[q_heads]`, a logit each with a zero value vector.
    pub sinks: Option<&'a [f32]>,
    /// `[q_heads]`; the bias is `-slope * |p - j|`.
    pub alibi_slopes: Option<&'a [f32]>,
    /// Query rows per tile.
    pub block_q: usize,
    /// What keys and values in an 8-bit format are multiplied with.
    pub kv_scales: Option<KvScales<'a>>,
    /// The call stands for a context-parallel group: who owns which positions. The kernel owns the communication.
    pub context: Option<ContextParallel>,
    /// Format of `o`.
    pub out_dtype: Dtype,
    /// The kernel's own knobs that are off their default ([`Capabilities::knobs`]): name and value, sorted by name.
    pub knobs: &'a [(String, String)],
}

impl<'a> Attributes<'a> {
    /// Those of a problem's calls on one path.
    pub fn of(problem: &'a Problem, block_q: u32, context: Option<ContextParallel>, knobs: &'a [(String, String)]) -> Self {
        Attributes {
            q_heads: problem.q_heads(),
            kv_heads: problem.kv_heads(),
            d_qk: problem.d_qk as usize,
            d_v: problem.d_v as usize,
            softmax_scale: problem.softmax_scale,
            mask: problem.mask,
            softcap: problem.softcap,
            sinks: problem.sinks.as_deref(),
            alibi_slopes: problem.alibi_slopes.as_deref(),
            block_q: block_q as usize,
            kv_scales: problem.fp8_kv.as_ref().map(|kv| KvScales { k: &kv.k_scales, v: &kv.v_scales }),
            context,
            out_dtype: problem.out_dtype,
            knobs,
        }
    }

    /// Whether a call with these attributes means what a kernel declares. The base of `lse` and the empty row
    /// are no matter of the call: results are judged by what is declared.
    ///
    /// # Errors
    /// The first thing that the call asks for otherwise.
    pub fn fit(&self, declared: &Conventions) -> Result<(), String> {
        let plain = Conventions::default();
        let declares =
            |what: &str, declared: String, asked: &str| Err(format!("declares {what} {declared}; the case asks {asked}"));
        let asked = match self.mask.causal {
            Some(Anchor::BottomRight) => Some(AnchorConvention::BottomRight),
            Some(Anchor::TopLeft) => Some(AnchorConvention::TopLeft),
            None => None,
        };
        if let Some(asked) = asked.filter(|&asked| declared.anchor != AnchorConvention::AsCalled && declared.anchor != asked) {
            return declares("anchor", declared.anchor.to_string(), &asked.to_string());
        }
        let biased = self.alibi_slopes.is_some();
        if self.mask.window_left.is_some() && declared.window != plain.window {
            return declares("window", declared.window.to_string(), &plain.window.to_string());
        }
        if self.sinks.is_some() && declared.sink_in_lse != plain.sink_in_lse {
            return declares("sink_in_lse", declared.sink_in_lse.to_string(), &plain.sink_in_lse.to_string());
        }
        if biased && declared.alibi != plain.alibi {
            return declares("alibi", declared.alibi.to_string(), &plain.alibi.to_string());
        }
        if biased && self.softcap.is_some() && declared.cap_order != plain.cap_order {
            return declares("cap_order", declared.cap_order.to_string(), &plain.cap_order.to_string());
        }
        if self.kv_scales.is_some() && declared.kv_scales != plain.kv_scales {
            return declares("kv_scales", declared.kv_scales.to_string(), &plain.kv_scales.to_string());
        }
        Ok(())
    }
}

/// Packed tensors.
#[derive(Clone, Copy, Debug)]
pub struct VarlenCall<'a> {
    /// See there.
    pub attributes: &'a Attributes<'a>,
    /// `[total_q, q_heads, d_qk]`.
    pub q: &'a Tensor,
    /// `[total_kv, kv_heads, d_qk]`.
    pub k: &'a Tensor,
    /// `[total_kv, kv_heads, d_v]`.
    pub v: &'a Tensor,
    /// `[batch + 1]`, row offsets into `q`, from 0 to `total_q`.
    pub cu_seqlens_q: &'a [u32],
    /// `[batch + 1]`, row offsets into `k` and `v`.
    pub cu_seqlens_k: &'a [u32],
}

/// Padded tensors. Slots outside `start..start + length` are dead: their q, k and v are poison, and their output is not read.
#[derive(Clone, Copy, Debug)]
pub struct DenseCall<'a> {
    /// See there.
    pub attributes: &'a Attributes<'a>,
    /// `[batch, seq_q, q_heads, d_qk]`.
    pub q: &'a Tensor,
    /// `[batch, seq_kv, kv_heads, d_qk]`.
    pub k: &'a Tensor,
    /// `[batch, seq_kv, kv_heads, d_v]`.
    pub v: &'a Tensor,
    /// Where the padding stands.
    pub padding: Side,
    /// `[batch]`: valid query rows of each entry.
    pub lengths_q: &'a [u32],
    /// `[batch]`: valid keys of each entry.
    pub lengths_kv: &'a [u32],
}

impl DenseCall<'_> {
    /// First valid slot of a padded axis of `slots` slots holding `length` tokens.
    pub fn start(&self, slots: usize, length: u32) -> usize {
        match self.padding {
            Side::Left => slots - length as usize,
            Side::Right => 0,
        }
    }
}

/// Which pages hold a sequence's keys.
#[derive(Clone, Copy, Debug)]
pub struct BlockTable<'a> {
    /// `[batch, width]`, page numbers; position `j` of entry `b` lives in page `pages[b * width + j / page_size]`. Entries
    /// beyond the pages in use name spare pages, whose slots are dead.
    pub pages: &'a [u32],
    /// Pages in a row of the table.
    pub width: usize,
}

/// New rows against a KV cache that already holds their keys.
#[derive(Clone, Copy, Debug)]
pub struct PagedCall<'a> {
    /// See there.
    pub attributes: &'a Attributes<'a>,
    /// `[total_q, q_heads, d_qk]`.
    pub q: &'a Tensor,
    /// With a block table `[pages, page_size, kv_heads, d_qk]`; without `[entries, capacity, kv_heads, d_qk]`.
    pub k_cache: &'a Tensor,
    /// As `k_cache`, with `d_v`.
    pub v_cache: &'a Tensor,
    /// `None`: the cache is contiguous and batch entry `b` uses cache row `cache_rows[b]`.
    pub block_table: Option<BlockTable<'a>>,
    /// `[batch]`; cache rows of a contiguous cache (empty with a block table).
    pub cache_rows: &'a [u32],
    /// `[batch]`: valid keys of each entry, the new rows' included.
    pub cache_seqlens: &'a [u32],
    /// `[batch + 1]`, row offsets into `q`. An entry of bucket padding has one row and no keys; an entry without rows is
    /// allowed too.
    pub cu_seqlens_q: &'a [u32],
    /// `[batch]`: leading positions of each entry that came from the prefix cache.
    pub prefix_lens: &'a [u32],
}

/// One call, of any form.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// Packed.
    Varlen(&'a VarlenCall<'a>),
    /// Padded.
    Dense(&'a DenseCall<'a>),
    /// Against a KV cache.
    Paged(&'a PagedCall<'a>),
}

/// Where results go. The driver fills both with a canary first; every slot of a valid row must be written.
#[derive(Debug)]
pub struct Outputs<'a> {
    /// As `q`, with `d_v`, in `out_dtype`.
    pub o: &'a mut Tensor,
    /// As `q` without the head dim, F32. Untouched by a kernel that [has no lse](AttentionKernel::has_lse).
    pub lse: &'a mut Tensor,
}

/// What went wrong in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelError {
    /// The kernel says that it cannot do this; the case is skipped and the reason counted.
    Unsupported(String),
    /// It failed.
    Failed(String),
    /// It did worse than fail.
    Broken {
        /// In which way.
        breakage: Breakage,
        /// What was seen: a signal, a deadline, the tail of stderr.
        detail: String,
    },
}

/// An attention implementation.
///
/// Only [`identity`](AttentionKernel::identity) must be given, and at least one call form for anything to be compared: a form that
/// is not given refuses its calls. A kernel that is a function of one sequence gets all three from
/// [`PerSequence`](super::per_sequence::PerSequence).
pub trait AttentionKernel: Send + Sync {
    /// Who this is.
    fn identity(&self) -> Identity;

    /// What its calls mean; by default what the oracle computes.
    fn conventions(&self) -> Conventions {
        Conventions::default()
    }

    /// The arithmetic it declares; `None` is "f32 everywhere, any order, one rounding at the end" for the accuracy bound.
    fn numerics(&self) -> Option<Numerics> {
        None
    }

    /// The arithmetic it declares for a storage format, where that depends on it: many kernels round weights to the storage format.
    fn numerics_for(&self, storage: Dtype) -> Option<Numerics> {
        let _ = storage;
        self.numerics()
    }

    /// What it can do. Cases are drawn within the common capabilities of both kernels, and what was left out is counted; a call that is
    /// refused all the same is `Skipped`. By default everything.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The same kernel in a fresh process, for what only a new process shows (uninitialised state, an autotuner's other choice). `None`
    /// where a fresh one would be this one.
    fn afresh(&self) -> Option<Result<Arc<dyn AttentionKernel>, KernelError>> {
        None
    }

    /// Whether calls write `lse`.
    fn has_lse(&self) -> bool {
        true
    }

    /// Whether a call may stand for a context-parallel group ([`Attributes::context`]): the kernel owns the communication. A kernel
    /// that says no is never asked.
    fn context_parallel(&self) -> bool {
        false
    }

    /// Packed tensors.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] for a case it cannot do, [`KernelError::Failed`] otherwise.
    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let _ = (call, outputs);
        Err(KernelError::Unsupported("the varlen call is not implemented".into()))
    }

    /// Padded tensors.
    ///
    /// # Errors
    /// As [`AttentionKernel::varlen`].
    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let _ = (call, outputs);
        Err(KernelError::Unsupported("the dense call is not implemented".into()))
    }

    /// New rows against a KV cache.
    ///
    /// # Errors
    /// As [`AttentionKernel::varlen`].
    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let _ = (call, outputs);
        Err(KernelError::Unsupported("the paged call is not implemented".into()))
    }
}
