//! Covered against failed space: a table of cells over two features at a time, each with a sign, a pattern and a number.

use super::super::words::{count, counted};
use super::Section;
use super::parts::{scroll, sign};
use crate::certify::certificate::{Certificate, Map, Status};
use maud::{Markup, html};

/// Shades of cells that passed: by powers of the largest count.
const SHADES: u32 = 4;

pub(super) fn section(it: &Certificate) -> Section {
    let maps = &it.coverage.maps;
    let body = html! {
        @if maps.is_empty() { p.quiet { "The certificate has no maps." } } @else { (legend()) }
        div.maps { @for map in maps { (one(map)) } }
    };
    let about = html! {
        p { "Where the cases fell, two features at a time. A number is a count of cases; a cell with one failure is a failed cell." }
    };
    Section { id: "space", title: "Covered and failed", about, body }
}

fn legend() -> Markup {
    html! {
        ul.legend aria-label="Legend of the maps" {
            li { span.key.failed aria-hidden="true" { (sign(Status::Fail)) } "failed, of all in the cell" }
            li { span.key.passed aria-hidden="true" { (sign(Status::Pass)) } "passed; the darker, the more" }
            li { span.key.unjudged aria-hidden="true" { (sign(Status::Unverifiable)) } "not judged: skipped or undecided" }
            li { span.key.empty aria-hidden="true" {} "no case" }
        }
    }
}

fn one(map: &Map) -> Markup {
    let cells = || map.cells.iter().flatten();
    let number = |fits: &dyn Fn(&[u64; 3]) -> bool| cells().filter(|cell| fits(cell)).count() as u64;
    let failed = number(&|cell| cell[1] > 0);
    let empty = number(&|cell| cell.iter().sum::<u64>() == 0);
    let unjudged = number(&|&[passed, failed, left]| passed + failed == 0 && left > 0);
    let most = cells().map(|cell| cell[0]).max().unwrap_or_default();
    let name = format!("Map of {} by {}", map.down, map.across);
    let mut words = vec![if failed == 0 { "no cell failed".to_owned() } else { format!("{} failed", counted(failed, "cell")) }];
    words.extend((unjudged > 0).then(|| format!("{} not judged", count(unjudged))));
    words.extend((empty > 0).then(|| format!("{} without a case", count(empty))));
    let table = html! {
        table.map aria-label=(name) {
            thead {
                tr {
                    td.corner { (map.down) " \u{2193} " (map.across) " \u{2192}" }
                    @for column in &map.columns { th scope="col" { (column) } }
                }
            }
            tbody {
                @for (row, cells) in map.rows.iter().zip(&map.cells) {
                    tr { th scope="row" { (row) } @for cell in cells { (one_cell(*cell, most)) } }
                }
            }
        }
    };
    html! {
        figure {
            figcaption { b { (map.down) " by " (map.across) } " " span { (words.join(", ")) " of " (count(cells().count() as u64)) } }
            (scroll(&format!("{name}, scrolls"), &table))
        }
    }
}

fn one_cell([passed, failed, unjudged]: [u64; 3], most: u64) -> Markup {
    let judged = passed + failed;
    let left = html! { @if unjudged > 0 { small { (sign(Status::Unverifiable)) (count(unjudged)) } } };
    let words = |parts: &[(u64, &str)]| {
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(*n))).collect();
        parts.join(", ")
    };
    let spoken = words(&[(passed, "passed"), (failed, "failed"), (unjudged, "not judged")]);
    let (class, shown) = match (judged, failed, unjudged) {
        (0, 0, 0) => return html! { td.empty { span.hidden { "no case" } } },
        (0, 0, _) => ("unjudged".to_owned(), html! { (sign(Status::Unverifiable)) (count(unjudged)) }),
        (_, 0, _) => (format!("passed shade-{}", shade(passed, most)), html! { (sign(Status::Pass)) (count(passed)) (left) }),
        _ => ("failed".to_owned(), html! { (sign(Status::Fail)) b { (count(failed)) } small { "of " (count(judged)) } (left) }),
    };
    html! {
        td class=(class) { span.cell aria-hidden="true" { (shown) } span.hidden { (spoken) } }
    }
}

/// From 1 to [`SHADES`], by the logarithm: counts differ by powers.
fn shade(n: u64, most: u64) -> u32 {
    let log = |n: u64| (n.max(1) as f64).ln();
    if most <= 1 { 1 } else { 1 + ((f64::from(SHADES) * log(n) / log(most)) as u32).min(SHADES - 1) }
}
