//! What may not stand together, each with its reason. A rule may forbid only what no case can have that the kernels do.

use super::Space;
use super::cover::Rule;
use super::lead::{Lead, Wanted};
use super::shape::{DimsKind, ranks};
use super::value::{
    Batch, Causal, Context, HeadRanks, Heads, Hit, Join, Kind, Kv8, Layout, Length, Pool, Rows, StepOrder, Steps, Switch,
    TrainOrder, Window, at,
};
use crate::finding::Path;
use crate::number::Dtype;
use crate::subject::attention::Anchor;
use crate::subject::attention::capabilities::Form;
use crate::subject::attention::feature::Feature;
use crate::subject::attention::pin::{KvPin, Pins};
use crate::subject::attention::scope;
use std::collections::BTreeMap;

/// The reason of the one rule that is a choice: lengths, rows, heads and head dims whose product is more than a case of a battery may
/// take. Each value of heads and of head dims still meets every length, and every length every kind of rows, unless a kernel takes
/// nothing but wide heads.
pub const TOO_MUCH_WORK: &str = "more work than a case of a battery may take";

/// `q * kv * q heads * (d_qk + d_v)` of the leading sequence, beyond which heads and head dims must be the smallest there are.
const MUCH: u64 = 5 << 20;
/// The same, beyond which they must not be at all.
const MOST: u64 = 1 << 26;

fn pinned(pins: &Pins) -> String {
    format!("cases are held to {pins}")
}

impl Space {
    /// Every rule.
    pub(super) fn rules(&self, sizes: &[usize]) -> Vec<Rule> {
        let mut rules = Vec::new();
        self.values(sizes, &mut rules);
        self.masks(sizes, &mut rules);
        self.heads(sizes, &mut rules);
        self.company(sizes, &mut rules);
        self.steps(sizes, &mut rules);
        self.limits(sizes, &mut rules);
        self.work(sizes, &mut rules);
        rules
    }

    /// Values that a kernel does not do, or a pin leaves out.
    fn values(&self, sizes: &[usize], rules: &mut Vec<Rule>) {
        let (scope, pins) = (&self.scope, &self.pins);
        let mut without = |knob: usize, value: usize, reason: Option<String>| {
            if let Some(reason) = reason {
                rules.push(Rule::new(sizes, &[knob], reason, |it| it[0] == value));
            }
        };
        for (n, &format) in self.formats.iter().enumerate() {
            let kept = pins.dtype.is_none_or(|it| it == format.storage);
            without(at::FORMAT, n, scope.lacks_format(format).or_else(|| (!kept).then(|| pinned(pins))));
        }
        for (n, kv8) in Kv8::ALL.iter().enumerate() {
            let pin = match kv8 {
                Kv8::Plain => KvPin::Plain,
                Kv8::E4m3 => KvPin::Fp8(Dtype::E4M3),
                Kv8::E5m2 => KvPin::Fp8(Dtype::E5M2),
            };
            let lacks = (pin != KvPin::Plain).then(|| scope.lacks(Feature::Fp8Kv)).flatten();
            without(at::KV8, n, lacks.or_else(|| pins.kv_dtype.is_some_and(|it| it != pin).then(|| pinned(pins))));
        }
        for (n, class) in Length::ALL.iter().enumerate() {
            let none = self.lengths.members(*class).is_empty();
            without(at::LENGTH, n, none.then(|| "no length is this and no other of the list".into()));
        }
        for (n, dims) in self.dims.iter().enumerate() {
            let example = match dims.kind {
                DimsKind::Odd => (1, 1),
                DimsKind::Both(d) => (d, d),
                DimsKind::More => (2, 1),
                DimsKind::Less => (1, 2),
            };
            let reason = || scope.lacks_head_dims(example.0, example.1).unwrap_or_else(|| pinned(pins));
            without(at::DIMS, n, dims.pairs.is_empty().then(reason));
        }
        for (n, class) in Heads::ALL.iter().enumerate() {
            let grouped = matches!(class, Heads::Grouped | Heads::Single);
            let lacks = grouped.then(|| scope.lacks(Feature::GroupedHeads)).flatten();
            without(at::HEADS, n, lacks.or_else(|| self.shapes[n].is_empty().then(|| pinned(pins))));
        }
        for (n, causal) in Causal::ALL.iter().enumerate() {
            let anchor = anchor(*causal);
            let kept = pins.causal.is_none_or(|it| it == anchor);
            without(at::CAUSAL, n, scope.lacks(Feature::of_causal(anchor)).or_else(|| (!kept).then(|| pinned(pins))));
        }
        for window in [Window::Left, Window::Right, Window::Both] {
            without(at::WINDOW, window as usize, scope.lacks(Feature::Window));
        }
        for (knob, feature) in [(at::SOFTCAP, Feature::Softcap), (at::SINKS, Feature::Sinks), (at::ALIBI, Feature::Alibi)] {
            without(knob, Switch::On as usize, scope.lacks(feature));
        }
        let (train, infer) = (scope.side(Path::Train), scope.side(Path::Infer));
        let forms =
            [(Layout::Varlen, Form::Varlen), (Layout::DenseLeft, Form::DenseLeft), (Layout::DenseRight, Form::DenseRight)];
        for (layout, form) in forms {
            without(at::LAYOUT, layout as usize, train.lacks_form(form));
        }
        for (n, cache) in self.caches.iter().enumerate() {
            without(
                at::CACHE,
                n,
                match *cache {
                    None => infer.lacks_form(Form::Contiguous),
                    Some(page) => infer.lacks_form(Form::Paged).or_else(|| infer.lacks_page(page)),
                },
            );
        }
        for (knob, side, path) in [(at::TRAIN_CONTEXT, train, Path::Train), (at::INFER_CONTEXT, infer, Path::Infer)] {
            let reason = (!side.context_parallel()).then(|| {
                side.lacks(Feature::ContextParallel).unwrap_or_else(|| format!("context-parallel ranks ({path} does not do it)"))
            });
            for value in (0..Context::ALL.len()).filter(|&it| it != Context::One as usize) {
                without(knob, value, reason.clone());
            }
        }
        let can = infer.can();
        let entries = (can.no_empty_rows || can.no_empty_sequences).then(|| scope::empty_entries(Path::Infer));
        without(at::BUCKET, Switch::On as usize, entries);
        let empty = scope.no_empty_sequences().map(scope::empty_sequences);
        without(at::BATCH, Batch::Mixed as usize, empty);
    }

