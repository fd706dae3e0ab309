//! The case space of a pair of kernels: knobs with a few values each, what may not stand together, and rows in which every pair or
//! triple of values stands together that a case can have.
//!
//! A knob is a feature of a [`Case`], and is read back off it ([`Space::read`]), so that what a run covered is counted from the cases that
//! ran. A combination is either *valid*, and then some row has it, or *excluded*: no case that the kernels do can have it, by a rule
//! with a reason. The one rule that is a choice is [`TOO_MUCH_WORK`].

mod boundary;
mod build;
mod choice;
mod combination;
mod cover;
mod lead;
mod read;
mod request;
mod rule;
mod shape;
mod value;
mod ways;

pub use rule::TOO_MUCH_WORK;
pub use ways::Ways;

use super::super::capabilities::{Format, Knob};
use super::super::pin::Pins;
use super::super::scope::Scope;
use super::super::subject::Attention;
use crate::finding::Path;
use crate::number::Dtype;
use cover::{Array, Constraints, OPEN, cover};
use lead::Lengths;
use shape::{Dims, shapes};
use std::sync::OnceLock;
use value::{
    Batch, Causal, Context, HeadRanks, Heads, Hit, Join, Kind, Kv8, Layout, Length, Pool, Rows, Scale, StepOrder, Steps, Switch,
    TrainOrder, Window, at,
};

#[cfg(doc)]
use super::super::case::Case;

/// A value for each knob of a space, by its number; a knob of a case that is outside the space's values has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(Vec<u16>);

impl Row {
    /// The number of a knob's value.
    pub fn value(&self, knob: usize) -> Option<usize> {
        self.0.get(knob).filter(|it| **it != OPEN).map(|&it| usize::from(it))
    }
}

/// The cases of a pair of kernels, by knobs.
pub struct Space {
    scope: Scope,
    pins: Pins,
    /// Every block and split length in play.
    granules: Vec<u32>,
    lengths: Lengths,
    formats: Vec<Format>,
    dims: Vec<Dims>,
    /// Head dims that a kernel's rule needs to show anything.
    needed: Vec<u32>,
    /// Query heads of each KV head, and KV heads, by [`Heads`].
    shapes: Vec<Vec<(u32, u32)>>,
    /// Slots in a page; `None` is a contiguous cache.
    caches: Vec<Option<u32>>,
    /// The kernels' own, and whether it is training's.
    kernel_knobs: Vec<(Knob, bool)>,
    knobs: Vec<(String, Vec<String>)>,
    constraints: Constraints,
    /// For pairs and for triples.
    arrays: [OnceLock<Array>; 2],
}

impl Space {
    /// That of a pair of kernels under their pins. Data is drawn, also where the pair has captured tensors.
    ///
    /// The pair must [have cases](Attention::start).
    pub fn new(attention: &Attention) -> Space {
        let (scope, pins) = (attention.pair.scope(), attention.pins);
        let granules = attention.granules();
        let lengths = Lengths::new(&granules);
        let formats = formats(&scope);
        let needed = attention.head_dims();
        let dims = shape::dims(&scope, &pins, &needed);
        let caches = caches(&scope, &lengths);
        let own = |path| scope.side(path).can().knobs.iter().map(move |knob| (knob.clone(), path == Path::Train));
        let kernel_knobs: Vec<(Knob, bool)> = Path::BOTH.into_iter().flat_map(own).collect();
        let mut space = Space {
            shapes: shapes(&pins),
            scope,
            pins,
            granules,
            lengths,
            formats,
            dims,
            needed,
            caches,
            kernel_knobs,
            knobs: Vec::new(),
            constraints: Constraints::new(Vec::new(), Vec::new()),
            arrays: [const { OnceLock::new() }; 2],
        };
        space.knobs = space.named();
        let sizes: Vec<usize> = space.knobs.iter().map(|(_, values)| values.len()).collect();
        let rules = space.rules(&sizes);
        space.constraints = Constraints::new(sizes, rules);
        space
    }

    /// Names of the knobs and of their values.
    pub fn knobs(&self) -> &[(String, Vec<String>)] {
        &self.knobs
    }

    /// Rows in which every valid combination of `t` values stands; the same on every run. `t` is 2 or 3.
    ///
    /// # Panics
    /// With another `t`.
    pub fn rows(&self, t: usize) -> Vec<Row> {
        self.array(t).rows.iter().cloned().map(Row).collect()
    }

