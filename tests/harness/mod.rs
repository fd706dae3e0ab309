//! What the tests of the harness share: kernels by name, and the first failing case of a campaign, shrunk and explained.

#![allow(dead_code, reason = "each test binary uses its own part")]

use lastbit::finding::Finding;
use lastbit::lab::{Campaign, Done, Flow, Length, run};
use lastbit::shrink::{Shrunk, shrink};
use lastbit::subject::Subject;
use lastbit::subject::attention::Attention;
use lastbit::subject::attention::cause::Cause;
use lastbit::subject::attention::check::Pair;
use lastbit::subject::attention::explain::explain;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::AttentionKernel;
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::trial::Trial;
use std::sync::Arc;

/// A reference kernel by name.
pub fn named(name: &str) -> Implementation {
    Implementation::reference(Reference::parse(name).expect("a kernel's name"))
}

/// Two implementations.
pub fn pair(train: Implementation, infer: Implementation, oracle: Mode) -> Attention {
    Attention::of(Pair { train, infer, oracle, captured: None, witness: false })
}

/// Two reference kernels.
pub fn references(train: &str, infer: &str, oracle: Mode) -> Attention {
    pair(named(train), named(infer), oracle)
}

/// `ref:aligned` for training against a kernel of the test's own.
pub fn against(kernel: impl AttentionKernel + 'static, oracle: Mode) -> Attention {
    pair(named("ref:aligned"), Implementation::kernel(Arc::new(kernel)), oracle)
}

/// A failing case of a campaign.
pub struct Found {
    /// Its number.
    pub index: u64,
    /// The case.
    pub trial: Trial,
    /// The finding that was looked for.
    pub finding: Finding,
}

/// The first case of seed 1 with a finding that `wanted` accepts, among `limit`.
pub fn first(attention: &Attention, limit: u64, wanted: impl Fn(&Trial, &Finding) -> bool) -> Option<Found> {
    let mut found = None;
    run(attention, Campaign { seed: 1, first: 0, length: Length::Cases(limit), jobs: 1 }, |done: Done<Trial>| {
        let Done { index, trial, verdict } = done;
        match verdict.findings.into_iter().find(|finding| wanted(&trial, finding)) {
            Some(finding) => {
                found = Some(Found { index, trial, finding });
                Flow::Stop
            }
            None => Flow::Continue,
        }
    });
    found
}

/// Shrinks a found case with the usual budget.
pub fn shrunk(attention: &Attention, found: &Found) -> Shrunk<Trial> {
    let signature = found.finding.signature();
    let shrunk = shrink(attention, &found.trial, &signature, lastbit::shrink::BUDGET, &mut attention.scratch());
    let shrunk = shrunk.unwrap_or_else(|| panic!("case {} does not show `{signature}` again", found.index));
    assert_eq!(shrunk.finding.signature(), signature);
    assert!(!shrunk.exhausted, "{} evaluations did not reach a fixed point", shrunk.evaluations);
    shrunk
}

/// The cause of a trial's headline.
pub fn cause_of(attention: &Attention, trial: &Trial) -> Option<Cause> {
    explain(&attention.pair, trial, "x.case", None).cause
}
