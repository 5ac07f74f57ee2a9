//! Tests of two stacks over a link in virtual time that delays, drops, repeats and reorders packets at fixed
//! intervals; and of hostile packets.

use std::collections::VecDeque;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::{Buffers, Connection, Stack, TcpError};

const DELAY_NS: u64 = 5_000_000;
const SMALL: Buffers = Buffers { receive_bytes: 16 << 10, send_bytes: 16 << 10 };

/// Interval of each fault, in packets; 0 means never.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    lose: u64,
    swap: u64,
    repeat: u64,
}

struct TestNetwork {
    now_ns: u64,
    near: Stack,
    far: Stack,
    link: Link,
    packets: u64,
    /// When each packet arrives, and whether it goes to the far end.
    in_transit: VecDeque<(u64, bool, Vec<u8>)>,
}

fn address(far: bool, v6: bool, port: u16) -> SocketAddr {
    let text = match (far, v6) {
        (false, false) => "10.8.0.2",
        (true, false) => "192.168.7.1",
        (false, true) => "fd00::2",
        (true, true) => "2001:db8::1",
    };
    SocketAddr::new(text.parse().unwrap(), port)
}

impl TestNetwork {
    fn new(link: Link) -> Self {
        let stack = |ipv4: &str, ipv6: &str, seed| {
            Stack::new(Some(ipv4.parse().unwrap()), Some(ipv6.parse().unwrap()), 1500, seed, 0)
        };
        let (near, far) = (stack("10.8.0.2", "fd00::2", 3), stack("192.168.7.1", "2001:db8::1", 4));
        Self { now_ns: 0, near, far, link, packets: 0, in_transit: VecDeque::new() }
    }

    fn connected(link: Link, v6: bool) -> (Self, Connection, Connection) {
        let mut network = Self::new(link);
        let far = network.far.listen(0, address(true, v6, 5201), SMALL);
        let near = network.near.connect(0, address(true, v6, 5201), SMALL).unwrap();
        (network, near, far)
    }

    /// Does all work that is due now, then advances to the next event.
    fn step(&mut self) -> bool {
        for to_far in [true, false] {
            let (stack, now_ns) = (if to_far { &mut self.near } else { &mut self.far }, self.now_ns);
            let (link, packets, in_transit) = (self.link, &mut self.packets, &mut self.in_transit);
            stack.poll(now_ns, &mut |packet| {
                *packets += 1;
                let every = |number: u64| number > 0 && *packets % number == 0;
                if !every(link.lose) {
                    let late = if every(link.swap) { 3 * DELAY_NS } else { DELAY_NS };
                    in_transit.push_back((now_ns + late, to_far, packet.to_vec()));
                }
                if every(link.repeat) {
                    in_transit.push_back((now_ns + DELAY_NS, to_far, packet.to_vec()));
                }
                true
            });
        }
        let arrival = self.in_transit.iter().map(|(at_ns, ..)| *at_ns).min();
        let timers = [self.near.deadline_ns(self.now_ns), self.far.deadline_ns(self.now_ns)];
        let Some(next) = timers.into_iter().chain([arrival]).flatten().min() else { return false };
        self.now_ns = self.now_ns.max(next);
        for _ in 0..self.in_transit.len() {
            let Some((at_ns, to_far, packet)) = self.in_transit.pop_front() else { break };
            if at_ns > self.now_ns {
                self.in_transit.push_back((at_ns, to_far, packet));
            } else if to_far {
                assert!(self.far.handle(self.now_ns, &packet));
            } else {
                assert!(self.near.handle(self.now_ns, &packet));
            }
        }
        true
    }

    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        while !done(self) {
            if !self.step() {
                assert!(done(self), "the transfer is not complete");
                return;
            }
            assert!(self.now_ns < 600_000_000_000, "the transfer ends in time");
        }
    }
}

/// The byte of a stream at an offset.
fn byte_at(place: usize) -> u8 {
    (place ^ (place >> 8)).wrapping_mul(31) as u8
}

