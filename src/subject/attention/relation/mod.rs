//! Metamorphic relations: the same row of one kernel in other surroundings must keep its bits.
//!
//! A relation is concrete (it names the neighbour, the page size, the hit), so that a case file replays exactly what failed.

mod draw;
mod text;

pub use draw::{along, draw_knob, every, rotate, splits, undo};

use super::drive::schedule;
use super::select::{Keep, Selection, fit_plans};
use super::validate::{self, validate};
use super::{Anchor, Cache, Case, ContextParallel, Data, Literal, Request, Sequence, Shards, Side, TrainLayout};
use crate::finding::{Axis, Path};

/// One concrete change of a row's surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Nothing: the same run again.
    Repeat,
    /// Nothing either, and no second run: the rows that an inference run makes more than once, since their request lost its pages or
    /// their drafts were rejected, against their first making.
    Recompute,
    /// Only this sequence is left.
    Alone {
        /// Sequence id.
        seq: u32,
    },
    /// New sequences come first in the batch.
    Neighbour {
        /// Rows of each.
        q: u32,
        /// Positions of each.
        kv: u32,
        /// How many, at least 1.
        count: u32,
    },
    /// A neighbour is cut to its first rows and keys.
    NeighbourLength {
        /// Its id; its own rows are not compared.
        seq: u32,
        /// Rows it keeps.
        q: u32,
        /// Positions it keeps.
        kv: u32,
    },
    /// A neighbour joins the engine at another step.
    NeighbourJoins {
        /// Its id.
        seq: u32,
        /// The step.
        join: u32,
    },
    /// Sequences stand elsewhere in the batch: the order is rotated by this.
    Position {
        /// Places.
        rotate: u32,
    },
    /// Dense training with other padding.
    Padding {
        /// Where.
        side: Side,
        /// Query slots beyond the longest sequence.
        pad_q: u32,
        /// Key slots beyond the longest sequence.
        pad_kv: u32,
    },
    /// Engine steps padded with empty entries to a multiple.
    Bucket {
        /// The multiple.
        size: u32,
    },
    /// Dead slots hold the largest finite number in place of NaN.
    Poison,
    /// Another cache layout.
    Pages {
        /// Slots in a page; 0 is a contiguous cache.
        page: u32,
        /// Seed of the free list's order.
        shuffle: u64,
    },
    /// Every request is fed so many rows at a time.
    Chunk {
        /// Rows.
        rows: u32,
    },
    /// Every request's prefix hit has this length (shorter requests: as much as they allow).
    Prefix {
        /// Rows.
        hit: u32,
    },
    /// A sequence loses its last rows and as many keys; the earlier rows are compared.
    PrefixStability {
        /// Sequence id.
        seq: u32,
        /// Rows lost.
        drop: u32,
    },
    /// Other context-parallel ranks, or none.
    ContextRanks {
        /// Who owns which positions.
        context: Option<ContextParallel>,
    },
    /// Another number of head-parallel ranks.
    HeadRanks {
        /// Ranks, at least 1.
        ranks: u32,
    },
    /// Another value of one of the kernel's own knobs.
    Knob {
        /// Which.
        name: String,
        /// `None` is the default, whatever that is.
        value: Option<String>,
    },
}

/// A relation on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidedRelation {
    /// Whose kernel.
    pub path: Path,
    /// What changes.
    pub relation: Relation,
}

/// A changed case, and which of its rows are compared with the base run.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The changed case.
    pub case: Case,
    /// True when q, k and v are the base case's, packed alike.
    pub same_inputs: bool,
    /// Sequence whose rows are left out.
    pub except: Option<u32>,
}

impl SidedRelation {
    /// The changed case; `None` where the relation means nothing for the case on this path, or makes it invalid or too large.
    pub fn apply(&self, base: &Case) -> Option<Variant> {
        let variant = self.change(base)?;
        validate(&variant.case).is_ok().then_some(variant)
    }

