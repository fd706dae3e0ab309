//! A page as one JSON object: every number that stands behind the words.

use super::words;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::probe::page::{
    Answer, FormatPage, Minimal, Outcome, Page, Recipe, Relation, Repeated, Seen, Share, Tried,
};
use serde_json::{Value, json};

pub(super) fn page(page: &Page) -> Value {
    let identity = &page.identity;
    let details: serde_json::Map<String, Value> =
        identity.details.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let conventions: serde_json::Map<String, Value> =
        Conventions::FIELDS.iter().map(|&field| (field.to_owned(), json!(page.conventions.get(field)))).collect();
    let wrong: Vec<Value> =
        page.wrong.iter().map(|it| json!({"what": it.what, "smallest": it.minimal.as_ref().map(minimal)})).collect();
    let trials: Vec<Value> = page
        .trials
        .iter()
        .map(|it| {
            let (outcome, why) = match &it.outcome {
                Outcome::Works => ("works", None),
                Outcome::Refused(why) => ("refused", Some(why)),
                Outcome::Fails(why) => ("fails", Some(why)),
                Outcome::Wrong(why) => ("wrong", Some(why)),
                Outcome::NotTried(why) => ("not_tried", Some(why)),
            };
            json!({"of": it.of.name(), "what": it.what, "outcome": outcome, "why": why, "cases": it.cases})
        })
        .collect();
    let repeats: Vec<Value> = page
        .repeats
        .iter()
        .map(|it| match &it.seen {
            Repeated::NotTried(why) => json!({"what": it.what, "not_tried": why}),
            Repeated::Same(comparisons) => json!({"what": it.what, "comparisons": comparisons, "differing": 0}),
            Repeated::Differs { differing, comparisons, first } => {
                json!({"what": it.what, "comparisons": comparisons, "differing": differing, "first": first})
            }
        })
        .collect();
    json!({
        "kernel": page.name,
        "identity": {
            "name": identity.name, "version": identity.version, "device": identity.device, "digest": identity.digest,
            "details": details,
        },
        "conventions": conventions,
        "wrong": wrong,
        "declared": trials,
        "repeats": repeats,
        "formats": page.formats.iter().map(format).collect::<Vec<_>>(),
    })
}

fn format(page: &FormatPage) -> Value {
    let judged = &page.accuracy;
    let it = &judged.accuracy;
    json!({
        "format": page.format.to_string(),
        "recipes": page.recipes.iter().map(recipe).collect::<Vec<_>>(),
        "accuracy": {
            "cases": judged.cases, "left_out": judged.left_out, "judged": it.judged, "correctly_rounded": it.correctly_rounded,
            "above": it.above, "below": it.below, "worst_of_bound": it.worst, "beyond": judged.beyond, "unbounded": it.unbounded,
            "out_of_range": it.out_of_range, "undecided": judged.undecided,
        },
        "relations": page.relations.iter().map(relation).collect::<Vec<_>>(),
    })
}

fn recipe(it: &Recipe) -> Value {
    let answer = match &it.answer {
        Answer::One(name) => json!([name]),
        Answer::Several(names) => json!(names),
        Answer::None => json!([]),
        Answer::NotTried(_) => Value::Null,
    };
    let why = if let Answer::NotTried(why) = &it.answer { Some(why) } else { None };
    let classes: Vec<Value> = it
        .classes
        .iter()
        .map(|class| {
            let (held, decided, refuted) = (class.held, class.decided, class.refuted);
            json!({"name": class.name, "held": held, "decided": decided, "refuted": refuted, "witness": class.witness})
        })
        .collect();
    let path = it.path.map(|path| path.to_string());
    json!({"path": path, "not_excluded": answer, "not_tried": why, "results": it.results, "detail": it.detail, "classes": classes})
}

fn relation(it: &Relation) -> Value {
    let (change, path) = (words::change(it.change), it.path.map(|path| path.to_string()));
    match &it.seen {
        Seen::NotTried(why) => json!({"relation": change, "path": path, "about": it.about, "not_tried": why}),
        Seen::Tried(tried) => {
            let Tried { comparisons, left_out, why_left_out, lengths, batches, normal, designed, lse, breaks } = &**tried;
            json!({
                "relation": change, "path": path, "about": it.about, "cases": comparisons, "left_out": left_out,
                "why_left_out": why_left_out, "lengths": lengths, "batches": batches,
                "normal": share(*normal), "designed": share(*designed), "lse": share(*lse),
                "breaks": breaks.as_ref().map(|it| json!({
                    "positions": it.positions, "batch": it.batch, "value": it.value, "smallest": it.minimal.as_ref().map(minimal),
                })),
            })
        }
    }
}

fn share(it: Share) -> Value {
    json!({"differing": it.differing, "compared": it.compared})
}

fn minimal(it: &Minimal) -> Value {
    json!({
        "case": it.summary, "relation": it.relation, "element": it.element, "cause": it.cause, "positions": it.positions,
        "file": it.file,
    })
}
