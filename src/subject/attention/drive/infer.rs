//! The inference path: engine steps over a KV cache.

use super::cache::KvCache;
use super::heads::each_rank;
use super::{Gather, NO_ROW, Observed, Observer, Poison, Produced, Stop, refuse, schedule, strides};
use crate::subject::attention::kernel::{AttentionKernel, Attributes, BlockTable, Call, PagedCall};
use crate::subject::attention::{InferPlan, Inputs, Problem};
use crate::tensor::Tensor;

/// Query rows per tile in inference calls: `block_q` belongs to the training plan.
const INFER_BLOCK_Q: u32 = 64;

/// Drives the inference plan through a kernel.
///
/// # Errors
/// When the kernel does not support the case, fails, or leaves a slot unwritten.
pub fn infer(
    kernel: &dyn AttentionKernel,
    problem: &Problem,
    plan: &InferPlan,
    inputs: &Inputs,
    poison: Poison,
    observer: Option<Observer<'_>>,
) -> Result<Produced, Stop> {
    refuse(kernel, &Attributes::of(problem, INFER_BLOCK_Q, plan.context, &plan.knobs))?;
    each_rank(problem, inputs, plan.head_ranks, observer, |problem, inputs, observer| {
        steps(kernel, problem, plan, inputs, poison, observer)
    })
}

/// The engine steps of one head-parallel rank.
fn steps(
    kernel: &dyn AttentionKernel,
    problem: &Problem,
    plan: &InferPlan,
    inputs: &Inputs,
    poison: Poison,
    mut observer: Option<Observer<'_>>,
) -> Result<Produced, Stop> {
    let attributes = Attributes::of(problem, INFER_BLOCK_Q, plan.context, &plan.knobs);
    let mut gather = Gather::new(problem, kernel.has_lse());
    let mut cache = KvCache::new(problem, plan.cache, inputs, poison);
    let [q_stride, ..] = strides(inputs);
    // One-token steps are many and short: they share their buffers.
    let mut batch: Vec<Option<usize>> = Vec::new();
    let (mut rows, mut cache_seqlens, mut cu_seqlens_q, mut prefix_lens) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let dead = poison.bits(problem.dtype);
    let mut q = Tensor::filled(problem.dtype, &[0, problem.q_heads(), problem.d_qk as usize], dead);
    for step in schedule(problem, plan) {
        batch.clear();
        for list in [&mut rows, &mut cache_seqlens, &mut cu_seqlens_q, &mut prefix_lens] {
            list.clear();
        }
        cu_seqlens_q.push(0);
        for entry in &step {
            if entry.rebuilt {
                cache.release(entry.sequence);
            }
            cache.fill(entry.sequence, entry.kv);
            let start = inputs.q_start[entry.sequence] as u32 + entry.first_row;
            rows.extend(start..start + entry.rows);
            batch.push(Some(entry.sequence));
            cache_seqlens.push(entry.kv);
            cu_seqlens_q.push(rows.len() as u32);
            let (sequence, hit) = (problem.sequences[entry.sequence], plan.requests[entry.sequence].hit);
            let context = (sequence.kv + hit).saturating_sub(sequence.q);
            prefix_lens.push(if hit > 0 { context } else { 0 });
        }
        while !batch.len().is_multiple_of(plan.bucket as usize) {
            batch.push(None);
            rows.push(NO_ROW);
            cache_seqlens.push(0);
            cu_seqlens_q.push(rows.len() as u32);
            prefix_lens.push(0);
        }
        q.dims[0] = rows.len();
        q.bits.clear();
        for &row in &rows {
            match row {
                NO_ROW => q.bits.extend(std::iter::repeat_n(dead, q_stride)),
                row => q.bits.extend_from_slice(inputs.q.row(row as usize)),
            }
        }
        let table = cache.block_table(&batch);
        let cache_rows: Vec<u32> = match table {
            Some(_) => Vec::new(),
            None => batch.iter().map(|entry| entry.unwrap_or(0) as u32).collect(),
        };
        let call = PagedCall {
            attributes: &attributes,
            q: &q,
            k_cache: &cache.k,
            v_cache: &cache.v,
            block_table: table.as_ref().map(|(pages, width)| BlockTable { pages, width: *width }),
            cache_rows: &cache_rows,
            cache_seqlens: &cache_seqlens,
            cu_seqlens_q: &cu_seqlens_q,
            prefix_lens: &prefix_lens,
        };
        if let Some(observer) = observer.as_mut() {
            observer(Observed { call: Call::Paged(&call), rows: &rows, heads: 0..problem.q_heads() });
        }
        gather.call(&[rows.len()], &rows, |outputs| kernel.paged(&call, outputs))?;
        for entry in &step {
            if entry.last {
                cache.release(entry.sequence);
            } else if entry.kept < entry.kv {
                cache.roll_back(entry.sequence, entry.kept);
            }
        }
    }
    Ok(gather.finish())
}
