//! One relation: the changed run, and which rows of it are compared.

use super::*;
use crate::subject::attention::Side;
use std::sync::Mutex;

/// A kernel that spoils its last call's last elements by a relation's change: `calls` are the base run's.
fn from_call(calls: u64) -> Scripted {
    scripted(move |_, n, outputs| {
        if n >= calls {
            *outputs.o.bits.last_mut().expect("an element") ^= 1;
            *outputs.lse.bits.last_mut().expect("an element") ^= 1;
        }
    })
}

/// Rows are found by sequence, in the base case's packing.
#[test]
fn elements_are_named_in_the_base_case() {
    let alone = Relation::Alone { seq: 7 };
    let shorter = Relation::PrefixStability { seq: 7, drop: 1 };
    let neighbour = Relation::NeighbourLength { seq: 3, q: 1, kv: 2 };
    let whole = ("seq=7 row=1 head=1", [29, 9]);
    for (relation, compared, (row, [o, lse])) in [
        (Relation::Repeat, ELEMENTS, whole),
        (alone, [12, 4], whole),
        (shorter, [24, 8], ("seq=7 row=0 head=1", [23, 7])),
        // Its own rows are left out.
        (neighbour, [12, 4], whole),
        (Relation::Neighbour { q: 1, kv: 2, count: 1 }, ELEMENTS, whole),
    ] {
        for path in Path::BOTH {
            let kernel = |calls| match path {
                Path::Train => pair(from_call(calls), right(), Mode::Off),
                Path::Infer => pair(right(), from_call(calls), Mode::Off),
            };
            let verdict = check(&kernel(u64::MAX), &case(), related(path, relation.clone()));
            assert_eq!((verdict.findings, verdict.related, verdict.relations), (vec![], compared, 1), "{path} {relation:?}");
            // The difference is seen where the changed run has it. The new neighbour comes first: the last element is ours.
            let verdict = check(&kernel(1), &case(), related(path, relation.clone()));
            let axis = relation.axis();
            if axis == crate::finding::Axis::Repeat {
                // Repeated once more, and still the same kind.
                assert_eq!(verdict.set_aside, 0);
            }
            let expected = [format!("not_invariant {path} {axis} o"), format!("not_invariant {path} {axis} lse")];
            let found: Vec<&Finding> = verdict.findings.iter().filter(|it| expected.contains(&it.signature())).collect();
            if axis != crate::finding::Axis::Repeat && found.is_empty() {
                // It does not repeat itself, which explains the rest.
                assert_eq!(
                    (verdict.set_aside, signatures(&verdict)[0].as_str()),
                    (2, &*format!("not_invariant {path} repeat o"))
                );
                continue;
            }
            assert_eq!(first_element(found[0]), (format!("{row} d=2"), o), "{path} {relation:?}");
            assert_eq!(first_element(found[1]), (row.into(), lse), "{path} {relation:?}");
            assert_eq!(found[0].relation(), Some(&*sided(path, relation.clone()).to_string()));
            assert_eq!(found[0].difference().map(|it| it.names.clone()), Some(["base", "changed"].map(str::to_owned)));
        }
    }
}

/// The changed run's faults are told with the relation.
#[test]
fn a_fault_of_the_changed_run() {
    let silent = scripted(|_, n, outputs| {
        if n > 0 {
            outputs.o.bits[0] = drive::canary(Dtype::F32);
        }
    });
    let verdict = check(&pair(silent, right(), Mode::Off), &case(), related(Path::Train, Relation::Repeat));
    assert_eq!((signatures(&verdict), verdict.relations), (vec!["fault train unwritten o".into()], 0));
    assert_eq!(verdict.findings[0].relation(), Some("train repeat"));
}

