//! How often cases fail that were not run: the exact one-sided bound of Clopper and Pearson (Biometrika 26, 1934).

use rug::Float;
use rug::float::Round;
use rug::ops::PowAssignRound;

/// Bits in which tails are computed: far more than the terms of the sum can lose.
const BITS: u32 = 256;

/// The largest share `p` of failing cases under which `failed` or fewer of `cases` fail with a probability of at least `1 - confidence`; rounded
/// up. 1 where every case failed, or none was run.
pub fn upper(cases: u64, failed: u64, confidence: f64) -> f64 {
    if failed >= cases {
        return 1.0;
    }
    let alpha = Float::with_val(BITS, 1.0) - confidence;
    // The probability falls with p: halve until neighbouring f64 are left. The end that is known to be too large is returned.
    let (mut low, mut high) = (0.0f64, 1.0f64);
    while let middle = low + (high - low) / 2.0
        && middle > low
        && middle < high
    {
        if at_most(cases, failed, middle) >= alpha { low = middle } else { high = middle }
    }
    high
}

/// The probability of at most `failed` failures in `cases`, each with probability `p` strictly between 0 and 1.
fn at_most(cases: u64, failed: u64, p: f64) -> Float {
    let p = Float::with_val(BITS, p);
    let q = Float::with_val(BITS, 1 - &p);
    let odds = Float::with_val(BITS, &p / &q);
    let mut term = q;
    term.pow_assign_round(Float::with_val(BITS, cases), Round::Nearest);
    let mut sum = term.clone();
    for k in 1..=failed {
        term *= &odds;
        term *= cases - k + 1;
        term /= k;
        sum += &term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::upper;

    /// Without a failure the bound is `1 - alpha^(1/n)`; 3/n is the rule of three.
    #[test]
    fn without_a_failure_it_is_the_root() {
        for (n, expected) in [(1, 0.95), (10, 0.258_865_6), (1000, 0.002_991_249_5), (1_000_000, 2.995_727_8e-6)] {
            let found = upper(n, 0, 0.95);
            assert!((found / expected - 1.0).abs() < 1e-6, "{n}: {found}");
        }
    }

    /// Made by halving over the exact binomial sum.
    #[test]
    fn with_failures_it_is_that_of_clopper_and_pearson() {
        for (n, k, expected) in [(10, 1, 0.394_163), (100, 5, 0.102_253_4), (20, 19, 0.997_438_6)] {
            let found = upper(n, k, 0.95);
            assert!((found - expected).abs() < 1e-6, "{k} of {n}: {found}");
        }
        assert_eq!((upper(0, 0, 0.95), upper(7, 7, 0.95)), (1.0, 1.0));
    }
}
