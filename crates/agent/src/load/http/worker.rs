//! One thread's HTTP connections and the loop that drives them. The backend owns the sockets and tells what happens to them;
//! the schedule says when a request is due, the connection's machine what its bytes mean. `connect` brings connections up and
//! down, `exchange` sends requests and takes answers. On the way of a request there is no allocation, no formatting and no
//! lock: over epoll two system calls, two looks at the clock and its share of one wait; over io_uring its share of one
//! system call and of two looks at the clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::{mpsc, Arc};

use leadline_http::tls::TlsClient;
use leadline_http::{ClientConnection, ClosedLoop, Schedule, ThreadShare};
use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::minimize_timer_slack;
use leadline_wire::ThreadReport;

use super::exchange::{Capture, Source};
use super::io_backend::{Completion, IoBackend};
use super::plan::{Plan, RequestSource};
use super::report::{Failures, Snapshot, Tally, TcpSummary, WorkerReport};
use super::resolver::Resolver;
use super::shutdown::settle;
use super::start_signal::{Begin, Opened, StartSignal};
use crate::flows::TURN_NS;
use crate::load::threads::{FlowCounters, Latest, Recorder, ThreadMeter, ROLL_NS};

/// The histograms, in the order of their names.
#[derive(Clone, Copy)]
pub enum Metric {
    Latency,
    Service,
    Late,
    Dns,
    Connect,
    TlsFull,
    TlsResumed,
    FirstByte,
    Transfer,
    KernelWait,
    /// Ages of requests that had no answer when they were given up or the time was over: their latency is at least that.
    LatencyCensored,
    /// The same from sent, of those that were.
    ServiceCensored,
}

/// Names of the histograms, in the order of [`Metric`].
pub const METRICS: &[&str] = &[
    "latency",
    "service",
    "late",
    "dns",
    "connect",
    "tls_full",
    "tls_resumed",
    "first_byte",
    "transfer",
    "kernel_wait",
    "latency_censored",
    "service_censored",
];

/// How long all connections of a thread together may take to open, ns.
const LONGEST_OPENING_NS: u64 = 8_000_000_000;
/// Connections under way at once while they are opened: a listener's backlog is not to be overrun.
const AT_ONCE: usize = 128;
/// Requests that backends hand over at once, with some to spare.
const QUEUED: usize = 64;
/// The longest wait between looks at whether the load is to start, ns.
const START_POLL_NS: u64 = 2_000_000;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Not needed yet.
    Unused,
    /// To be opened again then.
    Down { retry_ns: u64 },
    /// Its name is being looked up.
    Resolving { since_ns: u64 },
    /// TCP's handshake goes on.
    Connecting { since_ns: u64 },
    /// The proxy's or TLS's handshake goes on.
    Handshaking { since_ns: u64 },
    /// Requests may go.
    Up,
}

pub struct Connection {
    pub state: ConnectionState,
    pub machine: ClientConnection,
    pub tls: Option<Box<TlsClient>>,
    /// What the proxy is asked and has answered, until it has let us through.
    pub proxy: Option<Box<leadline_http::ResponseParser>>,
    pub capture: Option<Box<Capture>>,
    /// Grows each time the connection is dropped, so that what is done in several steps sees that it has gone.
    pub epoch: u32,
    /// Whether it stands in the queue of idle connections, and since when it is idle, ns.
    pub is_queued: bool,
    pub free_ns: u64,
    /// Since when its next request waits for it to be opened anew, where the server, or the number of requests that a
    /// connection may have, ended the last one: that is part of the next request's latency.
    pub owed_since_ns: Option<u64>,
    pub retry_delay_ns: u64,
    /// Attempts to open it that have failed since it was last up.
    pub failed_attempts: u32,
    /// Whether the socket did not take the outstanding request at once.
    pub is_pushed_back: bool,
    /// Why sending failed: the connection's error unless an answer is found to have come before.
    pub broken: Option<&'static str>,
    /// Requests that it has carried.
    pub served: u64,
    /// Which request of the set is outstanding, what a redirect has made of it, and how many more it may follow.
    pub request: u32,
    pub redirected: Option<Box<RequestSource>>,
    pub redirects_left: u32,
    /// Bytes of handshakes and records that the socket has yet to take.
    pub records_left: usize,
}

