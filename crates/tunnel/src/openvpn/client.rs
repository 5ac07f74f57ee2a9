//! One client from its first reset to its leaving: given packets and a time, it says what to send and what has happened.
//! Owns the order of things and the clocks that run in it; the parts are in `session` and `negotiation`. It refuses to try
//! again: a reconnect is a new client.

use std::collections::VecDeque;
use std::sync::Arc;

use zeroize::Zeroize;

pub use super::config::{ClientConfig, Identity};
use super::data::{DataCipher, DataError, DataOptions, Framing};
use super::keys::Randoms;
use super::message::control::ControlMessage;
use super::message::key_method::KeyMethod;
use super::message::push::{Completeness, Pushed};
use super::negotiation::{Advance, Broken};
use super::packet::{Header, Opcode};
use super::random;
use super::secret::Secret;
use super::session::{Derivation, Heard, Session, Shares, Times, TlsMaker};

/// What keeps an idle tunnel alive, inside of the data channel.
pub const PING: [u8; 16] =
    [0x2a, 0x18, 0x7b, 0xf3, 0x64, 0x1e, 0xb4, 0xcb, 0x07, 0xed, 0x2d, 0x0a, 0x98, 0x1f, 0xc7, 0x48];
/// How messages between the two programs begin inside of the data channel; the last byte says `exit`.
pub const EXIT: [u8; 17] =
    [0x28, 0x7f, 0x34, 0x6b, 0xd4, 0xef, 0x7a, 0x81, 0x2d, 0x56, 0xb8, 0xd3, 0xaf, 0xc5, 0x45, 0x9c, 6];

const SECOND_NS: u64 = 1_000_000_000;
/// A server that pushes by itself has done so by then.
const FIRST_REQUEST_NS: u64 = SECOND_NS;
/// Between one request for options and the next.
const REQUEST_NS: u64 = 5 * SECOND_NS;
/// What cannot be sealed because keys end is asked for anew at most this often.
const RENEWAL_PAUSE_NS: u64 = 10 * SECOND_NS;

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send what is in the buffer: one packet.
    Send,
    /// Something has happened.
    Event(Event),
    /// Nothing until a packet comes, or this time, ns.
    Wait(Option<u64>),
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first reset was answered.
    Answered,
    /// TLS's handshake is done.
    TlsDone,
    /// Both shares of the keys are known.
    KeysDone,
    /// The options have come; data can be sent.
    Up,
    /// New keys are in use.
    Renegotiated,
    /// The server has changed options of a tunnel that is up.
    Updated,
    /// The server asks for more time, or for a second factor that nobody here can give.
    Pending,
    /// The server wants the client to connect anew.
    Restart(String),
    /// The server has left.
    PeerLeft,
    /// It is over.
    Failed(Failure),
}

/// Why a client could not connect, or not stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable name to count by.
    pub name: &'static str,
    /// What is known beyond the name; may be empty.
    pub detail: String,
}

/// What a received packet was.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'p> {
    /// An IP packet from inside of the tunnel.
    Payload(&'p mut [u8]),
    /// Of the control channel: `poll` may have something.
    Control,
    /// Nothing to act on: a keepalive, a packet that came twice, noise. Counted.
    Nothing,
}

/// Data cannot be sent: the tunnel is not up, or its keys are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tunnel is not up")]
pub struct NotUp;

/// What has come and gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data packets that were opened, keepalives included.
    pub opened: u64,
    /// Data packets that came again, or too late to tell.
    pub replayed: u64,
    /// Packets that could not be authenticated, or belong to nobody here.
    pub rejected: u64,
    /// Keepalives that came.
    pub pings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    Connecting,
    Pushing,
    Up,
    Left,
    Failed,
}

