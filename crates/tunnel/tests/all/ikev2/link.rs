//! A client and a gateway in virtual time, with a link that loses, repeats and reorders datagrams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leadline_tunnel::ikev2::client::{Client, Event, Output};
use leadline_tunnel::ikev2::config::{ClientConfig, Endpoints, Identity, LocalAuth, RemoteAuth};
use leadline_tunnel::ikev2::identification::Id;
use leadline_tunnel::ikev2::proposal::Offer;
use leadline_tunnel::ikev2::random::Random;
use leadline_tunnel::ikev2::route::Path;
use leadline_tunnel::ikev2::secret_bytes::SecretBytes;
use leadline_tunnel::protocol::Received;

use super::responder::{Options, Responder, KEY};
use super::responder_sa::Task;

pub const IKE: &str = "aes128gcm16-prfsha256-x25519-ecp256";
pub const ESP: &str = "aes128gcm16-x25519";
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1000 * MS;

/// How bad the link is.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// One in this many datagrams is lost; 0 loses none.
    pub loss: u64,
    /// One in this many datagrams arrives twice; 0 repeats none.
    pub duplicates: u64,
    /// The largest extra delay, ns, which reorders.
    pub jitter_ns: u64,
}

pub struct Simulation {
    pub client: Client,
    pub gateway: Responder,
    pub now_ns: u64,
    pub events: Vec<Event>,
    /// Number of packets that came back through the tunnel.
    pub echoed: u64,
    /// Time that the client's own calls took.
    pub client_time: Duration,
    faults: Faults,
    state: u64,
    /// Arrival, order, whether it goes to the client, path, bytes.
    flying: Vec<(u64, u64, bool, Path, Vec<u8>)>,
    sent: u64,
}

pub fn settings(ike: &str, esp: &str) -> ClientConfig {
    let (ike, esp) = (Offer::parse_ike(ike).unwrap(), Offer::parse_esp(esp).unwrap());
    let mut config = ClientConfig::new(ike, esp, RemoteAuth::SharedKey);
    config.remote_id = Some(Id::parse("@gw.test"));
    (config.keepalive_ns, config.linger_ns) = (None, 5 * S);
    (config.ike_lifetime.rekey_ns, config.child_lifetime.rekey_ns) = (None, None);
    config
}

pub fn identity() -> Identity {
    let shared_key = Some(SecretBytes::from(KEY));
    Identity { id: Id::parse("c1@test"), auth: LocalAuth::SharedKey, shared_key }
}

impl Simulation {
    pub fn new(config: ClientConfig, identity: Identity, options: Options, faults: Faults, seed: u64) -> Self {
        let endpoints = Endpoints { local: "192.0.2.1:500".parse().unwrap(), peer: "192.0.2.2:500".parse().unwrap() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let (config, identity) = (Arc::new(config), Arc::new(identity));
        let began = Instant::now();
        let client = Client::new(&config, &identity, endpoints, Random::new(bytes), 0);
        Self {
            client_time: began.elapsed(),
            client,
            gateway: Responder::new(IKE, ESP, options),
            now_ns: 0,
            events: Vec::new(),
            echoed: 0,
            faults,
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            flying: Vec::new(),
            sent: 0,
        }
    }

    pub fn good() -> Self {
        Self::new(settings(IKE, ESP), identity(), Options::default(), Faults::default(), 1)
    }

    fn random(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % bound.max(1)
    }

    fn fly(&mut self, to_client: bool, path: Path, bytes: Vec<u8>) {
        if self.faults.loss != 0 && self.random(self.faults.loss) == 0 {
            return;
        }
        let copies = if self.faults.duplicates != 0 && self.random(self.faults.duplicates) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            let at_ns = self.now_ns + 5 * MS + self.random(self.faults.jitter_ns + 1);
            self.sent += 1;
            self.flying.push((at_ns, self.sent, to_client, path, bytes.clone()));
        }
    }

