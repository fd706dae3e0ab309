//! How far a run is, as text: enough to go on as if it had never stopped.

use super::job::{Configuration, Job};
use super::json_fields::Fields;
use super::statistics_text::{parse_statistics, print_statistics};
use crate::input_error::InputError;
use crate::lab::{Length, Statistics};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Of the file.
const FORMAT: u64 = 1;

/// A run between two cases.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checkpoint {
    /// As the run was asked for.
    pub(super) job: Job,
    pub(super) configuration: Configuration,
    /// Length of the verdict file.
    pub(super) verdict_bytes: u64,
    pub(super) state: State,
}

/// What has been done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    /// Over all cases so far; the next one has the index `cases`.
    pub(super) statistics: Statistics,
    /// Index and signature of each kept finding.
    pub(super) found: Vec<(u64, String)>,
    /// Time spent on cases, in all parts of the run together.
    pub(super) seconds: f64,
}

impl Checkpoint {
    pub(super) fn print(&self) -> String {
        let Checkpoint { job, configuration, verdict_bytes, state } = self;
        let configuration: Map<String, Value> =
            configuration.0.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let (cases, seconds) = match job.length {
            Length::Cases(count) => (Some(count), None),
            Length::Time(limit) => (None, Some(limit.as_secs())),
        };
        let found: Vec<Value> = state.found.iter().map(|(case, finding)| json!({ "case": case, "finding": finding })).collect();
        let text = json!({
            "format": FORMAT,
            "asked": {
                "train": job.train,
                "infer": job.infer,
                "data": job.data.as_ref().map(|path| path.to_string_lossy()),
                "cases": cases,
                "time": seconds,
            },
            "configuration": configuration,
            "verdict_bytes": verdict_bytes,
            "seconds": state.seconds,
            "found": found,
            "statistics": print_statistics(&state.statistics),
        });
        format!("{text:#}\n")
    }

