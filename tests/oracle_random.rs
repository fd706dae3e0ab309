//! The oracle against a plain evaluation in MPFR at 1024 bits, on random problems of up to 32 x 32.
//!
//! `LASTBIT_ORACLE_CASES` sets their number.

use lastbit::number::{Dtype, round_mpfr};
use lastbit::subject::attention::oracle::{Answer, Mode, Oracle, Truth, Weighting};
use lastbit::subject::attention::{Anchor, Fp8Kv, Mask, Problem, Sequence};
use lastbit::tensor::Tensor;
use rug::Float;

const BITS: u32 = 1024;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n)) as u32
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

const KINDS: [&str; 10] =
    ["normal", "equal", "mirror", "deep", "tail", "quantised", "subnormal", "wide", "dominant", "constant_v"];

struct Drawn {
    kind: &'static str,
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
}

fn draw(random: &mut Random, kind: &'static str) -> Drawn {
    let dtype = random.pick(&[Dtype::F32, Dtype::BF16, Dtype::F16]);
    let kv = random.one_in(3).then(|| random.pick(&[Dtype::E4M3, Dtype::E5M2]));
    let out_dtype = if random.one_in(3) { random.pick(&[Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::E5M2]) } else { dtype };
    let causal = random.pick(&[None, Some(Anchor::BottomRight), Some(Anchor::BottomRight), Some(Anchor::TopLeft)]);
    let window = |random: &mut Random| if random.one_in(3) { Some(random.below(6)) } else { None };
    let window_left = window(random);
    let window_right = if causal.is_none() { window(random) } else { None };
    let (kv_heads, group) = random.pick(&[(1, 1), (1, 2), (2, 1)]);
    let heads = kv_heads * group;
    let sequences: Vec<Sequence> = (0..1 + random.below(2))
        .map(|id| {
            let most = if random.one_in(4) { 32 } else { 6 };
            Sequence { id, q: 1 + random.below(most), kv: random.below(33) }
        })
        .collect();
    let d_qk = 1 + random.below(9);
    let d_v = 1 + random.below(6);
    let mut parameters = |odds: u32, scale: f64| {
        random.one_in(odds).then(|| (0..heads).map(|_| (random.normal() * scale) as f32).collect::<Vec<f32>>())
    };
    let sinks = parameters(3, 1.0);
    let alibi_slopes = parameters(4, 0.2);
    let fp8_kv = kv.map(|dtype| {
        let mut scales = |few: &[f32]| {
            let count = if random.one_in(2) { kv_heads } else { 1 };
            (0..count).map(|_| if random.one_in(2) { random.pick(few) } else { (0.01 + random.unit()) as f32 }).collect()
        };
        Fp8Kv { dtype, k_scales: scales(&[1.0, 0.25, 4.0, 0.1]), v_scales: scales(&[1.0, 0.5, 3.0, 1e-4]) }
    });
    let problem = Problem {
        sequences,
        kv_head_ids: (0..kv_heads).collect(),
        group_ids: (0..group).collect(),
        d_qk,
        d_v,
        mask: Mask { causal, window_left, window_right },
        softcap: if random.one_in(4) { Some(random.pick(&[1.0, 30.0, 50.0])) } else { None },
        sinks,
        alibi_slopes,
        softmax_scale: random.pick(&[1.0, 0.5, 0.088_388_346, 1.0 / 3.0]),
        dtype,
        fp8_kv,
        out_dtype,
    };
    let kv = problem.kv_dtype();
    let (rows, keys) = (problem.total_q(), problem.total_kv());
    let level = if dtype == Dtype::F16 { random.pick(&[1e3, 1e4]) } else { random.pick(&[1e3, 1e4, 1e5, 3e38]) };
    let mut q: Vec<f64> = (0..rows * heads as usize * d_qk as usize).map(|_| random.normal()).collect();
    let mut k: Vec<f64> = (0..keys * kv_heads as usize * d_qk as usize).map(|_| random.normal()).collect();
    let mut v: Vec<f64> = (0..keys * kv_heads as usize * d_v as usize).map(|_| random.normal()).collect();
    let (wide_k, wide_v) = (d_qk as usize * kv_heads as usize, d_v as usize * kv_heads as usize);
    match kind {
        "equal" => (wide_k..k.len()).for_each(|n| k[n] = k[n - wide_k]),
        "mirror" => {
            for key in (1..keys).step_by(2) {
                (0..wide_k).for_each(|x| k[key * wide_k + x] = k[(key - 1) * wide_k + x]);
                (0..wide_v).for_each(|x| v[(key - 1) * wide_v + x] *= 65536.0 / 1024.0);
                (0..wide_v).for_each(|x| v[key * wide_v + x] = -v[(key - 1) * wide_v + x]);
            }
        }
        "deep" | "dominant" => {
            // One lane carries the level; a few keys of `dominant` are spared.
            q.iter_mut().for_each(|x| *x *= 0.1);
            k.iter_mut().for_each(|x| *x *= 0.1);
            q.chunks_mut(d_qk as usize).for_each(|q| q[0] = f64::sqrt(level));
            for (n, k) in k.chunks_mut(d_qk as usize).enumerate() {
                let spared = kind == "dominant" && n % 3 == 1;
                k[0] = if spared { 0.0 } else { -f64::sqrt(level) * random.pick(&[1.0, 1.0, 0.5, 0.999]) };
            }
        }
        "tail" => k.chunks_mut(d_qk as usize).enumerate().for_each(|(n, k)| k[0] += if n % 7 == 0 { 6.0 } else { -2.0 }),
        "quantised" => {
            let values = [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5];
            [&mut q, &mut k, &mut v].into_iter().flatten().for_each(|x| *x = random.pick(&values));
        }
        "subnormal" => v.iter_mut().for_each(|x| *x *= kv.least_normal() / 8.0),
        "wide" => [&mut q, &mut k, &mut v].into_iter().flatten().for_each(|x| *x *= 2f64.powi(random.below(8) as i32 - 4)),
        "constant_v" => v.iter_mut().for_each(|x| *x = 1.375),
        _ => {}
    }
    let tensor = |dtype: Dtype, values: Vec<f64>, rows: usize, heads: u32, d: u32| Tensor {
        dtype,
        dims: vec![rows, heads as usize, d as usize],
        bits: values.into_iter().map(|x| dtype.round_f64(x.clamp(-dtype.max_finite(), dtype.max_finite()))).collect(),
    };
    Drawn {
        kind,
        q: tensor(dtype, q, rows, heads, d_qk),
        k: tensor(kv, k, keys, kv_heads, d_qk),
        v: tensor(kv, v, keys, kv_heads, d_v),
        problem,
    }
}