    fn drain(&mut self) {
        let mut out = Vec::new();
        loop {
            let began = Instant::now();
            let output = self.client.poll(self.now_ns, &mut out);
            self.client_time += began.elapsed();
            match output {
                Output::Event(event) => self.events.push(event),
                Output::Send(path) => self.fly(false, path, out.clone()),
                Output::Wait(_) => break,
            }
        }
        for message in std::mem::take(&mut self.gateway.out) {
            let bytes = [&[0; 4], message.as_slice()].concat();
            self.fly(true, Path::Port4500, bytes);
        }
        for packet in std::mem::take(&mut self.gateway.esp_out) {
            self.fly(true, Path::Port4500, packet);
        }
    }

    /// Goes on to the next datagram or timer; `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.drain();
        let arrival = self.flying.iter().map(|one| (one.0, one.1)).min();
        let timers = [self.client.deadline_ns(), self.gateway.check_timers(self.now_ns), arrival.map(|one| one.0)];
        self.drain();
        let Some(next_ns) = timers.into_iter().flatten().min() else { return false };
        self.now_ns = self.now_ns.max(next_ns);
        let Some(at) = self.flying.iter().position(|one| Some((one.0, one.1)) == arrival && one.0 <= self.now_ns)
        else {
            self.gateway.check_timers(self.now_ns);
            self.drain();
            return true;
        };
        let (_, _, to_client, path, mut bytes) = self.flying.remove(at);
        if to_client {
            let began = Instant::now();
            let received = self.client.handle(self.now_ns, path, &mut bytes);
            self.client_time += began.elapsed();
            if let Received::Payload(_) = received {
                self.echoed += 1;
            }
        } else {
            match path {
                Path::Port500 => self.gateway.handle(self.now_ns, &mut bytes),
                Path::Port4500 if bytes.starts_with(&[0; 4]) => self.gateway.handle(self.now_ns, &mut bytes[4..]),
                Path::Port4500 if bytes == [0xFF] => {}
                _ => self.gateway.handle_esp(&mut bytes),
            }
        }
        self.drain();
        true
    }

    /// Goes on until `done`, for at most 20 minutes and 20,000 steps; returns whether it is.
    pub fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        let end_ns = self.now_ns + 1200 * S;
        for _ in 0..20_000 {
            if done(self) {
                return true;
            }
            if self.now_ns > end_ns || !self.step() {
                break;
            }
        }
        done(self)
    }

    pub fn run_for(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while self.next_ns().is_some_and(|next_ns| next_ns <= end_ns) && self.step() {}
        self.now_ns = self.now_ns.max(end_ns);
    }

    fn next_ns(&self) -> Option<u64> {
        self.flying.iter().map(|one| one.0).chain(self.client.deadline_ns()).min()
    }

    pub fn has(&self, wanted: &Event) -> bool {
        self.events.contains(wanted)
    }

    /// Sends packets until one comes back; a loss is no failure of the tunnel.
    pub fn ping(&mut self) -> bool {
        let before = self.echoed;
        for _ in 0..50 {
            let (mut packet, mut sealed) = ([0x5A; 84], Vec::new());
            packet[0] = 0x45;
            if self.client.send(self.now_ns, &packet, &mut sealed).is_ok() {
                self.fly(false, Path::Port4500, sealed);
            }
            let until_ns = self.now_ns + S;
            self.run_until(|one| one.echoed > before || one.now_ns >= until_ns || one.next_ns().is_none());
            if self.echoed > before {
                return true;
            }
            self.now_ns = self.now_ns.max(until_ns);
        }
        false
    }

    pub fn peer_task(&mut self, task: Task) {
        self.gateway.push(self.now_ns, task);
        self.drain();
    }

    /// Whether nothing is under way at either end, and both have one child SA.
    pub fn is_settled(&self) -> bool {
        let is_idle = self.flying.is_empty() && self.gateway.is_idle() && self.client.is_idle();
        is_idle && self.gateway.children() == 1 && self.gateway.sas.len() == 1
    }
}
