//! Kernels that do not repeat themselves, and those that do.

use super::*;
use crate::subject::attention::capabilities::Knob;

fn turn(relations: &[SidedRelation], pair: &Pair) -> u64 {
    (0..1000).find(|&turn| pair.relations_of_turn(&case(), turn).0 == relations).expect("a turn with these relations")
}

/// Other bits in each call, in an element of `o` or, of fewer, the last.
fn unstable(at: usize) -> Scripted {
    scripted(move |_, n, outputs| {
        let last = outputs.o.bits.len() - 1;
        outputs.o.bits[at.min(last)] ^= 1 + n as u32;
    })
}

fn knob(name: &str, values: [&str; 2]) -> Knob {
    Knob { name: name.into(), values: values.map(str::to_owned).to_vec() }
}

fn with_knobs(knobs: Vec<Knob>, kernel: Scripted) -> Scripted {
    Scripted { can: Capabilities { knobs, ..Capabilities::default() }, ..kernel }
}

#[test]
fn what_changes_from_run_to_run_comes_first_and_explains_the_rest() {
    let pair = pair(right(), unstable(29), Mode::Off);
    let verdict = check(&pair, &case(), PAIR);
    assert_eq!((signatures(&verdict), verdict.set_aside), (vec!["not_invariant infer repeat o".into()], 1));
    // Repeats that explain are not counted as compared.
    assert_eq!(verdict.related, [0, 0]);
    let verdict = check(&pair, &case(), related(Path::Infer, Relation::Alone { seq: 7 }));
    assert_eq!((signatures(&verdict), verdict.set_aside), (vec!["not_invariant infer repeat o".into()], 1));
    assert_eq!(verdict.related, [12, 4]);
}

#[test]
fn other_findings_stay_behind_it() {
    // Far off in one element, on both paths; the inference side alone does not repeat itself.
    let far = |scale: u32| {
        move |_: Call<'_>, n: u64, outputs: &mut Outputs<'_>| {
            outputs.o.bits[0] = (9.0 + (n as u32 * scale) as f32).to_bits();
        }
    };
    let pair = pair(Scripted { name: "far", ..scripted(far(0)) }, scripted(far(1)), Mode::Enclosure);
    let turn = (0..100).find(|&turn| {
        pair.relations_of_turn(&case(), turn).0.iter().all(|it| it.path == Path::Infer && it.relation != Relation::Repeat)
    });
    let verdict = check(&pair, &case(), Checks::Turn(turn.expect("a turn")));
    assert_eq!(signatures(&verdict)[0], "not_invariant infer repeat o", "{verdict:?}");
    assert_eq!(signatures(&verdict)[1..], ["inaccurate train o", "inaccurate infer o"], "{verdict:?}");
    assert!(verdict.set_aside >= 1, "{verdict:?}");
}

/// The other path's relations are none of this path's business.
#[test]
fn each_path_answers_for_itself() {
    // Training's bits hang on company, and repeat.
    let company = scripted(|call, _, outputs| {
        if matches!(call, Call::Varlen(call) if call.cu_seqlens_q.len() > 2) {
            outputs.o.bits[18] ^= 1;
        }
    });
    let pair = pair(Scripted { name: "company", ..company }, unstable(29), Mode::Off);
    let verdict = check(&pair, &case(), related(Path::Train, Relation::Alone { seq: 7 }));
    assert_eq!((signatures(&verdict), verdict.set_aside), (vec!["not_invariant train company o".into()], 0));
    assert_eq!(verdict.relations, 2, "repeated once");
    let inputs = pair.inputs(&case());
    let sides = Path::BOTH.map(|path| pair.drive(path, &case(), &inputs, Poison::Nan, None).expect("runs"));
    let mut verdict = Verdict::default();
    for (path, base) in Path::BOTH.into_iter().zip(&sides) {
        pair.relate(&case(), &inputs, base, &sided(path, Relation::Alone { seq: 7 }), &mut None, &mut verdict);
    }
    assert_eq!(signatures(&verdict), ["not_invariant train company o", "not_invariant infer company o"]);
    pair.repeat_first(&case(), &inputs, sides.each_ref().map(Some), &[], &mut verdict);
    assert_eq!(signatures(&verdict), ["not_invariant infer repeat o", "not_invariant train company o"]);
    assert_eq!(verdict.set_aside, 1);
    // Both sides unstable: what each explains is counted.
    let both = super::pair(Scripted { name: "other", ..unstable(3) }, unstable(29), Mode::Off);
    let sides = Path::BOTH.map(|path| both.drive(path, &case(), &inputs, Poison::Nan, None).expect("runs"));
    let mut verdict = Verdict::default();
    for (path, base) in Path::BOTH.into_iter().zip(&sides) {
        both.relate(
            &case(),
            &inputs,
            base,
            &sided(path, Relation::Alone { seq: [3, 7][path as usize] }),
            &mut None,
            &mut verdict,
        );
    }
    both.repeat_first(&case(), &inputs, sides.each_ref().map(Some), &[], &mut verdict);
    assert_eq!(signatures(&verdict), ["not_invariant train repeat o", "not_invariant infer repeat o"]);
    assert_eq!(verdict.set_aside, 2);
}

