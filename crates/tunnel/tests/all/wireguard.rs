//! Tests of WireGuard machines that communicate in memory: handshakes, data, roaming, refusals, and hostile
//! datagrams. boringtun reads its own clock, so no test waits for a timer: everything happens in the first moments of
//! a session.

use std::net::{IpAddr, SocketAddr};

use leadline_tunnel::wireguard::{Machine, Output, PeerConfig, PrivateKey, OVERHEAD_BYTES};
use proptest::prelude::*;

const SPACE: usize = 2048;

/// One end: the machine, its address, and its output.
struct End {
    machine: Machine,
    at: SocketAddr,
    /// Datagrams in transit: destination and bytes.
    outbox: Vec<(SocketAddr, Vec<u8>)>,
    delivered: Vec<Vec<u8>>,
    now_ns: u64,
}

impl End {
    fn new(secret: u8, at: &str, peers: &[PeerConfig]) -> Self {
        let machine = Machine::new(&key(secret), peers).unwrap();
        Self { machine, at: at.parse().unwrap(), outbox: Vec::new(), delivered: Vec::new(), now_ns: 1 }
    }

    fn packet(&mut self, packet: &[u8]) {
        let mut space = [0; SPACE];
        let output = self.machine.handle_packet(packet, &mut space);
        Self::obey(&mut self.outbox, &mut self.delivered, output);
        self.settle();
    }

    fn datagram(&mut self, from: SocketAddr, datagram: &[u8]) {
        let mut space = [0; SPACE];
        let output = self.machine.handle_datagram(from, datagram, &mut space);
        Self::obey(&mut self.outbox, &mut self.delivered, output);
        self.settle();
    }

    fn settle(&mut self) {
        let mut space = [0; SPACE];
        while Self::obey(&mut self.outbox, &mut self.delivered, self.machine.poll(self.now_ns, &mut space)) {}
    }

    fn obey(outbox: &mut Vec<(SocketAddr, Vec<u8>)>, delivered: &mut Vec<Vec<u8>>, output: Output<'_>) -> bool {
        match output {
            Output::Send { to, datagram } => outbox.push((to, datagram.to_vec())),
            Output::Deliver { packet } => delivered.push(packet.to_vec()),
            Output::Nothing | Output::Wait { .. } => return false,
        }
        true
    }
}

fn key(secret: u8) -> PrivateKey {
    PrivateKey::from_bytes([secret; 32])
}

fn peer(secret: u8, endpoint: Option<&str>, allowed: &[&str]) -> PeerConfig {
    PeerConfig {
        public_key: key(secret).public(),
        endpoint: endpoint.map(|text| text.parse().unwrap()),
        allowed_ips: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        preshared_key: None,
        keepalive_s: None,
    }
}

/// Carries datagrams between ends until none are in transit.
fn exchange(ends: &mut [&mut End]) {
    loop {
        let mut moved = false;
        for number in 0..ends.len() {
            let from = ends[number].at;
            for (to, datagram) in std::mem::take(&mut ends[number].outbox) {
                moved = true;
                if let Some(end) = ends.iter_mut().find(|end| end.at == to) {
                    end.datagram(from, &datagram);
                }
            }
        }
        if !moved {
            return;
        }
    }
}

/// A minimal IP packet with header and payload; WireGuard reads version, length and addresses only.
fn ip(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) = (source.parse().unwrap(), destination.parse().unwrap());
    let mut packet;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet = vec![0; 20];
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&((20 + payload.len()) as u16).to_be_bytes());
            packet[12..16].copy_from_slice(&source.octets());
            packet[16..20].copy_from_slice(&destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet = vec![0; 40];
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            packet[8..24].copy_from_slice(&source.octets());
            packet[24..40].copy_from_slice(&destination.octets());
        }
        _ => panic!("mixed families"),
    }
    packet.extend_from_slice(payload);
    packet
}

/// A gateway with one client, and that client.
fn pair() -> (End, End) {
    let gateway = End::new(1, "10.81.0.1:51820", &[peer(2, None, &["10.83.0.2/32", "fd83::2/128"])]);
    let client = End::new(2, "10.81.1.1:40000", &[peer(1, Some("10.81.0.1:51820"), &["10.82.0.0/24", "fd82::/64"])]);
    (gateway, client)
}

