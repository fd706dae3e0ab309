//! A certificate is made of a battery and of the records of its units, in order, and of nothing else.

mod decide;

use super::certificate::{
    BatteryText, Certificate, ClaimResult, Control, Counts, Environment, FORMAT, FailureBound, KernelText, Mutants, Power,
    Previous, Results, Status, StratumResult, Waiver,
};
use super::claim::Claim;
use super::counterexample::{Failing, counterexample};
use super::coverage::{Counting, evidence};
use super::digest::{Lines, of_json};
use super::record::{CaseRecord, HuntRecord, Record};
use super::statement::Statement;
use super::work::{self, Unit, Work};
use super::{bound, control};
use crate::finding::{DISTANCE_BINS, ERROR_BINS, Skip};
use crate::lab::{OTHER_REASONS, SKIP_REASONS};
use crate::reach::{Reach, ReachCounts};
use crate::subject::attention::battery::{self, Battery, Part};
use crate::subject::attention::pin::Pins;
use crate::subject::attention::power::parallel;
use crate::subject::attention::reach::PlanFeature;
use std::collections::BTreeMap;

/// Confidence of the bound on the failure rate.
const CONFIDENCE: f64 = 0.95;

/// Counterexamples of a claim, at most: `o` and `lse`, or both sides.
const KEPT: usize = 2;

/// Failing cases of each kind that are looked at for the smallest to begin shrinking from.
const CANDIDATES: usize = 40;

/// Why a stratum has fewer cases than its battery asks for.
pub(super) const NO_CASE: &str = "no draw for it is a case of this stratum";

/// Cases whose text goes into the digest of a battery, from each stratum.
const SAMPLED: u64 = 16;

/// What a certificate is made of, besides the records.
pub struct Asked<'a> {
    /// The units.
    pub work: &'a Work,
    /// Both kernels.
    pub kernels: [KernelText; 2],
    /// Share of the planted faults that must be found.
    pub floor: f64,
    /// Accepted failures.
    pub waivers: Vec<Waiver>,
    /// An earlier certificate, for [`Claim::VersionEqual`].
    pub previous: Option<Earlier>,
    /// Threads for shrinking. No result depends on it. 0: no counterexamples are made.
    pub jobs: usize,
}

/// An earlier certificate, as far as it is at hand.
pub enum Earlier {
    /// It is there.
    There(Box<Certificate>),
    /// Only what a certificate that was held against it says of it: its name, and the status and reason of `version_equal`.
    Named(Box<Previous>, Status, String),
}

/// A battery as a certificate names it.
pub fn battery_text(battery: &Battery, claims: &[Claim]) -> BatteryText {
    let pins = &battery.attention.pins;
    let mut text = BatteryText {
        name: battery.size.name().to_owned(),
        version: battery::VERSION,
        seed: battery.seed,
        claims: claims.iter().map(|claim| claim.name().to_owned()).collect(),
        strata: Part::ALL.iter().map(|&part| (part.name().to_owned(), battery.cases(part))).collect(),
        limits: if *pins == Pins::default() { Vec::new() } else { vec![format!("pins: {pins}")] },
        sha256: String::new(),
    };
    let mut sample = Lines::default();
    for part in Part::ALL {
        for index in 0..battery.cases(part).min(SAMPLED) {
            sample.add(&battery.trial(part, index).map_or(String::new(), |trial| battery.text(&trial)));
        }
    }
    text.sha256 = of_json(&(&text, sample.finish()));
    text
}

/// Sums over the records.
struct Sums {
    strata: BTreeMap<Part, Stratum>,
    claims: BTreeMap<Claim, ClaimSum>,
    results: Results,
    counting: Counting,
    sensitive: BTreeMap<String, [u64; 2]>,
    reach: ReachCounts,
    mutants: Mutants,
    controls: Vec<Control>,
    /// Over the lines of both.
    hunts: Lines,
    not_run: Counts,
    partly: Counts,
    unjudged: Unjudged,
    /// Of the stratum outside.
    unjudged_outside: Unjudged,
    set_aside: u64,
    faults: u64,
    /// By claim and signature: failing cases, the first few.
    failing: BTreeMap<(Claim, String), Vec<(Part, u64)>>,
    /// By [independent draw](Battery::draw): whether one of its cases failed.
    random: BTreeMap<[u64; 2], bool>,
}

