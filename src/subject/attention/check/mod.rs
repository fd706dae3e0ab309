//! Runs one case: both sides, the oracle, the comparison, relations, the witness.
//!
//! Order: faults -> each side against the oracle -> bits of `o` and `lse`, train against infer -> relations. All findings are kept, but
//! for those that a kernel which does not repeat itself makes meaningless.

mod outputs;
mod relate;
mod repeat;

pub(crate) use outputs::OutputDigest;

pub(crate) use relate::RELATION_STREAM;

use super::captured::Captured;
use super::drive::{self, Observed, Poison, Produced, Stop, element_index, row_index};
use super::implementation::Implementation;
use super::judge::judge;
use super::oracle::{Mode, Oracle};
use super::reach::Watch;
use super::relation::{SidedRelation, undo};
use super::scope::{Scope, SideScope};
use super::trial::{Checks, Trial};
use super::validate::FieldError;
use super::witness::order_sensitive;
use super::{Case, Inputs, Problem, validate};
use crate::finding::{Comparison, Difference, Finding, Path, Skip, Verdict};
use crate::number::Dtype;
use crate::tensor::Index;
use std::sync::Arc;

/// Buffers one thread reuses.
pub struct Scratch {
    pub(super) oracle: Oracle,
    /// Where asked for: a digest of the output bits of every run of the next check.
    pub(crate) outputs: Option<OutputDigest>,
}

/// Both kernels and how they are judged.
#[derive(Clone)]
pub struct Pair {
    /// The training kernel.
    pub train: Implementation,
    /// The inference kernel.
    pub infer: Implementation,
    /// Oracle mode.
    pub oracle: Mode,
    /// Captured tensors that cases may name.
    pub captured: Option<Arc<Captured>>,
    /// Run the order witness.
    pub witness: bool,
}

impl Pair {
    /// The kernel of a path.
    pub fn side(&self, path: Path) -> &Implementation {
        match path {
            Path::Train => &self.train,
            Path::Infer => &self.infer,
        }
    }

    /// Whether both sides are one kernel.
    fn alike(&self) -> bool {
        self.train.kernel.identity() == self.infer.kernel.identity()
    }

    /// What both kernels can do.
    pub fn scope(&self) -> Scope {
        Scope::of(&*self.train.kernel, &*self.infer.kernel)
    }

    /// The case's tensors.
    pub fn inputs(&self, case: &Case) -> Inputs {
        Inputs::new(case, self.captured.as_deref().map(|captured| captured as _))
    }

    /// Fresh buffers.
    pub fn scratch(&self) -> Scratch {
        Scratch { oracle: Oracle::new(self.oracle), outputs: None }
    }

    /// Drives one path.
    ///
    /// # Errors
    /// When the kernel does not support the case, fails, or leaves a slot unwritten.
    pub fn drive(
        &self,
        path: Path,
        case: &Case,
        inputs: &Inputs,
        poison: Poison,
        observer: Option<drive::Observer<'_>>,
    ) -> Result<Produced, Stop> {
        let kernel = &*self.side(path).kernel;
        let side = SideScope::of(path, kernel);
        // A case from a file may ask for anything: what was never declared is no fault of the kernel's.
        if !side.is_everything()
            && let Some(reason) = side.outside(case)
        {
            return Err(Stop::Unsupported(reason));
        }
        self.call(path, case, inputs, poison, observer)
    }

    /// Drives one path also where its kernel declares that it does not do the case.
    ///
    /// # Errors
    /// As [`Pair::drive`].
    pub(crate) fn drive_anyway(&self, path: Path, case: &Case, inputs: &Inputs, poison: Poison) -> Result<Produced, Stop> {
        self.call(path, case, inputs, poison, None)
    }

    fn call(
        &self,
        path: Path,
        case: &Case,
        inputs: &Inputs,
        poison: Poison,
        observer: Option<drive::Observer<'_>>,
    ) -> Result<Produced, Stop> {
        let kernel = &*self.side(path).kernel;
        match path {
            Path::Train => drive::train(kernel, &case.problem, &case.train, inputs, poison, observer),
            Path::Infer => drive::infer(kernel, &case.problem, &case.infer, inputs, poison, observer),
        }
    }

