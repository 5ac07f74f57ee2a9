//! State that the connections of a pool share: settings, source of requests, schedule, queue of idle connections,
//! counts and scratch buffers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use super::channel::Buffers;
use super::effects::Effects;
use super::settings::Settings;
use super::source::{Script, Source};
use super::tally::Tally;
use crate::Schedule;

/// Initial capacity for requests that the system queues, with some spare.
const QUEUED: usize = 64;

/// An idle connection.
pub(super) struct Idle {
    pub index: usize,
    /// Since when the connection is idle, ns.
    pub free_ns: u64,
}

/// A request or batch that the system took and perhaps has not yet handed to the kernel.
pub(super) struct Begun {
    pub index: usize,
    pub epoch: u32,
    pub due_ns: u64,
    /// Since when it could be sent: it was due and its connection was free.
    pub wanted_ns: u64,
}

/// A connection in a script's delay.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Delayed {
    pub ready_ns: u64,
    pub index: usize,
    pub epoch: u32,
}

/// The shared state of a pool.
pub(super) struct Shared<S> {
    pub settings: Arc<Settings>,
    pub source: Source<S>,
    /// The schedule of requests; `None` before the load begins.
    pub schedule: Option<Schedule>,
    /// Idle connections, longest idle first, so that load spreads over all of them.
    pub idle: VecDeque<Idle>,
    /// Connections in a script's delay; the one that ends first is on top.
    pub delayed: BinaryHeap<Reverse<Delayed>>,
    /// Number of connections that are being opened.
    pub opening: usize,
    /// Number of connections that are up.
    pub up: usize,
    /// Requests that were sent and not yet reported as handed to the kernel.
    pub begun: Vec<Begun>,
    /// When a detach handed queued requests to the kernel, ns. Set only within one input, until the pool has recorded
    /// it: no request begins in between.
    pub detach_handed_over_ns: Option<u64>,
    /// When the next deadline of a connection may pass, ns; `None` before a connection was opened. Invariant: it is
    /// never later than the end of an attempt to open a connection, the next attempt of one that is down, or the
    /// deadline of a request that was outstanding at the last check. A request that began after that check times out
    /// no earlier than the check's time plus the time limit, so a request sets no timer.
    pub deadline_ns: Option<u64>,
    pub tally: Tally,
    /// When a script stopped this thread or failed, ns.
    pub stopped_ns: Option<u64>,
    /// Buffers of channels.
    pub buffers: Buffers,
    /// A script's request.
    pub out: Vec<u8>,
}

impl<S: Script> Shared<S> {
    pub fn new(settings: Arc<Settings>, source: Source<S>, connections: usize) -> Self {
        Self {
            settings,
            source,
            schedule: None,
            idle: VecDeque::with_capacity(connections),
            delayed: BinaryHeap::new(),
            opening: 0,
            up: 0,
            begun: Vec::with_capacity(QUEUED),
            detach_handed_over_ns: None,
            deadline_ns: None,
            tally: Tally::default(),
            stopped_ns: None,
            buffers: Buffers::default(),
            out: Vec::new(),
        }
    }

    /// Returns the due time of a request that can be sent now on a connection free since `free_ns`; `None` if none is
    /// due.
    #[inline]
    pub fn take(&mut self, now_ns: u64, free_ns: u64) -> Option<u64> {
        self.schedule.as_mut()?.take(now_ns, free_ns)
    }

    /// Number of requests left to take, each of which may need a connection. `None`: any number, as before the
    /// load begins.
    pub fn requests_left(&self) -> Option<u64> {
        self.schedule.as_ref().and_then(Schedule::left)
    }

    /// Schedules a deadline check at `deadline_ns` at the latest.
    pub fn check_by(&mut self, deadline_ns: u64) {
        self.deadline_ns = Some(self.deadline_ns.map_or(deadline_ns, |earlier_ns| earlier_ns.min(deadline_ns)));
    }

    /// Stops the thread of a failed script, because the script would fail again.
    pub fn script_failed(&mut self, error: &str, requests: u32, effects: &mut impl Effects) {
        effects.count_failure("script_error", u64::from(requests), || error.to_owned());
        self.stopped_ns.get_or_insert(effects.now_ns());
    }
}

/// Records how late a request was handed to the kernel, which is its sending time; returns that time.
#[inline]
pub(super) fn record_late(begun: &Begun, handed_over_ns: u64, tally: &mut Tally, effects: &mut impl Effects) -> u64 {
    let sent_ns = handed_over_ns.max(begun.wanted_ns);
    tally.first_sent_ns.get_or_insert(sent_ns);
    effects.record_late(begun.due_ns, sent_ns - begun.wanted_ns);
    sent_ns
}

/// Returns the earlier of two optional times.
pub(super) fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
