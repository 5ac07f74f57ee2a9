//! The extent of reordering (RFC 4737, 4.2.2): how many packets arrived between a late packet and the first one that
//! overtook it. Owns the last gaps in the order of arrival, in fixed memory.

use std::collections::VecDeque;

use crate::lengths::Lengths;

/// Packets that were missing when a later one arrived.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The number of the first missing packet.
    first: u64,
    /// The number of the packet that overtook them.
    overtaker: u64,
    /// How many distinct packets had arrived before that one.
    arrived_before: u64,
}

/// The last gaps of a flow, and the extents of the packets that arrived late.
///
/// The earliest arrival with a higher number than a late packet is the one that made the gap around it: before that
/// one, every number was lower. So the gaps are all that has to be remembered.
#[derive(Clone, Debug)]
pub struct Gaps {
    gaps: VecDeque<Gap>,
    most: usize,
    extents: Lengths,
    unknown: u64,
}

impl Gaps {
    /// Remembers at most this many gaps.
    pub fn new(most: usize) -> Self {
        Self { gaps: VecDeque::with_capacity(most), most: most.max(1), extents: Lengths::default(), unknown: 0 }
    }

    /// Records that packet `overtaker` arrived while those from `first` on were missing; `arrived_before` distinct ones had
    /// arrived earlier.
    pub fn open(&mut self, first: u64, overtaker: u64, arrived_before: u64) {
        if self.gaps.len() == self.most {
            self.gaps.pop_front();
        }
        self.gaps.push_back(Gap { first, overtaker, arrived_before });
    }

    /// Records that a missing packet arrived late, for the first time.
    pub fn fill(&mut self, number: u64, arrived_before: u64) {
        let place = self.gaps.partition_point(|gap| gap.overtaker <= number);
        match self.gaps.get(place) {
            Some(gap) if gap.first <= number => self.extents.record(arrived_before - gap.arrived_before),
            // The gap is forgotten.
            _ => self.unknown += 1,
        }
    }

    /// Returns the extents of the late packets whose gap was remembered.
    pub fn extents(&self) -> &Lengths {
        &self.extents
    }

    /// Returns the number of late packets whose gap was forgotten.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_gaps_are_forgotten_first() {
        let mut gaps = Gaps::new(2);
        // 1, 3 and 5 are missing behind 0, 2, 4 and 6.
        for (first, arrived_before) in [(1, 1), (3, 2), (5, 3)] {
            gaps.open(first, first + 1, arrived_before);
        }
        gaps.fill(1, 4);
        gaps.fill(5, 5);
        gaps.fill(3, 6);
        assert_eq!((gaps.unknown(), gaps.extents().sum(), gaps.extents().longest()), (1, 2 + 4, 4));
    }
}
