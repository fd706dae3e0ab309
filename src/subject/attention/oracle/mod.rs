//! The oracle: the true attention output and log-sum-exp, correctly rounded, with proof.
//!
//! Row `i` of a sequence with `q` rows and `kv` keys stands at `p = i + kv - q` (top-left causal anchor: `p = i`). For its visible
//! keys `j`, exactly: `s_j = softcap(scale * q.k_j) - slope |p - j|`, `o_x = sum e^(s_j) v_jx / sum e^(s_j)`,
//! `lse = ln sum e^(s_j)`; of an 8-bit KV cache, `k_j` and `v_j` are what is stored times the scale of its head. A sink is one more
//! key of that score whose value is zero. A row without keys has `o = 0` and `lse = -inf`, with a sink `lse = sink`. The operands are dyadic rationals, so "exactly" has a meaning; the answer is that real
//! number rounded to nearest even in the output format, and zero's sign is free (+0 is given).
//!
//! Two steps. First an enclosure in `f64` with a full running error analysis (`enclosure.rs`): if both its ends round to the same
//! pattern, that is proven. What is left open goes to exact arithmetic: scores as exact numbers, equal ones grouped (`exact.rs`);
//! narrower balls from MPFR until one rounding boundary is left (`decide.rs`); and the side of that boundary from the sign of a sum of
//! exponentials with exact coefficients (`sign.rs`), which is zero only if every coefficient is. So ties, exact zeros and gaps of
//! any size are decided. With softcap, scores are not algebraic and the last step is capped: the answer may be `Undecided`.
//!
//! Nothing here is shared with the reference kernels or with [`Mask::keys`](super::Mask::keys).

mod boundary;
mod decide;
mod enclosure;
mod exact;
mod inputs;
mod naive;
mod sign;
mod step;
mod sums;

pub use step::{Reference as ReferenceScore, Steps};
pub use sums::{RowSums, Weighting};

use super::Problem;
use crate::number::Dtype;
use crate::tensor::Tensor;
use boundary::{Between, beside, between, quickly};
use enclosure::Enclosure;
use exact::Exact;
use inputs::{Inputs, Row};
use naive::Naive;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// How the first step works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `f64` enclosures.
    #[default]
    Enclosure,
    /// Everything in MPFR at 200 bits: slow, to check and to time the first.
    Mpfr,
    /// No oracle: every answer is `Undecided`, every sum zero.
    Off,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Enclosure => "enclosure",
            Mode::Mpfr => "mpfr",
            Mode::Off => "off",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "enclosure" => Ok(Mode::Enclosure),
            "mpfr" => Ok(Mode::Mpfr),
            "off" => Ok(Mode::Off),
            _ => Err(format!("unknown oracle mode `{text}` (one of enclosure, mpfr, off)")),
        }
    }
}

/// What is known of the correctly rounded result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pattern, proven; +0 for either zero. Overflow to infinity is a rounding like any other.
    Decided(u32),
    /// Not decided within the limits on precision (softcap only, in practice), or the oracle is off.
    Undecided,
    /// NaN or infinity among the inputs that the element depends on: there is no true value.
    NotFinite,
}

/// The truth about one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Near the true value; NaN where there is none. `-inf` for the `lse` of an empty row.
    pub value: f64,
    /// `|true value - value|` is at most this; infinite where nothing is known.
    pub radius: f64,
    /// Its rounding.
    pub answer: Answer,
}

impl Truth {
    const UNKNOWN: Truth = Truth { value: 0.0, radius: f64::INFINITY, answer: Answer::Undecided };
    const NOT_FINITE: Truth = Truth { value: f64::NAN, radius: f64::INFINITY, answer: Answer::NotFinite };

