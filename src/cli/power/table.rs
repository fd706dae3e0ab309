//! The result as a page of text.

use super::{Outcome, words};
use crate::cli::reach_report::ReachReport;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::power::judge::{Judged, RIVALS, Role};
use crate::subject::attention::power::{Clean, Planted};
use std::fmt::Write;

/// The catalogue, one mutant in five lines.
pub(super) fn catalogue(mutants: &[Mutant]) -> String {
    let mut text = String::new();
    for mutant in mutants {
        let entry = mutant.entry();
        let settings: Vec<String> = entry.settings.iter().map(|(field, value)| format!("{field}={value}")).collect();
        let _ = writeln!(text, "{}  {}", entry.id, entry.edit);
        let _ = writeln!(text, "      source: {}", entry.source);
        let _ = writeln!(text, "      silent: {}", entry.silent);
        let _ = writeln!(text, "      cause:  {}", entry.cause);
        if !settings.is_empty() {
            let _ = writeln!(text, "      needs:  {}", settings.join(","));
        }
    }
    text
}

/// The kill table, the score, and what the kernels without a fault showed.
pub(super) fn page(outcome: &Outcome) -> String {
    let settings = &outcome.settings;
    let mut text = format!(
        "Planted faults in ref:aligned: at most {} cases of seed {} each, up to the first that fails; on both sides (the score) and in\n\
         inference alone. s: seconds to the kill. shrunk, known: the smallest case found and that of the catalogue. The last three columns\n\
         are checks of the field, on the same shapes with normal data and zero-filled pools: the case at which each of them fails, of {}.\n\n",
        settings.cases, settings.seed, settings.rival_cases
    );
    let heads = ["mutant", "both sides", "case", "s", "infer alone", "case", "s", "shrunk", "known", "cause"];
    let heads = heads.into_iter().chain(RIVALS.iter().map(|rival| rival.name()));
    let mut rows = vec![heads.map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(outcome.planted.iter().map(row));
    text.push_str(&aligned(&rows));
    text.push('\n');
    score(&mut text, outcome);
    text.push('\n');
    rivals(&mut text, outcome);
    text.push('\n');
    outcome.clean.iter().for_each(|it| clean(&mut text, it, settings.seed));
    text.push('\n');
    judges(&mut text, &outcome.judges);
    text
}

/// What the checks of the field found, and of what they complain without a reason.
fn rivals(text: &mut String, outcome: &Outcome) {
    let all = outcome.planted.len();
    let _ = writeln!(text, "checks of the field: {} cases each", outcome.settings.rival_cases);
    for (n, alarms) in outcome.rival_alarms.iter().enumerate() {
        let killed = outcome.planted.iter().filter(|it| it.rivals.killed[n].is_some()).count();
        let _ = writeln!(
            text,
            "  {:<13} {killed} of {all} killed; false alarms in {} of {} cases of ref:aligned; {}",
            alarms.name, alarms.rejected, alarms.cases, alarms.about
        );
    }
}

/// Whom the impostors fool.
fn judges(text: &mut String, judges: &[Judged]) {
    let impostors = judges.first().map_or(0, |it| it.impostors);
    let _ = writeln!(text, "judges: {impostors} impostors that each must reject");
    for it in judges {
        let whose = if it.role == Role::Faulty { "planted: " } else { "" };
        let passes = match &it.passes[..] {
            [] => "rejects all".to_owned(),
            passes => format!("passes {}: {}", passes.len(), passes.join("; ")),
        };
        let right = if it.rejects_right { "; REJECTS THE RIGHT KERNEL" } else { "" };
        let wrong = if it.is_as_expected() { "" } else { " (NOT AS EXPECTED)" };
        let _ = writeln!(text, "  {whose}{}: {passes}{right}{wrong}", it.name);
    }
}

fn row(it: &Planted) -> Vec<String> {
    let mut cells = vec![it.mutant.to_string()];
    cells.extend(words::hunt(&it.both));
    cells.extend(words::hunt(&it.infer));
    let small = it.small.as_ref();
    cells.push(small.map_or(String::new(), |small| small.words.clone()));
    cells.push(match small.map(|small| (small.is_smallest(), &small.known)) {
        Some((Some(true), Some((_, known)))) => known.clone(),
        Some((Some(false), Some((_, known)))) => format!("{known} (smaller)"),
        Some(_) => "none".into(),
        None => String::new(),
    });
    cells.push(words::cause(it));
    cells.extend(it.rivals.killed.iter().map(|case| words::killed_at(*case)));
    cells
}

/// Columns as wide as their widest cell, two spaces apart.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn score(text: &mut String, outcome: &Outcome) {
    let planted = &outcome.planted;
    let all = planted.len();
    let killed: Vec<&Planted> = planted.iter().filter(|it| it.both.kill.is_some()).collect();
    let survived: Vec<&str> = planted.iter().filter(|it| it.both.kill.is_none()).map(|it| it.mutant.entry().id).collect();
    let alone = planted.iter().filter(|it| it.infer.kill.is_some()).count();
    let _ = writeln!(
        text,
        "score: {} of {all} killed on both sides ({:.3}); {alone} of {all} in inference alone",
        killed.len(),
        outcome.score()
    );
    if !survived.is_empty() {
        let _ = writeln!(text, "  survived on both sides: {}", survived.join(", "));
    }
    let alone: Vec<&str> = planted.iter().filter(|it| it.infer.kill.is_none()).map(|it| it.mutant.entry().id).collect();
    if !alone.is_empty() {
        let _ = writeln!(text, "  survived in inference alone: {}", alone.join(", "));
    }
    let mut seconds: Vec<f64> = killed.iter().map(|it| it.both.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    if let (Some(median), Some(most)) = (seconds.get(seconds.len() / 2), seconds.last()) {
        let _ = writeln!(text, "time to kill: median {median:.2} s, most {most:.2} s");
    }
    let with_known = || {
        killed
            .iter()
            .filter_map(|it| Some((it, it.small.as_ref()?)))
            .filter_map(|(it, small)| Some((it, small, small.is_smallest()?)))
    };
    let _ = writeln!(
        text,
        "shrunk: {} of {} no larger than the smallest case known; {} without a known one",
        with_known().filter(|(.., smallest)| *smallest).count(),
        with_known().count(),
        killed.len() - with_known().count(),
    );
    for (it, small, _) in with_known().filter(|(.., smallest)| !smallest) {
        let known = small.known.as_ref().map_or("", |(_, words)| words);
        let _ = writeln!(
            text,
            "  larger: {}: {} against {known}, by its {}; {} findings shrunk",
            it.mutant,
            small.words,
            small.larger_by().unwrap_or("size"),
            small.shrunk
        );
    }
    let causes = || killed.iter().filter_map(|it| Some((it, it.small.as_ref()?)));
    let right = causes().filter(|(it, small)| it.cause_is_right(small)).count();
    let _ = writeln!(text, "cause: {right} of {} right", causes().count());
    for (it, small) in causes().filter(|(it, small)| !it.cause_is_right(small)) {
        let said = small.cause.as_ref().map_or("unknown".to_owned(), |cause| cause.to_string());
        let _ = writeln!(text, "  wrong: {}: {said}; is {}", it.mutant, it.mutant.entry().cause);
    }
}

fn clean(text: &mut String, it: &Clean, seed: u64) {
    let statistics = &it.statistics;
    let (capable, sensitive) =
        statistics.sensitivity.values().fold((0, 0), |(capable, sensitive), it| (capable + it.capable, sensitive + it.sensitive));
    let _ = writeln!(
        text,
        "without a fault: {}: false alarms in {} of {} cases ({} skipped, {} undecided, {} with nothing to compare), {sensitive} of {capable} capable cases order-sensitive, {:.1} s",
        it.kernel, statistics.failed, statistics.cases, statistics.skipped, statistics.undecided, statistics.empty, it.seconds,
    );
    if statistics.cases > 0 {
        let reach = ReachReport::of_references(it.asked.clone(), statistics.reach);
        reach.lines(statistics.failed > 0, "--clean-cases").lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    if let (Some(first), Some(command)) = (&it.first, it.replay(seed)) {
        let _ = writeln!(text, "  FALSE ALARM: case {}: {}\n  replay: {command}", first.case, first.signature);
    }
}