/// A request, or a batch, that the backend has and the kernel perhaps not yet.
pub struct Begun {
    pub index: usize,
    pub epoch: u32,
    pub due_ns: u64,
    /// From when on it could be sent: it was due and its connection free.
    pub wanted_ns: u64,
}

/// Rest after a failed attempt to connect, ns; doubled after each further one.
pub const FIRST_RETRY_NS: u64 = 10_000_000;
pub const LONGEST_RETRY_NS: u64 = 1_000_000_000;

/// One thread's connections.
pub struct Worker<B> {
    pub plan: Arc<Plan>,
    pub backend: B,
    pub connections: Vec<Connection>,
    /// Idle connections, the longest idle one first, so that load spreads over all of them.
    pub idle: VecDeque<usize>,
    /// Connections that a script lets wait, by when that is over.
    pub delayed: BinaryHeap<Reverse<(u64, usize, u32)>>,
    pub unused: Vec<usize>,
    /// How many connections are on their way up.
    pub opening: usize,
    pub up: usize,
    pub resolver: Option<Resolver>,
    pub schedule: Schedule,
    pub source: Source,
    pub recorder: Recorder,
    /// What was sent and is not known to have been handed to the kernel: as much as the backend queues.
    pub begun: Vec<Begun>,
    /// How late paced requests were sent, from when they were due and a connection was free.
    pub late: Option<Histogram>,
    pub counters: Arc<FlowCounters>,
    pub next_sweep_ns: u64,
    pub next_bind: usize,
    pub tally: Tally,
    pub failures: Failures,
    /// Plaintext that has been received, and what is to be sent: records that hold a request; handshakes or a script's
    /// request.
    pub plain: Vec<u8>,
    pub sealed: Vec<u8>,
    pub out: Vec<u8>,
    /// When the script said that this thread is to end, ns.
    pub stopped_ns: Option<u64>,
    /// When a connection was last seen to be free, ns.
    pub last_free_ns: u64,
    next_snapshot_ns: u64,
    snapshots: Arc<Latest<Snapshot>>,
    number: usize,
}

/// What a worker is made of.
pub struct Parts<B> {
    pub plan: Arc<Plan>,
    pub backend: B,
    pub source: Source,
    pub recorder: Recorder,
    pub counters: Arc<FlowCounters>,
    pub snapshots: Arc<Latest<Snapshot>>,
    /// Which thread it is.
    pub number: usize,
    /// How many connections it has.
    pub connections: usize,
}

impl<B: IoBackend> Worker<B> {
    /// A worker whose connections are all unused.
    pub fn new(parts: Parts<B>) -> Self {
        let Parts { plan, backend, source, recorder, counters, snapshots, number, connections } = parts;
        let resolver = Resolver::of(&plan.route.destination, connections);
        let captures = source.captures() || plan.redirects > 0;
        let connection = |_| Connection {
            state: ConnectionState::Unused,
            machine: ClientConnection::default(),
            tls: None,
            proxy: None,
            capture: captures.then(|| Box::new(Capture::new(source.captures()))),
            epoch: 0,
            is_queued: false,
            free_ns: 0,
            owed_since_ns: None,
            retry_delay_ns: FIRST_RETRY_NS,
            failed_attempts: 0,
            is_pushed_back: false,
            broken: None,
            served: 0,
            request: 0,
            redirected: None,
            redirects_left: 0,
            records_left: 0,
        };
        Self {
            connections: (0..connections).map(connection).collect(),
            unused: (0..connections).rev().collect(),
            idle: VecDeque::with_capacity(connections),
            delayed: BinaryHeap::new(),
            opening: 0,
            up: 0,
            resolver,
            // Nothing is due before the load has begun.
            schedule: Schedule::Closed(ClosedLoop::new(
                u64::MAX,
                0,
                None,
                ThreadShare { index: 0, threads: 1, batch: 1 },
            )),
            source,
            recorder,
            begun: Vec::with_capacity(QUEUED),
            late: plan.stages.is_some().then(Histogram::new),
            counters,
            next_sweep_ns: 0,
            next_bind: number,
            tally: Tally::default(),
            failures: Failures::default(),
            plain: Vec::new(),
            sealed: Vec::new(),
            out: Vec::new(),
            stopped_ns: None,
            last_free_ns: 0,
            next_snapshot_ns: 0,
            snapshots,
            number,
            plan,
            backend,
        }
    }

