//! Two kernels and a case from the fuzzer's bytes (or from a `.case` file): equal recipes give equal bits, and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastbit::fuzz::pair(data));
