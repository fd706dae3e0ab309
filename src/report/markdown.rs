//! A summary for the page of a CI job (`$GITHUB_STEP_SUMMARY`): short, with the counterexamples folded.

use super::verdict::Verdict;
use super::words::{at_most, count, counted, share};
use super::{placed, visible};
use crate::certify::certificate::{Certificate, Counterexample, Status};
use crate::certify::statement::Statement;
use crate::input_error::can_be_pasted;
use std::fmt::Write;

/// Bytes of case texts: a summary is to be short, and GitHub refuses one beyond 1 MiB. Further ones are named.
const TEXT_BUDGET: usize = 1 << 16;

/// A certificate as GitHub-flavoured Markdown. `file` is how the reader calls the certificate.
pub fn markdown(statement: &Statement, file: &str) -> String {
    let statement = placed(statement, file);
    let it = &statement.predicate.lastbit;
    let [train, infer] = &it.kernels;
    let mut text = format!("## {} {}\n\n", mark(Verdict::of(it).status()), Verdict::of(it).word());
    let _ = writeln!(text, "{}\n", code(&it.status));
    let _ = writeln!(
        text,
        "{} in training against {} in inference, battery {} (version {}, seed {}).\n",
        code(&train.words),
        code(&infer.words),
        code(&it.battery.name),
        it.battery.version,
        it.battery.seed
    );
    claims(&mut text, it);
    if !it.counterexamples.is_empty() {
        let _ = writeln!(text, "### {}\n", counted(it.counterexamples.len() as u64, "minimal case"));
        let mut left = TEXT_BUDGET;
        for case in &it.counterexamples {
            counterexample(&mut text, case, &mut left);
        }
    }
    power(&mut text, it);
    if !it.waivers.is_empty() {
        text.push_str("### Waivers\n\n");
        for waiver in &it.waivers {
            let (claim, until) = (plain(&waiver.claim), plain(&waiver.until));
            let _ = writeln!(text, "- {claim}, until {until}: {}", plain(&waiver.issue));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "### Check it\n\nDigest {}\n", code(&it.digest));
    let verify = format!("lastbit verify {} --sample 1%", shell_words::quote(file));
    fenced(&mut text, "sh", &verify);
    visible(text)
}

fn claims(text: &mut String, it: &Certificate) {
    text.push_str("| claim | status | cases | failed | why |\n|---|---|--:|--:|---|\n");
    for claim in &it.claims {
        let waived = claim.waived.as_ref().map(|issue| format!(" (waived: {})", plain(issue))).unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} {}{waived} | {} | {} | {} |",
            code(&claim.claim),
            mark(claim.status),
            claim.status,
            count(claim.cases),
            count(claim.failed),
            plain(&claim.reason)
        );
    }
    text.push('\n');
}

fn counterexample(text: &mut String, case: &Counterexample, left: &mut usize) {
    let claims: Vec<String> = case.claims.iter().map(|claim| code(claim)).collect();
    let _ = writeln!(text, "<details><summary>{}: {}</summary>\n", claims.join(", "), plain(&case.size));
    let _ = writeln!(text, "Cause: {}\n", plain(&case.cause));
    fenced(text, "", &case.verdict);
    if can_be_pasted(&case.replay) {
        fenced(text, "sh", &case.replay);
    }
    if case.text.len() <= *left {
        *left -= case.text.len();
        fenced(text, "toml", &case.text);
    } else {
        let _ = writeln!(text, "The case is in {}; it is too long for this page.\n", code(&case.file));
    }
    text.push_str("</details>\n\n");
}

fn power(text: &mut String, it: &Certificate) {
    let power = &it.power;
    text.push_str("### Could it have failed\n\n");
    for (format, [capable, sensitive]) in &power.order_sensitive {
        let share = share(*sensitive, *capable);
        let _ = writeln!(
            text,
            "- {}: another order of addition changes bits in {share} of {}",
            code(format),
            counted(*capable, "case")
        );
    }
    let mutants = &power.mutants;
    if mutants.planted > 0 {
        let (killed, planted) = (count(mutants.killed), count(mutants.planted));
        let _ = write!(text, "- planted faults found: {killed} of {planted}, at least {:.0}% must be", 100.0 * mutants.floor);
        let survived: Vec<String> = mutants.survived.iter().map(|it| code(it)).collect();
        let _ = writeln!(text, "{}", if survived.is_empty() { String::new() } else { format!("; not: {}", survived.join(", ")) });
        let elsewhere: Vec<String> = mutants.elsewhere.iter().map(|it| code(it)).collect();
        if !elsewhere.is_empty() {
            let _ = writeln!(
                text,
                "- of these only with calls that the kernels do not take, or that pins exclude: {}",
                elsewhere.join(", ")
            );
        }
    }
    if !power.controls.is_empty() {
        let failed = power.controls.iter().filter(|it| it.failed_at.is_some()).count();
        let _ = writeln!(text, "- negative controls that failed as they must: {failed} of {}", power.controls.len());
    }
    if !power.unreached.is_empty() {
        let ways: Vec<String> = power.unreached.iter().map(|it| code(it)).collect();
        let _ = writeln!(text, "- never reached: {}", ways.join(", "));
    }
    let bound = &it.bound;
    if bound.cases > 0 {
        let _ = writeln!(
            text,
            "- {} drawn at random, {} failed: with confidence {} at most {} of such cases fail ({})",
            counted(bound.cases, "case"),
            count(bound.failed),
            percent(bound.confidence),
            at_most(bound.upper),
            plain(&bound.distribution)
        );
    }
    text.push('\n');
}

fn percent(confidence: f64) -> String {
    format!("{}%", (confidence * 1e6).round() / 1e4)
}

fn mark(status: Status) -> &'static str {
    match status {
        Status::Pass => "\u{2705}",
        Status::Fail => "\u{274c}",
        Status::Unverifiable => "\u{26a0}\u{fe0f}",
    }
}

/// Text that stays text: nothing in it is Markdown, HTML, a mention or mathematics, and it is one line.
fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '\n' | '\r' | '\t' => shown.push(' '),
            // An entity: a mention is looked for in the text that escapes leave.
            '@' => shown.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '#' | '|' | '!' | '~' | '$' | ':' => shown.extend(['\\', c]),
            c => shown.push(c),
        }
    }
    shown
}

/// A name in monospaced letters. Not with backticks, which cannot be escaped.
fn code(text: &str) -> String {
    format!("<code>{}</code>", plain(text))
}

/// A block of text as it is, in a fence longer than any in it.
fn fenced(text: &mut String, language: &str, block: &str) {
    let longest = block.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(text, "{fence}{language}\n{}\n{fence}\n", block.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_stays_text() {
        assert_eq!(plain("a|b `c`\n<x> @you #1"), "a\\|b \\`c\\` &lt;x&gt; &#64;you \\#1");
        let mut text = String::new();
        fenced(&mut text, "", "```\n## not a heading\n````");
        assert!(text.starts_with("`````\n") && text.ends_with("\n`````\n\n"), "{text}");
    }
}
