//! What is missing where something was skipped.

use super::Path;
use std::fmt;

/// What of a case was not run, or not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// All of it.
    Case,
    /// A path's own run, and with it all that it is compared with.
    Run(Path),
    /// A run under a relation: what it changes, as [`Finding::changed`](super::Finding::changed) says it.
    Changed(String),
    /// Results of one path that have no counterpart in the other's.
    Pair,
    /// Nothing: an overflow is predicted, so that the bound of some results is infinite. They are counted as out of range.
    Bound,
}

impl Skip {
    /// Back from its words.
    pub fn parse(text: &str) -> Skip {
        match text {
            "case" => Skip::Case,
            "train" => Skip::Run(Path::Train),
            "infer" => Skip::Run(Path::Infer),
            "pair" => Skip::Pair,
            "bound" => Skip::Bound,
            changed => Skip::Changed(changed.to_owned()),
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skip::Case => f.write_str("case"),
            Skip::Run(path) => write!(f, "{path}"),
            Skip::Changed(what) => f.write_str(what),
            Skip::Pair => f.write_str("pair"),
            Skip::Bound => f.write_str("bound"),
        }
    }
}
