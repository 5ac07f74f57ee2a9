//! WireGuard clients through the life of a fleet's clients, in virtual time: up, verified, renewed, silent, reconnected.
//! The gateway is our own machine. It reads the host's clock for its own timers, which play no part in a test's
//! milliseconds; the clients' timers run in the tests' time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use leadline_tunnel::client::effects::Metric;
use leadline_tunnel::client::expectation::Expectation;
use leadline_tunnel::client::phase::{Occasion, Phase};
use leadline_tunnel::client::server::{Server, Transport};
use leadline_tunnel::client::settings::{PingSettings, Settings};
use leadline_tunnel::client::{Action, Input};
use leadline_tunnel::inside::icmp;
use leadline_tunnel::wireguard::file::ClientFile;
use leadline_tunnel::wireguard::fleet::WireGuard;
use leadline_tunnel::wireguard::{Machine, Output, PeerConfig, PresharedKey, PrivateKey};

use super::simulation::{SimulatedServer, Simulation, MS, SECOND};

const GATEWAY_KEY: [u8; 32] = [7; 32];
const SPACE_BYTES: usize = 2048;

/// The gateway, and how it behaves.
struct Gateway {
    machine: Machine,
    /// Whether it receives anything.
    is_listening: bool,
    /// Whether it answers echo requests inside the tunnels.
    echoes: bool,
    outgoing: VecDeque<(u32, Vec<u8>)>,
}

#[derive(Default)]
struct Setup {
    keepalive_s: Option<u16>,
    psk: Option<(&'static str, &'static str)>,
    retries: u32,
    ping_gap_ns: Option<u64>,
    expectation: Expectation,
}

/// The first is the clients' preshared key, the second the gateway's.
const ONE_KEY: (&str, &str) =
    ("3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=");
const TWO_KEYS: (&str, &str) =
    ("3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=");

impl Gateway {
    fn pass(&mut self, now_ns: u64, output: Option<(u32, Vec<u8>)>) {
        self.outgoing.extend(output);
        let mut space = vec![0; SPACE_BYTES];
        while let Output::Send { to, datagram } = self.machine.poll(now_ns, &mut space) {
            self.outgoing.push_back((connection_of(to), datagram.to_vec()));
        }
    }
}

impl SimulatedServer for Gateway {
    fn receive(&mut self, now_ns: u64, connection: u32, packet: &mut [u8]) {
        if !self.is_listening {
            return;
        }
        let from = SocketAddr::from(([198, 51, 100, 1], 10_000 + connection as u16));
        let mut space = vec![0; SPACE_BYTES];
        match self.machine.handle_datagram(from, packet, &mut space) {
            Output::Send { to, datagram } => {
                let datagram = (connection_of(to), datagram.to_vec());
                self.pass(now_ns, Some(datagram));
            }
            Output::Deliver { packet } => {
                let mut reply = Vec::new();
                if self.echoes && icmp::answer(packet, &mut reply) {
                    let sealed = match self.machine.handle_packet(&reply, &mut space) {
                        Output::Send { to, datagram } => Some((connection_of(to), datagram.to_vec())),
                        _ => None,
                    };
                    self.pass(now_ns, sealed);
                }
            }
            _ => self.pass(now_ns, None),
        }
    }

    fn wakes_ns(&self) -> Option<u64> {
        (!self.outgoing.is_empty()).then_some(0)
    }

    fn poll(&mut self, _now_ns: u64) -> Vec<(u32, Vec<u8>)> {
        self.outgoing.drain(..).collect()
    }
}

fn connection_of(to: SocketAddr) -> u32 {
    u32::from(to.port()) - 10_000
}

fn key_of(client: u32) -> [u8; 32] {
    let mut key = [9; 32];
    // Curve25519 ignores some bits of the first byte.
    key[8..12].copy_from_slice(&client.to_le_bytes());
    key
}

fn base64_of(key: [u8; 32]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(key)
}

