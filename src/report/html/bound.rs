//! What can be said of cases that were not run.

use super::super::words::{at_most, count, counted};
use super::Section;
use crate::certify::certificate::Certificate;
use maud::html;

pub(super) fn section(it: &Certificate) -> Section {
    let bound = &it.bound;
    let confidence = (bound.confidence * 1e6).round() / 1e4;
    let body = html! {
        @if bound.cases == 0 {
            p.large { "No case was drawn at random, so nothing can be said." }
        } @else {
            p.large { "With " (confidence) "% confidence, " b { "at most " (at_most(bound.upper)) } " of cases drawn this way fail." }
            p { (counted(bound.cases, "case")) " were drawn and run, and " (count(bound.failed)) " failed. Drawn from: " (bound.distribution)
                ". It says nothing of cases that come another way." }
        }
    };
    let about = html! { p { "Exact one-sided bound (Clopper-Pearson), from the random part alone." } };
    Section { id: "bound", title: "Cases not run", about, body }
}
