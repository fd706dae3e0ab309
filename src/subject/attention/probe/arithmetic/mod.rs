//! Which arithmetic a kernel follows, without any tolerance.
//!
//! A class of arithmetic says where a kernel rounds coarsely; everything else is f32, in any order, with any exponential good to 20
//! units in the last place (where that excludes every class, to 2^-13). For each class and each result the *interval* of what such a kernel
//! may give is computed in f64: exact up to the coarse roundings, widened by what f32 may do in between. Rounding is monotone, so a coarse rounding of an interval is the
//! interval of its rounded ends. Where both ends of a stored result are one pattern, the result is *decided* for the class. A result
//! outside its interval *refutes* the class: no kernel of that class gives it, in whatever order it adds. One is enough. Of a narrow
//! accumulator, whose order decides bits, each order that is tried is refuted by itself: the class stands for those.
//!
//! The data makes the other things that matter drop out: eight keys, so that one block holds them; rows whose largest score is at the first
//! key, so that a running maximum is the final one at once also where blocks are shorter; and for 16-bit operands dot products that are exact
//! in f32, so that scores are.

mod blocks;
mod candidate;
mod interval;
mod order;

use super::Probing;
use super::page::{Answer, Class, Recipe};
use super::sample::Shape;
use super::terms::Terms;
use crate::finding::Path;
use crate::number::Dtype;
use crate::source::{Source, Stream};
use crate::subject::attention::capabilities::Format;
use crate::subject::attention::check::Pair;
use crate::subject::attention::drive::{Poison, Stop, row_index};
use crate::subject::attention::{Anchor, Case, Data, Literal};
use candidate::{Candidate, ONE_BLOCK, Probs, Row, SINGLE, candidates};
use interval::Exponential;

/// Keys of each row: one block of every kernel.
const KEYS: u32 = 8;

/// Problems that a recipe is read from: each has eight rows, or one where it is a decode step.
fn problems(path: Path) -> u64 {
    match path {
        Path::Train => 24,
        Path::Infer => 160,
    }
}

/// What a path follows in a format.
pub(super) fn recipe(probing: &mut Probing<'_>, format: Format, path: Path) -> Recipe {
    probing.progress(&format!("{}: {path}: which arithmetic", format.storage));
    let none = |reason: String| Recipe {
        path: Some(path),
        answer: Answer::NotTried(reason),
        results: 0,
        classes: Vec::new(),
        detail: Vec::new(),
    };
    if !probing.terms.path(path) {
        return none("no form".to_owned());
    }
    let mut rows = Vec::new();
    for index in 0..problems(path) {
        let case = problem(&probing.terms, format, path, index, probing.options.seed);
        match answers(&probing.attention.pair, path, &case) {
            Ok(mut answers) => {
                answers.retain(RowAnswer::first_is_largest);
                rows.push(answers);
            }
            Err(reason) => return none(reason),
        }
    }
    let results: u64 = rows.iter().flatten().map(|answer| answer.got.len() as u64).sum();
    let mut all = candidates(format.storage, format.out);
    let mut counts = held_against(&all, &rows);
    if counts.iter().all(|count| count.refuted > 0) {
        // Only then: a coarse exponential blurs what a fine one tells apart.
        let coarse: Vec<Candidate> = all.iter().map(|it| Candidate { exponential: Exponential::Coarse, ..*it }).collect();
        counts.extend(held_against(&coarse, &rows));
        all.extend(coarse);
    }
    let classes = classes(&all, &counts);
    let left: Vec<String> = classes.iter().filter(|class| class.refuted == 0).map(|class| class.name.clone()).collect();
    let survivors: Vec<Candidate> = all.iter().zip(&counts).filter(|(_, it)| it.refuted == 0).map(|(it, _)| *it).collect();
    let answer = match left.len() {
        _ if results == 0 => return none("no results".to_owned()),
        0 => Answer::None,
        1 => Answer::One(left[0].clone()),
        _ => Answer::Several(left),
    };
    let mut detail = Vec::new();
    if let (Answer::One(_), Some(one)) = (&answer, survivors.first()) {
        if matches!(one.probs, Probs::Unnormalised(_)) {
            detail.push(blocks::blocks(probing, format, path, one));
        }
        if *one == SINGLE && format.storage == Dtype::F32 {
            detail.push(order::order(probing, format, path));
        }
    }
    Recipe { path: Some(path), answer, results, classes, detail }
}

