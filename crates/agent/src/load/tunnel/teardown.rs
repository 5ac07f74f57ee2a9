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
        self.await_refusals(signal)?;
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

    /// Waits while the server may still refuse recently renewed keys.
    fn await_refusals(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let mut wait = RefusalWait::new(self.refusable_until_ns());
        loop {
            let now_ns = monotonic_ns();
            let until_ns = wait.until_ns(now_ns, signal.stopped(), self.refusable_until_ns());
            let Some(until_ns) = until_ns.filter(|_| !signal.abandoned()) else { return Ok(()) };
            let next_ns = self.expire(now_ns, TIMER_BATCH).unwrap_or(until_ns).max(now_ns);
            self.poll_io(until_ns.min(next_ns).min(now_ns + TURN_NS), || signal.abandoned())?;
        }
    }

    /// Until when each client's renewed keys may be refused, ns.
    fn refusable_until_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.clients.iter().filter_map(|client| client.machine.refusable_until_ns())
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

/// How long a fleet that leaves waits for the server to refuse renewed keys. Keys that are renewed during the wait do not
/// extend it: clients that renew often would never leave.
#[derive(Clone, Copy, Debug)]
struct RefusalWait {
    /// Until when the keys that were renewed before the wait may be refused, ns.
    last_ns: u64,
    /// When the wait of a stopped fleet ends, ns; `None` until the stop is noticed.
    stopped_until_ns: Option<u64>,
}

impl RefusalWait {
    /// Begins the wait: each instant is when a client's renewed keys can no longer be refused, ns.
    fn new(refusable_ns: impl Iterator<Item = u64>) -> Self {
        Self { last_ns: refusable_ns.max().unwrap_or(0), stopped_until_ns: None }
    }

    /// Returns until when to wait, ns; `None` if the wait is over. A stopped fleet waits only as long as for exit
    /// notifications.
    fn until_ns(&mut self, now_ns: u64, is_stopped: bool, refusable_ns: impl Iterator<Item = u64>) -> Option<u64> {
        if is_stopped {
            self.stopped_until_ns.get_or_insert(now_ns.saturating_add(SHORT_EXIT_NOTIFY_NS));
        }
        let until_ns = refusable_ns.filter(|at_ns| *at_ns <= self.last_ns).max()?;
        let until_ns = self.stopped_until_ns.map_or(until_ns, |stopped_ns| stopped_ns.min(until_ns));
        (now_ns < until_ns).then_some(until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// `reneg-sec 10`, and how long keys may be refused.
    const RENEWAL_MS: u64 = 10_000;
    const REFUSABLE_MS: u64 = 3_000;
    const BEGAN_MS: u64 = 60_000;

    /// Returns until when the keys of 100 clients may be refused, ns; each renews its keys 100 ms after the one before.
    fn refusable_ns(now_ms: u64) -> impl Iterator<Item = u64> {
        let last_ms = move |client: u64| now_ms - (now_ms - client * 100) % RENEWAL_MS;
        (0..100).map(move |client| (last_ms(client) + REFUSABLE_MS) * MS)
    }

    /// Waits in steps of 10 ms; the fleet is stopped at an instant, if given. Returns how long that takes, ms.
    fn waited_ms(stop_ms: Option<u64>) -> u64 {
        let mut wait = RefusalWait::new(refusable_ns(BEGAN_MS));
        let is_waiting = |now_ms: &u64| {
            let is_stopped = stop_ms.is_some_and(|stop_ms| *now_ms >= BEGAN_MS + stop_ms);
            wait.until_ns(now_ms * MS, is_stopped, refusable_ns(*now_ms)).is_some()
        };
        (BEGAN_MS..BEGAN_MS + 60_000).step_by(10).take_while(is_waiting).count() as u64 * 10
    }

    #[test]
    fn clients_that_renew_during_the_wait_do_not_extend_it() {
        assert_eq!(waited_ms(None), REFUSABLE_MS);
        let accepted = RefusalWait::new(refusable_ns(BEGAN_MS)).until_ns(BEGAN_MS * MS, false, std::iter::empty());
        assert_eq!(accepted, None, "the server has accepted all keys");
    }

    #[test]
    fn stop_shortens_the_wait_before_and_during_it() {
        let short_ms = SHORT_EXIT_NOTIFY_NS / MS;
        assert_eq!([0, 1_000, 2_900].map(|stop_ms| waited_ms(Some(stop_ms))), [short_ms, 1_000 + short_ms, 3_000]);
    }
}
