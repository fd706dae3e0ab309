//! What the values of each regime are, row by row.

use super::super::case::{Problem, Regime};
use super::mirror::{Slot, slot};
use super::values::{Purpose, address, eighths, exp2, fill, normal, wide};
use crate::number::Dtype;
use crate::source::mix;

/// The largest |q.k| that a regime aims at: below the largest f32 by enough for the other lanes and for rounding.
const LARGEST_DOT: f64 = 3e38;
/// Where f16 ends.
const F16_EDGE: f32 = 65_504.0;
/// Score of the `tail` regime's peak over its tail: e^6 is 403 tail keys.
const TAIL_GAP: f64 = 6.0;

/// Positions up to which the scores of `rising` stay inside f32.
const RISING_POSITIONS: f64 = 65_536.0;

/// Makes rows of one problem's drawn data.
pub(super) struct Generator {
    seed: u64,
    regime: Regime,
    dtype: Dtype,
    /// The lane that carries a score (dominant, deep, tail, rising).
    lane: usize,
    /// What that lane holds in Q ...
    q_lane: f32,
    /// ... and in K, for the wanted score.
    k_lane: f32,
    /// The size of q and k in `overflow`, or of a pair's V in `mirror`.
    large: f32,
    /// Whether other lanes can tell the keys of `deep` apart.
    single_lane: bool,
}

impl Generator {
    pub(super) fn new(problem: &Problem, seed: u64, regime: Regime) -> Self {
        let scale = f64::from(problem.softmax_scale);
        // Neither the dot product nor the score may leave f32; a dominant key's query lane varies upwards by a quarter.
        let largest_score = LARGEST_DOT * scale.min(1.0);
        let (lane, score) = match regime {
            Regime::Dominant { gap, lane } => ((lane % problem.d_qk) as usize, f64::from(gap).min(0.7 * largest_score)),
            Regime::Deep { level } => (0, f64::from(level).max(-largest_score)),
            Regime::Tail => (0, TAIL_GAP),
            Regime::Rising { step } => (0, f64::from(step).min(largest_score / RISING_POSITIONS)),
            _ => (0, 0.0),
        };
        let (q_lane, k_lane) = factors(score, scale, problem.dtype);
        let large = match regime {
            // d_qk products of this size reach the edge.
            Regime::Overflow => (F16_EDGE / problem.d_qk as f32).sqrt(),
            Regime::Mirror { .. } => exp2(mirror_exponent(problem.dtype, problem.out_dtype)),
            _ => 0.0,
        };
        Generator { seed, regime, dtype: problem.dtype, lane, q_lane, k_lane, large, single_lane: problem.d_qk == 1 }
    }

    pub(super) fn q_row(&self, sequence: u32, position: i64, head: u64, row: &mut [u32]) {
        let key = address(self.seed, Purpose::Q, sequence, position, head);
        let (lane, held) = (self.lane, self.q_lane);
        match self.regime {
            // Up to a quarter more in some rows, so that the rows of a tile do not move in step.
            Regime::Dominant { .. } | Regime::Tail => {
                self.fill(row, key, |x, h| if x == lane { held * (1.0 + (h % 3) as f32 * 0.125) } else { normal(h) })
            }
            Regime::Deep { .. } | Regime::Rising { .. } => self.fill(row, key, |x, h| if x == lane { held } else { normal(h) }),
            // Half of the rows on either side of the edge.
            Regime::Overflow => {
                let size = self.large * if key & 1 == 0 { 31.0 / 32.0 } else { 33.0 / 32.0 };
                self.fill(row, key, |_, _| size)
            }
            Regime::Quantised => self.fill(row, key, |_, h| quantised(h)),
            Regime::Wide => self.fill(row, key, |_, h| wide(h, -4, 0)),
            Regime::Normal | Regime::Equal | Regime::Subnormal | Regime::OnehotV | Regime::ConstantV | Regime::Mirror { .. } => {
                self.fill(row, key, |_, h| normal(h))
            }
        }
    }

    pub(super) fn k_row(&self, sequence: u32, position: i64, head: u64, row: &mut [u32]) {
        let key = |position| address(self.seed, Purpose::K, sequence, position, head);
        let own = key(position);
        let (lane, held) = (self.lane, self.k_lane);
        match self.regime {
            Regime::Equal => self.fill(row, key(0), |_, h| normal(h)),
            Regime::Dominant { .. } => {
                let carried = if self.is_peak(sequence, position, head) { held } else { 0.0 };
                self.fill(row, own, |x, h| if x == lane { carried } else { normal(h) * 0.25 })
            }
            Regime::Tail => {
                let carried = if self.is_peak(sequence, position, head) { held } else { 0.0 };
                self.fill(row, own, |x, h| if x == lane { carried } else { normal(h) * (1.0 / 64.0) })
            }
            // A single lane has only the level itself to tell keys apart: one key in four stands 1/128 nearer to zero.
            Regime::Deep { .. } if self.single_lane => {
                self.fill(row, own, |_, h| if h & 3 == 3 { held * (127.0 / 128.0) } else { held })
            }
            Regime::Deep { .. } => self.fill(row, own, |x, h| if x == lane { held } else { normal(h) * 0.125 }),
            Regime::Rising { .. } => {
                // Beyond the storage range the score stays where it is.
                let carried = (held * position as f32).min(self.dtype.max_finite() as f32 / 2.0);
                self.fill(row, own, |x, h| if x == lane { carried } else { normal(h) * (1.0 / 64.0) })
            }
            Regime::Overflow => self.fill(row, own, |_, h| self.large + normal(h) * (1.0 / 16.0)),
            // Half of the lanes, so that scores still differ.
            Regime::Subnormal => self.fill(row, own, |_, h| if h & 1 == 0 { subnormal(self.dtype, h >> 1) } else { normal(h) }),
            Regime::Quantised => self.fill(row, own, |_, h| quantised(h)),
            Regime::Wide => self.fill(row, own, |_, h| wide(h, -4, 0)),
            Regime::Mirror { span, phase } => {
                let from = match slot(self.seed, sequence, head, span, phase, position) {
                    Slot::Alone => own,
                    Slot::Paired { first, .. } => key(first),
                };
                self.fill(row, from, |_, h| normal(h))
            }
            Regime::Normal | Regime::OnehotV | Regime::ConstantV => self.fill(row, own, |_, h| normal(h)),
        }
    }