/// One attempt of one client.
pub struct Client {
    config: Arc<ClientConfig>,
    identity: Identity,
    session: Session,
    stage: Stage,
    events: VecDeque<Event>,
    own: Option<Box<(Randoms, [u8; 48])>>,
    shares: Option<Box<Shares>>,
    pushed: Box<Pushed>,
    derivation: Derivation,
    options: Option<DataOptions>,
    token: Option<Secret>,
    window_end_ns: u64,
    request_at_ns: u64,
    sent_at_ns: u64,
    heard_at_ns: u64,
    renewal_at_ns: Option<u64>,
    retransmits_before: u32,
    /// Data packets that wait to be sent by themselves: keepalives, the farewell.
    due: VecDeque<&'static [u8]>,
    counters: Counters,
}

impl Client {
    /// Begin an attempt; `poll` has the first packet.
    pub fn new(config: &Arc<ClientConfig>, identity: &Identity, now_ns: u64) -> Self {
        let reset = if config.wrap.is_crypt_v2() { Opcode::HardResetClientV3 } else { Opcode::HardResetClientV2 };
        let tls = TlsMaker::Client(identity.tls.clone());
        let times = Times { unix_base_s: config.unix_base_s, first_timeout_ns: config.first_timeout_ns };
        let session = Session::new(tls, &config.wrap, reset, times, now_ns)
            .expect("the identity's configuration was tried when it was made");
        Self {
            config: config.clone(),
            identity: identity.clone(),
            session,
            stage: Stage::Connecting,
            events: VecDeque::new(),
            own: None,
            shares: None,
            pushed: Box::default(),
            derivation: Derivation::Prf,
            options: None,
            token: None,
            window_end_ns: now_ns.saturating_add(config.hand_window_ns),
            request_at_ns: 0,
            sent_at_ns: now_ns,
            heard_at_ns: now_ns,
            renewal_at_ns: None,
            retransmits_before: 0,
            due: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Take one packet from the socket, of TCP without its length. Data packets are opened in place.
    pub fn handle<'p>(&'p mut self, now_ns: u64, packet: &'p mut [u8]) -> Received<'p> {
        let Some(header) = packet.first().and_then(|byte| Header::parse(*byte)) else {
            self.counters.rejected += 1;
            return Received::Nothing;
        };
        if matches!(header.opcode, Opcode::DataV1 | Opcode::DataV2) {
            return self.handle_data(now_ns, header.key_id, packet);
        }
        if self.stage == Stage::Failed {
            return Received::Nothing;
        }
        match self.session.receive(now_ns, packet) {
            Heard::Foreign => {
                self.counters.rejected += 1;
                return Received::Nothing;
            }
            Heard::Renewed => self.begin_window(now_ns),
            Heard::Current | Heard::Previous => {}
        }
        self.heard_at_ns = now_ns;
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
            Ok(payload) => {
                counters.opened += 1;
                self.heard_at_ns = now_ns;
                if *payload == PING {
                    counters.pings += 1;
                    return Received::Nothing;
                }
                if payload.starts_with(&EXIT[..16]) {
                    if payload.get(16) == Some(&EXIT[16]) {
                        self.events.push_back(Event::PeerLeft);
                        return Received::Control;
                    }
                    return Received::Nothing;
                }
                Received::Payload(payload)
            }
            Err(error) => {
                match error == DataError::Replayed {
                    true => counters.replayed += 1,
                    false => counters.rejected += 1,
                }
                Received::Nothing
            }
        }
    }

    /// What to do next: call after `new`, `handle`, `renegotiate`, `leave` and at the deadline, until it says `Wait`.
    /// `out` is cleared, and filled where it says `Send`.
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Output {
        out.clear();
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        self.look_at_clocks(now_ns);
        if self.session.transmit(now_ns, out) {
            self.sent_at_ns = now_ns;
            return Output::Send;
        }
        if let Some(payload) = self.due.pop_front() {
            if self.send(now_ns, payload, out).is_ok() {
                return Output::Send;
            }
        }
        match self.events.pop_front() {
            Some(event) => Output::Event(event),
            None => Output::Wait(self.deadline()),
        }
    }

    /// Seal a packet from inside; one packet is appended to `out`.
    ///
    /// # Errors
    /// Before the tunnel is up, or after its keys are used up.
    pub fn send(&mut self, now_ns: u64, payload: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        let channel = self.session.sender().ok_or(NotUp)?;
        channel.seal(payload, out).map_err(|_| NotUp)?;
        self.sent_at_ns = now_ns;
        if channel.exhausted() && self.renewal_at_ns.is_none_or(|at| now_ns >= at) {
            self.renewal_at_ns = Some(now_ns);
        }
        Ok(())
    }

    /// Negotiate new keys, where the tunnel is up and nothing is being negotiated.
    pub fn renegotiate(&mut self, now_ns: u64) {
        if self.stage != Stage::Up {
            return;
        }
        let before = self.session.retransmits();
        match self.session.renegotiate(now_ns) {
            Ok(true) => {
                self.retransmits_before += before;
                self.begin_window(now_ns);
            }
            Ok(false) => {}
            Err(failure) => self.fail(failure.name, failure.detail),
        }
    }

    /// Say farewell: then `poll` until `Wait`.
    pub fn leave(&mut self, _now_ns: u64) {
        if self.stage != Stage::Up {
            return;
        }
        // While keys are renewed the control channel has nothing to say it in: the data channel says it to any server.
        if self.pushed.cc_exit && self.session.negotiation().is_open() {
            self.session.current().say("EXIT");
        } else {
            self.due.push_back(&EXIT);
        }
        self.stage = Stage::Left;
    }

    /// What the server has given, once the tunnel is up.
    pub fn pushed(&self) -> Option<&Pushed> {
        (self.stage == Stage::Up || self.stage == Stage::Left).then_some(&*self.pushed)
    }

    /// The data cipher, once the tunnel is up.
    pub fn cipher(&self) -> Option<DataCipher> {
        self.options.as_ref().map(|options| options.cipher)
    }

    /// Control packets that were sent again.
    pub fn retransmits(&self) -> u32 {
        self.retransmits_before + self.session.retransmits()
    }

    /// What has come and gone.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What an attempt that ends now would have failed by: how far it has come.
    pub fn stuck_at(&self) -> &'static str {
        let negotiation = self.session.negotiation();
        if !negotiation.heard() {
            "reset_unanswered"
        } else if self.stage == Stage::Pushing {
            "no_push_reply"
        } else if negotiation.is_secured() {
            "no_keys"
        } else if negotiation.is_opened() && negotiation.tls_heard() {
            "tls_unfinished"
        } else {
            "silence_after_reset"
        }
    }

