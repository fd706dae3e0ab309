//! The promise put to the test: **equal recipes give equal bits**. Where two productions of a row have equal [recipes](Recipe) and
//! unlike bits, the harness itself is wrong: the recipe leaves out something that the kernel depends on.
//!
//! Bits are compared first, and recipes are made only for rows whose bits differ, so a look at two alike runs costs the runs.

use super::check::{Pair, stopped};
use super::drive::{NO_ROW, Observed, Poison, Produced, Stop, element_index, row_index};
use super::recipe::{Recipe, StepFacts, recipe};
use super::reference::{Reference, facts};
use super::relation::{Relation, SidedRelation};
use super::{Case, Inputs, Problem};
use crate::finding::{Finding, Path, same};
use crate::number::Dtype;
use crate::tensor::Index;
use std::fmt;
use std::ops::Range;

/// Equal recipes and unlike bits.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokenPromise {
    /// The runs that made them: `train` and `infer`, one of them twice, or `base` and `changed` under a relation.
    pub names: [&'static str; 2],
    /// The relation between the runs.
    pub relation: Option<SidedRelation>,
    /// `o` or `lse`.
    pub output: &'static str,
    /// The first element that differs: sequence id, row, head, and for `o` the lane.
    pub index: Index,
    /// Format of the element.
    pub dtype: Dtype,
    /// Both patterns.
    pub bits: [u32; 2],
    /// The recipe, the same for both.
    pub recipe: Recipe,
}

impl fmt::Display for BrokenPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([a, b], [x, y]) = (self.names, self.bits.map(|bits| self.dtype.hex(bits)));
        write!(f, "{}[{}]: {a} {x}, {b} {y}", self.output, self.index)?;
        if let Some(relation) = &self.relation {
            write!(f, " under `{relation}`")?;
        }
        write!(f, ", and one recipe: {}", self.recipe)
    }
}

/// What a look at the promise gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Promise {
    /// The first place where it is broken: train against infer, then relation by relation.
    pub broken: Option<BrokenPromise>,
    /// Runs that gave nothing to compare: faults, and cases that a kernel does not support.
    pub stopped: Vec<Finding>,
}

/// Looks at every production of every row: train against infer, and on each relation's path the base run against the changed one.
/// A side without a [reference form](super::implementation::Implementation::reference) has no recipes, so nothing is promised of it.
pub fn promise(pair: &Pair, case: &Case, inputs: &Inputs, relations: &[SidedRelation]) -> Promise {
    let mut found = Promise::default();
    let sides = Path::BOTH.map(|path| match Run::new(pair, path, case, inputs, Poison::Nan)? {
        Ok(run) => Some(run),
        Err(stop) => {
            found.stopped.push(stopped(path, stop, None));
            None
        }
    });
    if let [Some(train), Some(infer)] = &sides {
        let alike = |n: usize| (n, n);
        found.broken = between(&case.problem, [train, infer], ["train", "infer"], (0..case.problem.total_q()).map(alike));
    }
    for relation in relations {
        if found.broken.is_some() {
            break;
        }
        let Some(base) = &sides[relation.path as usize] else { continue };
        let Some(variant) = relation.apply(case) else { continue };
        let poison = if relation.relation == Relation::Poison { Poison::Huge } else { Poison::Nan };
        let fresh = (!variant.same_inputs).then(|| pair.inputs(&variant.case));
        let inputs_now = fresh.as_ref().unwrap_or(inputs);
        let changed = match Run::new(pair, relation.path, &variant.case, inputs_now, poison) {
            Some(Ok(changed)) => changed,
            Some(Err(stop)) => {
                found.stopped.push(stopped(relation.path, stop, Some(relation)));
                continue;
            }
            None => continue,
        };
        let rows = variant.case.problem.sequences.iter().enumerate().flat_map(|(n, sequence)| {
            let ours = case.problem.sequences.iter().position(|it| it.id == sequence.id);
            let ours = ours.filter(|_| variant.except != Some(sequence.id));
            let starts = ours.map(|ours| (inputs.q_start[ours], inputs_now.q_start[n]));
            starts.into_iter().flat_map(|(ours, theirs)| (0..sequence.q as usize).map(move |i| (ours + i, theirs + i)))
        });
        found.broken = between(&case.problem, [base, &changed], ["base", "changed"], rows);
        if let Some(broken) = &mut found.broken {
            broken.relation = Some(relation.clone());
        }
    }
    found
}

/// One path, run once: its results, and what each of them may depend on.
struct Run<'p> {
    kernel: &'p Reference,
    produced: Produced,
    steps: Vec<Step>,
}

/// Where a production of some heads of a row comes from: one call of one head-parallel rank.
#[derive(Clone)]
struct Step {
    /// Packed row.
    packed: u32,
    facts: StepFacts,
    /// The row's number in the facts' sequence.
    row: u32,
    /// The query heads that the call computes.
    heads: Range<usize>,
}

