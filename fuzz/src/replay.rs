//! Recorded traffic made by anyone: read in bounded memory to an end or an error, with each request given once.

use leadline_packet::capture::LinkType;
use leadline_replay::gor::GorSource;
use leadline_replay::packets::{PacketSource, Reassembly, ReassemblyOptions};
use leadline_replay::{open_input, Source};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 2] = [("replay_packets", packets), ("replay_gor", gor)];

const TOTAL_BYTES: usize = 200_000;
/// What one connection may hold of itself, beside its messages: a piece that makes it too much.
const SLACK_BYTES: usize = 100_000;

/// The bytes as a capture, and as frames one by one: first lengths and ends of a few, then what they carry.
pub fn packets(data: &[u8]) {
    if let Ok(mut source) = PacketSource::open(data, options()) {
        read(&mut source, data.len());
    }
    let mut reassembly = Reassembly::new(options());
    let (mut rest, mut at_ns) = (data, 0);
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let payload = &after[..usize::from(head[0]).min(after.len())];
        rest = &after[payload.len()..];
        at_ns += u64::from(head[1]) * 10_000_000;
        let frame = frame_of(head, payload);
        reassembly.frame(at_ns, LinkType::Ip, &frame, frame.len() as u32);
        assert!(reassembly.held_bytes() <= TOTAL_BYTES + SLACK_BYTES);
        while reassembly.next().is_some() {}
    }
    reassembly.finish();
    assert_eq!(reassembly.held_bytes(), 0);
}

/// The bytes as a file of GoReplay, compressed or not.
pub fn gor(data: &[u8]) {
    if let Ok(input) = open_input(data) {
        // What is compressed may be a thousand times as long.
        read(&mut GorSource::new(input, true), data.len().saturating_mul(1100));
    }
}

fn options() -> ReassemblyOptions {
    ReassemblyOptions { message_bytes: 20_000, total_bytes: TOTAL_BYTES, ..ReassemblyOptions::default() }
}

/// The shortest request has more bytes than this.
const REQUEST_BYTES: usize = 14;

fn read(source: &mut impl Source, bytes: usize) {
    let mut requests = 0;
    while let Ok(Some(request)) = source.next() {
        requests += 1;
        assert!(!request.method.is_empty() && !request.target.is_empty());
        assert!(request.fields.is_empty() || request.fields.ends_with(b"\r\n"));
    }
    assert!(requests <= bytes / REQUEST_BYTES, "{requests} in {bytes} bytes");
    assert!(source.causes().iter().all(|(_, count)| count > 0));
}

/// A packet of one of four connections; numbers are small, so that they fit together.
fn frame_of(head: &[u8; 8], payload: &[u8]) -> Vec<u8> {
    let (from_client, connection) = (head[2] & 1 == 0, head[2] >> 1 & 3);
    let length = (40 + payload.len()) as u16;
    let mut frame = vec![0x45, 0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    let ports = [[1, connection], [0, 80]];
    let [source, destination] = if from_client { ports } else { [ports[1], ports[0]] };
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&destination);
    frame.extend_from_slice(&[0, 0, head[3], head[4], 0, 0, head[5], head[6], 0x50, head[7], 0, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(payload);
    frame
}