    fn advance(&mut self, now_ns: u64) {
        loop {
            match self.session.current().advance() {
                Ok(Some(Advance::Opened)) => self.note_first(Event::Answered),
                Ok(Some(Advance::Secured)) => {
                    self.note_first(Event::TlsDone);
                    self.write_keys();
                }
                Ok(Some(Advance::Keys(method))) => self.take_keys(now_ns, &method),
                Ok(Some(Advance::Message(message))) => self.take_message(now_ns, message),
                Ok(None) => return,
                Err(Broken::Tls(failure)) => return self.fail(failure.name, failure.detail),
                Err(Broken::Message(detail)) => return self.fail("malformed_message", detail),
            }
            if self.stage == Stage::Failed {
                return;
            }
        }
    }

    /// Renegotiations go the same way; their steps are nobody's first.
    fn note_first(&mut self, event: Event) {
        if self.stage == Stage::Connecting {
            self.events.push_back(event);
        }
    }

    fn write_keys(&mut self) {
        let pre_master = random::bytes();
        let own = Randoms { r1: random::bytes(), r2: random::bytes() };
        let (user, password) = match (&self.token, &self.identity.user) {
            (Some(token), Some((user, _))) => {
                let user = self.pushed.auth_token_user.as_ref().unwrap_or(user);
                (Some(user.clone()), Some(token.clone()))
            }
            (_, Some((user, password))) => (Some(user.clone()), Some(password.clone())),
            (_, None) => (None, None),
        };
        let method = KeyMethod {
            pre_master: Some(pre_master),
            random1: own.r1,
            random2: own.r2,
            options: self.config.occ.clone(),
            user,
            password,
            peer_info: Some(self.config.peer_info.clone()),
        };
        let mut bytes = Vec::new();
        if let Err(error) = method.write(&mut bytes) {
            return self.fail("credentials_too_long", error.to_string());
        }
        self.session.current().write(&bytes);
        bytes.zeroize();
        self.own = Some(Box::new((own, pre_master)));
    }

