//! The programs against what they stand for: the generator's frames against `Image::number`, the receiver's counts against
//! `FlowAccount`. Without the right to use BPF there is nothing to run; the lab's tests, which have it, count real frames.

use leadline_packet::account::FlowAccount;
use leadline_packet::bpf::bucket;
use leadline_packet::bpf::generator::{control, FlowOrder, GeneratorProgram};
use leadline_packet::bpf::receiver::{account_at, block, ReceiverProgram, Verdict, ACCOUNT_BYTES, BLOCK_BYTES};
use leadline_packet::bpf::Assembler;
use leadline_packet::flows::Random;
use leadline_packet::frame::FramePlan;
use leadline_packet::pktgen::header;
use leadline_packet::trailer::Trailer;
use leadline_stats::Histogram;
use leadline_sys::bpf::{Program, SharedMap};
use leadline_wire::{
    AddressRange, FieldOrder, FrameSize, FrameSpec, FrameTransport, OuterKind, OuterSpec, PacketFlows, PktgenStreams,
    PortRange, VlanSpec,
};

use super::path::require_bpf;

const TEST_ID: u32 = 0x1ead_11e0;

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange { first: first.to_owned(), last: last.to_owned(), order: FieldOrder::InTurn }
}

fn spec(bytes: u32) -> FrameSpec {
    FrameSpec {
        sizes: vec![FrameSize { bytes, count: 1 }],
        source_mac: Some("02:00:00:00:00:01".to_owned()),
        destination_mac: Some("02-00-00-00-00-02".to_owned()),
        vlans: Vec::new(),
        outer: None,
        sources: Some(range("198.18.0.1", "198.18.0.1")),
        destinations: range("198.18.0.2", "198.18.0.9"),
        transport: FrameTransport::Udp,
        source_ports: PortRange { first: 1024, last: 2047, order: FieldOrder::InTurn },
        destination_ports: PortRange { first: 9, last: 9, order: FieldOrder::InTurn },
        ttl: 64,
        dscp: 46,
        has_udp_checksum: true,
        template: None,
    }
}

/// One frame of each kind.
fn kinds() -> Vec<(&'static str, FrameSpec)> {
    let v6 = |spec: FrameSpec| FrameSpec {
        sources: Some(range("fd00::1", "fd00::1")),
        destinations: range("fd00::2", "fd00::9"),
        ..spec
    };
    let tag = |protocol, number| VlanSpec { protocol, first: number, last: number + 2, priority: 5 };
    let tunnel = |kind, identifier| OuterSpec {
        kind,
        source: "192.0.2.1".to_owned(),
        destination: "192.0.2.2".to_owned(),
        identifier,
    };
    let of = |transport| FrameSpec { transport, ..spec(97) };
    vec![
        ("udp", spec(60)),
        ("udp of odd length", spec(61)),
        ("udp without a checksum", FrameSpec { has_udp_checksum: false, ..spec(60) }),
        ("udp over IPv6", v6(spec(80))),
        ("tcp-syn", of(FrameTransport::TcpSyn)),
        ("tcp-ack", v6(of(FrameTransport::TcpAck))),
        ("icmp", of(FrameTransport::IcmpEcho)),
        ("icmp over IPv6", v6(of(FrameTransport::IcmpEcho))),
        ("vlan", FrameSpec { vlans: vec![tag(0x8100, 7)], ..spec(65) }),
        ("qinq", FrameSpec { vlans: vec![tag(0x88a8, 100), tag(0x8100, 7)], ..spec(90) }),
        ("gre", FrameSpec { outer: Some(tunnel(OuterKind::Gre, Some(9))), ..spec(200) }),
        ("vxlan", FrameSpec { outer: Some(tunnel(OuterKind::Vxlan, Some(4096))), ..spec(201) }),
        ("template", FrameSpec { template: Some("02 00 00 00 00 02 020000000001 88b5".to_owned()), ..spec(60) }),
    ]
}

fn flows(count: u32) -> PacketFlows {
    PacketFlows { count, order: FieldOrder::InTurn, zipf: None, seed: 1 }
}

