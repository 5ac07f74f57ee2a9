//! The end of a fleet: it waits for the last responses, ends the traffic, and lets every connected client send its
//! exit notification. Clients that are still connecting count as unfinished. Owns the order of these steps and their
//! time limits.

use std::io;

use leadline_sys::clock::monotonic_ns;
use leadline_tunnel::client::phase::Phase;
use leadline_tunnel::client::Input;
use tracing::debug;

use super::client::Client;
use super::worker::{Worker, TIMER_BATCH};
use crate::control_signal::ControlSignal;
use crate::flows::TURN_NS;

/// How long responses to the last pings are waited for after these were sent, ns; and the minimum, for responses that
/// came while the thread did not run.
const LAST_ANSWERS_NS: u64 = 1_000_000_000;
const LAST_LOOK_NS: u64 = 100_000_000;
/// How long exit notifications may take to be acknowledged, ns; also when the fleet is stopped.
const EXIT_NOTIFY_NS: u64 = 1_000_000_000;
const SHORT_EXIT_NOTIFY_NS: u64 = 300_000_000;

impl Worker {
    /// Ends the fleet: waits for the last responses, ends the traffic, and disconnects the clients.
    pub fn tear_down(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let began_ns = monotonic_ns();
        debug!(
            thread = self.number,
            clients = self.clients.len(),
            stopped = signal.stopped(),
            "VPN clients are to leave"
        );
        self.pings_since_ns = None;
        for index in 0..self.clients.len() {
            self.hand(index, began_ns, Input::StopPings);
            self.end_traffic(index, began_ns);
        }
        let last_ns = self.tally.counts.pings.last_ns.unwrap_or(0);
        let mut answers_ns = (last_ns + LAST_ANSWERS_NS).max(began_ns + LAST_LOOK_NS);
        let mut now_ns = began_ns;
        // A stopped fleet waits too: packets in transit are not lost.
        while self.are_pings_unanswered() && now_ns < answers_ns && !signal.abandoned() {
            let until_ns = answers_ns.min(now_ns + TURN_NS);
            self.poll_io(until_ns, || signal.abandoned())?;
            now_ns = monotonic_ns();
            // Time in which the thread itself could not run is not the server's silence.
            answers_ns += now_ns.saturating_sub(until_ns);
        }
        self.await_refusals(signal, now_ns)?;
        self.probe_sizes(signal)?;
        now_ns = monotonic_ns();
        let patience_ns = if signal.stopped() { SHORT_EXIT_NOTIFY_NS } else { EXIT_NOTIFY_NS };
        let until_ns = now_ns + patience_ns;
        (0..self.clients.len()).for_each(|index| self.hand(index, now_ns, Input::Leave));
        while now_ns < until_ns && !signal.abandoned() && self.clients.iter().any(Client::is_leaving) {
            let next_ns = self.expire(now_ns, TIMER_BATCH).unwrap_or(until_ns).max(now_ns);
            self.poll_io(until_ns.min(next_ns).min(now_ns + TURN_NS / 10), || signal.abandoned())?;
            now_ns = monotonic_ns();
        }
        Ok(())
    }

    /// Recently renewed keys may still be refused; a stopped fleet waits for this only as long as for exit
    /// notifications.
    fn await_refusals(&mut self, signal: &ControlSignal, began_ns: u64) -> io::Result<()> {
        let most_ns = signal.stopped().then(|| began_ns.saturating_add(SHORT_EXIT_NOTIFY_NS));
        loop {
            let now_ns = monotonic_ns();
            let refusable_ns = self.clients.iter().filter_map(|client| client.machine.refusable_until_ns()).max();
            let until_ns = refusable_ns.map(|until_ns| most_ns.map_or(until_ns, |most_ns| until_ns.min(most_ns)));
            let Some(until_ns) = until_ns.filter(|until_ns| now_ns < *until_ns && !signal.abandoned()) else {
                return Ok(());
            };
            let next_ns = self.expire(now_ns, TIMER_BATCH).unwrap_or(until_ns).max(now_ns);
            self.poll_io(until_ns.min(next_ns).min(now_ns + TURN_NS), || signal.abandoned())?;
        }
    }

    /// Finds out which packet sizes pass, if a client lost most of its load.
    fn probe_sizes(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let is_asked = |client: &Client| client.machine.phase() == Phase::Configured && client.traffic.lost_most();
        let Some(index) = self.clients.iter().position(is_asked).filter(|_| !signal.stopped()) else { return Ok(()) };
        let mut now_ns = monotonic_ns();
        self.hand(index, now_ns, Input::ProbeSizes);
        let mut until_ns = now_ns + LAST_ANSWERS_NS;
        while self.clients[index].machine.is_probing_sizes() && now_ns < until_ns && !signal.abandoned() {
            let wait_ns = until_ns.min(now_ns + TURN_NS);
            self.poll_io(wait_ns, || signal.abandoned())?;
            now_ns = monotonic_ns();
            until_ns += now_ns.saturating_sub(wait_ns);
        }
        Ok(())
    }

    fn are_pings_unanswered(&self) -> bool {
        let pings = &self.tally.counts.pings;
        pings.answered < pings.sent
    }
}
