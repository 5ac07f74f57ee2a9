//! Sessions with a `leadline serve` behind the gateway. A server spends threads on each session, so up to [`MOST_MEMBERS`] clients
//! share one: the first that joins talks over a TCP connection inside of its own tunnel (`session/leader.rs`), and each brings the
//! flows that its tunnel carries. Members may live on different threads; what they share is read without a lock once it stands.

mod leader;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use leadline_pace::Pace;
use leadline_transport::{SharedKey, SideReport, Work};
use leadline_wire::{Direction, FlowProgress, LoadReport};

use super::Told;

pub use leader::Leader;

/// Clients of one session.
pub const MOST_MEMBERS: usize = 64;
/// How long after the last client has joined a session is asked for, ns, unless it is full before.
const SETTLED_NS: u64 = 200_000_000;
/// How often a member looks for what its session has come to, ns.
pub const GLANCE_NS: u64 = 50_000_000;
/// Progress messages that are kept until somebody asks for them.
const MOST_TOLD: usize = 1024;
/// `Slot::expected` while the server has not told.
const UNKNOWN: u64 = u64::MAX;

/// What all sessions of a fleet's traffic are about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Where the server listens, inside.
    pub server: SocketAddr,
    /// What the flows do.
    pub work: Work,
    /// Which way.
    pub direction: Direction,
    /// How long, ms.
    pub duration_ms: u64,
    /// What the server asks for, if it asks for a key.
    pub key: Option<SharedKey>,
}

/// The sessions, which clients join.
pub struct Sessions {
    subject: Subject,
    groups: Mutex<Vec<Arc<Group>>>,
    told: Arc<Mutex<Told>>,
}

impl Sessions {
    /// None yet.
    pub fn new(subject: Subject) -> Self {
        Self { subject, groups: Mutex::default(), told: Arc::default() }
    }

    /// What they are about.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// A place in a session, for this client; who gets the first one of a session leads it.
    pub fn join(&self, client: u32) -> Member {
        let mut groups = lock(&self.groups);
        if let Some(group) = groups.last() {
            if let Some(slot) = group.join(client) {
                return Member { group: Arc::clone(group), slot, round: 0 };
            }
        }
        let group = Arc::new(Group::new(groups.len() as u32, self.subject.clone(), client, Arc::clone(&self.told)));
        groups.push(Arc::clone(&group));
        Member { group, slot: 0, round: 0 }
    }

    /// What the servers have told since the last call.
    pub fn told(&self) -> Told {
        std::mem::take(&mut lock(&self.told))
    }
}

/// One session and its members.
#[derive(Debug)]
pub struct Group {
    /// Which session it is.
    number: u32,
    subject: Subject,
    roster: Mutex<Roster>,
    /// The number of the terms that stand; 0 before the first.
    round: AtomicU32,
    terms: Mutex<Terms>,
    slots: Vec<Slot>,
    is_ready: AtomicBool,
    /// When the fleet is to begin, and when the session does, ns; 0 while nobody has said.
    start_ns: AtomicU64,
    begin_ns: AtomicU64,
    outcome: OnceLock<Ending>,
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
struct Roster {
    clients: Vec<u32>,
    is_sealed: bool,
}

/// What the flows of a round introduce themselves with.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The session's secret.
    pub token: u64,
    /// Each slot's place among those that take part; none for one that was left out.
    places: Vec<Option<u32>>,
    /// How many take part.
    parties: u32,
}

/// A member as its leader sees it.
#[derive(Debug)]
struct Slot {
    /// The round in which its flows have introduced themselves.
    introduced: AtomicU32,
    /// Datagrams that it has sent.
    sent_units: AtomicU64,
    /// Datagrams that were sent to it.
    expected: AtomicU64,
    /// Whether its senders are done.
    has_ended: AtomicBool,
}

/// How a session ended.
#[derive(Debug)]
pub enum Ending {
    /// With the server's figures.
    Reported {
        /// One row per flow.
        rows: Vec<SideReport>,
        /// What failed there, by name.
        errors: BTreeMap<String, u64>,
    },
    /// Without.
    Lost {
        /// Why, in snake case.
        name: &'static str,
        /// In words.
        message: String,
    },
}

/// One client's place in a session.
#[derive(Clone, Debug)]
pub struct Member {
    group: Arc<Group>,
    slot: usize,
    /// The number of the terms that it has taken up.
    round: u32,
}

/// What a member has to do by the terms of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the round, from 1.
    pub round: u32,
    /// The session's secret.
    pub token: u64,
    /// The number of its upward flow, if the work has upward ones.
    pub up: Option<u32>,
    /// The number of its downward flow, if the work has downward ones.
    pub down: Option<u32>,
    /// Which one it is of those that take part, and of how many: the server sends to one after another.
    pub place: u32,
    /// How many take part.
    pub parties: u32,
}

