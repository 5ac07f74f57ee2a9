//! The steps of a flow: a tree, whose leaves send, wait, set or control.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::expression::{Expression, Template};
use super::place::SourcePlace;
use super::request::ScenarioRequest;
use crate::schema::JsonSchema;

/// A step of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name in figures. A request without one has its method and path as they are written; a transaction needs
    /// one; others have no figures.
    #[serde(default)]
    pub label: Option<String>,
    /// Where it is defined.
    #[serde(default)]
    pub source: Option<SourcePlace>,
    /// Tags of it and of the nodes in it.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// What it does.
    pub action: NodeAction,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum NodeAction {
    /// Executes nodes one after another.
    #[schemars(title = "SequenceNode")]
    Sequence {
        /// The nodes.
        nodes: Vec<Node>,
    },
    /// Sends a request and awaits its response.
    #[schemars(title = "RequestNode")]
    Request(Box<ScenarioRequest>),
    /// Sends requests at the same time and awaits all of them. Its nodes are requests.
    #[schemars(title = "ParallelNode")]
    Parallel {
        /// The requests.
        nodes: Vec<Node>,
        /// Requests at once; the others follow in order. As many as there are if absent.
        #[serde(default)]
        at_once: Option<u32>,
    },
    /// Executes nodes repeatedly.
    #[schemars(title = "LoopNode")]
    Loop {
        /// How often.
        rule: LoopRule,
        /// The variable that holds the number of the pass, from 0.
        #[serde(default)]
        counter: Option<String>,
        /// The nodes.
        nodes: Vec<Node>,
    },
    /// Executes nodes if a condition is true.
    #[schemars(title = "IfNode")]
    If {
        /// The condition.
        condition: Expression,
        /// The nodes.
        nodes: Vec<Node>,
        /// The nodes if the condition is false.
        #[serde(default)]
        otherwise: Vec<Node>,
    },
    /// Executes the nodes of the first case that equals a value.
    #[schemars(title = "SwitchNode")]
    Switch {
        /// The value.
        value: Template,
        /// The cases.
        cases: Vec<Case>,
        /// The nodes if no case equals it.
        #[serde(default)]
        otherwise: Vec<Node>,
    },
    /// Executes one branch, chosen at random in proportion to the weights.
    #[schemars(title = "WeightedNode")]
    Weighted {
        /// The branches.
        branches: Vec<Branch>,
    },
    /// Executes one branch at each pass, in turn.
    #[schemars(title = "InterleaveNode")]
    Interleave {
        /// The branches; their weights are ignored.
        branches: Vec<Branch>,
        /// Whether all users share the turn.
        #[serde(default)]
        is_shared: bool,
    },
    /// Executes all branches, in a random order.
    #[schemars(title = "ShuffleNode")]
    Shuffle {
        /// The branches; their weights are ignored.
        branches: Vec<Branch>,
    },
    /// Executes nodes at a share of the passes, evenly spread and not at random: at pass i (from 0) after d
    /// executions if (100 d + 50) / (i + 1) < `percent`. JMeter's throughput controller.
    #[schemars(title = "PercentNode")]
    Percent {
        /// The share, percent.
        percent: Expression,
        /// Whether each user counts its own passes. If not, all users count together.
        is_per_user: bool,
        /// The nodes.
        nodes: Vec<Node>,
    },
    /// Executes nodes at the first passes only.
    #[schemars(title = "TimesNode")]
    Times {
        /// Number of executions.
        times: Expression,
        /// Whether each user counts its own passes. If not, all users count together.
        is_per_user: bool,
        /// The nodes.
        nodes: Vec<Node>,
    },
    /// Executes nodes only at the first pass of the enclosing loop, or at the user's first iteration if there is
    /// none.
    #[schemars(title = "OnceNode")]
    Once {
        /// The nodes.
        nodes: Vec<Node>,
    },
    /// Executes nodes as one transaction: its time is from the beginning of the first node to the end of the last
    /// one, and it fails with a request in it.
    #[schemars(title = "TransactionNode")]
    Transaction {
        /// Whether its time includes waits.
        includes_waits: bool,
        /// Whether its requests are hidden in tables that list samples. JMeter's parent samples.
        #[serde(default)]
        hides_requests: bool,
        /// The nodes.
        nodes: Vec<Node>,
    },
    /// Says that an open transaction has passed or failed, whatever its requests did.
    #[schemars(title = "OutcomeNode")]
    Outcome {
        /// Whether it has passed.
        passed: bool,
        /// The label of the transaction; the innermost one if absent. Nothing happens where it is not open.
        #[serde(default)]
        transaction: Option<String>,
    },
    /// Waits.
    #[schemars(title = "WaitNode")]
    Wait {
        /// How long.
        wait: WaitRule,
    },
    /// Sets variables, in order.
    #[schemars(title = "SetNode")]
    Set {
        /// The variable.
        variable: String,
        /// Its value; a variable that is set to nothing is unset.
        value: Expression,
        /// Whether all users share it.
        #[serde(default)]
        is_shared: bool,
    },
    /// Takes the next row of a feeder and sets its variables.
    #[schemars(title = "FeedNode")]
    Feed {
        /// The feeder's name.
        feeder: String,
    },
    /// Changes the user's jar or connections.
    #[schemars(title = "CookieNode")]
    SetCookie {
        /// The cookie's name.
        name: Template,
        /// Its value; the cookie is removed if it is empty.
        value: Template,
        /// Its domain, which its subdomains share.
        domain: Template,
        /// Its path; `/` if empty.
        #[serde(default)]
        path: Template,
    },
    /// Ends something.
    #[schemars(title = "ControlNode")]
    Control {
        /// What.
        control: ControlAction,
    },
    /// Executes a script.
    #[schemars(title = "ScriptNode")]
    Script {
        /// Its text in Lua.
        lua: String,
    },
    /// Something of the format that cannot be executed. An agent refuses the scenario.
    #[schemars(title = "OpaqueNode")]
    Opaque {
        /// What it is, such as `JSR223Sampler (groovy)`.
        what: String,
        /// Its text.
        text: String,
    },
}

