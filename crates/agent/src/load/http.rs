//! HTTP load. A `plan` is made of the specification, and one thread for each group of connections. `worker` drives
//! the connections of one thread, which are a machine of `leadline_http::client`, over `net::io_backend` (io_uring or
//! epoll). `effects` carries out the machine's actions, and `scripted` lets a script make its requests.
//! `start_signal` starts the threads, and `report` adds the threads' figures up to one outcome.

pub mod effects;
pub mod plan;
pub mod report;
mod scripted;
mod start_signal;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::Duration;

use leadline_http::client::{Metric, Source};
use leadline_http::{ClosedLoop, OpenLoop, Schedule, ThreadShare};
use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::lower_priority;
use leadline_sys::process::file_limit;
use leadline_sys::usage::pin_to;
use leadline_wire::{Blame, ErrorReport, HttpSpec, Outcome, Side};
use tracing::{info, warn};

use self::plan::{Destination, Plan};
use self::report::{Snapshot, WorkerReport};
use self::scripted::LoadScripts;
use self::start_signal::{LoadStart, OpenReport, StartSignal};
use self::worker::{Worker, WorkerParts};
use super::net::io_backend::{Engine, IoBackend, IoBackends};
use super::session_runner::span;
use crate::events::{input_error, system_error};
use crate::failures::Failures;
use crate::flows::counters;
use crate::metering::{Collector, FlowCounters, Latest, Recorder, Rolled};
use crate::task::{Ready, Task};

/// Starts the threads, which open their connections.
pub fn prepare(spec: HttpSpec, task: &Task) -> Result<Box<dyn Ready>, ErrorReport> {
    prepare_with(spec, Engine::forced(), task)
}

fn prepare_with(spec: HttpSpec, forced: Option<Engine>, task: &Task) -> Result<Box<dyn Ready>, ErrorReport> {
    let mut plan = Plan::new(&spec)?;
    let threads = spec.threads.min(spec.connections) as usize;
    let scripts = match &spec.script {
        Some(script) => Some(LoadScripts::new(script, &spec, &mut plan, threads, task)?),
        None => None,
    };
    let plan = Arc::new(plan);
    // If the connections cannot be distributed evenly, the first threads have one more each.
    let sizes: Vec<usize> = (0..threads).map(|index| (spec.connections as usize - index).div_ceil(threads)).collect();
    if let Some(limit) = file_limit().filter(|limit| *limit < u64::from(spec.connections) && plan.stages.is_none()) {
        let message =
            format!("{} connections need more descriptors than `ulimit -n` ({limit}) allows", spec.connections);
        return Err(input_error("too_many_open_files", message));
    }
    match IoBackends::new(&plan.settings.payload, &sizes, forced).map_err(failed)? {
        IoBackends::IoUring(backends) => HttpLoad::open(spec, plan, scripts, backends, (Engine::IoUring, None)),
        IoBackends::Epoll(backends, reason) => {
            warn!(reason, "epoll is used in place of io_uring");
            HttpLoad::open(spec, plan, scripts, backends, (Engine::Epoll, Some(reason)))
        }
    }
}

/// A load whose threads have opened their connections and wait for the start.
struct HttpLoad {
    spec: HttpSpec,
    plan: Arc<Plan>,
    scripts: Option<LoadScripts>,
    /// Requests that one write sends together.
    batch: u32,
    engine: (Engine, Option<String>),
    start_signal: Arc<StartSignal>,
    counters: Vec<Arc<FlowCounters>>,
    rolled: mpsc::Receiver<Rolled>,
    snapshots: Vec<Arc<Latest<Snapshot>>>,
    threads: Vec<JoinHandle<io::Result<Option<WorkerReport>>>>,
}

