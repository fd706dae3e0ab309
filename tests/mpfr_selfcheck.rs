//! The linked GMP and MPFR, checked.
//!
//! The default feature `fast-gmp-build` skips the test suites that GMP's authors ask everyone to run, because compilers have
//! miscompiled GMP before. This file takes their place: MPFR against `astro-float`, which shares no code with it, bit for bit,
//! and GMP's integers against residues modulo word-size primes.

use astro_float::{BigFloat, Consts, RoundingMode, Sign};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rug::integer::Order;
use rug::{Float, Integer, Rational};

/// One number in both libraries.
struct Pair {
    rug: Float,
    astro: BigFloat,
}

/// A random significand of `precision` bits (a multiple of 64) times 2^e, `e` within `exponents`.
fn draw(rng: &mut ChaCha8Rng, precision: u32, exponents: std::ops::Range<i32>, negative: bool) -> Pair {
    let mut words: Vec<u64> = (0..precision / 64).map(|_| rng.next_u64()).collect();
    // Runs of ones and zeros reach carries and cancellations that random bits do not.
    match rng.next_u32() % 4 {
        0 => words.iter_mut().for_each(|word| *word = u64::MAX << (rng.next_u32() % 64)),
        1 => words.iter_mut().rev().skip(1).for_each(|word| *word = 0),
        _ => {}
    }
    *words.last_mut().expect("at least one word") |= 1 << 63;
    let exponent = exponents.start + (rng.next_u32() % (exponents.end - exponents.start) as u32) as i32;
    let significand = Integer::from_digits(&words, Order::Lsf);
    let mut rug = Float::with_val(precision, significand) >> precision;
    rug <<= exponent;
    let sign = if negative { Sign::Neg } else { Sign::Pos };
    Pair { rug: if negative { -rug } else { rug }, astro: BigFloat::from_words(&words, sign, exponent) }
}

/// Sign, exponent and significand words (least first) of a finite nonzero number, as 0.1xxx * 2^exponent.
type Parts = (bool, i32, Vec<u64>);

fn rug_parts(x: &Float) -> Option<Parts> {
    let exponent = x.get_exp()?;
    let (significand, _) = x.to_integer_exp()?;
    Some((x.is_sign_negative(), exponent, significand.abs().to_digits(Order::Lsf)))
}

fn astro_parts(x: &BigFloat) -> Option<Parts> {
    let (words, _, sign, exponent, _) = x.as_raw_parts()?;
    (!x.is_zero()).then(|| (sign == Sign::Neg, exponent, words.to_vec()))
}

fn assert_same(what: &str, input: &[&Float], rug: &Float, astro: &BigFloat) {
    if rug_parts(rug) != astro_parts(astro) {
        let input: Vec<_> = input.iter().map(|x| x.to_string_radix(16, None)).collect();
        panic!(
            "{what} of {input:?} (hexadecimal):\n  MPFR        {:x?}\n  astro-float {:x?}\nOne of them is miscompiled or wrong. If it is \
             GMP or MPFR, delete the gmp-mpfr-sys cache folder and build with --no-default-features, which runs their own tests.",
            rug_parts(rug),
            astro_parts(astro)
        );
    }
}

const NEAREST: RoundingMode = RoundingMode::ToEven;

/// Precision in bits, and how many values to compare.
const PRECISIONS: [(u32, usize); 3] = [(128, 1500), (256, 300), (1024, 20)];

#[test]
fn the_four_operations_and_square_roots() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (precision, count) in PRECISIONS {
        let p = precision as usize;
        for n in 0..2 * count {
            let a = draw(&mut rng, precision, -80..80, n % 2 == 1);
            let b = draw(&mut rng, precision, -80..80, n % 4 >= 2);
            let input = [&a.rug, &b.rug];
            let float = |value| Float::with_val(precision, value);
            assert_same("+", &input, &Float::with_val(precision, &a.rug + &b.rug), &a.astro.add(&b.astro, p, NEAREST));
            assert_same("-", &input, &Float::with_val(precision, &a.rug - &b.rug), &a.astro.sub(&b.astro, p, NEAREST));
            assert_same("*", &input, &float(&a.rug * &b.rug), &a.astro.mul(&b.astro, p, NEAREST));
            assert_same("/", &input, &Float::with_val(precision, &a.rug / &b.rug), &a.astro.div(&b.astro, p, NEAREST));
            let (rug, astro) = (a.rug.clone().abs(), a.astro.abs());
            assert_same("sqrt", &input[..1], &Float::with_val(precision, rug.sqrt_ref()), &astro.sqrt(p, NEAREST));
        }
    }
}

