//! Right keys, and an error beyond what is declared: the least coarse arithmetic that explains it.

use super::claim::{coarsest, explicit};
use super::looker::{Looked, Looker, Run, place};
use super::{design, seen};
use crate::finding::Inaccuracy;
use crate::number::{Class, Dtype};
use crate::subject::attention::cause::{Cause, CauseKind, Method};
use crate::subject::attention::numerics::{Exp, Numerics, ScaleAt, Split, Store};
use crate::subject::attention::validate;
use crate::subject::attention::{Case, Data, Regime};
use crate::tensor::Tensor;

/// Regimes in which roundings show that a case's own data may hide.
const REGIMES: [Regime; 3] = [Regime::Normal, Regime::Wide, Regime::Rising { step: 0.5 }];

/// Draws of each.
const SEEDS: u64 = 3;

/// Errors of a run beyond what its kernel declares, on the case's own data and on others, and what explains them.
pub(super) fn accuracy(looker: &mut Looker<'_>, run: &Run) -> Option<Cause> {
    let mut cases = vec![looker.case.clone()];
    for wide in [false, true] {
        for (regime, seed) in REGIMES.into_iter().flat_map(|regime| (1..=SEEDS).map(move |seed| (regime, seed))) {
            let mut case = Case { data: Data::Drawn { seed, regime }, ..looker.case.clone() };
            if wide {
                design::wide_output(&mut case);
            }
            cases.extend(validate(&case).is_ok().then_some(case));
        }
    }
    let mut wrong: Vec<(Looked, Inaccuracy)> = Vec::new();
    for case in cases {
        let Some(looked) = looker.run(run, &case) else { continue };
        let declared = looker.declared(run, &case);
        if let Some(worst) = looker.judged(run, &looked, declared).0.into_iter().next() {
            wrong.push((looked, worst));
        }
    }
    let (first, worst) = wrong.first()?;
    let place = place(&worst.index);
    let [got, truth] = [Some(worst.bits), worst.truth].map(|bits| bits.map_or("unknown".into(), |bits| worst.dtype.hex(bits)));
    let beyond = format!("{place} ({run}) has {} {got}, truth {truth}: the keys reached are right", worst.output);
    if flushes_inputs(looker, run, first) {
        let what = format!("{beyond}, and the result is that of zeros in place of subnormal inputs");
        return Some(seen(CauseKind::Precision, Method::Accuracy, what));
    }
    if worst.dtype.to_f64(worst.bits) == 0.0 && worst.truth.is_some_and(|bits| worst.dtype.class(bits) == Class::Subnormal) {
        let what = format!("{beyond}, and a subnormal number was flushed to zero");
        return Some(seen(CauseKind::Precision, Method::Accuracy, what));
    }
    let declared = explicit(looker.declared(run, &first.case));
    let classes: Vec<_> = classes(&declared).into_iter().filter(|(_, it)| it.validate().is_ok() && *it != declared).collect();
    let mut explains = |claim: &Numerics, (looked, worst): &(Looked, Inaccuracy)| {
        let (beyond, out_of_range) = looker.judged(run, looked, Some(*claim));
        beyond.is_empty() && (out_of_range == 0 || !worst.dtype.class(worst.bits).is_finite())
    };
    // What explains every error, else the one that comes first, which is the case's own where that has one.
    for (wrong, words) in [(&wrong[..], "the errors on this data and others are"), (&wrong[..1], "the error is")] {
        if let Some((name, _)) = classes.iter().find(|(_, claim)| wrong.iter().all(|it| explains(claim, it))) {
            let words = if wrong.len() > 1 { words } else { "the error is" };
            let what = format!("{beyond}, and {words} within the bound of {name}");
            return Some(seen(CauseKind::Precision, Method::Accuracy, what));
        }
    }
    None
}

/// Arithmetics coarser than the declared one, in words, from the least coarse to 16 bits everywhere.
fn classes(declared: &Numerics) -> Vec<(String, Numerics)> {
    let mut classes = Vec::new();
    let mut add = |name: String, edit: &dyn Fn(&mut Numerics)| {
        let mut it = *declared;
        edit(&mut it);
        classes.push((name, it));
    };
    add("a store that truncates".into(), &|it| it.store = Store::Truncate);
    add("log2 e folded into the scale, with fused multiply-add".into(), &|it| {
        it.score.scale = ScaleAt::FoldedLog2e;
        it.score.fma = true;
    });
    for degree in [6, 5, 4] {
        add(format!("an exponential of degree {degree}"), &|it| it.softmax.exp = Exp::Exp2Poly(degree));
    }
    // f16 has three bits more than bf16.
    for dtype in [Dtype::F16, Dtype::BF16] {
        let partials = |it: &mut Numerics| {
            if it.grid.split == Split::None {
                it.grid.split = Split::FixedCount(2);
            }
        };
        add(format!("weights rounded to {dtype}"), &|it| it.probs.dtype = dtype);
        add(format!("scores kept in {dtype}"), &|it| it.score.store = dtype);
        add(format!("q.k accumulated in {dtype}"), &|it| it.score.acc = dtype);
        add(format!("a row sum accumulated in {dtype}"), &|it| it.rowsum.acc = dtype);
        add(format!("p.v accumulated in {dtype}"), &|it| it.value.acc = dtype);
        add(format!("partial results kept in {dtype}"), &|it| {
            partials(it);
            it.grid.partial_dtype = dtype;
            it.grid.lse_dtype = dtype;
        });
    }
    for dtype in [Dtype::F16, Dtype::BF16] {
        classes.push((format!("{dtype} in every step"), coarsest(Some(*declared), dtype, false)));
    }
    classes
}

/// Whether zeros in the place of subnormal inputs give the same bits.
fn flushes_inputs(looker: &mut Looker<'_>, run: &Run, looked: &Looked) -> bool {
    let mut any = false;
    let mut flush = |tensor: &mut Tensor| {
        for bits in &mut tensor.bits {
            if tensor.dtype.class(*bits) == Class::Subnormal {
                *bits &= tensor.dtype.sign_mask();
                any = true;
            }
        }
    };
    let case = design::with(looker.pair, &looked.case, |_, inputs| {
        [&mut inputs.q, &mut inputs.k, &mut inputs.v].into_iter().for_each(&mut flush);
    });
    // What was looked at is the changed case already.
    let plain = Run { relation: None, ..run.clone() };
    any && looker
        .run(&plain, &case)
        .is_some_and(|it| it.produced.o == looked.produced.o && it.produced.lse == looked.produced.lse)
}
