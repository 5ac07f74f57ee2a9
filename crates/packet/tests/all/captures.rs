//! Captures of both formats, whole and hostile.

use leadline_packet::capture::{CaptureError, CaptureReader, CutFrames, Selected, Selection, Survey, MAX_FRAME_BYTES};
use proptest::prelude::*;

use crate::frames::{Order, Packet};
use crate::stored_corpus::capture as properties;

type Read = Vec<(Vec<u8>, u32, Option<u64>)>;

fn read(bytes: &[u8]) -> Result<Read, CaptureError> {
    let mut reader = CaptureReader::open(bytes)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        frames.push((frame.bytes.to_vec(), frame.original_bytes, frame.at_ns));
    }
    Ok(frames)
}

fn refused(bytes: &[u8]) -> String {
    read(bytes).expect_err("the capture is refused").to_string()
}

const ORDERS: [Order; 2] = [Order { is_big: false }, Order { is_big: true }];

#[test]
fn pcap_of_either_order_and_resolution_is_read() {
    for order in ORDERS {
        for (is_nano, unit) in [(false, 1000), (true, 1)] {
            let records = [order.record(1, 999_999, 60, &[7; 60]), order.record(2, 5, 1500, &[8; 96])].concat();
            let capture = [order.pcap_header(is_nano, 1), records].concat();
            let expected = [
                (vec![7; 60], 60, Some(1_000_000_000 + 999_999 * unit)),
                (vec![8; 96], 1500, Some(2_000_000_000 + 5 * unit)),
            ];
            assert_eq!(read(&capture).unwrap(), expected, "{order:?} {is_nano}");
        }
    }
}

#[test]
fn pcapng_has_a_resolution_per_interface_and_an_order_per_section() {
    let [little, big] = ORDERS;
    let capture = [
        little.section(),
        little.interface(1, 0, &[(2, b"eth0")]),
        little.interface(1, 0, &[(9, &[9]), (14, &5u64.to_le_bytes())]),
        little.enhanced(0, 1_500_000, 60, &[1; 60]),
        little.block(5, &[0; 16]),
        little.enhanced(1, 1_500_000, 61, &[2; 61]),
        big.section(),
        big.interface(1, 0, &[(9, &[0x80 | 10]), (14, &1u64.to_be_bytes())]),
        big.enhanced(0, 1 << 40, 100, &[3; 62]),
    ]
    .concat();
    let expected = [
        (vec![1; 60], 60, Some(1_500_000_000)),
        (vec![2; 61], 61, Some(5_001_500_000)),
        (vec![3; 62], 100, Some(((1 << 30) + 1) * 1_000_000_000)),
    ];
    assert_eq!(read(&capture).unwrap(), expected);
}

#[test]
fn simple_and_old_packet_blocks_are_read() {
    for order in ORDERS {
        let simple = order.block(3, &[order.u32(90), vec![4; 64]].concat());
        let numbers = [order.u16(0), order.u16(0), order.u32(0), order.u32(77), order.u32(60), order.u32(60)];
        let old = order.block(2, &[numbers.concat(), vec![5; 60]].concat());
        let capture = [order.section(), order.interface(1, 64, &[]), simple, old].concat();
        assert_eq!(read(&capture).unwrap(), [(vec![4; 64], 90, None), (vec![5; 60], 60, Some(77_000))]);
    }
}

#[test]
fn fcs_is_taken_off() {
    let [little, _] = ORDERS;
    let frame = [vec![1; 60], vec![0xee; 4]].concat();
    let header = little.pcap_header(false, 1 | 1 << 26 | 2 << 28);
    let records = [little.record(0, 0, 64, &frame), little.record(0, 0, 100, &frame)].concat();
    assert_eq!(read(&[header, records].concat()).unwrap(), [(vec![1; 60], 60, Some(0)), (frame.clone(), 96, Some(0))]);
    for fcs in [4, 32] {
        let interface = little.interface(1, 0, &[(13, &[fcs])]);
        let capture = [little.section(), interface, little.enhanced(0, 0, 64, &frame)].concat();
        assert_eq!(read(&capture).unwrap(), [(vec![1; 60], 60, Some(0))]);
    }
}

#[test]
fn other_link_types_are_refused_by_name() {
    let [little, big] = ORDERS;
    assert_eq!(
        refused(&big.pcap_header(false, 113)),
        "the capture has frames of link type 113 (Linux cooked, of the interface \"any\"); only Ethernet (1) can be replayed"
    );
    let interfaces = [little.section(), little.interface(1, 0, &[]), little.interface(101, 0, &[])].concat();
    let one = [interfaces.clone(), little.enhanced(0, 0, 60, &[0; 60])].concat();
    assert_eq!(read(&one).unwrap().len(), 1, "an interface without frames hinders nothing");
    assert!(refused(&[one, little.enhanced(1, 0, 60, &[0; 60])].concat()).contains("101 (raw IP)"));
}

#[test]
fn what_is_no_capture_is_said() {
    assert!(refused(b"").contains("ends at byte 0, within its first number"));
    assert!(refused(b"GET / HTTP/1.1").contains("not a capture"));
    assert!(refused(&[0x1f, 0x8b, 8, 0, 0]).contains("gunzip"));
    assert!(refused(&[0x28, 0xb5, 0x2f, 0xfd]).contains("zstd"));
    assert!(refused(&[0x34, 0xcd, 0xb2, 0xa1]).contains("editcap"));
}