struct Generator {
    map: SharedMap,
    layout: GeneratorProgram,
    program: Program,
    plan: FramePlan,
    count: u32,
}

impl Generator {
    fn new(spec: &FrameSpec, count: u32, stamp_every: u32, order: FlowOrder) -> Self {
        let plan = FramePlan::parse(spec, &flows(count), stamp_every > 0).unwrap();
        let bytes = plan.sizes[0].bytes;
        let image = |flow| plan.image((flow, 0), count, bytes, ([0; 6], [0; 6], None));
        let first = image(0);
        let mut layout = GeneratorProgram {
            map: -1,
            interface: 1,
            frame_bytes: bytes as usize,
            header_bytes: first.header_bytes,
            checksum: first.checksum,
            flows: count,
            order,
            test_id: TEST_ID,
            is_timed: plan.is_timed,
            stamp_every,
            step: None,
        };
        let mut map = SharedMap::new(layout.shared_bytes()).unwrap();
        layout.map = map.number();
        for flow in 0..count {
            let at = layout.record_at(flow);
            layout.write_record(&mut map.bytes_mut()[at..at + layout.record_bytes()], flow, &image(flow));
        }
        map.write(control::RANDOM, Random::new(1).state());
        let program = Program::load(&layout.assemble()).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        Self { map, layout, program, plan, count }
    }

    /// One frame, written over one that a router has left.
    fn frame(&self) -> Vec<u8> {
        let mut page = vec![0xa5; self.layout.frame_bytes];
        let trailer = if self.plan.is_timed { 18 } else { 10 };
        let rest = self.layout.header_bytes..self.layout.frame_bytes - trailer;
        page[rest].fill(0);
        let (verdict, frame) = self.program.try_on(&page).unwrap();
        const XDP_REDIRECT: u32 = 4;
        assert_eq!(verdict, XDP_REDIRECT);
        frame
    }
}

#[test]
fn every_kind_of_frame_is_that_of_its_image() {
    if require_bpf().is_err() {
        return;
    }
    for (name, spec) in kinds() {
        let generator = Generator::new(&spec, 3, 0, FlowOrder::InTurn);
        for number in 0..9u32 {
            let (flow, sequence) = (number % 3, number / 3);
            let bytes = generator.layout.frame_bytes as u32;
            let mut image = generator.plan.image((flow, 0), generator.count, bytes, ([0; 6], [0; 6], None));
            image.number(&Trailer { test_id: TEST_ID, flow, sequence, time_ns: None }, false);
            assert_eq!(generator.frame(), image.bytes, "{name}, frame {number}");
        }
        assert_eq!(generator.map.read(control::SENT), 9, "{name}");
    }
}

#[test]
fn stamped_frames_have_their_time_and_its_checksum() {
    if require_bpf().is_err() {
        return;
    }
    for spec in [spec(60), spec(61)] {
        let generator = Generator::new(&spec, 1, 2, FlowOrder::InTurn);
        for sequence in 0..6 {
            let before_ns = leadline_sys::clock::monotonic_ns();
            let frame = generator.frame();
            let trailer = Trailer::read(&frame, TEST_ID, true).unwrap();
            assert_eq!((trailer.sequence, trailer.time_ns.is_some()), (sequence, sequence % 2 == 0));
            assert!(trailer.time_ns.is_none_or(|ns| (before_ns..=leadline_sys::clock::monotonic_ns()).contains(&ns)));
            let mut image = generator.plan.image((0, 0), 1, spec.sizes[0].bytes, ([0; 6], [0; 6], None));
            image.number(&trailer, true);
            assert_eq!(frame, image.bytes);
        }
    }
}

#[test]
fn flows_at_random_are_those_of_the_generator_in_code() {
    if require_bpf().is_err() {
        return;
    }
    let generator = Generator::new(&spec(60), 100, 0, FlowOrder::Random);
    let mut random = Random::new(1);
    for _ in 0..200 {
        let flow = Trailer::read(&generator.frame(), TEST_ID, false).unwrap().flow;
        assert_eq!(flow, random.below(100));
    }
}

