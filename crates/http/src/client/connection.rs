//! One connection's state, and what each input means in it. Owns the way down: detaching the socket, closing, resting and
//! opening again. `opening` leads it up, `sending` and `exchange` carry its requests.
//!
//! | State       | input                | then                                                        |
//! |-------------|----------------------|-------------------------------------------------------------|
//! | unused      | (the pool opens it)  | resolving or connecting                                     |
//! | resolving   | `Resolved`           | connecting; down where it failed                            |
//! | connecting  | `Connected`          | handshaking, or up; down where it failed                    |
//! | handshaking | `Received`, `Sent`   | up once proxy and TLS let requests through; down if they fail |
//! | handshaking | `NotSent`, `Ended`   | down                                                        |
//! | up          | `Received`, `Sent`   | up; opened again where the server or a limit ended it       |
//! | up          | `NotSent`, `Ended`   | opened again if a request was outstanding, else down        |
//! | down        | (its deadline)       | resolving or connecting                                     |
//! | closed      |                      | closed: no request is left for it                           |
//!
//! Resolving, connecting and handshaking each end by the connect time limit, an outstanding request by the response time
//! limit; both count a failure.

use super::capture::Capture;
use super::effects::{Attempt, Detached, Effects, Failure, Input, Metric, Opening, SocketUse};
use super::settings::{RequestSource, Settings};
use super::shared::{record_late, Begun, Shared};
use super::source::Script;
use crate::{ClientConnection, Malformed, ResponseParser};
use leadline_tls::TlsClient;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Not needed yet.
    Unused,
    /// Its last attempt failed, or it was lost while it was idle; it is opened again then.
    Down { retry_ns: u64 },
    /// Its name is looked up.
    Resolving { since_ns: u64 },
    /// TCP's handshake goes on.
    Connecting { since_ns: u64 },
    /// The proxy's or TLS's handshake goes on.
    Handshaking { since_ns: u64 },
    /// Requests may be sent.
    Up,
    /// No request is left for it.
    Closed,
}

/// See the file's head.
pub(super) struct Connection {
    /// Its number in the pool, by which the caller knows its socket.
    pub(super) index: usize,
    pub(super) state: ConnectionState,
    /// The outstanding request, or batch.
    pub(super) exchange: ClientConnection,
    pub(super) tls: Option<Box<TlsClient>>,
    /// Reads the proxy's response to CONNECT, until it has let us through.
    pub(super) proxy: Option<Box<ResponseParser>>,
    pub(super) capture: Option<Box<Capture>>,
    /// Grows each time the connection is closed, so that what is done in several steps sees that it has gone.
    pub(super) epoch: u32,
    /// Whether it stands in the queue of idle connections.
    pub(super) is_idle: bool,
    /// Since when its next request waits for it to be opened again, where the server, or the number of requests that a
    /// connection may have, ended the last one: that is part of the next request's latency.
    pub(super) owed_since_ns: Option<u64>,
    pub(super) retry_delay_ns: u64,
    /// Attempts to open it that have failed since it was last up.
    pub(super) failed_attempts: u32,
    /// Whether the socket did not take the outstanding request at once.
    pub(super) is_pushed_back: bool,
    /// Why sending failed: the connection's error unless a response is found to have come before.
    pub(super) broken: Option<&'static str>,
    /// Requests that it has carried.
    pub(super) served: u64,
    /// Which request of the set is outstanding.
    pub(super) request: u32,
    /// What a redirect has made of it.
    pub(super) redirected: Option<Box<RequestSource>>,
    /// How many more redirects it may follow.
    pub(super) redirects_left: u32,
    /// Bytes of handshakes and records that the socket has yet to take.
    pub(super) records_left: usize,
}

/// Delay before the next attempt after a failed one, ns; doubled after each further one.
pub(super) const FIRST_RETRY_NS: u64 = 10_000_000;
pub(super) const LONGEST_RETRY_NS: u64 = 1_000_000_000;

impl Connection {
    /// An unused connection.
    pub fn new(index: usize, capture: Option<Capture>) -> Self {
        Self {
            index,
            state: ConnectionState::Unused,
            exchange: ClientConnection::default(),
            tls: None,
            proxy: None,
            capture: capture.map(Box::new),
            epoch: 0,
            is_idle: false,
            owed_since_ns: None,
            retry_delay_ns: FIRST_RETRY_NS,
            failed_attempts: 0,
            is_pushed_back: false,
            broken: None,
            served: 0,
            request: 0,
            redirected: None,
            redirects_left: 0,
            records_left: 0,
        }
    }

