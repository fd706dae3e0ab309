//! The fuzzer's bytes as the text of a case file, a relation or a kernel's name: refused with a reason, or read and written back
//! unchanged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lastbit::fuzz::case_text(data));