    /// An enclosure, decided if no boundary lies in it.
    #[inline]
    fn enclosed(dtype: Dtype, value: f64, radius: f64) -> Truth {
        let (lo, hi) = (value - radius, value + radius);
        if let Some(bits) = quickly(dtype, lo, hi) {
            return Truth { value, radius, answer: Answer::Decided(bits) };
        }
        let answer = match between(dtype, lo, hi) {
            Between::Nothing(bits) => Answer::Decided(bits),
            Between::One(_) | Between::Many => Answer::Undecided,
        };
        Truth { value, radius, answer }
    }

    fn is_open(&self) -> bool {
        self.answer == Answer::Undecided
    }
}

/// The truth about one row of one head.
#[derive(Clone, Debug)]
pub struct RowTruth {
    /// `[d_v]`, in the problem's output format.
    pub o: Vec<Truth>,
    /// In F32.
    pub lse: Truth,
    /// What the accuracy bound is computed from.
    pub sums: RowSums,
}

/// Answers row by row; keeps its scratch from row to row and from problem to problem.
#[derive(Debug)]
pub struct Oracle {
    mode: Mode,
    inputs: Inputs,
    naive: Naive,
    enclosure: Enclosure,
    products: Vec<f64>,
    row: RowTruth,
    escalations: u64,
}

impl Oracle {
    /// An oracle without a problem.
    pub fn new(mode: Mode) -> Self {
        Oracle {
            mode,
            inputs: Inputs::default(),
            naive: Naive::default(),
            enclosure: Enclosure::default(),
            products: Vec::new(),
            row: RowTruth { o: Vec::new(), lse: Truth::UNKNOWN, sums: RowSums::default() },
            escalations: 0,
        }
    }

    /// Takes a problem in: `q` is `[total_q, q_heads, d_qk]`, `k` is `[total_kv, kv_heads, d_qk]` and `v` is
    /// `[total_kv, kv_heads, d_v]`, packed over the sequences in problem order, in any formats. Softcap must be positive.
    ///
    /// # Panics
    /// If a tensor does not have that many elements.
    pub fn begin(&mut self, problem: &Problem, q: &Tensor, k: &Tensor, v: &Tensor) {
        if self.mode != Mode::Off {
            self.inputs.load(problem, q, k, v);
        }
        if self.mode == Mode::Mpfr {
            self.naive.load(&self.inputs);
        }
    }

    /// Elements, of every problem so far, that the first step left open.
    pub fn escalations(&self) -> u64 {
        self.escalations
    }

