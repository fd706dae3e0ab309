//! Counterexamples, made small, each with what replays it.

use super::Section;
use super::parts::{Room, digest, facts, fold, text, wrapped};
use crate::certify::certificate::{Certificate, Counterexample};
use crate::input_error::can_be_pasted;
use maud::{Markup, html};

pub(super) fn section(it: &Certificate, room: &mut Room) -> Section {
    let body = html! {
        @if it.counterexamples.is_empty() { p.large { "No case failed." } }
        @for (n, case) in it.counterexamples.iter().enumerate() { (one(it, n + 1, case, room)) }
    };
    let about = html! { p { "The smallest case found for each claim and kind of failure. Each replays by itself." } };
    Section { id: "cases", title: "Minimal cases", about, body }
}

fn one(it: &Certificate, n: usize, case: &Counterexample, room: &mut Room) -> Markup {
    let claim = |name: &str| it.claims.iter().position(|claim| claim.claim == name);
    let cause = match case.kind.as_str() {
        kind if case.cause.starts_with(kind) => html! { (case.cause) },
        kind => html! { b { (kind) } " " (case.cause) },
    };
    html! {
        article.case id={ "case-" (n) } aria-labelledby={ "case-" (n) "-title" } {
            h3 id={ "case-" (n) "-title" } { span.ordinal { "Case " (n) } " " (case.size) }
            (facts(&[
                ("Fails", html! {
                    @for name in &case.claims {
                        @match claim(name) {
                            Some(place) => a href={ "#claim-" (place + 1) } { code { (name) } },
                            None => code { (name) },
                        }
                        " "
                    }
                }),
                ("Cause", cause),
                ("Finding", html! { (case.signature) }),
                ("Made from", html! { "case " (case.from) }),
                ("SHA-256", digest(&case.sha256)),
            ]))
            (wrapped(&case.verdict))
            h4 { "Replay" }
            @if can_be_pasted(&case.replay) {
                (wrapped(&case.replay))
            } @else {
                p.quiet { "The command has characters that do not show; the certificate has it." }
            }
            @if room.take(&case.text) {
                (fold(&html! { "Case file " code { (case.file) } }, &text(&format!("Text of case {n}"), &case.text)))
            } @else {
                p.quiet { "The case is in " code { (case.file) } "; it is too long for this page." }
            }
        }
    }
}
