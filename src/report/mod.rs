//! A certificate for readers: a page for people, a summary for a CI job, and the formats that other programs collect. Each is a pure
//! function of the [statement](crate::certify::statement::Statement) and of how the reader names its file, the same bytes for the same. None of them verifies
//! anything.
//!
//! Names, versions, reasons and case texts come from outside, from kernels and files. Each format escapes them in its own way, and
//! what no reader can see is then replaced in the whole text.

mod html;
mod junit;
mod markdown;
mod sarif;
mod trace;
mod verdict;
mod words;

pub use html::html;
pub use junit::junit;
pub use markdown::markdown;
pub use sarif::sarif;
pub use trace::trace;

use crate::certify::statement::Statement;
use std::path::Path;

/// A certificate for a reader who names it `file`: its minimal cases lie beside it, and their commands are to be typed where he stands.
fn placed(statement: &Statement, file: &str) -> Statement {
    let mut statement = statement.clone();
    for case in &mut statement.predicate.lastbit.counterexamples {
        *case = case.beside(Path::new(file));
    }
    statement
}

/// Replaces characters that do not show, or that XML 1.0 does not allow, by U+FFFD: controls other than tab and line feed, marks that turn
/// the direction of text, and the two that are no characters.
fn visible(text: String) -> String {
    let hidden = |c: char| match c {
        '\t' | '\n' => false,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
            true
        }
        c => c.is_control(),
    };
    if text.contains(hidden) { text.chars().map(|c| if hidden(c) { '\u{fffd}' } else { c }).collect() } else { text }
}
