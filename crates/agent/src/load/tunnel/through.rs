//! What goes through one client's tunnel, as its thread sees it: the proving echo, pings, traffic and answers are handed their
//! turn, and what they send is sealed and leaves together. Owns when pings begin, and what is counted when traffic ends early.

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::Interest;

use super::inside::{Inside, Ledger};
use super::link::Link;
use super::member::{Member, Phase};
use super::packet_sizes::ROUNDS;
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
        for index in 0..self.members.len() {
            if self.members[index].phase == Phase::Configured {
                self.ping_from(index, 0);
                self.rearm(index);
            }
        }
    }

    /// A client that was configured then, ns, pings, if it is one that does: where some are settled only they, for theirs tell
    /// what the arrivals do to others.
    pub fn ping_from(&mut self, index: usize, at_ns: u64) {
        let (plan, settled_ns) = (&self.fleet.plan, self.fleet.times().settled_ns);
        let (member, pinging) = (&mut self.members[index], self.pinging == Pinging::Begun);
        let witnesses = if plan.settled > 0 { plan.settled } else { plan.clients };
        let Some(gap_ns) = plan.ping_ns.filter(|_| pinging && member.number < witnesses) else { return };
        // Spread over one gap, or all pings of a storm's clients would go out together.
        let share = u128::from(gap_ns) * u128::from(member.number) / u128::from(witnesses);
        member.inside.ping_from(at_ns.max(settled_ns).saturating_add(u64::try_from(share).unwrap_or(gap_ns)));
    }

    /// Send the proving echo, where it is due.
    pub fn poll_proof(&mut self, index: usize, now_ns: u64) {
        self.with_inside(index, now_ns, |inside, _, packet, send| inside.poll_proof(now_ns, packet, send));
        self.rearm(index);
    }

    /// Send a ping, where one is due.
    pub fn poll_pings(&mut self, index: usize, now_ns: u64) {
        let Some(gap_ns) = self.fleet.plan.ping_ns else { return };
        self.with_inside(index, now_ns, |inside, ledger, packet, send| {
            inside.poll_pings(now_ns, gap_ns, ledger, packet, send);
        });
    }

    /// Let the traffic send. The clock is read here: what came before may have taken long.
    pub fn poll_inside(&mut self, index: usize) {
        if !self.members[index].inside.has_traffic() {
            return;
        }
        let now_ns = monotonic_ns();
        let act = |inside: &mut Inside, ledger: &mut Ledger<'_>, _: &mut Vec<u8>, send: Send<'_>| {
            inside.poll_traffic(now_ns, ledger, send)
        };
        let has_ended = self.with_inside(index, now_ns, act);
        self.carrying -= u32::from(has_ended);
        self.rearm(index);
    }

    /// Send packets that stand one behind the other.
    pub fn answer(&mut self, index: usize, now_ns: u64, packets: &[u8]) {
        self.with_inside(index, now_ns, |inside, _, _, send| inside.send_all(packets, send));
    }

    /// Send an echo request of each size that a client's tunnel should carry.
    pub fn send_sizes(&mut self, index: usize, now_ns: u64) {
        let mtu = self.members[index].given.as_ref().map_or(0, |given| given.mtu);
        for round in 0..ROUNDS {
            self.with_inside(index, now_ns, |inside, _, packet, send| {
                inside.probe_sizes((now_ns, round), mtu, packet, send);
            });
        }
    }

    /// No more pings and no more traffic.
    pub fn end_inside(&mut self, index: usize, now_ns: u64) {
        self.members[index].inside.ping_from(u64::MAX);
        self.end_traffic(index, now_ns);
    }

    /// No more traffic, done or not.
    pub fn end_traffic(&mut self, index: usize, now_ns: u64) {
        if self.members[index].inside.has_traffic() {
            // Before anything else can end it again.
            self.carrying -= 1;
            self.with_inside(index, now_ns, |inside, ledger, _, send| inside.end_traffic(now_ns, ledger, send));
        }
    }

    /// The traffic cannot go on, for what has become of its tunnel: it ends, and its far end and neighbours learn of it.
    pub fn break_traffic(&mut self, index: usize, name: &'static str, detail: &str) {
        if self.members[index].inside.has_traffic() {
            self.failures.count(name, 1, || detail.to_owned());
            self.members[index].inside.note_broken();
            self.end_traffic(index, monotonic_ns());
        }
    }

    /// Let what is inside of a tunnel send: what it hands over is sealed, and leaves together.
    fn with_inside<R>(
        &mut self,
        index: usize,
        now_ns: u64,
        act: impl FnOnce(&mut Inside, &mut Ledger<'_>, &mut Vec<u8>, Send<'_>) -> R,
    ) -> R {
        let Self { fleet, members, outbox, recorder, tally, packet, poll, .. } = self;
        let Member { number, link, machine, inside, .. } = &mut members[index];
        let mut ledger = Ledger {
            recorder,
            pings: &mut tally.pings,
            times: fleet.times(),
            counters: fleet.counters.get(*number as usize).map(AsRef::as_ref),
        };
        let mut broken = None;
        let was_blocked = link.as_ref().is_some_and(Link::is_blocked);
        let mut send = |payload: &[u8]| {
            let (Some(link), Some(machine)) = (link.as_mut(), machine.as_mut()) else { return false };
            let pushed = outbox.push(link, |out| machine.send(now_ns, payload, out));
            pushed.unwrap_or_else(|error| {
                broken = Some(error);
                false
            })
        };
        let result = act(inside, &mut ledger, packet, &mut send);
        let Some(link) = link.as_mut() else { return result };
        let flushed = outbox.flush(link);
        let refused = outbox.take_refused();
        if refused > 0 {
            tally.not_sent += refused;
            inside.not_sent(refused, ledger.counters);
        }
        if link.is_blocked() && !was_blocked {
            tally.pushback += 1;
            // The socket is open and watched, so that the change cannot fail.
            let _ = link.watch_for(poll, index as u64, Interest::ReadWrite);
        }
        self.watch_machine(index);
        if let Some(error) = broken.or(flushed.err()) {
            self.broken(index, &error);
        }
        result
    }
}