/// A stratum, and the digests that run along with it.
struct Stratum {
    result: StratumResult,
    cases: Lines,
    outputs: Lines,
    records: Lines,
}

#[derive(Default)]
struct ClaimSum {
    cases: u64,
    failed: u64,
    elements: u64,
    differing: u64,
    /// Relations about it that a kernel refused.
    not_run: Counts,
}

/// Why no statement is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A record that is not there, or is another unit's: which.
    Records(String),
    /// A waiver of a claim that does not fail. The records are as they should be.
    Waiver(String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Refused::Records(reason) | Refused::Waiver(reason)) = self;
        f.write_str(reason)
    }
}

/// Makes the statement. `records` are those of all units, in order.
///
/// # Errors
/// Records that are not those of the work; a waiver that is not needed.
pub fn build(asked: &Asked<'_>, records: impl IntoIterator<Item = Result<Record, String>>) -> Result<Statement, Refused> {
    let statement = of_records(asked, records).map_err(Refused::Records)?;
    for waiver in &asked.waivers {
        let claim = statement.predicate.lastbit.claims.iter().find(|it| it.claim == waiver.claim);
        let why = match claim {
            Some(it) if it.status == Status::Fail => continue,
            Some(it) => format!("is not needed: it is {}", it.status),
            None => "is of a claim that this certificate does not make".to_owned(),
        };
        return Err(Refused::Waiver(format!("the waiver of {} ({}) {why}; remove it", waiver.claim, waiver.issue)));
    }
    Ok(statement)
}

fn of_records(asked: &Asked<'_>, records: impl IntoIterator<Item = Result<Record, String>>) -> Result<Statement, String> {
    let work = asked.work;
    let mut sums = Sums::new(asked);
    let mut records = records.into_iter();
    for n in 0..work.units() {
        let unit = work.unit(n);
        let record = records.next().ok_or_else(|| format!("record {n} of {} is missing", work.units()))??;
        sums.add(work, unit, &record).map_err(|reason| format!("record {n}: {reason}"))?;
    }
    if records.next().is_some() {
        return Err(format!("there are more than {} records", work.units()));
    }
    Ok(sums.statement(asked))
}

/// Elements of which nobody can say whether they are right.
#[derive(Clone, Copy, Default)]
struct Unjudged {
    undecided: u64,
    unbounded: u64,
    out_of_range: u64,
}

impl Unjudged {
    fn of(record: &CaseRecord) -> Unjudged {
        let [.., unbounded, out_of_range] = record.accuracy;
        Unjudged { undecided: record.undecided, unbounded, out_of_range }
    }

    fn and(self, more: Unjudged) -> Unjudged {
        Unjudged {
            undecided: self.undecided + more.undecided,
            unbounded: self.unbounded + more.unbounded,
            out_of_range: self.out_of_range + more.out_of_range,
        }
    }
}

impl Sums {
    fn new(asked: &Asked<'_>) -> Sums {
        let work = asked.work;
        let stratum = |part: Part| {
            let result =
                StratumResult { name: part.name().to_owned(), about: part.about().to_owned(), ..StratumResult::default() };
            let lines = Lines::default;
            (part, Stratum { result, cases: lines(), outputs: lines(), records: lines() })
        };
        let mutants = Mutants { planted: 0, killed: 0, elsewhere: Vec::new(), survived: Vec::new(), floor: asked.floor };
        Sums {
            strata: Part::ALL.into_iter().map(stratum).collect(),
            claims: work.claims.iter().map(|&claim| (claim, ClaimSum::default())).collect(),
            results: Results { distances: vec![0; DISTANCE_BINS], errors: vec![0; ERROR_BINS], ..Results::default() },
            counting: Counting::new(work),
            sensitive: BTreeMap::new(),
            reach: ReachCounts::default(),
            mutants,
            controls: Vec::new(),
            hunts: Lines::default(),
            not_run: Counts::new(),
            partly: Counts::new(),
            unjudged: Unjudged::default(),
            unjudged_outside: Unjudged::default(),
            set_aside: 0,
            faults: 0,
            failing: BTreeMap::new(),
            random: BTreeMap::new(),
        }
    }

