//! One way to say what is wrong with a file or an argument: where, which field, why.

use std::fmt;

/// Bad input: a file, a line, a field and the reason. Shown as `file:line: field: reason`, without the parts that are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// The file (or the argument) at fault, as the user named it.
    pub file: String,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// The field at fault, as a path from the top of the file (`problem.sequences[2].kv`), or a tensor's name.
    pub field: Option<String>,
    /// What is wrong with it and what would be right.
    pub reason: String,
}

impl InputError {
    /// An error about the file as a whole.
    pub fn new(file: impl Into<String>, reason: impl Into<String>) -> Self {
        InputError { file: file.into(), line: None, field: None, reason: reason.into() }
    }

    /// The same error, about one field.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same error, at a line counted from 1.
    pub fn line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for InputError {}

/// "unknown X `y`; did you mean `z`?"
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let name = &shorten(name);
    match nearest(name, known) {
        Some(near) => format!("unknown {what} `{name}`; did you mean `{near}`?"),
        None => format!("unknown {what} `{name}` (known: {})", known.join(", ")),
    }
}

/// The known name at the least edit distance, if that is at most half the longer name's length.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |a: &str, b: &str| {
        let b: Vec<char> = b.chars().collect();
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.chars().enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, y) in b.iter().enumerate() {
                let cost = (diagonal + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
                diagonal = row[j + 1];
                row[j + 1] = cost;
            }
        }
        row[b.len()]
    };
    known
        .iter()
        .map(|&candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|&(steps, candidate)| steps * 2 <= name.chars().count().max(candidate.len()))
        .map(|(_, candidate)| candidate)
}

/// Foreign text as it may stand inside a message: at most 64 characters, and no control characters (a file must not be able to
/// write to the reader's terminal).
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 64;
    let mut shown: String = text.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A line of foreign text as it may be shown: control characters escaped, cut after some characters.
pub(crate) fn tame(line: &str, longest: usize) -> String {
    let mut shown = String::new();
    for c in line.chars().take(longest) {
        match c {
            '\t' => shown.push_str("    "),
            c if c.is_control() => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    if line.chars().nth(longest).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Whether a command with foreign text in it may be shown to be pasted: short enough to be read, and every character shows as it is.
pub(crate) fn can_be_pasted(command: &str) -> bool {
    const LONGEST: usize = 2000;
    let hidden =
        |c: char| c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    command.chars().count() <= LONGEST && !command.chars().any(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_not_known_are_left_out() {
        let error = InputError::new("a.case", "is empty");
        assert_eq!(error.to_string(), "a.case: is empty");
        assert_eq!(error.clone().field("data.q").to_string(), "a.case: data.q: is empty");
        assert_eq!(error.field("data.q").line(7).to_string(), "a.case:7: data.q: is empty");
    }

    #[test]
    fn the_nearest_name_is_suggested_and_foreign_text_is_tamed() {
        assert_eq!(unknown("field", "d_kq", &["d_qk", "d_v"]), "unknown field `d_kq`; did you mean `d_qk`?");
        assert_eq!(unknown("field", "elephants", &["d_qk", "d_v"]), "unknown field `elephants` (known: d_qk, d_v)");
        assert!(unknown("field", &"x".repeat(1_000_000), &["d_v"]).len() < 200);
        assert_eq!(shorten("a\u{1b}[2J"), "a\u{fffd}[2J");
        assert!(can_be_pasted("process:'caf\u{e9} x'"));
        assert!(!can_be_pasted("a\u{1b}[2J") && !can_be_pasted("a\u{202e}b") && !can_be_pasted(&"x".repeat(2001)));
    }
}
