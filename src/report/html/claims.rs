//! Each claim, what became of it, and why.

use super::super::words::count;
use super::Section;
use super::parts::label;
use crate::certify::certificate::{Certificate, ClaimResult};
use maud::{Markup, html};

pub(super) fn section(it: &Certificate) -> Section {
    let body = html! {
        // Its rows are cards on a narrow screen; the roles keep it a table there for those who cannot see it.
        table.claims role="table" {
            caption.hidden { "Claims of the battery" }
            thead role="rowgroup" {
                tr role="row" {
                    th scope="col" role="columnheader" { "Claim" }
                    th scope="col" role="columnheader" { "Status" }
                    th.number scope="col" role="columnheader" { "Cases" }
                    th.number scope="col" role="columnheader" { "Failed" }
                    th.number scope="col" role="columnheader" { "Elements" }
                    th.number scope="col" role="columnheader" { "Differing" }
                }
            }
            @for (n, claim) in it.claims.iter().enumerate() { (row(it, n, claim)) }
        }
    };
    let about = html! { p { "What the battery set out to show. A claim is PASS only if it could have failed." } };
    Section { id: "claims", title: "Claims", about, body }
}

fn row(it: &Certificate, n: usize, claim: &ClaimResult) -> Markup {
    let shown = it.counterexamples.iter().enumerate().filter(|(_, case)| claim.counterexamples.contains(&case.sha256));
    let shown: Vec<usize> = shown.map(|(n, _)| n + 1).collect();
    let numbers =
        [("Cases", claim.cases), ("Failed", claim.failed), ("Elements", claim.elements), ("Differing", claim.differing)];
    html! {
        tbody role="rowgroup" id={ "claim-" (n + 1) } {
            tr.head role="row" {
                th.claim scope="row" role="rowheader" { code { (claim.claim) } }
                td.verdict role="cell" { (label(claim.status)) }
                @for (name, number) in numbers {
                    td.number.zero[number == 0] role="cell" data-name=(name) { (count(number)) }
                }
            }
            tr.why role="row" {
                td colspan="6" role="cell" {
                    p { (claim.sentence) }
                    p.reason { (claim.reason) }
                    @if let Some(issue) = &claim.waived { p.waived { strong { "Waived" } " under " (issue) } }
                    @if !shown.is_empty() {
                        p.links {
                            "Shown by "
                            @for (place, n) in shown.iter().enumerate() {
                                @if place > 0 { ", " }
                                a href={ "#case-" (n) } { "case " (n) }
                            }
                        }
                    }
                }
            }
        }
    }
}
