//! A virtual user: its variables, cookies, position in the flow and small stacks. Owns its memory; `programs` executes
//! it.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use leadline_http::Url;

use super::browser::cache::Cache;
use super::browser::cookies::Jar;
use super::browser::pages::Pages;
use super::outgoing::Outgoing;
use super::program::Program;
use super::random::Random;
use super::samples::Opening;
use super::value::Value;

/// A virtual user.
#[derive(Debug)]
pub struct User {
    /// Index of its population.
    pub population: u32,
    /// Its number in the population, from 1.
    pub number: u32,
    /// Its index among the users of a closed model, from 0; a new user in its place has the same.
    pub index: Option<u32>,
    /// Number of its iteration, from 0.
    pub iteration: u64,
    /// Number of the iteration in the population, from 0.
    pub population_iteration: u64,
    /// Variables.
    pub registers: Box<[Value]>,
    /// Variables whose names no part of the plan has, such as the numbered results of extractors.
    pub extra: BTreeMap<Box<str>, Value>,
    /// Random numbers.
    pub random: Random,
    /// Cookies.
    pub jar: Jar,
    /// The cookies that its first iteration began with, if each iteration does.
    pub first_jar: Option<Box<Jar>>,
    /// Its last pages, if a request uses their elements.
    pub pages: Pages,
    /// Responses, if a request keeps them.
    pub cache: Option<Box<Cache>>,
    /// Counters.
    pub counters: Box<[u64]>,
    /// Positions in feeders that it does not share.
    pub rows: Box<[u64]>,
    /// Remembered times, ns, where there is one.
    pub marks: Box<[Option<u64>]>,
    /// The last response.
    pub last: Last,
    /// The next instruction.
    pub pc: u32,
    /// Open loops, transactions and shuffles.
    pub frames: Vec<Frame>,
    /// What it waits for.
    pub state: State,
    /// Increases whenever a timer of the user becomes invalid.
    pub epoch: u32,
    /// Outstanding requests.
    pub lanes: Vec<Lane>,
    /// The rest of a parallel node: its instruction and the next request.
    pub parallel: Option<(u32, u32)>,
    /// When its iteration was due, and when it began, ns.
    pub due_ns: u64,
    /// When its iteration began, ns.
    pub begun_ns: u64,
    /// Whether an iteration is due that it has not begun, because it is not ready for its first one.
    pub has_due: bool,
    /// How late the iteration began, ns, until its first request has begun.
    pub late_ns: u64,
    /// Whether a request of the iteration failed.
    pub has_failed: bool,
    /// Which part of its life it is in.
    pub stage: Stage,
    /// When it must end.
    pub ending: Ending,
}

/// The last response.
#[derive(Debug, Default)]
pub struct Last {
    /// Status code; 0 if there was none.
    pub status: u16,
    /// Whether it failed.
    pub failed: bool,
    /// Whether it failed by its time limit.
    pub timed_out: bool,
    /// From sent to the end, ns.
    pub duration_ns: u64,
    /// The URL, if a flow reads it.
    pub url: Option<Arc<str>>,
    /// Header fields, if a flow reads them.
    pub head: Option<Box<str>>,
    /// Body, if a flow reads it.
    pub body: Option<Arc<str>>,
}

/// What a user waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its next iteration.
    Free,
    /// It can go on.
    Ready,
    /// A time, since another one, ns.
    Waiting {
        /// Since when.
        since_ns: u64,
    },
    /// Others at a rendezvous.
    Meeting {
        /// The rendezvous.
        at: u32,
        /// Since when.
        since_ns: u64,
    },
    /// Responses.
    Requesting,
    /// Nothing: it has ended.
    Ended,
}

/// The part of a user's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before its first iteration.
    Before,
    /// In an iteration.
    Iteration,
    /// After its last iteration.
    Afterwards,
}

/// When a user must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Not yet.
    Open,
    /// After its iteration.
    AfterIteration,
    /// Before its next request.
    AfterRequest,
}

/// An open loop, transaction or shuffle.
#[derive(Debug)]
pub enum Frame {
    /// A loop.
    Loop {
        /// Its instruction.
        at: u32,
        /// The number of the pass, from 0.
        pass: u64,
        /// The number of passes, or the last instant in ns, or the first number of a variable.
        limit: u64,
        /// The last number of a variable.
        last: u64,
        /// What the variables' names begin with.
        prefix: Option<Box<str>>,
    },
    /// A transaction.
    Transaction {
        /// Its label.
        label: u32,
        /// When it began, ns.
        begun_ns: u64,
        /// Waits in it, ns.
        waited_ns: u64,
        /// Whether its time includes waits.
        includes_waits: bool,
        /// Whether a request in it failed.
        failed: bool,
        /// Whether it has passed, if a step said so.
        outcome: Option<bool>,
        /// Whether its requests are hidden from lists of samples.
        hides: bool,
        /// Its requests that ended, and those that failed.
        requests: (u32, u32),
        /// Bytes that its requests sent and received.
        bytes: (u64, u64),
    },
    /// The branches of a shuffle that are left, and where it ends.
    Shuffle {
        /// First instructions.
        left: Vec<u32>,
        /// The instruction after it.
        end: u32,
    },
}

