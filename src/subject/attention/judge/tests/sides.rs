//! Whole cases: which side is measured with which bound, and what of both is counted.

use super::*;
use crate::subject::attention::kernel::{AttentionKernel, Identity};
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::{Data, Fp8Kv, Literal, Mask, Shards, Side};
use std::sync::Arc;

/// What a kernel says of itself.
#[derive(Clone, Copy)]
struct Declared {
    numerics: Option<Numerics>,
    means: Conventions,
    has_lse: bool,
}

impl AttentionKernel for Declared {
    fn identity(&self) -> Identity {
        Identity::cpu("declared", "1")
    }
    fn numerics(&self) -> Option<Numerics> {
        self.numerics
    }
    fn conventions(&self) -> Conventions {
        self.means
    }
    fn has_lse(&self) -> bool {
        self.has_lse
    }
}

fn plain() -> Declared {
    Declared { numerics: None, means: Conventions::default(), has_lse: true }
}

fn as_computed_by(name: &str) -> Declared {
    Declared { numerics: Some(Reference::parse(name).expect("a kernel's name").numerics), ..plain() }
}

/// Two rows of two heads over two keys that every row sees, three value lanes.
fn two_keys(k: [f32; 2], v: [f32; 6]) -> Case {
    let mut case = case();
    let problem = &mut case.problem;
    (problem.mask, problem.softcap, problem.sinks, problem.alibi_slopes) = (Mask::default(), None, None, None);
    (problem.d_qk, problem.softmax_scale, problem.dtype, problem.fp8_kv) = (1, 1.0, Dtype::F32, None);
    (case.train.layout, case.train.context, case.infer.context) = (TrainLayout::Varlen, None, None);
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    case.data = Data::Literal(Literal { q: bits(&[1.0, 0.5, -1.0, 2.0]), k: bits(&k), v: bits(&v) });
    case
}

/// Nothing about it is exact.
fn uneven() -> Case {
    two_keys([0.5, -0.25], [1.0, 2.0, 4.0, 3.0, 4.5, 8.0])
}

/// Results as the oracle gives them.
fn right(case: &Case) -> Produced {
    let inputs = Inputs::new(case, None);
    let mut oracle = Oracle::new(Mode::Enclosure);
    oracle.begin(&case.problem, &inputs.q, &inputs.k, &inputs.v);
    let mut produced = nothing(case);
    let bits = |truth: &Truth| match truth.answer {
        Answer::Decided(bits) => bits,
        other => panic!("{other:?}"),
    };
    for row in 0..2 {
        for head in 0..2 {
            let truth = oracle.row(0, row as u32, head, &[]);
            produced.lse.bits[row * 2 + head] = bits(&truth.lse);
            let o = &mut produced.o.bits[(row * 2 + head) * 3..][..3];
            o.iter_mut().zip(&truth.o).for_each(|(it, truth)| *it = bits(truth));
        }
    }
    produced
}

/// A value somewhat more.
fn off(bits: &mut u32, factor: f32) {
    *bits = (f32::from_bits(*bits) * factor).to_bits();
}

fn judged_as(case: &Case, sides: [(Declared, Option<&Produced>); 2]) -> Verdict {
    let implementations = sides.map(|(declared, side)| (Implementation::kernel(Arc::new(declared)), side));
    let mut verdict = Verdict::default();
    let sides = implementations.each_ref().map(|(implementation, side)| (implementation, *side));
    judge(case, &Inputs::new(case, None), sides, &mut [], &mut Oracle::new(Mode::Enclosure), &mut verdict);
    verdict
}

fn found(verdict: &Verdict) -> Vec<String> {
    let place = |finding: &Finding| match finding {
        Finding::Inaccurate(it) => format!("{} {} {} {}", it.path, it.output, it.index, it.exceeding),
        other => other.signature(),
    };
    verdict.findings.iter().map(place).collect()
}

#[test]
fn one_side_or_two() {
    let (case, side) = (uneven(), right(&uneven()));
    for (train, infer, elements) in
        [(Some(&side), None, 16), (None, Some(&side), 16), (Some(&side), Some(&side), 32), (None, None, 0)]
    {
        let verdict = judged_as(&case, [(plain(), train), (as_computed_by("ref:aligned,probs.dtype=bf16"), infer)]);
        assert_eq!(found(&verdict), [""; 0]);
        assert_eq!((verdict.accuracy.judged, verdict.accuracy.correctly_rounded), (elements, elements));
    }
}

