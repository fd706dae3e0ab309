use super::*;
use crate::shrink::REDRAWS;
use crate::source::Stream;
use crate::subject::attention::draw::{Hints, Profile, draw};
use crate::subject::attention::relation::SidedRelation;
use crate::subject::attention::{Cache, Fp8Kv, Literal, Problem, Sequence, validate};

/// A case of these sequences (rows, keys), heads (KV heads, heads of a group) and head dims, with every knob at its default.
pub(super) fn shaped(sequences: &[(u32, u32)], heads: [u32; 2], head_dims: [u32; 2]) -> Case {
    let problem = Problem::plain(sequences, heads, head_dims, Dtype::BF16);
    Case::plain(problem, Data::Drawn { seed: 7, regime: Regime::Normal })
}

/// One row and one key.
pub(super) fn plain() -> Case {
    shaped(&[(1, 1)], [1, 1], [1, 1])
}

/// The case with literal patterns that name their places: 1, 2, 3 and so on in each tensor.
pub(super) fn counted(case: Case) -> Case {
    let problem = &case.problem;
    let count = |rows: usize, heads: usize, d: u32| (1..=(rows * heads) as u32 * d).collect();
    let literal = Literal {
        q: count(problem.total_q(), problem.q_heads(), problem.d_qk),
        k: count(problem.total_kv(), problem.kv_heads(), problem.d_qk),
        v: count(problem.total_kv(), problem.kv_heads(), problem.d_v),
    };
    Case { data: Data::Literal(literal), ..case }
}

/// The case with these literal values.
pub(super) fn with_values(case: Case, [q, k, v]: [&[f64]; 3]) -> Case {
    let bits = |values: &[f64], dtype: Dtype| values.iter().map(|&it| dtype.round_f64(it)).collect();
    let (dtype, kv) = (case.problem.dtype, case.problem.kv_dtype());
    Case { data: Data::Literal(Literal { q: bits(q, dtype), k: bits(k, kv), v: bits(v, kv) }), ..case }
}

pub(super) fn literal_of(case: &Case) -> &Literal {
    match &case.data {
        Data::Literal(literal) => literal,
        other => panic!("{other:?}"),
    }
}

pub(super) fn compared(case: Case) -> Trial {
    Trial::new(case, Checks::Only { oracle: true, pair: true, relation: None })
}

/// The case under a relation, as a case file writes it.
pub(super) fn under(case: Case, relation: &str) -> Trial {
    let relation: SidedRelation = relation.parse().expect("a relation");
    Trial::new(case, Checks::Only { oracle: false, pair: false, relation: Some(relation) })
}

/// The relation of a trial, as a case file writes it.
pub(super) fn relation_of(trial: &Trial) -> String {
    match &trial.checks {
        Checks::Only { relation: Some(sided), .. } => sided.to_string(),
        other => panic!("{other:?}"),
    }
}

/// What a pass makes of a trial, each position in turn.
fn steps(trial: &Trial, pass: Pass) -> Vec<Vec<Candidate<Trial>>> {
    let n = PASSES.iter().position(|&it| it == pass).expect("every kind of step has its pass");
    let inputs = |_: &Case| panic!("only data that becomes literal is asked for");
    (0..positions(trial, n).expect("a pass")).map(|position| smaller(trial, &inputs, n, position)).collect()
}

/// Structure is tried with other values, values are not, and nothing is offered at the minimum.
#[test]
fn passes_and_positions() {
    let least = compared(with_values(plain(), [&[0.0], &[0.0], &[0.0]]));
    for pass in 0..PASSES.len() {
        for position in 0..positions(&least, pass).expect("a pass") {
            for candidate in smaller(&least, &|_| panic!("it is literal"), pass, position) {
                let problem = &candidate.trial.case.problem;
                // Without the sequence, or without its key, there is no value to lower.
                let emptied = problem.sequences.is_empty() || problem.total_kv() == 0;
                assert!(emptied || size(&candidate.trial) >= size(&least), "pass {pass}, position {position}");
            }
        }
    }
    assert_eq!(positions(&least, PASSES.len()), None);

    let mut case = shaped(&[(2, 3), (1, 2)], [3, 2], [4, 2]);
    case.problem.fp8_kv = Some(Fp8Kv { dtype: Dtype::E4M3, k_scales: vec![2.0], v_scales: vec![1.0] });
    let trial = compared(case);
    let counts = PASSES.map(|pass| steps_at(&trial, pass));
    assert_eq!(counts, [1, 2, 10, 5, 2, 1, 3, 1, 1, 1, 10, 5, 2, 0, 0, 1]);
    let literal = compared(counted(trial.case.clone()));
    assert_eq!(steps_at(&literal, Pass::Values), VALUE_CHUNKS + 3 * 6 * 4 + 5 * 3 * 4 + 5 * 3 * 2);
    for (pass, redraw) in
        [(Pass::Storage, true), (Pass::Lengths, true), (Pass::Heads, true), (Pass::Dims, true), (Pass::Mask, true)]
    {
        let all: Vec<_> = steps(&trial, pass).into_iter().flatten().collect();
        assert!(!all.is_empty() && all.iter().all(|it| it.redraw == redraw), "{pass:?}");
    }
    for pass in [Pass::Values, Pass::Labels] {
        assert!(steps(&literal, pass).into_iter().flatten().all(|it| !it.redraw), "{pass:?}");
    }
}

