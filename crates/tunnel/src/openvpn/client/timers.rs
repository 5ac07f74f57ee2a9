//! A client's timers: how long a negotiation may take, when to ask for options again, keepalives, the server's silence, and when
//! keys are replaced. Owns what happens as each of them runs out, and which is next.

use super::{Client, Stage, PING, SECOND_NS};
use crate::openvpn::config::Silence;

/// Between one request for options and the next.
const REQUEST_NS: u64 = 5 * SECOND_NS;

impl Client {
    pub(super) fn check_timers(&mut self, now_ns: u64) {
        if matches!(self.stage, Stage::Failed | Stage::Left) {
            return;
        }
        self.session.expire(now_ns);
        if now_ns >= self.window_end_ns() {
            match self.stage {
                Stage::Up => self.on_renewal_timeout(now_ns),
                _ => self.fail(self.stuck_at(), self.window_end_reason(now_ns)),
            }
            return;
        }
        if now_ns >= self.request_at_ns() {
            self.session.current().send_message("PUSH_REQUEST");
            self.request_at_ns = now_ns.saturating_add(REQUEST_NS);
        }
        if self.stage == Stage::Up {
            self.check_idle(now_ns);
        }
    }

    fn check_idle(&mut self, now_ns: u64) {
        if now_ns >= self.silence_end_ns() {
            let name = match self.silence() {
                Some(Silence::Exit(_)) => "ping_exit",
                _ => "ping_restart",
            };
            return self.fail(name, "nothing came from the server for too long".to_owned());
        }
        if now_ns >= self.ping_at_ns() {
            self.due.push_back(&PING);
            self.sent_at_ns = now_ns;
        }
        if now_ns >= self.renewal_at_ns() {
            self.renegotiate(now_ns);
        }
    }

    /// The next timer to run out, ns; `u64::MAX`: none.
    pub(super) fn next_timer_ns(&self) -> u64 {
        let own_ns = match self.stage {
            Stage::Failed => return u64::MAX,
            // Who has left waits for nobody's answer but the acknowledgement of the farewell.
            Stage::Left => u64::MAX,
            Stage::Connecting | Stage::Pushing => self.window_end_ns().min(self.request_at_ns()),
            Stage::Up => {
                let idle_ns = self.silence_end_ns().min(self.ping_at_ns()).min(self.renewal_at_ns());
                self.window_end_ns().min(self.request_at_ns()).min(idle_ns)
            }
        };
        self.session.deadline().map_or(own_ns, |at_ns| at_ns.min(own_ns))
    }

    /// When what is being waited for has taken too long, ns.
    fn window_end_ns(&self) -> u64 {
        let is_open = self.session.negotiation().is_open();
        let negotiation_ns = if is_open { u64::MAX } else { self.window_end_ns };
        let keys_end_ns = self.fallback.as_ref().map_or(u64::MAX, |fallback| fallback.keys_end_ns);
        let end_ns = negotiation_ns.min(keys_end_ns);
        if !self.is_pushing() {
            return end_ns;
        }
        // More time for the answer is no more time for silence.
        let silence_ns = self.last_received_ns.saturating_add(self.config.hand_window_ns);
        end_ns.min(self.push_end_ns).min(silence_ns)
    }

    /// What has ended the waiting, and how long that was.
    pub(super) fn window_end_reason(&self, now_ns: u64) -> String {
        let window_ns = self.config.hand_window_ns;
        let window_s = window_ns / SECOND_NS;
        let given_ns = self.push_end_ns.saturating_sub(self.keys_at_ns);
        if !self.is_pushing() || given_ns == window_ns {
            format!("ended by the profile's hand-window, {window_s} s")
        } else if now_ns >= self.push_end_ns {
            format!("ended by the time that the server's AUTH_PENDING gave it, {} s", given_ns / SECOND_NS)
        } else {
            format!(
                "ended by the profile's hand-window, {window_s} s without a packet, while AUTH_PENDING asked for time"
            )
        }
    }

    fn request_at_ns(&self) -> u64 {
        if self.is_pushing() {
            self.request_at_ns
        } else {
            u64::MAX
        }
    }

    pub(super) fn begin_window(&mut self, now_ns: u64) {
        self.window_end_ns = now_ns.saturating_add(self.config.hand_window_ns);
    }

    fn renewal_at_ns(&self) -> u64 {
        if self.session.negotiation().is_open() && self.fallback.is_none() {
            self.renewal.due_ns()
        } else {
            u64::MAX
        }
    }

    fn ping_at_ns(&self) -> u64 {
        let after_s = self.pushed.ping_s.or(self.config.ping_s).filter(|s| *s > 0);
        after_s.map_or(u64::MAX, |s| self.sent_at_ns.saturating_add(u64::from(s) * SECOND_NS))
    }

    fn silence_end_ns(&self) -> u64 {
        match self.silence() {
            None | Some(Silence::Restart(0) | Silence::Exit(0)) => u64::MAX,
            Some(Silence::Restart(s) | Silence::Exit(s)) => {
                self.last_received_ns.saturating_add(u64::from(s) * SECOND_NS)
            }
        }
    }

    /// What the server pushes counts.
    fn silence(&self) -> Option<Silence> {
        let pushed = &self.pushed;
        pushed.ping_restart_s.map(Silence::Restart).or(pushed.ping_exit_s.map(Silence::Exit)).or(self.config.silence)
    }
}
