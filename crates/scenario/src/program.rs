//! A compiled scenario: flat instructions, expressions over numbered variables, and tables. Immutable; all threads
//! share it. `compile` makes it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use fancy_regex::Regex;
use leadline_wire::scenario::{
    Arrivals, ControlAction, Feeder, IterationEnd, NormalSign, OnError, Op, OutputPart, PageElementKind, Phase,
    Severity, StatusRange, ThroughputScope, ThroughputStage,
};

pub use super::label::{Label, LabelName};
use super::outgoing::Outgoing;
use super::value::Value;

/// A compiled scenario.
#[derive(Debug, Default)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Seed of random values.
    pub seed: u64,
    /// Instructions of all flows.
    pub code: Vec<Instruction>,
    /// The index of each variable by its name.
    pub slots: HashMap<Box<str>, u32>,
    /// Values that every user starts with, by variable.
    pub initial: Vec<Value>,
    /// The variables that all users share, by name.
    pub shared_slots: HashMap<Box<str>, u32>,
    /// Values of the shared variables at the beginning.
    pub shared_initial: Vec<Value>,
    /// Requests.
    pub requests: Vec<Request>,
    /// What figures are kept for.
    pub labels: Vec<Label>,
    /// Populations.
    pub populations: Vec<Population>,
    /// Data.
    pub feeders: Vec<FeederTable>,
    /// Start, step and end of each shared counter.
    pub shared_counters: usize,
    /// Number of counters of each user.
    pub user_counters: usize,
    /// Number of times that each user remembers, for pacing and throughput.
    pub marks: usize,
    /// Number of shared counters of passes.
    pub quotas: usize,
    /// Number of shared times, for throughput.
    pub shared_marks: usize,
    /// Number of rendezvous.
    pub rendezvous: usize,
    /// Origins that requests may go to; any if empty.
    pub targets: Vec<String>,
    /// Names of variables whose values no output shows.
    pub masked: Vec<Box<str>>,
    /// Whether a flow reads the body or the header fields of the last response.
    pub keeps_last_body: bool,
    /// Whether a request uses the elements of pages.
    pub keeps_pages: bool,
    /// Whether a flow reads the URL of the last request.
    pub keeps_last_url: bool,
    /// Whether a flow reads the header fields of the last response.
    pub keeps_last_head: bool,
    /// Scripts in Lua.
    pub scripts: Vec<Arc<str>>,
}

/// A compiled population.
#[derive(Debug)]
pub struct Population {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub phase: Phase,
    /// Indexes of the populations that end before it begins.
    pub after: Vec<u32>,
    /// Delay of its beginning, ns.
    pub delay_ns: u64,
    /// When users and iterations begin.
    pub arrivals: Arrivals,
    /// How iterations end at the end of its time.
    pub end: IterationEnd,
    /// What follows a failed request.
    pub on_error: OnError,
    /// Whether each iteration is a new user.
    pub new_user: bool,
    /// Whether an iteration begins without cookies.
    pub clears_cookies: bool,
    /// Whether an iteration begins without cached responses.
    pub clears_cache: bool,
    /// Whether an iteration begins without connections.
    pub closes_connections: bool,
    /// Variables of each user, computed when it begins.
    pub variables: Vec<(u32, Template)>,
    /// First instruction of what a user does before its first iteration.
    pub before: u32,
    /// First instruction of an iteration.
    pub flow: u32,
    /// First instruction of what a user does after its last iteration.
    pub afterwards: u32,
}

