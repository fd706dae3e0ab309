//! Which keys a row reaches, in which head, and with which weight: semantics, or a running state that loses them.

use super::looker::{Looked, Looker, Run, at, place};
use super::{design, seen};
use crate::finding::Inaccuracy;
use crate::number::{Class, Dtype};
use crate::subject::attention::cause::{Cause, CauseKind, Method};
use crate::subject::attention::drive::element_index;
use crate::subject::attention::select::fit_plans;
use crate::subject::attention::{Case, Inputs, Problem};
use crate::tensor::Tensor;

/// Runs with one-hot values that one look may take; longer cases show several keys in one lane. Each costs what the case costs, and a
/// shrunk case takes well under a millisecond.
const RUNS: usize = 64;

/// The least weight that no arithmetic flushes to zero: f16's least normal number.
const LEAST_WEIGHT: f64 = 1.0 / 16384.0;

/// Sums of so many ones are exact in bf16, the shortest accumulator.
const EXACT_SUM: usize = 256;

/// Where values are one.
#[derive(Clone, Copy)]
enum Values {
    /// For these keys, in lanes of their own.
    Keys { first: usize, unit: usize },
    /// In this KV head.
    Head(usize),
}

/// Looks at a run with equal scores, then with the case's own, then at the results themselves.
pub(super) fn keys(looker: &mut Looker<'_>, run: &Run) -> Option<Cause> {
    let mut equal = design::with(looker.pair, looker.case, design::equal_scores);
    let mut own = design::with(looker.pair, looker.case, |_, _| ());
    let mut wide = equal.clone();
    design::wide_output(&mut wide);
    if looker.run(run, &wide).is_some() {
        design::wide_output(&mut equal);
        design::wide_output(&mut own);
    }
    let problem = &looker.case.problem;
    // With a bias, weights are no longer ones.
    let exact = problem.alibi_slopes.is_none() && problem.sequences.iter().all(|it| (it.kv as usize) < EXACT_SUM);
    if let Some((wrong, values, looked)) = first_wrong(looker, run, &equal, exact) {
        return Some(with_equal_scores(looker, run, &wrong, values, &looked));
    }
    if let Some((wrong, values, looked)) = first_wrong(looker, run, &own, false) {
        return Some(with_own_scores(looker, run, &wrong, values, &looked));
    }
    let looked = looker.run(run, looker.case)?;
    let wrong = looker.inexplicable(run, &looked, false)?;
    Some(match finite(&wrong) {
        true => {
            let what = format!("{}: no arithmetic explains it, though the weights of its keys are right", results(run, &wrong));
            seen(CauseKind::Semantics, Method::Keys, what)
        }
        false if too_small_to_overflow(&looked) => {
            let what = format!("{}: no number on the way to it is too large for any format", results(run, &wrong));
            seen(CauseKind::Semantics, Method::Keys, what)
        }
        // The keys are right, and small values give finite results.
        false => overflow(run, &wrong),
    })
}

/// A result that no arithmetic explains, and the values with which it shows: a masked key that is reached says more than a valid one that is
/// not, that more than a weight, and a wrong lse least.
fn first_wrong(looker: &mut Looker<'_>, run: &Run, case: &Case, exact: bool) -> Option<(Inaccuracy, Values, Looked)> {
    let problem = &case.problem;
    let (keys, lanes) = (problem.total_kv(), problem.d_v as usize);
    let unit = keys.div_ceil(RUNS * lanes).max(1);
    let firsts = (0..keys.max(1)).step_by(unit * lanes).map(|first| Values::Keys { first, unit });
    let heads = (0..problem.kv_heads()).map(Values::Head).filter(|_| problem.kv_heads() > 1);
    let rank = |wrong: &Inaccuracy| match (
        wrong.output,
        wrong.dtype.to_f64(wrong.bits),
        wrong.truth.map(|bits| wrong.dtype.to_f64(bits)),
    ) {
        ("lse", ..) => 4,
        (_, got, _) if !got.is_finite() => 3,
        (_, _, Some(0.0)) => 0,
        (_, 0.0, _) => 1,
        _ => 2,
    };
    let mut best: Option<(u32, (Inaccuracy, Values, Looked))> = None;
    for values in heads.chain(firsts) {
        let case = design::with(looker.pair, case, |_, inputs| match values {
            Values::Keys { first, unit } => design::one_hot(&mut inputs.v, first, unit),
            Values::Head(head) => design::one_head(&mut inputs.v, head),
        });
        let Some(looked) = looker.run(run, &case) else { continue };
        let wrong = [impossible(looker, run, &looked), looker.inexplicable(run, &looked, exact)];
        let Some(wrong) = wrong.into_iter().flatten().min_by_key(rank) else { continue };
        let rank = rank(&wrong);
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, (wrong, values, looked)));
        }
        if rank == 0 {
            break;
        }
    }
    best.map(|(_, best)| best)
}

