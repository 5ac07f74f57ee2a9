//! The result of a measuring task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scenario::ScenarioReport;
use crate::schema::JsonSchema;
use crate::{Counts, CryptoReport, Direction, HistogramReport, PacketsReport, TcpReport, TunnelReport};

/// The figures of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// One row per flow; http reports one per thread.
    pub flows: Vec<FlowReport>,
    /// Whole-task histograms: `latency` (from due), `service` (from sent), `late` (from when it was due and could be
    /// sent, to sent), each also as `warmup_*` for operations due in the warm-up. For HTTP also its phases: `dns`,
    /// `connect`, `tls_full` and `tls_resumed` per connection, `first_byte` (from sent to the response's first byte)
    /// and `transfer` (from there to its last) per request, and `kernel_wait` (from the kernel's timestamp on
    /// received bytes to the read) for a sample.
    pub histograms: Vec<HistogramReport>,
    /// Failed operations by name, the server's as `peer_*`; each is counted under exactly one name.
    pub errors: BTreeMap<String, u64>,
    /// The message of the first failure of each name, if it says more than the name.
    pub error_examples: BTreeMap<String, String>,
    /// The cost of generating on this host.
    pub generator: LoadReport,
    /// The cost of answering on the server, if the server reported it.
    pub receiver: Option<LoadReport>,
    /// The kind's own counters.
    pub counts: Counts,
    /// A fleet's clients.
    pub tunnel: Option<Box<TunnelReport>>,
    /// The figures of `crypto`.
    pub crypto: Option<Vec<CryptoReport>>,
    /// The figures of a scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<Box<ScenarioReport>>,
    /// The figures of a packet generator or receiver; frames' delays are the histogram `one_way_delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Box<PacketsReport>>,
}

/// One flow from its first to its last byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowReport {
    /// The flow's number within its task.
    pub flow: u32,
    /// `up` or `down`.
    pub direction: Direction,
    /// When it was due to begin, ns.
    pub due_ns: u64,
    /// When its first byte was sent or received, ns; absent if there was none.
    pub start_ns: Option<u64>,
    /// When its sender (for rr: the client) stopped trying, ns: at the end of its time or number, at a stop or an
    /// error. A stall that lasts to the end is therefore part of the flow.
    pub end_ns: Option<u64>,
    /// Payload bytes sent by the sending side; absent if the sender did not report them.
    pub sent_bytes: Option<u64>,
    /// Payload bytes received by the receiving side; absent if the receiver did not report them.
    pub received_bytes: Option<u64>,
    /// Datagrams, transactions or requests sent.
    pub sent_units: Option<u64>,
    /// Distinct datagrams or responses received.
    pub received_units: Option<u64>,
    /// Datagrams sent and never received.
    pub lost: Option<u64>,
    /// Datagrams received more than once.
    pub duplicates: Option<u64>,
    /// Datagrams that arrived after one with a higher number (RFC 4737, type-P-reordered).
    pub reordered: Option<u64>,
    /// Mean over the flow of the interarrival jitter (RFC 3550, 6.4.1), µs; absent with fewer than two datagrams.
    pub jitter_us: Option<f64>,
    /// Mean latency of packets through a fleet client's tunnel, from when they were due, µs; absent if this side
    /// cannot measure it.
    pub latency_mean_us: Option<f64>,
    /// The longest of these latencies, µs.
    pub latency_max_us: Option<f64>,
    /// TCP segments retransmitted.
    pub retransmits: Option<u64>,
    /// Mean of the sampled smoothed round-trip times, µs.
    pub rtt_mean_us: Option<f64>,
    /// Congestion control that the connection used.
    pub congestion: Option<String>,
    /// Congestion control of the other end, if that is an iperf3 server that reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_congestion: Option<String>,
    /// Local address and port.
    pub local: Option<String>,
    /// Remote address and port.
    pub remote: Option<String>,
    /// The kernel's figures of the sending end of a byte stream, if that end reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_tcp: Option<Box<TcpReport>>,
    /// The kernel's figures of the receiving end of a byte stream, if that end reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver_tcp: Option<Box<TcpReport>>,
    /// More figures of numbered datagrams; absent for other flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Box<DatagramReport>>,
}