/// An instruction.
#[derive(Debug)]
pub enum Instruction {
    /// Sends a request and awaits its outcome.
    Request(u32),
    /// Sends requests, up to a number at once, and awaits all outcomes.
    Parallel(Box<[u32]>, u32),
    /// Waits.
    Wait(Wait),
    /// Sets a variable.
    Set(Target, Expr),
    /// Takes a row.
    Feed(u32),
    /// Sets a cookie: name, value, domain, path.
    SetCookie(Box<[Template; 4]>),
    /// Goes to another instruction.
    Jump(u32),
    /// Goes to another instruction if the condition is false.
    JumpUnless(Expr, u32),
    /// Goes to the first case that equals the value, or to the last target.
    Switch(Template, Box<[(Box<str>, u32)]>, u32),
    /// Goes to a branch at random, by cumulated weights.
    Weighted(Box<[(f64, u32)]>),
    /// Goes to the next branch in turn.
    Interleave(Box<[u32]>, PassCounter),
    /// Executes all branches in random order; each ends with `ShuffleNext`.
    Shuffle(Box<[u32]>, u32),
    /// Goes to the next branch of the innermost shuffle.
    ShuffleNext,
    /// Goes to the target unless this pass is one of the share.
    Percent(Expr, PassCounter, u32),
    /// Goes to the target unless this pass is one of the first.
    Times(Expr, PassCounter, u32),
    /// Goes to the target unless this is the first pass of the enclosing loop.
    Once(u32),
    /// Begins a loop; the target is behind its end.
    LoopBegin(Box<LoopRule>, Option<u32>, u32),
    /// Ends a pass of the innermost loop.
    LoopNext,
    /// Begins a transaction of that label: whether its time includes waits, whether it hides its requests.
    TransactionBegin(u32, bool, bool),
    /// Ends the innermost transaction.
    TransactionEnd,
    /// Says whether the open transaction of that name, or the innermost one, has passed.
    Outcome(Option<Box<str>>, bool),
    /// Ends something.
    Control(ControlAction),
    /// Executes a script.
    Script(u32),
    /// The end of a flow.
    End,
}

/// A variable that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The user's.
    Own(u32),
    /// The one that all share.
    Shared(u32),
}

/// Where passes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassCounter {
    /// In counters of the user.
    Own(u32),
    /// In a counter that all share.
    Shared(u32),
}

/// A loop's rule.
#[derive(Debug)]
pub enum LoopRule {
    /// A number of passes.
    Count(Expr),
    /// No end.
    Forever,
    /// A condition before each pass but, perhaps, the first.
    While(Expr, bool),
    /// A text for each pass.
    Each(u32, Box<[Template]>),
    /// Variables with numbers: the variable that is set, the prefix, and the bounds.
    EachVariable(u32, Template, Option<Expr>, Option<Expr>),
    /// A time in ms.
    Time(Expr),
}

/// A wait.
#[derive(Debug)]
pub enum Wait {
    /// A constant, ms.
    Constant(Expr),
    /// Between two times, ms.
    Uniform(Expr, Expr),
    /// Mean and deviation, ms.
    Normal(Expr, Expr, NormalSign),
    /// Offset and mean, ms.
    Poisson(Expr, Expr),
    /// Mean, ms.
    Exponential(Expr),
    /// Interval in ms, and the user's mark.
    Pacing(Expr, u32),
    /// Rate per minute; the mark is the user's or shared by scope.
    Throughput {
        /// The rate, or that at the beginning.
        per_minute: Expr,
        /// How it changes.
        stages: Box<[ThroughputStage]>,
        /// Whose passes count.
        scope: ThroughputScope,
        /// Whether intervals are random.
        is_random: bool,
        /// The mark of the user.
        mark: u32,
        /// The first of the shared marks: one for each population.
        shared_mark: u32,
    },
    /// Number of users, timeout in ms, and the index of the rendezvous.
    Rendezvous(Expr, Expr, u32),
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A value.
    Literal(Value),
    /// A variable: its index, that of the shared one of the same name, its name, and the fallback.
    Variable(u32, Option<u32>, Arc<str>, Value),
    /// An operation: its name or number if it has one, and its arguments.
    Operation(Op, OpName, Box<[Expr]>),
}

/// What some operations have besides their arguments.
#[derive(Clone, Debug, Default)]
pub enum OpName {
    /// Nothing.
    #[default]
    None,
    /// A counter: its index and whether it is the user's.
    Counter(u32),
    /// A constant pattern.
    Pattern(Arc<Regex>),
}

/// A compiled template.
#[derive(Clone, Debug)]
pub enum Template {
    /// A text.
    Fixed(Arc<str>),
    /// Parts.
    Parts(Box<[Part]>),
}

/// A part of a template.
#[derive(Clone, Debug)]
pub enum Part {
    /// A text.
    Text(Box<str>),
    /// A value.
    Value(Expr),
}

