//! A thread's part in the fleet's traffic: once all arrivals have ended their way up, each configured client gets its part and
//! makes itself ready; when all are, or their time for it is over, the whole fleet begins at one instant.

use std::sync::Arc;

use super::member::Phase;
use super::traffic;
use super::worker::Worker;

/// How long clients may take to become ready, ns: a connection to the far end, with two repetitions.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How long after its last send's time a client's traffic may still wait for something, ns.
const LAST_NS: u64 = 10_000_000_000;

/// How far the traffic is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carriage {
    /// Not all arrivals have ended their way up.
    #[default]
    Ahead,
    /// Clients make themselves ready.
    Readying,
    /// All of the thread's are ready; others may not be.
    Ready,
    /// Its beginning is known.
    Begun,
}

impl Worker {
    /// Go on with the traffic as far as its time has come.
    pub fn look_after_traffic(&mut self, now_ns: u64) {
        match self.carriage {
            Carriage::Ahead if self.fleet.times().arrived_ns <= now_ns => self.hand_out_traffic(),
            Carriage::Readying if self.is_ready() => {
                self.carriage = Carriage::Ready;
                self.fleet.ready(now_ns);
            }
            Carriage::Begun if self.carrying > 0 => self.end_overdue_traffic(now_ns),
            _ => {}
        }
        if !matches!(self.carriage, Carriage::Readying | Carriage::Ready) {
            return;
        }
        if now_ns >= self.fleet.times().arrived_ns.saturating_add(PATIENCE_NS) {
            self.fleet.begin_traffic(now_ns);
        }
        if self.fleet.traffic_ns() != u64::MAX {
            self.begin_traffic();
        }
    }

    fn hand_out_traffic(&mut self) {
        let fleet = Arc::clone(&self.fleet);
        let Some(plan) = &fleet.plan.traffic else {
            self.carriage = Carriage::Begun;
            return;
        };
        self.carriage = Carriage::Readying;
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let (Phase::Configured, Some(given)) = (member.phase, &member.given) else { continue };
            match plan.client(&given.seat(member.number, fleet.plan.clients)) {
                Ok(traffic) => {
                    member.inside.carry(traffic);
                    self.carrying += 1;
                    self.poll_inside(index);
                }
                Err(name) => self.failures.count(name, 1, || traffic::explanation(name).into()),
            }
        }
    }

    /// What does not end by itself is broken off.
    fn end_overdue_traffic(&mut self, now_ns: u64) {
        if now_ns >= self.fleet.traffic_over_ns().saturating_add(LAST_NS) {
            (0..self.members.len()).for_each(|index| self.end_traffic(index, now_ns));
        }
    }

    fn is_ready(&self) -> bool {
        self.members.iter().all(|member| member.inside.is_traffic_ready())
    }

    fn begin_traffic(&mut self) {
        self.carriage = Carriage::Begun;
        let start_ns = self.fleet.traffic_ns();
        for index in 0..self.members.len() {
            self.members[index].inside.start_traffic(start_ns);
            self.rearm(index);
        }
    }
}
