//! One client from its first message to its deletion: it receives datagrams and times, and returns what to send and
//! what has happened. Owns the order of the steps, the timers and the paths of datagrams; the other modules have the
//! exchanges. Never retries an attempt: a reconnect is a new client.
//!
//! Use: `new`, then `poll` until `Wait`; pass each datagram to `handle` and poll again; poll when `deadline_ns` has
//! passed. `send` seals packets once there is a child SA. The caller sends from a socket of its own or from a shared
//! one: [`route`](super::route::route) finds the client of a datagram by `local_spis`.

use std::collections::VecDeque;
use std::sync::Arc;

use self::child::Child;
use self::handshake::{Authentication, SaInit};
use self::ike_sa::{IkeSa, Incoming, Purpose, Task};
pub use self::output::{Cause, Counters, Event, Failure, Output, Steps};
use super::config::{ClientConfig, Endpoints, Identity};
use super::configuration::Assigned;
use super::message::{ExchangeType, Header, PayloadWriter};
use super::random::Random;
use super::route::{Path, MARKER_BYTES};
use super::traffic_selector::TrafficSelector;
use crate::protocol::{NotUp, Received};
use crate::timer::{earlier, is_due};

mod authentication;
mod child;
mod children;
mod handshake;
mod ike_sa;
mod output;
mod peer_requests;
mod rekey;
mod sa_init;
mod timers;

/// The byte that keeps a NAT's mapping (RFC 3948, section 2.3).
const KEEPALIVE: u8 = 0xFF;
/// The largest number of child SAs, replaced ones included: a peer that rekeys again and again gets no more.
const MAX_CHILDREN: usize = 8;
/// The largest number of IKE SAs, replaced ones included.
const MAX_SAS: usize = 4;

enum Stage {
    Initiating(Box<SaInit>),
    Authenticating(Box<Authentication>),
    Up,
    Left,
    Failed,
}

enum Outgoing {
    Message(Vec<u8>),
    Keepalive,
}

/// One attempt of one client.
pub struct Client {
    config: Arc<ClientConfig>,
    identity: Arc<Identity>,
    endpoints: Endpoints,
    random: Random,
    stage: Stage,
    /// The newest one first; the others only answer repetitions, or are being deleted.
    #[allow(clippy::vec_box, reason = "an SA moves between here and a pending rekey")]
    sas: Vec<Box<IkeSa>>,
    children: Vec<Child>,
    /// The SPI that the child SA which sends receives by.
    sender: Option<u32>,
    assigned: Assigned,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    uses_4500: bool,
    encapsulates: bool,
    sent_ns: u64,
    last_received_ns: u64,
    /// The time of the current call, ns.
    now_ns: u64,
    counters: Counters,
    steps: Steps,
}

