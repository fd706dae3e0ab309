//! Floating-point formats as bits: classes, neighbours, correct rounding, ULP distance.
//!
//! Every element that `lastbit` handles is a bit pattern of some [`Dtype`], kept in the low bits of a `u32`. All five formats
//! decode exactly into `f32` and `f64`; the way back is rounding to nearest, ties to even, done here and nowhere else.

mod dtype;
mod round;
mod ulp;

pub use dtype::{Class, Dtype};
pub use round::{round_mpfr, truncate_f64};
pub use ulp::{Ulps, fractional_ulps, ulp_distance, ulp_size};