#[test]
fn sequence_goes_on_behind_its_last_number() {
    if require_bpf().is_err() {
        return;
    }
    let mut generator = Generator::new(&spec(60), 1, 0, FlowOrder::InTurn);
    let at = GeneratorProgram::next_at(generator.layout.record_at(0));
    generator.map.bytes_mut()[at..at + 4].copy_from_slice(&0x0fff_ffffu32.to_ne_bytes());
    let numbers = [(); 3].map(|()| Trailer::read(&generator.frame(), TEST_ID, false).unwrap().sequence);
    assert_eq!(numbers, [0x0fff_ffff, 0, 1]);
    assert_eq!(generator.map.read_half(at), 0x1000_0002);
}

struct Receiver {
    blocks: SharedMap,
    accounts: SharedMap,
    cpus: usize,
    program: Program,
}

impl Receiver {
    fn new(flows: u32, verdict: Verdict, measures_delay: bool) -> Self {
        Self::load(flows, verdict, measures_delay, None)
    }

    fn load(flows: u32, verdict: Verdict, measures_delay: bool, pktgen: Option<PktgenStreams>) -> Self {
        let cpus = leadline_sys::usage::cpus_possible();
        let blocks = SharedMap::new(BLOCK_BYTES * cpus).unwrap();
        let accounts = SharedMap::new(ACCOUNT_BYTES * flows as usize).unwrap();
        let layout = ReceiverProgram {
            blocks: blocks.number(),
            cpus: cpus as u32,
            accounts: accounts.number(),
            flows,
            test_id: TEST_ID,
            pktgen,
            verdict,
            measures_delay,
            clock_ahead_ns: 0,
        };
        let program = Program::load(&layout.assemble()).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        Self { blocks, accounts, cpus, program }
    }

    fn sum(&self, at: usize) -> u64 {
        (0..self.cpus).map(|cpu| self.blocks.read(cpu * BLOCK_BYTES + at)).sum()
    }
}

fn numbered(flow: u32, sequence: u32, time_ns: Option<u64>) -> Vec<u8> {
    let mut frame = vec![0; 64];
    Trailer { test_id: TEST_ID, flow, sequence, time_ns }.write(&mut frame, true);
    frame
}

#[test]
fn receiver_keeps_the_account_of_every_flow() {
    if require_bpf().is_err() {
        return;
    }
    let receiver = Receiver::new(4, Verdict::Drop, false);
    let mut expected = [FlowAccount::default(); 4];
    let mut random = Random::new(3);
    // Near the last number, with duplicates, gaps, and frames behind the window.
    let mut next = [0x0fff_ffe0u32, 0, 5, 1 << 20];
    for _ in 0..2000 {
        let flow = random.below(4) as usize;
        next[flow] = next[flow].wrapping_add(random.below(3));
        let sequence = next[flow].wrapping_sub(random.below(80)) & 0x0fff_ffff;
        const XDP_DROP: u32 = 1;
        assert_eq!(receiver.program.try_on(&numbered(flow as u32, sequence, None)).unwrap().0, XDP_DROP);
        expected[flow].count(sequence);
    }
    for (flow, expected) in (0..).zip(&expected) {
        assert_eq!(account_at(|at| receiver.accounts.read(at), flow), *expected, "flow {flow}");
    }
    assert!(expected.iter().all(|account| account.duplicates > 0 && account.behind > 0 && account.reordered > 0));
    assert_eq!(receiver.sum(block::LENGTHS + 8 * 64), 2000);
}

#[test]
fn frames_of_others_pass_and_unknown_flows_are_counted_apart() {
    if require_bpf().is_err() {
        return;
    }
    let receiver = Receiver::new(2, Verdict::Drop, true);
    const XDP_PASS: u32 = 2;
    assert_eq!(receiver.program.try_on(&[0; 60]).unwrap().0, XDP_PASS);
    assert_eq!(receiver.program.try_on(&[0xff; 14]).unwrap().0, XDP_PASS);
    receiver.program.try_on(&numbered(2, 0, None)).unwrap();
    receiver.program.try_on(&numbered(0xf_ffff, 0, None)).unwrap();
    assert_eq!((receiver.sum(block::FOREIGN), receiver.sum(block::BEYOND)), (2, 2));
}

