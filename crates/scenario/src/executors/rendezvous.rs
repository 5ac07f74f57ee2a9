//! Users that wait for others at a rendezvous, on all threads. A thread whose users wait looks every 2 ms at what the
//! other threads did.

use std::sync::atomic::Ordering::Relaxed;

use super::state::{RendezvousWait, VirtualUsers};
use crate::programs::flow::execute::ms_to_ns;
use crate::programs::flow::{add_wait, Rendezvous};
use crate::user::{State, User};

impl VirtualUsers {
    /// Lets a user join a rendezvous; the last one lets all go on. Returns whether the user goes on at once.
    pub(super) fn meet(&mut self, slot: u32, user: &mut User, rendezvous: Rendezvous, now_ns: u64) -> bool {
        let Rendezvous { at, users, timeout_ms } = rendezvous;
        let of_all = (users == 0).then_some(user.population);
        let needed = of_all.map_or(users, |population| self.active(population));
        let Some(round) = self.shared.meeting(at).join(needed) else {
            self.look_at_meeting(at, now_ns);
            return true;
        };
        self.rendezvous_waits[at as usize].push(RendezvousWait { slot, round, of_all });
        user.state = State::Meeting { at, since_ns: now_ns };
        user.epoch = user.epoch.wrapping_add(1);
        if timeout_ms > 0.0 {
            self.timer(slot, user.epoch, now_ns.saturating_add(ms_to_ns(timeout_ms)));
        }
        false
    }

    /// Lets the users go on whose rendezvous has ended on some thread; returns whether others wait.
    pub(super) fn look_at_meetings(&mut self, now_ns: u64) -> bool {
        let mut waits = false;
        for at in 0..self.rendezvous_waits.len() as u32 {
            if !self.rendezvous_waits[at as usize].is_empty() {
                self.look_at_meeting(at, now_ns);
                waits |= !self.rendezvous_waits[at as usize].is_empty();
            }
        }
        waits
    }

    fn look_at_meeting(&mut self, at: u32, now_ns: u64) {
        self.let_all_go_on(at);
        let current = self.shared.meeting(at).round();
        let waiting = &mut self.rendezvous_waits[at as usize];
        let ended: Vec<u32> = waiting.iter().filter(|wait| wait.round != current).map(|wait| wait.slot).collect();
        waiting.retain(|wait| wait.round == current);
        for slot in ended {
            if let Some(user) = &mut self.users[slot as usize] {
                let since_ns = if let State::Meeting { since_ns, .. } = user.state { since_ns } else { now_ns };
                user.state = State::Waiting { since_ns };
                user.epoch = user.epoch.wrapping_add(1);
                let epoch = user.epoch;
                self.timer(slot, epoch, now_ns);
            }
        }
    }

    /// Ends a round that all users of a population meet in, where those that it lacked have ended.
    fn let_all_go_on(&self, at: u32) {
        let Some(RendezvousWait { round, of_all: Some(population), .. }) = self.rendezvous_waits[at as usize].last()
        else {
            return;
        };
        self.shared.meeting(at).end_of(*round, self.active(*population));
    }

    fn active(&self, population: u32) -> usize {
        self.shared.population(population).active.load(Relaxed) as usize
    }

    /// Ends a rendezvous that took too long for one of its users: all go on.
    pub(super) fn end_meeting(&mut self, slot: u32, at: u32, since_ns: u64, now_ns: u64) {
        if let Some(place) = self.rendezvous_waits[at as usize].iter().position(|wait| wait.slot == slot) {
            let RendezvousWait { round, .. } = self.rendezvous_waits[at as usize].remove(place);
            self.shared.meeting(at).end(round);
        }
        if let Some(user) = &mut self.users[slot as usize] {
            add_wait(user, now_ns.saturating_sub(since_ns));
        }
        self.look_at_meeting(at, now_ns);
        self.resume(slot, None, now_ns);
    }

    /// Lets a user that ends leave its rendezvous; the others wait on.
    pub(super) fn leave_meeting(&mut self, slot: u32, at: u32) {
        if let Some(place) = self.rendezvous_waits[at as usize].iter().position(|wait| wait.slot == slot) {
            let RendezvousWait { round, .. } = self.rendezvous_waits[at as usize].swap_remove(place);
            self.shared.meeting(at).leave(round);
        }
    }
}
