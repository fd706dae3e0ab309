//! What the values of each regime are, row by row.
//!
//! An 8-bit KV cache holds what a quantiser would make of the regime's keys and values: each over the scale of its head, rounded to
//! nearest even, the largest finite number where it is larger. Where the pattern itself is the point (subnormals, ties, all
//! significand bits, one-hot and constant values, mirrored pairs) what is stored does not depend on the scale.

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
/// Score of the `zero_peak` regime's peak: e^-88 is below f32's least normal number, e^-104 is nothing.
const ZERO_PEAK_GAP: f64 = 88.0;

/// Positions up to which the scores of `rising` stay inside f32.
const RISING_POSITIONS: f64 = 65_536.0;

/// Makes rows of one problem's drawn data.
pub(super) struct Generator {
    seed: u64,
    regime: Regime,
    /// Storage of Q.
    dtype: Dtype,
    /// Storage of K and V.
    kv: Dtype,
    /// K and V are in an 8-bit format.
    fp8: bool,
    /// The lane that carries a score (dominant, deep, tail, zero_peak, rising).
    lane: usize,
    /// Whether other lanes can tell the keys of `deep` apart.
    single_lane: bool,
    /// Each KV head by its label, where they have scales of their own; else one for all.
    heads: Vec<(u64, Head)>,
}

/// What depends on the scales of a KV head.
#[derive(Clone, Copy)]
struct Head {
    /// One over the scales of keys and values; 1 without.
    per_k: f32,
    per_v: f32,
    /// What the carrying lane holds in Q, and in K, for the wanted score.
    q_lane: f32,
    k_lane: f32,
    /// The sizes of q and k in `overflow`.
    q_edge: f32,
    k_edge: f32,
    /// The sizes of a pair's V and of the other values in `mirror`.
    large: f32,
    small: f32,
}

impl Generator {
    pub(super) fn new(problem: &Problem, seed: u64, regime: Regime) -> Self {
        let heads = match &problem.fp8_kv {
            None => vec![(0, Head::plain(problem, regime))],
            Some(kv) if kv.k_scales.len() == 1 && kv.v_scales.len() == 1 => vec![(0, Head::scaled(problem, 0, regime))],
            Some(_) => {
                let heads = problem.kv_head_ids.iter().enumerate();
                heads.map(|(n, &label)| (u64::from(label), Head::scaled(problem, n, regime))).collect()
            }
        };
        let lane = if let Regime::Dominant { lane, .. } = regime { (lane % problem.d_qk) as usize } else { 0 };
        let (dtype, kv, fp8) = (problem.dtype, problem.kv_dtype(), problem.fp8_kv.is_some());
        Generator { seed, regime, dtype, kv, fp8, lane, single_lane: problem.d_qk == 1, heads }
    }

    /// The head of a KV head's label.
    fn head(&self, label: u64) -> &Head {
        let own = self.heads.iter().find(|(it, _)| self.heads.len() == 1 || *it == label);
        own.map(|(_, head)| head).expect("rows are asked for the problem's own heads")
    }

