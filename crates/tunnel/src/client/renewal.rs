//! Renewed keys of one client: the server may refuse them after both sides have them, as it does where a token has run out. Owns when
//! a renewal counts as done: once the server uses the new keys, or has been silent for a while after them.

use super::effects::{Effects, Figures, Metric};

/// A refusal comes at once, and a lost one is sent again after 2 s, which is OpenVPN's first timeout: the server accepts by a longer
/// silence, ns.
const REFUSAL_NS: u64 = 3_000_000_000;

/// The renewals of one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renewal {
    /// Since when a renewal that the client was told to make is due, ns. Set from the action until the keys are there, are
    /// refused, or the tunnel ends; counted in `Counts::renewals_pending` meanwhile.
    asked_ns: Option<u64>,
    /// New keys that the server has neither accepted nor refused.
    unanswered: Option<Renewed>,
}

/// New keys that are in use at this end.
#[derive(Clone, Copy, Debug)]
struct Renewed {
    /// Since when they had been due, ns, where the client was told to negotiate them.
    asked_ns: Option<u64>,
    /// When both halves were there, ns.
    done_ns: u64,
}

impl Renewed {
    /// When the server's silence about the keys accepts them, ns.
    fn silent_until_ns(self) -> u64 {
        self.done_ns.saturating_add(REFUSAL_NS)
    }
}

impl Renewal {
    /// Whether a renewal that the client was told to make is under way.
    pub fn is_asked(&self) -> bool {
        self.asked_ns.is_some()
    }

    /// Until when a refusal of new keys may still come, ns.
    pub fn refusable_until_ns(&self) -> Option<u64> {
        self.unanswered.map(Renewed::silent_until_ns)
    }

    /// A scheduled action asks for new keys.
    pub fn ask(&mut self, due_ns: u64, effects: &mut impl Effects) {
        self.asked_ns = Some(due_ns);
        effects.counts().renewals_pending += 1;
        effects.counts().renewals_asked += 1;
    }

    /// Both halves of new keys are there.
    pub fn done(&mut self, now_ns: u64, effects: &mut impl Effects) {
        // A server begins nothing with keys that it has refused.
        self.accept(effects);
        self.unanswered = Some(Renewed { asked_ns: self.take_asked(effects), done_ns: now_ns });
    }

    /// The server accepts the newest keys.
    pub fn accept(&mut self, effects: &mut impl Figures) {
        let Some(Renewed { asked_ns, done_ns }) = self.unanswered.take() else { return };
        effects.counts().renegotiated += 1;
        if let Some(asked_ns) = asked_ns {
            effects.record(Metric::Renegotiate, asked_ns, done_ns.saturating_sub(asked_ns));
        }
    }

    /// Keys that the server has not refused for long enough are accepted.
    pub fn accept_silence(&mut self, now_ns: u64, effects: &mut impl Figures) {
        if self.unanswered.is_some_and(|renewed| now_ns >= renewed.silent_until_ns()) {
            self.accept(effects);
        }
    }

    /// The server refuses the client, whose keys were being renewed or had just been.
    pub fn refuse(&mut self, effects: &mut impl Effects) {
        let unanswered_ns = self.unanswered.take().and_then(|renewed| renewed.asked_ns);
        let asked_ns = self.take_asked(effects);
        effects.counts().renewals_failed += 1;
        effects.counts().renewals_unfinished += u64::from(unanswered_ns.or(asked_ns).is_some());
    }

    /// A negotiation came to nothing, and the tunnel goes on with its keys.
    pub fn fail(&mut self, effects: &mut impl Effects) {
        let is_asked = self.take_asked(effects).is_some();
        effects.counts().renewals_failed += 1;
        effects.counts().renewals_unfinished += u64::from(is_asked);
    }

    /// The tunnel ends: what is not done now is never done.
    pub fn end(&mut self, now_ns: u64, effects: &mut impl Effects) {
        match self.unanswered {
            Some(renewed) if now_ns < renewed.silent_until_ns() => {
                effects.counts().renewals_unfinished += u64::from(renewed.asked_ns.is_some());
                self.unanswered = None;
            }
            _ => self.accept(effects),
        }
        let is_asked = self.take_asked(effects).is_some();
        effects.counts().renewals_unfinished += u64::from(is_asked);
    }

    /// A renewal that the client was told to make is waited for no longer; returns since when it had been due, ns.
    fn take_asked(&mut self, effects: &mut impl Effects) -> Option<u64> {
        let asked_ns = self.asked_ns.take()?;
        effects.counts().renewals_pending -= 1;
        Some(asked_ns)
    }
}
