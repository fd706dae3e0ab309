//! Where choices come from: a seeded stream, a fuzzer's bytes, or a recorded list.
//!
//! Everything random in a case is one [`Source::below`] after another, so the same generator serves the campaign, the fuzz
//! targets and property tests. 0 is always the simplest choice; a source that has run dry answers 0 for ever, so the shortest
//! input is the smallest case. Nothing is ever drawn from a library's distributions: those change between releases, and a kept
//! seed must name the same case for ever. Only the raw ChaCha stream, which is a published standard, comes from outside.

use arbitrary::Unstructured;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A sequence of choices.
pub trait Source {
    /// A number in `0..n`; 0 is the simplest choice. 0 without looking further where `n` is 0 or 1.
    fn below(&mut self, n: u64) -> u64;

    /// A number in `low..=high`; `low` is the simplest. `low` where the range is empty.
    fn range(&mut self, low: u32, high: u32) -> u32 {
        let width = u64::from(high.saturating_sub(low)) + 1;
        low + self.below(width) as u32
    }

    /// True in `numerator` of `denominator` draws; false is the simplest.
    fn chance(&mut self, numerator: u32, denominator: u32) -> bool {
        self.below(u64::from(denominator)) >= u64::from(denominator.saturating_sub(numerator))
    }

    /// A size in `1..=max` (0 where `max` is 0) that favours the places where kernels go wrong; 1 is the simplest.
    ///
    /// Half of the draws are `1, g-1, g, g+1, 2g, 2g+1` or `3g-1` for a granule `g` in play (a block, page, split or chunk size),
    /// or `2^k` or `2^k + 1`, all as far as they fit; the other half is uniform over small sizes, with a tail whose logarithm is
    /// uniform up to `max`.
    fn boundary(&mut self, granules: &[u32], max: u32) -> u32 {
        if max <= 1 {
            return max;
        }
        // The sizes below are drawn from 1 upwards, so that choice 0 is size 1 on every branch.
        match self.below(8) {
            0..=2 => self.range(1, max.min(SMALL_SIZES)),
            3 => {
                let low = 1 << self.below(u64::from(max.ilog2()) + 1);
                self.range(low, (2 * low - 1).min(max))
            }
            4 | 5 if granules.iter().any(|&g| fits(g, max)) => {
                let eligible = granules.iter().filter(|&&g| fits(g, max));
                let chosen = self.below(eligible.clone().count() as u64);
                let g = u64::from(eligible.copied().nth(chosen as usize).unwrap_or(1));
                let sizes = [1, g - 1, g, g + 1, 2 * g, 2 * g + 1, 3 * g - 1];
                let inside = sizes.iter().filter(|&&size| (1..=u64::from(max)).contains(&size));
                let chosen = self.below(inside.clone().count() as u64);
                inside.copied().nth(chosen as usize).unwrap_or(1) as u32
            }
            _ => {
                let power = 1 << self.below(u64::from(max.ilog2()) + 1);
                (power + self.below(2) as u32).min(max)
            }
        }
    }
}

/// Largest size of the uniform part of [`Source::boundary`].
const SMALL_SIZES: u32 = 24;

/// A granule is in play where at least `g - 1` can be drawn.
fn fits(g: u32, max: u32) -> bool {
    g >= 2 && g - 1 <= max
}

/// Choices among values, for every source (apart from [`Source`] so that `dyn Source` stays possible).
pub trait Choose: Source {
    /// One of the items; the first is the simplest.
    ///
    /// # Panics
    /// If there are none.
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// One of the items, each as often as its weight says; the first is the simplest.
    ///
    /// # Panics
    /// If the weights add up to 0.
    fn weighted<T: Copy>(&mut self, items: &[(u32, T)]) -> T {
        let total: u64 = items.iter().map(|&(weight, _)| u64::from(weight)).sum();
        assert!(total > 0, "a weighted choice needs a positive weight");
        let mut ticket = self.below(total);
        for &(weight, item) in items {
            if ticket < u64::from(weight) {
                return item;
            }
            ticket -= u64::from(weight);
        }
        unreachable!("the ticket is below the total")
    }

