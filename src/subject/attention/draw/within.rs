//! Keeps what is drawn to what both kernels can do: after each choice, and with a note of what was left out.

use super::CapturedShape;
use crate::finding::Path;
use crate::number::Dtype;
use crate::source::{Choose, Source};
use crate::subject::attention::capabilities::{Form, Format, HeadDims};
use crate::subject::attention::case::{Problem, Sequence};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::mask::{Anchor, Mask};
use crate::subject::attention::pin::Pins;
use crate::subject::attention::plan::{Cache, InferPlan, Side, TrainLayout, TrainPlan};
use crate::subject::attention::scope::{
    Scope, empty_entries, empty_rows, empty_sequences, even, has_empty_rows, has_empty_sequences, ragged, too_many, train_form,
};

/// Slots in a page where a contiguous cache was drawn for a kernel that has none: what most engines have.
const USUAL_PAGE: u32 = 16;

/// The scope, and what was left out for it so far.
pub(super) struct Within<'s> {
    scope: &'s Scope,
    /// Each reason once.
    pub left_out: Vec<String>,
}

impl<'s> Within<'s> {
    pub fn new(scope: &'s Scope) -> Self {
        Within { scope, left_out: Vec::new() }
    }

    fn note(&mut self, reason: String) {
        if !self.left_out.contains(&reason) {
            self.left_out.push(reason);
        }
    }

    /// Whether a feature that was drawn must go.
    fn drops(&mut self, drawn: bool, feature: Feature) -> bool {
        let reason = drawn.then(|| self.scope.lacks(feature)).flatten();
        let drops = reason.is_some();
        reason.into_iter().for_each(|reason| self.note(reason));
        drops
    }

    /// Form of the cache, and its page size.
    pub fn cache(&mut self, source: &mut dyn Source, drawn: Cache) -> Cache {
        let side = self.scope.side(Path::Infer);
        let (paged, contiguous) = (side.does(Form::Paged), side.does(Form::Contiguous));
        let mut cache = drawn;
        match drawn {
            Cache::Paged { spare, .. } if !paged && contiguous => {
                side.lacks_form(Form::Paged).into_iter().for_each(|reason| self.note(reason));
                cache = Cache::Contiguous { spare };
            }
            Cache::Contiguous { .. } if !contiguous && paged => {
                side.lacks_form(Form::Contiguous).into_iter().for_each(|reason| self.note(reason));
                cache = Cache::Paged { page: USUAL_PAGE, spare: 1, shuffle: 0, recycled: false };
            }
            _ => {}
        }
        if let Cache::Paged { page, .. } = &mut cache
            && let Some(sizes) = side.can().page_sizes.as_ref().filter(|sizes| !sizes.is_empty() && !sizes.contains(page))
        {
            if matches!(drawn, Cache::Paged { .. }) {
                side.lacks_page(*page).into_iter().for_each(|reason| self.note(reason));
            }
            // Not the nearest: large pages would never come.
            *page = source.pick(sizes);
        }
        cache
    }

    /// Whether all sequences of a case must have the same lengths: some plan's only form cannot do others.
    pub fn must_be_even(&self, cache: &Cache) -> bool {
        let [train, infer] = Path::BOTH.map(|path| self.scope.side(path));
        let contiguous = matches!(cache, Cache::Contiguous { .. });
        train.can().no_ragged && !train.does(Form::Varlen) || infer.can().no_ragged && contiguous
    }

    /// Storage and output format. The pin stays.
    pub fn format(&mut self, source: &mut dyn Source, drawn: Format, pin: Option<Dtype>) -> Format {
        let Some(mut common) = self.scope.formats() else { return drawn };
        common.retain(|it| pin.is_none_or(|dtype| dtype == it.storage));
        if common.is_empty() {
            // Refused before a run begins.
            return drawn;
        }
        let mut format = drawn;
        if let Some(reason) = self.scope.lacks_format(drawn) {
            self.note(reason);
            let near = common.iter().copied().find(|it| it.storage == drawn.storage);
            format = near.unwrap_or_else(|| source.pick(&common));
        }
        // Pairs that are drawn only where kernels list them.
        let rare = |it: &Format| it.storage == format.storage && it.out != it.storage && it.out != Dtype::F32;
        let rare: Vec<Format> = common.iter().copied().filter(rare).collect();
        if !rare.is_empty() && source.chance(1, 4) { source.pick(&rare) } else { format }
    }

    /// Whether the query heads of a KV head must be one.
    pub fn one_group(&mut self, group_ids: &[u32]) -> bool {
        self.drops(group_ids.len() > 1, Feature::GroupedHeads)
    }

