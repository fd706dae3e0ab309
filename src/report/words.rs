//! Numbers as a reader wants them.

use std::fmt::Write;

/// `1234567` as `1,234,567`.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 case`, `2,000 cases`.
pub(super) fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A part of a whole in percent. Only nothing is `0%`, and only all of it is `100%`.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "none".into();
    }
    if part == 0 {
        return "0%".into();
    }
    if part >= whole {
        return "100%".into();
    }
    match 100.0 * part as f64 / whole as f64 {
        percent if percent < 0.01 => "<0.01%".into(),
        percent if percent > 99.99 => ">99.99%".into(),
        percent if !(1.0..=99.0).contains(&percent) => format!("{percent:.2}%"),
        percent => format!("{percent:.1}%"),
    }
}

/// A bound from 0 to 1 in percent with three significant digits, never less than it is.
pub(super) fn at_most(bound: f64) -> String {
    let percent = 100.0 * bound;
    if percent <= 0.0 || !percent.is_finite() {
        return format!("{percent}%");
    }
    let digits = (2 - percent.log10().floor() as i32).clamp(0, 12);
    let scale = 10f64.powi(digits);
    format!("{:.*}%", digits as usize, (percent * scale).ceil() / scale)
}

/// `2 h 5 min`, `4 min 12 s`, `7.5 s`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", count(whole / 3600), whole % 3600 / 60),
    }
}

/// Text for the start of a page's title: at most `longest` characters of it.
pub(super) fn cut(text: &str, longest: usize) -> String {
    let mut shown: String = text.chars().take(longest).collect();
    if text.chars().nth(longest).is_some() {
        let _ = write!(shown, "\u{2026}");
    }
    shown
}

/// The upper ends of bins of errors in ULP: up to 2^-2, then each twice the last; the last bin has no end.
pub(super) fn error_bin(n: usize, bins: usize) -> String {
    let end = |n: usize| match n {
        0 => "\u{bc}".to_owned(),
        1 => "\u{bd}".to_owned(),
        n => 1u64.checked_shl(n as u32 - 2).map_or_else(|| format!("2^{}", n - 2), count),
    };
    match n {
        0 => format!("up to {}", end(0)),
        n if n + 1 == bins => format!("over {}", end(n - 1)),
        n => format!("{} to {}", end(n - 1), end(n)),
    }
}

/// Bins of distances in ULP: 1, 2, 3 to 4, 5 to 8; the last is what has no distance.
pub(super) fn distance_bin(n: usize, bins: usize) -> String {
    match n {
        n if n + 1 == bins => "NaN, infinity or zero's sign".into(),
        0 => "1".into(),
        1 => "2".into(),
        n => match (1u64.checked_shl(n as u32 - 1), 1u64.checked_shl(n as u32)) {
            (Some(below), Some(end)) => format!("{} to {}", count(below + 1), count(end)),
            _ => format!("2^{} to 2^{n}", n - 1),
        },
    }
}

/// Bins of distances for a page: beyond 2^10 five doublings are one.
pub(super) fn coarse_distances(counts: &[u64]) -> Vec<(String, u64)> {
    const FINE: usize = 11;
    const STEP: usize = 5;
    let last = counts.len().saturating_sub(1);
    let mut bins: Vec<(String, u64)> = (0..last.min(FINE)).map(|n| (distance_bin(n, counts.len()), counts[n])).collect();
    for start in (FINE..last).step_by(STEP) {
        let end = last.min(start + STEP);
        bins.push((format!("over 2^{}, to 2^{}", start - 1, end - 1), counts[start..end].iter().sum()));
    }
    bins.extend(counts.last().map(|&n| (distance_bin(last, counts.len()), n)));
    bins
}

/// Bins of lengths by their upper ends.
pub(super) fn length_bin(before: Option<u32>, up_to: u32) -> String {
    let first = before.map_or(0, |end| end.saturating_add(1));
    if first >= up_to { count(up_to.into()) } else { format!("{} to {}", count(first.into()), count(up_to.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nothing_is_none_and_only_all_is_all() {
        assert_eq!(
            ["0%", "<0.01%", "50.0%", ">99.99%", "100%"],
            [share(0, 9), share(1, 100_000), share(1, 2), share(99_999, 100_000), share(9, 9)]
        );
        assert_eq!(share(999, 1000), "99.90%");
        assert_eq!(share(0, 0), "none");
    }

    #[test]
    fn bounds_are_rounded_up() {
        assert_eq!(at_most(0.001_496_7), "0.150%");
        assert_eq!(at_most(0.012_300_01), "1.24%");
        assert_eq!(at_most(1.0), "100%");
    }

    #[test]
    fn bins_are_named_by_their_ends() {
        let errors: Vec<String> = (0..5).map(|n| error_bin(n, 5)).collect();
        assert_eq!(errors, ["up to ¼", "¼ to ½", "½ to 1", "1 to 2", "over 2"]);
        let distances: Vec<String> = (0..5).map(|n| distance_bin(n, 5)).collect();
        assert_eq!(distances, ["1", "2", "3 to 4", "5 to 8", "NaN, infinity or zero's sign"]);
        let coarse = coarse_distances(&[1; 20]);
        let names: Vec<&str> = coarse[10..].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["513 to 1,024", "over 2^10, to 2^15", "over 2^15, to 2^18", "NaN, infinity or zero's sign"]);
        assert_eq!(coarse.iter().map(|(_, n)| n).sum::<u64>(), 20);
        assert_eq!(distance_bin(70, 80), "2^69 to 2^70");
        assert_eq!([length_bin(None, 0), length_bin(Some(0), 1), length_bin(Some(2), 4)], ["0", "1", "3 to 4"]);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([duration(7.46), duration(252.0), duration(7500.0)], ["7.5 s", "4 min 12 s", "2 h 5 min"]);
    }
}
