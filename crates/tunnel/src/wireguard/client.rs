//! One WireGuard client, from its first initiation until it leaves: a session of a fleet (`crate::protocol`). boringtun
//! performs the cryptography; the timers of the paper's section 6 are here, in the caller's time. Never gives up its
//! first handshake by itself: the attempt's time limit does.

use std::collections::VecDeque;
use std::sync::Arc;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519;

use super::identity::{ClientKeys, GatewayKeys};
use super::machine::{counter_of, OVERHEAD_BYTES, REJECT_AFTER_MESSAGES, SPACE_MIN_BYTES};
use super::message;
use super::peer::Step as Outcome;
use crate::client::assigned_config::AssignedConfig;
use crate::client::server::Server;
use crate::protocol::{Counters, Event, Failure, Granted, NotUp, Output, Received, Session, Step};
use crate::timer::{earlier, is_due};

const SECOND_NS: u64 = 1_000_000_000;
/// The paper, section 6.1: an initiator renews its keys when it sends with keys of this age.
const REKEY_AFTER_NS: u64 = 120 * SECOND_NS;
/// Keys of this age are not used.
const REJECT_AFTER_NS: u64 = 180 * SECOND_NS;
/// How long a handshake is tried.
const REKEY_ATTEMPT_NS: u64 = 90 * SECOND_NS;
/// When an unanswered initiation is repeated, plus a jitter.
const REKEY_TIMEOUT_NS: u64 = 5 * SECOND_NS;
/// When a received packet is confirmed by a keepalive if nothing else is sent.
const KEEPALIVE_TIMEOUT_NS: u64 = 10 * SECOND_NS;
/// An initiator that receives with keys of this age renews them.
const REKEY_ON_RECEIVE_NS: u64 = REJECT_AFTER_NS - KEEPALIVE_TIMEOUT_NS - REKEY_TIMEOUT_NS;
/// Silence after sent data that causes a handshake.
const SILENCE_NS: u64 = KEEPALIVE_TIMEOUT_NS + REKEY_TIMEOUT_NS;
/// The paper: a jitter of 0 to 333 ms, so that clients do not repeat at one instant.
const JITTER_MS: u64 = 334;

/// One attempt of one client.
pub struct Client {
    number: u32,
    gateway: Arc<GatewayKeys>,
    own: Arc<ClientKeys>,
    tunnel: Tunn,
    /// The newest keys; `None` before the first handshake is done.
    keys: Option<Keys>,
    /// The handshake in progress that this end began.
    handshake: Option<Handshake>,
    is_over: bool,
    events: VecDeque<Event>,
    /// Datagrams that answer received ones, in order.
    queued: VecDeque<Vec<u8>>,
    /// When the last authentic packet was received, ns.
    last_received_ns: Option<u64>,
    /// When received data is confirmed by a keepalive, ns.
    confirm_ns: Option<u64>,
    /// When the silence after sent data causes a handshake, ns.
    silence_ns: Option<u64>,
    /// When the next persistent keepalive is due, ns.
    persistent_ns: Option<u64>,
    /// Whether boringtun has no initiation left that could expire: then it may drop old keys.
    may_tidy: bool,
    is_answered: bool,
    has_cookie: bool,
    has_rejected_response: bool,
    retransmits: u32,
    counters: Counters,
}

/// The newest keys.
#[derive(Clone, Copy)]
struct Keys {
    since_ns: u64,
    /// Only the initiator renews keys because of their age.
    is_initiator: bool,
}

/// A handshake that this end began.
#[derive(Clone, Copy)]
struct Handshake {
    began_ns: u64,
    /// When the next initiation is due, ns.
    next_ns: u64,
    /// Number of initiations sent.
    sent: u32,
}

