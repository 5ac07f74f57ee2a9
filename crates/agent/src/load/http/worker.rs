//! One thread's HTTP connections and the loop that drives them. Owns sockets and their poll; the schedule says when a
//! request is due, the connection's machine what its bytes mean. On the way of a request there is no allocation, no
//! formatting and no lock: two system calls, two looks at the clock and its share of one wait.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use leadline_http::{Answer, ClientConnection, Closed, Malformed, Received, RequestTemplate, Schedule};
use leadline_stats::Histogram;
use leadline_sys::clock::{self, monotonic_ns};
use leadline_sys::net;
use leadline_sys::poll::{Interest, Poll, Ready};

use super::closing::settle;
use super::opening::Opened;
use super::report::{Tally, TcpSummary, WorkerReport};
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

/// One read takes at most this much, bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads per ready connection and turn, so that a long body does not starve the others.
const READS_PER_TURN: usize = 8;
/// Ready connections per wait.
const BATCH: usize = 512;
/// How long connecting may take while requests run, ns.
const CONNECT_TIMEOUT_NS: u64 = 5_000_000_000;
/// Rest after a failed attempt to connect, ns; doubled after each further one.
const FIRST_REST_NS: u64 = 10_000_000;
const LONGEST_REST_NS: u64 = 1_000_000_000;
/// A request that is outstanding at the end for longer than this is told apart from one that was just sent, ns.
const LONG_WAIT_NS: u64 = 1_000_000_000;
/// Requests that were never sent and whose age is still taken, at some 20 ns each; those beyond are counted apart.
const MOST_AGED: u64 = 10_000_000;

enum Link {
    Down { retry_ns: u64 },
    Connecting { socket: TcpStream, since_ns: u64 },
    Up { socket: TcpStream, watches_write: bool },
}

struct Connection {
    link: Link,
    machine: ClientConnection,
    /// Whether it stands in the queue of idle connections, and since when it is idle, ns.
    is_queued: bool,
    free_ns: u64,
    rest_ns: u64,
}

/// One thread's connections.
pub struct Worker {
    plan: Arc<Plan>,
    poll: Poll,
    connections: Vec<Connection>,
    /// Idle connections, the longest idle one first, so that load spreads over all of them.
    idle: VecDeque<usize>,
    schedule: Schedule,
    recorder: Recorder,
    /// How late paced requests were sent, from when they were due and a connection was free.
    late: Option<Histogram>,
    counters: Arc<FlowCounters>,
    buffer: Box<[u8]>,
    ready: Vec<Ready>,
    next_sweep_ns: u64,
    tally: Tally,
    errors: BTreeMap<String, u64>,
}

impl Worker {
    /// Takes up connections as they were opened; those that could not be are tried again.
    pub fn new(
        plan: Arc<Plan>,
        opened: Vec<Opened>,
        schedule: Schedule,
        recorder: Recorder,
        counters: Arc<FlowCounters>,
    ) -> io::Result<Self> {
        let mut worker = Self {
            poll: Poll::new(opened.len().min(BATCH))?,
            connections: Vec::with_capacity(opened.len()),
            idle: VecDeque::with_capacity(opened.len()),
            late: matches!(schedule, Schedule::Open(_)).then(Histogram::new),
            schedule,
            recorder,
            counters,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            ready: Vec::with_capacity(BATCH),
            next_sweep_ns: 0,
            tally: Tally::default(),
            errors: BTreeMap::new(),
            plan,
        };
        for (index, opened) in opened.into_iter().enumerate() {
            let mut machine = ClientConnection::new(&worker.plan.template);
            let is_queued = opened.is_ok();
            let link = match opened {
                Ok((socket, connect_ns)) => {
                    worker.poll.add(&socket, index as u64, Interest::Read)?;
                    // Before the start, yet no warm-up: opening is not repeated for the measured part.
                    worker.recorder.record(Metric::Connect as usize, u64::MAX, connect_ns);
                    worker.tally.connections_opened += 1;
                    worker.idle.push_back(index);
                    machine.opened();
                    Link::Up { socket, watches_write: false }
                }
                Err(error) => {
                    count_error(&mut worker.errors, failure_name(&error));
                    Link::Down { retry_ns: 0 }
                }
            };
            worker.connections.push(Connection { link, machine, is_queued, free_ns: 0, rest_ns: FIRST_REST_NS });
        }
        Ok(worker)
    }

