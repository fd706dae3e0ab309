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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Skip, Verdict};
    use crate::subject::Candidate;

    /// Numbers that are lowered, dropped and drawn again; fails by the rule given, which is called once for each evaluation.
    struct Numbers<F: Fn(&Trial) -> bool>(F);

    #[derive(Clone, Debug, PartialEq)]
    struct Trial {
        numbers: Vec<u64>,
        /// Checked only for what is kept.
        focused: bool,
    }

    fn trial(numbers: &[u64]) -> Trial {
        Trial { numbers: numbers.to_vec(), focused: false }
    }

    impl<F: Fn(&Trial) -> bool + Sync> Subject for Numbers<F> {
        type Trial = Trial;
        type Scratch = u64;

        fn scratch(&self) -> u64 {
            0
        }

        fn draw(&self, _seed: u64, _index: u64) -> Trial {
            trial(&[])
        }

        fn check(&self, trial: &Trial, evaluations: &mut u64) -> Verdict {
            *evaluations += 1;
            let skipped = |reason: &str| Finding::Skipped { what: Skip::Case, reason: reason.into() };
            // Another finding comes first, and is not the one to keep.
            let findings = [Some(skipped("other")), (self.0)(trial).then(|| skipped("kept"))];
            Verdict { findings: findings.into_iter().flatten().collect(), ..Verdict::default() }
        }

        fn focus(&self, trial: &Trial, _finding: &Finding) -> Trial {
            Trial { focused: true, ..trial.clone() }
        }

        fn size(&self, trial: &Trial) -> Vec<u64> {
            vec![trial.numbers.len() as u64, trial.numbers.iter().sum()]
        }

        fn positions(&self, trial: &Trial, pass: usize) -> Option<usize> {
            (pass < 2).then_some(trial.numbers.len())
        }

        /// First pass: without one number, drawn again if that shows nothing. Second pass: one number as it is (no step), then lower.
        fn smaller(&self, trial: &Trial, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
            let mut fewer = trial.clone();
            if pass == 0 {
                fewer.numbers.remove(position);
                return vec![Candidate { trial: fewer, redraw: true }];
            }
            fewer.numbers[position] = fewer.numbers[position].saturating_sub(1);
            [trial.clone(), fewer].into_iter().map(|trial| Candidate { trial, redraw: false }).collect()
        }

        /// Every number grows by `n` tens; the seventh try may be as large as the trial itself, the eighth is larger, and there is no tenth.
        fn redraw(&self, trial: &Trial, n: u32) -> Option<Trial> {
            let mut other = trial.clone();
            other.numbers.iter_mut().for_each(|it| *it += u64::from(n) * 10);
            match n {
                7 => other.numbers = vec![1, 1],
                8 => other.numbers.extend([0; 9]),
                _ => {}
            }
            (n < 10).then_some(other)
        }
    }

    fn shrunk(fails: impl Fn(&Trial) -> bool + Sync, from: &[u64], budget: u64) -> Option<Shrunk<Trial>> {
        let mut evaluations = 0;
        let small = shrink(&Numbers(fails), &trial(from), "skipped kept", budget, &mut evaluations)?;
        assert_eq!(small.evaluations, evaluations, "every run is counted");
        assert_eq!(small.finding.signature(), "skipped kept");
        Some(small)
    }

    /// Two numbers of at least 3 are needed: that is where it ends, at the first position as at the last.
    #[test]
    fn ends_where_no_step_still_fails() {
        let fails =
            |trial: &Trial| trial.numbers.iter().filter(|&&it| it >= 3).count() >= 2 && trial.numbers.iter().max() < Some(&10);
        for from in [&[5, 0, 4, 1, 3][..], &[3, 3], &[9, 9, 9], &[0, 0, 0, 0, 8, 7]] {
            let small = shrunk(fails, from, BUDGET).expect("it fails");
            assert_eq!((small.trial.numbers, small.exhausted), (vec![3, 3], false), "{from:?}");
            assert!(small.trial.focused);
        }
    }

    #[test]
    fn nothing_is_kept_of_another_finding() {
        assert!(shrunk(|_| false, &[5, 4], BUDGET).is_none());
    }

    /// A finding that a focused check no longer shows is shrunk with everything checked.
    #[test]
    fn focus_is_given_up_where_it_hides_the_finding() {
        let small = shrunk(|trial| !trial.focused && trial.numbers.iter().any(|&it| it > 1), &[0, 6], BUDGET).expect("it fails");
        assert_eq!(small.trial, trial(&[2]));
    }

    /// Dropping a number shows only with other values: the ninth try has them, the two before being none that may be taken.
    #[test]
    fn structural_steps_are_tried_with_other_values() {
        let small = shrunk(|trial| trial.numbers.len() == 2 || trial.numbers.len() > 9 || trial.numbers == [91], &[1, 1], BUDGET);
        let small = small.expect("it fails");
        assert_eq!((small.trial.numbers, small.exhausted), (vec![91], false));
        // The trial, whole and focused; [1] as it is and seven tries, the last of them taken. Then, and once more to see that nothing
        // changes: eight runs without any number, one with a lower one.
        assert_eq!(small.evaluations, 2 + 8 + 2 * (8 + 1));
    }

    /// A step that is no smaller costs nothing, and the budget ends everything with what was found so far.
    #[test]
    fn budget_counts_evaluations() {
        let fails = |trial: &Trial| trial.numbers.len() == 1;
        let full = shrunk(fails, &[6], BUDGET).expect("it fails");
        assert_eq!((full.trial.numbers, full.exhausted), (vec![0], false));
        // Twice to begin with, eight runs without the number in each of two rounds, six steps down.
        let counted = 2 + 8 + 6 + 8;
        assert_eq!(full.evaluations, counted);
        let exact = shrunk(fails, &[6], counted).expect("it fails");
        assert_eq!((exact.trial.numbers, exact.exhausted), (vec![0], false));
        for budget in 2..counted {
            let part = shrunk(fails, &[6], budget).expect("it fails");
            assert_eq!((part.evaluations, part.exhausted), (budget, true));
        }
        let part = shrunk(fails, &[6], 2 + 8 + 2).expect("it fails");
        assert_eq!(part.trial.numbers, [4]);
    }
}
