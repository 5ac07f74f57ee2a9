//! What the control plane asks of an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Workload;

/// One line on an agent's stdin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Make a task ready (sockets open, handshakes done) and answer `prepared` or `failed`.
    #[schemars(title = "Prepare")]
    Prepare {
        /// The trial that the task belongs to; every event of the task repeats it.
        trial: String,
        /// The task's name, unique within its trial.
        task: String,
        /// What the task does.
        workload: Workload,
    },
    /// Let every prepared measuring task of the trial begin at the same instant.
    #[schemars(title = "Start")]
    Start {
        /// The trial to start.
        trial: String,
        /// When to begin, on this agent's monotonic clock, ns. An instant in the past begins at once and shows as lateness.
        at_ns: u64,
    },
    /// End tasks in order: measuring ones report what they have, processes get their stop signal.
    #[schemars(title = "Stop")]
    Stop {
        /// The trial whose tasks end.
        trial: String,
        /// Only this task; all of the trial's where absent.
        task: Option<String>,
    },
    /// Sample the host from now on; replaces an earlier `observe`.
    #[schemars(title = "Observe")]
    Observe {
        /// What the samples are labelled with.
        trial: Option<String>,
        /// Time between samples, ms; 0 ends observing.
        period_ms: u32,
        /// Whether to sample what hosts on one machine share (CPUs, memory, PSI, softnet) besides the host's own.
        machine: bool,
    },
    /// Report the network as it is now: addresses and routes (answered by `network`).
    #[schemars(title = "Inspect")]
    Inspect {
        /// Repeated in the answer.
        id: u64,
    },
    /// One exchange of a clock comparison (answered by `clock`).
    #[schemars(title = "Clock")]
    Clock {
        /// Repeated in the answer.
        id: u64,
    },
    /// Stop everything and exit.
    #[schemars(title = "Shutdown")]
    Shutdown {},
}
