//! Detects replayed packets. Owns the received numbers of one key; a packet is checked after its authentication,
//! because a forged number must not move the window. Numbers do not expire: a packet may be as late as the window
//! allows, while OpenVPN also requires it within 15 s.

/// Received packet numbers: the highest one, and which of the numbers shortly before it have arrived.
#[derive(Debug)]
pub(super) struct ReplayWindow {
    highest: u64,
    /// Width of the window, including the highest number; 0: each number must follow the previous one.
    width: u64,
    /// A ring of bits, one for each number of the window: `number % (64 * seen.len())`.
    received_bits: Box<[u64]>,
}

impl ReplayWindow {
    /// Creates a window of `width` numbers; 0 for a transport that keeps the order and loses nothing.
    pub fn new(width: u32) -> Self {
        let words = usize::try_from(width.div_ceil(64)).expect("at most 2^26 words");
        Self { highest: 0, width: u64::from(width), received_bits: vec![0; words].into_boxed_slice() }
    }

    /// An empty window of the same width.
    pub fn renewed(&self) -> Self {
        Self { highest: 0, width: self.width, received_bits: vec![0; self.received_bits.len()].into_boxed_slice() }
    }

    /// The highest received number; 0 if there is none.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Records a packet's number. Returns false if it was received before, may have been, or (width 0) is not the
    /// next one.
    #[must_use]
    pub fn accept(&mut self, number: u64) -> bool {
        if number == 0 {
            return false;
        }
        if self.width == 0 {
            let next = self.highest == 0 || number == self.highest + 1;
            if next {
                self.highest = number;
            }
            return next;
        }
        if number > self.highest {
            self.advance(number);
        } else if self.highest - number >= self.width || self.has(number) {
            return false;
        }
        let (word, bit) = self.place(number);
        self.received_bits[word] |= bit;
        true
    }

    /// Makes `number` the highest: no number between it and the old one has been received.
    fn advance(&mut self, number: u64) {
        let ring = 64 * self.received_bits.len() as u64;
        if number - self.highest >= ring {
            self.received_bits.fill(0);
        } else {
            for skipped in self.highest + 1..=number {
                let (word, bit) = self.place(skipped);
                self.received_bits[word] &= !bit;
            }
        }
        self.highest = number;
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        self.received_bits[word] & bit != 0
    }

    fn place(&self, number: u64) -> (usize, u64) {
        let index = number % (64 * self.received_bits.len() as u64);
        ((index / 64) as usize, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn late_packet_is_accepted_once_within_the_window() {
        let mut window = ReplayWindow::new(64);
        assert!(!window.accept(0));
        assert!(window.accept(1));
        assert!(!window.accept(1));
        assert!(window.accept(65));
        assert!(!window.accept(1));
        assert!(window.accept(2), "63 back");
        assert!(window.accept(66));
        assert!(!window.accept(2));
        assert!(window.accept(u64::from(u32::MAX)));
        assert!(!window.accept(66));
        assert_eq!(window.highest(), u64::from(u32::MAX));
    }

    #[test]
    fn in_order_every_number_follows_the_one_before() {
        let mut window = ReplayWindow::new(0);
        assert!(window.accept(7), "the sender chooses the first number");
        for refused in [7, 9, 6, 0] {
            assert!(!window.accept(refused), "{refused}");
        }
        assert!(window.accept(8));
    }

    proptest! {
        #[test]
        fn replay_window_agrees_with_a_list_of_all_numbers(
            width in 1..200_u32,
            steps in prop::collection::vec((any::<bool>(), 0..150_u64), 1..400),
        ) {
            let mut window = ReplayWindow::new(width);
            let mut all = BTreeSet::new();
            let mut highest = 0_u64;
            for (forward, by) in steps {
                let number = if forward { highest + by } else { highest.saturating_sub(by) };
                let fresh = number > 0 && number + u64::from(width) > highest && all.insert(number);
                prop_assert_eq!(window.accept(number), fresh, "{} after {}", number, highest);
                highest = highest.max(number);
            }
        }
    }
}
