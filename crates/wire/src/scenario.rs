//! A scenario: virtual users that send requests in the order of a flow. This is the intermediate representation into
//! which every format (YAML, JMX, HAR) is translated and which the agent executes. Owns the plan of a scenario: its
//! variables, data and populations. `arrivals` has the load models, `node` the steps of a flow, `request` the
//! requests with their extractors and checks, `expression` the templates and expressions, `report` the figures,
//! `sample` single requests, `replay` recorded traffic that is sent again.
//!
//! Conventions: a field that is absent, empty or false has no effect, unless its description says otherwise. Scoping
//! (of defaults, timers, assertions and the like) is resolved by the reader of the format: a node has everything that
//! applies to it. References between parts are by name. Depth is limited by [`SCENARIO_DEPTH_LIMIT`], the number of
//! nodes by [`SCENARIO_NODE_LIMIT`], and the whole specification by the length of a line.

mod arrivals;
mod expression;
mod node;
mod place;
mod replay;
mod report;
mod request;
mod sample;

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

pub use self::arrivals::{Arrivals, FirstArrival, IterationEnd, OpenStage, Spacing, UserStage};
pub use self::expression::{Expression, Op, Scalar, Template, TemplatePart};
pub use self::node::{
    Branch, Case, ControlAction, LoopRule, Node, NodeAction, NormalSign, ThroughputScope, ThroughputStage, WaitRule,
};
pub use self::place::SourcePlace;
pub use self::replay::{
    Replay, ReplayDifference, ReplayHost, ReplayInstant, ReplayPace, ReplayReport, ReplaySource, REPLAY_COPIES_LIMIT,
};
pub use self::report::{
    CheckReport, IterationCounts, LabelKind, LabelProgress, LabelReport, PopulationProgress, PopulationReport,
    ScenarioProgress, ScenarioReport, SlowRequest,
};
pub use self::request::{
    BasicAuth, Check, CheckTest, EmbeddedRule, Extractor, Find, HeaderTemplate, Match, MissRule, MultipartPart,
    OutputPart, PageElement, PageElementKind, Parameter, RequestBody, ScenarioRequest, Severity, StatusRange, Subject,
};
pub use self::sample::{
    SampleBatch, SampleFailure, SampleName, SampleOpening, SampleRule, SampleTransaction, SLOWEST_LIMIT,
};
use crate::{HttpRoute, HttpTimeouts, IpVersion, SocketOptions, TlsSpec};

/// The largest depth of nested nodes in a flow.
pub const SCENARIO_DEPTH_LIMIT: usize = 40;
/// The largest number of nodes of a scenario.
pub const SCENARIO_NODE_LIMIT: usize = 100_000;

/// A scenario and how its requests reach the servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioSpec {
    /// The scenario.
    pub plan: ScenarioPlan,
    /// Seed of all random values; the same seed makes each user draw the same values.
    pub seed: u64,
    /// Threads that drive the users; the users are distributed evenly.
    pub threads: u32,
    /// CPUs that the threads are pinned to, in turn; no pinning if empty.
    pub cpus: Vec<u32>,
    /// The longest time that the main phase may take, ms, including the warm-up. Iterations that run at its end are
    /// ended in the populations' order.
    pub duration_ms: u64,
    /// Leading time whose figures are kept but flagged, ms.
    pub warmup_ms: u64,
    /// Connections that each user may have open to one server at once.
    pub connections_per_user: u32,
    /// Connections that each thread may have open at once; a request waits for a free one. Unlimited if absent.
    pub connections: Option<u32>,
    /// Only this family if a name has several addresses.
    pub ip_version: Option<IpVersion>,
    /// Time limits of each phase, unless a request has its own.
    pub timeouts: HttpTimeouts,
    /// The way to the servers.
    pub route: HttpRoute,
    /// Socket options.
    pub socket: SocketOptions,
    /// TLS, for `https` URLs.
    pub tls: Option<TlsSpec>,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
    /// Which requests are reported one by one; none if absent.
    #[serde(default)]
    pub samples: Option<SampleRule>,
    /// Whether one `progress` event a second has the figures so far, by which a threshold may end the test.
    #[serde(default)]
    pub reports_so_far: bool,
}

/// What users do, with which data, and when they begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioPlan {
    /// Its name in reports.
    pub name: String,
    /// Variables of the whole test. Their values are computed once, in order, before the first population begins;
    /// every user starts with a copy.
    #[serde(default)]
    pub variables: Vec<Variable>,
    /// Rows of data.
    #[serde(default)]
    pub feeders: Vec<Feeder>,
    /// Contents of request bodies and uploads.
    #[serde(default)]
    pub files: Vec<ScenarioFile>,
    /// The users, at least one population, unless there is a replay.
    pub populations: Vec<Population>,
    /// Recorded traffic to send again, in place of populations.
    #[serde(default)]
    pub replay: Option<Replay>,
    /// Origins (`https://shop.test:8443`) that requests may go to. A request to another one is not sent and fails as
    /// `target_not_allowed`. Any origin if empty.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Names of variables whose values are masked in every output, wherever they come from: initial values, data,
    /// extractors or steps.
    #[serde(default)]
    pub masked: Vec<String>,
}

