//! A trace read as mathematics: what was seen so far, and against which maximum, put into each step.

use super::definition::{Against, Definition, Stage, Unit};
use super::{Form, Label, Trace};
use std::collections::HashMap;
use std::ops::Range;

/// A step and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it computes.
    pub definition: Definition,
    /// The block in which it was computed.
    pub block: Option<Range<u32>>,
    /// Its f32 pattern.
    pub bits: u32,
}

/// The steps of a trace in the order of the mathematics: stage by stage, sums over fewer keys first.
///
/// `score` gives a key's true score, by which the key of a maximum is found, so that two traces find the same; where it gives none, the
/// trace's own score stands in.
pub fn steps(trace: &Trace, score: impl Fn(u32) -> Option<f64>) -> Vec<Step> {
    let own = trace.events.iter().filter_map(|event| match event.label {
        Label::Score { key } => Some((key, f64::from(f32::from_bits(event.bits)))),
        _ => None,
    });
    let own: HashMap<u32, f64> = own.collect();
    let score = |key: u32| score(key).or_else(|| own.get(&key).copied()).unwrap_or(f64::NEG_INFINITY);
    let blocks: Vec<Range<u32>> = trace.cells().into_iter().map(|(_, keys)| keys).collect();
    let mut reader = Reader::new(trace.form);
    let mut steps: Vec<Step> = Vec::with_capacity(trace.events.len());
    for event in &trace.events {
        let (definition, block) = reader.read(&event.label, event.bits, &score);
        // A key's own steps are not bound to the moment at which its block is visited.
        let block = block.or_else(|| match (definition.stage, definition.keys.as_slice()) {
            (Stage::Dot | Stage::Score | Stage::Weight | Stage::RoundedWeight | Stage::Probability, [key]) => {
                blocks.iter().find(|block| block.contains(&key.start)).cloned()
            }
            _ => None,
        });
        steps.push(Step { definition, block, bits: event.bits });
    }
    // The sort is stable: equal places keep the order of the visits.
    steps.sort_by_key(|step| {
        let (stage, count, first, lane) = step.definition.place();
        let first = if stage == Stage::Rescale { step.block.as_ref().map_or(0, |block| block.start) } else { first };
        (stage, count, first, lane)
    });
    steps
}

/// Keys, ascending, neighbours joined.
type Keys = Vec<Range<u32>>;

/// What is known on the way through a trace.
struct Reader {
    form: Form,
    /// Keys of the cells done in this part, and the one in work.
    seen: Keys,
    /// Keys that the maximum in use was taken over; none before the first.
    maximum_over: Keys,
    maximum: u32,
    against: Against,
    before: Against,
    /// Keys of the cells that the maximum has gone over, whether it moved or not.
    searched: Keys,
    /// Keys whose products with V have been added.
    accumulated: Keys,
    /// Weights are divided by the row sum before the product with V.
    normalised: bool,
    /// Of finished parts, and of what was merged into them; whether the sink is among that.
    parts: Vec<(Keys, bool)>,
}

impl Reader {
    fn new(form: Form) -> Reader {
        let start = start(form);
        Reader {
            form,
            seen: Vec::new(),
            maximum_over: Vec::new(),
            maximum: form.first_max,
            against: start,
            before: start,
            searched: Vec::new(),
            accumulated: Vec::new(),
            normalised: false,
            parts: Vec::new(),
        }
    }

    fn begin_part(&mut self) {
        *self = Reader { parts: std::mem::take(&mut self.parts), ..Reader::new(self.form) };
    }

