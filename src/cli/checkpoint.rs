//! How far a run is, as text: enough to go on as if it had never stopped.

use super::job::{Configuration, Job};
use crate::finding::{Accuracy, ERROR_BINS, Kind};
use crate::input_error::InputError;
use crate::lab::{Length, Sensitivity, Statistics};
use crate::number::Dtype;
use crate::reach::ReachCounts;
use crate::subject::attention::reach::PlanFeature;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

/// Of the file.
const FORMAT: u64 = 1;

/// Largest count that is read: a run that goes on adds to it.
const COUNT_MAX: u64 = 1 << 63;

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
        let top = Fields { file, path: String::new(), value: &value };
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
            length,
        };
        let seconds = top.get("seconds")?.as_f64().filter(|&seconds| Duration::try_from_secs_f64(seconds).is_ok());
        let found = top.get("found")?.as_array().ok_or_else(|| top.wrong("found", "is no list".into()))?;
        let found = found.iter().map(|entry| {
            let entry = Fields { file, path: "found.".into(), value: entry };
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

fn print_statistics(statistics: &Statistics) -> Value {
    // Every field by name: one that is added must be written here, or this does not compile.
    let Statistics {
        cases,
        matches,
        failed,
        skipped,
        undecided,
        empty,
        kinds,
        skips,
        signatures,
        elements,
        differing,
        sensitivity,
        escalations,
        relations,
        left_out,
        relations_left_out,
        set_aside,
        longest_kv,
        accuracy,
        reach,
    } = statistics;
    let Accuracy { judged, correctly_rounded, above, below, unbounded, out_of_range, worst, errors } = accuracy;
    let kinds: Map<String, Value> = kinds.iter().map(|(kind, count)| (kind.name().to_owned(), (*count).into())).collect();
    let reach: Map<String, Value> =
        PlanFeature::ALL.into_iter().map(|it| (it.name().to_owned(), it.count(reach).into())).collect();
    let sensitivity: Map<String, Value> = sensitivity
        .iter()
        .map(|(dtype, Sensitivity { capable, sensitive })| (dtype.name().to_owned(), json!([capable, sensitive])))
        .collect();
    json!({
        "cases": cases,
        "matches": matches,
        "failed": failed,
        "skipped": skipped,
        "undecided": undecided,
        "empty": empty,
        "kinds": kinds,
        "skips": skips,
        "signatures": signatures,
        "elements": elements,
        "differing": differing,
        "sensitivity": sensitivity,
        "escalations": escalations,
        "relations": relations,
        "left_out": left_out,
        "relations_left_out": relations_left_out,
        "set_aside": set_aside,
        "longest_kv": longest_kv,
        "accuracy": {
            "judged": judged,
            "correctly_rounded": correctly_rounded,
            "above": above,
            "below": below,
            "unbounded": unbounded,
            "out_of_range": out_of_range,
            // As its pattern: JSON has no infinity.
            "worst_bits": worst.to_bits(),
            "errors": errors,
        },
        "reach": reach,
    })
}

fn parse_statistics(fields: &Fields<'_>) -> Result<Statistics, InputError> {
    let counts = |name: &str| -> Result<BTreeMap<String, u64>, InputError> {
        Ok(fields.under(name)?.map(name, count)?.into_iter().collect())
    };
    let kinds = counts("kinds")?.into_iter().map(|(name, count)| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.map(|kind| (kind, count)).ok_or_else(|| fields.wrong("kinds", format!("`{name}` is none")))
    });
    let pair = |value: &Value| match value.as_array()?.as_slice() {
        [capable, sensitive] => Some(Sensitivity { capable: count(capable)?, sensitive: count(sensitive)? }),
        _ => None,
    };
    let sensitivity = fields.under("sensitivity")?.map("sensitivity", pair)?.into_iter().map(|(name, it)| {
        name.parse::<Dtype>().map(|dtype| (dtype, it)).map_err(|reason| fields.wrong("sensitivity", reason.to_string()))
    });
    let reached = fields.under("reach")?;
    let mut reach = ReachCounts::default();
    for feature in PlanFeature::ALL {
        reach.set(feature as usize, reached.count(feature.name())?);
    }
    let accuracy = fields.under("accuracy")?;
    let worst = f64::from_bits(accuracy.number("worst_bits")?);
    if worst.is_nan() {
        return Err(accuracy.wrong("worst_bits", "is NaN".into()));
    }
    let errors = accuracy.get("errors")?.as_array().and_then(|bins| bins.iter().map(count).collect::<Option<Vec<_>>>());
    let errors = errors.and_then(|bins| <[u64; ERROR_BINS]>::try_from(bins).ok());
    let errors = errors.ok_or_else(|| accuracy.wrong("errors", format!("is no list of {ERROR_BINS} counts")))?;
    Ok(Statistics {
        cases: fields.count("cases")?,
        matches: fields.count("matches")?,
        failed: fields.count("failed")?,
        skipped: fields.count("skipped")?,
        undecided: fields.count("undecided")?,
        empty: fields.count("empty")?,
        kinds: kinds.collect::<Result<_, _>>()?,
        skips: counts("skips")?,
        signatures: counts("signatures")?,
        elements: fields.count("elements")?,
        differing: fields.count("differing")?,
        sensitivity: sensitivity.collect::<Result<_, _>>()?,
        escalations: fields.count("escalations")?,
        relations: fields.count("relations")?,
        left_out: counts("left_out")?,
        relations_left_out: counts("relations_left_out")?,
        set_aside: fields.count("set_aside")?,
        longest_kv: fields.number("longest_kv")?,
        accuracy: Accuracy {
            judged: accuracy.count("judged")?,
            correctly_rounded: accuracy.count("correctly_rounded")?,
            above: accuracy.count("above")?,
            below: accuracy.count("below")?,
            unbounded: accuracy.count("unbounded")?,
            out_of_range: accuracy.count("out_of_range")?,
            worst,
            errors,
        },
        reach,
    })
}

/// A number of things that were counted.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().filter(|&count| count <= COUNT_MAX)
}

