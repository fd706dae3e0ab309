//! Values on which orders differ.

use super::Mask;
use crate::source::{Choose, Source, Stream};

/// Draws of values.
pub(super) const DRAWS: u32 = 40;

const SEED: u64 = 0x7265_706c_6179_0000;

/// The values of one draw, exact in the mask's inputs, their sums finite in accumulator and output.
///
/// Of six draws one spreads signs and exponents, one does so with a third of the terms 0, one has one sign and one exponent, and two
/// are pairs that cancel beside a few small terms, so that what is left is rounding errors, which show in the coarsest of outputs. One of
/// those has short significands far apart: two words of f32, as compensated sums have, do not hold them, and f64 does. The last
/// is a tie of f32 that a third, far smaller term decides, among zeros: there a sum of two words rounds twice.
pub(super) fn values(mask: &Mask, leaves: usize, draw: u32) -> Vec<f32> {
    let mut source = Stream::new(SEED, u64::from(draw));
    let exponents = Exponents::of(mask, leaves);
    let precision = mask.inputs.precision();
    let near = exponents.spread(32 - precision as i32);
    match draw % 6 {
        0 => cancelling(&mut source, precision, near, leaves),
        1 => (0..leaves).map(|_| value(&mut source, precision, near)).collect(),
        2 => {
            let mut values = cancelling(&mut source, precision, near, leaves);
            values.iter_mut().for_each(|x| *x = if source.chance(1, 3) { 0.0 } else { *x });
            values
        }
        3 => {
            let same = Exponents { low: near.high, high: near.high };
            (0..leaves).map(|_| value(&mut source, precision, same).abs()).collect()
        }
        4 => {
            let short = precision.min(4);
            cancelling(&mut source, short, exponents.spread(44), leaves)
        }
        _ => {
            let mut values = vec![0.0; leaves];
            for (&place, below) in source.permutation(leaves).iter().zip([0, 24, 50]) {
                let exponent = (exponents.high - below).max(exponents.low);
                values[place as usize] = value(&mut source, 1, Exponents { low: exponent, high: exponent });
            }
            values
        }
    }
}

/// Exponents that terms are drawn from.
#[derive(Clone, Copy)]
struct Exponents {
    low: i32,
    high: i32,
}

impl Exponents {
    /// All that keep sums finite and terms normal.
    fn of(mask: &Mask, leaves: usize) -> Self {
        let exponent = |x: f64| x.log2().floor() as i32;
        let largest = mask.large.min(mask.output.max_finite());
        let high = (exponent(largest) - 1 - exponent(leaves as f64)).min(16);
        Exponents { low: mask.inputs.emin().max(mask.output.emin()).min(high), high }
    }

    /// The upper ones, as many as asked for where there are so many.
    fn spread(self, count: i32) -> Self {
        Exponents { low: self.low.max(self.high - count), ..self }
    }
}

fn value(source: &mut Stream, precision: u32, exponents: Exponents) -> f32 {
    let exponent = exponents.low + source.below((exponents.high - exponents.low + 1) as u64) as i32;
    let significand = (1 << (precision - 1)) + source.below(1 << (precision - 1));
    let magnitude = significand as f64 * 2f64.powi(exponent + 1 - precision as i32);
    if source.chance(1, 2) { -magnitude as f32 } else { magnitude as f32 }
}

fn cancelling(source: &mut Stream, precision: u32, exponents: Exponents, leaves: usize) -> Vec<f32> {
    let mut values = vec![0.0; leaves];
    let places = source.permutation(leaves);
    let small = Exponents { high: exponents.low + 2.min(exponents.high - exponents.low), ..exponents };
    for pair in places.chunks(2) {
        match *pair {
            [a, b] if source.chance(7, 8) => {
                values[a as usize] = value(source, precision, exponents);
                values[b as usize] = -values[a as usize];
            }
            _ => pair.iter().for_each(|&place| values[place as usize] = value(source, precision, small)),
        }
    }
    values
}
