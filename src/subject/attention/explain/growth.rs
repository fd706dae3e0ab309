//! How a difference grows from stage to stage, and which side is nearer to the truth at each, as a small plot.

use super::divergence::{Common, Steps};
use super::exact::Exact;
use super::runs::Names;
use crate::number::{Dtype, ulp_size};
use crate::subject::attention::reference::trace::Stage;
use std::cmp::Ordering;
use std::fmt::Write;

/// The lines of the plot: a name, and the stages that it covers.
const LINES: [(&str, &[Stage]); 14] = [
    ("dot product", &[Stage::Dot]),
    ("score", &[Stage::Score]),
    ("maximum", &[Stage::Maximum]),
    ("rescale", &[Stage::Rescale]),
    ("weight", &[Stage::Weight]),
    ("rounded weight", &[Stage::RoundedWeight]),
    ("row sum", &[Stage::BlockSum, Stage::RowSum, Stage::SinkSum]),
    ("probability", &[Stage::Probability]),
    ("accumulator", &[Stage::BlockValue, Stage::Accumulator]),
    ("split", &[Stage::PartialLse, Stage::Partial]),
    ("merge", &[Stage::MergedLse, Stage::Merged]),
    ("output", &[Stage::Finish]),
    ("stored", &[Stage::Store]),
    ("lse", &[Stage::Lse]),
];

/// Terms of exact sums that one line may cost. A line of more asks only for steps that differ, and for some of those at even distances
/// where they too are many: a row of thousands of keys has millions of terms, and MPFR takes about a tenth of a microsecond for each.
const TERMS: u64 = 400_000;

/// Characters of the longest bar.
const LONGEST: u32 = 40;

/// One line: the largest distances over the steps that both runs took.
#[derive(Default)]
struct Line {
    steps: usize,
    apart: f64,
    /// Of each side from the exact value, over the steps that were asked for; NaN where there was none.
    wrong: [Option<f64>; 2],
    /// The same over the steps that differ.
    wrong_where_apart: [Option<f64>; 2],
    alone: [usize; 2],
    /// Common steps whose exact value was not asked for.
    left_out: usize,
}

/// The plot, a heading and one line for each stage that was reached; nothing for two runs without a step.
pub(super) fn growth(steps: &Steps, names: &Names, exact: &mut Option<Exact<'_>>) -> String {
    let [first, second] = names.short;
    let mut text =
        String::from("growth: largest distances at each stage, apart and from the exact value, in ULP; a # for each doubling\n");
    let _ = writeln!(text, "  {:<15}{:>6}{:>10}{:>10}{:>10}  nearer", "", "steps", "apart", first, second);
    let mut weights: Option<[String; 3]> = None;
    for (name, stages) in LINES {
        let line = measure(steps, stages, exact);
        if line.steps == 0 {
            let _ = match line.alone {
                [0, 0] => Ok(()),
                [n, 0] => writeln!(text, "  {name:<15}{n:>6}  only {}", names.in_run(0)),
                [0, n] => writeln!(text, "  {name:<15}{n:>6}  only {}", names.in_run(1)),
                [a, b] => {
                    writeln!(text, "  {name:<15}{:>6}  none in common: {a} {}, {b} {}", 0, names.in_run(0), names.in_run(1))
                }
            };
            continue;
        }
        let numbers = [Some(line.apart), line.wrong[0], line.wrong[1]].map(|x| x.map_or("-".into(), ulps));
        match stages {
            [Stage::Weight] => weights = Some(numbers.clone()),
            // Weights that are not rounded again.
            [Stage::RoundedWeight] if weights.as_ref() == Some(&numbers) => continue,
            _ => {}
        }
        let nearer = match line.wrong_where_apart {
            [Some(a), Some(b)] => match a.total_cmp(&b) {
                Ordering::Less => first,
                Ordering::Greater => second,
                Ordering::Equal => "both",
            },
            _ => "",
        };
        let [apart, a, b] = numbers;
        let bar =
            format!("  {name:<15}{:>6}{apart:>10}{a:>10}{b:>10}  {nearer:<8}|{}", line.steps, "#".repeat(length(line.apart)));
        let _ = match line.left_out {
            0 => writeln!(text, "{bar}"),
            n => writeln!(text, "{bar} exact values of {} steps", line.steps - n),
        };
    }
    text
}

