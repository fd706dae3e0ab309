//! What can be wrong with a case.

mod accuracy;
mod axis;
mod difference;
mod fault;
mod path;
mod skip;
#[cfg(test)]
mod tests;
mod verdict;

pub use accuracy::{Accuracy, ERROR_BINS, Inaccuracy, error_bin};
pub use axis::Axis;
pub use difference::{Comparison, DISTANCE_BINS, Difference, ELEMENTS_KEPT, Element, Nearer, same};
pub use fault::{Breakage, Fault};
pub use path::Path;
pub use skip::Skip;
pub use verdict::Verdict;

use crate::tensor::Index;

/// One thing wrong with a case, or not decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A kernel did not do its work.
    Fault {
        /// Whose.
        path: Path,
        /// What happened.
        fault: Fault,
        /// The concrete change under which it happened, as `[run] relation` spells it; `None` for the case as it is.
        relation: Option<String>,
    },
    /// A result beyond its computed bound, or non-finite where the true value is finite.
    Inaccurate(Inaccuracy),
    /// The two paths' bits differ.
    Mismatch(Difference),
    /// The same row of one path has other bits in other surroundings.
    NotInvariant {
        /// What was changed.
        axis: Axis,
        /// Whose row.
        path: Path,
        /// The concrete change, as `[run] relation` spells it.
        relation: String,
        /// Base run against changed run.
        difference: Difference,
    },
    /// The oracle could not settle some elements.
    Undecided {
        /// `o` or `lse`.
        output: &'static str,
        /// How many.
        elements: u64,
        /// The first.
        index: Index,
    },
    /// The case, or part of it, was not run.
    Skipped {
        /// What.
        what: Skip,
        /// Why; counted by this text.
        reason: String,
    },
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names are `Finding`'s
pub enum Kind {
    Fault,
    Inaccurate,
    Mismatch,
    NotInvariant,
    Undecided,
    Skipped,
}

impl Kind {
    /// Every kind, in check order.
    pub const ALL: [Kind; 6] =
        [Kind::Fault, Kind::Inaccurate, Kind::Mismatch, Kind::NotInvariant, Kind::Undecided, Kind::Skipped];

    /// True for the four kinds that fail a run; undecided and skipped fail nothing and pass nothing.
    pub fn is_failure(self) -> bool {
        !matches!(self, Kind::Undecided | Kind::Skipped)
    }

    /// The name in verdict files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fault => "fault",
            Kind::Inaccurate => "inaccurate",
            Kind::Mismatch => "mismatch",
            Kind::NotInvariant => "not_invariant",
            Kind::Undecided => "undecided",
            Kind::Skipped => "skipped",
        }
    }
}

impl Finding {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Finding::Fault { .. } => Kind::Fault,
            Finding::Inaccurate(_) => Kind::Inaccurate,
            Finding::Mismatch(_) => Kind::Mismatch,
            Finding::NotInvariant { .. } => Kind::NotInvariant,
            Finding::Undecided { .. } => Kind::Undecided,
            Finding::Skipped { .. } => Kind::Skipped,
        }
    }

    /// What shrinking must keep: kind, side, output and axis, without the numbers. Also the `expect` line of a case file.
    pub fn signature(&self) -> String {
        match self {
            Finding::Fault { path, fault: Fault::Unwritten { output, .. }, .. } => format!("fault {path} unwritten {output}"),
            Finding::Fault { path, fault: Fault::Failed(_), .. } => format!("fault {path} failed"),
            Finding::Fault { path, fault: Fault::Broken { breakage, .. }, .. } => format!("fault {path} {}", breakage.name()),
            Finding::Inaccurate(it) => format!("inaccurate {} {}", it.path, it.output),
            Finding::Mismatch(it) => format!("mismatch {}", it.output),
            Finding::NotInvariant { path, difference, .. } => {
                format!("not_invariant {path} {} {}", self.changed().unwrap_or_default(), difference.output)
            }
            Finding::Undecided { output, .. } => format!("undecided {output}"),
            Finding::Skipped { reason, .. } => format!("skipped {reason}"),
        }
    }

    /// One defect of a case: its `o` and `lse`, or its many fault texts, count as one, and the first of them is kept.
    pub fn family(&self) -> String {
        match self {
            Finding::NotInvariant { path, .. } => format!("not_invariant {path} {}", self.changed().unwrap_or_default()),
            Finding::Inaccurate(it) => format!("inaccurate {}", it.path),
            Finding::Fault { path, .. } => format!("fault {path}"),
            other => other.kind().name().to_owned(),
        }
    }

    /// What a row is not invariant to: the axis, and of the kernel's own knobs the name.
    pub fn changed(&self) -> Option<String> {
        let Finding::NotInvariant { axis, relation, .. } = self else { return None };
        Some(match axis {
            Axis::Knob => {
                // `infer knob num_splits=2`
                let knob = relation.split(' ').nth(2).unwrap_or_default();
                format!("{axis} {}", knob.split('=').next().unwrap_or_default())
            }
            _ => axis.to_string(),
        })
    }

    /// The concrete change under which it was found, as `[run] relation` spells it; `None` for the case as it is.
    pub fn relation(&self) -> Option<&str> {
        match self {
            Finding::NotInvariant { relation, .. } | Finding::Fault { relation: Some(relation), .. } => Some(relation),
            _ => None,
        }
    }

    /// The difference in bits behind the finding, if it is one.
    pub fn difference(&self) -> Option<&Difference> {
        match self {
            Finding::Mismatch(difference) | Finding::NotInvariant { difference, .. } => Some(difference),
            _ => None,
        }
    }
}
