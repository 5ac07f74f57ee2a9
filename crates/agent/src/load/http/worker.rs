//! One thread's HTTP connections and the loop that drives them. The wire owns the sockets and tells what happens to them;
//! the schedule says when a request is due, the connection's machine what its bytes mean. On the way of a request there is
//! no allocation, no formatting and no lock: over epoll two system calls, two looks at the clock and its share of one
//! wait; over io_uring its share of one system call and of one look at the clock, and one look of its own.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use leadline_http::{Answer, ClientConnection, Closed, Malformed, Received, RequestTemplate, Schedule};
use leadline_stats::Histogram;
use leadline_sys::clock::{self, monotonic_ns};

use super::closing::settle;
use super::opening::Opened;
use super::report::{Tally, TcpSummary, WorkerReport};
use super::wire::{Completion, Wire};
use crate::events::error_code;
use crate::flows::{count_error, Span, TURN_NS};
use crate::gate::Gate;
use crate::load::threads::{FlowCounters, Recorder, ThreadMeter};

/// What all connections of a load have in common.
pub struct Plan {
    /// The request.
    pub template: RequestTemplate,
    /// The server.
    pub address: SocketAddr,
    /// The local address.
    pub bind: Option<IpAddr>,
    /// How long a request may take, ns.
    pub timeout_ns: u64,
}

/// The histograms, in the order of their names.
#[derive(Clone, Copy)]
enum Metric {
    Latency,
    Service,
    Late,
    Connect,
}

/// How long connecting may take while requests run, ns.
const CONNECT_TIMEOUT_NS: u64 = 5_000_000_000;
/// Rest after a failed attempt to connect, ns; doubled after each further one.
const FIRST_REST_NS: u64 = 10_000_000;
const LONGEST_REST_NS: u64 = 1_000_000_000;
/// A request that is outstanding at the end for longer than this is told apart from one that was just sent, ns.
const LONG_WAIT_NS: u64 = 1_000_000_000;
/// Requests that were never sent and whose age is still taken, at some 20 ns each; those beyond are counted apart.
const MOST_AGED: u64 = 10_000_000;

#[derive(Clone, Copy)]
enum Link {
    Down { retry_ns: u64 },
    Connecting { since_ns: u64 },
    Up,
}

struct Connection {
    link: Link,
    machine: ClientConnection,
    /// Whether it stands in the queue of idle connections, and since when it is idle, ns.
    is_queued: bool,
    free_ns: u64,
    rest_ns: u64,
    /// Whether the socket did not take the outstanding request at once.
    is_pushed_back: bool,
    /// Why sending failed: the connection's error unless an answer is found to have come before.
    broken: Option<&'static str>,
}

/// One thread's connections.
pub struct Worker<W> {
    plan: Arc<Plan>,
    wire: W,
    connections: Vec<Connection>,
    /// Idle connections, the longest idle one first, so that load spreads over all of them.
    idle: VecDeque<usize>,
    schedule: Schedule,
    recorder: Recorder,
    /// How late paced requests were sent, from when they were due and a connection was free.
    late: Option<Histogram>,
    counters: Arc<FlowCounters>,
    next_sweep_ns: u64,
    tally: Tally,
    errors: BTreeMap<String, u64>,
}

impl<W: Wire> Worker<W> {
    /// A worker without connections.
    pub fn new(plan: Arc<Plan>, wire: W, schedule: Schedule, recorder: Recorder, counters: Arc<FlowCounters>) -> Self {
        Self {
            wire,
            connections: Vec::new(),
            idle: VecDeque::new(),
            late: matches!(schedule, Schedule::Open(_)).then(Histogram::new),
            schedule,
            recorder,
            counters,
            next_sweep_ns: 0,
            tally: Tally::default(),
            errors: BTreeMap::new(),
            plan,
        }
    }

