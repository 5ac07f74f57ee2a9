//! Sessions with a `leadline serve` behind the gateway. A server spends threads on each session, so up to
//! [`MAX_PARTICIPANTS`] clients share one. The first client that joins holds the control connection, a TCP connection
//! in its own tunnel (`session/leader.rs`), and each client adds the flows that its tunnel carries. Participants may
//! live on different threads; once the shared state is set, they read it without a lock.

pub mod leader;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use leadline_pace::Pace;
use leadline_transport::{SharedKey, SideReport, Work};
use leadline_wire::{Direction, FlowProgress, LoadReport};

use super::interface::PeerProgress;
use crate::atomic_option::AtomicOption;

/// The maximum number of clients in one session.
pub const MAX_PARTICIPANTS: usize = 64;
/// How long after the last client has joined a session is requested, ns, unless it is full before.
const SETTLED_NS: u64 = 200_000_000;
/// How often a participant polls the state of its session, ns.
pub const SESSION_POLL_NS: u64 = 50_000_000;
/// The maximum number of progress messages that wait to be read.
const MAX_PENDING_PROGRESS: usize = 1024;

/// The parameters that all sessions of a fleet's traffic share.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The server's address in the tunnel.
    pub server: SocketAddr,
    /// The work of the flows.
    pub work: Work,
    /// The direction.
    pub direction: Direction,
    /// The duration, ms.
    pub duration_ms: u64,
    /// The key, if the server asks for one.
    pub key: Option<SharedKey>,
}

/// The sessions that clients join.
pub struct Sessions {
    spec: SessionSpec,
    groups: Mutex<Vec<Arc<Group>>>,
    peer_progress: Arc<Mutex<PeerProgress>>,
}

impl Sessions {
    /// Returns an empty set of sessions.
    pub fn new(spec: SessionSpec) -> Self {
        Self { spec, groups: Mutex::default(), peer_progress: Arc::default() }
    }

    /// The shared parameters.
    pub fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// Adds this client to a session; the first participant of a session leads it.
    pub fn join(&self, client: u32) -> Participant {
        let mut groups = lock(&self.groups);
        if let Some(group) = groups.last() {
            if let Some(slot) = group.join(client) {
                return Participant { group: Arc::clone(group), slot, round: 0 };
            }
        }
        let group =
            Arc::new(Group::new(groups.len() as u32, self.spec.clone(), client, Arc::clone(&self.peer_progress)));
        groups.push(Arc::clone(&group));
        Participant { group, slot: 0, round: 0 }
    }

    /// Removes and returns the servers' progress since the last call.
    pub fn take_peer_progress(&self) -> PeerProgress {
        std::mem::take(&mut lock(&self.peer_progress))
    }
}

/// One session and its participants.
#[derive(Debug)]
pub struct Group {
    /// The session's number.
    number: u32,
    spec: SessionSpec,
    roster: Mutex<Roster>,
    /// The number of the current round; 0 before the first.
    round: AtomicU32,
    current_round: Mutex<Round>,
    slots: Vec<Slot>,
    is_ready: AtomicBool,
    /// When the fleet begins, ns.
    start_ns: AtomicOption,
    /// When the session begins, ns: not before the fleet, and far enough ahead that each participant knows it in time.
    begin_ns: AtomicOption,
    outcome: OnceLock<SessionOutcome>,
    peer_progress: Arc<Mutex<PeerProgress>>,
}

#[derive(Debug, Default)]
struct Roster {
    clients: Vec<u32>,
    is_sealed: bool,
}

/// What the flows of a round need to introduce themselves.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The session's token.
    pub token: u64,
    /// Each slot's position among the participants; `None` for a slot that was left out.
    positions: Vec<Option<u32>>,
    /// The number of participants.
    participants: u32,
}

/// A participant as its leader sees it.
#[derive(Debug)]
struct Slot {
    /// The round in which its flows were introduced.
    introduced: AtomicU32,
    /// Datagrams that it has sent.
    sent_units: AtomicU64,
    /// Datagrams that were sent to it.
    expected: AtomicOption,
    /// Whether its senders have ended.
    has_ended: AtomicBool,
}

/// The end of a session.
#[derive(Debug)]
pub enum SessionOutcome {
    /// The server reported its figures.
    Reported {
        /// One row per flow.
        rows: Vec<SideReport>,
        /// Its failures, by name.
        errors: BTreeMap<String, u64>,
    },
    /// The session ended without a report.
    Lost {
        /// The reason, in snake case.
        name: &'static str,
        /// The reason as text.
        message: String,
    },
}

/// One client's membership in a session.
#[derive(Clone, Debug)]
pub struct Participant {
    group: Arc<Group>,
    slot: usize,
    /// The number of the round that it has last read.
    round: u32,
}

