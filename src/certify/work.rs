//! Units of work, and what is done for each. A unit is a case of a stratum, a planted fault, or a negative control.

use super::claim::Claim;
use super::control::control;
use super::outside;
use super::record::{CaseRecord, HuntRecord, Record};
use crate::finding::Verdict;
use crate::lab::check_one;
use crate::subject::Subject;
use crate::subject::attention::battery::{Battery, Part};
use crate::subject::attention::check::{OutputDigest, Pair, Scratch};
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::narrowed::Narrowed;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::pin::Pins;
use crate::subject::attention::power;
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{Attention, reference::Reference};
use std::sync::Arc;

/// A unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A case.
    Case(Part, u64),
    /// A planted fault is looked for in the battery's cases.
    Mutant(Mutant),
    /// A claim's control is.
    Control(Claim),
}

/// The strata in which faults are looked for, in this order: kept cases would be the faults' own.
const HUNTED: [Part; 4] = [Part::Random, Part::Splits, Part::Boundary, Part::Pairs];

/// Where the fault is one that only long rows show.
const HUNTED_LONG: [Part; 4] = [Part::Splits, Part::Random, Part::Boundary, Part::Pairs];

/// Cases among the calls that are certified, in which a fault or a control is looked for where these are not all: the rarest fault takes a
/// few hundred.
const OWN: u64 = 2000;

/// Everything that a certificate needs to have been run, in a fixed order.
pub struct Work {
    /// The cases.
    pub battery: Battery,
    /// The claims.
    pub claims: Vec<Claim>,
    /// Index of the first unit of each stratum, and of what comes after them.
    starts: Vec<(Part, u64)>,
    /// Cases of all strata.
    cases: u64,
}

impl Work {
    /// All units of a battery.
    pub fn new(battery: Battery, claims: Vec<Claim>) -> Work {
        let mut cases = 0;
        let starts = Part::ALL.map(|part| {
            let start = cases;
            cases += battery.cases(part);
            (part, start)
        });
        Work { battery, claims, starts: starts.to_vec(), cases }
    }

    /// Number of units.
    pub fn units(&self) -> u64 {
        self.cases + (Mutant::ALL.len() + self.controls().count()) as u64
    }

    /// Claims that have a control.
    fn controls(&self) -> impl Iterator<Item = Claim> {
        self.claims.iter().copied().filter(|&claim| claim != Claim::VersionEqual)
    }

    /// A unit by number.
    ///
    /// # Panics
    /// From [`Work::units`] on.
    pub fn unit(&self, n: u64) -> Unit {
        if n < self.cases {
            let (part, start) = self.starts[self.starts.partition_point(|&(_, start)| start <= n) - 1];
            return Unit::Case(part, n - start);
        }
        let n = (n - self.cases) as usize;
        match Mutant::ALL.get(n) {
            Some(&mutant) => Unit::Mutant(mutant),
            None => Unit::Control(self.controls().nth(n - Mutant::ALL.len()).expect("a unit of this work")),
        }
    }

    /// Number of a case's unit.
    pub fn number(&self, part: Part, index: u64) -> u64 {
        self.starts.iter().find(|(it, _)| *it == part).map_or(0, |(_, start)| start + index)
    }

    /// Fresh buffers.
    pub fn scratch(&self) -> Scratch {
        self.battery.attention.scratch()
    }

    /// Does a unit.
    pub fn run(&self, unit: Unit, scratch: &mut Scratch) -> Record {
        match unit {
            Unit::Case(part, index) => Record::Case(self.case(part, index, scratch)),
            Unit::Mutant(mutant) => Record::Mutant(self.search(&Hunt::of_mutant(mutant))),
            Unit::Control(claim) => Record::Control(self.search(&Hunt::of_control(claim))),
        }
    }

    /// Does a unit again beside its record. Where a hunt found something, the case that it names is enough: that this one fails is what a
    /// certificate counts. A case that does not fail alone may fail after others: then all of them are run.
    pub fn run_beside(&self, unit: Unit, recorded: &Record, scratch: &mut Scratch) -> Record {
        let hunt = match unit {
            Unit::Case(..) => None,
            Unit::Mutant(mutant) => Some(Hunt::of_mutant(mutant)),
            Unit::Control(claim) => Some(Hunt::of_control(claim)),
        };
        match (hunt, unit, recorded) {
            (Some(hunt), Unit::Mutant(_), Record::Mutant(it)) if self.finds(&hunt, it) => recorded.clone(),
            (Some(hunt), Unit::Control(_), Record::Control(it)) if self.finds(&hunt, it) => recorded.clone(),
            _ => self.run(unit, scratch),
        }
    }

