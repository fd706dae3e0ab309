//! What became of a mutant, in words.

use crate::subject::attention::power::{Hunt, Planted, Small};

/// One line for whoever watches.
pub(super) fn ended(it: &Planted) -> String {
    match &it.both.kill {
        Some(kill) => format!("{}: killed by {} at case {} in {:.2} s", it.mutant, kill.check, kill.case, it.both.seconds),
        None => format!("{}: survived {} cases, {:.1} s", it.mutant, it.both.cases, it.both.seconds),
    }
}

/// By which check, at which case, in which time.
pub(super) fn hunt(it: &Hunt) -> [String; 3] {
    match &it.kill {
        Some(kill) => [kill.check.to_string(), kill.case.to_string(), format!("{:.2}", it.seconds)],
        None if it.is_judged() => ["survived".into(), String::new(), format!("{:.1}", it.seconds)],
        None => ["not judged".into(), String::new(), format!("{:.1}", it.seconds)],
    }
}

/// The reported cause beside the mutant's own.
pub(super) fn cause(it: &Planted) -> String {
    let Some(small) = &it.small else { return String::new() };
    let is = it.mutant.entry().cause;
    match it.cause_is_right(small) {
        true => is.to_string(),
        false => format!("{}, is {is}", reported(small)),
    }
}

/// What is reported, or that nothing is.
pub(super) fn reported(small: &Small) -> String {
    small.cause.as_ref().map_or("unknown".to_owned(), |cause| cause.kind.to_string())
}

/// The case at which a rival killed it.
pub(super) fn killed_at(case: Option<u64>) -> String {
    case.map_or("missed".to_owned(), |case| case.to_string())
}
