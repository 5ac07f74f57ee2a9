//! Random bytes into `leadline_fuzz::inside::packets`, which says what must hold.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leadline_fuzz::inside::packets(data));
