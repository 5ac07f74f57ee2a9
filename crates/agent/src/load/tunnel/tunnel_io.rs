//! The traffic of a thread's clients. Once all arrivals have ended, each configured client gets its traffic and
//! prepares it. When all are ready, or their time limit is over, the whole fleet begins at one instant. Owns when the
//! clients' traffic is polled, and its end.

use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_tunnel::client::assigned_config::AssignedConfig;
use leadline_tunnel::client::phase::Phase;
use leadline_tunnel::timer::is_due;
use leadline_wire::FailureCause;

use super::client::Client;
use super::effects::{Account, ClientEffects};
use super::inner_traffic::{InnerTraffic, TrafficPhase};
use super::traffic::{Channel, ClientContext};
use super::worker::Worker;

/// How long clients may take to become ready, ns: enough to connect to the far end with two retransmissions.
const READY_TIMEOUT_NS: u64 = 10_000_000_000;
/// How long a client's traffic may wait for responses after its duration, ns.
const LAST_NS: u64 = 10_000_000_000;

impl Worker {
    /// Advances the traffic to the phase that is due.
    pub fn advance_traffic(&mut self, now_ns: u64) {
        match self.traffic_phase {
            TrafficPhase::Ahead if is_due(self.fleet.times().arrived_ns, now_ns) => self.assign_traffic(),
            TrafficPhase::Readying if self.clients.iter().all(|client| client.traffic.is_ready()) => {
                self.traffic_phase = TrafficPhase::Ready;
                self.fleet.ready(now_ns);
            }
            TrafficPhase::Begun if self.carrying > 0 => self.end_overdue_traffic(now_ns),
            _ => {}
        }
        if !matches!(self.traffic_phase, TrafficPhase::Readying | TrafficPhase::Ready) {
            return;
        }
        let patience_ns = self.fleet.times().arrived_ns.map(|arrived_ns| arrived_ns.saturating_add(READY_TIMEOUT_NS));
        if is_due(patience_ns, now_ns) {
            self.fleet.begin_traffic(now_ns);
        }
        if let Some(start_ns) = self.fleet.traffic_ns() {
            self.begin_traffic(start_ns);
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
            let Client { machine, traffic, .. } = &mut self.clients[index];
            let (Phase::Configured, Some(assigned)) = (machine.phase(), machine.assigned()) else { continue };
            match plan.client(&context(machine.number(), fleet.plan.clients, assigned)) {
                Ok(own) => {
                    traffic.carry(own);
                    self.carrying += 1;
                    self.poll_traffic(index);
                }
                Err(name) => self
                    .failures
                    .count(name, 1, || FailureCause::from(name).explanation().unwrap_or_default().to_owned()),
            }
        }
    }

    fn begin_traffic(&mut self, start_ns: u64) {
        self.traffic_phase = TrafficPhase::Begun;
        for index in 0..self.clients.len() {
            self.clients[index].traffic.start(start_ns);
            self.rearm(index);
        }
    }

    /// Ends traffic that has not ended by itself in time.
    fn end_overdue_traffic(&mut self, now_ns: u64) {
        let over_ns = self.fleet.traffic_over_ns().map(|over_ns| over_ns.saturating_add(LAST_NS));
        if is_due(over_ns, now_ns) {
            (0..self.clients.len()).for_each(|index| self.end_traffic(index, now_ns));
        }
    }

    /// Polls a client's traffic, which sends what is due. The clock is read here because earlier steps may have taken
    /// long.
    pub fn poll_traffic(&mut self, index: usize) {
        if !self.clients[index].traffic.is_running() {
            return;
        }
        let now_ns = monotonic_ns();
        let has_ended = self.with_traffic(index, now_ns, |traffic, channel| traffic.poll(now_ns, channel));
        self.carrying -= u32::from(has_ended == Some(true));
        self.end_broken_traffic(index);
        self.rearm(index);
    }

    /// Ends a client's traffic, complete or not.
    pub fn end_traffic(&mut self, index: usize, now_ns: u64) {
        if self.clients[index].traffic.is_running() {
            // Counted first, so that nothing else can end it again.
            self.carrying -= 1;
            self.with_traffic(index, now_ns, |traffic, channel| traffic.end(now_ns, channel));
        }
    }

    /// Ends a client's traffic if the machine has reported that it cannot go on: its far end and the other clients
    /// learn of it.
    #[inline]
    pub fn end_broken_traffic(&mut self, index: usize) {
        let Some(breakage) = self.clients[index].traffic.breakage.take() else { return };
        if self.clients[index].traffic.is_running() {
            self.failures.count(breakage.name, 1, || breakage.detail.to_owned());
            self.end_traffic(index, monotonic_ns());
        }
    }

    /// Calls a client's traffic with a channel; its packets are sealed, and leave together. `None` if the fleet
    /// carries no traffic.
    fn with_traffic<R>(
        &mut self,
        index: usize,
        now_ns: u64,
        act: impl FnOnce(&mut InnerTraffic, &mut Channel<'_>) -> R,
    ) -> Option<R> {
        let (machine, mut effects) = self.client_and_effects(index);
        let ClientEffects { account: Account { recorder, .. }, socket, traffic, counters, .. } = &mut effects;
        let counters = (*counters)?;
        let mut send = |packet: &[u8]| machine.send(now_ns, packet, socket);
        let result = act(traffic, &mut Channel { send: &mut send, recorder, counters });
        machine.flush(now_ns, &mut effects);
        Some(result)
    }
}

/// Returns what a client's traffic has to know of the client.
fn context(client: u32, clients: u32, assigned: &AssignedConfig) -> ClientContext {
    ClientContext {
        client,
        clients,
        ipv4: assigned.ipv4,
        ipv6: assigned.ipv6,
        server_ipv4: assigned.server_ipv4,
        server_ipv6: assigned.server_ipv6,
        mtu: assigned.mtu,
    }
}
