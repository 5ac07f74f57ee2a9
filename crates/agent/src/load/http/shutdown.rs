//! How a thread's load ends: what is still sent, what is counted as unsent or unanswered, whose sockets are left, and how
//! their connections are closed so that both sides have counted the same. Owns no count before the end.

use std::io::{self, Read};
use std::net::Shutdown;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll};
use socket2::Socket;

use super::io_backend::IoBackend;
use super::worker::{Connection, ConnectionState, Metric, Worker, LONGEST_RETRY_NS};
use crate::flows::Span;

/// A request that is outstanding at the end for longer than this is told apart from one that was just sent, ns.
const LONG_WAIT_NS: u64 = 1_000_000_000;
/// Requests that were never sent and whose age is still taken, at some 20 ns each; those beyond are counted apart.
const MOST_AGED: u64 = 10_000_000;
/// How long what fell due before an open loop's end is still sent after it, ns.
const LONGEST_CATCH_UP_NS: u64 = 100_000_000;
/// Where all connections have been busy for longer than this at the end, requests wait for the server and not for us, ns.
const BUSY_NS: u64 = 10_000_000;
/// How long answers are still taken in after the end, ns, as closing at once would reset what the server has yet to read.
const SETTLE_NS: u64 = 1_000_000_000;
/// Ready connections per wait.
const BATCH: usize = 512;
/// One read takes at most this much, bytes.
const BUFFER_BYTES: usize = 64 * 1024;

impl<B: IoBackend> Worker<B> {
    /// Sends what fell due in an open loop's last wait, which lasted beyond the end: that nobody looked is ours to make up.
    /// Where the server has long had all connections, what is left waited for it and stays unsent. Says what time it is
    /// then.
    pub fn catch_up(&mut self, mut now_ns: u64, span: Span) -> io::Result<u64> {
        let last_ns = span.end_ns.saturating_sub(1);
        let is_free = self.idle.front().is_some_and(|&index| self.connections[index].free_ns <= last_ns);
        let was_free = is_free || self.last_free_ns.saturating_add(BUSY_NS) >= last_ns;
        if self.plan.stages.is_none() || !was_free {
            return Ok(now_ns);
        }
        let deadline_ns = now_ns + LONGEST_CATCH_UP_NS;
        let mut is_over = false;
        while !is_over {
            while let Some((index, due_ns, free_ns)) = self.take_due(last_ns) {
                self.begin(index, due_ns, free_ns);
            }
            let is_all_taken = self.schedule.taken() >= self.schedule.due_count(last_ns);
            is_over = is_all_taken || now_ns >= deadline_ns || self.stopped_ns.is_some();
            // What was begun leaves with this; taking stock would call back what is only queued.
            self.await_completions(if is_over { now_ns } else { deadline_ns })?;
            now_ns = monotonic_ns();
        }
        Ok(now_ns)
    }

    /// When the load ended: with its last request where all had been taken, else only now. A server that fell silent
    /// does not shorten it.
    pub fn stopped_trying_ns(&self, now_ns: u64, span: Span) -> Option<u64> {
        if let Some(stopped_ns) = self.stopped_ns {
            return Some(stopped_ns);
        }
        if !self.is_done() {
            return Some(now_ns.min(span.end_ns));
        }
        let last_ns = self.tally.last_ns?;
        Some(self.schedule.following_ns().map_or(last_ns, |following_ns| last_ns.max(following_ns.min(span.end_ns))))
    }

    /// Counts what fell due and was never taken up, and records the age of each; returns how much fell due in all.
    pub fn count_unsent(&mut self, now_ns: u64, span: Span) -> u64 {
        let batch = u64::from(self.source.batch());
        let due = self.schedule.due_count(now_ns.min(span.end_ns));
        let unsent = due.saturating_sub(self.schedule.taken());
        self.tally.unsent += unsent * batch;
        if self.idle.is_empty() {
            self.tally.unsent_while_busy += unsent * batch;
        }
        let last_ns = now_ns.min(span.end_ns.saturating_sub(1));
        for _ in 0..unsent.min(MOST_AGED) {
            // A connection's own instant plays no part: of a closed loop nothing is ever left.
            let Some(due_ns) = self.schedule.take(last_ns, last_ns) else { break };
            self.record_unsent_age(due_ns, last_ns);
        }
        self.tally.unsent_without_age += unsent.saturating_sub(MOST_AGED) * batch;
        due * batch
    }