    /// Drive the connections from now on, and requests over them in `span`.
    pub fn run(mut self, span: Span, gate: &Gate, thread: &str) -> io::Result<WorkerReport> {
        clock::use_precise_timers();
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
        let tcp = TcpSummary::of(self.connections.iter().filter_map(|connection| match &connection.link {
            Link::Up { socket, .. } => Some(socket),
            _ => None,
        }));
        let outstanding = self.take_stock(now_ns);
        self.recorder.finish();
        settle(outstanding, &mut self.buffer)?;
        Ok(WorkerReport { thread, tally: self.tally, errors: self.errors, tcp, due, late: self.late })
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
            Link::Connecting { since_ns, .. } => {
                connection.rest_ns > FIRST_REST_NS || now_ns.saturating_sub(since_ns) > LONGEST_REST_NS
            }
            Link::Up { .. } => false,
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
        self.ready.clear();
        self.ready.extend(self.poll.wait(Some(until_ns))?);
        for place in 0..self.ready.len() {
            self.serve(self.ready[place]);
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
        self.connections[index].machine.begin(due_ns, now_ns);
        self.tally.first_sent_ns.get_or_insert(now_ns);
        self.tally.due_while_busy += u64::from(free_ns > due_ns);
        let late_ns = now_ns.saturating_sub(due_ns.max(free_ns));
        self.recorder.record(Metric::Late as usize, due_ns, late_ns);
        if let Some(late) = &mut self.late {
            late.record(late_ns);
        }
        self.send(index);
    }

    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Link::Up { socket, watches_write } = &mut connection.link else { return };
        let unsent = &self.plan.template.bytes()[connection.machine.unsent_from()..];
        let result = match socket.write(unsent) {
            Ok(bytes) => {
                let whole = connection.machine.sent(bytes);
                self.counters.sent(bytes as u64, u64::from(whole));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        };
        let wants_write = result.is_ok() && connection.machine.is_sending();
        if wants_write && !*watches_write {
            self.tally.pushback += 1;
        }
        let result = result.and_then(|()| {
            if wants_write != *watches_write {
                *watches_write = wants_write;
                let interest = if wants_write { Interest::ReadWrite } else { Interest::Read };
                return self.poll.modify(&*socket, index as u64, interest);
            }
            Ok(())
        });
        if let Err(error) = result {
            // The server may have answered before it hung up.
            self.receive(index);
            if self.connections[index].machine.outstanding_since_ns().is_some() {
                self.fail(index, failure_name(&error));
            }
        }
    }

    fn serve(&mut self, ready: Ready) {
        let index = ready.token as usize;
        match &self.connections[index].link {
            Link::Down { .. } => {}
            Link::Connecting { .. } => self.connected(index),
            Link::Up { .. } => {
                if ready.readable {
                    self.receive(index);
                }
                if ready.writable && self.connections[index].machine.is_sending() {
                    self.send(index);
                }
            }
        }
    }

    fn receive(&mut self, index: usize) {
        for _ in 0..READS_PER_TURN {
            let connection = &mut self.connections[index];
            let Link::Up { socket, .. } = &mut connection.link else { return };
            let read = match socket.read(&mut self.buffer) {
                Ok(0) => return self.ended(index),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.fail(index, failure_name(&error)),
            };
            let now_ns = monotonic_ns();
            match connection.machine.receive(&self.buffer[..read], now_ns) {
                Ok(Received::Partial) => self.counters.received(read as u64, 0),
                Ok(Received::Answered(answer)) => {
                    self.answered(&answer, read);
                    return self.next(index, now_ns);
                }
                Ok(Received::AnsweredLast(answer)) => {
                    self.answered(&answer, read);
                    return self.reopen(index);
                }
                Ok(Received::AnsweredWithSurplus(answer)) => {
                    self.answered(&answer, read);
                    count_error(&mut self.errors, Malformed::UnsolicitedBytes.name());
                    return self.reopen(index);
                }
                Err(cause) => {
                    self.counters.received(read as u64, 0);
                    return self.fail(index, cause.name());
                }
            }
            if read < self.buffer.len() {
                return;
            }
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

    fn ended(&mut self, index: usize) {
        match self.connections[index].machine.ended(monotonic_ns()) {
            Closed::Idle => return self.lost_idle(index),
            Closed::Answered(answer) => self.answered(&answer, 0),
            Closed::Early { .. } => {
                self.tally.last_ns = Some(monotonic_ns());
                count_error(&mut self.errors, "closed_early");
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
        count_error(&mut self.errors, name);
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
        let connection = &mut self.connections[index];
        if std::mem::take(&mut connection.is_queued) {
            self.idle.retain(|&idle| idle != index);
        }
        connection.machine.close();
        connection.link = Link::Down { retry_ns: u64::MAX };
    }

    fn connect(&mut self, index: usize) {
        let since_ns = monotonic_ns();
        let begun = net::begin_connect_tcp(self.plan.address, self.plan.bind).and_then(|socket| {
            self.poll.add(&socket, index as u64, Interest::Write)?;
            Ok(socket)
        });
        match begun {
            Ok(socket) => {
                self.connections[index].link = Link::Connecting { socket, since_ns };
                self.next_sweep_ns = self.next_sweep_ns.min(since_ns + CONNECT_TIMEOUT_NS);
            }
            Err(error) => self.not_connected(index, failure_name(&error)),
        }
    }

    fn connected(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let link = std::mem::replace(&mut connection.link, Link::Down { retry_ns: u64::MAX });
        let Link::Connecting { socket, since_ns } = link else { return };
        let checked = socket.take_error().and_then(|pending| pending.map_or(Ok(()), Err));
        match checked.and_then(|()| self.poll.modify(&socket, index as u64, Interest::Read)) {
            Ok(()) => {
                let now_ns = monotonic_ns();
                connection.link = Link::Up { socket, watches_write: false };
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
                Link::Connecting { since_ns, .. } => since_ns + CONNECT_TIMEOUT_NS,
                Link::Up { .. } => connection
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
                Link::Up { .. } => {
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
            self.record_age(index, now_ns);
            let connection = &mut self.connections[index];
            let sent_ns = connection.machine.outstanding_since_ns().unwrap_or(now_ns);
            match connection.machine.close() {
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
            if let Link::Up { socket, .. } = std::mem::replace(&mut connection.link, Link::Down { retry_ns: u64::MAX })
            {
                outstanding.push(socket);
            }
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
