//! Runs trials: one, or a campaign over threads whose output does not depend on them.

use crate::finding::{Accuracy, Finding, Kind, Verdict};
use crate::number::Dtype;
pub use crate::ordered::Flow;
use crate::ordered::ordered;
use crate::reach::ReachCounts;
use crate::subject::Subject;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The one check that tests, fuzz targets, the CLI, the shrinker and certification all make.
pub fn check_one<S: Subject>(subject: &S, trial: &S::Trial, scratch: &mut S::Scratch) -> Verdict {
    subject.check(trial, scratch)
}

/// How long a campaign runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Cases up to this index, which is not run.
    Cases(u64),
    /// Cases are begun until this much time has passed. What has begun is finished, so the cases done have no gap.
    Time(Duration),
}

/// A campaign: cases `first, first + 1, ...` of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Seed of the case streams.
    pub seed: u64,
    /// Index of the first case: 0, or where an earlier part of the same campaign stopped.
    pub first: u64,
    /// When to stop.
    pub length: Length,
    /// Threads, at least 1.
    pub jobs: usize,
}

/// A finished case, handed out in index order.
pub struct Done<T> {
    /// Its number.
    pub index: u64,
    /// The case.
    pub trial: T,
    /// Its verdict.
    pub verdict: Verdict,
}

/// Runs a campaign. `each` sees every case in index order, on the calling thread.
pub fn run<S: Subject>(subject: &S, campaign: Campaign, each: impl FnMut(Done<S::Trial>) -> Flow) {
    run_every(subject, campaign, 1, each);
}

/// Runs every `step`-th case of a campaign, from its first on: a part of one that other machines share. `each` sees them in index order, on
/// the calling thread.
///
/// # Panics
/// With a step of 0.
pub fn run_every<S: Subject>(subject: &S, campaign: Campaign, step: u64, mut each: impl FnMut(Done<S::Trial>) -> Flow) {
    assert!(step > 0, "a step of 0 stays at one case");
    let started = Instant::now();
    let index = |n: u64| campaign.first + n * step;
    let over = |n: u64| match campaign.length {
        Length::Cases(count) => index(n) >= count,
        Length::Time(limit) => started.elapsed() >= limit,
    };
    let check = |n: u64, scratch: &mut S::Scratch| {
        let index = index(n);
        let named = NameOnPanic { seed: campaign.seed, index };
        let trial = subject.draw(campaign.seed, index);
        let verdict = check_one(subject, &trial, scratch);
        std::mem::forget(named);
        Done { index, trial, verdict }
    };
    ordered(campaign.jobs, over, || subject.scratch(), check, |_, done| each(done));
}

/// Says on which case a worker panicked: a fault of the harness that must be repeatable.
struct NameOnPanic {
    seed: u64,
    index: u64,
}

impl Drop for NameOnPanic {
    fn drop(&mut self) {
        use std::io::Write;
        // A stderr that takes nothing must not turn the panic into an abort.
        let message = format!("lastbit: the fault above came with case {} of seed {}\n", self.index, self.seed);
        let _ = std::io::stderr().write_all(message.as_bytes());
    }
}

/// Order-sensitivity of one output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sensitivity {
    /// Capable cases for which the witness ran.
    pub capable: u64,
    /// Those whose bits a changed recipe changed.
    pub sensitive: u64,
}

/// Skip reasons that are told apart. They are a kernel's own words, which may name a size: there can be as many as cases.
pub const SKIP_REASONS: usize = 64;

/// What the skips past [`SKIP_REASONS`] are counted under.
pub const OTHER_REASONS: &str = "other reasons";

/// What a campaign has seen. Its size does not grow with the cases.
///
/// Each case is one of `matches`, `failed`, `skipped`, `undecided` and `empty`; a case of several `kinds` counts under each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Cases.
    pub cases: u64,
    /// Cases without any finding and with elements compared.
    pub matches: u64,
    /// Cases with a failure.
    pub failed: u64,
    /// Cases without a failure that were skipped, in whole or in part.
    pub skipped: u64,
    /// Cases with neither a failure nor a skip, of which the oracle left something undecided.
    pub undecided: u64,
    /// Cases in which nothing was compared and nothing was found.
    pub empty: u64,
    /// Cases with at least one finding of a kind, by kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Skip reasons and their counts: the first [`SKIP_REASONS`] that came, and [`OTHER_REASONS`].
    pub skips: BTreeMap<String, u64>,
    /// Failures by signature. There are as many as combinations of kind, side, axis and output: some dozens.
    pub signatures: BTreeMap<String, u64>,
    /// Elements whose bits were compared.
    pub elements: u64,
    /// Elements among them that differ, train against infer.
    pub differing: u64,
    /// Capable and order-sensitive cases, by output format.
    pub sensitivity: BTreeMap<Dtype, Sensitivity>,
    /// Elements the oracle's f64 step left open.
    pub escalations: u64,
    /// Relations run.
    pub relations: u64,
    /// What was not drawn, or not compared, since a kernel does not do it, and in how many cases: as many reasons as [`Statistics::skips`]
    /// may have.
    pub left_out: BTreeMap<String, u64>,
    /// Relations not run for such a reason, and how often.
    pub relations_left_out: BTreeMap<String, u64>,
    /// Findings dropped since the kernel does not repeat itself.
    pub set_aside: u64,
    /// Positions of the longest sequence.
    pub longest_kv: u32,
    /// Accuracy over all judged elements.
    pub accuracy: Accuracy,
    /// Cases whose runs took each way.
    pub reach: ReachCounts,
}

