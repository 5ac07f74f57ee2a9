//! The whole client, against a server that has its keys and sends any message, over a link that behaves in any way:
//! nothing panics or loops forever, only payloads that were sent arrive, and none arrives twice. The server's machine
//! has to fulfil the same.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

use leadline_tunnel::openvpn::client::{Client, Event, Output, Received};
use leadline_tunnel::openvpn::config::{ClientConfig, Identity};
use leadline_tunnel::openvpn::data::{DataCipher, Framing};
use leadline_tunnel::openvpn::digest::Digest;
use leadline_tunnel::openvpn::message::peer_info::Protocols;
use leadline_tunnel::openvpn::profile;
use leadline_tunnel::openvpn::role::Role;
use leadline_tunnel::openvpn::server::{Peer, PeerOutput, ServerConfig};
use leadline_tunnel::openvpn::tls::{self, Trust};
use leadline_tunnel::openvpn::wrap::{KeyDirection, StaticKey, WrapKeys};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 1] = [("openvpn_client", client)];

const STATIC_KEY: &str = include_str!("../../crates/tunnel/src/openvpn/wrap/captures/static.key");
const V2_CLIENT: &str = include_str!("../../crates/tunnel/src/openvpn/wrap/captures/v2-client.key");
const V2_SERVER: &str = include_str!("../../crates/tunnel/src/openvpn/wrap/captures/v2-server.key");

const UNIX_BASE_S: u64 = 1_800_000_000;
const MS: u64 = 1_000_000;

/// One byte selects the setup and whether the link is good for the first second; then follow steps: one byte for the
/// action and one for its amount, which is also the length of the data that some actions take.
pub fn client(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let setups = setups();
    let mut simulation = Simulation::new(&setups[usize::from(choice >> 1) % setups.len()]);
    if choice & 1 == 0 {
        simulation.good_link(1_000 * MS);
        assert!(simulation.is_up, "the link is good");
    }
    while let [action, amount, after @ ..] = rest {
        let brings = matches!(action % 16, 9..=12);
        let (piece, after) = after.split_at(if brings { after.len().min(usize::from(*amount)) } else { 0 });
        rest = after;
        simulation.step(action % 16, *amount, piece);
        simulation.settle();
    }
    simulation.good_link(5_000 * MS);
    simulation.client.leave(simulation.now_ns);
    simulation.good_link(100 * MS);
}

/// The settings of both ends.
struct Setup {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    identity: Identity,
}

/// No wrap and each of the wraps; the data packets of 2.7 with the first, and the oldest key method with the second.
fn setups() -> &'static [Setup] {
    static SETUPS: OnceLock<Vec<Setup>> = OnceLock::new();
    SETUPS.get_or_init(|| {
        let key = StaticKey::parse(STATIC_KEY).expect("the key is valid");
        let inline = |name: &str, text: &str| format!("<{name}>\n{text}</{name}>\n");
        let of_2_6 = Protocols::ALL.without(Protocols::DATA_EPOCH);
        let auth = WrapKeys::auth(&key, Some(KeyDirection::Normal), Digest::Sha1);
        let v2 = WrapKeys::crypt_v2_server(V2_SERVER).expect("the key is valid");
        let certificates = Certificates::new();
        vec![
            certificates.setup("compress stub-v2\n", WrapKeys::None, DataCipher::Aes256Gcm, Protocols::ALL),
            certificates.setup(
                &("key-direction 1\n".to_owned() + &inline("tls-auth", STATIC_KEY)),
                auth,
                DataCipher::Aes256Cbc,
                Protocols::DATA_V2,
            ),
            certificates.setup(
                &inline("tls-crypt", STATIC_KEY),
                WrapKeys::crypt(&key, Role::Server),
                DataCipher::ChaCha20Poly1305,
                of_2_6,
            ),
            certificates.setup(&inline("tls-crypt-v2", V2_CLIENT), v2, DataCipher::Aes128Gcm, of_2_6),
        ]
    })
}

/// An authority, and the certificate and key that it issued to each end.
struct Certificates {
    authority: String,
    ends: [(String, String); 2],
}

