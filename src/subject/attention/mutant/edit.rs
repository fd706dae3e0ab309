//! Faults that are another convention or another arithmetic than the one declared.

use super::Mutant;
use crate::subject::attention::conventions::{AnchorConvention, Conventions};
use crate::subject::attention::numerics::{Numerics, Store};

impl Mutant {
    /// Changes what a kernel does; what it declares stays.
    pub fn edit(self, numerics: &mut Numerics, actual: &mut Conventions) {
        match self {
            Mutant::CausalTopLeft => actual.anchor = AnchorConvention::TopLeft,
            Mutant::TruncatedStore => numerics.store = Store::Truncate,
            _ => {}
        }
    }
}
