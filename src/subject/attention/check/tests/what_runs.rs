//! Which runs and comparisons a trial asks for, and what of it is counted.

use super::*;
use crate::source::{Source as _, Stream};
use crate::subject::attention::capabilities::{Form, Knob};
use crate::subject::attention::drive::canary;
use crate::subject::attention::reach::PlanFeature;
use crate::subject::attention::relation::{draw_knob, rotate};

/// A turn whose relations on [`case`] are the inference side's position and repeat.
const POSITION_AND_REPEAT: u64 = 11;

/// A pair of right kernels, and how often each was called.
fn counted(oracle: Mode) -> (Pair, [Arc<AtomicU64>; 2]) {
    let (train, infer) = (right(), scripted(|_, _, _| {}));
    let calls = [train.calls.clone(), infer.calls.clone()];
    (pair(train, infer, oracle), calls)
}

fn taken(calls: &[Arc<AtomicU64>; 2]) -> [u64; 2] {
    calls.each_ref().map(|it| it.swap(0, Ordering::Relaxed))
}

#[test]
fn one_thing_alone() {
    let (mut pair, calls) = counted(Mode::Enclosure);
    pair.witness = true;
    let [o, lse] = ELEMENTS;
    let oracle = Checks::Only { oracle: true, pair: false, relation: None };
    for (checks, compared, judged, related, runs) in [
        (PAIR, o + lse, 0, [0, 0], [1, 1]),
        (oracle, 0, 2 * (o + lse), [0, 0], [1, 1]),
        (related(Path::Train, Relation::Repeat), 0, 0, ELEMENTS, [2, 0]),
        (related(Path::Infer, Relation::Repeat), 0, 0, ELEMENTS, [0, 2]),
        (related(Path::Infer, Relation::Alone { seq: 7 }), 0, 0, [12, 4], [0, 2]),
    ] {
        let verdict = check(&pair, &case(), checks.clone());
        assert_eq!(verdict.findings, [], "{checks:?}");
        assert_eq!((verdict.compared, verdict.accuracy.judged, verdict.related), (compared, judged, related), "{checks:?}");
        assert_eq!(taken(&calls), runs, "{checks:?}");
        assert_eq!(verdict.relations, u64::from(related != [0, 0]), "{checks:?}");
        // What belongs to a campaign's case alone.
        let along: [u64; 2] = verdict.along.values().fold([0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]]);
        assert_eq!(along, [related[0] + related[1], 0], "{checks:?}");
        let (accuracy, relations, along) = (verdict.accuracy, verdict.relations, verdict.along.clone());
        let plain = Verdict { compared, accuracy, related, relations, along, ..Verdict::default() };
        assert_eq!(verdict, plain, "{checks:?}");
    }
}

#[test]
fn a_turn_is_everything() {
    let (mut pair, calls) = counted(Mode::Enclosure);
    pair.witness = true;
    let verdict = check(&pair, &case(), Checks::Turn(POSITION_AND_REPEAT));
    let [o, lse] = ELEMENTS;
    assert_eq!(verdict.findings, []);
    assert_eq!((verdict.compared, verdict.accuracy.judged), (o + lse, 2 * (o + lse)));
    assert_eq!((verdict.relations, verdict.related), (2, [2 * o, 2 * lse]));
    // Five keys, and as it happens in either order the same bits.
    assert_eq!((verdict.capable, verdict.order_sensitive), (true, Some(false)));
    assert!(PlanFeature::Company.is_in(verdict.reach) && !PlanFeature::SecondChunk.is_in(verdict.reach));
    assert_eq!(taken(&calls), [1, 3]);
    // Without an oracle nothing is judged, nor left open.
    pair.oracle = Mode::Off;
    pair.witness = false;
    let verdict = check(&pair, &case(), Checks::Turn(POSITION_AND_REPEAT));
    assert!(verdict.is_match() && verdict.accuracy.judged == 0, "{verdict:?}");
    assert_eq!((verdict.capable, verdict.order_sensitive), (false, None));
}

