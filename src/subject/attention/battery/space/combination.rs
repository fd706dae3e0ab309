//! Combinations of knob values, numbered.

use super::cover::OPEN;

/// All combinations of `t` values, numbered.
pub(super) struct Combinations {
    sizes: Vec<usize>,
    /// Knobs of each group of `t`, ascending, and the number of its first combination.
    groups: Vec<(Vec<usize>, usize)>,
    /// The number of the first combination of a group, by its knobs as digits.
    first: Vec<usize>,
    /// How many there are.
    pub count: usize,
}

impl Combinations {
    /// Those of two or three.
    pub fn new(sizes: &[usize], t: usize) -> Combinations {
        let knobs = sizes.len();
        let (mut groups, mut first, mut count) = (Vec::new(), vec![usize::MAX; knobs.pow(t as u32)], 0);
        let mut group: Vec<usize> = (0..t).collect();
        while group.last().is_some_and(|&last| last < knobs) {
            first[group.iter().fold(0, |at, &knob| at * knobs + knob)] = count;
            groups.push((group.clone(), count));
            count += group.iter().map(|&knob| sizes[knob]).product::<usize>();
            // The next group in order.
            let Some(n) = (0..t).rev().find(|&n| group[n] < knobs - (t - n)) else { break };
            group[n] += 1;
            for later in n + 1..t {
                group[later] = group[later - 1] + 1;
            }
        }
        Combinations { sizes: sizes.to_vec(), groups, first, count }
    }

    /// Its knobs and values.
    pub fn of(&self, number: usize) -> Vec<(usize, u16)> {
        let group = self.groups.partition_point(|(_, first)| *first <= number) - 1;
        let (knobs, first) = &self.groups[group];
        let mut left = number - first;
        let mut values: Vec<(usize, u16)> = Vec::with_capacity(knobs.len());
        for &knob in knobs.iter().rev() {
            values.push((knob, (left % self.sizes[knob]) as u16));
            left /= self.sizes[knob];
        }
        values.reverse();
        values
    }

    /// The number of a pair; knobs ascending.
    fn pair(&self, row: &[u16], a: usize, b: usize) -> usize {
        self.first[a * self.sizes.len() + b] + usize::from(row[a]) * self.sizes[b] + usize::from(row[b])
    }

    /// The number of a triple; knobs ascending.
    fn triple(&self, row: &[u16], a: usize, b: usize, c: usize) -> usize {
        let knobs = self.sizes.len();
        let values = (usize::from(row[a]) * self.sizes[b] + usize::from(row[b])) * self.sizes[c] + usize::from(row[c]);
        self.first[(a * knobs + b) * knobs + c] + values
    }

    fn t(&self) -> usize {
        self.groups.first().map_or(0, |(knobs, _)| knobs.len())
    }

    /// Every combination of a row that holds one knob's value, as far as the others have values.
    pub fn with(&self, row: &[u16], knob: usize, mut each: impl FnMut(usize)) {
        let there: Vec<usize> = (0..row.len()).filter(|&other| other != knob && row[other] != OPEN).collect();
        match self.t() {
            2 => there.iter().for_each(|&other| each(self.pair(row, knob.min(other), knob.max(other)))),
            3 => {
                for (n, &b) in there.iter().enumerate() {
                    for &c in &there[n + 1..] {
                        each(match (knob < b, knob < c) {
                            (true, _) => self.triple(row, knob, b, c),
                            (false, true) => self.triple(row, b, knob, c),
                            (false, false) => self.triple(row, b, c, knob),
                        });
                    }
                }
            }
            _ => {}
        }
    }

    /// Every combination of a row, as far as it has values.
    pub fn all(&self, row: &[u16], mut each: impl FnMut(usize)) {
        for (knobs, _) in &self.groups {
            match knobs[..] {
                [a, b] if row[a] != OPEN && row[b] != OPEN => each(self.pair(row, a, b)),
                [a, b, c] if row[a] != OPEN && row[b] != OPEN && row[c] != OPEN => each(self.triple(row, a, b, c)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_numbered_through() {
        for t in [2, 3] {
            let combinations = Combinations::new(&[2, 3, 1, 4], t);
            let products = if t == 2 { 6 + 2 + 8 + 3 + 12 + 4 } else { 6 + 24 + 8 + 12 };
            assert_eq!(combinations.count, products);
            for number in 0..combinations.count {
                let mut row = [OPEN; 4];
                combinations.of(number).iter().for_each(|&(knob, value)| row[knob] = value);
                let mut numbers = Vec::new();
                combinations.all(&row, |it| numbers.push(it));
                assert_eq!(numbers, [number]);
                // By way of any of its knobs, too.
                for (knob, _) in combinations.of(number) {
                    combinations.with(&row, knob, |it| assert_eq!(it, number));
                }
            }
        }
    }
}
