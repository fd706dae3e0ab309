//! The values of a case: q, k and v as packed tensors.
//!
//! Geometry and data are addressed separately: every drawn value is a pure function of (data seed, tensor, sequence id, position,
//! head label, lane), so that removing a sequence, a head or a row leaves the others' values as they are. Layout, padding and
//! poison are the driver's business.

mod mirror;
mod regime;
mod values;

use super::case::{Case, Data, Literal, Problem};
use crate::number::Dtype;
use crate::tensor::Tensor;
use regime::Generator;

/// One of the three inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorName {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
}

/// Values of captured tensors.
pub trait CapturedValues {
    /// One value, before rounding to the case's storage formats.
    ///
    /// `sequence_id` names a sequence of the file, `position` a token in it (a query row at a negative position asks for token 0),
    /// `head_label` a head: the KV head's label for K and V, `kv_label * 64 + group_label` for Q.
    fn value(&self, tensor: TensorName, sequence_id: u32, position: u32, head_label: u32, lane: u32) -> f64;
}

/// The tensors of a case, packed over the sequences in problem order, in the problem's storage dtypes; all values finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// `[total_q, q_heads, d_qk]`. Row `i` of a sequence stands at position `i + kv - q`, which may be negative.
    pub q: Tensor,
    /// `[total_kv, kv_heads, d_qk]`.
    pub k: Tensor,
    /// `[total_kv, kv_heads, d_v]`.
    pub v: Tensor,
    /// First row in `q` of each sequence.
    pub q_start: Vec<usize>,
    /// First position in `k` and `v` of each sequence.
    pub kv_start: Vec<usize>,
}

/// Inputs made before, and the problem they belong to. Values are addressed by sequence id and position, so that cases of the same
/// data and the same heads share rows.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Whose inputs.
    pub problem: &'a Problem,
    /// The inputs.
    pub inputs: &'a Inputs,
}

impl<'a> Known<'a> {
    fn sequence(self, id: u32) -> Option<KnownSequence<'a>> {
        let n = self.problem.sequences.iter().position(|it| it.id == id)?;
        Some(KnownSequence { known: self, n })
    }
}

/// One sequence of [`Known`] inputs.
#[derive(Clone, Copy)]
struct KnownSequence<'a> {
    known: Known<'a>,
    n: usize,
}

impl<'a> KnownSequence<'a> {
    fn q_row(self, position: i64) -> Option<&'a [u32]> {
        let it = self.known.problem.sequences[self.n];
        let row = position - (i64::from(it.kv) - i64::from(it.q));
        let inputs = self.known.inputs;
        (0..i64::from(it.q)).contains(&row).then(|| inputs.q.row(inputs.q_start[self.n] + row as usize))
    }

    fn kv_rows(self, position: i64) -> Option<(&'a [u32], &'a [u32])> {
        let inputs = self.known.inputs;
        let held = position < i64::from(self.known.problem.sequences[self.n].kv);
        let row = inputs.kv_start[self.n] + position as usize;
        held.then(|| (inputs.k.row(row), inputs.v.row(row)))
    }
}

impl Inputs {
    /// Makes the values of a valid case. `captured` is needed for [`Data::Captured`] only.
    ///
    /// Captured values beyond the storage format's range become its largest finite number; in an 8-bit format, what is stored is the
    /// value over the scale of its head.
    ///
    /// # Panics
    /// If literal data do not have the problem's shape (validation refuses that), or if captured values are needed and missing.
    pub fn new(case: &Case, captured: Option<&dyn CapturedValues>) -> Inputs {
        Inputs::with(case, captured, None)
    }

