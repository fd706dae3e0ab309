//! Runs one case: both sides, the oracle, the comparison, relations, the witness.
//!
//! Order: faults -> each side against the oracle -> bits of `o` and `lse`, train against infer -> relations. All findings are kept.

use super::accuracy::{Bound, Facts, RowBound, weighting};
use super::captured::Captured;
use super::conventions::{Conventions, EmptyRow, LseBase};
use super::drive::{self, Poison, Produced, Stop, row_index};
use super::kernel::AttentionKernel;
use super::numerics::Numerics;
use super::oracle::{Answer, Mode, Oracle, RowTruth, Truth, Weighting};
use super::reference::Reference;
use super::relation::{Relation, SidedRelation, rotate};
use super::witness::order_sensitive;
use super::{Case, Inputs, Problem};
use crate::finding::{Accuracy, Comparison, Difference, Finding, Inaccuracy, Nearer, Path, Verdict};
use crate::number::{Dtype, ulp_size};
use crate::source::Stream;
use crate::tensor::{Index, Tensor};
use std::sync::Arc;

/// A kernel under test.
#[derive(Clone)]
pub struct Implementation {
    /// What computes.
    pub kernel: Arc<dyn AttentionKernel>,
    /// The same as a reference kernel, where it is one: recipes, traces and witnesses come from it.
    pub reference: Option<Arc<Reference>>,
}

impl Implementation {
    /// A reference kernel.
    pub fn reference(reference: Reference) -> Self {
        let reference = Arc::new(reference);
        Implementation { kernel: reference.clone(), reference: Some(reference) }
    }

    /// Any other kernel.
    pub fn kernel(kernel: Arc<dyn AttentionKernel>) -> Self {
        Implementation { kernel, reference: None }
    }
}

/// What is checked of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Everything, with [`RELATIONS_PER_CASE`] relations from this place of the rotation.
    Turn(u64),
    /// One thing, for shrinking and replay.
    Only {
        /// Judge each side against the oracle.
        oracle: bool,
        /// Compare train with infer.
        pair: bool,
        /// Run this relation.
        relation: Option<SidedRelation>,
    },
}

/// Relations that a campaign runs on each case.
pub const RELATIONS_PER_CASE: usize = 2;

