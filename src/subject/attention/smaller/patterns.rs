//! All values at once, or two of them, towards a simple pattern: where no value alone gets simpler.
//!
//! Families of patterns are tried whole, the simplest first, and only as many as a small case has few of.

use super::size::{significance, weight};
use super::values::dtype_of;
use crate::number::Dtype;
use crate::subject::Candidate;
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{Data, Literal};

/// Patterns of a family, at most: all with so many ones are tried, or none of them.
const FAMILY: usize = 1100;

/// Values that are not zero, at most, for two of them to be moved together.
const PAIRED: usize = 3;

/// Significant bits that two values have in all, at most, where they are moved together.
const PAIRED_BITS: u32 = 9;

/// Values for literal sinks to be tried with: any that leaves a sum that must be rounded will do.
const SINKS: [f32; 6] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0];

/// Literal values, at most, for other sinks to be tried.
const BESIDE_SINKS: usize = 6;

/// Positions of the families that change all values: before those of two.
const WHOLE: usize = 3;

/// One for each family of whole patterns, one for each pair of values.
pub(super) fn pattern_positions(trial: &Trial) -> usize {
    let Data::Literal(_) = &trial.case.data else { return 0 };
    WHOLE + pairs(&Values::of(trial)).len()
}

pub(super) fn patterns(trial: &Trial, position: usize) -> Vec<Candidate<Trial>> {
    let Data::Literal(_) = &trial.case.data else { return Vec::new() };
    let values = Values::of(trial);
    match position {
        0 => values.candidates(trial, ones(&values)),
        1 => values.candidates(trial, uniform(&values)),
        2 => beside_sinks(trial, &values),
        _ => match pairs(&values).get(position - WHOLE) {
            Some(&pair) => values.candidates(trial, paired(&values, pair)),
            None => Vec::new(),
        },
    }
}

/// The literal values of a case in one list: q, then k, then v.
struct Values {
    bits: Vec<u32>,
    /// Where k and v begin.
    starts: [usize; 2],
    /// Storage of q, and of k and v.
    dtypes: [Dtype; 2],
    /// What a pattern must weigh less than.
    significance: u64,
}

impl Values {
    fn of(trial: &Trial) -> Values {
        let problem = &trial.case.problem;
        let (bits, starts) = match &trial.case.data {
            Data::Literal(Literal { q, k, v }) => ([&q[..], k, v].concat(), [q.len(), q.len() + k.len()]),
            Data::Drawn { .. } | Data::Captured { .. } => (Vec::new(), [0, 0]),
        };
        Values { bits, starts, dtypes: [dtype_of(problem, 0), dtype_of(problem, 1)], significance: significance(&trial.case) }
    }

    fn dtype(&self, n: usize) -> Dtype {
        self.dtypes[usize::from(n >= self.starts[0])]
    }

    /// 0, 1 or 2: q, k or v.
    fn tensor(&self, n: usize) -> usize {
        self.starts.iter().filter(|&&start| n >= start).count()
    }

    fn one(&self, n: usize) -> u32 {
        self.dtype(n).round_f64(1.0)
    }

    fn weight(&self, pattern: &[u32]) -> u64 {
        pattern.iter().enumerate().map(|(n, &bits)| weight(self.dtype(n), bits)).sum()
    }

    fn literal(&self, pattern: &[u32]) -> Data {
        let [k, v] = self.starts;
        Data::Literal(Literal { q: pattern[..k].to_vec(), k: pattern[k..v].to_vec(), v: pattern[v..].to_vec() })
    }

    /// The patterns that weigh less than what is there, the lightest first.
    fn lighter(&self, patterns: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        let mut weighed: Vec<(u64, Vec<u32>)> = patterns.into_iter().map(|it| (self.weight(&it), it)).collect();
        weighed.retain(|(weight, _)| *weight < self.significance);
        weighed.sort_unstable();
        weighed.dedup();
        weighed.into_iter().map(|(_, pattern)| pattern).collect()
    }

