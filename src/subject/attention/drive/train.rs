//! The training path: the whole batch in one call, padded or packed.

use super::heads::each_rank;
use super::{Gather, NO_ROW, Observed, Observer, Poison, Produced, Stop, copy_rows, refuse, strides};
use crate::subject::attention::kernel::{AttentionKernel, Attributes, Call, DenseCall, VarlenCall};
use crate::subject::attention::{Inputs, Problem, Side, TrainLayout, TrainPlan};
use crate::tensor::Tensor;

/// Drives the training plan through a kernel.
///
/// # Errors
/// When the kernel does not support the case, fails, or leaves a slot unwritten.
pub fn train(
    kernel: &dyn AttentionKernel,
    problem: &Problem,
    plan: &TrainPlan,
    inputs: &Inputs,
    poison: Poison,
    observer: Option<Observer<'_>>,
) -> Result<Produced, Stop> {
    refuse(kernel, &Attributes::of(problem, plan.block_q, plan.context, &plan.knobs))?;
    each_rank(problem, inputs, plan.head_ranks, observer, |problem, inputs, observer| match plan.layout {
        TrainLayout::Varlen => varlen(kernel, problem, plan, inputs, observer),
        TrainLayout::Dense { side, pad_q, pad_kv } => {
            dense(kernel, problem, plan, inputs, (side, pad_q, pad_kv), poison, observer)
        }
    })
}

fn varlen(
    kernel: &dyn AttentionKernel,
    problem: &Problem,
    plan: &TrainPlan,
    inputs: &Inputs,
    observer: Option<Observer<'_>>,
) -> Result<Produced, Stop> {
    let attributes = Attributes::of(problem, plan.block_q, plan.context, &plan.knobs);
    let [q_stride, k_stride, v_stride] = strides(inputs);
    let in_order = plan.order.iter().enumerate().all(|(slot, &n)| slot == n as usize);
    let reordered = (!in_order).then(|| {
        let mut packed = [inputs.q.clone(), inputs.k.clone(), inputs.v.clone()];
        let (mut q_at, mut kv_at) = (0, 0);
        for &n in &plan.order {
            let n = n as usize;
            let (q, kv) = (problem.sequences[n].q as usize, problem.sequences[n].kv as usize);
            copy_rows(&inputs.q, inputs.q_start[n], q, q_stride, &mut packed[0], q_at);
            copy_rows(&inputs.k, inputs.kv_start[n], kv, k_stride, &mut packed[1], kv_at);
            copy_rows(&inputs.v, inputs.kv_start[n], kv, v_stride, &mut packed[2], kv_at);
            (q_at, kv_at) = (q_at + q, kv_at + kv);
        }
        packed
    });
    let [q, k, v] = match &reordered {
        Some([q, k, v]) => [q, k, v],
        None => [&inputs.q, &inputs.k, &inputs.v],
    };
    let mut cu_seqlens_q = vec![0];
    let mut cu_seqlens_k = vec![0];
    let mut rows = Vec::with_capacity(problem.total_q());
    for &n in &plan.order {
        let sequence = problem.sequences[n as usize];
        cu_seqlens_q.push(cu_seqlens_q[cu_seqlens_q.len() - 1] + sequence.q);
        cu_seqlens_k.push(cu_seqlens_k[cu_seqlens_k.len() - 1] + sequence.kv);
        let start = inputs.q_start[n as usize] as u32;
        rows.extend(start..start + sequence.q);
    }
    let call = VarlenCall { attributes: &attributes, q, k, v, cu_seqlens_q: &cu_seqlens_q, cu_seqlens_k: &cu_seqlens_k };
    if let Some(observer) = observer {
        observer(Observed { call: Call::Varlen(&call), rows: &rows, heads: 0..problem.q_heads() });
    }
    let mut gather = Gather::new(problem, kernel.has_lse());
    gather.call(&[rows.len()], &rows, |outputs| kernel.varlen(&call, outputs))?;
    Ok(gather.finish())
}

fn dense(
    kernel: &dyn AttentionKernel,
    problem: &Problem,
    plan: &TrainPlan,
    inputs: &Inputs,
    (side, pad_q, pad_kv): (Side, u32, u32),
    poison: Poison,
    observer: Option<Observer<'_>>,
) -> Result<Produced, Stop> {
    let attributes = Attributes::of(problem, plan.block_q, plan.context, &plan.knobs);
    let batch = problem.sequences.len();
    let longest =
        |length: fn(&crate::subject::attention::Sequence) -> u32| problem.sequences.iter().map(length).max().unwrap_or(0);
    let seq_q = (longest(|s| s.q) + pad_q) as usize;
    let seq_kv = (longest(|s| s.kv) + pad_kv) as usize;
    let (heads, kv_heads) = (problem.q_heads(), problem.kv_heads());
    let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
    let [q_stride, k_stride, v_stride] = strides(inputs);
    let (dead, kv_dtype) = (poison.bits(problem.dtype), problem.kv_dtype());
    let dead_kv = poison.bits(kv_dtype);
    let mut q = Tensor::filled(problem.dtype, &[batch, seq_q, heads, d_qk], dead);
    let mut k = Tensor::filled(kv_dtype, &[batch, seq_kv, kv_heads, d_qk], dead_kv);
    let mut v = Tensor::filled(kv_dtype, &[batch, seq_kv, kv_heads, d_v], dead_kv);
    let mut rows = vec![NO_ROW; batch * seq_q];
    let mut lengths_q = Vec::with_capacity(batch);
    let mut lengths_kv = Vec::with_capacity(batch);
    for (slot, &n) in plan.order.iter().enumerate() {
        let n = n as usize;
        let sequence = problem.sequences[n];
        let (q_len, kv_len) = (sequence.q as usize, sequence.kv as usize);
        let (q_first, kv_first) = match side {
            Side::Left => (seq_q - q_len, seq_kv - kv_len),
            Side::Right => (0, 0),
        };
        let (q_at, kv_at) = (slot * seq_q + q_first, slot * seq_kv + kv_first);
        copy_rows(&inputs.q, inputs.q_start[n], q_len, q_stride, &mut q, q_at);
        copy_rows(&inputs.k, inputs.kv_start[n], kv_len, k_stride, &mut k, kv_at);
        copy_rows(&inputs.v, inputs.kv_start[n], kv_len, v_stride, &mut v, kv_at);
        for row in 0..q_len {
            rows[q_at + row] = (inputs.q_start[n] + row) as u32;
        }
        lengths_q.push(sequence.q);
        lengths_kv.push(sequence.kv);
    }
    let call =
        DenseCall { attributes: &attributes, q: &q, k: &k, v: &v, padding: side, lengths_q: &lengths_q, lengths_kv: &lengths_kv };
    if let Some(observer) = observer {
        observer(Observed { call: Call::Dense(&call), rows: &rows, heads: 0..problem.q_heads() });
    }
    let mut gather = Gather::new(problem, kernel.has_lse());
    gather.call(&[batch, seq_q], &rows, |outputs| kernel.dense(&call, outputs))?;
    Ok(gather.finish())
}