/// A case and what is checked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The case.
    pub case: Case,
    /// The checks.
    pub checks: Checks,
}

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

    /// Runs a trial.
    pub fn check(&self, trial: &Trial, scratch: &mut Scratch) -> Verdict {
        let case = &trial.case;
        let (oracle, pair, relations) = match trial.checks {
            Checks::Turn(turn) => {
                let mut source = Stream::new(turn, RELATION_STREAM);
                (true, true, rotate(case, turn, RELATIONS_PER_CASE, &mut source))
            }
            Checks::Only { oracle, pair, relation } => (oracle, pair, relation.into_iter().collect()),
        };
        let mut verdict = Verdict::default();
        let inputs = self.inputs(case);
        let mut sides: [Option<Produced>; 2] = [None, None];
        for (side, path) in sides.iter_mut().zip(Path::BOTH) {
            if oracle || pair || relations.iter().any(|it| it.path == path) {
                match self.drive(path, case, &inputs, Poison::Nan, None) {
                    Ok(produced) => *side = Some(produced),
                    Err(stop) => verdict.findings.push(stopped(path, stop)),
                }
            }
        }
        let mut differences = match (&sides, pair) {
            ([Some(train), Some(infer)], true) => self.compare(case, train, infer, &mut verdict),
            _ => Vec::new(),
        };
        if oracle && self.oracle != Mode::Off {
            self.judge(case, &inputs, &sides, &mut differences, scratch, &mut verdict);
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
            if verdict.capable {
                verdict.order_sensitive = order_sensitive(self, case, &inputs);
            }
        }
        verdict
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
        let mut pairs = |row: usize, a: [&[u32]; 2], b: [&[u32]; 2]| {
            if ours.empty_row != theirs.empty_row && !has_keys(problem, row) {
                empty_rows_skipped = true;
                return;
            }
            o.slices(a[0], b[0], row * a[0].len(), |n| element_index(problem, row, n));
            if with_lse {
                lse.slices(a[1], b[1], row * a[1].len(), |n| row_index(problem, row, n));
            }
        };
        for row in (0..problem.total_q()).filter(|&row| train.present[row] && infer.present[row]) {
            pairs(row, [train.o.row(row), train.lse.row(row)], [infer.o.row(row), infer.lse.row(row)]);
        }
        for again in &infer.again {
            pairs(again.row, [train.o.row(again.row), train.lse.row(again.row)], [&again.o, &again.lse]);
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
        verdict.relations += 1;
        let poison = if relation.relation == Relation::Poison { Poison::Huge } else { Poison::Nan };
        let fresh = (!variant.same_inputs).then(|| self.inputs(&variant.case));
        let other_inputs = fresh.as_ref().unwrap_or(inputs);
        let changed = match self.drive(relation.path, &variant.case, other_inputs, poison, None) {
            Ok(changed) => changed,
            Err(stop) => return verdict.findings.push(stopped(relation.path, stop)),
        };
        let problem = &case.problem;
        let names = ["base", "changed"];
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
                if base.present[row] && changed.present[other] {
                    let (a, b) = (base.o.row(row), changed.o.row(other));
                    o.slices(a, b, row * a.len(), |n| element_index(problem, row, n));
                    if has_lse {
                        let (a, b) = (base.lse.row(row), changed.lse.row(other));
                        lse.slices(a, b, row * a.len(), |n| row_index(problem, row, n));
                    }
                }
            }
        }
        verdict.findings.extend([o.finish(), lse.finish()].into_iter().flatten().map(|difference| Finding::NotInvariant {
            axis: relation.relation.axis(),
            path: relation.path,
            relation: relation.to_string(),
            difference,
        }));
    }

    /// Both sides against the oracle, and the true values of differing elements.
    fn judge(
        &self,
        case: &Case,
        inputs: &Inputs,
        sides: &[Option<Produced>; 2],
        differences: &mut [Difference],
        scratch: &mut Scratch,
        verdict: &mut Verdict,
    ) {
        let problem = &case.problem;
        let oracle = &mut scratch.oracle;
        let before = oracle.escalations();
        oracle.begin(problem, &inputs.q, &inputs.k, &inputs.v);
        let mut judges: Vec<Judge<'_>> = Path::BOTH
            .into_iter()
            .zip(sides)
            .filter_map(|(path, side)| Some(Judge::new(path, self.side(path), problem, side.as_ref()?)))
            .collect();
        // Two sides with one arithmetic share one weighting; that is the usual case and the fast one.
        let shared = judges.len() == 2 && judges[0].numerics == judges[1].numerics;
        for (n, judge) in judges.iter_mut().enumerate() {
            // Weightings are those of the sides that ran: a lone inference side has the first.
            judge.slot = if shared { 0 } else { n };
        }
        // Where such sides also mean the same, equal bits have equal errors: they are measured once.
        let alike = shared && judges[0].conventions == judges[1].conventions && judges[0].has_lse == judges[1].has_lse;
        let mut undecided = [Undecided::new("o"), Undecided::new("lse")];
        let mut weightings: Vec<Weighting> = Vec::with_capacity(2);
        let mut weighted: Option<Facts> = None;
        let largest = [&inputs.q, &inputs.k, &inputs.v].map(largest);
        let mut row = 0;
        for (n, sequence) in problem.sequences.iter().enumerate() {
            for i in 0..sequence.q {
                let keys = problem.mask.keys(i, sequence.q, sequence.kv);
                if judges.iter().any(|judge| judge.side.present[row]) {
                    for head in 0..problem.q_heads() {
                        let facts = facts(problem, largest, keys.end - keys.start, head);
                        if weighted != Some(facts) {
                            weightings.clear();
                            for judge in judges.iter().take(if shared { 1 } else { 2 }) {
                                weightings.push(weighting(judge.numerics.as_ref(), &facts));
                            }
                            weighted = Some(facts);
                        }
                        let truth = oracle.row(n, i, head, &weightings);
                        match &mut judges[..] {
                            [first, second] if alike && first.same_bits(second, row, head) => {
                                let tally = first.row(row, head, truth, &facts);
                                if tally.exceeded {
                                    second.row(row, head, truth, &facts);
                                } else {
                                    second.add(&tally);
                                }
                            }
                            judges => {
                                for judge in judges {
                                    judge.row(row, head, truth, &facts);
                                }
                            }
                        }
                        note_undecided(&mut undecided, problem, row, head, truth);
                        attach(differences, problem, row, head, truth);
                    }
                }
                row += 1;
            }
        }
        verdict.escalations += oracle.escalations() - before;
        for judge in judges {
            judge.finish(verdict);
        }
        verdict.findings.extend(undecided.into_iter().filter_map(Undecided::finish));
    }
}

