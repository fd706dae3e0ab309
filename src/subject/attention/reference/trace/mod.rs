//! The steps inside one row of the reference kernel: recorded as they are computed, and read as mathematics.

mod definition;
mod label;
mod step;

pub use definition::{Against, Definition, Stage, Unit};
pub use label::Label;
pub use step::{Step, steps};

use super::super::kernel::Attributes;
use super::super::numerics::{Descale, MaxInit, Numerics, ScaleAt};
use std::ops::Range;

/// One number that the row code computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is.
    pub label: Label,
    /// Its f32 pattern.
    pub bits: u32,
}

/// In which units the numbers of a trace are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Queries are multiplied with the softmax scale before the dot product.
    pub scaled_query: bool,
    /// Stored scores are dot products, without the softmax scale.
    pub raw_scores: bool,
    /// Keys and values of an 8-bit cache are not multiplied with their scales before they are used.
    pub folded_scales: bool,
    /// Pattern of the maximum before the first key.
    pub first_max: u32,
}

/// The steps of one row and head, in the order in which they were computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The units.
    pub form: Form,
    /// The numbers.
    pub events: Vec<Event>,
}

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
        self.events.push(Event { label: label(), bits: value.to_bits() });
    }
}

impl Form {
    pub(super) fn of(numerics: &Numerics, attributes: &Attributes<'_>) -> Form {
        let plain = attributes.softcap.is_none() && attributes.alibi_slopes.is_none();
        let first_max = match numerics.softmax.max_init {
            MaxInit::NegInf => f32::NEG_INFINITY,
            MaxInit::Finite(x) => x,
        };
        Form {
            scaled_query: numerics.score.scale == ScaleAt::OnQuery,
            raw_scores: numerics.score.scale == ScaleAt::FoldedLog2e && plain,
            folded_scales: numerics.kv.descale == Descale::Folded && attributes.kv_scales.is_some(),
            first_max: first_max.to_bits(),
        }
    }
}

impl Trace {
    /// Nothing recorded yet.
    pub(super) fn new(form: Form) -> Trace {
        Trace { form, events: Vec::new() }
    }

    /// Visited cells in order, each with the number of its split.
    pub fn cells(&self) -> Vec<(usize, Range<u32>)> {
        let mut part = 0;
        let mut cells = Vec::new();
        for event in &self.events {
            match &event.label {
                Label::RowSum { keys } => cells.push((part, keys.clone())),
                Label::PartialLse { part: done } => part = done + 1,
                _ => {}
            }
        }
        cells
    }
}
