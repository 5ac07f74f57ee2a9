//! The anti-replay window of a security association (RFC 4303, section 3.4.3), and the upper half of extended sequence
//! numbers (appendix A2). A packet is checked before it is authenticated and recorded after, so that a forged one
//! never moves the window.

/// The largest window, packets.
pub const MAX_WINDOW: u32 = 1024;
const WORDS: usize = (MAX_WINDOW / 64) as usize;

/// Which sequence numbers have been received.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// The highest authenticated number; 0 before the first.
    highest: u64,
    /// Number of packets behind `highest` that are still accepted; 0 switches the check off.
    size: u32,
    /// One bit per number, at `number % MAX_WINDOW`; boxed for windows above 64.
    seen: Seen,
}

#[derive(Clone, Debug)]
enum Seen {
    Small(u64),
    Large(Box<[u64; WORDS]>),
}

impl ReplayWindow {
    /// A window of `size` packets, at most [`MAX_WINDOW`]; 0 accepts every number.
    #[must_use]
    pub fn new(size: u32) -> Self {
        let size = size.min(MAX_WINDOW);
        let seen = if size <= 64 { Seen::Small(0) } else { Seen::Large(Box::new([0; WORDS])) };
        Self { highest: 0, size, seen }
    }

    /// The full number of a packet whose lower 32 bits are `low`: the one within 2^31 of the window.
    #[must_use]
    pub fn extend(&self, low: u32) -> u64 {
        let (high, top) = (self.highest >> 32, self.highest as u32);
        let bottom = top.wrapping_sub(self.size.saturating_sub(1));
        let in_window_epoch = if top >= self.size.saturating_sub(1) {
            // Case A: the window lies within one subspace.
            if low >= bottom {
                high
            } else {
                high + 1
            }
        } else if low >= bottom {
            // Case B: the window spans two subspaces.
            high.saturating_sub(1)
        } else {
            high
        };
        in_window_epoch << 32 | u64::from(low)
    }

    /// Whether a packet of this number is new.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        if number == 0 {
            return false;
        }
        if self.size == 0 || number > self.highest {
            return true;
        }
        self.highest - number < u64::from(self.size) && !self.is_seen(number)
    }

    /// Records the number of an authenticated packet.
    pub fn record(&mut self, number: u64) {
        if number > self.highest {
            let advance = number - self.highest;
            match &mut self.seen {
                Seen::Small(bits) => *bits = if advance >= 64 { 0 } else { *bits << advance },
                Seen::Large(words) => {
                    for skipped in 1..=advance.min(u64::from(MAX_WINDOW)) {
                        let (word, bit) = position(self.highest + skipped);
                        words[word] &= !bit;
                    }
                }
            }
            self.highest = number;
        }
        let behind = self.highest - number;
        match &mut self.seen {
            Seen::Small(bits) if behind < 64 => *bits |= 1 << behind,
            Seen::Small(_) => {}
            Seen::Large(words) => {
                let (word, bit) = position(number);
                words[word] |= bit;
            }
        }
    }

    fn is_seen(&self, number: u64) -> bool {
        match &self.seen {
            Seen::Small(bits) => bits & 1 << (self.highest - number) != 0,
            Seen::Large(words) => {
                let (word, bit) = position(number);
                words[word] & bit != 0
            }
        }
    }
}

fn position(number: u64) -> (usize, u64) {
    let index = (number % u64::from(MAX_WINDOW)) as usize;
    (index / 64, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_and_late_numbers_are_refused_in_windows_of_each_size() {
        for size in [32, 64, 65, 128, MAX_WINDOW] {
            let mut window = ReplayWindow::new(size);
            assert!(!window.is_new(0), "the first packet has number 1");
            for number in [1, 3, 2, 5000, 5000 - u64::from(size) + 1, 4990] {
                assert!(window.is_new(number), "{number} in {size}");
                window.record(number);
                assert!(!window.is_new(number), "{number} in {size}");
            }
            assert!(!window.is_new(5000 - u64::from(size)));
            assert!(window.is_new(4991));
        }
    }

    #[test]
    fn every_number_of_a_shuffled_window_is_accepted_once() {
        for size in [64, 256] {
            let mut window = ReplayWindow::new(size);
            let mut accepted = 0;
            for index in 0..20_000u64 {
                // Blocks of 16 numbers in reverse, each number twice.
                let number = index / 32 * 16 + 16 - index % 16;
                if window.is_new(number) {
                    window.record(number);
                    accepted += 1;
                }
            }
            assert_eq!(accepted, 10_000);
        }
    }

    #[test]
    fn upper_half_follows_the_window_over_its_borders() {
        let mut window = ReplayWindow::new(32);
        assert_eq!(window.extend(1), 1);
        window.record(0xFFFF_FFF0);
        assert_eq!(window.extend(0xFFFF_FFE8), 0xFFFF_FFE8);
        assert_eq!(window.extend(5), 0x1_0000_0005);
        window.record(0x1_0000_0005);
        assert_eq!(window.extend(0xFFFF_FFFF), 0xFFFF_FFFF);
        assert_eq!(window.extend(6), 0x1_0000_0006);
        assert_eq!(window.extend(0x8000_0000), 0x1_8000_0000);
    }
}
