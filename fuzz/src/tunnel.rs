//! Packets and datagrams from anyone: coalesced, segmented, decrypted, or dropped and counted, but never trusted.

use std::net::SocketAddr;

use leadline_tunnel::offload::{Coalescer, Segmenter, FRAME_MAX_BYTES};
use leadline_tunnel::wireguard::{Machine, Output, PeerConfig, PrivateKey};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 2] = [("tunnel_offload", offload), ("tunnel_wireguard", wireguard)];

/// Packets, each after its length in two bytes, are coalesced and segmented again; and the bytes are one frame.
pub fn offload(data: &[u8]) {
    let (mut coalescer, mut segmenter) = (Coalescer::new(), Segmenter::new());
    let mut frame = data.to_vec();
    segmenter.segment(&mut frame, |packet| assert!(packet.len() <= data.len()));
    let mut coalesced = 0;
    let mut take = |coalescer: &mut Coalescer, coalesced: &mut usize| {
        if let Some((frame, packets)) = coalescer.take() {
            assert!(frame.len() <= FRAME_MAX_BYTES && packets == *coalesced);
            let mut segments = 0;
            let sound = segmenter.segment(&mut frame.to_vec(), |_| segments += 1);
            assert!(sound && segments == packets, "{segments} packets out of {packets}");
        }
        *coalesced = 0;
    };
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)) % 2048;
        let (packet, after) = after.split_at(after.len().min(length));
        rest = after;
        if !coalescer.push(packet) {
            take(&mut coalescer, &mut coalesced);
            assert!(coalescer.push(packet), "an empty coalescer takes any packet");
        }
        coalesced += 1;
    }
    take(&mut coalescer, &mut coalesced);
}

/// Datagrams, each after its length in two bytes, to an interface with one peer.
pub fn wireguard(data: &[u8]) {
    let peer = PeerConfig {
        public_key: PrivateKey::from_bytes([2; 32]).public(),
        endpoint: Some(([127, 0, 0, 1], 9).into()),
        allowed_ips: ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("the prefix is valid")).to_vec(),
        preshared_key: None,
        keepalive_s: None,
    };
    let mut machine = Machine::new(&PrivateKey::from_bytes([1; 32]), &[peer]).expect("the peer is valid");
    let from: SocketAddr = ([127, 0, 0, 1], 9).into();
    let mut space = vec![0; 4096];
    let mut rest = data;
    let mut taken = 0u64;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)) % 2048;
        let (datagram, after) = after.split_at(after.len().min(length));
        rest = after;
        taken += 1;
        let output = machine.handle_datagram(from, datagram, &mut space);
        assert!(!matches!(output, Output::Deliver { .. }), "no packet is delivered without the keys");
        machine.handle_packet(datagram, &mut space);
    }
    let counters = machine.counters();
    assert_eq!(counters.received.packets, 0);
    assert!(counters.dropped.from_network() <= taken);
}
