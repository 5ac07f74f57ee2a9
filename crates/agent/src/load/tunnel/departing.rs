//! How a fleet leaves: the last answers are waited for, traffic ends, every client that is up says farewell, and what is still
//! under way is counted as unfinished. Owns the order of these and how long each may take.

use std::io;

use leadline_sys::clock::monotonic_ns;

use super::link::Link;
use super::member::{Member, Phase};
use super::through::Pinging;
use super::worker::{Worker, TIMER_BATCH};
use crate::control_signal::ControlSignal;
use crate::flows::TURN_NS;

/// How long the answers to the last pings are waited for from when these were sent, ns; and how long at least, for those that
/// came while the thread did not run.
const LAST_ANSWERS_NS: u64 = 1_000_000_000;
const LAST_LOOK_NS: u64 = 100_000_000;
/// How long farewells may take to be acknowledged, ns; when the fleet is stopped.
const FAREWELL_NS: u64 = 1_000_000_000;
const SHORT_FAREWELL_NS: u64 = 300_000_000;

impl Worker {
    /// The time is over: wait for the last answers, end the traffic, and leave in order.
    pub fn depart(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let began_ns = monotonic_ns();
        self.pinging = Pinging::Over;
        for index in 0..self.members.len() {
            self.end_inside(index, began_ns);
        }
        let mut answers_ns = (self.tally.pings.last_ns + LAST_ANSWERS_NS).max(began_ns + LAST_LOOK_NS);
        let mut now_ns = began_ns;
        // Also of a fleet that is stopped: what is on its way is not lost.
        while self.tally.pings.answered < self.tally.pings.sent && now_ns < answers_ns && !signal.abandoned() {
            let until_ns = answers_ns.min(now_ns + TURN_NS);
            self.look(until_ns, || signal.abandoned())?;
            now_ns = monotonic_ns();
            // That the thread itself was kept from its processor is no silence of the server's.
            answers_ns += now_ns.saturating_sub(until_ns);
        }
        self.await_refusals(signal, now_ns)?;
        self.probe_sizes(signal)?;
        now_ns = monotonic_ns();
        let patience_ns = if signal.stopped() { SHORT_FAREWELL_NS } else { FAREWELL_NS };
        let until_ns = now_ns + patience_ns;
        self.is_departing = true;
        for index in 0..self.members.len() {
            self.leave(index, now_ns);
        }
        while now_ns < until_ns && !signal.abandoned() && self.is_anyone_leaving() {
            let next_ns = self.expire(now_ns, TIMER_BATCH).max(now_ns);
            self.look(until_ns.min(next_ns).min(now_ns + TURN_NS / 10), || signal.abandoned())?;
            now_ns = monotonic_ns();
        }
        Ok(())
    }

    /// Keys that were renewed just now may still be refused; a fleet that is stopped waits for that as long as for farewells.
    fn await_refusals(&mut self, signal: &ControlSignal, began_ns: u64) -> io::Result<()> {
        let most_ns = if signal.stopped() { began_ns.saturating_add(SHORT_FAREWELL_NS) } else { u64::MAX };
        loop {
            let now_ns = monotonic_ns();
            let until_ns = self.refusals_until_ns().min(most_ns);
            if now_ns >= until_ns || signal.abandoned() {
                return Ok(());
            }
            let next_ns = self.expire(now_ns, TIMER_BATCH).max(now_ns);
            self.look(until_ns.min(next_ns).min(now_ns + TURN_NS), || signal.abandoned())?;
        }
    }

    /// Where most of a client's load was lost, find out which sizes get through.
    fn probe_sizes(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let is_asked = |member: &Member| member.phase == Phase::Configured && member.inside.lost_most();
        let Some(index) = self.members.iter().position(is_asked).filter(|_| !signal.stopped()) else { return Ok(()) };
        let mut now_ns = monotonic_ns();
        self.send_sizes(index, now_ns);
        let mut until_ns = now_ns + LAST_ANSWERS_NS;
        while self.members[index].inside.is_probing() && now_ns < until_ns && !signal.abandoned() {
            let wait_ns = until_ns.min(now_ns + TURN_NS);
            self.look(wait_ns, || signal.abandoned())?;
            now_ns = monotonic_ns();
            until_ns += now_ns.saturating_sub(wait_ns);
        }
        Ok(())
    }

    /// Say farewell, where there is somebody to hear it.
    fn leave(&mut self, index: usize, now_ns: u64) {
        self.settle_contest(index);
        let member = &mut self.members[index];
        if member.phase.is_trying() {
            member.cause = Some("unfinished");
            self.failures.count("unfinished", 1, || "the fleet's time was over".into());
        }
        // From here on only the machines' own timers count.
        (member.give_up_ns, member.retry_ns) = (u64::MAX, u64::MAX);
        if !member.phase.is_up() {
            // Without its socket: a connection that comes about now begins nothing any more.
            self.end_tunnel(index);
            self.close(index);
            return;
        }
        member.inside.end();
        let is_overdue = member.phase == Phase::Overdue;
        if is_overdue {
            self.returned_partly(index);
        }
        self.end_renewal(index, now_ns);
        if let Some(machine) = &mut self.members[index].machine {
            machine.leave(now_ns);
            self.drive(index);
        }
    }

    /// Whether a farewell is still to be acknowledged, or to be sent.
    fn is_anyone_leaving(&self) -> bool {
        let is_leaving = |member: &Member| {
            let is_blocked = member.link.as_ref().is_some_and(Link::is_blocked);
            member.phase.is_up() && (member.machine_due_ns != u64::MAX || is_blocked)
        };
        self.members.iter().any(is_leaving)
    }
}
