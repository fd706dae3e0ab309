//! How large a trial is: what a shrink step must lower.

use crate::number::Dtype;
use crate::subject::attention::relation::size_of_context;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Anchor, Cache, Case, Data, Literal, Problem, Side, TrainLayout};

/// (sum of q and kv, sequences, heads, dims, knobs off their default, significant bits, labels).
pub(in crate::subject::attention) fn size(trial: &Trial) -> Vec<u64> {
    let problem = &trial.case.problem;
    let lengths: u64 = problem.sequences.iter().map(|s| u64::from(s.q) + u64::from(s.kv)).sum();
    vec![
        lengths,
        problem.sequences.len() as u64,
        problem.q_heads() as u64 + problem.kv_heads() as u64,
        u64::from(problem.d_qk) + u64::from(problem.d_v),
        knobs(trial),
        significance(&trial.case),
        labels(problem),
    ]
}

/// Sum of ids and labels: they only name data, and literal data needs no names.
fn labels(problem: &Problem) -> u64 {
    let heads = problem.kv_head_ids.iter().chain(&problem.group_ids).map(|&it| u64::from(it));
    heads.chain(problem.sequences.iter().map(|it| u64::from(it.id))).sum()
}

/// Each knob off its default weighs far more than the knob's own value.
const OFF_DEFAULT: u64 = 1 << 20;

fn knobs(trial: &Trial) -> u64 {
    let (problem, train, infer) = (&trial.case.problem, &trial.case.train, &trial.case.infer);
    let mut total = 0;
    let mut knob = |value: u64| {
        if value > 0 {
            total += OFF_DEFAULT + value.min(OFF_DEFAULT / 4);
        }
    };
    let disorder = |order: &[u32]| order.iter().enumerate().filter(|(n, it)| **it as usize != *n).count() as u64;
    if let TrainLayout::Dense { pad_q, pad_kv, side } = train.layout {
        knob(1);
        knob(u64::from(side == Side::Left));
        knob(u64::from(pad_q));
        knob(u64::from(pad_kv));
    }
    knob(disorder(&train.order));
    knob(u64::from(train.block_q.abs_diff(DEFAULT_BLOCK_Q)));
    match infer.cache {
        Cache::Contiguous { spare } => knob(u64::from(spare)),
        Cache::Paged { page, spare, shuffle, recycled } => {
            knob(u64::from(page));
            knob(u64::from(spare));
            knob(u64::from(shuffle != 0));
            knob(u64::from(recycled));
        }
    }
    for (sequence, request) in problem.sequences.iter().zip(&infer.requests) {
        knob(u64::from(request.hit));
        knob(u64::from(request.join));
        knob(request.chunks.len() as u64);
        knob(u64::from((sequence.q - request.hit).saturating_sub(request.then)));
        knob(u64::from(request.reject));
        knob(u64::from(request.preempt.is_some()));
    }
    knob(disorder(&infer.order));
    knob(u64::from(infer.rotate));
    knob(u64::from(infer.budget.is_some()));
    knob(u64::from(infer.bucket - 1));
    for (context, head_ranks) in [(train.context, train.head_ranks), (infer.context, infer.head_ranks)] {
        knob(size_of_context(context));
        knob(u64::from(head_ranks - 1));
    }
    train.knobs.iter().chain(&infer.knobs).for_each(|_| knob(1));
    knob(u64::from(problem.softcap.is_some()));
    knob(u64::from(problem.sinks.is_some()));
    knob(u64::from(problem.alibi_slopes.is_some()));
    knob(problem.mask.window_left.map_or(0, |left| 1 + u64::from(left)));
    knob(problem.mask.window_right.map_or(0, |right| 1 + u64::from(right)));
    knob(match problem.mask.causal {
        None => 0,
        Some(Anchor::BottomRight) => 1,
        Some(Anchor::TopLeft) => 2,
    });
    knob(u64::from(problem.softmax_scale != 1.0));
    if let Some(kv) = &problem.fp8_kv {
        knob(1);
        for scales in [&kv.k_scales, &kv.v_scales] {
            knob(scales.len() as u64 - 1);
            // 1 is simplest, then powers of two, then few significant bits.
            scales.iter().for_each(|scale| knob(if *scale == 1.0 { 0 } else { weight(Dtype::F32, scale.to_bits()) / 1024 }));
        }
    }
    if let Checks::Only { relation: Some(sided), .. } = &trial.checks {
        knob(sided.relation.size());
    }
    total
}

/// Query rows per tile of the simplest training plan.
pub(super) const DEFAULT_BLOCK_Q: u32 = 64;