    /// Head dims: the nearest that are taken; of a list, any of them in half of the cases. Pins stay.
    pub fn dims(&mut self, source: &mut dyn Source, pins: &Pins, (d_qk, d_v): (u32, u32)) -> (u32, u32) {
        let Some(reason) = self.scope.lacks_head_dims(d_qk, d_v) else { return (d_qk, d_v) };
        let pinned = |pin: Option<u32>, d: u32| pin.is_none_or(|pin| pin == d);
        let fits = |&(q, v): &(u32, u32)| pinned(pins.d_qk, q) && pinned(pins.d_v, v) && self.scope.allows_head_dims(q, v);
        let distance = |&(q, v): &(u32, u32)| q.abs_diff(d_qk) + v.abs_diff(d_v);
        let fitting = match self.scope.head_dims() {
            Some(HeadDims::Only(pairs)) => {
                let pairs: Vec<(u32, u32)> = pairs.into_iter().filter(fits).collect();
                let nearest = pairs.iter().copied().min_by_key(distance);
                if pairs.len() > 1 && source.chance(1, 2) { Some(source.pick(&pairs)) } else { nearest }
            }
            dims => {
                let (max, step) = match dims {
                    Some(HeadDims::UpTo { max, multiple_of }) => (max, multiple_of.max(1)),
                    _ => (u32::MAX, 1),
                };
                let near = |d: u32| d.next_multiple_of(step).min(max / step * step);
                let (q, v) = (near(d_qk), near(d_v));
                [(q, v), (q, q), (v, v)].into_iter().find(fits)
            }
        };
        if fitting.is_some() {
            self.note(reason);
        }
        fitting.unwrap_or((d_qk, d_v))
    }

    /// The causal mask: the nearest that is done, bottom-right first.
    pub fn causal(&mut self, drawn: Option<Anchor>) -> Option<Anchor> {
        let done = self.scope.anchors();
        if done.contains(&drawn) || done.is_empty() || !self.drops(true, Feature::of_causal(drawn)) {
            return drawn;
        }
        done[0]
    }

    /// Lengths, as far as the mask has no part in it.
    pub fn sequences(&mut self, sequences: &mut Vec<Sequence>, captured: Option<&CapturedShape>, must_be_even: bool) {
        let tokens = |id: u32| captured.map_or(u32::MAX, |shape| shape.lengths[id as usize]);
        if let Some(path) = self.scope.no_empty_sequences().filter(|_| has_empty_sequences(sequences)) {
            self.note(empty_sequences(path));
            sequences.retain(|it| tokens(it.id) > 0);
            if sequences.is_empty() {
                let id = captured.and_then(|shape| shape.lengths.iter().position(|&length| length > 0));
                sequences.push(Sequence { id: id.unwrap_or(0) as u32, q: 1, kv: 1 });
            }
            sequences.iter_mut().for_each(|it| (it.q, it.kv) = (it.q.max(1), it.kv.max(1)));
        }
        if must_be_even && !even(sequences) {
            let side = Path::BOTH.into_iter().find(|&path| self.scope.side(path).can().no_ragged);
            self.note(ragged(side.unwrap_or(Path::Train)));
            // The shortest: captured sequences cannot be longer than they are.
            let least = sequences.iter().copied().min_by_key(|it| it.kv);
            let pattern = if captured.is_some() { least } else { sequences.first().copied() };
            let Some(Sequence { q, kv, .. }) = pattern else { return };
            sequences.iter_mut().for_each(|it| (it.q, it.kv) = (q, kv));
        }
        if let Some((most, path)) = self.scope.max_rows() {
            let most = most.max(1);
            // Padded to the longest, unless there is a form without padding.
            let padded = !self.scope.side(Path::Train).does(Form::Varlen);
            let long = |length: fn(&Sequence) -> u32| {
                let longest = sequences.iter().map(length).max().unwrap_or(0);
                let total: u64 = sequences.iter().map(|it| u64::from(length(it))).sum();
                if padded { u64::from(longest) * sequences.len() as u64 } else { total }
            };
            if [long(|s| s.q), long(|s| s.kv), sequences.len() as u64].iter().any(|&rows| rows > u64::from(most)) {
                self.note(too_many(most, path));
                sequences.truncate(most as usize);
                let share = most / sequences.len().max(1) as u32;
                sequences.iter_mut().for_each(|it| (it.q, it.kv) = (it.q.min(share), it.kv.min(share)));
            }
        }
    }

    /// The window, and rows without keys: no row with a position among the keys is without.
    pub fn mask(&mut self, mask: &mut Mask, sequences: &mut [Sequence], captured: Option<&CapturedShape>) {
        if self.drops(mask.window_left.is_some() || mask.window_right.is_some(), Feature::Window) {
            (mask.window_left, mask.window_right) = (None, None);
        }
        if let Some(path) = self.scope.no_empty_rows().filter(|_| has_empty_rows(mask, sequences)) {
            self.note(empty_rows(path));
            // Those of captured sequences; the least where all must stay alike.
            let of = |it: &Sequence| captured.map_or(u32::MAX, |shape| shape.lengths[it.id as usize]);
            let least = sequences.iter().map(of).min().filter(|_| even(sequences));
            for it in sequences {
                let tokens = least.unwrap_or_else(|| of(it));
                it.kv = if it.q > 0 { it.kv.max(1).min(tokens) } else { it.kv };
                it.q = it.q.min(it.kv);
            }
        }
    }