fn connected() -> (End, End) {
    let (mut gateway, mut client) = pair();
    client.packet(&ip("10.83.0.2", "10.82.0.2", b"first"));
    exchange(&mut [&mut gateway, &mut client]);
    assert_eq!(gateway.delivered.len(), 1);
    gateway.delivered.clear();
    (gateway, client)
}

#[test]
fn packets_pass_both_ways_after_a_handshake() {
    let (mut gateway, mut client) = pair();
    let up: Vec<_> = (0..5).map(|n| ip("10.83.0.2", "10.82.0.2", &[n; 1000])).collect();
    let down: Vec<_> = (0..5).map(|n| ip("fd82::2", "fd83::2", &[n; 900])).collect();
    for packet in &up {
        client.packet(packet);
    }
    exchange(&mut [&mut gateway, &mut client]);
    for packet in &down {
        gateway.packet(packet);
    }
    exchange(&mut [&mut gateway, &mut client]);

    assert_eq!(gateway.delivered, up, "packets that waited for the handshake arrive in order");
    assert_eq!(client.delivered, down);
    let (at_gateway, at_client) = (gateway.machine.counters(), client.machine.counters());
    assert_eq!((at_client.handshakes, at_gateway.handshakes, at_client.initiations_sent), (1, 1, 1));
    assert_eq!((at_client.sent.packets, at_gateway.received.packets, at_client.queued), (5, 5, 5));
    assert_eq!((at_gateway.sent.bytes, at_client.received.bytes), (5 * 940, 5 * 940));
    assert_eq!(at_gateway.dropped.total() + at_client.dropped.total(), 0);
}

#[test]
fn simultaneous_handshakes_succeed() {
    let mut left = End::new(1, "10.0.0.1:1", &[peer(2, Some("10.0.0.2:2"), &["10.9.0.2/32"])]);
    let mut right = End::new(2, "10.0.0.2:2", &[peer(1, Some("10.0.0.1:1"), &["10.9.0.1/32"])]);
    left.packet(&ip("10.9.0.1", "10.9.0.2", b"left"));
    right.packet(&ip("10.9.0.2", "10.9.0.1", b"right"));
    exchange(&mut [&mut left, &mut right]);
    assert_eq!(left.delivered, [ip("10.9.0.2", "10.9.0.1", b"right")]);
    assert_eq!(right.delivered, [ip("10.9.0.1", "10.9.0.2", b"left")]);
}

#[test]
fn keepalive_opens_the_session_without_data() {
    let mut gateway = End::new(1, "10.81.0.1:51820", &[peer(2, None, &["10.83.0.2/32"])]);
    let server = PeerConfig { keepalive_s: Some(25), ..peer(1, Some("10.81.0.1:51820"), &["10.82.0.0/24"]) };
    let mut client = End::new(2, "10.81.1.1:40000", &[server]);
    client.settle();
    exchange(&mut [&mut gateway, &mut client]);
    assert_eq!(client.machine.counters().handshakes, 1);
    assert_eq!(gateway.machine.endpoint(0), Some(client.at));
}

#[test]
fn wrong_key_gets_no_answer() {
    let (mut gateway, mut client) = connected();
    // Has the gateway's public key, but the gateway does not know its own key.
    let mut unknown_client = End::new(3, "10.81.1.3:3", &[peer(1, Some("10.81.0.1:51820"), &["0.0.0.0/0"])]);
    // Has the right private key, but a wrong public key of the gateway.
    let mut misconfigured_client = End::new(2, "10.81.1.4:4", &[peer(9, Some("10.81.0.1:51820"), &["0.0.0.0/0"])]);
    for end in [&mut unknown_client, &mut misconfigured_client] {
        end.packet(&ip("10.83.0.2", "10.82.0.2", b"let me in"));
    }
    exchange(&mut [&mut gateway, &mut client, &mut unknown_client, &mut misconfigured_client]);
    assert!(gateway.delivered.is_empty());
    for end in [&unknown_client, &misconfigured_client] {
        let counters = end.machine.counters();
        assert_eq!((counters.initiations_sent, counters.handshakes, counters.sent.packets), (1, 0, 0));
    }
    let dropped = gateway.machine.counters().dropped;
    assert_eq!((dropped.unknown_peer, dropped.wrong_mac, dropped.total()), (1, 1, 2));
    assert_eq!(gateway.machine.endpoint(0), Some(client.at));
}