    /// Measures results against the true values, and takes their bits into the digest that may be asked for.
    pub(crate) fn judge(
        &self,
        case: &Case,
        inputs: &Inputs,
        sides: [Option<&Produced>; 2],
        scratch: &mut Scratch,
        verdict: &mut Verdict,
    ) {
        if let Some(outputs) = &mut scratch.outputs {
            sides.iter().flatten().for_each(|produced| outputs.add(produced));
        }
        let [train, infer] = sides;
        judge(case, inputs, [(&self.train, train), (&self.infer, infer)], &mut [], &mut scratch.oracle, verdict);
    }

    /// Runs a trial.
    pub fn check(&self, trial: &Trial, scratch: &mut Scratch) -> Verdict {
        let case = &trial.case;
        let mut verdict = Verdict::default();
        let (oracle, pair, mut relations) = match &trial.checks {
            Checks::Turn(_) | Checks::All { .. } | Checks::These(_) => {
                // What kernels declare, a page size say, may lie beyond that: no case file could hold such a case, nor memory its tensors.
                if let Err(FieldError { field, reason }) = validate(case) {
                    skip(&mut verdict, Skip::Case, format!("beyond the limits of a case: {field} {reason}"));
                    return verdict;
                }
                let (relations, left_out) = self.relations(trial);
                (verdict.left_out, verdict.relations_left_out) = (trial.left_out.clone(), left_out);
                (true, true, relations)
            }
            Checks::Only { oracle, pair, relation } => (*oracle, *pair, relation.iter().cloned().collect()),
        };
        // A whole case, not one thing of it.
        let turn = !matches!(trial.checks, Checks::Only { .. });
        let inputs = self.inputs(case);
        let mut sides: [Option<Produced>; 2] = [None, None];
        for (side, path) in sides.iter_mut().zip(Path::BOTH) {
            if oracle || pair || relations.iter().any(|it| it.path == path) {
                let stand_in = self.side(path).stand_in(case.problem.dtype);
                let mut watch = Watch::new(&stand_in, &case.problem, &inputs);
                let mut observer = |seen: Observed<'_>| watch.see(&seen);
                let observer = turn.then_some(&mut observer as drive::Observer<'_>);
                match self.drive(path, case, &inputs, Poison::Nan, observer) {
                    Ok(produced) => {
                        if let Some(outputs) = &mut scratch.outputs {
                            outputs.add(&produced);
                        }
                        *side = Some(produced);
                        verdict.reach.add(watch.reach());
                    }
                    Err(stop) => verdict.findings.push(stopped(path, stop, None)),
                }
            }
        }
        let mut differences = match (&sides, pair) {
            ([Some(train), Some(infer)], true) => self.compare(case, train, infer, &mut verdict),
            _ => Vec::new(),
        };
        if !differences.is_empty() && turn && self.alike() {
            // A kernel that differs from itself is not invariant to something: find out to what.
            let drawn = relations.clone();
            let undone = undo(case).into_iter().filter(|it| !drawn.contains(it) && self.beyond(case, it).is_none());
            relations.extend(undone);
        }
        if oracle && self.oracle != Mode::Off {
            let sides = [(&self.train, sides[0].as_ref()), (&self.infer, sides[1].as_ref())];
            judge(case, &inputs, sides, &mut differences, &mut scratch.oracle, &mut verdict);
        }
        verdict.findings.extend(differences.into_iter().map(Finding::Mismatch));
        for relation in &relations {
            if let Some(base) = &sides[relation.path as usize] {
                self.relate(case, &inputs, base, relation, &mut scratch.outputs, &mut verdict);
            }
        }
        // Repeats that only explain a difference are no part of the count.
        let (related, along) = (verdict.related, verdict.along.clone());
        self.repeat_first(case, &inputs, sides.each_ref().map(Option::as_ref), &relations, &mut verdict);
        (verdict.related, verdict.along) = (related, along);
        if self.witness && turn {
            verdict.capable = capable(&case.problem);
            verdict.order_sensitive = self.witnessed(case, &inputs);
        }
        verdict
    }

    /// Whether another order of summation would change a bit of the case: whether its match could have failed. Asked of a
    /// reference kernel, the training side's stand-in where neither side is one. `None` where no row has three keys.
    pub fn witnessed(&self, case: &Case, inputs: &Inputs) -> Option<bool> {
        let reference = self
            .train
            .reference
            .clone()
            .or(self.infer.reference.clone())
            .unwrap_or_else(|| self.train.stand_in(case.problem.dtype));
        capable(&case.problem).then(|| order_sensitive(&reference, case, inputs)).flatten()
    }

    /// Bits of `o` and `lse`, train against infer, in every production of a row.
    fn compare(&self, case: &Case, train: &Produced, infer: &Produced, verdict: &mut Verdict) -> Vec<Difference> {
        let problem = &case.problem;
        let names = ["train", "infer"];
        let [ours, theirs] = [&self.train, &self.infer].map(|side| side.kernel.conventions());
        let mut o = Comparison::new("o", problem.out_dtype, names);
        let mut lse = Comparison::new("lse", Dtype::F32, names);
        let mut with_lse = true;
        for path in Path::BOTH {
            if !self.side(path).kernel.has_lse() {
                verdict.left_out.push(format!("lse ({path} has none)"));
                with_lse = false;
            }
        }
        if with_lse && ours.lse_base != theirs.lse_base {
            skip(verdict, Skip::Pair, format!("lse in base {} against base {}", ours.lse_base, theirs.lse_base));
            with_lse = false;
        }
        let mut empty_rows_skipped = false;
        let mut pairs = |row: usize, production: usize, a: [&[u32]; 2], b: [&[u32]; 2]| {
            if ours.empty_row != theirs.empty_row && !has_keys(problem, row) {
                empty_rows_skipped = true;
                return;
            }
            o.slices(a[0], b[0], row * a[0].len(), |n| produced(element_index(problem, row, n), production));
            if with_lse {
                lse.slices(a[1], b[1], row * a[1].len(), |n| produced(row_index(problem, row, n), production));
            }
        };
        for row in 0..problem.total_q() {
            // Training makes every row, once; one that inference does not make has no production.
            let expected = [train.o.row(row), train.lse.row(row)];
            for (production, results) in productions(infer, row).enumerate() {
                pairs(row, production, expected, results);
            }
        }
        if self.oracle == Mode::Off && has_non_finite(problem, train) {
            // Equal NaNs are equal, but without an oracle nobody says that they are right.
            skip(verdict, Skip::Pair, "results that are not finite, and no oracle to judge them".into());
        }
        if empty_rows_skipped {
            skip(verdict, Skip::Pair, format!("empty rows declared {} against {}", ours.empty_row, theirs.empty_row));
        }
        verdict.compared += o.compared() + lse.compared();
        [o.finish(), lse.finish()].into_iter().flatten().collect()
    }
}

fn skip(verdict: &mut Verdict, what: Skip, reason: String) {
    verdict.findings.push(Finding::Skipped { what, reason });
}

/// Why a run gave nothing, as a finding.
pub(super) fn stopped(path: Path, stop: Stop, relation: Option<&SidedRelation>) -> Finding {
    match stop {
        Stop::Unsupported(reason) => {
            let what = relation.map_or(Skip::Run(path), |it| Skip::Changed(it.relation.changed()));
            Finding::Skipped { what, reason: format!("{path}: {reason}") }
        }
        Stop::Fault(fault) => Finding::Fault { path, fault, relation: relation.map(|it| it.to_string()) },
    }
}

fn has_keys(problem: &Problem, row: usize) -> bool {
    let (sequence, i) = drive::sequence_of(problem, row);
    let sequence = problem.sequences[sequence];
    problem.sinks.is_some() || !problem.mask.keys(i, sequence.q, sequence.kv).is_empty()
}

/// Whether a row with keys has a NaN or an infinity. Of the training side: it makes every row.
fn has_non_finite(problem: &Problem, side: &Produced) -> bool {
    let finite = |dtype: Dtype, bits: &[u32]| bits.iter().all(|&bits| dtype.class(bits).is_finite());
    (0..problem.total_q()).filter(|&row| has_keys(problem, row)).any(|row| !finite(problem.out_dtype, side.o.row(row)))
}

/// Names a later production of a row; the first needs no name.
pub(crate) fn produced(mut index: Index, production: usize) -> Index {
    if production > 0 {
        index.0.push(("again", production as u64));
    }
    index
}

/// The results of a row in the order they were produced, `o` and `lse`.
pub(crate) fn productions(side: &Produced, row: usize) -> impl Iterator<Item = [&[u32]; 2]> {
    let first = side.present[row].then(|| [side.o.row(row), side.lse.row(row)]);
    let again = side.again_of(row).iter().map(|it| [&it.o[..], &it.lse[..]]);
    first.into_iter().chain(again)
}

/// Two-term sums commute: order needs three keys.
fn capable(problem: &Problem) -> bool {
    let three = |s: &super::Sequence| (0..s.q).rev().any(|i| problem.mask.keys(i, s.q, s.kv).len() >= 3);
    problem.sequences.iter().any(three)
}

#[cfg(test)]
mod tests;
