//! An attempt from its beginning to its options, and the reaction to a failure: the next attempt after a delay, or
//! none. Owns the reaction to each event of the session and of the socket, and the names of failures.

use leadline_wire::FailureCause;

use super::attempt_log::Attempt;
use super::effects::{Close, Effects, Metric, Socket, SocketError, SocketErrorKind};
use super::phase::{Occasion, Phase, Steps};
use super::server::Transport;
use super::{Action, VpnClient};
use crate::protocol::{Counters, Event, Failure, Output, Step};
use crate::timer::is_due;

/// Delay after a failure, ns; doubles after each further one, as in OpenVPN 2.6 and later (`connect-retry 1 300`).
const FIRST_RETRY_DELAY_NS: u64 = 1_000_000_000;
const LONGEST_REST_NS: u64 = 300_000_000_000;
/// Failure: a change of pushed options could not be applied.
const UPDATE_REJECTED: &str = "push_update_rejected";

impl VpnClient {
    /// Begins an attempt that is due.
    pub(super) fn begin(&mut self, now_ns: u64, due_ns: u64, occasion: Occasion, effects: &mut impl Effects) {
        if let Some(over) = self.attempt() {
            self.log.push(over);
        }
        let server = self.settings.server(self.server_turn);
        let number = self.current.number + 1;
        self.current =
            Attempt { number, occasion, steps: Steps::due(due_ns), server: Some(server.address), ..Attempt::none() };
        (self.heard_ns, self.retry_ns) = (None, None);
        self.first_due_ns.get_or_insert(due_ns);
        self.began_ns = now_ns;
        self.give_up_ns = Some(now_ns.saturating_add(self.settings.attempt_ns));
        effects.counts().attempts += 1;
        effects.counts().reconnects_begun += u64::from(occasion == Occasion::Reconnect);
        let connected = effects.socket().connect(server);
        match connected {
            Err(error) => self.fail(now_ns, error.code, &format!("opening a socket: {error}"), effects),
            Ok(()) if server.transport == Transport::Tcp => self.enter(Phase::Connecting, effects),
            Ok(()) => self.negotiate(now_ns, effects),
        }
    }

    /// Starts the protocol's handshake on a usable socket.
    pub(super) fn negotiate(&mut self, now_ns: u64, effects: &mut impl Effects) {
        self.enter(Phase::Asking, effects);
        self.current.local = effects.socket().local();
        self.session = Some(self.settings.protocol.begin(self.number, self.token.clone(), now_ns));
        self.counted = Counters::default();
        self.is_session_due = true;
    }

    /// Performs one step of the session. When the session waits, its failure ends the attempt.
    pub(super) fn step_session(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let Some(session) = &mut self.session else {
            self.is_session_due = false;
            return;
        };
        match session.poll(now_ns, &mut effects.scratch().control) {
            Output::Send => self.send_control(now_ns, effects),
            Output::Event(event) => self.session_event(now_ns, event, effects),
            Output::Wait(due_ns) => {
                (self.is_session_due, self.session_due_ns) = (false, due_ns);
                if let Some(Failure { name, detail }) = self.ending.take() {
                    self.fail(now_ns, name, &detail, effects);
                }
            }
        }
    }

    /// Sends the packet that the session has written to the driver's buffer.
    fn send_control(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let mut packet = std::mem::take(&mut effects.scratch().control);
        let is_first = self.session.as_ref().is_some_and(|session| session.is_first_packet(&packet));
        effects.counts().resets_sent += u64::from(is_first);
        let sent = effects.socket().send_control(&mut packet);
        effects.scratch().control = packet;
        match sent {
            Err(error) => self.socket_failed(now_ns, &error, effects),
            Ok(sent_ns) if self.current.steps.sent_ns.is_none() => {
                let steps = &mut self.current.steps;
                steps.sent_ns = Some(sent_ns);
                effects.record(Metric::Late, steps.due_ns, steps.since_due(sent_ns));
            }
            Ok(_) => {}
        }
    }