    pub(super) fn q_row(&self, sequence: u32, position: i64, head: u64, row: &mut [u32]) {
        let key = address(self.seed, Purpose::Q, sequence, position, head);
        let (lane, kv_head) = (self.lane, self.head(head / 64));
        let held = kv_head.q_lane;
        match self.regime {
            // Up to a quarter more in some rows, so that the rows of a tile do not move in step.
            Regime::Dominant { .. } | Regime::Tail | Regime::ZeroPeak => {
                self.fill(row, key, |x, h| if x == lane { held * (1.0 + (h % 3) as f32 * 0.125) } else { normal(h) })
            }
            Regime::Deep { .. } | Regime::Rising { .. } => self.fill(row, key, |x, h| if x == lane { held } else { normal(h) }),
            // Half of the rows on either side of the edge.
            Regime::Overflow => {
                let size = kv_head.q_edge * if key & 1 == 0 { 31.0 / 32.0 } else { 33.0 / 32.0 };
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
        let (lane, &Head { per_k, k_lane: held, k_edge, .. }) = (self.lane, self.head(head));
        match self.regime {
            Regime::Equal => self.fill_kv(row, key(0), |_, h| normal(h) * per_k),
            Regime::Dominant { .. } | Regime::ZeroPeak => {
                let carried = if self.is_peak(sequence, position, head) { held } else { 0.0 };
                self.fill_kv(row, own, |x, h| if x == lane { carried } else { normal(h) * 0.25 * per_k })
            }
            Regime::Tail => {
                let carried = if self.is_peak(sequence, position, head) { held } else { 0.0 };
                self.fill_kv(row, own, |x, h| if x == lane { carried } else { normal(h) * (1.0 / 64.0) * per_k })
            }
            // A single lane has only the level itself to tell keys apart: one key in four stands 1/128 nearer to zero, or an
            // eighth, for 8-bit formats have no finer step.
            Regime::Deep { .. } if self.single_lane => {
                let nearer = held * if self.fp8 { 7.0 / 8.0 } else { 127.0 / 128.0 };
                self.fill_kv(row, own, |_, h| if h & 3 == 3 { nearer } else { held })
            }
            Regime::Deep { .. } => self.fill_kv(row, own, |x, h| if x == lane { held } else { normal(h) * 0.125 * per_k }),
            Regime::Rising { .. } => {
                // Beyond the storage range the score stays where it is.
                let carried = (held * position as f32).min(self.kv.max_finite() as f32 / 2.0);
                self.fill_kv(row, own, |x, h| if x == lane { carried } else { normal(h) * (1.0 / 64.0) * per_k })
            }
            // Beside such a number an 8-bit format knows none that is little different: half of the keys are an eighth smaller.
            Regime::Overflow if self.fp8 => {
                let size = k_edge * if own & 1 == 0 { 1.0 } else { 7.0 / 8.0 };
                self.fill_kv(row, own, |_, _| size)
            }
            Regime::Overflow => self.fill_kv(row, own, |_, h| k_edge + normal(h) * (1.0 / 16.0)),
            // Half of the lanes, so that scores still differ.
            Regime::Subnormal => {
                self.fill_kv(row, own, |_, h| if h & 1 == 0 { subnormal(self.kv, h >> 1) } else { normal(h) * per_k })
            }
            Regime::Quantised => self.fill_kv(row, own, |_, h| quantised(h)),
            Regime::Wide => self.fill_kv(row, own, |_, h| wide(h, -4, 0)),
            Regime::Mirror { span, phase } => {
                let from = match slot(self.seed, sequence, head, span, phase, position) {
                    Slot::Alone => own,
                    Slot::Paired { first, .. } => key(first),
                };
                self.fill_kv(row, from, |_, h| normal(h) * per_k)
            }
            Regime::Normal | Regime::OnehotV | Regime::ConstantV => self.fill_kv(row, own, |_, h| normal(h) * per_k),
        }
    }

    pub(super) fn v_row(&self, sequence: u32, position: i64, head: u64, row: &mut [u32]) {
        let key = |position| address(self.seed, Purpose::V, sequence, position, head);
        let own = key(position);
        let &Head { per_v, large, small, .. } = self.head(head);
        match self.regime {
            // As large as E4M3 can hold: it takes hundreds of keys to sum past the edge.
            Regime::Overflow if self.fp8 => {
                let size = (exp2(14) * per_v).min(self.kv.max_finite() as f32 * 0.75);
                self.fill_kv(row, own, |_, h| size + normal(h) * size * 0.125)
            }
            // Three keys of equal weight already sum past the edge, unnormalised; their mean stays below it.
            Regime::Overflow => self.fill_kv(row, own, |_, h| exp2(14) + normal(h) * exp2(11)),
            Regime::Subnormal => self.fill_kv(row, own, |_, h| subnormal(self.kv, h)),
            Regime::Quantised => self.fill_kv(row, own, |_, h| quantised(h)),
            Regime::Wide => self.fill_kv(row, own, |_, h| wide(h, -4, 3)),
            Regime::OnehotV => {
                let hot = (position as u64 % row.len() as u64) as usize;
                self.fill_kv(row, own, |x, _| if x == hot { 1.0 } else { 0.0 })
            }
            // Neighbours in the format: the first 64 labels stay apart.
            Regime::ConstantV if self.fp8 => {
                let lowest = self.kv.round_f32(1.0) - 16;
                row.fill(lowest + (head % 64) as u32);
            }
            // Eighths from 1: the first 64 labels stay apart in every 16-bit format, so that the output names the head it read.
            Regime::ConstantV => self.fill_kv(row, own, |_, _| 1.0 + (head % 64) as f32 * 0.125),
            Regime::Mirror { span, phase } => match slot(self.seed, sequence, head, span, phase, position) {
                Slot::Alone => self.fill_kv(row, own, |_, h| normal(h) * small),
                Slot::Paired { first, second } => self.fill_kv(row, key(first), |_, h| {
                    let magnitude = large * eighths(h >> 1);
                    if (h & 1 == 1) == second { magnitude } else { -magnitude }
                }),
            },
            Regime::ZeroPeak if self.is_peak(sequence, position, head) => self.fill_kv(row, own, |_, _| 0.0),
            Regime::Normal
            | Regime::Equal
            | Regime::Dominant { .. }
            | Regime::Deep { .. }
            | Regime::Tail
            | Regime::ZeroPeak
            | Regime::Rising { .. } => self.fill_kv(row, own, |_, h| normal(h) * per_v),
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

    #[inline]
    fn fill_kv(&self, row: &mut [u32], key: u64, value: impl Fn(usize, u64) -> f32) {
        fill(row, self.kv, key, value);
    }
}

/// The score that a regime wants of a lane. Neither it nor the dot product, of keys as stored or as meant, may leave f32; a dominant
/// key's query lane varies upwards by a quarter.
fn wanted_score(regime: Regime, scale: f64, k_scale: f64) -> f64 {
    let largest_score = LARGEST_DOT * scale.min(1.0).min(scale * k_scale);
    match regime {
        Regime::Dominant { gap, .. } => f64::from(gap).min(0.7 * largest_score),
        Regime::Deep { level } => f64::from(level).max(-largest_score),
        Regime::Tail => TAIL_GAP,
        Regime::ZeroPeak => ZERO_PEAK_GAP.min(0.7 * largest_score),
        Regime::Rising { step } => f64::from(step).min(largest_score / RISING_POSITIONS),
        _ => 0.0,
    }
}

impl Head {
    /// Without 8-bit formats.
    fn plain(problem: &Problem, regime: Regime) -> Head {
        let scale = f64::from(problem.softmax_scale);
        let (q_lane, k_lane) = factors(wanted_score(regime, scale, 1.0), scale, problem.dtype);
        // d_qk products of this size reach the edge.
        let edge = (F16_EDGE / problem.d_qk as f32).sqrt();
        let large = exp2(mirror_exponent(problem.dtype, problem.out_dtype));
        Head { per_k: 1.0, per_v: 1.0, q_lane, k_lane, q_edge: edge, k_edge: edge, large, small: 1.0 }
    }

    /// The `n`-th KV head of an 8-bit cache.
    fn scaled(problem: &Problem, n: usize, regime: Regime) -> Head {
        let (kv, scale) = (problem.kv_dtype(), f64::from(problem.softmax_scale));
        let (k_scale, v_scale) = problem.kv_scales(n);
        let inverse = |scale: f32| (1.0 / scale).min(f32::MAX);
        let k_scale = f64::from(k_scale);
        // `rising` multiplies its key lane with the position: from far below, many positions fit before it stops.
        let exponent = if matches!(regime, Regime::Rising { .. }) { -6 } else { 2 };
        let score = wanted_score(regime, scale, k_scale);
        let (q_lane, k_lane) = factors_of_narrow_keys(score, scale * k_scale, exponent, problem.dtype, kv);
        let product = f64::from(F16_EDGE) / f64::from(problem.d_qk);
        let k_edge = (product.sqrt() / k_scale).clamp(kv.least_normal(), kv.max_finite());
        let k_edge = kv.to_f64(kv.round_f64(k_edge));
        let most = problem.dtype.max_finite() / 2.0;
        let q_edge = (product / (k_edge * k_scale)).clamp(problem.dtype.least_normal(), most) as f32;
        let (large, small) = mirror_exponents(kv, problem.out_dtype, f64::from(v_scale));
        Head {
            per_k: inverse(k_scale as f32),
            per_v: inverse(v_scale),
            q_lane,
            k_lane,
            q_edge,
            k_edge: k_edge as f32,
            large: exp2(large),
            small: exp2(small),
        }
    }
}

/// [`factors`] where keys are 8-bit: K has about this exponent, and Q, whose range is wider, takes the rest.
fn factors_of_narrow_keys(score: f64, scale: f64, k_exponent: i32, q: Dtype, k: Dtype) -> (f32, f32) {
    let dot = (score / scale).clamp(-LARGEST_DOT, LARGEST_DOT);
    if dot == 0.0 || dot.is_nan() {
        return (1.0, 0.0);
    }
    let exponent_of = |x: f64| ((x as f32).max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
    let limit = exponent_of((q.max_finite() / 2.0).min(f64::from(exp2(126))));
    let q = exp2((exponent_of(dot.abs()) - k_exponent).clamp(-14, limit));
    let largest = k.max_finite() / 2.0;
    (q, (dot / f64::from(q)).clamp(-largest, largest) as f32)
}

/// Exponents of a pair's V and of the other values in an 8-bit format, as far apart as [`mirror_exponent`] wants them if the format
/// is that wide, and the sums inside the output's range.
///
/// E4M3 spans 2^-9 to 448: 2^16 apart at best, where bf16 outputs want 2^18.
fn mirror_exponents(kv: Dtype, out_dtype: Dtype, v_scale: f64) -> (i32, i32) {
    let apart = if out_dtype == Dtype::F32 { 10 } else { 26 - out_dtype.precision() as i32 };
    // The largest of the eighths is 2 in E5M2; a result beside the edge would be one whose overflow is predicted.
    let largest = kv.max_finite().min(out_dtype.max_finite() / v_scale / 2.05) as f32;
    let least = (kv.least_subnormal() as f32).to_bits() >> 23;
    let [largest, least] = [largest.to_bits() >> 23, least + 1].map(|exponent| exponent as i32 - 127);
    let large = apart.min(largest).max(least);
    (large, (large - apart).max(least))
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
