//! Scenarios: virtual users over HTTP. `plan` checks the specification and compiles its scenario; one thread per
//! `worker` runs the machines of its users and of their connections (`leadline_scenario`) with their `effects`; `report` adds the
//! threads' figures up, which `watch` reports meanwhile.

mod effects;
mod kept_sockets;
mod outbox;
mod plan;
mod replay;
mod report;
#[cfg(test)]
mod tests;
mod watch;
mod worker;

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::sync::Arc;
use std::thread::JoinHandle;

use leadline_scenario::replay::{AnswerUse, ReplayRequest, Replayed};
use leadline_scenario::{Shared, ThreadShare, Tools, Users, VirtualUsers};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::usage::pin_to;
use leadline_wire::{ErrorReport, Outcome, ScenarioSpec};
use tracing::{info, warn};

use self::outbox::{Outbox, SampleRows};
use self::plan::Plan;
use self::replay::Reader;
use self::watch::Watch;
use self::worker::{UserContext, WorkerParts, WorkerReport};
use super::net::io_backend::{Engine, IoBackend, IoBackends};
use crate::events::system_error;
use crate::flows::counters;
use crate::metering::FlowCounters;
use crate::task::{Ready, Task};

/// Compiles the scenario. Connections are opened by the users, when they need them.
pub fn prepare(spec: ScenarioSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    let plan = Arc::new(Plan::new(&spec)?);
    let replay = spec.plan.replay.as_ref();
    let reader = replay.map(|replay| Reader::open(replay, &plan.program, spec.threads)).transpose()?;
    let sizes = vec![plan.connections; spec.threads as usize];
    let payload: Arc<[u8]> = Arc::from([].as_slice());
    Ok(match IoBackends::new(&payload, &sizes, Engine::forced()).map_err(failed)? {
        IoBackends::IoUring(backends) => {
            Box::new(ScenarioLoad { spec, plan, backends, engine: (Engine::IoUring, None), reader })
        }
        IoBackends::Epoll(backends, reason) => {
            warn!(reason, "epoll is used in place of io_uring");
            Box::new(ScenarioLoad { spec, plan, backends, engine: (Engine::Epoll, Some(reason)), reader })
        }
    })
}

fn failed(error: io::Error) -> ErrorReport {
    system_error("driving a scenario's connections", &error)
}

/// A scenario that is ready to run.
struct ScenarioLoad<B> {
    spec: ScenarioSpec,
    plan: Arc<Plan>,
    backends: Vec<B>,
    engine: (Engine, Option<String>),
    /// Of a replay: what reads its source.
    reader: Option<Reader>,
}

impl<B: IoBackend> Ready for ScenarioLoad<B> {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let Self { spec, plan, backends, engine, reader } = *self;
        let at_ns = at_ns.max(monotonic_ns());
        let threads = backends.len() as u32;
        let run = Run {
            shared: Arc::new(Shared::new(&plan.program, threads)),
            counters: counters(threads),
            interval_ns: u64::from(spec.interval_ms.max(1)) * 1_000_000,
            spec,
            plan,
            at_ns,
            task,
        };
        info!(scenario = run.plan.program.name, threads, connections = run.plan.connections, "running users");
        let Some(mut reader) = reader else {
            let reports = run.threads(backends, |_| make_flow_users)?;
            let reports = reports.into_iter().map(|(report, _)| report).collect();
            return Ok(report::outcome(&run.plan, &run.shared, at_ns, engine, reports, &run.counters));
        };
        reader.begin(at_ns);
        let answers = reader.answers;
        let mut inboxes: Vec<_> = std::mem::take(&mut reader.inboxes).into_iter().map(Some).collect();
        let reports = run.threads(backends, |index| {
            let inbox = inboxes[index].take();
            move |plan: &Plan, context| make_recorded_users(plan, context, answers, inbox)
        })?;
        let (reports, users): (Vec<_>, Vec<_>) = reports.into_iter().unzip();
        let (read, thread) = reader.join(at_ns);
        let counts = users.iter().map(|users| users.counts().clone()).collect();
        let mut outcome = report::outcome(&run.plan, &run.shared, at_ns, engine, reports, &run.counters);
        let (report, behind) = replay::report(&run.plan.program, read, counts);
        outcome.histograms.push(behind);
        outcome.generator.threads.push(thread);
        if let Some(scenario) = &mut outcome.scenario {
            scenario.replay = Some(Box::new(report));
        }
        Ok(outcome)
    }
}

/// The users of a thread that follow the program's flow.
fn make_flow_users(plan: &Plan, context: UserContext) -> VirtualUsers {
    let UserContext { shared, share, limits, wall_offset_ns } = context;
    let mut users = VirtualUsers::new(Arc::clone(&plan.program), shared, Tools::new(wall_offset_ns), share, limits);
    users.keep_samples(plan.samples.as_ref());
    users
}

/// The users of a thread that send what was recorded.
fn make_recorded_users(
    plan: &Plan,
    context: UserContext,
    answers: AnswerUse,
    inbox: Option<Receiver<Vec<ReplayRequest>>>,
) -> Replayed {
    let UserContext { shared, limits, wall_offset_ns, .. } = context;
    let mut users = Replayed::new(Arc::clone(&plan.program), shared, limits, wall_offset_ns, answers, inbox);
    users.keep_samples(plan.samples.as_ref());
    users
}

/// A scenario that runs.
struct Run<'t> {
    spec: ScenarioSpec,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    counters: Vec<Arc<FlowCounters>>,
    interval_ns: u64,
    at_ns: u64,
    task: &'t Task,
}

impl Run<'_> {
    /// Runs the threads with their users and reports their progress; returns what they came to.
    fn threads<B: IoBackend, U: Users + 'static, M: FnOnce(&Plan, UserContext) -> U + Send + 'static>(
        &self,
        backends: Vec<B>,
        mut make_users: impl FnMut(usize) -> M,
    ) -> Result<Vec<(WorkerReport, U)>, ErrorReport> {
        let threads = backends.len() as u32;
        let (messages, published) = mpsc::channel();
        let rows = Arc::new(SampleRows::default());
        let mut running: Vec<JoinHandle<io::Result<(WorkerReport, U)>>> = Vec::new();
        for (backend, index) in backends.into_iter().zip(0..) {
            let parts = WorkerParts {
                plan: Arc::clone(&self.plan),
                shared: Arc::clone(&self.shared),
                backend,
                counters: Arc::clone(&self.counters[index as usize]),
                share: ThreadShare { index, threads },
                interval_ns: self.interval_ns,
                outbox: Outbox::new(messages.clone(), Arc::clone(&rows)),
            };
            let signal = Arc::clone(&self.task.signal);
            let cpus = &self.spec.cpus;
            let cpu = (!cpus.is_empty()).then(|| cpus[index as usize % cpus.len()]);
            let (make_users, at_ns) = (make_users(index as usize), self.at_ns);
            running.push(std::thread::spawn(move || {
                if let Some(cpu) = cpu {
                    pin_to(cpu).map_err(|error| io::Error::other(format!("pinning to CPU {cpu}: {error}")))?;
                }
                worker::run(parts, make_users, at_ns, &signal)
            }));
        }
        drop(messages);
        let Self { plan, shared, counters, task, interval_ns, .. } = self;
        let watch = Watch { plan, shared, rows: &rows, counters, task, interval_ns: *interval_ns };
        watch.run(&published, self.at_ns);
        let reports = running.into_iter().map(JoinHandle::join);
        let reports = reports.map(|report| report.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        reports.collect::<io::Result<Vec<_>>>().map_err(failed)
    }
}
