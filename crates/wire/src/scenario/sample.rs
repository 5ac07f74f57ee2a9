//! Single requests and transactions of a scenario, for formats that list each one (JMeter's JTL) and for a look at the
//! slowest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::report::LabelKind;
use crate::schema::JsonSchema;

/// Which requests and transactions an agent reports one by one. Values of masked variables are hidden in whatever it
/// reports of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum SampleRule {
    /// Only the slowest requests: the report's `slowest` has this number in place of 20, with URLs.
    #[schemars(title = "SamplesSlowest")]
    Slowest {
        /// The number, at most [`SLOWEST_LIMIT`].
        count: u32,
    },
    /// All, in `samples` events while the task runs and before it finishes, each one once. Requests that are hidden
    /// by their transaction, redirects that were followed and embedded resources are no samples of their own.
    #[schemars(title = "SamplesAll")]
    All {
        /// Whether requests have their URL.
        #[serde(default)]
        with_urls: bool,
    },
}

/// The most rows of a report's `slowest`.
pub const SLOWEST_LIMIT: u32 = 10_000;

/// Requests and transactions in the order in which they ended on their thread. Columns have a value per row; `failures`,
/// `openings` and `transactions` have entries for some rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleBatch {
    /// This host's wall clock minus its CLOCK_MONOTONIC, ns: an instant plus this is the time since 1970.
    pub wall_offset_ns: i64,
    /// The names of this batch.
    pub names: Vec<SampleName>,
    /// The index of each row's name in `names`.
    pub name: Vec<u32>,
    /// The user's number in its population, from 1.
    pub user: Vec<u32>,
    /// When a request was wanted or a transaction began, ns. JTL's `timeStamp`, with `wall_offset_ns`.
    pub due_ns: Vec<u64>,
    /// Time from then to its end, ns: the whole response, with redirects, or the failure; without waits for a transaction
    /// that does not include them. JTL's `elapsed`.
    pub elapsed_ns: Vec<u64>,
    /// Of this, time until the request was sent (opening a connection, or waiting for a free one), ns; absent if it was
    /// not sent, and for transactions.
    pub before_sent_ns: Vec<Option<u64>>,
    /// Of this, time from sent to the response's first byte, ns; absent if there was none, and for transactions. JTL's
    /// `Latency` is `before_sent_ns` plus this.
    pub first_byte_ns: Vec<Option<u64>>,
    /// Status code; absent if there was no response, and for transactions.
    pub status: Vec<Option<u16>>,
    /// Bytes sent, head included; of a transaction those of its requests.
    pub sent_bytes: Vec<u64>,
    /// Bytes received, head included; of a transaction those of its requests.
    pub received_bytes: Vec<u64>,
    /// Users of its population that existed when it ended. JTL's `grpThreads`.
    pub group_active: Vec<u32>,
    /// Users of the test that existed when it ended. JTL's `allThreads`.
    pub all_active: Vec<u32>,
    /// The URL, after redirects; absent for transactions. Empty unless it was asked for.
    pub urls: Vec<Option<String>>,
    /// The rows that failed.
    pub failures: Vec<SampleFailure>,
    /// The requests that opened a connection.
    pub openings: Vec<SampleOpening>,
    /// The transactions.
    pub transactions: Vec<SampleTransaction>,
    /// Requests and transactions of this task that ended so far and are in no batch, because the reader of the events
    /// was slower than they ended.
    pub left_out: u64,
}

/// What a sample is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleName {
    /// The label.
    pub name: String,
    /// A request or a transaction.
    pub kind: LabelKind,
    /// The name of its population. JTL's `threadName` is made of this and `user`.
    pub population: String,
    /// Its tags, as in the report.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// Why a sample failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleFailure {
    /// The row.
    pub row: u32,
    /// The cause, as in a label's `errors`.
    pub cause: String,
    /// What is wrong, in words, cut at 1000 bytes.
    pub message: String,
}

/// A connection that was opened for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleOpening {
    /// The row.
    pub row: u32,
    /// Resolving the name, ns; absent if the address was known.
    pub dns_ns: Option<u64>,
    /// The TCP handshake, ns.
    pub connect_ns: u64,
    /// The TLS handshake, ns; absent without TLS. JTL's `Connect` is the sum of these three.
    pub tls_ns: Option<u64>,
}

/// What only a transaction has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampleTransaction {
    /// The row.
    pub row: u32,
    /// Waits in it, ns. JTL's `IdleTime`, if its time includes them.
    pub waits_ns: u64,
    /// Requests in it that ended.
    pub requests: u32,
    /// Of these, how many failed.
    pub failed: u32,
}
