//! Two versions side by side: which cases gave other bits, and the smallest of them.

use super::certificate::Certificate;
use super::claim::Claim;
use super::digest::Lines;
use super::record::CaseRecord;
use crate::finding::{Comparison, Difference, Finding, Path, Skip, Verdict};
use crate::number::Dtype;
use crate::shrink::{BUDGET, shrink};
use crate::subject::attention::battery::{Battery, Part};
use crate::subject::attention::check::{Pair, produced, productions};
use crate::subject::attention::drive::{Poison, Produced, Stop, element_index, row_index};
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Attention, Inputs};
use crate::subject::{Candidate, Subject};
use std::collections::BTreeMap;

/// What has become of a stratum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StratumChange {
    /// Cases in both.
    pub cases: u64,
    /// Cases that ran in both: of the others there are no bits to compare.
    pub ran: u64,
    /// Cases that were refused, in whole or in part, or ended in a fault, before and now.
    pub stopped: [u64; 2],
    /// Elements compared in the new one, by the checks of the battery.
    pub elements: u64,
    /// Cases with other output bits.
    pub changed: u64,
    /// Failing cases, before and now.
    pub failed: [u64; 2],
}

/// What two versions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There are other bits, or bits in one of the two alone.
    Changed,
    /// No case ran in both.
    Nothing,
    /// No bit differs, but some cases did not run.
    Undecided,
    /// The same bits, and every case ran.
    Equal,
}

/// What has changed between two runs of one battery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// By stratum.
    pub strata: BTreeMap<Part, StratumChange>,
    /// By claim: failing cases, before and now.
    pub claims: BTreeMap<Claim, [u64; 2]>,
    /// judged, correctly rounded, above, below: before and now.
    pub accuracy: [[u64; 4]; 2],
    /// The largest error as a share of its bound, before and now.
    pub worst: [f64; 2],
    /// The changed cases.
    pub changed: Vec<(Part, u64)>,
}

/// Digests of the records of each stratum, as a certificate has them.
#[derive(Default)]
pub struct RecordsOfStrata(BTreeMap<String, Lines>);

impl RecordsOfStrata {
    /// Takes the next record in.
    pub fn add(&mut self, record: &CaseRecord) {
        let line = serde_json::to_string(record).expect("a record is JSON");
        self.0.entry(record.part.clone()).or_default().add(&line);
    }

    /// The first stratum whose records are others than a certificate's, or of which one of the two knows nothing.
    pub fn differs_from(&self, certificate: &Certificate) -> Option<String> {
        let of = |name: &str| certificate.strata.iter().find(|it| it.name == name).map(|it| &it.records);
        let known = certificate.strata.iter().map(|it| &it.name);
        let mut names = known.chain(self.0.keys());
        names.find(|name| self.0.get(*name).map(Lines::so_far).as_ref() != of(name)).cloned()
    }
}

impl Changes {
    /// Takes the records of one case in.
    ///
    /// # Errors
    /// They are of different cases, or of a stratum that is not known.
    pub fn add(&mut self, old: &CaseRecord, new: &CaseRecord) -> Result<(), String> {
        if (&old.part, old.index) != (&new.part, new.index) {
            return Err(format!("`{}` stands beside `{}`", old.address(), new.address()));
        }
        let part: Part = new.part.parse()?;
        if old.outputs.is_empty() && new.outputs.is_empty() {
            // No case was drawn.
            return Ok(());
        }
        let stratum = self.strata.entry(part).or_default();
        stratum.cases += 1;
        stratum.ran += u64::from(old.has_run() && new.has_run());
        stratum.elements += new.pair[0] + new.related()[0];
        for (n, record) in [old, new].into_iter().enumerate() {
            stratum.failed[n] += u64::from(!record.failures.is_empty());
            stratum.stopped[n] += u64::from(stops(record));
            for claim in Claim::ALL.into_iter().filter(|&claim| record.fails(claim)) {
                self.claims.entry(claim).or_default()[n] += 1;
            }
            let [judged, correct, above, below, ..] = record.accuracy;
            self.accuracy[n].iter_mut().zip([judged, correct, above, below]).for_each(|(sum, more)| *sum += more);
            self.worst[n] = self.worst[n].max(record.worst);
        }
        if old.outputs != new.outputs {
            stratum.changed += 1;
            self.changed.push((part, new.index));
        }
        Ok(())
    }

