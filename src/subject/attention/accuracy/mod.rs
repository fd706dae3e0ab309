//! How far a kernel's result may lie from the true value: a bound computed from its [`Numerics`] and the row's own sums.
//!
//! Nothing here is tuned. Every term is an upper bound on roundings to nearest even that the numerics allow, for *any* order of
//! the additions, so a correct kernel never exceeds the bound, cancellation included; a kernel that rounds somewhere its
//! numerics do not say usually does. (Any-order bounds: Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed.,
//! sections 3.1 and 4.2. The shift by the maximum: Blanchard, Higham and Higham, IMA J. Numer. Anal. 41, 2021.)
//!
//! # The derivation
//!
//! `u = 2^-24` and `eta = 2^-150` are f32's: `fl(x) = x (1 + d) + e` with `|d| <= u`, `|e| <= eta`, and `e = 0` for sums. A
//! format `D` has `u_D` and `eta_D` (half its least subnormal); a step kept in `D` is rounded to f32 and then to `D`, together
//! `(1 + u)(1 + u_D) - 1` and `eta_D + 2 eta`. True scores are `s_j`, `m` their maximum (sink included), `w_j = e^(s_j - m)`, `L
//! = sum w_j`, `G_j = scale * sum_x |q_x k_jx|`, `g_j = G_j + |bias_j| + |s_j - m|`. A product of `n` factors `1 + d` lies in
//! `[(1-u)^n, (1+u)^n]`; where `n u >= 1` this module says [`Bound::Unbounded`], because nothing useful is left.
//!
//! **1. Scores** (`score.rs`). Relative to `G_j`: the dot product has at most `d_qk` roundings on the way of any product to the
//! result, in any order; `on_query` and `on_score` add one; `folded_log2e` adds two for the constant `c = f32(scale * log2 e)`;
//! softcap adds three (division, tanh, product; tanh does not amplify, since `|tanh'| <= 1`); the bias adds one for its product
//! and one for its subtraction; `score.store` adds one of its format. Each also adds its underflow, in natural units. So the
//! kernel's score is within `a g_j + b` of `s_j`.
//!
//! **2. The exponent.** The kernel takes `exp(s_j - M)` of a running maximum `M` and later multiplies by `exp(M_old - M_new)`.
//! The maxima rise, so the arguments' sizes add up to at most `|s_j - M_final|` (plus `3x` under `threshold(x)`, whose maximum
//! may lag by `x`), and their subtractions cost `u` of that. `exp2` of unfused products costs `u` of `|s_j|` and of `|m|`;
//! fused, each rescale leaves one uncompensated rounding of `m c`. Each `exp` costs a relative `u` (correctly rounded) or the
//! polynomial's error: interpolation at Chebyshev nodes, `4 (ln 2)^(k+1) / ((k+1)! 4^(k+1))`, plus coefficient and Horner
//! roundings, plus the argument's. A sum of two parts, one a multiple of `g_j`: the [`Weighting`]. Hence each weight, up to one
//! factor common to the row, is `w_j (1 + r)` with `|r| <= rho_j = expm1(per_magnitude * g_j + constant)`. What remains depends
//! on the maximum found, which itself is only known within `D = per_magnitude * max g + constant`: it enters at second order, as
//! a factor `e^t` on every weight with `t = 2 (path + merge)(D + 2z)`, `z` the excess of a finite `max_init` over `m`.
//!
//! **3. Common weights.** Numerator and denominator use the same perturbed weights `W_j`, so with `W = sum w_j rho_j`, `R = sum
//! w_j rho_j |v_j|` (the factor `e^t` folded in) the quotient moves by at most `(R + |y| W) / max(L - W, L e^-D)`.
//!
//! **4. The sums** (`row.rs`). `l` has, per weight, at most `n + 2` additions and one product per rescale, in `rowsum.acc`;
//! `acc` at most `n + 1` additions, one product and one product per rescale in `value.acc`, and one rounding to `probs.dtype`.
//! With upper factors `1 + A` and `1 + B` and lower factor `b` these move the quotient by `(A sum W_j |v_j| + |y'| B sum W_j) /
//! (b sum W_j)`. Underflow is absolute on the kernel's own scale, on which `sum W_j >= e^-z`: `eta` for each weight and each
//! rescale, `eta` of `probs.dtype` times the largest `|v|`, `eta` of `value.acc` for each product.
//!
//! **5. Splits.** A partial `(o_i, lse_i)` stands for the mass `e^lse_i` and the numerator `e^lse_i o_i`. Rounding `lse` to
//! `grid.lse_dtype` multiplies both by `e^(u_D |lse_i| + ...)`, a weight error; `|lse_i| <= g_j + ln n` for each key of the
//! partial. A merge costs `exp` of two differences (they add up as in step 2), a logarithm and a sum in `lse` (weight errors),
//! three to four roundings and one of `grid.partial_dtype` in the numerator, one in the mass. A key passes at most `splits - 1`
//! merges in sequence, `log2` of the split slots in a tree, and one more for a sink. Context-parallel chunks that are cut by
//! themselves are splits too, each with one part more where its last split or block is cut short; under `ring_state` each chunk
//! costs a rescale instead. Contiguous keys lie in at most `(n - 1) / length + 2` chunks of `length`.
//!
//! **6. Finish and store.** One rounding for a division, two for a reciprocal; then half a ULP of the output format, or one for
//! truncation.
//!
//! **Hull.** Weights are positive, so whatever the scores are worth, `o` lies within the hull of the values widened by steps 4
//! to 6. Where scores keep no digits (deep scores, huge dot products) this is the smaller bound and all that the arithmetic
//! promises.
//!
//! **8-bit KV** (`descaled.rs`). On load, a key or value times its scale is rounded once to f32: one more factor `1 + d` for each, `eta` for
//! each. Folded, the softmax scale takes one more (and `eta` of its size), the finished output one more; dot products and `acc` are
//! then in stored units, and so are their underflow and their range. A power of two rounds nothing but what underflows. An
//! undeclared kernel may do either: the worse of the two, item by item.
//!
//! **lse.** The relative errors of `l` from steps 3 and 4 as a logarithm, or `D` if that is smaller (log-sum-exp never
//! amplifies), plus the roundings of the logarithm and of its sum with the maximum.
//!
//! **Exact means** (`exact_mean.rs`). Weights of equal keys are `e^0 = 1`; where as many as a power of two of them have values whose sums
//! f32 holds in any order, only the store rounds. A bound of half a ULP would let a store pass that takes ties away from even; there
//! the correctly rounded value is the only right one. A row with one key is the plainest such row.
//!
//! The range check (`range.rs`) comes first: intermediates that may overflow, or weights that may vanish below a finite `max_init`, are
//! [`Bound::OutOfRange`].
//!
//! The bound is evaluated in f64 and widened by a factor `1 + 2^-20`, far above the rounding errors of that evaluation and of
//! the sums.

