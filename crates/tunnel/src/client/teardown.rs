//! The end of a client's tunnel: after a failure, before a reconnect, or when the fleet disconnects. Owns what is
//! kept of an ended session and what is released.

use super::effects::{Close, Effects, Socket};
use super::phase::Phase;
use super::VpnClient;

impl VpnClient {
    /// Ends the session: stores its figures, and releases the client's claim.
    pub(super) fn end_tunnel(&mut self, now_ns: u64, effects: &mut impl Effects) {
        self.settle_contest(effects);
        if let Some(session) = self.session.take() {
            self.heard_ns = session.last_received_ns();
            self.retransmits += session.retransmits();
            effects.counts().retransmits += u64::from(session.retransmits());
            self.token = session.token();
        }
        if let (Some(assigned), true) = (&self.assigned, self.phase.is_up()) {
            effects.release(assigned, self.heard_ns);
        }
        if self.current.number > 0 && !self.is_leaving {
            self.current.ended_ns.get_or_insert(now_ns);
        }
        (self.session_due_ns, self.is_session_due, self.ending) = (None, false, None);
        self.echoes.end();
        self.renewal.end(now_ns, effects);
        let detail = "a client's traffic stops for good when its tunnel drops, even if the client connects again";
        effects.break_traffic("tunnel_broke", detail);
    }

    /// Sends an exit notification if there is a tunnel; an attempt in progress is unfinished.
    pub(super) fn leave(&mut self, now_ns: u64, effects: &mut impl Effects) {
        self.is_leaving = true;
        self.settle_contest(effects);
        if self.phase.is_trying() {
            self.current.cause = Some("unfinished");
            effects.failed("unfinished", "the load ended before the client was connected");
        }
        // From here on only the session's own timers count.
        (self.give_up_ns, self.retry_ns) = (None, None);
        if !self.phase.is_up() {
            // The socket is closed too: a new connection would begin nothing.
            self.end_tunnel(now_ns, effects);
            effects.socket().close(Close::Orderly);
            return;
        }
        self.echoes.end();
        if self.phase == Phase::Overdue {
            self.returned_partial(effects);
        }
        self.renewal.end(now_ns, effects);
        if let Some(session) = &mut self.session {
            session.leave(now_ns);
            self.is_session_due = true;
        }
    }
}