fn steps_at(trial: &Trial, pass: Pass) -> usize {
    positions(trial, PASSES.iter().position(|&it| it == pass).expect("a pass")).expect("a pass")
}

/// The plainest decode is tried at the first place of a comparison of both paths alone.
#[test]
fn decoding_is_tried_where_both_paths_are_compared() {
    let mut case = shaped(&[(1, 9)], [1, 1], [1, 1]);
    case.infer.bucket = 4;
    let decodes = |trial: &Trial| -> Vec<usize> {
        let all = steps(trial, Pass::Lengths).into_iter();
        all.map(|at| at.iter().filter(|it| it.trial.case.infer.bucket == 1).count()).collect()
    };
    assert_eq!(decodes(&compared(case.clone())), [3, 0, 0, 0, 0]);
    assert_eq!(decodes(&under(case.clone(), "infer neighbour q=1 kv=0")), [0; 5]);
    assert_eq!(decodes(&Trial::new(case, Checks::Turn(0))), [0; 5]);
}

/// Of a sequence that goes: alone, as a neighbour more, and with the rotation one place less far.
#[test]
fn a_sequence_goes_in_every_way() {
    let case = shaped(&[(1, 1), (2, 2), (3, 3)], [1, 1], [1, 1]);
    let lists = |trial: &Trial| -> Vec<Vec<(Vec<u32>, String)>> {
        let ids = |case: &Case| case.problem.sequences.iter().map(|it| it.id).collect();
        let all = steps(trial, Pass::Sequences).into_iter();
        all.map(|at| at.iter().map(|it| (ids(&it.trial.case), relation_of(&it.trial))).collect()).collect()
    };
    let gone = |kept: &[u32], relation: &str| (kept.to_vec(), relation.to_owned());
    let neighbour = ["train neighbour q=2 kv=5", "train neighbour q=2 kv=5 count=2"];
    assert_eq!(
        lists(&under(case.clone(), neighbour[0])),
        [[1, 2], [0, 2], [0, 1]].map(|kept| neighbour.map(|relation| gone(&kept, relation)).to_vec())
    );
    let rotations = ["infer position rotate=2", "infer position rotate=1"];
    assert_eq!(
        lists(&under(case.clone(), rotations[0])),
        [[1, 2], [0, 2], [0, 1]].map(|kept| rotations.map(|relation| gone(&kept, relation)).to_vec())
    );
    let alone = lists(&under(case, "infer alone seq=1"));
    assert_eq!(alone[0][0], gone(&[1], "infer neighbour q=3 kv=3 count=2"));
    assert_eq!(alone.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1]);
}

/// Heads and lanes that go make neighbours and pages longer, the latter with the values that are there.
#[test]
fn what_grows_as_heads_and_lanes_go() {
    let mut case = shaped(&[(1, 1)], [2, 1], [4, 2]);
    case.infer.cache = Cache::Paged { page: 8, spare: 0, shuffle: 0, recycled: false };
    let pages = |trial: &Trial, pass: Pass| -> Vec<Vec<(u32, bool)>> {
        let page = |case: &Case| if let Cache::Paged { page, .. } = case.infer.cache { page } else { 0 };
        steps(trial, pass).into_iter().map(|at| at.iter().map(|it| (page(&it.trial.case), it.redraw)).collect()).collect()
    };
    let (kept, twice, long) = ((8, true), (16, false), (32, false));
    assert_eq!(pages(&compared(case.clone()), Pass::Dims), [vec![kept, kept, long, (11, false)], vec![kept, twice]]);
    let heads = pages(&compared(case.clone()), Pass::Heads);
    assert_eq!(heads, [vec![kept, kept, twice, twice], vec![kept, kept, twice, twice], vec![]]);
    // A neighbour is multiplied too.
    let under = under(case, "infer neighbour q=1 kv=1");
    assert_eq!(pages(&under, Pass::Heads)[0], [kept, kept, kept, kept, twice, twice]);
}

