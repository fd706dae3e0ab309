//! Every text of a certificate may come from a kernel that wants to do harm.

use super::{fixture, page};
use lastbit::certify::statement::Statement;
use lastbit::report;
use roxmltree::Document;
use serde_json::Value;

const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;]]>`|\u{0}\u{8}\u{1b}[2J\u{202e}\u{fffe}\n# h\n| a |\n```\n@you";

/// Puts the text into every string that a kernel or a file may have a say in.
fn hostile() -> Statement {
    fn spoil(value: &mut Value, key: &str) {
        match value {
            // The grammar of these is fixed; the claims' names are what the lists are held against.
            Value::String(_) if ["_type", "predicateType", "result", "status", "sha256", "side", "tree"].contains(&key) => {}
            Value::String(text) => text.insert_str(text.len() / 2, HOSTILE),
            Value::Array(items) => items.iter_mut().for_each(|item| spoil(item, key)),
            Value::Object(fields) => fields.iter_mut().for_each(|(key, field)| spoil(field, key)),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(fixture::failing()).unwrap();
    spoil(&mut value, "");
    Statement::read("hostile.json", &value.to_string()).unwrap()
}

#[test]
fn the_page_shows_markup_as_text() {
    let html = report::html(&hostile(), HOSTILE);
    let document = page::strict(&html);
    let document = Document::parse(&document).unwrap_or_else(|error| panic!("{error}"));
    for node in document.descendants() {
        assert!(!node.has_tag_name("script") && !node.has_tag_name("img"));
        assert!(node.attributes().all(|attribute| !attribute.name().starts_with("on")), "{node:?}");
    }
    let shown: String = document.descendants().filter(|it| it.is_text()).filter_map(|it| it.text()).collect();
    assert!(shown.matches("<script>alert(1)</script>").count() > 50);
}

#[test]
fn no_format_lets_through_what_does_not_show() {
    let statement = hostile();
    for text in [
        report::html(&statement, HOSTILE),
        report::markdown(&statement, HOSTILE),
        report::junit(&statement, HOSTILE),
        report::sarif(&statement, HOSTILE),
        report::trace(&statement, HOSTILE),
    ] {
        let hidden = |c: char| (c.is_control() && c != '\n' && c != '\t') || ['\u{202e}', '\u{fffe}'].contains(&c);
        assert!(!text.contains(hidden), "{:?}", text.chars().find(|&c| hidden(c)));
    }
}

#[test]
fn junit_sarif_and_traces_still_parse() {
    let statement = hostile();
    let xml = report::junit(&statement, "out/cert.json");
    let document = Document::parse(&xml).unwrap();
    let names: Vec<_> =
        document.descendants().map(|it| it.tag_name().name().to_owned()).filter(|name| !name.is_empty()).collect();
    let known = ["testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "skipped", "system-out"];
    assert!(names.iter().all(|name| known.contains(&name.as_str())), "{names:?}");
    let log: Value = serde_json::from_str(&report::sarif(&statement, HOSTILE)).unwrap();
    for result in log["runs"][0]["results"].as_array().unwrap() {
        let uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
        assert!(uri.chars().all(|c| c.is_ascii_alphanumeric() || "-._~%/".contains(c)), "{uri}");
    }
    assert!(report::trace(&statement, "out/cert.json").lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

/// Outside of fenced blocks no line of the summary is anything that the certificate's texts made it.
#[test]
fn the_summary_keeps_its_shape() {
    let (plain, spoiled) = (fixture::failing(), hostile());
    let lines = |statement: &Statement| -> Vec<String> {
        let mut fence = String::new();
        let mut lines = Vec::new();
        for line in report::markdown(statement, "cert.json").lines() {
            let ticks: String = line.chars().take_while(|&c| c == '`').collect();
            if fence.is_empty() {
                if ticks.len() >= 3 {
                    fence = ticks;
                }
                lines.push(line.chars().take(2).collect());
            } else if line == fence {
                fence.clear();
            }
        }
        assert!(fence.is_empty());
        lines
    };
    // A replay command that cannot be pasted is left out, with its fence and the line after it.
    let commands = plain.predicate.lastbit.counterexamples.len();
    assert_eq!(lines(&plain).len(), lines(&spoiled).len() + 2 * commands);
    let markdown = report::markdown(&spoiled, "cert.json");
    assert!(!markdown.contains("\n# h") || markdown.contains("````"), "{markdown}");
    let outside: String = markdown.split("````").step_by(2).collect();
    assert!(!outside.contains("<script") && !outside.contains("<img"), "{outside}");
}
