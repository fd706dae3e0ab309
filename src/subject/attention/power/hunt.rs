//! A campaign that ends at the first case with a failure.

use crate::finding::{Finding, Verdict};
use crate::lab::check_one;
use crate::subject::Subject;
use crate::subject::attention::Attention;
use crate::subject::attention::check::Scratch;
use crate::subject::attention::trial::Trial;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Instant;

/// Which check failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Check {
    /// Training against inference.
    Pair,
    /// A side against the true value.
    Oracle,
    /// A kernel against itself in other surroundings: what was changed.
    Relation(String),
    /// The kernel did not do its work.
    Fault,
}

impl Check {
    /// The check behind a failure; `None` for what fails nothing.
    pub fn of(finding: &Finding) -> Option<Check> {
        Some(match finding {
            Finding::Mismatch(_) => Check::Pair,
            Finding::Inaccurate(_) => Check::Oracle,
            Finding::NotInvariant { .. } => Check::Relation(finding.changed().unwrap_or_default()),
            Finding::Fault { .. } => Check::Fault,
            Finding::Undecided { .. } | Finding::Skipped { .. } => return None,
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Check::Pair => f.write_str("pair"),
            Check::Oracle => f.write_str("oracle"),
            Check::Relation(changed) => write!(f, "relation {changed}"),
            Check::Fault => f.write_str("fault"),
        }
    }
}

/// The case that a fault was found by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// Its number, from 0.
    pub case: u64,
    /// The check that failed first.
    pub check: Check,
    /// Every check that failed on this case, each once.
    pub checks: Vec<Check>,
    /// The failure's signature.
    pub signature: String,
}

/// What a campaign for a fault came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hunt {
    /// The case that failed; `None`: the fault survived.
    pub kill: Option<Kill>,
    /// Cases run, the failing one included.
    pub cases: u64,
    /// Cases without any finding, and with something compared.
    pub matches: u64,
    /// Cases that were skipped, or left undecided, in whole or in part: no kill, and no match.
    pub not_judged: u64,
    /// Time from the first case to the end.
    pub seconds: f64,
}

impl Hunt {
    /// Whether it ran at all: a campaign without a match or a kill says nothing of its kernel.
    pub fn is_judged(&self) -> bool {
        self.kill.is_some() || self.matches > 0
    }
}

/// A failing case.
pub(super) struct Failing {
    pub(super) case: u64,
    pub(super) trial: Trial,
    pub(super) verdict: Verdict,
}

/// The next failing case from `first` on, before `end`. `see` is told of every case that does not fail.
pub(super) fn next_failing(
    attention: &Attention,
    seed: u64,
    cases: std::ops::Range<u64>,
    scratch: &mut Scratch,
    mut see: impl FnMut(&Verdict),
) -> Option<Failing> {
    for case in cases {
        let trial = attention.draw(seed, case);
        let verdict = check_one(attention, &trial, scratch);
        if verdict.failure().is_some() {
            return Some(Failing { case, trial, verdict });
        }
        see(&verdict);
    }
    None
}

/// Runs cases until one fails.
pub(super) fn hunt(attention: &Attention, seed: u64, cases: u64) -> (Hunt, Option<Failing>) {
    let started = Instant::now();
    let mut scratch = attention.scratch();
    let (mut matches, mut not_judged) = (0, 0);
    let failing = next_failing(attention, seed, 0..cases, &mut scratch, |verdict| {
        matches += u64::from(verdict.is_match());
        not_judged += u64::from(!verdict.findings.is_empty());
    });
    let seconds = started.elapsed().as_secs_f64();
    let kill = failing.as_ref().map(|it| {
        let failures = || it.verdict.findings.iter().filter_map(|finding| Some((Check::of(finding)?, finding)));
        let mut checks: Vec<Check> = failures().map(|(check, _)| check).collect();
        checks.sort();
        checks.dedup();
        let (check, finding) = failures().next().expect("a failing case has a failure");
        Kill { case: it.case, check, checks, signature: finding.signature() }
    });
    let cases = kill.as_ref().map_or(cases, |kill| kill.case + 1);
    (Hunt { kill, cases, matches, not_judged, seconds }, failing)
}
