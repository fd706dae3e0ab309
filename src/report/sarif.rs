//! SARIF 2.1.0 (OASIS), as code scanning collects it. Each claim is a rule.
//!
//! One result for each counterexample: `error`, at the case file, under the first claim that it fails. One for each claim that fails
//! without a counterexample of its own, at the certificate. One for each claim that is UNVERIFIABLE: `warning`, at the certificate. A
//! failure that is waived is an `error` with an accepted suppression.

use super::{placed, visible};
use crate::certify::certificate::{Certificate, ClaimResult, Counterexample, KernelText, Status};
use crate::certify::statement::Statement;
use serde_json::{Value, json};
use std::path::{Component, Path};

/// A certificate as a SARIF log. `file` is where the certificate lies, relative to the root of what is scanned, or absolute where it lies
/// outside of it; its minimal cases lie beside it.
pub fn sarif(statement: &Statement, file: &str) -> String {
    let statement = placed(statement, file);
    let it = &statement.predicate.lastbit;
    let rules: Vec<Value> = it.claims.iter().map(rule).collect();
    let mut results: Vec<Value> = it.counterexamples.iter().filter_map(|case| of_case(it, case)).collect();
    let shown = |claim: &ClaimResult| results.iter().any(|result| result["ruleId"] == claim.claim.as_str());
    let unshown: Vec<&ClaimResult> = it
        .claims
        .iter()
        .filter(|claim| claim.status == Status::Unverifiable || (claim.status == Status::Fail && !shown(claim)))
        .collect();
    results.extend(unshown.into_iter().map(|claim| of_claim(it, claim, file)));
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "lastbit", "version": it.lastbit, "rules": rules } },
            "automationDetails": { "id": format!("lastbit/{}/", it.battery.name), "description": { "text": it.status } },
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": { "digest": it.digest, "battery": it.battery.sha256 },
        }],
    });
    visible(format!("{log:#}\n"))
}

fn rule(claim: &ClaimResult) -> Value {
    json!({
        "id": claim.claim,
        "name": claim.claim,
        "shortDescription": { "text": claim.sentence },
        "fullDescription": { "text": claim.sentence },
        "help": { "text": "Replay the minimal case with the command in the message; `lastbit explain` on it says why it differs." },
        "defaultConfiguration": { "level": "error" },
    })
}

fn of_case(it: &Certificate, case: &Counterexample) -> Option<Value> {
    let place = it.claims.iter().position(|claim| claim.counterexamples.contains(&case.sha256));
    let place = place.or_else(|| it.claims.iter().position(|claim| case.claims.contains(&claim.claim)))?;
    let claim = &it.claims[place];
    let text = format!("{}\n{}\nCause: {}\nReplay: {}", case.size, case.verdict, case.cause, case.replay);
    let mut result = json!({
        "ruleId": claim.claim,
        "ruleIndex": place,
        "level": "error",
        "message": { "text": text },
        "locations": [location(it, &case.file)],
        "fingerprints": { "lastbitCase/v1": case.sha256 },
        "partialFingerprints": { "primaryLocationLineHash": case.sha256 },
        "properties": { "claims": case.claims, "signature": case.signature, "kind": case.kind, "from": case.from, "kv": case.kv },
    });
    suppress(&mut result, claim);
    Some(result)
}

fn of_claim(it: &Certificate, claim: &ClaimResult, file: &str) -> Value {
    let place = it.claims.iter().position(|other| other.claim == claim.claim);
    let fingerprint = format!("{}/{}", it.battery.sha256, claim.claim);
    let mut result = json!({
        "ruleId": claim.claim,
        "ruleIndex": place,
        "level": if claim.status == Status::Fail { "error" } else { "warning" },
        "message": { "text": format!("{}: {}", claim.status, claim.reason) },
        "locations": [location(it, file)],
        "fingerprints": { "lastbitClaim/v1": fingerprint },
        "partialFingerprints": { "primaryLocationLineHash": fingerprint },
    });
    suppress(&mut result, claim);
    result
}

fn suppress(result: &mut Value, claim: &ClaimResult) {
    if let (Status::Fail, Some(issue)) = (claim.status, &claim.waived) {
        result["suppressions"] = json!([{ "kind": "external", "status": "accepted", "justification": issue }]);
    }
}

fn location(it: &Certificate, file: &str) -> Value {
    let logical = |kernel: &KernelText| json!({ "name": kernel.name, "fullyQualifiedName": kernel.words, "kind": "function" });
    json!({
        "physicalLocation": { "artifactLocation": { "uri": uri(file) }, "region": { "startLine": 1 } },
        "logicalLocations": it.kernels.iter().map(logical).collect::<Vec<_>>(),
    })
}

/// A path as a URI reference (RFC 3986). A relative one stays below where it starts, and is never read as one with a scheme.
fn uri(path: &str) -> String {
    let mut uri = String::from(if Path::new(path).is_absolute() { "file://" } else { "" });
    for part in Path::new(path).components() {
        let Component::Normal(part) = part else { continue };
        if !uri.is_empty() {
            uri.push('/');
        }
        for byte in part.to_string_lossy().bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => uri.push(byte.into()),
                byte => uri.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("counterexamples/a b.case"), "counterexamples/a%20b.case");
        assert_eq!(uri("../../etc/passwd"), "etc/passwd");
        assert_eq!(uri("https://x/y"), "https%3A/x/y");
        assert_eq!(uri("./x"), "x");
        if cfg!(unix) {
            assert_eq!(uri("/abs/a b"), "file:///abs/a%20b");
        }
    }
}
