//! One thread's loop: it waits for its sockets, passes their events to the machine of its connections
//! ([`leadline_http::client`]), and waits again until the next timer at the latest. Owns the thread from the opening
//! of the connections to its report. A request causes no allocation, no formatting and no lock. Over epoll it costs
//! two system calls, two clock reads and its share of one wait; over io_uring its share of one system call and of two
//! clock reads.

use std::io;
use std::sync::{mpsc, Arc};

use leadline_http::client::{ConnectionPool, Input, Source};
use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::minimize_timer_slack;
use leadline_tls::TlsClient;
use leadline_wire::ThreadReport;

use super::effects::WorkerEffects;
use super::plan::Plan;
use super::report::{Snapshot, TcpSummary, WorkerReport};
use super::scripted::Scripted;
use super::start_signal::{LoadStart, OpenReport, StartSignal};
use crate::failures::Failures;
use crate::flows::{Span, TURN_NS};
use crate::load::net::inputs::input;
use crate::load::net::io_backend::IoBackend;
use crate::load::net::resolver::{Answer, Resolver};
use crate::load::net::shutdown::settle;
use crate::metering::{FlowCounters, Latest, Recorder, ThreadMeter, ROLL_NS};

/// The time limit for the opening of all connections of a thread, ns.
const LONGEST_OPENING_NS: u64 = 8_000_000_000;
/// The longest interval between checks for the start, ns.
const START_POLL_NS: u64 = 2_000_000;
/// How long after an open loop's end requests that were due before it are still sent, ns.
const LONGEST_CATCH_UP_NS: u64 = 100_000_000;

/// The connections of one thread.
pub struct Worker<B> {
    pool: ConnectionPool<Scripted>,
    effects: WorkerEffects<B>,
    /// When the next snapshot is published, ns; at once if absent.
    next_snapshot_ns: Option<u64>,
    snapshots: Arc<Latest<Snapshot>>,
    number: usize,
}

/// The parts of which a worker is made.
pub struct WorkerParts<B> {
    pub plan: Arc<Plan>,
    pub backend: B,
    pub source: Source<Scripted>,
    pub recorder: Recorder,
    pub counters: Arc<FlowCounters>,
    pub snapshots: Arc<Latest<Snapshot>>,
    /// The thread's index.
    pub number: usize,
    /// The number of its connections.
    pub connections: usize,
}

impl<B: IoBackend> Worker<B> {
    /// Returns a worker whose connections are all unused.
    pub fn new(parts: WorkerParts<B>) -> Self {
        let WorkerParts { plan, backend, source, recorder, counters, snapshots, number, connections } = parts;
        Self {
            pool: ConnectionPool::new(Arc::clone(&plan.settings), source, connections),
            effects: WorkerEffects {
                backend,
                resolver: Resolver::new(Arc::clone(&plan.route.names)),
                recorder,
                counters,
                failures: Failures::default(),
                late: plan.stages.is_some().then(Histogram::new),
                outstanding: Vec::new(),
                turn: number,
                plan,
            },
            next_snapshot_ns: None,
            snapshots,
            number,
        }
    }

    /// Runs the whole thread: opens the connections, reports the result to `opened`, and sends requests after
    /// `start_signal`.
    pub fn run_thread(
        mut self,
        start_signal: &StartSignal,
        opened: mpsc::Sender<OpenReport>,
    ) -> io::Result<Option<WorkerReport>> {
        minimize_timer_slack();
        self.effects.backend.begin()?;
        if let Some(tls) = &self.effects.plan.settings.tls {
            // The first use of a thread's random number generator is slow; this time must not count towards a
            // connection.
            drop(TlsClient::new(tls));
        }
        self.open(start_signal)?;
        let _ = opened.send(OpenReport { up: self.pool.up(), failures: self.effects.failures.clone() });
        drop(opened);
        let Some(begin) = self.await_start(start_signal)? else { return Ok(None) };
        self.run(begin).map(Some)
    }

    /// Opens all connections, or the initial ones of an open loop. Tries each of them once.
    fn open(&mut self, start_signal: &StartSignal) -> io::Result<()> {
        let deadline_ns = monotonic_ns() + LONGEST_OPENING_NS;
        self.pool.open_first(&mut self.effects);
        loop {
            let now_ns = monotonic_ns();
            // Failed connections are tried again later, and connections that are left after the time limit are opened
            // while the load runs; neither is waited for here.
            if self.pool.has_tried_all() || now_ns >= deadline_ns || start_signal.is_cancelled() {
                return Ok(());
            }
            self.run_once(now_ns, deadline_ns)?;
        }
    }

