//! Failing cases, made small enough to read.

use super::certificate::Counterexample;
use super::claim::Claim;
use super::coverage::longest;
use super::digest::sha256;
use super::work::Work;
use crate::finding::Finding;
use crate::shrink::{BUDGET, shrink};
use crate::subject::Subject;
use crate::subject::attention::battery::Part;
use crate::subject::attention::explain::explain_with;
use crate::subject::attention::file::{file, replay_command, replayed};
use crate::subject::attention::text::print;
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{Attention, show};

/// Folder beside a certificate that holds its counterexamples.
pub const FOLDER: &str = "counterexamples";

/// Characters of a digest in a file's name.
const SHORT: usize = 12;

/// Evaluations for a kernel in another process: a thousandth of a second or more each.
const BUDGET_OUTSIDE: u64 = 5000;

/// A failure to be made small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failing {
    pub(super) part: Part,
    pub(super) index: u64,
    pub(super) signature: String,
    pub(super) claims: Vec<Claim>,
}

/// Shrinks a failing case and explains it. `None`: it does not fail again, so the kernel does not repeat itself.
pub(super) fn counterexample(work: &Work, failing: &Failing) -> Option<Counterexample> {
    let Failing { part, index, signature, claims } = failing;
    let attention = work.battery.attention(*part);
    let trial = work.battery.trial(*part, *index)?;
    let mut scratch = attention.scratch();
    let outside = [&attention.pair.train, &attention.pair.infer].iter().any(|kernel| kernel.source.is_some());
    let budget = if outside { BUDGET_OUTSIDE } else { BUDGET };
    let (small, finding) = match shrink(attention, &trial, signature, budget, &mut scratch) {
        Some(small) => (small.trial, Some(small.finding)),
        // What a kernel declares that it does not do is not run by the check that shrinking uses.
        None if *part == Part::Outside => (trial, None),
        None => return None,
    };
    Some(written(attention, &small, finding.as_ref(), failing, claims))
}

fn written(
    attention: &Attention,
    small: &Trial,
    finding: Option<&Finding>,
    failing: &Failing,
    claims: &[Claim],
) -> Counterexample {
    let pair = &attention.pair;
    let whole = finding.map_or_else(|| small.clone(), |finding| replayed(pair, small, finding));
    let first = claims.first().map_or("failure", |claim| claim.name());
    let content = |comment: String| print(&file(comment, pair, small, finding));
    // The comment names the cause, which is found by the case; the name follows from the case alone.
    let short = sha256(content(failing.signature.clone()))[..SHORT].to_owned();
    let name = format!("{first}-{short}.case");
    let command = |file: &str| replay_command(file, pair.train.source.as_deref(), pair.infer.source.as_deref());
    let replay = command(&format!("{FOLDER}/{name}"));
    let explanation = explain_with(pair, &whole, &replay, Some(&failing.signature));
    let cause = explanation.brief.lines().find_map(|line| line.strip_prefix("cause: ")).unwrap_or("unknown").to_owned();
    let text = content(format!("{}: {cause}", failing.signature));
    Counterexample {
        sha256: sha256(&text),
        claims: claims.iter().map(|claim| claim.name().to_owned()).collect(),
        signature: failing.signature.clone(),
        from: format!("{} {}", failing.part.name(), failing.index),
        size: show::summary(&small.case),
        kv: longest(&small.case),
        kind: explanation.cause.as_ref().map_or("unknown".to_owned(), |cause| cause.kind.to_string()),
        cause,
        verdict: explanation.brief,
        file: name,
        replay,
        text,
    }
}
