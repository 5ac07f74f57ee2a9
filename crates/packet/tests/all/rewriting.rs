//! Rewritten frames are those that would have been made with the other addresses, checksums included.

use std::net::IpAddr;

use leadline_packet::capture::{AddressMap, Rewrite, VlanMap};
use proptest::prelude::*;

use crate::frames::Packet;
use crate::stored_corpus::capture as properties;

fn map(from: &str, to: &str, bits: u8) -> AddressMap {
    let address = |text: &str| text.parse().expect("the address is valid");
    AddressMap::new(address(from), address(to), bits).expect("the prefix is valid")
}

fn both(map: AddressMap) -> Rewrite {
    Rewrite { sources: vec![map], destinations: vec![map], ..Rewrite::default() }
}

#[test]
fn prefixes_are_mapped_and_hosts_kept() {
    let rewrite = both(map("10.1.0.0", "192.168.0.0", 16));
    for protocol in [1, 6, 17] {
        let mut frame = Packet::new("10.1.2.3", "10.2.9.9", protocol, b"odd").frame();
        rewrite.apply(&mut frame, 0);
        assert_eq!(frame, Packet::new("192.168.2.3", "10.2.9.9", protocol, b"odd").frame(), "{protocol}");
    }
    let rewrite = both(map("fd00:1::", "2001:db8::", 32));
    for protocol in [6, 17, 58] {
        let mut frame = Packet::new("fd00:1::5", "fd00:1:7::9", protocol, b"four").frame();
        rewrite.apply(&mut frame, 0);
        assert_eq!(frame, Packet::new("2001:db8::5", "2001:db8:7::9", protocol, b"four").frame(), "{protocol}");
    }
    assert_eq!(AddressMap::new("10.0.0.0".parse().unwrap(), "::".parse().unwrap(), 8), None);
    assert_eq!(AddressMap::new("10.0.0.0".parse().unwrap(), "11.0.0.0".parse().unwrap(), 33), None);
}

#[test]
fn every_prefix_length_is_exact() {
    for bits in 0..=32 {
        let mut frame = Packet::new("10.1.2.3", "10.1.2.3", 17, b"").frame();
        both(map("10.1.2.3", "255.255.255.255", bits)).apply(&mut frame, 0);
        let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
        let expected = IpAddr::from((0x0a01_0203u32 & host | !host).to_be_bytes());
        let expected = Packet::new(&expected.to_string(), &expected.to_string(), 17, b"").frame();
        assert_eq!(frame, expected, "{bits}");
    }
}

#[test]
fn a_datagram_without_a_checksum_keeps_none() {
    let mut packet = Packet::new("10.1.2.3", "10.2.9.9", 17, b"data");
    packet.has_no_checksum = true;
    let mut frame = packet.frame();
    let rewrite = Rewrite { is_whole: true, ..both(map("10.1.2.3", "10.7.7.7", 32)) };
    rewrite.apply(&mut frame, 0);
    packet.source = "10.7.7.7".parse().unwrap();
    assert_eq!(frame, packet.frame());
}

#[test]
fn wrong_checksums_stay_wrong_unless_they_are_computed() {
    let right = Packet::new("10.1.2.3", "10.2.9.9", 6, b"data").frame();
    let expected = Packet::new("10.7.7.7", "10.2.9.9", 6, b"data").frame();
    let mut wrong = right.clone();
    wrong[14 + 20 + 16] ^= 0x55;
    let rewrite = both(map("10.1.2.3", "10.7.7.7", 32));
    let mut kept = wrong.clone();
    rewrite.apply(&mut kept, 0);
    assert_ne!(kept, expected);
    Rewrite { is_whole: true, ..rewrite }.apply(&mut wrong, 0);
    assert_eq!(wrong, expected);
}

