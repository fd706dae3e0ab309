//! The running quantities that the accuracy bound of a kernel is computed from.

use super::enclosure::{Enclosure, SLACK, value_sums};
use super::inputs::Row;

/// How much relative error a kernel's weight may carry, as a function of the key: with
/// `g = scale * sum|q k| + |bias| + |s - m|`, the weight errs by at most the factor `rho = expm1(per_magnitude * g + constant)`.
///
/// A sink has `g = |sink| + |sink - m|`. Both fields are non-negative and may be infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighting {
    /// Exponent error for each unit of `g`.
    pub per_magnitude: f64,
    /// Exponent error of every key.
    pub constant: f64,
}

/// Sums over one row and head, with `w = e^(s - m)` and `m` the row's largest score.
///
/// `max_score` is within 2^-20, or one rounding, of the truth; `weight` and `value_abs` are within 2^-19 relative; `weight_error`
/// and `value_error` are upper bounds of theirs (to 2^-1070 absolute), at most 2% too large. All are zero where the row's answers are
/// `NotFinite`; lanes whose own values hold a NaN or infinity mean nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSums {
    /// Visible keys; a sink is not counted.
    pub keys: u32,
    /// A finite sink takes part.
    pub sink: bool,
    /// `m`, over keys and sink; -inf for an empty row without a sink.
    pub max_score: f64,
    /// The largest `g` of [`Weighting`] over the keys (before softcap); 0 without keys.
    pub magnitude_max: f64,
    /// The largest `scale * sum|q k| + |bias|` over the keys; 0 without keys.
    pub score_magnitude_max: f64,
    /// The largest `|s - m|` over keys and sink whose weight is not zero in `f64`.
    pub distance_max: f64,
    /// `L = sum w`, sink included; 0 for an empty row without a sink.
    pub weight: f64,
    /// For each weighting, `sum w rho`, sink included.
    pub weight_error: Vec<f64>,
    /// `[d_v]`: `sum w |v|`.
    pub value_abs: Vec<f64>,
    /// For each weighting, `[d_v]`: `sum w rho |v|`.
    pub value_error: Vec<Vec<f64>>,
}

impl RowSums {
    /// Sizes every list, and says what an empty row says.
    pub(super) fn reset(&mut self, keys: usize, sink: bool, d_v: usize, weightings: usize) {
        self.keys = keys as u32;
        self.sink = sink;
        self.max_score = f64::NEG_INFINITY;
        self.magnitude_max = 0.0;
        self.score_magnitude_max = 0.0;
        self.distance_max = 0.0;
        self.weight = 0.0;
        refill(&mut self.weight_error, weightings);
        refill(&mut self.value_abs, d_v);
        self.value_error.resize_with(weightings, Vec::new);
        for lanes in &mut self.value_error {
            refill(lanes, d_v);
        }
    }

    /// Everything but the sums over lanes, from a weighed enclosure.
    pub(super) fn scalars(&mut self, row: &Row, enclosure: &Enclosure) {
        self.max_score = enclosure.max_score;
        self.score_magnitude_max = enclosure.magnitude[..row.n].iter().copied().fold(0.0, f64::max);
        let magnitudes = enclosure.magnitude[..row.n].iter().zip(&enclosure.distance).map(|(g, t)| g + t.abs());
        self.magnitude_max = magnitudes.fold(0.0, f64::max);
        let weighed = enclosure.distance.iter().zip(&enclosure.weight).filter(|(_, weight)| **weight > 0.0);
        self.distance_max = weighed.fold(0.0, |max, (t, _)| t.abs().max(max));
        self.weight = enclosure.total;
    }