    /// What a number is, and the block that it belongs to.
    fn read(&mut self, label: &Label, bits: u32, score: &impl Fn(u32) -> f64) -> (Definition, Option<Range<u32>>) {
        let mut definition = Definition::of(Stage::Lse);
        let mut block = None;
        match label {
            Label::Dot { key } => {
                definition.stage = Stage::Dot;
                definition.keys = single(*key);
                definition.unit = Unit { softmax_scale: self.form.scaled_query, as_stored: self.form.folded_scales };
            }
            Label::Score { key } => {
                definition.stage = Stage::Score;
                definition.keys = single(*key);
                definition.unit = self.score_unit();
            }
            Label::Max { keys } => {
                add(&mut self.searched, keys);
                if bits != self.maximum {
                    self.maximum = bits;
                    self.maximum_over = self.searched.clone();
                    self.against = self.peak(score);
                }
                definition.stage = Stage::Maximum;
                definition.keys = self.searched.clone();
                definition.unit = self.score_unit();
                block = Some(keys.clone());
            }
            Label::Rescale { keys } => {
                // It is recorded before the maximum that it leads to: look ahead over this cell.
                let mut over = self.searched.clone();
                add(&mut over, keys);
                self.before = self.against;
                definition.stage = Stage::Rescale;
                definition.before = Some(self.before);
                definition.against = Some(peak(&over, self.form, score));
                block = Some(keys.clone());
            }
            Label::Weight { key } | Label::Rounded { key } => {
                definition.stage = if matches!(label, Label::Weight { .. }) { Stage::Weight } else { Stage::RoundedWeight };
                definition.keys = single(*key);
                definition.against = Some(self.against);
            }
            Label::BlockSum { keys } => {
                definition.stage = Stage::BlockSum;
                definition.keys = vec![keys.clone()];
                definition.against = Some(self.against);
                block = Some(keys.clone());
            }
            Label::RowSum { keys } => {
                add(&mut self.seen, keys);
                definition.stage = Stage::RowSum;
                definition.keys = self.seen.clone();
                definition.against = Some(self.against);
                block = Some(keys.clone());
            }
            Label::SinkSum => {
                definition.stage = Stage::SinkSum;
                definition.keys = self.seen.clone();
                definition.sink = true;
            }
            Label::Probability { key } => {
                self.normalised = true;
                definition.stage = Stage::Probability;
                definition.keys = single(*key);
                definition.against = Some(Against::Sum);
            }
            Label::BlockValue { keys, lane } => {
                definition.stage = Stage::BlockValue;
                definition.keys = vec![keys.clone()];
                definition.lane = Some(*lane);
                definition.against = Some(self.weights_against());
                definition.unit.as_stored = self.form.folded_scales;
                block = Some(keys.clone());
            }
            Label::Accumulator { keys, lane } => {
                if *lane == 0 {
                    add(&mut self.accumulated, keys);
                }
                definition.stage = Stage::Accumulator;
                definition.keys = self.accumulated.clone();
                definition.lane = Some(*lane);
                definition.against = Some(self.weights_against());
                definition.unit.as_stored = self.form.folded_scales;
                block = Some(keys.clone());
            }
            Label::PartialLse { .. } => {
                let keys = self.seen.clone();
                self.begin_part();
                self.parts.push((keys.clone(), false));
                definition.stage = Stage::PartialLse;
                definition.keys = keys;
            }
            Label::Partial { part, lane } => {
                definition.stage = Stage::Partial;
                definition.keys = self.parts.get(*part).map(|part| part.0.clone()).unwrap_or_default();
                definition.lane = Some(*lane);
            }
            Label::EmptySplit { before } => {
                let at = if *before { 0 } else { self.parts.len() };
                self.parts.insert(at, (Vec::new(), false));
                definition.stage = Stage::PartialLse;
            }
            Label::Merged { left, right, lane } => {
                (definition.keys, definition.sink) = self.merged(*left, *right);
                definition.stage = Stage::Merged;
                definition.lane = Some(*lane);
            }
            Label::MergedLse { left, right } => {
                // Recorded after the lanes of its merge.
                let merged = self.merged(*left, *right);
                if let Some(part) = self.parts.get_mut(*left) {
                    *part = merged.clone();
                }
                (definition.keys, definition.sink) = merged;
                definition.stage = Stage::MergedLse;
            }
            Label::Finish { lane } => (definition.stage, definition.lane) = (Stage::Finish, Some(*lane)),
            Label::Store { lane } => (definition.stage, definition.lane) = (Stage::Store, Some(*lane)),
            Label::Lse => definition.stage = Stage::Lse,
        }
        (definition, block)
    }

    fn weights_against(&self) -> Against {
        if self.normalised { Against::Sum } else { self.against }
    }

    fn score_unit(&self) -> Unit {
        let raw = self.form.raw_scores;
        Unit { softmax_scale: !raw, as_stored: raw && self.form.folded_scales }
    }

    fn peak(&self, score: &impl Fn(u32) -> f64) -> Against {
        peak(&self.maximum_over, self.form, score)
    }

    /// The keys of two parts, and whether the sink is with them.
    fn merged(&self, left: usize, right: usize) -> (Keys, bool) {
        let mut merged = self.parts.get(left).cloned().unwrap_or_default();
        match self.parts.get(right) {
            Some((keys, sink)) => {
                keys.iter().for_each(|keys| add(&mut merged.0, keys));
                merged.1 |= sink;
            }
            None => merged.1 = true,
        }
        merged
    }
}

/// The key of the largest score; the first of equals.
fn peak(keys: &[Range<u32>], form: Form, score: &impl Fn(u32) -> f64) -> Against {
    let mut best: Option<(u32, f64)> = None;
    for key in keys.iter().flat_map(|keys| keys.clone()) {
        let score = score(key);
        if best.is_none_or(|(_, best)| score > best) {
            best = Some((key, score));
        }
    }
    best.map_or(start(form), |(key, _)| Against::Key(key))
}

fn start(form: Form) -> Against {
    Against::Start { bits: form.first_max, raw: form.raw_scores }
}

fn single(key: u32) -> Keys {
    std::iter::once(key..key + 1).collect()
}

/// Adds a range to disjoint ones, and joins neighbours.
fn add(keys: &mut Keys, range: &Range<u32>) {
    keys.push(range.clone());
    keys.sort_by_key(|keys| keys.start);
    keys.dedup_by(|next, range| {
        let joined = next.start <= range.end;
        if joined {
            range.end = range.end.max(next.end);
        }
        joined
    });
}
