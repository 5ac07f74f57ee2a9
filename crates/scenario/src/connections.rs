//! The connections of one thread's users as a machine. A user keeps its connections as a browser does: it reuses idle ones
//! of the same origin and opens further ones up to a limit. Owns which connection carries which request, every time limit,
//! and the outcome of each exchange, which the users get exactly once. `leadline_http::client` carries an exchange, and dials.
//! Opens no socket and reads no clock: the caller passes each [`leadline_http::client::Input`] with its time, and carries out the [`Effects`]. `input` handles events of connections,
//! `ending` their failures and ends.
//!
//! | Stage      | input                          | then                                                        |
//! |------------|--------------------------------|-------------------------------------------------------------|
//! | resolving  | [`Connections::resolved`]      | connecting; closed if there is no address                   |
//! | connecting | `Connected`                    | handshaking (https) or busy; closed if it failed            |
//! | handshaking | `Received`                    | busy when TLS is ready for requests; closed if it failed    |
//! | busy       | `Received` (a whole response)  | idle; closed if the response or the request says so         |
//! | busy       | `Ended`                        | closed; the request is answered, repeated or failed         |
//! | idle       | [`Connections::request`]       | busy                                                        |
//! | idle       | `Ended`                        | closed                                                      |
//! | idle       | (another request needs a place) | closed                                                     |

mod connection;
mod deadlines;
mod effects;
mod ending;
mod input;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use leadline_http::client::{Buffers, Opening, SocketUse};
use leadline_http::Batch;
use leadline_stats::Histogram;
use leadline_wire::HttpCounts;

pub use self::connection::Origin;
use self::connection::{Connection, Stage};
use self::deadlines::Deadlines;
pub use self::effects::Effects;
use super::programs::flow::Send;

/// The limits of one thread's connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at once.
    pub connections: usize,
    /// Connections of a user to one server at once.
    pub connections_per_user: u32,
    /// Time limit of connecting, ns, of requests that have no other one.
    pub connect_timeout_ns: u64,
    /// Time limit of a response, ns, of requests that have no other one.
    pub response_timeout_ns: u64,
}

/// What the connections have counted.
#[derive(Clone, Debug, Default)]
pub struct ConnectionTally {
    /// Counts of connections and requests; those that other threads read are the caller's.
    pub counts: HttpCounts,
    /// Durations of phases.
    pub phases: Phases,
    /// Responses by status class.
    pub status: [u64; 10],
    /// When the first request was sent, ns.
    pub first_sent_ns: Option<u64>,
    /// When the last exchange ended, ns.
    pub last_ns: Option<u64>,
}

/// Durations of the phases of connections.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// Resolving a name.
    pub dns: Histogram,
    /// The TCP handshake.
    pub connect: Histogram,
    /// A whole TLS handshake.
    pub tls_full: Histogram,
    /// A TLS handshake that resumed a session.
    pub tls_resumed: Histogram,
}

/// The connections of one thread.
pub struct Connections {
    limits: ConnectionLimits,
    tally: ConnectionTally,
    slots: Vec<Option<Box<Connection>>>,
    vacant: Vec<u32>,
    users: Vec<UserConnections>,
    /// Connections in the order in which they became idle, and when, ns; those that carry a request again are still here.
    idle: VecDeque<(u32, u64)>,
    /// Requests that wait for a vacant connection.
    waiting: VecDeque<Box<Send>>,
    /// A connection that became idle or vacant while requests waited.
    freed: Option<u32>,
    /// Users whose waiting requests may be sent.
    to_serve: Vec<u32>,
    is_serving: bool,
    /// Exchanges that began and were perhaps not handed to the kernel yet.
    begun: Vec<u32>,
    /// When stages time out.
    deadlines: Deadlines,
    /// Buffers of channels.
    buffers: Buffers,
}

/// The connections of one user.
#[derive(Default)]
struct UserConnections {
    open: Vec<u32>,
    /// Requests that wait for one of them.
    pending: VecDeque<Box<Send>>,
}

