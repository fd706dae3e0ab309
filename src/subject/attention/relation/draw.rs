//! Which relations a case gets, and with which parameters.

use super::{Relation, SidedRelation};
use crate::finding::{Axis, Path};
use crate::source::Source;
use crate::subject::attention::capabilities::Knob;
use crate::subject::attention::{Case, ContextParallel, Sequence, Shards, Side};

/// What is drawn by rotation: a path and a kind of relation.
type Slot = (Path, fn(&Case, &mut dyn Source) -> Option<Relation>);

/// Every meaningful pair, ordered so that two neighbours in the rotation look at different things.
const ROTATION: [Slot; 25] = [
    (Path::Infer, draw_chunk),
    (Path::Train, draw_padding),
    (Path::Infer, draw_prefix),
    (Path::Train, draw_context_ranks),
    (Path::Infer, draw_head_ranks),
    (Path::Train, draw_alone),
    (Path::Infer, draw_pages),
    (Path::Train, draw_stability),
    (Path::Infer, draw_alone),
    (Path::Train, draw_poison),
    (Path::Infer, draw_context_ranks),
    (Path::Train, draw_head_ranks),
    (Path::Infer, draw_stability),
    (Path::Train, draw_neighbour),
    (Path::Infer, draw_neighbour),
    (Path::Train, draw_position),
    (Path::Infer, draw_joins),
    (Path::Train, draw_neighbour_length),
    (Path::Infer, draw_poison),
    (Path::Train, draw_repeat),
    (Path::Infer, draw_bucket),
    (Path::Infer, draw_neighbour_length),
    (Path::Infer, draw_position),
    (Path::Infer, draw_repeat),
    (Path::Infer, draw_recompute),
];

/// `count` relations that fit the case, starting at place `turn` of the rotation; fewer when fewer fit.
pub fn rotate(case: &Case, turn: u64, count: usize, source: &mut dyn Source) -> Vec<SidedRelation> {
    let start = (turn % ROTATION.len() as u64) as usize * count;
    (0..ROTATION.len()).filter_map(|n| draw(ROTATION[(start + n) % ROTATION.len()], case, source)).take(count).collect()
}

/// Every kind of relation that fits the case, once for each path.
pub fn every(case: &Case, source: &mut dyn Source) -> Vec<SidedRelation> {
    ROTATION.into_iter().filter_map(|slot| draw(slot, case, source)).collect()
}

/// What a launcher chooses the number of splits by, the rows' own step left as it is: how full the device is, and how many keys there are.
pub fn splits(case: &Case, source: &mut dyn Source) -> Vec<SidedRelation> {
    let stability = draw_stability(case, source);
    // With a few heads each, sixty requests are more than a device has processors.
    let crowds = [1, 30, 60].map(|count| Relation::Neighbour { q: 1, kv: 1 + source.below(8) as u32, count });
    let sided = |relation: Relation| Path::BOTH.map(|path| SidedRelation { path, relation: relation.clone() });
    let mut drawn: Vec<SidedRelation> = crowds.into_iter().chain(stability).flat_map(sided).collect();
    drawn.retain(|it| it.apply(case).is_some());
    // A rule that looks at the heads of the call sees those of the rank.
    drawn.extend(Path::BOTH.into_iter().filter_map(|path| draw((path, draw_head_ranks), case, source)));
    drawn
}

/// Every relation of one axis that fits the case, on both paths.
pub fn along(case: &Case, axis: Axis, source: &mut dyn Source) -> Vec<SidedRelation> {
    let drawn = ROTATION.into_iter().filter_map(|slot| draw(slot, case, source));
    drawn.filter(|it| it.relation.axis() == axis).collect()
}

fn draw((path, draw): Slot, case: &Case, source: &mut dyn Source) -> Option<SidedRelation> {
    let sided = SidedRelation { path, relation: draw(case, source)? };
    // A variant that changes nothing would be a repeat under another name.
    let variant = sided.apply(case)?;
    let unchanged = matches!(sided.relation, Relation::Repeat | Relation::Recompute | Relation::Poison);
    (unchanged || variant.case != *case).then_some(sided)
}

