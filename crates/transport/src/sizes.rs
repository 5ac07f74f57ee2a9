//! The sizes of a flow's datagrams: one, or several in turn. Owns the order in which the sizes of a mix follow, so that a
//! receiver knows each datagram's length from its number.

use std::sync::Arc;

use leadline_wire::SizeShare;

/// The longest round of a mix, datagrams.
pub const LONGEST_ROUND: u32 = 1000;
/// The maximum number of sizes in a mix.
pub const MOST_SIZES: usize = 32;

/// The UDP payload of each datagram of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramSizes {
    /// A round of a mix, or one size.
    round: Arc<[u32]>,
    round_bytes: u64,
    largest: u32,
}

impl DatagramSizes {
    /// Returns one size, bytes.
    pub fn fixed(bytes: u32) -> Self {
        Self { round: Arc::new([bytes]), round_bytes: bytes.into(), largest: bytes }
    }

    /// Returns the sizes of a mix, each spread evenly over a round; one size if there are no shares; `None` for a mix
    /// with too many or no datagrams in a round.
    pub fn new(bytes: u32, shares: &[SizeShare]) -> Option<Self> {
        if shares.is_empty() {
            return Some(Self::fixed(bytes));
        }
        let length = shares.iter().try_fold(0u32, |sum, share| sum.checked_add(share.count))?;
        if shares.len() > MOST_SIZES || !(1..=LONGEST_ROUND).contains(&length) {
            return None;
        }
        let round: Arc<[u32]> = interleaved(shares, length).into();
        let round_bytes = round.iter().map(|bytes| u64::from(*bytes)).sum();
        let largest = round.iter().copied().max()?;
        Some(Self { round, round_bytes, largest })
    }

    /// Returns the size of the datagram with this number, bytes.
    #[inline]
    pub fn of(&self, sequence: u64) -> usize {
        let place = if self.round.len() == 1 { 0 } else { sequence as usize % self.round.len() };
        self.round[place] as usize
    }

    /// Returns the bytes of `count` datagrams from this number on.
    #[inline]
    pub fn total(&self, first: u64, count: u64) -> u64 {
        if self.round.len() == 1 {
            return count * self.round_bytes;
        }
        (first..first + count).map(|sequence| self.of(sequence) as u64).sum()
    }

    /// Whether all datagrams have the same size.
    pub fn is_fixed(&self) -> bool {
        self.round.iter().all(|bytes| *bytes == self.largest)
    }

    /// Returns the largest size, bytes.
    pub fn largest(&self) -> usize {
        self.largest as usize
    }

    /// Returns the smallest size, bytes.
    pub fn smallest(&self) -> usize {
        self.round.iter().copied().min().unwrap_or(self.largest) as usize
    }

    /// Returns the mean size, bytes.
    pub fn mean(&self) -> f64 {
        self.round_bytes as f64 / self.round.len() as f64
    }
}

/// One round, in which the next size is always the one that is furthest behind its share.
fn interleaved(shares: &[SizeShare], length: u32) -> Vec<u32> {
    let mut sent = vec![0i64; shares.len()];
    (1..=i64::from(length))
        .map(|place| {
            let behind = |index: &usize| i64::from(shares[*index].count) * place - sent[*index] * i64::from(length);
            // The first of equals, so that both ends agree.
            let next = (0..shares.len()).rev().max_by_key(behind).unwrap_or(0);
            sent[next] += 1;
            shares[next].bytes
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn share(bytes: u32, count: u32) -> SizeShare {
        SizeShare { bytes, count }
    }

    #[test]
    fn sizes_of_a_mix_are_spread_evenly_over_its_round() {
        let mix = DatagramSizes::new(1472, &[share(18, 7), share(548, 4), share(1472, 1)]).unwrap();
        let round: Vec<usize> = (0..12).map(|number| mix.of(number)).collect();
        assert_eq!(round, [18, 548, 18, 18, 548, 18, 1472, 18, 548, 18, 548, 18]);
        assert_eq!(mix.of(12 * 1000 + 6), 1472);
        assert_eq!((mix.total(3, 24), mix.largest(), mix.smallest()), (2 * 3790, 1472, 18));
        assert!((mix.mean() - 3790.0 / 12.0).abs() < 1e-9 && !mix.is_fixed());
    }

    #[test]
    fn impossible_mixes_are_refused() {
        for shares in
            [vec![share(100, 0)], vec![share(100, 1001)], vec![share(100, u32::MAX); 2], vec![share(9, 1); 33]]
        {
            assert_eq!(DatagramSizes::new(100, &shares), None);
        }
        let fixed = DatagramSizes::new(100, &[]).unwrap();
        assert_eq!((fixed.of(7), fixed.total(5, 3), fixed.is_fixed()), (100, 300, true));
    }
}