/// Stream of the relation draws, apart from the case streams.
const RELATION_STREAM: u64 = u64::MAX;

fn skip(verdict: &mut Verdict, reason: String) {
    verdict.findings.push(Finding::Skipped { reason });
}

fn stopped(path: Path, stop: Stop) -> Finding {
    match stop {
        Stop::Unsupported(reason) => Finding::Skipped { reason: format!("{path}: {reason}") },
        Stop::Fault(fault) => Finding::Fault { path, fault },
    }
}

fn has_keys(problem: &Problem, row: usize) -> bool {
    let (sequence, i) = drive::sequence_of(problem, row);
    let sequence = problem.sequences[sequence];
    problem.sinks.is_some() || !problem.mask.keys(i, sequence.q, sequence.kv).is_empty()
}

fn element_index(problem: &Problem, row: usize, n: usize) -> Index {
    let d_v = problem.d_v as usize;
    let mut index = row_index(problem, row, n / d_v);
    index.0.push(("d", (n % d_v) as u64));
    index
}

/// The largest magnitude in a tensor.
fn largest(tensor: &Tensor) -> f64 {
    let (dtype, mask) = (tensor.dtype, tensor.dtype.magnitude_mask());
    // Magnitudes fit 31 bits, and signed maxima are what vector units have.
    dtype.to_f64(tensor.bits.iter().fold(0, |largest: i32, bits| largest.max((bits & mask) as i32)) as u32)
}

/// What the bound must know of a row.
fn facts(problem: &Problem, [query_max, key_max, value_max]: [f64; 3], keys: u32, head: usize) -> Facts {
    let slots = problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0);
    Facts {
        keys,
        slots,
        d_qk: problem.d_qk,
        scale: f64::from(problem.softmax_scale),
        softcap: problem.softcap.map(f64::from),
        bias: problem.alibi_slopes.is_some(),
        sink: problem.sinks.as_ref().map(|sinks| f64::from(sinks[head])),
        query_max,
        key_max,
        value_max,
        out_dtype: problem.out_dtype,
    }
}

/// Two-term sums commute: order needs three keys.
fn capable(problem: &Problem) -> bool {
    let three = |s: &super::Sequence| (0..s.q).rev().any(|i| problem.mask.keys(i, s.q, s.kv).len() >= 3);
    problem.sequences.iter().any(three)
}

/// Counts what the oracle left open.
struct Undecided {
    output: &'static str,
    elements: u64,
    first: Option<Index>,
}

impl Undecided {
    fn new(output: &'static str) -> Self {
        Undecided { output, elements: 0, first: None }
    }

    fn finish(self) -> Option<Finding> {
        let index = self.first?;
        Some(Finding::Undecided { output: self.output, elements: self.elements, index })
    }
}

