//! The connections of one thread's users. A user keeps its connections as a browser does: it reuses idle ones of the
//! same origin and opens further ones up to a limit. Owns the outcome of each exchange, which the machine of the users
//! gets exactly once.

mod input;

use std::collections::VecDeque;
use std::sync::Arc;

use leadline_http::Batch;
use leadline_script::scenario::figures::Age;
use leadline_script::scenario::{Effect, ExchangeFailure, Machine, Send};
use leadline_stats::Histogram;
use leadline_sys::connect::{self, Remote};
use leadline_tls::TlsClient;
use leadline_wire::HttpCounts;
use socket2::Socket;

use super::connection::{Connection, Origin, Stage};
use super::hosts::Hosts;
use super::plan::Plan;
use crate::load::http::effects::failure;
use crate::load::http::io_backend::IoBackend;
use crate::metering::FlowCounters;

/// Effects that are carried out before sockets have their turn.
const EFFECTS_PER_TURN: usize = 10_000;
/// A request that is outstanding for longer than this when it is given up counts as a failure, ns.
const LONG_NS: u64 = 1_000_000_000;

/// The connections of one thread, and its users.
pub struct Connections<B> {
    pub plan: Arc<Plan>,
    pub machine: Machine,
    pub backend: B,
    pub hosts: Hosts,
    pub counters: Arc<FlowCounters>,
    pub counts: HttpCounts,
    pub phases: Phases,
    /// Responses by status class.
    pub status: [u64; 10],
    /// When the first request was sent, and when the last exchange ended, ns.
    pub first_sent_ns: Option<u64>,
    /// When the last exchange ended, ns.
    pub last_ns: Option<u64>,
    /// Sockets with outstanding requests at the end.
    pub outstanding: Vec<Socket>,
    slots: Vec<Option<Box<Connection>>>,
    vacant: Vec<u32>,
    users: Vec<UserConnections>,
    /// Connections in the order in which they became idle, and when, ns; those that carry a request again are still here.
    idle: VecDeque<(u32, u64)>,
    /// Requests that wait for a vacant connection.
    waiting: VecDeque<Box<Send>>,
    /// Exchanges that began and were perhaps not handed to the kernel yet.
    begun: Vec<u32>,
    /// When the next deadline may pass, ns, if there is one.
    deadline_ns: Option<u64>,
    next_bind: usize,
    out: Vec<u8>,
    plain: Vec<u8>,
}

/// Durations of the phases of connections.
#[derive(Default)]
pub struct Phases {
    pub dns: Histogram,
    pub connect: Histogram,
    pub tls_full: Histogram,
    pub tls_resumed: Histogram,
}

/// The connections of one user.
#[derive(Default)]
struct UserConnections {
    open: Vec<u32>,
    /// Requests that wait for one of them.
    pending: VecDeque<Box<Send>>,
}