/// Figures of the numbered datagrams of one flow in addition to their counts; each is absent if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatagramReport {
    /// Whether the sender passed batches of datagrams to the kernel as one (UDP_SEGMENT).
    pub segmented: Option<bool>,
    /// Datagrams that the receiver's kernel had merged with others of the same arrival time (UDP_GRO).
    pub coalesced: Option<u64>,
    /// Whether the receiver stopped counting, 20 s after the sender's end, while datagrams still arrived: those that are
    /// missing are late or lost.
    pub is_cut_off: Option<bool>,
    /// Runs of consecutive datagrams that never arrived, the one at the end included.
    pub loss_bursts: Option<LengthsReport>,
    /// For datagrams that arrived late, how many arrived between the first one with a higher number and them (RFC
    /// 4737, 4.2.2).
    pub reorder_extents: Option<LengthsReport>,
    /// Datagrams that arrived late and whose extent is unknown, because too many gaps were open.
    pub unknown_extents: Option<u64>,
    /// From sending to arrival, by two clocks.
    pub one_way_delay: Option<DelayReport>,
}

/// How often lengths occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LengthsReport {
    /// How many there were.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The longest one; 0 if there was none.
    pub longest: u64,
    /// Element `i` counts lengths of at least 2^i and less than 2^(i+1).
    pub by_doubling: Vec<u64>,
}

impl LengthsReport {
    /// Counts one more length; 0 is none.
    pub fn add(&mut self, length: u64) {
        let Some(doubling) = length.checked_ilog2() else { return };
        let doublings = self.by_doubling.len().max(doubling as usize + 1);
        self.by_doubling.resize(doublings, 0);
        let counted = &mut self.by_doubling[doubling as usize];
        *counted = counted.saturating_add(1);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(length);
        self.longest = self.longest.max(length);
    }
}

/// Delays from one host to another. The true values differ from these by at most the bound, all in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayReport {
    /// The shortest, µs; negative if the clocks' difference is not known well enough.
    pub min_us: f64,
    /// Their mean, µs.
    pub mean_us: f64,
    /// The longest, µs.
    pub max_us: f64,
    /// The bound of the difference between both clocks, µs: half of the shortest round trip of their comparison; 0 if
    /// both ends have the same clock. Absent in a receiver's own report.
    pub bound_us: Option<f64>,
}

/// The side that counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// This agent.
    Local,
    /// The server that this agent's load goes to.
    Peer,
}

/// The cost of generating or answering load on a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    /// Whether this is the agent's own host or the peer.
    pub side: Side,
    /// From the task's first to its last operation, s.
    pub wall_s: f64,
    /// One row per thread that moved payload.
    pub threads: Vec<ThreadReport>,
    /// Sends that the local socket did not accept at once (EAGAIN, ENOBUFS).
    pub pushback: u64,
    /// Lateness of paced sends, 99th percentile, µs; the generator's own `late` histogram has more detail.
    pub late_p99_us: Option<f64>,
    /// Datagrams dropped by a local socket buffer, if the kernel reported it.
    pub socket_drops: Option<u64>,
    /// How the threads waited for their sockets (`io_uring`, `epoll`), if there is a choice.
    pub engine: Option<String>,
    /// The reason why the faster engine was not used.
    pub engine_reason: Option<String>,
    /// The CPU time of its whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<MachineUse>>,
    /// The CPU quota that holds for its agent, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaUse>,
}

/// What a CPU quota kept from an agent while its load ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaUse {
    /// The folder of the control group with the quota.
    pub group: String,
    /// The quota, in CPUs.
    pub cpus: f64,
    /// Time that this row covers, s.
    pub wall_s: f64,
    /// Time for which the group's threads were kept from running, s: the sum over CPUs.
    pub throttled_s: f64,
}

/// The CPU time of a machine, of all its programs and of the kernel's work for none of them, and what the load's flows moved
/// on this side in the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineUse {
    /// The kernel's identity since its boot: the same on both sides only if they share a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Time that this row covers, s.
    pub wall_s: f64,
    /// CPUs.
    pub cpus: u32,
    /// Time of all CPUs that was neither idle nor taken by a hypervisor, s.
    pub busy_s: f64,
    /// Part of it in soft interrupts: most of the network stack, s.
    pub softirq_s: f64,
    /// Payload bytes that this side sent in this time.
    pub sent_bytes: u64,
    /// Payload bytes that this side received in this time.
    pub received_bytes: u64,
    /// Datagrams or transactions that this side sent in this time; 0 for byte streams.
    pub sent_units: u64,
    /// Datagrams or transactions that this side received in this time; 0 for byte streams.
    pub received_units: u64,
}

/// One thread's share of a CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadReport {
    /// The thread's role.
    pub name: String,
    /// Time in user mode, s.
    pub user_s: f64,
    /// Time in the kernel, s.
    pub system_s: f64,
    /// Time that it was runnable and waited for a CPU, s.
    pub runnable_wait_s: Option<f64>,
    /// Time on a CPU that it busy-waited, s, because the next send was due sooner than a sleep takes. It does not
    /// count towards how busy the thread was; absent if the thread always sleeps.
    pub spun_s: Option<f64>,
    /// Time that this row covers, s.
    pub wall_s: f64,
}