    fn take_keys(&mut self, now_ns: u64, method: &KeyMethod) {
        let Some(own) = self.own.take() else { return };
        let (client, pre_master) = *own;
        let server = Randoms { r1: method.random1, r2: method.random2 };
        self.shares = Some(Box::new(Shares { pre_master, client, server }));
        if self.stage == Stage::Connecting {
            self.stage = Stage::Pushing;
            self.request_at_ns = now_ns + FIRST_REQUEST_NS;
            self.events.push_back(Event::KeysDone);
        } else if self.install(now_ns) {
            self.events.push_back(Event::Renegotiated);
        }
    }

    fn take_message(&mut self, now_ns: u64, message: ControlMessage) {
        match message {
            ControlMessage::PushReply(text) if self.stage == Stage::Pushing => match self.pushed.absorb(&text) {
                Ok(Completeness::Complete) => self.come_up(now_ns),
                Ok(Completeness::More) => {}
                Err(error) => self.fail("malformed_push", error.to_string()),
            },
            ControlMessage::PushUpdate(text) if self.stage == Stage::Up => match self.pushed.update(&text) {
                Ok(Completeness::Complete) => self.events.push_back(Event::Updated),
                Ok(Completeness::More) => {}
                Err(error) => self.fail("malformed_push", error.to_string()),
            },
            ControlMessage::AuthFailed { reason, temporary, .. } => {
                let name = if temporary { "auth_failed_temporary" } else { "auth_failed" };
                self.fail(name, reason.unwrap_or_default());
            }
            ControlMessage::AuthPending { timeout_s } => {
                let longest = timeout_s.map_or(self.config.hand_window_ns, |s| u64::from(s) * SECOND_NS);
                self.window_end_ns = self.window_end_ns.max(now_ns.saturating_add(longest));
                self.events.push_back(Event::Pending);
            }
            ControlMessage::Restart { reason, .. } => self.events.push_back(Event::Restart(reason.unwrap_or_default())),
            ControlMessage::Halt { reason } => self.fail("halted_by_server", reason.unwrap_or_default()),
            ControlMessage::Exit => self.events.push_back(Event::PeerLeft),
            // A push that is repeated, and what is meant for a person or for nobody.
            _ => {}
        }
    }

    fn come_up(&mut self, now_ns: u64) {
        let pushed = &*self.pushed;
        let cipher = match self.config.cipher_for(pushed.cipher.as_deref()) {
            Ok(cipher) => cipher,
            Err(name) => return self.fail("cipher_not_offered", format!("the server chose {name}")),
        };
        self.derivation = if pushed.tls_ekm { Derivation::Exported } else { Derivation::Prf };
        self.options = Some(DataOptions {
            cipher,
            digest: self.config.digest,
            peer_id: pushed.peer_id,
            epoch: pushed.epoch,
            framing: pushed.compression.map_or(self.config.framing, Framing::from),
            replay_window: self.config.replay_window,
            largest_payload: usize::from(pushed.tun_mtu.unwrap_or(0)).max(self.config.largest_payload),
        });
        self.token = pushed.auth_token.clone();
        if pushed.dyn_tls_crypt {
            if let Err(failure) = self.session.renew_wrap() {
                return self.fail(failure.name, failure.detail);
            }
        }
        if self.install(now_ns) {
            self.stage = Stage::Up;
            self.events.push_back(Event::Up);
        }
    }