impl<B: IoBackend> Connections<B> {
    pub fn new(plan: Arc<Plan>, machine: Machine, backend: B, counters: Arc<FlowCounters>, number: usize) -> Self {
        let most = plan.connections;
        Self {
            plan,
            machine,
            backend,
            hosts: Hosts::new(),
            counters,
            counts: HttpCounts::default(),
            phases: Phases::default(),
            status: [0; 10],
            first_sent_ns: None,
            last_ns: None,
            outstanding: Vec::new(),
            slots: (0..most).map(|_| None).collect(),
            vacant: (0..most as u32).rev().collect(),
            users: Vec::new(),
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            begun: Vec::new(),
            deadline_ns: None,
            next_bind: number,
            out: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Open connections.
    pub fn open(&self) -> u64 {
        (self.slots.len() - self.vacant.len()) as u64
    }

    /// Carries out what the machine wants: a limited number of effects at a time, because a request that fails at once may be
    /// followed by another one without end.
    pub fn obey(&mut self, now_ns: u64) {
        for _ in 0..EFFECTS_PER_TURN {
            let Some(effect) = self.machine.effect() else { return };
            match effect {
                Effect::Send(send) => {
                    self.counts.requests_due += 1;
                    self.send(send, now_ns);
                }
                Effect::Cancel { user } => self.cancel(user, now_ns),
                Effect::CloseConnections { user } => self.close_idle(user, now_ns),
            }
        }
    }

    fn user(&mut self, user: u32) -> &mut UserConnections {
        let place = user as usize;
        if self.users.len() <= place {
            self.users.resize_with(place + 1, UserConnections::default);
        }
        &mut self.users[place]
    }

    /// Sends a request on a connection of its user, or lets it wait for one. Where no further connection may be open, an
    /// idle one makes room: the one that the user, or else any user, has not used for the longest time.
    fn send(&mut self, send: Box<Send>, now_ns: u64) {
        let origin = Origin::of(&send.outgoing.url);
        self.user(send.user);
        let (mut same, mut idle, mut elsewhere) = (0, None, None);
        for slot in &self.users[send.user as usize].open {
            let Some(connection) = &self.slots[*slot as usize] else { continue };
            let is_idle = connection.stage == Stage::Idle;
            if connection.origin == origin {
                same += 1;
                if is_idle {
                    idle = Some(*slot);
                }
            } else if is_idle && elsewhere.is_none_or(|(since_ns, _)| connection.since_ns < since_ns) {
                elsewhere = Some((connection.since_ns, *slot));
            }
        }
        match idle {
            Some(slot) => self.begin(slot, send, now_ns),
            None if same < self.plan.connections_per_user => {
                if self.vacant.is_empty() {
                    if let Some(slot) = elsewhere.map(|(_, slot)| slot).or_else(|| self.longest_idle()) {
                        self.close(slot);
                    }
                }
                match self.vacant.pop() {
                    Some(slot) => self.open_for(slot, send, now_ns),
                    None => self.waiting.push_back(send),
                }
            }
            None => self.users[send.user as usize].pending.push_back(send),
        }
    }

    /// Notes that a connection carries no request.
    fn enter_idle(&mut self, slot: u32, now_ns: u64) {
        self.enter(slot, Stage::Idle, now_ns);
        if self.idle.len() >= 2 * self.slots.len() {
            let mut idle = std::mem::take(&mut self.idle);
            idle.retain(|entry| self.is_idle_since(*entry));
            self.idle = idle;
        }
        self.idle.push_back((slot, now_ns));
    }

    /// Returns the connection that has been idle for the longest time.
    fn longest_idle(&mut self) -> Option<u32> {
        while let Some(entry) = self.idle.pop_front() {
            if self.is_idle_since(entry) {
                return Some(entry.0);
            }
        }
        None
    }

    fn is_idle_since(&self, (slot, since_ns): (u32, u64)) -> bool {
        let connection = self.slots[slot as usize].as_ref();
        connection.is_some_and(|one| one.stage == Stage::Idle && one.since_ns == since_ns)
    }

    /// Opens a connection for a request.
    fn open_for(&mut self, slot: u32, send: Box<Send>, now_ns: u64) {
        let timeout_ns = send.connect_timeout_ns.unwrap_or(self.plan.connect_timeout_ns);
        let deadline_ns = now_ns.saturating_add(timeout_ns);
        self.deadline_ns = earlier(self.deadline_ns, deadline_ns);
        self.users[send.user as usize].open.push(slot);
        self.slots[slot as usize] = Some(Box::new(Connection::new(send, Stage::Resolving, now_ns, deadline_ns)));
        self.resolve(slot, now_ns);
    }

    /// Connects, if the address is known.
    fn resolve(&mut self, slot: u32, now_ns: u64) {
        let Some(connection) = &self.slots[slot as usize] else { return };
        let name = (Arc::clone(&connection.origin.host), connection.origin.port);
        let plan = Arc::clone(&self.plan);
        match self.hosts.address(&plan, &name) {
            None => {}
            Some(Err(detail)) => self.fail(slot, "unknown_host", detail, now_ns),
            Some(Ok(address)) => {
                let binds = &self.plan.binds;
                let from = (!binds.is_empty()).then(|| binds[self.next_bind % binds.len()]);
                self.next_bind = self.next_bind.wrapping_add(1);
                let socket = connect::begin(&Remote::Inet(address), from, &self.plan.options);
                match socket.and_then(|socket| self.backend.connect(slot as usize, socket)) {
                    Ok(()) => {
                        self.note_resolved(slot, now_ns);
                        self.enter(slot, Stage::Connecting, now_ns);
                    }
                    Err(error) => {
                        let failure = failure(error);
                        let detail = format!("connecting to {address}: {}", failure.detail);
                        self.fail(slot, failure.name, detail, now_ns);
                    }
                }
            }
        }
    }

    /// Notes how long a connection waited for its address.
    fn note_resolved(&mut self, slot: u32, now_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let waited_ns = now_ns.saturating_sub(connection.since_ns);
        if waited_ns > 0 {
            connection.opening.get_or_insert_default().dns_ns = Some(waited_ns);
        }
    }

    fn enter(&mut self, slot: u32, stage: Stage, now_ns: u64) {
        if let Some(connection) = &mut self.slots[slot as usize] {
            (connection.stage, connection.since_ns) = (stage, now_ns);
        }
    }

    /// Takes the answers of the resolver.
    pub fn take_resolved(&mut self, now_ns: u64) {
        while let Some((name, took_ns)) = self.hosts.answer() {
            self.phases.dns.record(took_ns);
            let waits = |slot: &u32| {
                self.slots[*slot as usize].as_ref().is_some_and(|one| {
                    one.stage == Stage::Resolving && (&one.origin.host, one.origin.port) == (&name.0, name.1)
                })
            };
            let slots: Vec<u32> = (0..self.slots.len() as u32).filter(waits).collect();
            slots.into_iter().for_each(|slot| self.resolve(slot, now_ns));
        }
    }

    /// Sends a request on an idle connection.
    fn begin(&mut self, slot: u32, send: Box<Send>, now_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let timeout_ns = send.response_timeout_ns.unwrap_or(self.plan.response_timeout_ns);
        connection.deadline_ns = now_ns.saturating_add(timeout_ns);
        self.deadline_ns = earlier(self.deadline_ns, connection.deadline_ns);
        (connection.stage, connection.since_ns) = (Stage::Busy, now_ns);
        (connection.received_bytes, connection.sent_bytes, connection.sent_ns) = (0, 0, None);
        connection.kept.begin(send.keeps_head, send.keeps_body);
        let bytes = &send.outgoing.bytes;
        let batch = Batch { bytes: bytes.len(), requests: 1, expects_no_body: send.outgoing.is_head };
        connection.exchange.begin(send.due_ns, now_ns, batch);
        let taken = match &mut connection.tls {
            None => self.backend.send_copy(slot as usize, bytes),
            Some(tls) => {
                self.out.clear();
                tls.write_to(bytes, &mut self.out);
                let taken = self.backend.send_copy(slot as usize, &self.out);
                taken.map(|taken| {
                    connection.records_left += self.out.len() - taken;
                    0
                })
            }
        };
        connection.send = Some(send);
        self.begun.push(slot);
        match taken {
            Ok(taken) => self.sent(slot, taken),
            Err(error) => self.not_sent(slot, failure(error), now_ns),
        }
    }

    /// Counts what the socket took.
    fn sent(&mut self, slot: u32, bytes: usize) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let records = bytes.min(connection.records_left);
        connection.records_left -= records;
        let mut bytes = bytes - records;
        if connection.tls.is_some() {
            bytes = if connection.records_left == 0 { connection.exchange.unsent_bytes() } else { 0 };
        }
        if !connection.exchange.is_sending() {
            return;
        }
        connection.sent_bytes += bytes as u64;
        let whole = connection.exchange.sent(bytes);
        self.counters.sent(bytes as u64, u64::from(whole));
    }

    /// Handles a failed send: what was received before may still hold a response.
    fn not_sent(&mut self, slot: u32, failure: leadline_http::client::Failure, now_ns: u64) {
        if failure.name == "reset" {
            if let Some(connection) = &mut self.slots[slot as usize] {
                connection.broken = Some((failure.name, failure.detail));
            }
        } else {
            self.fail(slot, failure.name, failure.detail, now_ns);
        }
    }

    /// Notes when the last sends were handed to the kernel.
    pub fn note_handed_over(&mut self) {
        if self.begun.is_empty() {
            return;
        }
        let Some(sent_ns) = self.backend.handed_over_ns() else { return };
        for slot in self.begun.drain(..) {
            if let Some(connection) = &mut self.slots[slot as usize] {
                if connection.stage == Stage::Busy {
                    let sent_ns = sent_ns.max(connection.since_ns);
                    connection.sent_ns.get_or_insert(sent_ns);
                    connection.exchange.handed_over(sent_ns);
                    self.first_sent_ns.get_or_insert(sent_ns);
                }
            }
        }
    }

    /// Ends an exchange, or the opening of its connection, by a failure.
    fn fail(&mut self, slot: u32, cause: &'static str, detail: String, now_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let (sent_ns, timed_out) = (connection.sent_ns, cause == "response_timeout");
        let (sent_bytes, received_bytes) = (connection.sent_bytes, connection.received_bytes);
        let (cause, detail) = connection.broken.take().unwrap_or((cause, detail));
        // A connection that was not opened has no time of its opening.
        let was_opened = matches!(connection.stage, Stage::Idle | Stage::Busy);
        let opening = connection.opening.take().filter(|_| was_opened);
        let send = connection.send.take();
        self.close(slot);
        self.last_ns = Some(now_ns);
        if let Some(send) = send {
            let cause = cause.into();
            let failure = ExchangeFailure { cause, detail, timed_out, sent_ns, sent_bytes, received_bytes, opening };
            self.machine.failed(send.user, send.exchange, failure, now_ns);
            self.serve_pending(send.user, now_ns);
        }
        self.serve_waiting(now_ns);
    }

    /// Closes a connection; its exchange is over.
    fn close(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].take() else { return };
        drop(self.backend.detach(slot as usize));
        self.users[connection.user as usize].open.retain(|other| *other != slot);
        self.vacant.push(slot);
    }

