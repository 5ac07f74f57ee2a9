//! A tunnel whose keys could not be renewed. Over UDP the old keys remain in use while they are valid, and a second
//! session begins beside them, from the reset to the options, as in OpenVPN. Over TCP the tunnel ends, because lost
//! data is not repeated. Owns the second session; `exchange` has the first.

use super::fallback_session::FallbackSession;
use super::{first_session, Client, Event, Failure, Stage};
use crate::openvpn::session::TRANSITION_NS;

impl Client {
    /// Handles a failure of the control channel: it ends everything, except during a renewal over UDP.
    pub(super) fn on_control_failure(&mut self, now_ns: u64, failure: Failure) {
        if self.may_fall_back() && !self.session.negotiation().is_open() {
            self.report_failed_renewal(now_ns, failure);
        } else {
            self.fail(failure.name, failure.detail);
        }
    }

    /// Handles the end of a renewal's time window.
    pub(super) fn on_renewal_timeout(&mut self, now_ns: u64) {
        if !self.may_fall_back() {
            return self.fail("renegotiation_timeout", String::new());
        }
        if self.is_pushing() {
            return self.fail("no_push_reply", self.window_end_reason(now_ns));
        }
        if let Some(fallback) = self.fallback.take_if(|fallback| now_ns >= fallback.keys_end_ns) {
            return self.fail(fallback.cause.name, fallback.cause.detail);
        }
        self.report_failed_renewal(now_ns, Failure { name: "renegotiation_timeout", detail: String::new() });
        let next = first_session(&self.config, &self.identity, now_ns);
        let before = std::mem::replace(&mut self.session, next);
        self.session.take_over(before);
        (self.own, self.shares) = (None, None);
        self.begin_window(now_ns);
        if let Some(fallback) = &mut self.fallback {
            (fallback.is_reported, fallback.is_begun) = (false, true);
        }
    }

    /// Reports a failed renewal once per attempt. The latest cause counts.
    fn report_failed_renewal(&mut self, now_ns: u64, cause: Failure) {
        let window_ns = self.config.hand_window_ns;
        // The old keys expire one hour after their renewal began.
        let keys_end_ns = now_ns.saturating_add(TRANSITION_NS.saturating_sub(window_ns));
        let first = || FallbackSession {
            cause: cause.clone(),
            keys_end_ns,
            is_reported: false,
            is_begun: false,
            is_pushing: false,
            pushed: Box::default(),
        };
        let fallback = self.fallback.get_or_insert_with(|| Box::new(first()));
        if !fallback.is_reported {
            fallback.is_reported = true;
            fallback.cause = cause;
            self.events.push_back(Event::RenegotiationFailed);
        }
    }

    /// Completes the second session: its options have arrived and replace those of the first one.
    pub(super) fn finish_fallback(&mut self, now_ns: u64) {
        let Some(fallback) = self.fallback.take() else { return };
        let before = std::mem::replace(&mut self.pushed, fallback.pushed);
        if self.agree() && self.install(now_ns) {
            // Options arrived after the keys.
            self.events.extend([Event::Renegotiated, Event::RenegotiationAccepted]);
            self.is_unaccepted = false;
            if before.texts != self.pushed.texts {
                self.events.push_back(Event::Updated);
            }
        }
    }

    fn may_fall_back(&self) -> bool {
        self.stage == Stage::Up && !self.config.is_stream
    }
}
