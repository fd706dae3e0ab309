//! How far results lie from the true value, and the two sides from each other.

use super::super::words::{at_most, coarse_distances, count, error_bin, share};
use super::Section;
use super::bars::{Bar, histogram};
use super::parts::facts;
use crate::certify::certificate::{Certificate, Results};
use maud::{Markup, html};

pub(super) fn section(it: &Certificate) -> Section {
    let results = &it.results;
    let body = html! { (apart(results)) (from_the_truth(results)) };
    let about = html! {
        p { "Results of training against inference, and of both against the true value rounded with proof. One ULP is one step of the "
            "output format." }
    };
    Section { id: "errors", title: "Errors", about, body }
}

/// Without the empty bins at the end, the last one aside.
fn shown(counts: &[u64]) -> usize {
    counts.iter().rev().skip(1).position(|&n| n > 0).map_or(1, |place| counts.len() - 1 - place)
}

fn bars(bins: &[(String, u64)], alarming: bool) -> Vec<Bar> {
    let counts: Vec<u64> = bins.iter().map(|(_, n)| *n).collect();
    let shown = shown(&counts);
    let bins = bins.iter().enumerate().filter(|&(n, (_, count))| n < shown || (n + 1 == bins.len() && *count > 0));
    bins.map(|(_, (name, count))| Bar { name: name.clone(), count: *count, alarming }).collect()
}

fn apart(results: &Results) -> Markup {
    html! {
        h3 { "Training against inference" }
        @if results.compared == 0 {
            p { "Nothing was compared." }
        } @else if results.differing == 0 {
            p.large { "All " (count(results.compared)) " elements have equal bits." }
        } @else {
            p.large { b { (count(results.differing)) } " of " (count(results.compared)) " elements differ, "
                (share(results.differing, results.compared)) "." }
            (histogram("Distance of elements that differ", "ULP apart", "elements", &bars(&coarse_distances(&results.distances), true), None))
        }
    }
}

fn from_the_truth(results: &Results) -> Markup {
    let errors = &results.errors;
    let errors: Vec<(String, u64)> = errors.iter().enumerate().map(|(n, &count)| (error_bin(n, errors.len()), count)).collect();
    let off = results.above + results.below;
    let below = if off == 0 { 50.0 } else { 100.0 * results.below as f64 / off as f64 };
    html! {
        h3 { "Against the true value" }
        @if results.judged == 0 {
            p { "Nothing was measured." }
        } @else {
            p.large { b { (share(results.correctly_rounded, results.judged)) } " of " (count(results.judged))
                " elements are the correctly rounded true value." }
            (histogram(
                "Error", "ULP from the true value", "elements", &bars(&errors, false),
                Some((1, "\u{bd} ULP: up to here a result is the nearest to the true value"))
            ))
            @if off > 0 {
                figure.balance {
                    figcaption { b { "Sign balance" } " " span { "a store that truncates leans to one side" } }
                    div.beam aria-hidden="true" { span style={ "width:" (format!("{below:.2}")) "%" } {} }
                    p { span { (count(results.below)) " below, " (share(results.below, off)) } span { (count(results.above)) " above, "
                        (share(results.above, off)) } }
                }
            }
            (facts(&[
                ("Largest error", html! { (at_most(results.worst)) " of its computed bound"
                    @if let Some(case) = &results.worst_case { span.quiet { ", in case " (case) } } }),
                ("Without a bound", html! { (count(results.unbounded)) span.quiet { " whose arithmetic promises nothing" } }),
                ("Out of range", html! { (count(results.out_of_range)) span.quiet { " for which an overflow inside is predicted" } }),
            ]))
        }
    }
}
