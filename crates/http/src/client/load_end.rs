//! The end of a load: what is still sent, and what counts as unsent or unanswered. Counts nothing before the end.

use super::connection::{Connection, ConnectionState, LONGEST_RETRY_NS};
use super::effects::{Effects, Metric, SocketUse};
use super::pool::ConnectionPool;
use super::shared::Shared;
use super::source::{Script, Source};
use super::tally::Tally;
use crate::Schedule;

/// Age above which a request that is outstanding at the end counts as long unanswered, ns.
const LONG_WAIT_NS: u64 = 1_000_000_000;
/// Maximum number of unsent requests whose age is recorded, at about 20 ns each; the rest are only counted.
const MOST_RECORDED_AGES: u64 = 10_000_000;
/// If all connections have been busy for longer than this at the end, requests wait for the server and not for the
/// generator, ns.
const BUSY_NS: u64 = 10_000_000;

impl<S: Script> ConnectionPool<S> {
    /// Whether an open loop still sends the requests that were due during a last wait which lasted beyond `end_ns`.
    /// If the generator overslept, it catches up. If the server has had all connections busy for long, the requests
    /// waited for the server and stay unsent.
    #[must_use]
    pub fn may_catch_up(&self, end_ns: u64) -> bool {
        let last_ns = end_ns.saturating_sub(1);
        let is_free = self.shared.idle.front().is_some_and(|idle| idle.free_ns <= last_ns);
        let was_free = self.last_free_ns.is_some_and(|free_ns| free_ns.saturating_add(BUSY_NS) >= last_ns);
        self.shared.settings.is_open_loop && !self.has_stopped() && (is_free || was_free)
    }

    /// Sends requests that were due before `end_ns` on idle connections; returns whether none is left.
    pub fn catch_up(&mut self, end_ns: u64, effects: &mut impl Effects) -> bool {
        let last_ns = end_ns.saturating_sub(1);
        while let Some((index, due_ns, free_ns)) = self.take_due(last_ns) {
            self.connections[index].begin(due_ns, free_ns, &mut self.shared, effects);
            self.note_handed_over(effects);
        }
        self.taken() >= self.due_count(last_ns) || self.has_stopped()
    }

    /// Counts requests that were due and not sent, each with its age, and the connections that are down. Returns how
    /// many requests were due in total.
    pub fn count_unsent(&mut self, now_ns: u64, end_ns: u64, effects: &mut impl Effects) -> u64 {
        self.shared.tally.end_ns = self.ended_ns(now_ns, end_ns);
        let due = self.count_untaken(now_ns, end_ns, effects) + self.count_owed(now_ns, effects);
        let is_open_loop = self.shared.settings.is_open_loop;
        let down = self.connections.iter().filter(|connection| connection.is_down(now_ns, is_open_loop)).count();
        self.shared.tally.connections_down = down as u64;
        due
    }

    /// Counts the outstanding requests at the end of the load. Their sockets are kept open.
    pub fn count_outstanding(&mut self, now_ns: u64, effects: &mut impl Effects) {
        for index in 0..self.connections.len() {
            self.connections[index].count_outstanding(now_ns, &mut self.shared, effects);
            self.note_handed_over(effects);
        }
    }

    /// Dissolves the pool into its counts and its source of requests.
    #[must_use]
    pub fn into_parts(self) -> (Tally, Source<S>) {
        (self.shared.tally, self.shared.source)
    }

    /// The end of the load: the end of the last request if all were taken, else now. A server that stops responding
    /// does not shorten the load.
    fn ended_ns(&self, now_ns: u64, end_ns: u64) -> Option<u64> {
        if let Some(stopped_ns) = self.shared.stopped_ns {
            return Some(stopped_ns);
        }
        if !self.is_done() {
            return Some(now_ns.min(end_ns));
        }
        let last_ns = self.shared.tally.last_ns?;
        let following_ns = self.shared.schedule.as_ref().and_then(Schedule::following_ns);
        Some(following_ns.map_or(last_ns, |following_ns| last_ns.max(following_ns.min(end_ns))))
    }

