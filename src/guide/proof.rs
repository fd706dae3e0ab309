//! How the oracle proves.
//!
//! The oracle answers with a pattern only if that pattern is the true value rounded to nearest even in the output format.
//! Otherwise it says `Undecided`. It shares no code with the kernels that it judges, nor their mask or head map.
//!
//! The true value of a row with visible keys `j`, scores `s_j` and values `v_j` is `y = N / L` with `N = sum e^(s_j) v_j` and
//! `L = sum e^(s_j)`. Inputs are finite binary numbers, so every `s_j` (without softcap) is an exact rational.
//!
//! # 1. An enclosure
//!
//! The row is evaluated in f64 with a bound on every rounding, carried along in the same sums: `|y - y'| <= r`. Products of two
//! inputs of at most 24 bits are exact in f64; `exp` and `log` are CORE-MATH's, which are proven to be correctly rounded, never the
//! platform's. Where `y' - r` and `y' + r` round to the same pattern, that pattern is proven. This settles all but a few elements
//! in ten thousand of f32 outputs, and nearly all of 16-bit ones. The analysis is written out at the head of `oracle/enclosure.rs`.
//!
//! # 2. Which side of a boundary
//!
//! Otherwise a rounding boundary `c` (the midpoint of two neighbours) lies in the enclosure, and the question is the sign of
//!
//! ```text
//! N - c L = sum over groups g of equal score:  e^(s_g) (V_g - n_g c)
//! ```
//!
//! with `V_g` the sum of the group's values and `n_g` its number of keys. `V_g - n_g c` is an exact rational.
//!
//! - **Ties.** Groups whose coefficient is zero are dropped first. If none is left, `y = c` exactly, and the tie goes to even. Ties are
//!   common: with two equal scores and bf16 values they are about a fifth of all elements.
//! - **Zero.** Where 0 lies in the enclosure it is tried as `c` before anything else: values that cancel exactly would otherwise ask for
//!   ever more precision. The sign of a zero is free, to the oracle; between two paths, +0 and -0 differ.
//! - **Everything else.** If groups are left, the sum is not zero: their scores are distinct algebraic numbers, so their exponentials
//!   are linearly independent over the algebraic numbers (Lindemann-Weierstrass). It is evaluated in MPFR with a counted error
//!   radius, the largest score factored out, and the precision doubled until the sign is certain (Ziv's loop). It ends.
//!
//! For `lse` the sign is that of `sum n_g e^(s_g - c) - 1`, by the same steps.
//!
//! # 3. Softcap
//!
//! `cap tanh(s / cap)` is not algebraic, so two sums may agree to any precision without a proof that they are equal. Groups are formed
//! by the score before the cap; the loop stops at 4096 bits, and past it the answer is `Undecided`, which is counted and passes nothing.
//!
//! # The error bound
//!
//! Errors are measured from the unrounded `y'`, with `r` allowed for. What a kernel may err by is computed for its declared numerics from
//! the same sums (`n u` for a sum of `n` terms, in any order), so cancellation raises no false alarm and no tolerance is set by
//! hand; see [`accuracy`](crate::subject::attention::accuracy). A bound that is infinite is counted as *unbounded*, never as a pass.