    /// All sums of a weighed enclosure, and the value sums of the enclosure itself in the same pass. `products` is scratch.
    pub(super) fn gather(&mut self, row: &Row, enclosure: &mut Enclosure, weightings: &[Weighting], products: &mut Vec<f64>) {
        self.scalars(row, enclosure);
        for (which, weighting) in weightings.iter().enumerate() {
            weighting.products(enclosure, products);
            self.weight_error[which] = products.iter().sum::<f64>() * SLACK;
            let lanes = &mut self.value_error[which];
            if which == 0 {
                enclosure.sum_with(row, &mut self.value_abs, &products[..row.n], lanes);
            } else {
                value_sums(row, [], [&products[..row.n]], [], [lanes]);
            }
            if products.iter().any(|product| product.is_infinite()) {
                // Infinity times a zero value is nothing, not NaN.
                for (x, lane) in lanes.iter_mut().enumerate() {
                    let terms = (0..row.n).map(|n| (products[n], row.value(n, x).abs())).filter(|&(_, v)| v != 0.0);
                    *lane = terms.map(|(product, v)| product * v).sum();
                }
            }
            lanes.iter_mut().for_each(|lane| *lane *= SLACK);
        }
        if weightings.is_empty() {
            enclosure.sum(row);
        }
    }
}

impl Weighting {
    /// `w rho` for each key and the sink, not below the true one.
    fn products(&self, enclosure: &Enclosure, into: &mut Vec<f64>) {
        into.clear();
        let keys = enclosure.magnitude.iter().zip(&enclosure.distance).zip(&enclosure.delta).zip(&enclosure.weight);
        into.extend(keys.map(|(((&magnitude, &t), &delta), &weight)| {
            let exponent = self.per_magnitude * (magnitude + t.abs()) + self.constant;
            let exponent = if exponent.is_nan() { f64::INFINITY } else { exponent };
            if weight > 1e-300 {
                // The true weight is at most `1 + delta + delta^2` times this one.
                weight * (1.0 + delta + delta * delta) * expm1_above(exponent)
            } else if self.per_magnitude == 0.0 && self.constant == 0.0 {
                0.0
            } else {
                // A weight too small for `f64` may yet come with an enormous factor: one exponential for both.
                core_math::exp(t + delta + exponent)
            }
        }));
    }
}

/// Not below `e^x - 1`, for `x >= 0`; within a few percent of a percent.
fn expm1_above(x: f64) -> f64 {
    if x < 0.0625 {
        // e^x - 1 = x + x^2/2 (1 + x/3 + x^2/12 + ...), and the bracket is below 1.022 here.
        x + x * x * 0.52
    } else {
        core_math::expm1(x) * SLACK
    }
}

