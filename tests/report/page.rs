//! The HTML page, as far as it can be judged without a browser; `tests/browser` has the rest.

use super::fixture;
use lastbit::certify::certificate::Status;
use lastbit::certify::statement::Statement;
use lastbit::report;
use roxmltree::{Document, Node};
use std::collections::BTreeSet;

/// The page is XML but for its document type and the elements that never have an end tag, which a strict parser then reads.
pub fn strict(page: &str) -> String {
    let mut text = page.strip_prefix("<!DOCTYPE html>").expect("a document type").to_owned();
    for void in ["<meta ", "<link "] {
        let mut from = 0;
        while let Some(start) = text[from..].find(void).map(|start| from + start) {
            let end = start + text[start..].find('>').unwrap();
            text.insert(end, '/');
            from = end;
        }
    }
    text
}

fn page(statement: &Statement) -> String {
    report::html(statement, "cert.json")
}

fn text_of(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|it| it.text()).collect()
}

#[test]
fn the_page_is_well_formed_and_asks_for_nothing() {
    for statement in [fixture::passing(), fixture::failing(), fixture::unverifiable()] {
        let html = page(&statement);
        assert_eq!(html, page(&statement));
        let strict = strict(&html);
        let document = Document::parse(&strict).unwrap_or_else(|error| panic!("{error}\n{strict}"));
        assert_eq!(document.root_element().attribute("lang"), Some("en"));
        let mut ids = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut headings = Vec::new();
        for node in document.descendants().filter(Node::is_element) {
            let tag = node.tag_name().name();
            assert!(!["script", "iframe", "object", "embed", "img", "form", "base"].contains(&tag), "{tag}");
            for attribute in node.attributes() {
                assert!(!attribute.name().starts_with("on"), "{attribute:?}");
            }
            if let Some(id) = node.attribute("id") {
                assert!(ids.insert(id), "{id} twice");
            }
            if node.attribute("tabindex").is_some() {
                assert!(names.insert(node.attribute("aria-label").expect("a name")), "{node:?}");
            }
            if let Some(level) = tag.strip_prefix('h').and_then(|level| level.parse::<u32>().ok()) {
                headings.push(level);
            }
            if tag == "th" {
                assert!(node.attribute("scope").is_some(), "{node:?}");
            }
            if tag == "svg" {
                let title = node.first_element_child().is_some_and(|child| child.has_tag_name("title"));
                assert!(node.attribute("aria-hidden").is_some() || (node.attribute("role") == Some("img") && title), "{node:?}");
            }
        }
        // Links lead to places in the page; nothing else is fetched.
        for node in document.descendants().filter(|node| node.attribute("href").is_some() || node.attribute("src").is_some()) {
            let target = node.attribute("href").or(node.attribute("src")).unwrap();
            assert!(target == "data:," || target.strip_prefix('#').is_some_and(|id| ids.contains(id)), "{target}");
        }
        for outside in ["url(", "@import", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(headings.iter().filter(|&&level| level == 1).count(), 1);
        assert!(headings.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{headings:?}");
        assert!(html.len() < 2 << 20);
    }
}

#[test]
fn the_verdict_is_on_top_and_each_claim_has_its_reason() {
    for (statement, word) in
        [(fixture::passing(), "PASS"), (fixture::failing(), "FAIL"), (fixture::unverifiable(), "UNVERIFIABLE")]
    {
        let strict = strict(&page(&statement));
        let document = Document::parse(&strict).unwrap();
        let heading = document.descendants().find(|node| node.has_tag_name("h1")).unwrap();
        assert_eq!(text_of(heading), word);
        for (n, claim) in statement.predicate.lastbit.claims.iter().enumerate() {
            let id = format!("claim-{}", n + 1);
            let row = text_of(document.descendants().find(|node| node.attribute("id") == Some(id.as_str())).unwrap());
            assert!(row.contains(&claim.reason) && row.contains(&claim.status.to_string()), "{row}");
            assert_eq!(row.contains("Waived"), claim.waived.is_some());
        }
        let cases = document.descendants().filter(|node| node.has_tag_name("article")).map(text_of);
        for (text, case) in cases.zip(&statement.predicate.lastbit.counterexamples) {
            assert!(text.contains(&case.replay) && text.contains(&case.cause) && text.contains(case.text.trim_end()));
        }
    }
}

#[test]
fn only_waived_failures_are_a_verdict_of_their_own() {
    let mut it = fixture::passing().predicate.lastbit;
    it.claims[2].status = Status::Fail;
    it.claims[2].waived = Some("https://example.org/1".into());
    let html = page(&fixture::finished(it));
    assert!(html.contains("FAIL, waived</h1>") && html.contains("1 fails and is waived"), "{html}");
}

#[test]
fn each_cell_of_a_map_says_in_words_what_it_is() {
    let statement = fixture::failing();
    let strict = strict(&page(&statement));
    let document = Document::parse(&strict).unwrap();
    let maps: Vec<_> = document.descendants().filter(|node| node.attribute("class") == Some("map")).collect();
    assert_eq!(maps.len(), statement.predicate.lastbit.coverage.maps.len());
    for (table, map) in maps.iter().zip(&statement.predicate.lastbit.coverage.maps) {
        let words = table.descendants().filter(|node| node.has_tag_name("td") && node.attribute("class") != Some("corner"));
        let words: Vec<String> = words
            .map(|cell| text_of(cell.descendants().find(|node| node.attribute("class") == Some("hidden")).unwrap()))
            .collect();
        let expected = map.cells.iter().flatten().map(|&[passed, failed, left]| {
            let parts = [(passed, "passed"), (failed, "failed"), (left, "not judged")];
            let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
            if parts.is_empty() { "no case".to_owned() } else { parts.join(", ") }
        });
        assert_eq!(words, expected.collect::<Vec<_>>());
    }
}

#[test]
fn trees_stand_beside_those_they_are_compared_with() {
    let mut it = fixture::failing().predicate.lastbit;
    it.trees[0].of = "PV, prefill".into();
    it.trees[1].of = "PV, decode".into();
    let html = page(&fixture::finished(it));
    let (part, rest) = html.split_once("<h3>PV, prefill, against PV, decode</h3>").unwrap().1.split_once("<h3>").unwrap();
    assert!(part.contains("They part: ") && part.contains("Training") && part.contains("Inference"), "{part}");
    assert!(rest.starts_with("QK over 8 dims</h3><p>Both sides add in the same order.</p>"), "{rest}");
}

#[test]
fn a_page_keeps_its_size_whatever_is_put_in() {
    let mut it = fixture::failing().predicate.lastbit;
    it.counterexamples[0].text = "<".repeat(4 << 20);
    it.trees[0].tree = format!("({})", "7 ".repeat(1 << 20));
    // Deep in its shape, if not in its text.
    it.trees[1].tree = format!("({})", "7 ".repeat(1500));
    let template = it.counterexamples[1].clone();
    it.counterexamples
        .extend((0..200).map(|n| lastbit::certify::certificate::Counterexample { sha256: format!("{n}"), ..template.clone() }));
    let html = page(&fixture::finished(it));
    assert!(html.len() < 2 << 20, "{}", html.len());
    assert!(html.contains("it is too long for this page"));
}
