//! Which of the four causes a finding has, and what says so.
//!
//! Two reference kernels that differ: the cause is the smallest set of fields that, made equal, makes the finding go away (`unify.rs`).
//! One reference kernel on two plans: it is the part of the recipe that differs. One table maps fields and recipe parts to causes.
//! Where there is nothing to make equal (a kernel from outside, a planted fault), the kernel is called on data that was made to tell
//! causes apart (`evidence/`), and what it did is the evidence. What does not decide is said: a cause is never guessed.

mod evidence;
mod minimal;
mod unify;

#[cfg(test)]
mod tests;

pub use super::cause_kind::CauseKind;
pub use unify::EVALUATIONS;

use super::check::{Pair, Scratch};
use super::recipe::RecipeDifference;
use super::trial::Trial;
use crate::finding::{Finding, Path};
use std::fmt;

/// A cause, and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which of the four. Where fields of several kinds are needed it is the first of theirs in the order semantics, order, blocking,
    /// precision: other keys are also cut and rounded otherwise, and another split also makes other blocks, but not the reverse.
    pub kind: CauseKind,
    /// What it rests on.
    pub evidence: Evidence,
}

/// What a cause rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Fields that, made equal together, make the finding go away; none of them can be spared unless `least` is false, which says that
    /// [`EVALUATIONS`] runs did not suffice to show it. Sorted by kind.
    Fields {
        /// The fields.
        fields: Vec<Field>,
        /// No part of the set removes the finding.
        least: bool,
    },
    /// The part in which the recipes of two runs of one kernel differ.
    Recipe(Field),
    /// What calls of the kernel on other data showed.
    Seen {
        /// What was looked at.
        by: Method,
        /// What was seen, in words.
        what: String,
    },
}

/// What black-box evidence looks at. None of it needs to know how a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Whether results change with what dead slots hold.
    DeadSlots,
    /// Whether every slot of the output is written.
    Written,
    /// With one-hot and constant values: which keys and heads a row reaches, and with which weight.
    Keys,
    /// Errors against the bounds of coarser arithmetic.
    Accuracy,
    /// From which length on, and on which data, results differ or break.
    Boundaries,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::DeadSlots => "dead slots",
            Method::Written => "slots written",
            Method::Keys => "keys reached",
            Method::Accuracy => "accuracy",
            Method::Boundaries => "boundary lengths",
        })
    }
}

/// No cause: what was looked at, and did not decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown {
    /// In the order of looking; empty where there was nothing to look at.
    pub tried: Vec<Method>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown")?;
        if !self.tried.is_empty() {
            let tried: Vec<String> = self.tried.iter().map(Method::to_string).collect();
            write!(f, ": {} do not decide", tried.join(", "))?;
        }
        Ok(())
    }
}

/// A field of the numerics or conventions, or a part of the recipe, in which two kernels or two runs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its two values.
    pub values: [String; 2],
    /// What a difference in it is.
    pub kind: CauseKind,
}

impl Cause {
    /// The fields that it names; none where it rests on what a kernel did.
    pub fn fields(&self) -> &[Field] {
        match &self.evidence {
            Evidence::Fields { fields, .. } => fields,
            Evidence::Recipe(field) => std::slice::from_ref(field),
            Evidence::Seen { .. } => &[],
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Evidence::Seen { by, what } = &self.evidence {
            return write!(f, "{}: {what} ({by})", self.kind);
        }
        let fields = self.fields();
        for (n, group) in fields.chunk_by(|a, b| a.kind == b.kind).enumerate() {
            let listed: Vec<String> = group.iter().map(Field::to_string).collect();
            write!(f, "{}{}: {}", if n > 0 { "; " } else { "" }, group[0].kind, listed.join(", "))?;
        }
        if let Evidence::Fields { least, .. } = self.evidence
            && fields.len() > 1
        {
            f.write_str(if least { " (only together)" } else { " (together; perhaps not all of them are needed)" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} against {}", self.name, self.values[0], self.values[1])
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

/// The cause of a finding; `None` where the evidence does not decide. See [`find`].
pub fn cause(
    pair: &Pair,
    trial: &Trial,
    finding: &Finding,
    recipes: &[RecipeDifference],
    scratch: &mut Scratch,
) -> Option<Cause> {
    find(pair, trial, finding, recipes, scratch).ok()
}

/// The cause of a finding, from fields and recipes where kernels have them, else from what the kernels do. `recipes` are the
/// differences of the two runs behind it.
///
/// # Errors
/// What was looked at, where that does not decide.
pub fn find(
    pair: &Pair,
    trial: &Trial,
    finding: &Finding,
    recipes: &[RecipeDifference],
    scratch: &mut Scratch,
) -> Result<Cause, Unknown> {
    // A planted fault is no field: such a kernel is looked at from outside, as a kernel of somebody else's would be.
    let reference = |path| pair.side(path).reference.as_deref().filter(|it| it.mutant.is_none());
    let from_fields = match finding {
        Finding::Mismatch(_) => match (reference(Path::Train), reference(Path::Infer)) {
            (Some(train), Some(infer)) => {
                unify::unify(pair, trial, finding, Path::Infer, unify::differing(train, infer), scratch)
            }
            _ => None,
        },
        Finding::Inaccurate(it) => {
            let claimed = reference(it.path).map(unify::claimed);
            claimed.and_then(|differing| unify::unify(pair, trial, finding, it.path, differing, scratch))
        }
        _ => None,
    };
    match from_fields.or_else(|| from_recipes(recipes)) {
        Some(cause) => Ok(cause),
        None => evidence::look(pair, trial, finding),
    }
}

fn from_recipes(recipes: &[RecipeDifference]) -> Option<Cause> {
    // A split changes the blocks too: the coarser difference is the cause.
    let rank = |field: &str| ["keys", "splits", "blocks", "visits"].iter().position(|it| *it == field).unwrap_or(4);
    let first = recipes.iter().min_by_key(|it| rank(&it.field))?;
    let kind = kind_of(&first.field);
    let values = [first.left.clone(), first.right.clone()];
    Some(Cause { kind, evidence: Evidence::Recipe(Field { name: first.field.clone(), values, kind }) })
}
