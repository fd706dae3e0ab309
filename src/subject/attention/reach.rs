//! What the plans of a campaign asked for and its runs really did. A plan that names a page size proves nothing: a feature counts only
//! where the calls that were made had it (`Watch`), and a campaign in which a feature that is [`Asked`] never came has not tested it.

mod asked;
mod watch;

pub use asked::Asked;
pub(super) use watch::Watch;

use crate::reach::{Reach, ReachCounts, WAYS};
use std::fmt;

/// A way that a plan may lead a kernel, and in which kernels have gone wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanFeature {
    /// A row attends to keys that the call says came from the prefix cache (`prefix_lens`).
    PrefixHit,
    /// Several rows of a sequence in one call, after those that an earlier call of the same request computed.
    SecondChunk,
    /// A row's keys lie in two splits of the kernel's KV grid or more. Of one rank: partial results of ranks are no splits.
    Split,
    /// A row has keys, and the grid of its sequence a split with none of them.
    EmptySplit,
    /// A block table names a page beyond those that the sequence uses.
    SparePage,
    /// Behind a sequence's last key, its page still holds what a former owner wrote.
    RecycledPage,
    /// A sequence's last page is not full.
    RaggedPage,
    /// A padded call whose sequence does not begin at slot 0.
    LeftPadding,
    /// A window ends inside a block of the kernel's grid, so that the kernel has to cut there itself.
    WindowInBlock,
    /// A sequence without rows or without keys, beside one that has both.
    ZeroLength,
    /// Rows from a request's first on are computed again, since it lost its pages.
    Preempt,
    /// Rows of the step before are taken back and computed again: rejected drafts.
    Verify,
    /// Rows of two sequences in one call.
    Company,
    /// An entry of a call that belongs to no sequence.
    Bucket,
}

impl PlanFeature {
    /// All of them.
    pub const ALL: [PlanFeature; 14] = [
        PlanFeature::PrefixHit,
        PlanFeature::SecondChunk,
        PlanFeature::Split,
        PlanFeature::EmptySplit,
        PlanFeature::SparePage,
        PlanFeature::RecycledPage,
        PlanFeature::RaggedPage,
        PlanFeature::LeftPadding,
        PlanFeature::WindowInBlock,
        PlanFeature::ZeroLength,
        PlanFeature::Preempt,
        PlanFeature::Verify,
        PlanFeature::Company,
        PlanFeature::Bucket,
    ];

    /// In words, as reports and checkpoints have it.
    pub fn name(self) -> &'static str {
        match self {
            PlanFeature::PrefixHit => "prefix hit",
            PlanFeature::SecondChunk => "second chunk",
            PlanFeature::Split => "split above 1",
            PlanFeature::EmptySplit => "empty split",
            PlanFeature::SparePage => "spare page",
            PlanFeature::RecycledPage => "recycled page",
            PlanFeature::RaggedPage => "ragged last page",
            PlanFeature::LeftPadding => "left padding",
            PlanFeature::WindowInBlock => "window inside a block",
            PlanFeature::ZeroLength => "zero-length sequence",
            PlanFeature::Preempt => "preempt",
            PlanFeature::Verify => "rejected draft",
            PlanFeature::Company => "company",
            PlanFeature::Bucket => "bucket padding",
        }
    }

    /// Whether a run took this way.
    pub fn is_in(self, reach: Reach) -> bool {
        reach.has(self as usize)
    }

    /// Cases of a campaign whose runs took this way.
    pub fn count(self, counts: &ReachCounts) -> u64 {
        counts.of(self as usize)
    }
}

const _: () = assert!(PlanFeature::ALL.len() <= WAYS);

impl fmt::Display for PlanFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
