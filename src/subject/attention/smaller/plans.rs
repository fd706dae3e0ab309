//! Simpler plans: layouts, caches, schedules, ranks.

use super::down;
use super::size::DEFAULT_BLOCK_Q;
use crate::subject::attention::relation::simpler_context;
use crate::subject::attention::select::fit_plans;
use crate::subject::attention::{Cache, Case, InferPlan, Request, Side, TrainLayout};

pub(super) fn changed(case: &Case, change: impl FnOnce(&mut Case)) -> Case {
    let mut case = case.clone();
    change(&mut case);
    case
}

pub(super) fn identity(count: usize) -> Vec<u32> {
    (0..count as u32).collect()
}

pub(super) fn train_plans(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    if let TrainLayout::Dense { side, pad_q, pad_kv } = case.train.layout {
        let mut layout = |layout| cases.push(changed(case, |case| case.train.layout = layout));
        layout(TrainLayout::Varlen);
        layout(TrainLayout::Dense { side: Side::Right, pad_q, pad_kv });
        for pad_q in down(pad_q, 0) {
            layout(TrainLayout::Dense { side, pad_q, pad_kv });
        }
        for pad_kv in down(pad_kv, 0) {
            layout(TrainLayout::Dense { side, pad_q, pad_kv });
        }
    }
    cases.push(changed(case, |case| case.train.order = identity(case.train.order.len())));
    cases.push(changed(case, |case| case.train.block_q = DEFAULT_BLOCK_Q));
    cases.extend(simpler_context(case.train.context).into_iter().map(|it| changed(case, |case| case.train.context = it)));
    cases.extend(fewer_heads(case, case.train.head_ranks).map(|ranks| changed(case, |case| case.train.head_ranks = ranks)));
    cases.extend(fewer_knobs(&case.train.knobs).map(|knobs| changed(case, |case| case.train.knobs = knobs)));
    cases
}

pub(super) fn infer_plans(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut plan = |change: &dyn Fn(&mut InferPlan)| cases.push(changed(case, |case| change(&mut case.infer)));
    plan(&|infer| infer.cache = Cache::Contiguous { spare: 0 });
    if let Cache::Contiguous { spare } = case.infer.cache {
        for spare in down(spare, 0) {
            plan(&|infer| infer.cache = Cache::Contiguous { spare });
        }
    }
    if let Cache::Paged { page, spare, shuffle, recycled } = case.infer.cache {
        plan(&|infer| infer.cache = Cache::Paged { page, spare: 0, shuffle: 0, recycled: false });
        for spare in down(spare, 0) {
            plan(&|infer| infer.cache = Cache::Paged { page, spare, shuffle, recycled });
        }
        plan(&|infer| infer.cache = Cache::Paged { page, spare, shuffle: 0, recycled });
        plan(&|infer| infer.cache = Cache::Paged { page, spare, shuffle, recycled: false });
        for page in down(page, 1) {
            plan(&|infer| infer.cache = Cache::Paged { page, spare, shuffle, recycled });
        }
    }
    plan(&|infer| infer.order = identity(infer.order.len()));
    plan(&|infer| infer.rotate = false);
    plan(&|infer| infer.budget = None);
    for bucket in down(case.infer.bucket, 1) {
        plan(&|infer| infer.bucket = bucket);
    }
    for context in simpler_context(case.infer.context) {
        plan(&|infer| infer.context = context);
    }
    for ranks in fewer_heads(case, case.infer.head_ranks) {
        plan(&|infer| infer.head_ranks = ranks);
    }
    for knobs in fewer_knobs(&case.infer.knobs) {
        plan(&|infer| infer.knobs = knobs.clone());
    }
    cases
}

/// All of the kernel's knobs at their default, then one of them.
fn fewer_knobs(knobs: &[(String, String)]) -> impl Iterator<Item = Vec<(String, String)>> + '_ {
    let none = (!knobs.is_empty()).then(Vec::new);
    let without = |n: usize| knobs.iter().enumerate().filter(|&(it, _)| it != n).map(|(_, knob)| knob.clone()).collect();
    none.into_iter().chain((0..knobs.len()).map(without))
}

/// Fewer head-parallel ranks that the heads can be divided between, the fewest first.
pub(super) fn fewer_heads(case: &Case, ranks: u32) -> impl Iterator<Item = u32> {
    (1..ranks).filter(|&ranks| case.problem.divides_heads(ranks))
}

