//! One line of the verdict file: no times, no paths. In the folder of a shard it also says what the case adds to the statistics, and which
//! defects it shows, so that joining the shards gives what one run counts and keeps.

use super::statistics_text::{parse_brief, print_brief};
use crate::finding::{Finding, Verdict};
use crate::input_error::InputError;
use crate::lab::Statistics;
use serde_json::{Value, json};

/// What only a shard's lines have.
const COUNTS: &str = "counts";
const FAILURES: &str = "failures";

/// A line of a run.
pub(super) fn of_run(index: u64, verdict: &Verdict) -> String {
    line(index, verdict).to_string()
}

/// A line of a shard.
pub(super) fn of_shard(index: u64, verdict: &Verdict, counts: &Statistics) -> String {
    let mut line = line(index, verdict);
    let failures = verdict.findings.iter().filter(|finding| finding.kind().is_failure());
    let failures: Vec<Value> = failures.map(|finding| json!([finding.signature(), finding.family()])).collect();
    if !failures.is_empty() {
        line[FAILURES] = failures.into();
    }
    line[COUNTS] = print_brief(counts);
    line.to_string()
}

fn line(index: u64, verdict: &Verdict) -> Value {
    let headline = match verdict.headline() {
        Some(finding) => finding.kind().name(),
        None if verdict.compared == 0 => "empty",
        None => "match",
    };
    let mut line = json!({ "case": index, "verdict": headline, "elements": verdict.compared });
    if let Some(sensitive) = verdict.order_sensitive {
        line["order_sensitive"] = sensitive.into();
    }
    if !verdict.findings.is_empty() {
        line["findings"] = verdict.findings.iter().map(Finding::signature).collect();
    }
    line
}

/// A shard's line, read.
#[derive(Debug)]
pub(super) struct ShardLine {
    /// Index of the case.
    pub(super) index: u64,
    /// Its line in the file of a whole run.
    pub(super) of_run: String,
    pub(super) counts: Statistics,
    /// Signature and family of each failure, in the order of the findings.
    pub(super) failures: Vec<(String, String)>,
}

impl ShardLine {
    /// # Errors
    /// What is not as [`of_shard`] writes it.
    pub(super) fn parse(text: &str, file: &str, number: usize) -> Result<ShardLine, InputError> {
        let wrong = |reason: String| InputError::new(file, reason).line(number);
        let mut value: Value = serde_json::from_str(text).map_err(|error| wrong(format!("is no verdict line: {error}")))?;
        let fields = value.as_object_mut().ok_or_else(|| wrong("is no object".into()))?;
        // In place, so that the order of the fields is that of a run's line.
        let counts = fields.shift_remove(COUNTS).ok_or_else(|| wrong(format!("{COUNTS}: is missing: not a shard's line")))?;
        let failures = fields.shift_remove(FAILURES).unwrap_or_else(|| json!([]));
        let failures = serde_json::from_value(failures).map_err(|error| wrong(format!("{FAILURES}: {error}")))?;
        let counts = parse_brief(file, COUNTS, &counts).map_err(|error| error.line(number))?;
        let index = fields.get("case").and_then(Value::as_u64).ok_or_else(|| wrong("case: is no index".into()))?;
        Ok(ShardLine { index, of_run: value.to_string(), counts, failures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Fault, Path, Skip};
    use crate::number::Dtype;

    #[test]
    fn a_line_of_a_shard_is_that_of_a_run_and_what_it_counts() {
        let fault = Finding::Fault { path: Path::Train, fault: Fault::Failed("no memory".into()), relation: None };
        let skipped = Finding::Skipped { what: Skip::Case, reason: "too long".into() };
        for findings in [vec![], vec![skipped.clone()], vec![skipped, fault]] {
            let verdict = Verdict { findings, compared: 12, order_sensitive: Some(true), ..Verdict::default() };
            let counts = Statistics::of_case(&verdict, Dtype::F16, 9);
            let read = ShardLine::parse(&of_shard(41, &verdict, &counts), "x", 3).unwrap();
            assert_eq!((read.index, &read.of_run, &read.counts), (41, &of_run(41, &verdict), &counts));
            let failed = !read.failures.is_empty();
            assert_eq!(failed, verdict.failure().is_some());
            assert!(!failed || read.failures == [("fault train failed".to_owned(), "fault train".to_owned())]);
        }
        let error = ShardLine::parse(&of_run(0, &Verdict::default()), "x", 3).unwrap_err();
        assert_eq!(error.to_string(), "x:3: counts: is missing: not a shard's line");
    }
}
