//! Begins and ends populations, users and iterations. Owns the state that each iteration ends in: exactly one of
//! `dropped`, `not_begun`, `completed`, `failed` and `interrupted`.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::Arc;

use leadline_wire::scenario::{Arrivals, FirstArrival, IterationEnd};

use super::state::{earlier, Due, PopulationStage, Timer, VirtualUsers};
use crate::arrivals::{user_changes, DueTimes, UserChange};
use crate::programs::flow::Effect;
use crate::shared::{phase_number, SharedPopulation, Stop};
use crate::user::{Ending, Stage, State, User};

/// An iteration that begins later than this after it was due counts as late, ns.
const LATE_NS: u64 = 1_000_000;
/// Iterations of one population that begin before the machine looks at its clock again: each may open a connection, and
/// that takes milliseconds where ports run short.
const MOST_BEGUN_AT_ONCE: usize = 512;
/// Iterations that were due do not begin later than this after the population's time, ns.
const LAST_BEGIN_NS: u64 = 1_000_000_000;

impl VirtualUsers {
    /// Begins and ends populations, users and iterations that are due; returns when the next ones are, ns.
    pub(super) fn advance_populations(&mut self, now_ns: u64) -> Option<u64> {
        if self.is_done {
            return None;
        }
        let mut next_ns = None;
        for population in 0..self.populations.len() {
            if self.populations[population].state == PopulationStage::Waiting {
                self.begin_population(population, now_ns);
            }
            if self.populations[population].state == PopulationStage::Running {
                let part_ns = self.advance_population(population, now_ns);
                next_ns = part_ns.map_or(next_ns, |part_ns| earlier(next_ns, part_ns));
            }
            if self.populations[population].state == PopulationStage::Ending && self.populations[population].alive == 0
            {
                self.populations[population].state = PopulationStage::Ended;
                let shared = self.shared.population(population as u32);
                shared.end_ns.fetch_max(now_ns, Relaxed);
                shared.threads_left.fetch_sub(1, Release);
                next_ns = Some(now_ns);
            }
        }
        self.is_done = self.shared.populations().iter().all(SharedPopulation::has_ended);
        next_ns
    }

    /// How a population was stopped.
    fn stopped(&self, population: usize) -> Stop {
        self.flows.stopped(population as u32)
    }

    /// Begins a population if what it waits for has happened.
    fn begin_population(&mut self, index: usize, now_ns: u64) {
        let program = Arc::clone(&self.program);
        let population = &program.populations[index];
        let (phase, stopped) = (phase_number(population.phase), self.stopped(index));
        let states = self.shared.populations();
        let before = program.populations.iter().zip(states).filter(|(other, _)| phase_number(other.phase) < phase);
        if before.clone().any(|(_, state)| !state.has_ended()) {
            return;
        }
        if stopped != Stop::No {
            self.populations[index].state = PopulationStage::Ending;
            return;
        }
        if population.after.iter().any(|other| !states[*other as usize].has_ended()) {
            return;
        }
        let base_ns = if before.count() == 0 { self.limits.at_ns } else { now_ns };
        let phase_ns = self.shared.begin_phase(phase, base_ns);
        let base_ns = if population.after.is_empty() { phase_ns } else { now_ns };
        let start_ns = states[index].begin(base_ns.saturating_add(population.delay_ns));
        let main_end_ns = (phase == 1).then(|| phase_ns.saturating_add(self.limits.duration_ns));
        let own_end_ns = population.duration_ns().map(|duration_ns| start_ns.saturating_add(duration_ns));
        let over_ns = [main_end_ns, own_end_ns].into_iter().flatten().min();
        let part = &mut self.populations[index];
        (part.state, part.start_ns, part.over_ns) = (PopulationStage::Running, start_ns, over_ns);
        self.plan_arrivals(index);
    }

    /// Makes the users and due times of this thread.
    fn plan_arrivals(&mut self, index: usize) {
        let program = Arc::clone(&self.program);
        let population = &program.populations[index];
        let (own, threads) = (self.share.index, self.share.threads);
        let part = &mut self.populations[index];
        let share_of = |count: u32| (count.saturating_sub(own)).div_ceil(threads);
        let (changes, at_start) = match &population.arrivals {
            Arrivals::Users { initial, stages, first, .. } => (user_changes(*initial, stages, *first), 0),
            Arrivals::SharedIterations { users, .. } => (user_changes(*users, &[], FirstArrival::AtStart), 0),
            Arrivals::Open { stages, spacing, first, users_at_start, .. } => {
                let seed = program.seed ^ index as u64;
                part.due = Some(Due::Rate(DueTimes::new(stages, *spacing, *first, seed)));
                (VecDeque::new(), *users_at_start)
            }
            Arrivals::Schedule { users_at_start, .. } => {
                part.due = Some(Due::Listed(0));
                (VecDeque::new(), *users_at_start)
            }
        };
        part.changes = changes.into_iter().filter(|change| change.user % threads == own).collect();
        part.most = population.most_users().map_or(u32::MAX, share_of);
        if part.due.is_some() {
            let start_ns = part.start_ns;
            for _ in 0..own {
                self.skip_due(index);
            }
            self.next_due(index, true);
            (0..share_of(at_start)).for_each(|_| {
                self.create_user(index, None, start_ns);
            });
        }
    }

