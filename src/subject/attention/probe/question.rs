//! The changes of surroundings that a probe asks about, and the cases that ask.

use super::page::Change;
use super::sample::{Place, Shape, data, other_length};
use super::terms::Terms;
use crate::finding::{Axis, Path};
use crate::subject::attention::capabilities::{Form, Format};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::relation::{Relation, SidedRelation};
use crate::subject::attention::{Anchor, Cache, Case, ContextParallel, Request, Shards, Side, TrainLayout};

/// Rows that are decoded one at a time after a prefill of the rest: a longer decode shows nothing else.
const DECODED: u32 = 32;

/// The knob, and its value, with which a kernel fills its workspace with garbage: a matter of repeating, not of relations.
pub(super) const DIRTY: (&str, &str) = ("workspace", "dirty");

/// Sequences that join a batch of one.
const COMPANY: [u32; 3] = [1, 3, 7];

/// A question, put to the cases of a sample.
pub(super) struct Question {
    pub(super) change: Change,
    /// `None`: training against inference.
    pub(super) path: Option<Path>,
    pub(super) about: String,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    /// Full sequence against this schedule.
    Pair,
    Recompute,
    Company,
    Position,
    Padding,
    Bucket,
    Poison,
    Pages,
    Chunk,
    Prefix,
    PrefixStability,
    ContextRanks,
    HeadRanks,
    /// A knob of the kernel's own: its values off the default.
    Knob(String, Vec<String>),
}

/// A case that asks a question.
pub(super) struct Asked {
    pub(super) case: Case,
    /// `None`: training against inference.
    pub(super) relation: Option<SidedRelation>,
    /// Packed rows of the first sequence that are compared, from this one on.
    pub(super) from_row: u32,
    /// Sequences of the batch, where the question is one of company.
    pub(super) batch: Option<u32>,
    /// The place of the knob's value in its declaration, and the value.
    pub(super) value: Option<(usize, String)>,
}

/// Every question about a kernel; where one cannot be asked of it, why.
pub(super) fn questions(terms: &Terms<'_>) -> Vec<(Question, Result<(), String>)> {
    let mut all: Vec<(Question, Result<(), String>)> = Vec::new();
    let has = |path: Path| match path {
        _ if terms.path(path) => Ok(()),
        Path::Train => Err("no form for full sequences".to_owned()),
        Path::Infer => Err("no form with a cache".to_owned()),
    };
    let steps = match terms.masks().contains(&Some(Anchor::BottomRight)) {
        true => Ok(()),
        false => Err("no bottom-right causal mask, and steps mean nothing under another".to_owned()),
    };
    let both = has(Path::Train).and(has(Path::Infer));
    let mut pair = |change, about: &str, may: Result<(), String>| {
        all.push((Question { change, path: None, about: about.to_owned(), kind: Kind::Pair }, may));
    };
    pair(Change::FullAgainstStep, "full sequence against one step over the cache", both.clone());
    pair(Change::FullAgainstDecode, "full sequence against cached decode", both.clone().and(steps.clone()));
    for rows in [16, 64] {
        let about = format!("full sequence against a prefill in chunks of {rows}");
        pair(Change::FullAgainstChunks(rows), &about, both.clone().and(steps.clone()));
    }
    let mut axis = |axis, path, about: String, kind, may: Result<(), String>| {
        all.push((Question { change: Change::Axis(axis), path: Some(path), about, kind }, may));
    };
    let (train, infer) = (has(Path::Train), has(Path::Infer));
    let stepwise = infer.clone().and(steps.clone());
    let company = COMPANY.map(|others| others + 1).into_iter().filter(|&batch| terms.holds(batch)).map(|it| it.to_string());
    let company: Vec<String> = company.collect();
    let may = if company.is_empty() { Err("no batches".to_owned()) } else { Ok(()) };
    for path in Path::BOTH {
        let about = format!("batch of 1 against {}", company.join(", "));
        axis(Axis::Company, path, about, Kind::Company, has(path).and(may.clone()));
    }
    for path in Path::BOTH {
        axis(Axis::Position, path, "another place in a batch of 3".into(), Kind::Position, has(path));
    }
    let sides = sides(terms);
    let dense = if sides.is_empty() { Err("no padded form".to_owned()) } else { Ok(()) };
    axis(Axis::Padding, Path::Train, "more padding".into(), Kind::Padding, train.clone().and(dense.clone()));
    let empty = if terms.capabilities.no_empty_sequences { Err("no empty sequences".to_owned()) } else { Ok(()) };
    axis(Axis::Padding, Path::Infer, "steps padded with empty entries".into(), Kind::Bucket, infer.clone().and(empty));
    axis(Axis::Poison, Path::Train, "other values in dead slots".into(), Kind::Poison, train.clone().and(dense));
    axis(Axis::Poison, Path::Infer, "other values in dead slots".into(), Kind::Poison, infer.clone());
    let pages: Vec<String> = other_pages(terms).into_iter().map(page_name).collect();
    let may = if pages.is_empty() { Err("one cache layout only".to_owned()) } else { Ok(()) };
    let about = format!("pages of {} against {}", terms.page(), pages.join(", "));
    axis(Axis::Pages, Path::Infer, about, Kind::Pages, infer.clone().and(may));
    axis(Axis::Chunk, Path::Infer, "one step against chunks of 1, 16 and 64 rows".into(), Kind::Chunk, stepwise.clone());
    axis(Axis::Prefix, Path::Infer, "a prefix-cache hit of half the rows".into(), Kind::Prefix, stepwise.clone());
    axis(Axis::Recompute, Path::Infer, "rows made again after a preemption".into(), Kind::Recompute, stepwise);
    for path in Path::BOTH {
        let about = "later rows taken away".to_owned();
        axis(Axis::PrefixStability, path, about, Kind::PrefixStability, has(path).and(steps.clone()));
    }
    for path in Path::BOTH {
        axis(Axis::Ranks, path, "heads on 2 ranks".into(), Kind::HeadRanks, has(path));
        let declared = terms.feature(Feature::ContextParallel).then_some(()).ok_or("no context-parallel ranks".to_owned());
        axis(Axis::Ranks, path, "positions on 3 ranks".into(), Kind::ContextRanks, has(path).and(declared));
    }
    for knob in terms.capabilities.knobs.iter().filter(|knob| knob.name != DIRTY.0) {
        let [default, others @ ..] = &knob.values[..] else { continue };
        for path in Path::BOTH {
            let about = format!("{}: {default} against {}", knob.name, others.join(", "));
            let may = if others.is_empty() { Err("one value only".to_owned()) } else { Ok(()) };
            axis(Axis::Knob, path, about, Kind::Knob(knob.name.clone(), others.to_vec()), has(path).and(may));
        }
    }
    all
}