fn note_undecided(undecided: &mut [Undecided; 2], problem: &Problem, row: usize, head: usize, truth: &RowTruth) {
    let d_v = truth.o.len();
    for (n, it) in truth.o.iter().enumerate() {
        if it.answer == Answer::Undecided {
            undecided[0].elements += 1;
            undecided[0].first.get_or_insert_with(|| element_index(problem, row, head * d_v + n));
        }
    }
    if truth.lse.answer == Answer::Undecided {
        undecided[1].elements += 1;
        undecided[1].first.get_or_insert_with(|| row_index(problem, row, head));
    }
}

/// Gives kept differing elements of this row their true values.
fn attach(differences: &mut [Difference], problem: &Problem, row: usize, head: usize, truth: &RowTruth) {
    let (heads, d_v) = (problem.q_heads(), problem.d_v as usize);
    for difference in differences {
        let (first, truths): (usize, &[Truth]) = match difference.output {
            "o" => ((row * heads + head) * d_v, &truth.o),
            _ => (row * heads + head, std::slice::from_ref(&truth.lse)),
        };
        for element in &mut difference.elements {
            if let Some(truth) = element.offset.checked_sub(first).and_then(|n| truths.get(n)) {
                let Answer::Decided(bits) = truth.answer else { continue };
                element.truth = Some(bits);
                let [a, b] = element.bits.map(|bits| (difference.dtype.to_f64(bits) - truth.value).abs());
                element.nearer = match a.partial_cmp(&b) {
                    Some(std::cmp::Ordering::Less) => Nearer::First,
                    Some(std::cmp::Ordering::Greater) => Nearer::Second,
                    Some(std::cmp::Ordering::Equal) => Nearer::Same,
                    None if a.is_nan() == b.is_nan() => Nearer::Unknown,
                    None if a.is_nan() => Nearer::Second,
                    None => Nearer::First,
                };
            }
        }
    }
}

/// What one row and head adds to a judge's counts.
#[derive(Default)]
struct Tally {
    accuracy: Accuracy,
    judged: [u64; 2],
    out_of_range: Option<&'static str>,
    /// Something was reported.
    exceeded: bool,
}

/// Measures one side against the true values.
struct Judge<'a> {
    path: Path,
    problem: &'a Problem,
    side: &'a Produced,
    numerics: Option<Numerics>,
    conventions: Conventions,
    has_lse: bool,
    /// Which weighting is this side's.
    slot: usize,
    accuracy: Accuracy,
    worst: [Option<(f64, Inaccuracy)>; 2],
    judged: [u64; 2],
    out_of_range: Option<&'static str>,
}

impl<'a> Judge<'a> {
    fn new(path: Path, implementation: &Implementation, problem: &'a Problem, side: &'a Produced) -> Self {
        Judge {
            path,
            problem,
            side,
            numerics: implementation.kernel.numerics(),
            conventions: implementation.kernel.conventions(),
            has_lse: implementation.kernel.has_lse(),
            slot: 0,
            accuracy: Accuracy::default(),
            worst: [None, None],
            judged: [0, 0],
            out_of_range: None,
        }
    }

    /// Both sides have this row and head, with the same bits.
    fn same_bits(&self, other: &Judge<'_>, row: usize, head: usize) -> bool {
        let d_v = self.problem.d_v as usize;
        let lanes = head * d_v..(head + 1) * d_v;
        let (ours, theirs) = (self.side, other.side);
        ours.present[row]
            && theirs.present[row]
            && ours.o.row(row)[lanes.clone()] == theirs.o.row(row)[lanes]
            && (!self.has_lse || ours.lse.row(row)[head] == theirs.lse.row(row)[head])
    }

