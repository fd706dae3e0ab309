//! Markdown, JUnit, SARIF and Trace JSONL, each read by a parser of its own kind.

use super::fixture;
use lastbit::certify::certificate::Status;
use lastbit::certify::statement::Statement;
use lastbit::report;
use roxmltree::{Document, Node};
use serde_json::Value;

fn all() -> [Statement; 3] {
    [fixture::passing(), fixture::failing(), fixture::unverifiable()]
}

fn children<'a>(node: Node<'a, 'a>, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.children().filter(move |child| child.has_tag_name(name))
}

#[test]
fn in_junit_nothing_but_a_pass_looks_like_one() {
    for statement in all() {
        let xml = report::junit(&statement, "out/cert.json");
        let document = Document::parse(&xml).unwrap();
        let suite = children(document.root_element(), "testsuite").next().unwrap();
        let claims = &statement.predicate.lastbit.claims;
        let cases: Vec<_> = children(suite, "testcase").collect();
        assert_eq!(cases.len(), claims.len());
        for (case, claim) in cases.iter().zip(claims) {
            assert_eq!(case.attribute("name"), Some(claim.claim.as_str()));
            let told: Vec<&str> = case.children().filter(Node::is_element).map(|it| it.tag_name().name()).collect();
            let expected: &[&str] = match (claim.status, &claim.waived) {
                (Status::Pass, _) => &[],
                (Status::Fail, None) => &["failure"],
                (Status::Fail, Some(_)) => &["skipped", "system-out"],
                (Status::Unverifiable, _) => &["error"],
            };
            assert_eq!(told, expected, "{}", claim.claim);
        }
        for (attribute, element) in [("failures", "failure"), ("errors", "error"), ("skipped", "skipped")] {
            let number = cases.iter().filter(|case| children(**case, element).next().is_some()).count();
            assert_eq!(suite.attribute(attribute), Some(number.to_string().as_str()), "{attribute}");
        }
        assert_eq!(suite.attribute("timestamp"), Some("2026-11-30T03:22:43"));
    }
    let xml = report::junit(&fixture::failing(), "out/cert.json");
    let document = Document::parse(&xml).unwrap();
    let failure = document.descendants().find(|it| it.has_tag_name("failure")).unwrap().text().unwrap();
    assert!(failure.contains("\nreplay: lastbit replay out/counterexamples/mismatch-129.case\n"), "{failure}");
    assert!(failure.contains("\ncause: blocking: blocks: 0..128, 128..129 against 0..129\n"), "{failure}");
}

/// What the schema of SARIF 2.1.0 requires of the objects that are used, and what code scanning requires besides.
#[test]
fn sarif_has_a_result_for_each_case_and_each_open_claim() {
    for statement in all() {
        let it = &statement.predicate.lastbit;
        let log: Value = serde_json::from_str(&report::sarif(&statement, "out/cert.json")).unwrap();
        assert_eq!(log["version"], "2.1.0");
        let [run] = log["runs"].as_array().unwrap().as_slice() else { panic!("one run") };
        assert_eq!(run["tool"]["driver"]["name"], "lastbit");
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), it.claims.len());
        let results = run["results"].as_array().unwrap();
        for result in results {
            assert!(!result["message"]["text"].as_str().unwrap().is_empty());
            let place = result["ruleIndex"].as_u64().unwrap() as usize;
            assert_eq!(rules[place]["id"], result["ruleId"]);
            let location = &result["locations"][0];
            let uri = location["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
            assert!(uri.starts_with("out/counterexamples/") || uri == "out/cert.json", "{uri}");
            assert!(location["physicalLocation"]["region"]["startLine"].as_u64() >= Some(1));
            assert_eq!(location["logicalLocations"][0]["name"], it.kernels[0].name.as_str());
            assert!(!result["partialFingerprints"]["primaryLocationLineHash"].as_str().unwrap().is_empty());
        }
        let levels = |level: &str| results.iter().filter(|result| result["level"] == level).count();
        let open = it.claims.iter().filter(|claim| claim.status == Status::Unverifiable).count();
        assert_eq!((levels("warning"), levels("error") + levels("warning")), (open, results.len()));
        // Every claim that is not PASS is told of, by a result of its own or by a case that names it.
        for claim in it.claims.iter().filter(|claim| claim.status != Status::Pass) {
            let name = Value::from(claim.claim.as_str());
            let told = |result: &Value| {
                result["ruleId"] == name || result["properties"]["claims"].as_array().is_some_and(|claims| claims.contains(&name))
            };
            assert!(results.iter().any(told), "{}", claim.claim);
        }
    }
    let log: Value = serde_json::from_str(&report::sarif(&fixture::failing(), "cert.json")).unwrap();
    let suppressed: Vec<&Value> =
        log["runs"][0]["results"].as_array().unwrap().iter().filter(|it| !it["suppressions"].is_null()).collect();
    assert_eq!(suppressed.len(), 1);
    assert_eq!(
        (&suppressed[0]["ruleId"], &suppressed[0]["suppressions"][0]["status"]),
        (&"split_invariant".into(), &"accepted".into())
    );
}