    fn change(&self, base: &Case) -> Option<Variant> {
        let mut case = base.clone();
        let stepwise = base.problem.mask.causal == Some(Anchor::BottomRight);
        let index_of = |id: u32| base.problem.sequences.iter().position(|s| s.id == id);
        let mut same_inputs = true;
        let mut except = None;
        match (self.path, self.relation.clone()) {
            (path, Relation::Knob { name, value }) => {
                let knobs = match path {
                    Path::Train => &mut case.train.knobs,
                    Path::Infer => &mut case.infer.knobs,
                };
                knobs.retain(|(it, _)| *it != name);
                knobs.extend(value.map(|value| (name, value)));
                knobs.sort();
            }
            (_, Relation::Repeat) => {}
            (Path::Infer, Relation::Recompute) => {
                if !recomputes(base) {
                    return None;
                }
            }
            (Path::Train, Relation::Poison) => {
                let TrainLayout::Dense { pad_q, pad_kv, .. } = base.train.layout else { return None };
                let sequences = &base.problem.sequences;
                let uneven = sequences.windows(2).any(|pair| (pair[0].q, pair[0].kv) != (pair[1].q, pair[1].kv));
                // Without a dead slot it would be a repeat.
                if pad_q == 0 && pad_kv == 0 && !uneven {
                    return None;
                }
            }
            (Path::Infer, Relation::Poison) => {
                let lengths: Vec<u32> = base.problem.sequences.iter().map(|it| it.kv).collect();
                let spare = match base.infer.cache {
                    Cache::Contiguous { spare } => spare > 0 || lengths.windows(2).any(|pair| pair[0] != pair[1]),
                    // One page is always dead.
                    Cache::Paged { .. } => true,
                };
                if !spare && base.infer.bucket == 1 && schedule(&base.problem, &base.infer).len() < 2 {
                    return None;
                }
            }
            (_, Relation::Alone { seq }) => {
                let n = index_of(seq)?;
                if base.problem.sequences.len() < 2 {
                    return None;
                }
                case = Selection::sequences(&base.problem, [n]).apply(base);
                same_inputs = false;
            }
            (_, Relation::Neighbour { q, kv, count }) => {
                if count == 0 || base.problem.sequences.len() + count as usize > validate::MAX_SEQUENCES {
                    return None;
                }
                for _ in 0..count {
                    case = with_neighbour(&case, q, kv)?;
                }
                same_inputs = false;
            }
            (_, Relation::NeighbourLength { seq, q, kv }) => {
                let n = index_of(seq)?;
                let it = base.problem.sequences[n];
                if base.problem.sequences.len() < 2 || q > it.q || kv > it.kv || (q, kv) == (it.q, it.kv) {
                    return None;
                }
                let mut selection = Selection::all(&base.problem);
                selection.sequences[n] = Keep::ranges(n, 0..q, 0..kv);
                case = selection.apply(base);
                same_inputs = false;
                except = Some(seq);
            }
            (Path::Infer, Relation::NeighbourJoins { seq, join }) => {
                if base.problem.sequences.len() < 2 {
                    return None;
                }
                case.infer.requests[index_of(seq)?].join = join;
            }
            (path, Relation::Position { rotate }) => {
                let order = match path {
                    Path::Train => &mut case.train.order,
                    Path::Infer => &mut case.infer.order,
                };
                if rotate == 0 || rotate as usize >= order.len() {
                    return None;
                }
                order.rotate_left(rotate as usize);
            }
            (Path::Train, Relation::Padding { side, pad_q, pad_kv }) => match &mut case.train.layout {
                layout @ TrainLayout::Dense { .. } => *layout = TrainLayout::Dense { side, pad_q, pad_kv },
                TrainLayout::Varlen => return None,
            },
            (Path::Infer, Relation::Bucket { size }) => {
                let steps = schedule(&base.problem, &base.infer);
                let padded = |to: u32| steps.iter().map(move |step| step.len().next_multiple_of(to.max(1) as usize));
                // Steps of the same sizes would be a repeat.
                if padded(size).eq(padded(base.infer.bucket)) {
                    return None;
                }
                case.infer.bucket = size;
            }
            (Path::Infer, Relation::Pages { page: 0, .. }) => case.infer.cache = Cache::Contiguous { spare: 0 },
            (Path::Infer, Relation::Pages { page, shuffle }) => {
                case.infer.cache = Cache::Paged { page, spare: 1, shuffle, recycled: false };
            }
            (Path::Infer, Relation::Chunk { rows }) => {
                if !stepwise || rows == 0 {
                    return None;
                }
                for request in &mut case.infer.requests {
                    request.chunks.clear();
                    request.then = rows;
                    request.reject = 0;
                    request.preempt = None;
                }
                case.infer.budget = None;
            }
            (Path::Infer, Relation::Prefix { hit }) => {
                if !stepwise {
                    return None;
                }
                for request in &mut case.infer.requests {
                    request.hit = hit;
                }
                fit_plans(&mut case);
            }
            (_, Relation::PrefixStability { seq, drop }) => {
                let n = index_of(seq)?;
                let it = base.problem.sequences[n];
                if !stepwise || drop == 0 || drop >= it.q || drop > it.kv {
                    return None;
                }
                let mut selection = Selection::all(&base.problem);
                selection.sequences[n] = Keep::ranges(n, 0..it.q - drop, 0..it.kv - drop);
                case = selection.apply(base);
                same_inputs = false;
            }
            (path, Relation::ContextRanks { context }) => *ranks_of(&mut case, path).0 = context,
            (path, Relation::HeadRanks { ranks }) => *ranks_of(&mut case, path).1 = ranks,
            _ => return None,
        }
        Some(Variant { case, same_inputs, except })
    }