/// A participant's flows in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowAssignment {
    /// The number of the round, from 1.
    pub round: u32,
    /// The session's token.
    pub token: u64,
    /// The number of its upward flow, if the work has upward ones.
    pub up: Option<u32>,
    /// The number of its downward flow, if the work has downward ones.
    pub down: Option<u32>,
    /// Its position among the participants: the server sends to one after another.
    pub position: u32,
    /// The number of participants.
    pub participants: u32,
}

impl Group {
    /// Returns a session with this client as its leader.
    fn new(number: u32, spec: SessionSpec, leader: u32, peer_progress: Arc<Mutex<PeerProgress>>) -> Self {
        let slot = || Slot {
            introduced: AtomicU32::new(0),
            sent_units: AtomicU64::new(0),
            expected: AtomicOption::none(),
            has_ended: AtomicBool::new(false),
        };
        Self {
            number,
            spec,
            roster: Mutex::new(Roster { clients: vec![leader], is_sealed: false }),
            round: AtomicU32::new(0),
            current_round: Mutex::default(),
            slots: (0..MAX_PARTICIPANTS).map(|_| slot()).collect(),
            is_ready: AtomicBool::new(false),
            start_ns: AtomicOption::none(),
            begin_ns: AtomicOption::none(),
            outcome: OnceLock::new(),
            peer_progress,
        }
    }

    fn join(&self, client: u32) -> Option<usize> {
        let mut roster = lock(&self.roster);
        // The leader may have lost its tunnel before a session was requested.
        if roster.is_sealed || roster.clients.len() == MAX_PARTICIPANTS || self.outcome.get().is_some() {
            return None;
        }
        roster.clients.push(client);
        Some(roster.clients.len() - 1)
    }

    /// When its senders end, ns, once its beginning is known.
    fn end_ns(&self) -> Option<u64> {
        let length_ns = self.spec.duration_ms.saturating_mul(1_000_000);
        Some(self.begin_ns.get()?.saturating_add(length_ns))
    }

    /// How much later than the fleet a session with this many participants begins, ns. The server sends to them one
    /// after another, and to the participants of different sessions at different times.
    fn start_offset_ns(&self, participants: u32) -> u64 {
        let Work::Udp { rate_pps: Some(rate_pps), .. } = self.spec.work else { return 0 };
        let Some(pace) = Pace::per_second(rate_pps).filter(|_| self.spec.direction != Direction::Up) else {
            return 0;
        };
        // Session numbers with reversed bits are spread evenly, however many sessions there are (van der Corput).
        let share = u128::from(pace.turn_ns(1, participants)) * u128::from(self.number.reverse_bits());
        u64::try_from(share >> u32::BITS).unwrap_or(0)
    }

    /// Ends the session without the server's figures, unless it has ended.
    fn lose(&self, name: &'static str, message: String) {
        let _ = self.outcome.set(SessionOutcome::Lost { name, message });
    }

    /// Stores a server's progress under the clients' numbers, both directions of a client in one row.
    fn report_progress(&self, t_ns: u64, flows: Vec<FlowProgress>) {
        let (current_round, roster) = (lock(&self.current_round), lock(&self.roster));
        let mut rows: BTreeMap<u32, FlowProgress> = BTreeMap::new();
        for flow in flows {
            let Some(slot) = current_round.slot_of(flow.flow) else { continue };
            let Some(&client) = roster.clients.get(slot) else { continue };
            let add = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
            rows.entry(client)
                .and_modify(|row| {
                    row.sent_bytes = row.sent_bytes.saturating_add(flow.sent_bytes);
                    row.received_bytes = row.received_bytes.saturating_add(flow.received_bytes);
                    row.sent_units = add(row.sent_units, flow.sent_units);
                    row.received_units = add(row.received_units, flow.received_units);
                    // Only one of the directions has this value.
                    row.missing_units = row.missing_units.or(flow.missing_units);
                    row.retransmits = row.retransmits.or(flow.retransmits);
                    row.rtt_us = row.rtt_us.or(flow.rtt_us);
                })
                .or_insert(FlowProgress { flow: client, ..flow });
        }
        let mut peer_progress = lock(&self.peer_progress);
        // The progress may not be read by any task.
        if peer_progress.progress.len() < MAX_PENDING_PROGRESS {
            peer_progress.progress.push((t_ns, rows.into_values().collect()));
        } else {
            peer_progress.passed_over += 1;
        }
    }

    fn report_load(&self, load: LoadReport) {
        lock(&self.peer_progress).loads.push(load);
    }
}

impl Round {
    /// Returns the slot to which a flow of the session belongs.
    fn slot_of(&self, flow: u32) -> Option<usize> {
        let position = flow.checked_rem(self.participants)?;
        // Upward flows come first, then as many downward ones.
        (flow < self.participants.saturating_mul(2)).then_some(())?;
        self.positions.iter().position(|slot| *slot == Some(position))
    }
}

