//! The length of the blocks, read from P that is rounded relative to a running maximum: with scores that rise or fall from key to
//! key, each block length rounds other weights.

use super::candidate::{Blocks, Candidate};
use super::{Count, Probing, answers, scale, usual};
use crate::finding::Path;
use crate::number::Dtype;
use crate::source::{Source, Stream};
use crate::subject::attention::capabilities::Format;
use crate::subject::attention::probe::sample::Shape;
use crate::subject::attention::probe::terms::Terms;
use crate::subject::attention::{Case, Data, Literal};

/// Keys: past the longest block that is tried.
const KEYS: u32 = 600;

/// Block lengths that are tried.
const LENGTHS: [usize; 6] = [16, 32, 64, 128, 256, 512];

/// Problems with rising scores, and as many with falling ones.
const PROBLEMS: u64 = 4;

/// The blocks that fit, in words.
pub(super) fn blocks(probing: &mut Probing<'_>, format: Format, path: Path, candidate: &Candidate) -> String {
    let most = probing.terms.capabilities.max_rows.map_or(KEYS, |most| most.min(KEYS));
    let mut all = vec![(super::ONE_BLOCK, Count::default())];
    for backward in [false, true] {
        let fitting = LENGTHS.into_iter().filter(|&length| length < most as usize);
        all.extend(fitting.map(|length| (Blocks { length, backward }, Count::default())));
    }
    for index in 0..2 * PROBLEMS {
        let case = problem(&probing.terms, format, path, most, index, probing.options.seed);
        let answers = match answers(&probing.attention.pair, path, &case) {
            Ok(answers) => answers,
            Err(reason) => return format!("blocks not tried: {reason}"),
        };
        // The last rows of a whole sequence see all keys, and all rows would take long.
        let heads = case.problem.q_heads();
        for answer in &answers[answers.len().saturating_sub(2 * heads)..] {
            for (blocks, count) in &mut all {
                count.take(&candidate.results(&answer.row(), *blocks), answer);
            }
        }
    }
    let word = |blocks: Blocks| match blocks.length {
        usize::MAX => format!("no block visible to {most} keys"),
        length => format!("blocks of {length} keys, {}", if blocks.backward { "last to first" } else { "first to last" }),
    };
    let left: Vec<String> = all.iter().filter(|(_, it)| it.refuted == 0).map(|(blocks, _)| word(*blocks)).collect();
    match &left[..] {
        [] => format!("blocks: none of {} to {} keys on a grid from the first key", LENGTHS[0], LENGTHS[LENGTHS.len() - 1]),
        [one] => one.clone(),
        several => format!("blocks not told apart: {}", several.join("; ")),
    }
}

/// One sequence whose scores rise, or fall, by an eighth from key to key; values above zero, so that nothing cancels.
fn problem(terms: &Terms<'_>, format: Format, path: Path, keys: u32, index: u64, seed: u64) -> Case {
    let shape = Shape::of(terms, format, &[usual(terms, path, keys)]);
    let (d_qk, d_v) = shape.head_dims;
    let scale = scale(d_qk);
    let mut source = Stream::new(seed, 1000 + index);
    let rising = index.is_multiple_of(2);
    let bits = |value: f64| format.storage.round_f64(value);
    let unit = 1.0 / f64::from(scale);
    let (rows, heads) = (shape.sequences[0].0 as usize, (shape.heads.0 * shape.heads.1) as usize);
    let mut literal = Literal { q: Vec::new(), k: Vec::new(), v: Vec::new() };
    for _ in 0..rows * heads {
        // Tens of two, eighths, and a little of every other lane: each factor fits eight bits.
        literal.q.extend((0..d_qk).map(|lane| match lane {
            0 => bits(2.0 * unit),
            1 => bits(unit / 8.0),
            _ => bits((source.below(33) as f64 - 16.0) / 256.0),
        }));
    }
    for key in 0..keys {
        let place = if rising { key } else { keys - 1 - key };
        for _ in 0..shape.heads.0 {
            literal.k.extend((0..d_qk).map(|lane| match lane {
                0 => bits(f64::from(place / 16)),
                1 => bits(f64::from(place % 16)),
                _ => bits((source.below(33) as f64 - 16.0) / 64.0),
            }));
        }
    }
    let values = keys as usize * shape.heads.0 as usize * d_v as usize;
    literal.v.extend((0..values).map(|_| bits(1.0 + source.below(1 << 20) as f64 / f64::from(1 << 20))));
    let mut case = shape.case(Data::Literal(literal));
    case.problem.softmax_scale = scale;
    debug_assert!(case.problem.dtype != Dtype::E4M3);
    case
}
