//! One client from its first reset to its disconnect: it receives packets and times, and returns what to send and
//! what has happened. Owns the order of the steps and the timers; `session` and `negotiation` have the parts. Never
//! retries: a reconnect is a new client.

use std::collections::VecDeque;
use std::sync::Arc;

use self::fallback_session::FallbackSession;
pub use self::output::{Event, Output};
use self::renewal::Renewal;
pub use super::config::{ClientConfig, Identity, Token};
use super::data::{DataCipher, DataError, DataOptions};
use super::message::push::Pushed;
use super::packet::{Header, Opcode};
use super::session::{Derivation, KeyStateMatch, Session, Shares, Times};
use super::tls::TlsMaker;
pub use crate::protocol::{Counters, Failure, NotUp, Received};

mod exchange;
mod failed_renewal;
mod fallback_session;
mod output;
mod renewal;
mod timers;

/// The payload of a keepalive in the data channel.
pub const PING: [u8; 16] =
    [0x2a, 0x18, 0x7b, 0xf3, 0x64, 0x1e, 0xb4, 0xcb, 0x07, 0xed, 0x2d, 0x0a, 0x98, 0x1f, 0xc7, 0x48];
/// The prefix of messages between the two programs in the data channel; the last byte means `exit`.
pub const EXIT: [u8; 17] =
    [0x28, 0x7f, 0x34, 0x6b, 0xd4, 0xef, 0x7a, 0x81, 0x2d, 0x56, 0xb8, 0xd3, 0xaf, 0xc5, 0x45, 0x9c, 6];

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    Connecting,
    Pushing,
    Up,
    Left,
    Failed,
}

/// The time limits of the wait for options. `since_ns <= end_ns`.
#[derive(Clone, Copy)]
struct PushWait {
    /// When the keys were known, ns.
    since_ns: u64,
    /// The end of the wait, ns: the hand-window, or the time of an AUTH_PENDING.
    end_ns: u64,
    /// When options are next requested, ns.
    request_ns: u64,
}

/// One attempt of one client.
pub struct Client {
    config: Arc<ClientConfig>,
    identity: Identity,
    session: Session,
    stage: Stage,
    events: VecDeque<Event>,
    /// The client's share of the keys in negotiation; the server's share is not known yet.
    own: Option<Box<Shares>>,
    shares: Option<Box<Shares>>,
    /// Whether the newest keys come from a renegotiation that the server has neither accepted nor refused.
    is_unaccepted: bool,
    pushed: Box<Pushed>,
    /// The cipher in the server's options string.
    named_cipher: Option<String>,
    derivation: Derivation,
    options: Option<DataOptions>,
    /// When the current negotiation times out, ns. Set at the beginning of each negotiation; without effect once it has yielded
    /// keys.
    window_end_ns: u64,
    /// The limits of the wait for options. Set when the keys of a first or a fallback session are known, so that `is_pushing` implies
    /// it; without effect once the options are complete.
    push_wait: Option<PushWait>,
    /// When the last packet was sent, ns; before the first one, when the attempt began. The next keepalive counts from it.
    sent_at_ns: u64,
    /// When the last authentic packet was received, ns; before the first one, when the attempt began. The server's silence counts from
    /// it.
    last_received_ns: u64,
    renewal: Renewal,
    fallback: Option<Box<FallbackSession>>,
    /// Pending data packets of the client itself: keepalives, the exit notification.
    due: VecDeque<&'static [u8]>,
    counters: Counters,
}

impl Client {
    /// Begins an attempt; `poll` returns the first packet.
    pub fn new(config: &Arc<ClientConfig>, identity: &Identity, now_ns: u64) -> Self {
        Self {
            config: config.clone(),
            identity: identity.clone(),
            session: first_session(config, identity, now_ns),
            stage: Stage::Connecting,
            events: VecDeque::new(),
            own: None,
            shares: None,
            is_unaccepted: false,
            pushed: Box::default(),
            named_cipher: None,
            derivation: Derivation::Prf,
            options: None,
            window_end_ns: now_ns.saturating_add(config.hand_window_ns),
            push_wait: None,
            sent_at_ns: now_ns,
            last_received_ns: now_ns,
            renewal: Renewal::new(config),
            fallback: None,
            due: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Handles one packet from the socket, over TCP without its length. Data packets are opened in place.
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
            KeyStateMatch::Foreign => {
                self.counters.rejected += 1;
                return Received::Nothing;
            }
            KeyStateMatch::Renewed => self.begin_window(now_ns),
            KeyStateMatch::Current | KeyStateMatch::Previous => {}
        }
        self.last_received_ns = now_ns;
        self.advance(now_ns);
        Received::Control
    }

