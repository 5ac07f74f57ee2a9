//! A client's timers: the time limit of a negotiation, repeated requests for options, keepalives, the server's
//! silence, and key renewal. Owns what happens when each expires, and which is next.

use super::{Client, PushWait, Stage, PING, SECOND_NS};
use crate::openvpn::config::Silence;
use crate::timer::{earlier, is_due};

/// Interval of requests for options.
const REQUEST_NS: u64 = 5 * SECOND_NS;

impl Client {
    pub(super) fn check_timers(&mut self, now_ns: u64) {
        if matches!(self.stage, Stage::Failed | Stage::Left) {
            return;
        }
        self.session.expire(now_ns);
        if is_due(self.window_end_ns(), now_ns) {
            match self.stage {
                Stage::Up => self.on_renewal_timeout(now_ns),
                _ => self.fail(self.stuck_at(), self.window_end_reason(now_ns)),
            }
            return;
        }
        let is_pushing = self.is_pushing();
        if let Some(wait) = self.push_wait.as_mut().filter(|wait| is_pushing && now_ns >= wait.request_ns) {
            wait.request_ns = now_ns.saturating_add(REQUEST_NS);
            self.session.current().send_message("PUSH_REQUEST");
        }
        if self.stage == Stage::Up {
            self.check_idle(now_ns);
        }
    }

    fn check_idle(&mut self, now_ns: u64) {
        if is_due(self.silence_end_ns(), now_ns) {
            let name = match self.silence() {
                Some(Silence::Exit(_)) => "ping_exit",
                _ => "ping_restart",
            };
            return self.fail(name, "the server sent nothing for too long".to_owned());
        }
        if is_due(self.ping_at_ns(), now_ns) {
            self.due.push_back(&PING);
            self.sent_at_ns = now_ns;
        }
        if is_due(self.renewal_at_ns(), now_ns) {
            self.renegotiate(now_ns);
        }
    }

    /// The next timer to expire, ns; `None` if none is set.
    pub(super) fn next_timer_ns(&self) -> Option<u64> {
        let own_ns = match self.stage {
            Stage::Failed => return None,
            // A disconnected client only waits for the acknowledgement of its exit notification.
            Stage::Left => None,
            Stage::Connecting | Stage::Pushing => self.negotiation_timer_ns(),
            Stage::Up => {
                let idle_ns = earlier(self.silence_end_ns(), earlier(self.ping_at_ns(), self.renewal_at_ns()));
                earlier(self.negotiation_timer_ns(), idle_ns)
            }
        };
        earlier(self.session.deadline(), own_ns)
    }

    /// The next timer of negotiating keys and options.
    fn negotiation_timer_ns(&self) -> Option<u64> {
        earlier(self.window_end_ns(), self.running_push_wait().map(|wait| wait.request_ns))
    }

    /// When the current negotiation, the old keys or the wait for options times out, ns; `None` while none of them is active.
    fn window_end_ns(&self) -> Option<u64> {
        let negotiation_ns = (!self.session.negotiation().is_open()).then_some(self.window_end_ns);
        let keys_end_ns = self.fallback.as_ref().map(|fallback| fallback.keys_end_ns);
        let end_ns = earlier(negotiation_ns, keys_end_ns);
        let Some(wait) = self.running_push_wait() else { return end_ns };
        // More time for the answer does not extend the time limit of silence.
        let silence_ns = self.last_received_ns.saturating_add(self.config.hand_window_ns);
        earlier(end_ns, Some(wait.end_ns.min(silence_ns)))
    }

    /// The limits of the wait for options, while it lasts.
    fn running_push_wait(&self) -> Option<PushWait> {
        self.push_wait.filter(|_| self.is_pushing())
    }

    /// The limit that ended the wait, and its length.
    pub(super) fn window_end_reason(&self, now_ns: u64) -> String {
        let window_ns = self.config.hand_window_ns;
        let window_s = window_ns / SECOND_NS;
        let extended = self.running_push_wait().filter(|wait| wait.end_ns - wait.since_ns != window_ns);
        let Some(wait) = extended else {
            return format!("ended by the profile's hand-window, {window_s} s");
        };
        let limit_ns = wait.end_ns - wait.since_ns;
        if now_ns >= wait.end_ns {
            format!("ended by the time limit of the server's AUTH_PENDING, {} s", limit_ns / SECOND_NS)
        } else {
            format!(
                "ended by the profile's hand-window, {window_s} s without a packet, while AUTH_PENDING asked for time"
            )
        }
    }

    pub(super) fn begin_window(&mut self, now_ns: u64) {
        self.window_end_ns = now_ns.saturating_add(self.config.hand_window_ns);
    }

    fn renewal_at_ns(&self) -> Option<u64> {
        let is_possible = self.session.negotiation().is_open() && self.fallback.is_none();
        self.renewal.due_ns().filter(|_| is_possible)
    }

    fn ping_at_ns(&self) -> Option<u64> {
        let after_s = self.pushed.ping_s.or(self.config.ping_s).filter(|s| *s > 0)?;
        Some(self.sent_at_ns.saturating_add(u64::from(after_s) * SECOND_NS))
    }

    fn silence_end_ns(&self) -> Option<u64> {
        match self.silence()? {
            Silence::Restart(0) | Silence::Exit(0) => None,
            Silence::Restart(s) | Silence::Exit(s) => {
                Some(self.last_received_ns.saturating_add(u64::from(s) * SECOND_NS))
            }
        }
    }

    /// The pushed values override the profile's.
    fn silence(&self) -> Option<Silence> {
        let pushed = &self.pushed;
        pushed.ping_restart_s.map(Silence::Restart).or(pushed.ping_exit_s.map(Silence::Exit)).or(self.config.silence)
    }
}