    /// Reads a checkpoint; `file` is for messages.
    ///
    /// # Errors
    /// Not what [`Checkpoint::print`] writes: the field, and what is wrong with it.
    pub(super) fn parse(text: &str, file: &str) -> Result<Checkpoint, InputError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| InputError::new(file, format!("is no checkpoint: {error}")))?;
        let top = Fields::top(file, &value);
        let format: u64 = top.number("format")?;
        if format != FORMAT {
            return Err(top.wrong("format", format!("is {format}; this lastbit reads {FORMAT}")));
        }
        let (asked, settings) = (top.under("asked")?, top.under("configuration")?);
        let configuration = settings.map("configuration", |value| value.as_str().map(str::to_owned))?;
        let length = match asked.maybe("cases") {
            Some(_) => Length::Cases(asked.number("cases")?),
            None => Length::Time(Duration::from_secs(asked.number("time")?)),
        };
        let job = Job {
            train: asked.text("train")?.to_owned(),
            infer: asked.text("infer")?.to_owned(),
            seed: settings.word("seed")?,
            profile: settings.word("profile")?,
            oracle: settings.word("oracle")?,
            pins: settings.word("pins")?,
            data: asked.maybe("data").map(|_| asked.text("data")).transpose()?.map(Into::into),
            keep_going: settings.word("keep_going")?,
            shard: settings.maybe("shard").map(|_| settings.word("shard")).transpose()?,
            length,
        };
        let seconds = top.get("seconds")?.as_f64().filter(|&seconds| Duration::try_from_secs_f64(seconds).is_ok());
        let found = top.get("found")?.as_array().ok_or_else(|| top.wrong("found", "is no list".into()))?;
        let found = found.iter().map(|entry| {
            let entry = Fields::at(file, "found.", entry);
            Ok((entry.number("case")?, entry.text("finding")?.to_owned()))
        });
        let state = State {
            statistics: parse_statistics(&top.under("statistics")?)?,
            found: found.collect::<Result<_, InputError>>()?,
            seconds: seconds.ok_or_else(|| top.wrong("seconds", "is no time".into()))?,
        };
        let configuration = Configuration(configuration);
        Ok(Checkpoint { job, configuration, verdict_bytes: top.number("verdict_bytes")?, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::json_fields::COUNT_MAX;
    use crate::finding::{Accuracy, Kind};
    use crate::lab::Sensitivity;
    use crate::number::Dtype;
    use crate::reach::ReachCounts;
    use crate::subject::attention::draw::Profile;
    use crate::subject::attention::oracle::Mode;
    use crate::subject::attention::reach::PlanFeature;

    /// Another value in every field.
    fn sample() -> Checkpoint {
        let accuracy = Accuracy {
            judged: COUNT_MAX,
            correctly_rounded: 21,
            above: 22,
            below: 23,
            unbounded: 24,
            out_of_range: 25,
            worst: 0.1 + 0.2,
            errors: std::array::from_fn(|n| 100 + n as u64),
        };
        let mut reach = ReachCounts::default();
        PlanFeature::ALL.into_iter().zip(30..).for_each(|(feature, cases)| reach.set(feature as usize, cases));
        let statistics = Statistics {
            cases: 1,
            matches: 2,
            failed: 3,
            skipped: 4,
            undecided: 5,
            empty: 6,
            kinds: Kind::ALL.into_iter().zip(7..).collect(),
            skips: [("train: \"d\" = 3,\n\u{1f600}".to_owned(), 8)].into(),
            signatures: [("mismatch o".to_owned(), 9), ("fault train failed".to_owned(), 10)].into(),
            elements: (1 << 53) + 1,
            differing: 12,
            sensitivity: [(Dtype::BF16, Sensitivity { capable: 13, sensitive: 14 })].into(),
            escalations: 15,
            relations: 16,
            left_out: [("window (infer does not do it)".to_owned(), 26)].into(),
            relations_left_out: [("pages: page sizes (infer: 16, 256)".to_owned(), 27)].into(),
            set_aside: 28,
            longest_kv: u32::MAX,
            accuracy,
            reach,
        };
        Checkpoint {
            job: Job {
                train: "ref:p-bf16".into(),
                infer: "ref:aligned".into(),
                seed: u64::MAX,
                profile: Profile::Long,
                oracle: Mode::Mpfr,
                pins: "heads=16/2".parse().unwrap(),
                data: Some("some/file".into()),
                keep_going: true,
                shard: Some("3/5".parse().unwrap()),
                length: Length::Time(Duration::from_secs(7)),
            },
            configuration: Configuration(
                [
                    ("seed", "18446744073709551615"),
                    ("profile", "long"),
                    ("oracle", "mpfr"),
                    ("pins", "heads=16/2"),
                    ("keep_going", "true"),
                    ("shard", "3/5"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ),
            verdict_bytes: 17,
            state: State { statistics, found: vec![(18, "mismatch o".into())], seconds: 1.0 / 3.0 },
        }
    }

    #[test]
    fn a_checkpoint_is_read_as_it_was_written() {
        let mut checkpoint = sample();
        for (worst, length) in
            [(0.1 + 0.2, Length::Cases(9)), (f64::INFINITY, Length::Cases(0)), (0.0, Length::Time(Duration::ZERO))]
        {
            checkpoint.state.statistics.accuracy.worst = worst;
            checkpoint.job.length = length;
            assert_eq!(Checkpoint::parse(&checkpoint.print(), "x").unwrap(), checkpoint);
        }
        checkpoint.job.data = None;
        checkpoint.state = State::default();
        assert_eq!(Checkpoint::parse(&checkpoint.print(), "x").unwrap(), checkpoint);
    }

    #[test]
    fn what_is_no_checkpoint_is_refused_by_field() {
        let text = sample().print();
        let worst = format!("\"worst_bits\": {}", (0.1f64 + 0.2).to_bits());
        for (from, to, part) in [
            ("\"format\": 1", "\"format\": 2", "x: format: is 2"),
            ("\"train\":", "\"tram\":", "x: asked.train: is missing"),
            ("\"cases\": 1", "\"cases\": -1", "x: statistics.cases: is no count"),
            ("4294967295", "4294967296", "x: statistics.longest_kv: is no number of its type"),
            ("9223372036854775808", "9223372036854775809", "x: statistics.accuracy.judged: is no count"),
            ("\"mismatch o\": 9", "\"mismatch o\": 18446744073709551615", "x: signatures: mismatch o: is not of its type"),
            ("\"preempt\": 40", "\"prompt\": 40", "x: statistics.reach.preempt: is missing"),
            (&worst, "\"worst_bits\": 9221120237041090560", "x: statistics.accuracy.worst_bits: is NaN"),
            ("\"mismatch\": ", "\"mishap\": ", "x: statistics.kinds: `mishap`"),
            ("\"bf16\": [", "\"bf17\": [", "x: statistics.sensitivity: "),
            ("\"mpfr\"", "\"mfpr\"", "x: configuration.oracle: "),
            ("\"seconds\": 0.3", "\"seconds\": -0.3", "x: seconds: is no time"),
            ("\"case\": 18", "\"case\": null", "x: found.case: is missing"),
            ("{", "", "x: is no checkpoint"),
        ] {
            assert!(text.contains(from), "{from} is not in {text}");
            let error = Checkpoint::parse(&text.replacen(from, to, 1), "x").unwrap_err().to_string();
            assert!(error.starts_with(part), "{from}: {error}");
        }
    }
}
