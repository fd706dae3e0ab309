//! A finding in words.

use super::NAME;
use crate::finding::{Difference, Element, Finding, Nearer};
use crate::input_error::tame;
use crate::number::{Class, Dtype, Ulps};
use crate::subject::attention::fault_text::in_words;
use std::fmt::Write;

/// The lines of a finding: what it is, and its first elements.
pub(super) fn describe(text: &mut String, finding: &Finding) {
    let _ = match finding {
        Finding::Mismatch(it) => {
            let counts = format!("{} of {} elements differ", it.differing, it.compared);
            writeln!(text, "verdict: mismatch {}, {counts}", it.output)
        }
        Finding::NotInvariant { path, relation, difference, .. } => {
            let axis = finding.changed().unwrap_or_default();
            let counts = format!("{} of {} elements differ", difference.differing, difference.compared);
            writeln!(text, "verdict: not invariant to {axis} ({path}), {}, {counts} under `{relation}`", difference.output)
        }
        Finding::Inaccurate(it) => {
            let value = |bits| format!("{} {}", it.dtype.hex(bits), number(it.dtype, bits));
            let truth = it.truth.map_or("unknown".into(), value);
            let counts = format!("{} of {} elements beyond their bound", it.exceeding, it.judged);
            let _ = writeln!(text, "verdict: inaccurate {} ({}), {counts}", it.output, it.path);
            // Beside zero an ULP is the least subnormal, and counts of it say nothing.
            let distance = |x: f64| match it.truth.is_some_and(|bits| it.dtype.class(bits) == Class::Normal) {
                true => format!("{:.3} ULP", x / it.ulp),
                false => format!("{x:.3e}"),
            };
            let (error, bound) = (distance(it.error), distance(it.bound));
            let (output, index, bits) = (it.output, &it.index, value(it.bits));
            writeln!(text, "  {output}[{index}]: {bits}  true {truth}  error {error}, bound {bound}")
        }
        Finding::Fault { path, fault, relation } => {
            let words = in_words(fault);
            let (first, rest) = words.split_once('\n').map_or((words.as_str(), None), |(first, rest)| (first, Some(rest)));
            let under = relation.as_ref().map_or(String::new(), |relation| format!(", under `{relation}`"));
            let result = writeln!(text, "verdict: fault ({path}): {first}{under}");
            rest.map_or(result, |rest| writeln!(text, "{rest}"))
        }
        Finding::Undecided { output, elements, index } => {
            writeln!(text, "verdict: undecided: {elements} elements of {output}, first {output}[{index}]")
        }
        Finding::Skipped { reason, .. } => writeln!(text, "verdict: skipped: {}", tame(reason, NAME)),
    };
    if let Some(difference) = finding.difference() {
        for element in &difference.elements {
            describe_element(text, difference, element);
        }
        let more = difference.differing - difference.elements.len() as u64;
        if more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
    }
}

fn describe_element(text: &mut String, difference: &Difference, element: &Element) {
    let value = |bits| format!("{} {}", difference.dtype.hex(bits), number(difference.dtype, bits));
    let [a, b] = &difference.names;
    let [x, y] = element.bits;
    let _ = write!(text, "  {}[{}]: {a} {}  {b} {}", difference.output, element.index, value(x), value(y));
    let _ = match element.ulps {
        Ulps::Steps(0) => write!(text, "  signs of zero differ"),
        Ulps::Steps(n) => write!(text, "  {n} ULP apart"),
        Ulps::Incomparable => write!(text, "  no distance"),
    };
    if let Some(truth) = element.truth {
        let _ = write!(text, "  true {}", value(truth));
    }
    let _ = match element.nearer {
        Nearer::First => write!(text, ", {a} nearer"),
        Nearer::Second => write!(text, ", {b} nearer"),
        Nearer::Same => write!(text, ", equally near"),
        Nearer::Unknown => Ok(()),
    };
    text.push('\n');
}

/// The value of a pattern, short and exact.
pub(super) fn number(dtype: Dtype, bits: u32) -> String {
    let value = dtype.to_f32(bits);
    let plain = value == 0.0 || !value.is_finite() || (1e-4..1e7).contains(&value.abs());
    if plain { format!("({value})") } else { format!("({value:e})") }
}
