//! Accepted failures: each names its issue and its last day, and one that is not needed is an error.

use super::certificate::Waiver;
use super::claim::Claim;
use crate::input_error::InputError;
use std::path::Path;

/// What a waiver file has.
const FORM: &str = "write each as [[waiver]], in two pairs of brackets, with claim, issue and until";

/// Reads `[[waiver]]` tables with `claim`, `issue` and `until`.
///
/// # Errors
/// The field that is missing or wrong; a day that has passed; a file without a waiver.
pub fn load(path: &Path) -> Result<Vec<Waiver>, InputError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
    parse(&text, &file, &now()[..10])
}

fn parse(text: &str, file: &str, today: &str) -> Result<Vec<Waiver>, InputError> {
    let table: toml::Table = text.parse().map_err(|error| InputError::new(file, format!("is no TOML: {error}")))?;
    let wrong = |n: usize, field: &str, reason: String| InputError::new(file, reason).field(format!("waiver {n}: {field}"));
    if let Some(name) = table.keys().find(|name| *name != "waiver") {
        return Err(InputError::new(file, "is nothing that a waiver file has; it has [[waiver]] tables").field(name.clone()));
    }
    let entries = match table.get("waiver") {
        Some(toml::Value::Array(entries)) if !entries.is_empty() => entries,
        None | Some(toml::Value::Array(_)) => {
            return Err(InputError::new(file, format!("has no waiver; {FORM}, or leave out --waivers")));
        }
        Some(_) => return Err(InputError::new(file, format!("is no list of waivers; {FORM}")).field("waiver")),
    };
    let mut waivers = Vec::new();
    for (n, entry) in entries.iter().enumerate() {
        let n = n + 1;
        let entry =
            entry.as_table().ok_or_else(|| InputError::new(file, format!("is no table; {FORM}")).field(format!("waiver {n}")))?;
        if let Some(name) = entry.keys().find(|name| !["claim", "issue", "until"].contains(&name.as_str())) {
            return Err(wrong(n, name, "is no field of a waiver: claim, issue, until".into()));
        }
        let get = |field: &str| {
            let value = entry.get(field).and_then(|it| it.as_str());
            value.map(str::to_owned).ok_or_else(|| wrong(n, field, "is missing, or no text in quotes".into()))
        };
        let waiver = Waiver { claim: get("claim")?, issue: get("issue")?, until: get("until")? };
        means_something(&waiver).map_err(|(field, reason)| wrong(n, field, reason))?;
        if *waiver.until < *today {
            return Err(wrong(n, "until", format!("{} has passed; mend what it is for, or agree on another day", waiver.until)));
        }
        if waivers.iter().any(|it: &Waiver| it.claim == waiver.claim) {
            return Err(wrong(n, "claim", format!("`{}` is waived twice", waiver.claim)));
        }
        waivers.push(waiver);
    }
    Ok(waivers)
}

/// Whether a waiver has a claim, a link and a day.
///
/// # Errors
/// The field, and what is wrong with it.
pub(super) fn means_something(waiver: &Waiver) -> Result<(), (&'static str, String)> {
    waiver.claim.parse::<Claim>().map_err(|reason| ("claim", reason))?;
    if !["https://", "http://"].iter().any(|it| waiver.issue.starts_with(it)) {
        return Err(("issue", format!("`{}` is no link", waiver.issue)));
    }
    // Ten characters sort as the days do.
    if waiver.until.len() != 10 || waiver.until.parse::<jiff::civil::Date>().is_err() {
        return Err(("until", format!("`{}` is no day; write YYYY-MM-DD", waiver.until)));
    }
    Ok(())
}

/// The time in UTC, RFC 3339, to the second.
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_readme_is_one() {
        let text = include_str!("../../README.md").split("```toml\n").find(|text| text.starts_with("[[waiver]]")).unwrap();
        let [waiver] = parse(text.split("```").next().unwrap(), "README.md", "2026-11-30").unwrap().try_into().unwrap();
        assert_eq!(waiver.claim, "split_invariant");
    }

    #[test]
    fn a_waiver_has_a_claim_a_link_and_a_day_to_come() {
        let text = |claim: &str, issue: &str, until: &str| {
            format!("[[waiver]]\nclaim = \"{claim}\"\nissue = \"{issue}\"\nuntil = \"{until}\"\n")
        };
        let parse = |text: &str| parse(text, "w.toml", "2026-11-30").map_err(|error| error.to_string());
        let link = "https://example.org/1";
        let good = text("accurate", link, "2026-11-30");
        assert_eq!(parse(&good).unwrap().len(), 1);
        for (text, reason) in [
            (text("acurate", link, "2027-01-01"), "claim"),
            (text("accurate", "ask Bob", "2027-01-01"), "is no link"),
            (text("accurate", link, "soon"), "YYYY-MM-DD"),
            (text("accurate", link, "2027-13-01"), "YYYY-MM-DD"),
            (text("accurate", link, "2026-11-29"), "has passed"),
            (good.repeat(2), "waived twice"),
            ("[[waiver]]\nclaim = \"accurate\"\n".into(), "issue"),
            ("[[waivers]]\n".into(), "waivers"),
            // None of these says that nothing is waived.
            (good.replace("[[waiver]]", "[waiver]"), "waiver: is no list of waivers; write each as [[waiver]]"),
            ("waiver = []\n".into(), "has no waiver; write each as [[waiver]]"),
            ("waiver = [1]\n".into(), "waiver 1: is no table"),
            (String::new(), "or leave out --waivers"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(reason) && error.starts_with("w.toml"), "{error}");
        }
    }
}
