//! Reading JSON that a run wrote, with a word on each field that is not as it should be.

use crate::input_error::InputError;
use serde_json::Value;
use std::str::FromStr;

/// Largest count that is read: a run that goes on adds to it.
pub(super) const COUNT_MAX: u64 = 1 << 63;

/// A number of things that were counted.
pub(super) fn count(value: &Value) -> Option<u64> {
    value.as_u64().filter(|&count| count <= COUNT_MAX)
}

/// An object of the file, and where it stands.
pub(super) struct Fields<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Fields<'a> {
    /// All of a file, or of a line in it.
    pub(super) fn top(file: &'a str, value: &'a Value) -> Self {
        Fields::at(file, "", value)
    }

    /// An object whose fields are called `path` and their name.
    pub(super) fn at(file: &'a str, path: &str, value: &'a Value) -> Self {
        Fields { file, path: path.to_owned(), value }
    }

    pub(super) fn wrong(&self, name: &str, reason: String) -> InputError {
        InputError::new(self.file, reason).field(format!("{}{name}", self.path))
    }

    pub(super) fn maybe(&self, name: &str) -> Option<&'a Value> {
        self.value.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn get(&self, name: &str) -> Result<&'a Value, InputError> {
        self.maybe(name).ok_or_else(|| self.wrong(name, "is missing".into()))
    }

    pub(super) fn under(&self, name: &str) -> Result<Fields<'a>, InputError> {
        Ok(Fields { file: self.file, path: format!("{}{name}.", self.path), value: self.get(name)? })
    }

    pub(super) fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<T, InputError> {
        let number = self.get(name)?.as_u64().and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| self.wrong(name, "is no number of its type".into()))
    }

    pub(super) fn count(&self, name: &str) -> Result<u64, InputError> {
        count(self.get(name)?).ok_or_else(|| self.wrong(name, "is no count".into()))
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a str, InputError> {
        self.get(name)?.as_str().ok_or_else(|| self.wrong(name, "is no text".into()))
    }

    pub(super) fn word<T: FromStr>(&self, name: &str) -> Result<T, InputError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| self.wrong(name, format!("`{text}` means nothing")))
    }

    /// All entries, in order.
    pub(super) fn map<T>(&self, name: &str, entry: impl Fn(&Value) -> Option<T>) -> Result<Vec<(String, T)>, InputError> {
        let wrong = |reason: &str| InputError::new(self.file, reason).field(name);
        let object = self.value.as_object().ok_or_else(|| wrong("is no object"))?;
        object
            .iter()
            .map(|(key, value)| Ok((key.clone(), entry(value).ok_or_else(|| wrong(&format!("{key}: is not of its type")))?)))
            .collect()
    }
}