    /// An order of `0..n`; the ascending one is the simplest (Fisher-Yates from the front).
    fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in 0..n {
            let other = i + self.below((n - i) as u64) as usize;
            order.swap(i, other);
        }
        order
    }
}

impl<S: Source + ?Sized> Choose for S {}

/// SplitMix64's increment (2^64 divided by the golden ratio, odd).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Output `n` of SplitMix64 seeded with `key` (Steele, Lea, Flood 2014; the finaliser is Stafford's variant 13): a bijection of
/// `n` for each key and of `key` for each `n`. Chained over the parts of an address it gives every address its own 64 bits.
#[inline]
pub fn mix(key: u64, n: u64) -> u64 {
    let mut z = key.wrapping_add(GOLDEN.wrapping_mul(n.wrapping_add(1)));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The campaign's source: ChaCha8, case `index` uses stream `index` of the seed, so that any shard can make any case.
///
/// The 256-bit key is four SplitMix64 outputs of the seed, little-endian (not `seed_from_u64`, whose expansion belongs to the
/// library). `below` multiplies a 64-bit word by `n` and takes the upper half of the product, and draws again where the lower half
/// falls into the `2^64 mod n` values that would favour some results (Lemire, "Fast random integer generation in an interval",
/// 2019): exactly uniform.
#[derive(Clone, Debug)]
pub struct Stream {
    words: ChaCha8Rng,
}

impl Stream {
    /// Stream `index` of a seed.
    pub fn new(seed: u64, index: u64) -> Self {
        let mut key = [0; 32];
        for (n, part) in key.chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&mix(seed, n as u64).to_le_bytes());
        }
        let mut words = ChaCha8Rng::from_seed(key);
        words.set_stream(index);
        Stream { words }
    }
}