    fn case(&self, part: Part, index: u64, scratch: &mut Scratch) -> CaseRecord {
        case_on(&self.battery, self.battery.attention(part), part, index, scratch).unwrap_or_else(|| CaseRecord {
            part: part.name().to_owned(),
            index,
            ..CaseRecord::default()
        })
    }

    /// Whether there are calls that the kernels do not take or that pins exclude, or outputs that they do not have.
    fn is_restricted(&self) -> bool {
        let Attention { pair, pins, .. } = &self.battery.attention;
        let outputs = [&pair.train, &pair.infer].iter().all(|it| it.kernel.has_lse());
        *pins != Pins::default() || !pair.scope().takes_every_call() || !outputs
    }

    /// The battery for a hunt's kernels: its strata and its seed, with lengths drawn around their blocks and splits. With the calls that the
    /// kernels of the battery take and the outputs that they have, under its pins; or `elsewhere` too.
    fn battery_of(&self, hunt: &Hunt, elsewhere: bool) -> Battery {
        let [train, infer] = hunt.kernels.clone();
        let own = &self.battery.attention;
        let (train, infer, pins) = match elsewhere || !self.is_restricted() {
            true => (train, infer, Pins::default()),
            false => {
                let within = |it: Implementation, other: &Implementation| {
                    Implementation::kernel(Arc::new(Narrowed::within(it.kernel, &*other.kernel)))
                };
                (within(train, &own.pair.train), within(infer, &own.pair.infer), own.pins)
            }
        };
        let pair = Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: false };
        Battery::new(self.battery.size, self.battery.seed, &Attention { pins, ..Attention::of(pair) })
    }

    /// Whether calls that are not certified may show it too. That a claim could have failed must show with the calls that it is about.
    fn looks_elsewhere(&self, hunt: &Hunt) -> bool {
        self.is_restricted() && hunt.claim.is_none()
    }

    /// Looks among the calls that are certified; for a planted fault that does not show there, among all.
    fn search(&self, hunt: &Hunt) -> HuntRecord {
        if !self.is_restricted() {
            return self.search_among(hunt, false, u64::MAX);
        }
        let own = self.search_among(hunt, false, OWN);
        if own.found.is_some() || !self.looks_elsewhere(hunt) {
            return own;
        }
        let all = self.search_among(hunt, true, u64::MAX);
        HuntRecord { elsewhere: all.found.is_some(), cases: own.cases + all.cases, ..all }
    }

    /// Runs the battery's cases until one shows what is looked for, or so many have not.
    fn search_among(&self, hunt: &Hunt, elsewhere: bool, most: u64) -> HuntRecord {
        let battery = self.battery_of(hunt, elsewhere);
        let mut scratch = battery.attention.scratch();
        let mut record = HuntRecord { name: hunt.name.clone(), found: None, elsewhere: false, signature: None, cases: 0 };
        for part in hunt.strata {
            for index in 0..battery.cases(part) {
                if record.cases == most {
                    return record;
                }
                let Some(case) = case_on(&battery, battery.attention(part), part, index, &mut scratch) else { continue };
                record.cases += 1;
                if let Some(signature) = hunt.shown(&case) {
                    return HuntRecord { found: Some(case.address()), signature: Some(signature), ..record };
                }
            }
        }
        record
    }

    /// Whether a hunt's case is one of the battery's, and shows what the record says.
    fn finds(&self, hunt: &Hunt, it: &HuntRecord) -> bool {
        let address = it.found.as_deref().and_then(|found| found.split_once(' '));
        let Some((part, index)) = address.and_then(|(part, index)| Some((part.parse::<Part>().ok()?, index.parse().ok()?)))
        else {
            return false;
        };
        if it.elsewhere && !self.looks_elsewhere(hunt) {
            return false;
        }
        let battery = self.battery_of(hunt, it.elsewhere);
        if it.name != hunt.name || !hunt.strata.contains(&part) || index >= battery.cases(part) {
            return false;
        }
        let record = case_on(&battery, battery.attention(part), part, index, &mut battery.attention.scratch());
        record.is_some_and(|record| it.signature.is_some() && hunt.shown(&record) == it.signature)
    }
}

/// A search for a case that shows something.
struct Hunt {
    /// Of the record.
    name: String,
    kernels: [Implementation; 2],
    strata: [Part; 4],
    /// What the case must fail; `None`: anything.
    claim: Option<Claim>,
}

impl Hunt {
    fn of_mutant(mutant: Mutant) -> Hunt {
        let kernel = power::kernel(mutant);
        let kernels = [kernel.clone(), kernel].map(Implementation::reference);
        Hunt { name: mutant.to_string(), kernels, strata: HUNTED, claim: None }
    }