/// A frame of pktgen, whose header is at this place.
fn of_pktgen(at: usize, source_port: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0; at + 18];
    frame[at - header::PORT_BEFORE..at - header::PORT_BEFORE + 2].copy_from_slice(&source_port.to_be_bytes());
    frame[at..at + 4].copy_from_slice(&header::MAGIC.to_be_bytes());
    frame[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
    frame
}

#[test]
fn numbers_of_pktgen_are_counted_by_stream() {
    if require_bpf().is_err() {
        return;
    }
    let streams = PktgenStreams { first_port: 1024, ports: 4, has_numbers: true };
    let receiver = Receiver::load(2, Verdict::Drop, false, Some(streams));
    let mut expected = [FlowAccount::default(); 2];
    // Lost, duplicated and reordered, behind tags and IPv6, and beyond 28 bits.
    let numbers = [1u32, 2, 4, 3, 3, 9, (1 << 28) - 1, 1 << 28, (1 << 28) + 1, (1 << 28) + 3];
    for (place, number) in numbers.into_iter().enumerate() {
        let port = 1024 + place as u16 % 8;
        let frame = of_pktgen([42, 46, 62, 110][place % 4], port, number);
        let header = header::Header::find(&frame).unwrap();
        expected[header.stream(1024, 4) as usize].count(header.sequence);
        const XDP_DROP: u32 = 1;
        assert_eq!(receiver.program.try_on(&frame).unwrap().0, XDP_DROP);
    }
    for (flow, expected) in (0..).zip(&expected) {
        assert_eq!(account_at(|at| receiver.accounts.read(at), flow), *expected, "stream {flow}");
    }
    // Frames of others, one of our own test, and streams that there are not.
    for frame in [vec![0; 60], numbered(0, 0, None), of_pktgen(44, 1024, 1), of_pktgen(42, 1024, 1)[..49].to_vec()] {
        assert_eq!(receiver.program.try_on(&frame).unwrap().0, 2);
    }
    receiver.program.try_on(&of_pktgen(42, 1023, 1)).unwrap();
    receiver.program.try_on(&of_pktgen(42, 1032, 1)).unwrap();
    assert_eq!((receiver.sum(block::FOREIGN), receiver.sum(block::BEYOND)), (4, 2));
}

#[test]
fn copies_of_pktgen_are_counted_without_their_numbers() {
    if require_bpf().is_err() {
        return;
    }
    let streams = PktgenStreams { first_port: 0, ports: 0, has_numbers: false };
    let receiver = Receiver::load(1, Verdict::Drop, false, Some(streams));
    for _ in 0..5 {
        receiver.program.try_on(&of_pktgen(42, 9, 7)).unwrap();
    }
    let expected = FlowAccount { frames: 5, ..FlowAccount::default() };
    assert_eq!(account_at(|at| receiver.accounts.read(at), 0), expected);
}

#[test]
fn delays_are_in_the_histogram_of_their_time() {
    if require_bpf().is_err() {
        return;
    }
    let receiver = Receiver::new(1, Verdict::Drop, true);
    let now_ns = leadline_sys::clock::monotonic_ns();
    (0..receiver.cpus)
        .for_each(|cpu| receiver.blocks.write(cpu * BLOCK_BYTES + block::WARM_UNTIL_NS, now_ns - 5_000_000_000));
    let second = 1_000_000_000;
    for (sequence, sent_ns) in [(0, now_ns - 10 * second), (1, now_ns - second), (2, now_ns + 100 * second)] {
        receiver.program.try_on(&numbered(0, sequence, Some(sent_ns))).unwrap();
    }
    receiver.program.try_on(&numbered(0, 3, None)).unwrap();
    let histogram = |at: usize| {
        let mut histogram = Histogram::new();
        histogram.add_counts((1..=bucket::BUCKETS).map(|place| receiver.sum(at + 8 * place)), receiver.sum(at));
        (histogram.count(), histogram.max_ns().map(|ns| ns / second))
    };
    assert_eq!(histogram(block::WARM_UP), (1, Some(10)));
    assert_eq!(histogram(block::DELAYS), (1, Some(1)));
    assert_eq!(receiver.sum(block::FROM_FUTURE), 1);
}

