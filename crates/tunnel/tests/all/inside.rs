//! Runs the stored corpus of packets inside tunnels, and generated segments, through the functions that cargo-fuzz
//! drives.

use proptest::prelude::*;

use crate::corpus;

#[path = "../../../../fuzz/src/inside.rs"]
mod targets;

#[test]
fn stored_corpus_passes() {
    corpus::hold(targets::TARGETS);
}

/// A segment in the input format of `segments`: usually near the expected numbers, so that some are accepted.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![Just(0x10u8), Just(0x12), Just(0x02), Just(0x11), Just(0x14), Just(0x18), any::<u8>()];
    let near = || prop_oneof![Just(0i16), -3i16..4, any::<i16>()];
    let window = prop_oneof![Just(0u16), Just(5000), any::<u16>()];
    let payload = proptest::collection::vec(any::<u8>(), 0..40);
    (flags, any::<bool>(), 95u16..140, near(), window, payload).prop_map(
        |(flags, waits, sequence, acknowledged, window, payload)| {
            let mut bytes = vec![flags & 0x3f | u8::from(waits) << 7];
            bytes.extend_from_slice(&sequence.to_be_bytes());
            bytes.extend_from_slice(&acknowledged.to_be_bytes());
            bytes.extend_from_slice(&window.to_be_bytes());
            bytes.push(payload.len() as u8);
            bytes.extend(payload);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn arbitrary_segments_never_panic(segments in proptest::collection::vec(segment(), 1..40)) {
        targets::segments(&segments.concat());
    }

    #[test]
    fn arbitrary_packets_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..200), v6: bool) {
        bytes[0] = if v6 { 0x60 } else { 0x45 };
        targets::packets(&bytes);
    }
}
