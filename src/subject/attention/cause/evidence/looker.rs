//! The runs behind a finding, and what is asked of them.

use super::claim::{Claim, coarsest};
use super::seen;
use crate::finding::{Finding, Inaccuracy, Path, Verdict};
use crate::number::Dtype;
use crate::subject::attention::cause::{Cause, CauseKind, Method};
use crate::subject::attention::check::Pair;
use crate::subject::attention::drive::{Poison, Produced, row_index};
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::judge::judge;
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::oracle::{Mode, Oracle};
use crate::subject::attention::relation::{Relation, SidedRelation};
use crate::subject::attention::{Case, Inputs};
use crate::tensor::Index;
use std::fmt;
use std::sync::Arc;

/// One run behind a finding: a path, as it is or under a relation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub path: Path,
    pub relation: Option<SidedRelation>,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        self.relation.as_ref().map_or(Ok(()), |relation| write!(f, " under `{relation}`"))
    }
}

impl Run {
    /// Both sides of a mismatch, the base run and the changed one of a relation, or the one run that is wrong.
    pub fn behind(finding: &Finding) -> Vec<Run> {
        let plain = |path| Run { path, relation: None };
        match finding {
            Finding::Mismatch(_) => Path::BOTH.map(plain).to_vec(),
            Finding::NotInvariant { path, relation, .. } => {
                let changed = relation.parse().ok().map(|relation| Run { path: *path, relation: Some(relation) });
                [Some(plain(*path)), changed].into_iter().flatten().collect()
            }
            Finding::Inaccurate(it) => vec![plain(it.path)],
            _ => Vec::new(),
        }
    }

    /// The case that it runs; `None` where the relation means nothing for it.
    fn changed(&self, case: &Case) -> Option<Case> {
        self.relation.as_ref().map_or_else(|| Some(case.clone()), |relation| Some(relation.apply(case)?.case))
    }
}

/// What a run gave.
pub(super) struct Looked {
    pub case: Case,
    pub inputs: Inputs,
    pub produced: Produced,
}

/// Makes runs and judges them.
pub(super) struct Looker<'a> {
    pub pair: &'a Pair,
    /// The case of the finding.
    pub case: &'a Case,
    pub oracle: Oracle,
}

impl<'a> Looker<'a> {
    pub fn new(pair: &'a Pair, case: &'a Case) -> Self {
        // A campaign without an oracle still wants its causes.
        Looker { pair, case, oracle: Oracle::new(if pair.oracle == Mode::Off { Mode::Enclosure } else { pair.oracle }) }
    }

    /// Runs a case; `None` where it gives nothing.
    pub fn run(&self, run: &Run, case: &Case) -> Option<Looked> {
        let huge = matches!(&run.relation, Some(SidedRelation { relation: Relation::Poison, .. }));
        self.run_over(run, case, if huge { Poison::Huge } else { Poison::Nan })
    }

    fn run_over(&self, run: &Run, case: &Case, poison: Poison) -> Option<Looked> {
        let case = run.changed(case)?;
        let inputs = self.pair.inputs(&case);
        let produced = self.pair.drive(run.path, &case, &inputs, poison, None).ok()?;
        Some(Looked { case, inputs, produced })
    }

    /// What the kernel of a run declares for a case.
    pub fn declared(&self, run: &Run, case: &Case) -> Option<Numerics> {
        self.pair.side(run.path).kernel.numerics_for(case.problem.dtype)
    }

    /// What lies beyond the bounds of an arithmetic, and how many elements that arithmetic may take out of range.
    pub fn judged(&mut self, run: &Run, looked: &Looked, numerics: Option<Numerics>) -> (Vec<Inaccuracy>, u64) {
        let kernel = &self.pair.side(run.path).kernel;
        let claim = Claim { numerics, conventions: kernel.conventions(), has_lse: kernel.has_lse() };
        let claim = Implementation::kernel(Arc::new(claim));
        let sides = Path::BOTH.map(|path| (&claim, (path == run.path).then_some(&looked.produced)));
        let mut verdict = Verdict::default();
        judge(&looked.case, &looked.inputs, sides, &mut [], &mut self.oracle, &mut verdict);
        let beyond = verdict.findings.into_iter().filter_map(|finding| match finding {
            Finding::Inaccurate(it) => Some(it),
            _ => None,
        });
        (beyond.collect(), verdict.accuracy.out_of_range)
    }

    /// The worst element that no arithmetic with 16-bit steps explains, of `o` if there is one there. What such an arithmetic may take out of
    /// range it only explains if the result is not finite.
    pub fn inexplicable(&mut self, run: &Run, looked: &Looked, exact_sums: bool) -> Option<Inaccuracy> {
        let declared = self.declared(run, &looked.case);
        let mut first = None;
        for dtype in [Dtype::BF16, Dtype::F16] {
            let (beyond, out_of_range) = self.judged(run, looked, Some(coarsest(declared, dtype, exact_sums)));
            match beyond.into_iter().next() {
                None if out_of_range == 0 => return None,
                None => {}
                Some(worst) => {
                    first.get_or_insert(worst);
                }
            }
        }
        first
    }

    /// Whether results depend on what dead slots hold: slots beyond a sequence, padding, spare pages.
    pub fn dead_slots(&mut self, run: &Run) -> Option<Cause> {
        let poisoned = self.run_over(run, self.case, Poison::Nan)?;
        let problem = &poisoned.case.problem;
        for (other, words) in [(Poison::Zero, "zeros"), (Poison::Huge, "huge numbers")] {
            let Some(looked) = self.run_over(run, self.case, other) else { continue };
            for row in (0..problem.total_q()).filter(|&row| poisoned.produced.present[row]) {
                for head in 0..problem.q_heads() {
                    let lanes = head * problem.d_v as usize..(head + 1) * problem.d_v as usize;
                    let of = |it: &Produced| (it.o.row(row)[lanes.clone()].to_vec(), it.lse.row(row)[head]);
                    if of(&poisoned.produced) != of(&looked.produced) {
                        let index = place(&row_index(problem, row, head));
                        let what = format!("{index} ({run}) changes when dead slots hold {words} in place of NaN: it reads them");
                        return Some(seen(CauseKind::Semantics, Method::DeadSlots, what));
                    }
                }
            }
        }
        None
    }
}

/// One coordinate of an index.
pub(super) fn at(index: &Index, axis: &str) -> u64 {
    index.0.iter().find(|(name, _)| *name == axis).map_or(0, |&(_, n)| n)
}

/// A row and head in words.
pub(super) fn place(index: &Index) -> String {
    format!("row {} of sequence {}, head {}", at(index, "row"), at(index, "seq"), at(index, "head"))
}
