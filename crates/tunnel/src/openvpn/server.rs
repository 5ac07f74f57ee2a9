//! A server of our own, for tests and for measuring the protocol alone: one session of it. Owns a server's decisions
//! (cipher, authentication, pushed options). Manages no address pool: the caller provides each client's options.

use std::collections::VecDeque;
use std::sync::Arc;

use super::client::{Counters, NotUp, Received, EXIT, PING};
use super::data::{DataCipher, DataError, DataOptions, Framing};
use super::digest::Digest;
use super::keys::Randoms;
use super::message::control::ControlMessage;
use super::message::key_method::KeyMethod;
use super::message::peer_info::{self, Protocols};
use super::negotiation::{Advance, NegotiationError};
use super::packet::{Header, Opcode};
use super::random;
use super::reliable::FIRST_TIMEOUT_NS;
use super::session::{Derivation, KeyStateMatch, Session, Shares, Times};
use super::tls::TlsMaker;
use super::wrap::WrapKeys;

/// Settings that all sessions of a server share.
pub struct ServerConfig {
    /// TLS; see `tls::server_config`.
    pub tls: Arc<rustls::ServerConfig>,
    /// Wrapping of control packets.
    pub wrap: WrapKeys,
    /// Data ciphers, the preferred first.
    pub ciphers: Vec<DataCipher>,
    /// The digest of CBC ciphers, if any.
    pub digest: Option<Digest>,
    /// Framing of payloads.
    pub framing: Framing,
    /// Options that every client receives; each client's own options are added.
    pub push: Vec<String>,
    /// Protocol features that the server accepts if a client offers them.
    pub protocols: Protocols,
    /// Users with their passwords; if empty, every user is accepted.
    pub users: Vec<(String, String)>,
    /// Unix time at `now_ns` 0, s.
    pub unix_base_s: u64,
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// The client has its options; data can be sent in both directions.
    Up,
    /// New keys are in use.
    Renegotiated,
    /// The client has disconnected.
    Left,
    /// The session is over; the name of the reason.
    Failed(&'static str),
}

/// The caller's next action.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerOutput {
    /// Send the packet in the buffer.
    Send,
    /// An event.
    Event(PeerEvent),
    /// Wait for a packet, or until this time, ns.
    Wait(Option<u64>),
}

/// The server's session with one client.
pub struct Peer {
    config: Arc<ServerConfig>,
    /// Options for this client only: addresses, peer id.
    client_options: Vec<String>,
    peer_id: u32,
    session: Session,
    events: VecDeque<PeerEvent>,
    shares: Option<Box<Shares>>,
    agreed: Option<Agreed>,
    /// The users for this session's next keys, if they differ from the configuration's.
    users: Option<Vec<(String, String)>>,
    /// The options string of a server that negotiates no cipher and pushes none.
    fixed_options: Option<String>,
    /// Whether requests for options are ignored.
    is_held: bool,
    is_up: bool,
    is_over: bool,
    counters: Counters,
}

#[derive(Clone, Copy)]
struct Agreed {
    cipher: DataCipher,
    protocols: Protocols,
}

impl Peer {
    /// Accepts a client's first packet, a reset; `None` if it is not one, or its wrap is wrong. `client_options` are
    /// pushed to this client besides the common ones.
    pub fn accept(
        config: &Arc<ServerConfig>,
        client_options: Vec<String>,
        peer_id: u32,
        now_ns: u64,
        packet: &mut [u8],
    ) -> Option<Self> {
        let opcode = Header::parse(*packet.first()?)?.opcode;
        if !matches!(opcode, Opcode::HardResetClientV2 | Opcode::HardResetClientV3) {
            return None;
        }
        let tls = TlsMaker::Server(config.tls.clone());
        let times = Times { unix_base_s: config.unix_base_s, first_timeout_ns: FIRST_TIMEOUT_NS };
        let mut session = Session::new(tls, &config.wrap, Opcode::HardResetServerV2, times, now_ns);
        (session.receive(now_ns, packet) == KeyStateMatch::Current).then(|| Self {
            config: config.clone(),
            client_options,
            peer_id,
            session,
            events: VecDeque::new(),
            shares: None,
            agreed: None,
            users: None,
            fixed_options: None,
            is_held: false,
            is_up: false,
            is_over: false,
            counters: Counters::default(),
        })
    }

