mod sides;

use super::*;
use crate::finding::{Comparison, ELEMENTS_KEPT, Skip};
use crate::source::Stream;
use crate::subject::attention::Sequence;
use crate::subject::attention::draw::{Hints, Profile, draw};
use crate::subject::attention::oracle::RowSums;
use crate::subject::attention::reference::Reference;

/// A case of two rows, two heads and three lanes, in F32.
fn case() -> Case {
    let mut case = draw(&mut Stream::new(1, 0), Profile::Quick, &Hints::default());
    let problem = &mut case.problem;
    problem.sequences = vec![Sequence { id: 0, q: 2, kv: 2 }];
    (problem.kv_head_ids, problem.group_ids, problem.d_v, problem.out_dtype) = (vec![0], vec![0, 1], 3, Dtype::F32);
    case
}

fn nothing(case: &Case) -> Produced {
    let (rows, heads, lanes) = (case.problem.total_q(), case.problem.q_heads(), case.problem.d_v as usize);
    Produced {
        o: Tensor::filled(Dtype::F32, &[rows, heads, lanes], 0),
        lse: Tensor::filled(Dtype::F32, &[rows, heads], 0),
        present: vec![true; rows],
        again: Vec::new(),
        calls: 0,
    }
}

fn known(value: f32, radius: f64) -> Truth {
    Truth { value: f64::from(value), radius, answer: Answer::Decided(value.to_bits()) }
}

const OPEN: Truth = Truth { value: 1.0, radius: 0.0, answer: Answer::Undecided };

/// Measures results of `o`, the n-th at index `n`, and gives what the judge says in the end.
fn judged(results: &[(f32, Truth, Bound)]) -> Verdict {
    let case = case();
    let side = nothing(&case);
    let implementation = Implementation::reference(Reference::parse("ref:aligned").expect("a kernel's name"));
    let mut judge = Judge::new(Path::Train, &implementation, &case, &side);
    for (n, (value, truth, bound)) in results.iter().enumerate() {
        let mut tally = Tally::default();
        let it = Measured { output: 0, dtype: Dtype::F32, bits: value.to_bits(), truth, bound: *bound };
        judge.measure(&mut tally, it, || Index(vec![("n", n as u64)]));
        judge.add(&tally);
    }
    let mut verdict = Verdict::default();
    judge.finish(&mut verdict);
    verdict
}

fn inaccuracy(verdict: &Verdict) -> Option<&Inaccuracy> {
    verdict.findings.iter().find_map(|finding| if let Finding::Inaccurate(it) = finding { Some(it) } else { None })
}

/// Each result alone: is it correctly rounded, above, below; the share of its bound; is it reported.
#[test]
fn results_are_counted() {
    let (one, within) = (known(1.0, 0.0), Bound::Within(0.5));
    let infinite = Truth { value: 4e38, radius: 0.0, answer: Answer::Decided(f32::INFINITY.to_bits()) };
    for (value, truth, bound, counts, worst, reported) in [
        (1.0, one, within, [1, 0, 0], 0.0, false),
        (1.25, one, within, [0, 1, 0], 0.5, false),
        // At the bound is within it.
        (0.5, one, within, [0, 0, 1], 1.0, false),
        (0.25, one, within, [0, 0, 1], 1.5, true),
        (2.0, one, within, [0, 1, 0], 2.0, true),
        (f32::NAN, one, within, [0, 0, 0], 0.0, true),
        (f32::INFINITY, one, within, [0, 1, 0], 0.0, true),
        // Overflow may be the right rounding.
        (f32::INFINITY, infinite, within, [1, 1, 0], 0.0, false),
        (f32::MAX, infinite, Bound::Within(1e38), [0, 0, 1], (4e38 - f64::from(f32::MAX)) / 1e38, false),
        (-0.0, known(0.0, 0.0), within, [1, 0, 0], 0.0, false),
        // Not told apart from the truth, by as much as that is not known.
        (1.25, known(1.0, 0.25), within, [0, 0, 0], 0.0, false),
        (0.75, known(1.0, 0.25), within, [0, 0, 0], 0.0, false),
        (1.5, known(1.0, 0.25), within, [0, 1, 0], 0.5, false),
        (1.0, OPEN, within, [0, 0, 0], 0.0, false),
        (9.0, one, Bound::Unbounded, [0, 1, 0], 0.0, false),
        (f32::NAN, one, Bound::Unbounded, [0, 0, 0], 0.0, true),
        (f32::INFINITY, infinite, Bound::Unbounded, [1, 1, 0], 0.0, false),
        (f32::NAN, one, Bound::OutOfRange("f16 sums"), [0, 0, 0], 0.0, false),
    ] {
        let verdict = judged(&[(value, truth, bound)]);
        let it = verdict.accuracy;
        let place = format!("{value} of {truth:?} within {bound:?}");
        assert_eq!([it.correctly_rounded, it.above, it.below], counts, "{place}");
        assert_eq!((it.judged, it.worst, inaccuracy(&verdict).is_some()), (1, worst, reported), "{place}");
        assert_eq!(
            (it.unbounded, it.out_of_range),
            match bound {
                Bound::Within(_) => (0, 0),
                Bound::Unbounded => (1, 0),
                Bound::OutOfRange(_) => (0, 1),
            }
        );
    }
}

