//! Cases that a kernel says it does not do: it must refuse them, or be right.

use crate::finding::{Finding, Path, Verdict};
use crate::subject::attention::Case;
use crate::subject::attention::check::{Pair, Scratch};
use crate::subject::attention::drive::{Poison, Stop};

/// Calls the kernels that declare the case to be outside what they do, as if they had not. A refusal is no finding; an answer is judged. The
/// verdict, and how many refused.
pub(super) fn check(pair: &Pair, case: &Case, scratch: &mut Scratch) -> (Verdict, u64) {
    let inputs = pair.inputs(case);
    let mut verdict = Verdict::default();
    let mut refused = 0;
    let scope = pair.scope();
    let mut sides = [None, None];
    for path in Path::BOTH {
        if scope.side(path).outside(case).is_none() {
            continue;
        }
        match pair.drive_anyway(path, case, &inputs, Poison::Nan) {
            Ok(produced) => sides[path as usize] = Some(produced),
            Err(Stop::Unsupported(_)) => refused += 1,
            Err(Stop::Fault(fault)) => verdict.findings.push(Finding::Fault { path, fault, relation: None }),
        }
    }
    pair.judge(case, &inputs, sides.each_ref().map(Option::as_ref), scratch, &mut verdict);
    (verdict, refused)
}
