//! What is said of a whole case.

use super::{Accuracy, Finding};
use crate::reach::Reach;
use std::collections::BTreeMap;

/// A case's findings in check order, and what was done to get them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Empty for a match. The first is the headline.
    pub findings: Vec<Finding>,
    /// Elements whose bits were compared, train against infer.
    pub compared: u64,
    /// Some row has at least three valid keys.
    pub capable: bool,
    /// A changed recipe of the same kernel changed its bits. `None` when the witness was not asked for or not capable.
    pub order_sensitive: Option<bool>,
    /// Elements the oracle's f64 step left open.
    pub escalations: u64,
    /// Accuracy of both sides.
    pub accuracy: Accuracy,
    /// Metamorphic relations that were run.
    pub relations: u64,
    /// Elements of `o` and of `lse` whose bits were compared under relations.
    pub related: [u64; 2],
    /// By what was changed, as [`Finding::changed`] says it: elements compared, and those of them that differ.
    pub along: BTreeMap<String, [u64; 2]>,
    /// What was not drawn, or not compared, since a kernel does not do it: reasons, each once. No part of the verdict.
    pub left_out: Vec<String>,
    /// Relations that were not run since the changed case is beyond the kernel, with the reason.
    pub relations_left_out: Vec<String>,
    /// Findings that were dropped since the kernel does not repeat itself: what changed its bits cannot be known.
    pub set_aside: u64,
    /// Ways that the runs of both paths took, as the subject numbers them.
    pub reach: Reach,
}

impl Verdict {
    /// The first finding that fails a run.
    pub fn failure(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.kind().is_failure())
    }

    /// The headline: the first failure, else the first finding of any kind.
    pub fn headline(&self) -> Option<&Finding> {
        self.failure().or(self.findings.first())
    }

    /// True when bits were compared and nothing at all was found.
    pub fn is_match(&self) -> bool {
        self.findings.is_empty() && self.compared > 0
    }
}
