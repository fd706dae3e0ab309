//! The four causes for which two kernels that compute the same attention differ.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The four causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CauseKind {
    /// Not the same set of valid positions, or another meaning of a call.
    Semantics,
    /// The same numbers added in another order.
    Order,
    /// Online-softmax blocks of another size, or rescaled at other moments.
    Blocking,
    /// Another type or rounding at some step.
    Precision,
}

impl fmt::Display for CauseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CauseKind::Semantics => "semantics",
            CauseKind::Order => "order",
            CauseKind::Blocking => "blocking",
            CauseKind::Precision => "precision",
        })
    }
}
