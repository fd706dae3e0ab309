//! The same sequence of operations as step 1, all of it in MPFR at 200 bits: what the enclosure is checked and timed against.

use super::decide::Ball;
use super::enclosure::Enclosure;
use super::inputs::{Inputs, Row};
use rug::{Assign, Float};

/// Working precision.
const BITS: u32 = 200;

/// Operands as MPFR numbers, and the row's intermediates.
#[derive(Debug, Default)]
pub(super) struct Naive {
    operands: [Vec<Float>; 3],
    weights: Vec<Float>,
    values: Vec<Float>,
}

impl Naive {
    /// Converts a problem's operands, exactly.
    pub fn load(&mut self, inputs: &Inputs) {
        for (into, operands) in self.operands.iter_mut().zip(inputs.operands()) {
            into.clear();
            into.extend(operands.iter().map(|&x| Float::with_val(53, x)));
        }
    }

    /// The outputs of a row with at least one key or sink, `d_v` of them and then `lse`.
    ///
    /// Step 1's analysis holds for any unit roundoff, and its radius is, to first order, proportional to it: from `u = 2^-53` to
    /// 2^-200 it shrinks by 2^147. A factor 4 covers the second order and the other origin of the distances. `enclosure` must
    /// hold a finished, homogeneous step 1.
    pub fn row(&mut self, row: &Row, enclosure: &Enclosure) -> Vec<Ball> {
        let [q, k, v] = &self.operands;
        let q = &q[row.offsets[0]..][..row.d_qk];
        let (k, v) = (&k[row.offsets[1]..], &v[row.offsets[2]..]);
        self.weights.clear();
        for n in 0..row.n {
            let mut score = Float::new(BITS);
            for (q, k) in q.iter().zip(&k[n * row.d_qk..]) {
                score += q * k;
            }
            score *= row.scale;
            if let Some(cap) = row.cap {
                score /= cap;
                score.tanh_mut();
                score *= cap;
            }
            if let Some(slope) = row.slope {
                score -= Float::with_val(BITS, slope) * row.distance(n);
            }
            self.weights.push(score);
        }
        self.weights.extend(row.sink.map(|sink| Float::with_val(BITS, sink)));
        let mut max = Float::with_val(BITS, f64::NEG_INFINITY);
        for score in &self.weights {
            if *score > max {
                max.assign(score);
            }
        }
        let mut total = Float::new(BITS);
        for weight in &mut self.weights {
            *weight -= &max;
            weight.exp_mut();
            total += &*weight;
        }
        self.values.clear();
        self.values.resize(row.d_v, Float::new(BITS));
        for (n, weight) in self.weights[..row.n].iter().enumerate() {
            for (sum, v) in self.values.iter_mut().zip(&v[n * row.d_v..]) {
                *sum += weight * v;
            }
        }
        let shrunk = |radius: f64| Float::with_val(53, radius) >> 145u32;
        let outputs = self.values.iter().zip(&enclosure.radius);
        let mut balls: Vec<Ball> =
            outputs.map(|(sum, &r)| Ball { value: Float::with_val(BITS, sum / &total), radius: shrunk(r) }).collect();
        total.ln_mut();
        balls.push(Ball { value: total + max, radius: shrunk(enclosure.lse_radius) });
        balls
    }
}
