//! Random values of every format: one rounding, whatever road it takes.
//!
//! The judge is exact rational arithmetic, and for F32 also the compiler's own `as f32`. Runs are reproducible: the generator's
//! seed is fixed.

use lastbit::number::{Class, Dtype, Ulps, fractional_ulps, round_mpfr, truncate_f64, ulp_distance, ulp_size};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rug::{Float, Rational};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        max_global_rejects: 20_000,
        ..ProptestConfig::default()
    }
}

fn dtypes() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL.to_vec())
}

/// A finite pattern, half of the time near an edge of the format: zero, least normal, largest finite.
fn finite(dtype: Dtype) -> impl Strategy<Value = u32> {
    let max = dtype.max_finite_bits();
    let least_normal = 1u32 << (dtype.precision() - 1);
    let near = move |edge: u32| (edge.saturating_sub(3)..=(edge + 3).min(max)).boxed();
    let magnitude = prop_oneof![3 => (0..=max).boxed(), 1 => near(0), 1 => near(least_normal), 1 => near(max)];
    (magnitude, any::<bool>())
        .prop_map(move |(magnitude, negative)| if negative { magnitude | dtype.sign_mask() } else { magnitude })
}

/// Any f64, half of the time within four steps of a value or of a midpoint between two values of the format.
fn near_f64(dtype: Dtype) -> impl Strategy<Value = f64> {
    let near = (finite(dtype), any::<bool>(), -4i64..=4).prop_map(move |(bits, middle, offset)| {
        let value = dtype.to_f64(bits);
        let base = if middle { value + (ulp_size(dtype, value) / 2.0).copysign(value) } else { value };
        // Stepping the bits moves along the magnitude; a step below zero would leave the f64 line.
        f64::from_bits((base.abs().to_bits() as i64 + offset).max(0) as u64).copysign(base)
    });
    prop_oneof![near, any::<u64>().prop_map(f64::from_bits)]
}

fn case<T: std::fmt::Debug + Clone + 'static, S: Strategy<Value = T> + 'static>(
    of: fn(Dtype) -> S,
) -> impl Strategy<Value = (Dtype, T)> {
    dtypes().prop_flat_map(move |dtype| (Just(dtype), of(dtype)))
}

/// A 200-bit value at a distance of `2^-shift` ULPs from a midpoint, `shift` 2 to 180, or exactly on it.
#[derive(Clone, Debug)]
struct NearMidpoint {
    below: u32,
    shift: u32,
    side: i32,
}

fn near_midpoints(dtype: Dtype) -> impl Strategy<Value = NearMidpoint> {
    (finite(dtype), 2u32..180, -1i32..=1).prop_map(|(below, shift, side)| NearMidpoint { below, shift, side })
}

impl NearMidpoint {
    fn value(&self, dtype: Dtype) -> Float {
        let value = dtype.to_f64(self.below);
        let half_ulp = (ulp_size(dtype, value) / 2.0).copysign(value);
        let mut x = Float::with_val(200, value) + half_ulp;
        x += Float::with_val(200, f64::from(self.side) * half_ulp) >> self.shift;
        x
    }
}

fn rational(dtype: Dtype, bits: u32) -> Rational {
    Rational::from_f64(dtype.to_f64(bits)).expect("finite")
}