    /// Sends the requests of a user that wait for one of its connections.
    fn serve_pending(&mut self, user: u32, now_ns: u64) {
        for _ in 0..self.users[user as usize].pending.len() {
            if let Some(send) = self.users[user as usize].pending.pop_front() {
                self.send(send, now_ns);
            }
        }
    }

    /// Sends the requests that wait for a vacant connection; idle connections of other users make room.
    fn serve_waiting(&mut self, now_ns: u64) {
        while !self.waiting.is_empty() && !self.vacant.is_empty() {
            if let Some(send) = self.waiting.pop_front() {
                self.send(send, now_ns);
            }
        }
    }

    /// Forgets the exchanges of a user.
    fn cancel(&mut self, user: u32, now_ns: u64) {
        let mut unsent = std::mem::take(&mut self.user(user).pending);
        let (own, waiting) = self.waiting.drain(..).partition::<VecDeque<_>, _>(|send| send.user == user);
        self.waiting = waiting;
        unsent.extend(own);
        unsent.iter().for_each(|send| self.give_up(send, None, false, now_ns));
        for slot in self.users[user as usize].open.clone() {
            let stage = self.slots[slot as usize].as_ref().map(|connection| connection.stage);
            if stage.is_some_and(|stage| stage != Stage::Idle) {
                self.abandon(slot, now_ns);
            }
        }
        self.serve_waiting(now_ns);
    }