impl Client {
    /// Begins an attempt; `poll` returns the first datagram.
    pub fn new(
        config: &Arc<ClientConfig>,
        identity: &Arc<Identity>,
        endpoints: Endpoints,
        random: Random,
        now_ns: u64,
    ) -> Self {
        let mut client = Self {
            config: config.clone(),
            identity: identity.clone(),
            endpoints,
            random,
            stage: Stage::Failed,
            sas: Vec::new(),
            children: Vec::new(),
            sender: None,
            assigned: Assigned::default(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            uses_4500: config.starts_on_4500,
            encapsulates: false,
            sent_ns: now_ns,
            last_received_ns: now_ns,
            now_ns,
            counters: Counters::default(),
            steps: Steps::default(),
        };
        client.begin(now_ns);
        client
    }

    /// Handles one datagram from the socket. ESP packets are opened in place.
    pub fn handle<'p>(&mut self, now_ns: u64, path: Path, datagram: &'p mut [u8]) -> Received<'p> {
        self.now_ns = now_ns;
        match path {
            Path::Port500 => self.handle_message(now_ns, datagram),
            Path::RawEsp => self.handle_esp(now_ns, datagram),
            Path::Port4500 if datagram == [KEEPALIVE] => Received::Nothing,
            Path::Port4500 if datagram.starts_with(&[0; MARKER_BYTES]) => {
                self.handle_message(now_ns, &mut datagram[MARKER_BYTES..])
            }
            Path::Port4500 => self.handle_esp(now_ns, datagram),
        }
    }

    fn handle_message<'p>(&mut self, now_ns: u64, message: &mut [u8]) -> Received<'p> {
        let Ok(header) = Header::parse(message) else {
            self.counters.rejected += 1;
            return Received::Nothing;
        };
        if let Stage::Initiating(state) = &self.stage {
            let is_answer = header.spi_i == state.spi
                && header.is_response()
                && !header.is_from_initiator()
                && header.message_id == 0
                && header.exchange == ExchangeType::SaInit as u8;
            if !is_answer {
                self.counters.rejected += 1;
                return Received::Nothing;
            }
            self.handle_sa_init(now_ns, &header, message);
            return Received::Control;
        }
        let found = self.sas.iter().position(|sa| (sa.spi_i, sa.spi_r) == (header.spi_i, header.spi_r));
        let Some(index) = found else {
            self.counters.rejected += 1;
            return Received::Nothing;
        };
        match self.sas[index].receive(&header, message) {
            Err(_) => {
                self.counters.rejected += 1;
                return Received::Nothing;
            }
            Ok(Incoming::Nothing) => {
                self.counters.repeated += 1;
                return Received::Nothing;
            }
            Ok(Incoming::Repeated) => {
                self.counters.repeated += 1;
                for message in self.sas[index].last_response() {
                    self.outgoing.push_back(Outgoing::Message(message.clone()));
                }
            }
            Ok(Incoming::Request { exchange, first_payload, chain }) => {
                self.last_received_ns = now_ns;
                self.answer_request(now_ns, index, exchange, first_payload, &chain);
            }
            Ok(Incoming::Response { purpose, first_payload, chain }) => {
                self.last_received_ns = now_ns;
                match purpose {
                    Purpose::Authenticate => self.handle_auth_answer(now_ns, first_payload, &chain),
                    purpose => self.handle_answer(now_ns, index, purpose, first_payload, &chain),
                }
            }
        }
        self.start_tasks(now_ns);
        Received::Control
    }

    /// Returns the next action. Call it after `new`, and whenever `deadline_ns` has passed, until it returns `Wait`.
    /// `out` is cleared, and filled if it returns `Send`.
    pub fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Output {
        self.now_ns = now_ns;
        out.clear();
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        self.check_timers(now_ns);
        if let Some(outgoing) = self.outgoing.pop_front() {
            self.sent_ns = now_ns;
            let path = if self.uses_4500 { Path::Port4500 } else { Path::Port500 };
            match outgoing {
                Outgoing::Keepalive => out.push(KEEPALIVE),
                Outgoing::Message(message) => {
                    if self.uses_4500 {
                        out.extend_from_slice(&[0; MARKER_BYTES]);
                    }
                    out.extend_from_slice(&message);
                }
            }
            return Output::Send(path);
        }
        match self.events.pop_front() {
            Some(event) => Output::Event(event),
            None => Output::Wait(self.deadline_ns()),
        }
    }

    /// When `poll` has work, ns: immediately if in the past; `None` if it only waits for datagrams.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.events.is_empty() && self.outgoing.is_empty() {
            self.next_timer_ns()
        } else {
            Some(0)
        }
    }

    /// Seals a packet of the tunnel and appends it to `out`; it travels by `data_path`.
    ///
    /// # Errors
    /// There is no child SA, its sequence numbers are used up, or `payload` is no IP packet.
    pub fn send(&mut self, now_ns: u64, payload: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        let spi = self.sender.ok_or(NotUp)?;
        let child = self.child(spi).ok_or(NotUp)?;
        child.outbound.seal(payload, out).map_err(|_| NotUp)?;
        if child.outbound.has_reached_rekey_limit() {
            child.rekey_ns = Some(now_ns);
        }
        self.counters.sealed += 1;
        self.sent_ns = now_ns;
        Ok(())
    }

    /// How ESP packets travel.
    #[must_use]
    pub fn data_path(&self) -> Path {
        if self.encapsulates {
            Path::Port4500
        } else {
            Path::RawEsp
        }
    }

    /// Replaces the child SA now, if there is one.
    pub fn rekey_child(&mut self, now_ns: u64) {
        if let Some(spi) = self.sender.filter(|_| matches!(self.stage, Stage::Up)) {
            let group = self.config.esp.iter().find_map(|offer| offer.groups.first().copied());
            self.push_task(Task::RekeyChild(spi, group));
            self.start_tasks(now_ns);
        }
    }

    /// Replaces the IKE SA now, if there is one.
    pub fn rekey_ike(&mut self, now_ns: u64) {
        if matches!(self.stage, Stage::Up) {
            let group = self.sas[0].suite.group;
            self.push_task(Task::RekeyIke(group));
            self.start_tasks(now_ns);
        }
    }

    /// Asks the gateway whether it is alive.
    pub fn probe(&mut self, now_ns: u64) {
        if matches!(self.stage, Stage::Up) {
            self.push_task(Task::Probe);
            self.start_tasks(now_ns);
        }
    }

    /// Deletes the IKE SA with all that belongs to it: call `poll` until `Wait` afterwards. `Event::Left` follows.
    pub fn leave(&mut self, now_ns: u64) {
        match self.stage {
            Stage::Up => {
                self.stage = Stage::Left;
                self.sas[0].tasks.clear();
                self.push_task(Task::DeleteIke);
                self.start_tasks(now_ns);
            }
            Stage::Initiating(_) | Stage::Authenticating(_) => {
                (self.stage, self.outgoing) = (Stage::Left, VecDeque::new());
                self.sas.clear();
                self.events.push_back(Event::Left { is_confirmed: false });
            }
            Stage::Left | Stage::Failed => {}
        }
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// When the client reached each step.
    #[must_use]
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// The assigned addresses; empty before they are.
    #[must_use]
    pub fn assigned(&self) -> &Assigned {
        &self.assigned
    }

    /// The name of the encryption of the child SA that sends; `None` without one.
    #[must_use]
    pub fn cipher(&self) -> Option<&'static str> {
        let spi = self.sender?;
        self.children.iter().find(|child| child.inbound.spi() == spi).map(|child| child.cipher)
    }

    /// What the gateway lets through the child SA that sends; empty without one.
    #[must_use]
    pub fn remote_selectors(&self) -> &[TrafficSelector] {
        let found = self.children.iter().find(|child| Some(child.inbound.spi()) == self.sender);
        found.map_or(&[], |child| &child.remote_ts)
    }

    /// Whether packets can be sent.
    #[must_use]
    pub fn has_child(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether there is an IKE SA.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// Whether no request of this end waits for its turn or for an answer.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_started = !matches!(self.stage, Stage::Initiating(_));
        is_started && self.sas.iter().all(|sa| sa.outstanding.is_none() && sa.tasks.is_empty())
    }

    /// When the last authentic message or packet of the gateway arrived, ns; `None` if there was none.
    #[must_use]
    pub fn last_received_ns(&self) -> Option<u64> {
        (!matches!(self.stage, Stage::Initiating(_))).then_some(self.last_received_ns)
    }

    /// The SPIs that datagrams for this client carry: of IKE, and of ESP.
    pub fn local_spis(&self) -> (impl Iterator<Item = u64> + '_, impl Iterator<Item = u32> + '_) {
        let first = match &self.stage {
            Stage::Initiating(state) => Some(state.spi),
            _ => None,
        };
        let ike = first.into_iter().chain(self.sas.iter().map(|sa| sa.local_spi()));
        (ike, self.children.iter().map(|child| child.inbound.spi()))
    }

    fn push_task(&mut self, task: Task) {
        if let Some(sa) = self.sas.first_mut() {
            if !sa.tasks.contains(&task) {
                sa.tasks.push_back(task);
            }
        }
    }

    fn push_message(&mut self, message: &[u8]) {
        self.outgoing.push_back(Outgoing::Message(message.to_vec()));
    }

    /// Begins an exchange of the IKE SA at `index`.
    fn request(&mut self, now_ns: u64, index: usize, exchange: ExchangeType, chain: &PayloadWriter, purpose: Purpose) {
        let due_ns = now_ns.saturating_add(self.config.retransmission.wait_ns(0));
        match self.sas[index].request(exchange, chain, purpose, due_ns) {
            Ok(messages) => self.outgoing.extend(messages.iter().cloned().map(Outgoing::Message)),
            Err(_) => self.fail(Cause::Internal, "a message cannot be sealed"),
        }
    }

    fn fail(&mut self, cause: Cause, detail: &str) {
        if matches!(self.stage, Stage::Left) {
            self.events.push_back(Event::Left { is_confirmed: cause == Cause::DeletedByPeer });
        } else {
            self.events.push_back(Event::Failed(Failure { cause, detail: detail.to_owned() }));
        }
        self.stage = Stage::Failed;
        (self.sender, self.children) = (None, Vec::new());
        if cause != Cause::DeletedByPeer {
            // After the peer's deletion, its repetitions are still answered.
            self.sas.clear();
        }
    }
}

impl std::fmt::Debug for Client {
    /// Prints no keys.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("identity", &self.identity.id)
            .field("is_up", &self.is_up())
            .field("has_child", &self.has_child())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
