//! A function of one sequence as a kernel with all three call forms.
//!
//! [`PerSequence`] gathers each sequence's rows and keys from the packed, padded or paged layout, decodes them to f32 (exactly),
//! calls the function, and rounds what it wrote to the output format (to nearest even). The function is tested as it stands:
//! lengths, chunks, decode, prefix hits, masks, heads, formats.
//!
//! What it does not see, this adapter does: where pages and padding lie, and who else is in the batch. Relations along those axes
//! then hold the function only to repeating itself. A kernel that walks block tables of its own implements
//! [`AttentionKernel`] itself.

use super::capabilities::Capabilities;
use super::conventions::Conventions;
use super::kernel::{AttentionKernel, Attributes, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
use super::numerics::Numerics;
use crate::tensor::Tensor;
use std::ops::Range;

/// One sequence of a call, decoded.
#[derive(Clone, Copy, Debug)]
pub struct SequenceCall<'a> {
    /// Heads, head dims, mask, scale and the rest.
    pub attributes: &'a Attributes<'a>,
    /// New rows, at least 1.
    pub rows: usize,
    /// Valid keys, the new rows' included; may be 0, and may be below `rows`.
    pub keys: usize,
    /// Leading keys that came from the prefix cache; 0 outside paged calls.
    pub prefix_len: usize,
    /// `[rows, q_heads, d_qk]`.
    pub q: &'a [f32],
    /// `[keys, kv_heads, d_qk]`; 8-bit keys are multiplied with their scale, rounded to f32.
    pub k: &'a [f32],
    /// `[keys, kv_heads, d_v]`; 8-bit values likewise.
    pub v: &'a [f32],
}

/// What outputs hold until they are written: a NaN that no arithmetic gives. An element that still has it is left unwritten in
/// the call's own output too, where the driver finds it.
const UNWRITTEN: u32 = 0xffc0_002a;

/// A kernel made from a function of one sequence, `forward(call, o, lse)`: `o` is `[rows, q_heads, d_v]`, `lse` is
/// `[rows, q_heads]` (natural logarithm), and every element must be written; a row without valid keys is `o = 0`, `lse = -inf`.
/// It refuses what it cannot do with [`KernelError::Unsupported`]; see [`Attributes::only`].
#[derive(Clone, Debug)]
pub struct PerSequence<F> {
    identity: Identity,
    conventions: Conventions,
    numerics: Option<Numerics>,
    has_lse: bool,
    capabilities: Capabilities,
    forward: F,
}

