//! The statistics that `done` receives: every recorded value with its count, and the figures computed from them. Owns
//! wrk's arithmetic (sample deviation, rank of a percentile) over whole units: µs of latency, requests per second.

use leadline_stats::Histogram;
use mlua::{Lua, Table};

/// Recorded values in ascending order, in whole units.
#[derive(Debug)]
pub(crate) struct Statistics {
    values: Vec<(u64, u64)>,
    count: u64,
}

impl Statistics {
    /// Reads a histogram whose values are `per_unit` times finer than the unit; each value is rounded to the nearest
    /// unit.
    pub(crate) fn new(histogram: &Histogram, per_unit: u64) -> Self {
        let mut values: Vec<(u64, u64)> = Vec::new();
        let mut count = 0;
        for (value, times) in histogram.recorded() {
            let value = value.saturating_add(per_unit / 2) / per_unit;
            count += times;
            match values.last_mut() {
                Some((last, sum)) if *last == value => *sum += times,
                _ => values.push((value, times)),
            }
        }
        Self { values, count }
    }

    fn min(&self) -> u64 {
        self.values.first().map_or(0, |(value, _)| *value)
    }

    fn max(&self) -> u64 {
        self.values.last().map_or(0, |(value, _)| *value)
    }

    fn mean(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.values.iter().map(|(value, times)| *value as f64 * *times as f64).sum::<f64>() / self.count as f64
    }

    fn stdev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares = self.values.iter().map(|(value, times)| (*value as f64 - mean).powi(2) * *times as f64);
        (squares.sum::<f64>() / (self.count - 1) as f64).sqrt()
    }

    /// The value at wrk's rank; 0 if empty. The rank of 100 % is after the last value and yields the maximum.
    fn percentile(&self, share: f64) -> u64 {
        let rank = (share / 100.0 * self.count as f64 + 0.5).round() as u64;
        let mut total = 0;
        for (value, times) in &self.values {
            total += times;
            if total >= rank {
                return *value;
            }
        }
        self.max()
    }

    /// Creates the Lua table of figures, with the functions that compute others.
    pub(crate) fn into_lua(self, lua: &Lua) -> mlua::Result<(Table, Table)> {
        let figures = lua.create_table()?;
        figures.set("min", self.min())?;
        figures.set("max", self.max())?;
        figures.set("mean", self.mean())?;
        figures.set("stdev", self.stdev())?;
        figures.set("distinct", self.values.len())?;
        let calls = lua.create_table()?;
        let statistics = std::sync::Arc::new(self);
        let ours = std::sync::Arc::clone(&statistics);
        calls.set("percentile", lua.create_function(move |_, share: f64| Ok(ours.percentile(share)))?)?;
        let at = lua.create_function(move |_, index: Option<f64>| {
            // A cast from `f64` truncates: a value below 1 becomes 0.
            let index = (index.unwrap_or(0.0) as usize).checked_sub(1);
            Ok(index.and_then(|index| statistics.values.get(index).copied()).unwrap_or((0, 0)))
        });
        calls.set("at", at?)?;
        Ok((figures, calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64], per_unit: u64) -> Statistics {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record(*value);
        }
        Statistics::new(&histogram, per_unit)
    }

    #[test]
    fn values_in_the_same_unit_are_merged() {
        let statistics = of(&[1400, 600, 900, 2000], 1000);
        assert_eq!(statistics.values, [(1, 3), (2, 1)]);
        assert_eq!((statistics.min(), statistics.max()), (1, 2));
    }

    #[test]
    fn figures_match_the_sample() {
        let statistics = of(&[2, 4, 4, 4, 5, 5, 7, 9], 1);
        assert_eq!(statistics.mean(), 5.0);
        assert!((statistics.stdev() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(statistics.percentile(50.0), 5);
        assert_eq!(statistics.percentile(0.0), 2);
        assert_eq!(statistics.percentile(99.0), 9);
        assert_eq!(statistics.percentile(100.0), 9);
    }

    #[test]
    fn empty_histogram_gives_zeros() {
        let statistics = of(&[], 1);
        assert_eq!((statistics.min(), statistics.max(), statistics.percentile(50.0)), (0, 0, 0));
        assert_eq!((statistics.mean(), statistics.stdev()), (0.0, 0.0));
        assert_eq!(of(&[5], 1).stdev(), 0.0);
    }
}