impl Client {
    /// Begins a client's attempt; `poll` returns the initiation.
    pub fn new(number: u32, own: &Arc<ClientKeys>, gateway: &Arc<GatewayKeys>, now_ns: u64) -> Self {
        let private = own.private_key.0.clone();
        // Each datagram is checked against this limiter; a client has no load to defend itself against.
        let limiter = Arc::new(RateLimiter::new(&own.public_key, u64::MAX));
        let peer = x25519::PublicKey::from(gateway.public_key.0);
        let preshared = own.preshared_key.as_ref().map(|key| key.0);
        Self {
            number,
            gateway: Arc::clone(gateway),
            own: Arc::clone(own),
            tunnel: Tunn::new(private, peer, preshared, None, number & 0xff_ffff, Some(limiter)),
            keys: None,
            handshake: Some(Handshake { began_ns: now_ns, next_ns: now_ns, sent: 0 }),
            is_over: false,
            events: VecDeque::new(),
            queued: VecDeque::new(),
            last_received_ns: None,
            confirm_ns: None,
            silence_ns: None,
            persistent_ns: None,
            may_tidy: false,
            is_answered: false,
            has_cookie: false,
            has_rejected_response: false,
            retransmits: 0,
            counters: Counters::default(),
        }
    }

    fn on_response(&mut self, now_ns: u64, packet: &[u8], space: &mut [u8]) {
        match Outcome::from(self.tunnel.decapsulate(None, packet, space)) {
            Outcome::Send(length) => {
                self.received(now_ns);
                // The keepalive confirms the keys to the gateway.
                self.queued.push_back(space[..length].to_vec());
                self.may_tidy = self.handshake.is_some_and(|handshake| handshake.sent == 1);
                self.installed(now_ns, true);
            }
            Outcome::Failed(error) => {
                self.has_rejected_response |= matches!(error, WireGuardError::InvalidAeadTag);
                self.reject(&error);
            }
            _ => self.counters.rejected += 1,
        }
    }

    /// The gateway renews the keys.
    fn on_initiation(&mut self, now_ns: u64, packet: &[u8], space: &mut [u8]) {
        match Outcome::from(self.tunnel.decapsulate(None, packet, space)) {
            Outcome::Send(length) => {
                self.received(now_ns);
                self.queued.push_back(space[..length].to_vec());
                self.may_tidy = false;
                self.installed(now_ns, false);
            }
            Outcome::Failed(error) => self.reject(&error),
            _ => self.counters.rejected += 1,
        }
    }

    fn on_cookie(&mut self, packet: &[u8], space: &mut [u8]) {
        match Outcome::from(self.tunnel.decapsulate(None, packet, space)) {
            // The next initiation has the cookie. The paper, section 6.6: it waits for its timer.
            Outcome::Done => {
                self.has_cookie = true;
                self.answered();
                self.events.push_back(Event::CookieAsked);
            }
            Outcome::Failed(error) => self.reject(&error),
            _ => self.counters.rejected += 1,
        }
    }