fn file_of(client: u32, setup: &Setup) -> ClientFile {
    let public = PrivateKey::from_bytes(GATEWAY_KEY).public();
    let (psk, keepalive) = (setup.psk.map(|(own, _)| own), setup.keepalive_s);
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.83.{}.{}/16\n[Peer]\nPublicKey = {public}\n{}\
         Endpoint = 192.0.2.1:51820\nAllowedIPs = 10.83.0.0/16\n{}",
        base64_of(key_of(client)),
        (client + 2) / 256,
        (client + 2) % 256,
        psk.map(|psk| format!("PresharedKey = {psk}\n")).unwrap_or_default(),
        keepalive.map(|seconds| format!("PersistentKeepalive = {seconds}\n")).unwrap_or_default(),
    );
    ClientFile::parse(&text).unwrap()
}

fn simulation(clients: u32, setup: Setup) -> Simulation<Gateway> {
    let files: Vec<ClientFile> = (0..clients).map(|client| file_of(client, &setup)).collect();
    let peer = |client: u32| PeerConfig {
        public_key: PrivateKey::from_bytes(key_of(client)).public(),
        endpoint: None,
        allowed_ips: vec![format!("10.83.{}.{}/32", (client + 2) / 256, (client + 2) % 256).parse().unwrap()],
        preshared_key: setup.psk.map(|(_, psk)| PresharedKey::try_from(psk.to_owned()).unwrap()),
        keepalive_s: None,
    };
    let peers: Vec<PeerConfig> = (0..clients).map(peer).collect();
    let settings = Settings {
        protocol: Arc::new(WireGuard::new(&files).unwrap()),
        servers: vec![Server { address: "192.0.2.1:51820".parse().unwrap(), transport: Transport::Udp }],
        attempt_ns: 60 * SECOND,
        retries: setup.retries,
        expectation: Expectation { offered: vec!["CHACHA20-POLY1305"], ..setup.expectation },
        mtu: None,
        first_data_ns: 5 * SECOND,
        pings: setup.ping_gap_ns.map(|gap_ns| PingSettings { gap_ns, clients }),
    };
    let machine = Machine::new(&PrivateKey::from_bytes(GATEWAY_KEY), &peers).unwrap().with_handshake_limit(u64::MAX);
    let gateway = Gateway { machine, is_listening: true, echoes: true, outgoing: VecDeque::new() };
    Simulation::of(clients, &Arc::new(settings), gateway)
}

fn arrive(simulation: &mut Simulation<Gateway>) {
    (0..simulation.clients.len()).for_each(|client| simulation.pass(client, Input::Arrive { due_ns: 0 }));
}

fn up(clients: u32, setup: Setup) -> Simulation<Gateway> {
    let mut simulation = simulation(clients, setup);
    arrive(&mut simulation);
    simulation.run(10 * MS);
    assert!((0..clients as usize).all(|client| simulation.phase(client) == Phase::Configured));
    simulation
}

fn start_pings(simulation: &mut Simulation<Gateway>) {
    simulation.clients[0].recorder.pings_since_ns = Some(simulation.now_ns);
    simulation.pass(0, Input::StartPings);
}

#[test]
fn client_is_configured_once_its_echo_comes_back() {
    for psk in [None, Some(ONE_KEY)] {
        let simulation = up(1, Setup { psk, ..Setup::default() });
        let client = &simulation.clients[0].client;
        let steps = client.attempt().unwrap().steps;
        assert_eq!((steps.sent_ns, steps.answered_ns, steps.child_up_ns), (Some(0), Some(2 * MS), Some(2 * MS)));
        assert_eq!((steps.configured_ns, steps.pushed_ns, steps.ike_up_ns), (Some(4 * MS), None, None));
        let assigned = client.assigned().unwrap();
        assert_eq!((assigned.ipv4, assigned.server_ipv4), (Some([10, 83, 0, 2].into()), Some([10, 83, 0, 1].into())));
        let recorder = &simulation.clients[0].recorder;
        assert_eq!([Metric::ChildUp, Metric::FirstData, Metric::Tls].map(|metric| recorder.times(metric)), [1, 1, 0]);
        assert_eq!(simulation.server.machine.counters().handshakes, 1);
    }
}