    fn await_start(&mut self, start_signal: &StartSignal) -> io::Result<Option<LoadStart>> {
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

    fn run(mut self, begin: LoadStart) -> io::Result<WorkerReport> {
        let LoadStart { span, warm_until_ns, signal, schedule } = begin;
        self.pool.begin(schedule(self.number));
        self.effects.recorder.warm_until(warm_until_ns);
        let mut now_ns = monotonic_ns();
        while now_ns < span.at_ns && !signal.stopped() {
            self.run_once(now_ns, span.at_ns)?;
            now_ns = monotonic_ns();
        }
        let meter = ThreadMeter::begin(format!("http-{}", self.number), now_ns);
        let spun_before_ns = self.effects.backend.spun_ns();
        while now_ns < span.end_ns && !signal.stopped() && !self.pool.is_done() {
            self.run_once(now_ns, span.end_ns)?;
            now_ns = monotonic_ns();
            if self.next_snapshot_ns.is_none_or(|next_ns| now_ns >= next_ns) {
                self.hand_over()?;
                self.publish_snapshot(&meter, spun_before_ns, now_ns);
            }
        }
        self.hand_over()?;
        if now_ns >= span.end_ns && self.pool.may_catch_up(span.end_ns) {
            now_ns = self.catch_up(now_ns, span)?;
        }
        let mut thread = meter.end(now_ns);
        thread.spun_s = Some(self.spun_s(spun_before_ns));
        Ok(self.finish(now_ns, span, thread))
    }

    /// Sends the requests that became due during an open loop's last wait, which lasted beyond the end. Returns the
    /// time after that.
    fn catch_up(&mut self, mut now_ns: u64, span: Span) -> io::Result<u64> {
        let deadline_ns = now_ns + LONGEST_CATCH_UP_NS;
        let mut is_over = false;
        while !is_over {
            is_over = self.pool.catch_up(span.end_ns, &mut self.effects) || now_ns >= deadline_ns;
            // This submits the started sends. Without it, counting the outstanding requests would cancel sends that
            // are only queued.
            self.await_completions(if is_over { now_ns } else { deadline_ns })?;
            now_ns = monotonic_ns();
        }
        Ok(now_ns)
    }

    /// Counts the unsent and outstanding requests, and closes the connections.
    fn finish(mut self, now_ns: u64, span: Span, thread: ThreadReport) -> WorkerReport {
        let due = self.pool.count_unsent(now_ns, span.end_ns, &mut self.effects);
        let tcp = TcpSummary::of(self.effects.backend.sockets());
        self.pool.count_outstanding(now_ns, &mut self.effects);
        let WorkerEffects { recorder, failures, late, outstanding, .. } = self.effects;
        recorder.finish();
        // The time is over: if this fails, the sockets are closed at once, and the figures stay valid.
        let _ = settle(outstanding);
        let (tally, source) = self.pool.into_parts();
        let script = match source {
            Source::Fixed(_) => None,
            Source::Script(script) => Some(script),
        };
        WorkerReport { thread, tally, failures, tcp, due, late, script }
    }

    fn spun_s(&self, before_ns: u64) -> f64 {
        (self.effects.backend.spun_ns() - before_ns) as f64 / 1e9
    }

    fn publish_snapshot(&mut self, meter: &ThreadMeter, spun_before_ns: u64, now_ns: u64) {
        self.next_snapshot_ns = Some(now_ns + ROLL_NS);
        self.snapshots.publish(Snapshot {
            worker: self.number,
            tally: self.pool.tally().clone(),
            due: self.pool.requests_due(now_ns),
            connections: self.pool.up() as u64,
            errors: self.effects.failures.counts.clone(),
            thread: ThreadReport { spun_s: Some(self.spun_s(spun_before_ns)), ..meter.so_far(now_ns) },
        });
    }

    /// Performs the due work, then waits for events, until `until_ns` at most.
    fn run_once(&mut self, now_ns: u64, until_ns: u64) -> io::Result<()> {
        if self.pool.is_check_due(now_ns) {
            self.hand_over()?;
            self.pool.check_deadlines(now_ns, &mut self.effects);
        }
        self.take_resolved(now_ns);
        let next_ns = self.pool.run_once(now_ns, &mut self.effects);
        if self.effects.recorder.is_due(now_ns) {
            self.hand_over()?;
            self.effects.recorder.roll(now_ns);
        }
        let poll_ns = self.effects.resolver.next_poll_ns(now_ns);
        let until_ns = until_ns.min(now_ns + TURN_NS);
        self.await_completions([next_ns, poll_ns].into_iter().flatten().fold(until_ns, u64::min))
    }

    /// Submits the started sends before work that takes longer than a request and could delay them.
    fn hand_over(&mut self) -> io::Result<()> {
        self.effects.backend.flush()?;
        self.pool.note_handed_over(&mut self.effects);
        Ok(())
    }

    /// Submits the started sends, waits until `until_ns` at most, and handles what has completed.
    #[inline]
    fn await_completions(&mut self, until_ns: u64) -> io::Result<()> {
        self.effects.backend.wait(until_ns)?;
        self.pool.note_handed_over(&mut self.effects);
        while let Some((index, at_ns, completion)) = self.effects.backend.completion()? {
            let Some(input) = input(completion) else { continue };
            if let (Input::Received, Some(stamp_ns)) = (&input, self.effects.backend.stamp_ns()) {
                self.compare_with_stamp(index, stamp_ns, at_ns);
            }
            self.pool.handle(index, at_ns, input, &mut self.effects);
        }
        Ok(())
    }

    fn compare_with_stamp(&mut self, index: usize, stamp_ns: u64, at_ns: u64) {
        if self.pool.is_up(index) {
            let due_ns = self.pool.tally().first_sent_ns.map(|_| at_ns);
            self.effects.compare_with_stamp(stamp_ns, at_ns, due_ns);
        }
    }

    /// Passes resolved addresses to their connections.
    fn take_resolved(&mut self, now_ns: u64) {
        while let Some(Answer { asker, addresses, took_ns, .. }) = self.effects.resolver.answer(now_ns) {
            let Some(asker) = asker.filter(|asker| self.pool.is_resolving(asker.index, asker.epoch)) else { continue };
            let input = Input::Resolved { address: addresses.map(|all| all.first()), took_ns };
            self.pool.handle(asker.index, now_ns, input, &mut self.effects);
        }
    }
}