/// How often a loop is executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum LoopRule {
    /// A number of times.
    #[schemars(title = "LoopCount")]
    Count {
        /// The number, computed when the loop begins.
        times: Expression,
    },
    /// Until the user ends.
    #[schemars(title = "LoopForever")]
    Forever {},
    /// As long as a condition is true.
    #[schemars(title = "LoopWhile")]
    While {
        /// The condition.
        condition: Expression,
        /// Whether the condition is checked after each pass only, so that there is at least one.
        #[serde(default)]
        checks_after: bool,
    },
    /// Once for each text.
    #[schemars(title = "LoopEach")]
    Each {
        /// The variable that holds the text.
        variable: String,
        /// The texts.
        values: Vec<Template>,
    },
    /// Once for each of the variables `prefix_1`, `prefix_2` and so on that are set.
    #[schemars(title = "LoopEachVariable")]
    EachVariable {
        /// The variable that holds the value.
        variable: String,
        /// What the names begin with, with its separator (`id_`).
        prefix: Template,
        /// The first number; 1 if absent.
        #[serde(default)]
        from: Option<Expression>,
        /// The last number; until a variable is not set if absent.
        #[serde(default)]
        to: Option<Expression>,
    },
    /// For a time; the last pass is completed.
    #[schemars(title = "LoopTime")]
    Time {
        /// The time, ms.
        duration_ms: Expression,
    },
}

/// A case of a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The text that the value is compared with.
    pub value: String,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// A branch of a choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// Its weight, greater than 0.
    pub weight: f64,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// How long a user waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum WaitRule {
    /// Always the same time.
    #[schemars(title = "ConstantWait")]
    Constant {
        /// The time, ms.
        ms: Expression,
    },
    /// Uniformly distributed.
    #[schemars(title = "UniformWait")]
    Uniform {
        /// The shortest time, ms.
        from_ms: Expression,
        /// The longest time, ms.
        to_ms: Expression,
    },
    /// Normally distributed.
    #[schemars(title = "NormalWait")]
    Normal {
        /// The mean, ms.
        mean_ms: Expression,
        /// The standard deviation, ms.
        deviation_ms: Expression,
        /// What becomes of a negative time.
        negative: NormalSign,
    },
    /// A constant plus a Poisson-distributed number of ms. JMeter's Poisson timer.
    #[schemars(title = "PoissonWait")]
    Poisson {
        /// The constant, ms.
        offset_ms: Expression,
        /// The distribution's mean, ms.
        lambda_ms: Expression,
    },
    /// Exponentially distributed.
    #[schemars(title = "ExponentialWait")]
    Exponential {
        /// The mean, ms.
        mean_ms: Expression,
    },
    /// Until this time after the user last passed this node, or after its iteration began if it has not. A late user
    /// goes on at once, and its next time counts from there. Gatling's `pace`, LoadRunner's pacing.
    #[schemars(title = "PacingWait")]
    Pacing {
        /// The time, ms.
        ms: Expression,
    },
    /// As long as needed so that this node is passed at most at a rate.
    #[schemars(title = "ThroughputWait")]
    Throughput {
        /// Nodes of the same name count together; this node counts alone if absent.
        #[serde(default)]
        name: Option<String>,
        /// The rate, per minute; with stages, at the beginning.
        per_minute: Expression,
        /// How the rate changes from the beginning of the phase on, in consecutive stages; after the last one it stays.
        /// Without stages, a rate of 0 is no limit.
        #[serde(default)]
        stages: Vec<ThroughputStage>,
        /// Whose passes count together.
        scope: ThroughputScope,
        /// Whether the intervals are random (exponentially distributed) instead of even.
        #[serde(default)]
        is_random: bool,
    },
    /// Until a number of users wait at the node.
    #[schemars(title = "RendezvousWait")]
    Rendezvous {
        /// Nodes of the same name are one rendezvous; this node is one alone if absent.
        #[serde(default)]
        name: Option<String>,
        /// The number; all users of the population if 0.
        users: Expression,
        /// How long at most, ms; without limit if 0.
        timeout_ms: Expression,
    },
}

/// A stage during which the rate of a throughput wait changes linearly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThroughputStage {
    /// The rate at its end, per minute.
    pub per_minute: f64,
    /// Duration, ms; with 0 the rate changes at once.
    pub duration_ms: u64,
}

/// What becomes of a negative time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormalSign {
    /// It is 0.
    Zero,
    /// It is its absolute value. JMeter's Gaussian timer.
    Absolute,
}

/// Whose passes of a node count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThroughputScope {
    /// Each user has the rate.
    User,
    /// The rate is divided by the number of active users of the population: each user has its share.
    PopulationShare,
    /// The rate is divided by the number of active users of the test: each user has its share.
    TestShare,
    /// The users of the population pass one after another at the rate.
    Population,
    /// All users pass one after another at the rate.
    Test,
}

/// What a control node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlAction {
    /// The pass of the enclosing loop; the next one begins. The iteration if there is no loop.
    NextPass,
    /// The enclosing loop. The iteration if there is no loop.
    BreakLoop,
    /// The iteration; the next one begins.
    NextIteration,
    /// The user.
    StopUser,
    /// The test: no iteration begins, and running ones end as their population says.
    StopTest,
    /// The test, at once.
    StopTestNow,
}