    /// Cases in both.
    pub fn cases(&self) -> u64 {
        self.strata.values().map(|it| it.cases).sum()
    }

    /// Cases that did not run to their end, before and now.
    pub fn stopped(&self) -> [u64; 2] {
        self.strata.values().fold([0; 2], |sum, it| [sum[0] + it.stopped[0], sum[1] + it.stopped[1]])
    }

    /// What they come to. Two runs in which every call was refused have the same bits: none.
    pub fn outcome(&self) -> Outcome {
        if !self.changed.is_empty() {
            Outcome::Changed
        } else if self.strata.values().all(|it| it.ran == 0) {
            Outcome::Nothing
        } else if self.stopped() != [0; 2] {
            Outcome::Undecided
        } else {
            Outcome::Equal
        }
    }
}

/// Whether something of a case was not run, or ended in a fault.
fn stops(record: &CaseRecord) -> bool {
    record.skips().any(|(what, _)| !matches!(what, Skip::Pair | Skip::Bound)) || record.has_fault()
}

/// How a change shows in the runs of a case's own plans.
#[derive(Clone, Debug)]
pub enum Shown {
    /// In bits.
    Bits(Box<Smallest>),
    /// In that one version gives none.
    Stop(Box<Stopped>),
    /// It does not: only under a relation.
    Related,
}

/// A case that one version runs, and the other does not.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The case.
    pub from: (Part, u64),
    /// The path on which it shows.
    pub path: Path,
    /// The case.
    pub trial: Trial,
    /// Which version, and why: `the new version refuses it: ...`.
    pub why: String,
}

/// A small case whose bits changed.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// The case that it was made of.
    pub from: (Part, u64),
    /// The path on which it shows.
    pub path: Path,
    /// The case.
    pub trial: Trial,
    /// What differs, old against new.
    pub difference: Difference,
}

/// Two versions of a kernel, or of a pair of kernels, on one path.
pub struct Versions<'a> {
    /// The old one.
    pub old: &'a Pair,
    /// The new one.
    pub new: &'a Pair,
    /// What both do, and how cases get smaller.
    pub common: &'a Attention,
    /// The path that is compared.
    pub path: Path,
}

/// A trial with the relations that both versions do. One that a version alone does, as one of a knob that it alone has, says nothing of bits
/// that changed.
pub fn shared(old: &Pair, new: &Pair, trial: Trial) -> Trial {
    let [ours, theirs] = [old, new].map(|it| it.relations(&trial).0);
    Trial { checks: Checks::These(ours.into_iter().filter(|it| theirs.contains(it)).collect()), ..trial }
}

/// The smallest case made of the changed ones. Where the bits of none differ, the smallest that one version does not run.
pub fn smallest(old: &Pair, new: &Pair, battery: &Battery, changed: &[(Part, u64)]) -> Shown {
    let sized = changed.iter().filter_map(|&(part, index)| {
        let trial = battery.trial(part, index)?;
        Some((battery.attention.size(&trial), part, index, trial))
    });
    let mut sized: Vec<_> = sized.collect();
    sized.sort_by(|a, b| (&a.0, a.1, a.2).cmp(&(&b.0, b.1, b.2)));
    let mut stopped = None;
    // A case whose digest changed under a relation alone shows nothing here: the next.
    for (_, part, index, trial) in sized {
        for path in Path::BOTH {
            let versions = Versions { old, new, common: battery.attention(part), path };
            let from = (part, index);
            let small = versions.check(&trial, &mut ()).failure().and_then(|failure| {
                let small = shrink(&versions, &trial, &failure.signature(), BUDGET, &mut ())?;
                let difference = small.finding.difference()?.clone();
                Some(Smallest { from, path, trial: small.trial, difference })
            });
            if let Some(small) = small {
                return Shown::Bits(Box::new(small));
            }
            if stopped.is_none() {
                let why = versions.one_stops(&trial);
                stopped = why.map(|why| Box::new(Stopped { from, path, trial: trial.clone(), why }));
            }
        }
    }
    stopped.map_or(Shown::Related, Shown::Stop)
}