impl Group {
    /// With this client as its leader.
    fn new(number: u32, subject: Subject, leader: u32, told: Arc<Mutex<Told>>) -> Self {
        let slot = || Slot {
            introduced: AtomicU32::new(0),
            sent_units: AtomicU64::new(0),
            expected: AtomicU64::new(UNKNOWN),
            has_ended: AtomicBool::new(false),
        };
        Self {
            number,
            subject,
            roster: Mutex::new(Roster { clients: vec![leader], is_sealed: false }),
            round: AtomicU32::new(0),
            terms: Mutex::default(),
            slots: (0..MOST_MEMBERS).map(|_| slot()).collect(),
            is_ready: AtomicBool::new(false),
            start_ns: AtomicU64::new(0),
            begin_ns: AtomicU64::new(0),
            outcome: OnceLock::new(),
            told,
        }
    }

    fn join(&self, client: u32) -> Option<usize> {
        let mut roster = lock(&self.roster);
        // Who led it may have lost its tunnel before anybody was asked for a session.
        if roster.is_sealed || roster.clients.len() == MOST_MEMBERS || self.outcome.get().is_some() {
            return None;
        }
        roster.clients.push(client);
        Some(roster.clients.len() - 1)
    }

    /// When its senders end, once it has begun, ns.
    fn end_ns(&self) -> u64 {
        let length_ns = self.subject.duration_ms.saturating_mul(1_000_000);
        self.begin_ns.load(Ordering::Acquire).saturating_add(length_ns).min(u64::MAX / 2)
    }

    /// How much later than the fleet it begins, ns, where so many take part: its server sends to one of them after another, and to
    /// those of all sessions at different times.
    fn turn_ns(&self, parties: u32) -> u64 {
        let Work::Udp { rate_pps: Some(rate_pps), .. } = self.subject.work else { return 0 };
        let Some(pace) = Pace::per_second(rate_pps).filter(|_| self.subject.direction != Direction::Up) else {
            return 0;
        };
        // However many sessions there are, their numbers read backwards lie apart (van der Corput).
        let part = u128::from(pace.turn_ns(1, parties)) * u128::from(self.number.reverse_bits());
        u64::try_from(part >> u32::BITS).unwrap_or(0)
    }

    /// Ends it without the server's figures, unless it has ended.
    fn lose(&self, name: &'static str, message: String) {
        let _ = self.outcome.set(Ending::Lost { name, message });
    }

    /// A server's progress under the clients' numbers, both directions of a client in one row.
    fn pass_on(&self, t_ns: u64, flows: Vec<FlowProgress>) {
        let (terms, roster) = (lock(&self.terms), lock(&self.roster));
        let mut rows: BTreeMap<u32, FlowProgress> = BTreeMap::new();
        for flow in flows {
            let Some(slot) = terms.slot_of(flow.flow) else { continue };
            let Some(&client) = roster.clients.get(slot) else { continue };
            let add = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
            rows.entry(client)
                .and_modify(|row| {
                    row.sent_bytes = row.sent_bytes.saturating_add(flow.sent_bytes);
                    row.received_bytes = row.received_bytes.saturating_add(flow.received_bytes);
                    row.sent_units = add(row.sent_units, flow.sent_units);
                    row.received_units = add(row.received_units, flow.received_units);
                    // Of the direction that has it.
                    row.missing_units = row.missing_units.or(flow.missing_units);
                    row.retransmits = row.retransmits.or(flow.retransmits);
                    row.rtt_us = row.rtt_us.or(flow.rtt_us);
                })
                .or_insert(FlowProgress { flow: client, ..flow });
        }
        let mut told = lock(&self.told);
        // Nobody may be asking.
        if told.progress.len() < MOST_TOLD {
            told.progress.push((t_ns, rows.into_values().collect()));
        } else {
            told.passed_over += 1;
        }
    }

    fn pass_on_load(&self, load: LoadReport) {
        lock(&self.told).loads.push(load);
    }
}

impl Terms {
    /// The slot that a flow of the session belongs to.
    fn slot_of(&self, flow: u32) -> Option<usize> {
        let place = flow.checked_rem(self.parties)?;
        // Upward flows come first, then as many downward ones.
        (flow < self.parties.saturating_mul(2)).then_some(())?;
        self.places.iter().position(|found| *found == Some(place))
    }
}

impl Member {
    /// Whether this client leads the session.
    pub fn leads(&self) -> bool {
        self.slot == 0
    }

