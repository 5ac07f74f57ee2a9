//! The client that holds the control connection of its session. It requests the session once its participants have
//! joined, leaves out those whose introductions do not get through, sets the beginning, reports what was sent, and
//! receives the report.
//!
//! | Stage       | until                                                          | leads to                        |
//! |-------------|----------------------------------------------------------------|---------------------------------|
//! | gathering   | no client has joined for a while, or there is room for none    | asking                          |
//! | asking      | the session is granted                                         | introducing                     |
//! | introducing | the server has all flows; or a participant has not introduced its flows  | waiting; or asking without it  |
//! | waiting     | the fleet's start is known                                     | running                         |
//! | running     | every sender is done                                           | ending                          |
//! | ending      | the report                                                     | over                            |

use std::sync::atomic::Ordering;
use std::sync::Arc;

use leadline_transport::{ClientSession, DatagramOptions, Open, SessionError, SessionEvent, Work};
use leadline_tunnel::inside::tcp::{Buffers, Connection, Stack};
use leadline_wire::Direction;

use super::{lock, Group, Round, SessionOutcome, MAX_PARTICIPANTS, SESSION_POLL_NS, SETTLED_NS};
use crate::keys;

/// The buffers of the control connection: a report on 128 flows arrives in several pieces.
const BUFFERS: Buffers = Buffers { receive_bytes: 16 << 10, send_bytes: 8 << 10 };
/// How long participants may take to introduce their flows, ns; after that they are left out.
const INTRODUCTION_NS: u64 = 4_000_000_000;
/// The time limit of the server for each step before the start, ns.
const STEP_NS: u64 = 20_000_000_000;
/// How often the leader polls the state of its participants, ns.
const PARTICIPANT_POLL_NS: u64 = 20_000_000;
/// The minimum time between now and the beginning, ns, so that all participants know it before it comes.
const AHEAD_NS: u64 = 3 * SESSION_POLL_NS;
/// How long after the end senders may take to end, ns.
const ENDING_NS: u64 = 1_000_000_000;
/// How long after that the server may take for its report, ns: its own waiting time and the transit.
const REPORT_NS: u64 = 35_000_000_000;
/// The interval of the server's progress messages, ms.
const INTERVAL_MS: u32 = 200;

/// The control session with one server.
pub struct Leader {
    group: Arc<Group>,
    stage: Stage,
    /// When the stage began, or the last participant joined, ns.
    since_ns: u64,
    joined: usize,
    /// Whether each slot takes part.
    participants: Vec<bool>,
    control: Option<ControlConnection>,
    /// The next look at the participants and the fleet; `None` once the session has an outcome.
    deadline_ns: Option<u64>,
}

struct ControlConnection {
    connection: Connection,
    session: ClientSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gathering,
    Asking,
    Introducing,
    Waiting,
    Running,
    Ending,
    Over,
}

impl Leader {
    /// Returns the leader of this session.
    pub fn new(group: &Arc<Group>) -> Self {
        let (group, participants) = (Arc::clone(group), Vec::new());
        Self {
            group,
            stage: Stage::Gathering,
            since_ns: 0,
            joined: 0,
            participants,
            control: None,
            deadline_ns: Some(0),
        }
    }

    /// When `poll` has work to do apart from received packets, ns; `None` once the session has an outcome.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Does the work that is due; the stack sends the packets.
    pub fn poll(&mut self, now_ns: u64, stack: &mut Stack) {
        if self.stage == Stage::Over {
            return;
        }
        if let Err((name, message)) = self.advance(now_ns, stack) {
            self.group.lose(name, message);
        }
        if self.group.outcome.get().is_some() {
            self.stage = Stage::Over;
            self.deadline_ns = None;
            self.close_control(stack);
        }
    }

