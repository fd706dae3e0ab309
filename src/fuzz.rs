//! Bodies of the fuzz targets. They live here so that `cargo test` runs them too; a target decodes nothing by itself.

use crate::subject::attention::check::Pair;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::validate::{validate, work};
use crate::subject::attention::{Case, text};
use arbitrary::{Arbitrary, Unstructured};
use std::cell::RefCell;

/// Most [`work`] of one execution: a fuzzer wants many small cases.
const WORK_MAX: u64 = 4_000_000;

/// One case through the whole check, `aligned` against itself: nothing may fail and nothing may panic.
///
/// Input that begins with `format =` (after comment lines) is the text of a case file, so `.case` files seed the target; anything
/// else is choices, simplest first.
///
/// # Panics
/// When the check finds a failure: that is the report.
pub fn attention(data: &[u8]) {
    let Some(case) = decode(data) else { return };
    if work(&case) > WORK_MAX {
        return;
    }
    let turn = data.iter().fold(0, |turn: u64, &byte| turn.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let trial = Trial { case, checks: Checks::Turn(turn) };
    thread_local! {
        static HARNESS: RefCell<(Pair, crate::subject::attention::check::Scratch)> = RefCell::new({
            let aligned = || Implementation::reference(Reference::parse("ref:aligned").expect("the default preset"));
            let pair = Pair {
                train: aligned(), infer: aligned(), oracle: Mode::Enclosure, captured: None, witness: false,
            };
            let scratch = pair.scratch();
            (pair, scratch)
        });
    }
    HARNESS.with_borrow_mut(|(pair, scratch)| {
        let verdict = pair.check(&trial, scratch);
        // A predicted overflow, or a softcap that the oracle gives up on, is no fault of the check.
        if let Some(finding) = verdict.failure() {
            let file = crate::subject::attention::file::file(String::new(), pair, &trial, Some(finding));
            panic!("{}\n{}", finding.signature(), text::print(&file));
        }
    });
}

/// Hostile text as a case file: refused with a reason, or loaded and printed to the same text for ever.
///
/// # Panics
/// When printing and parsing do not agree.
pub fn case_text(data: &[u8]) {
    let Ok(content) = std::str::from_utf8(data) else { return };
    let Ok(file) = text::parse(content, "input") else { return };
    let printed = text::print(&file);
    let again = text::parse(&printed, "printed").expect("printed text parses");
    assert_eq!(text::print(&again), printed, "printing is not canonical");
}

fn decode(data: &[u8]) -> Option<Case> {
    let as_text = std::str::from_utf8(data).ok().filter(|content| {
        let first = content.lines().find(|line| !line.is_empty() && !line.starts_with('#'));
        first.is_some_and(|line| line.starts_with("format ="))
    });
    let case = match as_text {
        Some(content) => text::parse(content, "input").ok()?.case,
        None => Case::arbitrary(&mut Unstructured::new(data)).ok()?,
    };
    // A case on captured tensors needs its file.
    let own_data = !matches!(case.data, crate::subject::attention::Data::Captured { .. });
    (own_data && validate(&case).is_ok()).then_some(case)
}
