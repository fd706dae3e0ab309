//! Planted faults: realistic kernel bugs that a campaign must find. Each is one small edit of the reference kernel, or of how it reads a
//! call, selected by name (`ref:aligned+A-M1`) and never by default.
//!
//! A kernel with a fault declares what it would be without one (conventions and arithmetic), so that the oracle, the bounds and the
//! relations judge it as they would judge somebody's kernel that has this bug.

mod catalogue;
mod edit;

pub use catalogue::Mutant;

use super::cause_kind::CauseKind;
use crate::input_error::unknown;
use std::fmt;
use std::str::FromStr;

/// What is known of a planted fault.
#[derive(Debug)]
pub struct Entry {
    /// By which it is selected.
    pub id: &'static str,
    /// The public report or source file it is taken from.
    pub source: &'static str,
    /// The edit, in words.
    pub edit: &'static str,
    /// Inputs on which the kernel is exactly what it would be without the edit.
    pub silent: &'static str,
    /// What a report should name as its cause.
    pub cause: CauseKind,
    /// Fields that the kernel has to have for the edit to be reached (splits, say). They are set first, as fields in the kernel's name
    /// would be, and are not part of the fault.
    pub settings: &'static [(&'static str, &'static str)],
    /// The smallest case known that shows it, as a case file.
    pub smallest: &'static str,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().id)
    }
}

impl FromStr for Mutant {
    type Err = String;
    fn from_str(text: &str) -> Result<Mutant, String> {
        let ids: Vec<&str> = Mutant::ALL.iter().map(|it| it.entry().id).collect();
        let found = Mutant::ALL.iter().find(|it| it.entry().id == text).copied();
        found.ok_or_else(|| unknown("mutant", text, &ids))
    }
}