impl Connections {
    /// Returns no connections.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            tally: ConnectionTally::default(),
            slots: (0..limits.connections).map(|_| None).collect(),
            vacant: (0..limits.connections as u32).rev().collect(),
            users: Vec::new(),
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            freed: None,
            to_serve: Vec::new(),
            is_serving: false,
            begun: Vec::new(),
            deadlines: Deadlines::new(limits.connections),
            buffers: Buffers::default(),
        }
    }

    /// Open connections.
    #[must_use]
    pub fn open(&self) -> u64 {
        (self.slots.len() - self.vacant.len()) as u64
    }

    /// What was counted so far.
    #[must_use]
    pub fn tally(&self) -> &ConnectionTally {
        &self.tally
    }

    /// Returns what was counted.
    #[must_use]
    pub fn into_tally(self) -> ConnectionTally {
        self.tally
    }

    /// When the next deadline may pass, ns, if there is one.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Takes a request, which is sent as soon as there is a connection for it.
    pub fn request(&mut self, send: Box<Send>, now_ns: u64, effects: &mut impl Effects) {
        self.tally.counts.requests_due += 1;
        self.send(send, now_ns, effects);
    }

    /// Handles the answer of the resolver for a host and port, which took this long.
    pub fn resolved(&mut self, host: &str, port: u16, took_ns: u64, now_ns: u64, effects: &mut impl Effects) {
        self.tally.phases.dns.record(took_ns);
        let waits = |slot: &u32| {
            self.slots[*slot as usize].as_ref().is_some_and(|one| {
                one.stage == Stage::Resolving && (&*one.origin.host, one.origin.port) == (host, port)
            })
        };
        let slots: Vec<u32> = (0..self.slots.len() as u32).filter(waits).collect();
        slots.into_iter().for_each(|slot| self.dial(slot, now_ns, effects));
    }

    /// Gives a connection that an input has freed to a request that waits. To be called after the users have had the first
    /// use of it, for what follows from the response. Returns whether a request may have got it.
    #[inline]
    pub fn make_room(&mut self, now_ns: u64, effects: &mut impl Effects) -> bool {
        let Some(slot) = self.freed.take() else { return false };
        if self.vacant.is_empty() && self.slots[slot as usize].as_ref().is_some_and(|one| one.stage == Stage::Idle) {
            self.close(slot, effects);
        }
        self.serve(None, now_ns, effects);
        true
    }

    /// Notes when the last sends were handed to the kernel.
    pub fn note_handed_over(&mut self, effects: &impl Effects) {
        if self.begun.is_empty() {
            return;
        }
        let Some(sent_ns) = effects.handed_over_ns() else { return };
        for slot in self.begun.drain(..) {
            if let Some(connection) = &mut self.slots[slot as usize] {
                if connection.stage == Stage::Busy {
                    let sent_ns = sent_ns.max(connection.since_ns);
                    connection.sent_ns.get_or_insert(sent_ns);
                    connection.session.exchange.handed_over(sent_ns);
                    self.tally.first_sent_ns.get_or_insert(sent_ns);
                }
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
    fn send(&mut self, send: Box<Send>, now_ns: u64, effects: &mut impl Effects) {
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
            Some(slot) => self.begin(slot, send, now_ns, effects),
            None if same < self.limits.connections_per_user => {
                if self.vacant.is_empty() {
                    if let Some(slot) = elsewhere.map(|(_, slot)| slot).or_else(|| self.longest_idle()) {
                        self.close(slot, effects);
                    }
                }
                match self.vacant.pop() {
                    Some(slot) => self.open_for(slot, send, now_ns, effects),
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
    fn open_for(&mut self, slot: u32, send: Box<Send>, now_ns: u64, effects: &mut impl Effects) {
        let timeout_ns = send.connect_timeout_ns.unwrap_or(self.limits.connect_timeout_ns);
        let deadline_ns = now_ns.saturating_add(timeout_ns);
        self.deadlines.set(slot, deadline_ns);
        self.users[send.user as usize].open.push(slot);
        self.slots[slot as usize] = Some(Box::new(Connection::new(slot, send, now_ns, deadline_ns)));
        self.dial(slot, now_ns, effects);
    }

    /// Connects, if the address is known.
    fn dial(&mut self, slot: u32, now_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        match effects.open(slot, &connection.origin) {
            Ok(Opening::Resolving) => {}
            Ok(Opening::Connecting) => {
                let waited_ns = now_ns.saturating_sub(connection.since_ns);
                if waited_ns > 0 {
                    connection.opening.get_or_insert_default().dns_ns = Some(waited_ns);
                }
                self.enter(slot, Stage::Connecting, now_ns);
            }
            Err(failure) => self.fail(slot, failure, now_ns, effects),
        }
    }

    fn enter(&mut self, slot: u32, stage: Stage, now_ns: u64) {
        if let Some(connection) = &mut self.slots[slot as usize] {
            (connection.stage, connection.since_ns) = (stage, now_ns);
        }
    }

    /// Sends a request on an idle connection.
    fn begin(&mut self, slot: u32, send: Box<Send>, now_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let timeout_ns = send.response_timeout_ns.unwrap_or(self.limits.response_timeout_ns);
        connection.deadline_ns = now_ns.saturating_add(timeout_ns);
        self.deadlines.set(slot, connection.deadline_ns);
        (connection.stage, connection.since_ns) = (Stage::Busy, now_ns);
        (connection.received_bytes, connection.sent_bytes, connection.sent_ns) = (0, 0, None);
        connection.kept.begin(send.keeps_head, send.keeps_body);
        let bytes = &send.outgoing.bytes;
        let batch = Batch { bytes: bytes.len(), requests: 1, expects_no_body: send.outgoing.is_head };
        connection.session.exchange.begin(send.due_ns, now_ns, batch);
        let sent = connection.session.send(bytes, &mut self.buffers, effects);
        connection.send = Some(send);
        self.begun.push(slot);
        match sent {
            Ok(sent) => self.count_sent(slot, sent, effects),
            Err(failure) => self.not_sent(slot, failure, now_ns, effects),
        }
    }

    /// Closes a connection; its exchange is over.
    fn close(&mut self, slot: u32, effects: &mut impl Effects) {
        let Some(connection) = self.slots[slot as usize].take() else { return };
        effects.close(slot, SocketUse::Close);
        self.users[connection.user as usize].open.retain(|other| *other != slot);
        self.vacant.push(slot);
    }

    /// Sends the requests that wait for one of a user's connections, and those that wait for a vacant one. One that fails at
    /// once calls this again and only notes its user: a recursion would be as deep as requests wait.
    fn serve(&mut self, user: Option<u32>, now_ns: u64, effects: &mut impl Effects) {
        self.to_serve.extend(user);
        if self.is_serving {
            return;
        }
        self.is_serving = true;
        loop {
            if let Some(user) = self.to_serve.pop() {
                self.serve_pending(user, now_ns, effects);
            } else if self.vacant.is_empty() {
                break;
            } else if let Some(send) = self.waiting.pop_front() {
                self.send(send, now_ns, effects);
            } else {
                break;
            }
        }
        self.is_serving = false;
    }

    /// Sends the requests of a user that wait for one of its connections.
    fn serve_pending(&mut self, user: u32, now_ns: u64, effects: &mut impl Effects) {
        for _ in 0..self.users[user as usize].pending.len() {
            if let Some(send) = self.users[user as usize].pending.pop_front() {
                self.send(send, now_ns, effects);
            }
        }
    }
}