/// A row of one head, evaluated plainly. Radii are 2^-800 of the magnitudes: scores stay below 2^130 and sums below 2^8 terms,
/// so 1024 bits leave more than 2^-880 of them.
struct Plain {
    o: Vec<(Float, Float)>,
    lse: (Float, Float),
    weight: f64,
    value_abs: Vec<f64>,
    value_error: Vec<f64>,
    weight_error: f64,
}

fn plain(drawn: &Drawn, sequence: usize, row: u32, head: usize, weighting: Weighting) -> Option<Plain> {
    let problem = &drawn.problem;
    let Sequence { q, kv, .. } = problem.sequences[sequence];
    let before = |size: fn(&Sequence) -> u32| problem.sequences[..sequence].iter().map(size).sum::<u32>() as usize;
    let (first_row, first_key) = (before(|s| s.q), before(|s| s.kv));
    let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
    let (kv_heads, kv_head) = (problem.kv_heads(), head / problem.group_ids.len());
    let value = |tensor: &Tensor, at: usize| tensor.dtype.to_f64(tensor.bits[at]);
    let float = |x: f64| Float::with_val(BITS, x);
    let scale = |scales: fn(&Fp8Kv) -> &Vec<f32>| {
        problem.fp8_kv.as_ref().map_or(1.0, |kv| {
            let scales = scales(kv);
            f64::from(if scales.len() == 1 { scales[0] } else { scales[kv_head] })
        })
    };
    let (k_scale, v_scale) = (scale(|kv| &kv.k_scales), scale(|kv| &kv.v_scales));
    let position = if problem.mask.causal == Some(Anchor::TopLeft) { 0 } else { i64::from(kv) - i64::from(q) } + i64::from(row);
    let mut scores = Vec::new();
    let mut magnitudes = Vec::new();
    let keys: Vec<u32> = problem.mask.keys(row, q, kv).collect();
    for &j in &keys {
        let mut score = float(0.0);
        let mut magnitude = 0.0;
        for x in 0..d_qk {
            let product = float(value(&drawn.q, ((first_row + row as usize) * problem.q_heads() + head) * d_qk + x))
                * value(&drawn.k, ((first_key + j as usize) * kv_heads + kv_head) * d_qk + x)
                * k_scale;
            magnitude += product.to_f64().abs();
            score += product;
        }
        score *= problem.softmax_scale;
        magnitude *= f64::from(problem.softmax_scale);
        if let Some(cap) = problem.softcap {
            score = (score / cap).tanh() * cap;
        }
        if let Some(slopes) = &problem.alibi_slopes {
            let bias = f64::from(slopes[head]) * (position - i64::from(j)).abs() as f64;
            score -= bias;
            magnitude += bias.abs();
        }
        scores.push(score);
        magnitudes.push(magnitude);
    }
    if let Some(sinks) = &problem.sinks {
        scores.push(float(sinks[head].into()));
        magnitudes.push(f64::from(sinks[head]).abs());
    }
    let max = scores.iter().cloned().reduce(|a, b| if b > a { b } else { a })?;
    let mut plain = Plain {
        o: Vec::new(),
        lse: (float(0.0), float(0.0)),
        weight: 0.0,
        value_abs: Vec::new(),
        value_error: Vec::new(),
        weight_error: 0.0,
    };
    let distances: Vec<Float> = scores.iter().map(|score| Float::with_val(BITS, score - &max)).collect();
    let weights: Vec<Float> = distances.iter().map(|distance| distance.clone().exp()).collect();
    // w expm1(x) as e^(t + x) - e^t, which may be infinite but is never 0 * infinity.
    let errors: Vec<Float> = (weights.iter().zip(&distances).zip(&magnitudes))
        .map(|((w, t), g)| {
            let exponent = weighting.per_magnitude * (g + t.to_f64().abs()) + weighting.constant;
            Float::with_val(BITS, t + exponent).exp() - w
        })
        .collect();
    let total = weights.iter().fold(float(0.0), |sum, w| sum + w);
    plain.weight = total.to_f64();
    plain.weight_error = errors.iter().fold(float(0.0), |sum, e| sum + e).to_f64();
    for x in 0..d_v {
        let (mut sum, mut absolute, mut error) = (float(0.0), float(0.0), float(0.0));
        for (n, &j) in keys.iter().enumerate() {
            let v = float(value(&drawn.v, ((first_key + j as usize) * kv_heads + kv_head) * d_v + x)) * v_scale;
            sum += Float::with_val(BITS, &weights[n] * &v);
            if v != 0.0 {
                let v = v.abs();
                absolute += Float::with_val(BITS, &weights[n] * &v);
                error += Float::with_val(BITS, &errors[n] * &v);
            }
        }
        plain.value_abs.push(absolute.to_f64());
        plain.value_error.push(error.to_f64());
        plain.o.push((sum / &total, (absolute / &total) >> 800));
    }
    let radius = (Float::with_val(BITS, max.abs_ref()) + 1u32) >> 800;
    plain.lse = (total.ln() + max, radius);
    Some(plain)
}

