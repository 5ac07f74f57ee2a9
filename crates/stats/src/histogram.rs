//! A latency histogram that merges without loss, in ns: HdrHistogram's layout at three significant digits. Owns its
//! counts. Recording takes a few instructions; blocks that were never used are neither cleared, merged nor read. Its
//! encoding is HdrHistogram's own.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// Counts of durations from 0 ns to an hour at 0.1 % resolution. Recording neither allocates nor fails. A value above
/// the range is counted separately (`overflow`), never clamped into the last bucket.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    /// The blocks whose counts are not all zero; one bit each.
    touched: u64,
    overflow: u64,
}

/// The bucket of a value; see [`Histogram::bucket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(u32);

/// The longest duration that has a bucket, ns: an hour.
const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Values below 2^11 have one bucket each; from there on every doubling has 2^10 buckets, which is a block.
const DIGIT_BITS: u32 = 11;
const BLOCK: usize = 1 << (DIGIT_BITS - 1);
/// Up to 2^42 ns, the first doubling beyond an hour.
const BLOCKS: usize = 33;

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        // The system provides zeroed memory only when it is first used.
        Self { counts: vec![0; BLOCKS * BLOCK].into_boxed_slice(), touched: 0, overflow: 0 }
    }

    /// Returns the bucket of a duration, ns. It is the same in every histogram, so several histograms can share the
    /// result.
    #[inline]
    #[must_use]
    pub fn bucket(value_ns: u64) -> Bucket {
        let doublings = (u64::BITS - DIGIT_BITS) - (value_ns | (2 * BLOCK as u64 - 1)).leading_zeros();
        // The upper half of the digits within a doubling; below 2^11 it is the value itself.
        Bucket(doublings * BLOCK as u32 + (value_ns >> doublings) as u32)
    }

    /// Counts one duration, ns.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        self.record_at(Self::bucket(value_ns));
    }

    /// Counts one duration whose bucket is known.
    #[inline]
    pub fn record_at(&mut self, Bucket(index): Bucket) {
        match self.counts.get_mut(index as usize) {
            Some(count) => {
                *count += 1;
                self.touched |= 1 << (index as usize / BLOCK);
            }
            None => self.overflow += 1,
        }
    }

    /// Adds the counts of buckets, from the first one on, as `bucket` numbers them, and of longer durations.
    ///
    /// # Panics
    /// If there are more buckets than a histogram has.
    pub fn add_counts(&mut self, counts: impl IntoIterator<Item = u64>, overflow: u64) {
        for (index, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            self.counts[index] += count;
            self.touched |= 1 << (index / BLOCK);
        }
        self.overflow += overflow;
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for block in other.blocks() {
            for (own, count) in self.counts[block.clone()].iter_mut().zip(&other.counts[block]) {
                *own += count;
            }
        }
        self.touched |= other.touched;
        self.overflow += other.overflow;
    }

    /// Clears all counts and keeps the memory.
    pub fn clear(&mut self) {
        for block in self.blocks() {
            self.counts[block].fill(0);
        }
        (self.touched, self.overflow) = (0, 0);
    }

    /// Returns true if nothing was recorded, not even above the range.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.touched == 0 && self.overflow == 0
    }

    /// Returns the number of values within the range.
    pub fn count(&self) -> u64 {
        self.counted().map(|(_, count)| count).sum()
    }

    /// Returns the number of values above the range of an hour.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Returns the value, ns, at or below which `quantile` (0 to 1) of the counts lie; `None` if empty.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let wanted = ((quantile.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64).max(1);
        let mut so_far = 0;
        let (index, _) = self.counted().find(|(_, count)| {
            so_far += count;
            so_far >= wanted
        })?;
        Some(if quantile > 0.0 { highest_at(index) } else { lowest_at(index) })
    }

    /// Returns the largest value, ns; `None` if empty.
    pub fn max_ns(&self) -> Option<u64> {
        self.counted().last().map(|(index, _)| highest_at(index))
    }

    /// Returns each recorded value in ascending order, ns, as `quantile_ns` would return it, with its count.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counted().map(|(index, count)| (highest_at(index), count))
    }

    /// Returns HdrHistogram's V2 encoding, compressed, in base64, as its tools for other languages read it.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        // This fails only if a count exceeds 2^63, which recording cannot reach, or if the writer fails, which memory
        // cannot.
        V2DeflateSerializer::new()
            .serialize(&self.to_hdr(), &mut bytes)
            .unwrap_or_else(|error| unreachable!("encoding into memory: {error}"));
        STANDARD.encode(bytes)
    }

    fn to_hdr(&self) -> hdrhistogram::Histogram<u64> {
        let mut hdr = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, 3)
            .unwrap_or_else(|error| unreachable!("constant bounds are valid: {error}"));
        for (index, count) in self.counted() {
            hdr.record_n(lowest_at(index), count).unwrap_or_else(|error| unreachable!("equal bounds: {error}"));
        }
        hdr
    }

    /// Returns the non-zero counts in ascending order, with their indices.
    fn counted(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let all = self.blocks().flat_map(|block| block.clone().zip(self.counts[block].iter().copied()));
        all.filter(|(_, count)| *count > 0)
    }

    /// Returns the indices of used blocks in ascending order.
    fn blocks(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let touched = self.touched;
        (0..BLOCKS).filter(move |block| touched >> block & 1 == 1).map(|block| block * BLOCK..(block + 1) * BLOCK)
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Histogram").field("count", &self.count()).field("overflow", &self.overflow).finish()
    }
}

