//! Scenarios: virtual users over HTTP. `plan` checks the specification and compiles its scenario; one thread per
//! `worker` runs the machines of its users and of their connections (`leadline_scenario`) with their `effects`; `report` adds the
//! threads' figures up, which `watch` reports meanwhile.

mod effects;
mod kept_sockets;
mod outbox;
mod plan;
mod report;
#[cfg(test)]
mod tests;
mod watch;
mod worker;

use std::io;
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;

use leadline_scenario::{Shared, ThreadShare};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::usage::pin_to;
use leadline_wire::{ErrorReport, Outcome, ScenarioSpec};
use tracing::{info, warn};

use self::outbox::{Outbox, SampleRows};
use self::plan::Plan;
use self::watch::Watch;
use self::worker::{WorkerParts, WorkerReport};
use super::net::io_backend::{Engine, IoBackend, IoBackends};
use crate::events::system_error;
use crate::flows::counters;
use crate::task::{Ready, Task};

/// Compiles the scenario. Connections are opened by the users, when they need them.
pub fn prepare(spec: ScenarioSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    let plan = Arc::new(Plan::new(&spec)?);
    let sizes = vec![plan.connections; spec.threads as usize];
    let payload: Arc<[u8]> = Arc::from([].as_slice());
    Ok(match IoBackends::new(&payload, &sizes, Engine::forced()).map_err(failed)? {
        IoBackends::IoUring(backends) => {
            Box::new(ScenarioLoad { spec, plan, backends, engine: (Engine::IoUring, None) })
        }
        IoBackends::Epoll(backends, reason) => {
            warn!(reason, "epoll is used in place of io_uring");
            Box::new(ScenarioLoad { spec, plan, backends, engine: (Engine::Epoll, Some(reason)) })
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
}

impl<B: IoBackend> Ready for ScenarioLoad<B> {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let Self { spec, plan, backends, engine } = *self;
        let at_ns = at_ns.max(monotonic_ns());
        let threads = backends.len() as u32;
        let shared = Arc::new(Shared::new(&plan.program, threads));
        let interval_ns = u64::from(spec.interval_ms.max(1)) * 1_000_000;
        let counters = counters(threads);
        let (messages, published) = mpsc::channel();
        let rows = Arc::new(SampleRows::default());
        info!(scenario = plan.program.name, threads, connections = plan.connections, "running users");
        let mut running: Vec<JoinHandle<io::Result<WorkerReport>>> = Vec::new();
        for (backend, index) in backends.into_iter().zip(0..) {
            let parts = WorkerParts {
                plan: Arc::clone(&plan),
                shared: Arc::clone(&shared),
                backend,
                counters: Arc::clone(&counters[index as usize]),
                share: ThreadShare { index, threads },
                interval_ns,
                outbox: Outbox::new(messages.clone(), Arc::clone(&rows)),
            };
            let signal = Arc::clone(&task.signal);
            let cpu = (!spec.cpus.is_empty()).then(|| spec.cpus[index as usize % spec.cpus.len()]);
            running.push(std::thread::spawn(move || {
                if let Some(cpu) = cpu {
                    pin_to(cpu).map_err(|error| io::Error::other(format!("pinning to CPU {cpu}: {error}")))?;
                }
                worker::run(parts, at_ns, &signal)
            }));
        }
        drop(messages);
        let watch = Watch { plan: &plan, shared: &shared, rows: &rows, counters: &counters, task, interval_ns };
        watch.run(&published, at_ns);
        let reports = running.into_iter().map(JoinHandle::join);
        let reports = reports.map(|report| report.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let reports = reports.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        Ok(report::outcome(&plan, &shared, at_ns, engine, reports, &counters))
    }
}
