//! Whether a pass could have been a failure.

use super::super::words::{count, share};
use super::Section;
use super::parts::{counts, facts, fold, label, scroll};
use crate::certify::certificate::{Certificate, Control, Mutants, Power, Status};
use maud::{Markup, html};

pub(super) fn section(it: &Certificate) -> Section {
    let power = &it.power;
    let body = html! {
        h3 { "Planted faults" }
        (mutants(&power.mutants))
        h3 { "Negative controls" }
        @if power.controls.is_empty() { p.quiet { "None ran." } } @else { (scroll("Negative controls", &controls(&power.controls))) }
        h3 { "Another order of addition" }
        (sensitive(power))
        h3 { "Ways that the calls went" }
        @if power.unreached.is_empty() {
            p { "Every way that had to be taken was taken." }
        } @else {
            p { (label(Status::Unverifiable)) " Had to be taken and never were: " b { (power.unreached.join(", ")) } }
        }
        (fold(&html! { "Cases that took each way" }, &counts(&power.reach, "way", "None was counted.")))
    };
    let about = html! { p { "A battery that finds nothing shows nothing, unless it finds what is known to be wrong." } };
    Section { id: "power", title: "Could it have failed", about, body }
}

fn mutants(it: &Mutants) -> Markup {
    let enough = it.planted > 0 && it.killed as f64 >= it.floor * it.planted as f64;
    html! {
        @if it.planted == 0 {
            p { (label(Status::Unverifiable)) " No fault was planted." }
        } @else {
            p.large { b { (count(it.killed)) " of " (count(it.planted)) } " were found. At least "
                (format!("{:.0}%", 100.0 * it.floor)) " must be: " @if enough { "enough." } @else { b { "too few." } } }
            div.beam.killed aria-hidden="true" { span style={ "width:" (format!("{:.2}", 100.0 * it.killed as f64 / it.planted as f64)) "%" } {} }
            @if !it.elsewhere.is_empty() { p {
                "Found only with calls that these kernels do not take, or that pins exclude: "
                @for name in &it.elsewhere { code { (name) } " " }
            } }
            @if !it.survived.is_empty() { p { "Not found: " @for name in &it.survived { code { (name) } " " } } }
        }
    }
}

fn controls(controls: &[Control]) -> Markup {
    html! {
        table.plain {
            thead { tr { th scope="col" { "claim" } th scope="col" { "kernel that must fail it" } th scope="col" { "failed at" } } }
            tbody {
                @for control in controls {
                    tr {
                        th scope="row" { code { (control.claim) } }
                        td { (control.kernel) }
                        td {
                            @match &control.failed_at {
                                Some(case) => (case),
                                None => { (label(Status::Unverifiable)) " nowhere" },
                            }
                        }
                    }
                }
            }
        }
    }
}

fn sensitive(it: &Power) -> Markup {
    let rows: Vec<(&str, Markup)> = it
        .order_sensitive
        .iter()
        .map(|(format, [capable, sensitive])| {
            let value = html! { b { (share(*sensitive, *capable)) } span.quiet { " " (count(*sensitive)) " of " (count(*capable)) " cases" } };
            (format.as_str(), value)
        })
        .collect();
    html! {
        p { "Cases with three keys in a row, and those of them whose bits another order changed: where few are, equal bits say little. The "
            "order was changed in " (it.witness) "." }
        @if rows.is_empty() { p.quiet { "No case has three keys in a row." } } @else { (facts(&rows)) }
    }
}
