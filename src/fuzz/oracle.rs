//! The oracle's `f64` enclosure against MPFR.

use super::affordable;
use crate::number::Dtype;
use crate::source::{Bytes, Choose, Source};
use crate::subject::attention::check::Pair;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::oracle::{Answer, Mode, Oracle, Truth};
use crate::subject::attention::reference::Reference;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::validate::work;
use crate::subject::attention::{Anchor, Case, Data, Inputs, Literal, Mask, Problem, file, text};
use arbitrary::Unstructured;
use rug::Rational;

/// Most multiplications of one pass: every exponential goes through MPFR at 200 bits and more.
const WORK_MAX: u64 = 1 << 14;

/// One small problem through both modes of the oracle: where both claim proof they agree in every bit, and their enclosures are
/// never disjoint.
///
/// Input that begins with `format =` (after comment lines) is the text of a case file, whose values may be drawn; anything else is
/// choices that draw a problem and then each value of q, k and v: a round number, an earlier value or its negative, or any pattern.
///
/// # Panics
/// Where the modes disagree. The message ends in the case file.
pub fn oracle(data: &[u8]) {
    let case = match super::case_file(data) {
        Some(file) => file.case,
        None => draw(&mut Bytes::new(&mut Unstructured::new(data))),
    };
    if !affordable(&case) || work(&case) > WORK_MAX {
        return;
    }
    let problem = &case.problem;
    let inputs = Inputs::new(&case, None);
    let [mut enclosure, mut mpfr] = [Mode::Enclosure, Mode::Mpfr].map(Oracle::new);
    for oracle in [&mut enclosure, &mut mpfr] {
        oracle.begin(problem, &inputs.q, &inputs.k, &inputs.v);
    }
    for (n, sequence) in problem.sequences.iter().enumerate() {
        for (row, head) in (0..sequence.q).flat_map(|row| (0..problem.q_heads()).map(move |head| (row, head))) {
            let ours = enclosure.row(n, row, head, &[]);
            let theirs = mpfr.row(n, row, head, &[]);
            let place = |what: String| format!("{what} of sequence {}, row {row}, head {head}", sequence.id);
            for (lane, (ours, theirs)) in ours.o.iter().zip(&theirs.o).enumerate() {
                agree(&case, ours, theirs, || place(format!("o, lane {lane},")));
            }
            agree(&case, &ours.lse, &theirs.lse, || place("lse".into()));
        }
    }
}

fn agree(case: &Case, ours: &Truth, theirs: &Truth, place: impl Fn() -> String) {
    let proven = match (ours.answer, theirs.answer) {
        (Answer::Decided(a), Answer::Decided(b)) => a == b,
        (a, b) => (a == Answer::NotFinite) == (b == Answer::NotFinite),
    };
    let exact = |x: f64| Rational::from_f64(x);
    let meet = match [ours.value, theirs.value, ours.radius, theirs.radius].map(exact) {
        [Some(a), Some(b), Some(r), Some(s)] => (a - b).abs() <= r + s,
        // No enclosure, or no finite value to enclose: the log-sum-exp of an empty row.
        _ => true,
    };
    if proven && meet {
        return;
    }
    let what = if proven { "disjoint enclosures" } else { "two proofs" };
    let what = format!("{what}: {}: enclosure {ours:?}, mpfr {theirs:?}", place());
    let aligned = || Implementation::reference(Reference::default());
    let pair = Pair { train: aligned(), infer: aligned(), oracle: Mode::Mpfr, captured: None, witness: false };
    let trial = Trial::new(case.clone(), Checks::Only { oracle: true, pair: true, relation: None });
    panic!("{what}\n{}", text::print(&file::file(what.clone(), &pair, &trial, None)));
}

/// A problem of up to 2 sequences of 3 rows and 8 keys.
fn draw(source: &mut dyn Source) -> Case {
    let dtype = source.pick(&[Dtype::F32, Dtype::BF16, Dtype::F16]);
    let out_dtype = source.pick(&[Dtype::F32, Dtype::BF16, Dtype::F16]);
    let (kv_heads, group) = source.pick(&[(1, 1), (1, 2), (2, 1)]);
    let (d_qk, d_v) = (source.range(1, 4), source.range(1, 3));
    let count = source.range(1, 2);
    let sequences: Vec<(u32, u32)> = (0..count).map(|_| (source.range(1, 3), source.range(0, 8))).collect();
    let causal = source.pick(&[None, Some(Anchor::BottomRight), Some(Anchor::TopLeft)]);
    let window = |source: &mut dyn Source| source.chance(1, 4).then(|| source.range(0, 4));
    let window_left = window(source);
    let window_right = if causal.is_none() { window(source) } else { None };
    let heads = (kv_heads * group) as usize;
    let mut per_head = |odds: u32| source.chance(1, odds).then(|| (0..heads).map(|_| number(source)).collect::<Vec<f32>>());
    let sinks = per_head(4);
    let alibi_slopes = per_head(4).map(|slopes| slopes.into_iter().map(f32::abs).collect());
    let softcap = source.chance(1, 4).then(|| positive(source, &[30.0, 1.0, 50.0]));
    let problem = Problem {
        mask: Mask { causal, window_left, window_right },
        softcap,
        sinks,
        alibi_slopes,
        softmax_scale: positive(source, &[1.0, 0.5, 0.088_388_346, 1.0 / 3.0]),
        out_dtype,
        ..Problem::plain(&sequences, [kv_heads, group], [d_qk, d_v], dtype)
    };
    let mut tensor = |elements: usize| {
        let mut bits: Vec<u32> = Vec::with_capacity(elements);
        for _ in 0..elements {
            bits.push(value(source, dtype, &bits));
        }
        bits
    };
    let (rows, keys) = (problem.total_q(), problem.total_kv());
    let kv_heads = problem.kv_heads();
    let literal = Literal {
        q: tensor(rows * heads * d_qk as usize),
        k: tensor(keys * kv_heads * d_qk as usize),
        v: tensor(keys * kv_heads * d_v as usize),
    };
    // The plans mean nothing to the oracle.
    Case::plain(problem, Data::Literal(literal))
}

/// A finite pattern: round, an earlier one or its negative (ties and cancellation), or any.
fn value(source: &mut dyn Source, dtype: Dtype, earlier: &[u32]) -> u32 {
    match (source.below(4), earlier.len()) {
        (1 | 2, 0) | (0, _) => dtype.round_f64(source.pick(&[0.0, 1.0, -1.0, 0.5, 3.0, -0.0])),
        (kind @ (1 | 2), count) => {
            let back = source.below(count.min(16) as u64) as usize;
            earlier[count - 1 - back] ^ if kind == 2 { dtype.sign_mask() } else { 0 }
        }
        _ => {
            let magnitude = source.below(u64::from(dtype.max_finite_bits()) + 1) as u32;
            magnitude | if source.chance(1, 2) { dtype.sign_mask() } else { 0 }
        }
    }
}

/// A finite number.
fn number(source: &mut dyn Source) -> f32 {
    f32::from_bits(value(source, Dtype::F32, &[]))
}

/// A finite number above zero: one of the usual, or any.
fn positive(source: &mut dyn Source, usual: &[f32]) -> f32 {
    match source.below(4) {
        0..=2 => source.pick(usual),
        _ => f32::from_bits(1 + source.below(0x7f7f_ffff) as u32),
    }
}
