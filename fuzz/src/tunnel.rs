//! Packets and datagrams from anybody: joined, cut, decrypted or dropped and counted, never trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use leadline_tunnel::inside::icmp::{self, Message};
use leadline_tunnel::inside::tcp::{Buffers, Connection, Stack};
use leadline_tunnel::inside::{ip, Echo, Ends, Packet, Udp};
use leadline_tunnel::offload::{Cutter, Joiner, FRAME_MAX_BYTES};
use leadline_tunnel::wireguard::{Machine, Output, PeerConfig, PrivateKey};

/// What is handed random bytes, and must not panic.
pub type Target = fn(&[u8]);

/// The targets by their names.
pub const TARGETS: [(&str, Target); 3] =
    [("tunnel_offload", offload), ("tunnel_wireguard", wireguard), ("tunnel_inside", inside)];

/// Packets, each behind its length in two bytes: joined, and what comes of it cut again; and the bytes as one frame.
pub fn offload(data: &[u8]) {
    let (mut joiner, mut cutter) = (Joiner::new(), Cutter::new());
    let mut frame = data.to_vec();
    cutter.cut(&mut frame, |packet| assert!(packet.len() <= data.len()));
    let mut joined = 0;
    let mut take = |joiner: &mut Joiner, joined: &mut usize| {
        if let Some((frame, packets)) = joiner.take() {
            assert!(frame.len() <= FRAME_MAX_BYTES && packets == *joined);
            let mut cut = 0;
            let sound = cutter.cut(&mut frame.to_vec(), |_| cut += 1);
            assert!(sound && cut == packets, "{cut} packets out of {packets}");
        }
        *joined = 0;
    };
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)) % 2048;
        let (packet, after) = after.split_at(after.len().min(length));
        rest = after;
        if !joiner.push(packet) {
            take(&mut joiner, &mut joined);
            assert!(joiner.push(packet), "an empty joiner takes any packet");
        }
        joined += 1;
    }
    take(&mut joiner, &mut joined);
}

/// Datagrams, each behind its length in two bytes, to an interface with one peer.
pub fn wireguard(data: &[u8]) {
    let peer = PeerConfig {
        public_key: PrivateKey::from_bytes([2; 32]).public(),
        endpoint: Some(([127, 0, 0, 1], 9).into()),
        allowed_ips: ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("it is a prefix")).to_vec(),
        keepalive_s: None,
    };
    let mut machine = Machine::new(&PrivateKey::from_bytes([1; 32]), &[peer]).expect("it is an interface");
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
        assert!(!matches!(output, Output::Deliver { .. }), "nobody without the keys gets a packet through");
        machine.handle_packet(datagram, &mut space);
    }
    let counters = machine.counters();
    assert_eq!(counters.received.packets, 0);
    assert!(counters.dropped.from_network() <= taken);
}

const OWN: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 8, 0, 2), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
const FAR: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 8, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const MTU: u16 = 1400;