/// Sends this many bytes up and closes; returns the duration and the number of retransmissions.
fn transfer(link: Link, v6: bool, bytes: usize) -> (u64, u64) {
    let (mut network, near, far) = TestNetwork::connected(link, v6);
    let (mut written, mut read) = (0, 0);
    network.until(|network| {
        if written < bytes {
            let piece: Vec<u8> = (written..bytes.min(written + 4096)).map(byte_at).collect();
            written += network.near.write(near, &piece);
            if written == bytes {
                network.near.close(near);
            }
        }
        network.far.read(far, |piece| {
            for (place, &byte) in (read..).zip(piece) {
                assert_eq!(byte, byte_at(place), "byte {place}");
            }
            read += piece.len();
            piece.len()
        });
        network.far.is_at_end(far)
    });
    assert_eq!(read, bytes);
    let took_ns = network.now_ns;
    network.far.close(far);
    network.until(|network| network.near.is_at_end(near) && network.far.unacknowledged(far) == 0);
    assert_eq!((network.near.error(near), network.far.error(far)), (None, None));
    (took_ns, network.near.retransmits(near))
}

#[test]
fn stream_is_delivered_whole_and_closed_in_order() {
    for v6 in [false, true] {
        let (_, again) = transfer(Link::default(), v6, 300_000);
        assert_eq!(again, 0, "no loss, no retransmission");
    }
}

#[test]
fn lossy_link_loses_no_byte() {
    let (clean_ns, _) = transfer(Link::default(), false, 100_000);
    for link in [
        Link { lose: 16, ..Link::default() },
        Link { swap: 8, ..Link::default() },
        Link { repeat: 5, ..Link::default() },
        Link { lose: 17, swap: 7, repeat: 11 },
    ] {
        let (took_ns, again) = transfer(link, false, 100_000);
        assert!(took_ns >= clean_ns, "{link:?}");
        assert!(link.lose == 0 || again > 0, "{link:?}");
    }
}

#[test]
fn closed_window_reopens_after_a_lost_update() {
    let (mut network, near, far) = TestNetwork::connected(Link::default(), false);
    network.until(|network| network.near.is_writable(near));
    let written = std::cell::Cell::new(0);
    network.until(|network| {
        written.set(written.get() + network.near.fill(network.now_ns, near));
        written.get() >= SMALL.receive_bytes + SMALL.send_bytes
    });
    network.until(|network| network.near.unacknowledged(near) == SMALL.send_bytes && network.in_transit.is_empty());
    // The far end reads all bytes at once, and the window update is lost.
    let mut read = network.far.read(far, |piece| piece.len());
    network.far.poll(network.now_ns, &mut |_| true);
    network.until(|network| {
        read += network.far.read(far, |piece| piece.len());
        read == written.get()
    });
}

#[test]
fn unacknowledged_preface_delays_no_data() {
    let (mut network, near, _) = TestNetwork::connected(Link::default(), false);
    network.until(|network| network.near.is_writable(near));
    assert_eq!(network.near.write(near, &[1; 32]), 32);
    assert_eq!(network.near.fill(network.now_ns, near) + 32, 14_000, "the first window");
    assert_eq!(network.near.fill(network.now_ns, near), 0);
}

#[test]
fn idle_connection_survives_a_lost_packet() {
    let (mut network, near, far) = TestNetwork::connected(Link::default(), false);
    network.until(|network| network.near.is_writable(near) && network.far.is_writable(far));
    // The far end sends nothing by itself and does not answer keep-alives.
    let far_handle = network.far.entry(far).handle;
    let far_socket = network.far.sockets.get_mut::<smoltcp::socket::tcp::Socket>(far_handle);
    far_socket.set_keep_alive(None);
    far_socket.set_timeout(None);
    assert_eq!(network.near.write(near, &[1; 8000]), 8000);
    (network.packets, network.link.lose) = (0, 3);
    network.until(|network| {
        if network.near.retransmits(near) > 0 {
            network.link = Link::default();
        }
        network.far.read(far, |piece| piece.len());
        network.near.unacknowledged(near) == 0
    });
    assert!(network.near.retransmits(near) > 0);
    let since_ns = network.now_ns;
    network.until(|network| network.now_ns > since_ns + 100_000_000_000);
    assert_eq!(network.near.error(near), None, "its keep-alives are answered");
}

