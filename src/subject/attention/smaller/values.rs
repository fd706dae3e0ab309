//! Literal bits, and each value towards 0, 1, -1, a power of two, few significant bits.

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

/// 0, 1, -1, the power of two below, then fewer and fewer dropped bits.
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
    // Clearing the lowest set bit of the fraction.
    let fraction = bits & ((1 << fraction_bits) - 1);
    if fraction != 0 {
        values.push(bits & !(1 << fraction.trailing_zeros()));
    }
    values.dedup();
    values
}
