use super::*;
use crate::shrink::REDRAWS;
use crate::source::Stream;
use crate::subject::attention::draw::{Hints, Profile, draw};
use crate::subject::attention::{Literal, Sequence};

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