    fn advance(&mut self, now_ns: u64, stack: &mut Stack) -> Result<(), (&'static str, String)> {
        self.receive(now_ns, stack)?;
        let poll_ns = now_ns + PARTICIPANT_POLL_NS;
        self.deadline_ns = Some(poll_ns);
        match self.stage {
            Stage::Gathering => self.gather(now_ns, stack)?,
            Stage::Introducing => self.watch_introductions(now_ns, stack)?,
            Stage::Asking if now_ns >= self.since_ns + STEP_NS => {
                return Err(("session_unanswered", "the server does not answer the request for a session".to_owned()));
            }
            Stage::Waiting => self.begin(now_ns)?,
            Stage::Running => {
                self.deadline_ns = self.group.end_ns().map(|end_ns| end_ns.max(poll_ns));
                self.end(now_ns)?;
            }
            Stage::Ending if self.is_over_for(now_ns, ENDING_NS + REPORT_NS) => {
                return Err(("no_report", "the server has sent no report in time".to_owned()));
            }
            Stage::Asking | Stage::Ending | Stage::Over => {}
        }
        if let Some(control) = &mut self.control {
            let written = stack.write(control.connection, control.session.output());
            control.session.sent(written);
        }
        Ok(())
    }

    /// Waits until no client has joined for a while.
    fn gather(&mut self, now_ns: u64, stack: &mut Stack) -> Result<(), (&'static str, String)> {
        let mut roster = lock(&self.group.roster);
        if roster.clients.len() != self.joined {
            (self.joined, self.since_ns) = (roster.clients.len(), now_ns);
        }
        if self.joined < MAX_PARTICIPANTS && now_ns < self.since_ns + SETTLED_NS {
            return Ok(());
        }
        roster.is_sealed = true;
        drop(roster);
        self.participants = vec![true; self.joined];
        self.ask(now_ns, stack)
    }

    /// Requests a session for the clients that take part.
    fn ask(&mut self, now_ns: u64, stack: &mut Stack) -> Result<(), (&'static str, String)> {
        let spec = &self.group.spec;
        let open = Open {
            work: spec.work,
            flows: self.participants.iter().filter(|participates| **participates).count() as u32,
            threads: 1,
            direction: spec.direction,
            duration_ms: spec.duration_ms,
            congestion: None,
            interval_ms: INTERVAL_MS,
            takes_turns: true,
            datagrams: DatagramOptions::default(),
        };
        let credentials = keys::credentials(spec.key.as_ref()).map_err(|error| ("no_nonce", error.message))?;
        let session = ClientSession::new(open, credentials).map_err(session_error)?;
        let connection = stack.connect(now_ns, spec.server, BUFFERS);
        let connection = connection.map_err(|error| (error.name(), format!("{}: {error}", spec.server)))?;
        self.control = Some(ControlConnection { connection, session });
        (self.stage, self.since_ns) = (Stage::Asking, now_ns);
        Ok(())
    }

    /// Handles the server's messages.
    fn receive(&mut self, now_ns: u64, stack: &mut Stack) -> Result<(), (&'static str, String)> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let session = &mut control.session;
        stack.read(control.connection, |piece| {
            session.receive(piece);
            piece.len()
        });
        while let Some(event) = self
            .control
            .as_mut()
            .map_or(Ok(None), |control| control.session.next_event(now_ns))
            .map_err(session_error)?
        {
            self.take(now_ns, event);
        }
        let Some(control) = &self.control else { return Ok(()) };
        let server = self.group.spec.server;
        if let Some(error) = stack.error(control.connection) {
            return Err((error.name(), format!("session with {server}: {error}")));
        }
        if self.stage != Stage::Over && stack.is_at_end(control.connection) && self.group.outcome.get().is_none() {
            return Err(("session_closed", format!("{server} closed the session before its report")));
        }
        Ok(())
    }

    fn take(&mut self, now_ns: u64, event: SessionEvent) {
        match event {
            SessionEvent::Granted { token } => {
                let mut next = 0..;
                let positions =
                    self.participants.iter().map(|participates| participates.then(|| next.next()).flatten()).collect();
                let participants = next.start;
                *lock(&self.group.current_round) = Round { token, positions, participants };
                self.group.round.fetch_add(1, Ordering::Release);
                (self.stage, self.since_ns) = (Stage::Introducing, now_ns);
            }
            SessionEvent::Ready { .. } => {
                self.group.is_ready.store(true, Ordering::Release);
                self.stage = Stage::Waiting;
            }
            SessionEvent::Progress { t_ns, flows } => self.group.report_progress(t_ns, flows),
            SessionEvent::Sent { units } => self.expect(units.into_iter().map(Some)),
            SessionEvent::Report { flows, load, errors } => {
                let downward = self.downward();
                self.expect(flows.iter().filter(|row| downward.contains(&row.flow)).map(|row| row.sent_units));
                self.group.report_load(*load);
                let _ = self.group.outcome.set(SessionOutcome::Reported { rows: flows, errors });
            }
        }
    }

