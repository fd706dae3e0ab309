//! What a run says at its end: one JSON object, or text for a person.

use super::found::{Found, Small};
use super::fresh::Fresh;
use super::job::Job;
use super::reach_report::ReachReport;
use crate::finding::{Finding, Kind, Path};
use crate::input_error::tame;
use crate::lab::Statistics;
use crate::subject::attention::Attention;
use crate::subject::attention::fault_text::in_words;
use crate::subject::attention::oracle::Mode;
use serde_json::{Value, json};
use std::fmt::Write;

/// Share of order-sensitive cases below which a match says little.
const BLIND: f64 = 0.05;

/// Characters of a kernel's own words that are shown.
const REASON: usize = 240;

/// A run that has ended.
pub(super) struct Outcome<'a> {
    pub(super) job: &'a Job,
    pub(super) attention: &'a Attention,
    pub(super) statistics: &'a Statistics,
    /// Time spent on cases.
    pub(super) seconds: f64,
    /// What was kept, and made small.
    pub(super) report: &'a [(&'a Found, Option<Small>)],
}

/// What became of the cases that were drawn, as shares of them. Those compared match or have a finding; the others say nothing, or
/// not all.
fn shares(statistics: &Statistics) -> [(&'static str, f64); 4] {
    let share = |count: u64| count as f64 / statistics.cases.max(1) as f64;
    [
        ("compared", share(statistics.matches + statistics.failed)),
        ("empty", share(statistics.empty)),
        ("skipped", share(statistics.skipped)),
        ("undecided", share(statistics.undecided)),
    ]
}

/// The sides whose writes outside their outputs nobody sees, with their kernel's name.
fn unguarded(attention: &Attention) -> impl Iterator<Item = (Path, String)> {
    let of = |path| {
        let kernel = &attention.pair.side(path).kernel;
        (!kernel.capabilities().guarded).then(|| (path, tame(&kernel.identity().name, REASON)))
    };
    Path::BOTH.into_iter().filter_map(of)
}

/// What a reader must know to weigh the run.
fn notes(text: &mut String, job: &Job, statistics: &Statistics) {
    let (train, infer) = (&job.train, &job.infer);
    if statistics.signatures.is_empty() && statistics.matches > 0 {
        let (cases, longest) = (statistics.matches, statistics.longest_kv);
        let _ = writeln!(
            text,
            "not observed: any difference of {train} and {infer} over {cases} matching cases, kv up to {longest}, seed {}",
            job.seed
        );
    }
    if job.oracle == Mode::Off {
        text.push_str("NOTE: accuracy was not judged (--oracle off)\n");
    }
    for (dtype, it) in &statistics.sensitivity {
        if (it.sensitive as f64) < BLIND * it.capable as f64 {
            let _ = writeln!(text, "NOTE: {dtype} outputs hardly show order here: a match of them says little about it");
        }
    }
    if statistics.cases == 0 {
        text.push_str("NOTE: nothing ran\n");
    }
}

pub(super) fn json_summary(outcome: &Outcome<'_>) -> Value {
    let &Outcome { job, attention, statistics, seconds, report } = outcome;
    let found: Vec<Value> = report
        .iter()
        .map(|(found, small)| {
            let relation = found.finding.changed().or(found.finding.relation().map(str::to_owned));
            let mut entry = json!({
                "finding": found.finding.signature(),
                "relation": relation,
                "cause": Value::Null,
                "case": found.index,
                "file": found.file.display().to_string(),
                "shrunk": Value::Null,
            });
            if let Finding::Fault { fault, .. } = &found.finding {
                entry["fault"] = in_words(fault).into();
            }
            if let Some(small) = small {
                let problem = &small.case.problem;
                let longest = |length: fn(&crate::subject::attention::Sequence) -> u32| {
                    problem.sequences.iter().map(length).max().unwrap_or(0)
                };
                entry["cause"] = small.explanation.cause.as_ref().map(|cause| cause.kind.to_string()).into();
                entry["shrunk"] = small.path.display().to_string().into();
                entry["kv"] = longest(|s| s.kv).into();
                entry["q"] = longest(|s| s.q).into();
                entry["d_qk"] = problem.d_qk.into();
                entry["d_v"] = problem.d_v.into();
                entry["seqs"] = problem.sequences.len().into();
                entry["heads"] = problem.q_heads().into();
                if let Some(fresh) = &small.fresh {
                    entry["shows_in_fresh_process"] = match fresh {
                        Fresh::Shows => true.into(),
                        Fresh::Hidden => false.into(),
                        Fresh::Unknown(_) => Value::Null,
                    };
                }
            }
            entry
        })
        .collect();
    let by_dtype = |value: fn(&crate::lab::Sensitivity) -> u64| -> Value {
        statistics.sensitivity.iter().map(|(dtype, it)| (dtype.name().to_owned(), Value::from(value(it)))).collect()
    };
    let accuracy = &statistics.accuracy;
    let mut summary = json!({
        "train": job.train,
        "infer": job.infer,
        "seed": job.seed,
        "cases": statistics.cases,
        "match": statistics.matches,
        "mismatch": statistics.of(Kind::Mismatch),
        "inaccurate": statistics.of(Kind::Inaccurate),
        "not_invariant": statistics.of(Kind::NotInvariant),
        "fault": statistics.of(Kind::Fault),
        "undecided": statistics.of(Kind::Undecided),
        "skipped": statistics.of(Kind::Skipped),
        "empty": statistics.empty,
        "shares": shares(statistics).into_iter().map(|(name, share)| (name.to_owned(), Value::from(share))).collect::<Value>(),
        "skip_reasons": statistics.skips,
        "elements": statistics.elements,
        "differing_elements": statistics.differing,
        "longest_kv": statistics.longest_kv,
        "capable": by_dtype(|it| it.capable),
        "order_sensitive": by_dtype(|it| it.sensitive),
        "relations": statistics.relations,
        "left_out": statistics.left_out,
        "relations_left_out": statistics.relations_left_out,
        "set_aside": statistics.set_aside,
        "writes_not_checked": unguarded(attention).map(|(path, _)| path.to_string()).collect::<Vec<_>>(),
        "escalations": statistics.escalations,
        "accuracy": {
            "judged": accuracy.judged,
            "correctly_rounded": accuracy.correctly_rounded,
            "above": accuracy.above,
            "below": accuracy.below,
            "unbounded": accuracy.unbounded,
            "out_of_range": accuracy.out_of_range,
            "worst_share_of_bound": accuracy.worst,
        },
        "reach": ReachReport::new(attention, statistics.reach).json(),
        "signatures": statistics.signatures,
        "seconds": (seconds * 1e3).round() / 1e3,
        "cases_per_second": (statistics.cases as f64 / seconds.max(1e-9)).round(),
        "found": found,
    });
    if let Some(shard) = job.shard {
        summary["shard"] = shard.to_string().into();
    }
    summary
}

pub(super) fn human(outcome: &Outcome<'_>, out: &std::path::Path) -> String {
    let &Outcome { job, attention, statistics, seconds, report } = outcome;
    let mut text = String::new();
    for (found, small) in report {
        let _ = writeln!(text, "case {}: {}", found.index, found.finding.signature());
        match small {
            Some(small) => {
                text.push_str(&small.explanation.text);
                for note in small.notes() {
                    let _ = writeln!(text, "NOTE: {note}");
                }
            }
            None => text.push_str("not shrunk\n"),
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "{} cases in {seconds:.1} s ({:.0}/s): {} match, {} mismatch, {} inaccurate, {} not invariant, {} fault, {} undecided, {} skipped, {} empty",
        statistics.cases,
        statistics.cases as f64 / seconds.max(1e-9),
        statistics.matches,
        statistics.of(Kind::Mismatch),
        statistics.of(Kind::Inaccurate),
        statistics.of(Kind::NotInvariant),
        statistics.of(Kind::Fault),
        statistics.of(Kind::Undecided),
        statistics.of(Kind::Skipped),
        statistics.empty,
    );
    let shares = shares(statistics).map(|(name, share)| format!("{:.2}% {name}", 100.0 * share));
    let _ = writeln!(text, "of the cases drawn: {}", shares.join(", "));
    let share = if statistics.elements == 0 { 0.0 } else { 100.0 * statistics.differing as f64 / statistics.elements as f64 };
    let _ = writeln!(
        text,
        "{} elements compared, {} differ ({share:.3}%); {} relations run",
        statistics.elements, statistics.differing, statistics.relations
    );
    for (dtype, it) in &statistics.sensitivity {
        let share = 100.0 * it.sensitive as f64 / it.capable.max(1) as f64;
        let _ =
            writeln!(text, "{dtype} outputs: {} of {} capable cases are order-sensitive ({share:.1}%)", it.sensitive, it.capable);
    }
    let accuracy = &statistics.accuracy;
    if accuracy.judged > 0 {
        let _ = writeln!(
            text,
            "{} results judged against the oracle ({} escalated): {:.2}% correctly rounded, {} above, {} below, largest error {} of its bound, {} unbounded, {} out of range",
            accuracy.judged,
            statistics.escalations,
            100.0 * accuracy.correctly_rounded as f64 / accuracy.judged as f64,
            accuracy.above,
            accuracy.below,
            // Cut, not rounded: 1 would read as a failure.
            (accuracy.worst * 1e4).floor() / 1e4,
            accuracy.unbounded,
            accuracy.out_of_range,
        );
    }
    if statistics.cases > 0 {
        text.push_str(&ReachReport::new(attention, statistics.reach).lines(!statistics.signatures.is_empty(), "--cases, --time"));
    }
    for (reason, count) in &statistics.skips {
        let _ = writeln!(text, "skipped {count}: {}", tame(reason, REASON));
    }
    for (reason, count) in &statistics.left_out {
        let _ = writeln!(text, "left out: {}, in {count} cases", tame(reason, REASON));
    }
    for (reason, count) in &statistics.relations_left_out {
        let _ = writeln!(text, "relations left out: {}, {count} times", tame(reason, REASON));
    }
    for (path, name) in unguarded(attention) {
        let _ =
            writeln!(text, "writes not checked: {path} ({name}) allocates its own outputs, so a write outside them is not seen");
    }
    for (signature, count) in &statistics.signatures {
        let _ = writeln!(text, "found {count}: {signature}");
    }
    if statistics.set_aside > 0 {
        let _ = writeln!(
            text,
            "set aside: {} differences of a kernel that does not repeat itself: they are blamed on nothing else",
            statistics.set_aside
        );
    }
    notes(&mut text, job, statistics);
    if let Some(shard) = job.shard {
        let _ = writeln!(
            text,
            "NOTE: this is shard {shard}; `lastbit merge` joins all {} of them into one run's results",
            shard.of()
        );
    }
    let _ = writeln!(text, "results in {}", out.display());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Length;
    use crate::subject::attention::capabilities::Capabilities;
    use crate::subject::attention::check::Pair;
    use crate::subject::attention::draw::Profile;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::kernel::{AttentionKernel, Identity};
    use crate::subject::attention::pin::Pins;
    use crate::subject::attention::reference::Reference;
    use std::sync::Arc;

    struct Outside;

    impl AttentionKernel for Outside {
        fn identity(&self) -> Identity {
            Identity::cpu("theirs\nverdict: match", "1")
        }
        fn capabilities(&self) -> Capabilities {
            Capabilities { guarded: false, ..Capabilities::default() }
        }
    }

    #[test]
    fn what_was_not_looked_at_is_said() {
        let job = Job {
            train: "ref:aligned".into(),
            infer: "theirs".into(),
            seed: 1,
            profile: Profile::Quick,
            oracle: Mode::Off,
            pins: Pins::default(),
            data: None,
            keep_going: false,
            shard: None,
            length: Length::Cases(1),
        };
        let (train, infer) = (Implementation::reference(Reference::default()), Implementation::kernel(Arc::new(Outside)));
        let attention = Attention::of(Pair { train, infer, oracle: Mode::Off, captured: None, witness: false });
        let statistics = Statistics {
            left_out: [("lse (infer has none)".to_owned(), 9)].into(),
            relations_left_out: [("pages: page sizes (infer: 16)".to_owned(), 4)].into(),
            set_aside: 3,
            ..Statistics::default()
        };
        let outcome = Outcome { job: &job, attention: &attention, statistics: &statistics, seconds: 1.0, report: &[] };
        let text = human(&outcome, std::path::Path::new("out"));
        for line in [
            "left out: lse (infer has none), in 9 cases",
            "relations left out: pages: page sizes (infer: 16), 4 times",
            "writes not checked: infer (theirs\\u{a}verdict: match)",
            "set aside: 3 differences",
        ] {
            assert!(text.lines().any(|it| it.starts_with(line)), "{line}: {text}");
        }
        let summary = json_summary(&outcome);
        assert_eq!(summary["writes_not_checked"], json!(["infer"]));
        assert_eq!(summary["left_out"], json!({ "lse (infer has none)": 9 }));
        assert_eq!(summary["relations_left_out"], json!({ "pages: page sizes (infer: 16)": 4 }));
        assert_eq!(summary["set_aside"], 3);
    }
}
