//! Failing cases, made small enough to read.

use super::certificate::Counterexample;
use super::claim::Claim;
use super::coverage::longest;
use super::digest::sha256;
use super::record::Record;
use super::work::{Unit, Work};
use crate::finding::Finding;
use crate::shrink::{BUDGET, shrink};
use crate::subject::Subject;
use crate::subject::attention::battery::Part;
use crate::subject::attention::explain::explain_with;
use crate::subject::attention::file::{check, file, replay_command, replayed};
use crate::subject::attention::text::{parse, print};
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Attention, Case, Data, show};
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

/// Makes a counterexample of a certificate again from its text. `words`: those of the kernels in the certificate.
///
/// # Errors
/// What keeps its text from being a case that fails as it says.
pub(super) fn again(work: &Work, it: &Counterexample, words: [&str; 2]) -> Result<Counterexample, String> {
    let claims: Vec<Claim> = it.claims.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    let first = claims.first().ok_or("fails no claim")?;
    let signature = it.signature.clone();
    let does_not_show = || format!("does not show `{signature}`");
    let (part, index) = address(work, &it.from).ok_or_else(|| format!("is of `{}`, which is no case of the battery", it.from))?;
    let mut attention = work.battery.attention(part).clone();
    // However the kernels are spelled now: the case names them as they were then.
    for (kernel, words) in [&mut attention.pair.train, &mut attention.pair.infer].into_iter().zip(words) {
        kernel.source = kernel.source.take().map(|_| words.to_owned());
    }
    // The case that it was made of fails so too.
    let mut scratch = attention.scratch();
    let Record::Case(record) = work.run(Unit::Case(part, index), &mut scratch) else { unreachable!("the unit is a case") };
    let of_case = record.failures.iter().filter(|(found, _)| *found == signature).flat_map(|(_, claims)| claims);
    let of_case: Vec<Claim> = of_case.filter_map(|name| name.parse().ok()).collect();
    if !of_case.contains(first) {
        return Err(format!("is made of `{}`, which does not fail {first} with `{signature}`", it.from));
    }
    let text = parse(&it.text, &it.file).and_then(|file| Ok((check(&it.file, &file)?.relation, file.case)));
    let (relation, case) = text.map_err(|error| format!("is no case: {error}"))?;
    has_data(&attention, &case)?;
    let trial = Trial::new(case, Checks::Only { oracle: true, pair: true, relation });
    let verdict = attention.pair.check(&trial, &mut scratch);
    let finding = verdict.findings.into_iter().find(|finding| finding.signature() == signature);
    let against: Vec<Claim> = match &finding {
        // Failing cases of several strata may have become this one.
        Some(finding) => Part::ALL.into_iter().flat_map(|part| Claim::against(finding, part)).collect(),
        // What a kernel declares that it does not do is run by its stratum alone, and was not made smaller.
        None if part == Part::Outside => of_case,
        None => return Err(does_not_show()),
    };
    if let Some(claim) = claims.iter().find(|it| !against.contains(it) || !work.claims.contains(it)) {
        return Err(format!("does not fail {claim}"));
    }
    let trial = match finding {
        Some(_) => trial,
        None => work.battery.trial(part, index).ok_or_else(does_not_show)?,
    };
    let failing = Failing { part, index, signature, claims };
    Ok(written(&attention, &trial, finding.as_ref(), &failing, &failing.claims))
}

/// The case of a battery that is written as `stratum index`.
fn address(work: &Work, text: &str) -> Option<(Part, u64)> {
    let (part, index) = text.split_once(' ')?;
    let (part, index) = (part.parse().ok()?, index.parse().ok()?);
    (index < work.battery.cases(part)).then_some((part, index))
}

/// Whether captured tensors that a case names are those of its stratum.
fn has_data(attention: &Attention, case: &Case) -> Result<(), String> {
    let Data::Captured { sha256 } = &case.data else { return Ok(()) };
    let captured = attention.pair.captured.as_ref().filter(|it| it.sha256 == *sha256);
    captured.ok_or_else(|| format!("is of captured tensors {sha256}, which its stratum does not have"))?.fits(&case.problem)
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
