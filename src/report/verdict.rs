//! The certificate in one word.

use super::words::{count, counted};
use crate::certify::certificate::{Certificate, ClaimResult, Status};

/// What the claims come to, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fail,
    Unverifiable,
    /// Every claim is PASS, or FAIL and accepted.
    Waived,
    Pass,
}

impl Verdict {
    pub(super) fn of(certificate: &Certificate) -> Verdict {
        let claims = &certificate.claims;
        let any = |fits: &dyn Fn(&ClaimResult) -> bool| claims.iter().any(fits);
        if any(&|it| it.status == Status::Fail && it.waived.is_none()) {
            Verdict::Fail
        } else if claims.is_empty() || any(&|it| it.status == Status::Unverifiable) {
            Verdict::Unverifiable
        } else if any(&|it| it.status == Status::Fail) {
            Verdict::Waived
        } else {
            Verdict::Pass
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Fail => "FAIL",
            Verdict::Unverifiable => "UNVERIFIABLE",
            Verdict::Waived => "FAIL, waived",
            Verdict::Pass => "PASS",
        }
    }

    /// How a page draws it: never by colour alone.
    pub(super) fn status(self) -> Status {
        match self {
            Verdict::Fail | Verdict::Waived => Status::Fail,
            Verdict::Unverifiable => Status::Unverifiable,
            Verdict::Pass => Status::Pass,
        }
    }

    /// The sentence below the word.
    pub(super) fn sentence(certificate: &Certificate) -> String {
        let claims = &certificate.claims;
        let number = |fits: &dyn Fn(&ClaimResult) -> bool| claims.iter().filter(|it| fits(it)).count() as u64;
        let failed = number(&|it| it.status == Status::Fail && it.waived.is_none());
        let waived = number(&|it| it.status == Status::Fail && it.waived.is_some());
        let open = number(&|it| it.status == Status::Unverifiable);
        let passed = number(&|it| it.status == Status::Pass);
        let all = counted(claims.len() as u64, "claim");
        if passed as usize == claims.len() {
            return format!("All {all} held wherever they were looked at, and each could have failed.");
        }
        let verb = |n: u64, one: &str, many: &str| format!("{} {}", count(n), if n == 1 { one } else { many });
        let mut parts = Vec::new();
        if failed > 0 {
            parts.push(verb(failed, "fails", "fail"));
        }
        if waived > 0 {
            parts.push(verb(waived, "fails and is waived", "fail and are waived"));
        }
        if open > 0 {
            parts.push(verb(open, "could not be verified", "could not be verified"));
        }
        parts.push(verb(passed, "holds", "hold"));
        format!("Of {all}, {}.", joined(&parts))
    }
}

/// `a, b and c`.
fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
