//! Shrink steps of an attention trial, and what "smaller" means ([`size`]).
//!
//! Structure first: sequences, lengths, heads, dims, plan knobs, mask options, the relation's parameters. Then the values: drawn
//! data becomes literal bits, and each value moves towards 0, 1, -1, a power of two, few significant bits.

mod company;
mod inside;
mod plans;
mod size;
mod values;

pub(super) use inside::inside;
pub(super) use size::size;

use company::{apart, joined, one_place_less, relations, rescaled};
use plans::{changed, infer_plans, requests, train_plans};
use size::DEFAULT_BLOCK_Q;
use values::{VALUE_CHUNKS, literal, relabelled, simpler_values, values};

use super::select::{Keep, Selection, fit_plans};
use super::trial::{Checks, Trial};
use super::{Anchor, Cache, Case, Data, Fp8Kv, InferPlan, Inputs, Problem, Regime, Request, TrainLayout};
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
    Labels,
}

/// Storage comes first: in a wider format fewer keys show the same. Lengths, heads and dims come once more between literal bits and
/// simpler values: a key that made a boundary visible stays what it is when others go, and simple values show less.
const PASSES: [Pass; 15] = [
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
    })
}

pub(super) fn smaller(trial: &Trial, inputs: &dyn Fn(&Case) -> Inputs, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
    let structural = |cases: Vec<Case>| {
        cases.into_iter().map(|case| Candidate { trial: Trial { case, ..trial.clone() }, redraw: true }).collect()
    };
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
            structural(cases).into_iter().chain(scaled).collect()
        }
        Pass::Dims => structural(dims(case, position)),
        Pass::TrainPlan => structural(train_plans(case)),
        Pass::InferPlan if position == 0 => structural(infer_plans(case)),
        Pass::InferPlan => structural(requests(case, position - 1)),
        Pass::Mask => structural(masks(case)),
        Pass::Relation => relations(trial),
        Pass::Literal => literal(trial, inputs),
        Pass::Values => values(trial, position),
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

