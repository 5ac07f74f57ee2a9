//! The connections of one thread. Owns which connection sends the request that is due, and when connections are
//! opened and their deadlines are checked; passes each input to its connection. `load_end` counts what is left when the
//! load ends.

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

/// Maximum number of connections that are opened at the same time, so that a listener's backlog does not overflow.
const CONNECTING_LIMIT: usize = 128;

/// A pool of connections. For each iteration of its loop the caller:
/// 1. calls [`ConnectionPool::check_deadlines`] if [`ConnectionPool::is_check_due`] returns true,
/// 2. calls [`ConnectionPool::run_once`] and waits no longer than it returns,
/// 3. calls [`ConnectionPool::note_handed_over`], and [`ConnectionPool::handle`] for each event.
pub struct ConnectionPool<S> {
    pub(super) connections: Vec<Connection>,
    /// Connections that have not been opened; the next one is last.
    unused: Vec<usize>,
    /// When a connection was last idle, ns.
    pub(super) last_free_ns: Option<u64>,
    pub(super) shared: Shared<S>,
}

impl<S: Script> ConnectionPool<S> {
    /// Creates a pool whose connections are all unused, with no schedule.
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

    /// Opens the first connection. In a closed loop all others follow, in an open loop as requests need them.
    pub fn open_first(&mut self, effects: &mut impl Effects) {
        self.open_unused(effects);
    }

    /// Starts the schedule of requests.
    pub fn begin(&mut self, schedule: Schedule) {
        self.shared.schedule = Some(schedule);
    }

    /// Handles an event of a connection at `at_ns`.
    #[inline]
    pub fn handle(&mut self, index: usize, at_ns: u64, input: Input, effects: &mut impl Effects) {
        self.connections[index].handle(at_ns, input, &mut self.shared, effects);
        self.note_handed_over(effects);
    }

    /// Sends the requests that are due at `now_ns` and opens connections. Returns the latest time for the next call,
    /// ns; `None` if only an input makes something due.
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

    /// Whether [`ConnectionPool::check_deadlines`] has to be called.
    #[inline]
    #[must_use]
    pub fn is_check_due(&self, now_ns: u64) -> bool {
        self.shared.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns)
    }

    /// Ends steps and requests that timed out, reopens connections that are down and due, and computes the time of
    /// the next check. Whatever begins later cannot time out before its own time limit, so a request needs no timer
    /// of its own.
    pub fn check_deadlines(&mut self, now_ns: u64, effects: &mut impl Effects) {
        self.shared.deadline_ns = Some(now_ns + self.shared.settings.response_timeout_ns);
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            match connection.deadline_ns(&self.shared.settings) {
                Some(deadline_ns) if deadline_ns <= now_ns => {
                    connection.on_deadline(now_ns, &mut self.shared, effects);
                    self.note_handed_over(effects);
                }
                Some(deadline_ns) => self.shared.check_by(deadline_ns),
                None => {}
            }
        }
    }

    /// Records when requests were handed to the kernel, once that is known: that is their sending time. Time in a
    /// queue of the generator does not count as the server's.
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
                connection.session.exchange.handed_over(sent_ns);
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

    /// Takes the connection that has been idle longest, the due time of its request, and the time since which it is
    /// free.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<(usize, u64, u64)> {
        let &Idle { index, free_ns } = self.shared.idle.front()?;
        let due_ns = self.shared.take(now_ns, free_ns)?;
        self.shared.idle.pop_front();
        self.connections[index].is_idle = false;
        Some((index, due_ns, free_ns))
    }

    /// Continues connections whose script delay has ended.
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

    /// Opens unused connections: in a closed loop all of them, in an open loop one for each request that is due while
    /// none is idle. Returns when the next request is due if the pool has to act then, ns; `due_ns` is that of the
    /// idle connections.
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
        // While a request waits, an input triggers the next step.
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

/// Queries of the caller.
impl<S: Script> ConnectionPool<S> {
    /// The counts.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// The source of requests.
    #[must_use]
    pub fn source(&self) -> &Source<S> {
        &self.shared.source
    }

    /// Number of connections that are up.
    #[must_use]
    pub fn up(&self) -> usize {
        self.shared.up
    }

    /// Whether all initial connections have been tried: in a closed loop all, in an open loop one.
    #[must_use]
    pub fn has_tried_all(&self) -> bool {
        (self.shared.settings.is_open_loop || self.unused.is_empty()) && self.shared.opening == 0
    }

    /// Whether connection `index` is up.
    #[inline]
    #[must_use]
    pub fn is_up(&self, index: usize) -> bool {
        self.connections[index].state == ConnectionState::Up
    }

    /// Whether connection `index`, in this epoch, waits for its name lookup.
    #[must_use]
    pub fn is_resolving(&self, index: usize, epoch: u32) -> bool {
        let connection = &self.connections[index];
        connection.epoch == epoch && matches!(connection.state, ConnectionState::Resolving { .. })
    }

    /// Number of requests that were due by `now_ns`, whatever the size of a piece.
    #[must_use]
    pub fn requests_due(&self, now_ns: u64) -> u64 {
        self.due_count(now_ns) * u64::from(self.shared.source.batch())
    }

    /// Whether every request has been taken and has ended, or a script has stopped its thread.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.has_stopped() || (self.next_due_ns().is_none() && !self.connections.iter().any(Connection::is_busy))
    }

    /// Whether a script has stopped this thread.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.shared.stopped_ns.is_some()
    }

    /// When the next request is due if a connection is free, ns; `None` if no more will be.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.shared.schedule.as_ref().and_then(Schedule::next_due_ns)
    }

    /// Number of pieces that were due by `now_ns`.
    pub(super) fn due_count(&self, now_ns: u64) -> u64 {
        self.shared.schedule.as_ref().map_or(0, |schedule| schedule.due_count(now_ns))
    }

    /// Number of pieces that connections have taken.
    pub(super) fn taken(&self) -> u64 {
        self.shared.schedule.as_ref().map_or(0, Schedule::taken)
    }
}