#[test]
fn two_hundred_clients_are_counted_exactly() {
    let simulation = up(200, Setup::default());
    assert_eq!(simulation.count(|counts| counts.attempts), 200);
    assert_eq!(simulation.count(|counts| counts.resets_sent), 200);
    assert_eq!(simulation.count(|counts| counts.rejected + counts.cookies_received), 0);
    let counters = simulation.server.machine.counters();
    assert_eq!((counters.handshakes, counters.received.packets, counters.dropped.total()), (200, 200, 0));
}

#[test]
fn silent_gateway_leaves_the_client_failed_after_its_attempt() {
    let mut simulation = simulation(1, Setup::default());
    simulation.server.is_listening = false;
    arrive(&mut simulation);
    simulation.run(61 * SECOND);
    assert_eq!((simulation.failures(), simulation.phase(0)), ([("handshake_unanswered", 1)].into(), Phase::Failed));
    // One initiation each 5 s and a jitter.
    assert_eq!(simulation.count(|counts| counts.resets_sent), 12);
    assert_eq!(simulation.clients[0].client.retransmits(), 11);
}

#[test]
fn other_preshared_key_is_named() {
    let mut simulation = simulation(1, Setup { psk: Some(TWO_KEYS), ..Setup::default() });
    arrive(&mut simulation);
    simulation.run(61 * SECOND);
    assert_eq!(simulation.failures(), [("response_rejected", 1)].into());
    assert!(simulation.count(|counts| counts.rejected) >= 10);
}

#[test]
fn gateway_under_load_gets_its_cookie() {
    let mut simulation = simulation(3, Setup::default());
    let peers = Machine::new(&PrivateKey::from_bytes(GATEWAY_KEY), &[]).unwrap();
    simulation.server.machine = std::mem::replace(&mut simulation.server.machine, peers).with_handshake_limit(0);
    arrive(&mut simulation);
    simulation.run(SECOND);
    assert_eq!((simulation.phase(0), simulation.count(|counts| counts.cookies_received)), (Phase::Negotiating, 3));
    simulation.run(6 * SECOND);
    assert!((0..3).all(|client| simulation.phase(client) == Phase::Configured));
    assert_eq!(simulation.count(|counts| counts.cookies_received), 3);
    let counters = simulation.server.machine.counters();
    assert_eq!((counters.cookies_sent, counters.handshakes), (3, 3));
}

#[test]
fn unanswered_echo_leaves_the_client_partial_with_its_child() {
    let mut simulation = simulation(1, Setup::default());
    simulation.server.echoes = false;
    arrive(&mut simulation);
    simulation.run(70 * SECOND);
    let attempt = simulation.clients[0].client.attempt().unwrap();
    assert_eq!((simulation.phase(0), attempt.cause), (Phase::Partial, Some("partial_no_data")));
    assert!(attempt.steps.child_up_ns.is_some() && attempt.steps.configured_ns.is_none());
}

#[test]
fn address_outside_the_pool_is_partial() {
    let expectation = Expectation { pools: vec!["10.84.0.0/16".parse().unwrap()], ..Expectation::default() };
    let mut simulation = simulation(1, Setup { expectation, ..Setup::default() });
    arrive(&mut simulation);
    simulation.run(SECOND);
    assert_eq!(simulation.failures(), [("partial_address_outside_pool", 1)].into());
}

