//! What becomes of a tunnel whose keys could not be renewed: over datagrams the old keys go on while they are good, and a session
//! of its own is begun beside them, from the reset to the options, as OpenVPN does. Over a stream the tunnel is over: whatever a
//! stream loses it loses for good. Owns that second way up; the first one is `exchange`'s.

use super::fallback_session::FallbackSession;
use super::{first_session, Client, Event, Failure, Stage};
use crate::openvpn::session::TRANSITION_NS;

impl Client {
    /// The control channel has broken: at once the end of everything but of a renewal of keys over datagrams.
    pub(super) fn on_control_failure(&mut self, now_ns: u64, failure: Failure) {
        if self.may_fall_back() && !self.session.negotiation().is_open() {
            self.report_failed_renewal(now_ns, failure);
        } else {
            self.fail(failure.name, failure.detail);
        }
    }

    /// The window of a renewal has passed.
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
        self.session.succeed(before);
        (self.own, self.shares) = (None, None);
        self.begin_window(now_ns);
        if let Some(fallback) = &mut self.fallback {
            (fallback.is_reported, fallback.is_begun) = (false, true);
        }
    }

    /// Once per attempt. The latest cause counts.
    fn report_failed_renewal(&mut self, now_ns: u64, cause: Failure) {
        let window_ns = self.config.hand_window_ns;
        // The old keys' last hour has run since their renewal began.
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

    /// The options of the second session are there: they take the place of the first one's.
    pub(super) fn finish_fallback(&mut self, now_ns: u64) {
        let Some(fallback) = self.fallback.take() else { return };
        let before = std::mem::replace(&mut self.pushed, fallback.pushed);
        if self.agree() && self.install(now_ns) {
            // Options came after the keys.
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
