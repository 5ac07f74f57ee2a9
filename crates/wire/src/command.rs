//! Commands from the control plane to an agent.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;
use crate::Workload;

/// One line on an agent's stdin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Prepares a task (sockets open, handshakes done); the agent answers `prepared` or `failed`.
    #[schemars(title = "Prepare")]
    Prepare {
        /// The trial that the task belongs to; every event of the task repeats it.
        trial: String,
        /// The task's name, unique within its trial.
        task: String,
        /// What the task does.
        workload: Workload,
    },
    /// Starts every prepared measuring task of the trial at the same instant.
    #[schemars(title = "Start")]
    Start {
        /// The trial to start.
        trial: String,
        /// When to begin, on this agent's monotonic clock, ns. If the instant is past, the task begins at once and
        /// the lateness is visible.
        at_ns: u64,
    },
    /// Ends tasks in order: measuring tasks report their figures, processes get their stop signal.
    #[schemars(title = "Stop")]
    Stop {
        /// The trial whose tasks end.
        trial: String,
        /// Only this task; all of the trial's tasks if absent.
        task: Option<String>,
    },
    /// Samples the host from now on; replaces an earlier `observe`.
    #[schemars(title = "Observe")]
    Observe {
        /// The label of the samples.
        trial: Option<String>,
        /// Time between samples, ms; 0 ends observing.
        period_ms: u32,
        /// Whether to sample resources that hosts on one machine share (CPUs, memory, PSI, softnet) in addition to
        /// the host's own.
        machine: bool,
        /// Process ids to sample in addition to the agent's own processes.
        #[serde(default)]
        pids: Vec<u32>,
        /// Names of programs whose processes to sample in addition.
        #[serde(default)]
        programs: Vec<String>,
        /// Whether to run the soaker: on each CPU a thread of policy SCHED_IDLE that uses what is left of it.
        #[serde(default)]
        soak: bool,
    },
    /// Measures how long an idle CPU takes to wake up (answered by `wake_up`).
    #[schemars(title = "MeasureWakeUp")]
    WakeUp {
        /// Repeated in the response.
        id: u64,
    },
    /// Reports the current network: addresses and routes (answered by `network`).
    #[schemars(title = "Inspect")]
    Inspect {
        /// Repeated in the response.
        id: u64,
    },
    /// Does one exchange of a clock comparison (answered by `clock`).
    #[schemars(title = "Clock")]
    Clock {
        /// Repeated in the response.
        id: u64,
    },
    /// Says that the controller is in reach. After the first one, an agent that hears nothing for 20 s ends as at the end
    /// of its stdin: a network that is cut between them closes nothing.
    #[schemars(title = "ControllerHeartbeat")]
    Heartbeat {},
    /// Stops all tasks and exits.
    #[schemars(title = "Shutdown")]
    Shutdown {},
}

impl Command {
    /// Reads a command from a line. Here, because a caller's own instance of serde's readers for all types of a
    /// command would be compiled with the caller.
    ///
    /// # Errors
    ///
    /// The line is not a command: what is wrong, and where.
    pub fn from_json(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }
}
