//! The machine that executes the users of one thread: time and responses in, requests out. Opens no socket, reads no
//! clock, has no thread of its own. `populations` begins and ends users and iterations, `execute` carries out
//! instructions, `exchange` handles responses.
//!
//! The caller calls [`Machine::run`] when the time that it returned has come, passes the end of each exchange, and
//! carries out the effects after each call. All times are of one monotonic clock, ns.

mod exchange;
mod execute;
mod flow;
mod populations;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

pub use self::exchange::{ExchangeEnd, ExchangeFailure};
use self::populations::Part;
use super::evaluate::{Context, Tools};
use super::figures::Figures;
use super::program::Program;
use super::render::Outgoing;
use super::scripts::Scripts;
use super::shared::{Shared, Stop};
use super::user::User;

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
struct Timer {
    at_ns: u64,
    user: u32,
    /// The user's epoch for a wake-up, its life for an end.
    stamp: u32,
    ends: bool,
}

/// The users of one thread.
pub struct Machine {
    program: Arc<Program>,
    shared: Arc<Shared>,
    tools: Tools,
    scripts: Scripts,
    share: ThreadShare,
    limits: Limits,
    users: Vec<Option<Box<User>>>,
    /// The life that a place in `users` has had last.
    lives: Vec<u32>,
    vacant: Vec<u32>,
    timers: BinaryHeap<Reverse<Timer>>,
    parts: Vec<Part>,
    effects: VecDeque<Effect>,
    figures: Figures,
    next_exchange: u32,
    /// Users that wait at each rendezvous.
    meetings: Vec<Vec<u32>>,
    is_done: bool,
}

/// How often a machine looks at what other threads do while it waits for them, ns.
const LOOK_NS: u64 = 2_000_000;

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
            vacant: Vec::new(),
            timers: BinaryHeap::new(),
            effects: VecDeque::new(),
            figures,
            next_exchange: 0,
            is_done: false,
        }
    }

    /// Begins and ends what is due; returns when to call again at the latest, ns.
    pub fn run(&mut self, now_ns: u64) -> u64 {
        let mut next_ns = self.advance_populations(now_ns);
        while let Some(Reverse(timer)) = self.timers.peek().copied() {
            if timer.at_ns > now_ns {
                next_ns = next_ns.min(timer.at_ns);
                break;
            }
            self.timers.pop();
            self.on_timer(timer, now_ns);
        }
        if !self.effects.is_empty() || self.parts.iter().any(|part| part.needs_look()) {
            next_ns = next_ns.min(now_ns + LOOK_NS);
        }
        next_ns
    }

    fn on_timer(&mut self, timer: Timer, now_ns: u64) {
        let Some(Some(user)) = self.users.get(timer.user as usize) else { return };
        if timer.ends {
            if self.lives[timer.user as usize] == timer.stamp {
                self.interrupt(timer.user, now_ns);
            }
        } else if user.epoch == timer.stamp {
            self.wake(timer.user, now_ns);
        }
    }

    /// Returns the next effect.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether all populations have ended, on all threads.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Stops the test as if a user had: no iteration begins, running ones end as their population says.
    pub fn stop(&mut self) {
        self.shared.stop(Stop::Soon);
    }

    /// Ends every user at once and counts what was outstanding.
    pub fn finish(&mut self, now_ns: u64) {
        self.shared.stop(Stop::Now);
        for user in 0..self.users.len() as u32 {
            self.interrupt(user, now_ns);
        }
        for population in 0..self.parts.len() {
            self.count_not_begun(population, now_ns);
        }
        self.effects.clear();
    }

    /// The figures so far.
    pub fn figures(&mut self) -> &mut Figures {
        &mut self.figures
    }

    /// Returns the figures.
    #[must_use]
    pub fn into_figures(self) -> Figures {
        self.figures
    }

    /// Returns the memory of the users, bytes, and their number.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let users = self.users.iter().flatten();
        let bytes: usize = users.clone().map(|user| user.memory_bytes()).sum();
        (bytes + self.users.capacity() * 8, users.count())
    }

    fn timer(&mut self, user: u32, epoch: u32, at_ns: u64) {
        self.timers.push(Reverse(Timer { at_ns, user, stamp: epoch, ends: false }));
    }
}

/// Returns the evaluation's view of a user.
fn context<'m>(
    program: &'m Program,
    shared: &'m Shared,
    tools: &'m mut Tools,
    user: &'m mut User,
    now_ns: u64,
) -> Context<'m> {
    Context { program, shared, user, tools, now_ns }
}