#[test]
fn what_is_out_of_range_is_said_once() {
    let results = [(f32::NAN, known(1.0, 0.0), Bound::OutOfRange("f16 sums")); 3];
    let verdict = judged(&results);
    assert_eq!(verdict.findings, [Finding::Skipped { what: Skip::Bound, reason: "train: out of range: f16 sums".into() }]);
    assert_eq!((verdict.accuracy.judged, verdict.accuracy.out_of_range), (3, 3));
}

/// The finding is the result furthest beyond its own bound, the first of equals; the others are counted.
#[test]
fn the_worst_is_reported() {
    let one = known(1.0, 0.0);
    let verdict = judged(&[
        (1.5, one, Bound::Within(1.0)),
        (3.0, one, Bound::Within(1.0)),
        (-1.0, one, Bound::Within(1.0)),
        (1.75, one, Bound::Within(0.25)),
        (9.0, one, Bound::Within(4.0)),
    ]);
    let worst = inaccuracy(&verdict).expect("four are beyond");
    assert_eq!((worst.index.to_string().as_str(), worst.exceeding, worst.judged), ("n=3", 4, 5));
    assert_eq!((worst.error, worst.bound, worst.truth), (0.75, 0.25, Some(1f32.to_bits())));
    assert_eq!((worst.path, worst.output, worst.bits), (Path::Train, "o", 1.75f32.to_bits()));
    assert_eq!(worst.ulp, f64::from(f32::EPSILON));
    assert_eq!(verdict.accuracy.worst, 3.0);

    let first = judged(&[(3.0, one, Bound::Within(1.0)), (-1.0, one, Bound::Within(1.0))]);
    assert_eq!(inaccuracy(&first).map(|it| it.index.to_string()), Some("n=0".into()));
    // Beyond a bound of zero is beyond any ratio, and a NaN is as far as can be.
    let exact = judged(&[(9.0, one, Bound::Within(0.5)), (1.5, one, Bound::Within(0.0)), (f32::NAN, one, Bound::Within(0.5))]);
    assert_eq!(inaccuracy(&exact).map(|it| (it.index.to_string(), it.error)), Some(("n=1".into(), 0.5)));
    let nan = judged(&[(9.0, one, Bound::Within(0.5)), (f32::NAN, one, Bound::Within(0.5))]);
    assert_eq!(inaccuracy(&nan).map(|it| (it.index.to_string(), it.error)), Some(("n=1".into(), f64::INFINITY)));
}

#[test]
fn a_natural_log_sum_exp_in_base_two() {
    let natural = |radius| Truth { value: 8f64.ln(), radius, answer: Answer::Decided(8f32.ln().to_bits()) };
    let three = lse_in(LseBase::Two, &natural(1e-15));
    assert_eq!(three.answer, Answer::Decided(3f32.to_bits()));
    assert!((three.value - 3.0).abs() <= three.radius && three.radius < 4e-15, "{three:?}");
    // What is not known of one is not known of the other, and is 1.44 times as much.
    let wide = lse_in(LseBase::Two, &natural(0.125));
    assert_eq!(wide.answer, Answer::Undecided);
    assert!(wide.radius >= 0.125 * std::f64::consts::LOG2_E && wide.radius < 0.2, "{wide:?}");
    assert_eq!(lse_in(LseBase::E, &natural(0.125)), natural(0.125));
    let empty = known(f32::NEG_INFINITY, 0.0);
    assert_eq!(lse_in(LseBase::Two, &empty), empty);
}