    /// The same as [`Inputs::new`], copying what another case of the same data and the same heads already made.
    ///
    /// # Panics
    /// As [`Inputs::new`].
    pub fn with(case: &Case, captured: Option<&dyn CapturedValues>, known: Option<Known<'_>>) -> Inputs {
        let problem = &case.problem;
        let (q_heads, kv_heads) = (problem.q_heads(), problem.kv_heads());
        let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
        let mut inputs = Inputs {
            q: Tensor::filled(problem.dtype, &[problem.total_q(), q_heads, d_qk], 0),
            k: Tensor::filled(problem.kv_dtype(), &[problem.total_kv(), kv_heads, d_qk], 0),
            v: Tensor::filled(problem.kv_dtype(), &[problem.total_kv(), kv_heads, d_v], 0),
            q_start: starts(problem.sequences.iter().map(|s| s.q)),
            kv_start: starts(problem.sequences.iter().map(|s| s.kv)),
        };
        match &case.data {
            Data::Drawn { seed, regime } => {
                let generator = Generator::new(problem, *seed, *regime);
                inputs.each_row(problem, known, |tensor, sequence, position, head, row| match tensor {
                    TensorName::Q => generator.q_row(sequence, position, head, row),
                    TensorName::K => generator.k_row(sequence, position, head, row),
                    TensorName::V => generator.v_row(sequence, position, head, row),
                });
            }
            Data::Literal(literal) => inputs.copy(literal),
            Data::Captured { sha256 } => {
                let captured = captured.unwrap_or_else(|| panic!("the captured tensors {sha256} are not loaded"));
                let scales = |label: u64| {
                    let head = problem.kv_head_ids.iter().position(|&id| u64::from(id) == label);
                    problem.kv_scales(head.unwrap_or(0))
                };
                inputs.each_row(problem, known, |tensor, sequence, position, head, row| {
                    let position = position.max(0) as u32;
                    let (dtype, scale) = match tensor {
                        TensorName::Q => (problem.dtype, 1.0),
                        TensorName::K => (problem.kv_dtype(), scales(head).0),
                        TensorName::V => (problem.kv_dtype(), scales(head).1),
                    };
                    for (lane, slot) in row.iter_mut().enumerate() {
                        let value = captured.value(tensor, sequence, position, head as u32, lane as u32);
                        *slot = round_finite(dtype, value / f64::from(scale));
                    }
                });
            }
        }
        inputs
    }

    /// Calls `fill(tensor, sequence id, position, head label, row)` for every row of every head that `known` does not hold.
    fn each_row(
        &mut self,
        problem: &Problem,
        known: Option<Known<'_>>,
        mut fill: impl FnMut(TensorName, u32, i64, u64, &mut [u32]),
    ) {
        let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
        let [q_stride, k_stride, v_stride] = [self.q.stride(), self.k.stride(), self.v.stride()];
        let mut q_rows = self.q.bits.chunks_exact_mut(q_stride);
        let mut k_rows = self.k.bits.chunks_exact_mut(k_stride);
        let mut v_rows = self.v.bits.chunks_exact_mut(v_stride);
        for sequence in &problem.sequences {
            let old = known.and_then(|known| known.sequence(sequence.id));
            let first = i64::from(sequence.kv) - i64::from(sequence.q);
            for (position, row) in (first..i64::from(sequence.kv)).zip(&mut q_rows) {
                if let Some(old) = old.and_then(|old| old.q_row(position)) {
                    row.copy_from_slice(old);
                    continue;
                }
                let heads = problem.kv_head_ids.iter().flat_map(|&kv| problem.group_ids.iter().map(move |&group| (kv, group)));
                for ((kv_head, group), row) in heads.zip(row.chunks_exact_mut(d_qk)) {
                    fill(TensorName::Q, sequence.id, position, u64::from(kv_head) * 64 + u64::from(group), row);
                }
            }
            for ((position, k), v) in (0..i64::from(sequence.kv)).zip(&mut k_rows).zip(&mut v_rows) {
                if let Some((old_k, old_v)) = old.and_then(|old| old.kv_rows(position)) {
                    k.copy_from_slice(old_k);
                    v.copy_from_slice(old_v);
                    continue;
                }
                let rows = k.chunks_exact_mut(d_qk).zip(v.chunks_exact_mut(d_v));
                for (&kv_head, (k, v)) in problem.kv_head_ids.iter().zip(rows) {
                    fill(TensorName::K, sequence.id, position, u64::from(kv_head), k);
                    fill(TensorName::V, sequence.id, position, u64::from(kv_head), v);
                }
            }
        }
    }

    fn copy(&mut self, literal: &Literal) {
        self.q.bits.copy_from_slice(&literal.q);
        self.k.bits.copy_from_slice(&literal.k);
        self.v.bits.copy_from_slice(&literal.v);
    }
}

fn starts(lengths: impl Iterator<Item = u32>) -> Vec<usize> {
    lengths
        .scan(0, |next, length| {
            let start = *next;
            *next += length as usize;
            Some(start)
        })
        .collect()
}

fn round_finite(dtype: Dtype, value: f64) -> u32 {
    let max = dtype.max_finite();
    // NaN passes `clamp`; the loader of captured files refuses it.
    dtype.round_f64(value.clamp(-max, max))
}

#[cfg(test)]
mod tests;