    /// The session.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// New terms, if there are any since the last call; `None` inside where this client was left out of them.
    pub fn news(&mut self) -> Option<Option<Part>> {
        let round = self.group.round.load(Ordering::Acquire);
        if round == self.round {
            return None;
        }
        self.round = round;
        let terms = lock(&self.group.terms);
        let part = terms.places.get(self.slot).copied().flatten().map(|place| {
            let (up, down) = match self.group.subject.direction {
                Direction::Up => (Some(place), None),
                Direction::Down => (None, Some(place)),
                Direction::Both => (Some(place), Some(terms.parties + place)),
            };
            Part { round, token: terms.token, up, down, place, parties: terms.parties }
        });
        Some(part)
    }

    /// All of its flows are known to the server.
    pub fn introduced(&self) {
        self.own().introduced.store(self.round, Ordering::Release);
    }

    /// Whether the server has all flows of all members, or there will be no session.
    pub fn is_ready(&self) -> bool {
        self.group.is_ready.load(Ordering::Acquire) || self.ending().is_some()
    }

    /// The fleet begins at this instant, ns.
    pub fn start(&self, start_ns: u64) {
        self.group.start_ns.store(start_ns.max(1), Ordering::Release);
    }

    /// When the session begins, once that is known, ns.
    pub fn begin_ns(&self) -> Option<u64> {
        Some(self.group.begin_ns.load(Ordering::Acquire)).filter(|begin_ns| *begin_ns > 0)
    }

    /// When the session's senders end, once its beginning is known, ns.
    pub fn end_ns(&self) -> Option<u64> {
        self.begin_ns().map(|_| self.group.end_ns())
    }

    /// It has sent so many datagrams so far.
    pub fn sent(&self, units: u64) {
        self.own().sent_units.store(units, Ordering::Relaxed);
    }

    /// Its senders are done.
    pub fn ended(&self) {
        self.own().has_ended.store(true, Ordering::Release);
    }

    /// How many datagrams were sent to it, once the server has told.
    pub fn expected(&self) -> Option<u64> {
        Some(self.own().expected.load(Ordering::Relaxed)).filter(|expected| *expected != UNKNOWN)
    }

    /// How the session ended, once it has.
    pub fn ending(&self) -> Option<&Ending> {
        self.group.outcome.get()
    }

    /// The server's row about a flow.
    pub fn row_of(&self, flow: Option<u32>) -> Option<&SideReport> {
        let Some(Ending::Reported { rows, .. }) = self.ending() else { return None };
        rows.iter().find(|row| Some(row.flow) == flow)
    }

    /// It takes no further part; without its leader a session is over.
    pub fn leave(&self) {
        self.ended();
        if self.leads() {
            self.group.lose("session_broken_off", "the client that led the session ended before it".to_owned());
        }
    }

    fn own(&self) -> &Slot {
        &self.group.slots[self.slot]
    }
}

/// What a lock guards stays whole even if a thread died with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(rate_pps: Option<f64>, direction: Direction) -> Sessions {
        let work = Work::Udp { datagram_bytes: 100, rate_pps, number: None };
        let server = SocketAddr::from(([10, 8, 0, 1], 5201));
        Sessions::new(Subject { server, work, direction, duration_ms: 1000, key: None })
    }

    #[test]
    fn nobody_joins_a_session_whose_leader_is_gone() {
        let sessions = sessions(None, Direction::Up);
        let (leader, member) = (sessions.join(0), sessions.join(1));
        assert!(leader.leads() && !member.leads());
        leader.leave();
        assert!(matches!(member.ending(), Some(Ending::Lost { name: "session_broken_off", .. })), "at once");
        assert!(member.is_ready(), "and nobody waits for it");
        assert!(sessions.join(2).leads());
    }

    #[test]
    fn sessions_send_down_at_different_times_within_one_turn() {
        let groups = |direction| {
            let sessions = sessions(Some(100.0), direction);
            let members: Vec<Member> = (0..4 * MOST_MEMBERS as u32).map(|client| sessions.join(client)).collect();
            members.into_iter().step_by(MOST_MEMBERS).map(|leader| leader.group().turn_ns(50)).collect::<Vec<_>>()
        };
        assert_eq!(groups(Direction::Down), [0, 100_000, 50_000, 150_000]);
        assert_eq!(groups(Direction::Up), [0; 4], "clients have turns of their own");
    }

    #[test]
    fn what_is_told_to_nobody_is_counted() {
        let sessions = sessions(None, Direction::Up);
        let member = sessions.join(0);
        (0..MOST_TOLD as u64 + 3).for_each(|t_ns| member.group().pass_on(t_ns, Vec::new()));
        let told = sessions.told();
        assert_eq!((told.progress.len(), told.passed_over), (MOST_TOLD, 3));
        assert_eq!(sessions.told().passed_over, 0);
    }
}
