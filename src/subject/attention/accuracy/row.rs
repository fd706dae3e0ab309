//! Steps 3 to 6 of the derivation: the bound of one row's outputs.

use super::super::numerics::{Finish, Numerics, Store, SumOf};
use super::count::{Counts, ETA, Factors, U, log_keys, round, step};
use super::descaled::Descaled;
use super::range::{check, excess, rise, store_overflow};
use super::score::exponent_error;
use super::{Bound, Facts, RowSums};
use crate::number::{Dtype, ulp_size};
use core_math::{exp, expm1, log, log1p};

/// Widens the f64 evaluation.
const WIDEN: f64 = 1.0 + 1.0 / (1 << 20) as f64;

/// The bound of one row, ready for each of its outputs.
#[derive(Clone, Copy, Debug)]
pub struct RowBound<'a> {
    sums: &'a RowSums,
    /// Of the row's weighting.
    value_error: &'a [f64],
    out_dtype: Dtype,
    store: Store,
    /// The least magnitude whose store may give infinity.
    overflow: Option<f64>,
    declared: bool,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Empty,
    Unbounded,
    OutOfRange(&'static str),
    Terms(Terms),
}

/// Everything but the lane.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// `t` of step 2 as a factor minus one.
    uniform: f64,
    /// `W`, with `t` and the sink.
    weight_error: f64,
    /// `max(L - W, L e^-D)`: at least `sum W_j` on the oracle's scale.
    least_weight: f64,
    /// `1 + A` of step 4, as `A`.
    value_excess: f64,
    /// `B` of step 4.
    sum_excess: f64,
    /// Underflow of `acc` and `l`, as shares of `sum W_j`.
    value_tiny: f64,
    sum_tiny: f64,
    /// `b` without the underflow of `l`.
    divisor: f64,
    /// Of `least_weight` and `divisor`: WIDEN covers a product in place of each lane's division.
    inverse_weight: f64,
    inverse_divisor: f64,
    /// The largest value that a quotient can have.
    hull: f64,
    /// Underflow of the quotient.
    quotient_tiny: f64,
    /// `D`.
    exponent: f64,
    /// Roundings of an lse: a share of `|lse|` and of the rest.
    lse_relative: f64,
    lse_extent: f64,
    lse_tiny: f64,
}

