//! HTTP load: what is asked for becomes a template, open connections and a schedule per thread. `opening` and
//! `closing` connect and part, `worker` drives one thread's connections over a `wire` (io_uring or epoll), `report` makes
//! the threads' figures one outcome.

mod closing;
mod opening;
mod report;
#[cfg(test)]
mod tests;
mod wire;
mod worker;

use std::sync::{mpsc, Arc};
use std::time::Duration;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use leadline_http::{ClosedLoop, OpenLoop, RequestTemplate, Schedule, Url};
use leadline_pace::{Stage, Stages};
use leadline_sys::clock::monotonic_ns;
use leadline_wire::{ErrorReport, HttpSpec, Outcome, Side};

use self::opening::{open_all, Opened};
use self::report::WorkerReport;
use self::wire::{Engine, Wire, Wires};
use self::worker::{Plan, Worker};
use super::conduct::span;
use super::session::{parse_bind, resolve_host};
use super::threads::{Collector, FlowCounters, Recorder, Rolled};
use super::{Ready, Task};
use crate::events::{error_code, input_error, system_error};
use crate::flows::{counters, deal_out};

/// Names of the histograms, in the order of `worker::Metric`.
const METRICS: &[&str] = &["latency", "service", "late", "connect"];

/// Open the connections.
pub fn prepare(spec: HttpSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    prepare_with(spec, Engine::forced())
}

fn prepare_with(spec: HttpSpec, forced: Option<Engine>) -> Result<Box<dyn Ready>, ErrorReport> {
    if spec.connections == 0 || spec.threads == 0 || spec.timeouts.response_ms == 0 {
        return Err(input_error("bad_http", "connections, threads and timeouts have to be at least 1"));
    }
    let stages = stages(&spec)?;
    let plan = plan(&spec)?;
    let connections = open_all(&plan, spec.connections).map_err(|error| system_error("opening connections", &error))?;
    if connections.iter().all(Result::is_err) {
        let doing = format!("connecting to {}", plan.address);
        let error =
            connections.into_iter().find_map(Result::err).unwrap_or_else(|| std::io::ErrorKind::TimedOut.into());
        let blame = leadline_wire::Blame::Peer;
        return Err(ErrorReport { blame, code: error_code(&error).to_owned(), ..system_error(&doing, &error) });
    }
    Ok(Box::new(HttpLoad { spec, stages, plan: Arc::new(plan), connections, forced }))
}

fn stages(spec: &HttpSpec) -> Result<Option<Stages>, ErrorReport> {
    if spec.rate.is_empty() {
        return Ok(None);
    }
    let stages = spec.rate.iter().map(|stage| Stage {
        from_per_s: stage.from_per_s,
        to_per_s: stage.to_per_s,
        duration_ns: stage.duration_ms.saturating_mul(1_000_000),
    });
    Stages::new(stages).map(Some).map_err(|error| input_error("bad_rate", format!("rate: {error}")))
}

fn plan(spec: &HttpSpec) -> Result<Plan, ErrorReport> {
    let [request] = spec.requests.as_slice() else { return Err(input_error("bad_http", "one request")) };
    let url = Url::parse(&request.url).map_err(|error| input_error("bad_url", error.to_string()))?;
    let headers = request.headers.iter().map(|header| (header.name.as_str(), header.value.as_str()));
    let body = request.body_base64.as_deref().map(|text| BASE64_STANDARD.decode(text)).transpose();
    let body = body.map_err(|error| input_error("bad_body", format!("body_base64: {error}")))?;
    let template = RequestTemplate::new(&request.method, &url, headers, body.as_deref())
        .map_err(|error| input_error("bad_request", error.to_string()))?;
    Ok(Plan {
        template,
        address: resolve_host(&url.host, url.port, spec.ip_version)?,
        bind: parse_bind(spec.route.bind.first().map(String::as_str))?,
        timeout_ns: u64::from(spec.timeouts.response_ms) * 1_000_000,
    })
}

struct HttpLoad {
    spec: HttpSpec,
    stages: Option<Stages>,
    plan: Arc<Plan>,
    connections: Vec<Opened>,
    forced: Option<Engine>,
}

