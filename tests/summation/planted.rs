//! Sums with a known order.

use lastbit::number::Dtype;
use lastbit::reveal::{Mask, Refusal, Summation};

/// A sum as a black box: terms in, one value out.
pub struct Planted<F> {
    pub leaves: usize,
    pub mask: Mask,
    pub sum: F,
}

impl<F: FnMut(&[f32]) -> f32> Summation for Planted<F> {
    fn leaves(&self) -> usize {
        self.leaves
    }

    fn mask(&self) -> Mask {
        self.mask
    }

    fn run(&mut self, values: &[f32]) -> Result<u32, Refusal> {
        Ok(self.mask.output.round_f32((self.sum)(values)))
    }
}

/// f32 throughout.
pub fn in_f32<F: FnMut(&[f32]) -> f32>(leaves: usize, sum: F) -> Planted<F> {
    Planted { leaves, mask: Mask::of(Dtype::F32, Dtype::F32, Dtype::F32), sum }
}

/// Additions in a format.
#[derive(Clone, Copy)]
pub struct Adder(pub Dtype);

impl Adder {
    pub fn add(self, a: f32, b: f32) -> f32 {
        self.0.squeeze(a + b)
    }

    pub fn sequential(self, values: &[f32]) -> f32 {
        values.iter().fold(0.0, |sum, &x| self.add(sum, x))
    }

    pub fn reversed(self, values: &[f32]) -> f32 {
        values.iter().rev().fold(0.0, |sum, &x| self.add(sum, x))
    }

    /// Halves, the first one the larger.
    pub fn pairwise(self, values: &[f32]) -> f32 {
        match values {
            [] => 0.0,
            [x] => *x,
            _ => {
                let (low, high) = values.split_at(values.len().div_ceil(2).next_power_of_two());
                self.add(self.pairwise(low), self.pairwise(high))
            }
        }
    }

    /// Strided accumulators, their sums halved until one is left.
    pub fn lanes(self, values: &[f32], n: usize) -> f32 {
        let mut lanes = vec![0.0; n];
        for (slot, &x) in values.iter().enumerate() {
            lanes[slot % n] = self.add(lanes[slot % n], x);
        }
        while lanes.len() > 1 {
            let upper = lanes.split_off(lanes.len() / 2);
            lanes = lanes.iter().zip(&upper).map(|(&a, &b)| self.add(a, b)).collect();
        }
        lanes[0]
    }

    /// Blocks, each summed by itself, added to a running sum.
    pub fn blocks(self, values: &[f32], block: usize) -> f32 {
        values.chunks(block).fold(0.0, |sum, block| self.add(sum, self.sequential(block)))
    }

    /// So many parts of equal length, summed by themselves, then pairwise.
    pub fn splits(self, values: &[f32], count: usize) -> f32 {
        let parts: Vec<f32> = values.chunks(values.len().div_ceil(count)).map(|part| self.sequential(part)).collect();
        self.pairwise(&parts)
    }

    /// The running sum and `w` terms at once, rounded once.
    pub fn fused(self, values: &[f32], w: usize) -> f32 {
        values.chunks(w).fold(0.0, |sum, group| {
            let exact: f64 = f64::from(sum) + group.iter().map(|&x| f64::from(x)).sum::<f64>();
            self.0.to_f32(self.0.round_f64(exact))
        })
    }

    /// The running sum and four terms at once as tensor cores add them: aligned to the largest, cut off, the sum cut off.
    pub fn aligned(self, values: &[f32]) -> f32 {
        values.chunks(4).fold(0.0, |sum, group| {
            let terms = || std::iter::once(sum).chain(group.iter().copied()).map(f64::from);
            let largest = terms().fold(0.0, |largest: f64, x| largest.max(x.abs()));
            if largest == 0.0 {
                return 0.0;
            }
            let quantum = 2f64.powi(largest.log2().floor() as i32 - 23);
            let cut: f64 = terms().map(|x| (x / quantum).trunc() * quantum).sum();
            self.0.to_f32(lastbit::number::truncate_f64(self.0, cut))
        })
    }
}