/// The relations that take one feature of a plan away each: where a kernel differs from itself, one of them shows why.
pub fn undo(case: &Case) -> Vec<SidedRelation> {
    let infer = [
        Relation::Prefix { hit: 0 },
        Relation::Chunk { rows: longest(case).max(1) },
        Relation::Pages { page: 0, shuffle: 0 },
        Relation::Bucket { size: 1 },
        Relation::ContextRanks { context: None },
        Relation::HeadRanks { ranks: 1 },
    ];
    let train = [
        Relation::Padding { side: Side::Right, pad_q: 0, pad_kv: 0 },
        Relation::ContextRanks { context: None },
        Relation::HeadRanks { ranks: 1 },
    ];
    let sided = |path| move |relation| SidedRelation { path, relation };
    let knobs = [(Path::Train, &case.train.knobs), (Path::Infer, &case.infer.knobs)].into_iter().flat_map(|(path, knobs)| {
        knobs.iter().map(move |(name, _)| SidedRelation { path, relation: Relation::Knob { name: name.clone(), value: None } })
    });
    // Company shows on a few sequences or not at all.
    let alone = case.problem.sequences.iter().take(4).map(|it| Relation::Alone { seq: it.id });
    let plain = infer.into_iter().map(sided(Path::Infer)).chain(train.into_iter().map(sided(Path::Train)));
    plain
        .chain(alone.flat_map(|relation| Path::BOTH.map(|path| SidedRelation { path, relation: relation.clone() })))
        .chain(knobs)
        .filter(|sided| sided.apply(case).is_some_and(|variant| variant.case != *case))
        .collect()
}

/// Another value of one of a kernel's knobs than the plan has; `None` where none has another.
pub fn draw_knob(path: Path, case: &Case, knobs: &[Knob], source: &mut dyn Source) -> Option<SidedRelation> {
    let plan = match path {
        Path::Train => &case.train.knobs,
        Path::Infer => &case.infer.knobs,
    };
    let others = knobs.iter().flat_map(|knob| {
        let now = plan.iter().find(|(name, _)| *name == knob.name).map(|(_, value)| value).or(knob.values.first());
        // The default goes without saying.
        let values = knob.values.iter().enumerate().filter(move |&(_, value)| Some(value) != now);
        values.map(|(n, value)| Relation::Knob { name: knob.name.clone(), value: (n > 0).then(|| value.clone()) })
    });
    let mut others: Vec<Relation> = others.collect();
    (!others.is_empty()).then(|| {
        let relation = others.swap_remove(source.below(others.len() as u64) as usize);
        SidedRelation { path, relation }
    })
}

fn draw_repeat(_: &Case, _: &mut dyn Source) -> Option<Relation> {
    Some(Relation::Repeat)
}

fn draw_recompute(_: &Case, _: &mut dyn Source) -> Option<Relation> {
    Some(Relation::Recompute)
}

fn draw_poison(_: &Case, _: &mut dyn Source) -> Option<Relation> {
    Some(Relation::Poison)
}

fn some_sequence(case: &Case, source: &mut dyn Source) -> Option<Sequence> {
    let with_rows: Vec<Sequence> = case.problem.sequences.iter().copied().filter(|s| s.q > 0).collect();
    (!with_rows.is_empty()).then(|| with_rows[source.below(with_rows.len() as u64) as usize])
}

fn draw_alone(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    some_sequence(case, source).map(|it| Relation::Alone { seq: it.id })
}