/// Counts a reason: the first [`SKIP_REASONS`] by name.
fn count(reasons: &mut BTreeMap<String, u64>, reason: &str, times: u64) {
    let full = reasons.len() >= SKIP_REASONS && !reasons.contains_key(reason);
    let reason = if full { OTHER_REASONS } else { reason };
    *reasons.entry(reason.to_owned()).or_default() += times;
}

impl Statistics {
    /// Counts a case whose output has the given format and whose longest sequence has `kv` positions.
    pub fn add(&mut self, verdict: &Verdict, out_dtype: Dtype, kv: u32) {
        self.join(&Statistics::of_case(verdict, out_dtype, kv));
    }

    /// What one case adds to the statistics of a campaign.
    pub fn of_case(verdict: &Verdict, out_dtype: Dtype, kv: u32) -> Statistics {
        let mut it = Statistics {
            cases: 1,
            longest_kv: kv,
            elements: verdict.compared,
            escalations: verdict.escalations,
            relations: verdict.relations,
            set_aside: verdict.set_aside,
            accuracy: verdict.accuracy,
            ..Statistics::default()
        };
        verdict.left_out.iter().for_each(|reason| count(&mut it.left_out, reason, 1));
        verdict.relations_left_out.iter().for_each(|reason| count(&mut it.relations_left_out, reason, 1));
        it.reach.add(verdict.reach);
        let outcome = if verdict.is_match() {
            &mut it.matches
        } else if verdict.findings.is_empty() {
            &mut it.empty
        } else if verdict.failure().is_some() {
            &mut it.failed
        } else if verdict.findings.iter().any(|finding| finding.kind() == Kind::Skipped) {
            &mut it.skipped
        } else {
            &mut it.undecided
        };
        *outcome = 1;
        if let Some(sensitive) = verdict.order_sensitive {
            it.sensitivity.insert(out_dtype, Sensitivity { capable: 1, sensitive: u64::from(sensitive) });
        }
        let mut seen = Vec::new();
        for finding in &verdict.findings {
            it.kinds.insert(finding.kind(), 1);
            if let Finding::Mismatch(difference) = finding {
                it.differing += difference.differing;
            }
            let signature = finding.signature();
            if seen.contains(&signature) {
                continue;
            }
            seen.push(signature.clone());
            match finding.kind() {
                Kind::Skipped => count(&mut it.skips, &signature["skipped ".len()..], 1),
                kind if kind.is_failure() => *it.signatures.entry(signature).or_default() += 1,
                _ => {}
            }
        }
        it
    }

    /// Adds what later cases have shown.
    ///
    /// Joining the [cases](Statistics::of_case) of a campaign one by one, in index order, gives its statistics, whoever ran them. Larger parts
    /// give the same too, except where there are more than [`SKIP_REASONS`] reasons: which of them are told apart is decided case by case.
    pub fn join(&mut self, later: &Statistics) {
        self.cases += later.cases;
        self.matches += later.matches;
        self.failed += later.failed;
        self.skipped += later.skipped;
        self.undecided += later.undecided;
        self.empty += later.empty;
        for (&kind, count) in &later.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        later.skips.iter().for_each(|(reason, times)| count(&mut self.skips, reason, *times));
        for (signature, count) in &later.signatures {
            *self.signatures.entry(signature.clone()).or_default() += count;
        }
        self.elements += later.elements;
        self.differing += later.differing;
        for (&dtype, it) in &later.sensitivity {
            let entry = self.sensitivity.entry(dtype).or_default();
            entry.capable += it.capable;
            entry.sensitive += it.sensitive;
        }
        self.escalations += later.escalations;
        self.relations += later.relations;
        later.left_out.iter().for_each(|(reason, times)| count(&mut self.left_out, reason, *times));
        later.relations_left_out.iter().for_each(|(reason, times)| count(&mut self.relations_left_out, reason, *times));
        self.set_aside += later.set_aside;
        self.longest_kv = self.longest_kv.max(later.longest_kv);
        self.accuracy.add(&later.accuracy);
        self.reach.join(&later.reach);
    }

    /// Cases with a finding of this kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).copied().unwrap_or(0)
    }
}