    /// Drive connections, as they were opened, from now on, and requests over them in `span`.
    pub fn run(mut self, opened: Vec<Opened>, span: Span, gate: &Gate, thread: &str) -> io::Result<WorkerReport> {
        clock::use_precise_timers();
        self.wire.begin()?;
        self.take_up(opened)?;
        let mut now_ns = monotonic_ns();
        while now_ns < span.at_ns && !gate.stopped() {
            self.turn(now_ns, span.at_ns)?;
            now_ns = monotonic_ns();
        }
        let meter = ThreadMeter::begin(thread, now_ns);
        while now_ns < span.end_ns && !gate.stopped() && !self.is_done() {
            self.turn(now_ns, span.end_ns)?;
            now_ns = monotonic_ns();
        }
        let thread = meter.end(now_ns);
        self.tally.end_ns = self.stopped_trying_ns(now_ns, span);
        let due = self.count_unsent(now_ns, span);
        self.tally.connections_down = self.connections_down(now_ns);
        let tcp = TcpSummary::of(self.wire.sockets());
        let outstanding = self.take_stock(now_ns);
        self.recorder.finish();
        settle(outstanding)?;
        Ok(WorkerReport { thread, tally: self.tally, errors: self.errors, tcp, due, late: self.late })
    }

    /// Takes up connections; those that could not be opened are tried again.
    fn take_up(&mut self, opened: Vec<Opened>) -> io::Result<()> {
        self.connections.reserve_exact(opened.len());
        self.idle.reserve_exact(opened.len());
        for (index, opened) in opened.into_iter().enumerate() {
            let mut machine = ClientConnection::new(&self.plan.template);
            let is_queued = opened.is_ok();
            let link = match opened {
                Ok((socket, connect_ns)) => {
                    self.wire.open(index, socket)?;
                    // Never warm-up: opening is not repeated for the measured part.
                    self.recorder.record(Metric::Connect as usize, u64::MAX, connect_ns);
                    self.tally.connections_opened += 1;
                    self.idle.push_back(index);
                    machine.opened();
                    Link::Up
                }
                Err(error) => {
                    count_error(&mut self.errors, failure_name(&error));
                    Link::Down { retry_ns: 0 }
                }
            };
            self.connections.push(Connection {
                link,
                machine,
                is_queued,
                free_ns: 0,
                rest_ns: FIRST_REST_NS,
                is_pushed_back: false,
                broken: None,
            });
        }
        Ok(())
    }

    /// Whether every request has been taken and has ended.
    fn is_done(&self) -> bool {
        let busy = |connection: &Connection| connection.machine.outstanding_since_ns().is_some();
        self.schedule.next_due_ns().is_none() && !self.connections.iter().any(busy)
    }

    /// When the load ended: with its last request where all had been taken, else only now. A server that fell silent
    /// does not shorten it.
    fn stopped_trying_ns(&self, now_ns: u64, span: Span) -> Option<u64> {
        if !self.is_done() {
            return Some(now_ns.min(span.end_ns));
        }
        let last_ns = self.tally.last_ns?;
        Some(self.schedule.following_ns().map_or(last_ns, |following_ns| last_ns.max(following_ns.min(span.end_ns))))
    }

    /// Counts what fell due and was never taken up, each with its age as a latency; says how much fell due in all.
    fn count_unsent(&mut self, now_ns: u64, span: Span) -> u64 {
        let due = self.schedule.due_count(now_ns.min(span.end_ns));
        let unsent = due.saturating_sub(self.schedule.taken());
        self.tally.unsent += unsent;
        if self.idle.is_empty() {
            self.tally.unsent_while_busy += unsent;
        }
        let last_ns = now_ns.min(span.end_ns.saturating_sub(1));
        for _ in 0..unsent.min(MOST_AGED) {
            // A connection's own instant plays no part: of a closed loop nothing is ever left.
            let Some(due_ns) = self.schedule.take(last_ns, last_ns) else { break };
            self.recorder.record(Metric::Latency as usize, due_ns, last_ns - due_ns);
        }
        self.tally.unsent_without_age += unsent.saturating_sub(MOST_AGED);
        due
    }

    /// Connections that could not be had again, by their last attempt or by how long it has taken.
    fn connections_down(&self, now_ns: u64) -> u64 {
        let is_down = |connection: &&Connection| match connection.link {
            Link::Down { .. } => connection.rest_ns > FIRST_REST_NS,
            Link::Connecting { since_ns } => {
                connection.rest_ns > FIRST_REST_NS || now_ns.saturating_sub(since_ns) > LONGEST_REST_NS
            }
            Link::Up => false,
        };
        self.connections.iter().filter(is_down).count() as u64
    }

