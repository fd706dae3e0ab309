//! One row of one call, asked with scores and values of our own.

use crate::finding::Path;
use crate::number::Dtype;
use crate::reveal::Refusal;
use crate::subject::attention::drive::{self, Poison, Stop, sequence_of};
use crate::subject::attention::kernel::AttentionKernel;
use crate::subject::attention::{Case, Data, Inputs, Literal, Problem};
use std::ops::Range;

/// A row and head of a case, whose values are put in by whoever asks. All other sequences hold zeros.
///
/// Queries are 1 in lane 0 and 0 elsewhere, so that a key's score is its own lane 0 times the softmax scale.
pub(super) struct Stand<'k> {
    kernel: &'k dyn AttentionKernel,
    case: Case,
    path: Path,
    inputs: Inputs,
    sequence: usize,
    row: usize,
    head: usize,
    keys: Range<u32>,
    /// Kernel calls of the path that were made.
    pub(super) runs: u64,
}

/// What the row gave.
pub(super) struct Answer {
    /// `[d_v]`, in the output format.
    pub(super) o: Vec<u32>,
    /// F32.
    pub(super) lse: u32,
}

impl<'k> Stand<'k> {
    /// Takes lengths, plans, heads, head dims, mask and formats from a case. What would move scores (softcap, sinks, ALiBi) is left out.
    ///
    /// # Errors
    /// In words, where the row has nothing to ask about.
    pub(super) fn new(kernel: &'k dyn AttentionKernel, case: &Case, path: Path, row: usize, head: usize) -> Result<Self, String> {
        let mut case = case.clone();
        let problem = &mut case.problem;
        (problem.softcap, problem.sinks, problem.alibi_slopes) = (None, None, None);
        if problem.fp8_kv.is_some() {
            return Err("keys and values in an 8-bit format cannot hold a value that swamps the others".to_owned());
        }
        if row >= problem.total_q() || head >= problem.q_heads() {
            return Err(format!("there is no row {row}, head {head}"));
        }
        let (sequence, in_sequence) = sequence_of(problem, row);
        let it = problem.sequences[sequence];
        let keys = problem.mask.keys(in_sequence, it.q, it.kv);
        if keys.is_empty() {
            return Err(format!("row {row} sees no keys"));
        }
        case.data = Data::Literal(zeros(problem));
        let mut inputs = Inputs::new(&case, None);
        let (one, d) = (inputs.q.dtype.round_f32(1.0), case.problem.d_qk as usize);
        inputs.q.bits.iter_mut().step_by(d).for_each(|x| *x = one);
        Ok(Stand { kernel, case, path, inputs, sequence, row, head, keys, runs: 0 })
    }

    pub(super) fn problem(&self) -> &Problem {
        &self.case.problem
    }

    /// Storage of q, k and v.
    pub(super) fn inputs(&self) -> Dtype {
        self.case.problem.dtype
    }

    /// Format of `o`.
    pub(super) fn output(&self) -> Dtype {
        self.case.problem.out_dtype
    }

    /// The keys that the row sees.
    pub(super) fn keys(&self) -> Range<u32> {
        self.keys.clone()
    }

    /// Lanes of a value.
    pub(super) fn lanes(&self) -> usize {
        self.case.problem.d_v as usize
    }

    pub(super) fn set_scale(&mut self, scale: f32) {
        self.case.problem.softmax_scale = scale;
    }

    /// Puts the same query into every row and head.
    pub(super) fn set_query(&mut self, lanes: &[f32]) {
        let dtype = self.inputs.q.dtype;
        let lanes: Vec<u32> = lanes.iter().map(|&x| dtype.round_f32(x)).collect();
        self.inputs.q.bits.chunks_exact_mut(lanes.len()).for_each(|row| row.copy_from_slice(&lanes));
    }

    /// Puts a key into every head.
    pub(super) fn set_key(&mut self, key: u32, lanes: &[f32]) {
        let at = self.inputs.kv_start[self.sequence] + key as usize;
        let k = &mut self.inputs.k;
        let lanes: Vec<u32> = lanes.iter().map(|&x| k.dtype.round_f32(x)).collect();
        k.row_mut(at).chunks_exact_mut(lanes.len()).for_each(|head| head.copy_from_slice(&lanes));
    }

    /// Gives each key a score by its lane 0, `score(key)` in natural units before rounding to the storage format.
    pub(super) fn set_scores(&mut self, score: impl Fn(u32) -> f32) {
        let mut lanes = vec![0.0; self.case.problem.d_qk as usize];
        let scale = self.case.problem.softmax_scale;
        for key in self.keys() {
            lanes[0] = score(key) / scale;
            self.set_key(key, &lanes);
        }
    }

    /// Puts a value into one lane of a key, in every head.
    pub(super) fn set_value(&mut self, key: u32, lane: usize, value: f32) {
        let at = self.inputs.kv_start[self.sequence] + key as usize;
        let (v, d) = (&mut self.inputs.v, self.case.problem.d_v as usize);
        let bits = v.dtype.round_f32(value);
        v.row_mut(at)[lane..].iter_mut().step_by(d).for_each(|x| *x = bits);
    }

    /// Sets all values to 0.
    pub(super) fn clear_values(&mut self) {
        self.inputs.v.bits.fill(0);
    }

    /// Runs the path and reads the row.
    ///
    /// # Errors
    /// [`Refusal::Call`] when the kernel stops, or does not compute the row.
    pub(super) fn run(&mut self) -> Result<Answer, Refusal> {
        self.runs += 1;
        let Case { problem, train, infer, .. } = &self.case;
        let produced = match self.path {
            Path::Train => drive::train(self.kernel, problem, train, &self.inputs, Poison::Nan, None),
            Path::Infer => drive::infer(self.kernel, problem, infer, &self.inputs, Poison::Nan, None),
        };
        let produced = produced.map_err(|stop| {
            Refusal::Call(match stop {
                Stop::Unsupported(reason) => format!("unsupported: {reason}"),
                Stop::Fault(fault) => fault.to_string(),
            })
        })?;
        if !produced.present[self.row] {
            return Err(Refusal::Call(format!("the plan does not compute row {}", self.row)));
        }
        let lanes = self.lanes();
        let o = produced.o.row(self.row)[self.head * lanes..(self.head + 1) * lanes].to_vec();
        Ok(Answer { o, lse: produced.lse.row(self.row)[self.head] })
    }

    pub(super) fn has_lse(&self) -> bool {
        self.kernel.has_lse()
    }
}

fn zeros(problem: &Problem) -> Literal {
    let (rows, keys) = (problem.total_q() * problem.q_heads(), problem.total_kv() * problem.kv_heads());
    Literal {
        q: vec![0; rows * problem.d_qk as usize],
        k: vec![0; keys * problem.d_qk as usize],
        v: vec![0; keys * problem.d_v as usize],
    }
}
