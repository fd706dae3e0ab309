//! Shrinking that ends in time, also where every step waits for a kernel that hangs.

use crate::finding::{Finding, Verdict};
use crate::subject::attention::Attention;
use crate::subject::attention::trial::Trial;
use crate::subject::{Candidate, Subject};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A subject that is not run after a moment: then no step shows anything, and the shrinker keeps what it has.
pub(super) struct Until<'a> {
    attention: &'a Attention,
    end: Option<Instant>,
    /// The first trial is the one that is to be made small: it is run in any case.
    begun: AtomicBool,
    passed: AtomicBool,
}

impl<'a> Until<'a> {
    pub(super) fn new(attention: &'a Attention, end: Option<Instant>) -> Self {
        Until { attention, end, begun: AtomicBool::new(false), passed: AtomicBool::new(false) }
    }

    /// Whether something was left untried.
    pub(super) fn passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Subject for Until<'_> {
    type Trial = Trial;
    type Scratch = <Attention as Subject>::Scratch;

    fn scratch(&self) -> Self::Scratch {
        self.attention.scratch()
    }

    fn draw(&self, seed: u64, index: u64) -> Trial {
        self.attention.draw(seed, index)
    }

    fn check(&self, trial: &Trial, scratch: &mut Self::Scratch) -> Verdict {
        if self.begun.swap(true, Ordering::Relaxed) && self.end.is_some_and(|end| Instant::now() >= end) {
            self.passed.store(true, Ordering::Relaxed);
            return Verdict::default();
        }
        self.attention.check(trial, scratch)
    }

    fn focus(&self, trial: &Trial, finding: &Finding) -> Trial {
        self.attention.focus(trial, finding)
    }

    fn size(&self, trial: &Trial) -> Vec<u64> {
        self.attention.size(trial)
    }

    fn positions(&self, trial: &Trial, pass: usize) -> Option<usize> {
        self.attention.positions(trial, pass)
    }

    fn smaller(&self, trial: &Trial, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
        match self.passed() {
            true => Vec::new(),
            false => self.attention.smaller(trial, pass, position),
        }
    }

    fn redraw(&self, trial: &Trial, n: u32) -> Option<Trial> {
        self.attention.redraw(trial, n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shrink::{BUDGET, shrink};
    use crate::subject::attention::check::Pair;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::oracle::Mode;
    use crate::subject::attention::reference::Reference;

    #[test]
    fn shrinking_that_is_out_of_time_keeps_what_it_has() {
        let kernel = |name: &str| Implementation::reference(Reference::parse(name).unwrap());
        let (train, infer) = (kernel("ref:aligned"), kernel("ref:p-bf16"));
        let attention = Attention::of(Pair { train, infer, oracle: Mode::Off, captured: None, witness: false });
        let mut scratch = attention.scratch();
        let trial = attention.draw(1, 0);
        let signature = attention.check(&trial, &mut scratch).failure().expect("P in bf16 changes bits").signature();
        let late = Until::new(&attention, Some(Instant::now()));
        let kept = shrink(&late, &trial, &signature, BUDGET, &mut scratch).expect("the first trial is run");
        assert_eq!((kept.trial.case, late.passed()), (trial.case.clone(), true));
        let free = Until::new(&attention, None);
        let small = shrink(&free, &trial, &signature, BUDGET, &mut scratch).expect("it shows");
        assert!(!free.passed() && attention.size(&small.trial) < attention.size(&trial));
    }
}