/// Significant bits over all literal values; drawn and captured data weigh more than any literal.
pub(super) fn significance(case: &Case) -> u64 {
    let (dtype, kv) = (case.problem.dtype, case.problem.kv_dtype());
    let sum = |dtype: Dtype, tensor: &[u32]| tensor.iter().map(|&bits| weight(dtype, bits)).sum::<u64>();
    match &case.data {
        Data::Literal(Literal { q, k, v }) => sum(dtype, q) + sum(kv, k) + sum(kv, v),
        Data::Drawn { .. } => 1 << 40,
        Data::Captured { .. } => 1 << 41,
    }
}

/// 0 for +0; otherwise grows with significant bits, then with the distance of the exponent from that of 1.
pub(super) fn weight(dtype: Dtype, bits: u32) -> u64 {
    if bits == 0 {
        return 0;
    }
    let magnitude = bits & dtype.magnitude_mask();
    let fraction_bits = dtype.precision() - 1;
    let fraction = magnitude & ((1 << fraction_bits) - 1);
    let exponent = i64::from(magnitude >> fraction_bits) - i64::from(1 - dtype.emin());
    let significant = match fraction {
        0 => 1,
        _ => u64::from(fraction_bits - fraction.trailing_zeros()) + 1,
    };
    let sign = u64::from(bits & dtype.sign_mask() != 0);
    significant * 1024 + exponent.unsigned_abs() * 2 + sign + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Stream;
    use crate::subject::attention::draw::{Hints, Profile, draw};
    use crate::subject::attention::smaller::tests::{self, compared, plain, shaped, with_values};
    use crate::subject::attention::{ContextParallel, Fp8Kv, Shards};

    /// A smaller value of a knob is smaller, and none is so large that it weighs as much as a second knob.
    #[test]
    fn knobs_count_before_their_values() {
        let case = draw(&mut Stream::new(1, 0), Profile::Quick, &Hints::default());
        let with = |spare: u32, rotate: bool| {
            let mut case = case.clone();
            (case.infer.cache, case.infer.rotate) = (Cache::Contiguous { spare }, rotate);
            knobs(&Trial::new(case, Checks::Turn(0)))
        };
        assert!(with(0, false) < with(1, false) && with(1, false) < with(2, false));
        assert!(with(u32::MAX, false) < with(1, true));
        assert!(with(0, true) < with(1, true));
    }

    /// Rows and keys, sequences, heads of both kinds, lanes of both kinds, and the names.
    #[test]
    fn parts_of_the_size() {
        let mut case = shaped(&[(2, 3), (1, 5)], [2, 3], [4, 7]);
        let least = |case: Case| size(&compared(case));
        assert_eq!(least(case.clone()), [11, 2, 6 + 2, 11, 0, 1 << 40, 1 + 1 + (1 + 2)]);
        (case.problem.sequences[1].id, case.problem.kv_head_ids[0], case.problem.group_ids[0]) = (10, 20, 30);
        assert_eq!(least(case)[6], 10 + 21 + 33);
        let captured = Case { data: Data::Captured { sha256: String::new() }, ..plain() };
        assert_eq!(least(captured)[5], 1 << 41);
        let literal = with_values(plain(), [&[1.0], &[0.0], &[-2.0]]);
        assert_eq!(least(literal)[5], 1025 + 1024 + 2 + 1 + 1);
    }

    /// Each on its own knob of the simplest case, in units of a knob off its default and its value.
    #[test]
    fn every_knob_counts() {
        let of = |edit: &dyn Fn(&mut Case)| {
            let mut case = shaped(&[(4, 4), (1, 1)], [1, 1], [1, 1]);
            edit(&mut case);
            let knobs = knobs(&compared(case));
            (knobs / OFF_DEFAULT, knobs % OFF_DEFAULT)
        };
        assert_eq!(of(&|_| {}), (0, 0));
        let dense = |side, pad_q, pad_kv| TrainLayout::Dense { side, pad_q, pad_kv };
        assert_eq!(of(&|it| it.train.layout = dense(Side::Right, 0, 0)), (1, 1));
        assert_eq!(of(&|it| it.train.layout = dense(Side::Left, 2, 3)), (4, 1 + 1 + 2 + 3));
        assert_eq!(of(&|it| it.train.order = vec![1, 0]), (1, 2));
        assert_eq!(of(&|it| it.train.block_q = 60), (1, 4));
        assert_eq!(of(&|it| it.train.block_q = 70), (1, 6));
        assert_eq!(of(&|it| it.infer.cache = Cache::Contiguous { spare: 3 }), (1, 3));
        let paged = |page, spare, shuffle, recycled| Cache::Paged { page, spare, shuffle, recycled };
        assert_eq!(of(&|it| it.infer.cache = paged(5, 0, 0, false)), (1, 5));
        assert_eq!(of(&|it| it.infer.cache = paged(5, 2, 77, true)), (4, 5 + 2 + 1 + 1));
        assert_eq!(of(&|it| it.infer.requests[0].hit = 2), (1, 2), "what is left is one step");
        assert_eq!(of(&|it| it.infer.requests[0].join = 2), (1, 2));
        assert_eq!(of(&|it| it.infer.requests[0].chunks = vec![1, 1]), (1, 2));
        assert_eq!(of(&|it| it.infer.requests[0].then = 1), (1, 3));
        assert_eq!(of(&|it| (it.infer.requests[0].hit, it.infer.requests[0].then) = (2, 1)), (2, 2 + 1));
        assert_eq!(of(&|it| it.infer.requests[0].reject = 3), (1, 3));
        assert_eq!(of(&|it| it.infer.requests[0].preempt = Some(9)), (1, 1));
        assert_eq!(of(&|it| it.infer.order = vec![1, 0]), (1, 2));
        assert_eq!(of(&|it| it.infer.rotate = true), (1, 1));
        assert_eq!(of(&|it| it.infer.budget = Some(9)), (1, 1));
        assert_eq!(of(&|it| it.infer.bucket = 4), (1, 3));
        let ranks = |ranks, length| Some(ContextParallel { ranks, shards: Shards::Zigzag, length });
        assert_eq!(of(&|it| it.train.context = ranks(2, 3)), (1, 2 + 1 + 3));
        assert_eq!(of(&|it| it.infer.context = ranks(4, 3)), (1, 4 + 1 + 3));
        assert_eq!(of(&|it| (it.train.head_ranks, it.infer.head_ranks) = (2, 4)), (2, 1 + 3));
        let set = || vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "1".to_owned())];
        assert_eq!(of(&|it| (it.train.knobs, it.infer.knobs) = (set(), set())), (4, 4));
        assert_eq!(of(&|it| it.problem.softcap = Some(9.0)), (1, 1));
        assert_eq!(of(&|it| it.problem.sinks = Some(vec![9.0])), (1, 1));
        assert_eq!(of(&|it| it.problem.alibi_slopes = Some(vec![9.0])), (1, 1));
        assert_eq!(of(&|it| it.problem.softmax_scale = 0.5), (1, 1));
        assert_eq!(of(&|it| it.problem.mask.window_left = Some(0)), (1, 1));
        assert_eq!(of(&|it| (it.problem.mask.window_left, it.problem.mask.window_right) = (Some(2), Some(4))), (2, 3 + 5));
        assert_eq!(of(&|it| it.problem.mask.causal = Some(Anchor::BottomRight)), (1, 1));
        assert_eq!(of(&|it| it.problem.mask.causal = Some(Anchor::TopLeft)), (1, 2));
        let scaled = |k: &[f32], v: &[f32]| Some(Fp8Kv { dtype: Dtype::E4M3, k_scales: k.to_vec(), v_scales: v.to_vec() });
        assert_eq!(of(&|it| it.problem.fp8_kv = scaled(&[1.0], &[1.0])), (1, 1));
        assert_eq!(of(&|it| it.problem.fp8_kv = scaled(&[1.0, 1.0, 1.0], &[2.0])), (3, 1 + 2 + 1));
        assert_eq!(of(&|it| it.problem.fp8_kv = scaled(&[3.0], &[1.75])), (3, 1 + 2 + 3));
        let under = tests::under(plain(), "infer neighbour q=2 kv=3 count=2");
        assert_eq!(knobs(&under), OFF_DEFAULT + 2 + 3 + 1);
    }

    /// Zero, then powers of two by their distance from 1, then significant bits; a sign is the least.
    #[test]
    fn weights_of_values() {
        let of = |dtype: Dtype, value: f64| weight(dtype, dtype.round_f64(value));
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            assert_eq!(of(dtype, 0.0), 0);
            assert_eq!(of(dtype, 1.0), 1025);
            assert_eq!(of(dtype, -1.0), 1026);
            assert_eq!([of(dtype, 4.0), of(dtype, 0.25), of(dtype, -4.0)], [1025 + 4, 1025 + 4, 1026 + 4]);
            assert_eq!(of(dtype, 1.5), 2 * 1024 + 1);
            assert_eq!(of(dtype, 1.125), 4 * 1024 + 1);
            assert_eq!(of(dtype, 3.75), 4 * 1024 + 2 + 1);
        }
        assert_eq!(weight(Dtype::F32, 0x8000_0000), 1024 + 2 * 127 + 2, "-0 is a value");
    }
}