    /// Advances to the next due time of this thread.
    fn next_due(&mut self, index: usize, is_first: bool) {
        if !is_first {
            for _ in 1..self.share.threads {
                self.skip_due(index);
            }
        }
        let offset_ns = self.take_due(index);
        let part = &mut self.populations[index];
        part.next_due_ns = offset_ns.map(|offset_ns| part.start_ns.saturating_add(offset_ns));
    }

    fn skip_due(&mut self, index: usize) {
        self.take_due(index);
    }

    fn take_due(&mut self, index: usize) -> Option<u64> {
        let due_us = match &self.program.populations[index].arrivals {
            Arrivals::Schedule { due_us, .. } => Some(due_us),
            _ => None,
        };
        match (self.populations[index].due.as_mut()?, due_us) {
            (Due::Rate(times), _) => times.next_ns(),
            (Due::Listed(next), Some(due_us)) => {
                *next += 1;
                due_us.get(*next - 1).map(|due_us| due_us.saturating_mul(1000))
            }
            (Due::Listed(_), None) => None,
        }
    }

    /// Does what a running population has to do by now; returns when its next event is, ns.
    fn advance_population(&mut self, index: usize, now_ns: u64) -> Option<u64> {
        while let Some(change) = self.populations[index].changes.front().copied() {
            let at_ns = self.populations[index].start_ns.saturating_add(change.at_ns);
            if at_ns > now_ns || self.populations[index].is_over(at_ns) {
                break;
            }
            self.populations[index].changes.pop_front();
            self.change_user(index, change, now_ns);
        }
        for _ in 0..MOST_BEGUN_AT_ONCE {
            let Some(due_ns) = self.populations[index].next_due_ns.filter(|due_ns| *due_ns <= now_ns) else { break };
            if self.stopped(index) != Stop::No {
                break;
            }
            self.next_due(index, false);
            self.begin_due(index, due_ns, now_ns);
        }
        let part = &self.populations[index];
        let is_behind = part.next_due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        if is_behind && self.stopped(index) == Stop::No && !part.is_over(now_ns.saturating_sub(LAST_BEGIN_NS)) {
            return Some(now_ns);
        }
        let is_exhausted = match part.due {
            Some(_) => part.next_due_ns.is_none(),
            None => part.changes.is_empty() && part.alive == 0,
        };
        if part.is_over(now_ns) || self.stopped(index) != Stop::No || (part.due.is_none() && is_exhausted) {
            self.end_population(index, now_ns);
            return Some(now_ns);
        }
        let change_ns = part.changes.front().map(|change| part.start_ns.saturating_add(change.at_ns));
        [change_ns, part.next_due_ns, part.over_ns].into_iter().flatten().min()
    }

    /// Ends a population's time: its users end as it says.
    fn end_population(&mut self, index: usize, now_ns: u64) {
        let end = self.program.populations[index].end;
        let is_now = self.stopped(index) == Stop::Now;
        self.note_tried(index, now_ns);
        // Iterations that were due before the end and were not begun because of a stop stay counted.
        self.count_not_begun(index, now_ns);
        self.populations[index].state = PopulationStage::Ending;
        self.populations[index].changes.clear();
        let own: Vec<u32> = self.users_of(index);
        let undone = self.undone(index, &own);
        let iterations = &mut self.flows.figures.populations[index].iterations;
        iterations.due += undone;
        iterations.dropped += undone;
        for slot in own {
            if is_now {
                self.interrupt(slot, now_ns);
                continue;
            }
            let (ending, grace_ms) = match end {
                IterationEnd::Iteration { grace_ms } => (Ending::AfterIteration, grace_ms),
                IterationEnd::Request { grace_ms } => (Ending::AfterRequest, grace_ms),
            };
            self.end_user(slot, ending, now_ns.saturating_add(grace_ms.saturating_mul(1_000_000)), now_ns);
        }
    }

