//! The agent's periodic work beside the tasks: a heartbeat each second, and samples of the host at the requested
//! period.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leadline_observe::{CgroupPaths, Observer};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::usage::thread_cpu_s;
use leadline_wire::Event;

use crate::events::Events;

const HEARTBEAT_NS: u64 = 1_000_000_000;

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
struct Order {
    trial: Option<String>,
    /// Time between two samples; `None`: it rests.
    period_ns: Option<u64>,
    machine: bool,
    /// Increases with each order, so that a sleeping watcher notices a new one.
    number: u64,
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

    /// Samples from now on; a period of 0 pauses it.
    pub fn order(&self, trial: Option<String>, period_ms: u32, machine: bool) {
        let (order, changed) = &*self.order;
        let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
        let period_ns = (period_ms > 0).then(|| u64::from(period_ms) * 1_000_000);
        *order = Order { trial, period_ns, machine, number: order.number + 1 };
        changed.notify_one();
    }
}

fn run(orders: &(Mutex<Order>, Condvar), events: &Events, cgroup: &CgroupPaths, processes: &Processes) {
    let (lock, changed) = orders;
    let mut observer = Observer::open(cgroup);
    let began_s = thread_cpu_s();
    let mut due_ns = monotonic_ns();
    let mut seen = 0;
    loop {
        let order = {
            let resting = |order: &mut Order| order.period_ns.is_none();
            let order = changed
                .wait_while(lock.lock().unwrap_or_else(PoisonError::into_inner), resting)
                .unwrap_or_else(PoisonError::into_inner);
            let wait = if order.number == seen { due_ns.saturating_sub(monotonic_ns()) } else { 0 };
            let newer = |order: &mut Order| order.number == seen;
            let (order, _) = changed
                .wait_timeout_while(order, Duration::from_nanos(wait), newer)
                .unwrap_or_else(PoisonError::into_inner);
            order.clone()
        };
        let Some(period_ns) = order.period_ns else { continue };
        let now = monotonic_ns();
        if order.number != seen {
            seen = order.number;
            observer.make_next_whole();
            due_ns = now;
        }
        let mut sample = {
            let list = processes.lock().unwrap_or_else(PoisonError::into_inner);
            observer.sample(now, order.machine, &list)
        };
        sample.trial.clone_from(&order.trial);
        sample.observer_cpu_s = thread_cpu_s() - began_s;
        events.send(&Event::Observation(sample));
        // A late sample does not make the next ones follow too closely.
        due_ns = (due_ns + period_ns).max(now);
    }
}
