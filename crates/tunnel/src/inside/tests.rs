//! Tests of packets that are built and parsed again, truncated and damaged; and of replies and errors.

use std::net::IpAddr;

use proptest::prelude::*;

use super::icmp::{self, Message};
use super::ip::{protocol, Ends, Packet, PacketError};
use super::{Echo, Udp};
use crate::offload::checksum;

fn ends() -> impl Strategy<Value = Ends> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>()
            .prop_map(|(source, destination)| Ends::V4 { source: source.into(), destination: destination.into() }),
        any::<([u8; 16], [u8; 16])>()
            .prop_map(|(source, destination)| Ends::V6 { source: source.into(), destination: destination.into() }),
    ]
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn echo(v6: bool) -> Echo {
    let (source, destination) = if v6 { ("fd00::2", "fd00::1") } else { ("10.8.0.2", "10.8.0.1") };
    Echo::new(address(source), address(destination), 77).unwrap()
}

fn udp(v6: bool) -> Udp {
    let (source, destination) =
        if v6 { ("[fd00::2]:4000", "[fd00::1]:5000") } else { ("10.8.0.2:4000", "10.8.0.1:5000") };
    Udp::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap()
}

/// An ICMP error about a packet, as a router sends it: type, code, the word after the checksum, and the quoted
/// packet.
fn error(ends: Ends, kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(&word.to_be_bytes());
    message.extend_from_slice(quoted);
    let number = if ends.is_v6() { protocol::ICMP_V6 } else { protocol::ICMP };
    let pseudo = if ends.is_v6() { ends.pseudo_header(number, message.len()) } else { 0 };
    let sum = checksum::finish(checksum::sum(&message) + pseudo);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = Vec::new();
    ends.write(number, message.len(), &mut packet);
    packet.extend_from_slice(&message);
    packet
}

proptest! {
    #[test]
    fn ip_header_round_trips(ends in ends(), number in 61u8..135,
                                          body in proptest::collection::vec(any::<u8>(), 0..100), padding in 0usize..9) {
        let mut packet = vec![7, 7];
        ends.write(number, body.len(), &mut packet);
        packet.extend_from_slice(&body);
        packet.resize(packet.len() + padding, 0);
        let read = Packet::parse(&packet[2..]).unwrap();
        prop_assert_eq!(read, Packet { ends, protocol: number, hop_limit: 64, transport: &body });
        for length in 0..packet.len() - 2 - padding {
            prop_assert_eq!(Packet::parse(&packet[2..2 + length]), Err(PacketError::Short));
        }
    }

    #[test]
    fn echo_reply_matches_its_request(v6: bool, sequence: u64, sent_ns: u64, size in 0usize..2000) {
        let echo = echo(v6);
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        echo.build(sequence, sent_ns, size, &mut request);
        prop_assert_eq!(request.len(), size.max(if v6 { 64 } else { 44 }));
        prop_assert!(icmp::answer(&request, &mut reply));
        let matched = echo.matches(&reply).unwrap();
        prop_assert_eq!((matched.sequence, matched.sent_ns, matched.packet_bytes), (sequence, sent_ns, request.len()));
        prop_assert_eq!(echo.matches(&request), None, "a request is not a reply");
        prop_assert!(!icmp::answer(&reply, &mut Vec::new()), "a reply is not answered");
    }

    #[test]
    fn single_damaged_byte_is_detected(v6: bool, at in 0usize..100, flip in 1u8..) {
        let echo = echo(v6);
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        echo.build(1, 2, 100, &mut request);
        icmp::answer(&request, &mut reply);
        reply[at] ^= flip;
        // No checksum covers the traffic class, flow label and hop limit of IPv6.
        let uncovered = v6 && matches!(at, 0..4 | 7) && reply[0] >> 4 == 6;
        prop_assert_eq!(echo.matches(&reply).is_some(), uncovered);
    }

    #[test]
    fn datagram_round_trips(v6: bool, head in proptest::collection::vec(any::<u8>(), 0..60), more in 0usize..1400) {
        let flow = udp(v6);
        let mut packet = Vec::new();
        flow.build(&head, head.len() + more, &mut packet);
        prop_assert_eq!(packet.len(), flow.overhead_bytes() + head.len() + more);
        let payload = [&head[..], &vec![0; more][..]].concat();
        prop_assert_eq!(flow.reversed().matches(&packet), Some(&payload[..]));
        prop_assert_eq!(flow.matches(&packet), None, "a sent datagram is not a received one");
        for length in 0..packet.len() {
            prop_assert_eq!(flow.reversed().matches(&packet[..length]), None);
        }
        let at = more % packet.len();
        packet[at] ^= 0x40;
        let uncovered = v6 && matches!(at, 1..4 | 7);
        prop_assert_eq!(flow.reversed().matches(&packet).is_some(), uncovered);
    }

    #[test]
    fn arbitrary_or_truncated_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..200), v6: bool) {
        let first = if v6 { 0x60 } else { 0x45 };
        bytes[0] = first;
        for length in 0..bytes.len() {
            let _ = (echo(v6).matches(&bytes[..length]), echo(v6).refusal(&bytes[..length]));
            let _ = (udp(v6).matches(&bytes[..length]), udp(v6).refusal(&bytes[..length]));
            icmp::answer(&bytes[..length], &mut Vec::new());
        }
    }
}

#[test]
fn foreign_echo_reply_is_not_matched() {
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    echo(false).build(5, 6, 64, &mut request);
    icmp::answer(&request, &mut reply);
    let other = Echo::new(address("10.8.0.2"), address("10.8.0.1"), 78).unwrap();
    let elsewhere = Echo::new(address("10.8.0.3"), address("10.8.0.1"), 77).unwrap();
    assert_eq!((other.matches(&reply), elsewhere.matches(&reply)), (None, None));
    assert_eq!(Echo::new(address("10.8.0.2"), address("fd00::1"), 1), None);
}