    /// Counts iterations that were due by now, and did not begin.
    pub(super) fn count_not_begun(&mut self, index: usize, now_ns: u64) {
        let limit_ns = self.populations[index].over_ns.map_or(now_ns, |over_ns| now_ns.min(over_ns));
        while self.populations[index].next_due_ns.is_some_and(|due_ns| due_ns < limit_ns) {
            self.next_due(index, false);
            let iterations = &mut self.flows.figures.populations[index].iterations;
            iterations.due += 1;
            iterations.not_begun += 1;
        }
        self.populations[index].next_due_ns = None;
    }

    /// Iterations of a closed model that its time did not suffice for, if they count.
    fn undone(&self, index: usize, own: &[u32]) -> u64 {
        match &self.program.populations[index].arrivals {
            Arrivals::SharedIterations { iterations, drop_undone: true, .. } => {
                let taken = self.shared.population(index as u32).taken.fetch_max(*iterations, Relaxed);
                iterations.saturating_sub(taken)
            }
            Arrivals::Users { iterations: Some(iterations), drop_undone: true, .. } => {
                let users = own.iter().filter_map(|slot| self.users[*slot as usize].as_deref());
                let begun = |user: &User| user.iteration + u64::from(user.stage == Stage::Iteration);
                users.map(|user| iterations.saturating_sub(begun(user))).sum()
            }
            _ => 0,
        }
    }

    fn users_of(&self, index: usize) -> Vec<u32> {
        let is_own = |user: &Option<Box<User>>| user.as_ref().is_some_and(|user| user.population as usize == index);
        (0..self.users.len() as u32).filter(|slot| is_own(&self.users[*slot as usize])).collect()
    }

    /// Begins a user of a closed model, or lets it end.
    fn change_user(&mut self, index: usize, change: UserChange, now_ns: u64) {
        if change.begins {
            let slot = self.create_user(index, Some(change.user), now_ns);
            self.populations[index].by_index.insert(change.user, slot);
            self.resume(slot, None, now_ns);
        } else if let Some(slot) = self.populations[index].by_index.remove(&change.user) {
            let (ending, grace_ms) = match self.program.populations[index].arrivals {
                Arrivals::Users { ramp_down_ms, ramp_down_after_request: true, .. } => {
                    (Ending::AfterRequest, ramp_down_ms)
                }
                Arrivals::Users { ramp_down_ms, .. } => (Ending::AfterIteration, ramp_down_ms),
                _ => (Ending::AfterIteration, 0),
            };
            let until_ns = now_ns.saturating_add(grace_ms.saturating_mul(1_000_000));
            self.end_user(slot, ending, until_ns, now_ns);
        }
    }

    /// Lets a user end: in order, and by `until_ns` at the latest.
    fn end_user(&mut self, slot: u32, ending: Ending, until_ns: u64, now_ns: u64) {
        let Some(user) = self.users[slot as usize].as_mut() else { return };
        user.ending = user.ending.max(ending);
        match user.state {
            State::Free => return self.remove_free(slot, now_ns),
            State::Waiting { .. } | State::Meeting { .. }
                if ending == Ending::AfterRequest && user.stage == Stage::Iteration =>
            {
                // What it waits for is not awaited: its iteration ends here.
                if let State::Meeting { at, .. } = user.state {
                    self.leave_meeting(slot, at);
                }
                let Some(mut user) = self.users[slot as usize].take() else { return };
                user.epoch = user.epoch.wrapping_add(1);
                let goes_on = self.next_stage(slot, &mut user, true, now_ns);
                if user.state == State::Ended {
                    return self.remove(slot, &user);
                }
                self.users[slot as usize] = Some(user);
                if goes_on {
                    self.resume(slot, None, now_ns);
                }
            }
            _ => {}
        }
        if until_ns <= now_ns {
            return self.interrupt(slot, now_ns);
        }
        if self.users[slot as usize].is_some() {
            let stamp = self.slot_generations[slot as usize];
            self.timers.push(std::cmp::Reverse(Timer { at_ns: until_ns, user: slot, stamp, ends: true }));
        }
    }

    /// Begins an iteration that is due in an open model, or drops it.
    fn begin_due(&mut self, index: usize, due_ns: u64, now_ns: u64) {
        self.flows.figures.populations[index].iterations.due += 1;
        let slot = match self.take_free(index) {
            Some(slot) => slot,
            None if self.populations[index].alive < self.populations[index].most => {
                let slot = self.create_user(index, None, now_ns);
                if let Arrivals::Open { drop_while_growing: true, .. } = self.program.populations[index].arrivals {
                    self.flows.figures.populations[index].iterations.dropped += 1;
                    return;
                }
                self.populations[index].free.pop();
                slot
            }
            None => {
                self.flows.figures.populations[index].iterations.dropped += 1;
                return;
            }
        };
        let Some(mut user) = self.users[slot as usize].take() else { return };
        user.due_ns = due_ns;
        if user.stage == Stage::Iteration {
            self.begin_iteration(slot, &mut user, now_ns);
        } else {
            user.has_due = true;
        }
        self.users[slot as usize] = Some(user);
        self.resume(slot, None, now_ns);
    }

