//! The agent's periodic work beside the tasks: a heartbeat each second, and samples of the host at the requested
//! period.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leadline_observe::{processes_of, CgroupPaths, Observer};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::queues::{interface_name, QueueCounters, Queues};
use leadline_sys::usage::thread_cpu_s;
use leadline_wire::{Event, QueueSample};

use crate::events::Events;
use crate::soaker::Soaker;

const HEARTBEAT_NS: u64 = 1_000_000_000;
/// Up to this number of queues they are read with every sample.
const MANY_QUEUES: usize = 100;

/// Sends a heartbeat each second until the process ends, and reaps adopted processes that have ended.
pub fn start_heartbeat(events: Events) {
    thread::spawn(move || {
        let mut due_ns = monotonic_ns();
        loop {
            due_ns += HEARTBEAT_NS;
            leadline_sys::clock::sleep_until(due_ns);
            events.send(&Event::Heartbeat { t_ns: monotonic_ns() });
            leadline_sys::process::reap_orphans();
        }
    });
}

/// What to sample, and how often.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// The label of the samples.
    pub trial: Option<String>,
    /// Time between two samples; `None`: it rests.
    pub period_ns: Option<u64>,
    /// Whether to sample what all hosts of the machine share.
    pub machine: bool,
    /// Processes in addition to the agent's own.
    pub pids: Vec<u32>,
    /// The names of programs whose processes to sample, too.
    pub programs: Vec<String>,
    /// Whether the soaker runs.
    pub soak: bool,
    /// Increases with each order, so that a sleeping watcher notices a new one; `Watch::order` sets it.
    pub number: u64,
}

/// The processes to sample, by name; the agent is always among them.
pub type Processes = Arc<Mutex<Vec<(String, u32)>>>;

/// The sampling thread's control.
pub struct Watch {
    order: Arc<(Mutex<Order>, Condvar)>,
}

impl Watch {
    /// Starts a watcher that does nothing until it gets an order.
    pub fn start(events: Events, cgroup: CgroupPaths, processes: Processes) -> Self {
        let order = Arc::new((Mutex::new(Order::default()), Condvar::new()));
        let orders = Arc::clone(&order);
        thread::spawn(move || run(&orders, &events, &cgroup, &processes));
        Self { order }
    }

    /// Samples as ordered from now on.
    pub fn order(&self, new: Order) {
        let (order, changed) = &*self.order;
        let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
        *order = Order { number: order.number + 1, ..new };
        changed.notify_one();
    }
}

fn run(orders: &(Mutex<Order>, Condvar), events: &Events, cgroup: &CgroupPaths, processes: &Processes) {
    let mut observer = Observer::open(cgroup);
    let mut queues = NamedQueues::open();
    let mut soaker = None;
    let mut named = Vec::new();
    let began_s = thread_cpu_s();
    let mut due_ns = monotonic_ns();
    let mut seen = 0;
    loop {
        let order = await_turn(orders, seen, due_ns, &mut soaker);
        let Some(period_ns) = order.period_ns else { continue };
        let now = monotonic_ns();
        if order.number != seen {
            seen = order.number;
            observer.make_next_whole();
            due_ns = now;
            soaker = if order.soak { soaker.or_else(Soaker::start) } else { None };
        }
        let whole = observer.is_whole_due(now);
        if whole {
            named = processes_of(&order.programs);
        }
        let mut sample = {
            let list = processes.lock().unwrap_or_else(PoisonError::into_inner);
            observer.sample(now, order.machine, &chosen(&list, &order.pids, &named))
        };
        sample.network.queues = queues.as_mut().and_then(|queues| queues.sample(whole));
        sample.trial.clone_from(&order.trial);
        sample.observer_cpu_s = thread_cpu_s() - began_s;
        if let Some(soaker) = &mut soaker {
            // Its counts go on while the other counters are read: they have an instant of their own.
            sample.t_ns = monotonic_ns();
            sample.soaker = Some(soaker.sample());
        }
        events.send(&Event::Observation(sample));
        // A late sample does not make the next ones follow too closely.
        due_ns = (due_ns + period_ns).max(now);
    }
}

/// Waits for the next sample, or for an order after the one with the number `seen`. The soaker ends before a rest.
fn await_turn(orders: &(Mutex<Order>, Condvar), seen: u64, due_ns: u64, soaker: &mut Option<Soaker>) -> Order {
    let (lock, changed) = orders;
    let order = lock.lock().unwrap_or_else(PoisonError::into_inner);
    if order.period_ns.is_none() {
        *soaker = None;
    }
    let resting = |order: &mut Order| order.period_ns.is_none();
    let order = changed.wait_while(order, resting).unwrap_or_else(PoisonError::into_inner);
    let wait = if order.number == seen { due_ns.saturating_sub(monotonic_ns()) } else { 0 };
    let newer = |order: &mut Order| order.number == seen;
    let (order, _) =
        changed.wait_timeout_while(order, Duration::from_nanos(wait), newer).unwrap_or_else(PoisonError::into_inner);
    order.clone()
}

/// The agent's own processes, then those that were asked for, each once.
fn chosen(own: &[(String, u32)], pids: &[u32], named: &[(String, u32)]) -> Vec<(String, u32)> {
    let mut all = own.to_vec();
    let asked = pids.iter().map(|pid| (pid.to_string(), *pid)).chain(named.iter().cloned());
    for (name, pid) in asked {
        if !all.iter().any(|(_, known)| *known == pid) {
            all.push((name, pid));
        }
    }
    all
}

/// The queues by which packets leave this host, with the names of their interfaces.
struct NamedQueues {
    queues: Queues,
    names: BTreeMap<u32, String>,
    rows: usize,
}

impl NamedQueues {
    /// `None` if the kernel reports no queues.
    fn open() -> Option<Self> {
        Some(Self { queues: Queues::open().ok()?, names: BTreeMap::new(), rows: 0 })
    }

    /// Hosts with many interfaces have them in whole samples only, and names are asked for again then.
    fn sample(&mut self, whole: bool) -> Option<Vec<QueueSample>> {
        if whole {
            self.names.clear();
        } else if self.rows > MANY_QUEUES {
            return None;
        }
        let rows = self.queues.read().ok()?;
        self.rows = rows.len();
        Some(rows.into_iter().filter_map(|row| self.named(row)).collect())
    }

    fn named(&mut self, row: QueueCounters) -> Option<QueueSample> {
        let name = match self.names.get(&row.interface) {
            Some(known) => known.clone(),
            None => {
                let found = interface_name(row.interface)?;
                self.names.insert(row.interface, found.clone());
                found
            }
        };
        Some(QueueSample {
            name,
            kind: row.kind,
            packets: row.packets,
            drops: u64::from(row.drops),
            overlimits: u64::from(row.overlimits),
            backlog_bytes: u64::from(row.backlog_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn each_process_is_sampled_once() {
        let named =
            |rows: &[(&str, u32)]| rows.iter().map(|(name, pid)| ((*name).to_owned(), *pid)).collect::<Vec<_>>();
        let all = chosen(&named(&[("agent", 1)]), &[7, 1], &named(&[("nginx", 7), ("nginx", 8)]));
        assert_eq!(all, named(&[("agent", 1), ("7", 7), ("nginx", 8)]));
    }
}
