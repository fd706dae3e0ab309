//! Tensors as bit patterns, row-major, with named indices.

use crate::number::Dtype;
use std::fmt;
use std::ops::Range;

/// Where an element lies: `(axis, n)` pairs, outermost first. Findings use it, so it fits any subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub Vec<(&'static str, u64)>);

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (axis, value)) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{axis}={value}")?;
        }
        Ok(())
    }
}

/// A dense row-major tensor: one `u32` lane per element, holding the bit pattern of `dtype`.
///
/// Sixteen- and eight-bit formats use the low bits; the lane width buys one code path for every format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Element format.
    pub dtype: Dtype,
    /// Sizes, outermost first.
    pub dims: Vec<usize>,
    /// `dims` product many patterns.
    pub bits: Vec<u32>,
}

impl Tensor {
    /// A tensor with every element set to one pattern.
    pub fn filled(dtype: Dtype, dims: &[usize], bits: u32) -> Self {
        Tensor { dtype, dims: dims.to_vec(), bits: vec![bits; dims.iter().product()] }
    }

    /// Elements per step of the outermost axis.
    pub fn stride(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// The patterns at one index of the outermost axis.
    pub fn row(&self, n: usize) -> &[u32] {
        let stride = self.stride();
        &self.bits[n * stride..(n + 1) * stride]
    }

    /// The patterns at one index of the outermost axis, mutable.
    pub fn row_mut(&mut self, n: usize) -> &mut [u32] {
        let stride = self.stride();
        &mut self.bits[n * stride..(n + 1) * stride]
    }

    /// Decodes a run of elements, exactly.
    ///
    /// # Panics
    /// When the range leaves the tensor.
    pub fn decode(&self, elements: Range<usize>) -> impl Iterator<Item = f32> {
        self.bits[elements].iter().map(|&bits| self.dtype.to_f32(bits))
    }

    /// Stores a value, rounded to nearest even in the tensor's format.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn store(&mut self, element: usize, value: f32) {
        self.bits[element] = self.dtype.round_f32(value);
    }

    /// Decodes every element, exactly.
    pub fn to_f32(&self) -> Vec<f32> {
        self.bits.iter().map(|&bits| self.dtype.to_f32(bits)).collect()
    }
}