impl Certificates {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let ends = [0; 2].map(|_| {
            let key = KeyPair::generate().expect("a key");
            let certificate = CertificateParams::default().signed_by(&key, &issuer).expect("a certificate");
            (certificate.pem(), key.serialize_pem())
        });
        Self { authority, ends }
    }

    fn setup(&self, more: &str, wrap: WrapKeys, cipher: DataCipher, protocols: Protocols) -> Setup {
        let [client, server] = &self.ends;
        let ca = &self.authority;
        let text = format!(
            "client\nremote vpn.example.net\ndata-ciphers {}\nping-restart 30\nreneg-sec 20\n{more}<ca>\n{ca}</ca>\n",
            cipher.name()
        );
        let profile = profile::parse(&text).expect("the profile is valid");
        let config = ClientConfig::new(&profile, UNIX_BASE_S).expect("the profile is supported");
        let identity = config.identity(Some((&client.0, &client.1)), None).expect("the identity is valid");
        let tls = tls::server_config(&Trust::of(&profile), (&server.0, &server.1), true)
            .expect("the server's certificate is valid");
        let server = ServerConfig {
            tls: Arc::new(tls),
            wrap,
            ciphers: vec![cipher],
            digest: Some(Digest::Sha1),
            framing: if more.starts_with("compress") { Framing::StubV2 } else { Framing::None },
            push: vec!["topology subnet".to_owned(), "ifconfig 10.8.0.2 255.255.255.0".to_owned()],
            protocols,
            users: Vec::new(),
            unix_base_s: UNIX_BASE_S,
        };
        Setup { client: Arc::new(config), server: Arc::new(server), identity }
    }
}

/// Both ends and the packets in transit between them.
struct Simulation {
    now_ns: u64,
    client: Client,
    server: Option<Peer>,
    server_config: Arc<ServerConfig>,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    /// Packets that passed, for later replay.
    seen: VecDeque<Vec<u8>>,
    /// Payloads that were sent and have not arrived, at the server and at the client.
    in_flight: [HashSet<Vec<u8>>; 2],
    numbers: u32,
    is_up: bool,
    has_failed: bool,
    wakes_ns: Option<u64>,
    taken: u64,
}

/// Limit of consecutive outputs of one end: more means that it loops.
const MAX_OUTPUTS: usize = 200;
/// Maximum number of packets in transit; the link drops the rest.
const MAX_IN_TRANSIT: usize = 64;