    /// Counts the requests of a closed loop that waited for their connections to be opened anew, each with its age; says how
    /// many.
    pub fn count_owed(&mut self, now_ns: u64) -> u64 {
        if self.plan.stages.is_some() || self.schedule.next_due_ns().is_none() {
            return 0;
        }
        let mut owed = 0;
        for index in 0..self.connections.len() {
            let Connection { state, owed_since_ns: Some(since_ns), .. } = self.connections[index] else { continue };
            if state != ConnectionState::Up {
                self.record_unsent_age(since_ns, now_ns);
                owed += u64::from(self.source.batch());
            }
        }
        self.tally.unsent += owed;
        self.tally.unsent_while_busy += owed;
        owed
    }

    /// Records the age of what would have gone out in one piece, for each of its requests.
    fn record_unsent_age(&mut self, due_ns: u64, now_ns: u64) {
        for _ in 0..self.source.batch() {
            self.recorder.record(Metric::LatencyCensored as usize, due_ns, now_ns.saturating_sub(due_ns));
        }
    }

    /// Connections that could not be had again, by their last attempt or by how long it has taken.
    pub fn connections_down(&self, now_ns: u64) -> u64 {
        let is_down = |connection: &&Connection| match connection.state {
            ConnectionState::Down { .. } => connection.failed_attempts > 0,
            ConnectionState::Resolving { since_ns }
            | ConnectionState::Connecting { since_ns }
            | ConnectionState::Handshaking { since_ns } => {
                connection.failed_attempts > 0 || now_ns.saturating_sub(since_ns) > LONGEST_RETRY_NS
            }
            ConnectionState::Unused => self.plan.stages.is_none(),
            ConnectionState::Up => false,
        };
        self.connections.iter().filter(is_down).count() as u64
    }

    /// Counts what is outstanding now that the time is over; gives the sockets of those requests.
    pub fn close_outstanding(&mut self, now_ns: u64) -> Vec<Socket> {
        let mut outstanding = Vec::new();
        for index in 0..self.connections.len() {
            if self.connections[index].machine.outstanding().is_none() {
                continue;
            }
            // What was on its way to the kernel is sent by this, and its age counts from then.
            let Some(socket) = self.detach(index) else { continue };
            self.record_age(index, now_ns);
            let Some(sent_ns) = self.connections[index].machine.outstanding_since_ns() else { continue };
            let Some(left) = self.connections[index].machine.close() else { continue };
            let requests = u64::from(left.requests);
            if left.was_sent {
                self.tally.unanswered += requests;
                self.tally.unanswered_long += requests * u64::from(now_ns.saturating_sub(sent_ns) > LONG_WAIT_NS);
            } else {
                self.tally.unsent += requests;
                self.tally.unsent_while_busy += requests;
            }
            outstanding.push(socket);
        }
        outstanding
    }
}

/// Ends connections whose answers are still under way: tells the server that no more will come, and takes in what it
/// says. Closing with answers unread would reset the connection, and requests that the server has not read would be
/// counted here and not there.
pub fn settle(outstanding: Vec<Socket>) -> io::Result<()> {
    if outstanding.is_empty() {
        return Ok(());
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut poll = Poll::new(BATCH)?;
    let mut open: Vec<Option<Socket>> = Vec::with_capacity(outstanding.len());
    for (index, socket) in outstanding.into_iter().enumerate() {
        // Fails only where the connection has gone, which the first read tells.
        let _ = socket.shutdown(Shutdown::Write);
        poll.add(&socket, index as u64, Interest::Read)?;
        open.push(Some(socket));
    }
    let deadline_ns = monotonic_ns() + SETTLE_NS;
    while open.iter().any(Option::is_some) && monotonic_ns() < deadline_ns {
        for ready in poll.wait(Some(deadline_ns))? {
            let place = &mut open[ready.token as usize];
            let Some(socket) = place else { continue };
            match socket.read(&mut buffer) {
                Ok(read) if read > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => *place = None,
            }
        }
    }
    Ok(())
}
