use super::*;
use crate::number::{Class, Dtype, Ulps};

fn compare(dtype: Dtype, a: &[u32], b: &[u32]) -> Option<Difference> {
    let mut comparison = Comparison::new("o", dtype, ["train", "infer"]);
    comparison.slices(a, b, 0, |n| Index(vec![("n", n as u64)]));
    comparison.finish()
}

/// Every pair of classes: only equal bits and NaN against NaN agree.
#[test]
fn class_pairs() {
    for dtype in Dtype::ALL {
        let mut samples = vec![0, dtype.sign_mask(), 1, dtype.sign_mask() | 1, dtype.max_finite_bits(), dtype.nan_bits()];
        samples.extend(dtype.infinity_bits().into_iter().flat_map(|bits| [bits, bits | dtype.sign_mask()]));
        samples.push(dtype.nan_bits() | dtype.sign_mask());
        for &a in &samples {
            for &b in &samples {
                let both_nan = dtype.class(a) == Class::Nan && dtype.class(b) == Class::Nan;
                assert_eq!(compare(dtype, &[a], &[b]).is_none(), a == b || both_nan, "{dtype} {a:x} {b:x}");
            }
        }
    }
}

#[test]
fn all_nan_against_numbers_differs_everywhere() {
    let found = compare(Dtype::F32, &[0x7fc0_0000; 20], &[0; 20]).unwrap();
    assert_eq!((found.differing, found.compared, found.elements.len()), (20, 20, ELEMENTS_KEPT));
    assert_eq!(found.elements[0].ulps, Ulps::Incomparable);
}

#[test]
fn distances_and_errors_are_counted_by_powers_of_two() {
    let one = 1.0f32.to_bits();
    let other = [one + 1, one + 2, one + 3, one + 4, one + 5, one | 1 << 31, Dtype::F32.nan_bits()];
    let found = compare(Dtype::F32, &[one; 7], &other).unwrap();
    assert_eq!((found.distances[..4].to_vec(), found.distances[31]), (vec![1, 1, 2, 1], 1));
    assert_eq!((found.distances[DISTANCE_BINS - 1], found.distances.iter().sum::<u64>()), (1, found.differing));
    let zeros = compare(Dtype::F16, &[0], &[Dtype::F16.sign_mask()]).unwrap();
    assert_eq!(zeros.distances[DISTANCE_BINS - 1], 1);
    let bins = [0.0, 0.25, 0.26, 0.5, 0.51, 1.0, 1.5, 2.0, 2.1, 1e9, f64::INFINITY, f64::NAN].map(error_bin);
    assert_eq!(bins, [0, 0, 1, 1, 2, 2, 3, 3, 4, 13, 13, 13]);
}

#[test]
fn nothing_compared_is_no_match() {
    assert!(!Verdict::default().is_match());
}

fn one_lane(output: &'static str) -> Difference {
    let mut comparison = Comparison::new(output, Dtype::F16, ["train", "infer"]);
    comparison.slices(&[1, 2], &[1, 3], 6, |n| Index(vec![("n", n as u64)]));
    comparison.slices(&[4, 5, 6], &[4, 5, 7], 8, |n| Index(vec![("n", n as u64)]));
    assert_eq!(comparison.compared(), 5);
    comparison.finish().expect("two elements differ")
}

/// Offsets are those of the whole output, however many slices it was compared in.
#[test]
fn differing_elements_say_where_they_lie() {
    let found = one_lane("o");
    let places: Vec<_> = found.elements.iter().map(|it| (it.offset, it.index.to_string(), it.bits)).collect();
    assert_eq!(places, [(7, "n=1".to_owned(), [2, 3]), (10, "n=2".to_owned(), [6, 7])]);
    assert_eq!((found.differing, found.compared), (2, 5));
}

fn fault(fault: Fault, relation: Option<&str>) -> Finding {
    Finding::Fault { path: Path::Infer, fault, relation: relation.map(str::to_owned) }
}

fn changed(axis: Axis, relation: &str, output: &'static str) -> Finding {
    Finding::NotInvariant { axis, path: Path::Infer, relation: relation.into(), difference: one_lane(output) }
}

fn inaccurate() -> Finding {
    Finding::Inaccurate(Inaccuracy {
        path: Path::Train,
        output: "lse",
        dtype: Dtype::F32,
        index: Index::default(),
        bits: 0,
        truth: None,
        error: 1.0,
        bound: 0.5,
        ulp: 0.25,
        exceeding: 1,
        judged: 2,
    })
}

