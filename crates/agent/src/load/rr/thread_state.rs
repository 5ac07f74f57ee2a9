//! What the request-response flows of one thread share: buffers, the poll, and where durations and errors are recorded.

use std::collections::BTreeMap;
use std::io;

use leadline_stats::Histogram;
use leadline_sys::poll::Poll;
use leadline_transport::{Transaction, HEADER_BYTES};
use leadline_wire::RrSpec;

use crate::flows::count_error;
use crate::metering::Recorder;

const LATENCY: usize = 0;
/// Ages of transactions that were given up: their latency is at least this long.
const LATENCY_CENSORED: usize = 1;
/// From sent to answered, where the latency begins with the due time.
const SERVICE: usize = 2;
const CONNECT: usize = 3;
/// The names of the durations that are recorded.
pub const METRICS: &[&str] = &["latency", "latency_censored", "service", "connect"];

/// How long a flow waits after a request could not be sent, ns: the reason rarely passes at once.
pub const PAUSE_NS: u64 = 10_000_000;
/// The size of the buffers for many small requests or responses, bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// The parameters that a thread's flows share.
#[derive(Clone, Copy, Debug)]
pub struct ThreadWork {
    token: u64,
    request_bytes: usize,
    response_bytes: usize,
    outstanding: u32,
    /// Whether requests have due times.
    pub has_schedule: bool,
    /// Whether the thread polls without sleeping.
    pub spins: bool,
}

impl ThreadWork {
    /// The parameters of this load in the session with this token.
    pub fn new(spec: &RrSpec, token: u64) -> Self {
        Self {
            token,
            request_bytes: spec.request_bytes as usize,
            response_bytes: spec.response_bytes as usize,
            outstanding: spec.outstanding,
            has_schedule: spec.rate_per_s.is_some(),
            spins: spec.busy_poll,
        }
    }
}

/// What a thread's flows share.
pub struct ThreadState {
    /// Waits for their sockets.
    pub poll: Poll,
    /// The session's token.
    pub token: u64,
    /// Requests, as many as are sent at once, after room for the preface of a connection.
    pub requests: Vec<u8>,
    /// Payload of a request, bytes.
    pub request_bytes: usize,
    /// Room for responses.
    pub responses: Vec<u8>,
    /// Payload of a response, bytes.
    pub response_bytes: usize,
    /// Whether the thread polls without sleeping.
    pub spins: bool,
    /// How long it polled in vain, ns.
    pub spun_ns: u64,
    /// Where durations go.
    pub recorder: Recorder,
    has_schedule: bool,
    /// By how much requests missed their due times, ns.
    pub late: Histogram,
    /// Failed operations by name.
    pub errors: BTreeMap<String, u64>,
}

/// When and what a flow sent and received, for its report.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowTimes {
    /// When the first request was sent.
    pub start_ns: Option<u64>,
    /// When the last response arrived.
    pub last_ns: Option<u64>,
    /// When the flow was closed.
    pub closed_ns: Option<u64>,
}

impl ThreadState {
    /// The state of a thread with this many flows.
    pub fn new(work: ThreadWork, flows: usize, recorder: Recorder) -> io::Result<Self> {
        let ThreadWork { token, request_bytes, response_bytes, outstanding, has_schedule, spins } = work;
        let many = |bytes: usize| bytes.saturating_mul(outstanding as usize).min(BLOCK_BYTES.max(bytes));
        Ok(Self {
            poll: Poll::new(flows.saturating_mul(outstanding as usize).clamp(1, 256))?,
            token,
            requests: vec![0; HEADER_BYTES + many(request_bytes)],
            request_bytes,
            // One byte more than a response shows an answer that is too long.
            responses: vec![0; many(response_bytes).max(HEADER_BYTES) + 1],
            response_bytes,
            spins,
            spun_ns: 0,
            recorder,
            has_schedule,
            late: Histogram::new(),
            errors: BTreeMap::new(),
        })
    }

    /// Records an answered transaction.
    #[inline]
    pub fn answered(&mut self, transaction: Transaction, now: u64) {
        let Transaction { due_ns, sent_ns, .. } = transaction;
        self.recorder.record(LATENCY, due_ns, now.saturating_sub(due_ns));
        if self.has_schedule {
            self.recorder.record(SERVICE, due_ns, now.saturating_sub(sent_ns));
        }
    }

    /// Records the time that a connection took to open.
    pub fn connected(&mut self, due_ns: u64, took_ns: u64) {
        self.recorder.record(CONNECT, due_ns, took_ns);
    }

    /// Records a transaction without an answer.
    pub fn given_up(&mut self, transaction: Transaction, now: u64) {
        self.recorder.record(LATENCY_CENSORED, transaction.due_ns, now.saturating_sub(transaction.due_ns));
    }

    /// Records by how much a request missed its due time.
    #[inline]
    pub fn sent_late(&mut self, late_ns: u64) {
        if self.has_schedule {
            self.late.record(late_ns);
        }
    }

    /// Counts a failed operation.
    pub fn count_error(&mut self, name: &str) {
        count_error(&mut self.errors, name);
    }
}