    /// Simpler concrete forms of the same relation, simplest first.
    pub fn simpler(&self) -> Vec<SidedRelation> {
        use Relation::*;
        let mut forms = Vec::new();
        match self.relation {
            Repeat | Recompute | Alone { .. } | Poison | Knob { value: None, .. } => {}
            // The default is the simplest value.
            Knob { ref name, value: Some(_) } => forms.push(Knob { name: name.clone(), value: None }),
            Neighbour { q, kv, count } => {
                forms.extend(down(count, 1).into_iter().map(|count| Neighbour { q, kv, count }));
                forms.extend(down(kv, 0).into_iter().map(|kv| Neighbour { q: q.min(kv.max(1)), kv, count }));
                forms.extend(down(kv, 0).into_iter().map(|kv| Neighbour { q, kv, count }));
                forms.extend(down(q, 1).into_iter().map(|q| Neighbour { q, kv, count }));
            }
            NeighbourLength { seq, q, kv } => {
                forms.extend(down(kv, 0).into_iter().map(|kv| NeighbourLength { seq, q, kv }));
                forms.extend(down(q, 0).into_iter().map(|q| NeighbourLength { seq, q, kv }));
            }
            NeighbourJoins { seq, join } => forms.extend(down(join, 0).into_iter().map(|join| NeighbourJoins { seq, join })),
            Position { rotate } => forms.extend(down(rotate, 1).into_iter().map(|rotate| Position { rotate })),
            Padding { side, pad_q, pad_kv } => {
                forms.extend(down(pad_q, 0).into_iter().map(|pad_q| Padding { side, pad_q, pad_kv }));
                forms.extend(down(pad_kv, 0).into_iter().map(|pad_kv| Padding { side, pad_q, pad_kv }));
            }
            Bucket { size } => forms.extend(down(size, 2).into_iter().map(|size| Bucket { size })),
            Pages { page, shuffle } => {
                if shuffle != 0 {
                    forms.push(Pages { page, shuffle: 0 });
                }
                forms.extend(down(page, 0).into_iter().map(|page| Pages { page, shuffle }));
            }
            Chunk { rows } => forms.extend(down(rows, 1).into_iter().map(|rows| Chunk { rows })),
            Prefix { hit } => forms.extend(down(hit, 0).into_iter().map(|hit| Prefix { hit })),
            PrefixStability { seq, drop } => forms.extend(down(drop, 1).into_iter().map(|drop| PrefixStability { seq, drop })),
            ContextRanks { context } => {
                forms.extend(simpler_context(context).into_iter().map(|context| ContextRanks { context }))
            }
            HeadRanks { ranks } => forms.extend(down(ranks, 1).into_iter().map(|ranks| HeadRanks { ranks })),
        }
        forms.into_iter().map(|relation| SidedRelation { relation, path: self.path }).collect()
    }
}

