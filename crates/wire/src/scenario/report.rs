//! The figures of a scenario: of each population, of each transaction and of each request name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::replay::ReplayReport;
use crate::schema::JsonSchema;
use crate::HistogramReport;

/// The figures of a scenario at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioReport {
    /// One row per population, in the plan's order.
    pub populations: Vec<PopulationReport>,
    /// One row per request name and transaction, in the flow's order.
    pub labels: Vec<LabelReport>,
    /// The slowest requests, the slowest first.
    pub slowest: Vec<SlowRequest>,
    /// Memory of the users (registers, cookies, stacks), bytes; absent if it was not measured.
    pub users_memory_bytes: Option<u64>,
    /// Of a replay: what became of its source; absent for other scenarios, and while it runs.
    #[serde(default)]
    pub replay: Option<Box<ReplayReport>>,
}

/// Iterations by what became of them. Each iteration that was due is in exactly one of `dropped`, `not_begun`,
/// `completed`, `failed`, `interrupted` and, before the end, `running`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IterationCounts {
    /// Iterations that were due; in closed models those that began.
    pub due: u64,
    /// Iterations that began.
    pub begun: u64,
    /// Of these, iterations that began more than 1 ms after they were due.
    pub late: u64,
    /// Iterations without a free user.
    pub dropped: u64,
    /// Iterations that were due and had not begun when the time was over.
    pub not_begun: u64,
    /// Iterations that reached their end without a failed request.
    pub completed: u64,
    /// Iterations that ended with a failed request in them.
    pub failed: u64,
    /// Iterations that were ended before their end because the time was over, or by a stop.
    pub interrupted: u64,
    /// Iterations that run at this moment.
    pub running: u64,
}

/// The figures of a population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PopulationReport {
    /// Its name.
    pub name: String,
    /// Whether its phase is the main one.
    pub is_main: bool,
    /// Its iterations.
    pub iterations: IterationCounts,
    /// Users that began.
    pub users_begun: u64,
    /// The largest number of users at once.
    pub users_most: u64,
    /// When it began, ns; absent if it did not.
    pub start_ns: Option<u64>,
    /// When its last iteration ended, ns.
    pub end_ns: Option<u64>,
    /// Distributions: `iteration` (from its beginning to its end) and, in open models, `iteration_due` (from due to
    /// its end) and `start_late` (from due to its beginning).
    pub histograms: Vec<HistogramReport>,
}

/// What a label names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LabelKind {
    /// Requests.
    Request,
    /// A transaction.
    Transaction,
}

/// The figures of the requests or transactions of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelReport {
    /// The name.
    pub name: String,
    /// Requests or a transaction.
    pub kind: LabelKind,
    /// The population that it belongs to, by its index.
    pub population: u32,
    /// How many ended; each request and transaction that began is in `ended` or `interrupted`.
    pub ended: u64,
    /// Of these, how many failed.
    pub failed: u64,
    /// Requests without a response, and transactions without an end, when the time was over.
    pub interrupted: u64,
    /// Failures by cause; their sum is `failed`. A failed check counts as `check_failed`, a status as `status_404`
    /// and the like.
    pub errors: BTreeMap<String, u64>,
    /// The message of the first failure of each cause.
    pub error_examples: BTreeMap<String, String>,
    /// Its checks.
    pub checks: Vec<CheckReport>,
    /// Extractions that found nothing, by variable.
    pub misses: BTreeMap<String, u64>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Redirects followed.
    pub redirects: u64,
    /// Requests that were answered from the user's cache; they are not in `ended`.
    pub cached: u64,
    /// Resources of pages that were fetched with them.
    #[serde(default)]
    pub resources: u64,
    /// Distributions of those that ended, failed ones included if they had a response: `latency` (from when it was
    /// wanted), `service` (from sent), each also as `warmup_*`; for requests also `first_byte`; for transactions
    /// `waits` (the waits in it).
    pub histograms: Vec<HistogramReport>,
    /// Its tags: those of its population and of the nodes around it, the innermost of a name. Requests of one name with
    /// different tags have a row each.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Whether all its requests are hidden by a transaction from lists of samples.
    #[serde(default)]
    pub is_hidden: bool,
}

/// The results of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckReport {
    /// Its name.
    pub name: String,
    /// How often it passed.
    pub passed: u64,
    /// How often it failed.
    pub failed: u64,
}

/// One of the slowest requests, with its phases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequest {
    /// The index of its row in `labels`.
    pub label: u32,
    /// The user's number in its population, from 1.
    pub user: u32,
    /// When it was wanted, ns.
    pub due_ns: u64,
    /// Time from then to its response's end or failure, µs.
    pub latency_us: f64,
    /// Of this, time until it was sent (opening a connection, or waiting for a free one), µs.
    pub before_sent_us: f64,
    /// Of this, time from sent to the response's first byte, µs; absent if there was none.
    pub first_byte_us: Option<f64>,
    /// Status code; absent if there was no response.
    pub status: Option<u16>,
    /// The cause of its failure; absent if it succeeded.
    pub error: Option<String>,
    /// Of the time before it was sent, resolving the name, µs; absent if the address was known.
    #[serde(default)]
    pub dns_us: Option<f64>,
    /// Of the time before it was sent, the TCP handshake, µs; absent on a connection that was open.
    #[serde(default)]
    pub connect_us: Option<f64>,
    /// Of the time before it was sent, the TLS handshake, µs; absent on a connection that was open, or without TLS.
    #[serde(default)]
    pub tls_us: Option<f64>,
    /// The URL, after redirects; absent unless it was asked for.
    #[serde(default)]
    pub url: Option<String>,
}

/// The figures of a scenario while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioProgress {
    /// One row per population.
    pub populations: Vec<PopulationProgress>,
    /// One row per label that had an event in the interval, or that has distributions.
    pub labels: Vec<LabelProgress>,
    /// The figures since the beginning, without the slowest requests; absent in most events.
    #[serde(default)]
    pub so_far: Option<Box<ScenarioReport>>,
}

/// A population while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PopulationProgress {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Users that are in an iteration.
    pub users_active: u64,
    /// Users that exist.
    pub users: u64,
    /// Its iterations so far.
    pub iterations: IterationCounts,
    /// Distributions of those that ended in the last second, as in the report; empty in most events.
    #[serde(default)]
    pub histograms: Vec<HistogramReport>,
}

/// A label in one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelProgress {
    /// The name.
    pub name: String,
    /// Requests or a transaction.
    pub kind: LabelKind,
    /// How many ended in the interval.
    pub ended: u64,
    /// Of these, how many failed.
    pub failed: u64,
    /// Failures in the interval by cause.
    pub errors: BTreeMap<String, u64>,
    /// `latency` in the interval, warm-up included.
    pub latency: HistogramReport,
    /// Its tags, as in the report.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Distributions of the last second without its warm-up, as in the report; empty in most events. Absent where the
    /// scenario has more than 40 names.
    #[serde(default)]
    pub histograms: Option<Vec<HistogramReport>>,
}
