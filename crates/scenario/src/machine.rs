//! The machine that executes the users of one thread: time and responses in, requests out. Opens no socket, reads no
//! clock, has no thread of its own. `populations` begins and ends users and iterations, `execute` carries out
//! instructions, `exchange` handles responses.
//!
//! The caller calls [`Machine::run`] when the time that it returned has come, passes the end of each exchange, and
//! carries out the effects after each call. All times are of one monotonic clock, ns.

mod exchange;
mod execute;
mod flow;
mod meetings;
mod pages;
mod populations;
mod records;
mod state;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use leadline_wire::scenario::Phase;

pub use self::exchange::{ExchangeEnd, ExchangeFailure};
use self::state::{earlier, PartState, Timer};
pub use self::state::{Effect, Limits, Machine, Send, ThreadShare};
use super::figures::Figures;
use super::shared::Stop;

/// How often a machine looks at what other threads do while it waits for them, ns.
const LOOK_NS: u64 = 2_000_000;

impl Machine {
    /// Begins and ends what is due; returns when to call again at the latest, ns, or that only the end of an exchange
    /// leads on.
    pub fn run(&mut self, now_ns: u64) -> Option<u64> {
        let mut next_ns = self.advance_populations(now_ns);
        let meets_others = self.look_at_meetings(now_ns);
        while let Some(Reverse(timer)) = self.timers.peek().copied() {
            if timer.at_ns > now_ns {
                next_ns = earlier(next_ns, timer.at_ns);
                break;
            }
            self.timers.pop();
            self.on_timer(timer, now_ns);
        }
        if !self.effects.is_empty() || meets_others || self.parts.iter().any(|part| part.needs_look()) {
            next_ns = earlier(next_ns, now_ns + LOOK_NS);
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
        self.shared.stop_all();
        for index in 0..self.parts.len() {
            if self.parts[index].state == PartState::Running {
                self.note_tried(index, now_ns);
            }
        }
        for user in 0..self.users.len() as u32 {
            self.interrupt(user, now_ns);
        }
        for population in 0..self.parts.len() {
            self.count_not_begun(population, now_ns);
        }
        self.effects.clear();
    }

    /// Until when the main populations tried on this thread, ns: to the end of their time, or to a stop before it. `None`
    /// if their users had done all their iterations before, or if none has ended.
    #[must_use]
    pub fn tried_until_ns(&self) -> Option<u64> {
        self.tried_until_ns
    }

    /// Notes until when a main population tried, when its time or a stop ends it. Users that have done all their
    /// iterations try no longer, whatever time is left.
    fn note_tried(&mut self, index: usize, now_ns: u64) {
        let part = &self.parts[index];
        let has_users = part.due.is_some() || part.alive > 0 || !part.changes.is_empty();
        if has_users && self.program.populations[index].phase == Phase::Main {
            let until_ns = part.over_ns.map_or(now_ns, |over_ns| over_ns.min(now_ns));
            self.tried_until_ns = self.tried_until_ns.max(Some(until_ns));
        }
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
}
