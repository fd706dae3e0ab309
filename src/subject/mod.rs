//! What is compared. `attention` is the first subject; the machinery ([`crate::lab`], [`crate::shrink`]) knows only [`Subject`].

pub mod attention;

use crate::finding::{Finding, Verdict};
use std::fmt;

/// A smaller trial, and whether its values may be drawn again when the kept ones do not show the finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate<T> {
    /// The smaller trial.
    pub trial: T,
    /// True for a structural change.
    pub redraw: bool,
}

/// What the loop and the shrinker need to know of a subject, and no more.
pub trait Subject: Sync {
    /// A case together with what is checked of it.
    type Trial: Clone + PartialEq + fmt::Debug + Send;
    /// Buffers that one thread reuses from case to case. Verdicts do not depend on them.
    type Scratch;

    /// Fresh buffers.
    fn scratch(&self) -> Self::Scratch;

    /// Case `index` of a seed: a pure function, so that any thread or machine can make any case.
    fn draw(&self, seed: u64, index: u64) -> Self::Trial;

    /// Runs everything the trial asks for.
    fn check(&self, trial: &Self::Trial, scratch: &mut Self::Scratch) -> Verdict;

    /// The same case, checked only for one finding.
    fn focus(&self, trial: &Self::Trial, finding: &Finding) -> Self::Trial;

    /// How large a trial is; compared lexicographically. A shrink step must lower it.
    fn size(&self, trial: &Self::Trial) -> Vec<u64>;

    /// Number of positions of a shrink pass; `None` past the last pass.
    fn positions(&self, trial: &Self::Trial, pass: usize) -> Option<usize>;

    /// Smaller trials at one position of a pass, the boldest first.
    fn smaller(&self, trial: &Self::Trial, pass: usize, position: usize) -> Vec<Candidate<Self::Trial>>;

    /// The same structure with other drawn values, the `n`-th try; `None` for literal data or when tries run out.
    fn redraw(&self, trial: &Self::Trial, n: u32) -> Option<Self::Trial>;
}
