//! What the cases covered, and what was left out and why.

use super::super::words::{count, share};
use super::Section;
use super::parts::{counts, digest, facts, fold, scroll};
use crate::certify::certificate::{Boundary, Certificate, Counts, StratumResult, Ways};
use maud::{Markup, html};

/// Places at a boundary, in the order in which a sequence grows through them.
const PLACES: [&str; 9] = ["1", "g-1", "g", "g+1", "2g", "2g+1", "3g-1", "other multiple", "elsewhere"];

pub(super) fn section(it: &Certificate) -> Section {
    let coverage = &it.coverage;
    let body = html! {
        h3 { "Parts of the case space" }
        (strata(&it.strata))
        h3 { "Ranges" }
        (scroll("Ranges", &ranges(it)))
        h3 { "Pairs of knob values" }
        (ways(&coverage.pairs, "pair"))
        @if let Some(triples) = &coverage.triples { h3 { "Triples of knob values" } (ways(triples, "triple")) }
        h3 { "Boundaries" }
        @if coverage.boundaries.is_empty() { p.quiet { "No size is in play." } } @else { (boundaries(&coverage.boundaries)) }
        h3 { "Values" }
        (facts(&coverage.values.iter().map(|(name, values)| (name.as_str(), inline(values))).collect::<Vec<_>>()))
        h3 { "Skipped" }
        (counts(&sum(&it.strata, |stratum| &stratum.skipped), "reason", "No case was skipped."))
        h3 { "Left out" }
        (counts(&sum(&it.strata, |stratum| &stratum.left_out), "reason", "Nothing was left out: the kernels do all that was drawn."))
    };
    let about = html! { p { "Which cases were made, which ran, and which a kernel refused or does not do. What did not run is no pass." } };
    Section { id: "coverage", title: "Coverage", about, body }
}

fn sum<'a>(strata: &'a [StratumResult], of: impl Fn(&'a StratumResult) -> &'a Counts) -> Counts {
    let mut all = Counts::new();
    for (reason, n) in strata.iter().flat_map(of) {
        *all.entry(reason.clone()).or_default() += n;
    }
    all
}

fn strata(strata: &[StratumResult]) -> Markup {
    let table = html! {
        table.plain {
            thead {
                tr {
                    th scope="col" { "part" }
                    @for name in ["generated", "run", "skipped", "undecided", "failed", "elements", "differing"] {
                        th.number scope="col" { (name) }
                    }
                }
            }
            tbody {
                @for it in strata {
                    @let skipped = it.skipped.values().sum();
                    tr {
                        th scope="row" { (it.name) span.quiet { (it.about) } }
                        @for n in [it.generated, it.run, skipped, it.undecided, it.failed, it.elements, it.differing] {
                            td.number.zero[n == 0] { (count(n)) }
                        }
                    }
                }
            }
        }
    };
    let digests = html! {
        p { "SHA-256 over every bit that the cases put out, and over their records, in the order of their numbers. Two machines that found "
            "the same have the same." }
        (facts(&strata.iter().map(|it| (it.name.as_str(), html! { div { "outputs " (digest(&it.outputs)) } div { "records " (digest(&it.records)) } }))
            .collect::<Vec<_>>()))
    };
    html! { (scroll("Parts of the case space", &table)) (fold(&html! { "Digests of the parts" }, &digests)) }
}

fn ranges(it: &Certificate) -> Markup {
    html! {
        table.plain.narrow {
            thead { tr { th scope="col" { "feature" } th.number scope="col" { "smallest" } th.number scope="col" { "largest" } } }
            tbody {
                @for (name, [least, most]) in &it.coverage.ranges {
                    tr { th scope="row" { (name) } td.number { (count(*least)) } td.number { (count(*most)) } }
                }
            }
        }
    }
}

fn inline(values: &Counts) -> Markup {
    html! { ul.inline { @for (name, n) in values { li { (name) " " b { (count(*n)) } } } } }
}

fn ways(it: &Ways, what: &str) -> Markup {
    html! {
        p.large {
            b { (share(it.covered, it.valid)) } " of the " (count(it.valid)) " valid " (what) "s ran"
            @if it.covered < it.valid { ", " (count(it.covered)) } ". Of " (count(it.all)) " in all, "
            (count(it.excluded.values().sum())) " are excluded."
        }
        @if !it.missing.is_empty() {
            p { "Missing" @if it.missing.len() as u64 != it.valid.saturating_sub(it.covered) { ", the first " (it.missing.len()) } ":" }
            ul.list { @for missing in &it.missing { li { (missing) } } }
        }
        @if !it.excluded.is_empty() { (fold(&html! { "Why " (what) "s are excluded" }, &counts(&it.excluded, "reason", ""))) }
        (fold(&html! { "Knobs and their values" }, &facts(
            &it.knobs.iter().map(|(name, values)| (name.as_str(), html! { (values.join(", ")) })).collect::<Vec<_>>()
        )))
    }
}

fn boundaries(boundaries: &[Boundary]) -> Markup {
    let known = |place: &&str| boundaries.iter().any(|it| it.hits.contains_key(*place));
    let mut places: Vec<&str> = PLACES.into_iter().filter(known).collect();
    for place in boundaries.iter().flat_map(|it| it.hits.keys()) {
        if !places.contains(&place.as_str()) {
            places.push(place);
        }
    }
    let table = html! {
        table.plain {
            caption { "Cases whose longest sequence ends at a place of the size g" }
            thead { tr { th scope="col" { "size g" } @for place in &places { th.number scope="col" { (place) } } } }
            tbody {
                @for it in boundaries {
                    tr {
                        th scope="row" { (it.name) }
                        @for place in &places {
                            @let n = it.hits.get(*place).copied().unwrap_or_default();
                            td.number.zero[n == 0] { (count(n)) }
                        }
                    }
                }
            }
        }
    };
    scroll("Cases at boundaries, scrolls", &table)
}