impl Ready for HttpLoad {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let groups = deal_out(self.connections, self.spec.threads);
        let load = Load { spec: self.spec, stages: self.stages, plan: self.plan, at_ns, task };
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        match Wires::new(&load.plan, &sizes, self.forced).map_err(failed)? {
            Wires::IoUring(wires) => load.drive(groups, wires, (Engine::IoUring, None)),
            Wires::Epoll(wires, reason) => load.drive(groups, wires, (Engine::Epoll, Some(reason))),
        }
    }
}

/// A load that is about to start.
struct Load<'t> {
    spec: HttpSpec,
    stages: Option<Stages>,
    plan: Arc<Plan>,
    at_ns: u64,
    task: &'t Task,
}

impl Load<'_> {
    /// Each group of connections over a wire of its own, on a thread of its own.
    fn drive<W: Wire>(
        self,
        groups: Vec<Vec<Opened>>,
        wires: Vec<W>,
        engine: (Engine, Option<String>),
    ) -> Result<Outcome, ErrorReport> {
        let Self { spec, stages, plan, at_ns, task } = self;
        let span = span(at_ns, spec.duration_ms);
        let threads = groups.len() as u64;
        let counters = counters(groups.len() as u32);
        let (out, rolled) = mpsc::channel();
        let mut workers = Vec::new();
        for ((wire, counters), index) in wires.into_iter().zip(&counters).zip(0..) {
            let schedule = schedule(&spec, stages.as_ref(), span.at_ns, index, threads);
            let warm_until_ns = span.at_ns.saturating_add(spec.warmup_ms * 1_000_000);
            let recorder = Recorder::new(METRICS.len(), warm_until_ns, out.clone());
            workers.push(Worker::new(Arc::clone(&plan), wire, schedule, recorder, Arc::clone(counters)));
        }
        drop(out);
        let mut collector = Collector::new(METRICS);
        let reports = std::thread::scope(|scope| {
            let running: Vec<_> = workers
                .into_iter()
                .zip(groups)
                .zip(0..)
                .map(|((worker, group), index)| {
                    scope.spawn(move || worker.run(group, span, &task.gate, &format!("http-{index}")))
                })
                .collect();
            report_progress(&spec, span.at_ns, task, &counters, &rolled, &mut collector);
            running.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        let reports = reports.into_iter().map(|report| report.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let reports: Vec<WorkerReport> = reports.collect::<Result<_, _>>().map_err(failed)?;
        Ok(report::outcome(&plan, span.at_ns, engine, reports, &counters, &collector))
    }
}

fn failed(error: std::io::Error) -> ErrorReport {
    system_error("driving HTTP connections", &error)
}

fn schedule(spec: &HttpSpec, stages: Option<&Stages>, at_ns: u64, index: u64, threads: u64) -> Schedule {
    let duration_ns = spec.duration_ms * 1_000_000;
    match stages {
        Some(stages) => Schedule::Open(OpenLoop::new(stages.clone(), at_ns, duration_ns, spec.number, index, threads)),
        None => Schedule::Closed(ClosedLoop::new(at_ns, duration_ns, spec.number, index, threads)),
    }
}

/// Tells the task's progress until the last worker has handed over its last histograms.
fn report_progress(
    spec: &HttpSpec,
    at_ns: u64,
    task: &Task,
    counters: &[Arc<FlowCounters>],
    rolled: &mpsc::Receiver<Rolled>,
    collector: &mut Collector,
) {
    let interval_ns = u64::from(spec.interval_ms.max(1)) * 1_000_000;
    let mut next_ns = at_ns.saturating_add(interval_ns);
    loop {
        let now_ns = monotonic_ns();
        if now_ns >= next_ns {
            let flows = counters.iter().zip(0..).map(|(counters, flow)| counters.progress(flow, true)).collect();
            task.progress(Side::Local, now_ns, flows, collector.recent());
            next_ns += ((now_ns - next_ns) / interval_ns + 1) * interval_ns;
        }
        match rolled.recv_timeout(Duration::from_nanos(next_ns.saturating_sub(now_ns))) {
            Ok(one) => collector.take(one),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}
