//! A short case file must not ask for much memory or time.

use arbitrary::{Arbitrary, Unstructured};
use lastbit::subject::attention::validate::validate;
use lastbit::subject::attention::{Anchor, Cache, Case};

/// The simplest case, with as many heads and lanes as are allowed.
fn wide() -> Case {
    let mut case = Case::arbitrary(&mut Unstructured::new(&[])).expect("the simplest case");
    case.problem.kv_head_ids = (0..256).collect();
    case.problem.mask.causal = Some(Anchor::BottomRight);
    (case.problem.d_qk, case.problem.d_v) = (512, 512);
    assert_eq!(validate(&case), Ok(()));
    case
}

fn refused(case: &Case, field: &str, reason: &str) {
    let error = validate(case).expect_err(reason);
    assert_eq!(error.field, field);
    assert!(error.reason.contains(reason), "{error:?}");
}

/// The page that stays dead is part of the pool, also when no page is needed and none is spare.
#[test]
fn the_dead_page_counts() {
    let mut case = wide();
    case.problem.sequences[0].kv = 0;
    case.infer.cache = Cache::Paged { page: 65_536, spare: 0, shuffle: 0, recycled: false };
    refused(&case, "infer.page", "page pool");
}

/// Rows computed again are kept until they are compared, also where there is nothing to multiply.
#[test]
fn results_of_all_steps_count() {
    let mut case = wide();
    (case.problem.d_qk, case.problem.d_v) = (1, 1);
    case.problem.kv_head_ids = vec![0];
    (case.problem.sequences[0].q, case.problem.sequences[0].kv) = (65_536, 0);
    assert_eq!(validate(&case), Ok(()));
    (case.infer.requests[0].then, case.infer.requests[0].reject) = (65_536, 65_535);
    refused(&case, "infer.requests", "results of all steps");
}
