//! A JSON object that is taken apart, so that nothing of it goes unread.

use crate::input_error::unknown;
use serde_json::{Map, Value};

/// The fields of an object that were not taken yet.
pub(super) struct Fields {
    at: String,
    known: &'static [&'static str],
    left: Map<String, Value>,
}

impl Fields {
    /// Of an object that may have the `known` fields.
    pub fn of(at: &str, value: Value, known: &'static [&'static str]) -> Result<Fields, String> {
        let Value::Object(left) = value else { return Err(format!("{at}: {value} is no JSON object")) };
        match left.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!("{at}: {}", unknown("field", key, known))),
            None => Ok(Fields { at: at.to_owned(), known, left }),
        }
    }

    /// The full name of a field.
    pub fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }

    /// A field; null is as if it were not there.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        debug_assert!(self.known.contains(&name), "{name} is not listed");
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// A text.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("{}: {other} is no text", self.path(name))),
        }
    }

    /// A text that must be there.
    pub fn required_text(&mut self, name: &str) -> Result<String, String> {
        self.text(name)?.ok_or_else(|| format!("{}: missing", self.path(name)))
    }

    /// True, false, or what holds where nothing is said.
    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool, String> {
        match self.take(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(format!("{}: {other} is neither true nor false", self.path(name))),
        }
    }

    /// A count.
    pub fn count(&mut self, name: &str) -> Result<Option<u32>, String> {
        let path = self.path(name);
        self.take(name).map(|value| count(&path, &value)).transpose()
    }

    /// A list without repetitions, each item as `read` takes it; a list that is there must not be empty.
    pub fn list<T: PartialEq>(
        &mut self,
        name: &str,
        read: impl Fn(&str, &Value) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>, String> {
        let path = self.path(name);
        self.take(name).map(|value| list(&path, &value, read)).transpose()
    }

    /// An object of texts.
    pub fn texts(&mut self, name: &str) -> Result<Vec<(String, String)>, String> {
        let path = self.path(name);
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let Value::Object(map) = value else { return Err(format!("{path}: {value} is no JSON object")) };
        let text = |(key, value)| match value {
            Value::String(text) => Ok((key, text)),
            other => Err(format!("{path}.{key}: {other} is no text")),
        };
        map.into_iter().map(text).collect()
    }
}

/// Items of the longest list: each is compared with all others.
const LONGEST: usize = 4096;

/// A list without repetitions that is not empty.
pub(super) fn list<T: PartialEq>(
    path: &str,
    value: &Value,
    read: impl Fn(&str, &Value) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let items = value.as_array().ok_or_else(|| format!("{path}: {value} is no list"))?;
    if items.len() > LONGEST {
        return Err(format!("{path}: the list has {} items; {LONGEST} are the most", items.len()));
    }
    let mut all = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let read = read(&format!("{path}[{n}]"), item)?;
        if all.contains(&read) {
            return Err(format!("{path}[{n}]: {item} is there twice"));
        }
        all.push(read);
    }
    if all.is_empty() {
        return Err(format!("{path}: the list is empty; leave the field out for \"anything\""));
    }
    Ok(all)
}

/// A count of at least 1.
pub(super) fn count(path: &str, value: &Value) -> Result<u32, String> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|&number| number > 0);
    number.ok_or_else(|| format!("{path}: {value} is no number from 1 to {}", u32::MAX))
}

/// One of some names.
pub(super) fn named<T: Copy>(kind: &str, path: &str, value: &Value, all: &[(&str, T)]) -> Result<T, String> {
    let name = value.as_str().ok_or_else(|| format!("{path}: {value} is no text"))?;
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, it)| *it).ok_or_else(|| format!("{path}: {}", unknown(kind, name, &names())))
}
