//! When a receiver of datagrams stops counting. What has not arrived when its sender ends may wait in a deep queue: it is
//! late, and lost only if it never comes. Decides from times alone; the event loops of receivers ask it.

use super::{DRAIN_NS, MAX_DRAIN_NS};
use crate::patience::patience_ns;

/// After the sender has reported its count, this much silence means that the missing datagrams are lost, ns.
const SILENCE_NS: u64 = 500_000_000;

/// What a receiver knows of its flow. Times are ns of this host's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverProgress {
    /// How many datagrams were sent, once the sender has ended and said so.
    pub expected: Option<u64>,
    /// When that was learned.
    pub count_received_ns: Option<u64>,
    /// Distinct datagrams that have arrived.
    pub received: u64,
    /// When the last one was read.
    pub last_read_ns: Option<u64>,
}

/// The end of a receiver's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainEnd {
    /// When it stops counting, ns, unless something arrives before.
    pub at_ns: u64,
    /// Whether it then has waited as long as it may, not for a silence: what is missing may still come.
    pub is_cut_off: bool,
}

impl ReceiverProgress {
    /// Returns when to stop counting, as far as is known now; the sender ends at `over_ns` at the latest.
    pub fn find_end(&self, over_ns: u64) -> DrainEnd {
        if let Some((expected, count_received_ns)) = self.expected.zip(self.count_received_ns) {
            if self.received >= expected {
                return DrainEnd { at_ns: count_received_ns, is_cut_off: false };
            }
        }
        // The count may wait in the same queue as the datagrams, behind them.
        let (last_sign_ns, silence_ns) = match self.count_received_ns {
            Some(count_received_ns) => (count_received_ns, SILENCE_NS),
            None => (over_ns, patience_ns(DRAIN_NS)),
        };
        let silent_ns = last_sign_ns.max(self.last_read_ns.unwrap_or(0)).saturating_add(silence_ns);
        let latest_ns = over_ns.saturating_add(patience_ns(MAX_DRAIN_NS));
        DrainEnd { at_ns: silent_ns.min(latest_ns), is_cut_off: latest_ns < silent_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SENT: u64 = 1500;

    /// Lets a queue deliver one datagram after each gap from 0 on, whose sender ended at once; its count comes behind the
    /// datagrams, or before them. Returns how many the receiver counted, and whether it was cut off.
    fn drain(gap_ns: u64, delivered: u64, count_received_ns: u64) -> (u64, bool) {
        let mut progress = ReceiverProgress::default();
        let mut events: Vec<(u64, bool)> = (1..=delivered).map(|number| (number * gap_ns, true)).collect();
        events.push((count_received_ns, false));
        events.sort_unstable();
        for (now, is_datagram) in events {
            let end = progress.find_end(0);
            if now >= end.at_ns {
                return (progress.received, end.is_cut_off);
            }
            if is_datagram {
                progress.received += 1;
                progress.last_read_ns = Some(now);
            } else {
                (progress.expected, progress.count_received_ns) = (Some(SENT), Some(now));
            }
        }
        (progress.received, progress.find_end(0).is_cut_off)
    }

    #[test]
    fn what_waits_in_a_deep_queue_is_counted_while_it_comes() {
        // 12 ms: 1 Mbit/s. The last one comes 18 s after the sender's end.
        let behind_ns = SENT * 12 * MS + 1;
        for count_received_ns in [0, 5_000 * MS, behind_ns] {
            assert_eq!(drain(12 * MS, SENT, count_received_ns), (SENT, false), "{count_received_ns}");
            assert_eq!(drain(12 * MS, SENT - 7, count_received_ns), (SENT - 7, false), "{count_received_ns}");
        }
    }

    #[test]
    fn receiver_that_may_wait_no_longer_is_cut_off() {
        let arrived = MAX_DRAIN_NS / (15 * MS);
        for count_received_ns in [0, SENT * 15 * MS + 1] {
            assert_eq!(drain(15 * MS, SENT, count_received_ns), (arrived, true), "{count_received_ns}");
        }
    }

    #[test]
    fn silence_after_the_count_ends_the_wait_soon_and_before_it_late() {
        let progress = ReceiverProgress { received: 3, last_read_ns: Some(40 * MS), ..ReceiverProgress::default() };
        assert_eq!(progress.find_end(100 * MS), DrainEnd { at_ns: 100 * MS + DRAIN_NS, is_cut_off: false });
        let counted = ReceiverProgress { expected: Some(4), count_received_ns: Some(50 * MS), ..progress };
        assert_eq!(counted.find_end(100 * MS), DrainEnd { at_ns: 50 * MS + SILENCE_NS, is_cut_off: false });
        let complete = ReceiverProgress { expected: Some(3), ..counted };
        assert_eq!(complete.find_end(100 * MS), DrainEnd { at_ns: 50 * MS, is_cut_off: false });
    }
}