    fn on_data<'p>(&mut self, now_ns: u64, packet: &[u8], space: &'p mut [u8]) -> Received<'p> {
        let is_old = self.keys.is_none_or(|keys| now_ns >= keys.since_ns.saturating_add(REJECT_AFTER_NS));
        if is_old || packet.len() < OVERHEAD_BYTES || counter_of(packet) >= REJECT_AFTER_MESSAGES {
            self.counters.rejected += 1;
            return Received::Nothing;
        }
        match Outcome::from(self.tunnel.decapsulate(None, packet, space)) {
            Outcome::Done => {
                self.counters.opened += 1;
                self.counters.pings += 1;
                self.received(now_ns);
                Received::Nothing
            }
            Outcome::Deliver(length, source) => {
                self.counters.opened += 1;
                self.received(now_ns);
                self.confirm_ns.get_or_insert(now_ns.saturating_add(KEEPALIVE_TIMEOUT_NS));
                self.renew_at_age(now_ns, REKEY_ON_RECEIVE_NS);
                if !self.gateway.allows(source) {
                    self.counters.rejected += 1;
                    return Received::Nothing;
                }
                Received::Payload(&mut space[..length])
            }
            Outcome::Failed(error) => {
                self.reject(&error);
                Received::Nothing
            }
            Outcome::Send(_) => Received::Nothing,
        }
    }

    fn reject(&mut self, error: &WireGuardError) {
        match error {
            WireGuardError::InvalidCounter | WireGuardError::DuplicateCounter => self.counters.replayed += 1,
            _ => self.counters.rejected += 1,
        }
    }

    fn answered(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.events.push_back(Event::Step(Step::Answered));
        }
    }

    /// New keys are in use.
    fn installed(&mut self, now_ns: u64, is_initiator: bool) {
        self.answered();
        let is_first = self.keys.replace(Keys { since_ns: now_ns, is_initiator }).is_none();
        self.handshake = None;
        match is_first {
            true => self.events.push_back(Event::Up(Step::ChildUp)),
            // The answer itself proves that the gateway has the keys.
            false => self.events.extend([Event::Renewed, Event::RenewalAccepted]),
        }
    }

    fn received(&mut self, now_ns: u64) {
        self.last_received_ns = Some(now_ns);
        self.silence_ns = None;
        self.rest_persistent(now_ns);
    }

    fn sent(&mut self, now_ns: u64) {
        self.confirm_ns = None;
        self.rest_persistent(now_ns);
        self.renew_at_age(now_ns, REKEY_AFTER_NS);
    }

    fn rest_persistent(&mut self, now_ns: u64) {
        self.persistent_ns =
            self.gateway.keepalive_s.map(|seconds| now_ns.saturating_add(u64::from(seconds) * SECOND_NS));
    }

    fn renew_at_age(&mut self, now_ns: u64, age_ns: u64) {
        if self.keys.is_some_and(|keys| keys.is_initiator && now_ns >= keys.since_ns.saturating_add(age_ns)) {
            self.begin_handshake(now_ns);
        }
    }

    fn begin_handshake(&mut self, now_ns: u64) {
        if self.handshake.is_none() && !self.is_over {
            self.handshake = Some(Handshake { began_ns: now_ns, next_ns: now_ns, sent: 0 });
        }
    }

    fn has_keys(&self, now_ns: u64) -> bool {
        self.keys.is_some_and(|keys| now_ns < keys.since_ns.saturating_add(REJECT_AFTER_NS))
    }

    /// Seals a packet, or an empty one as a keepalive.
    fn seal(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        let start = out.len();
        out.resize(start + (packet.len() + OVERHEAD_BYTES).max(SPACE_MIN_BYTES), 0);
        let length = match self.tunnel.encapsulate(packet, &mut out[start..]) {
            TunnResult::WriteToNetwork(datagram) if datagram[0] == message::DATA => datagram.len(),
            _ => 0,
        };
        out.truncate(start + length);
        (length > 0).then_some(()).ok_or(NotUp)
    }

    /// Writes an initiation that is due; returns whether there is one.
    fn initiate(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let Some(handshake) = &mut self.handshake else { return false };
        if now_ns < handshake.next_ns {
            return false;
        }
        let jitter_ms = (u64::from(self.number) * 97 + u64::from(handshake.sent) * 31) % JITTER_MS;
        handshake.next_ns = now_ns.saturating_add(REKEY_TIMEOUT_NS + jitter_ms * 1_000_000);
        handshake.sent += 1;
        self.retransmits += u32::from(handshake.sent > 1);
        out.resize(SPACE_MIN_BYTES, 0);
        // boringtun drops keys that are older than 180 s only here. What it wants to send is sent below anyway.
        if self.keys.is_some() && std::mem::take(&mut self.may_tidy) {
            let _ = self.tunnel.update_timers(out);
        }
        let length = match self.tunnel.format_handshake_initiation(out, true) {
            TunnResult::WriteToNetwork(datagram) => datagram.len(),
            _ => 0,
        };
        out.truncate(length);
        length > 0
    }

    fn check_timers(&mut self, now_ns: u64) {
        if self.is_over {
            return;
        }
        let gave_up = |handshake: Handshake| now_ns >= handshake.began_ns.saturating_add(REKEY_ATTEMPT_NS);
        if self.keys.is_some() && self.handshake.is_some_and(gave_up) {
            self.is_over = true;
            let detail = "ended by WireGuard's time limit of a handshake, 90 s".to_owned();
            self.events.push_back(Event::Failed(Failure { name: "rekey_unanswered", detail }));
            return;
        }
        if is_due(self.silence_ns, now_ns) {
            self.silence_ns = None;
            self.begin_handshake(now_ns);
        }
    }

    fn is_keepalive_due(&self, now_ns: u64) -> bool {
        is_due(self.confirm_ns, now_ns) || is_due(self.persistent_ns, now_ns)
    }
}