/// Whether `bits` is `exact` rounded to nearest, ties to even; by comparing distances. `negative` is the sign that a zero takes.
fn is_nearest(dtype: Dtype, bits: u32, exact: &Rational, negative: bool) -> bool {
    let magnitude = exact.clone().abs();
    let top = dtype.max_finite_bits();
    // The first number that the format would have with one exponent more.
    let beyond: Rational = rational(dtype, top) * 2 - rational(dtype, dtype.next_down(top));
    let value_of = |n: u32| if n > top { beyond.clone() } else { rational(dtype, n) };
    if !dtype.class(bits).is_finite() {
        let middle = (beyond.clone() + rational(dtype, top)) / 2;
        let overflow = dtype.infinity_bits().unwrap_or(dtype.nan_bits());
        let wins_tie = top % 2 == 1;
        return bits & dtype.magnitude_mask() == overflow
            && (bits & dtype.sign_mask() != 0) == negative
            && (magnitude > middle || (wins_tie && magnitude == middle));
    }
    let n = bits & dtype.magnitude_mask();
    let distance = |m: u32| (magnitude.clone() - value_of(m)).abs();
    let own = distance(n);
    let beats = |m: u32| {
        let other = distance(m);
        own < other || (own == other && n.is_multiple_of(2))
    };
    (bits & dtype.sign_mask() != 0) == negative && beats(n + 1) && (n == 0 || beats(n - 1))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn f64_rounds_to_the_nearest((dtype, value) in case(near_f64)) {
        let bits = dtype.round_f64(value);
        match Rational::from_f64(value) {
            Some(exact) => prop_assert!(is_nearest(dtype, bits, &exact, value.is_sign_negative()), "{dtype} {value:e} -> {bits:x}"),
            None if value.is_nan() => prop_assert_eq!(bits, dtype.nan_bits()),
            None => prop_assert_eq!(bits & dtype.magnitude_mask(), dtype.infinity_bits().unwrap_or(dtype.nan_bits())),
        }
    }

    #[test]
    fn mpfr_agrees_with_f64_at_any_precision((dtype, value) in case(near_f64), precision in 53u32..300) {
        prop_assert_eq!(round_mpfr(dtype, &Float::with_val(precision, value)), dtype.round_f64(value), "{} {:e}", dtype, value);
    }

    #[test]
    fn mpfr_rounds_short_significands(dtype in dtypes(), precision in 1u32..12, bits in any::<u64>()) {
        // A precision below the format's: the scaled value must survive in its own few bits.
        let value = Float::with_val(precision, f64::from_bits(bits));
        prop_assume!(!value.is_nan());
        prop_assert_eq!(round_mpfr(dtype, &value), dtype.round_f64(value.to_f64()), "{} {}", dtype, value);
    }

    #[test]
    fn mpfr_rounds_200_bits_to_the_nearest((dtype, near) in case(near_midpoints)) {
        let value = near.value(dtype);
        let exact = value.to_rational().expect("finite");
        let bits = round_mpfr(dtype, &value);
        prop_assert!(is_nearest(dtype, bits, &exact, value.is_sign_negative()), "{dtype} {value} -> {bits:x}");
    }

    #[test]
    fn mpfr_rounds_any_exponent_to_the_nearest(dtype in dtypes(), words in any::<[u64; 3]>(), exponent in -400i32..400) {
        let mut value = Float::with_val(200, words[0] | 1 << 63);
        value = value * 2f64.powi(64) + words[1];
        value = value * 2f64.powi(64) + words[2];
        value >>= 192 - exponent;
        let exact = value.to_rational().expect("finite");
        prop_assert!(is_nearest(dtype, round_mpfr(dtype, &value), &exact, false), "{dtype} {value}");
    }

    #[test]
    fn f32_is_the_cast(value in near_f64(Dtype::F32)) {
        prop_assume!(!value.is_nan());
        prop_assert_eq!(Dtype::F32.round_f64(value), (value as f32).to_bits());
        prop_assert_eq!(round_mpfr(Dtype::F32, &Float::with_val(53, value)), (value as f32).to_bits());
    }

    #[test]
    fn f32_patterns_survive_every_road(bits in any::<u32>()) {
        let value = f32::from_bits(bits);
        prop_assert_eq!(Dtype::F32.class(bits) == Class::Nan, value.is_nan());
        prop_assume!(!value.is_nan());
        prop_assert_eq!(Dtype::F32.to_f32(bits).to_bits(), bits);
        prop_assert_eq!(Dtype::F32.round_f32(value), bits);
        prop_assert_eq!(Dtype::F32.round_f64(f64::from(value)), bits);
        prop_assert_eq!(Dtype::F32.squeeze(value).to_bits(), bits);
        prop_assert_eq!(round_mpfr(Dtype::F32, &Float::with_val(24, value)), bits);
        let (up, down) = (f32::from_bits(Dtype::F32.next_up(bits)), f32::from_bits(Dtype::F32.next_down(bits)));
        prop_assert_eq!((up, down), (value.next_up(), value.next_down()));
    }

    #[test]
    fn f32_and_f64_round_alike((dtype, value) in case(near_f64), any_bits in any::<u32>()) {
        for value in [value as f32, f32::from_bits(any_bits)] {
            let bits = dtype.round_f64(f64::from(value));
            prop_assert_eq!(dtype.round_f32(value), bits, "{} {:e}", dtype, value);
            if !value.is_nan() && dtype.class(bits) != Class::Nan {
                prop_assert_eq!(dtype.squeeze(value).to_bits(), dtype.to_f32(bits).to_bits());
            }
        }
    }

    #[test]
    fn rounding_is_monotone((dtype, a) in case(near_f64), b in any::<u64>().prop_map(f64::from_bits)) {
        prop_assume!(!a.is_nan() && !b.is_nan());
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        if let (Some(low), Some(high)) = (dtype.rank(dtype.round_f64(low)), dtype.rank(dtype.round_f64(high))) {
            prop_assert!(low <= high);
        }
    }

    #[test]
    fn truncation_is_the_last_number_not_beyond((dtype, value) in case(near_f64)) {
        prop_assume!(value.is_finite());
        let bits = truncate_f64(dtype, value);
        let kept = dtype.to_f64(bits);
        prop_assert!(dtype.class(bits).is_finite());
        prop_assert_eq!(bits & dtype.sign_mask() != 0, value.is_sign_negative());
        prop_assert!(kept.abs() <= value.abs());
        let magnitude = bits & dtype.magnitude_mask();
        prop_assert!(magnitude == dtype.max_finite_bits() || dtype.to_f64(magnitude + 1) > value.abs());
    }

    #[test]
    fn fractional_ulps_are_the_scaled_difference((dtype, bits) in case(finite), other in any::<u64>(), (steps, part) in (0u32..5, 0.0f64..1.0)) {
        // A truth near the value, and one anywhere in the range.
        let near = {
            let mut near = bits;
            for _ in 0..steps {
                near = dtype.next_down(near);
            }
            dtype.to_f64(near)
        };
        let near = if near.is_finite() { near + part * ulp_size(dtype, near) } else { 0.0 };
        let anywhere = f64::from_bits(other);
        for truth in [near, if anywhere.is_finite() { anywhere } else { 0.0 }] {
            let exact_truth = Rational::from_f64(truth).expect("finite");
            // 2^(max(floor(log2|truth|), emin) - p + 1), by searching for the exponent.
            let mut unit = Rational::from_f64(dtype.least_subnormal()).expect("finite");
            let mut top = Rational::from_f64(2.0 * dtype.least_normal()).expect("finite");
            while top <= exact_truth.clone().abs() {
                unit *= 2;
                top *= 2;
            }
            prop_assert_eq!(Rational::from_f64(ulp_size(dtype, truth)).expect("finite"), unit.clone());
            let exact = (rational(dtype, bits) - exact_truth) / unit;
            let error = Rational::from_f64(fractional_ulps(dtype, bits, truth)).expect("finite") - &exact;
            // One rounded subtraction; the division is by a power of two.
            prop_assert!(error.abs() <= exact.abs() / (1u64 << 53), "{dtype} {bits:x} {truth:e}");
        }
    }

    #[test]
    fn a_rounded_value_is_within_half_an_ulp((dtype, value) in case(near_f64)) {
        let bits = dtype.round_f64(value);
        prop_assume!(value.is_finite() && dtype.class(bits).is_finite());
        prop_assert!(fractional_ulps(dtype, bits, value).abs() <= 0.5);
    }

    #[test]
    fn distances_add_up((dtype, mut three) in case(|dtype| [finite(dtype), finite(dtype), finite(dtype)])) {
        three.sort_by_key(|&bits| dtype.rank(bits));
        let steps = |a, b| match ulp_distance(dtype, a, b) {
            Ulps::Steps(n) => n,
            Ulps::Incomparable => unreachable!("finite"),
        };
        let [a, b, c] = three;
        prop_assert_eq!(steps(a, b) + steps(b, c), steps(a, c));
        prop_assert_eq!(steps(a, c), steps(c, a));
        prop_assert_eq!(steps(a, dtype.next_up(a)), 1);
    }
}
