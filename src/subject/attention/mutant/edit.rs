//! Faults that are another convention or another arithmetic than the one declared. Those that depend on the call, or stand inside a
//! row, are in the reference kernel (`reference/planted.rs`).

use super::Mutant;
use crate::number::Dtype;
use crate::subject::attention::conventions::{AnchorConvention, Conventions, EmptyRow, ScalesConvention, WindowConvention};
use crate::subject::attention::numerics::{GridAnchor, MaxInit, Numerics, Rescale, Store};

impl Mutant {
    /// The score that takes the place of minus infinity in [`Mutant::FiniteMaskAndMaximum`] and [`Mutant::FiniteMaskValue`].
    pub(in crate::subject::attention) const MASKED: f32 = -1e4;

    /// Changes what a kernel does; what it declares stays.
    pub fn edit(self, numerics: &mut Numerics, actual: &mut Conventions) {
        match self {
            Mutant::CausalTopLeft => actual.anchor = AnchorConvention::TopLeft,
            Mutant::WindowOneMore => actual.window = WindowConvention::OneMore,
            Mutant::WindowOneLess => actual.window = WindowConvention::CountsSelf,
            Mutant::SplitsFromUncached => numerics.grid.anchor = GridAnchor::Uncached,
            Mutant::FiniteMaskAndMaximum => numerics.softmax.max_init = MaxInit::Finite(Mutant::MASKED),
            Mutant::EmptyRowPositiveLse => actual.empty_row = EmptyRow::ZeroPosInf,
            Mutant::TruncatedStore => numerics.store = Store::Truncate,
            Mutant::LazyRescaleTooLate => numerics.softmax.rescale = Rescale::Threshold(127.0),
            Mutant::HalfAccumulator => numerics.value.acc = Dtype::F16,
            Mutant::KvScalesIgnored => actual.kv_scales = ScalesConvention::Ignored,
            _ => {}
        }
    }
}
