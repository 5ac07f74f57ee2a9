//! Opens connections: name lookup, TCP, proxy, TLS, then requests. Each step has a time limit, a name among the
//! failures and, if it takes time, a distribution.

use std::net::SocketAddr;
use std::sync::Arc;

use super::connection::{Connection, ConnectionState};
use super::effects::{Attempt, Effects, Failure, Metric};
use super::shared::Shared;
use super::source::Script;
use crate::{Malformed, ResponseParser};
use leadline_tls::TlsClient;

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
        let settings = Arc::clone(&shared.settings);
        match &settings.proxy_request {
            Some(request) => {
                self.proxy = Some(Box::new(ResponseParser::new(true)));
                self.state = ConnectionState::Handshaking { since_ns: now_ns };
                self.send_handshake(request, shared, effects);
            }
            None => self.begin_tls(now_ns, shared, effects),
        }
    }

    /// Continues after TCP, and the proxy if there is one: with TLS, or with requests.
    fn begin_tls(&mut self, now_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let Some(tls) = &shared.settings.tls else { return self.established(now_ns, shared, effects) };
        let mut tls = match TlsClient::new(tls) {
            Ok(tls) => Box::new(tls),
            Err(failure) => return self.not_connected(failure.into(), shared, effects),
        };
        self.state = ConnectionState::Handshaking { since_ns: now_ns };
        if tls.offers_early_data() {
            // The first request is sent with the hello, if possible; the handshake is counted later.
            self.tls = Some(tls);
            return self.established(now_ns, shared, effects);
        }
        let mut hello = std::mem::take(&mut shared.out);
        hello.clear();
        tls.take_output(&mut hello);
        self.tls = Some(tls);
        self.send_handshake(&hello, shared, effects);
        shared.out = hello;
    }

    fn send_handshake(&mut self, bytes: &[u8], shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        if let Err(failure) = self.send_records(bytes, effects) {
            self.handshake_ended(Err(failure), shared, effects);
        }
    }

    /// Handles bytes of a handshake that began at `since_ns`.
    pub(super) fn on_handshake_bytes(
        &mut self,
        since_ns: u64,
        at_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        if self.proxy.is_some() {
            return self.proxy_answered(at_ns, shared, effects);
        }
        let Some(tls) = &mut self.tls else { return };
        let taken = tls.receive(effects.received());
        let mut answer = std::mem::take(&mut shared.out);
        answer.clear();
        tls.take_output(&mut answer);
        let is_over = !tls.is_handshaking();
        if !answer.is_empty() {
            // A TLS alert is sent as well. If it cannot be sent, the end of the connection reports it.
            let _ = self.send_records(&answer, effects);
        }
        shared.out = answer;
        match taken {
            Err(failure) => self.not_connected(failure.into(), shared, effects),
            Ok(()) if is_over => {
                self.count_handshake(since_ns, at_ns, shared, effects);
                self.established(at_ns, shared, effects);
            }
            Ok(()) => {}
        }
    }

    /// Counts a finished TLS handshake.
    pub(super) fn count_handshake(
        &self,
        since_ns: u64,
        at_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        let Some(handshake) = self.tls.as_ref().and_then(|tls| tls.handshake()) else { return };
        let (metric, count) = if handshake.resumed {
            (Metric::TlsResumed, &mut shared.tally.tls_resumed)
        } else {
            (Metric::TlsFull, &mut shared.tally.tls_full)
        };
        *count += 1;
        effects.record(metric, self.step_due_ns(since_ns), at_ns.saturating_sub(since_ns));
    }

    fn proxy_answered(&mut self, at_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let Some(parser) = &mut self.proxy else { return };
        let bytes = effects.received();
        let failure = match parser.feed(bytes) {
            Err(cause) => Failure { name: "proxy_malformed", detail: cause.explanation().to_owned() },
            Ok(fed) => match fed.response {
                None => return,
                Some(response) if response.status / 100 != 2 => {
                    Failure { name: "proxy_refused", detail: format!("the proxy answered {}", response.status) }
                }
                // The server behind the proxy sends nothing before it receives a request.
                Some(_) if fed.consumed < bytes.len() => {
                    Failure { name: "proxy_malformed", detail: Malformed::UnsolicitedBytes.explanation().to_owned() }
                }
                Some(_) => {
                    self.proxy = None;
                    return self.begin_tls(at_ns, shared, effects);
                }
            },
        };
        self.not_connected(failure, shared, effects);
    }

    /// Handles the end of the peer's stream, or a failure, during a handshake.
    pub(super) fn handshake_ended(
        &mut self,
        outcome: Result<(), Failure>,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        let has_proxy = self.proxy.is_some();
        let cut = self.tls.as_mut().and_then(|tls| tls.end().err());
        let failure = match (outcome, cut) {
            (Err(failure), _) => failure,
            (Ok(()), Some(failure)) if !has_proxy => failure.into(),
            (Ok(()), _) => Failure { name: "proxy_closed_early", detail: "the proxy closed the connection".to_owned() },
        };
        self.not_connected(failure, shared, effects);
    }

    /// Counts a step of opening that exceeded its time limit.
    pub(super) fn too_slow(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let name = match self.state {
            ConnectionState::Resolving { .. } => "dns_timeout",
            ConnectionState::Handshaking { .. } if self.proxy.is_some() => "proxy_timeout",
            ConnectionState::Handshaking { .. } => "tls_timeout",
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
        self.exchange.opened();
        let wanted_ns = self.owed_since_ns.take().unwrap_or(now_ns);
        self.next(wanted_ns, now_ns, shared, effects);
    }

    /// The due time of a step of opening. The first opening of a connection is not repeated in the measured part, so it
    /// never counts as warm-up.
    fn step_due_ns(&self, since_ns: u64) -> Option<u64> {
        self.is_reopened.then_some(since_ns)
    }
}
