//! Holds both sides against the oracle: errors against their computed bounds, and the true values of differing elements.

use super::accuracy::{Bound, Facts, RowBound, exact_lanes, means_are_exact, weighting};
use super::conventions::{Conventions, EmptyRow, LseBase};
use super::drive::{Produced, element_index, row_index};
use super::implementation::Implementation;
use super::numerics::{Context, Numerics};
use super::oracle::{Answer, Oracle, RowTruth, Truth, Weighting};
use super::{Case, ContextParallel, Inputs, Problem, TrainLayout};
use crate::finding::{Accuracy, Difference, Finding, Inaccuracy, Nearer, Path, Skip, Verdict, error_bin};
use crate::number::{Dtype, ulp_size};
use crate::tensor::{Index, Tensor};

/// Judges every production of every row, and gives kept differing elements their true values.
pub(super) fn judge(
    case: &Case,
    inputs: &Inputs,
    sides: [(&Implementation, Option<&Produced>); 2],
    differences: &mut [Difference],
    oracle: &mut Oracle,
    verdict: &mut Verdict,
) {
    let problem = &case.problem;
    let before = oracle.escalations();
    oracle.begin(problem, &inputs.q, &inputs.k, &inputs.v);
    let mut judges: Vec<Judge<'_>> = Path::BOTH
        .into_iter()
        .zip(sides)
        .filter_map(|(path, (implementation, side))| Some(Judge::new(path, implementation, case, side?)))
        .collect();
    // Two sides with one arithmetic share one weighting; that is the usual case and the fast one.
    let shared = judges.len() == 2 && judges[0].numerics == judges[1].numerics && judges[0].context == judges[1].context;
    for (n, judge) in judges.iter_mut().enumerate() {
        // Weightings are those of the sides that ran: a lone inference side has the first.
        judge.slot = if shared { 0 } else { n };
    }
    // Where such sides also mean the same, equal bits have equal errors: they are measured once.
    let alike = shared && judges[0].conventions == judges[1].conventions && judges[0].has_lse == judges[1].has_lse;
    let base = judges.first().map_or(LseBase::E, |judge| judge.conventions.lse_base);
    let mut undecided = [Undecided::new("o"), Undecided::new("lse")];
    let mut weightings: Vec<Weighting> = Vec::with_capacity(2);
    let mut weighted: Option<Facts> = None;
    let largest = [&inputs.q, &inputs.k, &inputs.v].map(largest);
    let mut exact = Vec::new();
    let mut row = 0;
    for (n, sequence) in problem.sequences.iter().enumerate() {
        for i in 0..sequence.q {
            let keys = problem.mask.keys(i, sequence.q, sequence.kv);
            if judges.iter().any(|judge| judge.side.present[row]) {
                for head in 0..problem.q_heads() {
                    let facts = facts(case, largest, keys.end - keys.start, head);
                    if weighted != Some(facts) {
                        weightings.clear();
                        let different = judges.iter().take(if shared { 1 } else { 2 });
                        weightings.extend(different.map(|judge| weighting(judge.numerics.as_ref(), &judge.on_path(&facts))));
                        weighted = Some(facts);
                    }
                    let truth = oracle.row(n, i, head, &weightings);
                    exact_lanes(problem, inputs, n, keys.clone(), head, &mut exact);
                    judges.iter_mut().for_each(|judge| judge.exact.clone_from(&exact));
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
                    attach(differences, problem, row, head, truth, base);
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

/// The largest magnitude in a tensor.
fn largest(tensor: &Tensor) -> f64 {
    let (dtype, mask) = (tensor.dtype, tensor.dtype.magnitude_mask());
    // Magnitudes fit 31 bits, and signed maxima are what vector units have.
    dtype.to_f64(tensor.bits.iter().fold(0, |largest: i32, bits| largest.max((bits & mask) as i32)) as u32)
}

/// What the bound must know of a row, whichever path computed it.
fn facts(case: &Case, [query_max, key_max, value_max]: [f64; 3], keys: u32, head: usize) -> Facts {
    let problem = &case.problem;
    let padding = match case.train.layout {
        TrainLayout::Dense { pad_kv, .. } => pad_kv,
        TrainLayout::Varlen => 0,
    };
    let slots = problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0) + padding;
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
        context: None,
        kv_scales: problem.fp8_kv.is_some().then(|| {
            let (k, v) = problem.kv_scales(head / problem.group_ids.len());
            [f64::from(k), f64::from(v)]
        }),
        out_dtype: problem.out_dtype,
    }
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

/// A true lse in the base a kernel reports. In base 2 it is decided only where both ends of the enclosure round alike.
fn lse_in(base: LseBase, natural: &Truth) -> Truth {
    if base == LseBase::E || !natural.value.is_finite() {
        return *natural;
    }
    let value = natural.value * std::f64::consts::LOG2_E;
    // One rounding of the product and one of the constant, each below 2^-52 of the value.
    let radius = natural.radius * 1.5 + value.abs() * 2f64.powi(-51);
    let [low, high] = [value - radius, value + radius].map(|end| Dtype::F32.round_f64(end));
    let answer = if low == high { Answer::Decided(low) } else { Answer::Undecided };
    Truth { value, radius, answer }
}

/// Gives kept differing elements of this row their true values.
fn attach(differences: &mut [Difference], problem: &Problem, row: usize, head: usize, truth: &RowTruth, base: LseBase) {
    let (heads, d_v) = (problem.q_heads(), problem.d_v as usize);
    for difference in differences {
        let lse;
        let (first, truths): (usize, &[Truth]) = match difference.output {
            "o" => ((row * heads + head) * d_v, &truth.o),
            _ => {
                lse = lse_in(base, &truth.lse);
                (row * heads + head, std::slice::from_ref(&lse))
            }
        };
        for element in &mut difference.elements {
            let Some(truth) = element.offset.checked_sub(first).and_then(|n| truths.get(n)) else { continue };
            let Answer::Decided(bits) = truth.answer else { continue };
            element.truth = Some(bits);
            let [a, b] = element.bits.map(|bits| match difference.dtype.to_f64(bits) {
                // Of an infinite truth too.
                value if value == truth.value => 0.0,
                value => (value - truth.value).abs(),
            });
            element.nearer = match a.partial_cmp(&b) {
                // Closer than the truth is known: no side is nearer.
                Some(_) if (a - b).abs() <= 2.0 * truth.radius && a != b => Nearer::Unknown,
                Some(std::cmp::Ordering::Less) => Nearer::First,
                Some(std::cmp::Ordering::Greater) => Nearer::Second,
                Some(std::cmp::Ordering::Equal) => Nearer::Same,
                // Two NaNs are no difference.
                None if a.is_nan() => Nearer::Second,
                None => Nearer::First,
            };
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

/// One result to be measured.
struct Measured<'a> {
    /// 0 is `o`, 1 is `lse`.
    output: usize,
    dtype: Dtype,
    bits: u32,
    truth: &'a Truth,
    bound: Bound,
}

/// Measures one side against the true values.
struct Judge<'a> {
    path: Path,
    problem: &'a Problem,
    side: &'a Produced,
    numerics: Option<Numerics>,
    conventions: Conventions,
    has_lse: bool,
    /// The path's context-parallel ranks, where the numerics can see them.
    context: Option<ContextParallel>,
    /// Which weighting is this side's.
    slot: usize,
    /// Of the row and head in work: lanes that only the store can round.
    exact: Vec<bool>,
    accuracy: Accuracy,
    worst: [Option<(f64, Inaccuracy)>; 2],
    judged: [u64; 2],
    out_of_range: Option<&'static str>,
}

impl<'a> Judge<'a> {
    fn new(path: Path, implementation: &Implementation, case: &'a Case, side: &'a Produced) -> Self {
        let numerics = implementation.kernel.numerics_for(case.problem.dtype);
        let context = match path {
            Path::Train => case.train.context,
            Path::Infer => case.infer.context,
        };
        Judge {
            path,
            problem: &case.problem,
            side,
            numerics,
            conventions: implementation.kernel.conventions(),
            has_lse: implementation.kernel.has_lse(),
            context: context.filter(|_| numerics.is_none_or(|it| it.grid.context != Context::AllGather)),
            slot: 0,
            exact: Vec::new(),
            accuracy: Accuracy::default(),
            worst: [None, None],
            judged: [0, 0],
            out_of_range: None,
        }
    }

    /// A row's facts on this path.
    fn on_path(&self, facts: &Facts) -> Facts {
        Facts { context: self.context, ..*facts }
    }

    /// Both sides produced this row once, with the same bits in this head.
    fn same_bits(&self, other: &Judge<'_>, row: usize, head: usize) -> bool {
        let d_v = self.problem.d_v as usize;
        let lanes = head * d_v..(head + 1) * d_v;
        let (ours, theirs) = (self.side, other.side);
        ours.present[row]
            && theirs.present[row]
            && ours.again.is_empty()
            && theirs.again.is_empty()
            && ours.o.row(row)[lanes.clone()] == theirs.o.row(row)[lanes]
            && (!self.has_lse || ours.lse.row(row)[head] == theirs.lse.row(row)[head])
    }

    /// Measures every production of one row and head, if this side has any.
    fn row(&mut self, row: usize, head: usize, truth: &RowTruth, facts: &Facts) -> Tally {
        let mut tally = Tally::default();
        // The worst of all sides counts in the end, and a high one spares divisions.
        tally.accuracy.worst = self.accuracy.worst;
        let side = self.side;
        if !side.present[row] {
            return tally;
        }
        let d_v = truth.o.len();
        let lanes = head * d_v..(head + 1) * d_v;
        self.production(&mut tally, [row, head], &side.o.row(row)[lanes.clone()], side.lse.row(row)[head], truth, facts);
        for again in side.again_of(row) {
            self.production(&mut tally, [row, head], &again.o[lanes.clone()], again.lse[head], truth, facts);
        }
        self.add(&tally);
        tally
    }

    fn production(&mut self, tally: &mut Tally, [row, head]: [usize; 2], o: &[u32], lse: u32, truth: &RowTruth, facts: &Facts) {
        let (problem, numerics) = (self.problem, self.numerics);
        let at_lane = |lane: usize| move || element_index(problem, row, head * o.len() + lane);
        let at_row = || row_index(problem, row, head);
        if truth.sums.keys == 0 && !truth.sums.sink {
            let wanted = self.conventions.empty_row;
            for (lane, &bits) in o.iter().enumerate() {
                let value = problem.out_dtype.to_f32(bits);
                let right = if wanted == EmptyRow::Nan { value.is_nan() } else { value == 0.0 };
                self.exact(tally, 0, problem.out_dtype, bits, right, at_lane(lane));
            }
            if self.has_lse {
                let value = Dtype::F32.to_f32(lse);
                let right = match wanted {
                    EmptyRow::ZeroNegInf => value == f32::NEG_INFINITY,
                    EmptyRow::ZeroPosInf => value == f32::INFINITY,
                    EmptyRow::Nan => value.is_nan(),
                };
                self.exact(tally, 1, Dtype::F32, lse, right, at_row);
            }
            return;
        }
        let row_bound = RowBound::new(numerics.as_ref(), &self.on_path(facts), &truth.sums, self.slot);
        let only_stored = !self.exact.is_empty()
            && numerics.is_some_and(|it| means_are_exact(&it, &self.on_path(facts), truth.sums.keys as u64));
        for (lane, (&bits, truth)) in o.iter().zip(&truth.o).enumerate() {
            let bound = row_bound.o(lane, truth.value.abs() + truth.radius);
            if let (true, Bound::Within(_), Answer::Decided(right)) = (only_stored && self.exact[lane], bound, truth.answer) {
                self.stored(tally, bits, right, truth, at_lane(lane));
                continue;
            }
            self.measure(tally, Measured { output: 0, dtype: problem.out_dtype, bits, truth, bound }, at_lane(lane));
        }
        if self.has_lse {
            let bound = row_bound.lse(truth.lse.value.abs() + truth.lse.radius);
            match self.conventions.lse_base {
                LseBase::E => {
                    let it = Measured { output: 1, dtype: Dtype::F32, bits: lse, truth: &truth.lse, bound };
                    self.measure(tally, it, at_row);
                }
                LseBase::Two => {
                    let truth = lse_in(LseBase::Two, &truth.lse);
                    let bound = in_base_two(bound, &truth);
                    self.measure(tally, Measured { output: 1, dtype: Dtype::F32, bits: lse, truth: &truth, bound }, at_row);
                }
            }
        }
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
        tally.accuracy.errors[error_bin(if right { 0.0 } else { f64::INFINITY })] += 1;
        if !right {
            tally.exceeded = true;
            self.report(output, dtype, bits, None, f64::INFINITY, 0.0, 1.0, index());
        }
    }

    /// A value that nothing but its store can round: any other result is wrong, also one as near to the truth.
    fn stored(&mut self, tally: &mut Tally, bits: u32, right: u32, truth: &Truth, index: impl FnOnce() -> Index) {
        let dtype = self.problem.out_dtype;
        let [value, expected] = [bits, right].map(|bits| dtype.to_f64(bits));
        let correct = bits == right || value == expected;
        tally.judged[0] += 1;
        tally.accuracy.judged += 1;
        tally.accuracy.correctly_rounded += u64::from(correct);
        tally.accuracy.above += u64::from(value - truth.value > truth.radius);
        tally.accuracy.below += u64::from(truth.value - value > truth.radius);
        tally.accuracy.errors[error_bin((value - truth.value).abs() / ulp_size(dtype, truth.value))] += 1;
        if !correct {
            tally.exceeded = true;
            let error = (value - expected).abs();
            let error = if error.is_nan() { f64::INFINITY } else { error };
            self.report(0, dtype, bits, Some(right), error, 0.0, ulp_size(dtype, expected), index());
        }
    }

    fn measure(&mut self, tally: &mut Tally, it: Measured<'_>, index: impl FnOnce() -> Index) {
        let Measured { output, dtype, bits, truth, bound } = it;
        let accuracy = &mut tally.accuracy;
        tally.judged[output] += 1;
        accuracy.judged += 1;
        let value = dtype.to_f64(bits);
        let error = (value - truth.value).abs();
        let right = match truth.answer {
            Answer::Decided(right) => Some(right),
            _ => None,
        };
        let correct = right.is_some_and(|right| bits == right || (value == 0.0 && dtype.to_f64(right) == 0.0));
        accuracy.correctly_rounded += u64::from(correct);
        accuracy.above += u64::from(value - truth.value > truth.radius);
        accuracy.below += u64::from(truth.value - value > truth.radius);
        accuracy.errors[error_bin(error / ulp_size(dtype, truth.value))] += 1;
        let (bound, exceeds) = match bound {
            Bound::Within(bound) if value.is_finite() => {
                let beyond = error - truth.radius;
                // A product tells most shares that are not the largest from those that may be, without a division.
                if beyond > 0.0 && beyond > accuracy.worst * bound * (1.0 - 1e-12) {
                    accuracy.worst = accuracy.worst.max(beyond / bound);
                }
                (bound, beyond > bound)
            }
            Bound::Within(bound) => (bound, !correct),
            // No bound, but a result that is not finite where the true value is finite is wrong all the same.
            Bound::Unbounded => {
                accuracy.unbounded += 1;
                (f64::INFINITY, !value.is_finite() && !correct)
            }
            Bound::OutOfRange(why) => {
                accuracy.out_of_range += 1;
                tally.out_of_range.get_or_insert(why);
                (f64::INFINITY, false)
            }
        };
        if exceeds {
            tally.exceeded = true;
            let error = if error.is_nan() { f64::INFINITY } else { error };
            self.report(output, dtype, bits, right, error, bound, ulp_size(dtype, truth.value), index());
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of an `Inaccuracy`
    fn report(
        &mut self,
        output: usize,
        dtype: Dtype,
        bits: u32,
        truth: Option<u32>,
        error: f64,
        bound: f64,
        ulp: f64,
        index: Index,
    ) {
        // A bound of zero is beyond any ratio.
        let beyond = if bound > 0.0 { error / bound } else { f64::INFINITY };
        let exceeding = match &mut self.worst[output] {
            Some((worst, it)) => {
                it.exceeding += 1;
                if *worst >= beyond || beyond.is_nan() {
                    return;
                }
                it.exceeding
            }
            None => 1,
        };
        let (name, path) = (["o", "lse"][output], self.path);
        let inaccuracy = Inaccuracy { path, output: name, dtype, index, bits, truth, error, bound, ulp, exceeding, judged: 0 };
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
            let reason = format!("{}: out of range: {why}", self.path);
            verdict.findings.push(Finding::Skipped { what: Skip::Bound, reason });
        }
    }
}

/// The bound of a base-2 lse: the natural one in other units, and the conversion's rounded constant and product, both relative to
/// what the kernel holds.
fn in_base_two(bound: Bound, truth: &Truth) -> Bound {
    match bound {
        Bound::Within(bound) => {
            let bound = bound * std::f64::consts::LOG2_E * (1.0 + f64::EPSILON);
            let conversion = 2.5 * Dtype::F32.unit_roundoff() * (truth.value.abs() + truth.radius + bound);
            Bound::Within(bound + conversion + Dtype::F32.least_subnormal())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
