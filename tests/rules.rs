//! Rules of published kernels, found by campaigns and shrunk to the sizes at which their tables change; pins.

mod harness;

use harness::{Found, first, named, pair, references, shrunk};
use lastbit::finding::{Axis, Finding};
use lastbit::shrink::Shrunk;
use lastbit::source::{Choices, Stream};
use lastbit::subject::Subject;
use lastbit::subject::attention::draw::{Hints, Profile, draw};
use lastbit::subject::attention::explain::explain;
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::pin::Pins;
use lastbit::subject::attention::relation::{Relation, SidedRelation};
use lastbit::subject::attention::trial::{Checks, Trial};
use lastbit::subject::attention::{Anchor, Attention, Data, Regime, file, validate};

fn small(attention: &Attention, trial: &Trial, finding: &Finding) -> Shrunk<Trial> {
    shrunk(attention, &Found { index: 0, trial: trial.clone(), finding: finding.clone() })
}

fn lengths(trial: &Trial) -> Vec<(u32, u32)> {
    trial.case.problem.sequences.iter().map(|it| (it.q, it.kv)).collect()
}

/// One decoded row of so many keys, on so many query heads of one KV head, against neighbours.
fn beside(kv: u32, group: u32, relation: &str) -> Trial {
    let mut case = draw(&mut Choices::replay(vec![]), Profile::Quick, &Hints::default());
    (case.problem.sequences[0].q, case.problem.sequences[0].kv) = (1, kv);
    case.problem.group_ids = (0..group).collect();
    case.problem.mask.causal = Some(Anchor::BottomRight);
    case.data = Data::Drawn { seed: 1, regime: Regime::Mirror { span: 3, phase: kv % 3 } };
    validate(&case).expect("a valid case");
    let relation = Some(relation.parse::<SidedRelation>().expect("a relation"));
    Trial::new(case, Checks::Only { oracle: false, pair: false, relation })
}

/// The trial with the first values that show its finding.
fn shown(attention: &Attention, trial: Trial) -> (Trial, Finding) {
    let mut scratch = attention.scratch();
    (0..200)
        .find_map(|n| {
            let trial = if n == 0 { trial.clone() } else { attention.redraw(&trial, n)? };
            let finding = attention.check(&trial, &mut scratch).findings.into_iter().next()?;
            Some((trial, finding))
        })
        .expect("values that show it")
}

fn neighbour(trial: &Trial) -> Relation {
    match &trial.checks {
        Checks::Only { relation: Some(sided), .. } => sided.relation.clone(),
        _ => panic!("no relation: {trial:?}"),
    }
}

#[test]
fn the_tile_of_decode_is_found_at_129_keys() {
    let attention = references("ref:fa3", "ref:fa3", Mode::Off);
    let found = first(&attention, 300, |_, it| matches!(it, Finding::Mismatch(_))).expect("within 300 cases");
    let small = small(&attention, &found.trial, &found.finding);
    assert_eq!(lengths(&small.trial), [(2, 129)]);
    let whole = file::replayed(&attention.pair, &small.trial, &small.finding);
    let text = explain(&attention.pair, &whole, "small.case", Some(&small.finding.signature())).text;
    let line = "blocks: 128 in training (batch 1, 2 rows at most, 129 keys), 192 in inference (batch 1, 1 row at most, 129 keys)";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("cause: blocking: blocks: "), "{text}");
}

#[test]
fn at_a_pinned_head_dim_it_is_the_other_tile() {
    let pins: Pins = "d_qk=128,d_v=2,causal=bottom_right".parse().expect("pins");
    let attention = Attention { pins, ..references("ref:fa3", "ref:fa3", Mode::Off) };
    let found = first(&attention, 300, |_, it| matches!(it, Finding::Mismatch(_))).expect("within 300 cases");
    let small = small(&attention, &found.trial, &found.finding);
    assert_eq!(lengths(&small.trial), [(2, 129)]);
    assert!(pins.hold(&small.trial.case.problem));
}

#[test]
fn eight_bit_tiles_differ_at_97_keys() {
    let attention = references("ref:fa3-fp8kv", "ref:fa3-fp8kv", Mode::Off);
    let company = |it: &Finding| matches!(it, Finding::NotInvariant { axis: Axis::Company, .. });
    let mut trial = beside(97, 1, "infer neighbour q=65 kv=0");
    (trial.case.problem.d_qk, trial.case.problem.d_v) = (97, 1);
    let (trial, finding) = shown(&attention, trial);
    assert!(company(&finding), "{finding:?}");
    let mut shorter = trial;
    shorter.case.problem.sequences[0].kv = 96;
    let mut scratch = attention.scratch();
    for n in 1..50 {
        let trial = attention.redraw(&shorter, n).expect("drawn data");
        assert!(attention.check(&trial, &mut scratch).findings.is_empty());
    }
}

