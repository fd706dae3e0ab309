//! A body that came: what its header says of it, checked.

use super::{JSON_LIMIT, invalid, lanes};
use crate::number::Dtype;
use serde_json::Value;
use std::io::{self, Read};

/// Elements that lanes grow by while they are read, so that a body that announces more than it holds is not believed.
const GROWTH: usize = 1 << 20;

/// Format of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A storage format.
    Float(Dtype),
    /// Lengths, offsets and page numbers.
    I32,
}

impl Element {
    /// All of them.
    pub const ALL: [Element; 6] = [
        Element::Float(Dtype::F32),
        Element::Float(Dtype::F16),
        Element::Float(Dtype::BF16),
        Element::Float(Dtype::E4M3),
        Element::Float(Dtype::E5M2),
        Element::I32,
    ];

    /// As safetensors spell it.
    pub fn name(self) -> &'static str {
        match self {
            Element::Float(Dtype::F32) => "F32",
            Element::Float(Dtype::F16) => "F16",
            Element::Float(Dtype::BF16) => "BF16",
            Element::Float(Dtype::E4M3) => "F8_E4M3",
            Element::Float(Dtype::E5M2) => "F8_E5M2",
            Element::I32 => "I32",
        }
    }

    /// Width in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Element::Float(dtype) => dtype.bytes(),
            Element::I32 => 4,
        }
    }
}

/// A tensor of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// Format of its elements.
    pub element: Element,
    /// Sizes, outermost first.
    pub dims: Vec<usize>,
    /// Their product.
    pub elements: usize,
}

impl Stored {
    /// Reads its patterns, which must be next, into lanes of which there are as many.
    ///
    /// # Errors
    /// Those of the source.
    pub fn read_into(&self, lanes: &mut [u32], from: &mut impl Read) -> io::Result<()> {
        lanes::read(lanes, self.element.bytes(), from)
    }

    /// Reads its patterns, which must be next, into a vector that is made as long.
    ///
    /// # Errors
    /// Those of the source.
    pub fn read(&self, lanes: &mut Vec<u32>, from: &mut impl Read) -> io::Result<()> {
        lanes.truncate(self.elements);
        let mut at = 0;
        while at < self.elements {
            if lanes.len() == at {
                lanes.resize(self.elements.min(at + GROWTH), 0);
            }
            let to = lanes.len();
            lanes::read(&mut lanes[at..to], self.element.bytes(), from)?;
            at = to;
        }
        Ok(())
    }
}

/// What a body holds. Its tensors lie one after the other, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Scalars.
    pub metadata: Vec<(String, String)>,
    /// Tensors, in the order of their bytes.
    pub tensors: Vec<Stored>,
}

impl Layout {
    /// Reads the header of a body of `length` bytes; the bytes of the tensors come next.
    ///
    /// # Errors
    /// Those of the source; `InvalidData` with the reason for a body that is no safetensors blob, or holds a format that the
    /// protocol does not have.
    pub fn read(from: &mut impl Read, length: u64) -> io::Result<Layout> {
        let mut announced = [0; 8];
        if length < 8 {
            return Err(invalid(format!("a body of {length} bytes has no room for the length of its header")));
        }
        from.read_exact(&mut announced)?;
        let announced = u64::from_le_bytes(announced);
        if announced > JSON_LIMIT || announced > length - 8 {
            return Err(invalid(format!("a body of {length} bytes announces a JSON header of {announced} bytes")));
        }
        let mut json = vec![0; announced as usize];
        from.read_exact(&mut json)?;
        Layout::parse(&json, length - 8 - announced).map_err(invalid)
    }

    /// Reads a JSON header whose tensors take `data` bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    fn parse(json: &[u8], data: u64) -> Result<Layout, String> {
        let value: Value = serde_json::from_slice(json).map_err(|error| format!("the body's header is no JSON: {error}"))?;
        let Value::Object(fields) = value else { return Err("the body's header is no JSON object".into()) };
        let mut layout = Layout::default();
        let mut placed = Vec::new();
        for (name, value) in fields {
            if name == "__metadata__" {
                let Value::Object(scalars) = value else { return Err("`__metadata__` is no JSON object".into()) };
                for (name, value) in scalars {
                    let Value::String(text) = value else { return Err(format!("`__metadata__.{name}` is no text")) };
                    layout.metadata.push((name, text));
                }
            } else {
                let (from, to, tensor) = tensor(&name, &value).map_err(|reason| format!("tensor `{name}`: {reason}"))?;
                placed.push((from, to, tensor));
            }
        }
        placed.sort_by_key(|(from, to, _)| (*from, *to));
        let mut at = 0;
        for (from, to, tensor) in placed {
            if from != at {
                return Err(format!("tensor `{}` begins at byte {from}; the one before it ends at {at}", tensor.name));
            }
            at = to;
            layout.tensors.push(tensor);
        }
        if at != data {
            return Err(format!("the tensors take {at} bytes; the body has {data} for them"));
        }
        Ok(layout)
    }

    /// A scalar.
    pub fn scalar(&self, name: &str) -> Option<&str> {
        self.metadata.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A tensor's entry, and the bytes where it begins and ends.
fn tensor(name: &str, value: &Value) -> Result<(u64, u64, Stored), String> {
    let element = value["dtype"].as_str().ok_or("no dtype")?;
    let element = Element::ALL.into_iter().find(|it| it.name() == element).ok_or_else(|| format!("dtype `{element}`"))?;
    let numbers = |field: &str| -> Result<Vec<u64>, String> {
        let list = value[field].as_array().ok_or_else(|| format!("no {field}"))?;
        list.iter().map(|it| it.as_u64().ok_or_else(|| format!("`{it}` in {field}"))).collect()
    };
    let shape = numbers("shape")?;
    let [from, to] = numbers("data_offsets")?[..] else { return Err("data_offsets are not two numbers".into()) };
    let elements = shape.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim)).ok_or("too many elements")?;
    let bytes = elements.checked_mul(element.bytes() as u64).ok_or("too many elements")?;
    if to.checked_sub(from) != Some(bytes) {
        return Err(format!("bytes {from} to {to} for {elements} elements of {}", element.name()));
    }
    let dims = shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<_, _>>().map_err(|_| "too many elements")?;
    let elements = usize::try_from(elements).map_err(|_| "too many elements")?;
    Ok((from, to, Stored { name: name.to_owned(), element, dims, elements }))
}
