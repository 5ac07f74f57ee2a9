//! What a measuring task found.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Counts, CryptoReport, Direction, Side, TunnelReport};

/// The figures of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// One row per flow; http reports one per thread.
    pub flows: Vec<FlowReport>,
    /// Whole-task histograms: `latency` (from due), `service` (from sent), `late` (from when it was due and could be sent,
    /// to sent), each also as `warmup_*` for what was due in the warm-up. HTTP's phases besides: `dns`, `connect`,
    /// `tls_full` and `tls_resumed` per connection, `first_byte` (sent to the answer's first byte) and `transfer` (from there
    /// to its last) per request, and `kernel_wait`: from the kernel's stamp on received bytes to our reading them, a sample.
    pub histograms: Vec<HistogramReport>,
    /// Failed operations by name, the server's as `peer_*`; each is in exactly one.
    pub errors: BTreeMap<String, u64>,
    /// What the first failure of each name said, where there is more to say than the name.
    pub error_examples: BTreeMap<String, String>,
    /// What generating cost on this host.
    pub generator: LoadReport,
    /// What answering cost on the server, where it told.
    pub receiver: Option<LoadReport>,
    /// The kind's own counters.
    pub counts: Counts,
    /// A fleet's clients.
    pub tunnel: Option<Box<TunnelReport>>,
    /// The figures of `crypto`.
    pub crypto: Option<Vec<CryptoReport>>,
}

/// One flow from its first to its last byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowReport {
    /// The flow's number within its task.
    pub flow: u32,
    /// `up` or `down`.
    pub direction: Direction,
    /// When it was to begin, ns.
    pub due_ns: u64,
    /// When its first byte was sent or received, ns; absent where none was.
    pub start_ns: Option<u64>,
    /// When its sender (rr: the one who asks) stopped trying: at the end of its time or number, at a stop or an error, ns.
    /// A stall that lasts to the end therefore belongs to the flow.
    pub end_ns: Option<u64>,
    /// Payload bytes sent by the sending side; absent where the sender did not tell.
    pub sent_bytes: Option<u64>,
    /// Payload bytes received by the receiving side; absent where the receiver did not tell.
    pub received_bytes: Option<u64>,
    /// Datagrams, transactions or requests sent.
    pub sent_units: Option<u64>,
    /// Distinct datagrams, or answers, received.
    pub received_units: Option<u64>,
    /// Datagrams sent and never received.
    pub lost: Option<u64>,
    /// Datagrams received again.
    pub duplicates: Option<u64>,
    /// Datagrams that arrived after one with a higher number (RFC 4737, type-P-reordered).
    pub reordered: Option<u64>,
    /// Mean over the flow of the interarrival jitter (RFC 3550, 6.4.1), µs; absent before two datagrams.
    pub jitter_us: Option<f64>,
    /// Mean latency of what came through a fleet client's tunnel, from when it was due, µs; absent where this side cannot tell.
    pub latency_mean_us: Option<f64>,
    /// The longest of these latencies, µs.
    pub latency_max_us: Option<f64>,
    /// TCP segments sent again.
    pub retransmits: Option<u64>,
    /// Mean of the sampled smoothed round-trip times, µs.
    pub rtt_mean_us: Option<f64>,
    /// Congestion control that the connection used.
    pub congestion: Option<String>,
    /// Local address and port.
    pub local: Option<String>,
    /// Remote address and port.
    pub remote: Option<String>,
}

/// A mergeable histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramReport {
    /// What was recorded, in ns.
    pub metric: String,
    /// How many values it holds.
    pub count: u64,
    /// HdrHistogram, V2 encoding, base64.
    pub hdr_v2: String,
}

/// What a host spent on generating or answering load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    /// Whether this is about the agent's own host.
    pub side: Side,
    /// From the task's first to its last operation, s.
    pub wall_s: f64,
    /// One row per thread that moved payload.
    pub threads: Vec<ThreadReport>,
    /// Sends that the local socket refused to take at once (EAGAIN, ENOBUFS).
    pub pushback: u64,
    /// How late paced sends were, 99th percentile, µs; the generator's own `late` histogram tells more.
    pub late_p99_us: Option<f64>,
    /// Datagrams dropped by a local socket buffer, where the kernel told.
    pub socket_drops: Option<u64>,
    /// How the threads waited for their sockets (`io_uring`, `epoll`), where there is a choice.
    pub engine: Option<String>,
    /// Why it was not the faster engine.
    pub engine_reason: Option<String>,
}

/// One thread's share of a CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadReport {
    /// What the thread did.
    pub name: String,
    /// Time in user mode, s.
    pub user_s: f64,
    /// Time in the kernel, s.
    pub system_s: f64,
    /// Time that it was ready to run and waited for a CPU, s.
    pub runnable_wait_s: Option<f64>,
    /// Time on a CPU that it only waited awake, s: the next send was nearer than a sleep is long. No work, so no part of how
    /// busy it was; absent where it always sleeps.
    pub spun_s: Option<f64>,
    /// Time that this row covers, s.
    pub wall_s: f64,
}