impl<F> PerSequence<F>
where
    F: Fn(&SequenceCall<'_>, &mut [f32], &mut [f32]) -> Result<(), KernelError> + Send + Sync,
{
    /// A kernel on the CPU with the usual conventions, undeclared numerics and an `lse`.
    pub fn new(name: &str, version: &str, forward: F) -> Self {
        let conventions = Conventions::default();
        let capabilities = Capabilities::default();
        PerSequence { identity: Identity::cpu(name, version), conventions, numerics: None, has_lse: true, capabilities, forward }
    }

    /// Declares other [conventions](AttentionKernel::conventions).
    pub fn conventions(mut self, conventions: Conventions) -> Self {
        self.conventions = conventions;
        self
    }

    /// Declares its [arithmetic](AttentionKernel::numerics).
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.numerics = Some(numerics);
        self
    }

    /// Declares what it [can do](AttentionKernel::capabilities): cases are drawn within it.
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The function does not write `lse`.
    pub fn without_lse(mut self) -> Self {
        self.has_lse = false;
        self
    }

    /// One sequence: its rows of `q` and its slots of `k` and `v`, counted over all leading axes.
    fn sequence(
        &self,
        attributes: &Attributes<'_>,
        (q, rows): (&Tensor, Range<usize>),
        (k, v, slots): (&Tensor, &Tensor, impl ExactSizeIterator<Item = usize> + Clone),
        prefix_len: usize,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), KernelError> {
        if rows.is_empty() {
            return Ok(());
        }
        let Attributes { q_heads, kv_heads, d_qk, d_v, .. } = *attributes;
        let width = q_heads * d_qk;
        let queries: Vec<f32> = q.decode(rows.start * width..rows.end * width).collect();
        let gather = |tensor: &Tensor, width: usize| -> Vec<f32> {
            slots.clone().flat_map(|slot| tensor.decode(slot * width..(slot + 1) * width)).collect()
        };
        let (mut keys, mut values) = (gather(k, kv_heads * d_qk), gather(v, kv_heads * d_v));
        if let Some(scales) = attributes.kv_scales {
            for (n, x) in keys.iter_mut().enumerate() {
                *x *= scales.of(n / d_qk % kv_heads).0;
            }
            for (n, x) in values.iter_mut().enumerate() {
                *x *= scales.of(n / d_v % kv_heads).1;
            }
        }
        let unwritten = f32::from_bits(UNWRITTEN);
        let mut o = vec![unwritten; rows.len() * q_heads * d_v];
        let mut lse = vec![unwritten; rows.len() * q_heads];
        let call =
            SequenceCall { attributes, rows: rows.len(), keys: slots.len(), prefix_len, q: &queries, k: &keys, v: &values };
        (self.forward)(&call, &mut o, &mut lse)?;
        let store = |tensor: &mut Tensor, values: &[f32], width: usize| {
            for (n, value) in values.iter().enumerate().filter(|(_, value)| value.to_bits() != UNWRITTEN) {
                tensor.store(rows.start * width + n, *value);
            }
        };
        store(outputs.o, &o, q_heads * d_v);
        if self.has_lse {
            store(outputs.lse, &lse, q_heads);
        }
        Ok(())
    }
}

impl<F> AttentionKernel for PerSequence<F>
where
    F: Fn(&SequenceCall<'_>, &mut [f32], &mut [f32]) -> Result<(), KernelError> + Send + Sync,
{
    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn conventions(&self) -> Conventions {
        self.conventions
    }

    fn numerics(&self) -> Option<Numerics> {
        self.numerics
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn has_lse(&self) -> bool {
        self.has_lse
    }

    fn varlen(&self, call: &VarlenCall<'_>, mut outputs: Outputs<'_>) -> Result<(), KernelError> {
        let range = |offsets: &[u32], n: usize| offsets[n] as usize..offsets[n + 1] as usize;
        for n in 0..call.cu_seqlens_q.len() - 1 {
            let (rows, keys) = (range(call.cu_seqlens_q, n), range(call.cu_seqlens_k, n));
            self.sequence(call.attributes, (call.q, rows), (call.k, call.v, keys), 0, &mut outputs)?;
        }
        Ok(())
    }

    fn dense(&self, call: &DenseCall<'_>, mut outputs: Outputs<'_>) -> Result<(), KernelError> {
        let range = |slots: usize, n: usize, length: u32| {
            let first = n * slots + call.start(slots, length);
            first..first + length as usize
        };
        for (n, (&q, &kv)) in call.lengths_q.iter().zip(call.lengths_kv).enumerate() {
            let (rows, keys) = (range(call.q.dims[1], n, q), range(call.k.dims[1], n, kv));
            self.sequence(call.attributes, (call.q, rows), (call.k, call.v, keys), 0, &mut outputs)?;
        }
        Ok(())
    }

    fn paged(&self, call: &PagedCall<'_>, mut outputs: Outputs<'_>) -> Result<(), KernelError> {
        let slots = call.k_cache.dims[1];
        for (n, offsets) in call.cu_seqlens_q.windows(2).enumerate() {
            let rows = offsets[0] as usize..offsets[1] as usize;
            let keys = (0..call.cache_seqlens[n] as usize).map(|position| match call.block_table {
                Some(table) => table.pages[n * table.width + position / slots] as usize * slots + position % slots,
                None => call.cache_rows[n] as usize * slots + position,
            });
            let cache = (call.k_cache, call.v_cache, keys);
            self.sequence(call.attributes, (call.q, rows), cache, call.prefix_lens[n] as usize, &mut outputs)?;
        }
        Ok(())
    }
}
