//! Pieces that several sections are made of.

use super::super::words::count;
use crate::certify::certificate::{Counts, Status};
use maud::{Markup, PreEscaped, html};

/// Bytes that are left for what may be long: case texts and trees. What no longer fits is named, not shown.
pub(super) struct Room(usize);

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        Room(bytes)
    }

    /// Takes the room for a text, if there is as much.
    pub(super) fn take(&mut self, text: &str) -> bool {
        // A text grows when it is escaped.
        let needed: usize = text.bytes().map(|byte| if matches!(byte, b'&' | b'<' | b'>' | b'"') { 6 } else { 1 }).sum();
        let fits = self.0 >= needed;
        if fits {
            self.0 -= needed;
        }
        fits
    }
}

/// The signs, drawn once and used by name: a tick, a cross, a hollow diamond.
pub(super) fn signs() -> Markup {
    let symbol = |id: &str, path: &str| html! { symbol id=(id) viewBox="0 0 16 16" { path d=(path) {} } };
    html! {
        svg.signs aria-hidden="true" focusable="false" width="0" height="0" {
            (symbol("sign-pass", "M2.5 8.5 6.2 12.4 13.5 3.8"))
            (symbol("sign-fail", "M3.4 3.4 12.6 12.6M12.6 3.4 3.4 12.6"))
            (symbol("sign-open", "M8 2 14 8 8 14 2 8Z"))
        }
    }
}

pub(super) fn sign(status: Status) -> Markup {
    html! { svg.sign aria-hidden="true" focusable="false" { use href={ "#sign-" (name(status)) } {} } }
}

/// The class of a status.
pub(super) fn name(status: Status) -> &'static str {
    match status {
        Status::Pass => "pass",
        Status::Fail => "fail",
        Status::Unverifiable => "open",
    }
}

/// A status as a label.
pub(super) fn label(status: Status) -> Markup {
    html! { span class={ "label " (name(status)) } { (sign(status)) (status) } }
}

/// Something wide that scrolls by itself. It can be reached by keyboard, for which it needs a name that no other on the page has.
pub(super) fn scroll(name: &str, body: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="group" aria-label=(name) { (body) } }
}

/// A long text that scrolls by itself.
pub(super) fn text(name: &str, text: &str) -> Markup {
    scroll(name, &html! { pre { code { (text.trim_end()) } } })
}

/// A short text that is wrapped where it is too wide.
pub(super) fn wrapped(text: &str) -> Markup {
    html! { pre.wrapped { code { (text.trim_end()) } } }
}

/// Named values, one below the other.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
    }
}

/// A digest, all of it.
pub(super) fn digest(text: &str) -> Markup {
    html! { code.digest { @if text.is_empty() { "none" } @else { (text) } } }
}

/// Counts by name, the largest first; a sentence where there are none.
pub(super) fn counts(counts: &Counts, what: &str, none: &str) -> Markup {
    let mut rows: Vec<(&String, u64)> = counts.iter().map(|(name, &n)| (name, n)).collect();
    rows.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    if rows.is_empty() {
        return html! { p.quiet { (none) } };
    }
    html! {
        table.plain {
            thead { tr { th scope="col" { (what) } th.number scope="col" { "cases" } } }
            tbody { @for (name, n) in rows { tr { th scope="row" { (name) } td.number { (count(n)) } } } }
        }
    }
}

/// A box that opens.
pub(super) fn fold(summary: &Markup, body: &Markup) -> Markup {
    html! { details { summary { (summary) } div.folded { (body) } } }
}

/// Drawn by this crate, and escaped where it was drawn.
pub(super) fn drawing(svg: String) -> Markup {
    PreEscaped(svg)
}
