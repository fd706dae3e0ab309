//! Makes a failing trial small: greedy, structural changes first, then values, always keeping the same finding.
//!
//! The result is a fixed point: it fails, no single listed step makes it smaller and still fails, and shrinking it again changes
//! nothing. The order is deterministic and the budget counts evaluations, so the same trial shrinks to the same bytes everywhere.

use crate::finding::Finding;
use crate::subject::Subject;

/// Evaluations after which shrinking stops.
pub const BUDGET: u64 = 60_000;

/// New values tried at each structural candidate, after the kept ones.
pub const REDRAWS: u32 = 16;

/// The outcome of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk<T> {
    /// The smallest trial found.
    pub trial: T,
    /// Its finding, with the numbers of the small case.
    pub finding: Finding,
    /// Trials run.
    pub evaluations: u64,
    /// True when the budget ended it before a fixed point.
    pub exhausted: bool,
}

/// Shrinks a trial that has a finding with the given signature. `None` when it does not: there is nothing to keep.
pub fn shrink<S: Subject>(
    subject: &S,
    trial: &S::Trial,
    signature: &str,
    budget: u64,
    scratch: &mut S::Scratch,
) -> Option<Shrunk<S::Trial>> {
    let mut search = Search { subject, signature, budget, scratch, evaluations: 0, exhausted: false };
    let finding = search.finding(trial)?;
    let mut current = subject.focus(trial, &finding);
    // Focusing drops only work that the finding does not need; where it does (a finding that another check masks), keep all.
    let mut finding = match search.finding(&current) {
        Some(finding) => finding,
        None => {
            current = trial.clone();
            finding
        }
    };
    loop {
        let before = subject.size(&current);
        let mut pass = 0;
        while subject.positions(&current, pass).is_some() {
            let mut position = 0;
            while position < subject.positions(&current, pass).unwrap_or(0) {
                match search.improve(&current, pass, position) {
                    Some((smaller, its_finding)) => (current, finding) = (smaller, its_finding),
                    None => position += 1,
                }
            }
            pass += 1;
        }
        let exhausted = search.exhausted;
        if exhausted || subject.size(&current) == before {
            return Some(Shrunk { trial: current, finding, evaluations: search.evaluations, exhausted });
        }
    }
}

struct Search<'a, S: Subject> {
    subject: &'a S,
    signature: &'a str,
    budget: u64,
    scratch: &'a mut S::Scratch,
    evaluations: u64,
    /// Something was left untried for want of budget.
    exhausted: bool,
}

impl<S: Subject> Search<'_, S> {
    fn finding(&mut self, trial: &S::Trial) -> Option<Finding> {
        self.evaluations += 1;
        let verdict = self.subject.check(trial, self.scratch);
        verdict.findings.into_iter().find(|finding| finding.signature() == self.signature)
    }

    fn improve(&mut self, current: &S::Trial, pass: usize, position: usize) -> Option<(S::Trial, Finding)> {
        let size = self.subject.size(current);
        for candidate in self.subject.smaller(current, pass, position) {
            if self.subject.size(&candidate.trial) >= size {
                continue;
            }
            let redraws = if candidate.redraw { REDRAWS } else { 0 };
            for n in 0..=redraws {
                let trial = match n {
                    0 => candidate.trial.clone(),
                    n => match self.subject.redraw(&candidate.trial, n) {
                        Some(trial) if self.subject.size(&trial) < size => trial,
                        Some(_) => continue,
                        None => break,
                    },
                };
                if self.evaluations >= self.budget {
                    self.exhausted = true;
                    return None;
                }
                if let Some(finding) = self.finding(&trial) {
                    return Some((trial, finding));
                }
            }
        }
        None
    }
}