fn without_sequence(case: &Case, n: usize) -> Case {
    let kept = (0..case.problem.sequences.len()).filter(|&it| it != n);
    Selection::sequences(&case.problem, kept).apply(case)
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

/// Ways to shorten one sequence.
const LENGTH_STEPS: usize = 5;

fn lengths(case: &Case, n: usize, way: usize) -> Vec<Case> {
    let it = case.problem.sequences[n];
    let cut = |q: std::ops::Range<u32>, kv: std::ops::Range<u32>| {
        let mut selection = Selection::all(&case.problem);
        selection.sequences[n] = Keep::ranges(n, q, kv);
        selection.apply(case)
    };
    match way {
        // The last rows and their keys go: what is left stands where it stood.
        0 => down(it.q, 1).into_iter().map(|q| (q, it.kv.saturating_sub(it.q - q))).map(|(q, kv)| cut(0..q, 0..kv)).collect(),
        // Rows go from one end, the keys stay.
        1 => down(it.q, 1).into_iter().flat_map(|q| [cut(it.q - q..it.q, 0..it.kv), cut(0..q, 0..it.kv)]).collect(),
        // The first keys go: positions move.
        2 => down(it.kv, 0).into_iter().map(|kv| cut(0..it.q, it.kv - kv..it.kv)).collect(),
        // The last keys go, the rows stay.
        3 => down(it.kv, 0).into_iter().map(|kv| cut(0..it.q, 0..kv)).collect(),
        // Any one key goes. Drawn values belong to positions, so there it would be the same as the last.
        _ if matches!(case.data, Data::Literal(_)) => (0..it.kv)
            .map(|key| {
                let mut selection = Selection::all(&case.problem);
                selection.sequences[n].hole = Some(key);
                selection.apply(case)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// A lone sequence, computed whole by training and row by row by inference from a contiguous cache, with fewer keys: where rules
/// set prefill and decode apart, no other plan needs fewer.
fn decoded(case: &Case) -> Vec<Case> {
    let ([it], Data::Drawn { .. }) = (&case.problem.sequences[..], &case.data) else { return Vec::new() };
    let q = it.q.max(2);
    let shorter = down((it.q + it.kv).saturating_sub(q), 3);
    let simplest = changed(case, |case| {
        case.problem.mask = super::Mask { causal: Some(Anchor::BottomRight), ..super::Mask::default() };
        case.train = super::TrainPlan { layout: TrainLayout::Varlen, block_q: DEFAULT_BLOCK_Q, ..case.train.clone() };
        case.infer = InferPlan {
            cache: Cache::Contiguous { spare: 0 },
            requests: vec![Request { hit: 0, join: 0, chunks: Vec::new(), then: 1, reject: 0, preempt: None }],
            budget: None,
            bucket: 1,
            ..case.infer.clone()
        };
    });
    shorter
        .into_iter()
        .map(|kv| {
            changed(&simplest, |case| {
                (case.problem.sequences[0].q, case.problem.sequences[0].kv) = (q, kv);
                fit_plans(case);
            })
        })
        .collect()
}

fn heads(case: &Case, position: usize) -> Vec<Case> {
    let kv_heads = case.problem.kv_head_ids.len();
    let select = |kept: Vec<usize>, of_group: bool| {
        let mut selection = Selection::all(&case.problem);
        if of_group {
            selection.groups = kept;
        } else {
            selection.kv_heads = kept;
        }
        selection.apply(case)
    };
    let (n, count, of_group) = match position.checked_sub(kv_heads) {
        None => (position, kv_heads, false),
        Some(n) => (n, case.problem.group_ids.len(), true),
    };
    if count < 2 {
        return Vec::new();
    }
    vec![select(vec![n], of_group), select((0..count).filter(|&it| it != n).collect(), of_group)]
}

fn dims(case: &Case, position: usize) -> Vec<Case> {
    let selection = Selection::all(&case.problem);
    let cases = match position {
        0 => down(case.problem.d_qk, 1).into_iter().map(|d_qk| Selection { d_qk, ..selection.clone() }).collect::<Vec<_>>(),
        _ => down(case.problem.d_v, 1).into_iter().map(|d_v| Selection { d_v, ..selection.clone() }).collect(),
    };
    cases.into_iter().map(|selection| selection.apply(case)).collect()
}

fn masks(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut problem = |change: &dyn Fn(&mut Problem)| {
        cases.push(changed(case, |case| {
            change(&mut case.problem);
            fit_plans(case);
        }));
    };
    problem(&|it| it.softcap = None);
    problem(&|it| it.sinks = None);
    problem(&|it| it.alibi_slopes = None);
    // A window that cannot go gets narrower: then its sequence can get shorter.
    problem(&|it| it.mask.window_left = None);
    for left in case.problem.mask.window_left.map_or(Vec::new(), |left| down(left, 0)) {
        problem(&|it| it.mask.window_left = Some(left));
    }
    problem(&|it| it.mask.window_right = None);
    for right in case.problem.mask.window_right.map_or(Vec::new(), |right| down(right, 0)) {
        problem(&|it| it.mask.window_right = Some(right));
    }
    problem(&|it| it.mask.causal = None);
    if case.problem.mask.causal == Some(Anchor::TopLeft) {
        problem(&|it| it.mask.causal = Some(Anchor::BottomRight));
    }
    problem(&|it| it.softmax_scale = 1.0);
    if let Some(kv) = &case.problem.fp8_kv {
        let scales = |pick: &dyn Fn(&mut Fp8Kv) -> &mut Vec<f32>, scales: Vec<f32>| {
            changed(case, |case| case.problem.fp8_kv.iter_mut().for_each(|kv| *pick(kv) = scales.clone()))
        };
        for scale in simpler_scales(&kv.k_scales) {
            cases.push(scales(&|kv| &mut kv.k_scales, scale));
        }
        for scale in simpler_scales(&kv.v_scales) {
            cases.push(scales(&|kv| &mut kv.v_scales, scale));
        }
    }
    cases
}

/// Keys and values in the format of q: literal ones as what they mean, scale included, as far as that format holds it.
fn plain_kv(case: &Case) -> Case {
    let mut plain = case.clone();
    plain.problem.fp8_kv = None;
    let (from, to) = (case.problem.kv_dtype(), case.problem.dtype);
    if let Data::Literal(literal) = &mut plain.data {
        let heads = case.problem.kv_heads();
        let convert = |bits: &mut [u32], d: u32, scale: &dyn Fn(usize) -> f32| {
            for (n, head) in bits.chunks_exact_mut(d as usize).enumerate() {
                let scale = f64::from(scale(n % heads));
                head.iter_mut().for_each(|bits| {
                    let value = from.to_f64(*bits) * scale;
                    *bits = to.round_f64(value.clamp(-to.max_finite(), to.max_finite()));
                });
            }
        };
        convert(&mut literal.k, case.problem.d_qk, &|head| case.problem.kv_scales(head).0);
        convert(&mut literal.v, case.problem.d_v, &|head| case.problem.kv_scales(head).1);
    }
    plain
}

/// All 1; one for all heads; each one alone 1, a power of two, or of fewer significant bits.
fn simpler_scales(scales: &[f32]) -> Vec<Vec<f32>> {
    let mut simpler = vec![vec![1.0]];
    if scales.len() > 1 {
        simpler.extend(scales.iter().map(|&scale| vec![scale]));
    }
    for n in 0..scales.len() {
        let values = simpler_values(Dtype::F32, scales[n].to_bits()).into_iter().map(f32::from_bits);
        for value in values.filter(|&value| value > 0.0) {
            let mut scales = scales.to_vec();
            scales[n] = value;
            simpler.push(scales);
        }
    }
    simpler
}

#[cfg(test)]
mod tests;