#[test]
fn keys_are_renewed_after_two_minutes_and_the_tunnel_goes_on() {
    let mut simulation = up(1, Setup { keepalive_s: Some(25), ..Setup::default() });
    // The echo reply is confirmed after 10 s; from then on a keepalive follows every 25 s. The first one that is sent
    // with keys of 120 s renews them.
    simulation.run(134 * SECOND);
    assert_eq!(simulation.count(|counts| counts.renegotiated), 0);
    simulation.run(136 * SECOND);
    assert_eq!(simulation.count(|counts| counts.renegotiated), 1);
    simulation.run(600 * SECOND);
    assert_eq!(simulation.count(|counts| counts.renegotiated), 4);
    assert_eq!((simulation.phase(0), simulation.server.machine.counters().handshakes), (Phase::Configured, 5));
    assert!(simulation.server.machine.counters().keepalives_received >= 24);
    assert_eq!(simulation.failures(), [].into());
}

#[test]
fn action_renews_keys() {
    let mut simulation = up(2, Setup::default());
    let now_ns = simulation.now_ns;
    for client in 0..2 {
        simulation.pass(client, Input::Act { action: Action::Renegotiate, due_ns: now_ns });
    }
    simulation.run(SECOND);
    assert_eq!(simulation.count(|counts| counts.renewals_asked), 2);
    assert_eq!(simulation.count(|counts| counts.renegotiated), 2);
    assert_eq!(simulation.clients[0].recorder.times(Metric::Renegotiate), 1);
    assert_eq!(simulation.server.machine.counters().handshakes, 4);
}

#[test]
fn silent_gateway_loses_the_tunnel_and_the_client_recovers() {
    let ping = Setup { ping_gap_ns: Some(SECOND), retries: 3, ..Setup::default() };
    let mut simulation = up(1, ping);
    start_pings(&mut simulation);
    simulation.run(10 * SECOND);
    simulation.server.is_listening = false;
    // 15 s of silence after a ping, then 90 s of unanswered initiations.
    simulation.run(114 * SECOND);
    assert_eq!((simulation.phase(0), simulation.count(|counts| counts.lost)), (Phase::Configured, 0));
    simulation.run(116 * SECOND);
    assert_eq!((simulation.failures(), simulation.phase(0)), ([("rekey_unanswered", 1)].into(), Phase::Resting));
    assert_eq!(simulation.count(|counts| counts.lost), 1);
    simulation.server.is_listening = true;
    simulation.run(130 * SECOND);
    assert_eq!((simulation.phase(0), simulation.count(|counts| counts.recovered)), (Phase::Configured, 1));
}

#[test]
fn reconnect_comes_from_another_port() {
    let mut simulation = up(1, Setup::default());
    let before = simulation.clients[0].client.local();
    let now_ns = simulation.now_ns;
    simulation.pass(0, Input::Act { action: Action::Reconnect, due_ns: now_ns });
    simulation.run(now_ns + SECOND);
    let client = &simulation.clients[0].client;
    assert_eq!((simulation.phase(0), client.attempt().unwrap().occasion), (Phase::Configured, Occasion::Reconnect));
    assert_ne!(client.local(), before);
    let counters = simulation.server.machine.counters();
    assert_eq!((counters.roamed, counters.handshakes), (1, 2));
}

#[test]
fn idle_client_renews_its_keys_for_the_first_packet_after_a_pause() {
    let mut simulation = up(1, Setup { ping_gap_ns: Some(SECOND), ..Setup::default() });
    simulation.run(300 * SECOND);
    assert_eq!(simulation.server.machine.counters().handshakes, 1, "nothing was sent, so nothing was renewed");
    start_pings(&mut simulation);
    simulation.run(305 * SECOND + SECOND / 2);
    let pings = &simulation.clients[0].recorder.counts.pings;
    // The ping that asks for keys is not sent.
    assert_eq!((pings.unsent, pings.answered), (1, pings.sent));
    assert_eq!(simulation.server.machine.counters().handshakes, 2);
}

#[test]
fn leaving_client_sends_nothing_and_waits_for_nothing() {
    let mut simulation = up(1, Setup { keepalive_s: Some(5), ..Setup::default() });
    let before = *simulation.server.machine.counters();
    simulation.pass(0, Input::Leave);
    assert!(!simulation.clients[0].client.is_session_waiting());
    simulation.run(20 * SECOND);
    assert_eq!(*simulation.server.machine.counters(), before);
}
