//! Events from an agent to the control plane.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scenario::{SampleBatch, ScenarioProgress};
use crate::schema::JsonSchema;
use crate::{
    Capability, Counts, HistogramReport, HostFacts, LinkCounts, NetworkView, Observation, Outcome, Side, ThreadReport,
    WakeUpFacts,
};

/// One line on an agent's stdout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The first line: the agent's identity and capabilities.
    #[schemars(title = "Hello")]
    Hello {
        /// When the line was written, ns.
        t_ns: u64,
        /// The contract's version that the agent speaks.
        protocol: u32,
        /// The agent's own version.
        agent_version: String,
        /// The Cargo profile that built the agent, `release` where it is one for measurements; absent from older
        /// agents.
        build_profile: Option<String>,
        /// The agent's process id on its host.
        pid: u32,
        /// The host's fingerprint.
        host: HostFacts,
        /// The features that work on this host, and the reason for each one that does not.
        capabilities: Vec<Capability>,
    },
    /// A line that is written every second.
    #[schemars(title = "Heartbeat")]
    Heartbeat {
        /// When the line was written, ns.
        t_ns: u64,
    },
    /// An interface of the host was set up or down, or its carrier came or went. Written when the kernel reports it.
    #[schemars(title = "LinkChanged")]
    Link {
        /// When the kernel's report was read, ns. It reports the loss of a carrier up to one second later.
        t_ns: u64,
        /// The interface's name.
        name: String,
        /// Whether the host has it set up.
        is_up: bool,
        /// Whether it has a carrier: the other end of its cable is there.
        has_carrier: bool,
        /// Times that it lost its carrier since it was made; absent on old kernels.
        carrier_losses: Option<u32>,
        /// Whether it is gone.
        is_removed: bool,
    },
    /// The response to `clock`.
    #[schemars(title = "ClockReply")]
    Clock {
        /// The id of the command.
        id: u64,
        /// When the command was read, ns.
        received_ns: u64,
        /// When this line was written, ns.
        sent_ns: u64,
    },
    /// The response to `inspect`.
    #[schemars(title = "NetworkReply")]
    Network {
        /// The id of the command.
        id: u64,
        /// When the network was read, ns.
        t_ns: u64,
        /// Addresses and routes.
        view: NetworkView,
    },
    /// The response to `wake_up`.
    #[schemars(title = "WakeUpReply")]
    WakeUp {
        /// The id of the command.
        id: u64,
        /// When the measurement had ended, ns.
        t_ns: u64,
        /// The times; absent if they could not be measured.
        found: Option<WakeUpFacts>,
    },
    /// The task is ready: a process has been started, or a server listens.
    #[schemars(title = "Prepared")]
    Prepared {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When, ns.
        t_ns: u64,
        /// A process task's id on the host.
        pid: Option<u32>,
        /// A serve task's session port, as bound.
        port: Option<u16>,
        /// A serve task's HTTP port, as bound.
        http_port: Option<u16>,
        /// A serve task's HTTPS port, as bound.
        https_port: Option<u16>,
    },
    /// A measuring task began.
    #[schemars(title = "Started")]
    Started {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When it was due to begin, ns.
        due_ns: u64,
        /// When it began, ns.
        t_ns: u64,
    },
    /// The counters of a measuring task's flows so far.
    #[schemars(title = "Progress")]
    Progress {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When the counters were read, ns, on this agent's clock even if the peer counted.
        t_ns: u64,
        /// The side that counted.
        side: Side,
        /// Cumulative counters since the task began.
        flows: Vec<FlowProgress>,
        /// Histograms of this interval only.
        histograms: Vec<HistogramReport>,
        /// The state of the load, about once a second, for the kinds of load that report it.
        standing: Option<Standing>,
        /// The transactions, requests and users of a scenario.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scenario: Option<Box<ScenarioProgress>>,
    },
    /// Requests and transactions of a scenario that have ended, if the workload asks for them. Batches of a task have
    /// at most 2000 rows each, and come in no order of time among its threads.
    #[schemars(title = "Samples")]
    Samples {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When the batch was closed, ns.
        t_ns: u64,
        /// The batch.
        samples: Box<SampleBatch>,
    },
    /// A measuring task ended by itself or was stopped; its figures are complete.
    #[schemars(title = "Finished")]
    Finished {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When, ns.
        t_ns: u64,
        /// Its figures.
        outcome: Outcome,
    },
    /// A task or a command failed.
    #[schemars(title = "Failed")]
    Failed {
        /// The task's trial, if there is one.
        trial: Option<String>,
        /// The task, if there is one.
        task: Option<String>,
        /// When, ns.
        t_ns: u64,
        /// The error.
        error: ErrorReport,
    },
    /// A sample of the host.
    #[schemars(title = "ObservationEvent")]
    Observation(Observation),
    /// A line of a process that `report` asked for, or that a script printed.
    #[schemars(title = "OutputLine")]
    Output {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When it was read, ns.
        t_ns: u64,
        /// The line, without its end, cut at 4096 bytes.
        line: String,
    },
    /// A process ended, as requested or not.
    #[schemars(title = "Exited")]
    Exited {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When, ns.
        t_ns: u64,
        /// Its exit code, if it exited.
        code: Option<i32>,
        /// The signal that ended it, if one did.
        signal: Option<i32>,
        /// Whether `stop` or `shutdown` had requested it.
        expected: bool,
        /// What it used, with the children that it waited for; absent if the system does not say.
        usage: Option<ExitUsage>,
    },
    /// The samples of a stopped `profile`.
    #[schemars(title = "Profiled")]
    Profiled {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When, ns.
        t_ns: u64,
        /// Samples in `folded`.
        samples: u64,
        /// Samples of the rarest stacks, omitted if all would be too long for a line.
        left_out: u64,
        /// A line per call stack: the thread's name, its frames from the outermost on, separated by `;`; a space; and
        /// its number of samples. This is the input of flame graphs.
        folded: String,
    },
    /// The counters of an `emulate` task, every interval and when it has ended.
    #[schemars(title = "Emulated")]
    Emulated {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When they were read, ns.
        t_ns: u64,
        /// Frames from `a` to `b`.
        a_to_b: LinkCounts,
        /// Frames from `b` to `a`.
        b_to_a: LinkCounts,
        /// Whether the task has ended: these are its last counters.
        ended: bool,
    },
}

