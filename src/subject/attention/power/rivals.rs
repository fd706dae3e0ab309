//! The same kernels before the checks that the field uses.

use super::judge::{Evidence, RIVALS};
use super::{Settings, attention, parallel};
use crate::subject::Subject;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::{Attention, Cache, Case, Data, Regime};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// When the rivals, in their order, rejected a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The first case on which each of [`RIVALS`] rejected the kernel, and would not have rejected it without the fault; `None`: missed.
    pub killed: Vec<Option<u64>>,
    /// Cases each was given, at most.
    pub cases: u64,
    /// Time for all of them.
    pub seconds: f64,
}

/// A rival and a kernel without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RivalAlarms {
    /// The rival.
    pub name: &'static str,
    /// Its rule.
    pub about: &'static str,
    /// Cases that it rejected.
    pub rejected: u64,
    /// Cases.
    pub cases: u64,
}

/// A drawn case as a rival sees it: the generator's shape and plans, with the field's values and a fresh pool. That is generous: the
/// shapes are much of what finds faults, and a test of the field's has few.
fn as_the_field_has_it(attention: &Attention, seed: u64, index: u64) -> Case {
    let mut case = attention.draw(seed, index).case;
    if let Data::Drawn { regime, .. } = &mut case.data {
        *regime = Regime::Normal;
    }
    if let Cache::Paged { recycled, .. } = &mut case.infer.cache {
        *recycled = false;
    }
    case
}

/// Gives cases to all rivals until each has rejected one. What it rejects in `clean` too, the kernel without the fault, is a false
/// alarm, and no kill.
pub(super) fn beside(attention: &Attention, clean: &Attention, seed: u64, cases: u64) -> Beside {
    let started = Instant::now();
    let mut killed = vec![None; RIVALS.len()];
    for index in 0..cases {
        let case = as_the_field_has_it(attention, seed, index);
        let evidence = Evidence::new(&attention.pair, &case);
        let without = Evidence::new(&clean.pair, &case);
        for (killed, rival) in killed.iter_mut().zip(RIVALS) {
            if killed.is_none() && rival.rejects(&evidence) && !rival.rejects(&without) {
                *killed = Some(index);
            }
        }
        if killed.iter().all(Option::is_some) {
            break;
        }
    }
    Beside { killed, cases, seconds: started.elapsed().as_secs_f64() }
}

/// Cases of one piece of work.
const CHUNK: u64 = 100;

/// What the rivals reject of `ref:aligned`, which has no fault.
pub fn rival_alarms(settings: &Settings) -> Vec<RivalAlarms> {
    let attention = attention(Reference::default(), Reference::default());
    let cases = settings.rival_cases;
    let chunk = |n: usize| {
        let first = n as u64 * CHUNK;
        let mut rejected = vec![0u64; RIVALS.len()];
        for index in first..(first + CHUNK).min(cases) {
            let case = as_the_field_has_it(&attention, settings.seed, index);
            let evidence = Evidence::new(&attention.pair, &case);
            rejected.iter_mut().zip(RIVALS).for_each(|(count, rival)| *count += u64::from(rival.rejects(&evidence)));
        }
        rejected
    };
    let chunks = parallel::map(settings.jobs, cases.div_ceil(CHUNK) as usize, chunk, |_| {});
    RivalAlarms::of((0..RIVALS.len()).map(|n| chunks.iter().map(|chunk| chunk[n]).sum()), cases)
}

impl RivalAlarms {
    /// How many of so many cases each rival rejected, in the order of [`RIVALS`].
    pub fn of(rejected: impl IntoIterator<Item = u64>, cases: u64) -> Vec<RivalAlarms> {
        let alarms = RIVALS.iter().zip(rejected);
        alarms.map(|(rival, rejected)| RivalAlarms { name: rival.name(), about: rival.about(), rejected, cases }).collect()
    }
}