#[test]
fn fragments_and_cut_frames_are_right_though_their_rest_is_elsewhere() {
    let rewrite = both(map("10.1.2.3", "10.7.7.7", 32));
    let before = Packet::new("10.1.2.3", "10.2.9.9", 17, &[9; 600]).frame();
    let after = Packet::new("10.7.7.7", "10.2.9.9", 17, &[9; 600]).frame();
    // The UDP checksum of the whole datagram is in its first fragment, or in what is left of it.
    let mut cut = before[..60].to_vec();
    rewrite.apply(&mut cut, 0);
    assert_eq!(cut, after[..60]);
    let fragment = |frame: &[u8], field: u16| {
        let mut frame = frame.to_vec();
        frame[20..22].copy_from_slice(&field.to_be_bytes());
        frame[24..26].fill(0);
        let sum = crate::frames::checksum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    for field in [0x2000, 0x2010, 0x0010] {
        for is_whole in [false, true] {
            let mut first = fragment(&before, field);
            Rewrite { is_whole, ..rewrite.clone() }.apply(&mut first, 0);
            let mut expected = fragment(&after, field);
            if field & 0x1fff != 0 {
                // A later fragment: the bytes at the checksum's place are data.
                expected[40..42].copy_from_slice(&before[40..42]);
            }
            assert_eq!(first, expected, "{field:x} {is_whole}");
        }
    }
}

#[test]
fn vlans_and_macs_change_and_priorities_stay() {
    let mut packet = Packet::new("10.1.2.3", "10.2.9.9", 17, b"data");
    packet.tags = vec![0xa005, 0x6007];
    let mut frame = packet.frame();
    let vlans = vec![VlanMap { from: Some(5), to: 100 }, VlanMap { from: None, to: 4094 }];
    let (source_mac, destination_mac) = (Some([2, 0, 0, 0, 0, 1]), Some([2, 0, 0, 0, 0, 2]));
    let rewrite = Rewrite { vlans, source_mac, destination_mac, ..both(map("10.1.2.3", "10.7.7.7", 32)) };
    rewrite.apply(&mut frame, 0);
    packet.tags = vec![0xa064, 0x6ffe];
    packet.source = "10.7.7.7".parse().unwrap();
    let mut expected = packet.frame();
    expected[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    assert_eq!(frame, expected);
}

#[test]
fn arp_follows_the_addresses() {
    let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 9, 9, 9, 9, 2, 10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 10, 1, 9, 9];
    let mut frame = [&[0xff; 6][..], &[2, 9, 9, 9, 9, 2, 8, 6], &arp].concat();
    let rewrite = Rewrite { source_mac: Some([2, 0, 0, 0, 0, 1]), ..both(map("10.1.0.0", "192.168.0.0", 16)) };
    rewrite.apply(&mut frame, 0);
    assert_eq!(frame[22..32], [2, 0, 0, 0, 0, 1, 192, 168, 2, 3]);
    assert_eq!(frame[38..42], [192, 168, 9, 9]);
}

#[test]
fn each_loop_has_addresses_of_its_own_and_flows_stay_together() {
    let rewrite = Rewrite { has_new_addresses: true, ..Rewrite::default() };
    let of_loop = |source: &str, destination: &str, number| {
        let mut frame = Packet::new(source, destination, 17, b"data").frame();
        rewrite.apply(&mut frame, number);
        frame
    };
    let made = |source: &str, destination: &str| Packet::new(source, destination, 17, b"data").frame();
    assert_eq!(of_loop("10.1.2.3", "10.2.9.9", 0), made("10.1.2.3", "10.2.9.9"));
    assert_eq!(of_loop("10.1.2.3", "10.2.9.9", 2), made("10.1.2.1", "10.2.9.11"));
    assert_eq!(of_loop("10.2.9.9", "10.1.2.3", 2), made("10.2.9.11", "10.1.2.1"));
    assert_eq!(of_loop("fd00::5", "fd00::9", 1), made("fd00::4", "fd00::a"));
    assert_eq!(of_loop("10.1.2.3", "224.0.0.1", 2), made("10.1.2.3", "224.0.0.1"));
    assert_eq!(of_loop("10.1.2.3", "255.255.255.255", 2), made("10.1.2.3", "255.255.255.255"));
}

fn address() -> impl Strategy<Value = IpAddr> {
    any::<[u8; 4]>().prop_map(IpAddr::from)
}

proptest! {
    /// By increments and whole, the result is the frame that has these addresses from the beginning.
    #[test]
    fn rewritten_frames_have_right_checksums(
        addresses in prop_oneof![
            (address(), address(), address()),
            any::<[[u8; 16]; 3]>().prop_map(|all| (all[0].into(), all[1].into(), all[2].into())),
        ],
        protocol in prop_oneof![Just(6u8), Just(17), Just(58)],
        payload in proptest::collection::vec(any::<u8>(), 0..50),
        is_whole in any::<bool>(),
    ) {
        let (source, destination, other) = addresses;
        prop_assume!(protocol != 58 || source.is_ipv6());
        let mut packet = Packet::new("::", "::", protocol, &payload);
        (packet.source, packet.destination) = (source, destination);
        let mut frame = packet.frame();
        let bits = if source.is_ipv4() { 32 } else { 128 };
        let sources = vec![AddressMap::new(source, other, bits).unwrap()];
        Rewrite { sources, is_whole, ..Rewrite::default() }.apply(&mut frame, 0);
        packet.source = other;
        let expected = packet.frame();
        // Zero has two forms in this sum; a receiver takes both.
        let at = expected.len() - payload.len() - if protocol == 6 { 4 } else if protocol == 17 { 2 } else { 6 };
        if expected[at..at + 2] == [0, 0] || expected[at..at + 2] == [0xff, 0xff] {
            prop_assert!(frame[at..at + 2] == [0, 0] || frame[at..at + 2] == [0xff, 0xff]);
            frame[at..at + 2].copy_from_slice(&expected[at..at + 2]);
        }
        prop_assert_eq!(frame, expected);
    }

    #[test]
    fn broken_frames_never_panic(
        tags in proptest::collection::vec(any::<u16>(), 0..3),
        is_v6 in any::<bool>(),
        protocol in prop_oneof![Just(6u8), Just(17), Just(58), Just(1), Just(0), Just(43), Just(44), Just(51), Just(60)],
        payload in proptest::collection::vec(any::<u8>(), 0..80),
        changes in proptest::collection::vec((14..200usize, any::<u8>()), 0..5),
        keep in 0..200usize,
    ) {
        let (source, destination) = if is_v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "130.0.0.2") };
        let mut packet = Packet::new(source, destination, protocol, &payload);
        packet.tags = tags;
        let mut frame = packet.frame();
        for (at, byte) in changes {
            frame.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        frame.truncate(keep);
        properties::frames(&frame);
    }
}