    /// The thread's whole life: open connections, say how that went, and drive requests over them once `start` says so.
    pub fn run_thread(
        mut self,
        start_signal: &StartSignal,
        opened: mpsc::Sender<Opened>,
    ) -> io::Result<Option<WorkerReport>> {
        minimize_timer_slack();
        self.backend.begin()?;
        if let Some(shared) = &self.plan.tls {
            // A thread's source of random numbers takes long to begin, which is no connection's time.
            drop(TlsClient::new(shared));
        }
        self.open(start_signal)?;
        let _ = opened.send(Opened { up: self.up, failures: self.failures.clone() });
        drop(opened);
        let Some(begin) = self.await_start(start_signal)? else { return Ok(None) };
        self.run(begin).map(Some)
    }

    /// Opens all connections, or those that an open loop begins with; tries each of them once.
    fn open(&mut self, start_signal: &StartSignal) -> io::Result<()> {
        let deadline_ns = monotonic_ns() + LONGEST_OPENING_NS;
        self.connect_unused();
        loop {
            let now_ns = monotonic_ns();
            let all_begun = self.plan.stages.is_some() || self.unused.is_empty();
            // What could not be opened rests and is tried again, which is not waited for here; nor is what is left after
            // the longest time, which is opened while the load runs.
            if (all_begun && self.opening == 0) || now_ns >= deadline_ns || start_signal.is_cancelled() {
                return Ok(());
            }
            self.run_once(now_ns, deadline_ns)?;
        }
    }

    fn await_start(&mut self, start_signal: &StartSignal) -> io::Result<Option<Begin>> {
        loop {
            if let Some(begin) = start_signal.begin() {
                return Ok(Some(begin));
            }
            if start_signal.is_cancelled() {
                return Ok(None);
            }
            let now_ns = monotonic_ns();
            self.run_once(now_ns, now_ns + START_POLL_NS)?;
        }
    }

    fn run(mut self, begin: Begin) -> io::Result<WorkerReport> {
        let Begin { span, warm_until_ns, signal, schedule } = begin;
        self.schedule = schedule(self.number);
        self.recorder.warm_until(warm_until_ns);
        let mut now_ns = monotonic_ns();
        while now_ns < span.at_ns && !signal.stopped() {
            self.run_once(now_ns, span.at_ns)?;
            now_ns = monotonic_ns();
        }
        let meter = ThreadMeter::begin(format!("http-{}", self.number), now_ns);
        let spun_before_ns = self.backend.spun_ns();
        while now_ns < span.end_ns && !signal.stopped() && !self.is_done() {
            self.run_once(now_ns, span.end_ns)?;
            now_ns = monotonic_ns();
            if now_ns >= self.next_snapshot_ns {
                self.hand_over()?;
                self.publish_snapshot(&meter, spun_before_ns, now_ns);
            }
        }
        self.hand_over()?;
        if now_ns >= span.end_ns && self.stopped_ns.is_none() {
            now_ns = self.catch_up(now_ns, span)?;
        }
        let mut thread = meter.end(now_ns);
        thread.spun_s = Some(self.spun_s(spun_before_ns));
        self.tally.end_ns = self.stopped_trying_ns(now_ns, span);
        let due = self.count_unsent(now_ns, span) + self.count_owed(now_ns);
        self.tally.connections_down = self.connections_down(now_ns);
        let tcp = TcpSummary::of(self.backend.sockets());
        let outstanding = self.close_outstanding(now_ns);
        let Self { recorder, source, tally, failures, late, .. } = self;
        recorder.finish();
        // The time is over: where this fails, the sockets are closed at once, and what was measured stands.
        let _ = settle(outstanding);
        Ok(WorkerReport { thread, tally, failures, tcp, due, late, script: source.into_script() })
    }

    fn spun_s(&self, before_ns: u64) -> f64 {
        (self.backend.spun_ns() - before_ns) as f64 / 1e9
    }