/// What comes out of a tunnel, to a client with two connections: steps, each a byte for its kind and one for its length. Whole
/// packets, what follows a sound IP header, TCP that fits a connection but for what the bytes say, and time.
pub fn inside(data: &[u8]) {
    let mut stack = Stack::new(Some(OWN.0), Some(OWN.1), MTU, 7, 0);
    let buffers = Buffers { receive_bytes: 4096, send_bytes: 4096 };
    let [v4, v6] = [IpAddr::V4(FAR.0), IpAddr::V6(FAR.1)]
        .map(|far| stack.connect(0, SocketAddr::new(far, 80), buffers).expect("there is an address of each family"));
    let mut far = [Far::new(&stack, v4), Far::new(&stack, v6)];
    let mut now_ns = 0;
    settle(&mut stack, &mut far, now_ns);
    let mut rest = data;
    while let [kind, length, after @ ..] = rest {
        let (piece, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        let is_v6 = usize::from(kind & 1);
        let packet = match kind >> 1 & 3 {
            0 => piece.to_vec(),
            1 => {
                let [protocol, transport @ ..] = piece else { continue };
                whole(far[is_v6].ends, *protocol, transport)
            }
            2 => {
                let [flags, sequence, acknowledged, window, more @ ..] = piece else { continue };
                far[is_v6].segment(*flags, *sequence, *acknowledged, *window, more)
            }
            _ => {
                now_ns += u64::from(*length) * 100_000_000;
                Vec::new()
            }
        };
        look_at(&packet);
        stack.handle(now_ns, &packet);
        for connection in [v4, v6] {
            if kind & 16 != 0 {
                stack.fill(connection, 100);
            }
            if kind & 32 != 0 {
                stack.read(connection, |bytes| bytes.len());
            }
            if kind & 192 == 192 {
                stack.close(connection);
            }
        }
        settle(&mut stack, &mut far, now_ns);
    }
    stack.abort(v4);
    stack.close(v6);
    settle(&mut stack, &mut far, now_ns + 1);
}

/// What the stateless readers make of a packet.
fn look_at(packet: &[u8]) {
    for (own, far) in [(IpAddr::V4(OWN.0), IpAddr::V4(FAR.0)), (IpAddr::V6(OWN.1), IpAddr::V6(FAR.1))] {
        let echo = Echo::new(own, far, 9).expect("of one family");
        let reply = echo.matches(packet);
        assert!(reply.is_none_or(|reply| reply.packet_bytes <= packet.len()));
        assert!(reply.is_none() || echo.refusal(packet).is_none());
        let udp = Udp::new(SocketAddr::new(own, 7), SocketAddr::new(far, 7)).expect("of one family");
        assert!(udp.matches(packet).is_none_or(|payload| payload.len() < packet.len()));
        let _ = udp.refusal(packet);
    }
    let mut out = Vec::new();
    if icmp::answer(packet, &mut out) {
        let reply = Packet::parse(&out).expect("what is made here is sound");
        assert!(matches!(Message::parse(&reply), Ok(Some(Message::EchoReply(_)))));
        assert!(out.len() <= packet.len());
    } else {
        assert!(out.is_empty());
    }
}

/// The far end of a connection, as much as it takes to write segments that fit.
struct Far {
    ends: Ends,
    port: u16,
    /// What comes next from the client.
    next: u32,
    sequence: u32,
}

impl Far {
    fn new(stack: &Stack, connection: Connection) -> Self {
        let local = stack.local(connection);
        let far = if local.is_ipv4() { IpAddr::V4(FAR.0) } else { IpAddr::V6(FAR.1) };
        Self { ends: Ends::new(far, local.ip()).expect("of one family"), port: local.port(), next: 0, sequence: 1000 }
    }

    /// A segment: its flags, then how far its numbers are from what is expected, a window, and what follows: options' words first.
    fn segment(&mut self, flags: u8, sequence: u8, acknowledged: u8, window: u8, more: &[u8]) -> Vec<u8> {
        let off = |byte: u8| u32::from(byte).wrapping_sub(128) << (byte & 7);
        let number = |expected: u32, byte: u8| if byte == 0 { expected } else { expected.wrapping_add(off(byte)) };
        let (options, payload) = more.split_at(more.len().min(usize::from(flags >> 5) * 4) / 4 * 4);
        let mut segment = Vec::new();
        segment.extend_from_slice(&80u16.to_be_bytes());
        segment.extend_from_slice(&self.port.to_be_bytes());
        segment.extend_from_slice(&number(self.sequence, sequence).to_be_bytes());
        segment.extend_from_slice(&number(self.next, acknowledged).to_be_bytes());
        segment.extend_from_slice(&[((5 + options.len() / 4) as u8) << 4, flags & 0x1f, window, 0, 0, 0, 0, 0]);
        segment.extend_from_slice(options);
        segment.extend_from_slice(payload);
        if sequence == 0 {
            self.sequence = self.sequence.wrapping_add(payload.len() as u32 + u32::from(flags & 3 != 0));
        }
        whole(self.ends, ip::protocol::TCP, &segment)
    }
}

/// A packet with sound headers, and the checksum right where the transport has one in the usual place.
fn whole(ends: Ends, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    ends.write(protocol, transport.len(), &mut packet);
    let start = packet.len();
    packet.extend_from_slice(transport);
    let (at, pseudo) = match protocol {
        ip::protocol::TCP => (16, true),
        ip::protocol::UDP => (6, true),
        ip::protocol::ICMP_V6 => (2, true),
        ip::protocol::ICMP => (2, false),
        _ => return packet,
    };
    if let Some(place) = packet.get_mut(start + at..start + at + 2) {
        place.fill(0);
        let pseudo = if pseudo { ends.pseudo_header(protocol, transport.len()) } else { 0 };
        let words = packet[start..]
            .chunks(2)
            .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)));
        let mut sum: u64 = pseudo + words.sum::<u64>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        packet[start + at..start + at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    packet
}

/// The client sends what it has: all of it sound, from its own addresses, within the MTU, and not without end.
fn settle(stack: &mut Stack, far: &mut [Far; 2], now_ns: u64) {
    let mut sent = 0;
    stack.poll(now_ns, &mut |bytes| {
        sent += 1;
        assert!(sent < 1000, "the stack never stops");
        assert!(bytes.len() <= usize::from(MTU));
        let packet = Packet::parse(bytes).expect("what it sends is sound");
        let far = &mut far[usize::from(packet.ends.is_v6())];
        assert_eq!(packet.ends.source(), far.ends.destination(), "it speaks for itself alone");
        if packet.protocol == ip::protocol::TCP {
            assert!(packet.checks());
            let word = |at: usize| u32::from_be_bytes(packet.transport[at..at + 4].try_into().expect("four bytes"));
            let head = usize::from(packet.transport[12] >> 4) * 4;
            let flags = packet.transport[13];
            let length = packet.transport.len() - head + usize::from(flags & 3 != 0);
            far.next = word(4).wrapping_add(length as u32);
        }
        true
    });
    assert!(stack.deadline_ns(now_ns) > now_ns, "the stack spins");
}
