//! Runs one case: both sides, the oracle, the comparison, relations, the witness.
//!
//! Order: faults -> each side against the oracle -> bits of `o` and `lse`, train against infer -> relations. All findings are kept.

use super::captured::Captured;
use super::data::Known;
use super::drive::{self, Poison, Produced, Stop, element_index, row_index};
use super::implementation::Implementation;
use super::judge::judge;
use super::oracle::{Mode, Oracle};
use super::relation::{Relation, SidedRelation, rotate, undo};
use super::trial::{Checks, RELATIONS_PER_CASE, Trial};
use super::witness::order_sensitive;
use super::{Case, Inputs, Problem};
use crate::finding::{Comparison, Difference, Finding, Path, Verdict};
use crate::number::Dtype;
use crate::source::Stream;
use crate::tensor::Index;
use std::sync::Arc;

/// Buffers one thread reuses.
pub struct Scratch {
    pub(super) oracle: Oracle,
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

    /// The case's tensors.
    pub fn inputs(&self, case: &Case) -> Inputs {
        Inputs::new(case, self.captured.as_deref().map(|captured| captured as _))
    }

    /// Fresh buffers.
    pub fn scratch(&self) -> Scratch {
        Scratch { oracle: Oracle::new(self.oracle) }
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
        match path {
            Path::Train => drive::train(kernel, &case.problem, &case.train, inputs, poison, observer),
            Path::Infer => drive::infer(kernel, &case.problem, &case.infer, inputs, poison, observer),
        }
    }

    /// Whether a relation that was drawn is run: a kernel that does not say that it can work as ranks is not asked to.
    pub(crate) fn asks(&self, drawn: &SidedRelation) -> bool {
        let ranks = matches!(drawn.relation, Relation::ContextRanks { context: Some(_) });
        !ranks || self.side(drawn.path).kernel.context_parallel()
    }

    /// The relations of a case's turn.
    pub(super) fn relations_of_turn(&self, case: &Case, turn: u64) -> Vec<SidedRelation> {
        let mut drawn = rotate(case, turn, RELATIONS_PER_CASE, &mut Stream::new(turn, RELATION_STREAM));
        drawn.retain(|it| self.asks(it));
        drawn
    }

    /// Runs a trial.
    pub fn check(&self, trial: &Trial, scratch: &mut Scratch) -> Verdict {
        let case = &trial.case;
        let (oracle, pair, mut relations) = match trial.checks {
            Checks::Turn(turn) => (true, true, self.relations_of_turn(case, turn)),
            Checks::Only { oracle, pair, relation } => (oracle, pair, relation.into_iter().collect()),
        };
        let mut verdict = Verdict::default();
        let inputs = self.inputs(case);
        let mut sides: [Option<Produced>; 2] = [None, None];
        for (side, path) in sides.iter_mut().zip(Path::BOTH) {
            if oracle || pair || relations.iter().any(|it| it.path == path) {
                match self.drive(path, case, &inputs, Poison::Nan, None) {
                    Ok(produced) => *side = Some(produced),
                    Err(stop) => verdict.findings.push(stopped(path, stop, None)),
                }
            }
        }
        let mut differences = match (&sides, pair) {
            ([Some(train), Some(infer)], true) => self.compare(case, train, infer, &mut verdict),
            _ => Vec::new(),
        };
        if !differences.is_empty() && matches!(trial.checks, Checks::Turn(_)) && self.alike() {
            // A kernel that differs from itself is not invariant to something: find out to what.
            let drawn = relations.clone();
            relations.extend(undo(case).into_iter().filter(|it| !drawn.contains(it)));
        }
        if oracle && self.oracle != Mode::Off {
            let sides = [(&self.train, sides[0].as_ref()), (&self.infer, sides[1].as_ref())];
            judge(case, &inputs, sides, &mut differences, &mut scratch.oracle, &mut verdict);
        }
        verdict.findings.extend(differences.into_iter().map(Finding::Mismatch));
        for relation in relations {
            let base = &sides[relation.path as usize];
            if let Some(base) = base {
                self.relate(case, &inputs, base, relation, &mut verdict);
            }
        }
        if self.witness && matches!(trial.checks, Checks::Turn(_)) {
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
                skip(verdict, format!("{path}: the kernel has no lse"));
                with_lse = false;
            }
        }
        if with_lse && ours.lse_base != theirs.lse_base {
            skip(verdict, format!("lse in base {} against base {}", ours.lse_base, theirs.lse_base));
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
        for row in (0..problem.total_q()).filter(|&row| train.present[row] && infer.present[row]) {
            let expected = [train.o.row(row), train.lse.row(row)];
            for (production, results) in productions(infer, row).enumerate() {
                pairs(row, production, expected, results);
            }
        }
        if self.oracle == Mode::Off && has_non_finite(problem, train) {
            // Equal NaNs are equal, but without an oracle nobody says that they are right.
            skip(verdict, "results that are not finite, and no oracle to judge them".into());
        }
        if empty_rows_skipped {
            skip(verdict, format!("empty rows declared {} against {}", ours.empty_row, theirs.empty_row));
        }
        verdict.compared += o.compared() + lse.compared();
        [o.finish(), lse.finish()].into_iter().flatten().collect()
    }

