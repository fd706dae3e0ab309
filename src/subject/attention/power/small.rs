//! The smallest case made of what a campaign found, beside the smallest one that the catalogue knows.

use super::Settings;
use super::hunt::{Failing, next_failing};
use crate::finding::Finding;
use crate::shrink::{BUDGET, shrink};
use crate::subject::Subject;
use crate::subject::attention::cause::Cause;
use crate::subject::attention::explain::explain;
use crate::subject::attention::file;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::text;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Attention, Problem};
use std::fmt::Write;
use std::time::Instant;

/// Findings that are shrunk where the first does not end as small as the catalogue's case: a greedy shrinker ends at different
/// fixed points from different cases.
const SHRUNK: usize = 6;

/// Cases that are run for further failing ones to shrink.
const FURTHER: u64 = 2000;

/// A shrunk case.
#[derive(Clone, Debug)]
pub struct Small {
    /// Its size, as shrinking compares it.
    pub size: Vec<u64>,
    /// Its size in words.
    pub words: String,
    /// The failure that it keeps.
    pub signature: String,
    /// What is reported as its cause.
    pub cause: Option<Cause>,
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
}

/// Shrinks the first failing case; where it does not end as small as the catalogue's, its other findings and those of later cases.
pub(super) fn small(attention: &Attention, mutant: Mutant, first: &Failing, settings: &Settings) -> Option<Small> {
    let started = Instant::now();
    let known = known(mutant).map(|trial| (attention.size(&trial), trial));
    let enough = |size: &[u64]| known.as_ref().is_none_or(|(known, _)| size <= &known[..]);
    let mut scratch = attention.scratch();
    let mut smallest: Option<(Vec<u64>, Trial, Finding)> = None;
    let mut shrunk = 0;
    let mut later;
    let mut failing = first;
    let end = settings.cases.min(first.case + 1 + FURTHER);
    'cases: loop {
        let mut signatures = Vec::new();
        for finding in failing.verdict.findings.iter().filter(|finding| finding.kind().is_failure()) {
            let signature = finding.signature();
            if signatures.contains(&signature) {
                continue;
            }
            if let Some(it) = shrink(attention, &failing.trial, &signature, BUDGET, &mut scratch) {
                let size = attention.size(&it.trial);
                if smallest.as_ref().is_none_or(|(smallest, ..)| size < *smallest) {
                    smallest = Some((size, it.trial, it.finding));
                }
            }
            signatures.push(signature);
            shrunk += 1;
            if shrunk == SHRUNK || smallest.as_ref().is_some_and(|(size, ..)| enough(size)) {
                break 'cases;
            }
        }
        match next_failing(attention, settings.seed, failing.case + 1..end, &mut scratch, |_| {}) {
            Some(it) => {
                later = it;
                failing = &later;
            }
            None => break,
        }
    }
    let (size, trial, finding) = smallest?;
    let signature = finding.signature();
    let whole = file::replayed(&attention.pair, &trial, &finding);
    let cause = explain(&attention.pair, &whole, "small.case", Some(&signature)).cause;
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
