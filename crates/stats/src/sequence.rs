//! Loss, duplicates and reordering from sequence numbers, each counted once and separately (in iperf3 one can hide
//! another), with the lengths of bursts of loss and the extents of reordering.

use crate::gaps::Gaps;
use crate::lengths::Lengths;
use crate::loss_bursts::LossBursts;

/// The classification of one arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Received for the first time, in order.
    InOrder,
    /// Received for the first time, after one with a higher number (RFC 4737, 3.3: "s < NextExp").
    Reordered,
    /// Received before, or a number that no sender can have.
    Duplicate,
    /// Older than the window, so it may be new or a duplicate. Counted separately: counting it as received might hide
    /// a loss.
    Stale,
}

/// Tracks the last sequence numbers of one flow in fixed memory: by default 2^18 numbers in 32 KiB, and 1024 gaps in
/// 24 KiB.
#[derive(Clone, Debug)]
pub struct SequenceTracker {
    seen: Box<[u64]>,
    next_expected: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    stale: u64,
    gaps: Gaps,
    /// The bursts among the numbers that have left the window.
    bursts: LossBursts,
}

const WINDOW: u64 = 1 << 18;
const WORD_BITS: u64 = 64;
/// Numbers in the window for each gap that is remembered.
const NUMBERS_PER_GAP: u64 = 256;

impl Default for SequenceTracker {
    fn default() -> Self {
        Self::with_window(WINDOW)
    }
}

impl SequenceTracker {
    /// Creates a tracker of at least this many numbers, at most 2^18, one bit each.
    pub fn with_window(numbers: u64) -> Self {
        let words = numbers.clamp(1, WINDOW).div_ceil(WORD_BITS).next_power_of_two();
        Self {
            seen: vec![0; words as usize].into_boxed_slice(),
            next_expected: 0,
            received: 0,
            duplicates: 0,
            reordered: 0,
            stale: 0,
            gaps: Gaps::new((words * WORD_BITS / NUMBERS_PER_GAP).max(16) as usize),
            bursts: LossBursts::default(),
        }
    }

    /// Records the sequence number of one arrival; the first of a flow is 0.
    #[inline]
    pub fn record(&mut self, sequence: u64) -> Arrival {
        if sequence == u64::MAX {
            // The highest number has no successor; no sender gets that far.
            self.duplicates += 1;
            return Arrival::Duplicate;
        }
        if sequence >= self.next_expected {
            if sequence > self.next_expected {
                self.gaps.open(self.next_expected, sequence, self.received);
            }
            self.advance(sequence);
            self.mark(sequence);
            self.received += 1;
            return Arrival::InOrder;
        }
        if self.next_expected - sequence > self.window() {
            self.stale += 1;
            return Arrival::Stale;
        }
        if self.is_marked(sequence) {
            self.duplicates += 1;
            return Arrival::Duplicate;
        }
        self.mark(sequence);
        self.gaps.fill(sequence, self.received);
        self.received += 1;
        self.reordered += 1;
        Arrival::Reordered
    }

    /// Returns the number of distinct packets received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of packets received more than once.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the number of packets that arrived after a later one.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Returns the number of packets that were too old to distinguish from duplicates; they are in no other count.
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Returns the number of packets that had not arrived when a later one had. A packet that arrives late is no
    /// longer missing.
    pub fn missing(&self) -> u64 {
        self.next_expected - self.received
    }