pub(super) fn requests(case: &Case, n: usize) -> Vec<Case> {
    let (q, request) = (case.problem.sequences[n].q, &case.infer.requests[n]);
    let mut cases = Vec::new();
    let mut change = |edit: &dyn Fn(&mut Request)| {
        cases.push(changed(case, |case| {
            edit(&mut case.infer.requests[n]);
            fit_plans(case);
        }));
    };
    // One prefill of everything is the simplest schedule.
    change(&|it| *it = Request { hit: 0, join: 0, chunks: Vec::new(), then: q.max(1), reject: 0, preempt: None });
    change(&|it| (it.chunks, it.then, it.reject) = (Vec::new(), q.max(1), 0));
    for join in down(request.join, 0) {
        change(&|it| it.join = join);
    }
    change(&|it| it.preempt = None);
    for reject in down(request.reject, 0) {
        change(&|it| it.reject = reject);
    }
    for hit in down(request.hit, 0) {
        change(&|it| it.hit = hit);
    }
    change(&|it| it.chunks.clear());
    for count in down(request.chunks.len() as u32, 0) {
        change(&|it| it.chunks.truncate(count as usize));
    }
    change(&|it| it.then = q.max(1));
    for more in down(q.saturating_sub(request.then), 0) {
        change(&|it| it.then = q - more);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::smaller::tests::{plain, shaped};
    use crate::subject::attention::{Anchor, ContextParallel, Shards};

    /// What is not the plan's own stays as it is.
    fn layouts(case: &Case) -> Vec<TrainLayout> {
        let all = train_plans(case).into_iter().filter(|it| it.train.layout != case.train.layout);
        all.inspect(|it| assert_eq!((&it.problem, &it.infer), (&case.problem, &case.infer))).map(|it| it.train.layout).collect()
    }

    #[test]
    fn training_gets_packed_or_less_padded() {
        let mut case = shaped(&[(1, 1), (1, 1)], [4, 1], [1, 1]);
        let dense = |side, pad_q, pad_kv| TrainLayout::Dense { side, pad_q, pad_kv };
        case.train.layout = dense(Side::Left, 2, 4);
        let (left, right) = (Side::Left, Side::Right);
        assert_eq!(
            layouts(&case),
            [
                TrainLayout::Varlen,
                dense(right, 2, 4),
                dense(left, 0, 4),
                dense(left, 1, 4),
                dense(left, 2, 0),
                dense(left, 2, 2),
                dense(left, 2, 3),
            ]
        );
        case.train.layout = TrainLayout::Varlen;
        assert!(layouts(&case).is_empty());
    }

    #[test]
    fn training_gets_plainer() {
        let mut case = shaped(&[(1, 1), (1, 1), (1, 1)], [4, 1], [1, 1]);
        let knob = |name: &str| (name.to_owned(), "2".to_owned());
        case.train.order = vec![2, 0, 1];
        case.train.block_q = 16;
        case.train.context = Some(ContextParallel { ranks: 2, shards: Shards::Contiguous, length: 1 });
        case.train.head_ranks = 4;
        case.train.knobs = vec![knob("a"), knob("b")];
        let with = |edit: &dyn Fn(&mut crate::subject::attention::TrainPlan)| changed(&case, |case| edit(&mut case.train));
        let wanted = [
            with(&|it| it.order = vec![0, 1, 2]),
            with(&|it| it.block_q = 64),
            with(&|it| it.context = None),
            with(&|it| it.head_ranks = 1),
            with(&|it| it.head_ranks = 2),
            with(&|it| it.knobs = Vec::new()),
            with(&|it| it.knobs = vec![knob("b")]),
            with(&|it| it.knobs = vec![knob("a")]),
        ];
        assert_eq!(train_plans(&case), wanted);
        let least = plain();
        assert!(train_plans(&least).into_iter().all(|it| it == least));
    }

    #[test]
    fn caches_get_simpler() {
        let caches = |cache: Cache| -> Vec<Cache> {
            let case = changed(&plain(), |case| case.infer.cache = cache);
            infer_plans(&case).into_iter().map(|it| it.infer.cache).filter(|it| *it != cache).collect()
        };
        let contiguous = |spare| Cache::Contiguous { spare };
        assert_eq!(caches(contiguous(3)), [contiguous(0), contiguous(0), contiguous(2)]);
        assert!(caches(contiguous(0)).is_empty());
        let paged = |page, spare, shuffle, recycled| Cache::Paged { page, spare, shuffle, recycled };
        assert_eq!(
            caches(paged(4, 2, 9, true)),
            [
                contiguous(0),
                paged(4, 0, 0, false),
                paged(4, 0, 9, true),
                paged(4, 1, 9, true),
                paged(4, 2, 0, true),
                paged(4, 2, 9, false),
                paged(1, 2, 9, true),
                paged(3, 2, 9, true),
            ]
        );
        assert_eq!(caches(paged(1, 0, 0, false)), [contiguous(0)]);
    }

    #[test]
    fn inference_gets_plainer() {
        let mut case = shaped(&[(1, 1), (1, 1), (1, 1)], [1, 6], [1, 1]);
        let knob = ("a".to_owned(), "2".to_owned());
        case.infer.order = vec![2, 0, 1];
        (case.infer.rotate, case.infer.budget, case.infer.bucket) = (true, Some(3), 4);
        case.infer.context = Some(ContextParallel { ranks: 2, shards: Shards::Contiguous, length: 1 });
        case.infer.head_ranks = 3;
        case.infer.knobs = vec![knob];
        let with = |edit: &dyn Fn(&mut InferPlan)| changed(&case, |case| edit(&mut case.infer));
        let wanted = [
            // A contiguous cache without spare slots, as it is.
            case.clone(),
            with(&|it| it.order = vec![0, 1, 2]),
            with(&|it| it.rotate = false),
            with(&|it| it.budget = None),
            with(&|it| it.bucket = 1),
            with(&|it| it.bucket = 3),
            with(&|it| it.context = None),
            with(&|it| it.head_ranks = 1),
            with(&|it| it.head_ranks = 2),
            with(&|it| it.knobs = Vec::new()),
            with(&|it| it.knobs = Vec::new()),
        ];
        assert_eq!(infer_plans(&case), wanted);
        let least = plain();
        assert!(infer_plans(&least).into_iter().all(|it| it == least));
    }

    #[test]
    fn requests_get_plainer() {
        let mut case = shaped(&[(1, 1), (9, 9)], [1, 1], [1, 1]);
        case.problem.mask.causal = Some(Anchor::BottomRight);
        let busy = Request { hit: 2, join: 3, chunks: vec![1, 2], then: 3, reject: 2, preempt: Some(1) };
        case.infer.requests[1] = busy.clone();
        let with = |edit: &dyn Fn(&mut Request)| {
            let mut request = busy.clone();
            edit(&mut request);
            request
        };
        let wanted = [
            Request { hit: 0, join: 0, chunks: Vec::new(), then: 9, reject: 0, preempt: None },
            with(&|it| (it.chunks, it.then, it.reject) = (Vec::new(), 9, 0)),
            with(&|it| it.join = 0),
            with(&|it| it.join = 2),
            with(&|it| it.preempt = None),
            with(&|it| it.reject = 0),
            with(&|it| it.reject = 1),
            with(&|it| it.hit = 0),
            with(&|it| it.hit = 1),
            with(&|it| it.chunks = Vec::new()),
            with(&|it| it.chunks = Vec::new()),
            with(&|it| it.chunks = vec![1]),
            // Larger steps are fewer: all at once, then half of what is missing, and so on.
            with(&|it| it.then = 9),
            with(&|it| it.then = 9),
            with(&|it| it.then = 6),
            with(&|it| it.then = 4),
        ];
        let offered = requests(&case, 1);
        assert!(offered.iter().all(|it| it.infer.requests[0] == case.infer.requests[0]));
        let offered: Vec<Request> = offered.into_iter().map(|it| it.infer.requests[1].clone()).collect();
        assert_eq!(offered, wanted);
        // One request without any row takes steps of one all the same.
        let none = shaped(&[(0, 1)], [1, 1], [1, 1]);
        assert!(requests(&none, 0).into_iter().all(|it| it == none));
    }

    #[test]
    fn fewer_ranks_share_the_heads() {
        let case = shaped(&[(1, 1)], [6, 1], [1, 1]);
        let fewer = |ranks| fewer_heads(&case, ranks).collect::<Vec<_>>();
        assert_eq!((fewer(6), fewer(3), fewer(1)), (vec![1, 2, 3], vec![1, 2], vec![]));
    }
}
