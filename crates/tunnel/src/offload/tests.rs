//! Tests that segmentation and coalescing are inverse, and that both accept any input.

use proptest::prelude::*;

use super::checksum::put_ip_length;
use super::header::Kind;
use super::layout::{flag, place, protocol, put_u16, u16_at};
use super::*;

/// A TCP packet with right checksums.
fn tcp(six: bool, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = if six { vec![0; 40] } else { vec![0; 20] };
    if six {
        packet[0] = 0x60;
        packet[6..8].copy_from_slice(&[protocol::TCP, 64]);
        packet[8..40].copy_from_slice(&[7; 32]);
    } else {
        packet[0] = 0x45;
        packet[6] = 0x40;
        packet[8..10].copy_from_slice(&[64, protocol::TCP]);
        packet[12..20].copy_from_slice(&[10, 83, 0, 1, 10, 83, 0, 2]);
    }
    let transport = packet.len();
    packet.extend_from_slice(&[0x13, 0x88, 0xc0, 0x01]);
    packet.extend_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&77u32.to_be_bytes());
    // Eight words of header, three of them options: time stamps.
    packet.extend_from_slice(&[0x80, flags, 0x01, 0x02, 0, 0, 0, 0]);
    packet.extend_from_slice(&[1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
    packet.extend_from_slice(payload);
    let length = packet.len();
    put_ip_length(&mut packet, transport, length);
    let pseudo = checksum::pseudo_header(&packet, protocol::TCP, length - transport);
    let sum = checksum::finish(pseudo + checksum::sum(&packet[transport..]));
    put_u16(&mut packet, transport + place::TCP_CHECKSUM, sum);
    packet
}

/// The packets of a flow; identifications are 0, so after segmentation only IPv6 packets compare equal.
fn flow(six: bool, mut sequence: u32, payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (number, payload) in payloads.iter().enumerate() {
        let last = number + 1 == payloads.len();
        packets.push(tcp(six, sequence, flag::ACK | if last { flag::PSH } else { 0 }, payload));
        sequence = sequence.wrapping_add(payload.len() as u32);
    }
    packets
}

fn coalesce_all(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut coalescer = Coalescer::new();
    let mut frames = Vec::new();
    for packet in packets {
        if !coalescer.push(packet) {
            frames.extend(coalescer.take().map(|(frame, _)| frame.to_vec()));
            assert!(coalescer.push(packet));
        }
    }
    frames.extend(coalescer.take().map(|(frame, _)| frame.to_vec()));
    frames
}

fn segment_all(frames: &mut [Vec<u8>]) -> Vec<Vec<u8>> {
    let mut segmenter = Segmenter::new();
    let mut packets = Vec::new();
    for frame in frames {
        assert!(segmenter.segment(frame, |packet| packets.push(packet.to_vec())));
    }
    packets
}

/// Sets every IPv4 identification to 0, as `flow` does.
fn without_id(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for packet in packets.iter_mut().filter(|packet| packet[0] == 0x45) {
        put_u16(packet, place::V4_ID, 0);
        let length = packet.len();
        put_ip_length(packet, place::V4_BYTES, length);
    }
    packets
}

#[test]
fn coalesced_flow_segments_back_to_its_packets() {
    for six in [false, true] {
        let payloads: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; 1368]).chain(std::iter::once(vec![9; 100])).collect();
        let packets = flow(six, u32::MAX - 5000, &payloads);
        let mut frames = coalesce_all(&packets);
        assert_eq!(frames.len(), 1);
        let (header, _) = Header::split(&mut frames[0]).unwrap();
        assert_eq!((header.segment_bytes, header.needs_checksum), (1368, true));
        assert_eq!(header.kind, if six { Kind::TcpV6 } else { Kind::TcpV4 });
        assert_eq!(without_id(segment_all(&mut frames)), packets);
    }
}

#[test]
fn coalesced_frame_never_exceeds_the_largest_packet() {
    let packets = flow(false, 1, &vec![vec![1; 1368]; 120]);
    let mut frames = coalesce_all(&packets);
    assert_eq!(frames.len(), 3);
    assert!(frames.iter().all(|frame| frame.len() <= HEADER_BYTES + PACKET_MAX_BYTES));
    let segments = segment_all(&mut frames);
    assert_eq!(segments.len(), 120);
}