    /// Takes what happened at `at_ns`.
    #[inline]
    pub fn handle(&mut self, at_ns: u64, input: Input, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        match (self.state, input) {
            (ConnectionState::Up, Input::Received) => self.receive(at_ns, shared, effects),
            (ConnectionState::Up | ConnectionState::Handshaking { .. }, Input::Sent(bytes)) => {
                self.sent(bytes, shared, effects)
            }
            (ConnectionState::Up, Input::Ended(Ok(()))) => self.ended(at_ns, shared, effects),
            (ConnectionState::Up, Input::Ended(Err(failure))) => {
                self.fail(failure.name, || failure.detail, shared, effects)
            }
            (ConnectionState::Up, Input::NotSent { missing, failure }) => {
                self.take_back(missing, effects);
                self.not_sent(failure, shared, effects);
            }
            (ConnectionState::Resolving { .. }, Input::Resolved { address, took_ns }) => {
                self.resolved(address, took_ns, shared, effects);
            }
            (ConnectionState::Connecting { since_ns }, Input::Connected) => {
                self.connected(since_ns, at_ns, shared, effects)
            }
            (ConnectionState::Handshaking { since_ns }, Input::Received) => {
                self.on_handshake_bytes(since_ns, at_ns, shared, effects)
            }
            (ConnectionState::Handshaking { .. }, Input::Ended(outcome)) => {
                self.handshake_ended(outcome, shared, effects)
            }
            (ConnectionState::Handshaking { .. }, Input::NotSent { failure, .. }) => {
                self.handshake_ended(Err(failure), shared, effects);
            }
            _ => {}
        }
    }

    /// When it has to be looked at though nothing happens, ns.
    pub fn deadline_ns(&self, settings: &Settings) -> Option<u64> {
        match self.state {
            ConnectionState::Unused | ConnectionState::Closed => None,
            ConnectionState::Down { retry_ns } => Some(retry_ns),
            ConnectionState::Resolving { since_ns }
            | ConnectionState::Connecting { since_ns }
            | ConnectionState::Handshaking { since_ns } => Some(since_ns + settings.connect_timeout_ns),
            ConnectionState::Up => {
                self.exchange.outstanding_since_ns().map(|since_ns| since_ns + settings.response_timeout_ns)
            }
        }
    }

    /// Its deadline has passed.
    pub fn on_deadline(&mut self, now_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        match self.state {
            ConnectionState::Unused | ConnectionState::Closed => {}
            ConnectionState::Down { .. } => self.open(shared, effects),
            ConnectionState::Resolving { .. }
            | ConnectionState::Connecting { .. }
            | ConnectionState::Handshaking { .. } => {
                self.too_slow(shared, effects);
            }
            ConnectionState::Up => {
                self.record_age(now_ns, effects);
                let limit_ms = shared.settings.response_timeout_ns / 1_000_000;
                self.fail("response_timeout", || format!("no whole answer within {limit_ms} ms"), shared, effects);
            }
        }
    }

    /// Begins to open it.
    pub fn open(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let since_ns = effects.now_ns();
        shared.opening += 1;
        // From here on it counts as being opened, also where its socket fails at once.
        self.state = ConnectionState::Connecting { since_ns };
        let give_up_ns = since_ns + shared.settings.connect_timeout_ns;
        shared.look_by(give_up_ns);
        let attempt = Attempt { index: self.index, epoch: self.epoch, give_up_ns, address: shared.source.address() };
        match effects.open(attempt) {
            Ok(Opening::Connecting) => {}
            Ok(Opening::Resolving) => self.state = ConnectionState::Resolving { since_ns },
            Err(failure) => self.not_connected(failure, shared, effects),
        }
    }

    /// Counts a failed attempt to open it, and tries again after a while.
    pub(super) fn not_connected(
        &mut self,
        failure: Failure,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        effects.count_failure(failure.name, 1, || failure.detail);
        // What waited for this connection is not kept waiting on its account: a failure has its own place.
        self.owed_since_ns = None;
        self.failed_attempts += 1;
        self.disconnect(shared, effects);
        self.schedule_retry(shared, effects);
    }