/// A kernel that is off by the natural bound, and then multiplies with a rounded constant and rounds, is within the bound; and the bound
/// is that much and a few roundings.
#[test]
fn the_bound_in_base_two_covers_the_conversion() {
    for n in 1..400 {
        let truth = f64::from(n) * 0.37 - 70.0;
        for natural in [0.0, 1e-6, 0.5] {
            let in_two = lse_in(LseBase::Two, &Truth { value: truth, radius: 0.0, answer: Answer::Undecided });
            let Bound::Within(bound) = in_base_two(Bound::Within(natural), &in_two) else { panic!("a bound stays one") };
            for held in [truth - natural, truth, truth + natural] {
                let rounded = f64::from(std::f32::consts::LOG2_E) * held;
                let error = (f64::from(rounded as f32) - in_two.value).abs();
                assert!(error <= bound, "{truth} held as {held}: {error} > {bound}");
            }
            let few = 3.0 * Dtype::F32.unit_roundoff() * (in_two.value.abs() + 1.0);
            assert!(bound <= natural * std::f64::consts::LOG2_E * 1.001 + few, "{truth}, {natural}: {bound}");
        }
    }
    let three = known(3.0, 0.0);
    assert_eq!(in_base_two(Bound::Unbounded, &three), Bound::Unbounded);
    assert_eq!(in_base_two(Bound::OutOfRange("why"), &three), Bound::OutOfRange("why"));
}

#[test]
fn open_elements_are_counted_and_the_first_is_named() {
    let problem = case().problem;
    let row = RowTruth { o: vec![known(1.0, 0.0), OPEN, OPEN], lse: OPEN, sums: RowSums::default() };
    let mut undecided = [Undecided::new("o"), Undecided::new("lse")];
    note_undecided(&mut undecided, &problem, 1, 1, &row);
    note_undecided(&mut undecided, &problem, 0, 0, &row);
    let findings: Vec<Finding> = undecided.into_iter().filter_map(Undecided::finish).collect();
    assert_eq!(
        findings,
        [
            Finding::Undecided { output: "o", elements: 4, index: Index(vec![("seq", 0), ("row", 1), ("head", 1), ("d", 1)]) },
            Finding::Undecided { output: "lse", elements: 2, index: Index(vec![("seq", 0), ("row", 1), ("head", 1)]) },
        ]
    );
    let mut none = [Undecided::new("o"), Undecided::new("lse")];
    let decided = RowTruth { o: vec![known(1.0, 0.0); 3], lse: known(1.0, 0.0), sums: RowSums::default() };
    note_undecided(&mut none, &problem, 0, 0, &decided);
    assert!(none.into_iter().all(|it| it.finish().is_none()));
}

/// The nearer side, by distance from the truth, where the truth is known well enough to say.
#[test]
fn differing_elements_get_their_truth() {
    let problem = case().problem;
    let (nan, heads, lanes) = (f32::NAN, 2, 3);
    for (bits, radius, nearer) in [
        ([1.0, 1.5], 0.0, Nearer::First),
        ([2.0, 1.25], 0.0, Nearer::Second),
        ([0.5, 1.5], 0.0, Nearer::Same),
        // 1.25 and 1.5 around a truth between 0.75 and 1.25.
        ([1.25, 1.5], 0.25, Nearer::Unknown),
        ([1.25, 2.0], 0.25, Nearer::First),
        ([nan, 1.5], 0.0, Nearer::Second),
        ([1.5, nan], 0.0, Nearer::First),
    ] {
        // Row 1, head 1: the last lanes of `o`, the last `lse`. Only its own elements get its truth.
        for (output, offset) in [("o", (heads + 1) * lanes + 2), ("lse", heads + 1)] {
            let mut comparison = Comparison::new(output, Dtype::F32, ["train", "infer"]);
            comparison.slices(&[7, bits[0].to_bits()], &[8, bits[1].to_bits()], offset - 1, |_| Index::default());
            let mut differences = vec![comparison.finish().expect("they differ")];
            assert!(differences[0].elements.len() == 2 && ELEMENTS_KEPT >= 2);
            let (other, own) = (known(5.0, 0.0), known(1.0, radius));
            let row = RowTruth { o: vec![other, OPEN, own], lse: own, sums: RowSums::default() };
            attach(&mut differences, &problem, 1, 1, &row, LseBase::E);
            let elements = &differences[0].elements;
            assert_eq!((elements[1].truth, elements[1].nearer), (Some(1f32.to_bits()), nearer), "{output} {bits:?}");
            // Open, or another head's.
            assert_eq!((elements[0].truth, elements[0].nearer), (None, Nearer::Unknown), "{output}");
        }
    }
}

