//! What a row leaves open of the engine's steps.

use super::lead::{Lead, Wanted};
use super::value::Steps;
use crate::source::{Source, Stream};
use crate::subject::attention::case::Problem;
use crate::subject::attention::plan::Request;

/// How each sequence goes through the engine, and the token budget of a step.
pub(super) fn requests(
    source: &mut Stream,
    problem: &Problem,
    place: usize,
    lead: Lead,
    wanted: &Wanted,
    apart: bool,
) -> (Vec<Request>, Option<u32>) {
    let left = lead.q - lead.hit;
    let budget = (wanted.steps == Steps::Budget).then(|| {
        let least = if wanted.reject { 2 } else { 1 };
        source.range(least, (left - 1).min(7)).max(left / 8).max(least)
    });
    let requests = problem.sequences.iter().enumerate().map(|(n, sequence)| {
        if n == place {
            return leading(source, lead, wanted);
        }
        let plain = Request { hit: 0, join: 0, chunks: Vec::new(), then: sequence.q.max(1), reject: 0, preempt: None };
        match source.below(3) {
            // Where all must be as long as the leading one, row by row would be many calls.
            0 if apart && (2..=16).contains(&sequence.q) => Request { then: 1, ..plain },
            1 if apart && sequence.q > 1 => Request { hit: sequence.q / 2, ..plain },
            _ => plain,
        }
    });
    (requests.collect(), budget)
}

/// Steps of a request, few even where rows are many: each is a call.
pub(super) fn leading(source: &mut Stream, lead: Lead, wanted: &Wanted) -> Request {
    let left = lead.q - lead.hit;
    let (mut chunks, mut then) = (Vec::new(), left);
    match wanted.steps {
        Steps::Whole | Steps::Budget => {}
        Steps::Decode => {
            chunks.push(left - source.range(1, 4.min(left - 1)));
            then = 1;
        }
        Steps::Verify => {
            let later = source.range(if wanted.reject { 2 } else { 1 }, 9.min(left - 1));
            chunks.push(left - later);
            then = source.range(2, 4);
        }
        Steps::Chunks if wanted.reject || left > 2 && source.chance(1, 2) => {
            then = source.range(2, (left - 1).min(5)).max(left / 6);
        }
        Steps::Chunks => {
            chunks.push(source.range(1, left / 2));
            chunks.push(source.range(1, left - chunks[0]));
        }
    }
    let reject = if wanted.reject { source.range(1, (then - 1).min(3)) } else { 0 };
    let preempt = wanted.preempt.then(|| source.range(1, 2));
    Request { hit: lead.hit, join: 0, chunks, then, reject, preempt }
}