/// The rules of `flashinfer_bench.data.trace` (0.1.2), field by field.
#[test]
fn traces_keep_the_rules_of_their_schema() {
    for statement in all() {
        let it = &statement.predicate.lastbit;
        let text = report::trace(&statement, "out/cert.json");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of_cases: usize = it.claims.iter().map(|claim| claim.counterexamples.len()).sum();
        assert_eq!(lines.len(), it.claims.len() + of_cases);
        for line in &lines {
            let filled = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
            let (workload, evaluation) = (&line["workload"], &line["evaluation"]);
            assert!(filled(&line["definition"]) && filled(&line["solution"]) && filled(&workload["uuid"]));
            assert!(workload["axes"].as_object().unwrap().values().all(Value::is_u64));
            assert!(workload["inputs"].as_object().unwrap().is_empty());
            assert!(filled(&evaluation["timestamp"]) && filled(&evaluation["environment"]["hardware"]));
            assert!(evaluation["environment"]["libs"].as_object().unwrap().values().all(Value::is_string));
            let has = (evaluation["correctness"].is_object(), evaluation["performance"].is_object());
            let expected = match evaluation["status"].as_str().unwrap() {
                "PASSED" => (true, true),
                "INCORRECT_NUMERICAL" => (true, false),
                "RUNTIME_ERROR" => (false, false),
                other => panic!("{other}"),
            };
            assert_eq!(has, expected);
        }
        for (line, claim) in lines.iter().zip(&it.claims) {
            assert_eq!(line["evaluation"]["status"] == "PASSED", claim.status == Status::Pass, "{}", claim.claim);
        }
    }
}

#[test]
fn the_summary_is_short_and_says_all() {
    for statement in all() {
        let text = report::markdown(&statement, "cert.json");
        let it = &statement.predicate.lastbit;
        let rows = text.lines().filter(|line| line.starts_with("| <code>")).count();
        assert_eq!(rows, it.claims.len());
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| columns(line) == 6), "{text}");
        assert!(text.contains("lastbit verify cert.json --sample 1%"));
        assert_eq!(text.matches("<details>").count(), it.counterexamples.len());
        assert_eq!(text.matches("<details>").count(), text.matches("</details>").count());
    }
    let text = report::markdown(&fixture::failing(), "cert.json");
    assert!(
        text.starts_with("## \u{274c} FAIL\n\n<code>lastbit\\: 12 claims, 7 PASS, 4 FAIL, 1 UNVERIFIABLE</code>\n"),
        "{text}"
    );
    assert!(report::markdown(&fixture::unverifiable(), "c").starts_with("## \u{26a0}\u{fe0f} UNVERIFIABLE\n"));
}
