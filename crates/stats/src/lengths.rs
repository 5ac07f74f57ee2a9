//! Lengths, counted by doubling in fixed memory: of bursts of loss, and of the extents of reordered packets.

/// Doublings of a length of 64 bits.
const DOUBLINGS: usize = 64;

/// How often lengths of 1 and more occurred, by doubling, with their exact sum and maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Number `i` counts lengths of at least 2^i and less than 2^(i+1).
    by_doubling: [u64; DOUBLINGS],
    count: u64,
    sum: u64,
    longest: u64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { by_doubling: [0; DOUBLINGS], count: 0, sum: 0, longest: 0 }
    }
}

impl Lengths {
    /// Counts one length; 0 is none.
    #[inline]
    pub fn record(&mut self, length: u64) {
        let Some(doubling) = length.checked_ilog2() else { return };
        self.by_doubling[doubling as usize] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(length);
        self.longest = self.longest.max(length);
    }

    /// Returns how many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the longest one; 0 if there was none.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the counts of lengths of at least 2^i and less than 2^(i+1), up to the last one that is not 0.
    pub fn by_doubling(&self) -> &[u64] {
        let used = self.by_doubling.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        &self.by_doubling[..used]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_by_doubling() {
        let mut lengths = Lengths::default();
        for length in [0, 1, 1, 2, 3, 4, 7, 9] {
            lengths.record(length);
        }
        assert_eq!(lengths.by_doubling(), [2, 2, 2, 1]);
        assert_eq!((lengths.count(), lengths.sum(), lengths.longest()), (7, 27, 9));
        lengths.record(u64::MAX);
        assert_eq!((lengths.by_doubling().len(), lengths.sum()), (64, u64::MAX));
    }
}
