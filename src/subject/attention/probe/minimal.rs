//! Makes a case small, and says it in one line.

use super::Probing;
use super::page::Minimal;
use crate::finding::{Element, Finding};
use crate::number::Dtype;
use crate::shrink::shrink;
use crate::subject::attention::explain::explain;
use crate::subject::attention::text::print;
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{file, show};

/// The smallest case with this finding; `None` where the case does not show it again.
pub(super) fn minimal(probing: &mut Probing<'_>, trial: &Trial, finding: &Finding, name: &str) -> Option<Minimal> {
    let signature = finding.signature();
    let attention = &probing.attention;
    let small = shrink(attention, trial, &signature, probing.options.budget(&probing.terms), &mut probing.scratch)?;
    let whole = file::replayed(&attention.pair, &small.trial, &small.finding);
    let cause = explain(&attention.pair, &whole, name, Some(&signature)).cause.map(|cause| cause.to_string());
    let comment = format!("{signature}: {}", cause.as_deref().unwrap_or("cause unknown"));
    let kept = file::file(comment, &attention.pair, &small.trial, Some(&small.finding));
    let sequences = &small.trial.case.problem.sequences;
    Some(Minimal {
        summary: show::summary(&small.trial.case),
        relation: small.finding.relation().map(str::to_owned),
        element: element(&small.finding),
        cause,
        positions: sequences.iter().map(|it| it.kv).max().unwrap_or(0),
        file: name.to_owned(),
        text: print(&kept),
    })
}

/// The first element that a finding names, in one line.
pub(super) fn element(finding: &Finding) -> String {
    let value = |dtype: Dtype, bits: u32| format!("{} ({})", dtype.hex(bits), dtype.to_f32(bits));
    match finding {
        Finding::Inaccurate(it) => {
            let truth = it.truth.map_or("unknown".to_owned(), |bits| value(it.dtype, bits));
            let beyond = match it.error / it.bound {
                times if times >= 1e4 => "far beyond its bound".to_owned(),
                // It is beyond: 1.000 would say that it is not.
                times if times < 1.000_5 => "just beyond its bound".to_owned(),
                times if times.is_finite() => format!("{times:.3} times its bound"),
                _ => "no such result is allowed".to_owned(),
            };
            format!("{}[{}]: {}, true {truth}: {beyond}", it.output, it.index, value(it.dtype, it.bits))
        }
        Finding::Fault { fault, .. } => fault.to_string(),
        other => {
            let Some(difference) = other.difference() else { return String::new() };
            let of = |it: &Element| {
                let [a, b] = it.bits.map(|bits| value(difference.dtype, bits));
                let [first, second] = &difference.names;
                format!("{}[{}]: {first} {a}, {second} {b}", difference.output, it.index)
            };
            difference.elements.first().map(of).unwrap_or_default()
        }
    }
}
