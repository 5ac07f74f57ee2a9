//! A rate that changes with time: consecutive stages, in each of which the rate changes linearly from one value to
//! another. Owns when each arrival is due on that curve, to the nanosecond, and how many are due by a time.
//!
//! Arrival `n`, from 0, is due when the area under the curve is about to exceed `n`: at a constant rate that is `n /
//! rate`, as in [`crate::Pace`]. Arrivals that would fall due in a pause fall due at its end. Areas are integers,
//! never sums of fractions: the unit is 0.5 · 10^-15 arrivals, so that a rate in 10^-6/s over a time in ns is an
//! integer.

use std::fmt;
use std::sync::Arc;

use crate::constant::NANO_MICRO;

/// Units of area in one arrival.
const ARRIVAL: u128 = 2 * NANO_MICRO;

/// The fastest rate, arrivals per second.
const FASTEST_PER_S: f64 = 1e12;

/// One stage as the user specifies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Arrivals per second at its beginning, rounded to 10^-6.
    pub from_per_s: f64,
    /// Arrivals per second at its end, rounded to 10^-6.
    pub to_per_s: f64,
    /// Its duration, ns.
    pub duration_ns: u64,
}

/// Why stages do not form a curve. `stage` counts from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StagesError {
    /// A rate that is not a number, negative, too high, or below the resolution.
    Rate {
        /// The stage.
        stage: usize,
        /// The given rate.
        per_s: f64,
    },
    /// No arrival is ever due.
    NoArrivals,
    /// More nanoseconds or more arrivals than 64 bits can count.
    TooMuch,
}

impl fmt::Display for StagesError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate { stage, per_s } => {
                write!(
                    formatter,
                    "stage {stage}: a rate of {per_s}/s; it has to be 0 or between 0.000001/s and 10^12/s"
                )
            }
            Self::NoArrivals => formatter.write_str("the stages hold no time at a rate above 0"),
            Self::TooMuch => formatter.write_str("the stages hold more than 2^64 ns or 2^64 arrivals"),
        }
    }
}

impl std::error::Error for StagesError {}

/// The curve. Cheap to copy: copies share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    /// The stages with a duration, in order; at least one.
    segments: Arc<[Segment]>,
    end_ns: u64,
    area: u128,
}

/// A stage and its position on the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// 10^-6 arrivals per second.
    from: u64,
    to: u64,
    duration_ns: u64,
    start_ns: u64,
    /// Area before it.
    before: u128,
    /// Area of its own.
    area: u128,
}

impl Stages {
    /// Creates a curve of consecutive stages from time 0 on; after the last one no arrival is due.
    ///
    /// # Errors
    /// A rate that is out of range, or stages in which no arrival is ever due.
    pub fn new(stages: impl IntoIterator<Item = Stage>) -> Result<Self, StagesError> {
        let mut segments = Vec::new();
        let (mut end_ns, mut area) = (0u64, 0u128);
        for (stage, number) in stages.into_iter().zip(1..) {
            let micro = |per_s| micro_per_second(per_s).ok_or(StagesError::Rate { stage: number, per_s });
            let (from, to) = (micro(stage.from_per_s)?, micro(stage.to_per_s)?);
            let Stage { duration_ns, .. } = stage;
            if duration_ns == 0 {
                continue;
            }
            let own = u128::from(from + to) * u128::from(duration_ns);
            segments.push(Segment { from, to, duration_ns, start_ns: end_ns, before: area, area: own });
            end_ns = end_ns.checked_add(duration_ns).ok_or(StagesError::TooMuch)?;
            area += own;
            if area > ARRIVAL * u128::from(u64::MAX) {
                return Err(StagesError::TooMuch);
            }
        }
        if area == 0 {
            return Err(StagesError::NoArrivals);
        }
        Ok(Self { segments: segments.into(), end_ns, area })
    }

    /// Returns the curve's duration, ns.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the number of arrivals of the whole curve.
    #[must_use]
    pub fn count(&self) -> u64 {
        arrivals(self.area)
    }

    /// Returns when arrival `n` (from 0) is due, ns after the start, rounded down; the curve's end if it has no such
    /// arrival.
    #[must_use]
    pub fn due_ns(&self, n: u64) -> u64 {
        let target = ARRIVAL * u128::from(n);
        let place = self.segments.partition_point(|segment| segment.before + segment.area <= target);
        self.segments.get(place).map_or(self.end_ns, |segment| segment.due_ns(target))
    }

    /// Returns how many arrivals are due by `elapsed_ns` after the start.
    #[must_use]
    pub fn due_count(&self, elapsed_ns: u64) -> u64 {
        let Some(until_ns) = elapsed_ns.checked_add(1).filter(|&until_ns| until_ns < self.end_ns) else {
            return self.count();
        };
        let place = self.segments.partition_point(|segment| segment.start_ns < until_ns);
        let segment = &self.segments[place.saturating_sub(1)];
        arrivals(segment.before + segment.area_until(until_ns - segment.start_ns))
    }

