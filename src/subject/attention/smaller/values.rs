//! Literal bits, and each value towards 0, 1, -1, a power of two, few significant bits.

use super::down;
use super::plans::identity;
use crate::number::{Class, Dtype};
use crate::subject::Candidate;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Case, Data, Inputs, Literal, Problem};

/// Largest literal case, in values: a case file with more would not be read by anyone.
const LITERAL_VALUES_MAX: usize = 65_536;

pub(super) fn literal(trial: &Trial, inputs: &dyn Fn(&Case) -> Inputs) -> Vec<Candidate<Trial>> {
    if matches!(trial.case.data, Data::Literal(_)) {
        return Vec::new();
    }
    let values = inputs(&trial.case);
    if values.q.bits.len() + values.k.bits.len() + values.v.bits.len() > LITERAL_VALUES_MAX {
        return Vec::new();
    }
    let mut trial = trial.clone();
    trial.case.data = Data::Literal(Literal { q: values.q.bits, k: values.k.bits, v: values.v.bits });
    vec![Candidate { trial, redraw: false }]
}

/// Ids and labels counted from 0. Other labels draw other data, so only literal data is relabelled.
pub(super) fn relabelled(trial: &Trial) -> Trial {
    let mut trial = trial.clone();
    if !matches!(trial.case.data, Data::Literal(_)) {
        return trial;
    }
    let problem = &mut trial.case.problem;
    let ids: Vec<u32> = problem.sequences.iter().map(|it| it.id).collect();
    for (n, sequence) in problem.sequences.iter_mut().enumerate() {
        sequence.id = n as u32;
    }
    problem.kv_head_ids = identity(problem.kv_head_ids.len());
    problem.group_ids = identity(problem.group_ids.len());
    if let Checks::Only { relation: Some(sided), .. } = &mut trial.checks {
        sided.relation = sided.relation.clone().renamed(|id| ids.iter().position(|&it| it == id).map_or(id, |n| n as u32));
    }
    trial
}

/// Positions of the values pass that change many values at once, before those that change one.
pub(super) const VALUE_CHUNKS: usize = 3 * (1 + 2 + 4 + 8 + 16);

pub(super) fn values(trial: &Trial, position: usize) -> Vec<Candidate<Trial>> {
    let Data::Literal(literal) = &trial.case.data else { return Vec::new() };
    let with = |edit: &dyn Fn(&mut Literal)| {
        let mut trial = trial.clone();
        if let Data::Literal(literal) = &mut trial.case.data {
            edit(literal);
        }
        Candidate { trial, redraw: false }
    };
    if position < VALUE_CHUNKS {
        // q, k, v in turn; whole, halves, quarters, ...
        let (tensor, mut part) = (position % 3, position / 3);
        let mut parts = 1;
        while part >= parts {
            part -= parts;
            parts *= 2;
        }
        let chunk = move |literal: &mut Literal, value: u32| {
            let bits = [&mut literal.q, &mut literal.k, &mut literal.v][tensor].as_mut_slice();
            let (from, to) = (bits.len() * part / parts, bits.len() * (part + 1) / parts);
            bits[from..to].fill(value);
        };
        let one = dtype_of(&trial.case.problem, tensor).round_f64(1.0);
        return vec![with(&|literal| chunk(literal, 0)), with(&|literal| chunk(literal, one))];
    }
    let n = position - VALUE_CHUNKS;
    let (q, k) = (literal.q.len(), literal.k.len());
    let (tensor, n) = if n < q {
        (0, n)
    } else if n < q + k {
        (1, n - q)
    } else {
        (2, n - q - k)
    };
    let old = [&literal.q, &literal.k, &literal.v][tensor][n];
    simpler_values(dtype_of(&trial.case.problem, tensor), old)
        .into_iter()
        .map(|value| with(&|literal| [&mut literal.q, &mut literal.k, &mut literal.v][tensor][n] = value))
        .collect()
}

/// Storage of q, k or v.
pub(super) fn dtype_of(problem: &Problem, tensor: usize) -> Dtype {
    if tensor == 0 { problem.dtype } else { problem.kv_dtype() }
}

