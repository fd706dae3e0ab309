//! What can be checked of a certificate, from the file alone up to everything run again.

use super::build::{Earlier, battery_text};
use super::certificate::{Certificate, KernelText, Previous};
use super::claim::Claim;
use super::counterexample;
use super::digest::sha256;
use super::statement::Statement;
use super::waiver;
use super::work::Work;
use crate::input_error::InputError;
use serde_json::Value;
use std::path::Path;

/// Reads a certificate from which something else is to follow: it must be what was written.
///
/// # Errors
/// It cannot be read, or is not [`intact`].
pub fn load_intact(path: &Path) -> Result<Statement, InputError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
    let statement = Statement::read(&file, &text)?;
    intact(&statement, &text).map_err(|reason| InputError::new(file, reason))?;
    Ok(statement)
}

/// Whether a file's text is what was written: its seal, its digest, the parts of the statement that follow from the claims, terms that can be
/// asked for, and not a byte beside.
///
/// # Errors
/// What does not hold.
pub fn intact(statement: &Statement, text: &str) -> Result<(), String> {
    let certificate = &statement.predicate.lastbit;
    if statement.seal_digest() != certificate.seal {
        return Err("the seal does not hold: a byte of the file is another than was written".to_owned());
    }
    if statement.content_digest() != certificate.digest {
        return Err("the digest is not that of the certificate's contents".to_owned());
    }
    let again = Statement::new(certificate.clone()).with_environment(certificate.environment.clone());
    if let Some(it) = difference(statement, &again) {
        return Err(format!("the statement does not follow from the certificate in it: {it}"));
    }
    for (n, waiver) in certificate.waivers.iter().enumerate() {
        waiver::means_something(waiver).map_err(|(field, reason)| format!("waivers[{n}].{field}: {reason}"))?;
    }
    let floor = certificate.power.mutants.floor;
    if !(0.0..=1.0).contains(&floor) {
        return Err(format!("power.mutants.floor: {floor} is no share"));
    }
    // A reader may take the first of two fields of one name, or the last.
    if statement.print() != text {
        return Err("the text is not the one that was written: a field stands there twice, or it was laid out anew".to_owned());
    }
    Ok(())
}

/// Whether a kernel is the one that a certificate is about.
///
/// # Errors
/// The field that is another, with both values.
pub fn same_kernel(certified: &KernelText, found: &KernelText) -> Result<(), String> {
    // However it is spelled: the fields say whether it is the same.
    let found = KernelText { words: certified.words.clone(), ..found.clone() };
    match difference(certified, &found) {
        None => Ok(()),
        Some(it) => Err(format!("the {} kernel is not the one that was certified: {it}", certified.side)),
    }
}

/// Whether an earlier certificate is the one that a certificate was held against.
///
/// # Errors
/// It was held against none, or the field that is another.
pub fn same_previous(certificate: &Certificate, earlier: &Certificate) -> Result<(), String> {
    match difference(&certificate.previous, &Some(Previous::of(earlier))) {
        None => Ok(()),
        Some(it) => Err(format!("the earlier certificate is not the one that it was held against: {it}")),
    }
}

/// The earlier certificate of a certificate, as far as that says: for where it is not at hand. `None`: it was held against none.
pub fn named_previous(certificate: &Certificate) -> Option<Earlier> {
    let claim = certificate.claims.iter().find(|it| it.claim == Claim::VersionEqual.name())?;
    Some(Earlier::Named(Box::new(certificate.previous.clone()?), claim.status, claim.reason.clone()))
}

/// Whether the battery that is derived here is that of a certificate.
///
/// # Errors
/// The field that is another.
pub fn same_battery(certificate: &Certificate, work: &Work) -> Result<(), String> {
    let names: Vec<&str> = work.claims.iter().map(|claim| claim.name()).collect();
    let claimed: Vec<&str> = certificate.claims.iter().map(|it| it.claim.as_str()).collect();
    if let Some(missing) = names.iter().find(|name| !claimed.contains(name)) {
        return Err(format!("the claim {missing} of the battery is not in the certificate"));
    }
    match difference(&certificate.battery, &battery_text(&work.battery, &work.claims)) {
        None => Ok(()),
        Some(it) => Err(format!("the battery is not the one that is derived again: {it}")),
    }
}

