//! A client and a server of our own on a link in virtual time, for tests: the test defines which packets the link
//! drops, reorders and damages.

use std::collections::VecDeque;
use std::sync::Arc;

use leadline_tls::TemporaryAuthority;

use leadline_tunnel::openvpn::client::{Client, Event, Output, Received};
use leadline_tunnel::openvpn::config::{ClientConfig, Identity, KeyLimits};
use leadline_tunnel::openvpn::data::{DataCipher, Framing, LARGEST_PAYLOAD};
use leadline_tunnel::openvpn::digest::Digest;
use leadline_tunnel::openvpn::message::peer_info::{CompressionOffer, PeerInfo, Protocols};
use leadline_tunnel::openvpn::profile::Profile;
use leadline_tunnel::openvpn::server::{Peer, PeerEvent, PeerOutput, ServerConfig};
use leadline_tunnel::openvpn::tls;
use leadline_tunnel::openvpn::wrap::WrapKeys;
use leadline_tunnel::timer::is_due;

/// One direction of the link: packets with their arrival times, ns.
#[derive(Default)]
pub struct OneWayLink {
    packets: VecDeque<(u64, Vec<u8>)>,
}

/// The link's treatment of a packet that was sent at this time: its arrival time, or `None` to drop it.
pub type Delivery<'f> = &'f mut dyn FnMut(&mut Vec<u8>) -> Option<u64>;

/// Both ends and the link between them.
pub struct Pair {
    pub now_ns: u64,
    pub client: Client,
    pub server: Option<Peer>,
    pub events: Vec<Event>,
    pub peer_events: Vec<PeerEvent>,
    /// Payloads that arrived at the client, and at the server.
    pub at_client: Vec<Vec<u8>>,
    pub at_server: Vec<Vec<u8>>,
    server_config: Arc<ServerConfig>,
    up: OneWayLink,
    down: OneWayLink,
    /// When each end's next timer runs out, ns; `None` if it only waits for packets.
    client_wakes_ns: Option<u64>,
    server_wakes_ns: Option<u64>,
}

/// Certificates and keys of an authority, a server and a client, PEM.
pub struct Pki {
    pub authority: String,
    pub server: (String, String),
    pub client: (String, String),
}

impl Pki {
    pub fn new() -> Self {
        let authority = TemporaryAuthority::new().expect("a certificate");
        Self {
            server: authority.issue_server().expect("a certificate"),
            client: authority.issue_client().expect("a certificate"),
            authority: authority.certificate_pem,
        }
    }

    /// Creates certificates without usage extensions.
    pub fn without_usages() -> Self {
        let authority = TemporaryAuthority::new().expect("a certificate");
        Self {
            server: authority.issue(|_| ()).expect("a certificate"),
            client: authority.issue(|_| ()).expect("a certificate"),
            authority: authority.certificate_pem,
        }
    }

    pub fn trust(&self) -> tls::Trust {
        let profile = Profile { ca: self.authority.clone(), server_usage: true, ..Profile::default() };
        tls::Trust::of(&profile)
    }

    pub fn client_trust(&self) -> tls::ClientTrust {
        tls::ClientTrust::new(&self.trust()).expect("a good authority")
    }

    pub fn identity(&self) -> Identity {
        let (certificate, key) = &self.client;
        let tls = tls::client_config(&self.client_trust(), Some((certificate, key))).expect("a good identity");
        Identity { tls: Arc::new(tls), user: None, token: None }
    }
}

/// The settings of both ends; a test changes what it needs.
pub struct Setup {
    pub client: ClientConfig,
    pub server: ServerConfig,
    pub identity: Identity,
}

impl Setup {
    /// No wrap, AES-256-GCM, all features of 2.6.
    pub fn new(pki: &Pki) -> Self {
        Self::with(pki, DataCipher::Aes256Gcm, Protocols::ALL.without(Protocols::DATA_EPOCH))
    }

    /// With this cipher, and these features at the server.
    pub fn with(pki: &Pki, cipher: DataCipher, protocols: Protocols) -> Self {
        let (certificate, key) = &pki.server;
        let server = ServerConfig {
            tls: Arc::new(tls::server_config(&pki.trust(), (certificate, key), true).expect("a good server")),
            wrap: WrapKeys::None,
            ciphers: vec![cipher],
            digest: Some(Digest::Sha256),
            framing: Framing::None,
            push: vec!["route-gateway 10.8.0.1".to_owned(), "topology subnet".to_owned()],
            protocols,
            users: Vec::new(),
            unix_base_s: 1_800_000_000,
        };
        let info = PeerInfo {
            protocols: Protocols::ALL,
            ciphers: &[cipher.name()],
            max_mtu: 1600,
            compression: CompressionOffer::None,
            more: &[],
        };
        let client = ClientConfig {
            wrap: WrapKeys::None,
            ciphers: vec![cipher],
            fallback: None,
            digest: Some(Digest::Sha256),
            framing: Framing::None,
            occ: "V4,dev-type tun".to_owned(),
            peer_info: info.text(),
            replay_window: 64,
            largest_payload: LARGEST_PAYLOAD,
            hand_window_ns: 60_000_000_000,
            renegotiate_after_ns: None,
            renegotiate_after: KeyLimits::default(),
            ping_s: None,
            silence: None,
            is_stream: false,
            first_timeout_ns: 2_000_000_000,
            trust: pki.client_trust(),
            unix_base_s: 1_800_000_000,
        };
        Self { client, server, identity: pki.identity() }
    }