    fn candidates(&self, trial: &Trial, patterns: Vec<Vec<u32>>) -> Vec<Candidate<Trial>> {
        let with = |pattern: Vec<u32>| {
            let mut trial = trial.clone();
            trial.case.data = self.literal(&pattern);
            Candidate { trial, redraw: false }
        };
        self.lighter(patterns).into_iter().map(with).collect()
    }
}

/// Every pattern of zeros and ones, the fewest ones first, as long as there are few.
fn ones(values: &Values) -> Vec<Vec<u32>> {
    let count = values.bits.len();
    let mut patterns = Vec::new();
    for ones in 0..=count {
        let places = places(count, ones, FAMILY - patterns.len());
        if places.is_empty() {
            break;
        }
        patterns.extend(places.into_iter().map(|places| {
            let mut pattern = vec![0; count];
            places.into_iter().for_each(|n| pattern[n] = values.one(n));
            pattern
        }));
    }
    patterns
}

/// All ways to take so many of `0..count`, in order; none where there are more than `most`.
fn places(count: usize, taken: usize, most: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for left in (0..taken).rev() {
        let longer = |places: &Vec<usize>| {
            let from = places.last().map_or(0, |last| last + 1);
            let places = places.clone();
            (from..count.saturating_sub(left)).map(move |n| [&places[..], &[n]].concat())
        };
        all = all.iter().flat_map(longer).take(most + 1).collect();
        if all.len() > most {
            return Vec::new();
        }
    }
    all
}

/// Each tensor all zeros or all ones, but for one value, or for two that are alike: powers of two that a sum with 1 loses, or rounds.
fn uniform(values: &Values) -> Vec<Vec<u32>> {
    let count = values.bits.len();
    let background = |ones: usize| -> Vec<u32> {
        (0..count).map(|n| if ones >> values.tensor(n) & 1 == 1 { values.one(n) } else { 0 }).collect()
    };
    let backgrounds: Vec<Vec<u32>> = (0..8).map(background).collect();
    let mut patterns = Vec::new();
    for changed in 1..=2 {
        let places = places(count, changed, FAMILY);
        if patterns.len() + places.len() * POWERS * backgrounds.len() > 2 * FAMILY {
            break;
        }
        for places in places {
            for power in powers(values.dtype(places[0])) {
                // Two are alike as numbers, in whatever format.
                let bits: Vec<u32> = places.iter().map(|&n| values.dtype(n).round_f64(power)).collect();
                if places.iter().zip(&bits).any(|(&n, &bits)| values.dtype(n).to_f64(bits) != power) {
                    continue;
                }
                for background in &backgrounds {
                    let mut pattern = background.clone();
                    places.iter().zip(&bits).for_each(|(&n, &bits)| pattern[n] = bits);
                    patterns.push(pattern);
                }
            }
        }
    }
    patterns
}

/// How many [`powers`] there are.
const POWERS: usize = 5;

/// 2^24 is lost in an f32 sum with 1, 2^12 has it as its square; one bit below the precision of the format is where a store rounds.
fn powers(dtype: Dtype) -> [f64; POWERS] {
    let (square, lost) = (f64::from(1 << 12), f64::from(1 << 24));
    [(-f64::from(dtype.precision())).exp2(), square, -square, lost, -lost]
}

/// Zeros and ones again, with other sinks.
fn beside_sinks(trial: &Trial, values: &Values) -> Vec<Candidate<Trial>> {
    let Some(sinks) = trial.case.problem.sinks.as_ref().filter(|_| values.bits.len() <= BESIDE_SINKS) else { return Vec::new() };
    let patterns = values.candidates(trial, ones(values)).into_iter();
    patterns
        .flat_map(|candidate| {
            SINKS.map(|sink| {
                let mut candidate = candidate.clone();
                candidate.trial.case.problem.sinks = Some(vec![sink; sinks.len()]);
                candidate
            })
        })
        .collect()
}

/// The pairs of values that are not zero, where they are few.
fn pairs(values: &Values) -> Vec<[usize; 2]> {
    let set: Vec<usize> = (0..values.bits.len()).filter(|&n| values.bits[n] != 0).take(PAIRED + 1).collect();
    if set.len() > PAIRED || set.iter().any(|&n| !values.dtype(n).class(values.bits[n]).is_finite()) {
        return Vec::new();
    }
    places(set.len(), 2, FAMILY).into_iter().map(|pair| [set[pair[0]], set[pair[1]]]).collect()
}