/// A variable and its initial value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Template,
    /// Whether all users share it, as JMeter's properties. If not, each user has its own copy.
    #[serde(default)]
    pub is_shared: bool,
}

/// Rows of data that users take in turn by `feed` nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feeder {
    /// Its name.
    pub name: String,
    /// The variable that each column sets.
    pub columns: Vec<String>,
    /// The rows, each with a text per column; missing texts are empty.
    pub rows: Vec<Vec<String>>,
    /// Who takes rows from the same position.
    pub share: FeederShare,
    /// In which order rows are taken.
    pub order: FeederOrder,
    /// What happens after the last row.
    pub at_end: FeederEnd,
}

/// Who takes rows of a feeder from the same position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeederShare {
    /// All users of the test.
    Test,
    /// The users of one population.
    Population,
    /// Each user alone: each begins with the first row.
    User,
}

/// In which order rows of a feeder are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeederOrder {
    /// From the first to the last.
    Sequential,
    /// In a random order, each row once per pass.
    Shuffled,
    /// A random row each time; there is no last row.
    Random,
    /// Each row is for one user. User n of N has rows n, n + N, n + 2 N and so on, over all populations that share them.
    /// If one of these is an open model, whose users come and go, each row is for the next user that asks.
    Unique,
}

/// What happens when a feeder has no further row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum FeederEnd {
    /// The first row follows.
    #[schemars(title = "FeederRecycles")]
    Recycle {},
    /// The user that asks ends.
    #[schemars(title = "FeederStopsUser")]
    StopUser {},
    /// The test ends as by `stop_test`.
    #[schemars(title = "FeederStopsTest")]
    StopTest {},
    /// Each column's variable is set to this text.
    #[schemars(title = "FeederGivesText")]
    Text {
        /// The text, such as JMeter's `<EOF>`.
        text: String,
    },
}

/// The content of a file that requests send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// The name by which requests refer to it: its path as the format has it.
    pub name: String,
    /// Its content, base64.
    pub content_base64: String,
}

/// Users with the same flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Population {
    /// Its name, unique in the plan.
    pub name: String,
    /// Where its definition is.
    #[serde(default)]
    pub source: Option<SourcePlace>,
    /// Tags of all its nodes.
    #[serde(default)]
    pub tags: std::collections::BTreeMap<String, String>,
    /// When it runs.
    pub phase: Phase,
    /// Populations of the same phase that must have ended before it begins.
    #[serde(default)]
    pub after: Vec<String>,
    /// When it begins, ms after its phase, or after the last population of `after` has ended.
    #[serde(default)]
    pub start_delay_ms: u64,
    /// When users and iterations begin and end.
    pub arrivals: Arrivals,
    /// How an iteration that runs when its time is over ends.
    pub end: IterationEnd,
    /// What a user does after a failed request.
    pub on_error: OnError,
    /// Whether each iteration is a new user: with a number of its own, its own variables, cookies and connections. If
    /// not, they are kept from one iteration to the next.
    #[serde(default)]
    pub new_user_each_iteration: bool,
    /// Whether each iteration begins with the cookies that the first one began with.
    #[serde(default)]
    pub clear_cookies_each_iteration: bool,
    /// Whether cached responses are forgotten when an iteration begins.
    #[serde(default)]
    pub clear_cache_each_iteration: bool,
    /// Whether connections are closed when an iteration begins.
    #[serde(default)]
    pub close_connections_each_iteration: bool,
    /// Variables whose values are computed for each user when it begins.
    #[serde(default)]
    pub variables: Vec<Variable>,
    /// Nodes that a user executes once, before its first iteration.
    #[serde(default)]
    pub before: Vec<Node>,
    /// Nodes that a user executes in each iteration.
    pub flow: Vec<Node>,
    /// Nodes that a user executes once, after its last iteration.
    #[serde(default)]
    pub afterwards: Vec<Node>,
}

/// The phase of a test. The next one begins when all populations of the last one have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the measured time.
    Setup,
    /// The measured time.
    Main,
    /// After the measured time; also after a stop.
    Teardown,
    /// After the measured time; not after a stop.
    TeardownUnlessStopped,
}

/// What a user does after a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// It goes on.
    Continue,
    /// It ends the iteration, which has failed, and begins the next one.
    NextIteration,
    /// It ends.
    StopUser,
    /// The test ends: no iteration begins, and running ones end as their population says.
    StopTest,
    /// The test ends at once.
    StopTestNow,
}