    fn array(&self, t: usize) -> &Array {
        assert!(t == 2 || t == 3, "pairs or triples, not combinations of {t}");
        self.arrays[t - 2].get_or_init(|| cover(&self.constraints, t))
    }

    fn named(&self) -> Vec<(String, Vec<String>)> {
        macro_rules! names {
            ($knob:ident) => {
                $knob::ALL.iter().map(|it| it.name().to_owned()).collect()
            };
        }
        let mut knobs: Vec<(usize, &str, Vec<String>)> = vec![
            (at::FORMAT, "format", self.formats.iter().map(Format::to_string).collect()),
            (at::KV8, "kv format", names!(Kv8)),
            (at::LENGTH, "length", names!(Length)),
            (at::ROWS, "rows", names!(Rows)),
            (at::BATCH, "batch", names!(Batch)),
            (at::HEADS, "heads", names!(Heads)),
            (at::DIMS, "head dims", self.dims.iter().map(|it| it.kind.name()).collect()),
            (at::CAUSAL, "causal", names!(Causal)),
            (at::WINDOW, "window", names!(Window)),
            (at::SOFTCAP, "softcap", names!(Switch)),
            (at::SINKS, "sinks", names!(Switch)),
            (at::ALIBI, "alibi", names!(Switch)),
            (at::SCALE, "scale", names!(Scale)),
            (at::LAYOUT, "layout", names!(Layout)),
            (at::TRAIN_ORDER, "train order", names!(TrainOrder)),
            (at::STEP_ORDER, "step order", names!(StepOrder)),
            (
                at::CACHE,
                "cache",
                self.caches.iter().map(|it| it.map_or("contiguous".into(), |page| format!("page {page}"))).collect(),
            ),
            (at::POOL, "pages", names!(Pool)),
            (at::SPARE, "spare slots", names!(Switch)),
            (at::STEPS, "steps", names!(Steps)),
            (at::HIT, "prefix hit", names!(Hit)),
            (at::REJECT, "rejected drafts", names!(Switch)),
            (at::PREEMPT, "preemption", names!(Switch)),
            (at::JOIN, "joins", names!(Join)),
            (at::BUCKET, "bucket padding", names!(Switch)),
            (at::TRAIN_CONTEXT, "train context ranks", names!(Context)),
            (at::INFER_CONTEXT, "infer context ranks", names!(Context)),
            (at::TRAIN_HEAD_RANKS, "train head ranks", names!(HeadRanks)),
            (at::INFER_HEAD_RANKS, "infer head ranks", names!(HeadRanks)),
            (at::REGIME, "regime", names!(Kind)),
        ];
        knobs.sort_by_key(|(place, ..)| *place);
        let mut knobs: Vec<(String, Vec<String>)> =
            knobs.into_iter().map(|(_, name, values)| (name.to_owned(), values)).collect();
        let own = |(knob, train): &(Knob, bool)| {
            (format!("{} {}", if *train { Path::Train } else { Path::Infer }, knob.name), knob.values.clone())
        };
        knobs.extend(self.kernel_knobs.iter().map(own));
        knobs
    }
}

/// Those that campaigns draw, and what the kernels list beside them.
fn formats(scope: &Scope) -> Vec<Format> {
    let usual = [
        (Dtype::BF16, Dtype::BF16),
        (Dtype::F16, Dtype::F16),
        (Dtype::F32, Dtype::F32),
        (Dtype::BF16, Dtype::F32),
        (Dtype::F16, Dtype::F32),
    ];
    let mut formats: Vec<Format> = usual.map(|(storage, out)| Format { storage, out }).to_vec();
    for format in scope.formats().unwrap_or_default() {
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    formats
}

/// The largest page of a kernel's list that is taken: a pool of them is filled for every case.
const MOST_PAGE: u32 = 1024;

/// No pages, the sizes of engines, that of a block, and the ends of what the kernel lists.
fn caches(scope: &Scope, lengths: &Lengths) -> Vec<Option<u32>> {
    let mut caches = vec![None, Some(1), Some(16), Some(64)];
    let mut add = |page: Option<u32>| {
        if !caches.contains(&page) && page.is_some() {
            caches.push(page);
        }
    };
    add(lengths.granules.first().copied());
    if let Some(mut sizes) = scope.side(Path::Infer).can().page_sizes.clone() {
        sizes.sort_unstable();
        add(sizes.first().copied());
        add(sizes.iter().copied().rfind(|&page| page <= MOST_PAGE));
    }
    caches
}