#[test]
fn packets_reach_the_right_peer_of_many() {
    let allowed: Vec<String> = (0..200).map(|n| format!("10.83.1.{n}/32")).collect();
    let peers: Vec<_> = allowed.iter().enumerate().map(|(n, a)| peer(n as u8 + 10, None, &[a])).collect();
    let mut gateway = End::new(1, "10.81.0.1:51820", &peers);
    let server = peer(1, Some("10.81.0.1:51820"), &["10.82.0.0/24"]);
    for number in 0..200u8 {
        let address = format!("10.83.1.{number}");
        let mut client = End::new(number + 10, &format!("10.81.1.{number}:7"), std::slice::from_ref(&server));
        client.packet(&ip(&address, "10.82.0.2", &[number]));
        exchange(&mut [&mut gateway, &mut client]);
        assert_eq!(gateway.delivered.pop(), Some(ip(&address, "10.82.0.2", &[number])));
        gateway.packet(&ip("10.82.0.2", &address, &[number]));
        exchange(&mut [&mut gateway, &mut client]);
        assert_eq!(client.delivered, [ip("10.82.0.2", &address, &[number])]);
    }
    assert_eq!(gateway.machine.counters().handshakes, 200);
}

#[test]
fn roaming_client_is_followed_only_after_authentication() {
    let (mut gateway, mut client) = connected();
    client.packet(&ip("10.83.0.2", "10.82.0.2", b"from elsewhere"));
    let (_, datagram) = client.outbox.pop().unwrap();
    let elsewhere: SocketAddr = "10.81.1.9:9".parse().unwrap();

    let mut forged = datagram.clone();
    *forged.last_mut().unwrap() ^= 1;
    gateway.datagram(elsewhere, &forged);
    assert_eq!(gateway.machine.endpoint(0), Some(client.at));

    gateway.datagram(elsewhere, &datagram);
    assert_eq!(gateway.machine.endpoint(0), Some(elsewhere));
    gateway.datagram(client.at, &datagram);
    assert_eq!(gateway.machine.endpoint(0), Some(elsewhere), "a replay proves nothing");

    let counters = gateway.machine.counters();
    assert_eq!((counters.roamed, counters.dropped.forged, counters.dropped.replayed), (1, 1, 1));
    gateway.packet(&ip("10.82.0.2", "10.83.0.2", b"answer"));
    assert_eq!(gateway.outbox[0].0, elsewhere);
}

#[test]
fn packet_with_a_forbidden_inner_source_is_dropped() {
    let (mut gateway, mut client) = connected();
    client.packet(&ip("10.83.0.3", "10.82.0.2", b"not mine"));
    client.packet(&ip("10.83.0.2", "10.82.0.2", b"mine"));
    exchange(&mut [&mut gateway, &mut client]);
    assert_eq!(gateway.delivered, [ip("10.83.0.2", "10.82.0.2", b"mine")]);
    assert_eq!(gateway.machine.counters().dropped.forbidden_source, 1);
}

#[test]
fn unroutable_host_packets_are_counted() {
    let (mut gateway, mut client) = pair();
    client.packet(&ip("10.83.0.2", "9.9.9.9", b""));
    client.packet(b"");
    client.packet(&[0x45; 19]);
    client.packet(&[0u8; SPACE]);
    gateway.packet(&ip("10.82.0.2", "10.83.0.2", b""));
    for _ in 0..300 {
        client.packet(&ip("10.83.0.2", "10.82.0.2", b""));
    }
    let dropped = client.machine.counters().dropped;
    assert_eq!((dropped.no_peer, dropped.not_ip, dropped.no_space, dropped.queue_full), (1, 2, 1, 44));
    assert_eq!(gateway.machine.counters().dropped.no_endpoint, 1);
    exchange(&mut [&mut gateway, &mut client]);
    assert_eq!(gateway.delivered.len(), 256, "only the counted packets are lost");
}