    /// Counts requests that were due and never taken, and records the age of each; returns how many were due in
    /// total.
    fn count_untaken(&mut self, now_ns: u64, end_ns: u64, effects: &mut impl Effects) -> u64 {
        let batch = u64::from(self.shared.source.batch());
        let due = self.due_count(now_ns.min(end_ns));
        let unsent = due.saturating_sub(self.taken());
        self.shared.tally.unsent += unsent * batch;
        if self.shared.idle.is_empty() {
            self.shared.tally.unsent_while_busy += unsent * batch;
        }
        let last_ns = now_ns.min(end_ns.saturating_sub(1));
        for _ in 0..unsent.min(MOST_RECORDED_AGES) {
            // The time at which a connection became free does not matter: a closed loop leaves no untaken request.
            let Some(due_ns) = self.shared.take(last_ns, last_ns) else { break };
            self.record_unsent_age(due_ns, last_ns, effects);
        }
        self.shared.tally.unsent_without_age += unsent.saturating_sub(MOST_RECORDED_AGES) * batch;
        due * batch
    }

    /// Counts the requests of a closed loop that waited for their connections to reopen, each with its age; returns
    /// their number.
    fn count_owed(&mut self, now_ns: u64, effects: &mut impl Effects) -> u64 {
        if self.shared.settings.is_open_loop || self.next_due_ns().is_none() {
            return 0;
        }
        let mut owed = 0;
        for index in 0..self.connections.len() {
            let Connection { state, owed_since_ns: Some(since_ns), .. } = self.connections[index] else { continue };
            if state != ConnectionState::Up {
                self.record_unsent_age(since_ns, now_ns, effects);
                owed += u64::from(self.shared.source.batch());
            }
        }
        self.shared.tally.unsent += owed;
        self.shared.tally.unsent_while_busy += owed;
        owed
    }

    /// Records the age of an unsent piece once for each of its requests.
    fn record_unsent_age(&mut self, due_ns: u64, now_ns: u64, effects: &mut impl Effects) {
        for _ in 0..self.shared.source.batch() {
            effects.record(Metric::LatencyCensored, Some(due_ns), now_ns.saturating_sub(due_ns));
        }
    }
}

impl Connection {
    /// Whether a request is outstanding.
    pub(super) fn is_busy(&self) -> bool {
        self.session.exchange.outstanding_since_ns().is_some()
    }

    /// Whether the connection could not be reopened, because the last attempt failed or has taken too long.
    fn is_down(&self, now_ns: u64, is_open_loop: bool) -> bool {
        match self.state {
            ConnectionState::Down { .. } | ConnectionState::Closed => self.failed_attempts > 0,
            ConnectionState::Resolving { since_ns }
            | ConnectionState::Connecting { since_ns }
            | ConnectionState::Handshaking { since_ns } => {
                self.failed_attempts > 0 || now_ns.saturating_sub(since_ns) > LONGEST_RETRY_NS
            }
            ConnectionState::Unused => !is_open_loop,
            ConnectionState::Up => false,
        }
    }

    /// Counts the connection's outstanding requests at the end of the load.
    fn count_outstanding(&mut self, now_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        // Detaching sends the bytes that were on their way to the kernel; their age counts from then.
        if !self.is_busy() || !self.detach(SocketUse::Keep, shared, effects) {
            return;
        }
        self.record_age(now_ns, effects);
        let Some(sent_ns) = self.session.exchange.outstanding_since_ns() else { return };
        let Some(left) = self.session.exchange.close() else { return };
        let requests = u64::from(left.requests);
        if left.was_sent {
            shared.tally.unanswered += requests;
            shared.tally.unanswered_long += requests * u64::from(now_ns.saturating_sub(sent_ns) > LONG_WAIT_NS);
        } else {
            shared.tally.unsent += requests;
            shared.tally.unsent_while_busy += requests;
        }
    }
}