#[test]
fn hostile_numbers_are_refused_where_they_are() {
    let [little, _] = ORDERS;
    let header = little.pcap_header(false, 1);
    let long = [u32::MAX, MAX_FRAME_BYTES + 1];
    for bytes in long {
        let head = [0, 0, bytes, bytes].map(|number| little.u32(number)).concat();
        let said = refused(&[header.clone(), head].concat());
        assert!(said.contains(&format!("a frame of {bytes} bytes at byte 40")), "{said}");
    }
    let fraction = [header.clone(), little.record(0, 1_000_000, 60, &[0; 60])].concat();
    assert!(refused(&fraction).contains("a fraction of a second that is none at byte 24"));
    let cut = [header, little.record(0, 0, 60, &[0; 60])].concat();
    for length in 25..cut.len() {
        assert!(refused(&cut[..length]).contains(&format!("ends at byte {length}")), "{length}");
    }
    let section = [little.section(), little.interface(1, 0, &[])].concat();
    let block = |length: u32, body: &[u8]| [&section[..], &little.u32(6), &little.u32(length), body].concat();
    for length in [0, 4, 11, 13, 35] {
        assert!(refused(&block(length, &[0; 64])).contains("length of a block"), "{length}");
    }
    assert!(refused(&block(16, &[0; 64])).contains("too short"));
    let long = [0, 0, 0, u32::MAX, 1].map(|number| little.u32(number)).concat();
    assert!(refused(&block(64, &[long, vec![0; 64]].concat())).contains("longer than its block"));
    let skipped = [&section[..], &little.u32(0x0bad), &little.u32(u32::MAX - 3), &[0; 100]].concat();
    assert!(refused(&skipped).contains("within a block"));
    let alien = [section.clone(), little.enhanced(9, 0, 60, &[0; 60])].concat();
    assert!(refused(&alien).contains("an interface that was not described"));
    let mut unequal = [section, little.enhanced(0, 0, 60, &[0; 60])].concat();
    let last = unequal.len() - 4;
    unequal[last] ^= 1;
    assert!(refused(&unequal).contains("two lengths differ"));
}

#[test]
fn interfaces_without_end_are_refused() {
    let [little, _] = ORDERS;
    let capture = [little.section(), little.interface(1, 0, &[]).repeat(4097)].concat();
    assert!(refused(&capture).contains("number of interfaces"));
}

#[test]
fn cut_frames_are_refused_left_out_or_padded() {
    let [little, _] = ORDERS;
    let whole = Packet::new("10.0.0.1", "10.0.0.2", 17, &[0; 200]).frame();
    let frames = [
        little.record(0, 0, 60, &[1; 60]),
        little.record(1, 0, whole.len() as u32, &whole[..96]),
        little.record(3, 0, 10, &[1; 10]),
        little.record(2, 0, 2000, &[1; 2000]),
    ];
    let capture = [little.pcap_header(false, 1), frames.concat()].concat();
    let survey = |cut| {
        let selection = Selection { cut, max_frame_bytes: 1514 };
        Survey::take(CaptureReader::open(&capture[..]).unwrap(), &selection).unwrap().0
    };
    let skipping = Survey {
        frames: 1,
        bytes: 60,
        cut: 1,
        too_long: 1,
        longest_bytes: 2000,
        too_short: 1,
        span_ns: 3_000_000_000,
        ..Survey::default()
    };
    assert_eq!(survey(CutFrames::Skip), skipping);
    assert_eq!(survey(CutFrames::Refuse), skipping);
    let bytes = 60 + whole.len() as u64;
    assert_eq!(survey(CutFrames::Pad), Survey { frames: 2, bytes, padded: 1, cut: 0, ..skipping });

    let mut reader = CaptureReader::open(&capture[..]).unwrap();
    reader.next_frame().unwrap();
    let cut = reader.next_frame().unwrap().unwrap();
    let mut copy = vec![9; 3000];
    let selection = Selection { cut: CutFrames::Pad, max_frame_bytes: 1514 };
    assert_eq!(selection.copy(&cut, &mut copy), Selected::Padded);
    assert_eq!(copy, whole, "its payload was zeros");
}

fn capture() -> impl Strategy<Value = Vec<u8>> {
    let order = any::<bool>().prop_map(|is_big| Order { is_big });
    let piece = (0..6u8, any::<u64>(), 0u32..200, proptest::collection::vec(any::<u8>(), 0..90));
    let pieces = proptest::collection::vec(piece, 0..12);
    (order, any::<bool>(), any::<bool>(), pieces).prop_map(|(order, is_nano, is_old, pieces)| {
        let mut bytes =
            if is_old { order.pcap_header(is_nano, 1) } else { [order.section(), order.interface(1, 0, &[])].concat() };
        for (kind, number, more, frame) in pieces {
            bytes.extend(match kind {
                _ if is_old => order.record(number as u32, (number >> 45) as u32, frame.len() as u32 + more, &frame),
                0 => order.interface(number as u16 % 3, more, &[(9, &[(number >> 8) as u8])]),
                1 => order.block(3, &[order.u32(more), frame].concat()),
                2 => order.block(number as u32, &frame),
                _ => order.enhanced(number as u32 % 2, number >> 20, frame.len() as u32 + more, &frame),
            });
        }
        bytes
    })
}

proptest! {
    #[test]
    fn broken_captures_never_panic(
        mut bytes in capture(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), prop_oneof![Just(0u8), Just(0xff), any::<u8>()]), 0..6),
        keep in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(keep.index(bytes.len()));
        }
        properties::captures(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        properties::captures(&bytes);
        properties::frames(&bytes);
    }
}
