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
