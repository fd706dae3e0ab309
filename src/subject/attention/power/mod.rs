//! How much a pass means: the campaign is run on kernels with [planted faults](super::mutant) and must find every one of them, on the
//! kernels without a fault and must find nothing.
//!
//! A fault on **both** sides is the score that counts: a bug that both paths share is what a comparison of the two cannot see.

mod clean;
mod hunt;
pub mod judge;
pub(crate) mod parallel;
mod rivals;
mod small;

pub use clean::{Clean, FalseAlarm, clean, clean_asked, clean_kernels};
pub use hunt::{Check, Hunt, Kill};
pub use rivals::{Beside, RivalAlarms, rival_alarms};
pub use small::{Reported, Small};

use super::Attention;
use super::check::Pair;
use super::implementation::Implementation;
use super::mutant::Mutant;
use super::oracle::Mode;
use super::reference::Reference;

/// What is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of every campaign.
    pub seed: u64,
    /// Cases of a mutant's campaign, at most: it ends at the first that fails.
    pub cases: u64,
    /// Cases for the rivals, at most.
    pub rival_cases: u64,
    /// Threads. Nothing but times depends on it.
    pub jobs: usize,
}

/// What became of one mutant.
#[derive(Clone, Debug)]
pub struct Planted {
    /// Which.
    pub mutant: Mutant,
    /// The fault on both sides: the score that counts.
    pub both: Hunt,
    /// The fault in inference alone, the kernel without it in training.
    pub infer: Hunt,
    /// The smallest case made of what was found on both sides.
    pub small: Option<Small>,
    /// The fault on both sides before the rivals.
    pub rivals: Beside,
}

impl Planted {
    /// Whether the cause that is reported is the mutant's.
    pub fn cause_is_right(&self, small: &Small) -> bool {
        small.cause.as_ref().is_some_and(|cause| cause.kind == self.mutant.entry().cause)
    }
}

/// Runs the campaigns of some mutants, each on one thread. `done` sees them as they end, in no order; the result has the order given.
pub fn planted(mutants: &[Mutant], settings: &Settings, mut done: impl FnMut(&Planted)) -> Vec<Planted> {
    parallel::map(settings.jobs, mutants.len(), |n| one(mutants[n], settings), |it| done(it))
}

/// Where a fault stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// On both.
    Both,
    /// In inference, with the kernel without it in training.
    Infer,
}

/// The campaign for one mutant, up to the first case that fails, without what [`planted`] makes of that.
pub fn hunt(mutant: Mutant, sides: Sides, seed: u64, cases: u64) -> Hunt {
    hunt::hunt(&campaign(mutant, sides), seed, cases).0
}

fn campaign(mutant: Mutant, sides: Sides) -> Attention {
    let train = match sides {
        Sides::Both => kernel(mutant),
        Sides::Infer => without(mutant),
    };
    attention(train, kernel(mutant))
}

fn one(mutant: Mutant, settings: &Settings) -> Planted {
    let both = campaign(mutant, Sides::Both);
    let (found, first) = hunt::hunt(&both, settings.seed, settings.cases);
    let clean = attention(without(mutant), without(mutant));
    let small = first.and_then(|first| small::small(&both, mutant, first, settings));
    let infer = hunt(mutant, Sides::Infer, settings.seed, settings.cases);
    let rivals = rivals::beside(&both, &clean, settings.seed, settings.rival_cases);
    Planted { mutant, both: found, infer, small, rivals }
}

/// The kernel with the fault, and with the fields that it needs.
pub fn kernel(mutant: Mutant) -> Reference {
    Reference::parse(&format!("ref:aligned+{mutant}")).expect("the catalogue's settings are fields of a kernel")
}

/// The same kernel without the fault.
pub fn without(mutant: Mutant) -> Reference {
    Reference { mutant: None, ..kernel(mutant) }
}

/// Two kernels as a campaign runs them; a witness tells nothing of a case that fails.
fn attention(train: Reference, infer: Reference) -> Attention {
    let [train, infer] = [train, infer].map(Implementation::reference);
    Attention::of(Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: false })
}