mod count;
mod descaled;
mod exact_mean;
mod range;
mod row;
mod score;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use super::oracle::{RowSums, Weighting};
pub use exact_mean::{exact_lanes, means_are_exact};
pub use row::RowBound;
pub use score::weighting;

use super::plan::ContextParallel;
use crate::number::Dtype;

#[cfg(doc)]
use super::numerics::Numerics;

/// What the bound must know of a problem besides its numerics. One value serves both [`weighting`] and [`RowBound::new`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// At least the valid keys of any row that is judged with these facts.
    pub keys: u32,
    /// At least the key slots of the sequence, padding included: bounds the depth of a merge tree.
    pub slots: u32,
    /// Head dim of q and k.
    pub d_qk: u32,
    /// Softmax scale; positive.
    pub scale: f64,
    /// Softcap, if there is one.
    pub softcap: Option<f64>,
    /// Whether an ALiBi bias is added.
    pub bias: bool,
    /// The row's sink, if it has one.
    pub sink: Option<f64>,
    /// At least the largest `|q_x|`; the storage format's largest number will do.
    pub query_max: f64,
    /// At least the largest `|k_jx|`, as stored.
    pub key_max: f64,
    /// At least the largest `|v_jx|` over the row's valid keys, as stored.
    pub value_max: f64,
    /// The path's context-parallel ranks: chunks that are cut by themselves cost merges or rescales.
    pub context: Option<ContextParallel>,
    /// What stored keys and values are multiplied with; `None` where they are not in an 8-bit format.
    pub kv_scales: Option<[f64; 2]>,
    /// Format of `o`.
    pub out_dtype: Dtype,
}

/// How far a kernel's result may lie from the true value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At most this far (absolute, at least 0).
    Within(f64),
    /// The numerics promise nothing: some sum has `n u >= 1`.
    Unbounded,
    /// An intermediate may leave its format's range, for this reason: neither a finite nor a non-finite result can be judged.
    OutOfRange(&'static str),
}