fn draw_neighbour(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    let kv = 1 + source.below(9) as u32 * (1 + 16 * source.below(2) as u32);
    let q = if source.below(2) == 0 { 1 } else { 1 + source.below(u64::from(kv)) as u32 };
    // Occupancy rules look at the size of the batch, and only where keys are many: often a crowd of one-row requests there.
    let many = case.problem.sequences.iter().any(|it| it.kv > 256);
    if source.below(8) < if many { 6 } else { 1 } {
        return Some(Relation::Neighbour { q: 1, kv: kv.min(9), count: 2 + source.below(40) as u32 });
    }
    Some(Relation::Neighbour { q, kv, count: 1 })
}

fn draw_neighbour_length(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    if case.problem.sequences.len() < 2 {
        return None;
    }
    let it = some_sequence(case, source)?;
    let q = source.below(u64::from(it.q)) as u32;
    Some(Relation::NeighbourLength { seq: it.id, q, kv: it.kv.saturating_sub(it.q - q) })
}

fn draw_joins(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    if case.problem.sequences.len() < 2 {
        return None;
    }
    some_sequence(case, source).map(|it| Relation::NeighbourJoins { seq: it.id, join: source.below(6) as u32 })
}

fn draw_position(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    let count = case.problem.sequences.len() as u64;
    (count >= 2).then(|| Relation::Position { rotate: 1 + source.below(count - 1) as u32 })
}

fn draw_padding(_: &Case, source: &mut dyn Source) -> Option<Relation> {
    let side = if source.below(2) == 0 { Side::Left } else { Side::Right };
    Some(Relation::Padding { side, pad_q: source.below(6) as u32, pad_kv: source.below(9) as u32 })
}

fn draw_bucket(_: &Case, source: &mut dyn Source) -> Option<Relation> {
    Some(Relation::Bucket { size: 2 + source.below(7) as u32 })
}

fn draw_pages(_: &Case, source: &mut dyn Source) -> Option<Relation> {
    let page = [0, 1, 2, 3, 4, 7, 8, 16, 64][source.below(9) as usize];
    Some(Relation::Pages { page, shuffle: if page == 0 { 0 } else { source.below(1 << 16) } })
}

/// One rank where some plan has several, or several: three or more for the most part, since two partial results commute.
fn draw_context_ranks(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    if (case.train.context.is_some() || case.infer.context.is_some()) && source.below(3) == 0 {
        return Some(Relation::ContextRanks { context: None });
    }
    let longest = case.problem.sequences.iter().map(|s| s.kv).max().unwrap_or(0).max(1);
    let ranks = [3, 4, 2, 8][source.below(4) as usize];
    let shards = if source.below(2) == 0 { Shards::Contiguous } else { Shards::Zigzag };
    let mut context = ContextParallel { ranks, shards, length: 1 };
    context.length = match source.below(4) {
        0 => longest.div_ceil(context.chunks()),
        1 => 16 << source.below(3),
        _ => 1 + source.below(u64::from(longest)) as u32,
    };
    Some(Relation::ContextRanks { context: Some(context) })
}

fn draw_head_ranks(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    let fitting: Vec<u32> = (1..=case.problem.q_heads() as u32).filter(|&ranks| case.problem.divides_heads(ranks)).collect();
    (fitting.len() > 1).then(|| Relation::HeadRanks { ranks: fitting[source.below(fitting.len() as u64) as usize] })
}

fn longest(case: &Case) -> u32 {
    case.problem.sequences.iter().map(|s| s.q).max().unwrap_or(0)
}

fn draw_chunk(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    let longest = longest(case);
    (longest >= 2).then(|| Relation::Chunk { rows: 1 + source.below(u64::from(longest)) as u32 })
}

fn draw_prefix(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    let longest = longest(case);
    (longest >= 2).then(|| Relation::Prefix { hit: source.below(u64::from(longest)) as u32 })
}

fn draw_stability(case: &Case, source: &mut dyn Source) -> Option<Relation> {
    let it = some_sequence(case, source)?;
    let most = (it.q - 1).min(it.kv);
    (most >= 1).then(|| Relation::PrefixStability { seq: it.id, drop: 1 + source.below(u64::from(most)) as u32 })
}