    /// Counts a request that is outstanding when it is given up, and records its age.
    fn give_up(&mut self, send: &Send, sent_ns: Option<u64>, was_sent: bool, now_ns: u64) {
        let since = |at_ns: u64| now_ns.saturating_sub(at_ns);
        if was_sent {
            self.counts.unanswered += 1;
            self.counts.unanswered_over_1s += u64::from(since(send.due_ns) > LONG_NS);
        } else {
            self.counts.unsent += 1;
        }
        if let Some(label) = send.label {
            let age = Age { latency_ns: Some(since(send.due_ns)), service_ns: sent_ns.map(since) };
            self.machine.figures().outstanding(label, send.due_ns, age);
        }
    }

    /// Closes a connection whose exchange is forgotten. Its socket stays open until the end if a request was sent, so
    /// that the server can still read it.
    fn abandon(&mut self, slot: u32, now_ns: u64) {
        let Some(mut connection) = self.slots[slot as usize].take() else { return };
        let was_sent = connection.stage == Stage::Busy && !connection.exchange.is_sending();
        if let Some(send) = connection.send.take() {
            self.give_up(&send, connection.sent_ns, was_sent, now_ns);
        }
        if let Some(detached) = self.backend.detach(slot as usize) {
            if was_sent {
                self.outstanding.push(detached.socket);
            }
        }
        self.users[connection.user as usize].open.retain(|other| *other != slot);
        self.vacant.push(slot);
    }

