//! The two runs behind a finding, each with the recipe and the trace of the finding's first row.

use crate::finding::{Finding, Path};
use crate::subject::attention::Case;
use crate::subject::attention::check::Pair;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::drive::{Observed, Poison};
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::Call;
use crate::subject::attention::launched::{Launched, notes};
use crate::subject::attention::recipe::{Recipe, RecipeDifference};
use crate::subject::attention::reference::Reference;
use crate::subject::attention::reference::trace::Trace;
use crate::subject::attention::relation::{Relation, SidedRelation};
use crate::subject::attention::trial::Trial;
use crate::tensor::Index;

/// What two runs are called.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// The first.
    pub first: &'static str,
    /// The second.
    pub second: &'static str,
    /// `only in training`: where a step of theirs is.
    inside: [&'static str; 2],
    /// One word each.
    pub short: [&'static str; 2],
}

impl Names {
    /// The two paths.
    pub const PATHS: Names =
        Names { first: "training", second: "inference", inside: ["in training", "in inference"], short: ["train", "infer"] };
    const RELATION: Names = Names {
        first: "the base run",
        second: "the changed run",
        inside: ["in the base run", "in the changed run"],
        short: ["base", "changed"],
    };
    const AGAIN: Names = Names {
        first: "the first time",
        second: "the later time",
        inside: ["the first time", "the later time"],
        short: ["first", "later"],
    };
    const CLAIM: Names = Names {
        first: "the kernel it claims to be",
        second: "this kernel",
        inside: ["in the kernel it claims to be", "in this kernel"],
        short: ["claimed", "this"],
    };

    /// The first, at the beginning of a sentence.
    pub(super) fn first_capital(&self) -> String {
        self.first[..1].to_uppercase() + &self.first[1..]
    }

    pub(super) fn in_run(&self, run: usize) -> &'static str {
        self.inside[run]
    }
}

/// The two runs behind a finding.
pub(super) struct Runs {
    pub names: &'static Names,
    pub runs: [RowRun; 2],
    /// The row and head, and the lane of an output, that the finding names first.
    pub index: Index,
}

/// One run of one row.
#[derive(Default)]
pub(super) struct RowRun {
    pub recipe: Option<Recipe>,
    pub trace: Option<Trace>,
    pub launched: Option<Launched>,
}

impl Runs {
    /// Runs what a finding is about once more and watches its first row; `None` where there are no two runs to compare.
    pub fn of(pair: &Pair, trial: &Trial, finding: &Finding) -> Option<Runs> {
        let case = &trial.case;
        match finding {
            Finding::Mismatch(difference) => {
                let index = difference.elements.first()?.index.clone();
                let run = |path| row_run(pair, path, case, Poison::Nan, &index);
                Some(Runs { names: &Names::PATHS, runs: [run(Path::Train), run(Path::Infer)], index })
            }
            Finding::NotInvariant { path, relation, difference, .. } => {
                let index = difference.elements.first()?.index.clone();
                let relation = relation.parse::<SidedRelation>().ok()?;
                let variant = relation.apply(case)?;
                let poison = match relation.relation {
                    Relation::Poison => Poison::Huge,
                    _ => Poison::Nan,
                };
                let mut first = index.clone();
                let recomputed = relation.relation == Relation::Recompute;
                if recomputed {
                    // One run: a later production, which the index names, against the first.
                    first.0.retain(|&(axis, _)| axis != "again");
                }
                let base = row_run(pair, *path, case, Poison::Nan, &first);
                let changed = row_run(pair, *path, &variant.case, poison, &index);
                let names = if recomputed { &Names::AGAIN } else { &Names::RELATION };
                Some(Runs { names, runs: [base, changed], index })
            }
            // Only the truth to compare with: the kernel as it claims to be stands in for it.
            Finding::Inaccurate(it) => {
                let reference = pair.side(it.path).reference.as_deref()?;
                let claimed = as_claimed(reference);
                if claimed == *reference {
                    return None;
                }
                let mut honest = pair.clone();
                match it.path {
                    Path::Train => honest.train = Implementation::reference(claimed),
                    Path::Infer => honest.infer = Implementation::reference(claimed),
                }
                let run = |pair| row_run(pair, it.path, case, Poison::Nan, &it.index);
                Some(Runs { names: &Names::CLAIM, runs: [run(&honest), run(pair)], index: it.index.clone() })
            }
            _ => None,
        }
    }