    fn add(&mut self, work: &Work, unit: Unit, record: &Record) -> Result<(), String> {
        match (unit, record) {
            (Unit::Case(part, index), Record::Case(record)) if record.part == part.name() && record.index == index => {
                self.case(work, part, record);
                Ok(())
            }
            (Unit::Mutant(mutant), Record::Mutant(hunt)) if hunt.name == mutant.to_string() => {
                self.hunts.add(&serde_json::to_string(record).expect("a record is JSON"));
                self.mutants.planted += 1;
                match hunt.found {
                    Some(_) => {
                        self.mutants.killed += 1;
                        self.mutants.elsewhere.extend(hunt.elsewhere.then(|| hunt.name.clone()));
                    }
                    None => self.mutants.survived.push(hunt.name.clone()),
                }
                Ok(())
            }
            (Unit::Control(_), Record::Control(HuntRecord { elsewhere: true, .. })) => {
                Err("is a control that failed with calls that these kernels do not take: none is looked for there".to_owned())
            }
            (Unit::Control(claim), Record::Control(HuntRecord { name, found, .. })) if *name == claim.to_string() => {
                self.hunts.add(&serde_json::to_string(record).expect("a record is JSON"));
                let kernel = format!("ref:aligned, {}", control::about(claim));
                self.controls.push(Control { claim: name.clone(), kernel, failed_at: found.clone() });
                Ok(())
            }
            _ => Err(format!("is not of {unit:?}")),
        }
    }

    fn case(&mut self, work: &Work, part: Part, record: &CaseRecord) {
        let of = self.strata.get_mut(&part).expect("all strata are there");
        of.records.add(&serde_json::to_string(record).expect("a record is JSON"));
        of.outputs.add(&record.outputs);
        let stratum = &mut of.result;
        let Some(trial) = work.battery.trial(part, record.index) else {
            return count(&mut stratum.left_out, NO_CASE);
        };
        of.cases.add(&work.battery.text(&trial));
        stratum.generated += 1;
        stratum.run += u64::from(record.has_run() || record.refused > 0);
        stratum.failed += u64::from(!record.failures.is_empty());
        stratum.undecided += u64::from(record.undecided > 0);
        let [related, changed] = record.related();
        stratum.elements += record.pair[0] + related;
        stratum.differing += record.pair[1] + changed;
        record.left_out.iter().for_each(|reason| count(&mut stratum.left_out, reason));
        for (what, reason) in record.skips() {
            // That an overflow is predicted is the bound's to say: the elements that it is about are counted.
            if what != Skip::Bound {
                count(&mut stratum.skipped, reason);
            }
            match what {
                Skip::Case | Skip::Run(_) => count(&mut self.not_run, reason),
                Skip::Pair => count(&mut self.partly, reason),
                Skip::Changed(changed) => {
                    let mut unseen = true;
                    for (_, sum) in self.claims.iter_mut().filter(|(claim, _)| claim.sees(&changed, part)) {
                        count(&mut sum.not_run, reason);
                        unseen = false;
                    }
                    // What no claim is about is held against all.
                    if unseen {
                        count(&mut self.not_run, reason);
                    }
                }
                Skip::Bound => {}
            }
        }
        self.counting.add(work, &trial.case, record, part);
        for (&claim, sum) in &mut self.claims {
            let it = evidence(claim, record, part);
            sum.cases += u64::from(it.elements > 0 || it.failed);
            sum.failed += u64::from(it.failed);
            sum.elements += it.elements;
            sum.differing += it.differing;
        }
        let out = &trial.case.problem.out_dtype;
        if let Some(sensitive) = record.sensitive {
            let of = self.sensitive.entry(out.to_string()).or_default();
            of[0] += 1;
            of[1] += u64::from(sensitive);
        }
        self.reach.add(Reach::of_bits(record.reach));
        let failed = !record.failures.is_empty();
        // One that failed has run far enough to.
        if part == Part::Random && (record.has_run() || failed) {
            *self.random.entry(work.battery.draw(record.index)).or_default() |= failed;
        }
        // What the kernels declare that they do not do speaks for and against one claim alone.
        if part == Part::Outside {
            self.unjudged_outside = self.unjudged_outside.and(Unjudged::of(record));
        } else {
            self.unjudged = self.unjudged.and(Unjudged::of(record));
            self.set_aside += record.set_aside;
            self.faults += u64::from(record.has_fault());
            self.measure(record);
        }
        for (signature, claims) in &record.failures {
            for claim in claims.iter().filter_map(|it| it.parse::<Claim>().ok()).filter(|it| work.claims.contains(it)) {
                let list = self.failing.entry((claim, signature.clone())).or_default();
                if list.len() < CANDIDATES {
                    list.push((part, record.index));
                }
            }
        }
    }