/// A pattern: constant, or made of variables.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Compiled.
    Fixed(Arc<Regex>),
    /// Compiled when it is used.
    Made(Template, bool),
}

/// A compiled request.
#[derive(Debug)]
pub struct Request {
    /// Index of its label.
    pub label: u32,
    /// Method.
    pub method: Template,
    /// Scheme, host, port, path.
    pub url: [Template; 4],
    /// The element of a page that gives it its URL.
    pub element: Option<Element>,
    /// Query parameters.
    pub query: Vec<Parameter>,
    /// Header fields.
    pub headers: Vec<(Template, Template)>,
    /// Body.
    pub body: Body,
    /// User and password.
    pub basic: Option<(Template, Template)>,
    /// Redirects to follow.
    pub redirects: u32,
    /// Whether other origins get all header fields.
    pub keeps_headers_elsewhere: bool,
    /// Whether cookies are sent and kept.
    pub cookies: bool,
    /// Whether the user's cache is used.
    pub cache: bool,
    /// Which resources of a page are fetched; none if absent.
    pub embedded: Option<Embedded>,
    /// Whether the connection is closed.
    pub closes: bool,
    /// Time limit of connecting, ns.
    pub connect_timeout_ns: Option<u64>,
    /// Time limit of the response, ns.
    pub response_timeout_ns: Option<u64>,
    /// Status codes of a success.
    pub ok_status: Vec<StatusRange>,
    /// Extractors.
    pub extractors: Vec<Extractor>,
    /// Checks.
    pub checks: Vec<Check>,
    /// Whether it has no variables.
    pub is_constant: bool,
    /// Its bytes, if it has no variables and was made before.
    pub made: OnceLock<Outgoing>,
    /// Whether the response's header fields are needed.
    pub needs_head: bool,
    /// Whether the response's body is needed.
    pub needs_body: bool,
    /// Whether the request's own bytes are needed after sending.
    pub needs_request: bool,
}

/// A parameter: name, value, whether both are sent as they are.
#[derive(Debug)]
pub struct Parameter {
    /// Name.
    pub name: Template,
    /// Value.
    pub value: Option<Template>,
    /// Whether both are encoded already.
    pub is_encoded: bool,
}

/// A body.
#[derive(Debug)]
pub enum Body {
    /// None.
    None,
    /// A text.
    Text(Template),
    /// A form.
    Form(Vec<Parameter>),
    /// Parts.
    Multipart(Vec<BodyPart>),
    /// A file.
    File(Arc<[u8]>),
}

/// A part of a multipart body.
#[derive(Debug)]
pub struct BodyPart {
    /// The field's name.
    pub name: Template,
    /// The text.
    pub text: Template,
    /// The file, in place of the text.
    pub file: Option<Arc<[u8]>>,
    /// The file's name.
    pub file_name: Template,
    /// The content's type.
    pub content_type: Template,
}

/// What an extractor or check reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The body.
    Body,
    /// Header fields, an empty line, and the body.
    Answer,
    /// The header fields.
    Headers,
    /// The status code.
    Status,
    /// The reason phrase.
    Reason,
    /// The URL.
    Url,
    /// The header fields of the request.
    RequestHeaders,
    /// The body of the request.
    RequestBody,
    /// A variable.
    Variable(u32),
}

/// An extractor.
#[derive(Debug)]
pub struct Extractor {
    /// The variable's name, and its index.
    pub variable: (Arc<str>, u32),
    /// What it reads.
    pub subject: Subject,
    /// What it looks for.
    pub find: Find,
    /// Which it takes.
    pub pick: Pick,
    /// What happens without one.
    pub on_miss: Miss,
    /// Whether groups are set.
    pub sets_groups: bool,
    /// The largest value, bytes.
    pub max_bytes: usize,
}

/// An element of a page that gives a request its URL.
#[derive(Debug)]
pub struct Element {
    /// What it is.
    pub kind: PageElementKind,
    /// Attributes and their values, or its text.
    pub has: Vec<(Template, Template)>,
    /// Which of several, from 1.
    pub number: Expr,
}

