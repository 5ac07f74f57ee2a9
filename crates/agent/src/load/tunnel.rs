//! A fleet of VPN clients. A `plan` is made of the specification, and one thread for each group of clients. `worker`
//! is a thread's loop over its clients' sockets and timers: it passes each event to the client's machine
//! (`leadline_tunnel::client`), and `effects` carries out the machine's actions. `tunnel_io` and `inner_traffic`
//! carry the load through the tunnels, and `teardown` ends the fleet. `fleet` is the state that the threads share,
//! and `report` adds their figures up to one outcome.

mod client;
mod client_report;
mod effects;
mod fleet;
mod inner_traffic;
mod memory;
mod metric;
mod plan;
mod register;
mod report;
mod scheduled_actions;
mod teardown;
#[cfg(test)]
mod tests;
mod traffic;
mod transport;
mod tunnel_io;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::Duration;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::lower_priority;
use leadline_wire::{unless_zero, Counts, ErrorReport, LoadReport, Outcome, Side, TunnelSpec};
use tracing::info;

use self::fleet::Fleet;
use self::memory::MemoryBaseline;
use self::metric::METRICS;
use self::plan::Plan;
use self::report::{Snapshot, WorkerReport};
use self::worker::{Worker, WorkerParts};
use crate::events::system_error;
use crate::flows::counters;
use crate::metering::{Collector, Latest, Recorder, Rolled};
use crate::task::{Ready, Task};

/// Reads the profile, creates the identities, and opens the sockets.
pub fn prepare(spec: &TunnelSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    let memory = MemoryBaseline::now();
    let plan = Plan::new(spec)?;
    let threads = spec.threads.min(spec.clients);
    let carrying = if plan.traffic.is_some() { spec.clients } else { 0 };
    let fleet = Arc::new(Fleet::new(plan, counters(carrying), threads as usize));
    let (out, rolled) = mpsc::channel();
    let snapshots: Vec<Arc<Latest<Snapshot>>> = (0..threads).map(|_| Arc::default()).collect();
    let interval_ns = u64::from(spec.interval_ms) * 1_000_000;
    let worker = |number| {
        Worker::new(WorkerParts {
            fleet: Arc::clone(&fleet),
            number,
            threads,
            recorder: Recorder::new(METRICS.len(), 0, out.clone()),
            snapshots: Arc::clone(&snapshots[number as usize]),
            snapshot_gap_ns: interval_ns,
        })
    };
    let workers = (0..threads).map(worker).collect::<io::Result<Vec<_>>>();
    let workers = workers.map_err(|error| system_error("opening the clients' sockets", &error))?;
    Ok(Box::new(TunnelLoad { fleet, workers, rolled, snapshots, interval_ns, memory }))
}

/// A fleet that waits for its start.
struct TunnelLoad {
    fleet: Arc<Fleet>,
    workers: Vec<Worker>,
    rolled: mpsc::Receiver<Rolled>,
    snapshots: Vec<Arc<Latest<Snapshot>>>,
    interval_ns: u64,
    memory: Option<MemoryBaseline>,
}

impl Ready for TunnelLoad {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let Self { fleet, workers, rolled, snapshots, interval_ns, memory } = *self;
        let at_ns = at_ns.max(monotonic_ns());
        fleet.begin(at_ns);
        info!(clients = fleet.plan.clients, threads = workers.len(), at_ns, "VPN clients begin to arrive");
        let start = |worker: Worker| {
            let signal = Arc::clone(&task.signal);
            std::thread::spawn(move || worker.run(&signal))
        };
        let threads: Vec<JoinHandle<io::Result<WorkerReport>>> = workers.into_iter().map(start).collect();
        // From here on, this thread only counts and reports.
        lower_priority();
        let mut progress = RunProgress {
            collector: Collector::new(METRICS),
            latest: BTreeMap::new(),
            interval_ns,
            next_ns: at_ns.saturating_add(interval_ns),
            peer_loads: Vec::new(),
            passed_over: 0,
        };
        progress.collect_until_done(&fleet, &rolled, &snapshots, task);
        progress.report_peer_progress(&fleet, task);
        let (of, clients) = (threads.len() as u32, fleet.plan.clients);
        let reports = (0..).zip(threads).map(|(number, thread)| {
            thread.join().unwrap_or_else(|panic| Ok(report::broken_down(number, of, clients, panic.as_ref())))
        });
        let reports = reports.collect::<io::Result<Vec<_>>>();
        let reports = reports.map_err(|error| system_error("driving VPN clients", &error))?;
        info!(clients, "VPN clients have left");
        let memory_bytes = memory.and_then(MemoryBaseline::peak_since);
        let RunProgress { collector, peer_loads, passed_over, .. } = progress;
        let mut outcome = report::outcome(&fleet, reports, &collector, peer_loads, memory_bytes);
        if let Counts::Tunnel(counts) = &mut outcome.counts {
            counts.far_progress_passed_over = unless_zero(passed_over);
        }
        Ok(outcome)
    }
}

/// The figures that are received from the threads while the load runs.
struct RunProgress {
    collector: Collector,
    latest: BTreeMap<u32, Snapshot>,
    interval_ns: u64,
    /// When progress is reported next, ns: a whole number of intervals after the beginning.
    next_ns: u64,
    /// The cost of the traffic on its far end.
    peer_loads: Vec<LoadReport>,
    /// Progress messages of the far end that arrived too fast to be passed on.
    passed_over: u64,
}

impl RunProgress {
    /// Reports the task's progress until the last worker has sent its last histograms.
    fn collect_until_done(
        &mut self,
        fleet: &Fleet,
        rolled: &mpsc::Receiver<Rolled>,
        snapshots: &[Arc<Latest<Snapshot>>],
        task: &Task,
    ) {
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= self.next_ns {
                self.report_progress(fleet, snapshots, task, now_ns);
                self.next_ns += ((now_ns - self.next_ns) / self.interval_ns + 1) * self.interval_ns;
            }
            match rolled.recv_timeout(Duration::from_nanos(self.next_ns.saturating_sub(now_ns))) {
                Ok(one) => self.collector.take(one),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn report_progress(&mut self, fleet: &Fleet, snapshots: &[Arc<Latest<Snapshot>>], task: &Task, now_ns: u64) {
        let mut is_new = false;
        for snapshot in snapshots.iter().filter_map(|latest| latest.take()) {
            is_new = true;
            self.latest.insert(snapshot.worker, snapshot);
        }
        let standing = is_new.then(|| report::standing(&self.latest));
        let has_units = fleet.plan.traffic.as_ref().is_some_and(|traffic| traffic.counts_units());
        let flows = report::progress(&fleet.counters, has_units);
        task.progress_standing(Side::Local, now_ns, flows, self.collector.recent(), standing);
        self.report_peer_progress(fleet, task);
    }

    /// Passes on the progress messages of the traffic's far end.
    fn report_peer_progress(&mut self, fleet: &Fleet, task: &Task) {
        let Some(traffic) = &fleet.plan.traffic else { return };
        let peer = traffic.take_peer_progress();
        for (t_ns, rows) in peer.progress {
            task.progress(Side::Peer, t_ns, rows, Vec::new());
        }
        self.peer_loads.extend(peer.loads);
        self.passed_over += peer.passed_over;
    }
}
