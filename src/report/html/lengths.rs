//! Divergence against length: which lengths came, in which the bits differ, and where a block, page or split ends.

use super::super::words::{count, counted, length_bin, share};
use super::Section;
use super::parts::scroll;
use crate::certify::certificate::{Certificate, LengthBin};
use maud::{Markup, html};
use std::collections::BTreeMap;

pub(super) fn section(it: &Certificate) -> Section {
    let bins = &it.coverage.lengths;
    let differ = it.counterexamples.iter().map(|case| case.kv).min();
    let cases = bins.iter().map(|bin| bin.cases).sum::<u64>();
    let mismatched = bins.iter().map(|bin| bin.mismatched).sum::<u64>();
    let body = html! {
        @if cases == 0 {
            p { "No case ran." }
        } @else if mismatched == 0 {
            p.large { "The two sides agree at every length." }
        } @else {
            p.large { "The bits differ in " b { (counted(mismatched, "case")) } " of " (count(cases))
                @if let Some(shortest) = differ { ". The shortest minimal case has " b { (counted(shortest.into(), "position")) } } "." }
        }
        @if !bins.is_empty() {
            figure {
                figcaption { b { "Cases whose bits differ" } " " span { "share of the cases of each length" } }
                (scroll("Cases whose bits differ by length, scrolls", &table(it, bins)))
            }
        }
    };
    let about = html! {
        p { "By positions of a case's longest sequence. A line says which size is full there: a longer sequence needs one more of it." }
    };
    Section { id: "lengths", title: "Divergence against length", about, body }
}

/// Minimal cases by their positions, the shortest first; numbers of cases are those of the page.
fn cases(it: &Certificate, within: impl Fn(u32) -> bool) -> BTreeMap<u32, Vec<usize>> {
    let mut cases: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, case) in it.counterexamples.iter().enumerate().filter(|(_, case)| within(case.kv)) {
        cases.entry(case.kv).or_default().push(place + 1);
    }
    cases
}

/// Sizes that are full within a bin, and those that are at its end.
fn full(it: &Certificate, within: impl Fn(u32) -> bool, end: u32) -> (String, String) {
    let names = |at_end: bool| {
        let sizes = it.coverage.boundaries.iter().filter(|it| within(it.size) && (it.size == end) == at_end);
        sizes.map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    (names(false), names(true))
}

fn table(it: &Certificate, bins: &[LengthBin]) -> Markup {
    let before = |n: usize| n.checked_sub(1).map(|n| bins[n].up_to);
    let within = |n: usize, at: u32| at <= bins[n].up_to && before(n).is_none_or(|end| at > end);
    html! {
        table.bars.lengths {
            thead {
                tr {
                    th scope="col" { "positions" }
                    td.track {}
                    th.number scope="col" { "differ" }
                    th.number scope="col" { "cases" }
                    th.number scope="col" { "fail a claim" }
                    th scope="col" { "minimal cases" }
                }
            }
            tbody {
                @for (n, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.up_to > 0 || bin.cases > 0) {
                    tr.none[bin.cases == 0].alarming[bin.mismatched > 0] {
                        th scope="row" { (length_bin(before(n), bin.up_to)) }
                        td.track.share[bin.cases > 0] {
                            @if bin.mismatched > 0 {
                                div.bar style={ "width:" (format!("{:.1}", (100.0 * bin.mismatched as f64 / bin.cases.max(1) as f64).clamp(0.5, 100.0))) "%" } {}
                            }
                        }
                        td.number { @if bin.mismatched > 0 { (share(bin.mismatched, bin.cases)) } @else if bin.cases > 0 { "0%" } }
                        td.number { (count(bin.cases)) }
                        td.number { (count(bin.failed)) }
                        td.links {
                            @for (kv, places) in cases(it, |kv| within(n, kv)) {
                                a href={ "#case-" (places[0]) } aria-label={ "case " (places[0]) ", " (kv) " positions" } { (count(kv.into())) }
                                @if places.len() > 1 { small { "\u{d7}" (places.len()) } }
                                " "
                            }
                        }
                    }
                    @let (inside, at_end) = full(it, |size| within(n, size), bin.up_to);
                    @if !inside.is_empty() { tr.rule.inside { td colspan="6" { (inside) " full on the way" } } }
                    @if !at_end.is_empty() { tr.rule { td colspan="6" { (at_end) " full" } } }
                }
            }
        }
    }
}
