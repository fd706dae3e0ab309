//! Reading a certificate: what is wrong is named by file, line and field.

use super::certificate::{Certificate, FORMAT, Status};
use super::statement::{Outcome, PREDICATE, Predicate, STATEMENT, Statement};
use crate::input_error::{InputError, shorten};

impl Statement {
    /// Reads the JSON text of a certificate. `file` is how errors call it.
    ///
    /// This is no verification: it is only made sure that the parts agree with each other, so that nothing that is drawn from one of
    /// them contradicts another.
    ///
    /// # Errors
    /// No JSON (with the line), a field that is missing, unknown or of another type, another kind of statement or another format, a map
    /// whose cells are not as many as its rows and columns, lists of tests or a result that the claims do not bear out.
    pub fn read(file: &str, text: &str) -> Result<Statement, InputError> {
        let wrong = |field: &str, reason: String| InputError::new(file, reason).field(field);
        // The types refuse what they do not know, so that a statement of another kind is told first, by its own name.
        let value: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| InputError::new(file, format!("is no JSON: {error}")).line(error.line()))?;
        for (field, expected) in [("_type", STATEMENT), ("predicateType", PREDICATE)] {
            match value.get(field).and_then(|it| it.as_str()) {
                Some(found) if found == expected => {}
                Some(found) => return Err(wrong(field, format!("is `{}`; a certificate has `{expected}`", shorten(found)))),
                None => return Err(wrong(field, format!("is missing; a certificate has `{expected}`"))),
            }
        }
        let format = value.pointer("/predicate/lastbit/format").and_then(|it| it.as_u64());
        if let Some(format) = format
            && format != u64::from(FORMAT)
        {
            let reason = format!("is {format}; this version of lastbit reads {FORMAT}");
            return Err(wrong("predicate.lastbit.format", reason));
        }
        let statement: Statement = serde_path_to_error::deserialize(&value).map_err(|error| {
            let path = error.path().to_string();
            let reason = error.into_inner().to_string();
            if path == "." { InputError::new(file, reason) } else { wrong(&path, reason) }
        })?;
        shapes(&statement.predicate.lastbit).map_err(|(field, reason)| wrong(&format!("predicate.lastbit.{field}"), reason))?;
        lists(&statement.predicate).map_err(|(field, reason)| wrong(&format!("predicate.{field}"), reason))?;
        Ok(statement)
    }
}

fn shapes(certificate: &Certificate) -> Result<(), (String, String)> {
    if certificate.claims.is_empty() {
        return Err(("claims".into(), "is empty; a certificate without claims says nothing".into()));
    }
    for (n, map) in certificate.coverage.maps.iter().enumerate() {
        let (rows, columns) = (map.rows.len(), map.columns.len());
        if map.cells.len() != rows || map.cells.iter().any(|row| row.len() != columns) {
            return Err((
                format!("coverage.maps[{n}].cells"),
                format!("is not {rows} rows of {columns} cells, as its names are"),
            ));
        }
    }
    Ok(())
}

/// The public part of the predicate follows from the claims.
fn lists(predicate: &Predicate) -> Result<(), (&'static str, String)> {
    let claims = &predicate.lastbit.claims;
    let named = |fits: &dyn Fn(Status, bool) -> bool| -> Vec<&str> {
        claims.iter().filter(|it| fits(it.status, it.waived.is_some())).map(|it| it.claim.as_str()).collect()
    };
    let passed = named(&|status, _| status == Status::Pass);
    let failed = named(&|status, waived| status == Status::Fail && !waived);
    let warned = named(&|status, waived| status == Status::Unverifiable || (status == Status::Fail && waived));
    let lists = [
        ("passedTests", &predicate.passed_tests, &passed),
        ("warnedTests", &predicate.warned_tests, &warned),
        ("failedTests", &predicate.failed_tests, &failed),
    ];
    for (field, found, expected) in lists {
        if found != expected {
            return Err((field, format!("does not follow from the claims, which say [{}]", shorten(&expected.join(", ")))));
        }
    }
    let expected = match (failed.is_empty(), warned.is_empty()) {
        (false, _) => Outcome::Failed,
        (true, false) => Outcome::Warned,
        (true, true) => Outcome::Passed,
    };
    if predicate.result != expected {
        let reason = format!("is {:?}, but the claims say {expected:?}", predicate.result).to_uppercase();
        return Err(("result", format!("does not follow from the claims: {reason}")));
    }
    Ok(())
}