    /// Accepts a reset with which a client begins a second session while its old keys remain in use. Ignores other
    /// packets. Unlike OpenVPN, accepts it before the new session has authenticated.
    pub fn begin_fallback(&mut self, now_ns: u64, packet: &mut [u8]) {
        let Some(mut next) = Self::accept(&self.config, self.client_options.clone(), self.peer_id, now_ns, packet)
        else {
            return;
        };
        std::mem::swap(&mut next.session, &mut self.session);
        self.session.take_over(next.session);
        (self.agreed, self.shares) = (None, None);
        (self.is_up, self.is_over) = (false, false);
    }

    /// Handles one packet from the client.
    pub fn handle<'p>(&'p mut self, now_ns: u64, packet: &'p mut [u8]) -> Received<'p> {
        let Some(header) = packet.first().and_then(|byte| Header::parse(*byte)) else { return Received::Nothing };
        if matches!(header.opcode, Opcode::DataV1 | Opcode::DataV2) {
            return self.handle_data(now_ns, header.key_id, packet);
        }
        if self.is_over || self.session.receive(now_ns, packet) == KeyStateMatch::Foreign {
            return Received::Nothing;
        }
        self.advance(now_ns);
        Received::Control
    }

    fn handle_data<'p>(&'p mut self, now_ns: u64, key_id: u8, packet: &'p mut [u8]) -> Received<'p> {
        let counters = &mut self.counters;
        let Some(channel) = self.session.receiver(now_ns, key_id) else {
            counters.rejected += 1;
            return Received::Nothing;
        };
        match channel.open(packet) {
            Ok(payload) if *payload == PING => {
                counters.opened += 1;
                counters.pings += 1;
                Received::Nothing
            }
            Ok(payload) if *payload == EXIT => {
                self.events.push_back(PeerEvent::Left);
                Received::Control
            }
            Ok(payload) => {
                counters.opened += 1;
                Received::Payload(payload)
            }
            Err(DataError::Replayed) => {
                counters.replayed += 1;
                Received::Nothing
            }
            Err(_) => {
                counters.rejected += 1;
                Received::Nothing
            }
        }
    }

    /// Like `Client::poll`.
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> PeerOutput {
        out.clear();
        if self.session.transmit(now_ns, out) {
            return PeerOutput::Send;
        }
        match self.events.pop_front() {
            Some(event) => PeerOutput::Event(event),
            None => PeerOutput::Wait(self.session.deadline().filter(|_| !self.is_over)),
        }
    }

    /// Like `Client::send`.
    ///
    /// # Errors
    /// The client has no keys yet, or they are used up.
    pub fn send(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        self.session.sender().ok_or(NotUp)?.seal(payload, out).map_err(|_| NotUp)
    }

    /// Negotiates new keys, if no negotiation is in progress.
    pub fn renegotiate(&mut self, now_ns: u64) {
        if !self.is_over {
            self.session.renegotiate(now_ns);
        }
    }

    /// Sends this message unchanged.
    pub fn send_message(&mut self, message: &str) {
        self.session.current().send_message(message);
    }

    /// Accepts these users and passwords from the next keys on.
    pub fn admit(&mut self, users: Vec<(String, String)>) {
        self.users = Some(users);
    }

    /// Acts as a server that negotiates no cipher: it pushes none, and has this options string.
    pub fn fix_options(&mut self, options: &str) {
        self.fixed_options = Some(options.to_owned());
    }