/// The same bits, far off for one arithmetic and near for the other.
#[test]
fn each_side_has_its_own_bound() {
    let (case, mut side) = (uneven(), right(&uneven()));
    off(&mut side.o.bits[11], 1.0005);
    let narrow = as_computed_by("ref:aligned,probs.dtype=bf16");
    let place = |path: &str| vec![format!("{path} o seq=0 row=1 head=1 d=2 1")];
    assert_eq!(found(&judged_as(&case, [(plain(), Some(&side)), (narrow, Some(&side))])), place("train"));
    assert_eq!(found(&judged_as(&case, [(narrow, Some(&side)), (plain(), Some(&side))])), place("infer"));
    assert_eq!(found(&judged_as(&case, [(narrow, None), (plain(), Some(&side))])), place("infer"));
    assert_eq!(found(&judged_as(&case, [(plain(), None), (narrow, Some(&side))])), [""; 0]);
    assert_eq!(found(&judged_as(&case, [(plain(), Some(&side)); 2])), [place("train"), place("infer")].concat());
    // Partial results in a narrow format cost more where ranks make them.
    let merged = as_computed_by("ref:aligned,grid.partial_dtype=bf16,grid.context=ring_lse");
    let mut ranks = case.clone();
    ranks.train.context = Some(ContextParallel { ranks: 2, shards: Shards::Contiguous, length: 1 });
    let verdict = judged_as(&ranks, [(merged, Some(&side)), (merged, Some(&side))]);
    assert_eq!(found(&verdict), place("infer"));
    let side = nothing(&ranks);
    let implementation = Implementation::kernel(Arc::new(merged));
    let facts = facts(&ranks, [1.0; 3], 2, 0);
    assert_eq!(facts.context, None);
    assert_eq!(Judge::new(Path::Train, &implementation, &ranks, &side).on_path(&facts).context, ranks.train.context);
    assert_eq!(Judge::new(Path::Infer, &implementation, &ranks, &side).on_path(&facts).context, None);
}

/// Equal bits are measured once, unequal ones are not taken for equal.
#[test]
fn one_element_of_one_side() {
    let (case, side) = (uneven(), right(&uneven()));
    for n in 0..12 {
        let mut wrong = side.clone();
        off(&mut wrong.o.bits[n], 1.5);
        let index = format!("seq=0 row={} head={} d={} 1", n / 6, n / 3 % 2, n % 3);
        let one = judged_as(&case, [(plain(), Some(&side)), (plain(), Some(&wrong))]);
        assert_eq!(
            (found(&one), one.accuracy.judged, one.accuracy.above),
            (vec![format!("infer o {index}")], 32, one.accuracy.above)
        );
        let both = judged_as(&case, [(plain(), Some(&wrong)); 2]);
        assert_eq!(found(&both), ["train", "infer"].map(|path| format!("{path} o {index}")));
    }
    for n in 0..4 {
        let mut wrong = side.clone();
        off(&mut wrong.lse.bits[n], 1.5);
        let index = format!("seq=0 row={} head={} 1", n / 2, n % 2);
        let sides = [(plain(), Some(&side)), (plain(), Some(&wrong))];
        assert_eq!(found(&judged_as(&case, sides)), [format!("infer lse {index}")]);
        // A kernel without lse is not asked for it.
        let without = Declared { has_lse: false, ..plain() };
        for sides in [[(plain(), Some(&side)), (without, Some(&wrong))], [(without, Some(&wrong)), (plain(), Some(&side))]] {
            let verdict = judged_as(&case, sides);
            assert_eq!((found(&verdict), verdict.accuracy.judged), (vec![], 28));
        }
        let same = judged_as(&case, [(plain(), Some(&side)), (without, Some(&side))]);
        assert_eq!((found(&same), same.accuracy.judged), (vec![], 28));
    }
}

/// Rows that one side did not make, and rows that a side made twice.
#[test]
fn productions_are_measured() {
    let (case, side) = (uneven(), right(&uneven()));
    let mut hit = side.clone();
    hit.present[0] = false;
    hit.o.bits[..6].fill(0);
    let verdict = judged_as(&case, [(plain(), Some(&side)), (plain(), Some(&hit))]);
    assert_eq!((found(&verdict), verdict.accuracy.judged), (vec![], 24));
    let mut again = side.clone();
    let mut o = side.o.bits[6..].to_vec();
    off(&mut o[4], 1.5);
    again.again.push(crate::subject::attention::drive::Again { row: 1, o, lse: side.lse.bits[2..].to_vec() });
    let verdict = judged_as(&case, [(plain(), Some(&side)), (plain(), Some(&again))]);
    assert_eq!((found(&verdict), verdict.accuracy.judged), (vec!["infer o seq=0 row=1 head=1 d=1 1".into()], 40));
}

/// Of equal keys the mean is exact, so that only the store rounds; with arithmetic that is not declared anything may.
#[test]
fn exact_means() {
    let case = two_keys([0.5, 0.5], [1.0, 2.0, 4.0, 3.0, 4.5, 8.0]);
    let mut side = right(&case);
    side.o.bits[8] += 1;
    let aligned = as_computed_by("ref:aligned");
    let verdict = judged_as(&case, [(plain(), Some(&side)), (aligned, Some(&side))]);
    assert_eq!(found(&verdict), ["infer o seq=0 row=1 head=0 d=2 1"]);
    assert_eq!(inaccuracy(&verdict).map(|it| it.bound), Some(0.0));
    let mut side = right(&uneven());
    side.o.bits[8] += 1;
    assert_eq!(found(&judged_as(&uneven(), [(aligned, Some(&side)); 2])), [""; 0]);
}

