//! A certificate is read, or refused with the file, the field and the reason; the command line writes what is asked.

use super::fixture;
use lastbit::certify::statement::Statement;
use serde_json::{Value, json};
use std::process::{Command, Output};

/// `fixture::failing` as a file, for whoever draws reports without this test suite.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/report/failing.json");

fn text(statement: &Statement) -> String {
    serde_json::to_string_pretty(statement).unwrap() + "\n"
}

#[test]
fn the_kept_certificate_is_the_built_one() {
    let kept = std::fs::read_to_string(KEPT).unwrap();
    assert!(kept == text(&fixture::failing()), "write it again: cargo test --test report write_the_kept -- --ignored");
    assert_eq!(Statement::read("failing.json", &kept).unwrap(), fixture::failing());
}

#[test]
#[ignore = "writes the kept certificate"]
fn write_the_kept_certificate() {
    std::fs::write(KEPT, text(&fixture::failing())).unwrap();
}

#[test]
fn what_is_wrong_is_named_by_its_field() {
    let refused = |edit: &dyn Fn(&mut Value)| {
        let mut value = serde_json::to_value(fixture::failing()).unwrap();
        edit(&mut value);
        Statement::read("cert.json", &value.to_string()).unwrap_err().to_string()
    };
    let expect = |edit: &dyn Fn(&mut Value), start: &str| {
        let error = refused(edit);
        assert!(error.starts_with(start), "{error}");
    };
    expect(
        &|it| it["predicate"]["lastbit"]["claims"][3]["failed"] = json!("many"),
        "cert.json: predicate.lastbit.claims[3].failed: ",
    );
    expect(&|it| it["_type"] = json!("other"), "cert.json: _type: is `other`");
    expect(&|it| it["predicateType"] = Value::Null, "cert.json: predicateType: is missing");
    expect(&|it| it["predicate"]["lastbit"]["format"] = json!(7), "cert.json: predicate.lastbit.format: is 7; this version");
    expect(&|it| it["predicate"]["lastbit"]["mood"] = json!(7), "cert.json: predicate.lastbit.mood: unknown field");
    expect(
        &|it| it["predicate"]["lastbit"]["coverage"]["maps"][1]["cells"] = json!([]),
        "cert.json: predicate.lastbit.coverage.maps[1].cells: ",
    );
    expect(&|it| it["predicate"]["lastbit"]["claims"] = json!([]), "cert.json: predicate.lastbit.claims: is empty");
    // A claim that was made to pass, or a failure taken off the list.
    expect(&|it| it["predicate"]["lastbit"]["claims"][0]["status"] = json!("PASS"), "cert.json: predicate.passedTests: ");
    expect(&|it| it["predicate"]["failedTests"] = json!([]), "cert.json: predicate.failedTests: ");
    expect(&|it| it["predicate"]["result"] = json!("PASSED"), "cert.json: predicate.result: ");
    let error = Statement::read("cert.json", "{\n  \"a\": ,\n").unwrap_err().to_string();
    assert!(error.starts_with("cert.json:2: is no JSON: "), "{error}");
}

fn lastbit(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lastbit")).args(arguments).output().unwrap()
}

#[test]
fn the_command_writes_what_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let files = ["html", "markdown", "junit", "sarif", "trace"];
    let mut arguments = vec!["report".to_owned(), KEPT.to_owned()];
    for name in files {
        arguments.extend([format!("--{name}"), path(name)]);
    }
    let output = lastbit(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((output.status.code(), output.stdout.len(), output.stderr.len()), (Some(0), 0, 0), "{output:?}");
    for name in files {
        let to_stdout = lastbit(&["report", KEPT, &format!("--{name}"), "-"]);
        assert_eq!(to_stdout.status.code(), Some(0));
        assert!(!to_stdout.stdout.is_empty() && to_stdout.stdout == std::fs::read(path(name)).unwrap(), "{name}");
    }
}

#[test]
fn the_command_refuses_what_makes_no_sense() {
    let refused = |arguments: &[&str], with: u8, about: &str| {
        let output = lastbit(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(with.into()), "{stderr}");
        assert!(stderr.contains(about), "{stderr}");
    };
    refused(&["report", KEPT], 2, "required");
    refused(&["report", "nowhere.json", "--html", "-"], 2, "nowhere.json: cannot be read");
    refused(&["report", KEPT, "--html", "-", "--junit", "-"], 2, "only one report can go to stdout");
    refused(&["report", "Cargo.toml", "--html", "-"], 2, "Cargo.toml:1: is no JSON");
    refused(&["report", KEPT, "--html", "/nowhere/x.html"], 74, "/nowhere/x.html");
    // Nothing replaces a certificate, what belongs to it, or another report.
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::copy(KEPT, path("cert.json")).unwrap();
    std::fs::create_dir(path("counterexamples")).unwrap();
    for name in ["cert.json", "cert.json.sig", "cert.cases.jsonl", "counterexamples/mismatch-129.case"] {
        refused(&["report", &path("cert.json"), "--html", &path(name)], 2, "would replace the file of the certificate");
    }
    refused(&["report", KEPT, "--html", &path("x"), "--junit", &path("./x")], 2, "would replace the file of --html");
    assert!(std::fs::read(KEPT).unwrap() == std::fs::read(path("cert.json")).unwrap() && !folder.path().join("x").exists());
}