    /// Ignores requests for options.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn advance(&mut self, now_ns: u64) {
        while !self.is_over {
            match self.session.current().advance() {
                Ok(Some(Advance::Opened | Advance::Secured)) => {}
                Ok(Some(Advance::Keys(method))) => self.take_keys(now_ns, &method),
                Ok(Some(Advance::Message(message))) => self.take_message(now_ns, &message),
                Ok(None) => return,
                Err(NegotiationError::Tls(failure)) => self.end(failure.name),
                Err(NegotiationError::Message(_)) => self.end("malformed_message"),
            }
        }
    }

    fn take_keys(&mut self, now_ns: u64, method: &KeyMethod) {
        let server = Randoms { r1: random::bytes(), r2: random::bytes() };
        let answer = KeyMethod {
            pre_master: None,
            random1: server.r1,
            random2: server.r2,
            options: self.fixed_options.as_ref().unwrap_or(&method.options).clone(),
            user: None,
            password: None,
            peer_info: None,
        };
        let mut bytes = Vec::new();
        if answer.write(&mut bytes).is_err() {
            return self.end("tls_internal");
        }
        self.session.current().write(&bytes);
        let client = Randoms { r1: method.random1, r2: method.random2 };
        let pre_master = method.pre_master.unwrap_or([0; 48]);
        self.shares = Some(Box::new(Shares { pre_master, client, server }));
        if !self.may_come_in(method) {
            self.session.current().send_message("AUTH_FAILED");
            return self.end("auth_failed");
        }
        if self.agreed.is_some() {
            if self.is_up && self.install(now_ns) {
                self.events.push_back(PeerEvent::Renegotiated);
            }
            return;
        }
        let info = method.peer_info.as_deref().unwrap_or_default();
        let Some(cipher) = self.choose(info) else {
            self.session
                .current()
                .send_message("AUTH_FAILED,Data channel cipher negotiation failed (no shared cipher)");
            return self.end("cipher_not_offered");
        };
        let offered = peer_info::protocols(info);
        self.agreed = Some(Agreed { cipher, protocols: Protocols(offered.0 & self.config.protocols.0) });
        if offered.has(Protocols::REQUEST_PUSH) && !self.is_held {
            self.push(now_ns);
        }
    }

    fn may_come_in(&self, method: &KeyMethod) -> bool {
        let client_options = method.user.as_deref().zip(method.password.as_ref().map(|password| password.expose()));
        let users = self.users.as_ref().unwrap_or(&self.config.users);
        users.is_empty()
            || users.iter().any(|(user, password)| client_options == Some((user.as_str(), password.as_str())))
    }

    /// The first of the server's ciphers that the client offers.
    fn choose(&self, info: &str) -> Option<DataCipher> {
        let offered: Vec<_> = peer_info::ciphers(info).filter_map(DataCipher::from_name).collect();
        self.config.ciphers.iter().copied().find(|cipher| offered.contains(cipher))
    }

    fn push(&mut self, now_ns: u64) {
        let Some(agreed) = self.agreed else { return };
        let mut options = vec!["PUSH_REPLY".to_owned()];
        options.extend(self.config.push.iter().cloned());
        options.extend(self.client_options.iter().cloned());
        options.push(format!("peer-id {}", self.peer_id));
        if self.fixed_options.is_none() {
            options.push(format!("cipher {}", agreed.cipher.name()));
        }
        let flags = [
            (Protocols::CONTROL_EXIT, "cc-exit"),
            (Protocols::TLS_KEY_EXPORT, "tls-ekm"),
            (Protocols::DYNAMIC_TLS_CRYPT, "dyn-tls-crypt"),
            (Protocols::DATA_EPOCH, "aead-epoch"),
        ];
        let words: Vec<_> =
            flags.iter().filter(|(flag, _)| agreed.protocols.has(*flag)).map(|(_, word)| *word).collect();
        if !words.is_empty() {
            options.push(format!("protocol-flags {}", words.join(" ")));
        }
        self.session.current().send_message(&options.join(","));
        if agreed.protocols.has(Protocols::DYNAMIC_TLS_CRYPT) && self.session.renew_wrap().is_err() {
            return self.end("tls_internal");
        }
        if self.install(now_ns) {
            self.is_up = true;
            self.events.push_back(PeerEvent::Up);
        }
    }

    fn take_message(&mut self, now_ns: u64, message: &ControlMessage) {
        match message {
            ControlMessage::Exit => self.events.push_back(PeerEvent::Left),
            ControlMessage::PushRequest if !self.is_up && !self.is_held => self.push(now_ns),
            _ => {}
        }
    }

    fn install(&mut self, now_ns: u64) -> bool {
        let (Some(shares), Some(agreed)) = (self.shares.take(), self.agreed) else { return false };
        let exported = agreed.protocols.has(Protocols::TLS_KEY_EXPORT);
        let derivation = if exported { Derivation::Exported } else { Derivation::Prf };
        let options = DataOptions {
            cipher: agreed.cipher,
            digest: self.config.digest,
            peer_id: Some(self.peer_id),
            epoch: agreed.protocols.has(Protocols::DATA_EPOCH) && agreed.cipher.is_aead(),
            framing: self.config.framing,
            ..DataOptions::new(agreed.cipher)
        };
        let installed = self.session.install(now_ns, derivation, &shares, &options).is_ok();
        if !installed {
            self.end("data_keys");
        }
        installed
    }

    fn end(&mut self, name: &'static str) {
        self.is_over = true;
        self.events.push_back(PeerEvent::Failed(name));
    }
}
