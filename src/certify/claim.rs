//! Claims: the sentences that a certificate makes, and which findings speak against which.

use crate::finding::{Axis, Finding};
use crate::input_error::unknown;
use crate::subject::attention::battery::Part;
use std::fmt;
use std::str::FromStr;

/// A sentence about two kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // `Claim::sentence` says each
pub enum Claim {
    TrainEqInfer,
    Repeatable,
    BatchInvariant,
    PositionInvariant,
    PaddingInvariant,
    PageInvariant,
    ChunkInvariant,
    PrefixInvariant,
    SplitInvariant,
    ParallelInvariant,
    Accurate,
    RejectsOrCorrect,
    VersionEqual,
}

impl Claim {
    /// All, in the order of certificates. The last needs an earlier certificate.
    pub const ALL: [Claim; 13] = [
        Claim::TrainEqInfer,
        Claim::Repeatable,
        Claim::BatchInvariant,
        Claim::PositionInvariant,
        Claim::PaddingInvariant,
        Claim::PageInvariant,
        Claim::ChunkInvariant,
        Claim::PrefixInvariant,
        Claim::SplitInvariant,
        Claim::ParallelInvariant,
        Claim::Accurate,
        Claim::RejectsOrCorrect,
        Claim::VersionEqual,
    ];

    /// Its name in certificates.
    pub fn name(self) -> &'static str {
        match self {
            Claim::TrainEqInfer => "train_eq_infer",
            Claim::Repeatable => "repeatable",
            Claim::BatchInvariant => "batch_invariant",
            Claim::PositionInvariant => "position_invariant",
            Claim::PaddingInvariant => "padding_invariant",
            Claim::PageInvariant => "page_invariant",
            Claim::ChunkInvariant => "chunk_invariant",
            Claim::PrefixInvariant => "prefix_invariant",
            Claim::SplitInvariant => "split_invariant",
            Claim::ParallelInvariant => "parallel_invariant",
            Claim::Accurate => "accurate",
            Claim::RejectsOrCorrect => "rejects_or_correct",
            Claim::VersionEqual => "version_equal",
        }
    }

    /// What it says.
    pub fn sentence(self) -> &'static str {
        match self {
            Claim::TrainEqInfer => "The training path and the inference path give every row the same bits.",
            Claim::Repeatable => {
                "The same call gives the same bits, whatever dead memory holds, and however its own knobs but splits are set."
            }
            Claim::BatchInvariant => "A row keeps its bits beside other sequences, and alone.",
            Claim::PositionInvariant => "A row keeps its bits at any place of the batch.",
            Claim::PaddingInvariant => "A row keeps its bits under any padding of the batch, left, right, or to a bucket.",
            Claim::PageInvariant => "A row keeps its bits under any page size, page order, or a contiguous cache.",
            Claim::ChunkInvariant => "A row keeps its bits however its request is cut into steps, and when it is made again.",
            Claim::PrefixInvariant => "A row keeps its bits under any prefix-cache hit, and when later rows are not there.",
            Claim::SplitInvariant => "A long row keeps its bits when what a launcher picks its KV splits by changes.",
            Claim::ParallelInvariant => "A row keeps its bits over context-parallel and head-parallel ranks.",
            Claim::Accurate => "Every element lies within the bound computed for the declared arithmetic.",
            Claim::RejectsOrCorrect => "A call is refused, or every slot of its output is written with a right result.",
            Claim::VersionEqual => "Every output has the bits that the previous certificate has.",
        }
    }

    /// What relations change whose results are its evidence, besides the kernel's own knobs.
    pub fn axes(self) -> &'static [Axis] {
        match self {
            Claim::Repeatable => &[Axis::Repeat, Axis::Poison],
            Claim::BatchInvariant => &[Axis::Company],
            Claim::PositionInvariant => &[Axis::Position],
            Claim::PaddingInvariant => &[Axis::Padding],
            Claim::PageInvariant => &[Axis::Pages],
            Claim::ChunkInvariant => &[Axis::Chunk, Axis::Recompute],
            Claim::PrefixInvariant => &[Axis::Prefix, Axis::PrefixStability],
            Claim::SplitInvariant => &[Axis::Company, Axis::PrefixStability, Axis::Ranks],
            Claim::ParallelInvariant => &[Axis::Ranks],
            Claim::TrainEqInfer | Claim::Accurate | Claim::RejectsOrCorrect | Claim::VersionEqual => &[],
        }
    }

    /// Whether what a relation changes, as [`Finding::changed`] says it, is evidence of it in a stratum.
    pub fn sees(self, changed: &str, part: Part) -> bool {
        if let Some(knob) = changed.strip_prefix("knob ") {
            // How many splits, in the kernels' own words; any other knob (workspace, threads) is to leave the bits as they are.
            return self == if knob.contains("split") { Claim::SplitInvariant } else { Claim::Repeatable };
        }
        let own = self != Claim::SplitInvariant || part == Part::Splits;
        own && self.axes().iter().any(|axis| axis.to_string() == changed)
    }

    /// The claims that a finding of a stratum speaks against. Undecided and skipped speak against none, and for none.
    pub fn against(finding: &Finding, part: Part) -> Vec<Claim> {
        match finding {
            Finding::Mismatch(_) => vec![Claim::TrainEqInfer],
            // What a kernel declares that it does not do, it may refuse, and claims nothing else of.
            Finding::Inaccurate(_) if part == Part::Outside => vec![Claim::RejectsOrCorrect],
            // An answer that is wrong was no refusal.
            Finding::Inaccurate(_) => vec![Claim::Accurate, Claim::RejectsOrCorrect],
            Finding::Fault { .. } => vec![Claim::RejectsOrCorrect],
            Finding::NotInvariant { .. } => {
                let changed = finding.changed().unwrap_or_default();
                Claim::ALL.into_iter().filter(|claim| claim.sees(&changed, part)).collect()
            }
            Finding::Undecided { .. } | Finding::Skipped { .. } => Vec::new(),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Claim {
    type Err = String;

    fn from_str(text: &str) -> Result<Claim, String> {
        let names = Claim::ALL.map(Claim::name);
        Claim::ALL.into_iter().find(|claim| claim.name() == text).ok_or_else(|| unknown("claim", text, &names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every axis is evidence of some claim in every stratum: no difference is without consequence.
    #[test]
    fn every_axis_has_a_claim() {
        let axes = [
            Axis::Repeat,
            Axis::Recompute,
            Axis::Company,
            Axis::Position,
            Axis::Padding,
            Axis::Poison,
            Axis::Pages,
            Axis::Chunk,
            Axis::Prefix,
            Axis::PrefixStability,
            Axis::Ranks,
        ];
        let knobs = ["knob num_splits", "knob workspace"].map(str::to_owned);
        for changed in axes.map(|it| it.to_string()).into_iter().chain(knobs) {
            for part in Part::ALL {
                assert!(Claim::ALL.iter().any(|claim| claim.sees(&changed, part)), "{changed} in {part:?}");
            }
        }
        let seen = |claim: Claim, changed, part| claim.sees(changed, part);
        assert!(!seen(Claim::SplitInvariant, "company", Part::Random));
        assert!(seen(Claim::SplitInvariant, "company", Part::Splits) && seen(Claim::BatchInvariant, "company", Part::Splits));
        // A knob that has nothing to do with splits is no evidence of them.
        assert!(
            seen(Claim::SplitInvariant, "knob num_splits", Part::Random)
                && seen(Claim::Repeatable, "knob workspace", Part::Splits)
        );
        assert!(!seen(Claim::SplitInvariant, "knob workspace", Part::Splits));
    }
}
