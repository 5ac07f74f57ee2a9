//! The state of a machine, its effects and its timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use crate::arrivals::{DueTimes, UserChange};
use crate::evaluate::{Context, Tools};
use crate::figures::Figures;
use crate::masking::mask;
use crate::outgoing::Outgoing;
use crate::program::Program;
use crate::samples::Samples;
use crate::scripts::Scripts;
use crate::shared::Shared;
use crate::user::User;

/// A user of this thread that waits at a rendezvous.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    pub slot: u32,
    pub round: u64,
    /// The population whose users all meet; `None` where their number is given.
    pub of_all: Option<u32>,
}

/// What the caller has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a request on a connection of the user.
    Send(Box<Send>),
    /// Forget the outstanding exchanges of the user, and close their connections.
    Cancel {
        /// The user.
        user: u32,
    },
    /// Close the idle connections of the user.
    CloseConnections {
        /// The user.
        user: u32,
    },
}

/// A request to send.
#[derive(Debug, PartialEq, Eq)]
pub struct Send {
    /// The user.
    pub user: u32,
    /// Number of the exchange, to be repeated at its end.
    pub exchange: u32,
    /// The request.
    pub outgoing: Outgoing,
    /// When it was wanted, ns.
    pub due_ns: u64,
    /// The label that it counts for; none for a resource, which is part of its page.
    pub label: Option<u32>,
    /// Time limit of connecting, ns, if it has its own.
    pub connect_timeout_ns: Option<u64>,
    /// Time limit of the response, ns, if it has its own.
    pub response_timeout_ns: Option<u64>,
    /// Whether the response's header fields are to be kept.
    pub keeps_head: bool,
    /// Whether the response's body is to be kept.
    pub keeps_body: bool,
}

/// The limits of a test.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// When the test begins, ns.
    pub at_ns: u64,
    /// The longest time of the main phase, ns.
    pub duration_ns: u64,
    /// Leading time that is warm-up, ns.
    pub warmup_ns: u64,
}

/// Which thread a machine runs on.
#[derive(Clone, Copy, Debug)]
pub struct ThreadShare {
    /// Its index.
    pub index: u32,
    /// The number of threads.
    pub threads: u32,
}

/// Wakes a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    pub at_ns: u64,
    pub user: u32,
    /// The user's epoch for a wake-up, its life for an end.
    pub stamp: u32,
    pub ends: bool,
}

/// The users of one thread.
pub struct Machine {
    pub(super) program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) tools: Tools,
    pub(super) scripts: Scripts,
    pub(super) share: ThreadShare,
    pub(super) limits: Limits,
    pub(super) users: Vec<Option<Box<User>>>,
    /// The life that a place in `users` has had last.
    pub(super) lives: Vec<u32>,
    /// The epoch that the next user in a place begins with, so that no timer of an earlier one wakes it.
    pub(super) epochs: Vec<u32>,
    pub(super) vacant: Vec<u32>,
    pub(super) timers: BinaryHeap<Reverse<Timer>>,
    pub(super) parts: Vec<Part>,
    pub(super) effects: VecDeque<Effect>,
    pub(super) figures: Figures,
    pub(super) samples: Option<Samples>,
    pub(super) next_exchange: u32,
    /// Users that wait at each rendezvous.
    pub(super) meetings: Vec<Vec<Met>>,
    pub(super) is_done: bool,
    /// Until when the main populations tried, ns, as far as their time or a stop ended them.
    pub(super) tried_until_ns: Option<u64>,
}

/// A population on this thread.
#[derive(Debug, Default)]
pub struct Part {
    pub state: PartState,
    pub start_ns: u64,
    /// When no further iteration begins, ns, if its time is limited.
    pub over_ns: Option<u64>,
    /// When users of this thread begin and are no longer wanted.
    pub changes: VecDeque<UserChange>,
    pub due: Option<Due>,
    /// When the next iteration of this thread is due, ns.
    pub next_due_ns: Option<u64>,
    /// Users without an iteration, in open models; those that have one or have ended since may still be here.
    pub free: Vec<u32>,
    /// How many rows of its block of a feeder each user of a closed model has taken, by feeder and the user's index.
    pub positions: HashMap<(u32, u32), u64>,
    /// The place of each user of a closed model, by its index.
    pub by_index: HashMap<u32, u32>,
    /// Users that exist.
    pub alive: u32,
    /// The most users of this thread.
    pub most: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartState {
    #[default]
    Waiting,
    Running,
    /// No iteration begins any more.
    Ending,
    Ended,
}

/// Where the due times of a thread come from.
#[derive(Debug)]
pub enum Due {
    Rate(DueTimes),
    Listed(usize),
}

impl Part {
    /// Whether its time is over at an instant.
    pub fn is_over(&self, at_ns: u64) -> bool {
        self.over_ns.is_some_and(|over_ns| at_ns >= over_ns)
    }

    /// Whether what it waits for may be up to another thread.
    pub fn needs_look(&self) -> bool {
        self.state == PartState::Waiting
    }
}

impl Machine {
    /// Returns a machine that has not begun.
    #[must_use]
    pub fn new(program: Arc<Program>, shared: Arc<Shared>, tools: Tools, share: ThreadShare, limits: Limits) -> Self {
        let mut figures = Figures::new(&program);
        figures.warm_until_ns = limits.at_ns.saturating_add(limits.warmup_ns);
        Self {
            parts: program.populations.iter().map(|_| Part::default()).collect(),
            meetings: vec![Vec::new(); program.rendezvous],
            program,
            shared,
            tools,
            scripts: Scripts::default(),
            share,
            limits,
            users: Vec::new(),
            lives: Vec::new(),
            epochs: Vec::new(),
            vacant: Vec::new(),
            timers: BinaryHeap::new(),
            effects: VecDeque::new(),
            figures,
            samples: None,
            next_exchange: 0,
            is_done: false,
            tried_until_ns: None,
        }
    }

    /// Returns a message without the values of the user's masked variables.
    pub fn mask(&self, user: &User, message: String) -> String {
        mask(&self.program, &self.shared, user, message)
    }

    /// Returns a number for an exchange.
    pub fn exchange_number(&mut self) -> u32 {
        let number = self.next_exchange;
        self.next_exchange = number.wrapping_add(1);
        number
    }

    /// Wakes a user at an instant, unless its epoch has changed by then.
    pub fn timer(&mut self, user: u32, epoch: u32, at_ns: u64) {
        self.timers.push(Reverse(Timer { at_ns, user, stamp: epoch, ends: false }));
    }
}

/// Returns the earlier one of two instants.
pub fn earlier(known_ns: Option<u64>, other_ns: u64) -> Option<u64> {
    Some(known_ns.map_or(other_ns, |known_ns| known_ns.min(other_ns)))
}

/// Returns the evaluation's view of a user.
pub fn context<'m>(
    program: &'m Program,
    shared: &'m Shared,
    tools: &'m mut Tools,
    user: &'m mut User,
    now_ns: u64,
) -> Context<'m> {
    Context { program, shared, user, tools, now_ns }
}