/// Capable is a row with three keys; sensitive one whose bits move.
#[test]
fn the_witness() {
    let (mut pair, _) = counted(Mode::Off);
    pair.witness = true;
    let of = |case: &Case| {
        let verdict = check(&pair, case, Checks::Turn(0));
        assert_eq!(pair.witnessed(case, &pair.inputs(case)), verdict.order_sensitive);
        (verdict.capable, verdict.order_sensitive)
    };
    let mut case = case();
    let keys = |case: &mut Case, q: u32, kv: u32, v: f32| {
        case.problem.sequences = vec![Sequence { id: 3, q, kv }];
        case.train.order = vec![0];
        case.infer.order = vec![0];
        case.infer.requests.truncate(1);
        let bits = |count: u32| (0..count).map(|n| (n as f32 * 0.3125 - 1.0).to_bits()).collect();
        case.data = Data::Literal(Literal {
            q: bits(q * 4),
            k: bits(kv * 2),
            v: (0..kv * 3).map(|n| (v * (n * 7 % 23) as f32).to_bits()).collect(),
        });
    };
    keys(&mut case, 1, 3, 0.0);
    assert_eq!(of(&case), (true, Some(false)));
    keys(&mut case, 3, 3, 0.0);
    assert_eq!(of(&case), (true, Some(false)));
    keys(&mut case, 1, 40, 0.3);
    assert_eq!(of(&case), (true, Some(true)));
    keys(&mut case, 2, 2, 0.0);
    assert_eq!(of(&case), (false, None));
}

#[test]
fn beyond_the_limits_of_a_case_nothing_runs() {
    let (pair, calls) = counted(Mode::Enclosure);
    let mut case = case();
    case.infer.bucket = 0;
    let mut trial = Trial::new(case, Checks::Turn(0));
    trial.left_out = vec!["a reason".into()];
    let verdict = pair.check(&trial, &mut pair.scratch());
    let [Finding::Skipped { what, reason }] = &verdict.findings[..] else { panic!("{verdict:?}") };
    assert!(*what == Skip::Case && reason.starts_with("beyond the limits of a case: "), "{reason}");
    assert_eq!((taken(&calls), verdict.compared), ([0, 0], 0));
}

fn paged_only() -> Capabilities {
    Capabilities { forms: Some(vec![Form::Paged]), ..Capabilities::default() }
}

#[test]
fn beyond_what_a_kernel_declares_it_is_not_asked() {
    let infer = Scripted { can: paged_only(), ..scripted(|_, _, _| {}) };
    let calls = infer.calls.clone();
    let pair = pair(right(), infer, Mode::Enclosure);
    let verdict = check(&pair, &case(), PAIR);
    let [Finding::Skipped { what, reason }] = &verdict.findings[..] else { panic!("{verdict:?}") };
    assert!(*what == Skip::Run(Path::Infer) && reason.starts_with("infer: contiguous calls"), "{reason}");
    assert_eq!((calls.load(Ordering::Relaxed), verdict.compared), (0, 0));
    assert!(pair.scope().outside(&case()).is_some());
    // In a turn, relations that lead there are left out, and said.
    let mut paged = case();
    paged.infer.cache = Cache::Paged { page: 2, spare: 0, shuffle: 0, recycled: false };
    let contiguous = sided(Path::Infer, Relation::Pages { page: 0, shuffle: 0 });
    let reason = pair.beyond(&paged, &contiguous).expect("beyond");
    assert!(reason.starts_with("pages: contiguous calls"), "{reason}");
    assert_eq!(pair.beyond(&paged, &sided(Path::Infer, Relation::Repeat)), None);
    assert_eq!(pair.beyond(&paged, &sided(Path::Train, Relation::Repeat)), None);
    let left_out: Vec<String> = (0..200).flat_map(|turn| pair.relations_of_turn(&paged, turn).1).collect();
    assert!(!left_out.is_empty() && left_out.iter().all(|it| *it == reason), "{left_out:?}");
    let turn = (0..200).find(|&turn| !pair.relations_of_turn(&paged, turn).1.is_empty()).expect("some");
    let mut trial = Trial::new(paged, Checks::Turn(turn));
    trial.left_out = vec!["a reason".into()];
    let verdict = pair.check(&trial, &mut pair.scratch());
    assert_eq!((verdict.left_out, verdict.relations_left_out), (vec!["a reason".into()], vec![reason]));
    assert_eq!((verdict.findings, verdict.relations), (vec![], 1));
}

/// The rotation's relations, and on half of the turns one of the kernel's knobs, from a stream of their own.
#[test]
fn the_relations_of_a_turn() {
    let knobs = vec![Knob { name: "splits".into(), values: ["1", "2", "4"].map(str::to_owned).to_vec() }];
    let infer = Scripted { can: Capabilities { knobs: knobs.clone(), ..Capabilities::default() }, ..scripted(|_, _, _| {}) };
    let pair = pair(right(), infer, Mode::Off);
    let mut with_knob = 0;
    for turn in 0..64 {
        let (drawn, left_out) = pair.relations_of_turn(&case(), turn);
        let mut expected = rotate(&case(), turn, 2, &mut Stream::new(turn, u64::MAX));
        let mut source = Stream::new(turn, u64::MAX - 1);
        if source.chance(1, 2) {
            expected.extend(draw_knob(Path::Infer, &case(), &knobs, &mut source));
            with_knob += 1;
        }
        assert_eq!((drawn, left_out), (expected, vec![]), "{turn}");
    }
    assert!((20..44).contains(&with_knob), "{with_knob}");
}