    pub(super) fn v_row(&self, sequence: u32, position: i64, head: u64, row: &mut [u32]) {
        let key = |position| address(self.seed, Purpose::V, sequence, position, head);
        let own = key(position);
        match self.regime {
            // Three keys of equal weight already sum past the edge, unnormalised; their mean stays below it.
            Regime::Overflow => self.fill(row, own, |_, h| exp2(14) + normal(h) * exp2(11)),
            Regime::Subnormal => self.fill(row, own, |_, h| subnormal(self.dtype, h)),
            Regime::Quantised => self.fill(row, own, |_, h| quantised(h)),
            Regime::Wide => self.fill(row, own, |_, h| wide(h, -4, 3)),
            Regime::OnehotV => {
                let hot = (position as u64 % row.len() as u64) as usize;
                self.fill(row, own, |x, _| if x == hot { 1.0 } else { 0.0 })
            }
            // Eighths from 1: the first 64 labels stay apart in every 16-bit format, so that the output names the head it read.
            Regime::ConstantV => self.fill(row, own, |_, _| 1.0 + (head % 64) as f32 * 0.125),
            Regime::Mirror { span, phase } => match slot(self.seed, sequence, head, span, phase, position) {
                Slot::Alone => self.fill(row, own, |_, h| normal(h)),
                Slot::Paired { first, second } => self.fill(row, key(first), |_, h| {
                    let magnitude = self.large * eighths(h >> 1);
                    if (h & 1 == 1) == second { magnitude } else { -magnitude }
                }),
            },
            Regime::Normal
            | Regime::Equal
            | Regime::Dominant { .. }
            | Regime::Deep { .. }
            | Regime::Tail
            | Regime::Rising { .. } => self.fill(row, own, |_, h| normal(h)),
        }
    }

    /// Whether a position is its head's peak: 0 to 127, the logarithm about uniform, so that the peak comes first, inside the
    /// first block, or blocks later, where it makes the running maximum jump.
    fn is_peak(&self, sequence: u32, position: i64, head: u64) -> bool {
        let bits = address(self.seed, Purpose::Peak, sequence, 0, head);
        position as u64 == mix(bits, 0) % (1 << (mix(bits, 1) % 8))
    }

    #[inline]
    fn fill(&self, row: &mut [u32], key: u64, value: impl Fn(usize, u64) -> f32) {
        fill(row, self.dtype, key, value);
    }
}

/// A Q and a K factor whose product is `score / scale`, each inside the storage range with room for the regimes' variations, the
/// product inside f32. The first is a power of two.
fn factors(score: f64, scale: f64, dtype: Dtype) -> (f32, f32) {
    let largest = (dtype.max_finite() / 2.0).min(exp2(126) as f64);
    let dot = (score / scale).clamp(-LARGEST_DOT, LARGEST_DOT);
    if dot == 0.0 || dot.is_nan() {
        return (1.0, 0.0);
    }
    // Half of the exponent each, so that neither leaves the range before it must.
    let exponent = ((dot.abs() as f32).max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
    let limit = ((largest as f32).to_bits() >> 23) as i32 - 127;
    let q = exp2((exponent / 2).clamp(-limit.min(14), limit));
    let k = (dot / f64::from(q)).clamp(-largest, largest) as f32;
    (q, k)
}

/// Exponent of a pair's V, inside both ranges with room for [`eighths`].
///
/// At 24 - p an f32 sum that holds the large value has its last bit where an output of p bits near 1 has its own. Measured on a
/// textbook row with 8 keys and 5 columns, bf16, one split against two: the order shows in 0.89 of the cases at 24 - p, 0.91 at
/// 25 - p, 0.95 at 26 - p. f32 outputs show every rounding; there the large value need only be large.
fn mirror_exponent(dtype: Dtype, out_dtype: Dtype) -> i32 {
    let wanted = if out_dtype == Dtype::F32 { 10 } else { 26 - out_dtype.precision() as i32 };
    let largest = dtype.max_finite().min(out_dtype.max_finite()) as f32;
    wanted.min((largest.to_bits() >> 23) as i32 - 127)
}

/// Eight small exact values, both zeros among them.
#[inline]
fn quantised(bits: u64) -> f32 {
    const VALUES: [f32; 8] = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0];
    VALUES[(bits >> 61) as usize]
}

/// Any nonzero subnormal of a format.
#[inline]
fn subnormal(dtype: Dtype, bits: u64) -> f32 {
    let steps = 1 + (bits >> 8) % ((1 << (dtype.precision() - 1)) - 1);
    let sign = if bits & 0x80 != 0 { dtype.sign_mask() } else { 0 };
    dtype.to_f32(sign | steps as u32)
}
