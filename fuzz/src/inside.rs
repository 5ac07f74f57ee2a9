//! Packets and segments from inside a tunnel, made by anyone: parsed, matched or refused; TCP stays within its
//! limits.

use std::net::SocketAddr;

use leadline_tunnel::inside::ip::{protocol, Ends, Packet};
use leadline_tunnel::inside::tcp::{Buffers, Stack};
use leadline_tunnel::inside::{icmp, Echo, Udp};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 2] = [("tunnel_inside", packets), ("tunnel_inside_tcp", segments)];

/// The bytes as one packet.
pub fn packets(data: &[u8]) {
    for (near, far) in [("10.8.0.2:4000", "10.8.0.1:5000"), ("[fd00::2]:4000", "[fd00::1]:5000")] {
        let address = |text: &str| text.parse::<SocketAddr>().expect("the address is valid");
        let (near, far) = (address(near), address(far));
        let flow = Udp::new(near, far).expect("both have one address family");
        let echo = Echo::new(near.ip(), far.ip(), 1).expect("both have one address family");
        let replied = echo.matches(data);
        assert!(replied.is_none_or(|reply| reply.packet_bytes <= data.len()));
        assert!(flow.matches(data).is_none_or(|payload| payload.len() < data.len()));
        assert!(replied.is_none() || echo.refusal(data).is_none());
        let _ = (flow.refusal(data), icmp::answer(data, &mut Vec::new()));
    }
    if let Ok(packet) = Packet::parse(data) {
        assert!(packet.transport.len() < data.len());
    }
}

/// Segments to a connection that has sent SYN, and to one that listens. Each takes eight bytes and its payload:
/// flags, distances of its sequence number and its acknowledgement from the expected ones, window, length.
pub fn segments(data: &[u8]) {
    let buffers = Buffers { receive_bytes: 4096, send_bytes: 4096 };
    let address = |text: &str| text.parse::<SocketAddr>().expect("the address is valid");
    let (near, far) = (address("10.8.0.2:80"), address("10.8.0.1:5000"));
    let mut stack = Stack::new(Some([10, 8, 0, 2].into()), None, 1500, 7, 0);
    let connecting = stack.connect(0, far, buffers).expect("the stack has an address");
    let waiting = stack.listen(0, near, buffers);
    let (mut now_ns, mut next, mut rest) = (0u64, 0u32, data);
    let ends = Ends::new(far.ip(), near.ip()).expect("both have one address family");
    while let Some((head, after)) = rest.split_first_chunk::<8>() {
        let (payload, after) = after.split_at(after.len().min(usize::from(head[7])));
        rest = after;
        let to = if head[0] & 0x80 == 0 { stack.local(connecting).port() } else { near.port() };
        let mut emitted = 0;
        stack.poll(now_ns, &mut |packet| {
            emitted += 1;
            if let Ok(packet) = Packet::parse(packet) {
                let sequence = packet.transport[4..8].try_into().map_or(0, u32::from_be_bytes);
                next = sequence.wrapping_add(1);
            }
            true
        });
        assert!(emitted <= 64, "a window's worth at most");
        let mut segment = Vec::new();
        segment.extend_from_slice(&far.port().to_be_bytes());
        segment.extend_from_slice(&to.to_be_bytes());
        segment.extend_from_slice(&u32::from(u16::from_be_bytes([head[1], head[2]])).to_be_bytes());
        segment.extend_from_slice(
            &next.wrapping_add_signed(i32::from(i16::from_be_bytes([head[3], head[4]]))).to_be_bytes(),
        );
        segment.extend_from_slice(&[0x50, head[0] & 0x3f, head[5], head[6], 0, 0, 0, 0]);
        segment.extend_from_slice(payload);
        let sum = sum(&segment) + sum(&[10, 8, 0, 1, 10, 8, 0, 2]) + u32::from(protocol::TCP) + segment.len() as u32;
        let folded = (sum & 0xffff) + (sum >> 16);
        segment[16..18].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
        let mut packet = Vec::new();
        ends.write(protocol::TCP, segment.len(), &mut packet);
        packet.extend_from_slice(&segment);
        assert!(stack.handle(now_ns, &packet));
        for connection in [connecting, waiting] {
            stack.read(connection, |piece| piece.len());
            stack.fill(now_ns, connection);
            assert!(stack.unacknowledged(connection) <= buffers.send_bytes);
        }
        now_ns = stack
            .deadline_ns(now_ns)
            .map_or(now_ns + 1_000_000_000, |at_ns| at_ns.clamp(now_ns, now_ns + 1_000_000_000));
    }
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0))).sum()
}
