//! The only comparison of bits in the crate.

use crate::number::{Class, Dtype, Ulps, ulp_distance};
use crate::tensor::Index;

/// Differing elements kept in full; the rest are counted.
pub const ELEMENTS_KEPT: usize = 8;

/// Which side of a pair lies closer to the true value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearer {
    /// The first.
    First,
    /// The second.
    Second,
    /// Equally near.
    Same,
    /// No decided true value to measure from.
    Unknown,
}

/// One differing element.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Where.
    pub index: Index,
    /// Position in the compared slices.
    pub offset: usize,
    /// Both patterns.
    pub bits: [u32; 2],
    /// Their distance.
    pub ulps: Ulps,
    /// The true value, correctly rounded, where the oracle decided it.
    pub truth: Option<u32>,
    /// Which side is nearer to it.
    pub nearer: Nearer,
}

/// Two runs of one output that do not have the same bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `o` or `lse`.
    pub output: &'static str,
    /// Format of the elements.
    pub dtype: Dtype,
    /// What the two runs are called, e.g. `train` and `infer`.
    pub names: [String; 2],
    /// The first differing elements, at most [`ELEMENTS_KEPT`].
    pub elements: Vec<Element>,
    /// How many differ.
    pub differing: u64,
    /// How many were compared.
    pub compared: u64,
    /// The differing elements by their distance: 1 ULP, 2, 3 to 4, 5 to 8 and so on; the last bin has those without one (NaN or an infinity
    /// against something else, +0 against -0).
    pub distances: [u64; DISTANCE_BINS],
}

/// Bins of [`Difference::distances`].
pub const DISTANCE_BINS: usize = 34;

/// The bin of a distance between two patterns that differ.
fn distance_bin(ulps: Ulps) -> usize {
    match ulps {
        Ulps::Steps(0) | Ulps::Incomparable => DISTANCE_BINS - 1,
        // The smallest power of two that is no less.
        Ulps::Steps(steps) => steps.next_power_of_two().trailing_zeros() as usize,
    }
}

/// Whether two patterns count as the same result: equal bits, or both NaN. +0 and -0 differ.
#[inline]
pub fn same(dtype: Dtype, a: u32, b: u32) -> bool {
    a == b || (dtype.class(a) == Class::Nan && dtype.class(b) == Class::Nan)
}

/// Collects differences between two runs of one output, row by row.
#[derive(Debug)]
pub struct Comparison {
    difference: Difference,
}

impl Comparison {
    /// Starts with nothing compared.
    pub fn new(output: &'static str, dtype: Dtype, names: [&str; 2]) -> Self {
        let names = names.map(str::to_owned);
        let distances = [0; DISTANCE_BINS];
        Comparison { difference: Difference { output, dtype, names, elements: Vec::new(), differing: 0, compared: 0, distances } }
    }

    /// Compares two equally long slices. `index` names the element at a position of the slices; `offset` is the position of
    /// their first element in the whole output.
    ///
    /// # Panics
    /// When the lengths differ: shapes are checked before bits.
    pub fn slices(&mut self, a: &[u32], b: &[u32], offset: usize, index: impl Fn(usize) -> Index) {
        assert_eq!(a.len(), b.len(), "shapes are checked before bits");
        let found = &mut self.difference;
        found.compared += a.len() as u64;
        if a == b {
            return;
        }
        for (n, (&x, &y)) in a.iter().zip(b).enumerate() {
            if same(found.dtype, x, y) {
                continue;
            }
            found.differing += 1;
            let ulps = ulp_distance(found.dtype, x, y);
            found.distances[distance_bin(ulps)] += 1;
            if found.elements.len() < ELEMENTS_KEPT {
                let (offset, index) = (offset + n, index(n));
                found.elements.push(Element { index, offset, bits: [x, y], ulps, truth: None, nearer: Nearer::Unknown });
            }
        }
    }

    /// Elements compared so far.
    pub fn compared(&self) -> u64 {
        self.difference.compared
    }

    /// Elements of these that differ.
    pub fn differing(&self) -> u64 {
        self.difference.differing
    }

    /// The difference, if any element differs.
    pub fn finish(self) -> Option<Difference> {
        (self.difference.differing > 0).then_some(self.difference)
    }
}
