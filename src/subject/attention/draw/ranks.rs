//! Parallel ranks of a plan.

use super::table::{CHUNKS, CONTEXT_RANKS, Chunks, HEAD_RANKS};
use crate::source::{Choose, Source};
use crate::subject::attention::case::Problem;
use crate::subject::attention::plan::{ContextParallel, Shards};
use crate::subject::attention::validate::MAX_LENGTH;

/// Context-parallel ranks, none if the plan's kernel cannot; and head-parallel ones.
pub(super) fn ranks(
    source: &mut dyn Source,
    problem: &Problem,
    granules: &[u32],
    one_rank: bool,
) -> (Option<ContextParallel>, u32) {
    let context = (!one_rank && source.chance(1, 6)).then(|| context(source, problem, granules));
    let mut fitting = HEAD_RANKS.to_vec();
    fitting.retain(|&(_, ranks)| problem.divides_heads(ranks));
    let head_ranks = if fitting.is_empty() || !source.chance(1, 5) { 1 } else { source.weighted(&fitting) };
    (context, head_ranks)
}

fn context(source: &mut dyn Source, problem: &Problem, granules: &[u32]) -> ContextParallel {
    let longest = problem.sequences.iter().map(|s| s.kv).max().unwrap_or(0).max(1);
    let ranks = source.weighted(CONTEXT_RANKS);
    let shards = if source.chance(1, 2) { Shards::Zigzag } else { Shards::Contiguous };
    let mut context = ContextParallel { ranks, shards, length: 1 };
    context.length = match source.weighted(CHUNKS) {
        Chunks::Even => longest.div_ceil(context.chunks()),
        Chunks::Boundary => source.boundary(granules, longest),
        Chunks::OnGrid => {
            let granule = source.pick(granules).clamp(1, longest);
            granule * source.range(1, longest.div_ceil(context.chunks()).div_ceil(granule))
        }
        Chunks::Long => longest.saturating_add(source.range(0, 8)).min(MAX_LENGTH),
    };
    context
}
