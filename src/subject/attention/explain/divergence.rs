//! The first step, in the order of the mathematics, at which two runs of a row part.

use super::exact::Exact;
use super::runs::Names;
use super::structure::structure;
use super::verdict::number;
use crate::number::Dtype;
use crate::subject::attention::reference::trace::{Definition, Stage, Step, Trace, steps};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;

/// A step that both runs took, with both results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// What it computes.
    pub definition: Definition,
    /// The block in which each run computed it.
    pub blocks: [Option<Range<u32>>; 2],
    /// Both f32 patterns.
    pub bits: [u32; 2],
}

impl Common {
    /// Whether the bits differ. NaNs are equal as a class.
    pub fn differs(&self) -> bool {
        let [a, b] = self.bits;
        a != b && !(f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan())
    }
}

/// Two runs of a row, step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Steps of the same definition, in the order of the mathematics.
    pub common: Vec<Common>,
    /// Steps that only the first, or only the second run took.
    pub alone: [Vec<Step>; 2],
}

impl Steps {
    /// Lays two traces side by side; `score` gives true scores, as in [`steps`].
    pub fn of(first: &Trace, second: &Trace, score: impl Fn(u32) -> Option<f64>) -> Steps {
        let [first, second] = [first, second].map(|trace| steps(trace, &score));
        let mut others: HashMap<&Definition, &Step> = second.iter().map(|step| (&step.definition, step)).collect();
        let mut laid = Steps::default();
        for step in &first {
            match others.remove(&step.definition) {
                Some(other) => laid.common.push(Common {
                    definition: step.definition.clone(),
                    blocks: [step.block.clone(), other.block.clone()],
                    bits: [step.bits, other.bits],
                }),
                None => laid.alone[0].push(step.clone()),
            }
        }
        laid.alone[1].extend(second.iter().filter(|step| others.contains_key(&step.definition)).cloned());
        laid
    }
}

/// Where two runs of a row part: how the work is cut, and the first value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// How the cuts differ, as a sentence; `None` if they do not.
    pub structure: Option<String>,
    /// The first step that only one of the runs took, and which, where it comes before the first value or the cuts differ.
    pub alone: Option<(usize, Step)>,
    /// The first step that both took and that gave other bits.
    pub value: Option<Common>,
}

impl Divergence {
    /// Of two traces that are laid side by side; `None` if they took the same steps to the same bits.
    pub fn of(first: &Trace, second: &Trace, laid: &Steps, names: &Names) -> Option<Divergence> {
        let structure = structure(&first.cells(), &second.cells(), names);
        let value = laid.common.iter().find(|step| step.differs()).cloned();
        let place = |step: &Step| (step.definition.stage, step.block.as_ref().map_or(0, |block| block.start));
        // The same step in other units, or against another maximum, is no step of one run alone. Where the cuts are the same, what only one
        // run does says something new up to the first value.
        let taken =
            [1, 0].map(|other: usize| laid.alone[other].iter().map(|it| it.definition.at_large()).collect::<HashSet<_>>());
        let shared =
            |run: usize, step: &Step| step.definition.stage != Stage::Rescale && taken[run].contains(&step.definition.at_large());
        let before = |step: &Step| value.as_ref().is_none_or(|value| step.definition.stage < value.definition.stage);
        let telling = |run: usize, step: &Step| (structure.is_some() || before(step)) && !shared(run, step);
        let alone = (0..2).filter_map(|run| Some((run, laid.alone[run].iter().find(|step| telling(run, step))?)));
        let alone = alone.min_by_key(|&(run, step)| (place(step), run)).map(|(run, step)| (run, step.clone()));
        (structure.is_some() || value.is_some()).then_some(Divergence { structure, alone, value })
    }

    /// In words, the first line without indent; `exact` gives true values.
    pub(super) fn in_words(&self, names: &Names, exact: &mut Option<Exact<'_>>) -> String {
        let mut lines = Vec::new();
        lines.extend(self.structure.clone());
        if let Some((run, step)) = &self.alone {
            let block = step.block.as_ref().map_or(String::new(), |keys| format!(", in {}", block(keys)));
            lines.push(format!("only {}: {}{block}: {}", names.in_run(*run), step.definition, bits(step.bits)));
        }
        match &self.value {
            None => lines.push("no value that both compute differs".into()),
            Some(value) => {
                let place = match &value.blocks {
                    [Some(a), Some(b)] if a == b => format!(", in {}", block(a)),
                    [Some(a), Some(b)] => format!(", in {} and {}", block(a), block(b)),
                    [Some(one), None] | [None, Some(one)] => format!(", in {}", block(one)),
                    [None, None] => String::new(),
                };
                let first = if lines.is_empty() { "" } else { "first differing value: " };
                lines.push(format!("{first}{}{place}", value.definition));
                lines.push(values(value, names, exact));
            }
        }
        lines.join("\n  ")
    }
}

/// Both results of a step and the true one, and which is nearer to it.
fn values(value: &Common, names: &Names, exact: &mut Option<Exact<'_>>) -> String {
    let [a, b] = value.bits;
    let mut text = format!("{} {}  {} {}", names.first, bits(a), names.second, bits(b));
    let Some(truth) = exact.as_mut().and_then(|exact| exact.of(&value.definition)) else { return text };
    let _ = write!(text, "  true {}", bits(truth.bits()));
    // A NaN is further than anything.
    let [x, y] = value.bits.map(|bits| truth.distance(bits)).map(|x| if x.is_nan() { f64::INFINITY } else { x });
    let _ = match x.total_cmp(&y) {
        Ordering::Less => write!(text, ", {} nearer", names.first),
        Ordering::Greater => write!(text, ", {} nearer", names.second),
        Ordering::Equal => write!(text, ", equally near"),
    };
    text
}

fn block(keys: &Range<u32>) -> String {
    format!("block {}..{}", keys.start, keys.end)
}

fn bits(bits: u32) -> String {
    format!("{bits:08x} {}", number(Dtype::F32, bits))
}
