//! The smallest case made of what a campaign found, beside the smallest one that the catalogue knows.

use super::Settings;
use super::hunt::{Failing, next_failing};
use crate::finding::Finding;
use crate::shrink::{BUDGET, shrink};
use crate::subject::Subject;
use crate::subject::attention::cause_kind::CauseKind;
use crate::subject::attention::check::Scratch;
use crate::subject::attention::explain::explain;
use crate::subject::attention::file;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::text;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Attention, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Instant;

/// Findings that are shrunk, at most, where the first does not end as small as the catalogue's case: a greedy shrinker ends at
/// different fixed points from different cases.
const SHRUNK: usize = 24;

/// Trials run for all of them, of which none may take more than the usual budget.
const EVALUATIONS: u64 = 2 * BUDGET;

/// Cases that are run for further failing ones to shrink, and failing ones that are enough.
const FURTHER: (u64, usize) = (2000, 100);

/// The parts of a size.
const SIZE: [&str; 7] = ["lengths", "sequences", "heads", "head dims", "knobs", "values", "labels"];

/// What is reported as the cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// Which of the four.
    pub kind: CauseKind,
    /// The cause and what it rests on, in words.
    pub words: String,
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// A shrunk case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Small {
    /// Its size, as shrinking compares it.
    pub size: Vec<u64>,
    /// Its size in words.
    pub words: String,
    /// The failure that it keeps.
    pub signature: String,
    /// What is reported as its cause; that of the case it was made from, where it is too small to tell.
    pub cause: Option<Reported>,
    /// The case as a file that replays.
    pub text: String,
    /// Findings that were shrunk.
    pub shrunk: usize,
    /// Time for shrinking and for the cause.
    pub seconds: f64,
    /// The catalogue's smallest case: size and words. `None`: it knows none.
    pub known: Option<(Vec<u64>, String)>,
}

impl Small {
    /// Whether it is no larger than the catalogue's case; `None` where that knows none.
    pub fn is_smallest(&self) -> Option<bool> {
        self.known.as_ref().map(|(size, _)| self.size <= *size)
    }

    /// The first part of the size in which it is larger than the catalogue's case; `None` where it is no larger.
    pub fn larger_by(&self) -> Option<&'static str> {
        let (known, _) = self.known.as_ref()?;
        let (n, (ours, theirs)) = self.size.iter().zip(known).enumerate().find(|(_, (ours, theirs))| ours != theirs)?;
        (ours > theirs).then(|| SIZE.get(n).copied().unwrap_or("size"))
    }
}

