//! Passes random bytes to `leadline_fuzz::access_log::formats`, which asserts the properties that must hold.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leadline_fuzz::access_log::formats(data));
