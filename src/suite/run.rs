//! Draws cases for one test until enough are compared.

use super::{Failure, Suite, Test};
use crate::finding::{Finding, Path, Verdict};
use crate::lab::check_one;
use crate::subject::Subject;
use crate::subject::attention::trial::{Checks, Trial};
use std::collections::BTreeMap;
use std::fmt;

/// Cases that may be drawn for each one that must be compared. A draw outside [`Suite::only`] takes microseconds.
const DRAWS_PER_CASE: u64 = 4096;

/// Cases that a kernel may refuse for each one that must be compared. A kernel that supports less must say so by [`Suite::only`].
const REFUSALS_PER_CASE: u64 = 64;

/// Reasons that a report lists; the rest are counted.
const REASONS_SHOWN: usize = 8;

/// What one test did.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which test.
    pub test: Test,
    /// Cases in which something was compared.
    pub compared: u64,
    /// Relations run, on the training path and on the inference path.
    pub relations: [u64; 2],
    /// Cases drawn.
    pub drawn: u64,
    /// Drawn cases outside [`Suite::only`].
    pub outside: u64,
    /// Drawn cases that have nothing that the test asks about: one sequence has no company.
    pub without: u64,
    /// Run cases in which nothing was compared: the kernel refused them, or nothing was there.
    pub refused: u64,
    /// What was left out, not run or not decided, and in how many checks.
    pub reasons: BTreeMap<String, u64>,
    /// Compared cases in which some row has three keys, so that an order exists: only [`Test::OrderSensitive`] asks.
    pub capable: u64,
    /// Those whose bits another order of summation would have changed.
    pub sensitive: u64,
}

impl Report {
    fn new(test: Test) -> Self {
        Report {
            test,
            compared: 0,
            relations: [0, 0],
            drawn: 0,
            outside: 0,
            without: 0,
            refused: 0,
            reasons: BTreeMap::new(),
            capable: 0,
            sensitive: 0,
        }
    }

    fn left_out(&mut self, reason: &str) {
        *self.reasons.entry(format!("left out: {reason}")).or_default() += 1;
    }

    fn note(&mut self, verdict: &Verdict, checks: &Checks) {
        for finding in &verdict.findings {
            let reason = match finding {
                Finding::Skipped { reason, .. } => reason.clone(),
                Finding::Undecided { output, .. } => format!("undecided elements of {output}"),
                _ => continue,
            };
            *self.reasons.entry(reason).or_default() += 1;
        }
        verdict.left_out.iter().for_each(|reason| self.left_out(reason));
        if let Checks::Only { relation: Some(relation), .. } = checks {
            self.relations[usize::from(relation.path == Path::Infer)] += verdict.relations;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} cases compared", self.test, self.compared)?;
        if let Test::Relation(_) = self.test {
            write!(f, " (relations: {} on the training path, {} on the inference path)", self.relations[0], self.relations[1])?;
        }
        if self.test == Test::OrderSensitive {
            write!(f, ", {} of {} with three keys in a row are sensitive to order", self.sensitive, self.capable)?;
        }
        let run = self.compared + self.refused;
        let share = 100.0 * self.refused as f64 / run.max(1) as f64;
        write!(f, "; {} refused ({share:.0}% of {run} run)", self.refused)?;
        write!(f, "; {} drawn, {} of them outside `only`, {} without what is tested", self.drawn, self.outside, self.without)?;
        let mut reasons: Vec<(&String, &u64)> = self.reasons.iter().collect();
        reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        for (reason, count) in reasons.iter().take(REASONS_SHOWN) {
            write!(f, "\n  {count} x {reason}")?;
        }
        if reasons.len() > REASONS_SHOWN {
            write!(f, "\n  and {} more reasons", reasons.len() - REASONS_SHOWN)?;
        }
        Ok(())
    }
}

impl Suite {
    /// Runs one test.
    ///
    /// # Errors
    /// What was found, shrunk; or that too little was compared for the test to mean anything.
    pub fn run(&self, test: Test) -> Result<Report, Failure> {
        super::stamp::silence_kernel_panics();
        let attention = &self.attention;
        let mut scratch = attention.scratch();
        let mut report = Report::new(test);
        for index in 0..self.cases.saturating_mul(DRAWS_PER_CASE) {
            if report.compared >= self.cases || report.refused >= self.cases.saturating_mul(REFUSALS_PER_CASE) {
                break;
            }
            let drawn = attention.draw(self.seed, index);
            report.drawn += 1;
            if test != Test::RefusedOrRight && self.only.is_some_and(|accepts| !accepts(&drawn.case.problem)) {
                report.outside += 1;
                continue;
            }
            let all = test.checks(&attention.pair, &drawn, self.seed, index);
            if all.is_empty() {
                report.without += 1;
                continue;
            }
            let mut compared = false;
            drawn.left_out.iter().for_each(|reason| report.left_out(reason));
            for checks in all {
                let trial = Trial::new(drawn.case.clone(), checks);
                let verdict = check_one(attention, &trial, &mut scratch);
                // A case that fails could fail; saying what it shows is the other tests' work.
                let asked = verdict.failure().filter(|_| test != Test::OrderSensitive);
                if let Some(finding) = asked {
                    return Err(Failure::Found(Box::new(self.found(test, index, &trial, finding, &mut scratch))));
                }
                report.note(&verdict, &trial.checks);
                compared |= test.compared(&verdict);
            }
            report.compared += u64::from(compared);
            report.refused += u64::from(!compared);
            if test == Test::OrderSensitive && compared {
                let inputs = attention.pair.inputs(&drawn.case);
                let sensitive = attention.pair.witnessed(&drawn.case, &inputs);
                report.capable += u64::from(sensitive.is_some());
                report.sensitive += u64::from(sensitive == Some(true));
            }
        }
        // A refusal is an answer of its own there: one right answer beside them is enough.
        let least = if test == Test::RefusedOrRight { 1 } else { self.cases };
        if report.compared < least {
            return Err(Failure::TooFew { report, wanted: least });
        }
        if test == Test::OrderSensitive && report.sensitive == 0 {
            return Err(Failure::Blind { report });
        }
        Ok(report)
    }
}