/// What no bound is needed for: a number above zero made of zeros, or a weight of zero where no arithmetic can flush the true one. The
/// bound of low scores, or of long 16-bit sums, is as wide as the weights themselves.
fn impossible(looker: &mut Looker<'_>, run: &Run, looked: &Looked) -> Option<Inaccuracy> {
    let problem = &looked.case.problem;
    let inputs = &looked.inputs;
    let d_v = problem.d_v as usize;
    let mut lost = None;
    let mut loaded = false;
    for (n, sequence) in problem.sequences.iter().enumerate() {
        for i in 0..sequence.q {
            let row = inputs.q_start[n] + i as usize;
            if !looked.produced.present[row] {
                continue;
            }
            for head in 0..problem.q_heads() {
                let (_, scale) = problem.kv_scales(head / problem.group_ids.len());
                let least = LEAST_WEIGHT * f64::from(scale).max(1.0);
                let results = &looked.produced.o.row(row)[head * d_v..(head + 1) * d_v];
                if !loaded {
                    looker.oracle.begin(problem, &inputs.q, &inputs.k, &inputs.v);
                    loaded = true;
                }
                let truths: Vec<f64> =
                    looker.oracle.row(n, i, head, &[]).o.iter().map(|truth| (truth.value - truth.radius).max(0.0)).collect();
                for (lane, (&bits, truth)) in results.iter().zip(truths).enumerate() {
                    let value = problem.out_dtype.to_f64(bits);
                    let wrong = |truth: f64| Inaccuracy {
                        path: run.path,
                        output: "o",
                        dtype: problem.out_dtype,
                        index: element_index(problem, row, head * d_v + lane),
                        bits,
                        truth: Some(problem.out_dtype.round_f64(truth)),
                        error: (value - truth).abs(),
                        bound: 0.0,
                        ulp: 1.0,
                        exceeding: 1,
                        judged: 1,
                    };
                    if truth == 0.0 && value != 0.0 && value.is_finite() {
                        let reached = wrong(0.0);
                        // Asks the oracle about another problem.
                        loaded = false;
                        if !valid(looker, looked, &reached) {
                            return Some(reached);
                        }
                    }
                    if value == 0.0 && truth >= least {
                        lost.get_or_insert_with(|| wrong(truth));
                    }
                }
            }
        }
    }
    lost
}

fn finite(wrong: &Inaccuracy) -> bool {
    wrong.output == "lse" || wrong.dtype.class(wrong.bits).is_finite()
}

/// Equal scores, ones and zeros: only what a row reaches can be wrong, or a state that breaks on blocks without keys.
fn with_equal_scores(looker: &mut Looker<'_>, run: &Run, wrong: &Inaccuracy, values: Values, looked: &Looked) -> Cause {
    let is_nan = wrong.dtype.class(wrong.bits) == Class::Nan;
    if has_keys(looker, looked, wrong) && (is_nan || !finite(wrong)) {
        // Not what it reads, since dead slots do not matter: what it does with blocks of which nothing is visible.
        let mut open = looked.case.clone();
        open.problem.mask = Default::default();
        fit_plans(&mut open);
        let right = looker.run(&Run { relation: None, ..run.clone() }, &open);
        if right.is_some_and(|looked| looker.inexplicable(run, &looked, false).is_none()) {
            let what = format!("{}, with equal scores, and is right once no key is masked", results(run, wrong));
            return seen(CauseKind::Blocking, Method::Boundaries, what);
        }
    }
    seen(CauseKind::Semantics, Method::Keys, reached(looker, run, wrong, values, looked))
}