#[test]
fn flood_of_handshakes_gets_cookie_replies() {
    let (mut gateway, _) = pair();
    gateway.machine = gateway.machine.with_handshake_limit(3);
    let server = peer(1, Some("10.81.0.1:51820"), &["10.82.0.0/24"]);
    let mut cookies_received = 0;
    for _ in 0..10 {
        let mut client = End::new(2, "10.81.1.1:40000", std::slice::from_ref(&server));
        client.packet(&ip("10.83.0.2", "10.82.0.2", b""));
        exchange(&mut [&mut gateway, &mut client]);
        cookies_received += client.machine.counters().cookies_received;
    }
    let counters = gateway.machine.counters();
    assert_eq!((counters.handshakes, counters.cookies_sent, cookies_received), (3, 7, 7));
}

#[test]
fn lengths_inside_the_tunnel_are_checked() {
    let (mut gateway, mut client) = connected();
    let mut long = ip("10.83.0.2", "10.82.0.2", b"abc");
    long[3] = 200;
    client.packet(&long);
    let mut padded = ip("10.83.0.2", "10.82.0.2", b"abc");
    padded.extend_from_slice(b"padding");
    client.packet(&padded);
    exchange(&mut [&mut gateway, &mut client]);
    assert_eq!(gateway.delivered, [ip("10.83.0.2", "10.82.0.2", b"abc")], "padding is removed");
    assert_eq!(gateway.machine.counters().dropped.malformed, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_datagram_is_counted_without_panic(
        noise in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..20),
        kind in 0u8..6,
    ) {
        let (mut gateway, _client) = connected();
        let before = *gateway.machine.counters();
        for mut datagram in noise.clone() {
            if datagram.len() >= 4 {
                datagram[..4].copy_from_slice(&[kind, 0, 0, 0]);
            }
            gateway.datagram("10.0.0.9:9".parse().unwrap(), &datagram);
        }
        let after = *gateway.machine.counters();
        prop_assert_eq!(after.dropped.total() - before.dropped.total(), noise.len() as u64);
        prop_assert!(gateway.delivered.is_empty() && gateway.outbox.is_empty());
    }

    #[test]
    fn damaged_message_is_refused(place in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>()) {
        let (mut gateway, mut client) = pair();
        // Each message of a session: initiation, response, keepalive and data. A damaged copy of each is sent before
        // the original.
        client.packet(&ip("10.83.0.2", "10.82.0.2", b"payload"));
        for _ in 0..4 {
            for forward in [true, false] {
                let (from, to) = if forward { (&mut client, &mut gateway) } else { (&mut gateway, &mut client) };
                for (_, datagram) in std::mem::take(&mut from.outbox) {
                    let mut damaged = datagram.clone();
                    // The second MAC of a handshake message is only checked under load.
                    let checked = datagram.len() - if datagram[0] < 3 { 16 } else { 0 };
                    damaged[place.index(checked)] ^= 1 << bit;
                    let before = (to.machine.counters().dropped.total(), to.delivered.len());
                    to.datagram(from.at, &damaged);
                    to.datagram(from.at, &datagram[..cut.index(datagram.len())]);
                    let after = (to.machine.counters().dropped.total(), to.delivered.len());
                    prop_assert_eq!(after, (before.0 + 2, before.1));
                    to.datagram(from.at, &datagram);
                }
            }
        }
        prop_assert_eq!(gateway.delivered, [ip("10.83.0.2", "10.82.0.2", b"payload")]);
    }

    #[test]
    fn arbitrary_host_packet_is_counted(packet in proptest::collection::vec(any::<u8>(), 0..100)) {
        let (_gateway, mut client) = connected();
        let before = *client.machine.counters();
        client.packet(&packet);
        let after = *client.machine.counters();
        let sent = after.sent.packets - before.sent.packets;
        prop_assert_eq!(after.dropped.total() - before.dropped.total() + sent, 1);
        prop_assert_eq!(client.outbox.iter().map(|(_, datagram)| datagram.len()).sum::<usize>() as u64, sent * (packet.len() + OVERHEAD_BYTES) as u64);
    }
}