    /// Masks, and what changes scores.
    fn masks(&self, sizes: &[usize], rules: &mut Vec<Rule>) {
        let mut rule = |knobs: &[usize], reason: String, forbids: &dyn Fn(&[usize]) -> bool| {
            rules.push(Rule::new(sizes, knobs, reason, forbids));
        };
        rule(&[at::CAUSAL, at::WINDOW], "a causal mask ends at the row's own position".into(), &|it| {
            it[0] != Causal::None as usize && [Window::Right as usize, Window::Both as usize].contains(&it[1])
        });
        if let Some(reason) = self.scope.lacks_capped_bias() {
            rule(&[at::SOFTCAP, at::ALIBI], reason, &|it| it == [Switch::On as usize; 2]);
        }
        rule(&[at::ALIBI, at::REGIME], "the biases of a mirrored pair differ".into(), &|it| {
            it == [Switch::On as usize, Kind::Mirror as usize]
        });
        if let Some(path) = self.scope.no_empty_rows() {
            let reason = scope::empty_rows(path);
            rule(&[at::CAUSAL, at::ROWS], reason, &|it| it == [Causal::BottomRight as usize, Rows::Excess as usize]);
        }
    }

    /// Heads, and the ranks that share them out.
    fn heads(&self, sizes: &[usize], rules: &mut Vec<Rule>) {
        let knobs = [at::HEADS, at::TRAIN_HEAD_RANKS, at::INFER_HEAD_RANKS];
        let reason = "the heads cannot be shared out so".to_owned();
        rules.push(Rule::new(sizes, &knobs, reason, |it| {
            let [train, infer] = [it[1], it[2]].map(|it| HeadRanks::ALL[it]);
            let both = |&shape: &(u32, u32)| !ranks(train, shape).is_empty() && !ranks(infer, shape).is_empty();
            !self.shapes[it[0]].iter().any(both)
        }));
    }

    /// What a batch must have for its company to matter, and lengths that must be alike.
    fn company(&self, sizes: &[usize], rules: &mut Vec<Rule>) {
        for (knob, plain) in [
            (at::TRAIN_ORDER, TrainOrder::Ascending as usize),
            (at::STEP_ORDER, StepOrder::Ascending as usize),
            (at::JOIN, Join::Together as usize),
        ] {
            rules.push(Rule::new(sizes, &[at::BATCH, knob], "a sequence alone has no order".into(), |it| {
                it[0] == Batch::One as usize && it[1] != plain
            }));
        }
        let no_pages = "a contiguous cache hands out no pages".to_owned();
        rules.push(Rule::new(sizes, &[at::CACHE, at::POOL], no_pages, |it| {
            self.caches[it[0]].is_none() && it[1] != Pool::Ascending as usize
        }));
        if self.scope.side(Path::Train).can().no_ragged {
            let reason = scope::ragged(Path::Train);
            rules.push(Rule::new(sizes, &[at::BATCH, at::LAYOUT], reason, |it| {
                it[0] == Batch::Mixed as usize && it[1] != Layout::Varlen as usize
            }));
        }
        if self.scope.side(Path::Infer).can().no_ragged {
            let reason = || scope::ragged(Path::Infer);
            let contiguous = |it: usize| self.caches[it].is_none();
            for (knob, value) in
                [(at::BATCH, Batch::Mixed as usize), (at::JOIN, Join::Apart as usize), (at::BUCKET, Switch::On as usize)]
            {
                rules.push(Rule::new(sizes, &[at::CACHE, knob], reason(), |it| contiguous(it[0]) && it[1] == value));
            }
            rules.push(Rule::new(sizes, &[at::CACHE, at::BATCH, at::STEPS], reason(), |it| {
                contiguous(it[0]) && it[1] != Batch::One as usize && it[2] == Steps::Budget as usize
            }));
        }
    }