    /// In what the recipes differ.
    pub fn recipe_differences(&self) -> Vec<RecipeDifference> {
        match &self.runs {
            [RowRun { recipe: Some(a), .. }, RowRun { recipe: Some(b), .. }] => a.differences(b),
            _ => Vec::new(),
        }
    }

    /// What the kernels' rules gave, where it differs.
    pub fn launches(&self) -> Vec<String> {
        match &self.runs {
            [RowRun { launched: Some(a), .. }, RowRun { launched: Some(b), .. }] => {
                notes([a, b], [self.names.first, self.names.second])
            }
            _ => Vec::new(),
        }
    }

    /// Both traces.
    pub fn traces(&self) -> Option<[&Trace; 2]> {
        match &self.runs {
            [RowRun { trace: Some(a), .. }, RowRun { trace: Some(b), .. }] => Some([a, b]),
            _ => None,
        }
    }

    /// The coordinate along an axis, 0 without one.
    pub fn at(&self, axis: &str) -> u64 {
        coordinate(&self.index, axis)
    }
}

/// The kernel that a reference claims to be: its profile and declared conventions, and no planted fault.
fn as_claimed(reference: &Reference) -> Reference {
    let numerics = reference.profile.unwrap_or(reference.numerics);
    Reference { numerics, actual: reference.declared, mutant: None, ..reference.clone() }
}

/// What the kernels of a pair declare that a call means, where it is known of both and the same.
pub(super) fn declared(pair: &Pair) -> Option<Conventions> {
    let [train, infer] = Path::BOTH.map(|path| pair.side(path).kernel.conventions());
    (train == infer).then_some(train)
}

fn coordinate(index: &Index, axis: &str) -> u64 {
    index.0.iter().find(|(name, _)| *name == axis).map_or(0, |&(_, n)| n)
}

/// Runs one path again and watches the call that first computes a row.
fn row_run(pair: &Pair, path: Path, case: &Case, poison: Poison, index: &Index) -> RowRun {
    let mut found = RowRun::default();
    let Some(reference) = pair.side(path).reference.clone() else { return found };
    let at = |axis: &str| coordinate(index, axis);
    let inputs = pair.inputs(case);
    let Some(sequence) = case.problem.sequences.iter().position(|it| u64::from(it.id) == at("seq")) else { return found };
    let packed = inputs.q_start[sequence] + at("row") as usize;
    let head = at("head") as usize;
    let mut earlier = at("again");
    let mut observer = |seen: Observed<'_>| {
        if found.trace.is_none()
            && seen.heads.contains(&head)
            && let Some(row) = seen.rows.iter().position(|&row| row as usize == packed)
        {
            // Productions of the row before the one that differs; a path that has fewer shows its only one.
            if earlier > 0 && path == Path::Infer {
                earlier -= 1;
            } else {
                watch(&mut found, &reference, seen.call, row, head - seen.heads.start);
            }
        }
    };
    // The result was seen before; only the calls matter here.
    let _ = pair.drive(path, case, &inputs, poison, Some(&mut observer));
    found
}

fn watch(found: &mut RowRun, reference: &Reference, call: Call<'_>, row: usize, head: usize) {
    found.recipe = reference.recipe(call, row);
    found.trace = reference.trace(call, row, head);
    found.launched = Reference::launch(call, row).map(|launch| Launched { numerics: reference.numerics, launch });
}
