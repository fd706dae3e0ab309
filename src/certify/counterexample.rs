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
use std::path::Path;

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

impl Counterexample {
    /// As a reader has it who names the certificate `certificate`: where its file lies, and the command that replays it from where he stands.
    /// A certificate itself names no folder, so that its bytes do not depend on one.
    pub fn beside(&self, certificate: &Path) -> Counterexample {
        // A file may be given any name by whoever wrote the certificate: it stays in this folder.
        let name = Path::new(&self.file).file_name().unwrap_or_default();
        let mut file = certificate.parent().unwrap_or(Path::new("")).join(FOLDER).join(name).display().to_string();
        if file.starts_with('-') {
            file.insert_str(0, "./");
        }
        let own = replay_command(&format!("{FOLDER}/{}", name.to_string_lossy()), None, None);
        let replay = match self.replay.strip_prefix(&own) {
            Some(kernels) => replay_command(&file, None, None) + kernels,
            None => self.replay.clone(),
        };
        let verdict = self.verdict.replacen(&format!("replay: {}", self.replay), &format!("replay: {replay}"), 1);
        Counterexample { file, replay, verdict, ..self.clone() }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn example(file: &str, replay: &str) -> Counterexample {
        let text = |text: &str| text.to_owned();
        Counterexample {
            sha256: text("0"),
            claims: vec![text("accurate")],
            signature: text("inaccurate train o"),
            from: text("random 1"),
            size: text("1 row"),
            kv: 1,
            cause: text("unknown"),
            kind: text("unknown"),
            verdict: format!("case: 1 row\nreplay: {replay}\n"),
            file: text(file),
            replay: text(replay),
            text: text(""),
        }
    }

    #[test]
    fn a_reader_is_told_the_path_from_where_he_stands() {
        let own = example("a-1.case", "lastbit replay counterexamples/a-1.case --train 'process:python k.py'");
        for (certificate, path) in [
            ("cert.json", "counterexamples/a-1.case"),
            ("rep/cert.json", "rep/counterexamples/a-1.case"),
            ("../my rep/cert.json", "'../my rep/counterexamples/a-1.case'"),
            ("-x/cert.json", "./-x/counterexamples/a-1.case"),
        ] {
            let placed = own.beside(Path::new(certificate));
            assert_eq!(placed.replay, format!("lastbit replay {path} --train 'process:python k.py'"));
            assert_eq!(placed.verdict, format!("case: 1 row\nreplay: {}\n", placed.replay));
            assert_eq!(placed.file, path.trim_matches('\''));
        }
    }

    #[test]
    fn a_certificate_of_somebody_else_leads_nowhere_else() {
        for file in ["../../etc/passwd", "/etc/passwd"] {
            let placed = example(file, "rm -r x").beside(Path::new("rep/cert.json"));
            assert_eq!((placed.file.as_str(), placed.replay.as_str()), ("rep/counterexamples/passwd", "rm -r x"));
        }
    }
}
