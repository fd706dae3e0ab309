//! The two sides of a comparison.

use std::fmt;

/// Which side of the comparison a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// The training path.
    Train,
    /// The inference path.
    Infer,
}

impl Path {
    /// Both, training first.
    pub const BOTH: [Path; 2] = [Path::Train, Path::Infer];
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Train => "train",
            Path::Infer => "infer",
        })
    }
}