    fn install(&mut self, now_ns: u64) -> bool {
        let (Some(shares), Some(options)) = (self.shares.take(), self.options.as_ref()) else { return false };
        if let Err(error) = self.session.install(now_ns, self.derivation, &shares, options) {
            self.fail("data_keys", error.to_string());
            return false;
        }
        self.renewal_at_ns = self.config.renegotiate_after_ns.map(|after| now_ns.saturating_add(after));
        true
    }

    fn look_at_clocks(&mut self, now_ns: u64) {
        if matches!(self.stage, Stage::Failed | Stage::Left) {
            return;
        }
        if self.is_negotiating() && now_ns >= self.window_end_ns {
            let name = if self.stage == Stage::Up { "renegotiation_timeout" } else { self.stuck_at() };
            return self.fail(name, "the hand window has passed".to_owned());
        }
        match self.stage {
            Stage::Pushing if now_ns >= self.request_at_ns => {
                self.session.current().say("PUSH_REQUEST");
                self.request_at_ns = now_ns + REQUEST_NS;
            }
            Stage::Up => {
                if let Some(restart_ns) = self.restart_after_ns() {
                    if now_ns >= self.heard_at_ns.saturating_add(restart_ns) {
                        return self.fail("ping_restart", "nothing came from the server for too long".to_owned());
                    }
                }
                if self.ping_after_ns().is_some_and(|ping_ns| now_ns >= self.sent_at_ns.saturating_add(ping_ns)) {
                    self.due.push_back(&PING);
                    self.sent_at_ns = now_ns;
                }
                if self.renewal_at_ns.is_some_and(|at| now_ns >= at) || self.is_worn() {
                    self.renewal_at_ns = Some(now_ns + RENEWAL_PAUSE_NS);
                    self.renegotiate(now_ns);
                }
            }
            _ => {}
        }
    }

    /// Whether the newest keys have carried what the profile lets them.
    fn is_worn(&mut self) -> bool {
        let limits = self.config.renegotiate_after;
        if self.is_negotiating() || (limits.bytes.is_none() && limits.packets.is_none()) {
            return false;
        }
        let Some(usage) = self.session.sender().map(|channel| channel.usage()) else { return false };
        limits.bytes.is_some_and(|most| usage.sealed_bytes + usage.opened_bytes >= most)
            || limits.packets.is_some_and(|most| usage.sealed_packets + usage.opened_packets >= most)
    }

    fn deadline(&self) -> Option<u64> {
        if self.stage == Stage::Failed {
            return None;
        }
        // Who has left waits for no negotiation any more.
        let window = (self.stage != Stage::Left && self.is_negotiating()).then_some(self.window_end_ns);
        let request = (self.stage == Stage::Pushing).then_some(self.request_at_ns);
        let up = self.stage == Stage::Up;
        let ping = self.ping_after_ns().filter(|_| up).map(|after| self.sent_at_ns.saturating_add(after));
        let restart = self.restart_after_ns().filter(|_| up).map(|after| self.heard_at_ns.saturating_add(after));
        let renewal = self.renewal_at_ns.filter(|_| up);
        [self.session.deadline(), window, request, ping, restart, renewal].into_iter().flatten().min()
    }

    fn is_negotiating(&self) -> bool {
        matches!(self.stage, Stage::Connecting | Stage::Pushing) || !self.session.negotiation().is_open()
    }

    fn begin_window(&mut self, now_ns: u64) {
        self.window_end_ns = now_ns.saturating_add(self.config.hand_window_ns);
    }

    fn ping_after_ns(&self) -> Option<u64> {
        self.pushed.ping_s.or(self.config.ping_s).filter(|s| *s > 0).map(|s| u64::from(s) * SECOND_NS)
    }

    fn restart_after_ns(&self) -> Option<u64> {
        self.pushed.ping_restart_s.or(self.config.ping_restart_s).filter(|s| *s > 0).map(|s| u64::from(s) * SECOND_NS)
    }

    fn fail(&mut self, name: &'static str, detail: String) {
        if self.stage != Stage::Failed {
            self.stage = Stage::Failed;
            self.events.push_back(Event::Failed(Failure { name, detail }));
        }
    }
}
