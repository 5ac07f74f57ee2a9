//! What goes through one client's tunnel, as its thread sees it: the proving echo, pings, traffic and answers are handed their
//! turn, and what they send is sealed and leaves together. Owns when pings begin, and what is counted when traffic ends early.

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::Interest;

use super::client::{Client, Phase};
use super::inner_traffic::{InnerTraffic, Metrics};
use super::packet_sizes::ROUNDS;
use super::transport::TransportSocket;
use super::worker::Worker;

/// Seals a packet and sends it; says whether it is on its way.
type Send<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Whether clients ping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinging {
    /// Settled clients are still on their way up.
    #[default]
    Ahead,
    /// They do.
    Begun,
    /// The fleet leaves.
    Over,
}

impl Worker {
    /// All settled clients have ended their way up: those that are configured ping from now on.
    pub fn begin_pings(&mut self) {
        if self.pinging != Pinging::Ahead || self.fleet.times().settled_ns == u64::MAX {
            return;
        }
        self.pinging = Pinging::Begun;
        for index in 0..self.clients.len() {
            if self.clients[index].phase == Phase::Configured {
                self.ping_from(index, 0);
                self.rearm(index);
            }
        }
    }

    /// A client that was configured then, ns, pings, if it is one that does: where some are settled only they, for theirs tell
    /// what the arrivals do to others.
    pub fn ping_from(&mut self, index: usize, at_ns: u64) {
        let (plan, settled_ns) = (&self.fleet.plan, self.fleet.times().settled_ns);
        let (client, pinging) = (&mut self.clients[index], self.pinging == Pinging::Begun);
        let witnesses = if plan.settled > 0 { plan.settled } else { plan.clients };
        let Some(gap_ns) = plan.ping_ns.filter(|_| pinging && client.number < witnesses) else { return };
        // Spread over one gap, or all pings of a storm's clients would go out together.
        let share = u128::from(gap_ns) * u128::from(client.number) / u128::from(witnesses);
        client.inner.ping_from(at_ns.max(settled_ns).saturating_add(u64::try_from(share).unwrap_or(gap_ns)));
    }

    /// Send the proving echo, where it is due.
    pub fn poll_proof(&mut self, index: usize, now_ns: u64) {
        self.with_inner(index, now_ns, |inner, _, packet, send| inner.poll_proof(now_ns, packet, send));
        self.rearm(index);
    }

    /// Send a ping, where one is due.
    pub fn poll_pings(&mut self, index: usize, now_ns: u64) {
        let Some(gap_ns) = self.fleet.plan.ping_ns else { return };
        self.with_inner(index, now_ns, |inner, metrics, packet, send| {
            inner.poll_pings(now_ns, gap_ns, metrics, packet, send);
        });
    }

    /// Let the traffic send. The clock is read here: what came before may have taken long.
    pub fn poll_traffic(&mut self, index: usize) {
        if !self.clients[index].inner.has_traffic() {
            return;
        }
        let now_ns = monotonic_ns();
        let act = |inner: &mut InnerTraffic, metrics: &mut Metrics<'_>, _: &mut Vec<u8>, send: Send<'_>| {
            inner.poll_traffic(now_ns, metrics, send)
        };
        let has_ended = self.with_inner(index, now_ns, act);
        self.carrying -= u32::from(has_ended);
        self.rearm(index);
    }

    /// Send packets that stand one behind the other.
    pub fn answer(&mut self, index: usize, now_ns: u64, packets: &[u8]) {
        self.with_inner(index, now_ns, |inner, _, _, send| inner.send_all(packets, send));
    }

    /// Send an echo request of each size that a client's tunnel should carry.
    pub fn send_sizes(&mut self, index: usize, now_ns: u64) {
        let mtu = self.clients[index].assigned.as_ref().map_or(0, |assigned| assigned.mtu);
        for round in 0..ROUNDS {
            self.with_inner(index, now_ns, |inner, _, packet, send| {
                inner.probe_sizes((now_ns, round), mtu, packet, send);
            });
        }
    }

    /// No more pings and no more traffic.
    pub fn end_inner(&mut self, index: usize, now_ns: u64) {
        self.clients[index].inner.ping_from(u64::MAX);
        self.end_traffic(index, now_ns);
    }

    /// No more traffic, done or not.
    pub fn end_traffic(&mut self, index: usize, now_ns: u64) {
        if self.clients[index].inner.has_traffic() {
            // Before anything else can end it again.
            self.carrying -= 1;
            self.with_inner(index, now_ns, |inner, metrics, _, send| inner.end_traffic(now_ns, metrics, send));
        }
    }

    /// The traffic cannot go on, for what has become of its tunnel: it ends, and its far end and neighbours learn of it.
    pub fn break_traffic(&mut self, index: usize, name: &'static str, detail: &str) {
        if self.clients[index].inner.has_traffic() {
            self.failures.count(name, 1, || detail.to_owned());
            self.clients[index].inner.note_broken();
            self.end_traffic(index, monotonic_ns());
        }
    }

    /// Let what is inside of a tunnel send: what it hands over is sealed, and leaves together.
    fn with_inner<R>(
        &mut self,
        index: usize,
        now_ns: u64,
        act: impl FnOnce(&mut InnerTraffic, &mut Metrics<'_>, &mut Vec<u8>, Send<'_>) -> R,
    ) -> R {
        let Self { fleet, clients, outbox, recorder, tally, packet, poll, .. } = self;
        let Client { number, transport, machine, inner, .. } = &mut clients[index];
        let mut metrics = Metrics {
            recorder,
            pings: &mut tally.pings,
            times: fleet.times(),
            counters: fleet.counters.get(*number as usize).map(AsRef::as_ref),
        };
        let mut broken = None;
        let was_blocked = transport.as_ref().is_some_and(TransportSocket::is_blocked);
        let mut send = |payload: &[u8]| {
            let (Some(transport), Some(machine)) = (transport.as_mut(), machine.as_mut()) else { return false };
            let pushed = outbox.push(transport, |out| machine.send(now_ns, payload, out));
            pushed.unwrap_or_else(|error| {
                broken = Some(error);
                false
            })
        };
        let result = act(inner, &mut metrics, packet, &mut send);
        let Some(transport) = transport.as_mut() else { return result };
        let flushed = outbox.flush(transport);
        let refused = outbox.take_refused();
        if refused > 0 {
            tally.not_sent += refused;
            inner.not_sent(refused, metrics.counters);
        }
        if transport.is_blocked() && !was_blocked {
            tally.pushback += 1;
            // The socket is open and watched, so that the change cannot fail.
            let _ = transport.watch_for(poll, index as u64, Interest::ReadWrite);
        }
        self.watch_machine(index);
        if let Some(error) = broken.or(flushed.err()) {
            self.broken(index, &error);
        }
        result
    }
}