/// Shrinks what failed first; where that does not end as small as the catalogue's case, other findings, of this case and of later ones.
pub(super) fn small(attention: &Attention, mutant: Mutant, first: Failing, settings: &Settings) -> Option<Small> {
    let started = Instant::now();
    let known = known(mutant).map(|trial| (attention.size(&trial), trial));
    let mut search = Search { attention, scratch: attention.scratch(), smallest: None, shrunk: 0, evaluations: 0 };
    search.shrink(&first.trial, &first.verdict.failure()?.signature());
    if let Some((known, _)) = &known
        && !search.ends_at(known)
    {
        for (trial, signature) in others(attention, first, settings, &mut search.scratch) {
            if search.shrunk == SHRUNK || search.evaluations >= EVALUATIONS || search.ends_at(known) {
                break;
            }
            search.shrink(&trial, &signature);
        }
    }
    let Search { smallest, shrunk, .. } = search;
    let Smallest { size, trial, finding, from } = smallest?;
    let signature = finding.signature();
    let whole = file::replayed(&attention.pair, &trial, &finding);
    let cause_of = |trial: &Trial, name: &str| explain(&attention.pair, trial, name, Some(&signature)).cause;
    // A case may be too small to tell: one lane has no order. What it was made of is looked at then.
    let cause = cause_of(&whole, "small.case").or_else(|| cause_of(&from, "found.case"));
    let cause = cause.map(|cause| Reported { kind: cause.kind, words: cause.to_string() });
    let comment = format!("{mutant}: {}", mutant.entry().edit);
    Some(Small {
        words: words(&trial.case.problem),
        text: text::print(&file::file(comment, &attention.pair, &trial, Some(&finding))),
        known: known.map(|(size, trial)| (size, words(&trial.case.problem))),
        size,
        signature,
        cause,
        shrunk,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// The smallest case so far.
struct Smallest {
    size: Vec<u64>,
    trial: Trial,
    finding: Finding,
    /// The case that was shrunk to it.
    from: Trial,
}

/// Shrinking of several findings.
struct Search<'a> {
    attention: &'a Attention,
    scratch: Scratch,
    smallest: Option<Smallest>,
    shrunk: usize,
    evaluations: u64,
}

impl Search<'_> {
    fn shrink(&mut self, trial: &Trial, signature: &str) {
        let budget = EVALUATIONS.saturating_sub(self.evaluations).min(BUDGET);
        self.shrunk += 1;
        let Some(shrunk) = shrink(self.attention, trial, signature, budget, &mut self.scratch) else { return };
        self.evaluations += shrunk.evaluations;
        let size = self.attention.size(&shrunk.trial);
        if self.smallest.as_ref().is_none_or(|it| size < it.size) {
            self.smallest = Some(Smallest { size, trial: shrunk.trial, finding: shrunk.finding, from: trial.clone() });
        }
    }

    /// Whether something as small was found.
    fn ends_at(&self, size: &[u64]) -> bool {
        self.smallest.as_ref().is_some_and(|it| &it.size[..] <= size)
    }
}

/// The findings of a failing case and of later ones: of each signature the smallest case first, then the second of each, and so on.
fn others(attention: &Attention, first: Failing, settings: &Settings, scratch: &mut Scratch) -> Vec<(Trial, String)> {
    let end = settings.cases.min(first.case + 1 + FURTHER.0);
    let mut failing = vec![first];
    while failing.len() < FURTHER.1 {
        let next = failing.last().map_or(end, |last| last.case + 1);
        match next_failing(attention, settings.seed, next..end, scratch, |_| {}) {
            Some(it) => failing.push(it),
            None => break,
        }
    }
    failing.sort_by_cached_key(|it| (attention.size(&it.trial), it.case));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut others = Vec::new();
    for it in &failing {
        let mut here = Vec::new();
        for finding in it.verdict.findings.iter().filter(|finding| finding.kind().is_failure()) {
            let signature = finding.signature();
            if !here.contains(&signature) {
                let turn = seen.entry(signature.clone()).or_default();
                others.push((*turn, it.trial.clone(), signature.clone()));
                *turn += 1;
                here.push(signature);
            }
        }
    }
    others.sort_by_key(|(turn, ..)| *turn);
    others.into_iter().map(|(_, trial, signature)| (trial, signature)).collect()
}

/// The catalogue's smallest case.
fn known(mutant: Mutant) -> Option<Trial> {
    let entry = mutant.entry();
    if entry.smallest.is_empty() {
        return None;
    }
    let name = format!("the smallest case of {}", entry.id);
    let file = text::parse(entry.smallest, &name).unwrap_or_else(|error| panic!("{error}"));
    let asked = file::check(&name, &file).unwrap_or_else(|error| panic!("{error}"));
    Some(Trial::new(file.case, Checks::Only { oracle: true, pair: true, relation: asked.relation }))
}

/// The parts of a size that come first: rows, keys, heads and dims.
fn words(problem: &Problem) -> String {
    let list = |of: &dyn Fn(usize) -> u32| {
        let numbers: Vec<String> = (0..problem.sequences.len()).map(|n| of(n).to_string()).collect();
        numbers.join("+")
    };
    let mut out = format!("q {} kv {}", list(&|n| problem.sequences[n].q), list(&|n| problem.sequences[n].kv));
    if problem.q_heads() + problem.kv_heads() > 2 {
        let _ = write!(out, " heads {}/{}", problem.q_heads(), problem.kv_heads());
    }
    match (problem.d_qk, problem.d_v) {
        (d_qk, d_v) if d_qk == d_v => write!(out, " d {d_v}"),
        (d_qk, d_v) => write!(out, " d {d_qk}/{d_v}"),
    }
    .expect("a string takes everything");
    out
}