impl HttpLoad {
    /// Starts the threads and waits until they have tried their connections.
    fn open<B: IoBackend>(
        spec: HttpSpec,
        plan: Arc<Plan>,
        mut scripts: Option<LoadScripts>,
        backends: Vec<B>,
        engine: (Engine, Option<String>),
    ) -> Result<Box<dyn Ready>, ErrorReport> {
        let (out, rolled) = mpsc::channel();
        let (report_opened, opened) = mpsc::channel();
        let mut thread_scripts = scripts.as_mut().and_then(|scripts| scripts.threads.take()).map(Vec::into_iter);
        let mut load = Self {
            counters: counters(backends.len() as u32),
            start_signal: Arc::default(),
            threads: Vec::new(),
            spec,
            plan,
            scripts,
            batch: 1,
            engine,
            rolled,
            snapshots: backends.iter().map(|_| Arc::default()).collect(),
        };
        let count = backends.len();
        let connections = load.spec.connections;
        info!(to = %load.plan.route, connections, threads = count, engine = load.engine.0.name(), "opening connections");
        for (number, backend) in backends.into_iter().enumerate() {
            let script = thread_scripts.as_mut().and_then(Iterator::next);
            let source = script.map_or_else(
                || Source::Fixed(load.plan.settings.requests.picker(number as u64, count as u64)),
                |script| Source::Script(Box::new(script)),
            );
            load.batch = source.batch();
            let worker = Worker::new(WorkerParts {
                plan: Arc::clone(&load.plan),
                backend,
                source,
                recorder: Recorder::new(Metric::NAMES.len(), 0, out.clone()),
                counters: Arc::clone(&load.counters[number]),
                snapshots: Arc::clone(&load.snapshots[number]),
                number,
                connections: (load.spec.connections as usize - number).div_ceil(count),
            });
            let (start_signal, report_opened) = (Arc::clone(&load.start_signal), report_opened.clone());
            let cpu = (!load.spec.cpus.is_empty()).then(|| load.spec.cpus[number % load.spec.cpus.len()]);
            load.threads.push(std::thread::spawn(move || {
                if let Some(cpu) = cpu {
                    pin_to(cpu).map_err(|error| io::Error::other(format!("pinning to CPU {cpu}: {error}")))?;
                }
                worker.run_thread(&start_signal, report_opened)
            }));
        }
        drop(report_opened);
        load.await_opened(&opened)?;
        Ok(Box::new(load))
    }

    /// Waits until every thread has tried all its connections. It is an error if none of them is open.
    fn await_opened(&mut self, opened: &mpsc::Receiver<OpenReport>) -> Result<(), ErrorReport> {
        let mut all: Vec<OpenReport> = opened.iter().collect();
        info!(to = %self.plan.route, connected = all.iter().map(|one| one.up).sum::<usize>(), "connections opened");
        if all.len() < self.threads.len() {
            // A thread ended without a message; its own error states the reason.
            self.start_signal.cancel();
            let ended: Vec<_> = self.threads.drain(..).filter_map(|thread| thread.join().ok()?.err()).collect();
            return Err(failed(ended.into_iter().next().unwrap_or_else(|| io::Error::other("a thread ended early"))));
        }
        if all.iter().any(|one| one.up > 0) {
            return Ok(());
        }
        let Failures { counts, examples } = all.swap_remove(0).failures;
        let (code, _) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap_or(("connect_timeout".to_owned(), 0));
        let message =
            examples.get(&code).cloned().unwrap_or_else(|| format!("connecting to {}: {code}", self.plan.route));
        Err(ErrorReport { blame: Blame::Peer, code, message })
    }
}

impl Drop for HttpLoad {
    /// Ends the threads that still wait for the start.
    fn drop(&mut self) {
        self.start_signal.cancel();
    }
}

