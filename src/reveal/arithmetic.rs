//! How the nodes of a tree round: what a replay has to know beyond the order.

use crate::number::{Dtype, truncate_f64};
use crate::tree::Tree;
use std::fmt;

/// What partial sums are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulator {
    /// f32, f16 or bf16.
    Of(Dtype),
    /// f64. Its order shows under masks that swamp f64 only, which those of [`Mask::of`](super::Mask::of) do not.
    F64,
}

/// How a multi-term node rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fused {
    /// Exact, then rounded once, to nearest even. Summed in f64, terms in the tree's order.
    Nearest,
    /// Terms are aligned to the largest exponent among them and cut off below so many bits behind that of its leading bit; the sum
    /// is cut off to the accumulator's precision. Tensor cores do that (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA
    /// tensor cores", PeerJ Computer Science 2021).
    Aligned(u32),
}

/// The arithmetic of a tree's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// What each node is rounded to, to nearest even.
    pub accumulate: Accumulator,
    /// How nodes of three and more terms round.
    pub fused: Fused,
}

impl Arithmetic {
    /// All that are tried.
    pub const ALL: [Arithmetic; 7] = [
        Arithmetic { accumulate: Accumulator::Of(Dtype::F32), fused: Fused::Nearest },
        Arithmetic { accumulate: Accumulator::Of(Dtype::F32), fused: Fused::Aligned(23) },
        Arithmetic { accumulate: Accumulator::Of(Dtype::F32), fused: Fused::Aligned(24) },
        Arithmetic { accumulate: Accumulator::Of(Dtype::F32), fused: Fused::Aligned(25) },
        Arithmetic { accumulate: Accumulator::Of(Dtype::F16), fused: Fused::Nearest },
        Arithmetic { accumulate: Accumulator::Of(Dtype::BF16), fused: Fused::Nearest },
        Arithmetic { accumulate: Accumulator::F64, fused: Fused::Nearest },
    ];

    /// The sum of a tree's terms, `term(n)` being the value of leaf `n`; exact in the accumulator's format.
    pub fn sum(self, tree: &Tree, term: &impl Fn(u32) -> f32) -> f64 {
        match tree {
            Tree::Leaf(leaf) => f64::from(term(*leaf)),
            Tree::Sum(children) => {
                let mut terms = children.iter().map(|child| self.sum(child, term));
                let first = terms.next().unwrap_or_default();
                terms.fold(first, |sum, x| self.round(sum + x))
            }
            Tree::Fused(children) => {
                let terms: Vec<f64> = children.iter().map(|child| self.sum(child, term)).collect();
                match self.fused {
                    Fused::Nearest => self.round(terms.iter().sum()),
                    Fused::Aligned(bits) => self.cut(aligned(&terms, bits)),
                }
            }
        }
    }

    // Sums of two numbers of an accumulator's format are rounded twice here, to f64 and then to the format, which gives what one
    // rounding does: 53 bits are at least twice 24, and two more (Figueroa, "When is double rounding innocuous?", 1995).
    fn round(self, sum: f64) -> f64 {
        match self.accumulate {
            Accumulator::F64 => sum,
            Accumulator::Of(dtype) => dtype.to_f64(dtype.round_f64(sum)),
        }
    }

    fn cut(self, sum: f64) -> f64 {
        match self.accumulate {
            Accumulator::F64 => sum,
            Accumulator::Of(dtype) => dtype.to_f64(truncate_f64(dtype, sum)),
        }
    }
}

/// The sum of the terms, each cut off `bits` bits behind the leading bit of the largest.
fn aligned(terms: &[f64], bits: u32) -> f64 {
    let largest = terms.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return terms.iter().sum();
    }
    // The exponent field: terms are f32 values, so none is subnormal in f64.
    let exponent = (largest.to_bits() >> 52) as i32 - 1023;
    let quantum = 2f64.powi(exponent - bits as i32);
    // Below 2^53 quanta each, and few terms: exact.
    terms.iter().map(|x| (x / quantum).trunc()).sum::<f64>() * quantum
}

impl fmt::Display for Accumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Accumulator::Of(dtype) => f.write_str(dtype.name()),
            Accumulator::F64 => f.write_str("f64"),
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "accumulates in {}", self.accumulate)?;
        match self.fused {
            Fused::Nearest => Ok(()),
            Fused::Aligned(bits) => write!(f, ", multi-term additions aligned and cut off after {bits} bits"),
        }
    }
}
