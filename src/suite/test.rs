//! What the stamped tests are.

use crate::finding::{Axis, Verdict};
use crate::source::{Stream, mix};
use crate::subject::attention::check::Pair;
use crate::subject::attention::relation::along;
use crate::subject::attention::trial::{Checks, Trial};
use std::fmt;
use std::str::FromStr;

/// One test of a suite. Its name is that of the stamped function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Test {
    /// A row keeps its bits when this is changed around it, on either path. Named after the axis, e.g. `chunk`.
    Relation(Axis),
    /// `train_against_infer`: both paths give the same bits.
    TrainAgainstInfer,
    /// `accuracy`: each result is within the bound computed for the declared numerics, measured from the proven true value.
    Accuracy,
    /// `refused_or_right`: of all that is drawn, whatever the kernel supports, each case is either refused by name or passes every
    /// check; nothing panics, and not everything is refused.
    RefusedOrRight,
    /// `order_sensitive`: among the cases that are compared there are some in which another order of summation would have changed
    /// a bit, so that `train_against_infer` could have failed.
    OrderSensitive,
}

impl Test {
    /// Every test.
    pub const ALL: [Test; 15] = [
        Test::Relation(Axis::Repeat),
        Test::Relation(Axis::Recompute),
        Test::Relation(Axis::Company),
        Test::Relation(Axis::Position),
        Test::Relation(Axis::Padding),
        Test::Relation(Axis::Poison),
        Test::Relation(Axis::Pages),
        Test::Relation(Axis::Chunk),
        Test::Relation(Axis::Prefix),
        Test::Relation(Axis::PrefixStability),
        Test::Relation(Axis::Ranks),
        Test::TrainAgainstInfer,
        Test::Accuracy,
        Test::RefusedOrRight,
        Test::OrderSensitive,
    ];

    /// The checks it makes of a drawn case; none where the case has nothing of the kind.
    pub(super) fn checks(self, pair: &Pair, trial: &Trial, seed: u64, index: u64) -> Vec<Checks> {
        match self {
            Test::Relation(axis) => {
                let mut source = Stream::new(mix(seed, RELATIONS), index);
                let only = |relation| Checks::Only { oracle: false, pair: false, relation: Some(relation) };
                let drawn = along(&trial.case, axis, &mut source).into_iter();
                drawn.filter(|it| pair.beyond(&trial.case, it).is_none()).map(only).collect()
            }
            Test::TrainAgainstInfer | Test::OrderSensitive => vec![Checks::Only { oracle: false, pair: true, relation: None }],
            Test::Accuracy => vec![Checks::Only { oracle: true, pair: false, relation: None }],
            Test::RefusedOrRight => vec![trial.checks.clone()],
        }
    }

    /// Whether something of what it asks was really compared.
    pub(super) fn compared(self, verdict: &Verdict) -> bool {
        match self {
            Test::Relation(_) => verdict.relations > 0,
            Test::Accuracy => {
                let accuracy = verdict.accuracy;
                accuracy.judged > accuracy.unbounded + accuracy.out_of_range
            }
            _ => verdict.compared > 0,
        }
    }
}

/// Sets the relations' parameters apart from the cases of the same seed.
const RELATIONS: u64 = 1;

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Relation(axis) => axis.fmt(f),
            Test::TrainAgainstInfer => f.write_str("train_against_infer"),
            Test::Accuracy => f.write_str("accuracy"),
            Test::RefusedOrRight => f.write_str("refused_or_right"),
            Test::OrderSensitive => f.write_str("order_sensitive"),
        }
    }
}

impl FromStr for Test {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Test::ALL.map(|test| test.to_string());
        let found = Test::ALL.into_iter().zip(&names).find(|(_, name)| *name == text);
        found.map(|(test, _)| test).ok_or_else(|| format!("no test `{text}` (one of {})", names.join(", ")))
    }
}
