//! The state of the users of one thread, and their timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use crate::arrivals::{DueTimes, UserChange};
use crate::evaluate::Tools;
use crate::program::Program;
use crate::programs::flow::Flows;
use crate::shared::Shared;
use crate::user::User;

/// A user of this thread that waits at a rendezvous.
#[derive(Clone, Copy, Debug)]
pub(super) struct RendezvousWait {
    pub slot: u32,
    pub round: u64,
    /// The population whose users all meet; `None` where their number is given.
    pub of_all: Option<u32>,
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

/// Which thread the users run on.
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
    /// The user's epoch for a wake-up, the generation of its slot for an end.
    pub stamp: u32,
    pub ends: bool,
}

/// The users of one thread.
pub struct VirtualUsers {
    pub(super) program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) flows: Flows,
    pub(super) share: ThreadShare,
    pub(super) limits: Limits,
    pub(super) users: Vec<Option<Box<User>>>,
    /// How many users a slot of `users` has had.
    pub(super) slot_generations: Vec<u32>,
    /// The epoch that the next user in a place begins with, so that no timer of an earlier one wakes it.
    pub(super) epochs: Vec<u32>,
    pub(super) vacant: Vec<u32>,
    pub(super) timers: BinaryHeap<Reverse<Timer>>,
    pub(super) populations: Vec<PopulationState>,
    /// Users that wait at each rendezvous.
    pub(super) rendezvous_waits: Vec<Vec<RendezvousWait>>,
    pub(super) is_done: bool,
    /// Until when the main populations tried, ns, as far as their time or a stop ended them.
    pub(super) tried_until_ns: Option<u64>,
}

/// A population on this thread.
#[derive(Debug, Default)]
pub struct PopulationState {
    pub state: PopulationStage,
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
    /// The place of each user of a closed model, by its index.
    pub by_index: HashMap<u32, u32>,
    /// Users that exist.
    pub alive: u32,
    /// The most users of this thread.
    pub most: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PopulationStage {
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

impl PopulationState {
    /// Whether its time is over at an instant.
    pub fn is_over(&self, at_ns: u64) -> bool {
        self.over_ns.is_some_and(|over_ns| at_ns >= over_ns)
    }

    /// Whether what it waits for may be up to another thread.
    pub fn needs_look(&self) -> bool {
        self.state == PopulationStage::Waiting
    }
}

impl VirtualUsers {
    /// Returns users that have not begun.
    #[must_use]
    pub fn new(program: Arc<Program>, shared: Arc<Shared>, tools: Tools, share: ThreadShare, limits: Limits) -> Self {
        let mut flows = Flows::new(Arc::clone(&program), Arc::clone(&shared), tools);
        flows.figures.warm_until_ns = limits.at_ns.saturating_add(limits.warmup_ns);
        Self {
            flows,
            populations: program.populations.iter().map(|_| PopulationState::default()).collect(),
            rendezvous_waits: vec![Vec::new(); program.rendezvous],
            program,
            shared,
            share,
            limits,
            users: Vec::new(),
            slot_generations: Vec::new(),
            epochs: Vec::new(),
            vacant: Vec::new(),
            timers: BinaryHeap::new(),
            is_done: false,
            tried_until_ns: None,
        }
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
