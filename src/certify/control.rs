//! Negative controls: kernels that are right but for one thing, and must fail the claim that is about that thing. A claim whose control passes
//! has not been looked at.

use super::claim::Claim;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::{AttentionKernel, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::reference::Reference;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reference kernel, disturbed on the calls that a claim is about: the first element that is no zero goes one ULP up.
struct Disturbed {
    honest: Reference,
    claim: Claim,
    calls: AtomicU64,
}

/// A disturbed kernel that must fail a claim; `None` for a claim that two kernels alone do not decide.
pub fn control(claim: Claim) -> Option<Implementation> {
    let calls = AtomicU64::new(0);
    let disturbed = Disturbed { honest: Reference::default(), claim, calls };
    (claim != Claim::VersionEqual).then(|| Implementation::kernel(Arc::new(disturbed)))
}

/// What is done to it, in words.
pub fn about(claim: Claim) -> &'static str {
    match claim {
        Claim::TrainEqInfer => "one ULP up with a KV cache",
        Claim::Repeatable => "one ULP up on every other call",
        Claim::BatchInvariant => "one ULP up beside another sequence",
        Claim::PositionInvariant => "one ULP up in the last of several sequences",
        Claim::PaddingInvariant => "one ULP up in a batch with padding or empty entries",
        Claim::PageInvariant => "one ULP up with pages of an even size",
        Claim::ChunkInvariant => "one ULP up in steps of one row",
        Claim::PrefixInvariant => "one ULP up after a prefix-cache hit",
        Claim::SplitInvariant => "one ULP up beside sixteen requests or more, over more than 256 keys",
        Claim::ParallelInvariant => "one ULP up over context-parallel ranks, or with one KV head",
        Claim::Accurate => "twice the result",
        Claim::RejectsOrCorrect => "NaN for a result",
        Claim::VersionEqual => "",
    }
}

/// Keys from which a control takes a row for a long one.
const LONG: u32 = 256;

/// Of a call, what decides.
#[derive(Default)]
struct Facts {
    cached: bool,
    sequences: usize,
    padded: bool,
    page: usize,
    one_row: bool,
    hit: bool,
    long: bool,
    ranks: bool,
    one_head: bool,
}

impl Disturbed {
    fn spoil(&self, facts: &Facts, outputs: Outputs<'_>) {
        let Outputs { o, lse: _ } = outputs;
        let dtype = o.dtype;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let disturbed = match self.claim {
            Claim::TrainEqInfer => facts.cached,
            Claim::Repeatable => call % 2 == 1,
            Claim::BatchInvariant | Claim::PositionInvariant => facts.sequences > 1,
            Claim::PaddingInvariant => facts.padded,
            Claim::PageInvariant => facts.page > 0 && facts.page.is_multiple_of(2),
            Claim::ChunkInvariant => facts.one_row,
            Claim::PrefixInvariant => facts.hit,
            Claim::SplitInvariant => facts.sequences >= 16 && facts.long,
            // A kernel without context-parallel ranks has those of heads: one KV head of two.
            Claim::ParallelInvariant => facts.ranks || facts.one_head,
            Claim::Accurate | Claim::RejectsOrCorrect => true,
            Claim::VersionEqual => false,
        };
        if !disturbed {
            return;
        }
        let is_number = |bits: &&mut u32| dtype.to_f32(**bits) != 0.0;
        match self.claim {
            Claim::Accurate => {
                // Twice is far beyond any bound but an infinite one.
                for bits in o.bits.iter_mut().filter(is_number) {
                    *bits = dtype.round_f64(2.0 * dtype.to_f64(*bits));
                }
            }
            Claim::RejectsOrCorrect => o.bits.fill(dtype.nan_bits()),
            // The neighbours that a relation brings come first.
            Claim::PositionInvariant | Claim::SplitInvariant => {
                if let Some(bits) = o.bits.iter_mut().rev().find(is_number) {
                    *bits = dtype.next_up(*bits);
                }
            }
            _ => {
                if let Some(bits) = o.bits.iter_mut().find(is_number) {
                    *bits = dtype.next_up(*bits);
                }
            }
        }
    }
}

impl AttentionKernel for Disturbed {
    fn identity(&self) -> Identity {
        Identity::cpu(&format!("control {}", self.claim), env!("CARGO_PKG_VERSION"))
    }

    fn numerics(&self) -> Option<Numerics> {
        self.honest.numerics()
    }

    fn context_parallel(&self) -> bool {
        self.honest.context_parallel()
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        self.honest.varlen(call, Outputs { o, lse })?;
        let sequences = call.cu_seqlens_q.len() - 1;
        let longest = call.cu_seqlens_k.windows(2).map(|it| it[1] - it[0]).max().unwrap_or(0);
        let (ranks, one_head) = (call.attributes.context.is_some(), call.attributes.kv_heads == 1);
        self.spoil(&Facts { sequences, long: longest > LONG, ranks, one_head, ..Facts::default() }, Outputs { o, lse });
        Ok(())
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        self.honest.dense(call, Outputs { o, lse })?;
        let longest = |lengths: &[u32]| lengths.iter().copied().max().unwrap_or(0);
        let padded = call.q.dims[1] > longest(call.lengths_q) as usize || call.k.dims[1] > longest(call.lengths_kv) as usize;
        let (sequences, long) = (call.lengths_q.len(), longest(call.lengths_kv) > LONG);
        let (ranks, one_head) = (call.attributes.context.is_some(), call.attributes.kv_heads == 1);
        self.spoil(&Facts { sequences, padded, long, ranks, one_head, ..Facts::default() }, Outputs { o, lse });
        Ok(())
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        self.honest.paged(call, Outputs { o, lse })?;
        let facts = Facts {
            cached: true,
            sequences: call.cache_seqlens.len(),
            padded: call.cache_seqlens.contains(&0),
            page: call.block_table.map_or(0, |_| call.k_cache.dims[1]),
            one_row: call.cu_seqlens_q.windows(2).all(|it| it[1] - it[0] == 1),
            hit: call.prefix_lens.iter().any(|&hit| hit > 0),
            long: call.cache_seqlens.iter().any(|&keys| keys > LONG),
            ranks: call.attributes.context.is_some(),
            one_head: call.attributes.kv_heads == 1,
        };
        self.spoil(&facts, Outputs { o, lse });
        Ok(())
    }
}
