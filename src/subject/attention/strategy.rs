//! Cases as a proptest strategy, for property tests of a kernel. Shrinking steps through this crate's own candidates.

use super::draw::{Hints, Profile, draw};
use super::trial::{Checks, Trial};
use super::{Case, Inputs, smaller};
use crate::source::Stream;
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::VecDeque;

/// Drawn cases of a profile.
pub fn cases(profile: Profile) -> Cases {
    Cases { profile }
}

/// See [`cases`].
#[derive(Clone, Copy, Debug)]
pub struct Cases {
    profile: Profile,
}

impl Strategy for Cases {
    type Tree = CaseTree;
    type Value = Case;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        use proptest::prelude::RngExt;
        // The case is a function of one number, so that proptest's own seeds stay valid when it draws differently.
        let seed: u64 = runner.rng().random();
        let case = draw(&mut Stream::new(seed, 0), self.profile, &Hints::default());
        Ok(CaseTree { current: case.clone(), failing: case, pass: 0, position: 0, queue: VecDeque::new() })
    }
}

/// A case and the smaller ones still to try.
#[derive(Clone, Debug)]
pub struct CaseTree {
    current: Case,
    /// The smallest case known to fail.
    failing: Case,
    pass: usize,
    position: usize,
    queue: VecDeque<Case>,
}

impl CaseTree {
    /// Moves to the next candidate smaller than the failing case; back to the failing case when there is none.
    fn advance(&mut self) -> bool {
        let trial = Trial::new(self.failing.clone(), Checks::Only { oracle: false, pair: false, relation: None });
        let size = smaller::size(&trial);
        loop {
            if let Some(case) = self.queue.pop_front() {
                let candidate = Trial { case, ..trial.clone() };
                if smaller::size(&candidate) < size {
                    self.current = candidate.case;
                    return true;
                }
                continue;
            }
            match smaller::positions(&trial, self.pass) {
                None => {
                    self.current = self.failing.clone();
                    return false;
                }
                Some(count) if self.position >= count => (self.pass, self.position) = (self.pass + 1, 0),
                Some(_) => {
                    let inputs = |case: &Case| Inputs::new(case, None);
                    let candidates = smaller::smaller(&trial, &inputs, self.pass, self.position);
                    self.queue.extend(candidates.into_iter().map(|candidate| candidate.trial.case));
                    self.position += 1;
                }
            }
        }
    }
}

impl ValueTree for CaseTree {
    type Value = Case;

    fn current(&self) -> Case {
        self.current.clone()
    }

    fn simplify(&mut self) -> bool {
        if self.current != self.failing {
            // The last candidate failed too: start again from it.
            self.failing = self.current.clone();
            (self.pass, self.position) = (0, 0);
            self.queue.clear();
        }
        self.advance()
    }

    fn complicate(&mut self) -> bool {
        self.advance()
    }
}
