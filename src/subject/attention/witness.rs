//! The order witness: evidence that a case could have failed.
//!
//! One row group (the last row of one sequence, all heads) is run twice through the training kernel in its reference form: as it
//! is, and with one changed recipe. If no bit moves, the case is blind to order and its match proves little.

use super::drive::Poison;
use super::numerics::{Order, Traverse};
use super::reference::Reference;
use super::select::{Keep, Selection};
use super::{Anchor, Case, Inputs, TrainLayout, drive};
use crate::finding::same;
use crate::number::Dtype;

/// Whether another order of summation changes a bit of some output. `None` where the row cannot be run.
pub(super) fn order_sensitive(reference: &Reference, case: &Case, inputs: &Inputs) -> Option<bool> {
    let (group, row) = row_group(case)?;
    let group_inputs = cut(inputs, case, row);
    let run = |kernel: &Reference| drive::train(kernel, &group.problem, &group.train, &group_inputs, Poison::Nan, None).ok();
    let base = run(reference)?;
    let changed = run(&reordered(reference))?;
    let last = base.o.dims[0] - 1;
    let differs = |dtype: Dtype, a: &[u32], b: &[u32]| a.iter().zip(b).any(|(&a, &b)| !same(dtype, a, b));
    // `o` alone: the verdict is per output dtype, and lse is always f32.
    Some(differs(case.problem.out_dtype, base.o.row(last), changed.o.row(last)))
}

/// The same kernel with another order over keys: a tree where it was a chain, a chain where it was not.
fn reordered(reference: &Reference) -> Reference {
    let mut changed = reference.clone();
    let numerics = &mut changed.numerics;
    numerics.value.order = match numerics.value.order {
        Order::Sequential => Order::Pairwise,
        _ => Order::Sequential,
    };
    numerics.softmax.traverse = match numerics.softmax.traverse {
        Traverse::Forward => Traverse::Backward,
        Traverse::Backward => Traverse::Forward,
    };
    changed
}

/// The last row of the sequence whose last row sees the most keys, as a case of its own.
fn row_group(case: &Case) -> Option<(Case, (usize, u32))> {
    let problem = &case.problem;
    let visible = |n: usize| {
        let it = problem.sequences[n];
        if it.q == 0 { 0 } else { problem.mask.keys(it.q - 1, it.q, it.kv).len() }
    };
    let n = (0..problem.sequences.len()).max_by_key(|&n| (visible(n), std::cmp::Reverse(n)))?;
    let it = problem.sequences[n];
    if it.q == 0 {
        return None;
    }
    // A lone last row keeps its position under a bottom-right or no causal mask; a top-left one needs the rows before it.
    let first = if problem.mask.causal == Some(Anchor::TopLeft) { 0 } else { it.q - 1 };
    let mut selection = Selection::sequences(problem, [n]);
    selection.sequences = vec![Keep::ranges(n, first..it.q, 0..it.kv)];
    let mut group = selection.apply(case);
    group.train.layout = TrainLayout::Varlen;
    Some((group, (n, first)))
}

fn cut(inputs: &Inputs, case: &Case, (n, first): (usize, u32)) -> Inputs {
    let it = case.problem.sequences[n];
    let rows = |tensor: &crate::tensor::Tensor, from: usize, count: usize| {
        let stride = tensor.stride();
        let mut dims = tensor.dims.clone();
        dims[0] = count;
        let bits = tensor.bits[from * stride..(from + count) * stride].to_vec();
        crate::tensor::Tensor { dtype: tensor.dtype, dims, bits }
    };
    let (q_at, kv_at) = (inputs.q_start[n] + first as usize, inputs.kv_start[n]);
    Inputs {
        q: rows(&inputs.q, q_at, (it.q - first) as usize),
        k: rows(&inputs.k, kv_at, it.kv as usize),
        v: rows(&inputs.v, kv_at, it.kv as usize),
        q_start: vec![0],
        kv_start: vec![0],
    }
}
