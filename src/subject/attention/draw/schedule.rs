//! The two plans: how the problem is laid out and cut into steps.

use super::table::{MAX_PAGE, MAX_STEPS, STEPS, Steps};
use crate::source::{Choose, Source};
use crate::subject::attention::case::{Problem, Sequence};
use crate::subject::attention::mask::Anchor;
use crate::subject::attention::plan::{Cache, InferPlan, Request, Side, TrainLayout, TrainPlan};

pub(super) fn cache(source: &mut dyn Source, granules: &[u32]) -> Cache {
    if source.chance(3, 4) {
        Cache::Paged {
            page: source.boundary(granules, MAX_PAGE),
            spare: source.weighted(&[(40, 0), (40, 1), (10, 2), (10, 5)]),
            shuffle: if source.chance(3, 4) { source.below(1 << 32) } else { 0 },
            recycled: source.chance(1, 3),
        }
    } else {
        Cache::Contiguous { spare: padding(source) }
    }
}

pub(super) fn page(cache: &Cache) -> Option<u32> {
    match *cache {
        Cache::Paged { page, .. } => Some(page),
        Cache::Contiguous { .. } => None,
    }
}

/// Dead slots: none, a few, or enough for blocks that hold nothing else.
fn padding(source: &mut dyn Source) -> u32 {
    match source.below(4) {
        0 => 0,
        1 | 2 => source.range(1, 7),
        _ => source.pick(&[8, 16, 31, 64, 65]),
    }
}

pub(super) fn train(source: &mut dyn Source, problem: &Problem, granules: &[u32]) -> TrainPlan {
    let layout = match source.below(3) {
        0 => TrainLayout::Dense { side: Side::Right, pad_q: padding(source), pad_kv: padding(source) },
        1 => TrainLayout::Dense { side: Side::Left, pad_q: padding(source), pad_kv: padding(source) },
        _ => TrainLayout::Varlen,
    };
    TrainPlan {
        layout,
        order: order(source, problem),
        block_q: source.boundary(granules, 128),
        context: None,
        head_ranks: 1,
        knobs: Vec::new(),
    }
}

fn order(source: &mut dyn Source, problem: &Problem) -> Vec<u32> {
    source.permutation(problem.sequences.len())
}

pub(super) fn infer(source: &mut dyn Source, problem: &Problem, cache: Cache, granules: &[u32], chunk: u32) -> InferPlan {
    // Under any other mask a step's rows would need keys that do not exist yet, or stand elsewhere than in the whole call.
    let stepwise = problem.mask.causal == Some(Anchor::BottomRight);
    let company = problem.sequences.len() > 1;
    let requests = problem.sequences.iter().map(|&sequence| {
        let join = if company && source.chance(1, 3) { source.range(1, 4) } else { 0 };
        if stepwise && sequence.q > 0 {
            request(source, sequence, join, granules, chunk)
        } else {
            Request { hit: 0, join, chunks: Vec::new(), then: sequence.q.max(1), reject: 0, preempt: None }
        }
    });
    let requests = requests.collect();
    let total_q = problem.total_q() as u32;
    let budget = (stepwise && total_q > 0 && source.chance(1, 6)).then(|| {
        // At least so much that the engine ends within its steps.
        source.boundary(granules, total_q.max(2)).max(total_q.div_ceil(MAX_STEPS))
    });
    InferPlan {
        cache,
        requests,
        order: order(source, problem),
        rotate: company && source.chance(1, 4),
        budget,
        bucket: source.weighted(&[(60, 1), (15, 2), (10, 3), (10, 4), (5, 8)]),
        context: None,
        head_ranks: 1,
        knobs: Vec::new(),
    }
}

fn request(source: &mut dyn Source, sequence: Sequence, join: u32, granules: &[u32], chunk: u32) -> Request {
    let hit = if sequence.q > 1 && source.chance(1, 4) { source.boundary(granules, sequence.q - 1) } else { 0 };
    let rows = sequence.q - hit;
    let mut chunks = Vec::new();
    let then = match source.weighted(STEPS) {
        Steps::Whole => rows,
        Steps::Decode => {
            chunks.extend(prefill(source, rows, MAX_STEPS));
            1
        }
        Steps::Verify => {
            let then = source.range(2, 6);
            chunks.extend(prefill(source, rows, MAX_STEPS * 2));
            then
        }
        Steps::EvenChunks => chunk.max(rows.div_ceil(MAX_STEPS)),
        Steps::Chunks => {
            let mut left = rows;
            while left > 0 && chunks.len() < 8 {
                let size = source.boundary(granules, left);
                chunks.push(size);
                left -= size;
            }
            left.max(1)
        }
    };
    let after_chunks = rows - chunks.iter().sum::<u32>();
    let reject = if then > 1 && after_chunks > 0 && source.chance(1, 4) { source.range(1, then - 1) } else { 0 };
    // A step that keeps few of its rows must not turn a short request into a long one.
    let reject = if after_chunks.div_ceil(then - reject) > MAX_STEPS { 0 } else { reject };
    let preempt = source.chance(1, 8).then(|| source.range(1, 3));
    Request { hit, join, chunks, then, reject, preempt }
}

/// The first step of a request: all rows but 1 to `most`; `None` where nothing is left for it.
fn prefill(source: &mut dyn Source, rows: u32, most: u32) -> Option<u32> {
    let later = source.range(1, most.min(rows));
    (later < rows).then_some(rows - later)
}