impl Event {
    /// Returns the event as JSON, without a newline. Here for the same reason as [`crate::Command::from_json`].
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("an event is plain data"))
    }
}

/// What a process that has ended used, with the children that it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExitUsage {
    /// CPU time in user mode, s.
    pub user_s: f64,
    /// CPU time in the kernel, s.
    pub system_s: f64,
    /// The largest resident memory of one of these processes, bytes.
    pub max_resident_bytes: u64,
}

/// One flow's cumulative counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowProgress {
    /// The flow's number within its task.
    pub flow: u32,
    /// Payload bytes sent.
    pub sent_bytes: u64,
    /// Payload bytes received.
    pub received_bytes: u64,
    /// Datagrams, transactions or requests sent; absent for a byte stream.
    pub sent_units: Option<u64>,
    /// Datagrams, transactions or responses received; absent for a byte stream.
    pub received_units: Option<u64>,
    /// Datagrams that had not arrived when a later one had; only on the side that receives numbered datagrams.
    pub missing_units: Option<u64>,
    /// TCP segments retransmitted since the flow began; only on the sending side of a byte stream, if the kernel
    /// reports it.
    pub retransmits: Option<u64>,
    /// The kernel's smoothed round-trip time at its last reading, µs; only on the sending side of a byte stream.
    pub rtt_us: Option<u32>,
    /// The variance of that time, µs; as with the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_variance_us: Option<u32>,
    /// The congestion window, bytes; as with the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_window_bytes: Option<u64>,
    /// The path's MTU, bytes; as with the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu_bytes: Option<u32>,
    /// The rate at which the kernel paces segments, bit/s; as with the round-trip time, of the first 64 flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_bps: Option<u64>,
    /// The rate at which the peer acknowledged recently, bit/s; as with the pacing rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_bps: Option<u64>,
    /// Time since the flow began with data to send or under way, µs; as with the pacing rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_us: Option<u64>,
    /// Part of it in which the peer's window was full, µs; as with the pacing rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver_limited_us: Option<u64>,
    /// Part of it in which the send buffer was too small, µs; as with the pacing rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer_limited_us: Option<u64>,
    /// The window that the peer announced last, bytes; as with the pacing rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_window_bytes: Option<u32>,
    /// How often, since the flow began, acknowledgements showed that the path had changed the order of segments; as with
    /// the pacing rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorderings: Option<u32>,
    /// The receiving side's estimate of the round-trip time, µs; only on the receiving side of a byte stream, of the first
    /// 64 flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_rtt_us: Option<u32>,
    /// The window that the receiving side announced last, bytes; as with its round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_window_bytes: Option<u32>,
    /// Segments that arrived before one with a lower sequence number; as with the receiving side's round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u32>,
}

/// The state of a load, beyond its flows' counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// The kind's own counters so far.
    pub counts: Counts,
    /// Failed operations by name, so far.
    pub errors: BTreeMap<String, u64>,
    /// The cost so far of each thread that moves payload.
    pub threads: Vec<ThreadReport>,
}

/// The party at fault for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The request was wrong.
    Input,
    /// The other end broke a protocol or refused.
    Peer,
    /// The operating system refused.
    System,
}

/// An error as text and as a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    /// The party at fault.
    pub blame: Blame,
    /// Stable name in snake case: `connection_refused`, `address_in_use`, `no_such_file` ...
    pub code: String,
    /// One line for a person: what failed, where, and what would be right.
    pub message: String,
}