    fn close_idle(&mut self, user: u32, now_ns: u64) {
        self.user(user);
        for slot in self.users[user as usize].open.clone() {
            if self.slots[slot as usize].as_ref().is_some_and(|connection| connection.stage == Stage::Idle) {
                self.close(slot);
            }
        }
        self.serve_waiting(now_ns);
    }

    /// When the next deadline may pass, ns, if there is one.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Fails the connections whose time limit has passed.
    pub fn check_deadlines(&mut self, now_ns: u64) {
        if self.deadline_ns.is_none_or(|deadline_ns| now_ns < deadline_ns) {
            return;
        }
        let mut next_ns = None;
        let mut late = Vec::new();
        for (slot, connection) in self.slots.iter().enumerate() {
            let Some(connection) = connection.as_ref().filter(|one| one.stage != Stage::Idle) else { continue };
            if connection.deadline_ns <= now_ns {
                late.push(slot as u32);
            } else {
                next_ns = earlier(next_ns, connection.deadline_ns);
            }
        }
        self.deadline_ns = next_ns;
        for slot in late {
            let Some(connection) = &self.slots[slot as usize] else { continue };
            let limit_ms = connection.deadline_ns.saturating_sub(connection.since_ns) / 1_000_000;
            let cause = match connection.stage {
                Stage::Resolving => "dns_timeout",
                Stage::Connecting => "connect_timeout",
                Stage::Securing => "tls_timeout",
                _ => "response_timeout",
            };
            let detail = format!("{} did not answer within {limit_ms} ms", connection.origin.host);
            self.fail(slot, cause, detail, now_ns);
        }
    }

    /// Begins TLS, or the request.
    fn established(&mut self, slot: u32, now_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        connection.exchange.opened();
        if let Some(send) = connection.send.take() {
            self.begin(slot, send, now_ns);
        } else {
            self.enter_idle(slot, now_ns);
        }
    }

    fn secure(&mut self, slot: u32, now_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let host = Arc::clone(&connection.origin.host);
        let tls = self.plan.tls_of(&host).map_err(|detail| ("bad_tls", detail));
        let tls = tls.and_then(|shared| TlsClient::new(&shared).map_err(|failure| (failure.name, failure.detail)));
        match tls {
            Ok(tls) => {
                let mut tls = Box::new(tls);
                self.out.clear();
                tls.take_output(&mut self.out);
                connection.tls = Some(tls);
                self.enter(slot, Stage::Securing, now_ns);
                self.send_records(slot, now_ns);
            }
            Err((name, detail)) => self.fail(slot, name, detail, now_ns),
        }
    }

    /// Sends the records in `out`, which belong to no request.
    fn send_records(&mut self, slot: u32, now_ns: u64) {
        if self.out.is_empty() {
            return;
        }
        match self.backend.send_copy(slot as usize, &self.out) {
            Ok(taken) => {
                if let Some(connection) = &mut self.slots[slot as usize] {
                    connection.records_left += self.out.len() - taken;
                }
            }
            Err(error) => self.not_sent(slot, failure(error), now_ns),
        }
    }

    /// Closes all connections at the end.
    pub fn finish(&mut self, now_ns: u64) {
        for slot in 0..self.slots.len() as u32 {
            match self.slots[slot as usize].as_ref().map(|connection| connection.stage) {
                Some(Stage::Idle) => self.close(slot),
                Some(_) => self.abandon(slot, now_ns),
                None => {}
            }
        }
        let pending: Vec<_> = self.users.iter_mut().flat_map(|user| user.pending.drain(..)).collect();
        let waiting = std::mem::take(&mut self.waiting);
        pending.iter().chain(&waiting).for_each(|send| self.give_up(send, None, false, now_ns));
    }
}

/// Returns the earlier one of two instants.
fn earlier(known_ns: Option<u64>, other_ns: u64) -> Option<u64> {
    Some(known_ns.map_or(other_ns, |known_ns| known_ns.min(other_ns)))
}