/// An outstanding request.
#[derive(Debug)]
pub struct Lane {
    /// Number of the exchange; the caller repeats it in its answer.
    pub id: u32,
    /// Index of the request.
    pub request: u32,
    /// When it was wanted, ns.
    pub due_ns: u64,
    /// When it was sent first, ns.
    pub sent_ns: Option<u64>,
    /// Redirects that may follow.
    pub redirects_left: u32,
    /// Its URL.
    pub url: Url,
    /// Its first URL, before redirects.
    pub asked: Url,
    /// Bytes received so far, of redirects.
    pub received_bytes: u64,
    /// Bytes sent so far.
    pub sent_bytes: u64,
    /// When the first response of a chain of redirects began, ns.
    pub first_ns: Option<u64>,
    /// The connections that were opened for it.
    pub opening: Option<Opening>,
    /// The request as it was sent last, if a check, the cache, a redirect or a page's resource may need it.
    pub sent: Option<Outgoing>,
    /// The lane of the page whose resource it fetches.
    pub parent: Option<u32>,
    /// The name of the frame that its page is for; empty for the window.
    pub frame: Box<str>,
    /// The resources that are fetched after its own response.
    pub page: Option<Box<Page>>,
}

/// A page whose resources are being fetched.
#[derive(Debug)]
pub struct Page {
    /// Those that have not begun.
    pub left: VecDeque<Url>,
    /// How many may be outstanding.
    pub at_once: u32,
    /// How many are outstanding.
    pub outstanding: u32,
    /// The status of the page itself.
    pub status: u16,
    /// Why it failed.
    pub failure: Option<(Cow<'static, str>, String)>,
    /// When the last part was complete, ns.
    pub done_ns: u64,
}

impl Lane {
    /// Returns the lane of a request that begins.
    #[must_use]
    pub fn new(id: u32, request: u32, due_ns: u64, redirects: u32, url: &Url, sent: Option<Outgoing>) -> Self {
        Self {
            id,
            request,
            due_ns,
            sent_ns: None,
            redirects_left: redirects,
            url: url.clone(),
            asked: url.clone(),
            received_bytes: 0,
            sent_bytes: 0,
            first_ns: None,
            opening: None,
            sent,
            parent: None,
            frame: "".into(),
            page: None,
        }
    }

    /// Returns the bytes of the request; none if they are not kept.
    #[must_use]
    pub fn sent_bytes_of_request(&self) -> &[u8] {
        self.sent.as_ref().map(|sent| &*sent.bytes).unwrap_or_default()
    }
}

impl User {
    /// Returns a user that has not begun.
    #[must_use]
    pub fn new(program: &Program, population: u32, number: u32) -> Self {
        let mut registers = program.initial.clone();
        registers.resize(program.slots.len(), Value::Nothing);
        Self {
            population,
            number,
            index: None,
            iteration: 0,
            population_iteration: 0,
            registers: registers.into(),
            extra: BTreeMap::new(),
            random: Random::of(program.seed, population, number),
            jar: Jar::default(),
            first_jar: None,
            pages: Pages::default(),
            cache: None,
            counters: vec![0; program.user_counters].into(),
            rows: vec![0; program.feeders.len()].into(),
            marks: vec![None; program.marks].into(),
            last: Last::default(),
            pc: 0,
            frames: Vec::new(),
            state: State::Free,
            epoch: 0,
            lanes: Vec::new(),
            parallel: None,
            due_ns: 0,
            begun_ns: 0,
            has_due: false,
            late_ns: 0,
            has_failed: false,
            stage: Stage::Before,
            ending: Ending::Open,
        }
    }

    /// Returns a variable by its name.
    #[must_use]
    pub fn named<'u>(&'u self, program: &Program, name: &str) -> &'u Value {
        match program.slots.get(name) {
            Some(slot) => &self.registers[*slot as usize],
            None => self.extra.get(name).unwrap_or(&Value::Nothing),
        }
    }

    /// Sets a variable by its name.
    pub fn set_named(&mut self, program: &Program, name: &str, value: Value) {
        /// The most variables beyond those that the plan names.
        const MOST_EXTRA: usize = 10_000;
        match program.slots.get(name) {
            Some(slot) => self.registers[*slot as usize] = value,
            None if !value.is_set() => {
                self.extra.remove(name);
            }
            None => {
                if self.extra.len() < MOST_EXTRA || self.extra.contains_key(name) {
                    self.extra.insert(name.into(), value);
                }
            }
        }
    }

    /// Returns the memory that the user occupies, bytes, without connections.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let text = |value: &Value| if let Value::Text(text) = value { text.len() + 16 } else { 0 };
        let extra: usize = self.extra.iter().map(|(name, value)| name.len() + text(value) + 64).sum();
        size_of::<Self>()
            + self.registers.len() * size_of::<Value>()
            + self.registers.iter().map(text).sum::<usize>()
            + (self.counters.len() + self.rows.len()) * size_of::<u64>()
            + self.marks.len() * size_of::<Option<u64>>()
            + self.frames.capacity() * size_of::<Frame>()
            + self.lanes.capacity() * size_of::<Lane>()
            + self.jar.memory_bytes()
            + self.first_jar.as_ref().map_or(0, |jar| jar.memory_bytes())
            + self.pages.memory_bytes()
            + self.cache.as_ref().map_or(0, |cache| cache.memory_bytes())
            + extra
    }
}
