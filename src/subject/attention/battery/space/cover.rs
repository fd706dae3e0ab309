//! Covering arrays under constraints: few rows in which every allowed combination of `t` values occurs.
//!
//! One row after the other: it begins with the first combination that no row has yet, and every other knob takes the value that covers
//! most of what is left among those with which the row can still be completed. Whether it can is searched depth first, so that a search
//! without a row is a proof that no row has the combination. (AETG: Cohen, Dalal, Fredman, Patton 1997.)

use super::combination::Combinations;
use crate::source::mix;

/// No value yet.
pub(super) const OPEN: u16 = u16::MAX;

/// What values of a few knobs may not stand together.
pub(super) struct Rule {
    knobs: Vec<usize>,
    strides: Vec<usize>,
    /// The digit of a knob without a value.
    open: Vec<usize>,
    /// By values of the knobs and one more for none: forbidden whatever the open ones become.
    forbidden: Vec<bool>,
    /// Why.
    pub reason: String,
}

impl Rule {
    /// Forbids the combinations of values of `knobs` that `forbids` says.
    pub fn new(sizes: &[usize], knobs: &[usize], reason: String, forbids: impl Fn(&[usize]) -> bool) -> Rule {
        let open: Vec<usize> = knobs.iter().map(|&knob| sizes[knob]).collect();
        let mut strides = vec![1; knobs.len()];
        for n in (1..knobs.len()).rev() {
            strides[n - 1] = strides[n] * (open[n] + 1);
        }
        let total: usize = open.iter().map(|size| size + 1).product();
        let digits = |at: usize| -> Vec<usize> { (0..open.len()).map(|n| at / strides[n] % (open[n] + 1)).collect() };
        let mut forbidden: Vec<bool> = (0..total)
            .map(|at| {
                let values = digits(at);
                values.iter().zip(&open).all(|(value, open)| value < open) && forbids(&values)
            })
            .collect();
        // Knob by knob: open is forbidden where every value is.
        for n in 0..open.len() {
            for at in 0..total {
                if at / strides[n] % (open[n] + 1) == open[n] {
                    forbidden[at] = (1..=open[n]).all(|back| forbidden[at - back * strides[n]]);
                }
            }
        }
        Rule { knobs: knobs.to_vec(), strides, open, forbidden, reason }
    }

    /// Whether a row, some of it open, cannot be completed under this rule alone.
    fn forbids(&self, row: &[u16]) -> bool {
        let digit = |n: usize| match row[self.knobs[n]] {
            OPEN => self.open[n],
            value => usize::from(value),
        };
        self.forbidden[(0..self.knobs.len()).map(|n| self.strides[n] * digit(n)).sum::<usize>()]
    }
}

/// Knobs by their number of values, and what may not stand together.
pub(super) struct Constraints {
    pub sizes: Vec<usize>,
    rules: Vec<Rule>,
    /// The rules that name a knob.
    of_knob: Vec<Vec<usize>>,
    /// The knobs that share a rule with a knob.
    near: Vec<Vec<usize>>,
    /// The knobs that share a rule with any other, the most tied first.
    tied: Vec<usize>,
}

impl Constraints {
    pub fn new(sizes: Vec<usize>, rules: Vec<Rule>) -> Constraints {
        // A rule that forbids nothing only costs time.
        let rules: Vec<Rule> = rules.into_iter().filter(|rule| rule.forbidden.contains(&true)).collect();
        let of_knob: Vec<Vec<usize>> =
            (0..sizes.len()).map(|knob| (0..rules.len()).filter(|&n| rules[n].knobs.contains(&knob)).collect()).collect();
        let near: Vec<Vec<usize>> = of_knob
            .iter()
            .enumerate()
            .map(|(knob, of)| {
                let mut near: Vec<usize> = of.iter().flat_map(|&n| rules[n].knobs.iter().copied()).collect();
                near.sort_unstable();
                near.dedup();
                near.retain(|&it| it != knob);
                near
            })
            .collect();
        let mut tied: Vec<usize> = (0..sizes.len()).filter(|&knob| !near[knob].is_empty()).collect();
        tied.sort_by_key(|&knob| usize::MAX - near[knob].len());
        Constraints { sizes, rules, of_knob, near, tied }
    }

    /// The first rule that a row with open knobs breaks.
    pub fn broken(&self, row: &[u16]) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.forbids(row))
    }

    fn allows(&self, row: &[u16], knob: usize) -> bool {
        self.of_knob[knob].iter().all(|&n| !self.rules[n].forbids(row))
    }

    /// Whether every open neighbour of a knob still has a value.
    fn looks_ahead(&self, row: &mut [u16], knob: usize) -> bool {
        self.near[knob].iter().all(|&other| {
            row[other] != OPEN
                || (0..self.sizes[other]).any(|value| {
                    row[other] = value as u16;
                    let allowed = self.allows(row, other);
                    row[other] = OPEN;
                    allowed
                })
        })
    }

    /// Whether some row has what is given: a depth-first search over the knobs that rules tie together. Where it ends without a row,
    /// none has it.
    fn possible(&self, given: &[u16]) -> bool {
        let mut row = given.to_vec();
        self.broken(&row).is_none() && self.search(&mut row, &self.tied)
    }

    fn search(&self, row: &mut [u16], order: &[usize]) -> bool {
        let Some((&knob, rest)) = order.split_first() else { return true };
        if row[knob] != OPEN {
            return self.looks_ahead(row, knob) && self.search(row, rest);
        }
        for value in 0..self.sizes[knob] as u16 {
            row[knob] = value;
            if self.allows(row, knob) && self.looks_ahead(row, knob) && self.search(row, rest) {
                return true;
            }
        }
        row[knob] = OPEN;
        false
    }

    /// Fills what is open in `order`, each knob with the first value that `prefer` names and that some row has. The row must be
    /// [possible](Self::possible).
    fn fill(&self, row: &mut [u16], order: &[usize], mut prefer: impl FnMut(&[u16], usize) -> Vec<u16>) {
        for &knob in order.iter() {
            if row[knob] != OPEN {
                continue;
            }
            for value in prefer(row, knob) {
                row[knob] = value;
                if self.allows(row, knob) && (self.near[knob].is_empty() || self.possible(row)) {
                    break;
                }
            }
        }
    }
}