    /// Measures one row and head, if this side has it.
    fn row(&mut self, row: usize, head: usize, truth: &RowTruth, facts: &Facts) -> Tally {
        let mut tally = Tally::default();
        // The worst of all sides counts in the end, and a high one spares divisions.
        tally.accuracy.worst = self.accuracy.worst;
        if !self.side.present[row] {
            return tally;
        }
        let d_v = truth.o.len();
        let empty = truth.sums.keys == 0 && !truth.sums.sink;
        let (side, problem) = (self.side, self.problem);
        let o = &side.o.row(row)[head * d_v..(head + 1) * d_v];
        let dtype = problem.out_dtype;
        let numerics = self.numerics;
        let row_bound = RowBound::new(numerics.as_ref(), facts, &truth.sums, self.slot);
        for (lane, (&bits, it)) in o.iter().zip(&truth.o).enumerate() {
            let index = || element_index(problem, row, head * d_v + lane);
            if empty {
                let nan = self.conventions.empty_row == EmptyRow::Nan;
                let right = if nan { dtype.to_f64(bits).is_nan() } else { dtype.to_f64(bits) == 0.0 };
                self.exact(&mut tally, 0, dtype, bits, right, index);
                continue;
            }
            let bound = row_bound.o(lane, it.value.abs() + it.radius);
            self.measure(&mut tally, 0, dtype, bits, it, bound, (1.0, 0.0), index);
        }
        if self.has_lse {
            let bits = side.lse.row(row)[head];
            let index = || row_index(problem, row, head);
            if empty {
                let value = Dtype::F32.to_f32(bits);
                let right = match self.conventions.empty_row {
                    EmptyRow::ZeroNegInf => value == f32::NEG_INFINITY,
                    EmptyRow::ZeroPosInf => value == f32::INFINITY,
                    EmptyRow::Nan => value.is_nan(),
                };
                self.exact(&mut tally, 1, Dtype::F32, bits, right, index);
            } else {
                let bound = row_bound.lse(truth.lse.value.abs() + truth.lse.radius);
                // A base-2 lse is brought to natural units; its own conversion costs a rounded constant and one product.
                let units = match self.conventions.lse_base {
                    LseBase::E => (1.0, 0.0),
                    LseBase::Two => (std::f64::consts::LN_2, 2.5 * Dtype::F32.unit_roundoff() * truth.lse.value.abs()),
                };
                self.measure(&mut tally, 1, Dtype::F32, bits, &truth.lse, bound, units, index);
            }
        }
        self.add(&tally);
        tally
    }

    /// Takes a row's counts in.
    fn add(&mut self, tally: &Tally) {
        self.accuracy.add(&tally.accuracy);
        self.judged[0] += tally.judged[0];
        self.judged[1] += tally.judged[1];
        self.out_of_range = self.out_of_range.or(tally.out_of_range);
    }

    /// A result that the conventions fix exactly.
    fn exact(&mut self, tally: &mut Tally, output: usize, dtype: Dtype, bits: u32, right: bool, index: impl FnOnce() -> Index) {
        tally.judged[output] += 1;
        tally.accuracy.judged += 1;
        tally.accuracy.correctly_rounded += u64::from(right);
        if !right {
            tally.exceeded = true;
            self.report(output, dtype, bits, None, f64::INFINITY, 0.0, index(), f64::INFINITY);
        }
    }