    /// Exact arithmetic for the steps inside one row; `None` where its inputs are not all finite, or with [`Mode::Off`].
    ///
    /// # Panics
    /// If there is no such row or head in the problem.
    pub fn steps(&mut self, problem: &Problem, sequence: usize, row: u32, head: usize) -> Option<Steps<'_>> {
        if self.mode == Mode::Off {
            return None;
        }
        let (row, visible) = self.inputs.whole_row(sequence, row, head);
        Steps::new(row, visible, problem, head)
    }

    /// The truth about row `row` of the `sequence`-th sequence, for query head `head`; `weightings` ask for error sums.
    ///
    /// Asking for all heads of a row one after another is cheapest. Without escalation nothing is allocated once the scratch
    /// has grown to the problem. With [`Mode::Off`] there is nothing to ask: `o` is empty and `lse` unknown.
    ///
    /// # Panics
    /// If there is no such row or head in the problem.
    pub fn row(&mut self, sequence: usize, row: u32, head: usize, weightings: &[Weighting]) -> &RowTruth {
        self.row.o.clear();
        self.row.lse = Truth::UNKNOWN;
        if self.mode == Mode::Off {
            return &self.row;
        }
        let view = self.inputs.row(sequence, row, head);
        self.row.sums.reset(view.n, view.sink.is_some(), view.d_v, weightings.len());
        if view.broken {
            self.row.o.resize(view.d_v, Truth::NOT_FINITE);
            self.row.lse = Truth::NOT_FINITE;
            return &self.row;
        }
        if view.n == 0 && view.sink.is_none() {
            let zero = Truth { value: 0.0, radius: 0.0, answer: Answer::Decided(0) };
            self.row.o.resize(view.d_v, zero);
            let bits = f32::NEG_INFINITY.to_bits();
            self.row.lse = Truth { value: f64::NEG_INFINITY, radius: 0.0, answer: Answer::Decided(bits) };
            return &self.row;
        }
        let homogeneous = self.mode == Mode::Mpfr;
        let sound = self.enclosure.score(&view, homogeneous) && self.enclosure.weigh(homogeneous);
        if sound {
            self.row.sums.gather(&view, &mut self.enclosure, weightings, &mut self.products);
            self.enclosure.finish(&view);
        } else {
            self.enclosure.give_up(view.d_v);
        }
        if sound && self.mode == Mode::Mpfr {
            let balls = self.naive.row(&view, &self.enclosure);
            let (lse, o) = balls.split_last().expect("lse comes last");
            let answer = |dtype, ball: &decide::Ball| {
                let (lo, hi) = ball.ends();
                match between(dtype, lo, hi) {
                    Between::Nothing(bits) => Truth { answer: Answer::Decided(bits), ..ball.truth() },
                    Between::One(_) | Between::Many => ball.truth(),
                }
            };
            self.row.o.extend(o.iter().map(|ball| answer(view.out, ball)));
            self.row.lse = answer(Dtype::F32, lse);
        } else {
            let outputs = self.enclosure.output.iter().zip(&self.enclosure.radius);
            self.row.o.extend(outputs.map(|(&value, &radius)| Truth::enclosed(view.out, value, radius)));
            self.row.lse = Truth::enclosed(Dtype::F32, self.enclosure.lse, self.enclosure.lse_radius);
        }
        if view.look_at_v {
            for (x, truth) in self.row.o.iter_mut().enumerate() {
                if view.lane_broken(x) {
                    *truth = Truth::NOT_FINITE;
                }
            }
        }
        if view.n == 0 {
            // Only a sink: its value and its score are known exactly.
            let sink = view.sink.expect("an empty row without a sink was answered above");
            let bits = beside(Dtype::F32, sink, Ordering::Equal);
            self.row.lse = Truth { value: sink, radius: 0.0, answer: Answer::Decided(bits) };
            self.row.o.fill(Truth { value: 0.0, radius: 0.0, answer: Answer::Decided(0) });
        }
        let open = self.row.o.iter().chain([&self.row.lse]).filter(|truth| truth.is_open()).count();
        if open > 0 {
            self.escalations += open as u64;
            escalate(&view, sound, &mut self.enclosure, &mut self.row, weightings, &mut self.products);
        }
        &self.row
    }
}

/// Step 2 for what is open in a row.
fn escalate(
    row: &Row,
    sound: bool,
    enclosure: &mut Enclosure,
    truth: &mut RowTruth,
    weightings: &[Weighting],
    products: &mut Vec<f64>,
) {
    let mut exact = Exact::new(row);
    if !sound {
        // Step 1 stumbled over the errors of its scores: with exact ones it mostly succeeds, and the sums mean something.
        let (distances, max) = exact.distances();
        enclosure.set_distances(distances.into_iter(), max);
        if enclosure.weigh(false) {
            truth.sums.gather(row, enclosure, weightings, products);
            enclosure.finish(row);
            for ((into, &value), &radius) in truth.o.iter_mut().zip(&enclosure.output).zip(&enclosure.radius) {
                if into.is_open() {
                    *into = Truth::enclosed(row.out, value, radius);
                }
            }
            truth.lse = Truth::enclosed(Dtype::F32, enclosure.lse, enclosure.lse_radius);
        }
    }
    for (x, truth) in truth.o.iter_mut().enumerate() {
        if truth.is_open() {
            *truth = decide::output(&mut exact, row, x, *truth);
        }
    }
    if truth.lse.is_open() {
        truth.lse = decide::lse(&mut exact, row);
    }
}
