//! Attention as a [`Subject`]: how cases are drawn, checked and made smaller.

use super::check::{Pair, Scratch};
use super::draw::{Hints, Profile, draw};
use super::numerics::{Block, Split};
use super::relation::SidedRelation;
use super::trial::{Checks, Trial};
use super::{oracle, smaller};
use crate::finding::{Finding, Verdict};
use crate::source::{Stream, mix};
use crate::subject::{Candidate, Subject};

/// A pair of kernels and the cases to run them on.
#[derive(Clone)]
pub struct Attention {
    /// The kernels and how they are judged.
    pub pair: Pair,
    /// Size of the cases.
    pub profile: Profile,
}

impl Attention {
    /// The usual mix of cases.
    pub fn of(pair: Pair) -> Self {
        Attention { pair, profile: Profile::Mixed }
    }

    /// Block and split sizes of both kernels: lengths are drawn around them.
    fn granules(&self) -> Vec<u32> {
        let mut granules = Vec::new();
        for side in [&self.pair.train, &self.pair.infer] {
            // What it computes; what it declares, where only that is known.
            let computed = side.reference.as_ref().map(|it| it.numerics);
            let Some(numerics) = computed.or_else(|| side.kernel.numerics()) else { continue };
            if let Block::Size(block) = numerics.softmax.block {
                granules.push(block);
            }
            if let Split::FixedSize(split) = numerics.grid.split {
                granules.push(split);
            }
        }
        granules.sort_unstable();
        granules.dedup();
        granules
    }
}

impl Subject for Attention {
    type Trial = Trial;
    type Scratch = Scratch;

    fn scratch(&self) -> Scratch {
        self.pair.scratch()
    }

    fn draw(&self, seed: u64, index: u64) -> Trial {
        let captured = self.pair.captured.as_deref().map(|captured| captured.shape());
        let one_rank = [&self.pair.train, &self.pair.infer].map(|side| !side.kernel.context_parallel());
        let hints = Hints { granules: self.granules(), captured: captured.as_ref(), one_rank };
        let case = draw(&mut Stream::new(seed, index), self.profile, &hints);
        // Consecutive cases take consecutive places of the rotation; each seed draws other parameters.
        Trial { case, checks: Checks::Turn(mix(seed, 0).wrapping_add(index)) }
    }

    fn check(&self, trial: &Trial, scratch: &mut Scratch) -> Verdict {
        self.pair.check(trial, scratch)
    }

    fn focus(&self, trial: &Trial, finding: &Finding) -> Trial {
        let checks = match finding {
            Finding::Mismatch(_) => Checks::Only { oracle: false, pair: true, relation: None },
            Finding::Inaccurate(_) | Finding::Undecided { .. } => Checks::Only { oracle: true, pair: false, relation: None },
            Finding::NotInvariant { relation, .. } | Finding::Fault { relation: Some(relation), .. } => {
                match relation.parse::<SidedRelation>() {
                    Ok(relation) => Checks::Only { oracle: false, pair: false, relation: Some(relation) },
                    Err(_) => trial.checks,
                }
            }
            Finding::Fault { .. } | Finding::Skipped { .. } => {
                let oracle = self.pair.oracle != oracle::Mode::Off;
                Checks::Only { oracle, pair: true, relation: None }
            }
        };
        Trial { case: trial.case.clone(), checks }
    }

    fn size(&self, trial: &Trial) -> Vec<u64> {
        smaller::size(trial)
    }

    fn positions(&self, trial: &Trial, pass: usize) -> Option<usize> {
        smaller::positions(trial, pass)
    }

    fn smaller(&self, trial: &Trial, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
        smaller::smaller(trial, &|case| self.pair.inputs(case), pass, position)
    }

    fn redraw(&self, trial: &Trial, n: u32) -> Option<Trial> {
        smaller::redraw(trial, n)
    }
}
