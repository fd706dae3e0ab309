//! The fuzzer's bytes as the text of a case file: refused with a reason, or loaded and written back unchanged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastbit::fuzz::case_text(data));