impl Ready for HttpLoad {
    fn run(mut self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let span = span(at_ns, self.spec.duration_ms);
        self.start_signal.give(LoadStart {
            span,
            warm_until_ns: span.at_ns.saturating_add(self.spec.warmup_ms * 1_000_000),
            signal: Arc::clone(&task.signal),
            schedule: self.schedule(span.at_ns),
        });
        let mut state = RunState::new(&self, span.at_ns);
        state.watch(&self, task);
        let reports = std::mem::take(&mut self.threads).into_iter().map(JoinHandle::join);
        let reports = reports.map(|report| report.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let reports: Vec<Option<WorkerReport>> = reports.collect::<io::Result<_>>().map_err(failed)?;
        let mut reports: Vec<WorkerReport> = reports.into_iter().flatten().collect();
        let ended_ns = reports.iter().filter_map(|report| report.tally.end_ns).max().unwrap_or(span.at_ns);
        // The main Lua state may read the states of the threads until the end.
        let _scripts: Vec<_> = reports.iter_mut().filter_map(|report| report.script.take()).collect();
        let engine = self.engine.clone();
        let mut outcome = report::outcome(&self.plan, span.at_ns, engine, reports, &self.counters, &state.collector);
        if let Some(scripts) = self.scripts.take() {
            let latency = state.collector.total(Metric::Latency as usize);
            scripts.done(&mut outcome, ended_ns.saturating_sub(span.at_ns), &latency, &state.rates);
        }
        Ok(outcome)
    }
}

impl HttpLoad {
    fn schedule(&self, at_ns: u64) -> Arc<dyn Fn(usize) -> Schedule + Send + Sync> {
        let duration_ns = self.spec.duration_ms * 1_000_000;
        let (number, batch) = (self.spec.number, u64::from(self.batch));
        let (threads, stages) = (self.counters.len() as u64, self.plan.stages.clone());
        Arc::new(move |index| {
            let share = ThreadShare { index: index as u64, threads, batch };
            match &stages {
                Some(stages) => Schedule::Open(OpenLoop::new(stages.clone(), at_ns, duration_ns, number, share)),
                None => Schedule::Closed(ClosedLoop::new(at_ns, duration_ns, number, share)),
            }
        })
    }
}

fn failed(error: io::Error) -> ErrorReport {
    system_error("driving HTTP connections", &error)
}

/// Snapshots and histograms received from the threads while the load runs.
struct RunState {
    collector: Collector,
    latest: BTreeMap<usize, Snapshot>,
    /// Responses per second of each thread over short intervals; only scripts read them.
    rates: Histogram,
    answered: Vec<u64>,
    interval_ns: u64,
    /// When progress is reported next, ns: a whole number of intervals after the beginning.
    next_ns: u64,
    /// When it was reported last, ns.
    last_ns: u64,
}

/// Returns the rate of this many responses in this time, 1/s; `None` for no time.
fn rate_per_s(responses: u64, took_ns: u64) -> Option<u64> {
    let rate = (u128::from(responses) * 1_000_000_000).checked_div(took_ns.into())?;
    u64::try_from(rate).ok()
}

impl RunState {
    fn new(load: &HttpLoad, at_ns: u64) -> Self {
        let interval_ns = u64::from(load.spec.interval_ms.max(1)) * 1_000_000;
        let mut collector = Collector::new(Metric::NAMES);
        if let Destination::Resolved(_, Some(lookup)) = &load.plan.route.destination {
            collector.record(Metric::Dns as usize, lookup.took_ns);
        }
        Self {
            collector,
            latest: BTreeMap::new(),
            rates: Histogram::new(),
            answered: vec![0; load.counters.len()],
            interval_ns,
            next_ns: at_ns.saturating_add(interval_ns),
            last_ns: at_ns,
        }
    }

    /// Reports the task's progress until the last worker has sent its last histograms.
    fn watch(&mut self, load: &HttpLoad, task: &Task) {
        lower_priority();
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= self.next_ns {
                self.report_progress(load, task, now_ns);
                self.next_ns += ((now_ns - self.next_ns) / self.interval_ns + 1) * self.interval_ns;
            }
            match load.rolled.recv_timeout(Duration::from_nanos(self.next_ns.saturating_sub(now_ns))) {
                Ok(one) => self.collector.take(one),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn report_progress(&mut self, load: &HttpLoad, task: &Task, now_ns: u64) {
        let flows = load.counters.iter().zip(0..).map(|(counters, flow)| counters.progress(flow, true)).collect();
        // A report may come late: its responses are those of the time since the last one.
        let took_ns = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        for (counters, answered) in load.counters.iter().zip(&mut self.answered) {
            let now = counters.received_units();
            if let Some(rate) = rate_per_s(now - std::mem::replace(answered, now), took_ns) {
                self.rates.record(rate);
            }
        }
        let mut is_new = false;
        for snapshot in load.snapshots.iter().filter_map(|latest| latest.take()) {
            is_new = true;
            self.latest.insert(snapshot.worker, snapshot);
        }
        let standing = is_new.then(|| report::standing(&self.latest, &load.counters));
        task.progress_standing(Side::Local, now_ns, flows, self.collector.recent(), standing);
    }
}