    /// Returns how many arrivals fall due in `[0, duration_ns)`.
    #[must_use]
    pub fn count_within(&self, duration_ns: u64) -> u64 {
        duration_ns.checked_sub(1).map_or(0, |last| self.due_count(last))
    }

    /// Returns the times of the arrivals `first`, `first + step`, `first + 2 * step`, ... in order.
    #[must_use]
    pub fn every(&self, first: u64, step: u64) -> Arrivals {
        let mut arrivals =
            Arrivals { stages: self.clone(), place: 0, target: ARRIVAL * u128::from(first), step, due_ns: 0 };
        arrivals.find();
        arrivals
    }
}

/// Iterates over every `step`-th arrival of a curve. Each step costs a square root, however long the curve is.
#[derive(Clone, Debug)]
pub struct Arrivals {
    stages: Stages,
    /// The segment that `target` lies in, or the number of segments.
    place: usize,
    /// The area at which the next arrival is due; beyond the end of the curve it does not change.
    target: u128,
    step: u64,
    due_ns: u64,
}

impl Arrivals {
    /// Returns when the next arrival is due, ns after the start; the curve's end if there is none.
    #[inline]
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Advances to the following arrival.
    #[inline]
    pub fn advance(&mut self) {
        if self.target < self.stages.area {
            self.target += ARRIVAL * u128::from(self.step);
            self.find();
        }
    }

    fn find(&mut self) {
        let segments = &self.stages.segments;
        while segments.get(self.place).is_some_and(|segment| segment.before + segment.area <= self.target) {
            self.place += 1;
        }
        self.due_ns = segments.get(self.place).map_or(self.stages.end_ns, |segment| segment.due_ns(self.target));
    }
}

impl Segment {
    /// Returns the last whole ns at which the area is at most `target`, which lies in this segment.
    ///
    /// Floating point gives an estimate. With a slope of `k` the area after `t` is `k·t² + 2·from·t`, hence `t = area
    /// / (from + √(from² + k·area))`. A falling rate is computed from its end, so that all terms are positive and
    /// nothing cancels. The seven roundings then err by at most 2^-50 of `t`; [`NEAR`] leaves room for those of the
    /// bounds. If the bounds disagree on the ns, integers decide.
    #[inline]
    fn due_ns(&self, target: u128) -> u64 {
        let within = target - self.before;
        if self.from == self.to {
            return self.start_ns + (within / (2 * u128::from(self.from))) as u64;
        }
        let duration = self.duration_ns as f64;
        let (mut low, mut high) = if self.to >= self.from {
            let time = time_of(within, self.from, (self.to - self.from) as f64 / duration);
            ((time * (1.0 - NEAR)) as u64, (time * (1.0 + NEAR)) as u64)
        } else {
            let time = time_of(self.area - within, self.to, (self.from - self.to) as f64 / duration);
            let from_end = |time: f64| self.duration_ns.saturating_sub(time.ceil() as u64);
            (from_end(time * (1.0 + NEAR)), from_end(time * (1.0 - NEAR)))
        };
        high = high.min(self.duration_ns);
        while low < high {
            let middle = high - (high - low) / 2;
            if self.area_until(middle) <= within {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.start_ns + low
    }

    /// Returns the area of the first `time_ns`, at most the whole duration, rounded up.
    fn area_until(&self, time_ns: u64) -> u128 {
        let (time, duration) = (u128::from(time_ns), u128::from(self.duration_ns));
        let steady = 2 * u128::from(self.from) * time;
        // The change times time² / duration, in two steps that fit 128 bits.
        let change = u128::from(self.from.abs_diff(self.to)) * time;
        let (whole, rest) = (change / duration * time, change % duration * time);
        if self.to > self.from {
            steady + whole + rest.div_ceil(duration)
        } else {
            steady - whole - rest / duration
        }
    }
}

/// The largest error of a time from floating point, as a share of the time.
const NEAR: f64 = 1.0 / (1u64 << 48) as f64;

/// Returns how long a rate that begins at `from` and grows by `slope` takes to cover an area.
#[inline]
fn time_of(area: u128, from: u64, slope: f64) -> f64 {
    let (area, from) = (area as f64, from as f64);
    if area == 0.0 {
        return 0.0;
    }
    area / (from + (from * from + slope * area).sqrt())
}

/// Returns how many arrivals are due once an area has been covered.
fn arrivals(area: u128) -> u64 {
    u64::try_from(area.div_ceil(ARRIVAL)).unwrap_or(u64::MAX)
}

fn micro_per_second(per_s: f64) -> Option<u64> {
    let micro = (per_s * 1e6).round();
    ((0.0..=FASTEST_PER_S).contains(&per_s) && (per_s == 0.0 || micro >= 1.0)).then_some(micro as u64)
}

#[cfg(test)]
mod tests;
