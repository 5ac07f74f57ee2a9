//! A constant rate without an end. Owns the arithmetic from the ordinal of an operation to its due time and back, and the
//! unit in which rates are exact.

/// A constant rate, exact over any run length: operation `n` is due at `n / rate` after the start, rounded down to 1 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    micro_per_second: u64,
}

/// 10^9 ns in a second times 10^6 micro-operations in an operation.
pub(crate) const NANO_MICRO: u128 = 1_000_000_000_000_000;

impl Pace {
    /// Returns a pace of `rate` operations per second, rounded to 10^-6; `None` unless the rate is between 10^-6 and
    /// 10^12.
    pub fn per_second(rate: f64) -> Option<Self> {
        let micro = (rate * 1e6).round();
        (1.0..=1e18).contains(&micro).then_some(Self { micro_per_second: micro as u64 })
    }

    /// Returns a pace that is faster or slower by this factor, within the range of paces.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { micro_per_second: (self.micro_per_second as f64 * factor).clamp(1.0, 1e18) as u64 }
    }

    /// Returns when operation `n` (from 0) is due, ns after the start; `u64::MAX` if that is beyond the clock's
    /// range.
    pub fn due_ns(self, n: u64) -> u64 {
        let due = u128::from(n) * NANO_MICRO / u128::from(self.micro_per_second);
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Returns the start offset of participant `place`, ns, if `parties` participants at this rate are spread evenly
    /// over the time between two operations.
    pub fn turn_ns(self, place: u32, parties: u32) -> u64 {
        let share = u128::from(self.due_ns(1)) * u128::from(place) / u128::from(parties.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Returns how many operations are due by `elapsed_ns` after the start, including the one at the start.
    pub fn due_count(self, elapsed_ns: u64) -> u64 {
        let due = ((u128::from(elapsed_ns) + 1) * u128::from(self.micro_per_second)).div_ceil(NANO_MICRO);
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Returns how many operations fall due in `[0, duration_ns)`: exactly the number that an open loop has to send
    /// in that time.
    pub fn count_within(self, duration_ns: u64) -> u64 {
        duration_ns.checked_sub(1).map_or(0, |last| self.due_count(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fifty_thousand_a_second_for_ten_seconds_is_half_a_million() {
        let pace = Pace::per_second(50_000.0).unwrap();
        assert_eq!(pace.count_within(10_000_000_000), 500_000);
        assert_eq!(pace.due_ns(500_000), 10_000_000_000);
    }

    #[test]
    fn turns_share_one_gap() {
        let pace = Pace::per_second(10.0).unwrap();
        assert_eq!([0, 1, 3].map(|place| pace.turn_ns(place, 4)), [0, 25_000_000, 75_000_000]);
        assert_eq!(pace.turn_ns(0, 0), 0);
    }

    #[test]
    fn thirds_do_not_drift_in_a_day() {
        let pace = Pace::per_second(3.0).unwrap();
        assert_eq!(pace.due_ns(3 * 86_400), 86_400_000_000_000);
        assert_eq!(pace.due_ns(1), 333_333_333);
    }

    #[test]
    fn an_invalid_rate_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-7] {
            assert_eq!(Pace::per_second(rate), None, "{rate}");
        }
    }

    proptest! {
        #[test]
        fn due_count_is_the_inverse_of_due_ns(rate in 0.001f64..1e9, elapsed in 0u64..1_000_000_000_000) {
            let pace = Pace::per_second(rate).unwrap();
            let count = pace.due_count(elapsed);
            prop_assert!(count >= 1);
            prop_assert!(pace.due_ns(count - 1) <= elapsed);
            prop_assert!(pace.due_ns(count) > elapsed);
        }
    }
}
