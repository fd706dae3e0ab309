//! Ways that a run took, as a set of numbers, and how many cases took each. What the numbers stand for is the subject's to say.

/// Numbers that a set can hold.
pub const WAYS: usize = 32;

/// Ways that one case's run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach(u32);

impl Reach {
    /// Adds a way.
    ///
    /// # Panics
    /// From number [`WAYS`] on.
    pub fn insert(&mut self, way: usize) {
        assert!(way < WAYS, "way {way} of {WAYS}");
        self.0 |= 1 << way;
    }

    /// Whether a way was taken.
    pub fn has(self, way: usize) -> bool {
        way < WAYS && self.0 >> way & 1 == 1
    }

    /// The set as a number: bit `n` for way `n`.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The set that [`Reach::bits`] stands for.
    pub fn of_bits(bits: u32) -> Reach {
        Reach(bits)
    }

    /// Adds all ways of another set.
    pub fn add(&mut self, other: Reach) {
        self.0 |= other.0;
    }
}

/// Cases that took each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReachCounts([u64; WAYS]);

impl ReachCounts {
    /// Counts one case.
    pub fn add(&mut self, reach: Reach) {
        for (way, count) in self.0.iter_mut().enumerate() {
            *count += u64::from(reach.has(way));
        }
    }

    /// Adds what other cases took.
    pub fn join(&mut self, other: &ReachCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Cases that took a way.
    pub fn of(&self, way: usize) -> u64 {
        self.0.get(way).copied().unwrap_or(0)
    }

    /// Sets the count of a way, as a checkpoint holds it.
    ///
    /// # Panics
    /// From number [`WAYS`] on.
    pub fn set(&mut self, way: usize, cases: u64) {
        self.0[way] = cases;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_counts_follow() {
        let (mut one, mut two) = (Reach::default(), Reach::default());
        one.insert(0);
        one.insert(WAYS - 1);
        two.insert(3);
        assert_eq!(Reach::of_bits(one.bits()), one);
        assert!(one.has(0) && one.has(WAYS - 1) && !one.has(3) && !one.has(WAYS));
        let mut counts = ReachCounts::default();
        counts.add(one);
        one.add(two);
        counts.add(one);
        assert_eq!([0, 3, WAYS - 1, 1, WAYS].map(|way| counts.of(way)), [2, 1, 2, 0, 0]);
    }
}
