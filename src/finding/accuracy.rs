//! How far results lie from true values.

use super::Path;
use crate::number::Dtype;
use crate::tensor::Index;

/// A result outside the bound computed for its arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub struct Inaccuracy {
    /// Whose result.
    pub path: Path,
    /// `o` or `lse`.
    pub output: &'static str,
    /// Format of the elements.
    pub dtype: Dtype,
    /// The worst element: the one furthest beyond its bound.
    pub index: Index,
    /// Its pattern.
    pub bits: u32,
    /// The true value, correctly rounded, where decided.
    pub truth: Option<u32>,
    /// `|value - true|`; infinite for a non-finite result.
    pub error: f64,
    /// What its arithmetic allows, computed.
    pub bound: f64,
    /// One ULP at the true value.
    pub ulp: f64,
    /// Elements beyond their bound.
    pub exceeding: u64,
    /// Elements judged.
    pub judged: u64,
}

/// Counts of accuracy, over the judged elements of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// Elements measured against a true value.
    pub judged: u64,
    /// Elements equal to the correctly rounded true value.
    pub correctly_rounded: u64,
    /// Elements above the true value.
    pub above: u64,
    /// Elements below it.
    pub below: u64,
    /// Elements whose bound is infinite: never a pass of an accuracy claim.
    pub unbounded: u64,
    /// Elements for which an overflow of an intermediate is predicted.
    pub out_of_range: u64,
    /// The largest error as a share of its computed bound; above 1 is `Inaccurate`. (A maximum in ULPs says nothing beside zero.)
    pub worst: f64,
    /// Elements by their error in ULP of the true value: up to 2^-2, 2^-1, 1, 2, 4 and so on; the last bin has everything beyond, and what
    /// is not finite.
    pub errors: [u64; ERROR_BINS],
}

/// Bins of [`Accuracy::errors`].
pub const ERROR_BINS: usize = 14;

/// The bin of an error in ULP: the smallest power of two that is no less.
#[inline]
pub fn error_bin(ulps: f64) -> usize {
    if ulps <= 0.25 {
        return 0;
    }
    let bits = ulps.to_bits();
    // The exponent of a positive number, rounded up; NaN and infinity have the largest.
    let exponent = (bits >> 52) as i64 - 1023 + i64::from(bits & ((1 << 52) - 1) != 0);
    (exponent + 2).min(ERROR_BINS as i64 - 1) as usize
}

impl Accuracy {
    /// Adds another count.
    pub fn add(&mut self, other: &Accuracy) {
        self.judged += other.judged;
        self.correctly_rounded += other.correctly_rounded;
        self.above += other.above;
        self.below += other.below;
        self.unbounded += other.unbounded;
        self.out_of_range += other.out_of_range;
        self.worst = self.worst.max(other.worst);
        self.errors.iter_mut().zip(other.errors).for_each(|(count, more)| *count += more);
    }
}