#[test]
fn packets_that_differ_are_not_coalesced() {
    let first = tcp(false, 1000, flag::ACK, &[1; 500]);
    let next = tcp(false, 1500, flag::ACK, &[2; 500]);
    assert_eq!(coalesce_all(&[first.clone(), next.clone()]).len(), 1);
    // A gap, more payload, FIN, another acknowledgement, a wrong checksum; and nothing may follow PSH or a short
    // packet.
    let mut wrong = next.clone();
    *wrong.last_mut().unwrap() ^= 1;
    for other in [
        tcp(false, 1501, flag::ACK, &[2; 500]),
        tcp(false, 1500, flag::ACK, &[2; 501]),
        tcp(false, 1500, flag::ACK | flag::FIN, &[2; 500]),
        tcp(true, 1500, flag::ACK, &[2; 500]),
        tcp(false, 1500, flag::ACK, b""),
        wrong,
    ] {
        assert_eq!(coalesce_all(&[first.clone(), other]).len(), 2);
    }
    let short = tcp(false, 1500, flag::ACK, &[2; 400]);
    assert_eq!(coalesce_all(&[first.clone(), short, tcp(false, 1900, flag::ACK, &[3; 400])]).len(), 2);
    let pushed = tcp(false, 1000, flag::ACK | flag::PSH, &[1; 500]);
    assert_eq!(coalesce_all(&[pushed, next]).len(), 2);
}

#[test]
fn udp_is_segmented_with_lengths_and_checksums() {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[9] = protocol::UDP;
    packet[12..20].copy_from_slice(&[10, 83, 0, 1, 10, 83, 0, 2]);
    packet.extend((0..250u8).collect::<Vec<_>>());
    let header = Header {
        needs_checksum: true,
        kind: Kind::Udp,
        headers_bytes: 28,
        segment_bytes: 100,
        checksum_start: 20,
        checksum_offset: 6,
    };
    let mut frame = header.bytes().to_vec();
    frame.extend_from_slice(&packet);
    let packets = segment_all(&mut [frame]);
    assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [128, 128, 78]);
    for (number, segment) in packets.iter().enumerate() {
        assert_eq!(usize::from(u16_at(segment, 24)), segment.len() - 20);
        assert_eq!(segment[28..], packet[28 + number * 100..][..segment.len() - 28]);
        let pseudo = checksum::pseudo_header(segment, protocol::UDP, segment.len() - 20);
        assert_eq!(checksum::finish(pseudo + checksum::sum(&segment[20..])), 0);
    }
}

#[test]
fn a_missing_checksum_is_filled_in() {
    let whole = tcp(false, 1, flag::ACK, b"payload");
    let mut partial = whole.clone();
    let pseudo = checksum::fold(checksum::pseudo_header(&whole, protocol::TCP, whole.len() - 20));
    put_u16(&mut partial, 20 + place::TCP_CHECKSUM, pseudo);
    let header = Header { needs_checksum: true, checksum_start: 20, checksum_offset: 16, ..Header::default() };
    let mut frame = header.bytes().to_vec();
    frame.extend_from_slice(&partial);
    assert_eq!(segment_all(&mut [frame]), [whole]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn coalescing_and_segmentation_lose_nothing(
        six in any::<bool>(),
        sequence in any::<u32>(),
        lengths in proptest::collection::vec(1usize..1400, 1..60),
        equal in any::<bool>(),
    ) {
        let payloads: Vec<Vec<u8>> = lengths
            .iter()
            .map(|length| (0..if equal { lengths[0] } else { *length }).map(|n| n as u8).collect())
            .collect();
        let packets = flow(six, sequence, &payloads);
        prop_assert_eq!(without_id(segment_all(&mut coalesce_all(&packets))), packets);
    }

    #[test]
    fn damaged_frames_never_panic(
        frame in proptest::collection::vec(any::<u8>(), 0..120),
        kind in 0u8..6,
        version in prop_oneof![Just(0x45u8), Just(0x60u8), any::<u8>()],
        start in prop_oneof![Just(20u16), Just(40u16), any::<u16>()],
        segment in prop_oneof![0u16..20, any::<u16>()],
    ) {
        let mut frame = frame;
        if frame.len() > HEADER_BYTES {
            frame[1] = kind;
            frame[4..6].copy_from_slice(&segment.to_ne_bytes());
            frame[6..8].copy_from_slice(&start.to_ne_bytes());
            frame[HEADER_BYTES] = version;
        }
        // A frame of a header alone has a kind of its own, beside which there may be ECN's bit.
        let is_whole = Header::split(&mut frame).is_some_and(|(header, _)| header.kind == Kind::Whole);
        Segmenter::new().segment(&mut frame, |packet| assert!(!packet.is_empty() || is_whole));
    }

    #[test]
    fn damaged_packets_pass_unchanged(
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
        keep in any::<prop::sample::Index>(),
    ) {
        let first = tcp(false, 1000, flag::ACK, &[1; 50]);
        let mut second = tcp(false, 1050, flag::ACK, &[2; 50]);
        second[place.index(102)] ^= 1 << bit;
        let whole = coalesce_all(&[first.clone(), second.clone()]);
        prop_assert_eq!(whole.len(), 2);
        prop_assert_eq!(&whole[1][HEADER_BYTES..], &second[..]);
        second.truncate(keep.index(second.len()) + 1);
        coalesce_all(&[first, second]);
    }
}
