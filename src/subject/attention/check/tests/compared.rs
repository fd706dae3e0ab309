//! Training against inference, bit by bit.

use super::*;
use crate::subject::attention::conventions::{EmptyRow, LseBase};

#[test]
fn the_last_element_of_either_output() {
    for (output, offset, index) in [(0, 29, "seq=7 row=1 head=1 d=2"), (1, 9, "seq=7 row=1 head=1")] {
        let infer = scripted(move |_, _, outputs| {
            let bits = if output == 0 { &mut outputs.o.bits } else { &mut outputs.lse.bits };
            *bits.last_mut().expect("an element") ^= 1;
        });
        let verdict = check(&pair(right(), infer, Mode::Off), &case(), PAIR);
        let [Finding::Mismatch(it)] = &verdict.findings[..] else { panic!("{verdict:?}") };
        assert_eq!((it.output, it.differing, it.compared), (["o", "lse"][output], 1, ELEMENTS[output]));
        assert_eq!(first_element(&verdict.findings[0]), (index.into(), offset));
        assert_eq!(it.names, ["train", "infer"]);
        assert_eq!(verdict.compared, ELEMENTS.iter().sum::<u64>());
    }
}

/// A row that inference makes twice is compared twice, and the second making has a name.
#[test]
fn every_production() {
    let mut again = case();
    for request in &mut again.infer.requests {
        (request.then, request.preempt) = (1, Some(2));
    }
    // Several rows of sequence 3 in one call: its request lost its pages, and they are made again.
    let infer = scripted(|call, _, outputs| {
        if let Call::Paged(call) = call
            && call.cu_seqlens_q[1] > 1
        {
            outputs.o.bits[0] ^= 1;
        }
    });
    let pair = pair(right(), infer, Mode::Off);
    let verdict = check(&pair, &again, PAIR);
    let productions =
        u64::try_from(pair.drive(Path::Infer, &again, &pair.inputs(&again), Poison::Nan, None).expect("runs").again.len());
    assert_eq!(verdict.compared, (5 + productions.expect("few")) * 8);
    assert_eq!(signatures(&verdict), ["mismatch o"]);
    assert_eq!(first_element(&verdict.findings[0]), ("seq=3 row=0 head=0 d=0 again=1".into(), 0));
    // Rows of a prefix hit are not made at all.
    let mut hit = case();
    hit.infer.requests[1].hit = 1;
    let verdict = check(&super::pair(right(), scripted(|_, _, _| {}), Mode::Off), &hit, PAIR);
    assert_eq!((verdict.findings, verdict.compared), (vec![], 32));
}

#[test]
fn without_lse() {
    let base_two = Conventions { lse_base: LseBase::Two, ..Conventions::default() };
    let spoiled = || scripted(|_, _, outputs| outputs.lse.bits[0] ^= 1);
    let none = Scripted { has_lse: false, means: base_two, ..spoiled() };
    let verdict = check(&pair(right(), none, Mode::Off), &case(), PAIR);
    assert_eq!((verdict.findings, verdict.compared), (vec![], ELEMENTS[0]));
    assert_eq!(verdict.left_out, ["lse (infer has none)"]);
    let none = Scripted { has_lse: false, ..spoiled() };
    assert_eq!(check(&pair(none, right(), Mode::Off), &case(), PAIR).left_out, ["lse (train has none)"]);
    // Another base cannot be compared, which is said.
    let two = Scripted { means: base_two, ..spoiled() };
    let verdict = check(&pair(right(), two, Mode::Off), &case(), PAIR);
    assert_eq!(verdict.findings, [Finding::Skipped { what: Skip::Pair, reason: "lse in base e against base 2".into() }]);
    assert_eq!((verdict.compared, verdict.left_out), (ELEMENTS[0], vec![]));
}

/// Rows without keys are compared where both sides declare the same of them.
#[test]
fn empty_rows() {
    let infinite = Conventions { empty_row: EmptyRow::ZeroPosInf, ..Conventions::default() };
    let other = || Scripted { means: infinite, ..scripted(|_, _, _| {}) };
    let all: u64 = ELEMENTS.iter().sum();
    let skip = Finding::Skipped { what: Skip::Pair, reason: "empty rows declared zero_neg_inf against zero_pos_inf".into() };
    let mut with_sinks = with_an_empty_row();
    with_sinks.problem.sinks = Some(vec![0.5, -1.0]);
    for (case, infer, findings, compared) in [
        (with_an_empty_row(), right(), vec![], all),
        (with_an_empty_row(), other(), vec![skip], all - 8),
        // A sink makes a row of no keys one with a value.
        (with_sinks, other(), vec![], all),
        (case(), other(), vec![], all),
    ] {
        let verdict = check(&pair(right(), infer, Mode::Off), &case, PAIR);
        assert_eq!((verdict.findings, verdict.compared), (findings, compared));
    }
}

/// Equal NaNs are equal; only an oracle can say that they are wrong.
#[test]
fn results_that_are_not_finite() {
    let broken = |at: usize| move || scripted(move |_, _, outputs| outputs.o.bits[at] = Dtype::F32.nan_bits());
    let run = |kernel: &dyn Fn() -> Scripted, oracle, case: &Case| {
        let checks = Checks::Only { oracle: oracle != Mode::Off, pair: true, relation: None };
        check(&pair(kernel(), kernel(), oracle), case, checks)
    };
    let skip = Finding::Skipped { what: Skip::Pair, reason: "results that are not finite, and no oracle to judge them".into() };
    assert_eq!(run(&broken(29), Mode::Off, &case()).findings, [skip]);
    assert_eq!(signatures(&run(&broken(29), Mode::Enclosure, &case())), ["inaccurate train o", "inaccurate infer o"]);
    assert_eq!(run(&right, Mode::Off, &case()).findings, []);
    // What an empty row holds is a matter of conventions.
    assert_eq!(run(&broken(0), Mode::Off, &with_an_empty_row()).findings, []);
    assert_eq!(run(&broken(6), Mode::Off, &with_an_empty_row()).findings.len(), 1);
}