fn measure(steps: &Steps, stages: &[Stage], exact: &mut Option<Exact<'_>>) -> Line {
    let here = |stage: &Stage| stages.contains(stage);
    let common: Vec<&Common> = steps.common.iter().filter(|step| here(&step.definition.stage)).collect();
    let mut line = Line {
        steps: common.len(),
        alone: [0, 1].map(|run| steps.alone[run].iter().filter(|step| here(&step.definition.stage)).count()),
        ..Line::default()
    };
    let whole = exact.as_ref().map_or(0, |exact| exact.steps.visible().len() as u64);
    let cost = |step: &Common| match step.definition.keys.as_slice() {
        // The largest score needs no sum.
        _ if step.definition.stage == Stage::Maximum => 1,
        [] => whole,
        keys => keys.iter().map(|keys| u64::from(keys.end - keys.start)).sum(),
    };
    let total: u64 = common.iter().map(|step| cost(step)).sum();
    // Where all are too many: those that differ, or all where none does, at even distances.
    let any = common.iter().any(|step| step.differs());
    let wanted = |step: &Common| total <= TERMS || step.differs() || !any;
    let of_wanted: u64 = common.iter().filter(|step| wanted(step)).map(|step| cost(step)).sum();
    let stride = (of_wanted.saturating_sub(1) / TERMS + 1) as usize;
    let mut met = 0;
    for step in &common {
        let differs = step.differs();
        let asked = wanted(step) && met % stride == 0;
        met += usize::from(wanted(step));
        let truth = exact.as_mut().filter(|_| asked).and_then(|exact| exact.of(&step.definition));
        let [a, b] = step.bits.map(|bits| f64::from(f32::from_bits(bits)));
        if differs {
            let unknown = || ulp_size(Dtype::F32, if a.is_finite() { a } else { 0.0 });
            let ulp = truth.as_ref().map_or_else(unknown, |truth| truth.ulp(step.bits));
            let apart = (a - b).abs() / ulp;
            line.apart = line.apart.max(if apart.is_nan() { f64::INFINITY } else { apart });
        }
        line.left_out += usize::from(!asked);
        let Some(truth) = truth else { continue };
        for (run, bits) in step.bits.into_iter().enumerate() {
            let wrong = truth.distance(bits) / truth.ulp(step.bits);
            let wrong = if wrong.is_nan() { f64::INFINITY } else { wrong };
            let keep = |into: &mut Option<f64>| *into = Some(into.map_or(wrong, |most| most.max(wrong)));
            keep(&mut line.wrong[run]);
            if differs {
                keep(&mut line.wrong_where_apart[run]);
            }
        }
    }
    line
}

/// One for anything, one more for each doubling from 2 ULP on.
fn length(ulps: f64) -> usize {
    let mut length = u32::from(ulps > 0.0);
    let mut next = 2.0;
    while length < LONGEST && length > 0 && ulps >= next {
        (length, next) = (length + 1, next * 2.0);
    }
    length as usize
}

fn ulps(x: f64) -> String {
    match x {
        0.0 => "0".into(),
        x if x < 0.005 => "<0.01".into(),
        x if x < 100.0 => format!("{x:.2}"),
        x if x < 1e6 => format!("{x:.0}"),
        x => format!("{x:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_by_one_for_each_doubling() {
        let lengths = [0.0, 1e-9, 1.0, 1.9, 2.0, 3.9, 4.0, 1024.0, f64::INFINITY].map(length);
        assert_eq!(lengths, [0, 1, 1, 1, 2, 2, 3, 11, LONGEST as usize]);
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 1e-9, 0.25, 99.5, 32768.0, 8.4e6, f64::INFINITY].map(ulps);
        assert_eq!(shown, ["0", "<0.01", "0.25", "99.50", "32768", "8.4e6", "inf"]);
    }
}
