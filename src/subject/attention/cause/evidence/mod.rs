//! Evidence from outside: calls of a kernel on data that was made to tell the causes apart. It is never asked what it is.
//!
//! In this order, and the first that decides is the cause. Dead slots: results that change with what they hold. Keys: with all scores
//! equal, then with the case's own, one-hot values show the weight of every key, constant ones the head that was read; a weight that no
//! 16-bit arithmetic explains is semantics, unless it is right wherever the running maximum stands still. Accuracy: right keys and an error
//! that a coarser arithmetic explains is precision. Boundaries: two runs that both lie within their bounds differ in precision if a sum of
//! two shows it; in order if they differ where nothing is ever rescaled (equal scores, or the largest first as well as last); and in
//! blocking if they differ only where the maximum moves, from some length on. Blocks that are summed by themselves, or visited from the
//! last, are cut otherwise *and* summed otherwise: that is called order, since only the tree of the sums tells it apart.

mod accuracy;
mod boundary;
mod claim;
mod design;
mod keys;
mod looker;

use super::{Cause, CauseKind, Evidence, Method, Unknown};
use crate::finding::{Axis, Fault, Finding};
use crate::subject::attention::check::Pair;
use crate::subject::attention::trial::Trial;
use looker::{Looker, Run};

/// A cause that was seen.
fn seen(kind: CauseKind, by: Method, what: String) -> Cause {
    Cause { kind, evidence: Evidence::Seen { by, what } }
}

/// Looks at the runs behind a finding.
///
/// # Errors
/// What was tried, where it does not decide.
pub(super) fn look(pair: &Pair, trial: &Trial, finding: &Finding) -> Result<Cause, Unknown> {
    match finding {
        Finding::Fault { fault: Fault::Unwritten { output, index }, .. } => {
            let what = format!("{output}[{index}] belongs to a row of the call and is not written");
            return Ok(seen(CauseKind::Semantics, Method::Written, what));
        }
        // A kernel that does not repeat itself gives no evidence, and one that breaks none but that.
        Finding::Fault { .. }
        | Finding::Undecided { .. }
        | Finding::Skipped { .. }
        | Finding::NotInvariant { axis: Axis::Repeat, .. } => return Err(Unknown::default()),
        Finding::Inaccurate(_) | Finding::Mismatch(_) | Finding::NotInvariant { .. } => {}
    }
    let runs = Run::behind(finding);
    let mut looker = Looker::new(pair, &trial.case);
    let mut tried = vec![Method::DeadSlots, Method::Keys, Method::Accuracy];
    if let Some(cause) = runs.iter().find_map(|run| looker.dead_slots(run)) {
        return Ok(cause);
    }
    if let Some(cause) = runs.iter().find_map(|run| keys::keys(&mut looker, run)) {
        return Ok(cause);
    }
    if let Some(cause) = runs.iter().find_map(|run| accuracy::accuracy(&mut looker, run)) {
        return Ok(cause);
    }
    if finding.difference().is_some() {
        tried.push(Method::Boundaries);
        if let Some(cause) = boundary::boundary(pair, trial, finding) {
            return Ok(cause);
        }
    }
    Err(Unknown { tried })
}
