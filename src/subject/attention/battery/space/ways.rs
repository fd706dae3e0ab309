//! How much of a space some cases covered.

use super::cover::OPEN;
use super::{Row, Space};
use std::collections::BTreeMap;

/// Combinations of knob values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ways {
    /// Names of the knobs and of their values.
    pub knobs: Vec<(String, Vec<String>)>,
    /// Combinations in all.
    pub all: u64,
    /// Combinations that no case can have, or the kernels cannot do, by reason.
    pub excluded: BTreeMap<String, u64>,
    /// Combinations left: those that are to be covered.
    pub valid: u64,
    /// Valid combinations that one of the rows has.
    pub covered: u64,
    /// Up to 20 that are valid and not covered, in words.
    pub missing: Vec<String>,
}

/// How many missing combinations are named.
const MISSING: usize = 20;

/// The reason of a combination that no single rule forbids.
const TOGETHER: &str = "several of the other reasons together";

impl Space {
    /// Counts the combinations of `t` values that rows have; `t` is 2 or 3. Rows are those of the cases that ran, as
    /// [read](Space::read).
    ///
    /// # Panics
    /// With another `t`.
    pub fn ways<'r>(&self, t: usize, rows: impl IntoIterator<Item = &'r Row>) -> Ways {
        let array = self.array(t);
        let mut covered = vec![false; array.combinations.count];
        for row in rows {
            array.combinations.all(&row.0, |it| covered[it] = true);
        }
        let mut ways = Ways {
            knobs: self.knobs.clone(),
            all: array.combinations.count as u64,
            excluded: BTreeMap::new(),
            valid: 0,
            covered: 0,
            missing: Vec::new(),
        };
        for (number, (&valid, covered)) in array.valid.iter().zip(covered).enumerate() {
            if !valid {
                *ways.excluded.entry(self.excluded(number, t).to_owned()).or_default() += 1;
                continue;
            }
            ways.valid += 1;
            ways.covered += u64::from(covered);
            if !covered && ways.missing.len() < MISSING {
                ways.missing.push(self.words(&array.combinations.of(number)));
            }
        }
        ways
    }

    /// Combinations of `t` values that are excluded, each with its reason; knobs and values by number.
    ///
    /// # Panics
    /// With `t` neither 2 nor 3.
    pub fn impossible(&self, t: usize) -> Vec<(Vec<(usize, usize)>, &str)> {
        let array = self.array(t);
        let plain =
            |number: usize| array.combinations.of(number).into_iter().map(|(knob, value)| (knob, usize::from(value))).collect();
        let none = (0..array.combinations.count).filter(|&number| !array.valid[number]);
        none.map(|number| (plain(number), self.excluded(number, t))).collect()
    }

    fn excluded(&self, number: usize, t: usize) -> &str {
        let mut row = vec![OPEN; self.knobs.len()];
        self.array(t).combinations.of(number).iter().for_each(|&(knob, value)| row[knob] = value);
        self.constraints.broken(&row).map_or(TOGETHER, |rule| &rule.reason)
    }

    /// `length g-1, steps chunks`.
    fn words(&self, combination: &[(usize, u16)]) -> String {
        let word = |&(knob, value): &(usize, u16)| {
            let (name, values) = &self.knobs[knob];
            format!("{name} {}", values[usize::from(value)])
        };
        combination.iter().map(word).collect::<Vec<_>>().join(", ")
    }
}
