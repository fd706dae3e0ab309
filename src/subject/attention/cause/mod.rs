//! Which of the four causes a finding has.
//!
//! Two kernels that differ: the cause is the field that, made equal, makes the finding go away. One kernel on two plans: it is the
//! part of the recipe that differs. One table maps fields and recipe parts to causes.

pub use super::cause_kind::CauseKind;

use super::check::{Pair, Scratch};
use super::conventions::Conventions;
use super::implementation::Implementation;
use super::numerics::Numerics;
use super::recipe::RecipeDifference;
use super::reference::Reference;
use super::trial::Trial;
use crate::finding::{Finding, Path};
use std::fmt;

/// A cause, and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which of the four.
    pub kind: CauseKind,
    /// A field of the numerics or conventions, or a part of the recipe.
    pub field: String,
    /// Its two values.
    pub values: [String; 2],
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} against {}", self.kind, self.field, self.values[0], self.values[1])
    }
}

/// The table: every field of numerics and recipe has one cause. Conventions are semantics.
fn kind_of(field: &str) -> CauseKind {
    match field {
        "keys" | "position" => CauseKind::Semantics,
        "splits" | "visits" | "slots" | "score.order" | "rowsum.order" | "value.order" | "softmax.traverse" | "grid.anchor"
        | "grid.split" | "grid.merge" | "grid.context" => CauseKind::Order,
        "blocks" | "tile" | "partials" | "softmax.passes" | "softmax.block" | "softmax.rescale" | "softmax.scope"
        | "softmax.max_init" => CauseKind::Blocking,
        field if field.starts_with("actual.") => CauseKind::Semantics,
        _ => CauseKind::Precision,
    }
}

/// A field in which two kernels differ, and how to give the second the first's value.
struct Field {
    name: String,
    values: [String; 2],
    unify: Box<dyn Fn(&mut Reference)>,
}

fn differing_fields(a: &Reference, b: &Reference) -> Vec<Field> {
    let mut fields = differing_conventions(&a.actual, &b.actual);
    fields.extend(differing_numerics(&a.numerics, &b.numerics));
    fields
}

fn differing_conventions(a: &Conventions, b: &Conventions) -> Vec<Field> {
    let differing = |name: &&&str| a.get(name) != b.get(name);
    Conventions::FIELDS
        .iter()
        .filter(differing)
        .map(|&name| {
            let values = [a, b].map(|it| it.get(name).unwrap_or_default());
            let value = values[0].clone();
            let unify = Box::new(move |it: &mut Reference| it.actual.set(name, &value).expect("a value it printed"));
            Field { name: format!("actual.{name}"), values, unify }
        })
        .collect()
}

fn differing_numerics(a: &Numerics, b: &Numerics) -> Vec<Field> {
    let differing = |name: &&&str| a.get(name) != b.get(name);
    Numerics::FIELDS
        .iter()
        .filter(differing)
        .map(|&name| {
            let values = [a, b].map(|it| it.get(name).unwrap_or_default());
            let value = values[0].clone();
            let unify = Box::new(move |it: &mut Reference| it.numerics.set(name, &value).expect("a value it printed"));
            Field { name: name.to_owned(), values, unify }
        })
        .collect()
}

/// The cause of a finding; `None` where a kernel is no reference, or where no difference explains it.
pub fn cause(
    pair: &Pair,
    trial: &Trial,
    finding: &Finding,
    recipes: &[RecipeDifference],
    scratch: &mut Scratch,
) -> Option<Cause> {
    let from_fields = match finding {
        Finding::Mismatch(_) => {
            let (train, infer) = (pair.train.reference.as_ref()?, pair.infer.reference.as_ref()?);
            by_unifying(pair, trial, finding, Path::Infer, differing_fields(train, infer), scratch)
        }
        Finding::Inaccurate(it) => {
            // Against what the kernel claims: its declared conventions and its profile.
            let reference = pair.side(it.path).reference.as_ref()?;
            let claimed = reference.profile.unwrap_or(reference.numerics);
            let mut fields = differing_conventions(&reference.declared, &reference.actual);
            fields.extend(differing_numerics(&claimed, &reference.numerics));
            for field in &mut fields {
                field.values[0].insert_str(0, "claimed as ");
                field.values[1].insert_str(0, "really ");
            }
            by_unifying(pair, trial, finding, it.path, fields, scratch)
        }
        _ => None,
    };
    from_fields.or_else(|| from_recipes(recipes))
}

/// Gives the second kernel the first one's fields, one alone if that is enough, else one after the other.
fn by_unifying(
    pair: &Pair,
    trial: &Trial,
    finding: &Finding,
    path: Path,
    fields: Vec<Field>,
    scratch: &mut Scratch,
) -> Option<Cause> {
    let signature = finding.signature();
    let mut persists = |reference: &Reference| {
        let mut pair = pair.clone();
        let side = match path {
            Path::Train => &mut pair.train,
            Path::Infer => &mut pair.infer,
        };
        *side = Implementation::reference(reference.clone());
        pair.check(trial, scratch).findings.iter().any(|it| it.signature() == signature)
    };
    let original = pair.side(path).reference.as_deref()?;
    let cause = |field: &Field| Cause { kind: kind_of(&field.name), field: field.name.clone(), values: field.values.clone() };
    for field in &fields {
        let mut changed = original.clone();
        (field.unify)(&mut changed);
        if changed.numerics.validate().is_ok() && !persists(&changed) {
            return Some(cause(field));
        }
    }
    let mut changed = original.clone();
    for field in &fields {
        (field.unify)(&mut changed);
        if changed.numerics.validate().is_ok() && !persists(&changed) {
            return Some(cause(field));
        }
    }
    None
}

fn from_recipes(recipes: &[RecipeDifference]) -> Option<Cause> {
    // A split changes the blocks too: the coarser difference is the cause.
    let rank = |field: &str| ["keys", "splits", "blocks", "visits"].iter().position(|it| *it == field).unwrap_or(4);
    let first = recipes.iter().min_by_key(|it| rank(&it.field))?;
    let values = [first.left.clone(), first.right.clone()];
    Some(Cause { kind: kind_of(&first.field), field: first.field.clone(), values })
}
