//! A latency histogram that merges without loss: HdrHistogram at three significant digits, in ns.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// Counts of durations from 0 ns to an hour at 0.1 % resolution. Recording neither allocates nor fails; a value above the
/// range is counted apart (`overflow`), never clamped into the last bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    overflow: u64,
}

/// The longest duration that has a bucket, ns: an hour.
const HIGHEST_NS: u64 = 3_600_000_000_000;

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, 3)
            .unwrap_or_else(|error| unreachable!("constant bounds are valid: {error}"));
        Self { counts, overflow: 0 }
    }

    /// Count one duration, ns.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        if self.counts.record(value_ns).is_err() {
            self.overflow += 1;
        }
    }

    /// Add all of another's counts.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts).unwrap_or_else(|error| unreachable!("equal bounds: {error}"));
        self.overflow += other.overflow;
    }

    /// Forget everything, keep the memory.
    pub fn clear(&mut self) {
        self.counts.reset();
        self.overflow = 0;
    }

    /// How many values have a bucket.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// How many values lay above the range of an hour.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// The value below or at which `quantile` (0 to 1) of the counts lie, ns; `None` when empty.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.counts.value_at_quantile(quantile))
    }

    /// The largest value, ns; `None` when empty.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.counts.max())
    }

    /// Every value that was recorded, rising, as `quantile_ns` would give it, ns, with how often.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// HdrHistogram's V2 encoding, compressed, in base64, as its tools for other languages read it.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        // It fails where a count lies beyond 2^63, which no recording reaches, or the writer does, which memory does not.
        V2DeflateSerializer::new()
            .serialize(&self.counts, &mut bytes)
            .unwrap_or_else(|error| unreachable!("encoding into memory: {error}"));
        STANDARD.encode(bytes)
    }
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
            prop_assert_eq!(left.counts, both.counts);
        }

        #[test]
        fn encoding_keeps_every_count(values in proptest::collection::vec(0u64..HIGHEST_NS, 1..200)) {
            let mut histogram = Histogram::new();
            for value in &values { histogram.record(*value); }
            let bytes = STANDARD.decode(histogram.encode()).unwrap();
            let read: hdrhistogram::Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            prop_assert_eq!(read, histogram.counts);
        }
    }
}
