//! Opens connections: name lookup, TCP, the steps of `dial`, then requests. Each step has a time limit, a name among
//! the failures and, if it takes time, a distribution.

use std::net::SocketAddr;

use super::connection::{Connection, ConnectionState};
use super::dial::DialStep;
use super::effects::{Attempt, Effects, Failure, Metric};
use super::shared::Shared;
use super::source::Script;
use leadline_tls::Handshake;

impl Connection {
    /// Handles the result of the name lookup.
    pub(super) fn resolved(
        &mut self,
        address: Result<SocketAddr, String>,
        took_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        let address = match address {
            Ok(address) => address,
            Err(detail) => return self.not_connected(Failure { name: "unknown_host", detail }, shared, effects),
        };
        effects.record(Metric::Dns, self.step_due_ns(effects.now_ns().saturating_sub(took_ns)), took_ns);
        let since_ns = effects.now_ns();
        self.state = ConnectionState::Connecting { since_ns };
        let give_up_ns = since_ns + shared.settings.connect_timeout_ns;
        let attempt = Attempt { index: self.index, epoch: self.epoch, give_up_ns, address: Some(address) };
        if let Err(failure) = effects.open(attempt) {
            self.not_connected(failure, shared, effects);
        }
    }

    /// Handles the end of the TCP handshake.
    pub(super) fn connected(
        &mut self,
        since_ns: u64,
        at_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        if let Err(failure) = effects.take_up(self.index) {
            return self.not_connected(failure, shared, effects);
        }
        shared.tally.connections_opened += 1;
        effects.record(Metric::Connect, self.step_due_ns(since_ns), at_ns.saturating_sub(since_ns));
        let now_ns = effects.now_ns();
        let dialled = self.session.channel.dial(shared.settings.dial_plan(), &mut shared.buffers, effects);
        self.on_dialled(dialled, now_ns, now_ns, shared, effects);
    }

    /// Handles bytes of a handshake that began at `since_ns`.
    pub(super) fn on_handshake_bytes(
        &mut self,
        since_ns: u64,
        at_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        let dialled = self.session.channel.continue_dial(&mut shared.buffers, effects);
        self.on_dialled(dialled, since_ns, at_ns, shared, effects);
    }

    /// Handles a step towards requests, which began at `since_ns`.
    fn on_dialled(
        &mut self,
        dialled: Result<DialStep, Failure>,
        since_ns: u64,
        at_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        match dialled {
            Err(failure) => self.not_connected(failure, shared, effects),
            Ok(DialStep::Pending) => {}
            Ok(DialStep::Began) => self.state = ConnectionState::Handshaking { since_ns: at_ns },
            Ok(DialStep::Ready(handshake)) => {
                if let Some(handshake) = handshake {
                    self.count_handshake(&handshake, since_ns, at_ns, shared, effects);
                }
                self.established(at_ns, shared, effects);
            }
        }
    }

    /// Counts a finished TLS handshake.
    pub(super) fn count_handshake(
        &self,
        handshake: &Handshake,
        since_ns: u64,
        at_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        let (metric, count) = if handshake.resumed {
            (Metric::TlsResumed, &mut shared.tally.tls_resumed)
        } else {
            (Metric::TlsFull, &mut shared.tally.tls_full)
        };
        *count += 1;
        effects.record(metric, self.step_due_ns(since_ns), at_ns.saturating_sub(since_ns));
    }

    /// Handles the end of the peer's stream, or a failure, during a handshake.
    pub(super) fn handshake_ended(
        &mut self,
        outcome: Result<(), Failure>,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        let failure = self.session.channel.fail_dial(outcome);
        self.not_connected(failure, shared, effects);
    }

    /// Counts a step of opening that exceeded its time limit.
    pub(super) fn too_slow(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let name = match self.state {
            ConnectionState::Resolving { .. } => "dns_timeout",
            ConnectionState::Handshaking { .. } => self.session.channel.timeout_name(),
            _ => "connect_timeout",
        };
        let (server, limit_ms) = (&shared.settings.server, shared.settings.connect_timeout_ns / 1_000_000);
        let detail = format!("{server} did not answer within {limit_ms} ms");
        self.not_connected(Failure { name, detail }, shared, effects);
    }

    /// Marks the connection as ready for requests.
    fn established(&mut self, now_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        shared.opening -= 1;
        shared.up += 1;
        self.mark_up(now_ns);
        self.session.exchange.opened();
        let wanted_ns = self.owed_since_ns.take().unwrap_or(now_ns);
        self.next(wanted_ns, now_ns, shared, effects);
    }

    /// The due time of a step of opening. The first opening of a connection is not repeated in the measured part, so it
    /// never counts as warm-up.
    fn step_due_ns(&self, since_ns: u64) -> Option<u64> {
        self.is_reopened.then_some(since_ns)
    }
}
