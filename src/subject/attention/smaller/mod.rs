//! Shrink steps of an attention trial, and what "smaller" means ([`size`]).
//!
//! Structure first: sequences, lengths, heads, dims, plan knobs, mask options, the relation's parameters. Then the values: drawn
//! data becomes literal bits, and each value moves towards 0, 1, -1, a power of two, few significant bits; where that ends, all of them
//! together become a simple pattern.

mod company;
mod inside;
mod masks;
mod parts;
mod patterns;
mod plans;
mod size;
mod values;

pub(super) use inside::inside;
pub(super) use size::size;

use company::{apart, joined, one_place_less, relations, rescaled};
use masks::{masks, plain_kv};
use parts::{LENGTH_STEPS, decoded, dims, heads, lengths, longer_pages, without_sequence};
use patterns::{pattern_positions, patterns};
use plans::{infer_plans, requests, train_plans};
use values::{VALUE_CHUNKS, literal, relabelled, values};

use super::trial::{Checks, Trial};
use super::{Case, Data, Inputs, Regime};
use crate::number::Dtype;
use crate::subject::Candidate;

/// One kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Storage,
    Sequences,
    Lengths,
    Heads,
    Dims,
    TrainPlan,
    InferPlan,
    Mask,
    Relation,
    Literal,
    Values,
    Patterns,
    Labels,
}

/// Storage comes first: in a wider format fewer keys show the same. Lengths, heads and dims come once more between literal bits and
/// simpler values: a key that made a boundary visible stays what it is when others go, and simple values show less.
const PASSES: [Pass; 16] = [
    Pass::Storage,
    Pass::Sequences,
    Pass::Lengths,
    Pass::Heads,
    Pass::Dims,
    Pass::TrainPlan,
    Pass::InferPlan,
    Pass::Mask,
    Pass::Relation,
    Pass::Literal,
    Pass::Lengths,
    Pass::Heads,
    Pass::Dims,
    Pass::Values,
    Pass::Patterns,
    Pass::Labels,
];

pub(super) fn positions(trial: &Trial, pass: usize) -> Option<usize> {
    let problem = &trial.case.problem;
    Some(match PASSES.get(pass)? {
        Pass::Sequences => problem.sequences.len(),
        Pass::Lengths => problem.sequences.len() * LENGTH_STEPS,
        Pass::Heads => problem.kv_head_ids.len() + problem.group_ids.len(),
        Pass::Dims => 2,
        Pass::TrainPlan => 1,
        Pass::InferPlan => 1 + problem.sequences.len(),
        Pass::Storage | Pass::Mask | Pass::Relation | Pass::Literal | Pass::Labels => 1,
        Pass::Values => match &trial.case.data {
            Data::Literal(literal) => VALUE_CHUNKS + literal.q.len() + literal.k.len() + literal.v.len(),
            _ => 0,
        },
        Pass::Patterns => pattern_positions(trial),
    })
}

pub(super) fn smaller(trial: &Trial, inputs: &dyn Fn(&Case) -> Inputs, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
    let with = |cases: Vec<Case>, redraw: bool| -> Vec<Candidate<Trial>> {
        cases.into_iter().map(|case| Candidate { trial: Trial { case, ..trial.clone() }, redraw }).collect()
    };
    let structural = |cases| with(cases, true);
    // Which slot of a cache is where shows with any values.
    let same_values = |cases| with(cases, false);
    let case = &trial.case;
    match PASSES[pass] {
        Pass::Storage => structural(case.problem.fp8_kv.iter().map(|_| plain_kv(case)).collect()),
        Pass::Sequences => {
            let apart = if position == 0 { apart(trial) } else { None };
            let without = without_sequence(case, position);
            let mut candidates: Vec<Candidate<Trial>> = apart.into_iter().chain(structural(vec![without.clone()])).collect();
            candidates.extend(joined(trial, &without));
            candidates.extend(one_place_less(trial, without));
            candidates
        }
        Pass::Lengths => {
            let mut cases = lengths(case, position / LENGTH_STEPS, position % LENGTH_STEPS);
            if position == 0 && matches!(trial.checks, Checks::Only { pair: true, .. }) {
                cases.extend(decoded(case));
            }
            structural(cases)
        }
        Pass::Heads => {
            let cases = heads(case, position);
            let scaled: Vec<_> = cases.iter().flat_map(|smaller| rescaled(trial, smaller)).collect();
            let paged = same_values(cases.iter().flat_map(|smaller| longer_pages(case, smaller)).collect());
            structural(cases).into_iter().chain(scaled).chain(paged).collect()
        }
        Pass::Dims => {
            let cases = dims(case, position);
            let paged = same_values(cases.iter().flat_map(|smaller| longer_pages(case, smaller)).collect());
            structural(cases).into_iter().chain(paged).collect()
        }
        Pass::TrainPlan => structural(train_plans(case)),
        Pass::InferPlan if position == 0 => structural(infer_plans(case)),
        Pass::InferPlan => structural(requests(case, position - 1)),
        Pass::Mask => structural(masks(case)),
        Pass::Relation => relations(trial),
        Pass::Literal => literal(trial, inputs),
        Pass::Values => values(trial, position),
        Pass::Patterns => patterns(trial, position),
        Pass::Labels => vec![Candidate { trial: relabelled(trial), redraw: false }],
    }
}

/// Other values for the same structure: half of the tries take `mirror`, which shows order best, laid out for the case's lengths;
/// with f32 outputs a quarter take `rising`, which shows blocks; the others keep the regime.
pub(super) fn redraw(trial: &Trial, n: u32) -> Option<Trial> {
    let Data::Drawn { seed, regime } = trial.case.data else { return None };
    let mut trial = trial.clone();
    let seed = seed.wrapping_add(u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15)) & 0xffff_ffff;
    let problem = &trial.case.problem;
    let longest = problem.sequences.iter().map(|s| s.kv).max().unwrap_or(0);
    let regime = if n % 4 == 3 && problem.out_dtype == Dtype::F32 {
        // Every block moves the maximum: the last key alone makes a block boundary visible.
        Regime::Rising { step: 0.25 }
    } else if n.is_multiple_of(2) && problem.alibi_slopes.is_none() && longest >= 3 {
        let span = longest.min(3 + n % 3);
        Regime::Mirror { span, phase: longest % span }
    } else {
        regime
    };
    trial.case.data = Data::Drawn { seed, regime };
    Some(trial)
}

/// Smaller values of a length, boldest first: halving, then single steps.
fn down(n: u32, least: u32) -> Vec<u32> {
    let mut steps = Vec::new();
    let mut cut = n.saturating_sub(least);
    while cut > 0 {
        steps.push(n - cut);
        cut /= 2;
    }
    steps
}

#[cfg(test)]
mod tests;