#[test]
fn icmp_errors_about_an_echo_are_named() {
    let cases = [
        (false, 3, 0, "network_unreachable"),
        (false, 3, 1, "host_unreachable"),
        (false, 3, 4, "packet_too_big"),
        (false, 3, 13, "administratively_prohibited"),
        (false, 11, 0, "hops_exceeded"),
        (true, 1, 0, "network_unreachable"),
        (true, 1, 3, "host_unreachable"),
        (true, 2, 0, "packet_too_big"),
        (true, 3, 0, "hops_exceeded"),
    ];
    for (v6, kind, code, name) in cases {
        let echo = echo(v6);
        let mut request = Vec::new();
        echo.build(5, 6, 100, &mut request);
        // A router on the path has decremented the hop limit, and quotes the minimum of RFC 792.
        request[if v6 { 7 } else { 8 }] = 0;
        let quoted = &request[..request.len().min(if v6 { 100 } else { 28 })];
        let packet = error(echo.ends().reversed(), kind, code, 1400, quoted);
        assert_eq!(echo.refusal(&packet), Some(name));
        assert_eq!(echo.matches(&packet), None);
        for length in 0..packet.len() {
            assert_eq!(echo.refusal(&packet[..length]), None);
        }
        let read = Packet::parse(&packet).unwrap();
        let Ok(Some(Message::Error { mtu, .. })) = Message::parse(&read) else { panic!("{name}") };
        assert_eq!(mtu, (name == "packet_too_big").then_some(1400));
    }
}

#[test]
fn fragments_and_foreign_headers_are_named() {
    let mut packet = Vec::new();
    echo(false).build(0, 0, 64, &mut packet);
    packet[6] = 0x20;
    assert_eq!(Packet::parse(&packet), Err(PacketError::Checksum));
    let sum = checksum::sum(&packet[..20]) - u64::from(u16::from_be_bytes([packet[10], packet[11]]));
    packet[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    assert_eq!(Packet::parse(&packet), Err(PacketError::Fragment));
    assert_eq!(Packet::parse(&[0x50; 60]), Err(PacketError::Version));
    assert_eq!(Packet::parse(&[]), Err(PacketError::Short));
}

#[test]
fn extension_headers_are_skipped_in_bounds() {
    let mut plain = Vec::new();
    echo(true).build(9, 0, 64, &mut plain);
    let with = |chain: &[u8], next: u8| {
        let mut packet = plain[..40].to_vec();
        packet[6] = next;
        packet[4..6].copy_from_slice(&((24 + chain.len()) as u16).to_be_bytes());
        packet.extend_from_slice(chain);
        packet.extend_from_slice(&plain[40..]);
        packet
    };
    let options = [58, 0, 1, 4, 0, 0, 0, 0];
    let packet = with(&options, 60);
    let read = Packet::parse(&packet).unwrap();
    assert_eq!((read.protocol, read.transport), (58, &plain[40..]));
    assert!(matches!(Message::parse(&read), Ok(Some(Message::EchoRequest(_)))));
    assert_eq!(Packet::parse(&with(&[58, 0, 0, 1, 0, 0, 0, 0], 44)), Err(PacketError::Fragment));
    assert!(Packet::parse(&with(&[58, 0, 0, 0, 0, 0, 0, 9], 44)).is_ok(), "a fragment that contains the whole packet");
    assert_eq!(Packet::parse(&with(&options, 43)), Err(PacketError::Extensions));
    assert_eq!(Packet::parse(&with(&[60, 0, 1, 4, 0, 0, 0, 0].repeat(9), 60)), Err(PacketError::Extensions));
    assert_eq!(Packet::parse(&with(&[58, 200, 1, 4, 0, 0, 0, 0], 60)), Err(PacketError::Short));
}

#[test]
fn datagram_without_a_checksum_is_valid_over_ipv4_only() {
    for v6 in [false, true] {
        let flow = udp(v6);
        let mut packet = Vec::new();
        flow.build(b"payload", 7, &mut packet);
        let checksum = flow.overhead_bytes() - 2;
        packet[checksum..checksum + 2].fill(0);
        assert_eq!(flow.reversed().matches(&packet).is_some(), !v6);
    }
}

#[test]
fn zero_udp_checksum_is_sent_as_all_ones() {
    let flow = udp(true);
    // The header with which the sum is all ones, so that the checksum is zero.
    let mut packet = Vec::new();
    flow.build(&[0, 0], 2, &mut packet);
    let checksum = flow.overhead_bytes() - 2;
    let head = [packet[checksum], packet[checksum + 1]];
    packet.clear();
    flow.build(&head, 2, &mut packet);
    assert_eq!(packet[checksum..checksum + 2], [0xff, 0xff]);
    assert_eq!(flow.reversed().matches(&packet), Some(&head[..]));
}

#[test]
fn closed_udp_port_is_named() {
    for (v6, kind, code) in [(false, 3, 3), (true, 1, 4)] {
        let flow = udp(v6);
        let mut datagram = Vec::new();
        flow.build(b"x", 100, &mut datagram);
        let quoted = &datagram[..flow.overhead_bytes()];
        let packet = error(if v6 { echo(true).ends() } else { echo(false).ends() }.reversed(), kind, code, 0, quoted);
        assert_eq!(flow.refusal(&packet), Some("port_unreachable"));
        assert_eq!((flow.reversed().refusal(&packet), echo(v6).refusal(&packet)), (None, None));
        for length in 0..packet.len() {
            assert_eq!(flow.refusal(&packet[..length]), None);
        }
    }
}
