//! Renewed keys of one client. The server may refuse them after both sides have them, for example if a token has
//! expired. Owns when a renewal counts as done: when the server uses the new keys, or has been silent for a while.

use super::effects::{Effects, Figures, Metric};

/// A refusal comes immediately, and a lost one is repeated after 2 s, OpenVPN's first timeout. A longer silence means
/// that the server has accepted the keys, ns.
const REFUSAL_NS: u64 = 3_000_000_000;

/// The renewals of one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renewal {
    /// Since when an ordered renewal is due, ns. Set from the action until the keys are known or refused, or the tunnel
    /// ends; meanwhile it counts in `Counts::renewals_pending`.
    ordered_ns: Option<u64>,
    /// New keys that the server has neither accepted nor refused.
    unanswered: Option<Renewed>,
}

/// New keys that this end uses.
#[derive(Clone, Copy, Debug)]
struct Renewed {
    /// Since when they were due, ns, if an action ordered the renewal.
    ordered_ns: Option<u64>,
    /// When both halves were known, ns.
    done_ns: u64,
}

impl Renewed {
    /// When the server's silence accepts the keys, ns.
    fn silent_until_ns(self) -> u64 {
        self.done_ns.saturating_add(REFUSAL_NS)
    }
}

impl Renewal {
    /// Whether an ordered renewal is in progress.
    pub fn is_ordered(&self) -> bool {
        self.ordered_ns.is_some()
    }

    /// Until when the server may still refuse new keys, ns.
    pub fn refusable_until_ns(&self) -> Option<u64> {
        self.unanswered.map(Renewed::silent_until_ns)
    }

    /// Starts a renewal that a scheduled action orders.
    pub fn order(&mut self, due_ns: u64, effects: &mut impl Effects) {
        self.ordered_ns = Some(due_ns);
        effects.counts().renewals_pending += 1;
        effects.counts().renewals_asked += 1;
    }

    /// Records that both halves of new keys are known.
    pub fn done(&mut self, now_ns: u64, effects: &mut impl Effects) {
        // A server does not continue with keys that it has refused.
        self.accept(effects);
        self.unanswered = Some(Renewed { ordered_ns: self.take_ordered(effects), done_ns: now_ns });
    }

    /// Records that the server accepts the newest keys.
    pub fn accept(&mut self, effects: &mut impl Figures) {
        let Some(Renewed { ordered_ns, done_ns }) = self.unanswered.take() else { return };
        effects.counts().renegotiated += 1;
        if let Some(ordered_ns) = ordered_ns {
            effects.record(Metric::Renegotiate, ordered_ns, done_ns.saturating_sub(ordered_ns));
        }
    }

    /// Accepts keys that the server has not refused for long enough.
    pub fn accept_silence(&mut self, now_ns: u64, effects: &mut impl Figures) {
        if self.unanswered.is_some_and(|renewed| now_ns >= renewed.silent_until_ns()) {
            self.accept(effects);
        }
    }

    /// Records that the server refuses the client during or just after a renewal.
    pub fn refuse(&mut self, effects: &mut impl Effects) {
        let unanswered_ns = self.unanswered.take().and_then(|renewed| renewed.ordered_ns);
        let ordered_ns = self.take_ordered(effects);
        effects.counts().renewals_failed += 1;
        effects.counts().renewals_unfinished += u64::from(unanswered_ns.or(ordered_ns).is_some());
    }

    /// Records a failed negotiation; the tunnel continues with its keys.
    pub fn fail(&mut self, effects: &mut impl Effects) {
        let is_ordered = self.take_ordered(effects).is_some();
        effects.counts().renewals_failed += 1;
        effects.counts().renewals_unfinished += u64::from(is_ordered);
    }

    /// Ends all renewals with the tunnel: an unfinished one is never done.
    pub fn end(&mut self, now_ns: u64, effects: &mut impl Effects) {
        match self.unanswered {
            Some(renewed) if now_ns < renewed.silent_until_ns() => {
                effects.counts().renewals_unfinished += u64::from(renewed.ordered_ns.is_some());
                self.unanswered = None;
            }
            _ => self.accept(effects),
        }
        let is_ordered = self.take_ordered(effects).is_some();
        effects.counts().renewals_unfinished += u64::from(is_ordered);
    }

    /// Ends an ordered renewal; returns since when it was due, ns.
    fn take_ordered(&mut self, effects: &mut impl Effects) -> Option<u64> {
        let ordered_ns = self.ordered_ns.take()?;
        effects.counts().renewals_pending -= 1;
        Some(ordered_ns)
    }
}
