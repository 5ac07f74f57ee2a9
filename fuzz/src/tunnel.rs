//! Packets and datagrams from anyone: coalesced, segmented, decrypted, or dropped and counted, but never trusted.

use std::net::SocketAddr;

use leadline_tunnel::client::server::{Server, Transport};
use leadline_tunnel::offload::{Coalescer, Segmenter, FRAME_MAX_BYTES};
use leadline_tunnel::protocol::{Output as ClientOutput, Protocol as _, Received};
use leadline_tunnel::wireguard::file::ClientFile;
use leadline_tunnel::wireguard::fleet::WireGuard;
use leadline_tunnel::wireguard::{Machine, Output, PeerConfig, PrivateKey};

/// A client's file.
const CLIENT: &str = "[Interface]\nPrivateKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\nAddress = 10.0.0.2/8\n\
    [Peer]\nPublicKey = 3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=\nEndpoint = 127.0.0.1:9\nAllowedIPs = 10.0.0.0/8\n";

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

/// Datagrams, each after its length in two bytes, to an interface with one peer, and to a client of a fleet.
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
    let file = ClientFile::parse(CLIENT).expect("the file is valid");
    let mut client = WireGuard::new(&[file]).expect("the file makes a fleet").begin(0, None, 0);
    let (mut space, mut opened, mut out) = (vec![0; 4096], Vec::new(), Vec::new());
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
        let mut datagram = datagram.to_vec();
        let received = client.handle(taken, &mut datagram, &mut opened);
        assert!(!matches!(received, Received::Payload(_)), "a client has no keys");
        while !matches!(client.poll(taken, &mut out), ClientOutput::Wait(_)) {}
    }
    assert!(client.assigned(Server { address: from, transport: Transport::Udp }, None).is_none());
    let counters = machine.counters();
    assert_eq!(counters.received.packets, 0);
    assert!(counters.dropped.from_network() <= taken);
}