    /// Stores the server's counts of sent datagrams, if it reported them, in the order of the downward flows.
    fn expect(&self, units: impl Iterator<Item = Option<u64>>) {
        let current_round = lock(&self.group.current_round);
        for (flow, sent) in self.downward().zip(units) {
            let Some(sent) = sent else { continue };
            if let Some(slot) = current_round
                .positions
                .iter()
                .position(|position| *position == Some(flow % current_round.participants.max(1)))
            {
                self.group.slots[slot].expected.set(sent);
            }
        }
    }

    /// The numbers of the downward flows.
    fn downward(&self) -> std::ops::Range<u32> {
        let participants = self.participants.iter().filter(|participates| **participates).count() as u32;
        match self.group.spec.direction {
            Direction::Up => 0..0,
            Direction::Down => 0..participants,
            Direction::Both => participants..2 * participants,
        }
    }

    /// Leaves out clients whose flows do not get through: a session waits for all of its flows.
    fn watch_introductions(&mut self, now_ns: u64, stack: &mut Stack) -> Result<(), (&'static str, String)> {
        if now_ns < self.since_ns + INTRODUCTION_NS {
            return Ok(());
        }
        let round = self.group.round.load(Ordering::Acquire);
        let mut has_changed = false;
        for (participates, slot) in self.participants.iter_mut().zip(&self.group.slots) {
            if *participates && slot.introduced.load(Ordering::Acquire) != round {
                *participates = false;
                has_changed = true;
            }
        }
        if !self.participants.contains(&true) {
            return Err(("flows_unanswered", "no flow got through to the server, though its session did".to_owned()));
        }
        if !has_changed {
            if now_ns < self.since_ns + STEP_NS {
                return Ok(());
            }
            return Err(("session_not_ready", "the server waits for flows that were all introduced".to_owned()));
        }
        self.close_control(stack);
        self.ask(now_ns, stack)
    }

    fn begin(&mut self, now_ns: u64) -> Result<(), (&'static str, String)> {
        if let (Some(control), Some(start_ns)) = (&mut self.control, self.group.start_ns.get()) {
            let participants = lock(&self.group.current_round).participants;
            let begin_ns = start_ns.max(now_ns + AHEAD_NS) + self.group.start_offset_ns(participants);
            control.session.begin(begin_ns).map_err(session_error)?;
            self.group.begin_ns.set(begin_ns);
            self.stage = Stage::Running;
        }
        Ok(())
    }

    /// Reports to the server what was sent, once every sender has ended or its time is over.
    fn end(&mut self, now_ns: u64) -> Result<(), (&'static str, String)> {
        let slots = || self.group.slots.iter().zip(&self.participants).filter(|(_, participates)| **participates);
        let all_ended = slots().all(|(slot, _)| slot.has_ended.load(Ordering::Acquire));
        if !all_ended && !self.is_over_for(now_ns, ENDING_NS) {
            return Ok(());
        }
        let counts = matches!(self.group.spec.work, Work::Udp { .. }) && self.group.spec.direction != Direction::Down;
        let sent: Vec<u64> =
            slots().filter(|_| counts).map(|(slot, _)| slot.sent_units.load(Ordering::Relaxed)).collect();
        if let Some(control) = &mut self.control {
            control.session.end(sent).map_err(session_error)?;
        }
        self.stage = Stage::Ending;
        Ok(())
    }

    /// Whether the senders should have ended this long ago.
    fn is_over_for(&self, now_ns: u64, passed_ns: u64) -> bool {
        self.group.end_ns().is_some_and(|end_ns| now_ns >= end_ns.saturating_add(passed_ns))
    }

    fn close_control(&mut self, stack: &mut Stack) {
        if let Some(control) = self.control.take() {
            stack.close(control.connection);
            stack.release(control.connection);
        }
    }
}

/// Returns an error of the session by name and as text.
fn session_error(error: SessionError) -> (&'static str, String) {
    let name = match &error {
        SessionError::Refused(_) => "session_refused",
        SessionError::InvalidMessage(_) | SessionError::OutOfTurn => "protocol",
        SessionError::Unproven => "unproven_server",
    };
    (name, error.to_string())
}
