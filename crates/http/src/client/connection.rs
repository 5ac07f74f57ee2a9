//! The state of one connection, and the effect of each input on it. Owns closing: detaching the socket, closing,
//! waiting and opening again. `opening` establishes the connection; `sending` and `exchange` carry its requests.
//!
//! | State       | input                | then                                                        |
//! |-------------|----------------------|-------------------------------------------------------------|
//! | unused      | (the pool opens it)  | resolving or connecting                                     |
//! | resolving   | `Resolved`           | connecting; down if it failed                               |
//! | connecting  | `Connected`          | handshaking, or up; down if it failed                       |
//! | handshaking | `Received`, `Sent`   | up when proxy and TLS are ready for requests; down if they fail |
//! | handshaking | `NotSent`, `Ended`   | down                                                        |
//! | up          | `Received`, `Sent`   | up; reopened if the server or a limit ended it              |
//! | up          | `NotSent`, `Ended`   | reopened if a request was outstanding, else down            |
//! | down        | (its deadline)       | resolving or connecting                                     |
//! | closed      |                      | closed: no request is left for it                           |
//!
//! Resolving, connecting and handshaking are each limited by the connect timeout, an outstanding request by the
//! response timeout. Each timeout counts as a failure.

use super::capture::Capture;
use super::effects::{Attempt, Detached, Effects, Failure, Input, Metric, Opening, SocketUse};
use super::session::Session;
use super::settings::{RequestSource, Settings};
use super::shared::{record_late, Begun, Shared};
use super::source::Script;
use crate::Malformed;

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Not needed yet.
    Unused,
    /// The last attempt failed, or the connection was lost while idle; it is opened again at `retry_ns`.
    Down { retry_ns: u64 },
    /// The server's name is being looked up.
    Resolving { since_ns: u64 },
    /// The TCP handshake is in progress.
    Connecting { since_ns: u64 },
    /// The proxy's or the TLS handshake is in progress.
    Handshaking { since_ns: u64 },
    /// Requests can be sent.
    Up,
    /// No request is left for the connection.
    Closed,
}

/// One connection of the pool.
pub(super) struct Connection {
    /// Its index in the pool, which identifies its socket.
    pub(super) index: usize,
    pub(super) session: Session,
    pub(super) state: ConnectionState,
    pub(super) capture: Option<Box<Capture>>,
    /// Incremented each time the connection is closed, so that a multi-step operation notices it.
    pub(super) epoch: u32,
    /// Whether the connection is in the queue of idle connections.
    pub(super) is_idle: bool,
    /// Since when the next request has waited for the connection to be reopened, if the server or the limit of
    /// requests per connection ended the last one. That wait is part of the next request's latency.
    pub(super) owed_since_ns: Option<u64>,
    retry_delay_ns: u64,
    /// Since when it has been up, if it is, ns.
    up_since_ns: u64,
    /// Failed attempts to open the connection since it was last up.
    pub(super) failed_attempts: u32,
    /// Whether it has been lost since it was first ready for requests.
    pub(super) is_reopened: bool,
    /// Whether the socket did not take the whole outstanding request immediately.
    pub(super) is_pushed_back: bool,
    /// Why sending failed. It becomes the connection's error unless a response arrived before.
    pub(super) broken: Option<&'static str>,
    /// Number of requests that the connection has carried.
    pub(super) served: u64,
    /// Index of the outstanding request in the set.
    pub(super) request: u32,
    /// The request that a redirect replaced it with.
    pub(super) redirected: Option<Box<RequestSource>>,
    /// Number of redirects that may still be followed.
    pub(super) redirects_left: u32,
}

/// Delay before the next attempt after a failed one, ns; doubles with each further failure, and with each connection that
/// is lost at once and has carried no response.
const FIRST_RETRY_NS: u64 = 10_000_000;
pub(super) const LONGEST_RETRY_NS: u64 = 1_000_000_000;

impl Connection {
    /// Creates an unused connection.
    pub fn new(index: usize, capture: Option<Capture>) -> Self {
        Self {
            index,
            session: Session::new(index),
            state: ConnectionState::Unused,
            capture: capture.map(Box::new),
            epoch: 0,
            is_idle: false,
            owed_since_ns: None,
            retry_delay_ns: FIRST_RETRY_NS,
            up_since_ns: 0,
            failed_attempts: 0,
            is_reopened: false,
            is_pushed_back: false,
            broken: None,
            served: 0,
            request: 0,
            redirected: None,
            redirects_left: 0,
        }
    }

    /// Handles an input that happened at `at_ns`.
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
                self.take_back(missing, shared, effects);
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

    /// The time at which the connection needs attention without an input, ns.
    pub fn deadline_ns(&self, settings: &Settings) -> Option<u64> {
        match self.state {
            ConnectionState::Unused | ConnectionState::Closed => None,
            ConnectionState::Down { retry_ns } => Some(retry_ns),
            ConnectionState::Resolving { since_ns }
            | ConnectionState::Connecting { since_ns }
            | ConnectionState::Handshaking { since_ns } => Some(since_ns + settings.connect_timeout_ns),
            ConnectionState::Up => {
                self.session.exchange.outstanding_since_ns().map(|since_ns| since_ns + settings.response_timeout_ns)
            }
        }
    }

