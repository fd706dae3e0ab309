//! Strict reading of TOML tables: every field known, present and of the right type, or an error that says where.

use crate::input_error::{InputError, shorten, unknown};
use crate::subject::attention::validate::FieldError;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The text being read; remembers where each field stands, for errors found later.
pub(crate) struct Reader<'t> {
    pub file: &'t str,
    pub text: &'t str,
    places: RefCell<BTreeMap<String, usize>>,
}

impl<'t> Reader<'t> {
    pub fn new(file: &'t str, text: &'t str) -> Self {
        Reader { file, text, places: RefCell::new(BTreeMap::new()) }
    }

    /// The text as TOML of this format.
    ///
    /// # Errors
    /// Text that is not TOML, or says that it is of another format: a file of a later one may well have fields that are unknown here.
    pub fn document(&self, format: u32) -> Result<Spanned<DeTable<'t>>, InputError> {
        let text = self.text;
        let document = DeTable::parse(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| text.as_bytes()[..span.start.min(text.len())].iter().filter(|&&b| b == b'\n').count() + 1);
            InputError { line, ..InputError::new(self.file, format!("not TOML: {}", shorten(error.message()))) }
        })?;
        if let Some(said) = document.get_ref().get("format")
            && let Some(integer) = said.get_ref().as_integer()
            && integer.to_string() != format.to_string()
        {
            let found = shorten(&integer.to_string());
            return Err(self.error(said.span().start, "format", format!("is {found}; this version reads format {format}")));
        }
        Ok(document)
    }

    pub fn error(&self, at: usize, field: impl Into<String>, reason: impl Into<String>) -> InputError {
        let newlines = self.text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
        InputError::new(self.file, reason).field(field).line(newlines + 1)
    }

    /// Adds the line of the field, or of the nearest one that encloses it.
    pub fn locate(&self, error: FieldError) -> InputError {
        let places = self.places.borrow();
        let mut path = error.field.as_str();
        loop {
            if let Some(&at) = places.get(path) {
                return self.error(at, error.field, error.reason);
            }
            match path.rfind(['.', '[']) {
                Some(cut) => path = &path[..cut],
                None => return error.in_file(self.file),
            }
        }
    }
}

/// A table whose keys have been checked.
pub(crate) struct Section<'a, 't> {
    reader: &'a Reader<'t>,
    path: String,
    at: usize,
    table: &'a DeTable<'t>,
}

impl<'a, 't> Section<'a, 't> {
    pub fn top(reader: &'a Reader<'t>, table: &'a Spanned<DeTable<'t>>, known: &[&str]) -> Result<Self, InputError> {
        Section { reader, path: String::new(), at: table.span().start, table: table.get_ref() }.known(known)
    }

    /// Refuses any key that is not known, the first in the file.
    fn known(self, known: &[&str]) -> Result<Self, InputError> {
        let strange = self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        match strange.min_by_key(|key| key.span().start) {
            None => Ok(self),
            Some(key) => {
                let path = self.child(&shorten(key.get_ref()));
                Err(self.reader.error(key.span().start, path, unknown("field", key.get_ref(), known)))
            }
        }
    }

    fn child(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }

    pub fn get(&self, name: &str) -> Option<Field<'a, 't>> {
        let (key, value) = self.table.get_key_value(name)?;
        let field = Field { reader: self.reader, path: self.child(name), at: place(key, value), value: value.get_ref() };
        self.reader.places.borrow_mut().insert(field.path.clone(), field.at);
        Some(field)
    }

    pub fn need(&self, name: &str) -> Result<Field<'a, 't>, InputError> {
        self.get(name).ok_or_else(|| self.reader.error(self.at, self.child(name), "missing field"))
    }

    /// Refuses fields that mean nothing beside the value of another.
    pub fn only_with(&self, names: &[&str], holds: bool, condition: &str) -> Result<(), InputError> {
        match names.iter().filter(|_| !holds).find_map(|name| self.get(name)) {
            Some(field) => Err(field.error(format!("only with {condition}"))),
            None => Ok(()),
        }
    }

    /// Every leaf as `(dotted path below this table, field)`, in file order.
    ///
    /// # Errors
    /// A quoted key with a dot in it, which would read like a dotted one.
    pub fn leaves(&self) -> Result<Vec<(String, Field<'a, 't>)>, InputError> {
        let mut leaves = Vec::new();
        let mut open = vec![(String::new(), self.table)];
        while let Some((prefix, table)) = open.pop() {
            for (key, value) in table.iter() {
                let name = format!("{prefix}{}", key.get_ref());
                if key.get_ref().contains('.') {
                    let path = self.child(&shorten(&name));
                    return Err(self.reader.error(key.span().start, path, "a quoted key with a dot in it; write the dots bare"));
                }
                match value.get_ref() {
                    DeValue::Table(inner) if !inner.is_empty() => open.push((format!("{name}."), inner)),
                    leaf => {
                        let path = self.child(&shorten(&name));
                        leaves.push((name, Field { reader: self.reader, path, at: place(key, value), value: leaf }));
                    }
                }
            }
        }
        leaves.sort_by_key(|(_, field)| field.at);
        Ok(leaves)
    }
}

/// Keys of inline tables and of lines stand before their value; a table's header has only the value's place.
fn place(key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) -> usize {
    if value.get_ref().is_table() { value.span().start } else { key.span().start }
}

/// A value and where it stands.
pub(crate) struct Field<'a, 't> {
    reader: &'a Reader<'t>,
    pub path: String,
    pub at: usize,
    value: &'a DeValue<'t>,
}

