//! Cases as a proptest strategy: a failing property shrinks to the smallest case that fails it.

use lastbit::subject::attention::draw::Profile;
use lastbit::subject::attention::strategy::cases;
use lastbit::subject::attention::{Case, Data, validate};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

fn runner() -> TestRunner {
    let config = Config { cases: 2000, failure_persistence: None, max_shrink_iters: 100_000, ..Config::default() };
    TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(Default::default()))
}

fn smallest(profile: Profile, fails: impl Fn(&Case) -> bool) -> Case {
    let result = runner().run(&cases(profile), |case| {
        validate(&case).map_err(|error| TestCaseError::fail(format!("an invalid case: {error}")))?;
        if fails(&case) { Err(TestCaseError::fail("planted")) } else { Ok(()) }
    });
    match result {
        Err(TestError::Fail(reason, case)) if reason.message() == "planted" => case,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_long_sequence() {
    let case = smallest(Profile::Mixed, |case| case.problem.sequences.iter().any(|it| it.kv > 40));
    let lengths: Vec<_> = case.problem.sequences.iter().map(|it| (it.q, it.kv)).collect();
    // A sequence keeps one row: without rows nothing is computed.
    assert_eq!(lengths, [(1, 41)]);
    let problem = &case.problem;
    assert_eq!((problem.q_heads(), problem.d_qk, problem.d_v, problem.softmax_scale), (1, 1, 1, 1.0));
    let Data::Literal(literal) = &case.data else { panic!("{:?}", case.data) };
    assert!(literal.k.iter().chain(&literal.v).all(|&bits| bits == 0), "values that do not matter are 0");
}

#[test]
fn two_things_at_once() {
    let fails = |case: &Case| {
        let problem = &case.problem;
        problem.q_heads() >= 2 && problem.sequences.len() >= 2 && problem.total_q() >= 5 && case.infer.bucket > 1
    };
    let case = smallest(Profile::Quick, fails);
    let problem = &case.problem;
    // Two query heads of one KV head, or one each of two: no step leads from one to the other.
    assert_eq!((problem.q_heads(), problem.total_q()), (2, 5));
    assert_eq!((problem.sequences.len(), problem.total_kv(), case.infer.bucket), (2, 0, 2));
}

#[test]
fn a_property_that_holds() {
    let mut runner = runner();
    runner.run(&cases(Profile::Quick), |case| validate(&case).map_err(|error| TestCaseError::fail(error.to_string()))).unwrap();
}

/// The protocol of a value tree: every simplification is smaller or ends, and a passed one is taken back.
#[test]
fn the_tree_keeps_the_failing_case() {
    let mut runner = runner();
    for _ in 0..30 {
        let mut tree = cases(Profile::Quick).new_tree(&mut runner).unwrap();
        let first = tree.current();
        // Nothing smaller fails: the tree must come back to where it was.
        let mut more = tree.simplify();
        let mut steps = 0;
        while more {
            assert!(tree.current() != first);
            more = tree.complicate();
            steps += 1;
            assert!(steps < 100_000);
        }
        assert_eq!(tree.current(), first);
        assert!(!tree.simplify());
    }
}