/// A difference that repeats stays; what is not blamed on anything is not repeated, nor what was repeated already.
#[test]
fn only_what_needs_it_is_repeated() {
    let off = || scripted(|_, _, outputs| outputs.o.bits[29] ^= 1);
    let one = pair(right(), off(), Mode::Off);
    let verdict = check(&one, &case(), PAIR);
    // Both sides, since a mismatch blames both.
    assert_eq!((signatures(&verdict), verdict.set_aside, verdict.relations), (vec!["mismatch o".into()], 0, 2));
    let repeat = sided(Path::Infer, Relation::Repeat);
    let verdict = check(&one, &case(), Checks::Only { oracle: false, pair: true, relation: Some(repeat) });
    assert_eq!((signatures(&verdict), verdict.relations, verdict.related), (vec!["mismatch o".into()], 2, ELEMENTS));
    // A match, and a skip, are not.
    assert_eq!(check(&pair(right(), scripted(|_, _, _| {}), Mode::Off), &case(), PAIR).relations, 0);
    let nan = || scripted(|_, _, outputs| outputs.o.bits[29] = Dtype::F32.nan_bits());
    let verdict = check(&pair(Scripted { name: "nan", ..nan() }, nan(), Mode::Off), &case(), PAIR);
    assert_eq!((verdict.findings.len(), verdict.relations), (1, 0));
    // Reference kernels repeat themselves.
    let mut references = pair(right(), off(), Mode::Off);
    references.train = Implementation::reference(Reference::default());
    assert_eq!(check(&references, &case(), PAIR).relations, 1);
    // One of the turn's relations, drawn and run, is not run again.
    let turn = turn(&[sided(Path::Infer, Relation::Position { rotate: 1 }), sided(Path::Infer, Relation::Repeat)], &one);
    assert_eq!(check(&one, &case(), Checks::Turn(turn)).relations, 3);
}

/// Garbage in a workspace is looked for by the knob that fills it; another knob that matters is a finding of its own.
#[test]
fn a_dirty_workspace() {
    let dirty = ("workspace".to_owned(), "dirty".to_owned());
    let has = |call: Call<'_>, it: &(String, String)| match call {
        Call::Varlen(call) => call.attributes.knobs.contains(it),
        Call::Dense(call) => call.attributes.knobs.contains(it),
        Call::Paged(call) => call.attributes.knobs.contains(it),
    };
    let workspace = || knob("workspace", ["clean", "dirty"]);
    for (base_is_dirty, differs_when_dirty) in [(false, false), (true, true)] {
        let dirty = dirty.clone();
        let mut case = case();
        if base_is_dirty {
            case.infer.knobs.push(dirty.clone());
        }
        let kernel = scripted(move |call, _, outputs| {
            if has(call, &dirty) == differs_when_dirty {
                outputs.o.bits[29] ^= 1;
            }
        });
        let pair = pair(right(), with_knobs(vec![knob("splits", ["1", "2"]), workspace()], kernel), Mode::Off);
        let verdict = check(&pair, &case, PAIR);
        assert_eq!((signatures(&verdict), verdict.set_aside), (vec!["not_invariant infer knob workspace o".into()], 1));
        assert_eq!(verdict.relations, 3, "a repeat of either side, and the workspace");
        let changed = if base_is_dirty { "infer knob workspace" } else { "infer knob workspace=dirty" };
        assert!(verdict.findings[0].relation().is_some_and(|it| it.starts_with(changed)), "{verdict:?}");
    }
    // Without that knob, and that value of it, there is nothing to fill.
    for knobs in [vec![knob("workspace", ["clean", "large"]), knob("splits", ["1", "dirty"])], vec![]] {
        let kernel = with_knobs(knobs, scripted(|_, _, outputs| outputs.o.bits[29] ^= 1));
        let verdict = check(&pair(right(), kernel, Mode::Off), &case(), PAIR);
        assert_eq!((signatures(&verdict), verdict.relations), (vec!["mismatch o".into()], 2));
    }
    // Another knob that changes bits explains nothing.
    let two = ("splits".to_owned(), "2".to_owned());
    let kernel = scripted(move |call, _, outputs| outputs.o.bits[29] ^= if has(call, &two) { 1 } else { 2 });
    let pair = pair(right(), with_knobs(vec![knob("splits", ["1", "2"])], kernel), Mode::Off);
    let relation = sided(Path::Infer, Relation::Knob { name: "splits".into(), value: Some("2".into()) });
    let verdict = check(&pair, &case(), Checks::Only { oracle: false, pair: true, relation: Some(relation) });
    assert_eq!(
        (signatures(&verdict), verdict.set_aside),
        (vec!["mismatch o".into(), "not_invariant infer knob splits o".into()], 0)
    );
}
