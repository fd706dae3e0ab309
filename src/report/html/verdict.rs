//! The top of the page, and its end.

use super::super::verdict::Verdict;
use super::super::words::count;
use super::parts::{self, digest, sign};
use crate::certify::certificate::Certificate;
use maud::{Markup, html};

pub(super) fn top(it: &Certificate) -> Markup {
    let verdict = Verdict::of(it);
    // Four letters can be larger than twelve.
    let class = format!("{}{}", parts::name(verdict.status()), if verdict.word().len() > 4 { " long" } else { "" });
    let [train, infer] = &it.kernels;
    let run: u64 = it.strata.iter().map(|stratum| stratum.run).sum();
    let battery = &it.battery;
    html! {
        header {
            p.product { "lastbit" span { "certificate" } }
            h1 class=(class) { (sign(verdict.status())) (verdict.word()) }
            p.lead { (Verdict::sentence(it)) }
            p.status { code { (it.status) } }
            dl.key {
                div.wide { dt { "Training" } dd { code { (train.words) } } }
                div.wide { dt { "Inference" } dd { code { (infer.words) } } }
                div { dt { "Battery" } dd { (battery.name) span.quiet { " version " (battery.version) ", seed " (battery.seed) } } }
                div { dt { "Cases run" } dd { (count(run)) } }
                div { dt { "Elements compared" } dd { (count(it.results.compared)) } }
                div { dt { "Finished" } dd { (it.environment.finished) } }
                div.all { dt { "Digest" } dd { (digest(&it.digest)) } }
            }
        }
    }
}

pub(super) fn end(it: &Certificate, file: &str) -> Markup {
    let verify = format!("lastbit verify {} --sample 1%", shell_words::quote(file));
    html! {
        footer {
            h2 { "Check it yourself" }
            p { "This page repeats what the certificate says. The command makes a sample of its cases again and compares every bit." }
            (parts::wrapped(&verify))
            p.quiet { "Drawn by lastbit " (env!("CARGO_PKG_VERSION")) " from a certificate of lastbit " (it.lastbit) "." }
        }
    }
}
