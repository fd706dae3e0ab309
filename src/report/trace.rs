//! Trace JSONL of flashinfer-bench (`flashinfer_bench.data.Trace`, 0.1.2): a line for each claim, its workload being the battery, then a
//! line for each counterexample and claim that it fails, its workload being that case.
//!
//! | field | here |
//! |---|---|
//! | `definition` | `lastbit_CLAIM` |
//! | `solution` | the two kernels, `TRAIN against INFER` |
//! | `workload.axes` | of a claim `cases` and `elements`; of a case `kv` |
//! | `workload.inputs` | empty: inputs are drawn or in the case file |
//! | `workload.uuid` | digest of the battery and the claim; digest of the case |
//! | `evaluation.status` | PASS is `PASSED`, FAIL `INCORRECT_NUMERICAL`; UNVERIFIABLE is `RUNTIME_ERROR`, the schema having nothing nearer that is no pass; `log` says so |
//! | `correctness.max_*_error` | `"NaN"`: a certificate compares bits and ULPs, and the schema has no null here |
//! | `correctness.extra` | what was measured |
//! | `performance` | `{}` with PASSED, which must have one: nothing was timed, and the zeros that a reader fills in are the schema's own |

use super::{placed, visible};
use crate::certify::certificate::{Certificate, ClaimResult, Status};
use crate::certify::statement::Statement;
use serde_json::{Map, Value, json};

/// A certificate as lines of JSON. `file` is how the reader calls the certificate.
pub fn trace(statement: &Statement, file: &str) -> String {
    let statement = placed(statement, file);
    let it = &statement.predicate.lastbit;
    let claims = it.claims.iter().map(|claim| of_claim(it, claim));
    let cases = it.claims.iter().flat_map(|claim| cases(it, claim));
    visible(claims.chain(cases).map(|line| format!("{line}\n")).collect())
}

fn of_claim(it: &Certificate, claim: &ClaimResult) -> Value {
    let mut evaluation = evaluation(it, &format!("{}: {}", claim.status, claim.reason));
    let extra = json!({
        "claim": claim.sentence,
        "status": claim.status,
        "cases": claim.cases,
        "failed": claim.failed,
        "elements": claim.elements,
        "differing": claim.differing,
        "waived": claim.waived,
        "digest": it.digest,
    });
    match claim.status {
        Status::Pass => {
            evaluation["status"] = "PASSED".into();
            evaluation["correctness"] = correctness(extra);
            evaluation["performance"] = json!({});
        }
        Status::Fail => {
            evaluation["status"] = "INCORRECT_NUMERICAL".into();
            evaluation["correctness"] = correctness(extra);
        }
        Status::Unverifiable => evaluation["status"] = "RUNTIME_ERROR".into(),
    }
    line(
        it,
        claim,
        json!({
            "axes": { "cases": claim.cases, "elements": claim.elements },
            "inputs": {},
            "uuid": format!("{}-{}", it.battery.sha256, claim.claim),
        }),
        evaluation,
    )
}

fn cases<'a>(it: &'a Certificate, claim: &'a ClaimResult) -> impl Iterator<Item = Value> + 'a {
    let of_claim = it.counterexamples.iter().filter(|case| claim.counterexamples.contains(&case.sha256));
    of_claim.map(move |case| {
        let mut evaluation = evaluation(it, &format!("{}\ncause: {}\nreplay: {}", case.verdict, case.cause, case.replay));
        evaluation["status"] = "INCORRECT_NUMERICAL".into();
        evaluation["correctness"] = correctness(json!({
            "signature": case.signature,
            "size": case.size,
            "cause": case.cause,
            "kind": case.kind,
            "file": case.file,
            "from": case.from,
            "waived": claim.waived,
        }));
        line(it, claim, json!({ "axes": { "kv": case.kv }, "inputs": {}, "uuid": case.sha256 }), evaluation)
    })
}

fn line(it: &Certificate, claim: &ClaimResult, workload: Value, evaluation: Value) -> Value {
    let [train, infer] = &it.kernels;
    json!({
        "definition": format!("lastbit_{}", claim.claim),
        "workload": workload,
        "solution": format!("{} against {}", train.words, infer.words),
        "evaluation": evaluation,
    })
}

/// Without a status. Neither text may be empty.
fn evaluation(it: &Certificate, log: &str) -> Value {
    let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    let environment = &it.environment;
    let mut libraries = Map::new();
    libraries.insert("lastbit".into(), it.lastbit.clone().into());
    for kernel in &it.kernels {
        libraries.insert(format!("{}:{}", kernel.side, kernel.name), kernel.version.clone().into());
    }
    let [train, infer] = &environment.devices;
    let hardware = if train == infer { known(train) } else { format!("{train}, {infer}") };
    json!({
        "status": null,
        "environment": { "hardware": hardware, "libs": libraries },
        "timestamp": known(&environment.finished),
        "log": log,
        "correctness": null,
        "performance": null,
    })
}

fn correctness(extra: Value) -> Value {
    json!({ "max_relative_error": "NaN", "max_absolute_error": "NaN", "extra": extra })
}