    /// Handles an event of the session.
    fn session_event(&mut self, now_ns: u64, event: Event, effects: &mut impl Effects) {
        match event {
            Event::Step(step) => self.step_done(now_ns, step, effects),
            Event::Up(step) => {
                self.step_done(now_ns, step, effects);
                self.options_received(now_ns, effects);
            }
            Event::CookieAsked => effects.counts().cookies_received += 1,
            Event::Incomplete(failure) => self.stay_incomplete(now_ns, &failure, effects),
            Event::Renewed => self.renewal.done(now_ns, effects),
            Event::RenewalAccepted => self.renewal.accept(effects),
            Event::RenewalRefused => self.renewal.refuse(effects),
            Event::RenewalFailed => self.renewal.fail(effects),
            Event::Updated => self.options_updated(now_ns, effects),
            Event::Pending { until_ns } => {
                effects.counts().auth_pending += 1;
                self.give_up_ns = self.give_up_ns.max(Some(until_ns));
            }
            // The session's last packets are not sent yet.
            Event::Failed(failure) => self.ending = Some(explained(failure)),
        }
    }

    fn step_done(&mut self, now_ns: u64, step: Step, effects: &mut impl Effects) {
        let steps = &mut self.current.steps;
        match step {
            Step::Answered => {
                steps.answered_ns = Some(now_ns);
                self.enter(Phase::Negotiating, effects);
            }
            Step::Tls => steps.tls_ns = Some(now_ns),
            Step::Keys => steps.keys_ns = Some(now_ns),
            Step::Pushed => steps.pushed_ns = Some(now_ns),
            Step::IkeUp => steps.ike_up_ns = Some(now_ns),
            Step::IpAssigned => steps.ip_assigned_ns = Some(now_ns),
            Step::ChildUp => steps.child_up_ns = Some(now_ns),
        }
    }

    /// Handles an error of the socket, or a connection that the server closed.
    pub(super) fn socket_failed(&mut self, now_ns: u64, error: &SocketError, effects: &mut impl Effects) {
        let is_stream = self.settings.server(self.server_turn).transport == Transport::Tcp;
        let is_unanswered = self.phase == Phase::Asking;
        if self.session.is_none() || (!is_stream && !is_unanswered) {
            // A datagram was not delivered; if the server is gone, its silence shows it.
            match error.kind {
                SocketErrorKind::Refused => effects.counts().refused += 1,
                _ => effects.counts().socket_errors += 1,
            }
            return;
        }
        match error.kind {
            SocketErrorKind::Malformed => self.fail(now_ns, "malformed_stream", &error.to_string(), effects),
            SocketErrorKind::Closed if is_unanswered => self.fail(
                now_ns,
                "closed_unanswered",
                "the server took the connection and closed it before it answered the reset: it has as many clients as it \
                 takes (max-clients), or does not know the key of the control channel",
                effects,
            ),
            SocketErrorKind::Closed => self.fail(now_ns, "closed_by_server", &error.to_string(), effects),
            _ => self.fail(now_ns, error.code, &error.to_string(), effects),
        }
    }

    /// Ends an attempt or a tunnel after a failure.
    pub(super) fn fail(&mut self, now_ns: u64, name: &'static str, detail: &str, effects: &mut impl Effects) {
        if self.is_leaving {
            self.end_tunnel(now_ns, effects);
            effects.socket().close(Close::Orderly);
            return;
        }
        let was_up = self.phase.is_up();
        effects.counts().lost += u64::from(self.phase == Phase::Configured);
        self.end_tunnel(now_ns, effects);
        effects.socket().close(Close::Orderly);
        effects.failed(name, detail);
        self.current.cause = Some(name);
        self.current.ended_ns.get_or_insert(now_ns);
        self.server_turn += 1;
        self.failed_ns.get_or_insert(now_ns);
        self.failures += 1;
        // OpenVPN restarts by itself in this case, and reconnects even if other failures are final.
        let is_retried = name == UPDATE_REJECTED || self.failures <= self.settings.retries;
        if FailureCause::from(name).is_final() || !is_retried {
            self.enter(Phase::Failed, effects);
            self.end_arrival(now_ns, effects);
            return;
        }
        let doublings = if was_up { 0 } else { self.failures - 1 };
        let rest_ns = FIRST_RETRY_DELAY_NS.saturating_mul(1 << doublings.min(16)).min(LONGEST_REST_NS);
        self.retry_ns = Some(now_ns + rest_ns);
        self.enter(Phase::Resting, effects);
    }

