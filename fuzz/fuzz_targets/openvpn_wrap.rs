//! Random bytes into `leadline_fuzz::openvpn::wrap`, which says what must hold.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leadline_fuzz::openvpn::wrap(data));