    fn handle_data<'p>(&'p mut self, now_ns: u64, key_id: u8, packet: &'p mut [u8]) -> Received<'p> {
        let counters = &mut self.counters;
        let is_newest = self.session.newest_key_id() == Some(key_id);
        let Some(channel) = self.session.receiver(now_ns, key_id) else {
            counters.rejected += 1;
            return Received::Nothing;
        };
        let is_ending = channel.exhausted();
        match channel.open(packet) {
            Ok(payload) => {
                counters.opened += 1;
                if is_newest {
                    self.renewal.carried(now_ns, payload.len(), is_ending);
                    if std::mem::take(&mut self.is_unaccepted) {
                        self.events.push_back(Event::RenegotiationAccepted);
                    }
                }
                self.last_received_ns = now_ns;
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

    /// Returns the next action. Call it after `new`, and whenever `deadline_ns` has passed, until it returns `Wait`.
    /// `out` is cleared, and filled if it returns `Send`.
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Output {
        out.clear();
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        self.check_timers(now_ns);
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
            None => Output::Wait(self.deadline_ns()),
        }
    }

    /// When `poll` has work, ns: immediately if in the past; `None` if it only waits for packets. It changes with every call,
    /// also with data that is sent or received; reading it costs little.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.events.is_empty() && self.due.is_empty() {
            self.next_timer_ns()
        } else {
            Some(0)
        }
    }

    /// Seals a packet of the tunnel and appends it to `out`.
    ///
    /// # Errors
    /// The tunnel is not up, or its keys are used up.
    pub fn send(&mut self, now_ns: u64, payload: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        let channel = self.session.sender().ok_or(NotUp)?;
        let sealed = channel.seal(payload, out);
        let is_ending = channel.exhausted();
        if sealed.is_ok() || is_ending {
            self.renewal.carried(now_ns, payload.len(), is_ending);
        }
        sealed.map_err(|_| NotUp)?;
        self.sent_at_ns = now_ns;
        Ok(())
    }

    /// Negotiates new keys, if the tunnel is up and no negotiation is in progress.
    pub fn renegotiate(&mut self, now_ns: u64) {
        if self.stage != Stage::Up || self.fallback.is_some() {
            return;
        }
        if self.session.renegotiate(now_ns) {
            self.renewal.begun(now_ns);
            self.begin_window(now_ns);
        }
    }

    /// Sends an exit notification: call `poll` until `Wait` afterwards.
    pub fn leave(&mut self, _now_ns: u64) {
        if self.stage != Stage::Up {
            return;
        }
        // During a renewal the control channel cannot carry the notification; the data channel can, for any server.
        if self.pushed.cc_exit && self.session.negotiation().is_open() {
            self.session.current().send_message("EXIT");
        } else {
            self.due.push_back(&EXIT);
        }
        self.stage = Stage::Left;
    }

    /// The pushed options, once the tunnel is up.
    pub fn pushed(&self) -> Option<&Pushed> {
        (self.stage == Stage::Up || self.stage == Stage::Left).then_some(&*self.pushed)
    }

    /// The data cipher, once the tunnel is up.
    pub fn cipher(&self) -> Option<DataCipher> {
        self.options.as_ref().map(|options| options.cipher)
    }

    /// The token for the next connection, as OpenVPN keeps it over a reconnect: see `Identity::with_token`.
    pub fn token(&self) -> Option<&Token> {
        self.identity.token.as_ref()
    }

    /// Number of retransmitted control packets.
    pub fn retransmits(&self) -> u32 {
        self.session.retransmits()
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// When the last authenticated packet of the server arrived, ns; `None` if there was none.
    pub fn last_received_ns(&self) -> Option<u64> {
        (self.stage != Stage::Connecting || self.session.negotiation().has_received()).then_some(self.last_received_ns)
    }

    /// The name of the failure if the attempt ended now: the step that it waits for.
    pub fn stuck_at(&self) -> &'static str {
        let negotiation = self.session.negotiation();
        if !negotiation.has_received() {
            "reset_unanswered"
        } else if self.stage == Stage::Pushing {
            "no_push_reply"
        } else if negotiation.is_secured() {
            "no_keys"
        } else if negotiation.is_opened() && negotiation.has_tls_data() {
            "tls_unfinished"
        } else {
            "silence_after_reset"
        }
    }

    fn fail(&mut self, name: &'static str, detail: String) {
        if self.stage != Stage::Failed {
            self.stage = Stage::Failed;
            self.events.push_back(Event::Failed(Failure { name, detail }));
        }
    }
}

/// A session that begins with a reset.
fn first_session(config: &ClientConfig, identity: &Identity, now_ns: u64) -> Session {
    let reset = if config.wrap.is_crypt_v2() { Opcode::HardResetClientV3 } else { Opcode::HardResetClientV2 };
    let times = Times { unix_base_s: config.unix_base_s, first_timeout_ns: config.first_timeout_ns };
    Session::new(TlsMaker::Client(identity.tls.clone()), &config.wrap, reset, times, now_ns)
}