/// An infinite truth is as far from every number as from the other infinity, and no distance from itself.
#[test]
fn beside_an_infinite_truth() {
    let problem = case().problem;
    let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
    for (bits, nearer) in [
        ([low, high], Nearer::First),
        ([high, low], Nearer::Second),
        ([0.0, low], Nearer::Second),
        ([low, f32::NAN], Nearer::First),
        ([f32::NAN, low], Nearer::Second),
        ([0.0, high], Nearer::Same),
    ] {
        let mut comparison = Comparison::new("lse", Dtype::F32, ["train", "infer"]);
        comparison.slices(&[bits[0].to_bits()], &[bits[1].to_bits()], 0, |_| Index::default());
        let mut differences = vec![comparison.finish().expect("they differ")];
        let row = RowTruth { o: vec![known(0.0, 0.0); 3], lse: known(low, 0.0), sums: RowSums::default() };
        attach(&mut differences, &problem, 0, 0, &row, LseBase::E);
        assert_eq!(differences[0].elements[0].nearer, nearer, "{bits:?}");
    }
}

/// The largest share of a bound is exact, also where it is larger than the one before by a rounding.
#[test]
fn the_worst_share_of_one_row() {
    let case = case();
    let side = nothing(&case);
    let implementation = Implementation::reference(Reference::parse("ref:aligned").expect("a kernel's name"));
    let mut judge = Judge::new(Path::Train, &implementation, &case, &side);
    let mut tally = Tally::default();
    let least = 2f64.powi(-50);
    // Shares of 1/4: each is the error over that.
    for (error, worst) in
        [(0.125, 0.5), (0.0625, 0.5), (0.125 + least, 0.5 + 4.0 * least), (0.125, 0.5 + 4.0 * least), (0.25, 1.0)]
    {
        let truth = Truth { value: 1.0 - error, radius: 0.0, answer: Answer::Undecided };
        let it = Measured { output: 0, dtype: Dtype::F32, bits: 1f32.to_bits(), truth: &truth, bound: Bound::Within(0.25) };
        judge.measure(&mut tally, it, Index::default);
        assert_eq!(tally.accuracy.worst, worst);
    }
    // A bound of zero that is met is no share at all.
    let it = Measured { output: 0, dtype: Dtype::F32, bits: 1f32.to_bits(), truth: &known(1.0, 0.0), bound: Bound::Within(0.0) };
    judge.measure(&mut tally, it, Index::default);
    assert_eq!((tally.accuracy.worst, tally.exceeded), (1.0, false));
}

/// What only the store can round is right or wrong; counts as of any other result.
#[test]
fn stored_values() {
    let case = case();
    let side = nothing(&case);
    let implementation = Implementation::reference(Reference::parse("ref:aligned").expect("a kernel's name"));
    let one = known(1.0, 0.0);
    for (value, truth, counts, error) in [
        (1.0, one, [1, 0, 0], None),
        (1.25, one, [0, 1, 0], Some(0.25)),
        (0.5, one, [0, 0, 1], Some(0.5)),
        (-0.0, known(0.0, 0.0), [1, 0, 0], None),
        (f32::NAN, one, [0, 0, 0], Some(f64::INFINITY)),
        (f32::INFINITY, one, [0, 1, 0], Some(f64::INFINITY)),
        // As far from the truth as that is known.
        (1.25, known(1.0, 0.25), [0, 0, 0], Some(0.25)),
        (0.75, known(1.0, 0.25), [0, 0, 0], Some(0.25)),
    ] {
        let mut judge = Judge::new(Path::Infer, &implementation, &case, &side);
        let mut tally = Tally::default();
        let Answer::Decided(right) = truth.answer else { panic!("decided") };
        for _ in 0..2 {
            judge.stored(&mut tally, value.to_bits(), right, &truth, || Index(vec![("n", 1)]));
        }
        judge.add(&tally);
        let mut verdict = Verdict::default();
        judge.finish(&mut verdict);
        let it = verdict.accuracy;
        assert_eq!([it.correctly_rounded, it.above, it.below], counts.map(|count| 2 * count), "{value}");
        assert_eq!((it.judged, tally.exceeded), (2, error.is_some()), "{value}");
        let found = inaccuracy(&verdict).map(|it| (it.error, it.bound, it.ulp, it.truth, it.judged, it.exceeding));
        assert_eq!(found, error.map(|error| (error, 0.0, f64::from(f32::EPSILON), Some(right), 2, 2)), "{value}");
    }
}

#[test]
fn a_bound_in_base_two_is_never_negative() {
    let bound = in_base_two(Bound::Within(0.0), &known(0.0, 0.0));
    assert_eq!(bound, Bound::Within(Dtype::F32.least_subnormal()));
}
