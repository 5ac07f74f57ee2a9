//! Random bytes into `leadline_fuzz::transport::opening`, which says what must hold.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leadline_fuzz::transport::opening(data));
