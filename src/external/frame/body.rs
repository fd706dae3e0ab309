//! A body to be sent.

use super::lanes;
use super::layout::Element;
use crate::number::Dtype;
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// What a frame says: scalars as text, and tensors.
#[derive(Debug, Default)]
pub struct Body<'a> {
    metadata: Vec<(&'static str, String)>,
    tensors: Vec<Part<'a>>,
}

#[derive(Debug)]
struct Part<'a> {
    name: &'static str,
    element: Element,
    dims: Vec<usize>,
    bits: Cow<'a, [u32]>,
}

impl Part<'_> {
    fn length(&self) -> u64 {
        self.bits.len() as u64 * self.element.bytes() as u64
    }
}

impl<'a> Body<'a> {
    /// Adds a scalar.
    pub fn scalar(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.metadata.push((name, value.into()));
        self
    }

    /// Adds a tensor.
    pub fn tensor(self, name: &'static str, tensor: &'a Tensor) -> Self {
        self.part(name, Element::Float(tensor.dtype), tensor.dims.clone(), Cow::Borrowed(&tensor.bits))
    }

    /// Adds a vector of integers.
    pub fn integers(self, name: &'static str, values: &'a [u32]) -> Self {
        self.part(name, Element::I32, vec![values.len()], Cow::Borrowed(values))
    }

    /// Adds a matrix of integers.
    pub fn table(self, name: &'static str, values: &'a [u32], dims: [usize; 2]) -> Self {
        self.part(name, Element::I32, dims.to_vec(), Cow::Borrowed(values))
    }

    /// Adds a vector of f32 values.
    pub fn floats(self, name: &'static str, values: &[f32]) -> Self {
        let bits = values.iter().map(|value| value.to_bits()).collect();
        self.part(name, Element::Float(Dtype::F32), vec![values.len()], Cow::Owned(bits))
    }

    fn part(mut self, name: &'static str, element: Element, dims: Vec<usize>, bits: Cow<'a, [u32]>) -> Self {
        // Widest first, so that every tensor is aligned.
        let place = self.tensors.iter().position(|other| other.element.bytes() < element.bytes()).unwrap_or(self.tensors.len());
        self.tensors.insert(place, Part { name, element, dims, bits });
        self
    }

    /// The length and the text of the JSON header, padded to a multiple of eight bytes.
    pub fn head(&self) -> Vec<u8> {
        let mut text = String::with_capacity(256);
        text.push_str("\0\0\0\0\0\0\0\0{");
        if !self.metadata.is_empty() {
            text.push_str("\"__metadata__\":{");
            for (n, (name, value)) in self.metadata.iter().enumerate() {
                let separator = if n == 0 { "" } else { "," };
                let value = serde_json::Value::from(value.as_str());
                let _ = write!(text, "{separator}\"{name}\":{value}");
            }
            text.push('}');
        }
        let mut from = 0;
        for (n, part) in self.tensors.iter().enumerate() {
            let separator = if n == 0 && self.metadata.is_empty() { "" } else { "," };
            let (name, to) = (part.name, from + part.length());
            let _ = write!(text, "{separator}\"{name}\":{{\"dtype\":\"{}\",\"shape\":{:?},", part.element.name(), part.dims);
            let _ = write!(text, "\"data_offsets\":[{from},{to}]}}");
            from = to;
        }
        text.push('}');
        while !text.len().is_multiple_of(8) {
            text.push(' ');
        }
        let mut bytes = text.into_bytes();
        let length = bytes.len() as u64 - 8;
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Bytes of all tensors.
    pub fn data_length(&self) -> u64 {
        self.tensors.iter().map(Part::length).sum()
    }

    /// Writes all tensors.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write_data(&self, to: &mut impl Write) -> io::Result<()> {
        self.tensors.iter().try_for_each(|part| lanes::write(&part.bits, part.element.bytes(), to))
    }
}
