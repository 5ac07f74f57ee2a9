//! Bursts of loss: runs of consecutive numbers that never arrived. Owns the run that has not ended, and the lengths of
//! those that have.

use crate::lengths::Lengths;

/// The bursts among numbers that are settled in ascending order: each one has arrived or is lost for good.
#[derive(Clone, Debug, Default)]
pub struct LossBursts {
    run: u64,
    ended: Lengths,
}

impl LossBursts {
    /// Settles the next number, which arrived.
    #[inline]
    pub fn arrived(&mut self) {
        if self.run > 0 {
            self.ended.record(std::mem::take(&mut self.run));
        }
    }

    /// Settles the next `count` numbers, which are lost.
    #[inline]
    pub fn lost(&mut self, count: u64) {
        self.run = self.run.saturating_add(count);
    }

    /// Settles the next `count` (1 to 64) numbers; the lowest bits of `arrived` are 1 for those that arrived.
    pub fn settle(&mut self, mut arrived: u64, count: u64) {
        let mut left = count;
        while left > 0 {
            let ones = u64::from(arrived.trailing_ones()).min(left);
            if ones > 0 {
                self.arrived();
                arrived = arrived.checked_shr(ones as u32).unwrap_or(0);
                left -= ones;
            }
            let zeros = u64::from(arrived.trailing_zeros()).min(left);
            if zeros > 0 {
                self.lost(zeros);
                arrived = arrived.checked_shr(zeros as u32).unwrap_or(0);
                left -= zeros;
            }
        }
    }

    /// Returns the lengths of all bursts, if no more numbers follow.
    pub fn lengths(mut self) -> Lengths {
        self.arrived();
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_continue_over_words() {
        let mut bursts = LossBursts::default();
        bursts.settle(0b0011, 4);
        bursts.settle(u64::MAX << 60, 64);
        bursts.settle(u64::MAX, 64);
        bursts.settle(0, 64);
        bursts.lost(6);
        let lengths = bursts.lengths();
        assert_eq!((lengths.count(), lengths.sum(), lengths.longest()), (2, 62 + 70, 70));
    }
}
