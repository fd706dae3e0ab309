//! The orders in which both kernels add, side by side: what `lastbit reveal` finds from outside.

use super::certificate::TreeText;
use crate::subject::attention::check::Pair;

/// Of both kernels.
pub(super) fn trees(pair: &Pair) -> Vec<TreeText> {
    let _ = pair;
    Vec::new()
}