#[test]
fn a_closed_port_refuses_and_silence_times_out() {
    let mut network = TestNetwork::new(Link::default());
    let near = network.near.connect(0, address(true, false, 9), SMALL).unwrap();
    network.until(|network| network.near.error(near).is_some());
    assert_eq!(network.near.error(near), Some(TcpError::Refused));
    let mut network = TestNetwork::new(Link { lose: 1, ..Link::default() });
    let near = network.near.connect(0, address(true, false, 9), SMALL).unwrap();
    network.until(|network| network.near.error(near).is_some());
    assert_eq!(network.near.error(near), Some(TcpError::Timeout));
    assert!(network.now_ns >= 30_000_000_000);
}

#[test]
fn peer_reset_is_named() {
    let (mut network, near, far) = TestNetwork::connected(Link::default(), true);
    network.until(|network| network.near.is_writable(near));
    network.far.abort(far);
    network.until(|network| network.near.error(near).is_some());
    assert_eq!((network.near.error(near), network.far.error(far)), (Some(TcpError::Reset), None));
}

#[test]
fn released_connection_frees_its_slot() {
    let mut network = TestNetwork::new(Link::default());
    for round in 0..5u16 {
        let far = network.far.listen(network.now_ns, address(true, false, 5201 + round), SMALL);
        let near = network.near.connect(network.now_ns, address(true, false, 5201 + round), SMALL).unwrap();
        network.until(|network| network.near.is_writable(near) && network.far.is_writable(far));
        if round % 2 == 0 {
            network.near.close(near);
            network.far.close(far);
        } else {
            network.near.abort(near);
            network.far.abort(far);
        }
        network.near.release(near);
        network.far.release(far);
        while network.step() {}
        assert_eq!((network.near.sockets.iter().count(), network.far.sockets.iter().count()), (0, 0), "{round}");
        assert_eq!((network.near.connections.len(), network.far.connections.len()), (1, 1));
    }
}

#[test]
fn refused_packet_is_retried_in_order() {
    let (mut network, near, _) = TestNetwork::connected(Link::default(), false);
    network.until(|network| network.near.is_writable(near));
    network.near.fill(network.now_ns, near);
    let mut offered = Vec::new();
    network.near.poll(network.now_ns, &mut |packet| {
        offered.push(packet.to_vec());
        false
    });
    assert_eq!(offered.len(), 1);
    assert!(network.near.deadline_ns(network.now_ns) > Some(network.now_ns));
    let mut taken = Vec::new();
    network.near.poll(network.now_ns, &mut |packet| {
        taken.push(packet.to_vec());
        true
    });
    assert_eq!(taken[0], offered[0], "the same packet is offered first");
    assert!(taken.len() > 1);
}

#[test]
fn stack_memory_is_small_beside_its_buffers() {
    // Ten thousand stacks have to fit into one gigabyte with their tunnels.
    assert!(size_of::<Stack>() <= 2048, "{}", size_of::<Stack>());
    let socket = size_of::<smoltcp::socket::tcp::Socket<'static>>();
    assert!(socket <= 2048, "{socket}");
}

#[test]
fn connect_without_an_address_of_the_family_is_refused() {
    let mut stack = Stack::new(Some([10, 8, 0, 2].into()), None, 1500, 0, 0);
    assert_eq!(stack.connect(0, address(true, true, 5201), SMALL), Err(TcpError::NoAddress));
    assert!(stack.connect(0, "0.0.0.0:0".parse().unwrap(), SMALL).is_err());
}

