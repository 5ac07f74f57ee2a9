//! What a receiver counts of one flow: exact within a window of the last numbers. The receiving program keeps the same
//! account (`bpf::receiver`).

use crate::trailer::SEQUENCE_BITS;

/// How many of the last numbers are known one by one.
pub const WINDOW: u64 = 64;

/// The account of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowAccount {
    /// One more than the highest number, from 0 on, beyond the bits that a frame has.
    pub next: u64,
    /// The last numbers: bit `n` is `next - 1 - n`.
    pub window: u64,
    /// Frames, with duplicates.
    pub frames: u64,
    /// Frames that had arrived before.
    pub duplicates: u64,
    /// Frames that arrived after one with a higher number.
    pub reordered: u64,
    /// Of these, the ones behind the window, which may be duplicates.
    pub behind: u64,
}

impl FlowAccount {
    /// Counts a frame with this sequence number.
    #[inline]
    pub fn count(&mut self, sequence: u32) {
        const UNUSED: u32 = u64::BITS - SEQUENCE_BITS;
        self.frames += 1;
        // The difference to the expected number, of the nearest number with these bits.
        let ahead = (u64::from(sequence).wrapping_sub(self.next) << UNUSED) as i64 >> UNUSED;
        if ahead >= 0 {
            let steps = ahead as u64 + 1;
            self.window = if steps < WINDOW { self.window << steps | 1 } else { 1 };
            self.next += steps;
            return;
        }
        let place = ahead.unsigned_abs() - 1;
        if place >= WINDOW {
            self.behind += 1;
            self.reordered += 1;
        } else if self.window >> place & 1 == 1 {
            self.duplicates += 1;
        } else {
            self.window |= 1 << place;
            self.reordered += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(numbers: impl IntoIterator<Item = u64>) -> FlowAccount {
        let mut account = FlowAccount::default();
        numbers.into_iter().for_each(|number| account.count(number as u32 & 0x0fff_ffff));
        account
    }

    #[test]
    fn duplicates_are_no_late_frames() {
        let account = counted([0, 2, 1, 1, 5, 2, 4]);
        assert_eq!((account.next, account.frames), (6, 7));
        assert_eq!((account.duplicates, account.reordered, account.behind), (2, 2, 0));
    }

    #[test]
    fn frames_behind_the_window_are_counted_apart() {
        let account = counted([100, 37, 36, 36]);
        assert_eq!((account.reordered, account.behind, account.duplicates), (3, 2, 0));
    }

    #[test]
    fn numbers_go_on_beyond_the_bits_of_a_frame() {
        let wrap = 1 << SEQUENCE_BITS;
        let account = counted((0..3).map(|step| step * (wrap / 4)).chain([wrap - 1, wrap + 1, wrap, wrap - 1]));
        assert_eq!((account.next, account.reordered, account.duplicates), (wrap + 2, 1, 1));
    }
}