fn agree(dtype: Dtype, truth: &Truth, (value, radius): &(Float, Float), place: &dyn Fn() -> String) {
    let distance = Float::with_val(BITS, value - truth.value).abs();
    assert!(
        distance <= Float::with_val(BITS, radius + truth.radius),
        "{}: disjoint enclosures: {truth:?} against {value}",
        place()
    );
    let Answer::Decided(bits) = truth.answer else { panic!("{}: {truth:?}", place()) };
    let round = |x: Float| {
        let bits = round_mpfr(dtype, &x);
        if bits == dtype.sign_mask() { 0 } else { bits }
    };
    let (lo, hi) = (round(Float::with_val(BITS, value - radius)), round(Float::with_val(BITS, value + radius)));
    assert!(bits == lo || bits == hi, "{}: {truth:?} against {lo:x}..{hi:x} {value}", place());
}

fn close(upper: f64, truth: f64, place: &dyn Fn() -> String) {
    // Sums are bounds from above, within the slack of expm1's bound and what `f64` cannot tell from zero.
    let fits = upper >= truth * (1.0 - 1e-9) - 1e-300 && upper <= truth * 1.02 + 1e-300;
    assert!(fits, "{}: sum {upper:e} against {truth:e}", place());
}

fn check(random: &mut Random, oracle: &mut Oracle, cases: u32) -> u64 {
    let mut elements = 0;
    for case in 0..cases {
        let drawn = draw(random, KINDS[case as usize % KINDS.len()]);
        let problem = &drawn.problem;
        oracle.begin(problem, &drawn.q, &drawn.k, &drawn.v);
        for (sequence, rows) in problem.sequences.iter().map(|s| s.q).enumerate() {
            // Every row of a short sequence; a sample of a long one.
            for row in (0..rows).step_by(if rows > 8 { 5 } else { 1 }) {
                for head in 0..problem.q_heads() {
                    let weighting = Weighting { per_magnitude: 1e-6, constant: 3e-7 };
                    let truth = oracle.row(sequence, row, head, &[weighting]);
                    let place = || {
                        let shape: Vec<(u32, u32)> = problem.sequences.iter().map(|s| (s.q, s.kv)).collect();
                        format!("case {case} ({}) {shape:?} sequence {sequence} row {row} head {head} {problem:?}", drawn.kind)
                    };
                    let Some(plain) = plain(&drawn, sequence, row, head, weighting) else {
                        assert!(truth.o.iter().all(|truth| truth.answer == Answer::Decided(0)), "{}", place());
                        assert_eq!(truth.lse.answer, Answer::Decided(f32::NEG_INFINITY.to_bits()), "{}", place());
                        continue;
                    };
                    for (truth, plain) in truth.o.iter().zip(&plain.o) {
                        agree(problem.out_dtype, truth, plain, &place);
                    }
                    agree(Dtype::F32, &truth.lse, &plain.lse, &place);
                    close(truth.sums.weight, plain.weight, &place);
                    close(truth.sums.weight_error[0], plain.weight_error, &place);
                    for x in 0..plain.o.len() {
                        close(truth.sums.value_abs[x], plain.value_abs[x], &place);
                        close(truth.sums.value_error[0][x], plain.value_error[x], &place);
                    }
                    elements += plain.o.len() as u64 + 1;
                }
            }
        }
    }
    elements
}

