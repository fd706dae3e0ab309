//! What the oracle sums over a row for the bound.

/// How a key's weight error grows with the size of its score: `rho_j = expm1(per_magnitude * g_j + constant)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighting {
    /// Multiplies `g_j` (natural units).
    pub per_magnitude: f64,
    /// Added for every key (natural units).
    pub constant: f64,
}

/// Running sums of one row, with `w_j = e^(s_j - m)`, `m` the maximum of the scores and the sink, and
/// `g_j = scale * sum_x |q_x k_jx| + |bias_j| + |s_j - m|`.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSums {
    /// Valid keys; the sink is not one.
    pub keys: u32,
    /// Whether the row has a sink.
    pub sink: bool,
    /// `m`.
    pub max_score: f64,
    /// Largest `g_j`.
    pub magnitude_max: f64,
    /// `L = sum_j w_j`, the sink's weight included.
    pub weight: f64,
    /// For each weighting: `sum_j w_j rho_j`.
    pub weight_error: Vec<f64>,
    /// `[d_v]`: `sum_j w_j |v_jx|`.
    pub value_abs: Vec<f64>,
    /// For each weighting, `[d_v]`: `sum_j w_j rho_j |v_jx|`.
    pub value_error: Vec<Vec<f64>>,
    /// Largest `|s_j - m|` over keys of nonzero weight.
    pub distance_max: f64,
}