/// Smaller values of a parameter: the least, half-way there, the next.
fn down(n: u32, least: u32) -> Vec<u32> {
    let mut steps: Vec<u32> = vec![least, least + n.saturating_sub(least) / 2, n.saturating_sub(1)];
    steps.retain(|&it| it >= least && it < n);
    steps.dedup();
    steps
}

fn ranks_of(case: &mut Case, path: Path) -> (&mut Option<ContextParallel>, &mut u32) {
    match path {
        Path::Train => (&mut case.train.context, &mut case.train.head_ranks),
        Path::Infer => (&mut case.infer.context, &mut case.infer.head_ranks),
    }
}

/// Simpler context-parallel ranks, simplest first: none, fewer, each with one chunk, shorter chunks.
pub(in crate::subject::attention) fn simpler_context(context: Option<ContextParallel>) -> Vec<Option<ContextParallel>> {
    let Some(it) = context else { return Vec::new() };
    let mut forms = vec![None];
    forms.extend(down(it.ranks, 2).into_iter().map(|ranks| Some(ContextParallel { ranks, ..it })));
    if it.shards != Shards::Contiguous {
        forms.push(Some(ContextParallel { shards: Shards::Contiguous, ..it }));
    }
    forms.extend(down(it.length, 1).into_iter().map(|length| Some(ContextParallel { length, ..it })));
    forms
}

/// A number that grows with the ranks, the chunks of each, and their length; 0 for none.
pub(in crate::subject::attention) fn size_of_context(context: Option<ContextParallel>) -> u64 {
    let shards = |it: ContextParallel| u64::from(it.shards != Shards::Contiguous);
    context.map_or(0, |it| u64::from(it.ranks) + shards(it) + u64::from(it.length))
}

/// Whether some row of the inference path is made more than once.
fn recomputes(case: &Case) -> bool {
    if case.infer.requests.iter().all(|it| it.reject == 0 && it.preempt.is_none()) {
        return false;
    }
    let mut done = vec![0; case.problem.sequences.len()];
    schedule(&case.problem, &case.infer).iter().flatten().any(|step| {
        let again = step.first_row < done[step.sequence];
        done[step.sequence] = done[step.sequence].max(step.first_row + step.rows);
        again
    })
}