    /// `unit` brings the result to the truth's unit, which widens the bound by `extra`.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn measure(
        &mut self,
        tally: &mut Tally,
        output: usize,
        dtype: Dtype,
        bits: u32,
        truth: &Truth,
        bound: Bound,
        (unit, extra): (f64, f64),
        index: impl FnOnce() -> Index,
    ) {
        tally.judged[output] += 1;
        let accuracy = &mut tally.accuracy;
        accuracy.judged += 1;
        let value = dtype.to_f64(bits) * unit;
        let error = (value - truth.value).abs();
        if let Answer::Decided(right) = truth.answer {
            let equal = bits == right || (value == 0.0 && dtype.to_f64(right) == 0.0);
            accuracy.correctly_rounded += u64::from(equal);
        }
        accuracy.above += u64::from(value - truth.value > truth.radius);
        accuracy.below += u64::from(truth.value - value > truth.radius);
        match bound {
            Bound::Within(bound) if error.is_finite() && error > truth.radius => {
                let (beyond, bound) = (error - truth.radius, bound + extra);
                // A product tells most shares that are not the largest from those that may be, without a division.
                if beyond > accuracy.worst * bound * (1.0 - 1e-12) {
                    accuracy.worst = accuracy.worst.max(beyond / bound);
                }
            }
            Bound::Within(_) => {}
            Bound::Unbounded => accuracy.unbounded += 1,
            Bound::OutOfRange(why) => {
                accuracy.out_of_range += 1;
                if !value.is_finite() {
                    tally.out_of_range.get_or_insert(why);
                }
            }
        }
        if !bound_exceeded(dtype, bits, truth, &bound, unit, extra) {
            return;
        }
        tally.exceeded = true;
        match bound {
            Bound::Within(bound) => {
                let right = match truth.answer {
                    Answer::Decided(bits) => Some(bits),
                    _ => None,
                };
                let (bound, ulp) = (bound + extra, ulp_size(dtype, truth.value));
                let beyond = if error.is_nan() { f64::INFINITY } else { error / bound.max(ulp * 1e-9) };
                let error_ulps = if error.is_nan() { f64::INFINITY } else { error / ulp };
                self.report(output, dtype, bits, right, error_ulps, bound / ulp, index(), beyond);
            }
            Bound::Unbounded => self.report(output, dtype, bits, None, f64::INFINITY, f64::INFINITY, index(), f64::INFINITY),
            Bound::OutOfRange(_) => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn report(
        &mut self,
        output: usize,
        dtype: Dtype,
        bits: u32,
        truth: Option<u32>,
        error_ulps: f64,
        bound_ulps: f64,
        index: Index,
        beyond: f64,
    ) {
        let exceeding = match &self.worst[output] {
            Some((worst, it)) if *worst >= beyond => {
                let exceeding = it.exceeding + 1;
                self.worst[output].as_mut().expect("just matched").1.exceeding = exceeding;
                return;
            }
            Some((_, it)) => it.exceeding + 1,
            None => 1,
        };
        let name = ["o", "lse"][output];
        let path = self.path;
        let inaccuracy =
            Inaccuracy { path, output: name, dtype, index, bits, truth, error_ulps, bound_ulps, exceeding, judged: 0 };
        self.worst[output] = Some((beyond, inaccuracy));
    }

    fn finish(self, verdict: &mut Verdict) {
        verdict.accuracy.add(&self.accuracy);
        for (worst, judged) in self.worst.into_iter().zip(self.judged) {
            if let Some((_, mut inaccuracy)) = worst {
                inaccuracy.judged = judged;
                verdict.findings.push(Finding::Inaccurate(inaccuracy));
            }
        }
        if let Some(why) = self.out_of_range {
            skip(verdict, format!("{}: out of range: {why}", self.path));
        }
    }
}

/// Whether a result is certainly further from the true value than its bound allows. A non-finite result where the true value
/// rounds to a finite one always is, unless an overflow was predicted.
fn bound_exceeded(dtype: Dtype, bits: u32, truth: &Truth, bound: &Bound, unit: f64, extra: f64) -> bool {
    let value = dtype.to_f64(bits) * unit;
    let truth_finite = match truth.answer {
        Answer::Decided(right) => dtype.class(right).is_finite(),
        _ => true,
    };
    if !value.is_finite() {
        let right_overflow = matches!(truth.answer, Answer::Decided(right) if right == bits);
        return match bound {
            Bound::OutOfRange(_) => false,
            _ => truth_finite && !right_overflow,
        };
    }
    match bound {
        Bound::Within(bound) => (value - truth.value).abs() - truth.radius > bound + extra,
        _ => false,
    }
}