    /// Takes a user that has no iteration.
    fn take_free(&mut self, index: usize) -> Option<u32> {
        let is_free = |user: &User| user.population as usize == index && user.state == State::Free;
        while let Some(slot) = self.populations[index].free.pop() {
            if self.users[slot as usize].as_deref().is_some_and(is_free) {
                return Some(slot);
            }
        }
        None
    }

    /// Makes a user of a population; those of closed models have an index.
    fn create_user(&mut self, index: usize, user_index: Option<u32>, now_ns: u64) -> u32 {
        let program = Arc::clone(&self.program);
        let state = self.shared.population(index as u32);
        let number = user_index.map_or_else(|| state.users.fetch_add(1, Relaxed) + 1, |user_index| user_index + 1);
        state.active.fetch_add(1, Relaxed);
        let mut user = Box::new(User::new(&program, index as u32, number));
        self.flows.initialize(&mut user, now_ns);
        self.flows.enter(&mut user, Stage::Before);
        user.due_ns = now_ns;
        let figures = &mut self.flows.figures.populations[index];
        figures.users_begun += 1;
        figures.users += 1;
        figures.users_most = figures.users_most.max(figures.users);
        let part = &mut self.populations[index];
        part.alive += 1;
        let is_open = part.due.is_some();
        user.index = user_index;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.users.push(None);
            self.slot_generations.push(0);
            self.epochs.push(0);
            self.users.len() as u32 - 1
        });
        user.epoch = self.epochs[slot as usize];
        if is_open {
            // Without anything to do before its first iteration, it is free at once.
            if !self.flows.has_beginning(index) {
                user.stage = Stage::Iteration;
                user.state = State::Free;
            }
            self.populations[index].free.push(slot);
        }
        self.slot_generations[slot as usize] = self.slot_generations[slot as usize].wrapping_add(1);
        self.users[slot as usize] = Some(user);
        slot
    }

    /// Continues a user whose part of life is over; returns whether it goes on at once.
    pub(super) fn next_stage(&mut self, slot: u32, user: &mut User, interrupted: bool, now_ns: u64) -> bool {
        let is_open = self.populations[user.population as usize].due.is_some();
        match user.stage {
            Stage::Before => {
                let has_time = user.ending == Ending::Open || (user.has_due && user.ending == Ending::AfterIteration);
                if has_time && !self.shared_is_over(user) {
                    self.begin_iteration(slot, user, now_ns);
                    return true;
                }
                self.count_unbegun(user);
            }
            Stage::Iteration => {
                self.end_iteration(slot, user, interrupted, now_ns);
                if user.ending == Ending::Open && is_open && self.stopped(user.population as usize) == Stop::No {
                    user.state = State::Free;
                    self.populations[user.population as usize].free.push(slot);
                    return false;
                }
                if user.ending == Ending::Open && !is_open && !self.shared_is_over(user) {
                    user.due_ns = now_ns;
                    self.begin_iteration(slot, user, now_ns);
                    return true;
                }
            }
            Stage::Afterwards => {
                user.state = State::Ended;
                return false;
            }
        }
        self.flows.enter(user, Stage::Afterwards);
        user.state = State::Ready;
        true
    }

    /// Whether a user of a closed model has no further iteration.
    fn shared_is_over(&self, user: &User) -> bool {
        if self.stopped(user.population as usize) != Stop::No {
            return true;
        }
        match &self.program.populations[user.population as usize].arrivals {
            Arrivals::Users { iterations, .. } => iterations.is_some_and(|most| user.iteration >= most),
            Arrivals::SharedIterations { iterations, .. } => {
                self.shared.population(user.population).taken.load(Relaxed) >= *iterations
            }
            _ => false,
        }
    }

    /// Counts the iteration of a user that ends before it is ready for it.
    fn count_unbegun(&mut self, user: &mut User) {
        let not_begun = &mut self.flows.figures.populations[user.population as usize].iterations.not_begun;
        *not_begun += u64::from(std::mem::take(&mut user.has_due));
    }

    fn begin_iteration(&mut self, slot: u32, user: &mut User, now_ns: u64) {
        let program = Arc::clone(&self.program);
        let population = &program.populations[user.population as usize];
        let state = self.shared.population(user.population);
        user.population_iteration = state.taken.fetch_add(1, Relaxed);
        if let Arrivals::SharedIterations { iterations, .. } = population.arrivals {
            if user.population_iteration >= iterations {
                // Another thread took the last one.
                self.flows.enter(user, Stage::Afterwards);
                return;
            }
        }
        if population.new_user && user.iteration > 0 {
            let fresh = User::new(&program, user.population, state.users.fetch_add(1, Relaxed) + 1);
            let kept = std::mem::replace(user, fresh);
            (user.stage, user.index) = (kept.stage, kept.index);
            (user.ending, user.epoch, user.due_ns) = (kept.ending, kept.epoch, kept.due_ns);
            (user.iteration, user.population_iteration) = (kept.iteration, kept.population_iteration);
            self.flows.initialize(user, now_ns);
        }
        if user.iteration == 0 && population.clears_cookies && !user.jar.is_empty() {
            user.first_jar = Some(Box::new(user.jar.clone()));
        }
        if user.iteration > 0 {
            if population.clears_cookies {
                user.jar = user.first_jar.as_deref().cloned().unwrap_or_default();
            }
            if population.clears_cache {
                user.cache = None;
            }
            if population.closes_connections || population.new_user {
                self.flows.effects.push_back(Effect::CloseConnections { user: slot });
            }
        }
        let is_open = self.populations[user.population as usize].due.is_some();
        let figures = &mut self.flows.figures.populations[user.population as usize];
        figures.iterations.begun += 1;
        figures.iterations.running += 1;
        if is_open {
            let late_ns = now_ns.saturating_sub(user.due_ns);
            user.late_ns = late_ns;
            figures.iterations.late += u64::from(late_ns > LATE_NS);
            figures.record(2, late_ns);
        } else {
            figures.iterations.due += 1;
        }
        (user.begun_ns, user.has_failed, user.has_due) = (now_ns, false, false);
        self.flows.enter(user, Stage::Iteration);
        user.state = State::Ready;
    }

    /// Counts the end of an iteration.
    fn end_iteration(&mut self, slot: u32, user: &mut User, interrupted: bool, now_ns: u64) {
        self.flows.leave(slot, user, interrupted, now_ns);
        let is_open = self.populations[user.population as usize].due.is_some();
        let figures = &mut self.flows.figures.populations[user.population as usize];
        figures.iterations.running -= 1;
        figures.end_ns = now_ns;
        let state = match (interrupted, user.has_failed) {
            (true, _) => &mut figures.iterations.interrupted,
            (false, true) => &mut figures.iterations.failed,
            (false, false) => &mut figures.iterations.completed,
        };
        *state += 1;
        if !interrupted {
            figures.record(0, now_ns.saturating_sub(user.begun_ns));
            if is_open {
                figures.record(1, now_ns.saturating_sub(user.due_ns));
            }
        }
        user.iteration += 1;
    }

    /// Ends a user at once.
    pub(super) fn interrupt(&mut self, slot: u32, now_ns: u64) {
        let Some(mut user) = self.users.get_mut(slot as usize).and_then(Option::take) else { return };
        if let State::Meeting { at, .. } = user.state {
            self.leave_meeting(slot, at);
        }
        if user.stage == Stage::Iteration && user.state != State::Free {
            self.end_iteration(slot, &mut user, true, now_ns);
        } else {
            self.flows.cancel(slot, &mut user, now_ns);
        }
        self.count_unbegun(&mut user);
        user.state = State::Ended;
        self.remove(slot, &user);
    }

    /// Ends a user without an iteration: what it does at its end, then nothing.
    fn remove_free(&mut self, slot: u32, now_ns: u64) {
        let Some(user) = self.users[slot as usize].as_mut() else { return };
        self.flows.enter(user, Stage::Afterwards);
        self.resume(slot, None, now_ns);
    }

    /// Forgets a user that has ended.
    pub(super) fn remove(&mut self, slot: u32, user: &User) {
        let part = &mut self.populations[user.population as usize];
        part.alive -= 1;
        if let Some(index) = user.index.filter(|index| part.by_index.get(index) == Some(&slot)) {
            part.by_index.remove(&index);
        }
        self.epochs[slot as usize] = user.epoch.wrapping_add(1);
        self.flows.figures.populations[user.population as usize].users -= 1;
        self.shared.population(user.population).active.fetch_sub(1, Relaxed);
        self.users[slot as usize] = None;
        self.vacant.push(slot);
        self.flows.effects.push_back(Effect::CloseConnections { user: slot });
    }
}
