//! Renewed keys of a fleet's clients: a server may refuse them after both sides have them, as it does where a token has run out.
//! Owns when a renegotiation counts as done: once the server uses the new keys, or has been silent for a while after them.

use super::client::{Client, Renewed};
use super::metric::Metric;
use super::worker::Worker;

/// A refusal comes at once, and a lost one is sent again after 2 s, which is OpenVPN's first timeout: silence for longer is
/// consent, ns.
pub const REFUSAL_NS: u64 = 3_000_000_000;

impl Worker {
    /// Both halves of new keys are there.
    pub fn renewed(&mut self, index: usize, now_ns: u64) {
        // A server begins nothing with keys that it has refused.
        self.accept_renewal(index);
        let due_ns = self.take_renewal(index);
        self.clients[index].renewed = Some(Renewed { due_ns, done_ns: now_ns });
    }

    /// The server has accepted the newest keys.
    pub fn accept_renewal(&mut self, index: usize) {
        let Some(Renewed { due_ns, done_ns }) = self.clients[index].renewed.take() else { return };
        self.tally.renegotiated += 1;
        if let Some(due_ns) = due_ns {
            self.recorder.record(Metric::Renegotiate as usize, due_ns, done_ns.saturating_sub(due_ns));
        }
    }

    /// Keys of which the server has said nothing for long enough are accepted.
    pub fn accept_silence(&mut self, now_ns: u64) {
        for index in 0..self.clients.len() {
            if self.clients[index].renewed.is_some_and(|renewed| now_ns >= renewed.silent_until_ns()) {
                self.accept_renewal(index);
            }
        }
    }

    /// The server has refused the client, whose keys were being renewed or had just been.
    pub fn refuse_renewal(&mut self, index: usize) {
        let asked_ns = self.clients[index].renewed.take().and_then(|renewed| renewed.due_ns);
        self.tally.renewals_failed += 1;
        self.tally.renewals_unfinished += u64::from(asked_ns.or(self.take_renewal(index)).is_some());
    }

    /// The tunnel is over, and what was not done by now never will be.
    pub fn end_renewal(&mut self, index: usize, now_ns: u64) {
        match self.clients[index].renewed {
            Some(renewed) if now_ns < renewed.silent_until_ns() => {
                self.tally.renewals_unfinished += u64::from(renewed.due_ns.is_some());
                self.clients[index].renewed = None;
            }
            _ => self.accept_renewal(index),
        }
        self.tally.renewals_unfinished += u64::from(self.take_renewal(index).is_some());
    }

    /// Since when new keys had been due, ns, if they were: they are waited for no longer.
    pub fn take_renewal(&mut self, index: usize) -> Option<u64> {
        let due_ns = self.clients[index].renewal_due_ns.take()?;
        self.renewals -= 1;
        Some(due_ns)
    }

    /// Until when a refusal of any client's new keys may still come, ns.
    pub fn refusals_until_ns(&self) -> u64 {
        let until_ns = |client: &Client| client.renewed.map(Renewed::silent_until_ns);
        self.clients.iter().filter_map(until_ns).max().unwrap_or(0)
    }
}

impl Renewed {
    /// When the server's silence about the keys is consent, ns.
    fn silent_until_ns(self) -> u64 {
        self.done_ns.saturating_add(REFUSAL_NS)
    }
}
