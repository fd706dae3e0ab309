//! A fault in words. A kernel from outside chooses some of them: they are bounded, and cannot write to the reader's terminal.

use crate::finding::Fault;
use crate::input_error::tame;

/// Characters of a line that are shown.
const WIDTH: usize = 240;

/// Lines after the first that are shown: the first ones, where a sanitizer says what was wrong and in which line of source.
const FIRST: usize = 9;

/// And the last ones, since that is where a traceback or an allocator says what it died of.
const LAST: usize = 12;

/// What happened: the first line in full, then the first and the last lines of what was seen, indented.
pub(crate) fn in_words(fault: &Fault) -> String {
    let text = fault.to_string();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut words = tame(lines.next().unwrap_or_default(), WIDTH);
    let rest: Vec<&str> = lines.collect();
    let left_out = rest.len().saturating_sub(FIRST + LAST);
    for (n, line) in rest.iter().enumerate() {
        if n == FIRST && left_out > 0 {
            words.push_str(&format!("\n  ({left_out} lines left out)"));
        }
        if n < FIRST || n >= FIRST + left_out {
            words.push_str("\n  ");
            words.push_str(&tame(line, WIDTH));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Breakage;

    #[test]
    fn the_first_and_last_lines_are_shown_and_none_of_them_moves_the_cursor() {
        let broken = |detail: String| in_words(&Fault::Broken { breakage: Breakage::Crashed, detail });
        assert_eq!(broken("signal 11".into()), "the process ended: signal 11");
        let traceback = "exit code 1\nstderr:\n\n  File \"k.py\", line 3\n\tboom\u{1b}[2J";
        assert_eq!(
            broken(traceback.into()),
            "the process ended: exit code 1\n  stderr:\n    File \"k.py\", line 3\n      boom\\u{1b}[2J"
        );
        let long: Vec<String> = (0..100).map(|n| format!("{n} {}", "x".repeat(1000))).collect();
        let words = broken(long.join("\n"));
        assert!(words.lines().count() == FIRST + LAST + 2 && words.lines().all(|line| line.len() < WIDTH + 32), "{words}");
        assert!(
            words.contains("\n  9 x")
                && words.contains("\n  (78 lines left out)\n  88 x")
                && words.lines().last().unwrap().starts_with("  99 x"),
            "{words}"
        );
    }
}
