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
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::power;
use crate::subject::attention::{Attention, reference::Reference};

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
            Unit::Mutant(mutant) => {
                let kernel = power::kernel(mutant);
                let found = self.hunt([kernel.clone(), kernel].map(Implementation::reference), HUNTED, |record| {
                    record.failures.first().map(|(signature, _)| signature.clone())
                });
                Record::Mutant(HuntRecord { name: mutant.to_string(), ..found })
            }
            Unit::Control(claim) => {
                let disturbed = control(claim).expect("a claim that has a control");
                // Two paths of one disturbed kernel: what is about one kernel shows on either.
                let strata = if claim == Claim::SplitInvariant { HUNTED_LONG } else { HUNTED };
                let found = self.hunt([disturbed.clone(), disturbed], strata, |record| {
                    let against = record.failures.iter().find(|(_, claims)| claims.iter().any(|it| it == claim.name()));
                    against.map(|(signature, _)| signature.clone())
                });
                Record::Control(HuntRecord { name: claim.to_string(), ..found })
            }
        }
    }

    fn case(&self, part: Part, index: u64, scratch: &mut Scratch) -> CaseRecord {
        case_on(&self.battery, self.battery.attention(part), part, index, scratch).unwrap_or_else(|| CaseRecord {
            part: part.name().to_owned(),
            index,
            ..CaseRecord::default()
        })
    }

    /// Runs the battery's cases on two kernels until one shows what is looked for.
    fn hunt(
        &self,
        [train, infer]: [Implementation; 2],
        strata: [Part; 4],
        shows: impl Fn(&CaseRecord) -> Option<String>,
    ) -> HuntRecord {
        let pair = Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: false };
        let battery = Battery::new(self.battery.size, self.battery.seed, &Attention::of(pair));
        let mut scratch = battery.attention.scratch();
        let mut cases = 0;
        for part in strata {
            for index in 0..battery.cases(part) {
                let Some(record) = case_on(&battery, battery.attention(part), part, index, &mut scratch) else { continue };
                cases += 1;
                if let Some(signature) = shows(&record) {
                    let found = Some(record.address());
                    return HuntRecord { name: String::new(), found, elsewhere: false, signature: Some(signature), cases };
                }
            }
        }
        HuntRecord { name: String::new(), found: None, elsewhere: false, signature: None, cases }
    }
}

/// Runs a case of a battery on other kernels than its own. `None`: none was drawn.
pub fn case_on(battery: &Battery, attention: &Attention, part: Part, index: u64, scratch: &mut Scratch) -> Option<CaseRecord> {
    let trial = battery.trial(part, index)?;
    scratch.outputs = Some(OutputDigest::default());
    let (verdict, refused): (Verdict, u64) = match part {
        Part::Outside => outside::check(&attention.pair, &trial.case, scratch),
        _ => (check_one(attention, &trial, scratch), 0),
    };
    let outputs = scratch.outputs.take().map(OutputDigest::finish).unwrap_or_default();
    Some(CaseRecord { refused, ..CaseRecord::new(part, index, outputs, &verdict) })
}

/// The kernel of which another order is tried, where neither side is a reference kernel.
pub(super) fn witness(pair: &Pair) -> String {
    let reference = pair.train.reference.as_ref().or(pair.infer.reference.as_ref());
    reference.map_or_else(
        || "the reference kernel, with the arithmetic that is declared, in the kernels' place".to_owned(),
        |it: &std::sync::Arc<Reference>| it.to_string(),
    )
}
