//! The steps inside one row of the reference kernel, and the first on which two runs part.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// What a step computed. Key ranges name visited cells; parts, lanes and keys are numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// The stored score of a key.
    Score {
        /// Position.
        key: u32,
    },
    /// The running maximum at a cell.
    Max {
        /// The cell.
        keys: Range<u32>,
    },
    /// What earlier sums were multiplied with before a cell.
    Rescale {
        /// The cell.
        keys: Range<u32>,
    },
    /// The f32 weight of a key, against the maximum at its cell.
    Weight {
        /// Position.
        key: u32,
    },
    /// The running row sum after a cell.
    RowSum {
        /// The cell.
        keys: Range<u32>,
    },
    /// One lane of the running output after a cell.
    Accumulator {
        /// The cell.
        keys: Range<u32>,
        /// Value lane.
        lane: usize,
    },
    /// A split's log-sum-exp.
    PartialLse {
        /// Number among the nonempty splits.
        part: usize,
    },
    /// One lane of a split's normalised output.
    Partial {
        /// Number among the nonempty splits.
        part: usize,
        /// Value lane.
        lane: usize,
    },
    /// One lane after merging partial `right` into partial `left`.
    Merged {
        /// Partial that receives.
        left: usize,
        /// Partial merged; one past the last is the sink.
        right: usize,
        /// Value lane.
        lane: usize,
    },
    /// The log-sum-exp after that merge.
    MergedLse {
        /// Partial that receives.
        left: usize,
        /// Partial merged.
        right: usize,
    },
    /// One lane of the finished output, in f32.
    Finish {
        /// Value lane.
        lane: usize,
    },
    /// One lane as stored.
    Store {
        /// Value lane.
        lane: usize,
    },
    /// The reported log-sum-exp.
    Lse,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Score { key } => write!(f, "the score of key {key}"),
            Label::Max { keys } => write!(f, "the maximum at keys {}..{}", keys.start, keys.end),
            Label::Rescale { keys } => write!(f, "the rescale factor before keys {}..{}", keys.start, keys.end),
            Label::Weight { key } => write!(f, "the weight of key {key}"),
            Label::RowSum { keys } => write!(f, "the row sum after keys {}..{}", keys.start, keys.end),
            Label::Accumulator { keys, lane } => {
                write!(f, "the accumulator after keys {}..{}, lane {lane}", keys.start, keys.end)
            }
            Label::PartialLse { part } => write!(f, "the lse of split {part}"),
            Label::Partial { part, lane } => write!(f, "the output of split {part}, lane {lane}"),
            Label::Merged { left, right, lane } => write!(f, "the merge of {right} into {left}, lane {lane}"),
            Label::MergedLse { left, right } => write!(f, "the lse of the merge of {right} into {left}"),
            Label::Finish { lane } => write!(f, "the finished output, lane {lane}"),
            Label::Store { lane } => write!(f, "the stored output, lane {lane}"),
            Label::Lse => f.write_str("the lse"),
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was computed.
    pub label: Label,
    /// Its f32 pattern.
    pub bits: u32,
}

/// The steps of one row and head, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(pub Vec<Step>);

/// Where the row code reports its steps. The silent one costs nothing, so that traced and untraced rows run the same code.
pub(super) trait Recorder {
    /// Whether anything is kept.
    const ON: bool;
    /// Takes a step.
    fn record(&mut self, label: impl FnOnce() -> Label, value: f32);
}

/// Keeps nothing.
pub(super) struct Silent;

impl Recorder for Silent {
    const ON: bool = false;
    #[inline(always)]
    fn record(&mut self, _: impl FnOnce() -> Label, _: f32) {}
}

impl Recorder for Trace {
    const ON: bool = true;
    fn record(&mut self, label: impl FnOnce() -> Label, value: f32) {
        self.0.push(Step { label: label(), bits: value.to_bits() });
    }
}

impl Trace {
    /// Visited cells in order, each with the number of its split.
    fn cells(&self) -> Vec<(usize, Range<u32>)> {
        let mut part = 0;
        let mut cells = Vec::new();
        for step in &self.0 {
            match &step.label {
                Label::RowSum { keys } => cells.push((part, keys.clone())),
                Label::PartialLse { part: done } => part = done + 1,
                _ => {}
            }
        }
        cells
    }
}

/// A step that both runs took, with two results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueDivergence {
    /// The step.
    pub label: Label,
    /// Its f32 pattern in training.
    pub train: u32,
    /// Its f32 pattern in inference.
    pub infer: u32,
}

/// Where two runs of a row part: how the work is cut, and the first value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// How the cuts differ, as a sentence; `None` if they do not.
    pub structure: Option<String>,
    /// The first step, in training's order, that both took and that gave other bits. NaNs are equal as a class.
    pub value: Option<ValueDivergence>,
}

