//! Ties, exact zeros, sinks and log-sum-exp boundaries against brute-force rational arithmetic, and what must not take long.

use lastbit::number::{Dtype, round_mpfr};
use lastbit::subject::attention::oracle::{Answer, Mode, Oracle, RowTruth, Weighting};
use lastbit::subject::attention::{Fp8Kv, Mask, Problem, Sequence};
use lastbit::tensor::Tensor;
use rug::{Float, Rational};
use std::time::{Duration, Instant};

/// One row, one head, `q` given; a key is its lanes and its values.
struct Row<'a> {
    dtype: Dtype,
    out: Dtype,
    q: &'a [f64],
    keys: &'a [(&'a [f64], &'a [f64])],
    sink: Option<f32>,
    softcap: Option<f32>,
    /// Keys and values in this format, with their scales.
    kv: Option<(Dtype, f32, f32)>,
}

impl Row<'_> {
    fn truth(&self) -> RowTruth {
        self.asked(1).0
    }

    /// The truth, asked for a number of times, and how many elements the first step left open in all.
    fn asked(&self, times: usize) -> (RowTruth, u64) {
        let (d_qk, d_v) = (self.q.len(), self.keys.first().map_or(1, |key| key.1.len()));
        let problem = Problem {
            sequences: vec![Sequence { id: 0, q: 1, kv: self.keys.len() as u32 }],
            kv_head_ids: vec![0],
            group_ids: vec![0],
            d_qk: d_qk as u32,
            d_v: d_v as u32,
            mask: Mask::default(),
            softcap: self.softcap,
            sinks: self.sink.map(|sink| vec![sink]),
            alibi_slopes: None,
            softmax_scale: 1.0,
            dtype: self.dtype,
            fp8_kv: self.kv.map(|(dtype, k, v)| Fp8Kv { dtype, k_scales: vec![k], v_scales: vec![v] }),
            out_dtype: self.out,
        };
        let tensor = |dtype: Dtype, values: Vec<f64>, rows: usize, d: usize| {
            let exact = |x: f64| {
                let bits = dtype.round_f64(x);
                assert!(dtype.to_f64(bits) == x || !x.is_finite(), "{x} is not a {dtype}");
                bits
            };
            Tensor { dtype, dims: vec![rows, 1, d], bits: values.into_iter().map(exact).collect() }
        };
        let kv = problem.kv_dtype();
        let q = tensor(self.dtype, self.q.to_vec(), 1, d_qk);
        let k = tensor(kv, self.keys.iter().flat_map(|key| key.0).copied().collect(), self.keys.len(), d_qk);
        let v = tensor(kv, self.keys.iter().flat_map(|key| key.1).copied().collect(), self.keys.len(), d_v);
        let mut oracle = Oracle::new(Mode::Enclosure);
        oracle.begin(&problem, &q, &k, &v);
        let truths: Vec<RowTruth> = (0..times).map(|_| oracle.row(0, 0, 0, &[]).clone()).collect();
        (truths[0].clone(), oracle.escalations())
    }
}

/// Scores zero for every key, as many values as lanes.
fn equal<'a>(dtype: Dtype, keys: &'a [(&'a [f64], &'a [f64])]) -> Row<'a> {
    Row { dtype, out: dtype, q: &[0.0], keys, sink: None, softcap: None, kv: None }
}

fn value(row: &Row) -> (f64, f64) {
    let truth = row.truth();
    let Answer::Decided(bits) = truth.o[0].answer else { panic!("{:?}", truth.o[0]) };
    (row.out.to_f64(bits), truth.o[0].radius)
}

fn lse(row: &Row) -> f32 {
    let truth = row.truth();
    let Answer::Decided(bits) = truth.lse.answer else { panic!("{:?}", truth.lse) };
    f32::from_bits(bits)
}