    /// Sends what is due, then waits for what comes, until `until_ns` at most.
    fn turn(&mut self, now_ns: u64, until_ns: u64) -> io::Result<()> {
        if now_ns >= self.next_sweep_ns {
            self.sweep(now_ns);
        }
        let due_ns = self.dispatch(now_ns);
        self.recorder.roll(now_ns);
        let until_ns = until_ns.min(due_ns).min(self.next_sweep_ns).min(now_ns + TURN_NS);
        self.wire.wait(until_ns)?;
        while let Some((index, at_ns, completion)) = self.wire.completion()? {
            self.serve(index, at_ns, completion);
        }
        Ok(())
    }

    /// Gives idle connections what is due; says when the next request is, if a connection waits for it.
    fn dispatch(&mut self, mut now_ns: u64) -> u64 {
        while let Some(&index) = self.idle.front() {
            let free_ns = self.connections[index].free_ns;
            let Some(due_ns) = self.schedule.take(now_ns, free_ns) else {
                return self.schedule.next_due_ns().unwrap_or(u64::MAX);
            };
            self.idle.pop_front();
            self.connections[index].is_queued = false;
            now_ns = monotonic_ns();
            self.begin(index, due_ns, free_ns, now_ns);
        }
        u64::MAX
    }

    /// Sends a request; `free_ns` says since when some connection was free for it. Until then it waited for the server,
    /// which is in its latency; only what came after that is our own lateness.
    fn begin(&mut self, index: usize, due_ns: u64, free_ns: u64, now_ns: u64) {
        let connection = &mut self.connections[index];
        connection.machine.begin(due_ns, now_ns);
        connection.is_pushed_back = false;
        self.tally.first_sent_ns.get_or_insert(now_ns);
        self.tally.due_while_busy += u64::from(free_ns > due_ns);
        let late_ns = now_ns.saturating_sub(due_ns.max(free_ns));
        self.recorder.record(Metric::Late as usize, due_ns, late_ns);
        if let Some(late) = &mut self.late {
            late.record(late_ns);
        }
        self.send(index);
    }

    #[inline]
    fn send(&mut self, index: usize) {
        let from = self.connections[index].machine.unsent_from();
        match self.wire.send(index, from) {
            Ok(Some(bytes)) => self.sent(index, bytes),
            Ok(None) => {}
            Err(error) => self.not_sent(index, &error),
        }
    }

    /// Goes on with a request that the socket did not take at once.
    fn send_rest(&mut self, index: usize) {
        if self.connections[index].machine.is_sending() {
            self.send(index);
        }
    }

    /// Counts what the system took of a request.
    #[inline]
    fn sent(&mut self, index: usize, bytes: usize) {
        let connection = &mut self.connections[index];
        let whole = connection.machine.sent(bytes);
        self.counters.sent(bytes as u64, u64::from(whole));
        if connection.machine.is_sending() && !connection.is_pushed_back {
            connection.is_pushed_back = true;
            self.tally.pushback += 1;
        }
    }

    /// Sending failed. Where the connection has gone, the server may have answered before it hung up: that is seen, and
    /// the failure counted, when receiving ends.
    fn not_sent(&mut self, index: usize, error: &io::Error) {
        match failure_name(error) {
            name @ "reset" => self.connections[index].broken = Some(name),
            name => self.fail(index, name),
        }
    }

    #[inline]
    fn serve(&mut self, index: usize, at_ns: u64, completion: Completion) {
        match (self.connections[index].link, completion) {
            (Link::Up, Completion::Received) => self.receive(index, at_ns),
            (Link::Up, Completion::Ended(Ok(()))) => self.ended(index, at_ns),
            (Link::Up, Completion::Ended(Err(error))) => self.fail(index, failure_name(&error)),
            (Link::Up, Completion::Writable) => self.send_rest(index),
            (Link::Up, Completion::Sent(bytes)) => self.sent(index, bytes),
            (Link::Up, Completion::NotSent(missing, error)) => {
                self.take_back(index, missing);
                self.not_sent(index, &error);
            }
            (Link::Connecting { since_ns }, Completion::Writable) => self.connected(index, since_ns),
            _ => {}
        }
    }

