//! Captures made by anyone: read in bounded memory to an end or an error, and rewritten without a panic.

use leadline_packet::capture::{
    AddressMap, CaptureReader, CutFrames, Rewrite, Schedule, Selection, Survey, Timing, VlanMap, MAX_FRAME_BYTES,
};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 2] = [("packet_capture", captures), ("packet_rewrite", frames)];

/// The bytes as one capture: a survey and the frames themselves agree, and no due time lies before the one before it.
pub fn captures(data: &[u8]) {
    let selection = Selection { cut: CutFrames::Pad, max_frame_bytes: 9018 };
    let survey = CaptureReader::open(data).and_then(|reader| Survey::take(reader, &selection));
    let Ok(mut reader) = CaptureReader::open(data) else {
        assert!(survey.is_err());
        return;
    };
    let mut schedule = Schedule::new(Timing::own(2.0).expect("the speed is valid"), None);
    let (mut copy, mut sent, mut last_ns) = (Vec::new(), 0, 0);
    let rewrite = rewrite();
    let is_read = loop {
        let frame = match reader.next_frame() {
            Ok(Some(frame)) => frame,
            end => break end.is_ok(),
        };
        assert!(frame.bytes.len() <= (MAX_FRAME_BYTES as usize).min(data.len()));
        assert!(frame.original_bytes as usize >= frame.bytes.len());
        let due_ns = schedule.next_due_ns(frame.at_ns, frame.bytes.len());
        assert!(due_ns >= last_ns);
        last_ns = due_ns;
        if selection.copy(&frame, &mut copy).is_sent() {
            sent += 1;
            rewrite.apply(&mut copy, 1);
        }
    };
    assert_eq!(is_read, survey.is_ok());
    assert!(survey.is_err() || survey.is_ok_and(|(survey, _)| survey.frames == sent));
}

/// The bytes as one frame: its length stays, and so do checksums that were computed.
pub fn frames(data: &[u8]) {
    let mut frame = data.to_vec();
    rewrite().apply(&mut frame, 3);
    assert_eq!(frame.len(), data.len());
    let whole = Rewrite { is_whole: true, ..Rewrite::default() };
    whole.apply(&mut frame, 0);
    let once = frame.clone();
    whole.apply(&mut frame, 0);
    assert_eq!(frame, once, "checksums that are right stay");
}

fn rewrite() -> Rewrite {
    let map = |from: &str, to: &str, bits| {
        let address = |text: &str| text.parse().expect("the address is valid");
        AddressMap::new(address(from), address(to), bits).expect("the prefix is valid")
    };
    let maps =
        vec![map("10.0.0.0", "192.168.0.0", 8), map("0.0.0.0", "172.16.0.1", 1), map("fd00::", "2001:db8::", 16)];
    Rewrite {
        source_mac: Some([2, 0, 0, 0, 0, 1]),
        destination_mac: Some([2, 0, 0, 0, 0, 2]),
        sources: maps.clone(),
        destinations: maps,
        vlans: vec![VlanMap { from: Some(5), to: 6 }, VlanMap { from: None, to: 7 }],
        has_new_addresses: true,
        is_whole: false,
    }
}