#[test]
fn equal_scores_give_rational_outputs() {
    let start = Instant::now();
    let mut state = 7u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut ties = 0;
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        for keys in [1, 2, 3, 4, 7, 8] {
            for sink in [None, Some(0.0), Some(-1e4f32)] {
                for round in 0..40 {
                    // Few exponents, or values that cancel, or subnormals.
                    let one = f64::from(1u32 << (dtype.precision() - 1));
                    let scale = if round % 5 == 0 { dtype.least_subnormal() } else { 2f64.powi((next() % 3) as i32) / one };
                    let mut draw = || f64::from(next() % (1 << (dtype.precision() - 1))) * scale;
                    let mut values: Vec<[f64; 1]> = (0..keys).map(|_| [draw()]).collect();
                    if round % 3 == 1 {
                        (1..keys).step_by(2).for_each(|n| values[n] = [-values[n - 1][0]]);
                    }
                    let list: Vec<(&[f64], &[f64])> = values.iter().map(|v| (&[1.0][..], &v[..])).collect();
                    let row = Row { sink, ..equal(dtype, &list) };
                    let sum = values.iter().fold(Rational::new(), |sum, v| sum + Rational::from_f64(v[0]).unwrap());
                    let count = keys as u32 + u32::from(sink == Some(0.0));
                    let mut expected = Float::with_val(2048, sum / count);
                    if sink == Some(-1e4) {
                        // The sink takes a little: an exact tie goes towards zero.
                        expected -= Float::with_val(2048, &expected >> 1200);
                    }
                    let bits = round_mpfr(dtype, &expected);
                    let bits = if bits == dtype.sign_mask() { 0 } else { bits };
                    let truth = row.truth();
                    assert_eq!(truth.o[0].answer, Answer::Decided(bits), "{dtype} {values:?} sink {sink:?}");
                    ties += u32::from(truth.o[0].radius == 0.0);
                }
            }
        }
    }
    println!("{ties} ties and exact zeros in {:?}", start.elapsed());
    assert!(ties > 300);
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// Equal scores, 8-bit values, any scale: the output is `scale * sum / n`, a rational number; and of one key the log-sum-exp is
/// `q * k * scale`.
#[test]
fn scaled_8_bit_keys_and_values_give_rational_results() {
    let mut state = 11u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let round = |dtype: Dtype, exact: &Rational| {
        let bits = round_mpfr(dtype, &Float::with_val(2048, exact));
        if bits == dtype.sign_mask() { 0 } else { bits }
    };
    let rational = |x: f64| Rational::from_f64(x).unwrap();
    let mut exact = 0;
    for kv in [Dtype::E4M3, Dtype::E5M2] {
        for out in [Dtype::BF16, Dtype::F16, Dtype::F32] {
            for keys in [1, 2, 3, 4, 8] {
                for round_number in 0..60 {
                    let mut pattern = || loop {
                        let bits = next() & 0xff;
                        if kv.class(bits).is_finite() {
                            return kv.to_f64(bits);
                        }
                    };
                    let mut values: Vec<[f64; 1]> = (0..keys).map(|_| [pattern()]).collect();
                    if round_number % 3 == 1 {
                        (1..keys).step_by(2).for_each(|n| values[n] = [-values[n - 1][0]]);
                    }
                    let key = [pattern()];
                    // Powers of two, random significands, the smallest and the largest scales.
                    let scale = |kind: u32, bits: u32| match kind % 4 {
                        0 => 0.25,
                        1 => f32::from_bits(0x3c00_0000 + bits % 0x0400_0000),
                        2 => f32::from_bits(1 + bits % 3),
                        _ => f32::MAX,
                    };
                    let (k_scale, v_scale) =
                        (scale(next(), next()), scale(next() % if out == Dtype::F32 { 4 } else { 2 }, next()));
                    let list: Vec<(&[f64], &[f64])> = values.iter().map(|v| (&key[..], &v[..])).collect();
                    let row = Row { out, kv: Some((kv, k_scale, v_scale)), ..equal(Dtype::F32, &list) };
                    let sum = values.iter().fold(Rational::new(), |sum, v| sum + rational(v[0]));
                    let expected = sum * rational(v_scale.into()) / keys as u32;
                    let truth = row.truth();
                    let what = format!("{kv} {values:?} scale {v_scale:e}");
                    assert_eq!(truth.o[0].answer, Answer::Decided(round(out, &expected)), "{what}");
                    exact += u32::from(truth.o[0].radius == 0.0);

                    let q = [f64::from(f32::from_bits(0x3f00_0000 + next() % 0x0200_0000))];
                    let row = Row { q: &q, keys: &list[..1], ..row };
                    let expected = rational(q[0]) * rational(key[0]) * rational(k_scale.into());
                    let what = format!("{kv} {q:?} {key:?} scale {k_scale:e}");
                    assert_eq!(row.truth().lse.answer, Answer::Decided(round(Dtype::F32, &expected)), "{what}");
                }
            }
        }
    }
    assert!(exact > 100, "{exact}");
}