    /// Handles a deadline that has passed.
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
                self.fail("response_timeout", || format!("no complete response within {limit_ms} ms"), shared, effects);
            }
        }
    }

    /// Starts to open the connection.
    pub fn open(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let since_ns = effects.now_ns();
        shared.opening += 1;
        // From here on the connection counts as opening, even if its socket fails immediately.
        self.state = ConnectionState::Connecting { since_ns };
        let give_up_ns = since_ns + shared.settings.connect_timeout_ns;
        // Its first request may begin at once, and time out long before the attempt would.
        shared.check_by(give_up_ns.min(since_ns + shared.settings.response_timeout_ns));
        let attempt = Attempt { index: self.index, epoch: self.epoch, give_up_ns, address: shared.source.address() };
        match effects.open(attempt) {
            Ok(Opening::Connecting) => {}
            Ok(Opening::Resolving) => self.state = ConnectionState::Resolving { since_ns },
            Err(failure) => self.not_connected(failure, shared, effects),
        }
    }

    /// Counts a failed attempt to open the connection, and schedules the next one.
    pub(super) fn not_connected(
        &mut self,
        failure: Failure,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        effects.count_failure(failure.name, 1, || failure.detail);
        // The wait of the next request ends here: the failure is counted separately.
        self.owed_since_ns = None;
        self.failed_attempts += 1;
        self.disconnect(shared, effects);
        self.schedule_retry(shared, effects);
    }

    /// Counts a connection's failure under one name, with the outstanding requests if there are any.
    pub(super) fn fail(
        &mut self,
        name: &'static str,
        detail: impl FnOnce() -> String,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        self.detach(SocketUse::Close, shared, effects);
        let outstanding = self.session.exchange.close();
        // A server may close an idle connection; only unsolicited bytes are an error then.
        if outstanding.is_none() && name != Malformed::UnsolicitedBytes.name() {
            return self.lost_idle(shared, effects);
        }
        if let Some(outstanding) = outstanding {
            shared.tally.last_ns = Some(effects.now_ns());
            shared.tally.count_cut_off(outstanding);
        }
        let requests = outstanding.map_or(1, |outstanding| outstanding.requests);
        effects.count_failure(self.broken.unwrap_or(name), u64::from(requests), detail);
        if outstanding.is_none() {
            // A server that speaks first would be connected to again and again.
            return self.lost_idle(shared, effects);
        }
        self.reopen(None, shared, effects);
    }

    /// Handles the loss of an idle connection. It is reopened after a delay; otherwise a server that closes each
    /// accepted connection would cause an endless loop of attempts.
    pub(super) fn lost_idle(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.disconnect(shared, effects);
        self.schedule_retry(shared, effects);
    }

    /// Closes a connection and opens it again, unless no request is left for it; connections that are already opening
    /// come first. `owed_since_ns` is the time since which the next request has waited.
    pub(super) fn reopen(
        &mut self,
        owed_since_ns: Option<u64>,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        self.disconnect(shared, effects);
        if shared.requests_left().is_none_or(|left| left > shared.opening as u64) {
            self.owed_since_ns = owed_since_ns;
            self.open(shared, effects);
        }
    }

    fn disconnect(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.detach(SocketUse::Close, shared, effects);
        self.settle_early_answers(shared, effects);
        match self.state {
            ConnectionState::Up => {
                shared.up -= 1;
                self.is_reopened = true;
                if self.served > 0 || effects.now_ns().saturating_sub(self.up_since_ns) > LONGEST_RETRY_NS {
                    self.retry_delay_ns = FIRST_RETRY_NS;
                }
            }
            ConnectionState::Resolving { .. }
            | ConnectionState::Connecting { .. }
            | ConnectionState::Handshaking { .. } => shared.opening -= 1,
            ConnectionState::Down { .. } | ConnectionState::Unused | ConnectionState::Closed => {}
        }
        if std::mem::take(&mut self.is_idle) {
            shared.idle.retain(|idle| idle.index != self.index);
        }
        self.session.close();
        self.broken = None;
        self.epoch = self.epoch.wrapping_add(1);
        self.state = ConnectionState::Closed;
    }

    /// Marks the connection as up.
    pub(super) fn mark_up(&mut self, now_ns: u64) {
        self.state = ConnectionState::Up;
        (self.up_since_ns, self.failed_attempts, self.served) = (now_ns, 0, 0);
    }

    fn schedule_retry(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let retry_ns = effects.now_ns() + self.retry_delay_ns;
        self.retry_delay_ns = (self.retry_delay_ns * 2).min(LONGEST_RETRY_NS);
        self.state = ConnectionState::Down { retry_ns };
        shared.check_by(retry_ns);
    }

    /// Detaches the socket, if there is one, and corrects the counts of its last send: bytes that were on their way
    /// are sent, promised bytes that were not taken are not.
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
                self.session.exchange.handed_over(sent_ns);
            }
        }
        if taken_bytes > 0 {
            self.sent(taken_bytes, shared, effects);
        }
        self.take_back(unsent_bytes, shared, effects);
        true
    }

    /// Records the age of requests without a response. The age is a lower bound of the latency and is recorded
    /// separately.
    pub(super) fn record_age(&self, now_ns: u64, effects: &mut impl Effects) {
        let exchange = &self.session.exchange;
        let (Some(due_ns), Some(outstanding)) = (exchange.outstanding_due_ns(), exchange.outstanding()) else { return };
        let sent_ns = exchange.outstanding_since_ns().unwrap_or(now_ns);
        for _ in 0..outstanding.requests {
            effects.record(Metric::LatencyCensored, Some(due_ns), now_ns.saturating_sub(due_ns));
            effects.record(Metric::ServiceCensored, Some(due_ns), now_ns.saturating_sub(sent_ns));
        }
    }
}
