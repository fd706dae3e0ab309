//! Metamorphic relations: the same row of one kernel in other surroundings must keep its bits.
//!
//! A relation is concrete (it names the neighbour, the page size, the hit), so that a case file replays exactly what failed.

use super::drive::schedule;
use super::select::{Keep, Selection, fit_plans};
use super::{Anchor, Cache, Case, Data, Literal, Request, Sequence, Side, TrainLayout, validate};
use crate::finding::{Axis, Path};
use crate::source::Source;
use std::fmt;
use std::str::FromStr;

/// One concrete change of a row's surroundings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Nothing: the same run again.
    Repeat,
    /// Only this sequence is left.
    Alone {
        /// Sequence id.
        seq: u32,
    },
    /// A new sequence comes first in the batch.
    Neighbour {
        /// Its rows.
        q: u32,
        /// Its positions.
        kv: u32,
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
}

/// A relation on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidedRelation {
    /// Whose kernel.
    pub path: Path,
    /// What changes.
    pub relation: Relation,
}

/// What is drawn by rotation: a path and a kind of relation.
type Slot = (Path, fn(&Case, &mut dyn Source) -> Option<Relation>);

/// Every meaningful pair, ordered so that two neighbours in the rotation look at different things.
const ROTATION: [Slot; 20] = [
    (Path::Infer, draw_chunk),
    (Path::Train, draw_padding),
    (Path::Infer, draw_prefix),
    (Path::Train, draw_alone),
    (Path::Infer, draw_pages),
    (Path::Train, draw_stability),
    (Path::Infer, draw_alone),
    (Path::Train, draw_poison),
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
];

/// `count` relations that fit the case, starting at place `turn` of the rotation; fewer when fewer fit.
pub fn rotate(case: &Case, turn: u64, count: usize, source: &mut dyn Source) -> Vec<SidedRelation> {
    let start = (turn % ROTATION.len() as u64) as usize * count;
    (0..ROTATION.len())
        .map(|n| ROTATION[(start + n) % ROTATION.len()])
        .filter_map(|(path, draw)| {
            let relation = draw(case, source)?;
            let sided = SidedRelation { path, relation };
            // A variant that changes nothing would be a repeat under another name.
            let variant = sided.apply(case)?;
            let unchanged = matches!(relation, Relation::Repeat | Relation::Poison);
            (unchanged || variant.case != *case).then_some(sided)
        })
        .take(count)
        .collect()
}

/// The relations that take one feature of a plan away each: where a kernel differs from itself, one of them shows why.
pub fn undo(case: &Case) -> Vec<SidedRelation> {
    let infer = [
        Relation::Prefix { hit: 0 },
        Relation::Chunk { rows: longest(case).max(1) },
        Relation::Pages { page: 0, shuffle: 0 },
        Relation::Bucket { size: 1 },
    ];
    let train = [Relation::Padding { side: Side::Right, pad_q: 0, pad_kv: 0 }];
    let sided = |path| move |relation| SidedRelation { path, relation };
    let alone = case.problem.sequences.iter().map(|it| Relation::Alone { seq: it.id });
    let plain = infer.into_iter().map(sided(Path::Infer)).chain(train.into_iter().map(sided(Path::Train)));
    plain
        .chain(alone.flat_map(|relation| Path::BOTH.map(|path| SidedRelation { path, relation })))
        .filter(|sided| sided.apply(case).is_some_and(|variant| variant.case != *case))
        .collect()
}