/// Every candidate against the results, problem by problem, until one refutes it.
fn held_against(all: &[Candidate], problems: &[Vec<RowAnswer>]) -> Vec<Count> {
    let mut counts: Vec<Count> = all.iter().map(|_| Count::default()).collect();
    for answers in problems {
        for (candidate, count) in all.iter().zip(&mut counts).filter(|(_, count)| count.refuted == 0) {
            answers.iter().for_each(|answer| count.add(candidate, answer));
        }
    }
    counts
}

/// What the results say to one candidate.
#[derive(Clone, Debug, Default)]
struct Count {
    held: u64,
    decided: u64,
    refuted: u64,
    witness: Option<String>,
}

impl Count {
    fn add(&mut self, candidate: &Candidate, answer: &RowAnswer) {
        self.take(&candidate.results(&answer.row(), ONE_BLOCK), answer);
    }

    fn take(&mut self, allowed: &[interval::Interval], answer: &RowAnswer) {
        for (lane, (allowed, &got)) in allowed.iter().zip(&answer.got).enumerate() {
            self.held += 1;
            self.decided += u64::from(allowed.lo == allowed.hi);
            let inside = allowed.lo <= got && got <= allowed.hi;
            self.refuted += u64::from(!inside);
            if !inside && self.witness.is_none() {
                let wanted = match allowed.lo == allowed.hi {
                    true => format!("{}", allowed.lo),
                    false => format!("{} to {}", allowed.lo, allowed.hi),
                };
                self.witness = Some(format!("{} d={lane}: {got}, the class gives {wanted}", answer.at));
            }
        }
    }
}

/// Candidates of one name as one class.
fn classes(all: &[Candidate], counts: &[Count]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for (candidate, count) in all.iter().zip(counts) {
        let Count { held, decided, refuted, witness } = count.clone();
        let name = candidate.name();
        let class = Class { name, held, decided, refuted, witness };
        match classes.iter_mut().find(|it| it.name == class.name) {
            // The order that stood longest stands for all.
            Some(known) if (class.refuted > 0, known.held) < (known.refuted > 0, class.held) => *known = class,
            Some(_) => {}
            None => classes.push(class),
        }
    }
    classes
}

/// What a kernel gave for one row and head, and what it was given.
struct RowAnswer {
    at: String,
    q: Vec<f64>,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
    scale: f64,
    exact: bool,
    out: Dtype,
    /// `[d_v]`.
    got: Vec<f64>,
}

impl RowAnswer {
    /// Whether no key has a larger score than the first.
    fn first_is_largest(&self) -> bool {
        let score = |key: &Vec<f64>| self.q.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
        self.k.iter().all(|key| score(key) <= score(&self.k[0]))
    }

    fn row(&self) -> Row<'_> {
        Row { q: &self.q, k: &self.k, v: &self.v, scale: self.scale, exact: self.exact, out: self.out }
    }
}

/// Drives a case on one path and decodes what went in and came out, row by row.
fn answers(pair: &Pair, path: Path, case: &Case) -> Result<Vec<RowAnswer>, String> {
    let (problem, inputs) = (&case.problem, pair.inputs(case));
    let produced = pair.drive(path, case, &inputs, Poison::Nan, None).map_err(|stop| match stop {
        Stop::Unsupported(reason) => format!("refused: {reason}"),
        Stop::Fault(fault) => fault.to_string(),
    })?;
    let heads = problem.q_heads();
    let decode = |dtype: Dtype, bits: &[u32]| -> Vec<f64> { bits.iter().map(|&bits| dtype.to_f64(bits)).collect() };
    let mut answers = Vec::new();
    let (mut first_q, mut first_kv) = (0, 0);
    for sequence in &problem.sequences {
        for i in 0..sequence.q {
            let row = first_q + i as usize;
            let keys = problem.mask.keys(i, sequence.q, sequence.kv);
            if !produced.present[row] || keys.is_empty() {
                continue;
            }
            for head in 0..heads {
                let kv_head = head / problem.group_ids.len();
                let lanes =
                    |bits: &[u32], d: u32, at: usize| -> Vec<u32> { bits[at * d as usize..(at + 1) * d as usize].to_vec() };
                let of = |tensor: &crate::tensor::Tensor, d: u32| -> Vec<Vec<f64>> {
                    keys.clone()
                        .map(|key| decode(tensor.dtype, &lanes(tensor.row(first_kv + key as usize), d, kv_head)))
                        .collect()
                };
                answers.push(RowAnswer {
                    at: row_index(problem, row, head).to_string(),
                    q: decode(inputs.q.dtype, &lanes(inputs.q.row(row), problem.d_qk, head)),
                    k: of(&inputs.k, problem.d_qk),
                    v: of(&inputs.v, problem.d_v),
                    scale: f64::from(problem.softmax_scale),
                    exact: problem.dtype != Dtype::F32,
                    out: problem.out_dtype,
                    got: decode(problem.out_dtype, &lanes(produced.o.row(row), problem.d_v, head)),
                });
            }
        }
        first_q += sequence.q as usize;
        first_kv += sequence.kv as usize;
    }
    Ok(answers)
}

