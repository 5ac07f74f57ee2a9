//! Executors: the machine that begins, wakes and ends the users of one thread: time and responses in, requests out. Opens
//! no socket, reads no clock, has no thread of its own. `populations` begins and ends users and iterations, `rendezvous`
//! lets them wait for one another; a program (`flow`) carries out what a user does.
//!
//! The caller calls [`VirtualUsers::run`] when the time that it returned has come, passes the end of each exchange, and
//! carries out the effects after each call. All times are of one monotonic clock, ns.

mod populations;
mod rendezvous;
mod state;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use leadline_wire::scenario::{Phase, SampleRule};

use self::state::{earlier, PopulationStage, Timer};
pub use self::state::{Limits, ThreadShare, VirtualUsers};
use super::figures::Figures;
use super::programs::flow::{add_wait, Effect, ExchangeEnd, ExchangeFailure, Response, Step};
use super::samples::Samples;
use super::shared::Stop;
use super::user::{State, User};
use super::users::Users;

/// How often a machine looks at what other threads do while it waits for them, ns.
const LOOK_NS: u64 = 2_000_000;
/// Instructions of a user without a wait, after which the others have their turn.
const TURN_INSTRUCTIONS: u32 = 10_000;

impl Users for VirtualUsers {
    fn run(&mut self, now_ns: u64) -> Option<u64> {
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
        if !self.flows.effects.is_empty() || meets_others || self.populations.iter().any(|part| part.needs_look()) {
            next_ns = earlier(next_ns, now_ns + LOOK_NS);
        }
        next_ns
    }

    fn answered(&mut self, slot: u32, exchange: u32, end: &ExchangeEnd<'_>, now_ns: u64) {
        if self.awaits(slot, exchange) {
            self.resume(slot, Some(Response::Answer(exchange, end)), now_ns);
        }
    }

    fn failed(&mut self, slot: u32, exchange: u32, failure: ExchangeFailure, now_ns: u64) {
        if self.awaits(slot, exchange) {
            self.resume(slot, Some(Response::Failure(exchange, failure)), now_ns);
        }
    }

    fn samples(&mut self) -> Option<&mut Samples> {
        self.flows.samples.as_mut()
    }

    fn effect(&mut self) -> Option<Effect> {
        self.flows.effects.pop_front()
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn stop(&mut self) {
        self.shared.stop(Stop::Soon);
    }

    fn finish(&mut self, now_ns: u64) {
        self.shared.stop_all();
        for index in 0..self.populations.len() {
            if self.populations[index].state == PopulationStage::Running {
                self.note_tried(index, now_ns);
            }
        }
        for user in 0..self.users.len() as u32 {
            self.interrupt(user, now_ns);
        }
        for population in 0..self.populations.len() {
            self.count_not_begun(population, now_ns);
        }
        self.flows.effects.clear();
    }

    fn tried_until_ns(&self) -> Option<u64> {
        self.tried_until_ns
    }

    fn figures(&mut self) -> &mut Figures {
        &mut self.flows.figures
    }

    fn memory(&self) -> (usize, usize) {
        let users = self.users.iter().flatten();
        let bytes: usize = users.clone().map(|user| user.memory_bytes()).sum();
        (bytes + self.users.capacity() * 8, users.count())
    }
}

impl VirtualUsers {
    fn on_timer(&mut self, timer: Timer, now_ns: u64) {
        let Some(Some(user)) = self.users.get(timer.user as usize) else { return };
        if timer.ends {
            if self.slot_generations[timer.user as usize] == timer.stamp {
                self.interrupt(timer.user, now_ns);
            }
        } else if user.epoch == timer.stamp {
            self.wake(timer.user, now_ns);
        }
    }

    fn awaits(&self, slot: u32, exchange: u32) -> bool {
        let user = self.users.get(slot as usize).and_then(Option::as_ref);
        user.is_some_and(|user| user.lanes.iter().any(|lane| lane.id == exchange))
    }

    /// Lets a user go on, after the end of an exchange if there is one, until it has to wait.
    fn resume(&mut self, slot: u32, response: Option<Response<'_>>, now_ns: u64) {
        let Some(mut user) = self.users[slot as usize].take() else { return };
        let mut left = TURN_INSTRUCTIONS;
        user.state = State::Ready;
        let mut step = self.flows.resume(slot, &mut user, response, &mut left, now_ns);
        loop {
            let goes_on = match step {
                Step::Requesting => {
                    user.state = State::Requesting;
                    false
                }
                Step::Wait(until_ns) => {
                    self.wait(slot, &mut user, until_ns, now_ns);
                    false
                }
                Step::Meet(rendezvous) => {
                    let goes_on = self.meet(slot, &mut user, rendezvous, now_ns);
                    if goes_on && self.flows.must_end(&user) {
                        step = Step::Over { interrupted: true };
                        continue;
                    }
                    goes_on
                }
                Step::Over { interrupted } => self.next_stage(slot, &mut user, interrupted, now_ns),
            };
            if !goes_on {
                break;
            }
            step = self.flows.resume(slot, &mut user, None, &mut left, now_ns);
        }
        if user.state == State::Ended {
            self.remove(slot, &user);
        } else {
            self.users[slot as usize] = Some(user);
        }
    }

    /// Lets a user wait until an instant, or for good.
    fn wait(&mut self, slot: u32, user: &mut User, until_ns: Option<u64>, now_ns: u64) {
        user.state = State::Waiting { since_ns: now_ns };
        user.epoch = user.epoch.wrapping_add(1);
        if let Some(until_ns) = until_ns {
            self.timer(slot, user.epoch, until_ns);
        }
    }

    /// Wakes a user whose wait is over.
    fn wake(&mut self, slot: u32, now_ns: u64) {
        let Some(user) = &mut self.users[slot as usize] else { return };
        match user.state {
            State::Waiting { since_ns } => {
                add_wait(user, now_ns.saturating_sub(since_ns));
                self.resume(slot, None, now_ns);
            }
            State::Meeting { at, since_ns } => self.end_meeting(slot, at, since_ns, now_ns),
            _ => {}
        }
    }

    /// Says which requests are wanted one by one.
    pub fn keep_samples(&mut self, rule: Option<&SampleRule>) {
        self.flows.keep_samples(rule);
    }

    /// Notes until when a main population tried, when its time or a stop ends it. Users that have done all their
    /// iterations try no longer, whatever time is left.
    fn note_tried(&mut self, index: usize, now_ns: u64) {
        let part = &self.populations[index];
        let has_users = part.due.is_some() || part.alive > 0 || !part.changes.is_empty();
        if has_users && self.program.populations[index].phase == Phase::Main {
            let until_ns = part.over_ns.map_or(now_ns, |over_ns| over_ns.min(now_ns));
            self.tried_until_ns = self.tried_until_ns.max(Some(until_ns));
        }
    }
}