/// What a row without keys holds is a matter of conventions, and exact.
#[test]
fn rows_without_keys() {
    let mut case = uneven();
    case.problem.sequences[0].kv = 0;
    let Data::Literal(literal) = &mut case.data else { unreachable!("literal data") };
    literal.k.clear();
    literal.v.clear();
    let (infinity, nan) = (f32::INFINITY, f32::NAN);
    let declared = |empty_row| Declared { means: Conventions { empty_row, ..Conventions::default() }, ..plain() };
    for (empty_row, right_o, right_lse) in
        [(EmptyRow::ZeroNegInf, 0.0, -infinity), (EmptyRow::ZeroPosInf, 0.0, infinity), (EmptyRow::Nan, nan, nan)]
    {
        for o in [0.0, -0.0, nan, 1.0] {
            for lse in [-infinity, infinity, nan, 0.0] {
                let mut side = nothing(&case);
                side.o.bits.fill(f32::to_bits(right_o));
                side.lse.bits.fill(f32::to_bits(right_lse));
                (side.o.bits[10], side.lse.bits[3]) = (o.to_bits(), lse.to_bits());
                let same = |a: f32, b: f32| a == b || a.is_nan() && b.is_nan();
                let mut expected = Vec::new();
                if !same(o, right_o) {
                    expected.push("train o seq=0 row=1 head=1 d=1 1");
                }
                if !same(lse, right_lse) {
                    expected.push("train lse seq=0 row=1 head=1 1");
                }
                let verdict = judged_as(&case, [(declared(empty_row), Some(&side)), (plain(), None)]);
                assert_eq!(found(&verdict), expected, "{empty_row}: {o}, {lse}");
                let right = 16 - expected.len() as u64;
                assert_eq!((verdict.accuracy.judged, verdict.accuracy.correctly_rounded), (16, right));
            }
        }
    }
    // The same bits under two conventions; and a kernel without lse.
    let mut side = nothing(&case);
    side.lse.bits.fill((-infinity).to_bits());
    let sides = [(declared(EmptyRow::ZeroNegInf), Some(&side)), (declared(EmptyRow::ZeroPosInf), Some(&side))];
    let verdict = judged_as(&case, sides);
    assert_eq!(found(&verdict), ["infer lse seq=0 row=0 head=0 4"]);
    assert_eq!(inaccuracy(&verdict).map(|it| it.judged), Some(4));
    let without = Declared { has_lse: false, ..declared(EmptyRow::ZeroPosInf) };
    let verdict = judged_as(&case, [(without, Some(&side)), (plain(), None)]);
    assert_eq!((found(&verdict), verdict.accuracy.judged), (vec![], 12));
}

/// Ties go to the oracle's second step, each in every case anew.
#[test]
fn escalations_are_counted() {
    let tie = 1.0 + f32::EPSILON;
    let case = two_keys([0.5, 0.5], [1.0, 1.0, 1.0, tie, tie, tie]);
    let (side, inputs) = (right(&case), Inputs::new(&case, None));
    let mut oracle = Oracle::new(Mode::Enclosure);
    let implementation = Implementation::kernel(Arc::new(plain()));
    for n in 1..3 {
        let mut verdict = Verdict { escalations: 5, ..Verdict::default() };
        judge(&case, &inputs, [(&implementation, Some(&side)), (&implementation, None)], &mut [], &mut oracle, &mut verdict);
        assert_eq!(verdict.escalations, 5 + 12, "{n}");
    }
}

#[test]
fn what_a_bound_knows_of_a_row() {
    let mut tensor = Tensor::filled(Dtype::BF16, &[4], 0);
    assert_eq!(largest(&tensor), 0.0);
    for (bits, value) in tensor.bits.iter_mut().zip([1.0, -3.0, 2.5, -0.5]) {
        *bits = Dtype::BF16.round_f64(value);
    }
    assert_eq!(largest(&tensor), 3.0);
    let mut case = uneven();
    (case.problem.kv_head_ids, case.problem.group_ids) = (vec![0, 1, 2], vec![0, 1]);
    case.problem.fp8_kv = Some(Fp8Kv { dtype: Dtype::E4M3, k_scales: vec![1.0, 2.0, 4.0], v_scales: vec![0.5, 0.25, 8.0] });
    case.problem.sinks = Some(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    case.train.layout = TrainLayout::Dense { side: Side::Left, pad_q: 7, pad_kv: 5 };
    for (head, scales) in [(0, [1.0, 0.5]), (1, [1.0, 0.5]), (2, [2.0, 0.25]), (5, [4.0, 8.0])] {
        let it = facts(&case, [1.0, 2.0, 3.0], 2, head);
        assert_eq!((it.keys, it.slots, it.kv_scales, it.sink), (2, 7, Some(scales), Some(head as f64)));
        assert_eq!([it.query_max, it.key_max, it.value_max], [1.0, 2.0, 3.0]);
    }
    case.train.layout = TrainLayout::Varlen;
    assert_eq!(facts(&case, [1.0; 3], 2, 0).slots, 2);
}
