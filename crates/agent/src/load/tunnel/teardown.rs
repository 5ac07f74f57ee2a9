//! How a fleet leaves: the last answers are waited for, traffic ends, every client that is up sends its exit notification, and
//! what is still under way is counted as unfinished. Owns the order of these and how long each may take.

use std::io;

use leadline_sys::clock::monotonic_ns;

use super::client::{Client, Phase};
use super::transport::TransportSocket;
use super::tunnel_io::Pinging;
use super::worker::{Worker, TIMER_BATCH};
use crate::control_signal::ControlSignal;
use crate::flows::TURN_NS;

/// How long the answers to the last pings are waited for from when these were sent, ns; and how long at least, for those that
/// came while the thread did not run.
const LAST_ANSWERS_NS: u64 = 1_000_000_000;
const LAST_LOOK_NS: u64 = 100_000_000;
/// How long exit notifications may take to be acknowledged, ns; when the fleet is stopped.
const EXIT_NOTIFY_NS: u64 = 1_000_000_000;
const SHORT_EXIT_NOTIFY_NS: u64 = 300_000_000;

impl Worker {
    /// The time is over: wait for the last answers, end the traffic, and leave in order.
    pub fn tear_down(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let began_ns = monotonic_ns();
        self.pinging = Pinging::Over;
        for index in 0..self.clients.len() {
            self.end_inner(index, began_ns);
        }
        let mut answers_ns = (self.tally.pings.last_ns + LAST_ANSWERS_NS).max(began_ns + LAST_LOOK_NS);
        let mut now_ns = began_ns;
        // Also of a fleet that is stopped: what is on its way is not lost.
        while self.tally.pings.answered < self.tally.pings.sent && now_ns < answers_ns && !signal.abandoned() {
            let until_ns = answers_ns.min(now_ns + TURN_NS);
            self.poll_io(until_ns, || signal.abandoned())?;
            now_ns = monotonic_ns();
            // That the thread itself was kept from its processor is no silence of the server's.
            answers_ns += now_ns.saturating_sub(until_ns);
        }
        self.await_refusals(signal, now_ns)?;
        self.probe_sizes(signal)?;
        now_ns = monotonic_ns();
        let patience_ns = if signal.stopped() { SHORT_EXIT_NOTIFY_NS } else { EXIT_NOTIFY_NS };
        let until_ns = now_ns + patience_ns;
        self.is_tearing_down = true;
        for index in 0..self.clients.len() {
            self.disconnect(index, now_ns);
        }
        while now_ns < until_ns && !signal.abandoned() && self.has_pending_exits() {
            let next_ns = self.expire(now_ns, TIMER_BATCH).max(now_ns);
            self.poll_io(until_ns.min(next_ns).min(now_ns + TURN_NS / 10), || signal.abandoned())?;
            now_ns = monotonic_ns();
        }
        Ok(())
    }

    /// Keys that were renewed just now may still be refused; a fleet that is stopped waits for that as long as for exit notifications.
    fn await_refusals(&mut self, signal: &ControlSignal, began_ns: u64) -> io::Result<()> {
        let most_ns = if signal.stopped() { began_ns.saturating_add(SHORT_EXIT_NOTIFY_NS) } else { u64::MAX };
        loop {
            let now_ns = monotonic_ns();
            let until_ns = self.refusals_until_ns().min(most_ns);
            if now_ns >= until_ns || signal.abandoned() {
                return Ok(());
            }
            let next_ns = self.expire(now_ns, TIMER_BATCH).max(now_ns);
            self.poll_io(until_ns.min(next_ns).min(now_ns + TURN_NS), || signal.abandoned())?;
        }
    }

    /// Where most of a client's load was lost, find out which sizes get through.
    fn probe_sizes(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let is_asked = |client: &Client| client.phase == Phase::Configured && client.inner.lost_most();
        let Some(index) = self.clients.iter().position(is_asked).filter(|_| !signal.stopped()) else { return Ok(()) };
        let mut now_ns = monotonic_ns();
        self.send_sizes(index, now_ns);
        let mut until_ns = now_ns + LAST_ANSWERS_NS;
        while self.clients[index].inner.is_probing() && now_ns < until_ns && !signal.abandoned() {
            let wait_ns = until_ns.min(now_ns + TURN_NS);
            self.poll_io(wait_ns, || signal.abandoned())?;
            now_ns = monotonic_ns();
            until_ns += now_ns.saturating_sub(wait_ns);
        }
        Ok(())
    }

    /// Send the exit notification, where a tunnel is up.
    fn disconnect(&mut self, index: usize, now_ns: u64) {
        self.settle_contest(index);
        let client = &mut self.clients[index];
        if client.phase.is_trying() {
            client.cause = Some("unfinished");
            self.failures.count("unfinished", 1, || "the fleet's time was over".into());
        }
        // From here on only the machines' own timers count.
        (client.give_up_ns, client.retry_ns) = (u64::MAX, u64::MAX);
        if !client.phase.is_up() {
            // Without its socket: a connection that comes about now begins nothing any more.
            self.end_tunnel(index);
            self.close(index);
            return;
        }
        client.inner.end();
        let is_overdue = client.phase == Phase::Overdue;
        if is_overdue {
            self.count_partial_return(index);
        }
        self.end_renewal(index, now_ns);
        if let Some(machine) = &mut self.clients[index].machine {
            machine.leave(now_ns);
            self.drive(index);
        }
    }

    /// Whether an exit notification is still to be acknowledged, or to be sent.
    fn has_pending_exits(&self) -> bool {
        let is_leaving = |client: &Client| {
            let is_blocked = client.transport.as_ref().is_some_and(TransportSocket::is_blocked);
            client.phase.is_up() && (client.machine_due_ns != u64::MAX || is_blocked)
        };
        self.clients.iter().any(is_leaving)
    }
}
