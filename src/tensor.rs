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

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> Tensor {
        Tensor { dtype: Dtype::BF16, dims: vec![2, 3, 4], bits: (0..24).collect() }
    }

    #[test]
    fn rows_lie_one_after_another() {
        let mut tensor = counted();
        assert_eq!(tensor.stride(), 12);
        assert_eq!(tensor.row(0), (0..12).collect::<Vec<u32>>());
        assert_eq!(tensor.row(1), (12..24).collect::<Vec<u32>>());
        tensor.row_mut(1).fill(99);
        assert_eq!(tensor.bits, [(0..12).collect::<Vec<u32>>(), vec![99; 12]].concat());
    }

    #[test]
    fn values_are_stored_where_they_are_read() {
        let mut tensor = Tensor::filled(Dtype::BF16, &[2, 2], 0x3f80);
        assert_eq!(tensor.to_f32(), [1.0; 4]);
        // Halfway between 1 and the next bf16: to even.
        tensor.store(2, 1.0 + 1.0 / 256.0);
        tensor.store(3, -2.5);
        assert_eq!(tensor.bits, [0x3f80, 0x3f80, 0x3f80, 0xc020]);
        assert_eq!(tensor.decode(1..4).collect::<Vec<_>>(), [1.0, 1.0, -2.5]);
    }

    #[test]
    fn an_index_is_one_word_for_each_axis() {
        assert_eq!(Index(vec![("row", 7)]).to_string(), "row=7");
        assert_eq!(Index(vec![("seq", 2), ("row", 0), ("head", 1)]).to_string(), "seq=2 row=0 head=1");
    }
}