/// The rows and positions of a path's usual call: a whole sequence, or one row against a cache.
fn usual(terms: &Terms<'_>, path: Path, keys: u32) -> (u32, u32) {
    let top_left = terms.masks().first() == Some(&Some(Anchor::TopLeft));
    if path == Path::Train || top_left { (keys, keys) } else { (1, keys) }
}

/// A power of two near `1 / sqrt(d)`: the product with a score is exact.
fn scale(d: u32) -> f32 {
    let half = (f64::from(d.max(1)).log2() / 2.0).round() as i32;
    f32::from_bits(((127 - half) as u32) << 23)
}

/// Eight keys of which the first and the last have the largest score, save in a row where chance gives it to another.
fn problem(terms: &Terms<'_>, format: Format, path: Path, index: u64, seed: u64) -> Case {
    let shape = Shape::of(terms, format, &[usual(terms, path, KEYS)]);
    let (d_qk, d_v) = shape.head_dims;
    let scale = scale(d_qk);
    let mut source = Stream::new(seed, index);
    // Steps of 1/64 and 1/16: a dot product of 16-bit operands has at most 20 bits. f32 operands use all of theirs.
    let wide = format.storage == Dtype::F32;
    let small = |source: &mut Stream| match wide {
        true => source.below(1 << 24) as f64 / f64::from(1 << 24) - 0.5,
        false => (source.below(65) as f64 - 32.0) / 64.0,
    };
    let lift = 0.5 / f64::from(scale);
    let (q_heads, kv_heads) = ((shape.heads.0 * shape.heads.1) as usize, shape.heads.0 as usize);
    let (rows, keys) = shape.sequences[0];
    let bits = |value: f64| format.storage.round_f64(value);
    let mut literal = Literal { q: Vec::new(), k: Vec::new(), v: Vec::new() };
    for _ in 0..rows as usize * q_heads {
        literal.q.push(bits(lift));
        literal.q.extend((1..d_qk).map(|_| bits(small(&mut source))));
    }
    let top: Vec<u32> = (1..d_qk).map(|_| bits(small(&mut source))).collect();
    for key in 0..keys {
        for _ in 0..kv_heads {
            let ends = key == 0 || key + 1 == keys;
            literal.k.push(bits(if ends { 4.0 } else { source.below(57) as f64 / 16.0 }));
            match ends {
                true => literal.k.extend(&top),
                false => literal.k.extend((1..d_qk).map(|_| bits(small(&mut source)))),
            }
        }
    }
    let values = keys as usize * kv_heads * d_v as usize;
    literal.v.extend((0..values).map(|_| bits(source.below(1 << 24) as f64 / f64::from(1 << 22) - 2.0)));
    let mut case = shape.case(Data::Literal(literal));
    case.problem.softmax_scale = scale;
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::probe::{Options, Probing};
    use crate::subject::attention::reference::Reference;

    fn recipe_of(kernel: &str, storage: Dtype, path: Path) -> Recipe {
        let kernel = Implementation::reference(Reference::parse(kernel).unwrap());
        let mut quiet = |_: &str| {};
        let mut probing = Probing::new(&kernel, Options { cases: Some(1), seed: 1 }, &mut quiet);
        recipe(&mut probing, Format { storage, out: storage }, path)
    }

    /// Each kernel, and what it does in words.
    fn named(kernel: &str, storage: Dtype, expected: &str) {
        for path in Path::BOTH {
            let recipe = recipe_of(kernel, storage, path);
            assert_eq!(recipe.answer, Answer::One(expected.to_owned()), "{kernel} {storage} {path}: {:#?}", recipe.classes);
        }
    }

    #[test]
    fn f32_throughout() {
        for storage in [Dtype::BF16, Dtype::F16, Dtype::F32] {
            for kernel in
                ["ref:aligned", "ref:naive", "ref:folded-log2e,score.fma=true", "ref:fixed-split,grid.split=fixed_size:2"]
            {
                named(kernel, storage, "f32 throughout, one rounding at the end");
            }
        }
    }

    #[test]
    fn weights() {
        for storage in [Dtype::BF16, Dtype::F16, Dtype::F32] {
            let narrow = if storage == Dtype::F32 { Dtype::BF16 } else { storage };
            named(&format!("ref:aligned,probs.dtype={narrow}"), storage, &format!("rounds unnormalised P to {narrow}"));
            named(&format!("ref:fa2,probs.dtype={narrow}"), storage, &format!("rounds unnormalised P to {narrow}"));
            named(&format!("ref:naive,probs.dtype={narrow}"), storage, &format!("rounds normalised P to {narrow}"));
            named(
                &format!("ref:aligned,probs.dtype={narrow},rowsum.of=rounded_p"),
                storage,
                &format!("rounds unnormalised P to {narrow}, row sum of the rounded P"),
            );
        }
        named("ref:p-bf16", Dtype::F16, "rounds unnormalised P to bf16");
    }

    #[test]
    fn scores_sums_and_stores() {
        for storage in [Dtype::BF16, Dtype::F16] {
            named(&format!("ref:aligned,score.store={storage}"), storage, &format!("rounds scores to {storage}"));
            named(
                &format!("ref:naive,score.store={storage},probs.dtype={storage}"),
                storage,
                &format!("rounds scores and normalised P to {storage}"),
            );
            named(
                &format!("ref:aligned,score.store={storage},probs.dtype={storage}"),
                storage,
                &format!("rounds scores and unnormalised P to {storage}"),
            );
            for order in ["sequential", "pairwise", "lanes:4"] {
                let kernel = format!("ref:aligned,rowsum.acc={storage},rowsum.order={order}");
                named(&kernel, storage, &format!("row sum kept in {storage}"));
                for fma in [false, true] {
                    let kernel = format!("ref:aligned,value.acc={storage},value.order={order},value.fma={fma}");
                    named(&kernel, storage, &format!("PV accumulated in {storage}"));
                }
            }
            named("ref:aligned,store=truncate", storage, "f32 throughout, one rounding at the end, truncating store");
        }
        named("ref:aligned,value.acc=f16", Dtype::BF16, "PV accumulated in f16");
    }

    #[test]
    fn blocks_are_read_from_rounded_weights() {
        for (kernel, expected) in [
            ("ref:p-bf16", "blocks of 64 keys, first to last"),
            ("ref:p-bf16,softmax.block=16", "blocks of 16 keys, first to last"),
            ("ref:p-bf16,softmax.block=512", "blocks of 512 keys, first to last"),
            ("ref:fa2", "blocks of 128 keys, last to first"),
            ("ref:p-bf16,softmax.block=whole", "no block visible to 552 keys"),
            ("ref:p-bf16,softmax.passes=two_pass", "no block visible to 552 keys"),
            ("ref:p-bf16,softmax.block=48", "blocks: none of 16 to 512 keys on a grid from the first key"),
        ] {
            for path in Path::BOTH {
                assert_eq!(recipe_of(kernel, Dtype::BF16, path).detail, [expected], "{kernel} {path}");
            }
        }
    }

    #[test]
    fn f32_orders_are_read_from_bits() {
        let detail = recipe_of("ref:aligned", Dtype::F32, Path::Train).detail;
        assert!(detail[0].starts_with("the bits of ref:aligned on all "), "{detail:?}");
        let detail = recipe_of("ref:aligned,score.order=lanes:2", Dtype::F32, Path::Train).detail;
        assert!(detail[0].starts_with("order not identified"), "{detail:?}");
    }

    /// A kernel that does something else is none of the classes, and says by which result.
    #[test]
    fn none_of_these() {
        named("ref:p-bf16,softmax.exp=exp2_poly:3", Dtype::BF16, "rounds unnormalised P to bf16, an exponential good to 2^-13");
        let recipe = recipe_of("ref:aligned,softmax.exp=exp2_poly:2", Dtype::BF16, Path::Train);
        assert_eq!(recipe.answer, Answer::None);
        assert!(recipe.classes.iter().all(|class| class.refuted > 0 && class.witness.is_some()));
    }
}