    /// Returns how many of `sent` packets never arrived, including those behind the last one that did.
    pub fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received)
    }

    /// Returns the lengths of the bursts of loss among the first `sent` packets, those behind the last one that
    /// arrived included: runs of consecutive numbers that never arrived. Their sum is `lost`.
    pub fn loss_bursts(&self, sent: u64) -> Lengths {
        let mut bursts = self.bursts.clone();
        let in_window = self.next_expected.saturating_sub(self.window());
        self.settle(&mut bursts, in_window, self.next_expected.min(sent));
        bursts.lost(sent.saturating_sub(self.next_expected));
        bursts.lengths()
    }

    /// Returns the extents of the reordered packets (RFC 4737, 4.2.2), as far as their gaps were remembered.
    pub fn reorder_extents(&self) -> &Lengths {
        self.gaps.extents()
    }

    /// Returns the number of reordered packets whose extent is unknown, because too many gaps were open.
    pub fn unknown_extents(&self) -> u64 {
        self.gaps.unknown()
    }

    /// Settles the numbers of the window from `from` up to `to`, whole words at a time.
    fn settle(&self, bursts: &mut LossBursts, mut from: u64, to: u64) {
        while from < to {
            let in_word = (WORD_BITS - from % WORD_BITS).min(to - from);
            bursts.settle(self.seen[self.word(from)] >> (from % WORD_BITS), in_word);
            from += in_word;
        }
    }

    /// Clears the part of the window up to and including `sequence`, whole words at a time, so that jumping numbers
    /// from a stranger do not cost a step each. What leaves the window is settled.
    fn advance(&mut self, sequence: u64) {
        let window = self.window();
        let leaves = self.next_expected.saturating_sub(window);
        let stays = (sequence + 1).saturating_sub(window);
        if sequence == self.next_expected {
            if stays > leaves {
                if self.is_marked(leaves) {
                    self.bursts.arrived();
                } else {
                    self.bursts.lost(1);
                }
            }
        } else {
            let mut bursts = std::mem::take(&mut self.bursts);
            self.settle(&mut bursts, leaves, stays.min(self.next_expected));
            bursts.lost(stays.saturating_sub(self.next_expected));
            self.bursts = bursts;
        }
        if sequence - self.next_expected >= window {
            self.seen.fill(0);
        } else {
            let mut skipped = self.next_expected;
            while skipped < sequence {
                let in_word = (64 - skipped % 64).min(sequence - skipped);
                let ones = if in_word == 64 { u64::MAX } else { (1 << in_word) - 1 };
                let word = self.word(skipped);
                self.seen[word] &= !(ones << (skipped % 64));
                skipped += in_word;
            }
        }
        self.next_expected = sequence.saturating_add(1);
    }

    fn mark(&mut self, sequence: u64) {
        let word = self.word(sequence);
        self.seen[word] |= bit(sequence);
    }

    fn is_marked(&self, sequence: u64) -> bool {
        self.seen[self.word(sequence)] & bit(sequence) != 0
    }

    fn window(&self) -> u64 {
        self.seen.len() as u64 * WORD_BITS
    }

    fn word(&self, sequence: u64) -> usize {
        // The number of words is a power of two.
        (sequence / WORD_BITS) as usize & (self.seen.len() - 1)
    }
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn the_tail_that_never_came_is_lost_too() {
        let mut tracker = SequenceTracker::default();
        for sequence in 0..90 {
            tracker.record(sequence);
        }
        assert_eq!(tracker.lost(100), 10);
    }

    #[test]
    fn a_late_packet_is_missing_no_more() {
        let mut tracker = SequenceTracker::default();
        assert_eq!(tracker.missing(), 0);
        for (sequence, missing) in [(0, 0), (3, 2), (3, 2), (1, 1), (4, 1), (2, 0)] {
            tracker.record(sequence);
            assert_eq!(tracker.missing(), missing, "after {sequence}");
        }
    }

    #[test]
    fn a_duplicate_does_not_hide_a_loss() {
        let mut tracker = SequenceTracker::default();
        for sequence in [0, 1, 1, 3] {
            tracker.record(sequence);
        }
        assert_eq!((tracker.lost(4), tracker.duplicates(), tracker.reordered()), (1, 1, 0));
    }

    #[test]
    fn a_gap_wider_than_the_window_forgets_all() {
        let mut tracker = SequenceTracker::default();
        tracker.record(5);
        tracker.record(5 + 3 * WINDOW);
        assert_eq!(tracker.record(4 + 3 * WINDOW), Arrival::Reordered);
        assert_eq!(tracker.record(5), Arrival::Stale);
        assert_eq!((tracker.stale(), tracker.received(), tracker.reordered()), (1, 3, 1));
    }

    #[test]
    fn a_small_window_covers_its_stated_length() {
        let mut tracker = SequenceTracker::with_window(100);
        tracker.record(0);
        tracker.record(127);
        assert_eq!(
            (tracker.record(1), tracker.record(0), tracker.record(127)),
            (Arrival::Reordered, Arrival::Duplicate, Arrival::Duplicate,)
        );
        tracker.record(128);
        assert_eq!(tracker.record(1), Arrival::Duplicate);
        tracker.record(200);
        assert_eq!(tracker.record(70), Arrival::Stale);
    }

    #[test]
    fn extents_are_those_of_rfc_4737() {
        let mut tracker = SequenceTracker::default();
        // 4.2.2: the distance in arrivals to the first packet with a higher number; duplicates are no arrivals.
        for number in [0, 1, 4, 4, 2, 3, 5, 8, 9, 7, 6] {
            tracker.record(number);
        }
        let extents = tracker.reorder_extents();
        assert_eq!((tracker.reordered(), extents.count(), tracker.unknown_extents()), (4, 4, 0));
        assert_eq!((extents.sum(), extents.longest()), (1 + 2 + 2 + 3, 3));
        assert_eq!(extents.by_doubling(), [1, 3]);
    }

    #[test]
    fn bursts_of_loss_are_counted_at_the_head_and_at_the_tail() {
        let mut tracker = SequenceTracker::default();
        for number in (3..10).chain([11]).chain(15..20) {
            tracker.record(number);
        }
        let bursts = tracker.loss_bursts(24);
        assert_eq!((bursts.count(), bursts.sum(), bursts.longest()), (4, 3 + 1 + 3 + 4, 4));
        assert_eq!((bursts.sum(), bursts.by_doubling()), (tracker.lost(24), &[1, 2, 1][..]));
    }

    #[test]
    fn late_packet_splits_a_burst_of_loss() {
        let mut tracker = SequenceTracker::default();
        for number in [0, 8, 4] {
            tracker.record(number);
        }
        let bursts = tracker.loss_bursts(9);
        assert_eq!((bursts.count(), bursts.longest(), bursts.sum()), (2, 3, 6));
    }

    #[test]
    fn counts_are_exact_across_two_to_the_32nd() {
        const WRAP: u64 = 1 << 32;
        let mut tracker = SequenceTracker::default();
        tracker.record(0);
        tracker.record(WRAP - 1000);
        // Two lost just before the wrap and one just behind it, one late by 3, one twice.
        for number in WRAP - 999..WRAP + 1000 {
            if [WRAP - 4, WRAP - 3, WRAP + 1, WRAP + 4].contains(&number) {
                continue;
            }
            tracker.record(number);
            if number == WRAP {
                tracker.record(number);
            }
            if number == WRAP + 7 {
                tracker.record(WRAP + 4);
            }
        }
        let sent = WRAP + 1000;
        assert_eq!((tracker.duplicates(), tracker.reordered(), tracker.stale()), (1, 1, 0));
        assert_eq!(tracker.lost(sent), WRAP - 1001 + 3);
        let bursts = tracker.loss_bursts(sent);
        assert_eq!((bursts.count(), bursts.sum(), bursts.longest()), (3, tracker.lost(sent), WRAP - 1001));
        assert_eq!(tracker.reorder_extents().longest(), 3);
    }

    /// The lengths of the runs of numbers below `sent` that are not in the set.
    fn runs(seen: &HashSet<u64>, sent: u64) -> Lengths {
        let mut bursts = LossBursts::default();
        for number in 0..sent {
            bursts.settle(u64::from(seen.contains(&number)), 1);
        }
        bursts.lengths()
    }

    proptest! {
        #[test]
        fn bursts_agree_with_a_set(
            jumps in proptest::collection::vec((1u64..400, 0u64..200), 0..200), tail in 0u64..300,
        ) {
            // A window of 1024, so that numbers leave it.
            let mut tracker = SequenceTracker::with_window(1024);
            let (mut seen, mut highest) = (HashSet::new(), 0u64);
            for (jump, back) in jumps {
                highest += if jump < 300 { 1 } else { jump * 5 };
                for number in [highest, highest.saturating_sub(back)] {
                    if tracker.record(number) != Arrival::Stale {
                        seen.insert(number);
                    }
                }
            }
            let sent = highest + 1 + tail;
            prop_assert_eq!(tracker.loss_bursts(sent), runs(&seen, sent));
            prop_assert_eq!(tracker.loss_bursts(sent).sum(), tracker.lost(sent));
        }

        #[test]
        fn extents_agree_with_the_definition(order in Just((0u64..60).collect::<Vec<_>>()).prop_shuffle()) {
            let mut tracker = SequenceTracker::default();
            let mut expected = Lengths::default();
            for (index, number) in order.iter().enumerate() {
                tracker.record(*number);
                if let Some(first) = order[..index].iter().position(|earlier| earlier > number) {
                    expected.record((index - first) as u64);
                }
            }
            prop_assert_eq!(tracker.reorder_extents(), &expected);
        }

        #[test]
        fn jumps_of_any_size_agree_with_a_set(jumps in proptest::collection::vec((0u64..3 * WINDOW / 2, 0u64..200), 0..60)) {
            let mut tracker = SequenceTracker::default();
            let (mut seen, mut highest) = (HashSet::new(), 0u64);
            for (jump, back) in jumps {
                highest += jump;
                for number in [highest, highest.saturating_sub(back)] {
                    let fresh = seen.insert(number);
                    prop_assert_eq!(tracker.record(number) != Arrival::Duplicate, fresh);
                }
            }
        }

        #[test]
        fn agrees_with_a_set(numbers in proptest::collection::vec(0u64..5000, 0..2000)) {
            let mut tracker = SequenceTracker::default();
            let (mut seen, mut highest) = (HashSet::new(), None);
            let (mut duplicates, mut reordered) = (0, 0);
            for number in numbers {
                if !seen.insert(number) { duplicates += 1; }
                else if Some(number) < highest { reordered += 1; }
                highest = highest.max(Some(number));
                tracker.record(number);
            }
            prop_assert_eq!(tracker.received(), seen.len() as u64);
            prop_assert_eq!(tracker.duplicates(), duplicates);
            prop_assert_eq!(tracker.reordered(), reordered);
        }
    }
}