/// An object of the file, and where it stands.
struct Fields<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Fields<'a> {
    fn wrong(&self, name: &str, reason: String) -> InputError {
        InputError::new(self.file, reason).field(format!("{}{name}", self.path))
    }

    fn maybe(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    fn get(&self, name: &str) -> Result<&'a Value, InputError> {
        self.maybe(name).ok_or_else(|| self.wrong(name, "is missing".into()))
    }

    fn under(&self, name: &str) -> Result<Fields<'a>, InputError> {
        Ok(Fields { file: self.file, path: format!("{}{name}.", self.path), value: self.get(name)? })
    }

    fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<T, InputError> {
        let number = self.get(name)?.as_u64().and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| self.wrong(name, "is no number of its type".into()))
    }

    fn count(&self, name: &str) -> Result<u64, InputError> {
        count(self.get(name)?).ok_or_else(|| self.wrong(name, "is no count".into()))
    }

    fn text(&self, name: &str) -> Result<&'a str, InputError> {
        self.get(name)?.as_str().ok_or_else(|| self.wrong(name, "is no text".into()))
    }

    fn word<T: FromStr>(&self, name: &str) -> Result<T, InputError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| self.wrong(name, format!("`{text}` means nothing")))
    }

    /// All entries, in order.
    fn map<T>(&self, name: &str, entry: impl Fn(&Value) -> Option<T>) -> Result<Vec<(String, T)>, InputError> {
        let wrong = |reason: &str| InputError::new(self.file, reason).field(name);
        let object = self.value.as_object().ok_or_else(|| wrong("is no object"))?;
        object
            .iter()
            .map(|(key, value)| Ok((key.clone(), entry(value).ok_or_else(|| wrong(&format!("{key}: is not of its type")))?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::draw::Profile;
    use crate::subject::attention::oracle::Mode;

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
                length: Length::Time(Duration::from_secs(7)),
            },
            configuration: Configuration(
                [
                    ("seed", "18446744073709551615"),
                    ("profile", "long"),
                    ("oracle", "mpfr"),
                    ("pins", "heads=16/2"),
                    ("keep_going", "true"),
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
