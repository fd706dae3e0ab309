//! A page for people: one file that asks for nothing, has no script, and reads on paper, on a phone, in light and in dark.
//!
//! maud escapes whatever is put into its templates; the content security policy in the page would stop what an escape had missed. Nothing
//! is told by colour alone: each status has a sign and a word, and the cells of the maps have both and a pattern.

mod bars;
mod bound;
mod cases;
mod claims;
mod coverage;
mod errors;
mod kernels;
mod lengths;
mod maps;
mod parts;
mod power;
mod trees;
mod verdict;

use super::verdict::Verdict;
use super::words::cut;
use super::{placed, visible};
use crate::certify::statement::Statement;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Largest size of a page that stays handy: mailed, attached to a job, opened on a phone.
pub(super) const LARGEST: usize = 2 << 20;

const STYLE: &str = include_str!("style.css");

/// Nothing may be fetched, and nothing may run.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// A certificate as an HTML page. `file` is how the reader calls the certificate.
pub fn html(statement: &Statement, file: &str) -> String {
    let statement = placed(statement, file);
    let it = &statement.predicate.lastbit;
    let [train, infer] = &it.kernels;
    let names = format!("{} against {}", cut(&train.words, 60), cut(&infer.words, 60));
    let mut room = parts::Room::new(LARGEST / 2);
    let sections = [
        claims::section(it),
        maps::section(it),
        errors::section(it),
        lengths::section(it),
        trees::section(it, &mut room),
        cases::section(it, &mut room),
        coverage::section(it),
        power::section(it),
        bound::section(it),
        kernels::section(it),
        kernels::validity(it),
        kernels::environment(it),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                link rel="icon" href="data:,";
                title { "lastbit: " (Verdict::of(it).word()) ", " (names) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#claims" { "Skip to the claims" }
                (parts::signs())
                (verdict::top(it))
                nav aria-label="Sections" {
                    ul { @for section in &sections { li { a href={ "#" (section.id) } { (section.title) } } } }
                }
                main { @for section in &sections { (of(section)) } }
                (verdict::end(it, file))
            }
        }
    };
    visible(page.into_string())
}

/// A part of the page: its heading and what it is about on one side, what it shows on the other.
struct Section {
    id: &'static str,
    title: &'static str,
    about: Markup,
    body: Markup,
}

fn of(section: &Section) -> Markup {
    html! {
        section id=(section.id) aria-labelledby={ (section.id) "-title" } {
            div.about { h2 id={ (section.id) "-title" } { (section.title) } (section.about) }
            div.body { (section.body) }
        }
    }
}