#[test]
fn no_enclosure_is_disjoint_from_a_plain_evaluation() {
    let cases = std::env::var("LASTBIT_ORACLE_CASES").map_or(400, |n| n.parse().expect("LASTBIT_ORACLE_CASES is a number"));
    let mut oracle = Oracle::new(Mode::Enclosure);
    let elements = check(&mut Random(1), &mut oracle, cases);
    println!("{cases} cases, {elements} elements, {} left open by the first step", oracle.escalations());
}

#[test]
fn the_mpfr_mode_agrees_too() {
    let mut oracle = Oracle::new(Mode::Mpfr);
    let elements = check(&mut Random(2), &mut oracle, 60);
    println!("{elements} elements, {} left open by 200 bits", oracle.escalations());
}

#[test]
fn the_first_step_proves_nearly_everything_on_ordinary_f32_data() {
    for kind in ["normal", "tail"] {
        let mut random = Random(3);
        let mut oracle = Oracle::new(Mode::Enclosure);
        let mut elements = 0;
        while elements < 60_000 {
            let mut drawn = draw(&mut random, kind);
            if drawn.q.dtype != Dtype::F32 || drawn.problem.softcap.is_some() || drawn.problem.fp8_kv.is_some() {
                continue;
            }
            drawn.problem.out_dtype = Dtype::F32;
            oracle.begin(&drawn.problem, &drawn.q, &drawn.k, &drawn.v);
            for (sequence, rows) in drawn.problem.sequences.iter().map(|s| s.q).enumerate() {
                for (row, head) in (0..rows).flat_map(|row| (0..drawn.problem.q_heads()).map(move |head| (row, head))) {
                    let truth = oracle.row(sequence, row, head, &[]);
                    elements += truth.o.len() as u64 + 1;
                }
            }
        }
        let open = oracle.escalations() as f64 / elements as f64;
        println!("{kind}: {open:.2e} of {elements} elements left open");
        assert!(open <= 1e-3, "{kind}: {open}");
    }
}
