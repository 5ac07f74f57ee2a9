//! The state that the threads of a fleet share: the plan, the register, and the fleet's schedule. The settled clients
//! connect first and have a quiet time; then follow the arrivals, the traffic, and the end. One thread sets each
//! instant once, far enough ahead that every thread has read it before it comes.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leadline_tunnel::client::effects::ArrivalTime;

use super::plan::Plan;
use super::register::Register;
use crate::atomic_option::AtomicOption;
use crate::flows::TURN_NS;
use crate::metering::FlowCounters;

/// How far in the future a new instant is set: every thread checks at least once per turn, and may be busy for one
/// more.
const AHEAD_NS: u64 = 4 * TURN_NS;
/// The quiet time before the arrivals, whose pings are the baseline: at least this long, ns, and this many pings of
/// each client.
const QUIET_NS: u64 = 1_000_000_000;
const QUIET_PINGS: u64 = 10;

/// The instants of a fleet's arrivals, ns; `None`: not known yet.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalInstants {
    /// When all settled clients have connected or failed.
    pub settled_ns: Option<u64>,
    /// When the other clients begin to arrive.
    pub arrivals_ns: Option<u64>,
    /// When all arrivals have ended.
    pub arrived_ns: Option<u64>,
}

impl ArrivalInstants {
    /// Returns whether an instant is before, during or after the arrivals.
    pub fn of(self, at_ns: u64) -> ArrivalTime {
        if self.arrivals_ns.is_none_or(|arrivals_ns| at_ns < arrivals_ns) {
            ArrivalTime::Before
        } else if self.arrived_ns.is_none_or(|arrived_ns| at_ns < arrived_ns) {
            ArrivalTime::During
        } else {
            ArrivalTime::After
        }
    }
}

/// The shared state of a fleet.
pub struct Fleet {
    pub plan: Plan,
    pub register: Register,
    /// Source addresses of the fleet's datagrams. A server takes a datagram from a known address and port for one of
    /// the same client. The lock is taken once per socket.
    known_sources: Mutex<HashSet<SocketAddr>>,
    /// The counters of each client, if there is traffic.
    pub counters: Vec<Arc<FlowCounters>>,
    /// When the fleet begins, ns.
    at_ns: AtomicOption,
    /// See [`Times`]: each is known after the one before it and lies not before it. Without settled clients, the first two are the
    /// fleet's beginning.
    settled_ns: AtomicOption,
    arrivals_ns: AtomicOption,
    arrived_ns: AtomicOption,
    /// Settled clients that are still connecting.
    settling: AtomicUsize,
    /// Other clients that will arrive or are still connecting.
    coming: AtomicUsize,
    /// When the traffic begins, ns. The first thread that sets it decides.
    traffic_ns: AtomicOption,
    /// Threads with clients that are not ready for the traffic.
    unready: AtomicUsize,
    /// Threads with work left.
    busy: AtomicUsize,
}

impl Fleet {
    /// Returns a fleet that has not begun.
    pub fn new(plan: Plan, counters: Vec<Arc<FlowCounters>>, threads: usize) -> Self {
        let coming = (plan.settled..plan.clients).filter(|client| plan.due_ns(*client).is_some()).count();
        Self {
            settling: AtomicUsize::new(plan.settled as usize),
            coming: AtomicUsize::new(coming),
            plan,
            register: Register::default(),
            known_sources: Mutex::default(),
            counters,
            at_ns: AtomicOption::none(),
            settled_ns: AtomicOption::none(),
            arrivals_ns: AtomicOption::none(),
            arrived_ns: AtomicOption::none(),
            traffic_ns: AtomicOption::none(),
            unready: AtomicUsize::new(threads),
            busy: AtomicUsize::new(threads),
        }
    }

    /// Begins the fleet at this instant, ns.
    pub fn begin(&self, at_ns: u64) {
        self.at_ns.set(at_ns);
        if self.plan.settled == 0 {
            self.settled_ns.set(at_ns);
            self.begin_arrivals(at_ns);
        }
    }

    /// Returns whether no socket of the fleet has used this address and port before, and records it.
    pub fn is_new_source(&self, source: SocketAddr) -> bool {
        self.known_sources.lock().unwrap_or_else(PoisonError::into_inner).insert(source)
    }