/// Adds a sequence that comes first in both plans. Drawn data gives it values of its own; literal data repeats the case's rows;
/// captured tensors have no more sequences to give.
fn with_neighbour(base: &Case, q: u32, kv: u32) -> Option<Case> {
    let mut case = base.clone();
    let sequences = &mut case.problem.sequences;
    let free = |id: &u32| sequences.iter().all(|it| it.id != *id);
    let above = sequences.iter().map(|it| it.id).max().map_or(Some(0), |id| id.checked_add(1));
    let id = above.or_else(|| (0..u32::MAX).find(free))?;
    let last = sequences.len() as u32;
    sequences.push(Sequence { id, q, kv });
    case.train.order.insert(0, last);
    case.infer.order.insert(0, last);
    case.infer.requests.push(Request { hit: 0, join: 0, chunks: Vec::new(), then: q.max(1), reject: 0, preempt: None });
    match &mut case.data {
        Data::Drawn { .. } => {}
        Data::Captured { .. } => return None,
        Data::Literal(Literal { q: q_bits, k, v }) => {
            let problem = &base.problem;
            let extend = |bits: &mut Vec<u32>, rows: u32, stride: usize| {
                let have = bits.len();
                let more = (0..rows as usize * stride).map(|n| if have == 0 { 0 } else { bits[n % have] });
                let more: Vec<u32> = more.collect();
                bits.extend(more);
            };
            extend(q_bits, q, problem.q_heads() * problem.d_qk as usize);
            extend(k, kv, problem.kv_heads() * problem.d_qk as usize);
            extend(v, kv, problem.kv_heads() * problem.d_v as usize);
        }
    }
    Some(case)
}

impl Relation {
    /// What it changes.
    pub fn axis(&self) -> Axis {
        match self {
            Relation::Repeat => Axis::Repeat,
            Relation::Recompute => Axis::Recompute,
            Relation::Alone { .. }
            | Relation::Neighbour { .. }
            | Relation::NeighbourLength { .. }
            | Relation::NeighbourJoins { .. } => Axis::Company,
            Relation::Position { .. } => Axis::Position,
            Relation::Padding { .. } | Relation::Bucket { .. } => Axis::Padding,
            Relation::Poison => Axis::Poison,
            Relation::Pages { .. } => Axis::Pages,
            Relation::Chunk { .. } => Axis::Chunk,
            Relation::Prefix { .. } => Axis::Prefix,
            Relation::PrefixStability { .. } => Axis::PrefixStability,
            Relation::ContextRanks { .. } | Relation::HeadRanks { .. } => Axis::Ranks,
            Relation::Knob { .. } => Axis::Knob,
        }
    }

    /// What it changes, and of the kernel's own knobs which; as [`Finding::changed`](crate::finding::Finding::changed) says it.
    pub fn changed(&self) -> String {
        match self {
            Relation::Knob { name, .. } => format!("{} {name}", self.axis()),
            _ => self.axis().to_string(),
        }
    }

    /// The same relation with sequences named anew.
    pub fn renamed(self, name: impl Fn(u32) -> u32) -> Relation {
        match self {
            Relation::Alone { seq } => Relation::Alone { seq: name(seq) },
            Relation::NeighbourLength { seq, q, kv } => Relation::NeighbourLength { seq: name(seq), q, kv },
            Relation::NeighbourJoins { seq, join } => Relation::NeighbourJoins { seq: name(seq), join },
            Relation::PrefixStability { seq, drop } => Relation::PrefixStability { seq: name(seq), drop },
            other => other,
        }
    }

    /// A number that grows with its parameters, for the size of a shrunk case.
    pub fn size(&self) -> u64 {
        use Relation::*;
        let sum = |parts: &[u32]| parts.iter().map(|&n| u64::from(n)).sum();
        match *self {
            Repeat | Recompute | Alone { .. } | Poison => 0,
            Knob { ref value, .. } => u64::from(value.is_some()),
            Neighbour { q, kv, count } => sum(&[q, kv, count - 1]),
            NeighbourLength { q, kv, .. } => sum(&[q, kv]),
            NeighbourJoins { join: n, .. } | Position { rotate: n } | Bucket { size: n } => sum(&[n]),
            Padding { pad_q, pad_kv, .. } => sum(&[pad_q, pad_kv]),
            Pages { page, shuffle } => u64::from(page) + u64::from(shuffle != 0),
            Chunk { rows: n } | Prefix { hit: n } | PrefixStability { drop: n, .. } | HeadRanks { ranks: n } => sum(&[n]),
            ContextRanks { context } => size_of_context(context),
        }
    }
}