    /// One relation: runs the changed case on one path and compares the rows that both runs have.
    fn relate(&self, case: &Case, inputs: &Inputs, base: &Produced, relation: SidedRelation, verdict: &mut Verdict) {
        let Some(variant) = relation.apply(case) else { return };
        let poison = if relation.relation == Relation::Poison { Poison::Huge } else { Poison::Nan };
        let known = Known { problem: &case.problem, inputs };
        let captured = self.captured.as_deref().map(|captured| captured as _);
        let fresh = (!variant.same_inputs).then(|| Inputs::with(&variant.case, captured, Some(known)));
        let other_inputs = fresh.as_ref().unwrap_or(inputs);
        // Rows made again are in the base run already.
        let again = relation.relation == Relation::Recompute;
        let changed = match again {
            true => None,
            false => match self.drive(relation.path, &variant.case, other_inputs, poison, None) {
                Ok(changed) => Some(changed),
                Err(stop) => return verdict.findings.push(stopped(relation.path, stop, Some(relation))),
            },
        };
        let problem = &case.problem;
        let names = if again { ["first", "again"] } else { ["base", "changed"] };
        let mut o = Comparison::new("o", problem.out_dtype, names);
        let mut lse = Comparison::new("lse", Dtype::F32, names);
        let has_lse = self.side(relation.path).kernel.has_lse();
        for (n, sequence) in variant.case.problem.sequences.iter().enumerate() {
            let Some(ours) = problem.sequences.iter().position(|it| it.id == sequence.id) else { continue };
            if variant.except == Some(sequence.id) {
                continue;
            }
            for i in 0..sequence.q as usize {
                let (row, other) = (inputs.q_start[ours] + i, other_inputs.q_start[n] + i);
                let mut pair = |a: [&[u32]; 2], b: [&[u32]; 2], production| {
                    o.slices(a[0], b[0], row * a[0].len(), |n| produced(element_index(problem, row, n), production));
                    if has_lse {
                        lse.slices(a[1], b[1], row * a[1].len(), |n| produced(row_index(problem, row, n), production));
                    }
                };
                match &changed {
                    Some(changed) => {
                        let both = productions(base, row).zip(productions(changed, other));
                        both.enumerate().for_each(|(production, (a, b))| pair(a, b, production));
                    }
                    None => {
                        let mut ours = productions(base, row);
                        if let Some(first) = ours.next() {
                            ours.enumerate().for_each(|(n, again)| pair(first, again, n + 1));
                        }
                    }
                }
            }
        }
        // A relation that left nothing to compare was not run.
        verdict.relations += u64::from(o.compared() > 0);
        verdict.related[0] += o.compared();
        verdict.related[1] += lse.compared();
        for difference in [o.finish(), lse.finish()].into_iter().flatten() {
            let (axis, path, relation) = (relation.relation.axis(), relation.path, relation.to_string());
            let finding = Finding::NotInvariant { axis, path, relation, difference };
            // Two relations of one axis may show the same.
            if verdict.findings.iter().all(|it| it.signature() != finding.signature()) {
                verdict.findings.push(finding);
            }
        }
    }
}

/// Stream of the relation draws, apart from the case streams.
pub(crate) const RELATION_STREAM: u64 = u64::MAX;

fn skip(verdict: &mut Verdict, reason: String) {
    verdict.findings.push(Finding::Skipped { reason });
}

/// Why a run gave nothing, as a finding.
pub(super) fn stopped(path: Path, stop: Stop, relation: Option<SidedRelation>) -> Finding {
    match stop {
        Stop::Unsupported(reason) => Finding::Skipped { reason: format!("{path}: {reason}") },
        Stop::Fault(fault) => Finding::Fault { path, fault, relation: relation.map(|it| it.to_string()) },
    }
}

fn has_keys(problem: &Problem, row: usize) -> bool {
    let (sequence, i) = drive::sequence_of(problem, row);
    let sequence = problem.sequences[sequence];
    problem.sinks.is_some() || !problem.mask.keys(i, sequence.q, sequence.kv).is_empty()
}

/// Whether a row with keys has a NaN or an infinity.
fn has_non_finite(problem: &Problem, side: &Produced) -> bool {
    let finite = |dtype: Dtype, bits: &[u32]| bits.iter().all(|&bits| dtype.class(bits).is_finite());
    (0..problem.total_q())
        .filter(|&row| side.present[row] && has_keys(problem, row))
        .any(|row| !finite(problem.out_dtype, side.o.row(row)))
}

/// Names a later production of a row; the first needs no name.
fn produced(mut index: Index, production: usize) -> Index {
    if production > 0 {
        index.0.push(("again", production as u64));
    }
    index
}

/// The results of a row in the order they were produced, `o` and `lse`.
fn productions(side: &Produced, row: usize) -> impl Iterator<Item = [&[u32]; 2]> {
    let first = side.present[row].then(|| [side.o.row(row), side.lse.row(row)]);
    let again = side.again_of(row).iter().map(|it| [&it.o[..], &it.lse[..]]);
    first.into_iter().chain(again)
}

/// Two-term sums commute: order needs three keys.
fn capable(problem: &Problem) -> bool {
    let three = |s: &super::Sequence| (0..s.q).rev().any(|i| problem.mask.keys(i, s.q, s.kv).len() >= 3);
    problem.sequences.iter().any(three)
}