/// The first divergence of a training and an inference trace of one row; `None` if they took the same steps to the same bits.
pub fn first_divergence(train: &Trace, infer: &Trace) -> Option<Divergence> {
    let found: HashMap<&Label, u32> = infer.0.iter().map(|step| (&step.label, step.bits)).collect();
    let nan = |bits: u32| f32::from_bits(bits).is_nan();
    let structure = structure(&train.cells(), &infer.cells());
    // Other cuts mean other running maxima: weights and sums are then scaled differently and cannot be compared.
    let comparable = |label: &Label| {
        structure.is_none() || matches!(label, Label::Score { .. } | Label::Finish { .. } | Label::Store { .. } | Label::Lse)
    };
    let value = train.0.iter().filter(|step| comparable(&step.label)).find_map(|step| {
        let bits = *found.get(&step.label)?;
        let same = bits == step.bits || nan(bits) && nan(step.bits);
        (!same).then(|| ValueDivergence { label: step.label.clone(), train: step.bits, infer: bits })
    });
    (structure.is_some() || value.is_some()).then_some(Divergence { structure, value })
}

fn structure(train: &[(usize, Range<u32>)], infer: &[(usize, Range<u32>)]) -> Option<String> {
    if train == infer {
        return None;
    }
    let keys = |cells: &[(usize, Range<u32>)]| {
        let start = cells.iter().map(|(_, keys)| keys.start).min().unwrap_or(0);
        start..cells.iter().map(|(_, keys)| keys.end).max().unwrap_or(0)
    };
    let (a, b) = (keys(train), keys(infer));
    if a != b {
        let words =
            |keys: Range<u32>| if keys.is_empty() { "no key".into() } else { format!("keys {}..{}", keys.start, keys.end) };
        return Some(format!("Training sees {}, inference {}.", words(a), words(b)));
    }
    let split_cuts = |cells: &[(usize, Range<u32>)]| {
        let parts = cells.last().map_or(0, |(part, _)| part + 1);
        let first = |n| cells.iter().filter(|(part, _)| *part == n).map(|(_, keys)| keys.start).min();
        // Around a ring they come in the order of arrival.
        let mut cuts: Vec<u32> = (0..parts).filter_map(first).filter(|&start| start > a.start).collect();
        cuts.sort_unstable();
        cuts
    };
    let block_cuts = |cells: &[(usize, Range<u32>)]| {
        let mut cuts: Vec<u32> = cells.iter().map(|(_, keys)| keys.start).filter(|&start| start > a.start).collect();
        cuts.sort_unstable();
        cuts
    };
    let sentence = |whole: &str, left: &[u32], right: &[u32]| {
        let words = |cuts: &[u32], whole: String| match cuts {
            [] => whole,
            _ => {
                let shown: Vec<String> = cuts.iter().take(4).map(ToString::to_string).collect();
                let more = if cuts.len() > 4 { format!(" and {} more", cuts.len() - 4) } else { String::new() };
                format!("cuts at {}{more}", shown.join(", "))
            }
        };
        let left = match left {
            [] => format!("sums keys {}..{} in {whole}", a.start, a.end),
            cuts => words(cuts, String::new()),
        };
        format!("Training {left}, inference {}.", words(right, format!("sums them in {whole}")))
    };
    let (left, right) = (split_cuts(train), split_cuts(infer));
    if left != right {
        return Some(sentence("one split", &left, &right).replace("cuts at", "splits at"));
    }
    let (left, right) = (block_cuts(train), block_cuts(infer));
    if left != right {
        return Some(sentence("one block", &left, &right));
    }
    let at = train.iter().zip(infer).position(|(x, y)| x != y)?;
    let ((part, x), (other, y)) = (&train[at], &infer[at]);
    if x == y {
        return Some(format!("Training has keys {}..{} in split {part}, inference in split {other}.", x.start, x.end));
    }
    let does = match at.checked_sub(1).map(|before| &train[before].1) {
        None => "begins".into(),
        Some(before) => format!("goes on after keys {}..{}", before.start, before.end),
    };
    Some(format!(
        "Training {does} with keys {}..{}, inference with {}..{}: the same blocks in another order.",
        x.start, x.end, y.start, y.end
    ))
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(structure) = &self.structure {
            write!(f, "{structure} ")?;
        }
        match &self.value {
            None => f.write_str("No value that both compute differs."),
            Some(ValueDivergence { label, train, infer }) => write!(
                f,
                "First differing value: {label}, {train:08x} ({:e}) in training, {infer:08x} ({:e}) in inference.",
                f32::from_bits(*train),
                f32::from_bits(*infer)
            ),
        }
    }
}