#[test]
fn multicast_addresses_are_refused_and_tiny_mtus_connect() {
    for (ipv4, ipv6) in [("224.0.0.1", "ff02::1"), ("255.255.255.255", "::"), ("0.0.0.0", "ff05::2")] {
        let mut stack = Stack::new(Some(ipv4.parse().unwrap()), Some(ipv6.parse().unwrap()), 1500, 0, 0);
        for v6 in [false, true] {
            assert_eq!(stack.connect(0, address(true, v6, 5201), SMALL), Err(TcpError::NoAddress), "{ipv4} {ipv6}");
        }
    }
    for mtu in [0, 20, 40, 67, super::MIN_MTU] {
        let mut network = TestNetwork::new(Link::default());
        network.near = Stack::new(Some("10.8.0.2".parse().unwrap()), Some("fd00::2".parse().unwrap()), mtu, 3, 0);
        for v6 in [false, true] {
            let far = network.far.listen(0, address(true, v6, 5201), SMALL);
            let near = network.near.connect(0, address(true, v6, 5201), SMALL).unwrap();
            network.until(|network| network.near.is_writable(near));
            assert_eq!(network.near.write(near, &[1; 500]), 500);
            let mut read = 0;
            network.until(|network| {
                read += network.far.read(far, |piece| piece.len());
                read == 500
            });
        }
    }
}

#[test]
fn unreachable_server_is_named_while_connecting() {
    let mut network = TestNetwork::new(Link::default());
    let near = network.near.connect(0, address(true, false, 5201), SMALL).unwrap();
    let mut first = Vec::new();
    network.near.poll(0, &mut |packet| {
        first = packet.to_vec();
        true
    });
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &first[..28]].concat();
    let mut sound = message.clone();
    let sum = crate::offload::checksum::finish(crate::offload::checksum::sum(&message));
    sound[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = Vec::new();
    let ends = super::Ends::new("10.8.0.1".parse().unwrap(), address(false, false, 0).ip()).unwrap();
    ends.write(1, sound.len(), &mut packet);
    packet.extend_from_slice(&sound);
    assert!(network.near.handle(1, &packet));
    assert_eq!(network.near.error(near), Some(TcpError::Unreachable("host_unreachable")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Segments of a real connection, damaged anywhere after their addresses, with corrected checksums.
    #[test]
    fn damaged_segments_never_panic(damage in proptest::collection::vec(any::<(usize, u8)>(), 1..6), cut in 0usize..40) {
        let (mut network, near, far) = TestNetwork::connected(Link::default(), false);
        network.until(|network| network.near.is_writable(near) && network.far.is_writable(far));
        for round in 0..20 {
            network.near.fill(network.now_ns, near);
            network.far.fill(network.now_ns, far);
            let mut packets = Vec::new();
            network.far.poll(network.now_ns, &mut |packet| {
                packets.push(packet.to_vec());
                true
            });
            for mut packet in packets {
                let length = packet.len() - cut.min(packet.len() - 40);
                packet.truncate(length);
                for &(at, byte) in &damage {
                    let behind = 20 + (at + round) % (length - 20);
                    packet[behind] = byte;
                }
                repair(&mut packet);
                network.near.handle(network.now_ns, &packet);
            }
            network.near.read(near, |piece| piece.len());
            network.near.poll(network.now_ns, &mut |_| true);
            network.now_ns += 100_000_000;
        }
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1..200), v6: bool) {
        let (mut network, ..) = TestNetwork::connected(Link::default(), v6);
        network.step();
        bytes[0] = if v6 { 0x60 } else { 0x45 };
        network.near.handle(network.now_ns, &bytes);
        network.near.poll(network.now_ns, &mut |_| true);
    }
}

/// Corrects the length and the checksums of a TCP packet over IPv4.
fn repair(packet: &mut [u8]) {
    use crate::offload::checksum::{finish, pseudo_header, sum};
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[10..12].fill(0);
    let header = finish(sum(&packet[..20]));
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    packet[36..38].fill(0);
    let whole = finish(sum(&packet[20..]) + pseudo_header(packet, 6, packet.len() - 20));
    packet[36..38].copy_from_slice(&whole.to_be_bytes());
}