/// Right with equal scores, and wrong with the case's own.
fn with_own_scores(looker: &mut Looker<'_>, run: &Run, wrong: &Inaccuracy, values: Values, looked: &Looked) -> Cause {
    if !finite(wrong) {
        return overflow(run, wrong);
    }
    let value = |bits| wrong.dtype.to_f64(bits);
    if let Some(what) = moving_maximum(looker, run) {
        return seen(CauseKind::Blocking, Method::Boundaries, what);
    }
    let lost = wrong.output == "o" && value(wrong.bits) == 0.0 && wrong.truth.is_some_and(|truth| value(truth) != 0.0);
    if lost && low_scores(looker, looked, wrong) {
        let what = format!(
            "{}, and not with equal scores: scores far below zero are lost, as under a running maximum that starts above them",
            reached(looker, run, wrong, values, looked)
        );
        return seen(CauseKind::Blocking, Method::Keys, what);
    }
    seen(CauseKind::Semantics, Method::Keys, reached(looker, run, wrong, values, looked))
}

/// Weights that are right where the first key has the largest score, and wrong where each key has a larger one than those before.
fn moving_maximum(looker: &mut Looker<'_>, run: &Run) -> Option<String> {
    let longest = looker.case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0);
    // About 16 in all, which no 16-bit weight is too short for.
    let step = 16.0 / f64::from(longest.max(16));
    let mut wrong = |step: f64| -> Option<Option<Inaccuracy>> {
        let case = design::with(looker.pair, looker.case, |problem, inputs| {
            design::equal_scores(problem, inputs);
            design::stairs(problem, inputs, step);
        });
        if let Some((wrong, ..)) = first_wrong(looker, run, &case, false) {
            return Some(Some(wrong));
        }
        Some(None)
    };
    let falling = wrong(-step)?;
    let rising = wrong(step)?;
    let wrong = rising.filter(|_| falling.is_none())?;
    Some(format!(
        "{} with rising scores, and is right with falling ones: wrong where the running maximum moves",
        results(run, &wrong)
    ))
}

/// Whether every score of the row lies below zero by more than any weight can show.
fn low_scores(looker: &mut Looker<'_>, looked: &Looked, wrong: &Inaccuracy) -> bool {
    let inputs = &looked.inputs;
    looker.oracle.begin(&looked.case.problem, &inputs.q, &inputs.k, &inputs.v);
    let (sequence, row, head) = coordinates(&looked.case.problem, wrong);
    let lse = looker.oracle.row(sequence, row, head, &[]).lse.value;
    lse < Dtype::F32.least_subnormal().ln()
}

fn coordinates(problem: &Problem, wrong: &Inaccuracy) -> (usize, u32, usize) {
    let sequence = problem.sequences.iter().position(|it| u64::from(it.id) == at(&wrong.index, "seq")).unwrap_or(0);
    (sequence, at(&wrong.index, "row") as u32, at(&wrong.index, "head") as usize)
}

/// Whether the row has a valid key or a sink, as the oracle sees it.
fn has_keys(looker: &mut Looker<'_>, looked: &Looked, wrong: &Inaccuracy) -> bool {
    let inputs = &looked.inputs;
    looker.oracle.begin(&looked.case.problem, &inputs.q, &inputs.k, &inputs.v);
    let (sequence, row, head) = coordinates(&looked.case.problem, wrong);
    looker.oracle.row(sequence, row, head, &[]).lse.value != f64::NEG_INFINITY
}

/// Whether the oracle counts a key as valid for the row of a result: with equal scores and no bias it then has weight.
fn valid(looker: &mut Looker<'_>, looked: &Looked, wrong: &Inaccuracy) -> bool {
    let mut problem = looked.case.problem.clone();
    let mut inputs: Inputs = looked.inputs.clone();
    inputs.q.bits.fill(0);
    problem.alibi_slopes = None;
    problem.sinks = None;
    looker.oracle.begin(&problem, &inputs.q, &inputs.k, &inputs.v);
    let (sequence, row, head) = coordinates(&problem, wrong);
    looker.oracle.row(sequence, row, head, &[]).o[at(&wrong.index, "d") as usize].value > 0.0
}

/// A wrong result in words.
fn results(run: &Run, wrong: &Inaccuracy) -> String {
    let value = |bits| wrong.dtype.to_f32(bits);
    let truth = wrong.truth.map_or(String::new(), |truth| format!(", truth {}", value(truth)));
    format!("{} ({run}) has {} {}{truth}", place(&wrong.index), wrong.output, value(wrong.bits))
}