    fn publish_snapshot(&mut self, meter: &ThreadMeter, spun_before_ns: u64, now_ns: u64) {
        self.next_snapshot_ns = now_ns + ROLL_NS;
        let due = self.schedule.due_count(now_ns);
        self.snapshots.publish(Snapshot {
            worker: self.number,
            tally: self.tally.clone(),
            due: due * u64::from(self.source.batch()),
            connections: self.up as u64,
            errors: self.failures.counts.clone(),
            thread: ThreadReport { spun_s: Some(self.spun_s(spun_before_ns)), ..meter.so_far(now_ns) },
        });
    }

    /// Whether every request has been taken and has ended, or a script has ended its thread.
    pub(super) fn is_done(&self) -> bool {
        let busy = |connection: &Connection| connection.machine.outstanding_since_ns().is_some();
        self.stopped_ns.is_some() || (self.schedule.next_due_ns().is_none() && !self.connections.iter().any(busy))
    }

    /// Sends what is due, then waits for what comes, until `until_ns` at most.
    fn run_once(&mut self, now_ns: u64, until_ns: u64) -> io::Result<()> {
        if now_ns >= self.next_sweep_ns {
            self.hand_over()?;
            self.sweep(now_ns);
        }
        if self.resolver.is_some() {
            self.take_resolved();
        }
        if !self.delayed.is_empty() {
            self.take_delayed(now_ns);
        }
        if !self.idle.is_empty() {
            self.last_free_ns = now_ns;
        }
        let mut due_ns = self.dispatch(now_ns);
        if !self.unused.is_empty() {
            due_ns = self.open_more(now_ns, due_ns);
        }
        if self.recorder.is_due(now_ns) {
            self.hand_over()?;
            self.recorder.roll(now_ns);
        }
        let mut until_ns = until_ns.min(due_ns).min(self.next_sweep_ns).min(now_ns + TURN_NS);
        if let Some(Reverse((ready_ns, ..))) = self.delayed.peek() {
            until_ns = until_ns.min(*ready_ns);
        }
        if let Some(resolver) = &self.resolver {
            until_ns = until_ns.min(resolver.next_poll_ns(now_ns));
        }
        self.await_completions(until_ns)
    }

    /// Hands over what was begun, before something that takes longer than a request may be late.
    fn hand_over(&mut self) -> io::Result<()> {
        self.backend.flush()?;
        self.note_handed_over();
        Ok(())
    }

    /// Hands over what was begun, waits until `until_ns` at most, and takes what has come.
    #[inline]
    pub(super) fn await_completions(&mut self, until_ns: u64) -> io::Result<()> {
        self.backend.wait(until_ns)?;
        self.note_handed_over();
        while let Some((index, at_ns, completion)) = self.backend.completion()? {
            self.serve(index, at_ns, completion);
        }
        Ok(())
    }

    /// Gives idle connections what is due; says when the next request is, if a connection waits for it.
    fn dispatch(&mut self, mut now_ns: u64) -> u64 {
        while let Some((index, due_ns, free_ns)) = self.take_due(now_ns) {
            self.begin(index, due_ns, free_ns);
            now_ns = monotonic_ns();
        }
        if self.idle.is_empty() {
            return u64::MAX;
        }
        self.schedule.next_due_ns().unwrap_or(u64::MAX)
    }

