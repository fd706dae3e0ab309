//! Times and sizes as a person writes them: `30s`, `16GiB`.

use std::time::Duration;

/// Parses `30s`, `5m`, `2h`; a bare number is seconds.
///
/// # Errors
/// What is wrong with the text, and how to write it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no time; write 30s, 5m or 2h"))?;
    let seconds = match unit {
        "" | "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        _ => return Err(format!("unknown unit `{unit}` (one of s, m, h)")),
    };
    seconds
        .filter(|&s| s <= 10 * 365 * 86_400)
        .map(Duration::from_secs)
        .ok_or_else(|| format!("`{text}` is longer than ten years"))
}

/// Parses `512MiB`, `16GiB`; a bare number is bytes.
///
/// # Errors
/// What is wrong with the text, and how to write it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no size; write 512MiB or 16GiB"))?;
    let scale = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1u64 << 40,
        _ => return Err(format!("unknown unit `{unit}` (one of KiB, MiB, GiB, TiB)")),
    };
    number.checked_mul(scale).ok_or_else(|| format!("`{text}` is larger than 2^64 bytes"))
}

/// The digits in front, and what follows.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_read() {
        for (text, seconds) in [("30s", 30), ("5m", 300), ("2h", 7200), ("7", 7)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for (text, size) in [("512", 512), ("1KiB", 1 << 10), ("3MiB", 3 << 20), ("16GiB", 16 << 30), ("1TiB", 1 << 40)] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_with_what_to_write() {
        for text in ["", "s", "-1s", "1.5h", "5 lightyears", "5d", "99999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["", "GiB", "-1", "1.5GiB", "16GB", "16 GiB", "99999999999TiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(bytes("16GB"), Err("unknown unit `GB` (one of KiB, MiB, GiB, TiB)".into()));
    }
}
