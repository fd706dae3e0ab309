//! What came of a unit, as a line and back.

use super::unit::Unit;
use crate::cli::statistics_text::{parse_brief, print_brief};
use crate::input_error::InputError;
use crate::subject::attention::power::{Beside, Clean, FalseAlarm, Hunt, Planted, Small, clean_asked};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What came of a unit.
#[derive(Clone, Debug)]
pub(super) enum Made {
    Planted(Box<Planted>),
    Clean(Box<Clean>),
    /// How many cases each rival rejects.
    Rivals(Vec<u64>),
}

/// A mutant's part of a line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlantedText {
    both: Hunt,
    infer: Hunt,
    small: Option<Small>,
    rivals: Beside,
}

/// A kernel's part of a line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CleanText {
    statistics: Value,
    first: Option<FalseAlarm>,
    seconds: f64,
}

impl Made {
    pub(super) fn print(&self, number: u64) -> String {
        let (name, value) = match self {
            Made::Planted(it) => {
                let Planted { mutant: _, both, infer, small, rivals } = &**it;
                ("planted", json!({ "both": both, "infer": infer, "small": small, "rivals": rivals }))
            }
            Made::Clean(it) => {
                let Clean { kernel: _, statistics, asked: _, first, seconds } = &**it;
                ("clean", json!({ "statistics": print_brief(statistics), "first": first, "seconds": seconds }))
            }
            Made::Rivals(rejected) => ("rejected", json!(rejected)),
        };
        json!({ "unit": number, name: value }).to_string()
    }

    /// Reads a line: the number of its unit, one of `units`, and what came of it.
    ///
    /// # Errors
    /// What is not as [`Made::print`] writes it.
    pub(super) fn parse(text: &str, units: &[Unit], file: &str, line: usize) -> Result<(u64, Made), InputError> {
        let wrong = |reason: String| InputError::new(file, reason).line(line);
        let value: Value = serde_json::from_str(text).map_err(|error| wrong(format!("is no line of a unit: {error}")))?;
        let number = value.get("unit").and_then(Value::as_u64).ok_or_else(|| wrong("unit: is no number".into()))?;
        let unit = usize::try_from(number).ok().and_then(|n| units.get(n));
        let unit = unit.ok_or_else(|| wrong(format!("unit: {number}: there are {}", units.len())))?;
        fn part<T: DeserializeOwned>(value: &Value, name: &str) -> Result<T, String> {
            let part = value.get(name).cloned().ok_or_else(|| format!("{name}: is missing"))?;
            serde_json::from_value(part).map_err(|error| format!("{name}: {error}"))
        }
        let made = match unit {
            Unit::Mutant(mutant) => {
                let PlantedText { both, infer, small, rivals } = part(&value, "planted").map_err(wrong)?;
                Made::Planted(Box::new(Planted { mutant: *mutant, both, infer, small, rivals }))
            }
            Unit::Clean(kernel) => {
                let CleanText { statistics, first, seconds } = part(&value, "clean").map_err(wrong)?;
                let statistics = parse_brief(file, "statistics", &statistics).map_err(|error| error.line(line))?;
                let (asked, kernel) = (clean_asked(kernel), kernel.to_string());
                Made::Clean(Box::new(Clean { kernel, statistics, asked, first, seconds }))
            }
            Unit::Rivals => Made::Rivals(part(&value, "rejected").map_err(wrong)?),
        };
        Ok((number, made))
    }
}

#[cfg(test)]
mod tests {
    use super::super::unit::Asked;
    use super::super::{json, outcome::Outcome, shard_folder, table};
    use super::*;
    use crate::subject::attention::mutant::Mutant;
    use crate::subject::attention::power::judge::battery;
    use crate::subject::attention::power::{clean, clean_kernels, planted, rival_alarms};
    use std::collections::BTreeMap;

    /// With the same times, table and JSON are equal to the byte.
    #[test]
    fn an_outcome_of_lines_is_the_outcome() {
        let mutants: Vec<Mutant> = ["A-M1", "B-M1", "C-M2"].iter().map(|id| id.parse().unwrap()).collect();
        let asked = Asked { seed: 1, cases: 120, clean_cases: 40, rival_cases: 30, mutants };
        let settings = asked.settings(2);
        let one = Outcome {
            planted: planted(&asked.mutants, &settings, |_| {}),
            clean: clean(&clean_kernels(&asked.mutants), &settings, asked.clean_cases, |_, _| {}),
            rival_alarms: rival_alarms(&settings),
            judges: battery(),
            settings: settings.clone(),
        };
        let units = asked.units();
        let planted = one.planted.iter().map(|it| Made::Planted(Box::new(it.clone())));
        let clean = one.clean.iter().map(|it| Made::Clean(Box::new(it.clone())));
        let rivals = Made::Rivals(one.rival_alarms.iter().map(|it| it.rejected).collect());
        let lines: Vec<String> = (0..).zip(planted.chain(clean).chain([rivals])).map(|(n, made)| made.print(n)).collect();
        let read = lines.iter().enumerate().map(|(n, line)| Made::parse(line, &units, "x", n + 1).unwrap());
        let joined = shard_folder::outcome(&asked, read.collect::<BTreeMap<_, _>>()).unwrap();
        assert_eq!(table::page(&joined), table::page(&one));
        assert_eq!(json::value(&joined).to_string(), json::value(&one).to_string());

        let wrong = |text: &str| Made::parse(text, &units, "x", 7).unwrap_err().to_string();
        assert_eq!(wrong(r#"{"unit": 99}"#), format!("x:7: unit: 99: there are {}", units.len()));
        assert_eq!(wrong(r#"{"unit": 0, "clean": {}}"#), "x:7: planted: is missing");
        assert!(wrong("{").starts_with("x:7: is no line of a unit: "));
    }
}