impl<'a> RowBound<'a> {
    /// The bound of a row under these numerics (`None`: undeclared). `weighting` is the place in `sums.weight_error` and
    /// `sums.value_error` of what [`weighting`](super::weighting) gave for the same numerics and facts.
    ///
    /// # Panics
    /// If `weighting` is not a place in `sums`.
    pub fn new(numerics: Option<&Numerics>, facts: &Facts, sums: &'a RowSums, weighting: usize) -> RowBound<'a> {
        let counts = Counts::of(numerics, facts);
        let state = if sums.keys == 0 && !sums.sink {
            State::Empty
        } else if let Some(reason) = check(&counts, facts, sums) {
            State::OutOfRange(reason)
        } else {
            Terms::of(&counts, facts, sums, weighting).map_or(State::Unbounded, State::Terms)
        };
        RowBound {
            sums,
            value_error: &sums.value_error[weighting],
            out_dtype: facts.out_dtype,
            store: counts.numerics.store,
            overflow: store_overflow(facts.out_dtype, counts.numerics.store),
            declared: counts.declared,
            state,
        }
    }

    /// How far output lane `lane` may lie from the true value, whose magnitude is at most `value_abs`.
    ///
    /// # Panics
    /// If `lane` is not a place in the row's value sums.
    #[inline]
    pub fn o(&self, lane: usize, value_abs: f64) -> Bound {
        let t = match self.state {
            State::Empty => return Bound::Within(0.0),
            State::Unbounded => return Bound::Unbounded,
            State::OutOfRange(reason) => return Bound::OutOfRange(reason),
            State::Terms(ref terms) => terms,
        };
        let abs = self.sums.value_abs[lane];
        let (sum_tiny, value_tiny, divisor) = (t.sum_tiny, t.value_tiny, t.divisor);
        if divisor <= 0.0 {
            return Bound::Unbounded;
        }
        // Step 3.
        let error = finite(self.value_error[lane]) * (1.0 + t.uniform) + t.uniform * abs;
        let weights = (error + value_abs * t.weight_error) * t.inverse_weight;
        // Step 4.
        let sums =
            (t.value_excess * (abs + error) * t.inverse_weight + value_tiny + (value_abs + weights) * (t.sum_excess + sum_tiny))
                * t.inverse_divisor;
        let hull = value_abs + t.hull;
        // An infinite weight error beside a zero gives NaN, which `min` passes over.
        let quotient = (hull.min(weights + sums) + t.quotient_tiny) * WIDEN;
        // Step 6.
        let magnitude = value_abs + quotient;
        if self.overflow.is_some_and(|overflow| magnitude >= overflow) {
            return Bound::OutOfRange("the output may overflow its format");
        }
        let stored = if self.out_dtype == Dtype::F32 && self.declared {
            0.0
        } else {
            let ulp = ulp_size(self.out_dtype, magnitude.min(self.out_dtype.max_finite()));
            let saturated = (magnitude - self.out_dtype.max_finite()).max(0.0);
            saturated + if self.store == Store::Truncate { ulp } else { ulp / 2.0 }
        };
        Bound::Within((quotient + stored) * WIDEN)
    }

    /// How far the row's log-sum-exp may lie from the true value, whose magnitude is at most `value_abs`.
    pub fn lse(&self, value_abs: f64) -> Bound {
        let t = match self.state {
            State::Empty => return Bound::Within(0.0),
            State::Unbounded => return Bound::Unbounded,
            State::OutOfRange(reason) => return Bound::OutOfRange(reason),
            State::Terms(ref terms) => terms,
        };
        let (sum_tiny, least) = (t.sum_tiny, t.divisor);
        if least <= 0.0 {
            return Bound::Unbounded;
        }
        let weight = self.sums.weight;
        let high = log1p(t.sum_excess + sum_tiny);
        let sums = high.max(-near_log(least));
        let weights = log1p(t.weight_error / weight).max(-near_log(t.least_weight / weight));
        let core = sums + weights.min(t.exponent);
        let bound = core + t.lse_relative * (value_abs + t.lse_extent + core) + t.lse_tiny;
        if bound.is_finite() { Bound::Within(bound * WIDEN) } else { Bound::Unbounded }
    }
}

/// `ln x`. CORE-MATH's log1p is as exact and much faster beside 1, where `x - 1` is exact too.
fn near_log(x: f64) -> f64 {
    if (0.5..=2.0).contains(&x) { log1p(x - 1.0) } else { log(x) }
}

/// An error sum that overflowed, or met 0 * inf, is infinite.
fn finite(sum: f64) -> f64 {
    if sum.is_nan() { f64::INFINITY } else { sum }
}

impl Terms {
    /// `None` if unbounded.
    fn of(counts: &Counts<'_>, facts: &Facts, sums: &RowSums, weighting: usize) -> Option<Terms> {
        let numerics = counts.numerics;
        let exponents = exponent_error(counts, facts)?;
        let rho = |magnitude: f64| exponents.weighting.per_magnitude * magnitude + exponents.weighting.constant;
        let above = excess(counts, facts, sums);
        let rise = rise(counts, facts, sums);
        let sink_magnitude = facts.sink.map_or(0.0, |sink| sink.abs() + (sink - sums.max_score).abs());
        let exponent = rho(sums.magnitude_max.max(sink_magnitude));
        let second = exponents.second_order * (exponent + 2.0 * above);
        let uniform = expm1(second);
        let exponent = exponent + second;

        // The sink's score is exact, its weight is not; whether the oracle counts it in W or not, W here has it.
        let sink_error = facts.sink.map_or(0.0, |sink| exp((sink - sums.max_score).min(0.0)) * expm1(rho(sink_magnitude)));
        let weight = sums.weight;
        let weight_error =
            finite((finite(sums.weight_error[weighting]) + finite(sink_error)) * (1.0 + uniform) + uniform * weight);
        let least_weight = (weight - weight_error).max(weight * exp(-exponent));

        // On the kernel's scale the largest score has weight 1 (or more, or e^-z) but for the exponentials' errors.
        let largest = exp(-above - rise - (counts.rescales + counts.merges + 3.0) * counts.exp);
        let kernel_weight = largest.max(least_weight * exp(-exponent - above));

        let (value, sum) = (step(numerics.value.acc), step(numerics.rowsum.acc));
        let probs = round(numerics.probs.dtype);
        let it = Descaled::of(counts, facts);
        let n = f64::from(sums.keys);
        let sink = if sums.sink { 1.0 } else { 0.0 };
        let rescales = counts.rescales.min(n) + sink;

        let mut value_factors = Factors::default();
        let mut sum_factors = Factors::default();
        value_factors.times(n + 2.0 + rescales, value.relative).times(1.0, probs.relative).times(1.0, it.value_error);
        sum_factors.times(n + 1.0 + sink + rescales, sum.relative);
        if numerics.rowsum.of == SumOf::RoundedP {
            sum_factors.times(1.0, probs.relative);
        }
        let divisions = match numerics.finish {
            Finish::Divide => 1.0,
            Finish::Reciprocal => 2.0,
        };
        value_factors.times(divisions, U);
        if numerics.probs.normalised {
            // The weights are divided before the sum; a sink may change the divisor after it.
            value_factors.times(divisions + 2.0 * sink, U);
        }
        let partial = round(numerics.grid.partial_dtype);
        let mut quotient_tiny = 3.0 * ETA * it.on_output.max(1.0) + ETA;
        if counts.partials {
            let stages = counts.merges + sink;
            value_factors.times(4.0 * stages, U).times(stages + 1.0, partial.relative);
            sum_factors.times(stages, U);
            quotient_tiny += (stages + 1.0) * (partial.tiny + 8.0 * ETA + 4.0 * ETA * it.true_value_max);
        }
        let (value_excess, sum_excess) = (value_factors.excess(), sum_factors.excess());
        let sum_least = sum_factors.least();
        if !value_excess.is_finite() || !sum_excess.is_finite() || sum_least <= 0.0 {
            return None;
        }

        // Underflow: each weight, each rescale factor (times weights of at most e^lag), roundings to probs.dtype, products.
        let weight_tiny = n * ETA * (2.0 + rescales * exp(counts.lag + rise));
        let rounded = n * probs.tiny;
        let mut value_tiny = weight_tiny * it.true_value_max + (n + rescales) * value.tiny * it.on_output;
        let mut sum_tiny = weight_tiny + ETA + (n + 1.0 + rescales) * sum.tiny;
        if numerics.probs.normalised {
            quotient_tiny += (rounded + 2.0 * n * ETA) * it.true_value_max * (1.0 + value_excess)
                + (n + rescales) * value.tiny * it.on_output * (1.0 + value_excess);
        } else {
            value_tiny += rounded * it.true_value_max;
        }
        if it.folded && numerics.finish == Finish::Reciprocal {
            // What underflows of `(1 / l) * scale`, times `acc`.
            quotient_tiny += ETA * n * exp(counts.lag + rise) * it.value_max * (1.0 + value_excess);
        }
        if numerics.rowsum.of == SumOf::RoundedP {
            sum_tiny += rounded;
        }

        let sum_tiny = sum_tiny * (1.0 + sum_excess) / kernel_weight;
        let value_tiny = (value_tiny / kernel_weight + it.load_tiny) * (1.0 + value_excess);
        let divisor = sum_least - sum_tiny;
        let extent = log_keys(n) + counts.lag + above + rise;
        let folded = counts.folded();
        Some(Terms {
            uniform,
            weight_error,
            least_weight,
            value_excess,
            sum_excess,
            value_tiny,
            sum_tiny,
            divisor,
            inverse_weight: 1.0 / least_weight,
            inverse_divisor: 1.0 / divisor,
            hull: ((1.0 + value_excess) * it.true_value_max + value_tiny) / divisor,
            quotient_tiny,
            exponent,
            // ln l and its sum with the maximum; under folded_log2e the maximum is scaled back as well.
            lse_relative: if folded { 8.0 * U + it.key_error } else { 2.0 * U },
            lse_extent: 2.0 * extent + if folded { exponent } else { 0.0 },
            lse_tiny: 8.0 * ETA,
        })
    }
}
