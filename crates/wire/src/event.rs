//! What an agent tells the control plane.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Capability, Counts, HistogramReport, HostFacts, NetworkView, Observation, Outcome, ThreadReport};

/// One line on an agent's stdout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The first line: who this is and what it can do.
    #[schemars(title = "Hello")]
    Hello {
        /// When it was said, ns.
        t_ns: u64,
        /// The contract's version that the agent speaks.
        protocol: u32,
        /// The agent's own version.
        agent_version: String,
        /// The agent's process id on its host.
        pid: u32,
        /// The host's fingerprint.
        host: HostFacts,
        /// What works here, and why something does not.
        capabilities: Vec<Capability>,
    },
    /// Said each second, whatever else goes on.
    #[schemars(title = "Heartbeat")]
    Heartbeat {
        /// When it was said, ns.
        t_ns: u64,
    },
    /// Answer to `clock`.
    #[schemars(title = "ClockReply")]
    Clock {
        /// The command's.
        id: u64,
        /// When the command was read, ns.
        received_ns: u64,
        /// When this line was written, ns.
        sent_ns: u64,
    },
    /// Answer to `inspect`.
    #[schemars(title = "NetworkReply")]
    Network {
        /// The command's.
        id: u64,
        /// When it was read, ns.
        t_ns: u64,
        /// Addresses and routes.
        view: NetworkView,
    },
    /// The task is ready; a process has been started, a server listens.
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
        /// When it was told to begin, ns.
        due_ns: u64,
        /// When it began, ns.
        t_ns: u64,
    },
    /// How far a measuring task's flows have come.
    #[schemars(title = "Progress")]
    Progress {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When the counters were read, ns, on this agent's clock also where the peer counted.
        t_ns: u64,
        /// Who counted.
        side: Side,
        /// Cumulative counters since the task began.
        flows: Vec<FlowProgress>,
        /// Histograms of this interval alone.
        histograms: Vec<HistogramReport>,
        /// How the load stands; about once a second, of the kinds that tell.
        standing: Option<Standing>,
    },
    /// A measuring task ended by itself or was stopped; its figures are whole.
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
    /// A task, or a command, could not be carried out.
    #[schemars(title = "Failed")]
    Failed {
        /// The task's trial, where there is one.
        trial: Option<String>,
        /// The task, where there is one.
        task: Option<String>,
        /// When, ns.
        t_ns: u64,
        /// What happened.
        error: ErrorReport,
    },
    /// What the host was doing.
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
    /// A process ended, asked to or not.
    #[schemars(title = "Exited")]
    Exited {
        /// The task's trial.
        trial: String,
        /// The task.
        task: String,
        /// When, ns.
        t_ns: u64,
        /// Its exit code, where it exited.
        code: Option<i32>,
        /// The signal that ended it, where one did.
        signal: Option<i32>,
        /// Whether `stop` or `shutdown` had asked for it.
        expected: bool,
    },
    /// What a stopped `profile` found.
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
        /// Samples of the rarest stacks, left out where all would be too long for a line.
        left_out: u64,
        /// A line per call stack: its frames from the outermost on, the thread's name first, with `;` between them; a space;
        /// and its number of samples. What flame graphs are drawn from.
        folded: String,
    },
}

/// Who counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// This agent.
    Local,
    /// The server that this agent's load goes to.
    Peer,
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
    /// Datagrams that had not arrived when a later one had; of the side that receives numbered datagrams.
    pub missing_units: Option<u64>,
    /// TCP segments sent again since the flow began; of the sending side of a byte stream, where the kernel tells.
    pub retransmits: Option<u64>,
    /// The kernel's smoothed round-trip time when it was last read, µs; of the sending side of a byte stream.
    pub rtt_us: Option<u32>,
}

/// What a load has come to so far, beyond its flows' counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// The kind's own counters so far.
    pub counts: Counts,
    /// Failed operations by name, so far.
    pub errors: BTreeMap<String, u64>,
    /// What each thread that moves payload has cost so far.
    pub threads: Vec<ThreadReport>,
}

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The request was wrong.
    Input,
    /// The other end broke a protocol or refused.
    Peer,
    /// The operating system said no.
    System,
}

/// An error in words and as a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorReport {
    /// Whose fault it is.
    pub blame: Blame,
    /// Stable name in snake case: `connection_refused`, `address_in_use`, `no_such_file` ...
    pub code: String,
    /// One line for a person: what, where, and what would be right.
    pub message: String,
}