/// 0, 1, -1, the power of two below, then fewer and fewer dropped bits; nearer to 1.
pub(super) fn simpler_values(dtype: Dtype, bits: u32) -> Vec<u32> {
    if bits == 0 || dtype.class(bits) == Class::Nan {
        return Vec::new();
    }
    let one = dtype.round_f64(1.0);
    let mut values = vec![0, one, one | dtype.sign_mask()];
    let fraction_bits = dtype.precision() - 1;
    let mut kept = 0;
    while kept < fraction_bits {
        let mask = !((1u32 << (fraction_bits - kept)) - 1);
        values.push(bits & mask);
        kept = if kept == 0 { 1 } else { kept * 2 };
    }
    let fraction = bits & ((1 << fraction_bits) - 1);
    // Nearer to 1, with the same significand.
    if dtype.class(bits) == Class::Normal {
        let sign = bits & dtype.sign_mask();
        let exponent = ((bits & dtype.magnitude_mask()) >> fraction_bits) as i32 - (1 - dtype.emin());
        let nearer = down(exponent.unsigned_abs(), 0).into_iter().map(|it| it as i32 * exponent.signum());
        values.extend(nearer.map(|exponent| sign | ((exponent + 1 - dtype.emin()) as u32) << fraction_bits | fraction));
    }
    // Clearing the lowest set bit of the fraction.
    if fraction != 0 {
        values.push(bits & !(1 << fraction.trailing_zeros()));
    }
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::smaller::tests::{
        compared, counted, literal_of, plain, relation_of, shaped, under, with_values,
    };

    #[test]
    fn drawn_values_become_literal() {
        let trial = compared(shaped(&[(2, 3)], [1, 1], [2, 1]));
        let wanted = Inputs::new(&trial.case, None);
        let candidates = literal(&trial, &|case| Inputs::new(case, None));
        let [candidate] = &candidates[..] else { panic!("{candidates:?}") };
        let literal_data = literal_of(&candidate.trial.case);
        assert_eq!((&literal_data.q, &literal_data.k, &literal_data.v), (&wanted.q.bits, &wanted.k.bits, &wanted.v.bits));
        assert_eq!((literal_data.q.len(), candidate.redraw), (4, false));
        assert!(literal(&candidate.trial, &|_| panic!("it is literal")).is_empty());
    }

    /// As many values as a file may hold, and one more.
    #[test]
    fn large_cases_stay_drawn() {
        let at = |d_qk: u32| {
            let trial = compared(shaped(&[(1, 255)], [1, 1], [d_qk, 1]));
            literal(&trial, &|case| Inputs::new(case, None)).len()
        };
        // 255 of v, and 256 lanes wide q and k.
        assert_eq!(LITERAL_VALUES_MAX, 256 * 256);
        assert_eq!([at(255), at(256)], [1, 0]);
        let trial = compared(shaped(&[(256, 32_640)], [1, 1], [1, 1]));
        assert_eq!(literal(&trial, &|case| Inputs::new(case, None)).len(), 1, "65536 values");
    }

    #[test]
    fn names_count_from_0() {
        let mut case = shaped(&[(1, 1), (1, 1)], [2, 2], [1, 1]);
        (case.problem.sequences[0].id, case.problem.sequences[1].id) = (9, 4);
        (case.problem.kv_head_ids, case.problem.group_ids) = (vec![5, 2], vec![7, 1]);
        let drawn = under(case.clone(), "infer neighbour_joins seq=4 join=2");
        assert_eq!(relabelled(&drawn), drawn, "other labels draw other data");
        let literal = relabelled(&under(counted(case.clone()), "infer neighbour_joins seq=4 join=2"));
        let problem = &literal.case.problem;
        assert_eq!(problem.sequences.iter().map(|it| it.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((&problem.kv_head_ids, &problem.group_ids), (&vec![0, 1], &vec![0, 1]));
        assert_eq!(relation_of(&literal), "infer neighbour_joins seq=1 join=2");
        assert_eq!(literal.case.data, counted(case.clone()).data);
        assert_eq!(relation_of(&relabelled(&under(counted(case), "infer alone seq=3"))), "infer alone seq=3", "nobody's id");
    }

    /// Whole, halves, quarters and so on of q, k and v in turn: zeros, then ones of the storage format.
    #[test]
    fn many_values_at_once() {
        let mut case = shaped(&[(4, 2)], [1, 1], [1, 2]);
        case.problem.dtype = Dtype::F16;
        let trial = compared(counted(case));
        let chunk = |position: usize| -> Vec<[Vec<u32>; 3]> {
            let candidates = values(&trial, position);
            assert!(candidates.iter().all(|it| !it.redraw && it.trial.case.problem == trial.case.problem));
            let literals = candidates.iter().map(|it| literal_of(&it.trial.case));
            literals.map(|it| [it.q.clone(), it.k.clone(), it.v.clone()]).collect()
        };
        let (q, k, v) = (vec![1, 2, 3, 4], vec![1, 2], vec![1, 2, 3, 4]);
        let one = 0x3c00;
        assert_eq!(chunk(0), [[vec![0; 4], k.clone(), v.clone()], [vec![one; 4], k.clone(), v.clone()]]);
        assert_eq!(chunk(1), [[q.clone(), vec![0; 2], v.clone()], [q.clone(), vec![one; 2], v.clone()]]);
        assert_eq!(chunk(2), [[q.clone(), k.clone(), vec![0; 4]], [q.clone(), k.clone(), vec![one; 4]]]);
        assert_eq!(chunk(3)[0], [vec![0, 0, 3, 4], k.clone(), v.clone()]);
        assert_eq!(chunk(6)[1], [vec![1, 2, one, one], k.clone(), v.clone()]);
        assert_eq!(chunk(7)[0], [q.clone(), vec![1, 0], v.clone()]);
        // The second quarter of v.
        assert_eq!(chunk(3 * (1 + 2 + 1) + 2)[0], [q.clone(), k.clone(), vec![1, 0, 3, 4]]);
        // The last of sixteen parts.
        assert_eq!(chunk(VALUE_CHUNKS - 1)[0], [q, k, vec![1, 2, 3, 0]]);
        assert!(values(&compared(plain()), 0).is_empty());
    }

    #[test]
    fn one_value_at_a_time() {
        let mut case = plain();
        case.problem.sequences[0].kv = 2;
        case.problem.fp8_kv =
            Some(crate::subject::attention::Fp8Kv { dtype: Dtype::E4M3, k_scales: vec![1.0], v_scales: vec![1.0] });
        let trial = compared(with_values(case, [&[3.0], &[0.0, 2.0], &[0.0, -0.5]]));
        let old = literal_of(&trial.case).clone();
        let at = |n: usize| -> Vec<Literal> {
            values(&trial, VALUE_CHUNKS + n).iter().map(|it| literal_of(&it.trial.case).clone()).collect()
        };
        let q: Vec<u32> = simpler_values(Dtype::BF16, old.q[0]);
        assert_eq!(at(0), q.iter().map(|&it| Literal { q: vec![it], ..old.clone() }).collect::<Vec<_>>());
        assert!(at(1).is_empty() && at(3).is_empty(), "zeros");
        let k = simpler_values(Dtype::E4M3, old.k[1]);
        assert_eq!(at(2), k.iter().map(|&it| Literal { k: vec![0, it], ..old.clone() }).collect::<Vec<_>>());
        let v = simpler_values(Dtype::E4M3, old.v[1]);
        assert_eq!(at(4), v.iter().map(|&it| Literal { v: vec![0, it], ..old.clone() }).collect::<Vec<_>>());
        assert_eq!((dtype_of(&trial.case.problem, 0), dtype_of(&trial.case.problem, 2)), (Dtype::BF16, Dtype::E4M3));
    }

    #[test]
    fn values_get_simpler() {
        let simpler = |dtype: Dtype, value: f64| -> Vec<f64> {
            simpler_values(dtype, dtype.round_f64(value)).into_iter().map(|bits| dtype.to_f64(bits)).collect()
        };
        assert_eq!(simpler(Dtype::BF16, 0.0), [0.0; 0]);
        assert!(simpler_values(Dtype::BF16, 0x7fc0).is_empty(), "NaN");
        // Zero, one and minus one; no significant bit, one, two, four; the exponents 0, 1 (of 3 and 2); without the last bit.
        let x = 8.0 * 1.6875;
        assert_eq!(simpler(Dtype::BF16, x), [0.0, 1.0, -1.0, 8.0, 12.0, x, 1.6875, x / 2.0, 13.0]);
        let small = -0.25 * 1.25;
        assert_eq!(simpler(Dtype::BF16, small), [0.0, 1.0, -1.0, -0.25, small, -1.25, -0.625, -0.25]);
        // A power of two gets nearer to 1 alone.
        assert_eq!(simpler(Dtype::F16, -256.0), [0.0, 1.0, -1.0, -256.0, -1.0, -16.0, -64.0, -128.0]);
        assert_eq!(simpler(Dtype::F32, 1.0), [0.0, 1.0, -1.0, 1.0]);
        // Subnormal numbers have no exponent of their own.
        assert_eq!(simpler_values(Dtype::F16, 3), [0, 0x3c00, 0xbc00, 0, 2]);
    }
}