/// Signatures stand in case files, and are what shrinking keeps: every kind has its own, and only `o` and `lse` of one defect,
/// or the words of one fault, share a family.
#[test]
fn signatures_and_families() {
    let unwritten = Fault::Unwritten { output: "o", index: Index::default() };
    let crashed = Fault::Broken { breakage: Breakage::Crashed, detail: "signal 11".into() };
    let findings = [
        (fault(unwritten, None), "fault infer unwritten o", "fault infer"),
        (fault(Fault::Failed("no".into()), None), "fault infer failed", "fault infer"),
        (fault(crashed, Some("infer poison nan")), "fault infer crashed", "fault infer"),
        (inaccurate(), "inaccurate train lse", "inaccurate train"),
        (Finding::Mismatch(one_lane("o")), "mismatch o", "mismatch"),
        (Finding::Mismatch(one_lane("lse")), "mismatch lse", "mismatch"),
        (changed(Axis::Pages, "infer pages 16", "o"), "not_invariant infer pages o", "not_invariant infer pages"),
        (
            changed(Axis::Knob, "infer knob num_splits=2", "lse"),
            "not_invariant infer knob num_splits lse",
            "not_invariant infer knob num_splits",
        ),
        (Finding::Undecided { output: "o", elements: 1, index: Index::default() }, "undecided o", "undecided"),
        (Finding::Skipped { what: Skip::Case, reason: "softcap".into() }, "skipped softcap", "skipped"),
    ];
    for (finding, signature, family) in &findings {
        assert_eq!((finding.signature().as_str(), finding.family().as_str()), (*signature, *family));
        // A campaign counts by kind, and a reader looks the kind up in the signature.
        assert_eq!(finding.signature().split(' ').next(), Some(finding.kind().name()));
    }
}

#[test]
fn a_finding_under_a_relation_names_it() {
    let knob = changed(Axis::Knob, "infer knob num_splits=2", "o");
    assert_eq!((knob.relation(), knob.changed().as_deref()), (Some("infer knob num_splits=2"), Some("knob num_splits")));
    let failed = fault(Fault::Failed("no".into()), Some("train poison nan"));
    assert_eq!((failed.relation(), failed.changed(), failed.difference()), (Some("train poison nan"), None, None));
    assert_eq!(fault(Fault::Failed("no".into()), None).relation(), None);
    let mismatch = Finding::Mismatch(one_lane("o"));
    assert_eq!((mismatch.relation(), mismatch.changed()), (None, None));
    assert_eq!((mismatch.difference(), knob.difference()), (Some(&one_lane("o")), Some(&one_lane("o"))));
}

/// What was not decided, or not run, neither fails a run nor hides what does; and it is no match.
#[test]
fn the_headline_is_the_first_failure() {
    let undecided = || Finding::Undecided { output: "o", elements: 1, index: Index::default() };
    let skipped = || Finding::Skipped { what: Skip::Case, reason: "softcap".into() };
    let of = |findings: Vec<Finding>| Verdict { findings, compared: 9, ..Verdict::default() };
    let open = of(vec![undecided(), skipped()]);
    assert_eq!((open.failure(), open.headline(), open.is_match()), (None, Some(&undecided()), false));
    let failing = of(vec![undecided(), inaccurate(), Finding::Mismatch(one_lane("o"))]);
    assert_eq!((failing.failure(), failing.headline()), (Some(&inaccurate()), Some(&inaccurate())));
    for finding in [fault(Fault::Failed("no".into()), None), changed(Axis::Pages, "infer pages 16", "o")] {
        assert!(of(vec![finding]).failure().is_some());
    }
    assert!(of(Vec::new()).is_match());
    assert_eq!(of(Vec::new()).headline(), None);
}

#[test]
fn accuracies_add_up_and_keep_the_worst() {
    let (low, high) = (
        Accuracy {
            judged: 1,
            correctly_rounded: 2,
            above: 3,
            below: 4,
            unbounded: 5,
            out_of_range: 6,
            worst: 0.25,
            errors: [1; ERROR_BINS],
        },
        Accuracy {
            judged: 10,
            correctly_rounded: 20,
            above: 30,
            below: 40,
            unbounded: 50,
            out_of_range: 60,
            worst: 0.5,
            errors: [2; ERROR_BINS],
        },
    );
    let both = Accuracy {
        judged: 11,
        correctly_rounded: 22,
        above: 33,
        below: 44,
        unbounded: 55,
        out_of_range: 66,
        worst: 0.5,
        errors: [3; ERROR_BINS],
    };
    for (mut sum, other) in [(low, high), (high, low)] {
        sum.add(&other);
        assert_eq!(sum, both);
    }
}

/// A word that two ways to break shared could not be told apart in a case file, nor by a reader.
#[test]
fn words_are_distinct() {
    use Breakage::*;
    let ways = [Crashed, TimedOut, Garbled, Misshapen, OutOfMemory, WroteOutside, DeviceError, NotStarted];
    let distinct = |words: Vec<String>| {
        let count = words.len();
        assert_eq!(words.into_iter().collect::<std::collections::BTreeSet<_>>().len(), count);
    };
    distinct(ways.iter().map(|way| way.name().to_owned()).collect());
    distinct(ways.iter().map(Breakage::to_string).collect());
    distinct(Kind::ALL.iter().map(|kind| kind.name().to_owned()).collect());
    distinct(Path::BOTH.iter().map(Path::to_string).collect());
    let (unwritten, crashed) = (
        Fault::Unwritten { output: "lse", index: Index(vec![("row", 3)]) },
        Fault::Broken { breakage: Crashed, detail: "signal 11".into() },
    );
    assert_eq!(unwritten.to_string(), "lse[row=3] was not written");
    assert_eq!(Fault::Failed("no".into()).to_string(), "the call failed: no");
    assert_eq!(crashed.to_string(), "the process ended: signal 11");
}