impl<'p> Run<'p> {
    /// `None` where the kernel has no reference form, or a planted fault: it then promises nothing.
    fn new(pair: &'p Pair, path: Path, case: &Case, inputs: &Inputs, poison: Poison) -> Option<Result<Run<'p>, Stop>> {
        let kernel = pair.side(path).reference.as_deref().filter(|it| it.mutant.is_none())?;
        let mut steps = Vec::with_capacity(case.problem.total_q());
        let mut observer = |seen: Observed<'_>| {
            for (first, facts) in facts(seen.call) {
                let rows = seen.rows[first..first + facts.q as usize].iter().zip(0..);
                let step = |(&packed, row)| Step { packed, facts, row, heads: seen.heads.clone() };
                steps.extend(rows.filter(|&(&packed, _)| packed != NO_ROW).map(step));
            }
        };
        let produced = pair.drive(path, case, inputs, poison, Some(&mut observer));
        // Stable, so that the productions of a row stay in the order they were made.
        steps.sort_by_key(|step| step.packed);
        Some(produced.map(|produced| Run { kernel, produced, steps }))
    }

    /// The productions of a packed row, in the order they were made: `o` and `lse`.
    fn productions(&self, row: usize) -> impl Iterator<Item = [&[u32]; 2]> {
        let side = &self.produced;
        let first = side.present[row].then(|| [side.o.row(row), side.lse.row(row)]);
        first.into_iter().chain(side.again_of(row).iter().map(|it| [&it.o[..], &it.lse[..]]))
    }

    /// The recipe by which a head of a packed row was made for the `n`-th time.
    fn recipe(&self, row: usize, head: usize, n: usize) -> Option<Recipe> {
        let first = self.steps.partition_point(|step| (step.packed as usize) < row);
        let of_row = self.steps[first..].iter().take_while(|step| step.packed as usize == row);
        let step = of_row.filter(|step| step.heads.contains(&head)).nth(n)?;
        Some(recipe(&self.kernel.numerics, &self.kernel.actual, &step.facts, step.row))
    }
}