/// What a row reaches, in words.
fn reached(looker: &mut Looker<'_>, run: &Run, wrong: &Inaccuracy, values: Values, looked: &Looked) -> String {
    let problem = &looked.case.problem;
    let value = |bits| wrong.dtype.to_f64(bits);
    let row = place(&wrong.index);
    if !has_keys(looker, looked, wrong) {
        return format!("{} and no valid key: o = 0 and lse = -inf is asked for", results(run, wrong));
    }
    if wrong.output == "lse" {
        let truth = wrong.truth.map_or(f64::NAN, value);
        let ratio = value(wrong.bits) / truth;
        let times = if ratio.is_finite() && ratio != 0.0 { format!(", {ratio:.4} times that") } else { String::new() };
        return format!("{}{times}, while its o is right", results(run, wrong));
    }
    let (got, truth) = (value(wrong.bits), wrong.truth.map_or(f64::NAN, value));
    match values {
        Values::Head(head) => {
            let own = at(&wrong.index, "head") as usize / problem.group_ids.len();
            match own == head {
                true => format!("{row} ({run}) has the weight {got} in its own KV head {own}, and should have {truth}"),
                false => format!("{row} ({run}) reads values of KV head {head}, and its own is {own}"),
            }
        }
        Values::Keys { first, unit } => {
            let lane = at(&wrong.index, "d") as usize;
            let key = named_keys(problem, &looked.inputs, first + lane * unit, unit, at(&wrong.index, "seq"));
            let row = format!("{row} ({run})");
            match (got == 0.0, truth == 0.0) {
                (false, true) if valid(looker, looked, wrong) => format!("{key} is reached by {row}, and its weight is 0"),
                (false, true) => format!("{key} is reached by {row}, and is masked"),
                (true, false) => format!("{key} is valid for {row}, and is not reached"),
                _ => format!("{key} has the weight {got} in {row}, and should have {truth}: no arithmetic explains that"),
            }
        }
    }
}

/// A key, or some, by position; of another sequence with that.
fn named_keys(problem: &Problem, inputs: &Inputs, packed: usize, unit: usize, own: u64) -> String {
    let n = inputs.kv_start.iter().rposition(|&start| start <= packed).unwrap_or(0);
    // Empty sequences start where the next one does.
    let first = packed - inputs.kv_start.get(n).copied().unwrap_or(0);
    let name = if unit == 1 { format!("key {first}") } else { format!("one of the keys {first} to {}", first + unit - 1) };
    let id = problem.sequences.get(n).map_or(0, |it| it.id);
    if u64::from(id) == own { name } else { format!("{name} of sequence {id}") }
}

/// Whether scores, their exponentials (also without the maximum taken off) and every sum stay inside f16.
fn too_small_to_overflow(looked: &Looked) -> bool {
    let (problem, inputs) = (&looked.case.problem, &looked.inputs);
    let largest = |tensor: &Tensor| tensor.bits.iter().map(|&bits| tensor.dtype.to_f64(bits).abs()).fold(0.0, f64::max);
    let scales = (0..problem.kv_heads()).map(|head| problem.kv_scales(head));
    let (k_scale, v_scale) = scales.fold((1.0, 1.0), |(k, v), it| (f64::max(k, it.0.into()), f64::max(v, it.1.into())));
    let scores = largest(&inputs.q) * largest(&inputs.k) * k_scale * f64::from(problem.d_qk);
    let sinks = problem.sinks.iter().flatten().map(|sink| f64::from(sink.abs())).fold(0.0, f64::max);
    let scores = scores * f64::from(problem.softmax_scale).max(1.0);
    let sums = (problem.total_kv() + 1) as f64 * (largest(&inputs.v) * v_scale).max(1.0) * scores.max(sinks).exp();
    problem.alibi_slopes.is_none() && sums < Dtype::F16.max_finite()
}

fn overflow(run: &Run, wrong: &Inaccuracy) -> Cause {
    let what = format!(
        "{}; the keys reached are right, and with small scores and values it is finite: it overflows",
        results(run, wrong)
    );
    seen(CauseKind::Precision, Method::Accuracy, what)
}