impl<'a, 't> Field<'a, 't> {
    pub fn error(&self, reason: impl Into<String>) -> InputError {
        self.reader.error(self.at, self.path.clone(), reason)
    }

    fn wrong(&self, expected: impl Display) -> InputError {
        let found = match self.value {
            DeValue::Integer(n) => format!("`{}`", shorten(&n.to_string())),
            DeValue::Float(x) => format!("`{}`", shorten(x.as_str())),
            DeValue::String(text) => format!("the string \"{}\"", shorten(text)),
            DeValue::Boolean(flag) => format!("`{flag}`"),
            DeValue::Datetime(_) => "a date".into(),
            DeValue::Array(_) => "an array".into(),
            DeValue::Table(_) => "a table".into(),
        };
        self.error(format!("expected {expected}, found {found}"))
    }

    pub fn table(&self, known: &[&str]) -> Result<Section<'a, 't>, InputError> {
        self.open()?.known(known)
    }

    /// A table whose keys are not known here.
    pub fn open(&self) -> Result<Section<'a, 't>, InputError> {
        let DeValue::Table(table) = self.value else { return Err(self.wrong("a table")) };
        Ok(Section { reader: self.reader, path: self.path.clone(), at: self.at, table })
    }

    pub fn list(&self, most: usize) -> Result<Vec<Field<'a, 't>>, InputError> {
        let DeValue::Array(array) = self.value else { return Err(self.wrong("an array")) };
        if array.len() > most {
            return Err(self.error(format!("has {} elements; {most} are the most", array.len())));
        }
        let element = |(n, value): (usize, &'a Spanned<DeValue<'t>>)| {
            let field = Field {
                reader: self.reader,
                path: format!("{}[{n}]", self.path),
                at: value.span().start,
                value: value.get_ref(),
            };
            self.reader.places.borrow_mut().insert(field.path.clone(), field.at);
            field
        };
        Ok(array.iter().enumerate().map(element).collect())
    }

    pub fn numbers(&self, most: usize) -> Result<Vec<u32>, InputError> {
        self.list(most)?.iter().map(Field::u32).collect()
    }

    pub fn floats(&self, most: usize) -> Result<Vec<f32>, InputError> {
        self.list(most)?.iter().map(Field::f32).collect()
    }

    /// The strings of an array with their places, for arrays too long to name every element.
    pub fn strings(&self) -> Result<Vec<(&'a str, usize)>, InputError> {
        let DeValue::Array(array) = self.value else { return Err(self.wrong("an array of strings")) };
        let text = |value: &'a Spanned<DeValue<'t>>| {
            let at = value.span().start;
            let Some(text) = value.get_ref().as_str() else {
                return Err(self.reader.error(at, self.path.clone(), "expected an array of strings"));
            };
            Ok((text, at))
        };
        array.iter().map(text).collect()
    }

    pub fn error_at(&self, at: usize, reason: impl Into<String>) -> InputError {
        self.reader.error(at, self.path.clone(), reason)
    }

    pub fn u32(&self) -> Result<u32, InputError> {
        let DeValue::Integer(n) = self.value else { return Err(self.wrong("an integer")) };
        u32::from_str_radix(n.as_str(), n.radix()).map_err(|_| self.wrong("an integer from 0 to 4294967295"))
    }

    pub fn u64(&self) -> Result<u64, InputError> {
        let parsed = match self.value {
            DeValue::Integer(n) => u64::from_str_radix(n.as_str(), n.radix()).ok(),
            DeValue::String(text) => hex(text, 16),
            _ => None,
        };
        parsed.ok_or_else(|| self.wrong("an integer from 0 to 2^64 - 1, or its pattern as a string \"0x...\""))
    }

    /// A decimal is read as `f64` and rounded to nearest; a string is the bit pattern.
    pub fn f32(&self) -> Result<f32, InputError> {
        let parsed = match self.value {
            DeValue::Float(x) => x.as_str().parse::<f64>().ok().map(|x| x as f32),
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n as f64 as f32),
            DeValue::String(text) => hex(text, 8).map(|bits| f32::from_bits(bits as u32)),
            _ => None,
        };
        parsed.ok_or_else(|| self.wrong("a number, or an f32 pattern as a string \"0x3f800000\""))
    }

    pub fn flag(&self) -> Result<bool, InputError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub fn text(&self) -> Result<&'a str, InputError> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    pub fn one_line(&self) -> Result<String, InputError> {
        let text = self.text()?;
        match text.chars().any(char::is_control) {
            true => Err(self.error("must be one line without control characters")),
            false => Ok(text.into()),
        }
    }

    /// One of a few names, as its index.
    pub fn choice(&self, what: &str, names: &[&str]) -> Result<usize, InputError> {
        let text = self.text()?;
        names.iter().position(|&name| name == text).ok_or_else(|| self.error(unknown(what, text, names)))
    }

    /// Any scalar, as text: kernels read their own values.
    pub fn scalar(&self) -> Result<String, InputError> {
        Ok(match self.value {
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Integer(n) => n.to_string(),
            DeValue::Float(x) => x.as_str().into(),
            DeValue::String(_) => self.one_line()?,
            _ => return Err(self.wrong("a string, a number, true or false")),
        })
    }
}

/// `0x` and at most so many digits.
fn hex(text: &str, digits: usize) -> Option<u64> {
    let text = text.strip_prefix("0x")?;
    let plain = (1..=digits).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok())?
}
