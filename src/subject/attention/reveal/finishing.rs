//! What becomes of a sum on its way out: the division by the row sum, and the store.

use super::stand::Stand;
use super::weights::Weights;
use crate::number::{Dtype, truncate_f64};
use crate::reveal::Refusal;
use crate::source::{Source, Stream};
use crate::subject::attention::numerics::{Finish, Numerics, Store};
use std::fmt;

/// Where the row sum enters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Division {
    /// `sum / l`, in f32.
    Quotient,
    /// `sum * (1 / l)`, in f32.
    Reciprocal,
    /// Each weight is `1 / l` before it is multiplied with its value, rounded to this format.
    Weights(Dtype),
    /// `sum / l`, in f64.
    WideQuotient,
}

/// How a sum over keys of equal score becomes a stored result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finishing {
    /// The division.
    pub division: Division,
    /// The row sum: the number of keys, unless it is kept in a format that does not count so far.
    pub row_sum: f32,
    /// The store cuts off.
    pub truncates: bool,
}

impl Finishing {
    /// The weight that a value is multiplied with before it is added.
    pub fn weight(&self) -> f32 {
        match self.division {
            Division::Weights(dtype) => dtype.squeeze(1.0 / self.row_sum),
            _ => 1.0,
        }
    }

    /// A finished sum, before it is stored.
    pub fn divided(&self, sum: f64) -> f64 {
        match self.division {
            Division::Quotient => f64::from(sum as f32 / self.row_sum),
            Division::Reciprocal => f64::from(sum as f32 * (1.0 / self.row_sum)),
            Division::Weights(_) => f64::from(sum as f32),
            Division::WideQuotient => sum / f64::from(self.row_sum),
        }
    }

    /// A finished sum as it is stored.
    pub fn bits(&self, output: Dtype, sum: f64) -> u32 {
        let value = self.divided(sum);
        if self.truncates { truncate_f64(output, value) } else { output.round_f64(value) }
    }

    /// What a declaration says, for so many keys.
    fn declared(numerics: &Numerics, keys: usize) -> Finishing {
        let division = match (numerics.probs.normalised, numerics.finish) {
            (true, _) => Division::Weights(numerics.probs.dtype),
            (false, Finish::Divide) => Division::Quotient,
            (false, Finish::Reciprocal) => Division::Reciprocal,
        };
        Finishing { division, row_sum: keys as f32, truncates: numerics.store == Store::Truncate }
    }
}

impl fmt::Display for Finishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.division {
            Division::Quotient => f.write_str("divided by the row sum"),
            Division::Reciprocal => f.write_str("times the reciprocal of the row sum"),
            Division::Weights(dtype) => write!(f, "weights divided first, in {dtype}"),
            Division::WideQuotient => f.write_str("divided by the row sum in f64"),
        }?;
        f.write_str(if self.truncates { ", store cuts off" } else { "" })
    }
}

/// Samples that a finishing has to explain, at least; the first run's are of one value.
const SAMPLES: usize = 24;

/// Reads the finishing from results in which one key has a value and all others 0: such a sum is exact in any order. `None` where no
/// known one explains them, as when partial results are merged.
pub(super) fn finishing(
    stand: &mut Stand<'_>,
    weights: &Weights,
    declared: Option<&Numerics>,
) -> Result<Option<Finishing>, Refusal> {
    let (inputs, output, lanes) = (stand.inputs(), stand.output(), stand.lanes());
    weights.put(stand);
    let keys = weights.carriers();
    let mut source = Stream::new(0x6669_6e69_7368, keys.len() as u64);
    let mut samples: Vec<(f32, u32)> = Vec::new();
    while samples.len() < SAMPLES + lanes {
        stand.clear_values();
        let mut values = Vec::with_capacity(lanes);
        for lane in 0..lanes {
            let random = source.below(1 << (inputs.precision() - 1)) as f64 / (1u64 << (inputs.precision() - 1)) as f64;
            // The first tell the row sum; the others use every bit of the format.
            let value = if samples.is_empty() { 64.0 } else { (64.0 * (1.0 + random)) as f32 };
            let key = keys[source.below(keys.len() as u64) as usize];
            stand.set_value(key, lane, value);
            values.push(value);
        }
        let o = stand.run()?.o;
        samples.extend(values.into_iter().zip(o));
    }
    let mut row_sums = vec![keys.len() as f32];
    if let Some((value, bits)) = samples.first() {
        let seen = (value / output.to_f32(*bits)).round();
        if seen.is_finite() && seen >= 1.0 {
            row_sums.push(seen);
        }
    }
    let mut candidates: Vec<Finishing> = declared.map(|it| Finishing::declared(it, keys.len())).into_iter().collect();
    for row_sum in row_sums {
        for truncates in [false, true] {
            let mut divisions = vec![Division::Quotient, Division::Reciprocal, Division::Weights(Dtype::F32)];
            divisions.extend([Division::Weights(inputs), Division::WideQuotient]);
            candidates.extend(divisions.into_iter().map(|division| Finishing { division, row_sum, truncates }));
        }
    }
    Ok(candidates.into_iter().find(|it| {
        let weight = it.weight();
        samples.iter().all(|&(value, bits)| it.bits(output, f64::from(value * weight)) == bits)
    }))
}
