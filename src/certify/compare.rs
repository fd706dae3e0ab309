//! Two versions side by side: which cases gave other bits, and the smallest of them.

use super::certificate::{Certificate, StratumResult};
use super::claim::Claim;
use super::digest::Lines;
use super::record::CaseRecord;
use crate::finding::{Comparison, Difference, Finding, Path, Verdict};
use crate::number::Dtype;
use crate::shrink::{BUDGET, shrink};
use crate::subject::attention::Attention;
use crate::subject::attention::battery::{Battery, Part};
use crate::subject::attention::check::Pair;
use crate::subject::attention::drive::{Poison, element_index, row_index};
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::{Candidate, Subject};
use std::collections::BTreeMap;

/// What has become of a stratum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StratumChange {
    /// Cases in both.
    pub cases: u64,
    /// Elements compared in the new one, by the checks of the battery.
    pub elements: u64,
    /// Cases with other output bits.
    pub changed: u64,
    /// Failing cases, before and now.
    pub failed: [u64; 2],
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

/// Digests of the outputs of each stratum, as a certificate has them.
#[derive(Default)]
pub struct OutputsOfStrata(BTreeMap<String, Lines>);

impl OutputsOfStrata {
    /// Takes the next case in.
    pub fn add(&mut self, record: &CaseRecord) {
        self.0.entry(record.part.clone()).or_default().add(&record.outputs);
    }

    /// The first stratum of a certificate whose outputs are others, or are not there.
    pub fn differs_from<'c>(&self, certificate: &'c Certificate) -> Option<&'c str> {
        let same = |it: &&StratumResult| self.0.get(&it.name).is_some_and(|lines| lines.so_far() == it.outputs);
        certificate.strata.iter().find(|it| !same(it)).map(|it| it.name.as_str())
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
        let stratum = self.strata.entry(part).or_default();
        stratum.cases += 1;
        stratum.elements += new.pair[0] + new.related()[0];
        for (n, record) in [old, new].into_iter().enumerate() {
            stratum.failed[n] += u64::from(!record.failures.is_empty());
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

/// The smallest case made of the changed ones. `None`: none shows it in the runs of its own plans, only under a relation.
pub fn smallest(old: &Pair, new: &Pair, battery: &Battery, changed: &[(Part, u64)]) -> Option<Smallest> {
    let sized = changed.iter().filter_map(|&(part, index)| {
        let trial = battery.trial(part, index)?;
        Some((battery.attention.size(&trial), part, index, trial))
    });
    let mut sized: Vec<_> = sized.collect();
    sized.sort_by(|a, b| (&a.0, a.1, a.2).cmp(&(&b.0, b.1, b.2)));
    // A case whose digest changed under a relation alone shows nothing here: the next.
    sized.into_iter().find_map(|(_, part, index, trial)| {
        Path::BOTH.into_iter().find_map(|path| {
            let versions = Versions { old, new, common: battery.attention(part), path };
            let signature = versions.check(&trial, &mut ()).failure()?.signature();
            let small = shrink(&versions, &trial, &signature, BUDGET, &mut ())?;
            let difference = small.finding.difference()?.clone();
            Some(Smallest { from: (part, index), path, trial: small.trial, difference })
        })
    })
}

impl Subject for Versions<'_> {
    type Trial = Trial;
    type Scratch = ();

    fn scratch(&self) {}

    fn draw(&self, seed: u64, index: u64) -> Trial {
        self.common.draw(seed, index)
    }

    fn check(&self, trial: &Trial, (): &mut ()) -> Verdict {
        let (case, problem) = (&trial.case, &trial.case.problem);
        let inputs = self.common.pair.inputs(case);
        let mut verdict = Verdict::default();
        let run = |pair: &Pair| pair.drive(self.path, case, &inputs, Poison::Nan, None);
        let (Ok(old), Ok(new)) = (run(self.old), run(self.new)) else { return verdict };
        let names = ["old", "new"];
        let mut o = Comparison::new("o", problem.out_dtype, names);
        let mut lse = Comparison::new("lse", Dtype::F32, names);
        for row in (0..problem.total_q()).filter(|&row| old.present[row] && new.present[row]) {
            let at = |tensor: &crate::tensor::Tensor| row * tensor.row(row).len();
            o.slices(old.o.row(row), new.o.row(row), at(&old.o), |n| element_index(problem, row, n));
            lse.slices(old.lse.row(row), new.lse.row(row), at(&old.lse), |n| row_index(problem, row, n));
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
