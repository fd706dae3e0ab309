//! How two runs of a row cut its keys, in a sentence.

use super::runs::Names;
use std::ops::Range;

/// Visited cells in order, each with the number of its split.
type Cells = [(usize, Range<u32>)];

/// How the cuts differ; `None` if they do not.
pub(super) fn structure(first: &Cells, second: &Cells, names: &Names) -> Option<String> {
    if first == second {
        return None;
    }
    let keys = |cells: &Cells| {
        let start = cells.iter().map(|(_, keys)| keys.start).min().unwrap_or(0);
        start..cells.iter().map(|(_, keys)| keys.end).max().unwrap_or(0)
    };
    let (a, b) = (keys(first), keys(second));
    let (one, other) = (names.first_capital(), names.second);
    if a != b {
        let words =
            |keys: Range<u32>| if keys.is_empty() { "no key".into() } else { format!("keys {}..{}", keys.start, keys.end) };
        return Some(format!("{one} sees {}, {other} {}.", words(a), words(b)));
    }
    let split_cuts = |cells: &Cells| {
        let parts = cells.last().map_or(0, |(part, _)| part + 1);
        let first = |n| cells.iter().filter(|(part, _)| *part == n).map(|(_, keys)| keys.start).min();
        // Around a ring they come in the order of arrival.
        let mut cuts: Vec<u32> = (0..parts).filter_map(first).filter(|&start| start > a.start).collect();
        cuts.sort_unstable();
        cuts
    };
    let block_cuts = |cells: &Cells| {
        let mut cuts: Vec<u32> = cells.iter().map(|(_, keys)| keys.start).filter(|&start| start > a.start).collect();
        cuts.sort_unstable();
        cuts
    };
    let sentence = |verb: &str, whole: &str, cuts: [Vec<u32>; 2]| {
        let words = |cuts: &[u32]| match cuts {
            [] => format!("sums keys {}..{} in one {whole}", a.start, a.end),
            _ => {
                let shown: Vec<String> = cuts.iter().take(4).map(ToString::to_string).collect();
                let more = if cuts.len() > 4 { format!(" and {} more", cuts.len() - 4) } else { String::new() };
                format!("{verb} at {}{more}", shown.join(", "))
            }
        };
        format!("{one} {}, {other} {}.", words(&cuts[0]), words(&cuts[1]))
    };
    let cuts = [split_cuts(first), split_cuts(second)];
    if cuts[0] != cuts[1] {
        return Some(sentence("splits", "split", cuts));
    }
    let cuts = [block_cuts(first), block_cuts(second)];
    if cuts[0] != cuts[1] {
        return Some(sentence("cuts", "block", cuts));
    }
    let at = first.iter().zip(second).position(|(x, y)| x != y)?;
    let ((part, x), (elsewhere, y)) = (&first[at], &second[at]);
    if x == y {
        return Some(format!("{one} has keys {}..{} in split {part}, {other} in split {elsewhere}.", x.start, x.end));
    }
    let does = match at.checked_sub(1).map(|before| &first[before].1) {
        None => "begins".into(),
        Some(before) => format!("goes on after keys {}..{}", before.start, before.end),
    };
    let (x, y) = (format!("{}..{}", x.start, x.end), format!("{}..{}", y.start, y.end));
    Some(format!("{one} {does} with keys {x}, {other} with {y}: the same blocks in another order."))
}
