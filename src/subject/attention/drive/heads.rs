//! Head parallelism: each rank makes its own calls, with its heads and, at inference, a cache of its own.

use super::{Again, Observed, Observer, Produced, Stop};
use crate::finding::Fault;
use crate::subject::attention::{Inputs, Problem};
use crate::tensor::Tensor;
use std::ops::Range;

/// Drives a path once for each head-parallel rank, one rank after the other, and gathers the heads. Two ranks that share a KV head
/// each hold a copy of it.
///
/// # Errors
/// Those of the first rank that has any.
pub(super) fn each_rank(
    problem: &Problem,
    inputs: &Inputs,
    ranks: u32,
    mut observer: Option<Observer<'_>>,
    mut drive: impl FnMut(&Problem, &Inputs, Option<Observer<'_>>) -> Result<Produced, Stop>,
) -> Result<Produced, Stop> {
    if ranks == 1 {
        return drive(problem, inputs, observer);
    }
    let mut parts = Vec::with_capacity(ranks as usize);
    for rank in 0..ranks {
        let (heads, kv_heads) = problem.heads_of_rank(ranks, rank);
        let first = heads.start;
        let own = Inputs {
            q: of_heads(&inputs.q, heads),
            k: of_heads(&inputs.k, kv_heads.clone()),
            v: of_heads(&inputs.v, kv_heads),
            q_start: inputs.q_start.clone(),
            kv_start: inputs.kv_start.clone(),
        };
        let mut shifted = |seen: Observed<'_>| {
            if let Some(observer) = observer.as_mut() {
                observer(Observed { heads: seen.heads.start + first..seen.heads.end + first, ..seen });
            }
        };
        let part = drive(&problem.of_rank(ranks, rank), &own, Some(&mut shifted));
        parts.push(part.map_err(|stop| in_whole(stop, first))?);
    }
    Ok(gather(&parts))
}

/// Some heads of `[rows, heads, dim]`.
fn of_heads(tensor: &Tensor, heads: Range<usize>) -> Tensor {
    let (rows, dim) = (tensor.dims[0], tensor.dims[2]);
    let kept = |row: usize| &tensor.row(row)[heads.start * dim..heads.end * dim];
    Tensor { dtype: tensor.dtype, dims: vec![rows, heads.len(), dim], bits: (0..rows).flat_map(kept).copied().collect() }
}

/// A rank's head is number `first` and on of the problem.
fn in_whole(stop: Stop, first: usize) -> Stop {
    match stop {
        Stop::Fault(Fault::Unwritten { output, mut index }) => {
            for (_, head) in index.0.iter_mut().filter(|(axis, _)| *axis == "head") {
                *head += first as u64;
            }
            Stop::Fault(Fault::Unwritten { output, index })
        }
        other => other,
    }
}

/// The ranks' heads side by side. Every rank computes the same rows in the same steps.
fn gather(parts: &[Produced]) -> Produced {
    let beside = |pick: fn(&Produced) -> &Tensor| {
        let first = pick(&parts[0]);
        let mut dims = first.dims.clone();
        dims[1] = parts.iter().map(|part| pick(part).dims[1]).sum();
        let bits = (0..dims[0]).flat_map(|row| parts.iter().flat_map(move |part| pick(part).row(row))).copied().collect();
        Tensor { dtype: first.dtype, dims, bits }
    };
    let again = parts[0].again.iter().enumerate().map(|(n, it)| Again {
        row: it.row,
        o: parts.iter().flat_map(|part| &part.again[n].o).copied().collect(),
        lse: parts.iter().flat_map(|part| &part.again[n].lse).copied().collect(),
    });
    Produced {
        o: beside(|part| &part.o),
        lse: beside(|part| &part.lse),
        present: parts[0].present.clone(),
        again: again.collect(),
        calls: parts.iter().map(|part| part.calls).sum(),
    }
}