#[test]
fn every_duration_has_the_bucket_of_the_histogram_in_code() {
    if require_bpf().is_err() {
        return;
    }
    let map = SharedMap::new(16 + bucket::HISTOGRAM_BYTES).unwrap();
    let mut program = Assembler::new();
    program.map_value(6, map.number(), 0);
    program.load(leadline_packet::bpf::Width::Double, 1, 6, 0);
    program.map_value(2, map.number(), 16);
    bucket::count(&mut program, 1, 2, 3, 4);
    program.set(0, 2);
    program.exit();
    let program = Program::load(&program.finish()).unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let mut expected = Histogram::new();
    for bits in 0..64 {
        for value in [1u64 << bits, (1u64 << bits) - 1, (1 << bits) + (1 << bits) / 3] {
            map.write(0, value);
            program.try_on(&[0; 60]).unwrap();
            expected.record(value);
        }
    }
    let mut found = Histogram::new();
    found.add_counts((1..=bucket::BUCKETS).map(|place| map.read(16 + 8 * place)), map.read(16));
    assert_eq!(found.recorded().collect::<Vec<_>>(), expected.recorded().collect::<Vec<_>>());
    assert_eq!(found.overflow(), expected.overflow());
}

#[test]
fn echoed_frames_return_with_right_checksums() {
    if require_bpf().is_err() {
        return;
    }
    let receiver = Receiver::new(3, Verdict::Echo, false);
    for (name, spec) in kinds().into_iter().filter(|(name, _)| !["template", "gre", "vxlan"].contains(name)) {
        let generator = Generator::new(&spec, 1, 0, FlowOrder::InTurn);
        let frame = generator.frame();
        let (verdict, echoed) = receiver.program.try_on(&frame).unwrap();
        const XDP_TX: u32 = 3;
        assert_eq!(verdict, XDP_TX, "{name}");
        assert_eq!((&echoed[..6], &echoed[6..12]), (&frame[6..12], &frame[..6]), "{name}");
        // The frame that the far end would have sent: its checksum is computed from the start.
        let ends = |spec: &FrameSpec| (spec.sources.clone().unwrap(), spec.destinations.clone());
        let (sources, destinations) = ends(&spec);
        let is_echo = spec.transport == FrameTransport::IcmpEcho;
        let single = |range: AddressRange| AddressRange { last: range.first.clone(), ..range };
        let port = |first| PortRange { first, last: first, order: FieldOrder::InTurn };
        let (source_port, destination_port) = (1024, 9);
        let back = FrameSpec {
            source_mac: spec.destination_mac.clone(),
            destination_mac: spec.source_mac.clone(),
            sources: Some(single(destinations)),
            destinations: single(sources),
            source_ports: port(if is_echo { source_port } else { destination_port }),
            destination_ports: port(source_port),
            ..spec
        };
        let mut expected = Generator::new(&back, 1, 0, FlowOrder::InTurn).frame();
        if is_echo {
            // A reply instead of a request: the same sums, but for the type.
            let v6 = expected.len() != echoed.len() || name.contains("IPv6");
            let at = if v6 { 54 } else { 34 };
            let (request, reply) = if v6 { (128u16, 129u16) } else { (8, 0) };
            let sum = |frame: &[u8]| u16::from_be_bytes([frame[at + 2], frame[at + 3]]);
            let folded = |value: u32| (value & 0xffff) + (value >> 16);
            let moved = folded(folded(u32::from(!sum(&expected)) + u32::from(!(request << 8)) + u32::from(reply << 8)));
            expected[at] = reply as u8;
            expected[at + 2..at + 4].copy_from_slice(&(!(moved as u16)).to_be_bytes());
        }
        assert_eq!(echoed, expected, "{name}");
    }
    assert_eq!(receiver.sum(block::ECHOED), 10);
}