#[test]
fn one_warp_group_ends_at_65_rows_of_one_head() {
    let attention = references("ref:fa3-one-wg", "ref:fa3-one-wg", Mode::Off);
    // Eight heads share a tile: nine rows are already too many, and must not be where shrinking ends.
    let (trial, finding) = shown(&attention, beside(140, 8, "infer neighbour q=9 kv=3"));
    let small = small(&attention, &trial, &finding);
    assert_eq!(lengths(&small.trial), [(1, 129)]);
    assert_eq!(small.trial.case.problem.q_heads(), 1);
    assert_eq!(neighbour(&small.trial), Relation::Neighbour { q: 65, kv: 0, count: 1 });
}

#[test]
fn a_neighbour_in_the_case_becomes_one_of_the_relation() {
    let attention = references("ref:fa3-one-wg", "ref:fa3-one-wg", Mode::Off);
    let mut trial = beside(140, 1, "infer alone seq=0");
    let case = &mut trial.case;
    case.problem.sequences.push(lastbit::subject::attention::Sequence { id: 1, q: 80, kv: 80 });
    case.infer.requests.push(case.infer.requests[0].clone());
    case.infer.requests[1].then = 80;
    (case.train.order, case.infer.order) = (vec![0, 1], vec![0, 1]);
    validate(case).expect("a valid case");
    let (trial, finding) = shown(&attention, trial);
    let small = small(&attention, &trial, &finding);
    assert_eq!(lengths(&small.trial), [(1, 129)]);
    assert_eq!(neighbour(&small.trial), Relation::Neighbour { q: 65, kv: 0, count: 1 });
}

#[test]
fn the_batch_at_which_splits_change_is_named() {
    let attention = references("ref:flash-decoding", "ref:flash-decoding", Mode::Off);
    let mut trial = beside(600, 1, "infer neighbour q=1 kv=2 count=3");
    // Eight KV heads: four entries are as much work as 32 of one head.
    trial.case.problem.kv_head_ids = (0..8).collect();
    let (trial, finding) = shown(&attention, trial);
    let small = small(&attention, &trial, &finding);
    assert_eq!(lengths(&small.trial), [(1, 513)]);
    assert_eq!(small.trial.case.problem.q_heads(), 1);
    assert_eq!(neighbour(&small.trial), Relation::Neighbour { q: 1, kv: 0, count: 26 });
    let whole = file::replayed(&attention.pair, &small.trial, &small.finding);
    let text = explain(&attention.pair, &whole, "small.case", Some(&small.finding.signature())).text;
    assert!(text.contains("splits: 5 at batch 26, 4 at batch 27, on 132 SMs"), "{text}");
    assert!(text.contains("cause: order: splits: "), "{text}");
}

#[test]
fn deterministic_splits_show_beyond_their_size_and_only_there() {
    let long = |infer: &str| Attention { profile: Profile::Long, ..pair(named("ref:aligned"), named(infer), Mode::Off) };
    let attention = long("ref:fixed-split-2048");
    let found = first(&attention, 200, |_, it| matches!(it, Finding::Mismatch(_))).expect("within 200 long cases");
    let longest = |trial: &Trial| trial.case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0);
    assert!(longest(&found.trial) > 2048);
    let itself =
        Attention { pair: references("ref:fixed-split-2048", "ref:fixed-split-2048", Mode::Off).pair, ..attention.clone() };
    // Ranks cut where their chunks end, not where splits do.
    let one_rank = |trial: &Trial, it: &Finding| {
        let plans = trial.case.train.context.is_none() && trial.case.infer.context.is_none();
        plans && !matches!(it, Finding::NotInvariant { axis: Axis::Ranks, .. })
    };
    assert!(first(&itself, 60, |trial, it| one_rank(trial, it) && it.kind().is_failure()).is_none());
}

#[test]
fn pins_hold_in_every_drawn_case() {
    for list in ["d=128", "d_qk=192,d_v=128,heads=8/2", "heads=12/3,dtype=bf16,causal=none", "causal=top_left,dtype=f16"] {
        let pins: Pins = list.parse().expect("pins");
        let hints = Hints { pins, ..Hints::default() };
        let mut longest = 0;
        for index in 0..300 {
            let case = draw(&mut Stream::new(3, index), Profile::Mixed, &hints);
            validate(&case).expect("a valid case");
            assert!(pins.hold(&case.problem), "{list}: {case:?}");
            longest = longest.max(case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0));
        }
        assert!(longest > 200, "{list}: {longest}");
    }
}

#[test]
fn shrinking_never_leaves_a_pin() {
    let pins: Pins = "d_qk=8,d_v=4,heads=4/2,dtype=bf16,causal=bottom_right".parse().expect("pins");
    let attention = Attention { pins, ..references("ref:aligned", "ref:aligned,softmax.block=16", Mode::Off) };
    let found = first(&attention, 300, |_, it| matches!(it, Finding::Mismatch(_))).expect("within 300 cases");
    let small = small(&attention, &found.trial, &found.finding);
    assert!(pins.hold(&small.trial.case.problem), "{:?}", small.trial.case.problem);
}