    pub fn pair(self) -> Pair {
        let client = Client::new(&Arc::new(self.client), &self.identity, 0);
        Pair {
            now_ns: 0,
            client,
            server: None,
            events: Vec::new(),
            peer_events: Vec::new(),
            at_client: Vec::new(),
            at_server: Vec::new(),
            server_config: Arc::new(self.server),
            up: OneWayLink::default(),
            down: OneWayLink::default(),
            client_wakes_ns: Some(0),
            server_wakes_ns: None,
        }
    }
}

impl OneWayLink {
    fn carry(&mut self, now_ns: u64, packet: &[u8], delivery: Delivery<'_>) {
        let mut packet = packet.to_vec();
        if let Some(delay_ns) = delivery(&mut packet) {
            let arrives = now_ns + delay_ns;
            let place = self.packets.partition_point(|(at_ns, _)| *at_ns <= arrives);
            self.packets.insert(place, (arrives, packet));
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.packets.front().map(|(at_ns, _)| *at_ns)
    }

    fn arrived(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.next_ns().filter(|at_ns| *at_ns <= now_ns)?;
        self.packets.pop_front().map(|(_, packet)| packet)
    }
}

impl Pair {
    /// Advances the time until nothing is in transit, `until_ns` at the latest.
    pub fn run(&mut self, until_ns: u64, delivery: Delivery<'_>) {
        self.settle(delivery);
        loop {
            let next = [self.up.next_ns(), self.down.next_ns(), self.client_wakes_ns, self.server_wakes_ns];
            match next.into_iter().flatten().min() {
                Some(next_ns) if next_ns <= until_ns => self.now_ns = self.now_ns.max(next_ns),
                _ => break,
            }
            while let Some(mut packet) = self.up.arrived(self.now_ns) {
                self.serve(&mut packet);
            }
            while let Some(mut packet) = self.down.arrived(self.now_ns) {
                if let Received::Payload(payload) = self.client.handle(self.now_ns, &mut packet) {
                    self.at_client.push(payload.to_vec());
                }
            }
            self.settle(delivery);
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// Runs a perfect link with a delay of 1 ms for a virtual second.
    pub fn run_a_second(&mut self) {
        self.run(self.now_ns + 1_000_000_000, &mut |_| Some(1_000_000));
    }

    /// Sends a payload from the client.
    pub fn send_up(&mut self, payload: &[u8], delivery: Delivery<'_>) {
        let mut out = Vec::new();
        self.client.send(self.now_ns, payload, &mut out).expect("the tunnel is up");
        self.up.carry(self.now_ns, &out, delivery);
    }

    /// Sends a payload from the server.
    pub fn send_down(&mut self, payload: &[u8], delivery: Delivery<'_>) {
        let mut out = Vec::new();
        self.server.as_mut().expect("a server").send(payload, &mut out).expect("the tunnel is up");
        self.down.carry(self.now_ns, &out, delivery);
    }

    fn serve(&mut self, packet: &mut [u8]) {
        match &mut self.server {
            Some(peer) => {
                let mut whole = packet.to_vec();
                match peer.handle(self.now_ns, packet) {
                    Received::Payload(payload) => self.at_server.push(payload.to_vec()),
                    Received::Control => {}
                    Received::Nothing => peer.begin_fallback(self.now_ns, &mut whole),
                }
            }
            None => {
                let options = vec!["ifconfig 10.8.0.2 255.255.255.0".to_owned()];
                self.server = Peer::accept(&self.server_config, options, 7, self.now_ns, packet);
            }
        }
    }

    fn settle(&mut self, delivery: Delivery<'_>) {
        let mut out = Vec::new();
        if is_due(self.client.deadline_ns(), self.now_ns) {
            loop {
                match self.client.poll(self.now_ns, &mut out) {
                    Output::Send => self.up.carry(self.now_ns, &out, delivery),
                    Output::Event(event) => self.events.push(event),
                    Output::Wait(at_ns) => {
                        assert!(
                            !is_due(at_ns, self.now_ns) && at_ns == self.client.deadline_ns(),
                            "it waits for nothing"
                        );
                        break;
                    }
                }
            }
        }
        // Between its deadlines the client is not polled, as in a fleet.
        self.client_wakes_ns = self.client.deadline_ns();
        let Some(peer) = &mut self.server else { return };
        self.server_wakes_ns = loop {
            match peer.poll(self.now_ns, &mut out) {
                PeerOutput::Send => self.down.carry(self.now_ns, &out, delivery),
                PeerOutput::Event(event) => self.peer_events.push(event),
                PeerOutput::Wait(at_ns) => break at_ns,
            }
        };
    }
}