impl Versions<'_> {
    /// Both runs of a case, the old one first.
    fn runs(&self, trial: &Trial, inputs: &Inputs) -> [Result<Produced, Stop>; 2] {
        [self.old, self.new].map(|pair| pair.drive(self.path, &trial.case, inputs, Poison::Nan, None))
    }

    /// What keeps each version from an answer, the old one first.
    pub fn stops(&self, trial: &Trial) -> [Option<String>; 2] {
        let why = |stop| match stop {
            Stop::Unsupported(reason) => format!("refuses it: {reason}"),
            Stop::Fault(fault) => format!("ends in a fault: {fault}"),
        };
        let inputs = self.common.pair.inputs(&trial.case);
        let [old, new] = self.runs(trial, &inputs).map(|run| run.err().map(why));
        [old.map(|why| format!("the old version {why}")), new.map(|why| format!("the new version {why}"))]
    }

    /// What keeps one version alone from an answer.
    fn one_stops(&self, trial: &Trial) -> Option<String> {
        match self.stops(trial) {
            [Some(why), None] | [None, Some(why)] => Some(why),
            _ => None,
        }
    }
}

impl Subject for Versions<'_> {
    type Trial = Trial;
    type Scratch = ();

    fn scratch(&self) {}

    fn draw(&self, seed: u64, index: u64) -> Trial {
        self.common.draw(seed, index)
    }

    fn check(&self, trial: &Trial, (): &mut ()) -> Verdict {
        let problem = &trial.case.problem;
        let inputs = self.common.pair.inputs(&trial.case);
        let mut verdict = Verdict::default();
        let [Ok(old), Ok(new)] = self.runs(trial, &inputs) else { return verdict };
        let names = ["old", "new"];
        let mut o = Comparison::new("o", problem.out_dtype, names);
        let mut lse = Comparison::new("lse", Dtype::F32, names);
        // Rows made again too: a draft that is rejected, a request that is preempted.
        for row in (0..problem.total_q()).filter(|&row| old.present[row] && new.present[row]) {
            for (n, ([old_o, old_lse], [new_o, new_lse])) in productions(&old, row).zip(productions(&new, row)).enumerate() {
                o.slices(old_o, new_o, row * old_o.len(), |at| produced(element_index(problem, row, at), n));
                lse.slices(old_lse, new_lse, row * old_lse.len(), |at| produced(row_index(problem, row, at), n));
            }
        }
        verdict.compared = o.compared() + lse.compared();
        verdict.findings.extend([o.finish(), lse.finish()].into_iter().flatten().map(Finding::Mismatch));
        verdict
    }

    fn focus(&self, trial: &Trial, _: &Finding) -> Trial {
        Trial::new(trial.case.clone(), Checks::Only { oracle: false, pair: true, relation: None })
    }

    fn size(&self, trial: &Trial) -> Vec<u64> {
        self.common.size(trial)
    }

    fn positions(&self, trial: &Trial, pass: usize) -> Option<usize> {
        self.common.positions(trial, pass)
    }

    fn smaller(&self, trial: &Trial, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
        self.common.smaller(trial, pass, position)
    }

    fn redraw(&self, trial: &Trial, n: u32) -> Option<Trial> {
        self.common.redraw(trial, n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certify::certificate::StratumResult;
    use crate::certify::statement::Statement;
    use crate::certify::work::record_of;
    use crate::subject::attention::battery::Size;
    use crate::subject::attention::capabilities::{Capabilities, Knob};
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::kernel::{AttentionKernel, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
    use crate::subject::attention::oracle::Mode;
    use crate::subject::attention::reference::Reference;
    use crate::subject::attention::{Anchor, Case, Data, Problem, Regime, Request};
    use std::sync::Arc;

    fn ran() -> CaseRecord {
        CaseRecord { part: "random".into(), outputs: "0".repeat(64), pair: [3, 0], ..CaseRecord::default() }
    }

    fn outcome(pairs: &[[CaseRecord; 2]]) -> Outcome {
        let mut changes = Changes::default();
        pairs.iter().for_each(|[then, now]| changes.add(then, now).unwrap());
        changes.outcome()
    }

    #[test]
    fn versions_are_equal_only_where_every_case_ran() {
        let both = |it: CaseRecord| [it.clone(), it];
        let skipped = |what: &str| CaseRecord { skipped: vec![(what.into(), "a reason".into())], ..ran() };
        let fault = CaseRecord { failures: vec![("fault infer failed".into(), Vec::new())], ..ran() };
        let refused = CaseRecord { pair: [0; 2], ..skipped("infer") };
        assert_eq!(outcome(&[both(ran())]), Outcome::Equal);
        assert_eq!(outcome(&[both(skipped("bound"))]), Outcome::Equal);
        assert_eq!(outcome(&[]), Outcome::Nothing);
        // No case was drawn.
        let none = CaseRecord { part: "random".into(), ..CaseRecord::default() };
        assert_eq!(outcome(&[both(none)]), Outcome::Nothing);
        assert_eq!(outcome(&[both(refused.clone()), both(refused.clone())]), Outcome::Nothing);
        for open in [both(refused), both(fault.clone()), [ran(), skipped("infer")], [fault.clone(), ran()]] {
            assert_eq!(outcome(&[both(ran()), open]), Outcome::Undecided);
        }
        let other = CaseRecord { outputs: "1".repeat(64), ..ran() };
        assert_eq!(outcome(&[[ran(), other], both(fault)]), Outcome::Changed);
    }

    /// A version of the reference kernel.
    #[derive(Default)]
    struct Version {
        honest: Reference,
        /// What every paged call ends with.
        stop: Option<KernelError>,
        /// Paged calls with several rows of a sequence give other bits.
        rows_matter: bool,
        /// It has a knob, which changes nothing.
        knob: bool,
    }

    impl AttentionKernel for Version {
        fn identity(&self) -> Identity {
            Identity::cpu("version", "1")
        }

        fn capabilities(&self) -> Capabilities {
            let knob = Knob { name: "threads".into(), values: vec!["1".into(), "2".into()] };
            Capabilities { knobs: if self.knob { vec![knob] } else { Vec::new() }, ..Capabilities::default() }
        }

        fn context_parallel(&self) -> bool {
            true
        }

        fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
            self.honest.varlen(call, outputs)
        }

        fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
            self.honest.dense(call, outputs)
        }

        fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
            if let Some(error) = &self.stop {
                return Err(error.clone());
            }
            let Outputs { o, lse } = outputs;
            self.honest.paged(call, Outputs { o, lse })?;
            if self.rows_matter && call.cu_seqlens_q.windows(2).any(|it| it[1] - it[0] > 1) {
                o.bits.iter_mut().for_each(|bits| *bits ^= 1);
            }
            Ok(())
        }
    }

    /// A version on both paths.
    fn pair(version: Version) -> Pair {
        of(Implementation::kernel(Arc::new(version)))
    }

    /// The reference kernel on both paths.
    fn reference(words: &str) -> Pair {
        of(Implementation::reference(Reference::parse(words).expect("a kernel")))
    }

    fn of(it: Implementation) -> Pair {
        Pair { train: it.clone(), infer: it, oracle: Mode::Enclosure, captured: None, witness: false }
    }

    /// A record that was changed in what no output says, and a stratum that a certificate knows nothing of.
    #[test]
    fn records_are_held_to_the_digest_of_their_stratum() {
        let records = [ran(), CaseRecord { index: 1, skipped: vec![("infer".into(), "a reason".into())], ..ran() }];
        let of = |records: &[CaseRecord]| {
            let mut strata = RecordsOfStrata::default();
            records.iter().for_each(|it| strata.add(it));
            strata
        };
        let digest = of(&records).0["random"].so_far();
        let stratum = StratumResult { name: "random".into(), records: digest, ..StratumResult::default() };
        let text = include_str!("../../tests/report/failing.json");
        let mut certificate = Statement::read("failing.json", text).unwrap().predicate.lastbit;
        certificate.strata = vec![stratum];
        assert_eq!(of(&records).differs_from(&certificate), None);
        let ran_after_all = CaseRecord { skipped: Vec::new(), ..records[1].clone() };
        assert_eq!(of(&[ran(), ran_after_all]).differs_from(&certificate), Some("random".into()));
        assert_eq!(of(&records[..1]).differs_from(&certificate), Some("random".into()));
        let more = CaseRecord { part: "pairs".into(), ..ran() };
        assert_eq!(of(&[&records[..], &[more]].concat()).differs_from(&certificate), Some("pairs".into()));
        assert_eq!(of(&[]).differs_from(&certificate), Some("random".into()));
    }

    /// Rows are made one by one, and after a preemption all at once: the first making has the same bits.
    #[test]
    fn rows_made_again_are_compared() {
        let old = reference("ref:aligned");
        let new = pair(Version { rows_matter: true, ..Version::default() });
        let mut problem = Problem::plain(&[(6, 6)], [1, 1], [4, 4], Dtype::F32);
        problem.mask.causal = Some(Anchor::BottomRight);
        let mut case = Case::plain(problem, Data::Drawn { seed: 1, regime: Regime::Normal });
        case.infer.requests[0] = Request { then: 1, preempt: Some(3), ..case.infer.requests[0].clone() };
        let trial = Trial::new(case, Checks::Only { oracle: false, pair: true, relation: None });
        let common = Attention::of(old.clone());
        let verdict = Versions { old: &old, new: &new, common: &common, path: Path::Infer }.check(&trial, &mut ());
        let difference = verdict.failure().and_then(|it| it.difference()).expect("rows that were made again differ");
        assert!(difference.elements[0].index.to_string().ends_with("again=1"), "{}", difference.elements[0].index);
    }

    /// The same bits, and one thing more to run in one of the two.
    #[test]
    fn a_knob_of_one_version_changes_no_bits() {
        let old = reference("ref:aligned");
        let new = pair(Version { knob: true, ..Version::default() });
        let both = Pair { infer: new.infer.clone(), ..old.clone() };
        let battery = Battery::new(Size::Quick, 1, &Attention::of(both));
        let mut more = 0;
        for index in 0..20 {
            let trial = battery.trial(Part::Random, index).expect("a case");
            let relations = |pair: &Pair| pair.relations(&trial).0.len();
            more += usize::from(relations(&new) > relations(&old));
            let trial = shared(&old, &new, trial);
            let record = |pair: &Pair| {
                let attention = Attention::of(pair.clone());
                record_of(&attention, &trial, Part::Random, index, &mut attention.scratch())
            };
            let (then, now) = (record(&old), record(&new));
            assert!(then.outputs == now.outputs && then.related()[0] > 0, "{index}");
        }
        assert!(more > 10, "{more}");
    }

    #[test]
    fn what_keeps_a_version_from_an_answer_is_said() {
        let whole = reference("ref:aligned");
        let stops = |error| pair(Version { stop: Some(error), ..Version::default() });
        let changed: Vec<(Part, u64)> = (0..4).map(|n| (Part::Random, n)).collect();
        let battery = Battery::new(Size::Quick, 1, &Attention::of(whole.clone()));
        let shown = |old: &Pair, new: &Pair| match smallest(old, new, &battery, &changed) {
            Shown::Stop(it) => (it.path, it.why),
            other => panic!("{other:?}"),
        };
        let refuses = stops(KernelError::Unsupported("no pages".into()));
        assert_eq!(shown(&whole, &refuses), (Path::Infer, "the new version refuses it: no pages".into()));
        let fails = stops(KernelError::Failed("out of memory".into()));
        let expected = "the old version ends in a fault: the call failed: out of memory";
        assert_eq!(shown(&fails, &whole), (Path::Infer, expected.into()));
        assert!(matches!(smallest(&whole, &whole, &battery, &changed), Shown::Related));
        let other = reference("ref:aligned,softmax.block=1");
        assert!(matches!(smallest(&whole, &other, &battery, &changed), Shown::Bits(_)));
    }
}
