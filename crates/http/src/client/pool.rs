//! One thread's connections. Owns which connection sends the request that is due, when connections are opened and looked
//! at, and passes each input to its connection. `ending` counts what is left when the load ends.

use std::cmp::Reverse;
use std::sync::Arc;

use super::capture::Capture;
use super::connection::{Connection, ConnectionState};
use super::effects::{Effects, Input};
use super::settings::Settings;
use super::shared::{earlier, record_late, Delayed, Idle, Shared};
use super::source::{Script, Source};
use super::tally::Tally;
use crate::Schedule;

/// Connections that are opened at once: a listener's backlog is not to be overrun.
const CONNECTING_LIMIT: usize = 128;

/// See the file's head. Its caller, for each turn of its loop:
/// 1. calls [`ConnectionPool::check_deadlines`] where [`ConnectionPool::is_check_due`] says so,
/// 2. calls [`ConnectionPool::run_once`], and waits no longer than it says,
/// 3. calls [`ConnectionPool::note_handed_over`], and [`ConnectionPool::handle`] for each thing that happened.
pub struct ConnectionPool<S> {
    pub(super) connections: Vec<Connection>,
    /// Connections that have not been opened, the next one last.
    unused: Vec<usize>,
    /// When a connection was last seen to be idle, ns.
    pub(super) last_free_ns: Option<u64>,
    pub(super) shared: Shared<S>,
}

impl<S: Script> ConnectionPool<S> {
    /// A pool whose connections are all unused, and whose requests are not due yet.
    #[must_use]
    pub fn new(settings: Arc<Settings>, source: Source<S>, connections: usize) -> Self {
        let wants_responses = source.wants_responses();
        let captures = wants_responses || settings.redirects > 0;
        let connection = |index| Connection::new(index, captures.then(|| Capture::new(wants_responses)));
        Self {
            connections: (0..connections).map(connection).collect(),
            unused: (0..connections).rev().collect(),
            last_free_ns: None,
            shared: Shared::new(settings, source, connections),
        }
    }

    /// Opens the first connection. The others follow: in a closed loop all, in an open loop as requests need them.
    pub fn open_first(&mut self, effects: &mut impl Effects) {
        self.open_unused(effects);
    }

    /// Lets requests fall due by this schedule.
    pub fn begin(&mut self, schedule: Schedule) {
        self.shared.schedule = Some(schedule);
    }

    /// Takes what happened to a connection at `at_ns`.
    #[inline]
    pub fn handle(&mut self, index: usize, at_ns: u64, input: Input, effects: &mut impl Effects) {
        self.connections[index].handle(at_ns, input, &mut self.shared, effects);
        self.note_handed_over(effects);
    }

    /// Does what is due at `now_ns`: sends requests and opens connections. Returns when to call it again at the latest, ns;
    /// `None` where only an input makes something due.
    pub fn run_once(&mut self, now_ns: u64, effects: &mut impl Effects) -> Option<u64> {
        if !self.shared.delayed.is_empty() {
            self.take_delayed(now_ns, effects);
        }
        if !self.shared.idle.is_empty() {
            self.last_free_ns = Some(now_ns);
        }
        self.dispatch(now_ns, effects);
        let mut due_ns = if self.shared.idle.is_empty() { None } else { self.next_due_ns() };
        if !self.unused.is_empty() {
            due_ns = self.grow(now_ns, due_ns, effects);
        }
        let ready_ns = self.shared.delayed.peek().map(|Reverse(delayed)| delayed.ready_ns);
        earlier(earlier(due_ns, self.shared.deadline_ns), ready_ns)
    }

