//! A small problem from the fuzzer's bytes (or from a `.case` file): the oracle's `f64` enclosure against MPFR.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastbit::fuzz::oracle(data));