/// The first pair of productions that breaks the promise, over pairs of packed rows that have the same data.
fn between(
    problem: &Problem,
    runs: [&Run<'_>; 2],
    names: [&'static str; 2],
    rows: impl Iterator<Item = (usize, usize)>,
) -> Option<BrokenPromise> {
    for (row, other) in rows {
        let of = |n: usize, row: usize| runs[n].productions(row).enumerate().map(move |(made, results)| (n, row, made, results));
        let both = || of(0, row).chain(of(1, other));
        let Some((.., expected)) = both().next() else { continue };
        if both().all(|(.., results)| results == expected) {
            continue;
        }
        let made: Vec<_> = both().collect();
        for head in 0..problem.q_heads() {
            let recipes: Vec<_> = made.iter().map(|&(n, row, made, _)| runs[n].recipe(row, head, made)).collect();
            for (n, &(a, _, _, first)) in made.iter().enumerate() {
                for (m, &(b, _, _, second)) in made.iter().enumerate().skip(n + 1) {
                    let Some(recipe) = recipes[n].clone().filter(|it| recipes[m].as_ref() == Some(it)) else { continue };
                    let Some((output, dtype, index, bits)) = first_difference(problem, row, head, first, second) else {
                        continue;
                    };
                    let names = [names[a], names[b]];
                    return Some(BrokenPromise { names, relation: None, output, index, dtype, bits, recipe });
                }
            }
        }
    }
    None
}

/// The first element in which two productions of a head of a row differ.
fn first_difference(
    problem: &Problem,
    row: usize,
    head: usize,
    first: [&[u32]; 2],
    second: [&[u32]; 2],
) -> Option<(&'static str, Dtype, Index, [u32; 2])> {
    let outputs = [("o", problem.out_dtype, problem.d_v as usize), ("lse", Dtype::F32, 1)];
    for (which, (output, dtype, lanes)) in outputs.into_iter().enumerate() {
        let mut elements = first[which].iter().zip(second[which]).enumerate().skip(head * lanes).take(lanes);
        if let Some((n, (&x, &y))) = elements.find(|&(_, (&x, &y))| !same(dtype, x, y)) {
            let index = if which == 0 { element_index(problem, row, n) } else { row_index(problem, row, n) };
            return Some((output, dtype, index, [x, y]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Stream;
    use crate::subject::attention::draw::{Hints, Profile, draw};
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::oracle::Mode;
    use crate::subject::attention::relation::rotate;
    use std::sync::Arc;

    fn kernel(name: &str) -> Reference {
        Reference::parse(name).expect("a kernel's name")
    }

    fn pair(train: Implementation, infer: Implementation) -> Pair {
        Pair { train, infer, oracle: Mode::Off, captured: None, witness: false }
    }

    /// Computes as one kernel, and has the recipes of another.
    fn impostor(computes: &str, says: &str) -> Implementation {
        Implementation { kernel: Arc::new(kernel(computes)), reference: Some(Arc::new(kernel(says))), source: None }
    }

    /// What is found in drawn cases, each with two relations.
    fn look(pair: &Pair, cases: u64) -> Vec<Promise> {
        let of = |index| {
            let case = draw(&mut Stream::new(5, index), Profile::Quick, &Hints::default());
            let relations = rotate(&case, index, 2, &mut Stream::new(6, index));
            promise(pair, &case, &pair.inputs(&case), &relations)
        };
        (0..cases).map(of).collect()
    }

    #[test]
    fn two_kernels_that_differ_break_nothing() {
        for (train, infer) in
            [("aligned", "aligned"), ("aligned", "p-bf16"), ("uncached-split", "uncached-split"), ("fa2", "naive")]
        {
            let of = |name: &str| Implementation::reference(kernel(&format!("ref:{name}")));
            for found in look(&pair(of(train), of(infer)), 60) {
                assert_eq!(found, Promise::default(), "{train} against {infer}");
            }
        }
    }

    #[test]
    fn a_kernel_that_is_not_its_recipe_breaks_it() {
        let honest = || Implementation::reference(kernel("ref:aligned"));
        let found = look(&pair(honest(), impostor("ref:p-bf16", "ref:aligned")), 30);
        let broken: Vec<&BrokenPromise> = found.iter().filter_map(|it| it.broken.as_ref()).collect();
        assert!(broken.len() > 10, "{}", broken.len());
        let first = broken[0];
        assert_eq!((first.names, &first.relation), (["train", "infer"], &None));
        assert_ne!(first.bits[0], first.bits[1]);
        let text = first.to_string();
        assert!(text.contains("train ") && text.contains("and one recipe: keys 0.."), "{text}");
    }

    #[test]
    fn a_relation_breaks_it_too() {
        // Its grid moves with the prefix hit, and its recipes do not say so: without a hit, only a relation can tell.
        let moved = || impostor("ref:uncached-split,grid.split=fixed_size(2)", "ref:fixed-split,grid.split=fixed_size(2)");
        let honest = Implementation::reference(kernel("ref:fixed-split,grid.split=fixed_size(2)"));
        let pair = pair(honest, moved());
        let relation: SidedRelation = "infer prefix hit=3".parse().expect("a relation");
        let mut seen = false;
        for index in 0..300 {
            let mut case = draw(&mut Stream::new(5, index), Profile::Quick, &Hints::default());
            case.infer.requests.iter_mut().for_each(|it| it.hit = 0);
            if crate::subject::attention::validate(&case).is_err() {
                continue;
            }
            if let Some(broken) = promise(&pair, &case, &pair.inputs(&case), std::slice::from_ref(&relation)).broken {
                seen = true;
                assert_eq!((broken.names, broken.relation.as_ref()), (["base", "changed"], Some(&relation)));
                assert!(broken.to_string().contains("under `infer prefix hit=3`"));
            }
        }
        assert!(seen);
    }

    /// The promise is not empty: kernels that differ in a field or two have many rows of equal recipes, and many that are not.
    #[test]
    fn kernels_beside_each_other_share_recipes() {
        let (mut equal, mut unequal, mut visible) = (0, 0, 0);
        for index in 0..400 {
            let mut source = Stream::new(8, index);
            let train = Reference::draw(&mut source);
            let infer = train.draw_beside(&mut source);
            if train.numerics == infer.numerics {
                continue;
            }
            let pair = pair(Implementation::reference(train), Implementation::reference(infer));
            let case = draw(&mut source, Profile::Quick, &Hints::default());
            let inputs = pair.inputs(&case);
            let [train, infer] = Path::BOTH.map(|path| Run::new(&pair, path, &case, &inputs, Poison::Nan).expect("a reference"));
            let (Ok(train), Ok(infer)) = (train, infer) else { continue };
            for row in 0..case.problem.total_q() {
                let (ours, theirs) = (train.productions(row).next(), infer.productions(row).next());
                let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
                if (0..case.problem.q_heads()).all(|head| train.recipe(row, head, 0) == infer.recipe(row, head, 0)) {
                    equal += 1;
                } else {
                    unequal += 1;
                    visible += u32::from(ours != theirs);
                }
            }
        }
        assert!(equal > 300 && unequal > 2000 && visible > 1000, "{equal} equal, {unequal} not, {visible} of them visible");
    }

    #[test]
    fn what_cannot_run_is_said() {
        let declares = |name: &str| Implementation::reference(kernel(name));
        let pair = pair(declares("ref:aligned"), declares("ref:aligned,declared.anchor=strict"));
        let found = look(&pair, 20);
        assert!(found.iter().any(|it| matches!(&it.stopped[..], [Finding::Skipped { reason, .. }] if reason.contains("anchor"))));
    }
}