#[test]
fn exponentials_logarithms_and_hyperbolic_tangents() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut constants = Consts::new().expect("memory for the constants");
    for (precision, count) in PRECISIONS {
        let p = precision as usize;
        for n in 0..count {
            // exp and tanh up to 2^10, ln over a wide range.
            let x = draw(&mut rng, precision, -60..11, n % 2 == 1);
            let y = draw(&mut rng, precision, -300..300, false);
            // Near 1, where ln cancels.
            let near_one = draw(&mut rng, precision, 0..2, false);
            let exp = Float::with_val(precision, x.rug.exp_ref());
            assert_same("exp", &[&x.rug], &exp, &x.astro.exp(p, NEAREST, &mut constants));
            for y in [y, near_one] {
                let ln = Float::with_val(precision, y.rug.ln_ref());
                assert_same("ln", &[&y.rug], &ln, &y.astro.ln(p, NEAREST, &mut constants));
            }
            if n % 4 == 0 {
                let x = draw(&mut rng, precision, -30..5, n % 8 == 4);
                let tanh = Float::with_val(precision, x.rug.tanh_ref());
                assert_same("tanh", &[&x.rug], &tanh, &x.astro.tanh(p, NEAREST, &mut constants));
            }
        }
    }
}

#[test]
fn dot_products_are_rounded_once() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for n in 0..200 {
        let terms: Vec<_> = (0..1 + n % 40)
            .map(|_| {
                let negative = rng.next_u32() % 2 == 1;
                (draw(&mut rng, 64, -30..30, negative).rug, draw(&mut rng, 64, -30..30, false).rug)
            })
            .collect();
        let dot = Float::with_val(128, Float::dot(terms.iter().map(|(a, b)| (a, b))));
        let exact: Rational =
            terms.iter().map(|(a, b)| a.to_rational().expect("finite") * b.to_rational().expect("finite")).sum();
        assert_eq!(dot, Float::with_val(128, &exact), "{terms:?}");
    }
}

/// `x` modulo `prime`, by Horner's rule over the words.
fn residue(x: &Integer, prime: u64) -> u64 {
    let mut rest = 0u128;
    for word in x.as_abs().to_digits::<u64>(Order::Msf) {
        rest = ((rest << 64) | u128::from(word)) % u128::from(prime);
    }
    if x.is_negative() { ((u128::from(prime) - rest) % u128::from(prime)) as u64 } else { rest as u64 }
}

fn times(a: u64, b: u64, prime: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(prime)) as u64
}

#[test]
fn integers_and_rationals_against_residues() {
    // The largest primes below 2^61, 2^62 and 2^63: a wrong result survives all three with probability 2^-186.
    const PRIMES: [u64; 3] = [(1 << 61) - 1, (1 << 62) - 57, (1 << 63) - 25];
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for n in 0..600 {
        // Up to 400 words: through the basecase, Toom-2, -3 and -4 ranges of GMP's multiplication.
        let mut draw = |limit: u32| {
            let words: Vec<u64> = (0..1 + rng.next_u32() % limit).map(|_| rng.next_u64()).collect();
            let value = Integer::from_digits(&words, Order::Lsf) + 1u32;
            if rng.next_u32() % 2 == 1 { -value } else { value }
        };
        let limit = if n % 10 == 0 { 400 } else { 20 };
        let (a, b, c) = (draw(limit), draw(limit), draw(3));
        let product = Integer::from(&a * &b);
        let square = Integer::from(a.square_ref());
        let sum = Integer::from(&product + &c);
        let (quotient, rest) = sum.clone().div_rem(b.clone());
        for prime in PRIMES {
            let (x, y, z) = (residue(&a, prime), residue(&b, prime), residue(&c, prime));
            assert_eq!(residue(&product, prime), times(x, y, prime), "{a} * {b}");
            assert_eq!(residue(&square, prime), times(x, x, prime), "{a} squared");
            let both = (u128::from(times(x, y, prime)) + u128::from(z)) % u128::from(prime);
            assert_eq!(u128::from(residue(&sum, prime)), both, "{a} * {b} + {c}");
            let back = u128::from(times(residue(&quotient, prime), y, prime)) + u128::from(residue(&rest, prime));
            assert_eq!(back % u128::from(prime), both, "({a} * {b} + {c}) / {b}");
        }
        assert!(rest.as_abs().cmp(&b.as_abs()).is_lt());
        // Lowest terms: a common factor, and both signs, drop out.
        let reduced = Rational::from((Integer::from(&a * &c), Integer::from(&b * &c)));
        assert_eq!(reduced, Rational::from((a.clone(), b.clone())), "{a} / {b} with {c}");
        assert_eq!(Integer::from(reduced.numer().gcd_ref(reduced.denom())), 1);
        assert_eq!(Integer::from(reduced.numer() * &b), Integer::from(reduced.denom() * &a));
    }
}
