//! Segments of TCP behind each link, whole, cut and in fragments.

use leadline_packet::capture::{find_segment, CaptureReader, Found, LinkType, Segment};
use proptest::prelude::*;

use crate::frames::{Order, Packet};

const LITTLE: Order = Order { is_big: false };

fn find(link: LinkType, frame: &[u8]) -> Segment<'_> {
    match find_segment(link, frame, frame.len() as u32) {
        Found::Segment(segment) => segment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_segment_is_found_behind_each_link() {
    for (source, destination, kind) in [("10.0.0.1", "10.0.0.2", [8, 0]), ("fd00::1", "fd00::2", [0x86, 0xdd])] {
        let mut packet = Packet::new(source, destination, 6, b"GET");
        let ip = packet.frame()[14..].to_vec();
        packet.tags = vec![5, 6];
        let mut frames = vec![
            (LinkType::Ethernet, [vec![0; 12], kind.to_vec(), ip.clone()].concat()),
            (LinkType::Ethernet, packet.frame()),
            (LinkType::Ip, ip.clone()),
            (LinkType::Loopback, [vec![2, 0, 0, 0], ip.clone()].concat()),
            (LinkType::Cooked, [vec![0; 14], kind.to_vec(), ip.clone()].concat()),
            (LinkType::Cooked2, [kind.to_vec(), vec![0; 18], ip.clone()].concat()),
            (LinkType::Cooked2, [vec![0x81, 0], vec![0; 20], kind.to_vec(), ip.clone()].concat()),
        ];
        // The padding of a short frame, and a packet without a length.
        frames.push((LinkType::Ethernet, [vec![0; 12], kind.to_vec(), ip.clone(), vec![0; 9]].concat()));
        let mut lengthless = ip.clone();
        let length = if kind == [8, 0] { 2..4 } else { 4..6 };
        lengthless[length].fill(0);
        frames.push((LinkType::Ip, lengthless));
        for (link, frame) in frames {
            let segment = find(link, &frame);
            let port = |address: &str, port| std::net::SocketAddr::new(address.parse().unwrap(), port);
            assert_eq!((segment.source, segment.destination), (port(source, 80), port(destination, 257)));
            assert_eq!((segment.sequence, segment.acknowledged), (1, Some(2)));
            assert_eq!((segment.payload, segment.missing_bytes), (&b"GET"[..], 0), "{link:?}");
            assert!(!segment.is_syn() && !segment.is_fin() && !segment.is_rst());
        }
    }
}

#[test]
fn cut_payloads_are_counted_and_cut_headers_are_headless() {
    let frame = Packet::new("10.0.0.1", "10.0.0.2", 6, b"0123456789").frame();
    let segment = find(LinkType::Ethernet, &frame[..frame.len() - 4]);
    assert_eq!((segment.payload, segment.missing_bytes), (&b"012345"[..], 4));
    assert_eq!(find_segment(LinkType::Ethernet, &frame[..40], 64), Found::Headless);
    assert_eq!(find_segment(LinkType::Ethernet, &frame[..30], 64), Found::Other);
}

#[test]
fn fragments_of_tcp_are_not_other_packets() {
    let mut frame = Packet::new("10.0.0.1", "10.0.0.2", 6, b"x").frame();
    for (bits, expected) in [([0x20, 0], Found::Fragment), ([0, 9], Found::Fragment)] {
        frame[20..22].copy_from_slice(&bits);
        assert_eq!(find_segment(LinkType::Ethernet, &frame, 60), expected);
    }
    frame[23] = 17;
    assert_eq!(find_segment(LinkType::Ethernet, &frame, 60), Found::Other);
    let mut v6 = Packet::new("fd00::1", "fd00::2", 6, b"x").frame();
    v6[20] = 44;
    v6[54..58].copy_from_slice(&[6, 0, 0, 8]);
    assert_eq!(find_segment(LinkType::Ethernet, &v6, 100), Found::Fragment);
    let udp = Packet::new("fd00::1", "fd00::2", 17, b"x").frame();
    assert_eq!(find_segment(LinkType::Ethernet, &udp, 100), Found::Other);
}

#[test]
fn captures_of_any_link_are_read_and_others_refused_by_name() {
    for (number, link) in
        [(1, LinkType::Ethernet), (101, LinkType::Ip), (0, LinkType::Loopback), (113, LinkType::Cooked)]
    {
        let capture = [LITTLE.pcap_header(true, number), LITTLE.record(1, 5, 3, b"abc")].concat();
        let mut reader = CaptureReader::open_any_link(&capture[..]).unwrap();
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!((frame.link, frame.at_ns), (link, Some(1_000_000_005)));
        assert_eq!(
            CaptureReader::open(&capture[..]).is_ok(),
            link == LinkType::Ethernet,
            "packets are sent to Ethernet"
        );
    }
    let several = [
        LITTLE.section(),
        LITTLE.interface(276, 0, &[]),
        LITTLE.interface(12, 0, &[(9, &[9])]),
        LITTLE.enhanced(0, 7, 3, b"abc"),
        LITTLE.enhanced(1, 7, 3, b"abc"),
    ]
    .concat();
    let mut reader = CaptureReader::open_any_link(&several[..]).unwrap();
    let mut next = || reader.next_frame().unwrap().map(|frame| (frame.link, frame.at_ns));
    assert_eq!([next(), next(), next()], [Some((LinkType::Cooked2, Some(7000))), Some((LinkType::Ip, Some(7))), None]);
    let usb = LITTLE.pcap_header(false, 189);
    let refusal = CaptureReader::open_any_link(&usb[..]).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "the capture has frames of link type 189 (USB); only Ethernet, raw IP, BSD loopback and Linux cooked can be replayed"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame(bytes in proptest::collection::vec(any::<u8>(), 0..120), original_bytes in any::<u32>()) {
        let links = [LinkType::Ethernet, LinkType::Ip, LinkType::Loopback, LinkType::Cooked, LinkType::Cooked2];
        for link in links {
            if let Found::Segment(segment) = find_segment(link, &bytes, original_bytes) {
                prop_assert!(segment.payload.len() <= bytes.len());
            }
        }
    }
}
