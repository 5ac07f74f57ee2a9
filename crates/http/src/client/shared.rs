//! What the connections of a pool share: settings, the source of requests and when they are due, the queue of idle
//! connections, counts and scratch buffers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use super::effects::Effects;
use super::settings::Settings;
use super::source::{Script, Source};
use super::tally::Tally;
use crate::Schedule;

/// Requests that the system may queue before it hands them over, with some to spare.
const QUEUED: usize = 64;

/// An idle connection.
pub(super) struct Idle {
    pub index: usize,
    /// Since when it is idle, ns.
    pub free_ns: u64,
}

/// A request, or a batch, that the system has and the kernel perhaps not yet.
pub(super) struct Begun {
    pub index: usize,
    pub epoch: u32,
    pub due_ns: u64,
    /// From when on it could be sent: it was due and its connection free.
    pub wanted_ns: u64,
}

/// A connection that a script lets wait.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Delayed {
    pub ready_ns: u64,
    pub index: usize,
    pub epoch: u32,
}

/// See the file's head.
pub(super) struct Shared<S> {
    pub settings: Arc<Settings>,
    pub source: Source<S>,
    /// When requests are due; nothing is before the load begins.
    pub schedule: Option<Schedule>,
    /// Idle connections, the longest idle one first, so that load spreads over all of them.
    pub idle: VecDeque<Idle>,
    /// Connections that a script lets wait, the one that is ready first on top.
    pub delayed: BinaryHeap<Reverse<Delayed>>,
    /// How many connections are being opened.
    pub opening: usize,
    /// How many connections carry requests.
    pub up: usize,
    /// What was sent and is not known to have been handed to the kernel: as much as the system queues.
    pub begun: Vec<Begun>,
    /// When a detach handed over what was queued, ns. Set only within one input, until the pool has noted it: no request
    /// begins between the two.
    pub detach_handed_over_ns: Option<u64>,
    /// When the next deadline of a connection may pass, ns; `None` before a connection was opened. Invariant: it is never
    /// later than the end of an attempt to open a connection or the next attempt of one that is down, nor than the deadline
    /// of a request that was outstanding when deadlines were last checked. A request that began later is not overdue before
    /// that check's time plus the time limit, so a request sets no timer.
    pub deadline_ns: Option<u64>,
    pub tally: Tally,
    /// When the script said that this thread is to end, or failed, ns.
    pub stopped_ns: Option<u64>,
    /// Plaintext that has been received.
    pub plain: Vec<u8>,
    /// Records of TLS that hold a request.
    pub sealed: Vec<u8>,
    /// Handshakes, or a script's request.
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
            plain: Vec::new(),
            sealed: Vec::new(),
            out: Vec::new(),
        }
    }

    /// The due time of a request that may be sent now on a connection free since `free_ns`; `None` where none is due.
    #[inline]
    pub fn take(&mut self, now_ns: u64, free_ns: u64) -> Option<u64> {
        self.schedule.as_mut()?.take(now_ns, free_ns)
    }

    /// How many requests are still to be handed out, each of which may need a connection. Before the load begins there is
    /// no limit.
    pub fn requests_left(&self) -> u64 {
        self.schedule.as_ref().map_or(u64::MAX, Schedule::left)
    }

    /// Looks at deadlines at `deadline_ns` at the latest.
    pub fn look_by(&mut self, deadline_ns: u64) {
        self.deadline_ns = Some(self.deadline_ns.map_or(deadline_ns, |earlier_ns| earlier_ns.min(deadline_ns)));
    }

    /// A script that fails ends its thread: it would fail again.
    pub fn script_failed(&mut self, error: &str, requests: u32, effects: &mut impl Effects) {
        effects.count_failure("script_error", u64::from(requests), || error.to_owned());
        self.stopped_ns.get_or_insert(effects.now_ns());
    }
}

/// Records how late a request was that was handed to the kernel at this time, which is when it counts as sent; returns when
/// it was sent.
#[inline]
pub(super) fn record_late(begun: &Begun, handed_over_ns: u64, tally: &mut Tally, effects: &mut impl Effects) -> u64 {
    let sent_ns = handed_over_ns.max(begun.wanted_ns);
    tally.first_sent_ns.get_or_insert(sent_ns);
    effects.record_late(begun.due_ns, sent_ns - begun.wanted_ns);
    sent_ns
}

/// The earlier of two instants that may be absent.
pub(super) fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
