//! Rows whose sums no order can round: there only the store rounds, and one result is right.

use super::super::numerics::{Exp, MaxInit, Numerics, ScaleAt, Store};
use super::super::{Inputs, Problem};
use super::Facts;
use crate::number::Dtype;
use std::ops::Range;

/// Keys up to which a row is looked at: such rows are short, and one in some hundred is enough to catch a store.
const MOST_KEYS: usize = 64;

/// Which value lanes of a row and head have a mean that f32 reaches exactly, whatever the order; empty if none.
///
/// Keys with equal patterns have equal scores, so their weights are 1; as many of them as a power of two, of values on one
/// grid `g` with `sum |v| <= 2^24 g`, have exact sums and an exact quotient.
pub fn exact_lanes(problem: &Problem, inputs: &Inputs, sequence: usize, keys: Range<u32>, head: usize, lanes: &mut Vec<bool>) {
    lanes.clear();
    let count = keys.len();
    let equal_scores = problem.sinks.is_none() && (count == 1 || problem.alibi_slopes.is_none());
    if count == 0 || count > MOST_KEYS || !count.is_power_of_two() || !equal_scores || problem.fp8_kv.is_some() {
        return;
    }
    let kv_head = head / problem.group_ids.len();
    let kv_heads = problem.kv_heads();
    let row_of = |key: u32| (inputs.kv_start[sequence] + key as usize) * kv_heads + kv_head;
    let first = row_of(keys.start);
    let rows = keys.map(row_of);
    let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
    let key = |row: usize| &inputs.k.bits[row * d_qk..(row + 1) * d_qk];
    if rows.clone().any(|row| key(row) != key(first)) {
        return;
    }
    let exact = |lane: usize| {
        let values = rows.clone().map(|row| f64::from(inputs.v.dtype.to_f32(inputs.v.bits[row * d_v + lane])));
        let (mut grid, mut sum) = (f64::INFINITY, 0.0);
        for value in values.filter(|&value| value != 0.0) {
            grid = grid.min(lowest_bit(value));
            sum += value.abs();
        }
        sum == 0.0 || sum <= grid * f64::from(1 << 24) && grid / count as f64 >= Dtype::F32.least_subnormal()
    };
    lanes.extend((0..d_v).map(exact));
}

/// What the lowest set bit of a normal number is worth.
fn lowest_bit(value: f64) -> f64 {
    let bits = value.to_bits();
    let mantissa = (bits & ((1 << 52) - 1)) | 1 << 52;
    let rest = f64::from_bits(bits & !((1 << 52) - 1)).abs();
    rest / 2f64.powi(52 - mantissa.trailing_zeros() as i32)
}

/// Whether [`exact_lanes`] hold for these numerics: nothing between the values and the store rounds, or scales.
///
/// Not under an exponential that need not give 1 for 0; nor a fused `fma(s, scale, -round(m * scale))`, which need not be 0
/// (pytorch/pytorch#121558); nor a maximum that begins above a score; nor where a value or a sum passes a narrow format; nor,
/// of more than one key, where partials are merged or weights divided first.
pub fn means_are_exact(numerics: &Numerics, facts: &Facts, keys: u64) -> bool {
    let Numerics { score, softmax, probs, rowsum, value, grid, store, .. } = numerics;
    softmax.exp == Exp::CorrectlyRounded
        && softmax.max_init == MaxInit::NegInf
        && !(score.scale == ScaleAt::FoldedLog2e && score.fma)
        && [rowsum.acc, value.acc, grid.partial_dtype] == [Dtype::F32; 3]
        && *store == Store::Rne
        && (keys == 1 || !probs.normalised && !grid.has_partials(facts.context))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::{Case, Data, Literal, text};

    #[test]
    fn the_lowest_bit_of_a_number() {
        for (value, bit) in [(1.0, 1.0), (-3.0, 1.0), (0.75, 0.25), (6.0, 2.0), (2f64.powi(-149), 2f64.powi(-149))] {
            assert_eq!(lowest_bit(value), bit, "{value}");
        }
    }

    /// Two keys and two value lanes, f32; patterns as they are stored.
    fn lanes(k: [f32; 2], v: [[f32; 2]; 2]) -> Vec<bool> {
        let smallest = include_str!("../../../../corpora/mutants/D-M12.case");
        let mut case: Case = text::parse(smallest, "D-M12.case").expect("a kept case").case;
        case.problem.d_v = 2;
        (case.problem.dtype, case.problem.out_dtype) = (Dtype::F32, Dtype::F32);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        case.data = Data::Literal(Literal { q: vec![0], k: bits(&k), v: bits(v.as_flattened()) });
        let mut found = Vec::new();
        exact_lanes(&case.problem, &Inputs::new(&case, None), 0, 0..2, 0, &mut found);
        found
    }

    #[test]
    fn sums_are_exact_of_equal_keys_and_values_on_one_grid() {
        assert_eq!(lanes([1.0, 1.0], [[1.0, 1.0], [1.5, 2f32.powi(-24)]]), [true, false]);
        assert_eq!(lanes([1.0, 1.0], [[0.0, f32::from_bits(1)], [0.0, 0.0]]), [true, false]);
        assert!(lanes([1.0, 1.5], [[1.0; 2]; 2]).is_empty());
    }
}
