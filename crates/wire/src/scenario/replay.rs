//! Recorded traffic that is sent again: where it is read, when its requests are due, what is left out, and what became
//! of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// The largest number of copies of each session.
pub const REPLAY_COPIES_LIMIT: u32 = 1_000;

/// Recorded requests that are sent again, each session of the source by one user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Where they are read, on the agent's host.
    pub source: ReplaySource,
    /// When they are due.
    pub pace: ReplayPace,
    /// The URL that they go to; its path is put before theirs unless it is `/`.
    pub target: String,
    /// A second target that every request goes to as well; the answers of both are compared.
    #[serde(default)]
    pub against: Option<String>,
    /// Recorded hosts whose requests go elsewhere.
    #[serde(default)]
    pub hosts: Vec<ReplayHost>,
    /// How often each session is sent at once, each copy as a user of its own.
    pub copies: u32,
    /// The first instant of the source that is replayed; its beginning if absent.
    #[serde(default)]
    pub begin: Option<ReplayInstant>,
    /// The instant of the source that the replay ends before; its end if absent.
    #[serde(default)]
    pub end: Option<ReplayInstant>,
    /// Only requests that fit one of these patterns of `METHOD TARGET` or of a target; `*` stands for any text. All if
    /// empty.
    #[serde(default)]
    pub only: Vec<String>,
    /// Whether requests of methods that change something are sent too: all but GET, HEAD and OPTIONS.
    pub writes: bool,
    /// Whether answers are compared with those of the source.
    pub compares: bool,
    /// Whether each request is sent to its target twice: what differs between the two answers differs by itself.
    pub notices_noise: bool,
    /// Whether values that an answer gave in the source are replaced by those that it gives now.
    pub correlates: bool,
}

/// Where recorded requests are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum ReplaySource {
    /// A file or a pipe.
    #[schemars(title = "ReplayFile")]
    File {
        /// Its path on the agent's host.
        path: String,
        /// Its format: a name, or a format string of the daemon that wrote it. Recognised by its content if absent.
        #[serde(default)]
        format: Option<String>,
        /// Of a capture: the server's port; any if absent.
        #[serde(default)]
        port: Option<u16>,
        /// Whether requests are read while they are written: what has come is not kept back.
        #[serde(default)]
        follows: bool,
    },
    /// The requests that an interface of the agent's host receives.
    #[schemars(title = "ReplayCapture")]
    Capture {
        /// The interface.
        device: String,
        /// The server's port.
        port: u16,
    },
}

/// When recorded requests are due.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum ReplayPace {
    /// At their own times: `(t - first) / speed` after the start.
    #[schemars(title = "ReplayAsRecorded")]
    Recorded {
        /// How much faster than recorded.
        speed: f64,
    },
    /// At a constant rate, in their order.
    #[schemars(title = "ReplayAtRate")]
    Rate {
        /// Requests per second.
        per_s: f64,
    },
}

/// An instant of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum ReplayInstant {
    /// By the source's clock.
    #[schemars(title = "ReplayAt")]
    At {
        /// ms since 1970.
        epoch_ms: i64,
    },
    /// After its first request.
    #[schemars(title = "ReplayAfter")]
    After {
        /// ms.
        ms: u64,
    },
}

/// Where the requests of a recorded host go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayHost {
    /// The host as recorded, with its port if it was recorded with one.
    pub host: String,
    /// The URL that its requests go to.
    pub target: String,
}

/// What became of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayReport {
    /// The source's format, as recognised or as given.
    pub format: String,
    /// What distinguished sessions, in words.
    pub sessions_by: String,
    /// Requests of the source that were read.
    pub read: u64,
    /// Requests that were passed on to be sent, copies and second targets included.
    pub passed_on: u64,
    /// Requests and records that were not replayed, by cause.
    pub left_out: BTreeMap<String, u64>,
    /// Requests that lay further back in the source than it is put in order; they were sent at once.
    pub reordered: u64,
    /// Sessions of the source among those passed on, copies included, as far as memory sufficed to distinguish them.
    pub sessions: u64,
    /// The first request's time by the source's clock, ms since 1970; absent without one.
    pub first_epoch_ms: Option<i64>,
    /// The time between the first request and the last one in the source, ms; absent without one.
    pub length_ms: Option<f64>,
    /// How exact the source's times are, ms. Times of whole seconds are spread within their second.
    pub precision_ms: f64,
    /// Requests that waited for the answer before them in their session.
    pub waited: u64,
    /// Requests that had not been read when they were due; absent where they are sent as they come.
    pub read_late: Option<u64>,
    /// Answers that were compared.
    pub compared: u64,
    /// Of these, answers with a difference that is no noise.
    pub differing: u64,
    /// Answers whose bodies could not be compared: in a coding that is not read, too large, or too many at once.
    pub not_compared: u64,
    /// Values that were replaced in requests by those of new answers.
    pub replaced: u64,
    /// What differed: the most frequent first.
    pub differences: Vec<ReplayDifference>,
    /// Differences of further parts, which are counted alone.
    pub more_differences: u64,
    /// Why reading ended before the end of the source; absent if it did not.
    pub broken_off: Option<String>,
}

/// A part of the answers to requests of one name that differed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDifference {
    /// The requests' name.
    pub label: String,
    /// What differed: `status`, `length`, `body`, or a field of JSON as `items[].price`.
    pub part: String,
    /// In how many answers.
    pub count: u64,
    /// Whether it also differed between two answers of one target.
    pub is_noise: bool,
    /// The first one that was seen: before, in the source or from the first target; absent where it may be a secret.
    pub before: Option<String>,
    /// The same now, or from the second target.
    pub after: Option<String>,
}
