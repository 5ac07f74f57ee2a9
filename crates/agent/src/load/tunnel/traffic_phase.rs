//! A thread's part in the fleet's traffic: once all arrivals have ended their way up, each configured client gets its part and
//! makes itself ready; when all are, or their time for it is over, the whole fleet begins at one instant.

use std::sync::Arc;

use super::client::Phase;
use super::traffic;
use super::worker::Worker;

/// How long clients may take to become ready, ns: a connection to the far end, with two repetitions.
const READY_TIMEOUT_NS: u64 = 10_000_000_000;

/// How long after its last send's time a client's traffic may still wait for something, ns.
const LAST_NS: u64 = 10_000_000_000;

/// The phase of a thread's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPhase {
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
    pub fn advance_traffic(&mut self, now_ns: u64) {
        match self.traffic_phase {
            TrafficPhase::Ahead if self.fleet.times().arrived_ns <= now_ns => self.assign_traffic(),
            TrafficPhase::Readying if self.is_ready() => {
                self.traffic_phase = TrafficPhase::Ready;
                self.fleet.ready(now_ns);
            }
            TrafficPhase::Begun if self.carrying > 0 => self.end_overdue_traffic(now_ns),
            _ => {}
        }
        if !matches!(self.traffic_phase, TrafficPhase::Readying | TrafficPhase::Ready) {
            return;
        }
        if now_ns >= self.fleet.times().arrived_ns.saturating_add(READY_TIMEOUT_NS) {
            self.fleet.begin_traffic(now_ns);
        }
        if self.fleet.traffic_ns() != u64::MAX {
            self.begin_traffic();
        }
    }

    fn assign_traffic(&mut self) {
        let fleet = Arc::clone(&self.fleet);
        let Some(plan) = &fleet.plan.traffic else {
            self.traffic_phase = TrafficPhase::Begun;
            return;
        };
        self.traffic_phase = TrafficPhase::Readying;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let (Phase::Configured, Some(assigned)) = (client.phase, &client.assigned) else { continue };
            match plan.client(&assigned.context(client.number, fleet.plan.clients)) {
                Ok(traffic) => {
                    client.inner.carry(traffic);
                    self.carrying += 1;
                    self.poll_traffic(index);
                }
                Err(name) => self.failures.count(name, 1, || traffic::explanation(name).into()),
            }
        }
    }

    /// What does not end by itself is broken off.
    fn end_overdue_traffic(&mut self, now_ns: u64) {
        if now_ns >= self.fleet.traffic_over_ns().saturating_add(LAST_NS) {
            (0..self.clients.len()).for_each(|index| self.end_traffic(index, now_ns));
        }
    }

    fn is_ready(&self) -> bool {
        self.clients.iter().all(|client| client.inner.is_traffic_ready())
    }

    fn begin_traffic(&mut self) {
        self.traffic_phase = TrafficPhase::Begun;
        let start_ns = self.fleet.traffic_ns();
        for index in 0..self.clients.len() {
            self.clients[index].inner.start_traffic(start_ns);
            self.rearm(index);
        }
    }
}