    #[inline]
    fn receive(&mut self, index: usize, at_ns: u64) {
        let bytes = self.wire.received();
        let read = bytes.len();
        match self.connections[index].machine.receive(bytes, at_ns) {
            Ok(Received::Partial) => self.counters.received(read as u64, 0),
            Ok(Received::Answered(answer)) => {
                self.answered(&answer, read);
                self.next(index, at_ns);
            }
            Ok(Received::AnsweredLast(answer)) => {
                self.answered(&answer, read);
                self.reopen(index);
            }
            Ok(Received::AnsweredWithSurplus(answer)) => {
                self.answered(&answer, read);
                count_error(&mut self.errors, Malformed::UnsolicitedBytes.name());
                self.reopen(index);
            }
            Err(cause) => {
                self.counters.received(read as u64, 0);
                self.fail(index, cause.name());
            }
        }
    }

    /// Corrects what was counted as sent.
    fn take_back(&mut self, index: usize, bytes: usize) {
        if bytes > 0 {
            self.connections[index].machine.take_back(bytes);
            self.counters.not_sent(bytes as u64, 1);
        }
    }

    /// Counts an answer that the last `read` bytes completed.
    #[inline]
    fn answered(&mut self, answer: &Answer, read: usize) {
        let timing = answer.timing;
        self.counters.received(read as u64, 1);
        if !answer.was_sent {
            self.counters.sent(0, 1);
        }
        self.tally.body_bytes += answer.response.body_bytes;
        self.tally.status[usize::from(answer.response.status / 100) % 10] += 1;
        self.tally.last_ns = Some(timing.done_ns);
        let mut record = |metric, value_ns| self.recorder.record(metric as usize, timing.due_ns, value_ns);
        record(Metric::Latency, timing.done_ns.saturating_sub(timing.due_ns));
        record(Metric::Service, timing.done_ns.saturating_sub(timing.sent_ns));
    }

    /// Gives a connection that is free since `now_ns` its next request, or lets it wait for one.
    #[inline]
    fn next(&mut self, index: usize, now_ns: u64) {
        match self.schedule.take(now_ns, now_ns) {
            Some(due_ns) => {
                // The longest idle connection could have taken it, had this one not come first.
                let free_ns = self.idle.front().map_or(now_ns, |&idle| self.connections[idle].free_ns);
                self.begin(index, due_ns, free_ns, monotonic_ns());
            }
            None => {
                let connection = &mut self.connections[index];
                (connection.is_queued, connection.free_ns) = (true, now_ns);
                self.idle.push_back(index);
            }
        }
    }

    fn ended(&mut self, index: usize, at_ns: u64) {
        let connection = &mut self.connections[index];
        match connection.machine.ended(at_ns) {
            Closed::Idle => return self.lost_idle(index),
            Closed::Answered(answer) => self.answered(&answer, 0),
            Closed::Early { .. } => {
                self.tally.last_ns = Some(monotonic_ns());
                count_error(&mut self.errors, connection.broken.unwrap_or("closed_early"));
            }
        }
        self.reopen(index);
    }

    /// Counts a connection's failure under its one name, with the request that was outstanding if there was one.
    fn fail(&mut self, index: usize, name: &str) {
        let had_request = self.connections[index].machine.close().is_some();
        // A server may drop a connection that is idle; only what it sends unasked is an error then.
        if !had_request && name != Malformed::UnsolicitedBytes.name() {
            return self.lost_idle(index);
        }
        if had_request {
            self.tally.last_ns = Some(monotonic_ns());
        }
        count_error(&mut self.errors, self.connections[index].broken.unwrap_or(name));
        self.reopen(index);
    }

    /// An idle connection is gone. It is opened anew, but not at once: a server that hangs up on whoever comes would
    /// otherwise be called again and again for nothing.
    fn lost_idle(&mut self, index: usize) {
        self.drop_link(index);
        self.rest(index);
    }

    /// Closes a connection and begins another in its place, unless no request is left for it.
    fn reopen(&mut self, index: usize) {
        self.drop_link(index);
        if self.schedule.next_due_ns().is_some() {
            self.connect(index);
        }
    }

    fn drop_link(&mut self, index: usize) {
        if let Some(parted) = self.wire.part(index) {
            self.take_back(index, parted.unsent_bytes);
        }
        let connection = &mut self.connections[index];
        if std::mem::take(&mut connection.is_queued) {
            self.idle.retain(|&idle| idle != index);
        }
        connection.machine.close();
        connection.broken = None;
        connection.link = Link::Down { retry_ns: u64::MAX };
    }