/// Rows made again are compared with their first making, without another run.
#[test]
fn rows_made_again() {
    let mut again = case();
    for request in &mut again.infer.requests {
        (request.then, request.preempt) = (1, Some(2));
    }
    let infer = scripted(|call, _, outputs| {
        if let Call::Paged(call) = call
            && call.cu_seqlens_q[1] > 1
        {
            outputs.o.bits[0] ^= 1;
        }
    });
    let calls = infer.calls.clone();
    let pair = pair(right(), infer, Mode::Off);
    let inputs = pair.inputs(&again);
    let base = pair.drive(Path::Infer, &again, &inputs, Poison::Nan, None).expect("runs");
    let before = calls.load(Ordering::Relaxed);
    let mut verdict = Verdict::default();
    pair.relate(&again, &inputs, &base, &sided(Path::Infer, Relation::Recompute), &mut None, &mut verdict);
    assert_eq!(calls.load(Ordering::Relaxed), before);
    assert_eq!(signatures(&verdict), ["not_invariant infer recompute o"]);
    assert_eq!(first_element(&verdict.findings[0]), ("seq=3 row=0 head=0 d=0 again=1".into(), 0));
    assert_eq!(verdict.findings[0].difference().map(|it| it.names.clone()), Some(["first", "again"].map(str::to_owned)));
    let made_again = base.again.len() as u64;
    assert!(made_again > 0);
    assert_eq!((verdict.related, verdict.relations), ([made_again * 6, made_again * 2], 1));
    // In another run every making is compared with the same one there.
    let mut verdict = Verdict::default();
    pair.relate(&again, &inputs, &base, &sided(Path::Infer, Relation::Repeat), &mut None, &mut verdict);
    assert_eq!((verdict.findings, verdict.related), (vec![], [(5 + made_again) * 6, (5 + made_again) * 2]));
}

/// A kernel without lse has none to compare.
#[test]
fn without_lse() {
    let none = Scripted { has_lse: false, ..from_call(1) };
    let mut verdict = Verdict::default();
    let pair = pair(right(), none, Mode::Off);
    let inputs = pair.inputs(&case());
    let base = pair.drive(Path::Infer, &case(), &inputs, Poison::Nan, None).expect("runs");
    pair.relate(&case(), &inputs, &base, &sided(Path::Infer, Relation::Repeat), &mut None, &mut verdict);
    assert_eq!((signatures(&verdict), verdict.related), (vec!["not_invariant infer repeat o".into()], [30, 0]));
    // Two relations of one axis may show the same: it is one finding.
    pair.relate(&case(), &inputs, &base, &sided(Path::Infer, Relation::Repeat), &mut None, &mut verdict);
    assert_eq!((verdict.findings.len(), verdict.related, verdict.relations), (1, [60, 0], 2));
    // Another axis is another.
    pair.relate(&case(), &inputs, &base, &sided(Path::Infer, Relation::Alone { seq: 7 }), &mut None, &mut verdict);
    assert_eq!(signatures(&verdict), ["not_invariant infer repeat o", "not_invariant infer company o"]);
}

/// A relation that leaves no row was not run.
#[test]
fn nothing_to_compare() {
    let mut case = case();
    case.problem.sequences[1].q = 0;
    let Data::Literal(literal) = &mut case.data else { unreachable!("literal data") };
    literal.q.truncate(12);
    let pair = pair(right(), scripted(|_, _, _| {}), Mode::Off);
    for path in Path::BOTH {
        let verdict = check(&pair, &case, related(path, Relation::Alone { seq: 7 }));
        assert_eq!((verdict.findings, verdict.relations, verdict.related), (vec![], 0, [0, 0]), "{path}");
    }
}

/// Dead slots hold NaN, and the largest number under one relation.
#[test]
fn poison() {
    let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
    let log = seen.clone();
    let train = scripted(move |call, _, _| {
        let Call::Dense(call) = call else { panic!("padded calls") };
        log.lock().expect("one thread").push(*call.k.bits.last().expect("a slot"));
    });
    let pair = pair(train, right(), Mode::Off);
    let mut dense = case();
    dense.train.layout = TrainLayout::Dense { side: Side::Right, pad_q: 1, pad_kv: 1 };
    let (nan, huge) = (Dtype::F32.nan_bits(), Dtype::F32.max_finite_bits());
    for (relation, expected) in [(Relation::Poison, [nan, huge]), (Relation::Repeat, [nan, nan])] {
        assert_eq!(check(&pair, &dense, related(Path::Train, relation)).findings, []);
        assert_eq!(*seen.lock().expect("one thread"), expected);
        seen.lock().expect("one thread").clear();
    }
}
