//! The length of the blocks, read from P that is rounded relative to a running maximum.
//!
//! Scores rise to a peak and fall again, an eighth from key to key, so that some sixteen keys matter. Where a block begins just before
//! the peak or just behind it, the keys on its other side are rounded relative to a smaller maximum, if their block comes first; a kernel
//! whose blocks begin elsewhere rounds all of them relative to the peak.

use super::candidate::{Blocks, Candidate};
use super::{Count, ONE_BLOCK, Probing, answers, scale, usual};
use crate::finding::Path;
use crate::source::{Source, Stream};
use crate::subject::attention::capabilities::Format;
use crate::subject::attention::probe::sample::Shape;
use crate::subject::attention::probe::terms::Terms;
use crate::subject::attention::{Case, Data, Literal};

/// Block lengths that are tried.
const LENGTHS: [u32; 6] = [16, 32, 64, 128, 256, 512];

/// Keys behind a peak.
const BEHIND: u32 = 40;

/// Rows that are looked at.
const ROWS: usize = 4;

/// Problems for each place of the peak: a decode step has one row.
fn problems(path: Path) -> u64 {
    match path {
        Path::Train => 3,
        Path::Infer => 12,
    }
}

/// The blocks that fit, in words.
pub(super) fn blocks(probing: &mut Probing<'_>, format: Format, path: Path, candidate: &Candidate) -> String {
    let lengths: Vec<u32> = LENGTHS.into_iter().filter(|&length| probing.terms.holds(length + BEHIND)).collect();
    let Some(&longest) = lengths.last() else { return "blocks not tried: calls are too short".to_owned() };
    let mut all = vec![(ONE_BLOCK, Count::default())];
    for backward in [false, true] {
        all.extend(lengths.iter().map(|&length| (Blocks { length: length as usize, backward }, Count::default())));
    }
    for &length in &lengths {
        for index in 0..2 * problems(path) {
            // The last key of a block, or the first of the next.
            let peak = length - (index % 2) as u32;
            let case = problem(&probing.terms, format, path, peak, index, probing.options.seed);
            let answers = match answers(&probing.attention.pair, path, &case) {
                Ok(answers) => answers,
                Err(reason) => return format!("blocks not tried: {reason}"),
            };
            // The last rows of a whole sequence see the peak from behind; all of its rows would take long.
            let last = ROWS * case.problem.q_heads();
            for answer in &answers[answers.len().saturating_sub(last)..] {
                for (blocks, count) in &mut all {
                    // Refuted once is refuted.
                    if count.refuted == 0 {
                        count.take(&candidate.results(&answer.row(), *blocks), answer);
                    }
                }
            }
        }
    }
    let most = longest + BEHIND;
    let word = |blocks: Blocks| match blocks.length {
        usize::MAX => format!("no block visible to {most} keys"),
        length => format!("blocks of {length} keys, {}", if blocks.backward { "last to first" } else { "first to last" }),
    };
    let left: Vec<String> = all.iter().filter(|(_, it)| it.refuted == 0).map(|(blocks, _)| word(*blocks)).collect();
    match &left[..] {
        [] => format!("blocks: none of {} to {longest} keys on a grid from the first key", lengths[0]),
        [one] => one.clone(),
        several if several.len() == all.len() => format!("blocks of {} to {longest} keys not told apart", lengths[0]),
        several => format!("blocks not told apart: {}", several.join("; ")),
    }
}

/// One sequence with the peak of its scores at a key; values above zero, so that nothing cancels.
fn problem(terms: &Terms<'_>, format: Format, path: Path, peak: u32, index: u64, seed: u64) -> Case {
    let keys = peak + BEHIND;
    let shape = Shape::of(terms, format, &[usual(terms, path, keys)]);
    let (d_qk, d_v) = shape.head_dims;
    let scale = scale(d_qk);
    let mut source = Stream::new(seed, 1000 * u64::from(peak) + index);
    let bits = |value: f64| format.storage.round_f64(value);
    let unit = 1.0 / f64::from(scale);
    let (rows, heads) = (shape.sequences[0].0 as usize, (shape.heads.0 * shape.heads.1) as usize);
    let mut literal = Literal { q: Vec::new(), k: Vec::new(), v: Vec::new() };
    for _ in 0..rows * heads {
        // Sixteenths of the way, single keys, and a little of every other lane: each factor fits eight bits.
        literal.q.extend((0..d_qk).map(|lane| match lane {
            0 => bits(2.0 * unit),
            1 => bits(unit / 8.0),
            _ => bits((source.below(33) as f64 - 16.0) / 256.0),
        }));
    }
    for key in 0..keys {
        let distance = key.abs_diff(peak);
        for _ in 0..shape.heads.0 {
            literal.k.extend((0..d_qk).map(|lane| match lane {
                0 => bits(-f64::from(distance / 16)),
                1 => bits(-f64::from(distance % 16)),
                _ => bits((source.below(33) as f64 - 16.0) / 64.0),
            }));
        }
    }
    let values = keys as usize * shape.heads.0 as usize * d_v as usize;
    literal.v.extend((0..values).map(|_| bits(1.0 + source.below(1 << 20) as f64 / f64::from(1 << 20))));
    let mut case = shape.case(Data::Literal(literal));
    case.problem.softmax_scale = scale;
    case
}
