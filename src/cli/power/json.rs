//! The result as one JSON object. Times stand in fields called `seconds`, and nothing else differs between two runs.

use super::Outcome;
use crate::cli::reach_report::ReachReport;
use crate::subject::attention::power::judge::{Judged, RIVALS, Role};
use crate::subject::attention::power::{Clean, Hunt, Planted, Small};
use serde_json::{Map, Value, json};

pub(super) fn value(outcome: &Outcome) -> Value {
    let settings = &outcome.settings;
    let alarms: Vec<Value> = outcome
        .rival_alarms
        .iter()
        .map(|it| {
            let killed = outcome.planted.iter().filter(|planted| killed_by(planted, it.name).is_some()).count();
            json!({"rival": it.name, "rule": it.about, "killed": killed, "false_alarms": it.rejected, "clean_cases": it.cases})
        })
        .collect();
    json!({
        "lastbit": env!("CARGO_PKG_VERSION"),
        "seed": settings.seed, "cases": settings.cases, "rival_cases": settings.rival_cases,
        "mutants": outcome.planted.len(), "killed": outcome.killed(), "score": outcome.score(),
        "killed_in_inference_alone": outcome.planted.iter().filter(|it| it.infer.kill.is_some()).count(),
        "planted": outcome.planted.iter().map(planted).collect::<Vec<_>>(),
        "clean": outcome.clean.iter().map(|it| clean(it, settings.seed)).collect::<Vec<_>>(),
        "rivals": alarms,
        "judges": outcome.judges.iter().map(judged).collect::<Vec<_>>(),
    })
}

/// The case at which a rival killed a mutant.
fn killed_by(it: &Planted, rival: &str) -> Option<u64> {
    RIVALS.iter().zip(&it.rivals.killed).find(|(other, _)| other.name() == rival).and_then(|(_, killed)| *killed)
}

fn planted(it: &Planted) -> Value {
    let entry = it.mutant.entry();
    let settings: Map<String, Value> = entry.settings.iter().map(|(field, value)| ((*field).to_owned(), json!(value))).collect();
    let rivals: Map<String, Value> =
        RIVALS.iter().map(|rival| (rival.name().to_owned(), json!(killed_by(it, rival.name())))).collect();
    json!({
        "id": entry.id, "source": entry.source, "edit": entry.edit, "silent": entry.silent, "settings": settings,
        "both": hunt(&it.both), "infer": hunt(&it.infer),
        "small": it.small.as_ref().map(small),
        "cause": {
            "is": entry.cause.to_string(),
            "reported": it.small.as_ref().and_then(|small| small.cause.as_ref()).map(|cause| cause.kind.to_string()),
            "as": it.small.as_ref().and_then(|small| small.cause.as_ref()).map(ToString::to_string),
            "right": it.small.as_ref().map(|small| it.cause_is_right(small)),
        },
        "rivals": { "killed_at": rivals, "seconds": it.rivals.seconds },
    })
}

fn hunt(it: &Hunt) -> Value {
    let kill = it.kill.as_ref();
    json!({
        "killed": kill.is_some(),
        "by": kill.map(|kill| kill.check.to_string()),
        "checks": kill.map(|kill| kill.checks.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "signature": kill.map(|kill| &kill.signature),
        "case": kill.map(|kill| kill.case),
        "cases": it.cases, "matches": it.matches, "not_judged": it.not_judged, "seconds": it.seconds,
    })
}

fn small(it: &Small) -> Value {
    let known = it.known.as_ref();
    json!({
        "size": it.size, "words": it.words, "signature": it.signature,
        "known_size": known.map(|(size, _)| size), "known_words": known.map(|(_, words)| words),
        "no_larger_than_known": it.is_smallest(), "larger_by": it.larger_by(), "findings_shrunk": it.shrunk, "case": it.text, "seconds": it.seconds,
    })
}

fn clean(it: &Clean, seed: u64) -> Value {
    let statistics = &it.statistics;
    let sensitivity: Map<String, Value> = statistics
        .sensitivity
        .iter()
        .map(|(dtype, it)| (dtype.to_string(), json!({"capable": it.capable, "order_sensitive": it.sensitive})))
        .collect();
    json!({
        "kernel": it.kernel, "cases": statistics.cases, "matches": statistics.matches, "false_alarms": statistics.failed,
        "skipped": statistics.skipped, "undecided": statistics.undecided, "empty": statistics.empty,
        "reach": ReachReport::of_references(it.asked.clone(), statistics.reach).json(),
        "elements": statistics.elements, "relations": statistics.relations, "sensitivity": sensitivity,
        "first": it.first.as_ref().map(|first| json!({
            "case": first.case, "signature": first.signature, "replay": it.replay(seed),
        })),
        "seconds": it.seconds,
    })
}

fn judged(it: &Judged) -> Value {
    let role = match it.role {
        Role::Sound => "sound",
        Role::Rival => "rival",
        Role::Faulty => "faulty",
    };
    json!({
        "judge": it.name, "rule": it.about, "role": role, "impostors": it.impostors, "passes": it.passes,
        "rejects_right": it.rejects_right, "as_expected": it.is_as_expected(),
    })
}