    fn measure(&mut self, record: &CaseRecord) {
        let results = &mut self.results;
        results.compared += record.pair[0];
        results.differing += record.pair[1];
        let add = |sums: &mut Vec<u64>, more: &[u64]| sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        add(&mut results.distances, &record.distances);
        add(&mut results.errors, &record.errors);
        let [judged, correct, above, below, unbounded, out_of_range] = record.accuracy;
        results.judged += judged;
        results.correctly_rounded += correct;
        results.above += above;
        results.below += below;
        results.unbounded += unbounded;
        results.out_of_range += out_of_range;
        if record.worst > results.worst {
            results.worst = record.worst;
            results.worst_case = Some(record.address());
        }
    }

    /// The counterexamples of failing claims: the smallest failing case of each signature, shrunk.
    fn counterexamples(&self, asked: &Asked<'_>) -> Vec<super::certificate::Counterexample> {
        let battery = &asked.work.battery;
        let mut kept: Vec<Failing> = Vec::new();
        let mut of_claim: BTreeMap<Claim, usize> = BTreeMap::new();
        for ((claim, signature), cases) in &self.failing {
            let count = of_claim.entry(*claim).or_default();
            if *count == KEPT {
                continue;
            }
            *count += 1;
            let smallest = cases.iter().filter_map(|&(part, index)| {
                let trial = battery.trial(part, index)?;
                Some((crate::subject::Subject::size(battery.attention(part), &trial), part, index))
            });
            let Some((_, part, index)) = smallest.min() else { continue };
            match kept.iter_mut().find(|it| (it.part, it.index, &it.signature) == (part, index, signature)) {
                Some(it) => it.claims.push(*claim),
                None => kept.push(Failing { part, index, signature: signature.clone(), claims: vec![*claim] }),
            }
        }
        let made = parallel::map(asked.jobs, kept.len(), |n| counterexample(asked.work, &kept[n]), |_| {});
        let mut made: Vec<_> = made.into_iter().flatten().collect();
        // Two failures may shrink to one case.
        made.dedup_by(|b, a| {
            let same = a.sha256 == b.sha256;
            if same {
                a.claims.append(&mut b.claims);
            }
            same
        });
        made
    }