impl Session for Client {
    fn handle<'p>(&'p mut self, now_ns: u64, packet: &'p mut [u8], space: &'p mut Vec<u8>) -> Received<'p> {
        if self.is_over {
            return Received::Nothing;
        }
        if space.len() < packet.len().max(SPACE_MIN_BYTES) {
            space.resize(packet.len().max(SPACE_MIN_BYTES), 0);
        }
        match packet.first() {
            Some(&message::DATA) => return self.on_data(now_ns, packet, space),
            Some(&message::RESPONSE) => self.on_response(now_ns, packet, space),
            Some(&message::COOKIE) => self.on_cookie(packet, space),
            Some(&message::INITIATION) => self.on_initiation(now_ns, packet, space),
            _ => {
                self.counters.rejected += 1;
                return Received::Nothing;
            }
        }
        Received::Control
    }

    fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Output {
        out.clear();
        // The gateway must have the keys before data arrives with them.
        if let Some(mut datagram) = self.queued.pop_front() {
            out.append(&mut datagram);
            self.sent(now_ns);
            return Output::Send;
        }
        self.check_timers(now_ns);
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        // Thousands of idle clients must not each keep a buffer.
        (self.events, self.queued) = (VecDeque::new(), VecDeque::new());
        if self.is_over {
            return Output::Wait(None);
        }
        if self.initiate(now_ns, out) {
            return Output::Send;
        }
        if self.is_keepalive_due(now_ns) {
            (self.confirm_ns, self.persistent_ns) = (None, None);
            if self.has_keys(now_ns) && self.seal(&[], out).is_ok() {
                self.sent(now_ns);
                return Output::Send;
            }
            // Without valid keys there is nothing to keep alive; a persistent keepalive asks for new ones.
            self.begin_handshake(now_ns);
            self.rest_persistent(now_ns);
            if self.initiate(now_ns, out) {
                return Output::Send;
            }
        }
        Output::Wait(self.deadline_ns())
    }

    #[inline]
    fn deadline_ns(&self) -> Option<u64> {
        if !self.events.is_empty() || !self.queued.is_empty() {
            return Some(0);
        }
        if self.is_over {
            return None;
        }
        let idle_ns = earlier(self.confirm_ns, self.persistent_ns);
        match self.handshake {
            Some(handshake) if self.keys.is_some() => {
                let end_ns = handshake.began_ns.saturating_add(REKEY_ATTEMPT_NS);
                earlier(Some(handshake.next_ns.min(end_ns)), idle_ns)
            }
            Some(handshake) => Some(handshake.next_ns),
            None => earlier(self.silence_ns, idle_ns),
        }
    }

    fn send(&mut self, now_ns: u64, packet: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        if self.is_over || !self.has_keys(now_ns) {
            if self.keys.is_some() {
                // WireGuard renews its keys for the first packet after a pause.
                self.begin_handshake(now_ns);
            }
            return Err(NotUp);
        }
        self.seal(packet, out)?;
        self.silence_ns.get_or_insert(now_ns.saturating_add(SILENCE_NS));
        self.sent(now_ns);
        Ok(())
    }

    fn renegotiate(&mut self, now_ns: u64) {
        if self.keys.is_some() {
            self.begin_handshake(now_ns);
        }
    }

    fn leave(&mut self, _now_ns: u64) {
        // WireGuard has no exit notification.
        self.is_over = true;
        self.queued.clear();
        self.events.clear();
    }

    fn assigned(&self, server: Server, mtu: Option<u16>) -> Option<AssignedConfig> {
        self.keys.map(|_| self.own.assigned(server, mtu))
    }

    fn granted(&self) -> Option<&dyn Granted> {
        self.keys.map(|_| &*self.gateway as &dyn Granted)
    }

    fn is_first_packet(&self, packet: &[u8]) -> bool {
        self.keys.is_none() && packet.first() == Some(&message::INITIATION)
    }

    fn retransmits(&self) -> u32 {
        self.retransmits
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn last_received_ns(&self) -> Option<u64> {
        self.last_received_ns
    }

    fn stuck_at(&self) -> &'static str {
        match (self.has_rejected_response, self.has_cookie) {
            (true, _) => "response_rejected",
            (_, true) => "only_cookies",
            _ => "handshake_unanswered",
        }
    }
}
