//! What the threads of a fleet share: the plan, who holds what, and the fleet's own course: the settled clients first and a
//! quiet time of theirs, then the arrivals, then traffic, then the end. Its instants are set once, by whichever thread sees
//! that they have come, and far enough ahead that every thread knows of them before they are there.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leadline_tunnel::client::effects::ArrivalTime;

use super::plan::Plan;
use super::register::Register;
use crate::flows::TURN_NS;
use crate::metering::FlowCounters;

/// How long after its cause an instant comes: every thread looks at least once in a turn, and may be busy for another.
const AHEAD_NS: u64 = 4 * TURN_NS;
/// The quiet time before the arrivals, whose pings are the baseline: at least this long, ns, and this many pings of each client.
const QUIET_NS: u64 = 1_000_000_000;
const QUIET_PINGS: u64 = 10;

/// The instants of a fleet's arrivals, ns; `None`: not known yet.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The settled clients have ended their arrival.
    pub settled_ns: Option<u64>,
    /// The other clients begin to arrive.
    pub arrivals_ns: Option<u64>,
    /// All arrivals have ended.
    pub arrived_ns: Option<u64>,
}

impl Times {
    /// Which time an instant belongs to.
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

/// An instant that threads set once and read without a lock.
#[derive(Debug)]
struct Instant(AtomicU64);

impl Instant {
    /// What an instant holds that is not known yet.
    const UNKNOWN: u64 = u64::MAX;

    fn unknown() -> Self {
        Self(AtomicU64::new(Self::UNKNOWN))
    }

    #[inline]
    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|at_ns| *at_ns != Self::UNKNOWN)
    }

    fn set(&self, at_ns: u64) {
        self.0.store(at_ns, Ordering::Release);
    }

    /// Set it, unless another thread has.
    fn set_first(&self, at_ns: u64) {
        let _ = self.0.compare_exchange(Self::UNKNOWN, at_ns, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// See the file's head.
pub struct Fleet {
    pub plan: Plan,
    pub register: Register,
    /// Where its datagrams have come from. A server takes who comes from such an address and port for the client that it knows
    /// there; the lock is taken once for each socket.
    known_sources: Mutex<HashSet<SocketAddr>>,
    /// Each client's, where there is traffic.
    pub counters: Vec<Arc<FlowCounters>>,
    at_ns: Instant,
    settled_ns: Instant,
    arrivals_ns: Instant,
    arrived_ns: Instant,
    /// Settled clients that are still on their way up.
    settling: AtomicUsize,
    /// Others that will come or are on their way up.
    coming: AtomicUsize,
    /// When the traffic begins, and threads with clients that are not ready for it.
    traffic_ns: Instant,
    unready: AtomicUsize,
    /// Threads that have something left to do.
    busy: AtomicUsize,
}

impl Fleet {
    /// Before its start.
    pub fn new(plan: Plan, counters: Vec<Arc<FlowCounters>>, threads: usize) -> Self {
        let coming = (plan.settled..plan.clients).filter(|client| plan.due_ns(*client).is_some()).count();
        Self {
            settling: AtomicUsize::new(plan.settled as usize),
            coming: AtomicUsize::new(coming),
            plan,
            register: Register::default(),
            known_sources: Mutex::default(),
            counters,
            at_ns: Instant::unknown(),
            settled_ns: Instant::unknown(),
            arrivals_ns: Instant::unknown(),
            arrived_ns: Instant::unknown(),
            traffic_ns: Instant::unknown(),
            unready: AtomicUsize::new(threads),
            busy: AtomicUsize::new(threads),
        }
    }

    /// It begins at this instant, ns.
    pub fn begin(&self, at_ns: u64) {
        self.at_ns.set(at_ns);
        if self.plan.settled == 0 {
            self.settled_ns.set(at_ns);
            self.begin_arrivals(at_ns);
        }
    }

    /// Whether no socket of the fleet has had this address and port before.
    pub fn is_new_source(&self, source: SocketAddr) -> bool {
        self.known_sources.lock().unwrap_or_else(PoisonError::into_inner).insert(source)
    }

    /// When it begins, ns.
    pub fn at_ns(&self) -> Option<u64> {
        self.at_ns.get()
    }

    /// The instants of its arrivals.
    #[inline]
    pub fn times(&self) -> Times {
        Times {
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

    /// When the traffic's time is over, ns; `None`: not known yet.
    pub fn traffic_over_ns(&self) -> Option<u64> {
        let duration_ns = self.plan.traffic.as_ref().map_or(0, |traffic| traffic.duration_ns());
        Some(self.traffic_ns()?.saturating_add(duration_ns))
    }

    /// All clients of a thread are ready for the traffic, or carry none.
    pub fn ready(&self, now_ns: u64) {
        if self.unready.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.begin_traffic(now_ns);
        }
    }

    /// The traffic begins, with the clients that are ready.
    pub fn begin_traffic(&self, now_ns: u64) {
        self.traffic_ns.set_first(now_ns + AHEAD_NS);
    }

    /// When the fleet leaves at the latest, ns. Settling has a time of its own, before what comes after it.
    pub fn end_ns(&self) -> u64 {
        let settled_ns = || Some(self.at_ns()?.saturating_add(self.plan.settling_ns));
        let over_ns = |arrivals_ns: u64| arrivals_ns.saturating_add(self.plan.duration_ns);
        self.times().arrivals_ns.map(over_ns).or_else(settled_ns).unwrap_or(u64::MAX)
    }

    /// Whether pings alone keep the fleet together: until their time after the arrivals is over.
    pub fn is_pinged(&self, now_ns: u64) -> bool {
        let until_ns = self.times().arrived_ns.zip(self.plan.pinged_ns);
        let is_over = until_ns.is_some_and(|(arrived_ns, pinged_ns)| now_ns >= arrived_ns.saturating_add(pinged_ns));
        self.plan.ping_ns.is_some() && !is_over
    }

    /// When a client is due, ns; `None` while that is not known, or where it is never.
    pub fn due_ns(&self, client: u32) -> Option<u64> {
        let began_ns = if client < self.plan.settled { self.at_ns() } else { self.times().arrivals_ns };
        Some(began_ns?.saturating_add(self.plan.due_ns(client)?))
    }

    /// A client's arrival has ended for the first time, configured or not.
    pub fn arrival_ended(&self, client: u32, now_ns: u64) {
        if client < self.plan.settled {
            if self.settling.fetch_sub(1, Ordering::AcqRel) == 1 {
                let settled_ns = now_ns + AHEAD_NS;
                self.settled_ns.set(settled_ns);
                self.begin_arrivals(settled_ns.saturating_add(self.quiet_ns()));
            }
        } else if self.coming.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Ahead, so that no ping that has been counted as sent meanwhile is answered in another time.
            self.arrived_ns.set(now_ns + AHEAD_NS);
        }
    }

    /// A thread has something to do again, or nothing any more.
    pub fn set_busy(&self, is_busy: bool) {
        if is_busy {
            self.busy.fetch_add(1, Ordering::AcqRel);
        } else {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
    }

    /// How long settled clients are pinged before the others come, ns. Each begins within the first gap.
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
