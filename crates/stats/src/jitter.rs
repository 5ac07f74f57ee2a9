//! Interarrival jitter after RFC 3550, 6.4.1 and A.8, and its mean over a flow. The estimate itself depends on little
//! more than the last 50 packets, so its last value does not describe a whole test.

/// A smoothed estimate of the variation in transit time. The sender's and the receiver's clocks need not agree,
/// because only differences of differences count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    last_transit_ns: Option<i128>,
    estimate_ns: f64,
    /// Sum of the estimates after each packet except the first.
    sum_ns: f64,
    estimates: u64,
}

impl Jitter {
    /// Records one packet's send and arrival times, ns, each on its own host's clock, in order of arrival.
    #[inline]
    pub fn record(&mut self, sent_ns: u64, arrived_ns: u64) {
        let transit = i128::from(arrived_ns) - i128::from(sent_ns);
        if let Some(last) = self.last_transit_ns {
            // RFC 3550: "J(i) = J(i-1) + (|D(i-1,i)| - J(i-1))/16".
            let difference = (transit - last).unsigned_abs() as f64;
            self.estimate_ns += (difference - self.estimate_ns) / 16.0;
            self.sum_ns += self.estimate_ns;
            self.estimates += 1;
        }
        self.last_transit_ns = Some(transit);
    }

    /// Returns the mean of the estimates J(i) so far, µs; `None` before the second packet.
    pub fn mean_us(&self) -> Option<f64> {
        (self.estimates > 0).then(|| self.sum_ns / self.estimates as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_stream_has_none() {
        let mut jitter = Jitter::default();
        for n in 0..100 {
            jitter.record(n * 1000, 5_000_000 + n * 1000);
        }
        assert_eq!(jitter.mean_us(), Some(0.0));
    }

    #[test]
    fn alternating_transit_converges_on_its_step() {
        let mut jitter = Jitter::default();
        for n in 0..100_000u64 {
            jitter.record(n * 10_000, n * 10_000 + 1_000_000 + (n % 2) * 16_000);
        }
        assert!((jitter.mean_us().unwrap() - 16.0).abs() < 0.01);
    }

    #[test]
    fn a_steady_end_keeps_earlier_jitter() {
        let mut jitter = Jitter::default();
        for n in 0..2000u64 {
            let step = if n < 1000 { (n % 2) * 16_000 } else { 0 };
            jitter.record(n * 10_000, n * 10_000 + 1_000_000 + step);
        }
        assert!((jitter.mean_us().unwrap() - 8.0).abs() < 0.1, "{jitter:?}");
    }

    #[test]
    fn unknown_before_any_two_packets() {
        let mut jitter = Jitter::default();
        jitter.record(1, 2);
        assert_eq!(jitter.mean_us(), None);
    }
}