fn draw_repeat(_: &Case, _: &mut dyn Source) -> Option<Relation> {
    Some(Relation::Repeat)
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

fn draw_neighbour(_: &Case, source: &mut dyn Source) -> Option<Relation> {
    let kv = 1 + source.below(9) as u32 * (1 + 16 * source.below(2) as u32);
    let q = if source.below(2) == 0 { 1 } else { 1 + source.below(u64::from(kv)) as u32 };
    Some(Relation::Neighbour { q, kv })
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
        match (self.path, self.relation) {
            (_, Relation::Repeat) => {}
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
                let spare = match base.infer.cache {
                    Cache::Contiguous { spare } => spare > 0,
                    Cache::Paged { page, spare, .. } => spare > 0 || page > 1,
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
            (_, Relation::Neighbour { q, kv }) => {
                case = with_neighbour(base, q, kv)?;
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
            _ => return None,
        }
        Some(Variant { case, same_inputs, except })
    }

    /// Simpler concrete forms of the same relation, simplest first.
    pub fn simpler(&self) -> Vec<SidedRelation> {
        use Relation::*;
        let down = |n: u32, least: u32| {
            let mut steps: Vec<u32> = vec![least, least + n.saturating_sub(least) / 2, n.saturating_sub(1)];
            steps.retain(|&it| it >= least && it < n);
            steps.dedup();
            steps
        };
        let mut forms = Vec::new();
        match self.relation {
            Repeat | Alone { .. } | Poison => {}
            Neighbour { q, kv } => {
                forms.extend(down(kv, 0).into_iter().map(|kv| Neighbour { q: q.min(kv.max(1)), kv }));
                forms.extend(down(q, 1).into_iter().map(|q| Neighbour { q, kv }));
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
        }
        forms.into_iter().map(|relation| SidedRelation { relation, ..*self }).collect()
    }
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
            Repeat | Alone { .. } | Poison => 0,
            Neighbour { q, kv } | NeighbourLength { q, kv, .. } => sum(&[q, kv]),
            NeighbourJoins { join: n, .. } | Position { rotate: n } | Bucket { size: n } => sum(&[n]),
            Padding { pad_q, pad_kv, .. } => sum(&[pad_q, pad_kv]),
            Pages { page, shuffle } => u64::from(page) + u64::from(shuffle != 0),
            Chunk { rows: n } | Prefix { hit: n } | PrefixStability { drop: n, .. } => sum(&[n]),
        }
    }
}

impl fmt::Display for SidedRelation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.path)?;
        use Relation::*;
        match self.relation {
            Repeat => write!(f, "repeat"),
            Alone { seq } => write!(f, "alone seq={seq}"),
            Neighbour { q, kv } => write!(f, "neighbour q={q} kv={kv}"),
            NeighbourLength { seq, q, kv } => write!(f, "neighbour_length seq={seq} q={q} kv={kv}"),
            NeighbourJoins { seq, join } => write!(f, "neighbour_joins seq={seq} join={join}"),
            Position { rotate } => write!(f, "position rotate={rotate}"),
            Padding { side: Side::Left, pad_q, pad_kv } => write!(f, "padding_left pad_q={pad_q} pad_kv={pad_kv}"),
            Padding { side: Side::Right, pad_q, pad_kv } => write!(f, "padding_right pad_q={pad_q} pad_kv={pad_kv}"),
            Bucket { size } => write!(f, "bucket size={size}"),
            Poison => write!(f, "poison"),
            Pages { page, shuffle } => write!(f, "pages page={page} shuffle={shuffle}"),
            Chunk { rows } => write!(f, "chunk rows={rows}"),
            Prefix { hit } => write!(f, "prefix hit={hit}"),
            PrefixStability { seq, drop } => write!(f, "prefix_stability seq={seq} drop={drop}"),
        }
    }
}

/// The largest size a case file may give: beyond it a variant could not be run.
const PARAMETER_MAX: u64 = 65_536;

impl FromStr for SidedRelation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(' ');
        let path = match words.next() {
            Some("train") => Path::Train,
            Some("infer") => Path::Infer,
            _ => return Err(format!("`{text}`: a relation starts with `train` or `infer`")),
        };
        let name = words.next().unwrap_or("");
        let mut parameters: Vec<(&str, u64)> = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{text}`: `{word}` is no key=value"))?;
            let value = value.parse().map_err(|_| format!("`{text}`: `{value}` is no number"))?;
            let most = match key {
                // Names and seeds cost nothing, however large.
                "seq" => u64::from(u32::MAX),
                "shuffle" => u64::MAX,
                _ => PARAMETER_MAX,
            };
            if value > most {
                return Err(format!("`{text}`: `{key}` is above {most}"));
            }
            parameters.push((key, value));
        }
        let wide = |key: &str| {
            let found = parameters.iter().find(|(name, _)| *name == key);
            found.map(|&(_, value)| value).ok_or_else(|| format!("`{text}`: `{key}` is missing"))
        };
        let get = |key: &str| wide(key).map(|value| value as u32);
        use Relation::*;
        let relation = match name {
            "repeat" => Repeat,
            "alone" => Alone { seq: get("seq")? },
            "neighbour" => Neighbour { q: get("q")?, kv: get("kv")? },
            "neighbour_length" => NeighbourLength { seq: get("seq")?, q: get("q")?, kv: get("kv")? },
            "neighbour_joins" => NeighbourJoins { seq: get("seq")?, join: get("join")? },
            "position" => Position { rotate: get("rotate")? },
            "padding_left" => Padding { side: Side::Left, pad_q: get("pad_q")?, pad_kv: get("pad_kv")? },
            "padding_right" => Padding { side: Side::Right, pad_q: get("pad_q")?, pad_kv: get("pad_kv")? },
            "bucket" => Bucket { size: get("size")?.max(1) },
            "poison" => Poison,
            "pages" => Pages { page: get("page")?, shuffle: wide("shuffle")? },
            "chunk" => Chunk { rows: get("rows")? },
            "prefix" => Prefix { hit: get("hit")? },
            "prefix_stability" => PrefixStability { seq: get("seq")?, drop: get("drop")? },
            other => {
                let known = [
                    "repeat",
                    "alone",
                    "neighbour",
                    "neighbour_length",
                    "neighbour_joins",
                    "position",
                    "padding_left",
                    "padding_right",
                    "bucket",
                    "poison",
                    "pages",
                    "chunk",
                    "prefix",
                    "prefix_stability",
                ];
                return Err(super::numerics::unknown("relation", other, &known));
            }
        };
        let sided = SidedRelation { path, relation };
        if sided.to_string() == text { Ok(sided) } else { Err(format!("`{text}` is not in canonical form; expected `{sided}`")) }
    }
}