impl Participant {
    /// Whether this client leads the session.
    pub fn leads(&self) -> bool {
        self.slot == 0
    }

    /// The session.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Returns the assignment of a new round, if there is one since the last call; the inner `None` means that this
    /// client was left out.
    pub fn poll_assignment(&mut self) -> Option<Option<FlowAssignment>> {
        let round = self.group.round.load(Ordering::Acquire);
        if round == self.round {
            return None;
        }
        self.round = round;
        let current_round = lock(&self.group.current_round);
        let assignment = current_round.positions.get(self.slot).copied().flatten().map(|position| {
            let (up, down) = match self.group.spec.direction {
                Direction::Up => (Some(position), None),
                Direction::Down => (None, Some(position)),
                Direction::Both => (Some(position), Some(current_round.participants + position)),
            };
            FlowAssignment {
                round,
                token: current_round.token,
                up,
                down,
                position,
                participants: current_round.participants,
            }
        });
        Some(assignment)
    }

    /// Records that the server knows all flows of this participant.
    pub fn introduced(&self) {
        self.own().introduced.store(self.round, Ordering::Release);
    }

    /// Whether the server knows all flows of all participants, or there will be no session.
    pub fn is_ready(&self) -> bool {
        self.group.is_ready.load(Ordering::Acquire) || self.outcome().is_some()
    }

    /// Sets the start of the fleet, ns.
    pub fn start(&self, start_ns: u64) {
        self.group.start_ns.set(start_ns);
    }

    /// When the session begins, once this is known, ns.
    pub fn begin_ns(&self) -> Option<u64> {
        self.group.begin_ns.get()
    }

    /// When the session's senders end, once its beginning is known, ns.
    pub fn end_ns(&self) -> Option<u64> {
        self.group.end_ns()
    }

    /// Records how many datagrams it has sent so far.
    pub fn sent(&self, units: u64) {
        self.own().sent_units.store(units, Ordering::Relaxed);
    }

    /// Records that its senders have ended.
    pub fn ended(&self) {
        self.own().has_ended.store(true, Ordering::Release);
    }

    /// The number of datagrams that were sent to it, once the server has reported it.
    pub fn expected(&self) -> Option<u64> {
        self.own().expected.get()
    }

    /// The end of the session, once it has ended.
    pub fn outcome(&self) -> Option<&SessionOutcome> {
        self.group.outcome.get()
    }

    /// Returns the server's row of a flow.
    pub fn row_of(&self, flow: Option<u32>) -> Option<&SideReport> {
        let Some(SessionOutcome::Reported { rows, .. }) = self.outcome() else { return None };
        rows.iter().find(|row| Some(row.flow) == flow)
    }

    /// Leaves the session; without its leader a session is over.
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

/// Data behind a lock stays consistent even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(rate_pps: Option<f64>, direction: Direction) -> Sessions {
        let work = Work::Udp { datagram_bytes: 100, rate_pps, number: None };
        let server = SocketAddr::from(([10, 8, 0, 1], 5201));
        Sessions::new(SessionSpec { server, work, direction, duration_ms: 1000, key: None })
    }

    #[test]
    fn session_without_leader_accepts_no_participant() {
        let sessions = sessions(None, Direction::Up);
        let (leader, participant) = (sessions.join(0), sessions.join(1));
        assert!(leader.leads() && !participant.leads());
        leader.leave();
        assert!(
            matches!(participant.outcome(), Some(SessionOutcome::Lost { name: "session_broken_off", .. })),
            "at once"
        );
        assert!(participant.is_ready(), "and no participant waits for it");
        assert!(sessions.join(2).leads());
    }

    #[test]
    fn sessions_stagger_downward_sends_within_one_gap() {
        let groups = |direction| {
            let sessions = sessions(Some(100.0), direction);
            let participants: Vec<Participant> =
                (0..4 * MAX_PARTICIPANTS as u32).map(|client| sessions.join(client)).collect();
            participants
                .into_iter()
                .step_by(MAX_PARTICIPANTS)
                .map(|leader| leader.group().start_offset_ns(50))
                .collect::<Vec<_>>()
        };
        assert_eq!(groups(Direction::Down), [0, 100_000, 50_000, 150_000]);
        assert_eq!(groups(Direction::Up), [0; 4], "each client has its own turn");
    }

    #[test]
    fn dropped_progress_is_counted() {
        let sessions = sessions(None, Direction::Up);
        let participant = sessions.join(0);
        (0..MAX_PENDING_PROGRESS as u64 + 3).for_each(|t_ns| participant.group().report_progress(t_ns, Vec::new()));
        let peer_progress = sessions.take_peer_progress();
        assert_eq!((peer_progress.progress.len(), peer_progress.passed_over), (MAX_PENDING_PROGRESS, 3));
        assert_eq!(sessions.take_peer_progress().passed_over, 0);
    }
}