    fn of_control(claim: Claim) -> Hunt {
        let disturbed = control(claim).expect("a claim that has a control");
        // Two paths of one disturbed kernel: what is about one kernel shows on either.
        let kernels = [disturbed.clone(), disturbed];
        let strata = if claim == Claim::SplitInvariant { HUNTED_LONG } else { HUNTED };
        Hunt { name: claim.to_string(), kernels, strata, claim: Some(claim) }
    }

    /// The signature of a case that shows it.
    fn shown(&self, record: &CaseRecord) -> Option<String> {
        let against = |claims: &[String]| self.claim.is_none_or(|claim| claims.iter().any(|it| it == claim.name()));
        record.failures.iter().find(|(_, claims)| against(claims)).map(|(signature, _)| signature.clone())
    }
}

/// Runs a case of a battery on other kernels than its own. `None`: none was drawn.
pub fn case_on(battery: &Battery, attention: &Attention, part: Part, index: u64, scratch: &mut Scratch) -> Option<CaseRecord> {
    Some(record_of(attention, &battery.trial(part, index)?, part, index, scratch))
}

/// Runs a trial that stands at a place of a battery.
pub fn record_of(attention: &Attention, trial: &Trial, part: Part, index: u64, scratch: &mut Scratch) -> CaseRecord {
    scratch.outputs = Some(OutputDigest::default());
    let (verdict, refused): (Verdict, u64) = match part {
        Part::Outside => outside::check(&attention.pair, &trial.case, scratch),
        _ => (check_one(attention, trial, scratch), 0),
    };
    let outputs = scratch.outputs.take().map(OutputDigest::finish).unwrap_or_default();
    CaseRecord { refused, ..CaseRecord::new(part, index, outputs, &verdict) }
}

/// The kernel of which another order is tried, where neither side is a reference kernel.
pub(super) fn witness(pair: &Pair) -> String {
    let reference = pair.train.reference.as_ref().or(pair.infer.reference.as_ref());
    reference.map_or_else(
        || "the reference kernel, with the arithmetic that is declared, in the kernels' place".to_owned(),
        |it: &std::sync::Arc<Reference>| it.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::battery::Size;
    use crate::subject::attention::per_sequence::{PerSequence, SequenceCall};

    fn work(pins: &str) -> Work {
        let kernel = Implementation::reference(Reference::default());
        let pair = Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Enclosure, captured: None, witness: true };
        let attention = Attention { pins: pins.parse().expect("pins"), ..Attention::of(pair) };
        Work::new(Battery::new(Size::Quick, 1, &attention), vec![Claim::TrainEqInfer, Claim::ChunkInvariant])
    }

    fn hunt(work: &Work, unit: Unit) -> HuntRecord {
        match work.run(unit, &mut work.scratch()) {
            Record::Mutant(hunt) | Record::Control(hunt) => hunt,
            Record::Case(_) => unreachable!("a hunt was asked for"),
        }
    }

    /// Ranks of heads are ranks: most kernels know of no others.
    #[test]
    fn a_kernel_without_context_ranks_has_a_control_of_ranks() {
        let kernel = Implementation::kernel(Arc::new(PerSequence::new(
            "zeros",
            "1",
            |_: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]| {
                o.fill(0.0);
                lse.fill(0.0);
                Ok(())
            },
        )));
        assert!(!kernel.kernel.context_parallel());
        let pair = Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Off, captured: None, witness: false };
        let work = Work::new(Battery::new(Size::Quick, 1, &Attention::of(pair)), vec![Claim::ParallelInvariant]);
        let found = hunt(&work, Unit::Control(Claim::ParallelInvariant));
        assert!(found.found.is_some() && !found.elsewhere, "{found:?}");
    }

    /// What pins exclude shows no fault of theirs.
    #[test]
    fn faults_are_looked_for_among_the_certified_cases_first() {
        let [free, pinned] = [work("none"), work("causal=none")];
        assert!(!free.is_restricted() && pinned.is_restricted());
        // A control shows with the calls that its claim is about, or not at all.
        let mutant = Hunt::of_mutant("A-M1".parse().expect("a planted fault"));
        assert!(pinned.looks_elsewhere(&mutant) && !free.looks_elsewhere(&mutant));
        assert!(!pinned.looks_elsewhere(&Hunt::of_control(Claim::ChunkInvariant)));
        // The causal limit: without a causal mask there is none.
        let unit = Unit::Mutant("A-M1".parse().expect("a planted fault"));
        let [free, pinned_found] = [&free, &pinned].map(|it| hunt(it, unit));
        assert!(free.found.is_some() && !free.elsewhere);
        assert!(pinned_found.found.is_some() && pinned_found.elsewhere);
        assert!(hunt(&pinned, Unit::Control(Claim::TrainEqInfer)).found.is_some());
        // And again beside its record.
        let record = Record::Mutant(pinned_found);
        assert_eq!(pinned.run_beside(unit, &record, &mut pinned.scratch()), record);
    }
}