    fn statement(mut self, asked: &Asked<'_>) -> Statement {
        let work = asked.work;
        let examples = if asked.jobs > 0 { self.counterexamples(asked) } else { Vec::new() };
        let missing: Vec<String> = match work.battery.cases(Part::Random) {
            0 => Vec::new(),
            _ => work.battery.attention.asked().missing(&self.reach).iter().map(|it| it.name().to_owned()).collect(),
        };
        let coverage = std::mem::replace(&mut self.counting, Counting::new(work)).finish(work);
        let uncovered = coverage.pairs.valid - coverage.pairs.covered;
        let claims: Vec<ClaimResult> = work
            .claims
            .iter()
            .map(|&claim| {
                let (status, reason) = self.decide(claim, asked, &missing, uncovered);
                let sum = &self.claims[&claim];
                let own = examples.iter().filter(|it| it.claims.iter().any(|name| name == claim.name()));
                let waiver = asked.waivers.iter().find(|it| status == Status::Fail && it.claim == claim.name());
                ClaimResult {
                    claim: claim.name().to_owned(),
                    sentence: claim.sentence().to_owned(),
                    status,
                    reason,
                    cases: sum.cases,
                    failed: sum.failed,
                    elements: sum.elements,
                    differing: sum.differing,
                    counterexamples: own.map(|it| it.sha256.clone()).collect(),
                    waived: waiver.map(|it| it.issue.clone()),
                }
            })
            .collect();
        let (draws, failed) = (self.random.len() as u64, self.random.values().filter(|&&failed| failed).count() as u64);
        let of_shapes = match work.battery.repeats_shapes() {
            true => "; counted are shapes, each with all the cases that have it",
            false => "",
        };
        let reached = PlanFeature::ALL.into_iter().map(|it| (it.name().to_owned(), it.count(&self.reach))).collect();
        let power = Power {
            order_sensitive: self.sensitive,
            witness: work::witness(&work.battery.attention.pair),
            reach: reached,
            unreached: missing,
            mutants: self.mutants,
            controls: self.controls,
            records: self.hunts.finish(),
        };
        let strata = self.strata.into_values().filter(|it| it.result.generated > 0 || !it.result.left_out.is_empty()).map(
            |Stratum { result, cases, outputs, records }| StratumResult {
                cases: cases.finish(),
                outputs: outputs.finish(),
                records: records.finish(),
                ..result
            },
        );
        let certificate = Certificate {
            format: FORMAT,
            lastbit: env!("CARGO_PKG_VERSION").to_owned(),
            battery: battery_text(&work.battery, &work.claims),
            kernels: asked.kernels.clone(),
            previous: asked.previous.as_ref().map(|it| match it {
                Earlier::There(certificate) => Previous::of(certificate),
                Earlier::Named(previous, ..) => (**previous).clone(),
            }),
            status: status_line(&claims),
            claims,
            strata: strata.collect(),
            coverage,
            power,
            results: self.results,
            bound: FailureBound {
                distribution: format!(
                    "stratum random: {}, seed {}, inside what both kernels declare; of no other{of_shapes}",
                    Part::Random.about(),
                    work.battery.seed
                ),
                cases: draws,
                failed,
                confidence: CONFIDENCE,
                upper: bound::upper(draws, failed, CONFIDENCE),
            },
            counterexamples: examples,
            trees: super::trees::trees(&work.battery.attention.pair),
            waivers: asked.waivers.clone(),
            voids: voids(),
            digest: String::new(),
            environment: Environment::default(),
            seal: String::new(),
        };
        Statement::new(certificate)
    }
}

/// Counts a reason: the first so many by name.
fn count(counts: &mut Counts, reason: &str) {
    let full = counts.len() >= SKIP_REASONS && !counts.contains_key(reason);
    let reason = if full { OTHER_REASONS } else { reason };
    *counts.entry(reason.to_owned()).or_default() += 1;
}

fn status_line(claims: &[ClaimResult]) -> String {
    let of =
        |status: Status, waived: bool| claims.iter().filter(|it| it.status == status && it.waived.is_some() == waived).count();
    let mut line = format!("lastbit: {} claims", claims.len());
    for (count, word) in [
        (of(Status::Pass, false), "PASS"),
        (of(Status::Fail, false), "FAIL"),
        (of(Status::Fail, true), "FAIL (waived)"),
        (of(Status::Unverifiable, false), "UNVERIFIABLE"),
    ] {
        if count > 0 {
            line.push_str(&format!(", {count} {word}"));
        }
    }
    line
}

/// What ends a certificate's validity.
fn voids() -> Vec<String> {
    [
        "Another digest of a kernel: another version, build, library, device or setting than the ones named here.",
        "A call outside the ranges and values under coverage, or one that the kernels declare they do not do.",
        "Another version of the battery, or of lastbit where its digest of this battery is another.",
        "What lastbit does not look at: MLA, tree masks, cascade merge, CUDA-graph replay, caches quantised on write, backward.",
        "A kernel that depends on more than its call, such as an autotuner's choice in a fresh process.",
    ]
    .map(str::to_owned)
    .to_vec()
}
