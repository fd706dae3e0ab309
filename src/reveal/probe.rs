//! Probes: run with both signs, twice each, and taken only as whole counts.

use super::{Pair, Refusal, Summation};

/// The sum under question, and what it has been asked.
pub(super) struct Prober<'s> {
    pub(super) sum: &'s mut dyn Summation,
    pub(super) leaves: usize,
    /// Most leaves that may be present at once.
    pub(super) reach: usize,
    pub(super) probes: u64,
    pub(super) runs: u64,
}

impl<'s> Prober<'s> {
    pub(super) fn new(sum: &'s mut dyn Summation) -> Result<Self, Refusal> {
        let leaves = sum.leaves();
        let reach = sum.mask().reach;
        match leaves {
            0 => Err(Refusal::NoLeaves),
            // The masks of two terms need swamp nothing, and one term is not asked.
            3.. if reach < 3 => Err(Refusal::NoMask { reach }),
            _ => Ok(Prober { sum, leaves, reach, probes: 0, runs: 0 }),
        }
    }

    /// How many leaves stand under the lowest common node of two.
    pub(super) fn under(&mut self, i: usize, j: usize) -> Result<usize, Refusal> {
        if self.leaves <= self.reach.max(2) {
            return self.ask(i, j, None);
        }
        let all: Vec<usize> = (0..self.leaves).collect();
        self.among(i, j, &all)
    }

    /// How many of a set stand under the lowest common node of two, these two included, all others being 0.
    ///
    /// Beyond the reach of the masks the set is asked about in parts: each part says how many of its own stand there.
    pub(super) fn among(&mut self, i: usize, j: usize, set: &[usize]) -> Result<usize, Refusal> {
        let others: Vec<usize> = set.iter().copied().filter(|&leaf| leaf != i && leaf != j).collect();
        if others.is_empty() {
            return Ok(2);
        }
        let mut count = 2;
        for part in others.chunks(self.reach - 2) {
            let mut present = vec![false; self.leaves];
            for &leaf in part.iter().chain([&i, &j]) {
                present[leaf] = true;
            }
            count += self.ask(i, j, Some(&present))? - 2;
        }
        Ok(count)
    }

    /// One probe: how many of the leaves present stand under the lowest common node of two.
    pub(super) fn ask(&mut self, i: usize, j: usize, present: Option<&[bool]>) -> Result<usize, Refusal> {
        let count = present.map_or(self.leaves, |present| present.iter().filter(|&&here| here).count());
        let pair = Pair { plus: i, minus: j, present: count };
        self.probes += 1;
        let measured = self.twice(pair, present)?;
        let exchanged = self.twice(Pair { plus: j, minus: i, ..pair }, present)?;
        if measured != exchanged && !(measured.is_nan() && exchanged.is_nan()) {
            return Err(Refusal::SignsDisagree { pair, measured, exchanged });
        }
        if measured.fract() != 0.0 || !(0.0..=(count - 2) as f64).contains(&measured) {
            return Err(Refusal::NotACount { pair, measured });
        }
        Ok(count - measured as usize)
    }

    fn twice(&mut self, pair: Pair, present: Option<&[bool]>) -> Result<f64, Refusal> {
        let first = self.sum.probe(pair.plus, pair.minus, present)?;
        let second = self.sum.probe(pair.plus, pair.minus, present)?;
        self.runs += 2;
        if first.to_bits() != second.to_bits() {
            return Err(Refusal::NotRepeated { pair, first, second });
        }
        Ok(first)
    }
}
