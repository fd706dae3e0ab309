//! Steps for kernels that cannot do everything: to the smaller values that they take, and of all sequences together where they must stay
//! alike.

use super::plans::changed;
use super::{LENGTH_STEPS, PASSES, Pass, down};
use crate::finding::Path;
use crate::subject::Candidate;
use crate::subject::attention::capabilities::HeadDims;
use crate::subject::attention::scope::Scope;
use crate::subject::attention::select::{Keep, Selection, fit_plans};
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{Cache, Case, Request};

/// What the usual steps, which know of no limits, would step over.
pub(in crate::subject::attention) fn inside(trial: &Trial, scope: &Scope, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
    let case = &trial.case;
    let cases = match PASSES[pass] {
        Pass::Dims if position == 0 => dims(case, scope),
        Pass::InferPlan if position == 0 => pages(case, scope).into_iter().chain(steps_together(case, scope)).collect(),
        Pass::Lengths if position < LENGTH_STEPS => lengths_together(case, scope, position),
        _ => Vec::new(),
    };
    cases.into_iter().map(|case| Candidate { trial: Trial { case, ..trial.clone() }, redraw: true }).collect()
}

/// Every smaller pair of head dims that is taken.
fn dims(case: &Case, scope: &Scope) -> Vec<Case> {
    let (d_qk, d_v) = (case.problem.d_qk, case.problem.d_v);
    let pairs: Vec<(u32, u32)> = match scope.head_dims() {
        None => (1..d_qk.min(d_v)).map(|d| (d, d)).collect(),
        Some(HeadDims::Only(pairs)) => pairs,
        Some(HeadDims::UpTo { multiple_of, .. }) => {
            let multiples = (1..).map(|n| n * multiple_of.max(1)).take_while(|&d| d <= d_qk.max(d_v));
            multiples.flat_map(|d| [(d.min(d_qk), d.min(d_v)), (d.min(d_qk), d_v), (d_qk, d.min(d_v))]).collect()
        }
    };
    let mut pairs: Vec<(u32, u32)> = pairs.into_iter().filter(|&(q, v)| q <= d_qk && v <= d_v && (q, v) != (d_qk, d_v)).collect();
    pairs.sort_by_key(|(q, v)| q + v);
    pairs.dedup();
    pairs.into_iter().map(|(d_qk, d_v)| Selection { d_qk, d_v, ..Selection::all(&case.problem) }.apply(case)).collect()
}

/// Every smaller page that is taken.
fn pages(case: &Case, scope: &Scope) -> Vec<Case> {
    let Cache::Paged { page: now, spare, shuffle, recycled } = case.infer.cache else { return Vec::new() };
    let mut sizes = scope.side(Path::Infer).can().page_sizes.clone().unwrap_or_default();
    sizes.retain(|&page| page < now);
    sizes.sort_unstable();
    let cache = |page| Cache::Paged { page, spare, shuffle, recycled };
    sizes.into_iter().map(|page| changed(case, |case| case.infer.cache = cache(page))).collect()
}

fn must_stay_alike(case: &Case, scope: &Scope) -> bool {
    case.problem.sequences.len() > 1 && Path::BOTH.into_iter().any(|path| scope.side(path).can().no_ragged)
}

/// All sequences shorter by as much, as [`super::lengths`] does one.
fn lengths_together(case: &Case, scope: &Scope, way: usize) -> Vec<Case> {
    let Some(it) = case.problem.sequences.first().filter(|_| must_stay_alike(case, scope)) else { return Vec::new() };
    let cut = |q: std::ops::Range<u32>, kv: std::ops::Range<u32>| {
        let mut selection = Selection::all(&case.problem);
        for (n, keep) in selection.sequences.iter_mut().enumerate() {
            let sequence = case.problem.sequences[n];
            let fits = q.end <= sequence.q && kv.end <= sequence.kv;
            *keep = if fits { Keep::ranges(n, q.clone(), kv.clone()) } else { keep.clone() };
        }
        selection.apply(case)
    };
    match way {
        0 => down(it.q, 1).into_iter().map(|q| cut(0..q, 0..it.kv.saturating_sub(it.q - q))).collect(),
        1 => down(it.q, 1).into_iter().flat_map(|q| [cut(it.q - q..it.q, 0..it.kv), cut(0..q, 0..it.kv)]).collect(),
        2 => down(it.kv, 0).into_iter().map(|kv| cut(0..it.q, it.kv - kv..it.kv)).collect(),
        3 => down(it.kv, 0).into_iter().map(|kv| cut(0..it.q, 0..kv)).collect(),
        _ => Vec::new(),
    }
}

/// The same simpler schedule for all requests.
fn steps_together(case: &Case, scope: &Scope) -> Vec<Case> {
    if !must_stay_alike(case, scope) {
        return Vec::new();
    }
    let all = |change: &dyn Fn(&mut Request, u32)| {
        changed(case, |case| {
            let lengths = case.problem.sequences.iter().map(|it| it.q);
            case.infer.requests.iter_mut().zip(lengths).for_each(|(request, q)| change(request, q));
            fit_plans(case);
        })
    };
    vec![
        all(&|it, q| *it = Request { hit: 0, join: 0, chunks: Vec::new(), then: q.max(1), reject: 0, preempt: None }),
        all(&|it, q| (it.chunks, it.then, it.reject) = (Vec::new(), q.max(1), 0)),
        all(&|it, _| it.preempt = None),
        all(&|it, _| it.reject = 0),
        all(&|it, _| it.hit = 0),
        all(&|it, _| it.chunks.clear()),
    ]
}