    fn connect(&mut self, index: usize) {
        let since_ns = monotonic_ns();
        let begun = super::opening::connect(&self.plan);
        match begun.and_then(|socket| self.wire.connect(index, socket)) {
            Ok(()) => {
                self.connections[index].link = Link::Connecting { since_ns };
                self.next_sweep_ns = self.next_sweep_ns.min(since_ns + CONNECT_TIMEOUT_NS);
            }
            Err(error) => self.not_connected(index, failure_name(&error)),
        }
    }

    fn connected(&mut self, index: usize, since_ns: u64) {
        match self.wire.connected(index) {
            Ok(()) => {
                let now_ns = monotonic_ns();
                let connection = &mut self.connections[index];
                connection.link = Link::Up;
                connection.rest_ns = FIRST_REST_NS;
                connection.machine.opened();
                self.tally.connections_opened += 1;
                self.recorder.record(Metric::Connect as usize, since_ns, now_ns - since_ns);
                self.next(index, now_ns);
            }
            Err(error) => self.not_connected(index, failure_name(&error)),
        }
    }

    /// Counts a failed attempt to connect and rests before the next one.
    fn not_connected(&mut self, index: usize, name: &str) {
        count_error(&mut self.errors, name);
        self.drop_link(index);
        self.rest(index);
    }

    fn rest(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let retry_ns = monotonic_ns() + connection.rest_ns;
        connection.rest_ns = (connection.rest_ns * 2).min(LONGEST_REST_NS);
        connection.link = Link::Down { retry_ns };
        self.next_sweep_ns = self.next_sweep_ns.min(retry_ns);
    }

    /// Ends what has taken too long, opens what has rested, and finds out when to look again. Whatever begins after this
    /// cannot be overdue before its own time-out, so that looking costs nothing per request.
    fn sweep(&mut self, now_ns: u64) {
        self.next_sweep_ns = now_ns + self.plan.timeout_ns;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let deadline_ns = match &connection.link {
                Link::Down { retry_ns } => *retry_ns,
                Link::Connecting { since_ns } => since_ns + CONNECT_TIMEOUT_NS,
                Link::Up => connection
                    .machine
                    .outstanding_since_ns()
                    .map_or(u64::MAX, |since_ns| since_ns + self.plan.timeout_ns),
            };
            if deadline_ns > now_ns {
                self.next_sweep_ns = self.next_sweep_ns.min(deadline_ns);
                continue;
            }
            match &connection.link {
                Link::Down { .. } => self.connect(index),
                Link::Connecting { .. } => self.not_connected(index, "connect_timeout"),
                Link::Up => {
                    self.record_age(index, now_ns);
                    self.fail(index, "timeout");
                }
            }
        }
    }

    /// Takes the age of a request that gets no answer for its latency, which is at least that.
    fn record_age(&mut self, index: usize, now_ns: u64) {
        if let Some(due_ns) = self.connections[index].machine.outstanding_due_ns() {
            self.recorder.record(Metric::Latency as usize, due_ns, now_ns.saturating_sub(due_ns));
        }
    }

    /// Counts what is outstanding now that the time is over; gives the sockets of those requests.
    fn take_stock(&mut self, now_ns: u64) -> Vec<TcpStream> {
        let mut outstanding = Vec::new();
        for index in 0..self.connections.len() {
            let Some(sent_ns) = self.connections[index].machine.outstanding_since_ns() else { continue };
            self.record_age(index, now_ns);
            let Some(parted) = self.wire.part(index) else { continue };
            self.take_back(index, parted.unsent_bytes);
            match self.connections[index].machine.close() {
                None => continue,
                Some(true) => {
                    self.tally.unanswered += 1;
                    self.tally.unanswered_long += u64::from(now_ns.saturating_sub(sent_ns) > LONG_WAIT_NS);
                }
                Some(false) => {
                    self.tally.unsent += 1;
                    self.tally.unsent_while_busy += 1;
                }
            }
            outstanding.push(parted.socket);
        }
        outstanding
    }
}

/// The name under which an error of the system is counted.
fn failure_name(error: &io::Error) -> &'static str {
    match error_code(error) {
        "connection_reset" | "broken_pipe" | "connection_aborted" => "reset",
        name => name,
    }
}