    /// Ends the client's arrival, configured or not.
    pub(super) fn end_arrival(&mut self, now_ns: u64, effects: &mut impl Effects) {
        if !self.has_arrived {
            self.has_arrived = true;
            effects.arrival_ended(now_ns);
        }
    }

    /// Handles an expired timer.
    pub(super) fn timer_due(&mut self, now_ns: u64, effects: &mut impl Effects) {
        if self.is_leaving {
            self.is_session_due = true;
            return;
        }
        let is_late = is_due(self.give_up_ns, now_ns);
        match (self.phase, self.retry_ns) {
            (Phase::Resting, Some(retry_ns)) if now_ns >= retry_ns => {
                return self.begin(now_ns, retry_ns, Occasion::Retry, effects);
            }
            (Phase::Connecting, _) if is_late => {
                return self.fail(now_ns, "connect_timeout", "no answer to TCP's SYN", effects);
            }
            (Phase::Asking | Phase::Negotiating, _) if is_late => {
                let (name, detail) = self.overdue();
                return self.fail(now_ns, name, &detail, effects);
            }
            (Phase::Overdue, _) if is_late => {
                self.echoes.end();
                self.enter(Phase::Partial, effects);
                self.returned_partial(effects);
            }
            (Phase::Proving | Phase::Overdue | Phase::Contested, _) => {
                self.send_verification(now_ns, effects);
                self.check_verification(now_ns, effects);
            }
            (Phase::Configured, _) => self.send_ping(now_ns, effects),
            _ => {}
        }
        self.is_session_due |= is_due(self.session_due_ns, now_ns);
    }

    /// The failure of a client that did not connect within its attempt's time limit.
    fn overdue(&self) -> (&'static str, String) {
        let name = self.session.as_ref().map_or("reset_unanswered", |session| session.stuck_at());
        let own_ns = self.settings.attempt_ns;
        let allowed_ns = self.give_up_ns.map_or(0, |give_up_ns| give_up_ns.saturating_sub(self.began_ns));
        let silence = FailureCause::from(name).explanation().unwrap_or_default();
        let mut detail = format!("{silence}; ended by the attempt's time limit, {} s", own_ns as f64 / 1e9);
        if allowed_ns > own_ns {
            let allowed_s = allowed_ns as f64 / 1e9;
            detail.push_str(&format!(", which the server's AUTH_PENDING extended to {allowed_s:.1} s"));
        }
        (name, detail)
    }

    /// Performs a scheduled action that is due.
    pub(super) fn act(&mut self, now_ns: u64, due_ns: u64, action: Action, effects: &mut impl Effects) {
        let is_renewing = action == Action::Renegotiate && self.renewal.is_ordered();
        if !self.phase.is_up() || is_renewing {
            effects.counts().actions_skipped += 1;
            return;
        }
        match action {
            Action::Renegotiate => {
                let Some(session) = &mut self.session else { return };
                session.renegotiate(now_ns);
                self.renewal.order(due_ns, effects);
                self.is_session_due = true;
            }
            Action::Reconnect => self.reconnect(now_ns, due_ns, effects),
        }
    }

    /// Connects again from the same address, without an exit notification and with a new socket. A restarted client
    /// has no fixed port (`nobind`), so the server sees a different client.
    fn reconnect(&mut self, now_ns: u64, due_ns: u64, effects: &mut impl Effects) {
        self.end_tunnel(now_ns, effects);
        effects.socket().close(Close::Silent);
        self.enter(Phase::Resting, effects);
        self.begin(now_ns, due_ns, Occasion::Reconnect, effects);
    }
}

/// A session's failure; if it is silence, an explanation is added to the session's message.
fn explained(failure: Failure) -> Failure {
    match FailureCause::from(failure.name).explanation() {
        None => failure,
        Some(silence) => Failure { detail: format!("{silence}; {}", failure.detail), ..failure },
    }
}