    /// Whether [`ConnectionPool::check_deadlines`] has something to do.
    #[inline]
    #[must_use]
    pub fn is_check_due(&self, now_ns: u64) -> bool {
        self.shared.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns)
    }

    /// Ends what has taken too long, opens what is down and is to be tried again, and finds out when to look again. Whatever begins after this
    /// cannot be overdue before its own time limit, so that looking costs nothing per request.
    pub fn check_deadlines(&mut self, now_ns: u64, effects: &mut impl Effects) {
        self.shared.deadline_ns = Some(now_ns + self.shared.settings.response_timeout_ns);
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            match connection.deadline_ns(&self.shared.settings) {
                Some(deadline_ns) if deadline_ns <= now_ns => {
                    connection.on_deadline(now_ns, &mut self.shared, effects);
                    self.note_handed_over(effects);
                }
                Some(deadline_ns) => self.shared.look_by(deadline_ns),
                None => {}
            }
        }
    }

    /// Takes note of when requests were handed to the kernel, once that is known: that is when they count as sent. The
    /// system may queue them for a while, which is the generator's time and not the server's.
    #[inline]
    pub fn note_handed_over(&mut self, effects: &mut impl Effects) {
        let Self { shared: Shared { begun, detach_handed_over_ns, tally, .. }, connections, .. } = self;
        if begun.is_empty() {
            *detach_handed_over_ns = None;
            return;
        }
        let Some(handed_over_ns) = detach_handed_over_ns.take().or_else(|| effects.handed_over_ns()) else { return };
        for one in begun.drain(..) {
            let sent_ns = record_late(&one, handed_over_ns, tally, effects);
            let connection = &mut connections[one.index];
            if connection.epoch == one.epoch {
                connection.exchange.handed_over(sent_ns);
            }
        }
    }

    /// Sends what is due at `now_ns` on idle connections.
    fn dispatch(&mut self, mut now_ns: u64, effects: &mut impl Effects) {
        while let Some((index, due_ns, free_ns)) = self.take_due(now_ns) {
            self.connections[index].begin(due_ns, free_ns, &mut self.shared, effects);
            self.note_handed_over(effects);
            now_ns = effects.now_ns();
        }
    }

    /// The longest idle connection, what is due on it, and since when it is free.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<(usize, u64, u64)> {
        let &Idle { index, free_ns } = self.shared.idle.front()?;
        let due_ns = self.shared.take(now_ns, free_ns)?;
        self.shared.idle.pop_front();
        self.connections[index].is_idle = false;
        Some((index, due_ns, free_ns))
    }

    /// Lets connections go on whose script wanted them to wait.
    fn take_delayed(&mut self, now_ns: u64, effects: &mut impl Effects) {
        while self.shared.delayed.peek().is_some_and(|Reverse(delayed)| delayed.ready_ns <= now_ns) {
            let Some(Reverse(Delayed { ready_ns, index, epoch })) = self.shared.delayed.pop() else { return };
            let connection = &mut self.connections[index];
            if connection.epoch == epoch && connection.state == ConnectionState::Up {
                connection.offer(ready_ns, ready_ns, &mut self.shared, effects);
                self.note_handed_over(effects);
            }
        }
    }

    /// Opens what has not been opened so far: in a closed loop all of it; in an open one a connection for each request that
    /// is due and has none, none being idle. Returns when the next request is due, ns, where that is for the pool to act on;
    /// `due_ns` is that of the idle connections.
    fn grow(&mut self, now_ns: u64, due_ns: Option<u64>, effects: &mut impl Effects) -> Option<u64> {
        if !self.shared.settings.is_open_loop {
            while self.shared.opening < CONNECTING_LIMIT && !self.unused.is_empty() {
                self.open_unused(effects);
            }
            return due_ns;
        }
        if !self.shared.idle.is_empty() {
            return due_ns;
        }
        let waiting = self.due_count(now_ns).saturating_sub(self.taken());
        while (self.shared.opening as u64) < waiting
            && self.shared.opening < CONNECTING_LIMIT
            && !self.unused.is_empty()
        {
            self.open_unused(effects);
        }
        // While a request waits, the next thing to do follows from an input.
        if waiting > 0 {
            return None;
        }
        self.next_due_ns()
    }

    fn open_unused(&mut self, effects: &mut impl Effects) {
        if let Some(index) = self.unused.pop() {
            self.connections[index].open(&mut self.shared, effects);
        }
    }
}

/// What the caller asks.
impl<S: Script> ConnectionPool<S> {
    /// Its counts.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// Where its requests come from.
    #[must_use]
    pub fn source(&self) -> &Source<S> {
        &self.shared.source
    }

    /// Connections that carry requests.
    #[must_use]
    pub fn up(&self) -> usize {
        self.shared.up
    }

    /// Whether each connection that is opened at the beginning has been tried: in a closed loop all, in an open loop one.
    #[must_use]
    pub fn has_tried_all(&self) -> bool {
        (self.shared.settings.is_open_loop || self.unused.is_empty()) && self.shared.opening == 0
    }

    /// Whether connection `index` carries requests.
    #[inline]
    #[must_use]
    pub fn is_up(&self, index: usize) -> bool {
        self.connections[index].state == ConnectionState::Up
    }

    /// Whether connection `index`, in this of its lives, waits for its name to be looked up.
    #[must_use]
    pub fn is_resolving(&self, index: usize, epoch: u32) -> bool {
        let connection = &self.connections[index];
        connection.epoch == epoch && matches!(connection.state, ConnectionState::Resolving { .. })
    }

    /// Requests that have fallen due by `now_ns`, whatever leaves in one piece.
    #[must_use]
    pub fn requests_due(&self, now_ns: u64) -> u64 {
        self.due_count(now_ns) * u64::from(self.shared.source.batch())
    }

    /// Whether every request has been taken and has ended, or a script has ended its thread.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.has_stopped() || (self.next_due_ns().is_none() && !self.connections.iter().any(Connection::is_busy))
    }

    /// Whether a script has ended this thread.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.shared.stopped_ns.is_some()
    }

    /// When the next request is due, ns, connections being free; `None` where no more will be.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.shared.schedule.as_ref().and_then(Schedule::next_due_ns)
    }

    /// Pieces that have fallen due by `now_ns`.
    pub(super) fn due_count(&self, now_ns: u64) -> u64 {
        self.shared.schedule.as_ref().map_or(0, |schedule| schedule.due_count(now_ns))
    }

    /// Pieces that have been handed out to connections.
    pub(super) fn taken(&self) -> u64 {
        self.shared.schedule.as_ref().map_or(0, Schedule::taken)
    }
}
