//! Why no tree is given.

use super::Established;
use crate::tree::Tree;
use std::fmt;

/// The two masked leaves of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Where `M` stood.
    pub plus: usize,
    /// Where `-M` stood.
    pub minus: usize,
    /// Leaves present, these two among them.
    pub present: usize,
}

/// Why no tree is given. A tree that is not certain is never returned as one.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The sum could not be run; in its own words.
    Call(String),
    /// There is nothing to add.
    NoLeaves,
    /// The masks of these formats do not swamp even one unit.
    NoMask {
        /// Leaves present at once that the masks reach.
        reach: usize,
    },
    /// The same probe gave two results: the sum changes from call to call.
    NotRepeated {
        /// The probe.
        pair: Pair,
        /// Units that survived the first time.
        first: f64,
        /// And the second time.
        second: f64,
    },
    /// `(i, j)` and `(j, i)` disagree: the order depends on the values, or the masks do not swamp the units.
    SignsDisagree {
        /// The probe.
        pair: Pair,
        /// Units that survived.
        measured: f64,
        /// Units that survived with the signs exchanged.
        exchanged: f64,
    },
    /// What survived is no whole number of units from 0 to those present.
    NotACount {
        /// The probe.
        pair: Pair,
        /// Units that survived.
        measured: f64,
    },
    /// The probes contradict each other: no tree gives these counts.
    NotATree {
        /// The pair whose count does not fit.
        first: usize,
        /// Its other leaf.
        second: usize,
        /// Leaves that the probes put under their lowest common node.
        counted: usize,
        /// Leaves that must be there by the other probes.
        expected: usize,
    },
    /// The tree that the probes gave does not predict a further probe.
    NotConfirmed {
        /// The tree, which is not believed.
        tree: Box<Tree>,
        /// The probe.
        pair: Pair,
        /// Leaves present under the lowest common node, as measured.
        counted: usize,
        /// As the tree has it.
        expected: usize,
    },
    /// The tree that the probes gave does not give the bits of the sum under any arithmetic tried.
    NotReplayed {
        /// The tree, which is not believed.
        tree: Box<Tree>,
        /// The draw that the last of the arithmetics failed on, from 0.
        draw: u32,
        /// Bits of the sum there.
        bits: u32,
        /// Bits of the tree under the arithmetic that went furthest.
        expected: u32,
        /// Arithmetics tried.
        tried: usize,
    },
    /// The bits of the sum do not repeat on the same values.
    ReplayChanges {
        /// The tree, which is not believed.
        tree: Box<Tree>,
        /// The draw, from 0.
        draw: u32,
        /// Bits the first time.
        first: u32,
        /// And the second time.
        second: u32,
    },
    /// All draws match, and none would have shown another order: the result is too coarse to vouch for the tree.
    NotTelling {
        /// The tree, which is not believed.
        tree: Box<Tree>,
        /// What was checked.
        established: Box<Established>,
    },
}

impl Refusal {
    /// The tree that the probes agreed on, where one came so far; it is not believed.
    pub fn candidate(&self) -> Option<&Tree> {
        match self {
            Refusal::NotConfirmed { tree, .. }
            | Refusal::NotReplayed { tree, .. }
            | Refusal::ReplayChanges { tree, .. }
            | Refusal::NotTelling { tree, .. } => Some(tree),
            _ => None,
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+M at term {}, -M at term {}, {} terms present", self.plus, self.minus, self.present)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Call(reason) => write!(f, "the sum could not be run: {reason}"),
            Refusal::NoLeaves => f.write_str("there is nothing to add: the sum has no terms"),
            Refusal::NoMask { reach } => write!(
                f,
                "no mask swamps the units in these formats: {reach} terms can be present at once and three are needed; ask with wider \
                 inputs or a narrower accumulator"
            ),
            Refusal::NotRepeated { pair, first, second } => write!(
                f,
                "the sum changes from call to call: {pair}: {first} units survive, then {second}; its order is not fixed (atomics, or \
                 work handed out at run time)"
            ),
            Refusal::SignsDisagree { pair, measured, exchanged } => write!(
                f,
                "{pair}: {measured} units survive, {exchanged} with the signs exchanged; the order depends on the values, or the masks do \
                 not swamp the units"
            ),
            Refusal::NotACount { pair, measured } => write!(
                f,
                "{pair}: {measured} units survive, which is no whole number from 0 to {}; the masks do not cancel or do not swamp the \
                 units, or something else than a sum of the terms is measured",
                pair.present.saturating_sub(2)
            ),
            Refusal::NotATree { first, second, counted, expected } => write!(
                f,
                "no tree gives these counts: {counted} terms meet where terms {first} and {second} do, and the other probes say \
                 {expected}; the order depends on the values (sorting, skipped zeros), or is not one order for all terms"
            ),
            Refusal::NotConfirmed { pair, counted, expected, .. } => write!(
                f,
                "{pair}: {counted} of them meet where those two do, {expected} in the tree that the other probes gave; the order depends on \
                 the values (skipped zeros)"
            ),
            Refusal::NotReplayed { draw, bits, expected, tried, .. } => write!(
                f,
                "the probes agree on a tree, but random values do not: at draw {draw} the sum gives {bits:#x}, the tree {expected:#x} at \
                 best ({tried} arithmetics tried); the order depends on the values (sorting), the sum is compensated or wider than \
                 assumed, or its nodes round in a way that is not known here"
            ),
            Refusal::ReplayChanges { draw, first, second, .. } => write!(
                f,
                "the sum changes from call to call: at draw {draw} the same values give {first:#x}, then {second:#x}; its order is not fixed"
            ),
            Refusal::NotTelling { established, .. } => write!(
                f,
                "all {} draws of random values match the tree, but another order would have given the same bits in each: the result is too \
                 coarse to vouch for it",
                established.draws
            ),
        }
    }
}

impl std::error::Error for Refusal {}