    /// The longest idle connection, what is due on it, and since when it is free.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<(usize, u64, u64)> {
        let index = *self.idle.front()?;
        let free_ns = self.connections[index].free_ns;
        let due_ns = self.schedule.take(now_ns, free_ns)?;
        self.idle.pop_front();
        self.connections[index].is_queued = false;
        Some((index, due_ns, free_ns))
    }

    /// Opens what has not been opened so far: in a closed loop all of it; in an open one a connection for each request that
    /// is due and has none, none being free. Says when the next request is due.
    fn open_more(&mut self, now_ns: u64, due_ns: u64) -> u64 {
        if self.plan.stages.is_none() {
            while self.opening < AT_ONCE && !self.unused.is_empty() {
                self.connect_unused();
            }
            return due_ns;
        }
        if !self.idle.is_empty() {
            return due_ns;
        }
        let waiting = self.schedule.due_count(now_ns).saturating_sub(self.schedule.taken());
        while (self.opening as u64) < waiting && self.opening < AT_ONCE && !self.unused.is_empty() {
            self.connect_unused();
        }
        // With a request that waits, the next thing to do is told by a connection.
        if waiting > 0 {
            return u64::MAX;
        }
        self.schedule.next_due_ns().unwrap_or(u64::MAX)
    }

    #[inline]
    fn serve(&mut self, index: usize, at_ns: u64, completion: Completion) {
        match (self.connections[index].state, completion) {
            (ConnectionState::Up, Completion::Received) => self.receive(index, at_ns),
            (ConnectionState::Up, Completion::Sent(bytes)) => self.sent(index, bytes),
            (ConnectionState::Up, Completion::Ended(Ok(()))) => self.ended(index, at_ns),
            (ConnectionState::Up, Completion::Ended(Err(error))) => {
                self.fail(index, failure_name(&error), || error.to_string())
            }
            (ConnectionState::Up, Completion::NotSent(missing, error)) => {
                self.take_back(index, missing);
                self.not_sent(index, &error);
            }
            (ConnectionState::Connecting { since_ns }, Completion::Writable) => self.connected(index, since_ns, at_ns),
            (ConnectionState::Handshaking { .. }, Completion::Received) => self.on_handshake_bytes(index, at_ns),
            (ConnectionState::Handshaking { .. }, Completion::Sent(bytes)) => self.sent(index, bytes),
            (ConnectionState::Handshaking { .. }, Completion::Ended(outcome)) => self.handshake_ended(index, outcome),
            (ConnectionState::Handshaking { .. }, Completion::NotSent(_, error)) => {
                self.handshake_ended(index, Err(error))
            }
            _ => {}
        }
    }

    /// Lets connections go on whose script wanted them to wait.
    fn take_delayed(&mut self, now_ns: u64) {
        while let Some(&Reverse((ready_ns, index, epoch))) = self.delayed.peek() {
            if ready_ns > now_ns {
                return;
            }
            self.delayed.pop();
            let connection = &self.connections[index];
            if connection.epoch == epoch && connection.state == ConnectionState::Up {
                self.offer(index, ready_ns, ready_ns);
            }
        }
    }

    /// Ends what has taken too long, opens what has rested, and finds out when to look again. Whatever begins after this
    /// cannot be overdue before its own time-out, so that looking costs nothing per request.
    fn sweep(&mut self, now_ns: u64) {
        let (connect_ns, response_ns) = (self.plan.connect_timeout_ns, self.plan.response_timeout_ns);
        self.next_sweep_ns = now_ns + response_ns;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let deadline_ns = match connection.state {
                ConnectionState::Unused => continue,
                ConnectionState::Down { retry_ns } => retry_ns,
                ConnectionState::Resolving { since_ns }
                | ConnectionState::Connecting { since_ns }
                | ConnectionState::Handshaking { since_ns } => since_ns + connect_ns,
                ConnectionState::Up => {
                    connection.machine.outstanding_since_ns().map_or(u64::MAX, |since_ns| since_ns + response_ns)
                }
            };
            if deadline_ns > now_ns {
                self.next_sweep_ns = self.next_sweep_ns.min(deadline_ns);
                continue;
            }
            match connection.state {
                ConnectionState::Unused => {}
                ConnectionState::Down { .. } => self.connect(index),
                ConnectionState::Up => {
                    self.record_age(index, now_ns);
                    self.fail(index, "response_timeout", || {
                        format!("no whole answer within {} ms", response_ns / 1_000_000)
                    });
                }
                state => self.too_slow(index, state),
            }
        }
    }

    /// Records the age of requests that get no answer. It is no latency, but a bound of one, and has a histogram of its own.
    pub fn record_age(&mut self, index: usize, now_ns: u64) {
        let machine = &self.connections[index].machine;
        let (Some(due_ns), Some(outstanding)) = (machine.outstanding_due_ns(), machine.outstanding()) else { return };
        let sent_ns = machine.outstanding_since_ns().unwrap_or(now_ns);
        for _ in 0..outstanding.requests {
            self.recorder.record(Metric::LatencyCensored as usize, due_ns, now_ns.saturating_sub(due_ns));
            self.recorder.record(Metric::ServiceCensored as usize, due_ns, now_ns.saturating_sub(sent_ns));
        }
    }
}

/// The name under which an error of the system is counted.
pub fn failure_name(error: &io::Error) -> &'static str {
    match crate::events::error_code(error) {
        "connection_reset" | "broken_pipe" | "connection_aborted" => "reset",
        name => name,
    }
}