/// Page sizes to compare the usual one with; 0 is a contiguous cache.
fn other_pages(terms: &Terms<'_>) -> Vec<u32> {
    let mut pages = match &terms.capabilities.page_sizes {
        Some(sizes) => sizes.clone(),
        None => vec![1, 64],
    };
    pages.retain(|&page| page != terms.page());
    pages.truncate(2);
    if !terms.form(Form::Paged) {
        return Vec::new();
    }
    if terms.form(Form::Contiguous) {
        pages.push(0);
    }
    pages
}

fn page_name(page: u32) -> String {
    if page == 0 { "a contiguous cache".to_owned() } else { page.to_string() }
}

/// The ends that padding may stand at.
fn sides(terms: &Terms<'_>) -> Vec<Side> {
    let sides = [(Form::DenseRight, Side::Right), (Form::DenseLeft, Side::Left)];
    sides.into_iter().filter(|(form, _)| terms.form(*form)).map(|(_, side)| side).collect()
}

impl Question {
    /// The case at a place of the sample; `None` where the question means nothing there.
    pub(super) fn ask(&self, terms: &Terms<'_>, format: Format, place: Place, seed: u64) -> Option<Asked> {
        let length = place.length;
        let path = self.path.unwrap_or(Path::Infer);
        let other = other_length(terms, path, place);
        let sequences = match &self.kind {
            Kind::Position => vec![(length, length), (other, other), (length, length)],
            _ => vec![(length, length)],
        };
        let mut shape = Shape::of(terms, format, &sequences);
        match &self.kind {
            Kind::Padding => shape.layout = TrainLayout::Dense { side: turn(&sides(terms), place)?, pad_q: 0, pad_kv: 0 },
            Kind::Poison if path == Path::Train => {
                shape.layout = TrainLayout::Dense { side: turn(&sides(terms), place)?, pad_q: 3, pad_kv: 5 };
            }
            Kind::Poison => {
                if let Cache::Contiguous { spare } = &mut shape.cache {
                    *spare = 5;
                }
            }
            _ => {}
        }
        let mut case = shape.case(data(place, seed));
        let (mut from_row, mut batch, mut knob) = (0, None, None);
        let relation = match &self.kind {
            Kind::Pair => {
                from_row = self.schedule(&mut case, length);
                None
            }
            Kind::Recompute => {
                let request = &mut case.infer.requests[0];
                *request = Request {
                    chunks: vec![length.div_ceil(2)],
                    then: 4,
                    reject: 1,
                    preempt: Some(1),
                    ..Request::one_step(length)
                };
                Some(Relation::Recompute)
            }
            Kind::Company => {
                let fitting = COMPANY.into_iter().filter(|others| terms.holds(others + 1));
                let count = turn(&fitting.collect::<Vec<u32>>(), place)?;
                batch = Some(count + 1);
                Some(Relation::Neighbour { q: other, kv: other, count })
            }
            Kind::Position => Some(Relation::Position { rotate: 1 + (place.index % 2) as u32 }),
            Kind::Padding => {
                let side = turn(&sides(terms), place)?;
                let more = [1, 5, 16, 65][(place.index % 4) as usize];
                Some(Relation::Padding { side, pad_q: more, pad_kv: more })
            }
            Kind::Bucket => Some(Relation::Bucket { size: 2 + (place.index % 3) as u32 }),
            Kind::Poison => Some(Relation::Poison),
            Kind::Pages => {
                let page = turn(&other_pages(terms), place)?;
                Some(Relation::Pages { page, shuffle: if page == 0 { 0 } else { 1 + place.index % 3 } })
            }
            Kind::Chunk => Some(Relation::Chunk { rows: chunk(place, length)? }),
            Kind::Prefix => (length >= 2).then_some(Relation::Prefix { hit: length / 2 }),
            Kind::PrefixStability => {
                let drop = if place.index.is_multiple_of(2) { 1 } else { length / 2 };
                (length >= 2).then_some(Relation::PrefixStability { seq: 0, drop })
            }
            Kind::ContextRanks => {
                let shards = if place.index.is_multiple_of(2) { Shards::Contiguous } else { Shards::Zigzag };
                let chunks = if shards == Shards::Contiguous { 3 } else { 6 };
                let context = ContextParallel { ranks: 3, shards, length: length.div_ceil(chunks).max(1) };
                Some(Relation::ContextRanks { context: Some(context) })
            }
            Kind::HeadRanks => Some(Relation::HeadRanks { ranks: 2 }),
            Kind::Knob(name, values) => {
                let at = turn(&(0..values.len()).collect::<Vec<usize>>(), place)?;
                knob = Some((at, values[at].clone()));
                Some(Relation::Knob { name: name.clone(), value: Some(values[at].clone()) })
            }
        };
        match (self.path, relation) {
            (Some(path), Some(relation)) => {
                let relation = SidedRelation { path, relation };
                relation.apply(&case)?;
                Some(Asked { case, relation: Some(relation), from_row, batch, value: knob })
            }
            (None, None) => Some(Asked { case, relation: None, from_row, batch, value: None }),
            _ => None,
        }
    }

    /// Cuts the only sequence's rows into steps, and gives the first row that is worth comparing.
    fn schedule(&self, case: &mut Case, length: u32) -> u32 {
        let request = &mut case.infer.requests[0];
        match self.change {
            Change::FullAgainstDecode => {
                let prefill = length.saturating_sub(DECODED);
                request.chunks.extend((prefill > 0).then_some(prefill));
                request.then = 1;
                prefill
            }
            Change::FullAgainstChunks(rows) => {
                request.then = rows;
                0
            }
            _ => 0,
        }
    }
}

/// Chunks of 1, 16 and 64 rows in turn, those that cut the length, in no more than 64 steps.
fn chunk(place: Place, length: u32) -> Option<u32> {
    let fitting: Vec<u32> = [1, 16, 64].into_iter().filter(|&rows| rows < length && length.div_ceil(rows) <= 64).collect();
    turn(&fitting, place)
}

/// Each in turn, so that every length meets every one.
fn turn<T: Copy>(all: &[T], place: Place) -> Option<T> {
    let count = all.len() as u64;
    // Rounds of normal and designed data alternate.
    (count > 0).then(|| all[((place.round / 2 + place.index) % count) as usize])
}