/// Which resources of a page are fetched.
#[derive(Debug)]
pub struct Embedded {
    /// Only URLs that it matches.
    pub pattern: Option<Arc<Regex>>,
    /// Requests at once.
    pub at_once: u32,
    /// Whether the page passes although a resource is missing.
    pub may_fail: bool,
}

/// What an extractor looks for.
#[derive(Debug)]
pub enum Find {
    /// Matches, with their output.
    Regex(Pattern, Vec<OutputPart>),
    /// Nodes.
    Json(Template),
    /// A header field.
    Header(Template),
    /// A cookie.
    Cookie(Template),
    /// Between two texts.
    Boundary(Template, Template),
    /// Elements of HTML: selector and attribute.
    Css(Template, Template),
    /// All.
    Whole,
}

/// Which value an extractor takes.
#[derive(Debug)]
pub enum Pick {
    /// By number; 0 is random and -1 all.
    Number(Expr),
    /// The last.
    Last,
    /// A random one.
    Random,
    /// All.
    All,
    /// Their number.
    Count,
}

/// What happens if an extractor finds nothing.
#[derive(Debug)]
pub enum Miss {
    /// The value stays.
    Keep,
    /// The variable is unset.
    Unset,
    /// A text.
    Default(Template),
    /// The request fails.
    Fail,
}

/// A check.
#[derive(Debug)]
pub struct Check {
    /// Its index among the label's checks.
    pub place: u32,
    /// What it reads.
    pub subject: Subject,
    /// Tests.
    pub tests: Vec<Test>,
    /// Whether one is enough.
    pub any: bool,
    /// Whether each must fail.
    pub is_negated: bool,
    /// What a failure means.
    pub severity: Severity,
    /// The message of a failure.
    pub message: Option<Template>,
}

/// A test of a check.
#[derive(Debug)]
pub enum Test {
    /// Status ranges.
    Status(Vec<StatusRange>),
    /// Contains a text.
    Contains(Template),
    /// Equals a text.
    Equals(Template),
    /// A pattern matches a part.
    Finds(Pattern),
    /// A pattern matches all.
    Matches(Pattern),
    /// A JSON value: path, expected value, whether it is a pattern, whether it must be null.
    Json(Template, Option<Template>, bool, bool),
    /// Size of the body.
    Size(Option<u64>, Option<u64>),
    /// Time, ms.
    Duration(Expr),
    /// A condition.
    Condition(Expr),
}

/// A feeder's data.
#[derive(Debug)]
pub struct FeederTable {
    /// Its definition; the rows are here too.
    pub feeder: Feeder,
    /// The variables of its columns.
    pub slots: Vec<u32>,
    /// Indexes of the populations whose users take its rows.
    pub populations: BTreeSet<u32>,
    /// Texts of the rows, ready to be set.
    pub rows: Vec<Box<[Value]>>,
}

impl Program {
    /// Whether a request may go over TLS: by its own URL, by a redirect, or as the resource of a page. Where variables
    /// decide this, it may.
    #[must_use]
    pub fn may_use_tls(&self) -> bool {
        let may_be_allowed = |target: &String| target.starts_with("https://");
        if !self.targets.is_empty() && !self.targets.iter().any(may_be_allowed) {
            return false;
        }
        self.requests.iter().any(|request| {
            let [scheme, _, _, path] = &request.url;
            let is_http = scheme.fixed().map(str::trim).is_some_and(|own| own.is_empty() || own == "http");
            // Another path may be an absolute URL.
            let is_relative = path.is_empty() || path.start().starts_with('/');
            !is_http || !is_relative || request.redirects > 0 || request.embedded.is_some()
        })
    }
}

impl Template {
    /// Returns the text that it begins with; empty if that is a value.
    fn start(&self) -> &str {
        match self {
            Self::Fixed(text) => text,
            Self::Parts(parts) => match parts.first() {
                Some(Part::Text(text)) => text,
                Some(Part::Value(_)) | None => "",
            },
        }
    }

    /// Returns its text if it is constant.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match self {
            Self::Fixed(text) => Some(text),
            Self::Parts(_) => None,
        }
    }

    /// Whether it is always empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fixed().is_some_and(str::is_empty)
    }
}