/// Returns the number of doublings between the single-value buckets and the bucket at an index.
fn doublings_at(index: usize) -> usize {
    (index / BLOCK).saturating_sub(1)
}

/// Returns the smallest value of the bucket at an index, ns.
fn lowest_at(index: usize) -> u64 {
    ((index - doublings_at(index) * BLOCK) as u64) << doublings_at(index)
}

/// Returns the largest value of the bucket at an index, ns.
fn highest_at(index: usize) -> u64 {
    lowest_at(index) + (1 << doublings_at(index)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    #[test]
    fn a_value_above_the_range_is_counted_apart() {
        let mut histogram = Histogram::new();
        histogram.record(HIGHEST_NS * 3);
        histogram.record(5);
        assert_eq!((histogram.count(), histogram.overflow()), (1, 1));
        assert_eq!(histogram.max_ns(), Some(5));
    }

    fn as_hdr(values: &[u64]) -> hdrhistogram::Histogram<u64> {
        let mut hdr = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, 3).unwrap();
        values.iter().for_each(|value| hdr.record(*value).unwrap());
        hdr
    }

    #[test]
    fn every_place_is_its_values() {
        for index in 0..BLOCKS * BLOCK {
            for value in [lowest_at(index), highest_at(index)] {
                assert_eq!(Histogram::bucket(value), Bucket(index as u32), "{value}");
            }
        }
        let beyond = highest_at(BLOCKS * BLOCK - 1) + 1;
        assert_eq!(Histogram::bucket(beyond), Bucket((BLOCKS * BLOCK) as u32));
        assert!(beyond > HIGHEST_NS && Histogram::bucket(u64::MAX).0 as usize > BLOCKS * BLOCK);
    }

    #[test]
    fn the_largest_value_that_has_a_bucket_can_be_encoded() {
        let mut histogram = Histogram::new();
        histogram.record(highest_at(BLOCKS * BLOCK - 1));
        assert_eq!((histogram.count(), histogram.overflow()), (1, 0));
        assert!(!histogram.encode().is_empty());
    }

    #[test]
    fn empty_has_no_quantile() {
        assert_eq!(Histogram::new().quantile_ns(0.5), None);
    }

    #[test]
    fn recorded_values_rise_and_carry_every_count() {
        let mut histogram = Histogram::new();
        for value in [7, 900, 7, 12, 5_000_000_000] {
            histogram.record(value);
        }
        let recorded: Vec<_> = histogram.recorded().collect();
        assert_eq!(recorded[..3], [(7, 2), (12, 1), (900, 1)]);
        assert_eq!(recorded[3..], [(histogram.max_ns().unwrap(), 1)]);
    }

    proptest! {
        #[test]
        fn merging_equals_recording_together(a in proptest::collection::vec(0u64..10_000_000_000, 1..200),
                                             b in proptest::collection::vec(0u64..10_000_000_000, 1..200)) {
            let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            for value in &a { left.record(*value); both.record(*value); }
            for value in &b { right.record(*value); both.record(*value); }
            left.merge(&right);
            prop_assert_eq!(&left.counts, &both.counts);
            prop_assert_eq!(left.touched, both.touched);
            left.clear();
            prop_assert!(left.is_empty() && left.counts.iter().all(|count| *count == 0));
        }

        #[test]
        fn encoding_keeps_every_count(values in proptest::collection::vec(0u64..HIGHEST_NS, 1..200)) {
            let mut histogram = Histogram::new();
            for value in &values { histogram.record(*value); }
            let bytes = STANDARD.decode(histogram.encode()).unwrap();
            let read: hdrhistogram::Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            prop_assert_eq!(read, as_hdr(&values));
        }

        #[test]
        fn every_figure_is_the_originals(
            values in proptest::collection::vec(prop_oneof![0u64..5000, 0u64..100_000_000, 0u64..HIGHEST_NS], 1..200),
            quantile in 0.0f64..=1.0,
        ) {
            let mut histogram = Histogram::new();
            for value in &values { histogram.record(*value); }
            let hdr = as_hdr(&values);
            for quantile in [0.0, quantile, 0.5, 0.99, 1.0] {
                prop_assert_eq!(histogram.quantile_ns(quantile), Some(hdr.value_at_quantile(quantile)));
            }
            prop_assert_eq!(histogram.max_ns(), Some(hdr.max()));
            prop_assert_eq!(histogram.count(), hdr.len());
            let recorded: Vec<_> =
                hdr.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
            prop_assert_eq!(histogram.recorded().collect::<Vec<_>>(), recorded);
        }
    }
}
