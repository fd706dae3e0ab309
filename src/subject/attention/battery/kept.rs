//! Cases that are kept: the seeds, every regression, and the smallest case of each planted fault. Each once showed something, whatever the
//! kernels of its file were; a battery runs it on its own.

use crate::subject::attention::Case;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::relation::SidedRelation;
use crate::subject::attention::text;

/// A kept case.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Where it is kept, e.g. `regressions/blocking-64-against-16`.
    pub name: String,
    /// The case.
    pub case: Case,
    /// The relation under which it was found.
    pub relation: Option<SidedRelation>,
}

macro_rules! kept {
    ($folder:literal, $name:literal) => {
        (concat!($folder, "/", $name), include_str!(concat!("../../../../corpora/", $folder, "/attention/", $name, ".case")))
    };
}

/// `corpora/seeds/attention` and `corpora/regressions/attention`.
const FILES: &[(&str, &str)] = &[
    kept!("seeds", "alibi-non-square-group"),
    kept!("seeds", "budget"),
    kept!("seeds", "context-ranks-on-the-grid"),
    kept!("seeds", "empty-batch"),
    kept!("seeds", "fp8-e4m3-head-scales"),
    kept!("seeds", "fp8-e5m2-folded"),
    kept!("seeds", "head-ranks-replicated"),
    kept!("seeds", "join-bucket"),
    kept!("seeds", "left-padding"),
    kept!("seeds", "mirror-bf16"),
    kept!("seeds", "more-rows-than-keys"),
    kept!("seeds", "no-keys"),
    kept!("seeds", "pages-shuffled-recycled"),
    kept!("seeds", "preempt"),
    kept!("seeds", "prefix-hit"),
    kept!("seeds", "softcap-sinks"),
    kept!("seeds", "top-left"),
    kept!("seeds", "verify-reject"),
    kept!("seeds", "window-both-sides"),
    kept!("regressions", "blocking-64-against-16"),
    kept!("regressions", "blocking-64-against-16-bf16"),
    kept!("regressions", "blocking-fa3-decode-tile-bf16"),
    kept!("regressions", "blocking-lazy-rescale"),
    kept!("regressions", "blocking-one-warp-group-neighbour-of-65"),
    kept!("regressions", "order-fixed-split-bf16"),
    kept!("regressions", "order-ring-merge-of-three-ranks-bf16"),
    kept!("regressions", "order-ring-state-bf16"),
    kept!("regressions", "order-split-boundary-off-the-grid"),
    kept!("regressions", "order-splits-at-batch-27-bf16"),
    kept!("regressions", "order-uncached-grid-prefix-hit"),
    kept!("regressions", "order-value-tree-f16"),
    kept!("regressions", "precision-acc-bf16"),
    kept!("regressions", "precision-descale-folded"),
    kept!("regressions", "precision-folded-log2e"),
    kept!("regressions", "precision-p-bf16"),
    kept!("regressions", "precision-scores-bf16-on-both-sides"),
    kept!("regressions", "precision-truncated-store"),
    kept!("regressions", "semantics-kv-scales-ignored"),
    kept!("regressions", "semantics-strict-causal-on-both-sides"),
    kept!("regressions", "semantics-top-left-anchor"),
    kept!("regressions", "semantics-window-one-more"),
];

/// All of them, in a fixed order.
///
/// # Panics
/// A file that is part of this crate and no case.
pub fn kept() -> Vec<Kept> {
    let mutants = Mutant::ALL.iter().map(|it| (format!("mutants/{it}"), it.entry().smallest));
    let files = FILES.iter().map(|&(name, text)| (name.to_owned(), text));
    let parse = |(name, content): (String, &str)| {
        let file = text::parse(content, &name).unwrap_or_else(|error| panic!("{error}"));
        let relation = file.run.relation.as_deref().map(|it| it.parse().unwrap_or_else(|error| panic!("{name}: {error}")));
        Kept { name, case: file.case, relation }
    };
    files.chain(mutants.filter(|(_, text)| !text.is_empty())).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case that is kept and not in the list would never be run.
    #[test]
    fn every_file_is_in_the_list() {
        let mut there = Vec::new();
        for folder in ["seeds", "regressions"] {
            for file in std::fs::read_dir(format!("corpora/{folder}/attention")).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                there.extend(name.strip_suffix(".case").map(|name| format!("{folder}/{name}")));
            }
        }
        let mut listed: Vec<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        there.sort();
        listed.sort();
        assert_eq!(listed, there);
        assert_eq!(kept().len(), FILES.len() + Mutant::ALL.len());
    }
}
