//! Data made to tell causes apart: the case's problem and plans with other values.

use crate::number::Dtype;
use crate::subject::attention::check::Pair;
use crate::subject::attention::{Case, Data, Inputs, Literal, Problem};
use crate::tensor::Tensor;

/// The case with changed values, spelled out.
pub(super) fn with(pair: &Pair, case: &Case, change: impl FnOnce(&mut Problem, &mut Inputs)) -> Case {
    let mut inputs = pair.inputs(case);
    let mut case = case.clone();
    change(&mut case.problem, &mut inputs);
    case.data = Data::Literal(Literal { q: inputs.q.bits, k: inputs.k.bits, v: inputs.v.bits });
    case
}

/// All scores zero; biases of the distance itself, and sinks that weigh as much as one key, where the case has them: whatever their size in
/// the case, leaving them out then shows.
pub(super) fn equal_scores(problem: &mut Problem, inputs: &mut Inputs) {
    inputs.q.bits.fill(0);
    problem.alibi_slopes.iter_mut().flatten().for_each(|slope| *slope = 1.0);
    problem.sinks.iter_mut().flatten().for_each(|sink| *sink = 0.0);
}

/// Scores that rise (`step` above zero) or fall from position to position, in natural units and about evenly.
pub(super) fn stairs(problem: &Problem, inputs: &mut Inputs, step: f64) {
    let (d, heads) = (problem.d_qk as usize, problem.kv_heads());
    let one = problem.dtype.round_f32(1.0);
    inputs.q.bits.iter_mut().enumerate().for_each(|(n, bits)| *bits = if n % d == 0 { one } else { 0 });
    inputs.k.bits.fill(0);
    let dtype = problem.kv_dtype();
    for (sequence, &start) in problem.sequences.iter().zip(&inputs.kv_start) {
        for position in 0..sequence.kv as usize {
            for head in 0..heads {
                let (scale, _) = problem.kv_scales(head);
                let value = step * position as f64 / f64::from(problem.softmax_scale) / f64::from(scale);
                let value = value.clamp(-dtype.max_finite(), dtype.max_finite());
                inputs.k.bits[((start + position) * heads + head) * d] = dtype.round_f64(value);
            }
        }
    }
}

/// Values that are one in a lane of their own for each of some keys, counted over all sequences, `unit` keys to a lane, and zero elsewhere.
pub(super) fn one_hot(v: &mut Tensor, first_key: usize, unit: usize) {
    let one = v.dtype.round_f32(1.0);
    let lanes = v.dims[2];
    for (n, bits) in v.bits.iter_mut().enumerate() {
        let (key, lane) = (n / v.dims[2] / v.dims[1], n % lanes);
        let hot = key.checked_sub(first_key).is_some_and(|key| key / unit == lane);
        *bits = if hot { one } else { 0 };
    }
}

/// Values of one in one KV head, and zero in the others.
pub(super) fn one_head(v: &mut Tensor, head: usize) {
    let one = v.dtype.round_f32(1.0);
    let [heads, lanes] = [v.dims[1], v.dims[2]];
    v.bits.iter_mut().enumerate().for_each(|(n, bits)| *bits = if n / lanes % heads == head { one } else { 0 });
}

/// The same case with outputs in f32, where fewer roundings stand between a weight and what is seen of it.
pub(super) fn wide_output(case: &mut Case) {
    case.problem.out_dtype = Dtype::F32;
}
