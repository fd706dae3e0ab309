//! The sum over keys in the product with V, as a sum that can be asked.
//!
//! Lanes of V are independent sums of one order, so that one call carries several probes: both signs, each in two lanes that must agree, of
//! the pair that is asked and of those that are likely to be asked next.

use super::finishing::{Division, Finishing};
use super::stand::Stand;
use super::weights::Weights;
use crate::number::Dtype;
use crate::reveal::{Accumulator, Arithmetic, Mask, Refusal, Summation};
use crate::tree::Tree;
use std::collections::{HashMap, VecDeque};

/// Keys of weight 1, whose values are added.
pub(super) struct Values<'s, 'k> {
    stand: &'s mut Stand<'k>,
    keys: Vec<u32>,
    finishing: Finishing,
    mask: Mask,
    /// Stored results of whole counts.
    counts: HashMap<u32, f64>,
    /// Results at hand, by plus and minus; for the leaves present.
    measured: HashMap<(usize, usize), VecDeque<u32>>,
    present: Option<Vec<bool>>,
    /// The accumulator that is tried first.
    accumulator: Dtype,
}

impl<'s, 'k> Values<'s, 'k> {
    pub(super) fn new(stand: &'s mut Stand<'k>, weights: &Weights, finishing: Finishing, accumulator: Dtype) -> Self {
        weights.put(stand);
        let keys = weights.carriers().to_vec();
        let (mask, counts) = mask(stand.inputs(), accumulator, stand.output(), &finishing, keys.len());
        Values { stand, keys, finishing, mask, counts, measured: HashMap::new(), present: None, accumulator }
    }

    fn put(&mut self, lane: usize, (plus, minus): (usize, usize)) {
        let (large, unit) = (self.mask.large as f32, self.mask.unit as f32);
        for (leaf, &key) in self.keys.iter().enumerate() {
            let value = match leaf {
                _ if leaf == plus => large,
                _ if leaf == minus => -large,
                _ if self.present.as_ref().is_none_or(|present| present[leaf]) => unit,
                _ => 0.0,
            };
            self.stand.set_value(key, lane, value);
        }
    }

    /// Runs the pair, and those after it, in as many lanes as there are.
    fn measure(&mut self, plus: usize, minus: usize) -> Result<(), Refusal> {
        let lanes = self.stand.lanes();
        let next = (minus + 1..self.keys.len()).filter(|&leaf| leaf != plus);
        let pairs = std::iter::once(minus).chain(next).flat_map(|minus| {
            let (pair, exchanged) = ((plus, minus), (minus, plus));
            [pair, exchanged, pair, exchanged]
        });
        let pairs: Vec<(usize, usize)> = pairs.take(lanes).collect();
        self.stand.clear_values();
        for (lane, &pair) in pairs.iter().enumerate() {
            self.put(lane, pair);
        }
        let o = self.stand.run()?.o;
        for (pair, bits) in pairs.into_iter().zip(o) {
            self.measured.entry(pair).or_default().push_back(bits);
        }
        Ok(())
    }
}

impl Summation for Values<'_, '_> {
    fn leaves(&self) -> usize {
        self.keys.len()
    }

    fn mask(&self) -> Mask {
        self.mask
    }

    fn probe(&mut self, plus: usize, minus: usize, present: Option<&[bool]>) -> Result<f64, Refusal> {
        if self.present.as_deref() != present {
            self.present = present.map(<[bool]>::to_vec);
            self.measured.clear();
        }
        let held = |it: &mut Self| it.measured.get_mut(&(plus, minus)).and_then(VecDeque::pop_front);
        let bits = match held(self) {
            Some(bits) => bits,
            None => {
                self.measure(plus, minus)?;
                held(self).unwrap_or_default()
            }
        };
        let plain = self.mask.output.to_f64(bits) * f64::from(self.finishing.row_sum) / self.mask.unit;
        // Bits of no count must not pass for one because their quotient happens to be whole.
        let counted = (0.0..=self.keys.len() as f64).contains(&plain) && plain.fract() == 0.0;
        Ok(self.counts.get(&bits).copied().unwrap_or(if counted { f64::NAN } else { plain }))
    }

    fn run(&mut self, values: &[f32]) -> Result<u32, Refusal> {
        self.stand.clear_values();
        self.measured.clear();
        let last = self.stand.lanes() - 1;
        for (&key, &value) in self.keys.iter().zip(values) {
            // In the first lane and in the last: lanes of one order agree.
            self.stand.set_value(key, 0, value);
            self.stand.set_value(key, last, value);
        }
        let o = self.stand.run()?.o;
        match o[0] == o[last] {
            true => Ok(o[0]),
            false => Err(Refusal::Call(format!("lanes 0 and {last} of V hold the same values and give other results"))),
        }
    }

    fn evaluate(&self, tree: &Tree, arithmetic: Arithmetic, values: &[f32]) -> u32 {
        let weight = self.finishing.weight();
        self.finishing.bits(self.mask.output, arithmetic.sum(tree, &|leaf| values[leaf as usize] * weight))
    }

    fn arithmetics(&self) -> Vec<Arithmetic> {
        let mut all = Arithmetic::ALL.to_vec();
        // Stable: what is declared first.
        all.sort_by_key(|it| it.accumulate != Accumulator::Of(self.accumulator));
        if self.finishing.division == Division::WideQuotient {
            all.retain(|it| it.accumulate == Accumulator::F64);
        }
        all
    }
}

/// Masks whose counts can be told apart in the output after the division, and what each count is stored as.
///
/// With a range as wide as that of f32 the unit is 1, or what the weight makes a 1 of. Else every power of two is tried, and the one that
/// reaches furthest is taken: small enough to be swamped, large enough to be seen after the division.
pub(super) fn mask(
    inputs: Dtype,
    accumulator: Dtype,
    output: Dtype,
    finishing: &Finishing,
    leaves: usize,
) -> (Mask, HashMap<u32, f64>) {
    let usual = Mask::of(inputs, accumulator, Dtype::F32);
    let units: Vec<f64> = match usual.unit == 1.0 {
        true => vec![1.0, f64::from(finishing.row_sum)],
        false => (-24..8).map(|e| 2f64.powi(e)).collect(),
    };
    let exact = |x: &f64| inputs.to_f64(inputs.round_f64(*x)) == *x;
    let of = |unit: f64| {
        let term = f64::from(unit as f32 * finishing.weight());
        let mut counts = HashMap::new();
        let mut reach = Mask::reach(usual.large, unit, accumulator, Dtype::F32).min(leaves.max(3));
        for count in 0..reach.saturating_sub(1) {
            let sum = count as f64 * term;
            let bits = finishing.bits(output, sum);
            // A sum that rounds on the way depends on its order, and no count is known by its bits.
            if accumulator.to_f64(accumulator.round_f64(sum)) != sum || counts.contains_key(&bits) {
                reach = count + 1;
                break;
            }
            counts.insert(bits, count as f64);
        }
        (Mask { large: usual.large, unit, reach, inputs, output }, counts)
    };
    // The first of those that reach furthest.
    let best = units.into_iter().filter(exact).map(of).reduce(|best, it| if it.0.reach > best.0.reach { it } else { best });
    best.unwrap_or((Mask { reach: 0, output, ..usual }, HashMap::new()))
}