/// A kernel that differs from itself is asked to what it is not invariant: each plan feature is taken away, once.
#[test]
fn what_one_kernel_on_both_sides_differs_by() {
    // Pages change its bits.
    let kernel = || {
        scripted(|call, _, outputs| {
            if matches!(call, Call::Paged(call) if call.block_table.is_some()) {
                outputs.o.bits[0] ^= 1;
            }
        })
    };
    let mut paged = case();
    paged.infer.cache = Cache::Paged { page: 2, spare: 0, shuffle: 0, recycled: false };
    let alike = pair(kernel(), kernel(), Mode::Off);
    let unlike = pair(right(), kernel(), Mode::Off);
    let all = undo(&paged);
    // A turn whose own relations are none of those, and one with one of them.
    let both = |turn: u64| alike.relations_of_turn(&paged, turn).0;
    let among = |turn: u64| both(turn).iter().filter(|it| all.contains(it)).count();
    let none = (0..100).find(|&turn| among(turn) == 0).expect("a turn");
    let one = (0..100).find(|&turn| among(turn) == 1).expect("a turn");
    for (turn, more) in [(none, all.len()), (one, all.len() - 1)] {
        // A mismatch is repeated once on either side.
        let repeats = Path::BOTH.into_iter().filter(|&path| !both(turn).contains(&sided(path, Relation::Repeat))).count();
        let verdict = check(&alike, &paged, Checks::Turn(turn));
        assert!(signatures(&verdict).contains(&"not_invariant infer pages o".into()), "{verdict:?}");
        assert_eq!(verdict.relations, (2 + more + repeats) as u64, "{turn}");
        let verdict = check(&unlike, &paged, Checks::Turn(turn));
        assert_eq!(verdict.relations, (2 + repeats) as u64, "{turn}");
    }
    let verdict = check(&unlike, &paged, Checks::Turn(none));
    assert_eq!(signatures(&verdict)[0], "mismatch o");
    assert!(!signatures(&verdict).contains(&"not_invariant infer pages o".into()), "{verdict:?}");
    // Nothing is taken away of what agrees, nor where only the comparison was asked for.
    let verdict = check(&pair(scripted(|_, _, _| {}), scripted(|_, _, _| {}), Mode::Off), &paged, Checks::Turn(none));
    assert_eq!((signatures(&verdict), verdict.relations), (vec![], 2));
    assert_eq!(signatures(&check(&alike, &paged, PAIR)), ["mismatch o"]);
    // What is taken away must be something that the kernel can do without: no contiguous calls here.
    let narrow =
        || Scripted { can: Capabilities { forms: Some(vec![Form::Varlen, Form::Paged]), ..Default::default() }, ..kernel() };
    let verdict = check(&pair(narrow(), narrow(), Mode::Off), &paged, Checks::Turn(none));
    assert!(verdict.findings.iter().all(|it| !matches!(it, Finding::Skipped { .. })), "{verdict:?}");
}

/// Faults come first, and the other side is judged all the same.
#[test]
fn a_side_that_does_not_write() {
    let silent = scripted(|_, _, outputs| outputs.o.bits[7] = canary(Dtype::F32));
    let pair = pair(right(), silent, Mode::Enclosure);
    let verdict = check(&pair, &case(), Checks::Turn(POSITION_AND_REPEAT));
    assert_eq!(signatures(&verdict), ["fault infer unwritten o"]);
    assert_eq!((verdict.compared, verdict.accuracy.judged, verdict.relations), (0, 40, 0));
    let Finding::Fault { relation: None, fault, .. } = &verdict.findings[0] else { panic!("{verdict:?}") };
    assert_eq!(fault.to_string(), "o[seq=3 row=1 head=0 d=1] was not written");
}

/// Findings stand in the order of checks: the oracle's, the comparison's, the relations'.
#[test]
fn the_order_of_findings() {
    let wrong = scripted(|call, _, outputs| {
        let first_is_longer = matches!(call, Call::Paged(call) if call.cache_seqlens[0] == 4);
        outputs.o.bits[0] = if first_is_longer { 9f32 } else { 8f32 }.to_bits();
    });
    let verdict = check(&pair(right(), wrong, Mode::Enclosure), &case(), Checks::Turn(POSITION_AND_REPEAT));
    assert_eq!(signatures(&verdict), ["inaccurate infer o", "mismatch o", "not_invariant infer position o"]);
    assert_eq!((verdict.set_aside, verdict.accuracy.judged), (0, 80));
}