/// Whether the counterexamples are what their cases make on these kernels, and each claim names its own.
///
/// # Errors
/// The counterexample, and what does not hold of it.
pub fn same_counterexamples(certificate: &Certificate, work: &Work) -> Result<(), String> {
    let words = certificate.kernels.each_ref().map(|it| it.words.as_str());
    for it in &certificate.counterexamples {
        let wrong = |reason: String| format!("the counterexample {} {reason}", it.file);
        if sha256(&it.text) != it.sha256 {
            return Err(wrong("is not the case that its digest is of".to_owned()));
        }
        let mut again = counterexample::again(work, it, words).map_err(wrong)?;
        // Another text is said to be that, not to have another digest.
        again.sha256.clone_from(&it.sha256);
        if it.signature.starts_with("fault") {
            // It quotes the kernel, which may say another thing each time.
            again.verdict.clone_from(&it.verdict);
        }
        if let Some(difference) = difference(it, &again) {
            return Err(wrong(format!("is not what its case makes: {difference}")));
        }
    }
    for claim in &certificate.claims {
        let own = certificate.counterexamples.iter().filter(|it| it.claims.contains(&claim.claim)).map(|it| &it.sha256);
        if !own.eq(&claim.counterexamples) {
            return Err(format!("the counterexamples of {} are not those that fail it", claim.claim));
        }
    }
    Ok(())
}

/// Whether two certificates say the same, apart from where and when; `counterexamples`: with those.
///
/// # Errors
/// The first field that differs, with both values.
pub fn same_content(certified: &Certificate, again: &Certificate, counterexamples: bool) -> Result<(), String> {
    let bare = |it: &Certificate| {
        let mut it = it.clone();
        (it.environment, it.digest, it.seal) = Default::default();
        it.kernels.iter_mut().for_each(|kernel| kernel.words.clear());
        if !counterexamples {
            it.counterexamples.clear();
            it.claims.iter_mut().for_each(|claim| claim.counterexamples.clear());
        }
        it
    };
    difference(&bare(certified), &bare(again)).map_or(Ok(()), Err)
}

/// The claims of a battery that an earlier certificate was asked for with.
pub fn claims_of(certificate: &Certificate) -> Vec<Claim> {
    let against = certificate.battery.claims.iter().any(|name| name == Claim::VersionEqual.name());
    Claim::ALL.into_iter().filter(|&claim| claim != Claim::VersionEqual || against).collect()
}

/// The first field in which two values differ as JSON: `path: there, here`.
fn difference(there: &impl serde::Serialize, here: &impl serde::Serialize) -> Option<String> {
    let json = |error: serde_json::Error| panic!("a value of this crate is JSON: {error}");
    let there = serde_json::to_value(there).unwrap_or_else(json);
    let here = serde_json::to_value(here).unwrap_or_else(|error| panic!("a value of this crate is JSON: {error}"));
    first(&there, &here, "")
}

fn first(there: &Value, here: &Value, path: &str) -> Option<String> {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (there, here) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            let of = |map: &serde_json::Map<String, Value>, name: &String| map.get(name).cloned().unwrap_or(Value::Null);
            names.into_iter().find_map(|name| first(&of(a, name), &of(b, name), &at(name)))
        }
        (Value::Array(a), Value::Array(b)) => {
            let of = |list: &[Value], n: usize| list.get(n).cloned().unwrap_or(Value::Null);
            (0..a.len().max(b.len())).find_map(|n| first(&of(a, n), &of(b, n), &at(&n.to_string())))
        }
        _ if there == here => None,
        _ => Some(format!("{path}: the certificate has {}, here it is {}", short(there), short(here))),
    }
}

fn short(value: &Value) -> String {
    crate::input_error::shorten(&value.to_string())
}
