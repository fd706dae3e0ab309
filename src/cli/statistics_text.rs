//! Statistics as JSON and back: of a run, in full; of one case, what is not as in an empty one.

use super::json_fields::{Fields, count};
use crate::finding::{Accuracy, ERROR_BINS, Kind};
use crate::input_error::InputError;
use crate::lab::{Sensitivity, Statistics};
use crate::number::Dtype;
use crate::reach::ReachCounts;
use crate::subject::attention::reach::PlanFeature;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Every field by name.
pub(super) fn print_statistics(statistics: &Statistics) -> Value {
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

/// Reads what [`print_statistics`] writes.
///
/// # Errors
/// Which field is not as that writes it.
pub(super) fn parse_statistics(fields: &Fields<'_>) -> Result<Statistics, InputError> {
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

/// The fields that differ from those of no case: a line for each case of a run must be short.
pub(super) fn print_brief(statistics: &Statistics) -> Value {
    let mut value = print_statistics(statistics);
    prune(&mut value, &print_statistics(&Statistics::default()));
    value
}

/// Reads what [`print_brief`] writes; `field` is where it stands, for messages.
///
/// # Errors
/// Which field is not as that writes it.
pub(super) fn parse_brief(file: &str, field: &str, value: &Value) -> Result<Statistics, InputError> {
    let mut whole = print_statistics(&Statistics::default());
    fill(&mut whole, value);
    parse_statistics(&Fields::at(file, &format!("{field}."), &whole))
}

fn prune(value: &mut Value, base: &Value) {
    if let (Value::Object(fields), Value::Object(base)) = (value, base) {
        fields.retain(|name, value| {
            let Some(base) = base.get(name) else { return true };
            let same = value == base;
            prune(value, base);
            !same
        });
    }
}

fn fill(whole: &mut Value, part: &Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, value) in part {
                fill(whole.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
        (whole, part) => *whole = part.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brief_text_is_read_as_it_was_written_and_is_brief() {
        let mut one = Statistics { cases: 1, matches: 1, elements: 9, longest_kv: 7, ..Statistics::default() };
        one.sensitivity.insert(Dtype::BF16, Sensitivity { capable: 1, sensitive: 0 });
        one.skips.insert("kv = 3 is \"odd\"".into(), 2);
        one.kinds.insert(Kind::Skipped, 1);
        one.accuracy.worst = 0.1 + 0.2;
        one.reach.set(PlanFeature::Preempt as usize, 1);
        let value = print_brief(&one);
        assert_eq!(parse_brief("x", "counts", &value).unwrap(), one);
        assert_eq!(print_brief(&Statistics::default()), json!({}));
        assert!(value.to_string().len() < 300, "{value}");
        let error = parse_brief("x", "counts", &json!({ "cases": -1 })).unwrap_err();
        assert_eq!(error.to_string(), "x: counts.cases: is no count");
    }
}