/// Every step of a case that has everything is a valid case.
#[test]
fn steps_are_valid_cases() {
    let mut steps_taken = 0;
    for index in 0..400 {
        let case = draw(&mut Stream::new(5, index), Profile::Quick, &Hints::default());
        let trials = [compared(case.clone()), under(case, "infer neighbour q=2 kv=3")];
        for trial in trials {
            for (pass, kind) in PASSES.into_iter().enumerate() {
                for position in 0..positions(&trial, pass).expect("a pass") {
                    if kind == Pass::Literal {
                        continue;
                    }
                    for candidate in smaller(&trial, &|_| panic!("not asked"), pass, position) {
                        validate(&candidate.trial.case).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
                        steps_taken += 1;
                    }
                }
            }
        }
    }
    assert!(steps_taken > 10_000, "{steps_taken}");
}

/// Tries change the data and nothing else, each to data of its own; the regimes that show order and blocks are among them, the case's own
/// too, and what the problem rules out is not.
#[test]
fn other_values_for_the_same_structure() {
    let mut case = draw(&mut Stream::new(1, 0), Profile::Quick, &Hints::default());
    case.data = Data::Drawn { seed: 7, regime: Regime::Normal };
    case.problem.sequences = vec![Sequence { id: 0, q: 1, kv: 9 }];
    let tries = |edit: &dyn Fn(&mut Problem)| -> Vec<Data> {
        let mut case = case.clone();
        edit(&mut case.problem);
        let trial = Trial::new(case, Checks::Turn(0));
        let other = |n: u32| redraw(&trial, n).expect("drawn data can be drawn again");
        let others: Vec<Trial> = (1..=REDRAWS).map(other).collect();
        for other in &others {
            assert_eq!(Trial { case: Case { data: trial.case.data.clone(), ..other.case.clone() }, ..other.clone() }, trial);
            assert_ne!(other.case.data, trial.case.data);
        }
        others.into_iter().map(|other| other.case.data).collect()
    };
    let count = |tries: &[Data], wanted: fn(&Regime) -> bool| {
        tries.iter().filter(|data| matches!(data, Data::Drawn { regime, .. } if wanted(regime))).count()
    };
    let mirror = |regime: &Regime| matches!(regime, Regime::Mirror { span, phase } if *span <= 9 && phase < span);
    let rising = |regime: &Regime| matches!(regime, Regime::Rising { .. });
    let normal = |regime: &Regime| matches!(regime, Regime::Normal);
    let kinds = |tries: &[Data]| [count(tries, mirror), count(tries, rising), count(tries, normal)];

    let wide = tries(&|problem| (problem.out_dtype, problem.alibi_slopes) = (Dtype::F32, None));
    assert_eq!(kinds(&wide), [8, 4, 4]);
    assert!((1..wide.len()).all(|n| !wide[..n].contains(&wide[n])));
    assert_eq!(kinds(&tries(&|problem| (problem.out_dtype, problem.alibi_slopes) = (Dtype::BF16, None))), [8, 0, 8]);
    // Distances set equal keys apart, and two keys are no order.
    let biased = |problem: &mut Problem| {
        (problem.out_dtype, problem.alibi_slopes) = (Dtype::BF16, Some(vec![0.5; problem.q_heads()]));
    };
    assert_eq!(kinds(&tries(&biased)), [0, 0, 16]);
    let short = |problem: &mut Problem| {
        (problem.out_dtype, problem.alibi_slopes) = (Dtype::BF16, None);
        problem.sequences[0].kv = 2;
    };
    assert_eq!(kinds(&tries(&short)), [0, 0, 16]);

    case.data = Data::Literal(Literal { q: Vec::new(), k: Vec::new(), v: Vec::new() });
    assert_eq!(redraw(&Trial::new(case, Checks::Turn(0)), 1), None);
}
