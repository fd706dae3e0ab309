//! A case and what is checked of it.

use super::Case;
use super::relation::SidedRelation;

/// What is checked of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Everything, with [`RELATIONS_PER_CASE`] relations from this place of the rotation; the number also seeds their parameters.
    Turn(u64),
    /// Everything, with all relations of a set; what a [battery](super::battery) asks of its cases.
    All {
        /// Seeds the relations' parameters.
        seed: u64,
        /// Which relations.
        set: RelationSet,
        /// One more, with the parameters under which a kept case was found.
        also: Option<SidedRelation>,
    },
    /// Everything, with these relations: what two versions of a kernel both do.
    These(Vec<SidedRelation>),
    /// One thing, for shrinking and replay.
    Only {
        /// Judge each side against the oracle.
        oracle: bool,
        /// Compare train with infer.
        pair: bool,
        /// Run this relation.
        relation: Option<SidedRelation>,
    },
}

/// The relations of [`Checks::All`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationSet {
    /// Every kind that fits the case, once for each path, and every knob of the kernels.
    Every,
    /// What launchers choose the number of KV splits by, while the row's own step stays as it is: requests of one row beside it, fewer keys
    /// after it, its heads on several ranks, and the kernels' knobs that are named for splits.
    Splits,
}

/// Relations that a campaign runs on each case.
pub const RELATIONS_PER_CASE: usize = 2;

/// A case and what is checked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The case.
    pub case: Case,
    /// The checks.
    pub checks: Checks,
    /// What was drawn and left out, since a kernel cannot do it: reasons, each once. Of a trial with everything checked; they go into its
    /// verdict.
    pub left_out: Vec<String>,
}

impl Trial {
    /// A case from which nothing was left out.
    pub fn new(case: Case, checks: Checks) -> Self {
        Trial { case, checks, left_out: Vec::new() }
    }
}