impl Simulation {
    fn new(setup: &Setup) -> Self {
        let mut simulation = Self {
            now_ns: 0,
            client: Client::new(&setup.client, &setup.identity, 0),
            server: None,
            server_config: setup.server.clone(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            seen: VecDeque::new(),
            in_flight: [HashSet::new(), HashSet::new()],
            numbers: 0,
            is_up: false,
            has_failed: false,
            wakes_ns: None,
            taken: 0,
        };
        simulation.settle();
        simulation
    }

    /// Performs the action that a byte selects.
    fn step(&mut self, action: u8, amount: u8, piece: &[u8]) {
        match action {
            0 | 1 => self.deliver_up(),
            2 | 3 => self.deliver_down(),
            4 => drop(self.up.pop_front()),
            5 => drop(self.down.pop_front()),
            6 => {
                // Reordered behind packets that were sent later.
                self.up.rotate_left(usize::from(amount) % self.up.len().max(1));
                self.down.rotate_left(usize::from(amount) % self.down.len().max(1));
            }
            7 => self.now_ns += u64::from(amount) * 100 * MS,
            8 => {
                if let Some(packet) = self.down.front_mut() {
                    let at = usize::from(amount) % packet.len().max(1);
                    if let Some(byte) = packet.get_mut(at) {
                        *byte ^= 1 << (amount % 8);
                    }
                }
            }
            9 => self.down.push_front(piece.to_vec()),
            10 => self.up.push_front(piece.to_vec()),
            11 => {
                if let (Some(peer), Ok(text)) = (&mut self.server, std::str::from_utf8(piece)) {
                    peer.send_message(text);
                }
            }
            12 => self.send_down(piece),
            13 => self.send_up(),
            14 => {
                let number = usize::from(amount) % self.seen.len().max(1);
                self.down.extend(self.seen.get(number).cloned());
            }
            _ => match (amount % 4, &mut self.server) {
                (0, Some(peer)) => peer.renegotiate(self.now_ns),
                (1, _) => self.client.leave(self.now_ns),
                (2, _) => self.good_link(100 * MS),
                _ => self.client.renegotiate(self.now_ns),
            },
        }
    }

    /// Runs the link without loss for some time.
    fn good_link(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        self.settle();
        while self.now_ns < end_ns {
            for _ in 0..MAX_OUTPUTS {
                if self.up.is_empty() && self.down.is_empty() {
                    break;
                }
                self.deliver_up();
                self.deliver_down();
                self.settle();
            }
            self.now_ns = self.wakes_ns.unwrap_or(end_ns).clamp(self.now_ns + MS, end_ns.max(self.now_ns + MS));
            self.settle();
        }
    }

    fn deliver_up(&mut self) {
        let Some(mut packet) = self.up.pop_front() else { return };
        match &mut self.server {
            Some(peer) => {
                if let Received::Payload(payload) = peer.handle(self.now_ns, &mut packet) {
                    assert!(self.in_flight[0].remove(payload), "the client sent this, once");
                }
            }
            None => self.server = Peer::accept(&self.server_config, Vec::new(), 7, self.now_ns, &mut packet),
        }
    }

    fn deliver_down(&mut self) {
        let Some(mut packet) = self.down.pop_front() else { return };
        if let Received::Payload(payload) = self.client.handle(self.now_ns, &mut packet) {
            assert!(self.in_flight[1].remove(payload), "the server sent this, once");
            self.taken += 1;
        }
        assert!(self.client.counters().opened >= self.taken);
    }

    fn send_up(&mut self) {
        let payload = self.payload(b"up");
        let mut out = Vec::new();
        if self.client.send(self.now_ns, &payload, &mut out).is_ok() {
            assert!(self.is_up, "nothing can be sent before the tunnel is up");
            self.in_flight[0].insert(payload);
            carry(&mut self.up, out);
        }
    }

    fn send_down(&mut self, piece: &[u8]) {
        let payload = self.payload(piece);
        let mut out = Vec::new();
        if self.server.as_mut().is_some_and(|peer| peer.send(&payload, &mut out).is_ok()) {
            self.in_flight[1].insert(payload);
            carry(&mut self.down, out);
        }
    }

    /// Creates a unique payload.
    fn payload(&mut self, piece: &[u8]) -> Vec<u8> {
        self.numbers += 1;
        [&[0x45][..], &self.numbers.to_be_bytes(), piece].concat()
    }

    /// Processes the output of both ends.
    fn settle(&mut self) {
        let mut out = Vec::new();
        for turn in 0.. {
            assert!(turn < MAX_OUTPUTS, "the client never stops");
            match self.client.poll(self.now_ns, &mut out) {
                Output::Send => {
                    assert!(!out.is_empty());
                    carry(&mut self.up, out.clone());
                }
                Output::Event(event) => self.take_event(&event),
                Output::Wait(at_ns) => {
                    assert!(at_ns.is_none_or(|at_ns| at_ns > self.now_ns), "the client spins");
                    self.wakes_ns = at_ns;
                    break;
                }
            }
        }
        assert!(self.is_up || self.client.pushed().is_none());
        let Some(peer) = &mut self.server else { return };
        for turn in 0.. {
            assert!(turn < MAX_OUTPUTS, "the server never stops");
            match peer.poll(self.now_ns, &mut out) {
                PeerOutput::Send => {
                    if self.seen.len() == MAX_IN_TRANSIT {
                        self.seen.pop_front();
                    }
                    self.seen.push_back(out.clone());
                    carry(&mut self.down, out.clone());
                }
                PeerOutput::Event(_) => {}
                PeerOutput::Wait(at_ns) => {
                    assert!(at_ns.is_none_or(|at_ns| at_ns > self.now_ns), "the server spins");
                    self.wakes_ns = [self.wakes_ns, at_ns].into_iter().flatten().min();
                    break;
                }
            }
        }
    }

    fn take_event(&mut self, event: &Event) {
        assert!(!self.has_failed, "nothing happens after a failure: {event:?}");
        match event {
            Event::Up => {
                assert!(!self.is_up, "the tunnel comes up once");
                self.is_up = true;
                assert!(self.client.cipher().is_some());
            }
            Event::Failed(failure) => {
                assert!(!failure.name.is_empty() && !failure.detail.contains('\n'), "{failure:?}");
                self.has_failed = true;
            }
            _ => {}
        }
    }
}

fn carry(way: &mut VecDeque<Vec<u8>>, packet: Vec<u8>) {
    if way.len() < MAX_IN_TRANSIT {
        way.push_back(packet);
    }
}