    /// What changes scores.
    pub fn scores(&mut self, problem: &mut Problem) {
        if self.drops(problem.softcap.is_some(), Feature::Softcap) {
            problem.softcap = None;
        }
        if self.drops(problem.sinks.is_some(), Feature::Sinks) {
            problem.sinks = None;
        }
        if self.drops(problem.alibi_slopes.is_some(), Feature::Alibi) {
            problem.alibi_slopes = None;
        }
        if problem.softcap.is_some()
            && problem.alibi_slopes.is_some()
            && let Some(reason) = self.scope.lacks_capped_bias()
        {
            self.note(reason);
            problem.softcap = None;
        }
    }

    /// Keys and values in an 8-bit format.
    pub fn fp8_kv(&mut self, problem: &mut Problem) {
        if self.drops(problem.fp8_kv.is_some(), Feature::Fp8Kv) {
            problem.fp8_kv = None;
        }
    }

    /// The layout of the training call.
    pub fn train(&mut self, plan: &mut TrainPlan, problem: &Problem) {
        let side = self.scope.side(Path::Train);
        if let Some(reason) = side.lacks_form(train_form(plan.layout)) {
            let (pad_q, pad_kv) = match plan.layout {
                TrainLayout::Dense { pad_q, pad_kv, .. } => (pad_q, pad_kv),
                TrainLayout::Varlen => (0, 0),
            };
            let dense = |side| TrainLayout::Dense { side, pad_q, pad_kv };
            let layouts = [dense(Side::Right), dense(Side::Left), TrainLayout::Varlen];
            if let Some(layout) = layouts.into_iter().find(|&layout| side.does(train_form(layout))) {
                self.note(reason);
                plan.layout = layout;
            }
        }
        let TrainLayout::Dense { side: padding, pad_q, pad_kv } = plan.layout else { return };
        if side.can().no_ragged && !even(&problem.sequences) && side.does(Form::Varlen) {
            self.note(ragged(Path::Train));
            plan.layout = TrainLayout::Varlen;
            return;
        }
        if let Some(most) = side.can().max_rows {
            let padded = |length: fn(&Sequence) -> u32, pad: u32| {
                let longest = problem.sequences.iter().map(length).max().unwrap_or(0);
                problem.sequences.len() as u64 * (u64::from(longest) + u64::from(pad))
            };
            let fits = |pad_q, pad_kv| padded(|s| s.q, pad_q).max(padded(|s| s.kv, pad_kv)) <= u64::from(most);
            if !fits(pad_q, pad_kv) {
                self.note(too_many(most, Path::Train));
                plan.layout = match fits(0, 0) || !side.does(Form::Varlen) {
                    true => TrainLayout::Dense { side: padding, pad_q: 0, pad_kv: 0 },
                    false => TrainLayout::Varlen,
                };
            }
        }
    }

    /// The schedule: bucket padding, and steps that all sequences of a contiguous cache take together.
    pub fn infer(&mut self, plan: &mut InferPlan, problem: &Problem) {
        let can = self.scope.side(Path::Infer).can();
        let batch = problem.sequences.len() as u32;
        let rows = (problem.total_q() as u32).max(batch);
        if plan.bucket > 1 && (can.no_empty_rows || can.no_empty_sequences) {
            self.note(empty_entries(Path::Infer));
            plan.bucket = 1;
        }
        if let Some(most) = can.max_rows.filter(|&most| plan.bucket > 1 && rows + plan.bucket - 1 > most) {
            self.note(too_many(most, Path::Infer));
            plan.bucket = 1;
        }
        if can.no_ragged && matches!(plan.cache, Cache::Contiguous { .. }) {
            let mut together = plan.clone();
            (together.budget, together.bucket) = (if batch > 1 { None } else { plan.budget }, 1);
            if let Some(mut first) = plan.requests.first().cloned() {
                first.join = if batch > 1 { 0 } else { first.join };
                together.requests.fill(first);
            }
            if together != *plan {
                self.note(ragged(Path::Infer));
                *plan = together;
            }
        }
    }

    /// The kernel's own knobs, each off its default in a quarter of the cases. Nothing is drawn where there are none.
    pub fn knobs(&mut self, source: &mut dyn Source, path: Path) -> Vec<(String, String)> {
        let mut knobs: Vec<(String, String)> = Vec::new();
        for knob in &self.scope.side(path).can().knobs {
            let others = knob.values.get(1..).unwrap_or_default();
            // A name that stands twice is refused before a run begins.
            let new = knobs.iter().all(|(name, _)| *name != knob.name);
            if new && !others.is_empty() && source.chance(1, 4) {
                knobs.push((knob.name.clone(), others[source.below(others.len() as u64) as usize].clone()));
            }
        }
        knobs.sort();
        knobs
    }
}