fn refill(list: &mut Vec<f64>, length: usize) {
    list.clear();
    list.resize(length, 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expm1_is_bounded_from_above() {
        for n in 0..4000 {
            let x = core_math::exp(-30.0 + f64::from(n) * 0.009);
            let bound = expm1_above(x);
            assert!(bound >= core_math::expm1(x) && bound <= core_math::expm1(x) * 1.01, "{x}");
        }
        assert_eq!(expm1_above(f64::INFINITY), f64::INFINITY);
        assert_eq!(expm1_above(0.0), 0.0);
    }

    #[track_caller]
    fn near(value: f64, derived: f64) {
        assert!((value - derived).abs() <= derived.abs() * 1e-8, "{value:e}, derived {derived:e}");
    }

    /// `w rho` of each key: the weight's own error counts, and a weight that has vanished may come back with its factor.
    #[test]
    fn products_of_weights_and_factors() {
        let mut enclosure = Enclosure::default();
        enclosure.magnitude = vec![0.5, 3.0, 10.0, 10.0];
        enclosure.distance = vec![0.0, -1.5, -705.0, -800.0];
        enclosure.delta = vec![0.0, 0.25, 0.125, 0.5];
        enclosure.weight = vec![1.0, 0.25, 0.0, 0.0];
        for (per_magnitude, constant) in [(0.5, 0.25), (0.0, 0.125), (0.25, 0.0), (1.0, 1.0)] {
            let mut products = Vec::new();
            Weighting { per_magnitude, constant }.products(&enclosure, &mut products);
            let exponent = |g: f64| per_magnitude * g + constant;
            near(products[0], expm1_above(exponent(0.5)));
            near(products[1], 0.25 * (1.0 + 0.25 + 0.0625) * expm1_above(exponent(4.5)));
            near(products[2], (-705.0 + 0.125 + exponent(715.0)).exp());
            near(products[3], (-800.0 + 0.5 + exponent(810.0)).exp());
        }
        let mut products = Vec::new();
        Weighting { per_magnitude: 0.0, constant: 0.0 }.products(&enclosure, &mut products);
        assert_eq!(products, [0.0; 4]);
    }

    /// All sums of a short row, under one weighting and under two, of which one knows no bound.
    #[test]
    fn sums_of_a_row() {
        let row = Row {
            q: &[2.0],
            k: &[1.0, -0.5, -500.0],
            v: &[1.0, -2.0, 0.5, 0.25, 0.0, 8.0],
            n: 3,
            d_qk: 1,
            d_v: 2,
            first: 0,
            position: 2,
            scale: 1.0,
            cap: None,
            slope: None,
            sink: None,
            out: crate::number::Dtype::F32,
            v_max: 8.0,
            broken: false,
            look_at_v: false,
            offsets: [0; 3],
        };
        let known = Weighting { per_magnitude: 0.01, constant: 0.25 };
        let unbounded = Weighting { per_magnitude: f64::INFINITY, constant: 0.0 };
        for weightings in [vec![], vec![known], vec![known, unbounded], vec![unbounded, known]] {
            let (mut enclosure, mut sums, mut products) = (Enclosure::default(), RowSums::default(), Vec::new());
            assert!(enclosure.score(&row, false) && enclosure.weigh(false));
            sums.reset(row.n, false, row.d_v, weightings.len());
            sums.gather(&row, &mut enclosure, &weightings, &mut products);
            let w = [1.0, f64::exp(-3.0), 0.0];
            assert_eq!((sums.max_score, sums.score_magnitude_max, sums.magnitude_max), (2.0, 1000.0, 2002.0));
            // A weight that has vanished is at no distance.
            assert_eq!(sums.distance_max, 3.0);
            near(sums.weight, w[0] + w[1]);
            near(enclosure.output[0], w[0] + 0.5 * w[1]);
            near(enclosure.output[1], -2.0 * w[0] + 0.25 * w[1]);
            for (which, weighting) in weightings.iter().enumerate() {
                near(sums.value_abs[0], w[0] + 0.5 * w[1]);
                near(sums.value_abs[1], 2.0 * w[0] + 0.25 * w[1]);
                if *weighting == unbounded {
                    assert_eq!((sums.weight_error[which], &sums.value_error[which]), (f64::INFINITY, &vec![f64::INFINITY; 2]));
                    continue;
                }
                let rho = [2.0, 4.0].map(|g| expm1_above(0.01 * g + 0.25));
                let last = f64::exp(-1002.0 + 0.01 * 2002.0 + 0.25);
                near(sums.weight_error[which], w[0] * rho[0] + w[1] * rho[1] + last);
                near(sums.value_error[which][0], w[0] * rho[0] + 0.5 * w[1] * rho[1]);
                near(sums.value_error[which][1], 2.0 * w[0] * rho[0] + 0.25 * w[1] * rho[1] + 8.0 * last);
            }
        }
    }

    /// Beside a product without bound, a lane is the sum of the products with what is not zero in it.
    #[test]
    fn a_product_without_bound_reaches_only_the_lanes_that_it_weighs() {
        let row = Row {
            q: &[1.0],
            k: &[1.0, 0.0],
            v: &[3.0, 0.0, 1.0, 4.0],
            n: 2,
            d_qk: 1,
            d_v: 2,
            first: 0,
            position: 1,
            scale: 1.0,
            cap: None,
            slope: None,
            sink: None,
            out: crate::number::Dtype::F32,
            v_max: 4.0,
            broken: false,
            look_at_v: false,
            offsets: [0; 3],
        };
        let (mut enclosure, mut sums, mut products) = (Enclosure::default(), RowSums::default(), Vec::new());
        assert!(enclosure.score(&row, false) && enclosure.weigh(false));
        // The second key has g = 0 + |0 - 1|; the first is given one without bound.
        enclosure.magnitude[0] = f64::INFINITY;
        let weighting = Weighting { per_magnitude: 0.01, constant: 0.25 };
        sums.reset(row.n, false, row.d_v, 1);
        sums.gather(&row, &mut enclosure, &[weighting], &mut products);
        assert_eq!((sums.weight_error[0], sums.value_error[0][0]), (f64::INFINITY, f64::INFINITY));
        near(sums.value_error[0][1], 4.0 * f64::exp(-1.0) * expm1_above(0.01 + 0.25));
    }
}
