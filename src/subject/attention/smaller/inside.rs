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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::capabilities::Capabilities;
    use crate::subject::attention::conventions::Conventions;
    use crate::subject::attention::kernel::{AttentionKernel, Identity};
    use crate::subject::attention::smaller::tests::{compared, shaped};
    use crate::subject::attention::{Anchor, Mask};

    /// A kernel that declares, and is never called.
    struct Declares(Capabilities);

    impl AttentionKernel for Declares {
        fn identity(&self) -> Identity {
            Identity::cpu("declares", "1")
        }
        fn capabilities(&self) -> Capabilities {
            self.0.clone()
        }
        fn conventions(&self) -> Conventions {
            Conventions::default()
        }
    }

    fn scope(infer: Capabilities) -> Scope {
        Scope::of(&Declares(Capabilities::default()), &Declares(infer))
    }

    fn pass(wanted: Pass) -> usize {
        PASSES.iter().position(|&it| it == wanted).expect("a pass")
    }

    #[test]
    fn head_dims_that_are_taken() {
        let case = shaped(&[(1, 1)], [1, 1], [12, 8]);
        let pairs = |head_dims: Option<HeadDims>| -> Vec<(u32, u32)> {
            let scope = scope(Capabilities { head_dims, ..Capabilities::default() });
            dims(&case, &scope).into_iter().map(|it| (it.problem.d_qk, it.problem.d_v)).collect()
        };
        let both: Vec<(u32, u32)> = (1..8).map(|d| (d, d)).collect();
        assert_eq!(pairs(None), both, "both at once, where any go");
        let only = HeadDims::Only(vec![(12, 4), (4, 4), (12, 8), (16, 1), (1, 16)]);
        assert_eq!(pairs(Some(only)), [(4, 4), (12, 4)]);
        let multiples = HeadDims::UpTo { max: 64, multiple_of: 4 };
        assert_eq!(pairs(Some(multiples)), [(4, 4), (4, 8), (12, 4), (8, 8)]);
    }

    #[test]
    fn pages_that_are_taken() {
        let mut case = shaped(&[(1, 1)], [1, 1], [1, 1]);
        let cache = |page| Cache::Paged { page, spare: 1, shuffle: 2, recycled: true };
        case.infer.cache = cache(64);
        let scope = scope(Capabilities { page_sizes: Some(vec![128, 32, 64, 16]), ..Capabilities::default() });
        let offered: Vec<Cache> = pages(&case, &scope).into_iter().map(|it| it.infer.cache).collect();
        assert_eq!(offered, [cache(16), cache(32)]);
        assert!(pages(&case, &Scope::default()).is_empty(), "the usual steps go through all");
        case.infer.cache = Cache::Contiguous { spare: 0 };
        assert!(pages(&case, &scope).is_empty());
    }

    fn even() -> Scope {
        scope(Capabilities { no_ragged: true, ..Capabilities::default() })
    }

    /// All sequences at once, for kernels that take no other lengths, on either side.
    #[test]
    fn sequences_get_shorter_together() {
        let case = shaped(&[(3, 4), (3, 4)], [1, 1], [1, 1]);
        let lengths = |way: usize| -> Vec<Vec<(u32, u32)>> {
            let of = |case: Case| case.problem.sequences.iter().map(|it| (it.q, it.kv)).collect();
            lengths_together(&case, &even(), way).into_iter().map(of).collect()
        };
        let both = |pairs: &[(u32, u32)]| pairs.iter().map(|&it| vec![it; 2]).collect::<Vec<_>>();
        assert_eq!(lengths(0), both(&[(1, 2), (2, 3)]));
        assert_eq!(lengths(1), both(&[(1, 4), (1, 4), (2, 4), (2, 4)]));
        assert_eq!(lengths(2), both(&[(3, 0), (3, 2), (3, 3)]));
        assert_eq!(lengths(3), both(&[(3, 0), (3, 2), (3, 3)]));
        assert!(lengths(4).is_empty());
        assert!(lengths_together(&case, &Scope::default(), 0).is_empty());
        assert!(lengths_together(&shaped(&[(3, 4)], [1, 1], [1, 1]), &even(), 0).is_empty());
        let train =
            Scope::of(&Declares(Capabilities { no_ragged: true, ..Capabilities::default() }), &Declares(Capabilities::default()));
        assert_eq!(lengths_together(&case, &train, 0).len(), 2);
    }

    #[test]
    fn schedules_get_simpler_together() {
        let mut case = shaped(&[(9, 9), (9, 9)], [1, 1], [1, 1]);
        case.problem.mask = Mask { causal: Some(Anchor::BottomRight), ..Mask::default() };
        let busy = Request { hit: 2, join: 3, chunks: vec![1, 2], then: 3, reject: 2, preempt: Some(1) };
        case.infer.requests = vec![busy.clone(); 2];
        let wanted = [
            Request { hit: 0, join: 0, chunks: Vec::new(), then: 9, reject: 0, preempt: None },
            Request { chunks: Vec::new(), then: 9, reject: 0, ..busy.clone() },
            Request { preempt: None, ..busy.clone() },
            Request { reject: 0, ..busy.clone() },
            Request { hit: 0, ..busy.clone() },
            Request { chunks: Vec::new(), ..busy },
        ];
        let offered: Vec<Vec<Request>> = steps_together(&case, &even()).into_iter().map(|it| it.infer.requests).collect();
        assert_eq!(offered, wanted.map(|it| vec![it; 2]));
        assert!(steps_together(&case, &Scope::default()).is_empty());
    }

    /// Each at its place, beside the usual steps.
    #[test]
    fn steps_have_their_places() {
        let mut case = shaped(&[(3, 4), (3, 4)], [1, 1], [4, 4]);
        case.infer.cache = Cache::Paged { page: 8, spare: 0, shuffle: 0, recycled: false };
        let scope = scope(Capabilities { no_ragged: true, page_sizes: Some(vec![4, 8]), ..Capabilities::default() });
        let trial = compared(case);
        let count = |wanted: Pass, position: usize| {
            let candidates = inside(&trial, &scope, pass(wanted), position);
            assert!(candidates.iter().all(|it| it.redraw && it.trial.checks == trial.checks));
            candidates.len()
        };
        assert_eq!([count(Pass::Dims, 0), count(Pass::Dims, 1)], [3, 0]);
        assert_eq!([count(Pass::InferPlan, 0), count(Pass::InferPlan, 1)], [1 + 6, 0]);
        let lengths = [0, 1, 2, 3, 4, 5].map(|position| count(Pass::Lengths, position));
        assert_eq!(lengths, [2, 4, 3, 3, 0, 0]);
        assert_eq!([Pass::Sequences, Pass::Heads, Pass::Mask, Pass::Values].map(|wanted| count(wanted, 0)), [0; 4]);
    }
}