    /// Steps: what needs which mask, and which rows.
    fn steps(&self, sizes: &[usize], rules: &mut Vec<Rule>) {
        let single = "a single row is computed in one step".to_owned();
        let schedule = [
            (at::HIT, Hit::None as usize),
            (at::STEPS, Steps::Whole as usize),
            (at::REJECT, Switch::Off as usize),
            (at::PREEMPT, Switch::Off as usize),
        ];
        for (knob, plain) in schedule {
            let reason = "only under a bottom-right causal mask can rows be computed apart".to_owned();
            rules.push(Rule::new(sizes, &[at::CAUSAL, knob], reason, |it| {
                it[0] != Causal::BottomRight as usize && it[1] != plain
            }));
            // What follows from two rules is said, so that it has a reason.
            let reason = "only under a bottom-right causal mask, which leaves no window to the right, can rows be computed apart";
            rules.push(Rule::new(sizes, &[at::WINDOW, knob], reason.into(), |it| {
                [Window::Right as usize, Window::Both as usize].contains(&it[0]) && it[1] != plain
            }));
            rules.push(Rule::new(sizes, &[at::ROWS, knob], single.clone(), |it| it[0] == Rows::One as usize && it[1] != plain));
        }
        rules.push(Rule::new(sizes, &[at::LENGTH, at::ROWS], "one position has one row, or fewer keys than rows".into(), |it| {
            it[0] == Length::One as usize && [Rows::Part as usize, Rows::All as usize].contains(&it[1])
        }));
        rules.push(Rule::new(sizes, &[at::STEPS, at::REJECT], "a step of one row rejects nothing".into(), |it| {
            it == [Steps::Decode as usize, Switch::On as usize]
        }));
        let done = "a request that is done in one step cannot lose its pages".to_owned();
        rules.push(Rule::new(sizes, &[at::STEPS, at::REJECT, at::PREEMPT], done, |it| {
            it == [Steps::Whole as usize, Switch::Off as usize, Switch::On as usize]
        }));
        let knobs = [at::LENGTH, at::ROWS, at::HIT, at::STEPS, at::REJECT, at::PREEMPT];
        rules.push(Rule::new(sizes, &knobs, "no lengths have this hit and these steps".into(), |it| {
            let wanted = wanted(it);
            !self.lengths.members(wanted.length).iter().any(|&kv| !self.lengths.leads(&wanted, kv).is_empty())
        }));
    }

    /// The most rows or keys of a call.
    fn limits(&self, sizes: &[usize], rules: &mut Vec<Rule>) {
        let Some((most, path)) = self.scope.max_rows() else { return };
        let six = [at::LENGTH, at::ROWS, at::HIT, at::STEPS, at::REJECT, at::PREEMPT];
        // Only the shortest can decide.
        let mut shortest: BTreeMap<Vec<usize>, Vec<Lead>> = BTreeMap::new();
        let mut values = vec![0; six.len()];
        loop {
            shortest.insert(values.clone(), self.shortest(&wanted(&values)));
            let Some(n) = (0..six.len()).rev().find(|&n| values[n] + 1 < sizes[six[n]]) else { break };
            values[n] += 1;
            values[n + 1..].fill(0);
        }
        let mut knobs = six.to_vec();
        knobs.extend([at::BATCH, at::LAYOUT, at::BUCKET]);
        // Which cache, only where that makes lengths alike.
        let ragged = !self.scope.side(Path::Infer).can().no_ragged;
        knobs.extend((!ragged).then_some(at::CACHE));
        let reason = scope::too_many(most, path);
        rules.push(Rule::new(sizes, &knobs, reason, |it| {
            let (batch, layout, bucket) = (Batch::ALL[it[6]], Layout::ALL[it[7]], it[8] == Switch::On as usize);
            let even = self.even(layout, it.get(9).is_some_and(|&cache| self.caches[cache].is_none()));
            !shortest[&it[..6]].iter().any(|&lead| self.fits(lead, batch, layout, bucket, even))
        }));
    }