/// Two values with other significands of few bits: between 1 and 2, and with the signs and exponents that they have.
fn paired(values: &Values, pair: [usize; 2]) -> Vec<Vec<u32>> {
    let mut patterns = Vec::new();
    for bits in 2..=PAIRED_BITS {
        for first in 1..bits {
            for x in fractions(values.dtype(pair[0]), first) {
                for y in fractions(values.dtype(pair[1]), bits - first) {
                    let with = |of: &dyn Fn(usize) -> u32| {
                        let mut pattern = values.bits.clone();
                        (pattern[pair[0]], pattern[pair[1]]) = (of(pair[0]) | x, of(pair[1]) | y);
                        pattern
                    };
                    patterns.push(with(&|n| values.one(n)));
                    patterns.push(with(&|n| {
                        let dtype = values.dtype(n);
                        values.bits[n] & !((1 << (dtype.precision() - 1)) - 1)
                    }));
                }
            }
        }
    }
    patterns
}

/// The fractions of significands of so many bits: the leading one, which is not stored, and the last one count.
fn fractions(dtype: Dtype, bits: u32) -> Vec<u32> {
    let stored = dtype.precision() - 1;
    match bits {
        1 => vec![0],
        bits if bits > stored + 1 => Vec::new(),
        bits => (0..1u32 << (bits - 2)).map(|it| (2 * it + 1) << (stored + 1 - bits)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::Case;
    use crate::subject::attention::smaller::tests::{compared, literal_of, plain, shaped, with_values};
    use crate::subject::attention::smaller::{self, size};

    /// What a position makes of a case, as numbers: q, k and v in one list.
    fn at(case: &Case, position: usize) -> Vec<Vec<f64>> {
        let trial = compared(case.clone());
        let candidates = patterns(&trial, position);
        let significances: Vec<u64> = candidates.iter().map(|it| significance(&it.trial.case)).collect();
        assert!(significances.is_sorted() && significances.iter().all(|&it| it < significance(case)), "the lightest first");
        let problem = &case.problem;
        let numbers = |it: &Candidate<Trial>| {
            assert!(!it.redraw && it.trial.checks == trial.checks);
            let Literal { q, k, v } = literal_of(&it.trial.case);
            let of = |bits: &[u32], dtype: Dtype| bits.iter().map(|&it| dtype.to_f64(it)).collect::<Vec<_>>();
            [of(q, problem.dtype), of(k, problem.kv_dtype()), of(v, problem.kv_dtype())].concat()
        };
        candidates.iter().map(numbers).collect()
    }

    fn wide(case: Case) -> Case {
        let mut case = case;
        (case.problem.dtype, case.problem.out_dtype) = (Dtype::F32, Dtype::F32);
        case
    }

    #[test]
    fn zeros_and_ones() {
        let heavy = with_values(wide(plain()), [&[1.1], &[1.1], &[1.1]]);
        let all = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]];
        assert_eq!(at(&heavy, 0), all.map(|it| it.map(f64::from).to_vec()));
        // Two ones: as heavy as they are, and what is heavier, is no step.
        let two = with_values(plain(), [&[1.0], &[1.0], &[0.0]]);
        assert_eq!(at(&two, 0), all[..4].iter().map(|it| it.map(f64::from).to_vec()).collect::<Vec<_>>());
        assert!(at(&with_values(plain(), [&[0.0], &[0.0], &[0.0]]), 0).is_empty());
        assert!((0..WHOLE).all(at_drawn) && pattern_positions(&compared(plain())) == 0);
    }

    fn at_drawn(position: usize) -> bool {
        patterns(&compared(plain()), position).is_empty()
    }

    /// All patterns with so many ones, or none: 11 values have 1024 of up to five ones, 39 have 781 of up to two.
    #[test]
    fn families_end_before_they_are_many() {
        let keys = |kv: u32| {
            let case = shaped(&[(1, kv)], [1, 1], [1, 1]);
            let (q, k, v) = ([1.0 + 1.0 / 128.0], vec![1.0 + 1.0 / 128.0; kv as usize], vec![0.0; kv as usize]);
            with_values(case, [&q, &k, &v])
        };
        assert_eq!(at(&keys(5), 0).len(), 1024);
        assert_eq!(at(&keys(19), 0).len(), 1 + 39 + 741);
        assert_eq!(places(4, 2, 6), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!((places(4, 2, 5).len(), places(3, 0, 1), places(2, 3, 9).len()), (0, vec![vec![]], 0));
    }

    /// Ones, zeros, and one or two powers of two.
    #[test]
    fn tensors_of_one_value_but_for_one_place() {
        let case = with_values(wide(shaped(&[(1, 2)], [1, 1], [1, 1])), [&[1.1], &[1.1, 1.1], &[1.1, 1.1]]);
        let all = at(&case, 1);
        let (lost, square, half) = (f64::from(1 << 24), 4096.0, (-24f64).exp2());
        for wanted in [
            [0.0, 0.0, 0.0, 0.0, lost],
            [1.0, 1.0, -lost, 1.0, 1.0],
            [1.0, 1.0, 1.0, 1.0, half],
            [square, square, 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, -square, -square],
            [1.0, square, 1.0, square, 1.0],
        ] {
            assert!(all.contains(&wanted.to_vec()), "{wanted:?}");
        }
        // Five powers at each of five places and of ten pairs. Of eight backgrounds four are alike where no value of a tensor is left: at
        // the place of q, with another one or without, and at both of k or v.
        assert_eq!(all.len(), 5 * (4 * 8 + 4 + 4 * 8 + 4 * 4 + 2 * 4));
        // f16 holds no 2^24.
        let mut half = case.clone();
        (half.problem.dtype, half.problem.out_dtype) = (Dtype::F16, Dtype::F16);
        let half = with_values(half.clone(), [&[1.1], &[1.1, 1.1], &[1.1, 1.1]]);
        let held: Vec<f64> = at(&half, 1).concat();
        assert!(held.contains(&4096.0) && held.contains(&(-11f64).exp2()) && held.iter().all(|it| it.abs() <= 4096.0));
        // Where there are many values, one place alone, or none.
        let keys =
            |kv: u32| with_values(shaped(&[(1, kv)], [1, 1], [1, 1]), [&[1.1], &vec![1.1; kv as usize], &vec![1.1; kv as usize]]);
        let powers_of = |numbers: &Vec<f64>| numbers.iter().filter(|it| ![0.0, 1.0].contains(*it)).count();
        assert!(at(&keys(20), 1).iter().all(|it| powers_of(it) == 1) && !at(&keys(20), 1).is_empty());
        assert!(at(&keys(40), 1).is_empty());
    }

    #[test]
    fn other_sinks_beside_zeros_and_ones() {
        let mut case = with_values(shaped(&[(1, 1)], [1, 2], [1, 1]), [&[1.0, 1.0], &[0.0], &[0.0]]);
        assert!(at(&case, 2).is_empty(), "no sinks");
        case.problem.sinks = Some(vec![4.0, 5.0]);
        let offered: Vec<(Vec<f32>, u64)> = patterns(&compared(case.clone()), 2)
            .into_iter()
            .map(|it| (it.trial.case.problem.sinks.clone().expect("sinks"), significance(&it.trial.case) / 1024))
            .collect();
        let wanted: Vec<(Vec<f32>, u64)> =
            [0, 1, 1, 1, 1].iter().flat_map(|&ones| SINKS.map(|sink| (vec![sink; 2], ones))).collect();
        assert_eq!(offered, wanted);
        let mut many = with_values(shaped(&[(1, 3)], [1, 1], [1, 1]), [&[1.1], &[1.0; 3], &[1.0; 3]]);
        many.problem.sinks = Some(vec![4.0]);
        assert!(at(&many, 2).is_empty());
    }

    #[test]
    fn two_values_move_together() {
        let case = with_values(plain(), [&[-0.3125], &[-1.8203125], &[0.0]]);
        assert_eq!(pattern_positions(&compared(case.clone())), WHOLE + 1);
        let moved = at(&case, WHOLE);
        assert!(moved.iter().all(|it| it[2] == 0.0));
        for wanted in [[1.0, 1.0, 0.0], [1.5, 1.796875, 0.0], [-0.25, -1.0, 0.0], [-0.375, -1.796875, 0.0], [1.0, 1.9921875, 0.0]]
        {
            assert!(moved.contains(&wanted.to_vec()), "{wanted:?}");
        }
        // 1 + 2 + 5 + 12 + 28 + 64 + 144 + 320 pairs of up to nine bits, twice: all lighter than eleven.
        assert_eq!(moved.len(), 2 * 576);
        // A pair at each position, as long as they are three values.
        let three = with_values(plain(), [&[1.0], &[3.0], &[1.5]]);
        assert_eq!(pattern_positions(&compared(three.clone())), WHOLE + 3);
        assert!(at(&three, WHOLE).iter().all(|it| it[2] == 1.5) && at(&three, WHOLE + 2).iter().all(|it| it[0] == 1.0));
        assert!(at(&three, WHOLE + 1).iter().all(|it| it[1] == 3.0) && at(&three, WHOLE + 3).is_empty());
        let four = with_values(shaped(&[(1, 2)], [1, 1], [1, 1]), [&[1.5], &[1.5, 1.5], &[1.5, 0.0]]);
        assert_eq!(pattern_positions(&compared(four)), WHOLE);
        let infinite = with_values(plain(), [&[1.5], &[f64::INFINITY], &[0.0]]);
        assert_eq!(pattern_positions(&compared(infinite)), WHOLE);
    }

    #[test]
    fn significands_of_few_bits() {
        let of = |dtype: Dtype, bits: u32| -> Vec<f64> {
            let one = dtype.round_f64(1.0);
            fractions(dtype, bits).into_iter().map(|it| dtype.to_f64(one | it)).collect()
        };
        assert_eq!((of(Dtype::BF16, 1), of(Dtype::BF16, 2)), (vec![1.0], vec![1.5]));
        assert_eq!(of(Dtype::F32, 4), [1.125, 1.375, 1.625, 1.875]);
        assert_eq!((of(Dtype::E4M3, 4).len(), of(Dtype::E4M3, 5).len()), (4, 0));
        let weights: Vec<u64> = fractions(Dtype::F16, 5).iter().map(|it| weight(Dtype::F16, 0x3c00 | it)).collect();
        assert_eq!(weights, [5 * 1024 + 1; 8]);
    }

    /// No value alone gets simpler: 1.25 times 1.8203125 needs more than eight bits, and so does many a product of nine bits in all.
    #[test]
    fn a_case_that_only_a_pair_makes_smaller() {
        let case = with_values(plain(), [&[-1.25], &[-1.8203125], &[0.0]]);
        let shows = |trial: &Trial| {
            let Literal { q, k, .. } = literal_of(&trial.case);
            let product = Dtype::BF16.to_f64(q[0]) * Dtype::BF16.to_f64(k[0]);
            // Of a usual size, and not exact in bf16.
            (0.25..4.0).contains(&product) && Dtype::BF16.to_f64(Dtype::BF16.round_f64(product)) != product
        };
        let trial = compared(case);
        assert!(shows(&trial));
        let inputs = |_: &Case| panic!("it is literal");
        let mut by = Vec::new();
        for pass in 0.. {
            let Some(positions) = smaller::positions(&trial, pass) else { break };
            for position in 0..positions {
                let candidates = smaller::smaller(&trial, &inputs, pass, position).into_iter();
                let whole = |it: &Trial| it.case.problem == trial.case.problem;
                by.extend(
                    candidates
                        .filter(|it| size(&it.trial) < size(&trial) && whole(&it.trial) && shows(&it.trial))
                        .map(|_| (smaller::PASSES[pass], position)),
                );
            }
        }
        assert!(!by.is_empty() && by.iter().all(|it| *it == (smaller::Pass::Patterns, WHOLE)), "{by:?}");
    }
}