#[test]
fn a_tie_is_broken_by_what_lies_ten_thousand_below() {
    let start = Instant::now();
    let step = 1.0 / 128.0;
    for gap in [1e4, 2e4, 3e38] {
        let gap = Dtype::BF16.to_f64(Dtype::BF16.round_f64(gap));
        let q = [-gap];
        // The mean of the first two is a tie, even below.
        for (low, expected) in [(2.0, 1.0 + step), (0.0, 1.0), (1.0, 1.0), (-3.0, 1.0)] {
            let keys: [(&[f64], &[f64]); 3] = [(&[0.0], &[1.0]), (&[0.0], &[1.0 + step]), (&[1.0], &[low])];
            let row = Row { q: &q, ..equal(Dtype::BF16, &keys) };
            assert_eq!(value(&row).0, expected, "gap {gap} low {low}");
        }
        // Even above.
        for (low, expected) in [(2.0, 1.0 + 2.0 * step), (0.0, 1.0 + step)] {
            let keys: [(&[f64], &[f64]); 3] = [(&[0.0], &[1.0 + step]), (&[0.0], &[1.0 + 2.0 * step]), (&[1.0], &[low])];
            let row = Row { q: &q, ..equal(Dtype::BF16, &keys) };
            assert_eq!(value(&row).0, expected, "gap {gap} low {low}");
        }
        // The far pair has the same mean: a tie, exactly.
        let keys: [(&[f64], &[f64]); 4] = [(&[0.0], &[1.0]), (&[0.0], &[1.0 + step]), (&[1.0], &[1.0]), (&[1.0], &[1.0 + step])];
        let row = Row { q: &q, ..equal(Dtype::BF16, &keys) };
        assert_eq!(value(&row), (1.0, 0.0));
        // The large parts cancel: what is left is far below every number, or exactly zero.
        for (low, exact) in [(1.0, false), (0.0, true)] {
            let keys: [(&[f64], &[f64]); 3] = [(&[0.0], &[256.0]), (&[0.0], &[-256.0]), (&[1.0], &[low])];
            let (value, radius) = value(&Row { q: &q, ..equal(Dtype::BF16, &keys) });
            assert_eq!((value, radius == 0.0), (0.0, exact));
        }
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

/// Every element that the first step leaves open is counted, and no other.
#[test]
fn ties_are_counted_as_escalations() {
    let step = 1.0 / 128.0;
    let plain: [(&[f64], &[f64]); 2] = [(&[0.0], &[1.0, 3.0]), (&[0.0], &[1.0, 5.0])];
    assert_eq!(equal(Dtype::BF16, &plain).asked(3).1, 0);
    let one: [(&[f64], &[f64]); 2] = [(&[0.0], &[1.0, 3.0]), (&[0.0], &[1.0 + step, 5.0])];
    assert_eq!(equal(Dtype::BF16, &one).asked(1).1, 1);
    let both: [(&[f64], &[f64]); 2] = [(&[0.0], &[1.0, 1.0]), (&[0.0], &[1.0 + step, 1.0 + step])];
    assert_eq!(equal(Dtype::BF16, &both).asked(3).1, 6);
}

#[test]
fn the_side_of_a_log_sum_exp_boundary() {
    let tiny = 2f64.powi(-24);
    // The score of one key is 1 + 2^-24: a tie of F32, even below.
    let one: [(&[f64], &[f64]); 1] = [(&[1.0, 1.0], &[1.0])];
    let row = Row { q: &[1.0, tiny], ..equal(Dtype::F32, &one) };
    assert_eq!((lse(&row), row.truth().lse.radius), (1.0, 0.0));
    // 1 + 3 * 2^-24: even above.
    let row = Row { q: &[1.0, 3.0 * tiny], ..equal(Dtype::F32, &one) };
    assert_eq!(lse(&row), 1.0 + f32::EPSILON * 2.0);
    // Anything more, however little, tips the first.
    let two: [(&[f64], &[f64]); 2] = [(&[1.0, 1.0], &[1.0]), (&[-1e4, 0.0], &[1.0])];
    let row = Row { q: &[1.0, tiny], ..equal(Dtype::F32, &two) };
    assert_eq!(lse(&row), 1.0 + f32::EPSILON);
    let row = Row { q: &[1.0, tiny], sink: Some(-3e38), ..equal(Dtype::F32, &one) };
    assert_eq!(lse(&row), 1.0 + f32::EPSILON);
    // A score of zero and a sink of zero: ln 2.
    let row = Row { q: &[0.0, 0.0], sink: Some(0.0), ..equal(Dtype::F32, &one) };
    assert_eq!(lse(&row), std::f32::consts::LN_2);
    // Cancellation of score and count: the score -ln 2, rounded, of two keys gives what rounding left over.
    let leftover = -f64::from(std::f32::consts::LN_2);
    let two: [(&[f64], &[f64]); 2] = [(&[leftover], &[1.0]), (&[leftover], &[1.0])];
    let expected = Float::with_val(200, 2).ln() + leftover;
    assert_eq!(lse(&Row { q: &[1.0], ..equal(Dtype::F32, &two) }), expected.to_f32());
}

#[test]
fn the_deepest_level_is_quick() {
    let start = Instant::now();
    let level = -1.5 * 2f64.powi(127);
    for softcap in [None, Some(30.0)] {
        let values: Vec<[f64; 2]> = (0..64).map(|n| [f64::from(n), 1.0 - f64::from(n % 2) * 2.0]).collect();
        let scores: Vec<[f64; 1]> = (0..64).map(|n| [level * if n % 4 == 0 { 1.0 } else { 1.0 + 2f64.powi(-10) }]).collect();
        let keys: Vec<(&[f64], &[f64])> = scores.iter().zip(&values).map(|(k, v)| (&k[..], &v[..])).collect();
        for sink in [None, Some(1.5)] {
            let row = Row { q: &[1.0], keys: &keys, sink, softcap, ..equal(Dtype::F32, &[]) };
            let truth = row.truth();
            let decided = truth.o.iter().chain([&truth.lse]).all(|truth| matches!(truth.answer, Answer::Decided(_)));
            assert!(decided, "{truth:?}");
            if sink.is_none() && softcap.is_none() {
                // Only every fourth key counts: the mean of 0, 4, ..., 60, and all ones.
                assert_eq!((truth.o[0].value, truth.o[1].value), (30.0, 1.0));
                assert_eq!(truth.sums.weight, 16.0);
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn ties_of_saturated_scores_are_decided_by_their_tails() {
    // Capped at 30, both scores are 30 to thousands of bits; the values' mean is a tie and the larger score decides.
    for (large, expected) in [(1.0, 1.0), (1.0 + 1.0 / 128.0, 1.0 + 1.0 / 128.0)] {
        let small = 2.0 + 1.0 / 128.0 - large;
        let keys: [(&[f64], &[f64]); 2] = [(&[2e6], &[large]), (&[1e6], &[small])];
        let truth = Row { q: &[1.0], softcap: Some(30.0), out: Dtype::BF16, ..equal(Dtype::F32, &keys) }.truth();
        assert_eq!(truth.o[0].answer, Answer::Decided(Dtype::BF16.round_f64(expected)));
    }
}

#[test]
fn rows_without_keys() {
    let row = equal(Dtype::F32, &[]);
    assert_eq!((value(&row), lse(&row)), ((0.0, 0.0), f32::NEG_INFINITY));
    let row = Row { sink: Some(-0.25), ..row };
    assert_eq!((value(&row), lse(&row)), ((0.0, 0.0), -0.25));
    let truth = row.truth();
    assert_eq!((truth.sums.keys, truth.sums.sink, truth.sums.weight, truth.sums.max_score), (0, true, 1.0, -0.25));
    assert_eq!(lse(&Row { sink: Some(-0.0), ..row }).to_bits(), 0);
    assert_eq!(lse(&Row { sink: Some(f32::NEG_INFINITY), ..equal(Dtype::F32, &[]) }), f32::NEG_INFINITY);
}

#[test]
fn non_finite_inputs_have_no_truth_where_they_matter() {
    let nan = f64::NAN;
    let answers = |row: &Row| {
        let truth = row.truth();
        [truth.o[0].answer, truth.o[1].answer, truth.lse.answer].map(|answer| answer == Answer::NotFinite)
    };
    let keys: [(&[f64], &[f64]); 2] = [(&[1.0], &[1.0, nan]), (&[2.0], &[1.0, 2.0])];
    let row = Row { q: &[1.0], ..equal(Dtype::F32, &keys) };
    assert_eq!(answers(&row), [false, true, false]);
    let keys: [(&[f64], &[f64]); 2] = [(&[nan], &[1.0, 3.0]), (&[2.0], &[1.0, 2.0])];
    assert_eq!(answers(&Row { q: &[1.0], ..equal(Dtype::F32, &keys) }), [true; 3]);
    assert_eq!(answers(&Row { q: &[f64::INFINITY], ..equal(Dtype::F32, &keys) }), [true; 3]);
    let keys: [(&[f64], &[f64]); 1] = [(&[1.0], &[1.0, 3.0])];
    assert_eq!(answers(&Row { q: &[1.0], sink: Some(f32::NAN), ..equal(Dtype::F32, &keys) }), [true; 3]);
}

#[test]
fn overflow_is_a_rounding() {
    let keys: [(&[f64], &[f64]); 1] = [(&[1.0], &[65520.0])];
    let row = Row { out: Dtype::F16, ..equal(Dtype::F32, &keys) };
    assert_eq!(value(&row).0, f64::INFINITY);
    let keys: [(&[f64], &[f64]); 1] = [(&[1.0], &[65519.0])];
    assert_eq!(value(&Row { out: Dtype::F16, ..equal(Dtype::F32, &keys) }).0, 65504.0);
    let keys: [(&[f64], &[f64]); 1] = [(&[1e30], &[0.0])];
    let huge = f64::from(1e30f32);
    let keys = [(&[huge][..], keys[0].1)];
    assert_eq!(lse(&Row { q: &[huge], ..equal(Dtype::F32, &keys) }), f32::INFINITY);
}

#[test]
fn error_sums_survive_infinity_and_vanished_weights() {
    let q = Tensor { dtype: Dtype::F32, dims: vec![1, 1, 1], bits: vec![1f32.to_bits()] };
    let tensor = |values: [f32; 2], d: usize| Tensor {
        dtype: Dtype::F32,
        dims: vec![2 / d, 1, d],
        bits: values.map(f32::to_bits).to_vec(),
    };
    let (k, v) = (tensor([0.0, -1e4], 1), tensor([0.0, 2.0], 1));
    let problem = Problem::plain(&[(1, 2)], [1, 1], [1, 1], Dtype::F32);
    let mut oracle = Oracle::new(Mode::Enclosure);
    oracle.begin(&problem, &q, &k, &v);
    let unbounded = Weighting { per_magnitude: f64::INFINITY, constant: 0.0 };
    let half = Weighting { per_magnitude: 0.5, constant: 0.0 };
    let sums = oracle.row(0, 0, 0, &[unbounded, half]).sums.clone();
    assert_eq!((sums.weight_error[0], sums.value_error[0][0]), (f64::INFINITY, f64::INFINITY));
    // g = 2e4 for the far key: e^-10000 (e^10000 - 1) is 1, though e^-10000 is zero in f64.
    assert!((sums.value_error[1][0] - 2.0).abs() < 1e-6 && (sums.weight_error[1] - 1.0).abs() < 1e-6, "{sums:?}");
    assert_eq!((sums.magnitude_max, sums.distance_max, sums.keys), (2e4, 0.0, 2));
    assert_eq!(sums.score_magnitude_max, 1e4);
    let none = Weighting { per_magnitude: 0.0, constant: 0.0 };
    assert_eq!(oracle.row(0, 0, 0, &[none]).sums.value_error, [[0.0]]);
    assert!(oracle.row(0, 0, 0, &[]).sums.value_error.is_empty());
}

#[test]
fn modes_have_names() {
    for mode in [Mode::Enclosure, Mode::Mpfr, Mode::Off] {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!(Oracle::new(Mode::Off).row(0, 0, 0, &[]).o.is_empty());
    assert!("fast".parse::<Mode>().unwrap_err().contains("enclosure"));
}