    /// The leading sequences of which none is as short as another in both lengths.
    fn shortest(&self, wanted: &Wanted) -> Vec<Lead> {
        let members = self.lengths.members(wanted.length).iter();
        // Rows are fewest where positions are: what follows is longer in both.
        let some = members.map(|&kv| self.lengths.leads(wanted, kv)).filter(|leads| !leads.is_empty()).take(16);
        let mut shortest: Vec<Lead> = some.flatten().collect();
        shortest.sort_by_key(|it| (it.kv, it.q));
        let mut least = u32::MAX;
        shortest.retain(|it| {
            let shorter = it.q < least;
            least = least.min(it.q);
            shorter
        });
        shortest
    }

    /// Whether all sequences must be as long as the leading one.
    pub(super) fn even(&self, layout: Layout, contiguous: bool) -> bool {
        let no_ragged = |path| self.scope.side(path).can().no_ragged;
        no_ragged(Path::Train) && layout != Layout::Varlen || no_ragged(Path::Infer) && contiguous
    }

    /// Whether the calls stay below the kernels' limits with the shortest company and padding.
    fn fits(&self, lead: Lead, batch: Batch, layout: Layout, bucket: bool, even: bool) -> bool {
        let company: u64 = match batch {
            Batch::One => 0,
            Batch::Two => 1,
            Batch::Three | Batch::Mixed => 2,
        };
        let count = company + 1;
        // Of two in company with an empty sequence one has a row and a key.
        let others = if batch == Batch::Mixed { 1 } else { company };
        let total = |length: u32| u64::from(length) * if even { count } else { 1 } + if even { 0 } else { others };
        let most = |path| self.scope.side(path).can().max_rows.map_or(u64::MAX, u64::from);
        let padded = u64::from(lead.q.max(lead.kv)) * count;
        let packed = total(lead.q).max(total(lead.kv)).max(count);
        let train = if layout == Layout::Varlen { packed } else { padded };
        let infer = (total(lead.q).max(count) + u64::from(bucket)).max(total(lead.kv));
        train <= most(Path::Train) && infer <= most(Path::Infer)
    }

    /// Work.
    fn work(&self, sizes: &[usize], rules: &mut Vec<Rule>) {
        let least = |it: &[usize]| -> Option<(u64, u64)> {
            let kv = u64::from(*self.lengths.members(Length::ALL[it[0]]).first()?);
            let q = match Rows::ALL[it[1]] {
                Rows::One => 1,
                Rows::Part => 8.min(kv),
                Rows::All | Rows::Excess => kv,
            };
            let (kv_heads, group) = self.cheapest_shape(it[2])?;
            let (d_qk, d_v) = *self.dims[it[3]].pairs.first()?;
            Some((q * kv, u64::from(kv_heads * group) * u64::from(d_qk + d_v)))
        };
        let heads = (0..sizes[at::HEADS]).filter(|&it| self.does_heads(it));
        let cheapest = heads
            .flat_map(|heads| (0..sizes[at::DIMS]).filter_map(move |dims| least(&[0, 0, heads, dims])))
            .map(|(_, pair)| pair)
            .min()
            .unwrap_or(0);
        let knobs = [at::LENGTH, at::ROWS, at::HEADS, at::DIMS];
        rules.push(Rule::new(sizes, &knobs, TOO_MUCH_WORK.into(), |it| {
            let Some((pairs, pair)) = least(it) else { return false };
            pairs * pair > if pair == cheapest { MOST } else { MUCH }
        }));
    }

    /// Whether the kernels do a class of heads.
    fn does_heads(&self, class: usize) -> bool {
        let grouped = matches!(Heads::ALL[class], Heads::Grouped | Heads::Single);
        !self.shapes[class].is_empty() && (!grouped || self.scope.lacks(Feature::GroupedHeads).is_none())
    }

    /// The fewest query heads of a class.
    pub(super) fn cheapest_shape(&self, class: usize) -> Option<(u32, u32)> {
        self.shapes[class].iter().copied().min_by_key(|(kv, group)| kv * group)
    }
}

pub(super) fn anchor(causal: Causal) -> Option<Anchor> {
    match causal {
        Causal::BottomRight => Some(Anchor::BottomRight),
        Causal::TopLeft => Some(Anchor::TopLeft),
        Causal::None => None,
    }
}

/// From values of length, rows, hit, steps, rejected drafts and preemption.
pub(super) fn wanted(values: &[usize]) -> Wanted {
    Wanted {
        length: Length::ALL[values[0]],
        rows: Rows::ALL[values[1]],
        hit: Hit::ALL[values[2]],
        steps: Steps::ALL[values[3]],
        reject: values[4] == Switch::On as usize,
        preempt: values[5] == Switch::On as usize,
    }
}
