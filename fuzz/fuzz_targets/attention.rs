//! One case from the fuzzer's bytes (or from the text of a `.case` file), through the whole check.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastbit::fuzz::attention(data));