/// A covering array: rows in which every combination occurs that any row can have.
pub(super) struct Array {
    pub rows: Vec<Vec<u16>>,
    pub combinations: Combinations,
    /// Whether a row has it, by number. Those that none has are impossible.
    pub valid: Vec<bool>,
}

/// Makes one for `t` of 2 or 3; the same on every run.
pub(super) fn cover(constraints: &Constraints, t: usize) -> Array {
    let sizes = &constraints.sizes;
    let combinations = Combinations::new(sizes, t);
    let row_of = |number: usize| {
        let mut row = vec![OPEN; sizes.len()];
        combinations.of(number).iter().for_each(|&(knob, value)| row[knob] = value);
        row
    };
    // What a rule forbids can be no gain.
    let mut wanted: Vec<bool> = (0..combinations.count).map(|number| constraints.broken(&row_of(number)).is_none()).collect();
    let mut valid = vec![false; combinations.count];
    let mut rows: Vec<Vec<u16>> = Vec::new();
    for number in 0..combinations.count {
        if !wanted[number] {
            continue;
        }
        let mut row = row_of(number);
        if !constraints.possible(&row) {
            wanted[number] = false;
            continue;
        }
        let turn = rows.len() as u64;
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&knob| mix(turn, knob as u64));
        let mut scratch = row.clone();
        constraints.fill(&mut row, &order, |row, knob| {
            scratch.copy_from_slice(row);
            let mut ranked: Vec<(u32, u64, u16)> = (0..sizes[knob] as u16)
                .map(|value| {
                    scratch[knob] = value;
                    let mut gain = 0;
                    combinations.with(&scratch, knob, |it| gain += u32::from(wanted[it]));
                    (u32::MAX - gain, mix(mix(turn, knob as u64), u64::from(value)), value)
                })
                .collect();
            ranked.sort_unstable();
            ranked.into_iter().map(|(.., value)| value).collect()
        });
        combinations.all(&row, |it| (wanted[it], valid[it]) = (false, true));
        rows.push(row);
    }
    Array { rows, combinations, valid }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row that breaks no rule, by looking at all.
    fn every_row(sizes: &[usize], forbids: &[(Vec<usize>, Vec<bool>)]) -> Vec<Vec<u16>> {
        let total: usize = sizes.iter().product();
        let rows = (0..total).map(|mut left| {
            let digit = |&size: &usize| {
                let value = left % size;
                left /= size;
                value as u16
            };
            sizes.iter().map(digit).collect::<Vec<u16>>()
        });
        let allowed =
            |row: &Vec<u16>| forbids.iter().all(|(knobs, table)| !table[place(sizes, knobs, |n| usize::from(row[knobs[n]]))]);
        rows.filter(allowed).collect()
    }

    fn place(sizes: &[usize], knobs: &[usize], value: impl Fn(usize) -> usize) -> usize {
        (0..knobs.len()).fold(0, |at, n| at * sizes[knobs[n]] + value(n))
    }

    /// Random rules over few knobs: what is covered is what some row has, and each row is one of those that break no rule.
    #[test]
    fn what_is_not_covered_is_impossible() {
        let mut excluded = 0;
        for seed in 0..40u64 {
            let sizes: Vec<usize> = (0..6).map(|n| 2 + (mix(seed, n) % 3) as usize).collect();
            let rules = 1 + mix(seed, 99) % 6;
            let tables: Vec<(Vec<usize>, Vec<bool>)> = (0..rules)
                .map(|rule| {
                    let key = mix(mix(seed, 7), rule);
                    let mut knobs: Vec<usize> = (0..6).filter(|&n| mix(key, n as u64).is_multiple_of(2)).take(4).collect();
                    knobs.extend(knobs.is_empty().then_some(5));
                    let size: usize = knobs.iter().map(|&knob| sizes[knob]).product();
                    // Never all of them.
                    let table = (0..size).map(|at| at > 0 && mix(key, 100 + at as u64).is_multiple_of(3)).collect();
                    (knobs, table)
                })
                .collect();
            let rows = every_row(&sizes, &tables);
            let made = tables
                .iter()
                .map(|(knobs, table)| Rule::new(&sizes, knobs, "by chance".into(), |it| table[place(&sizes, knobs, |n| it[n])]));
            let constraints = Constraints::new(sizes.clone(), made.collect());
            for t in [2, 3] {
                let array = cover(&constraints, t);
                let mut valid = vec![false; array.combinations.count];
                rows.iter().for_each(|row| array.combinations.all(row, |it| valid[it] = true));
                assert_eq!(array.valid, valid, "seed {seed}, {t} at a time");
                assert!(array.rows.iter().all(|row| rows.contains(row)));
                excluded += valid.iter().filter(|it| !**it).count();
            }
        }
        assert!(excluded > 500, "{excluded}");
    }
}
