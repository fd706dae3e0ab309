//! Who the certificate is about, how long it holds, and where it was made.

use super::super::words::{count, counted, duration};
use super::Section;
use super::parts::{digest, facts, fold};
use crate::certify::certificate::{Certificate, KernelText};
use maud::{Markup, html};

pub(super) fn section(it: &Certificate) -> Section {
    let battery = &it.battery;
    let body = html! {
        div.pair { @for kernel in &it.kernels { (one(kernel)) } }
        h3 { "Battery" }
        (facts(&[
            ("Name", html! { (battery.name) ", version " (battery.version) ", seed " (battery.seed) }),
            ("Limits", html! { @if battery.limits.is_empty() { "none" } @else { (battery.limits.join(", ")) } }),
            ("Cases", html! { ul.inline { @for (name, n) in &battery.strata { li { (name) " " b { (count(*n)) } } } } }),
            ("SHA-256", digest(&battery.sha256)),
        ]))
    };
    let about = html! { p { "Digests of what a kernel means, of how it computes and of where it runs are apart, so that a change has a name." } };
    Section { id: "kernels", title: "Kernels and contracts", about, body }
}

fn one(it: &KernelText) -> Markup {
    let fields: Vec<(&str, Markup)> = it.fields.iter().map(|(name, value)| (name.as_str(), html! { (value) })).collect();
    let known = |digest_of: &Option<String>, none: &str| match digest_of {
        Some(text) => digest(text),
        None => html! { span.quiet { (none) } },
    };
    html! {
        div.side {
            h3 { @match it.side.as_str() { "train" => "Training", "infer" => "Inference", other => (other) } }
            (facts(&[
                ("Kernel", html! { code { (it.words) } }),
                ("Calls itself", html! { (it.name) " " (it.version) }),
                ("Semantics", digest(&it.contract.semantics)),
                ("Numerics", digest(&it.contract.numerics)),
                ("Deployment", digest(&it.contract.deployment)),
                ("Source, as declared", known(&it.declared_sha256, "none declared")),
                ("Binary, as measured", known(&it.measured_sha256, "a part of lastbit")),
            ]))
            (fold(&html! { (counted(fields.len() as u64, "field")) " of the contract" }, &facts(&fields)))
        }
    }
}

pub(super) fn validity(it: &Certificate) -> Section {
    let body = html! {
        h3 { "What voids it" }
        @if it.voids.is_empty() { p.quiet { "The certificate names nothing." } } @else {
            ul.list { @for sentence in &it.voids { li { (sentence) } } }
        }
        h3 { "Waivers" }
        @if it.waivers.is_empty() { p.quiet { "None: no failure is accepted." } } @else {
            table.plain {
                thead { tr { th scope="col" { "claim" } th scope="col" { "until" } th scope="col" { "issue" } } }
                tbody {
                    @for waiver in &it.waivers {
                        tr { th scope="row" { code { (waiver.claim) } } td { (waiver.until) } td.any { (waiver.issue) } }
                    }
                }
            }
        }
    };
    let about = html! { p { "When it no longer says anything, and which failures are accepted until when." } };
    Section { id: "validity", title: "Validity", about, body }
}

pub(super) fn environment(it: &Certificate) -> Section {
    let environment = &it.environment;
    let [train, infer] = &environment.devices;
    let body = facts(&[
        ("Platform", html! { (environment.platform) }),
        ("Processor", html! { (environment.processor) }),
        ("Training on", html! { (train) }),
        ("Inference on", html! { (infer) }),
        (
            "Work",
            html! { (duration(environment.seconds)) ", " (counted(environment.threads.into(), "thread")) ", " (counted(environment.shards.into(), "shard")) },
        ),
        ("Finished", html! { (environment.finished) }),
        ("lastbit", html! { (it.lastbit) }),
        ("Programs", html! { @for it in &environment.programs_sha256 { (digest(it)) } }),
    ]);
    let about = html! { p { "Where and when. The digest of the certificate leaves this out: another machine that finds the same has the same." } };
    Section { id: "environment", title: "Environment", about, body }
}