    /// When the fleet begins, ns.
    pub fn at_ns(&self) -> Option<u64> {
        self.at_ns.get()
    }

    /// The instants of the arrivals.
    #[inline]
    pub fn times(&self) -> ArrivalInstants {
        ArrivalInstants {
            settled_ns: self.settled_ns.get(),
            arrivals_ns: self.arrivals_ns.get(),
            arrived_ns: self.arrived_ns.get(),
        }
    }

    /// When the traffic begins, ns; `None`: not known yet.
    #[inline]
    pub fn traffic_ns(&self) -> Option<u64> {
        self.traffic_ns.get()
    }

    /// When the traffic's duration is over, ns; `None`: not known yet.
    pub fn traffic_over_ns(&self) -> Option<u64> {
        let duration_ns = self.plan.traffic.as_ref().map_or(0, |traffic| traffic.duration_ns());
        Some(self.traffic_ns()?.saturating_add(duration_ns))
    }

    /// Reports that all clients of a thread are ready for the traffic, or carry none.
    pub fn ready(&self, now_ns: u64) {
        if self.unready.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.begin_traffic(now_ns);
        }
    }

    /// Begins the traffic with the clients that are ready.
    pub fn begin_traffic(&self, now_ns: u64) {
        self.traffic_ns.set_first(now_ns + AHEAD_NS);
    }

    /// When the fleet leaves at the latest, ns; `None` before it begins. Settling has a separate time limit before the
    /// duration.
    pub fn end_ns(&self) -> Option<u64> {
        let settled_ns = || Some(self.at_ns()?.saturating_add(self.plan.settling_ns));
        let over_ns = |arrivals_ns: u64| arrivals_ns.saturating_add(self.plan.duration_ns);
        self.times().arrivals_ns.map(over_ns).or_else(settled_ns)
    }

    /// Whether only pings keep the fleet running: until their time after the arrivals is over.
    pub fn is_pinged(&self, now_ns: u64) -> bool {
        let until_ns = self.times().arrived_ns.zip(self.plan.pinged_ns);
        let is_over = until_ns.is_some_and(|(arrived_ns, pinged_ns)| now_ns >= arrived_ns.saturating_add(pinged_ns));
        self.plan.ping_ns.is_some() && !is_over
    }

    /// When a client is due, ns; `None` while this is not known, or if it never is.
    pub fn due_ns(&self, client: u32) -> Option<u64> {
        let began_ns = if client < self.plan.settled { self.at_ns() } else { self.times().arrivals_ns };
        Some(began_ns?.saturating_add(self.plan.due_ns(client)?))
    }

    /// Records that a client's arrival has ended, configured or not.
    pub fn arrival_ended(&self, client: u32, now_ns: u64) {
        if client < self.plan.settled {
            if self.settling.fetch_sub(1, Ordering::AcqRel) == 1 {
                let settled_ns = now_ns + AHEAD_NS;
                self.settled_ns.set(settled_ns);
                self.begin_arrivals(settled_ns.saturating_add(self.quiet_ns()));
            }
        } else if self.coming.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The instant lies in the future, so that no ping that was sent meanwhile is answered in another period.
            self.arrived_ns.set(now_ns + AHEAD_NS);
        }
    }

    /// Records that a thread has work again, or has no work left.
    pub fn set_busy(&self, is_busy: bool) {
        if is_busy {
            self.busy.fetch_add(1, Ordering::AcqRel);
        } else {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether no thread has work left.
    pub fn is_done(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
    }

    /// How long settled clients ping before the others arrive, ns. Each client's pings begin within the first gap.
    fn quiet_ns(&self) -> u64 {
        self.plan.ping_ns.map_or(0, |gap_ns| gap_ns.saturating_mul(QUIET_PINGS + 1).max(QUIET_NS))
    }

    fn begin_arrivals(&self, at_ns: u64) {
        self.arrivals_ns.set(at_ns);
        if self.coming.load(Ordering::Acquire) == 0 {
            self.arrived_ns.set(at_ns);
        }
    }
}