    /// Counts a connection's failure under its one name, with the requests that were outstanding if there were any.
    pub(super) fn fail(
        &mut self,
        name: &'static str,
        detail: impl FnOnce() -> String,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        self.detach(SocketUse::Close, shared, effects);
        let outstanding = self.exchange.close();
        // A server may close a connection that is idle; only bytes that it sends unasked are an error then.
        if outstanding.is_none() && name != Malformed::UnsolicitedBytes.name() {
            return self.lost_idle(shared, effects);
        }
        if outstanding.is_some() {
            shared.tally.last_ns = Some(effects.now_ns());
        }
        let requests = outstanding.map_or(1, |outstanding| outstanding.requests);
        effects.count_failure(self.broken.unwrap_or(name), u64::from(requests), detail);
        self.reopen(None, shared, effects);
    }

    /// An idle connection is gone. It is opened again after a while: a server that closes each connection that it accepts
    /// would otherwise be called again and again for nothing.
    pub(super) fn lost_idle(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.disconnect(shared, effects);
        self.schedule_retry(shared, effects);
    }

    /// Closes a connection and opens it again, unless no request is left for it, those that are being opened being served
    /// first. With `owed_since_ns`, the next request has waited since then.
    pub(super) fn reopen(
        &mut self,
        owed_since_ns: Option<u64>,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        self.disconnect(shared, effects);
        if shared.requests_left() > shared.opening as u64 {
            self.owed_since_ns = owed_since_ns;
            self.open(shared, effects);
        }
    }

    fn disconnect(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.detach(SocketUse::Close, shared, effects);
        match self.state {
            ConnectionState::Up => shared.up -= 1,
            ConnectionState::Resolving { .. }
            | ConnectionState::Connecting { .. }
            | ConnectionState::Handshaking { .. } => shared.opening -= 1,
            ConnectionState::Down { .. } | ConnectionState::Unused | ConnectionState::Closed => {}
        }
        if std::mem::take(&mut self.is_idle) {
            shared.idle.retain(|idle| idle.index != self.index);
        }
        self.exchange.close();
        (self.tls, self.proxy, self.broken, self.records_left) = (None, None, None, 0);
        self.epoch = self.epoch.wrapping_add(1);
        self.state = ConnectionState::Closed;
    }

    fn schedule_retry(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let retry_ns = effects.now_ns() + self.retry_delay_ns;
        self.retry_delay_ns = (self.retry_delay_ns * 2).min(LONGEST_RETRY_NS);
        self.state = ConnectionState::Down { retry_ns };
        shared.look_by(retry_ns);
    }

    /// Takes the socket away, if there is one. What has become of its last send by then is counted: bytes that were on
    /// their way are sent, those that were promised and did not go are not.
    pub(super) fn detach(
        &mut self,
        then: SocketUse,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) -> bool {
        let Some(Detached { unsent_bytes, taken_bytes }) = effects.detach(self.index, then) else { return false };
        if let Some(handed_over_ns) = effects.handed_over_ns() {
            shared.detach_handed_over_ns = Some(handed_over_ns);
            let is_own = |begun: &Begun| begun.index == self.index && begun.epoch == self.epoch;
            if let Some(place) = shared.begun.iter().position(is_own) {
                let begun = shared.begun.swap_remove(place);
                let sent_ns = record_late(&begun, handed_over_ns, &mut shared.tally, effects);
                self.exchange.handed_over(sent_ns);
            }
        }
        if taken_bytes > 0 {
            self.sent(taken_bytes, shared, effects);
        }
        self.take_back(unsent_bytes, effects);
        true
    }

    /// Records the age of requests that get no answer. It is no latency, but a bound of one, and is recorded apart.
    pub(super) fn record_age(&self, now_ns: u64, effects: &mut impl Effects) {
        let exchange = &self.exchange;
        let (Some(due_ns), Some(outstanding)) = (exchange.outstanding_due_ns(), exchange.outstanding()) else { return };
        let sent_ns = exchange.outstanding_since_ns().unwrap_or(now_ns);
        for _ in 0..outstanding.requests {
            effects.record(Metric::LatencyCensored, Some(due_ns), now_ns.saturating_sub(due_ns));
            effects.record(Metric::ServiceCensored, Some(due_ns), now_ns.saturating_sub(sent_ns));
        }
    }
}