impl Source for Stream {
    fn below(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        let mut product = u128::from(self.words.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let unfair = n.wrapping_neg() % n;
            while (product as u64) < unfair {
                product = u128::from(self.words.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }
}

/// A fuzzer's bytes. Each choice takes as many bytes as `n - 1` needs, little-endian, modulo `n`: short inputs reach far, one byte
/// changes one choice, and missing bytes read as 0, the simplest choice. Not uniform, and need not be: the fuzzer steers.
#[derive(Debug)]
pub struct Bytes<'b, 'a> {
    bytes: &'b mut Unstructured<'a>,
}

impl<'b, 'a> Bytes<'b, 'a> {
    /// Takes choices from the front of the bytes.
    pub fn new(bytes: &'b mut Unstructured<'a>) -> Self {
        Bytes { bytes }
    }
}

impl Source for Bytes<'_, '_> {
    fn below(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        let width = (n - 1).ilog2() as usize / 8 + 1;
        let width = width.min(self.bytes.len());
        let mut word = [0; 8];
        match self.bytes.bytes(width) {
            Ok(taken) => word[..width].copy_from_slice(taken),
            // `width` bytes are there; were they not, the choice would be the simplest one.
            Err(_) => return 0,
        }
        u64::from_le_bytes(word) % n
    }
}

/// A list of choices: recorded from another source, or replayed. Lets a property test keep, cut and lower single choices.
pub struct Choices<'s> {
    list: Vec<u64>,
    next: usize,
    recorded: Option<&'s mut dyn Source>,
}

impl<'s> Choices<'s> {
    /// Passes another source's choices on and keeps them.
    pub fn record(source: &'s mut dyn Source) -> Self {
        Choices { list: Vec::new(), next: 0, recorded: Some(source) }
    }

    /// Gives a list back. A choice that is too large for its place becomes the largest possible; after the end all are 0.
    pub fn replay(list: Vec<u64>) -> Choices<'static> {
        Choices { list, next: 0, recorded: None }
    }

    /// The choices recorded so far, or the list that is replayed.
    pub fn list(&self) -> &[u64] {
        &self.list
    }
}

impl Source for Choices<'_> {
    fn below(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        if let Some(source) = &mut self.recorded {
            let choice = source.below(n);
            self.list.push(choice);
            return choice;
        }
        let choice = self.list.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        choice.min(n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_fixed_for_ever() {
        let mut stream = Stream::new(1, 0);
        let drawn: Vec<u64> = (0..4).map(|_| stream.below(1 << 32)).collect();
        assert_eq!(drawn, [4_017_285_876, 2_318_645_911, 205_522_766, 3_685_834_904]);
        let mut other = Stream::new(1, 7);
        let drawn: Vec<u64> = (0..4).map(|_| other.below(1000)).collect();
        assert_eq!(drawn, [24, 50, 982, 578]);
        // SplitMix64 from seed 0, as in its published test vector.
        assert_eq!([mix(0, 0), mix(0, 1)], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn below_is_uniform_and_in_range() {
        let mut stream = Stream::new(3, 1);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[stream.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        // Three quarters of 2^64: the naive modulo would hit the lower third twice as often as the rest.
        let n = 3 << 62;
        let low = (0..30_000).filter(|_| stream.below(n) < n / 3).count();
        assert!((9_500..10_500).contains(&low), "{low}");
        assert_eq!((stream.below(0), stream.below(1)), (0, 0));
    }

    #[test]
    fn zero_is_the_simplest_everywhere() {
        let mut dry = Choices::replay(vec![]);
        assert_eq!(dry.range(3, 9), 3);
        assert!(!dry.chance(9, 10));
        assert_eq!(dry.pick(&['a', 'b']), 'a');
        assert_eq!(dry.weighted(&[(1, 'a'), (99, 'b')]), 'a');
        assert_eq!(dry.boundary(&[16], 100), 1);
        assert_eq!(dry.permutation(3), [0, 1, 2]);
        assert!(Stream::new(0, 0).chance(1, 1) && !Stream::new(0, 0).chance(0, 5));
    }

    #[test]
    fn bytes_run_dry_into_zeros() {
        let mut bytes = Unstructured::new(&[7, 1, 2, 9]);
        let mut source = Bytes::new(&mut bytes);
        assert_eq!(source.below(256), 7);
        assert_eq!(source.below(257), (1 + 2 * 256) % 257);
        assert_eq!(source.below(1 << 40), 9);
        assert_eq!(source.below(u64::MAX), 0);
    }

    #[test]
    fn recorded_choices_replay() {
        let mut stream = Stream::new(5, 5);
        let mut recorder = Choices::record(&mut stream);
        let first: Vec<u32> = (0..20).map(|_| recorder.boundary(&[16, 64], 300)).collect();
        let list = recorder.list().to_vec();
        let mut replay = Choices::replay(list);
        let second: Vec<u32> = (0..20).map(|_| replay.boundary(&[16, 64], 300)).collect();
        assert_eq!(first, second);
        assert_eq!(Choices::replay(vec![900]).below(10), 9);
    }

    #[test]
    fn boundaries_are_reached() {
        let mut stream = Stream::new(2, 2);
        let mut seen = [0u32; 602];
        for _ in 0..20_000 {
            let size = stream.boundary(&[64, 176], 600);
            assert!((1..=600).contains(&size));
            seen[size as usize] += 1;
        }
        let wanted = [63, 64, 65, 128, 129, 191, 175, 176, 177, 352, 353, 527];
        let listed: u32 = wanted.iter().chain(&[1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 256, 257, 512, 513]).map(|&n| seen[n]).sum();
        assert!(wanted.iter().all(|&n| seen[n] >= 200), "{:?}", wanted.map(|n| seen[n]));
        assert!(listed > 10_000, "{listed}");
        assert!(seen[400..].iter().sum::<u32>() > 500);
        for max in 0..4 {
            assert!((0..100).all(|_| stream.boundary(&[1, 2, 3, u32::MAX], max) <= max));
        }
    }
}
