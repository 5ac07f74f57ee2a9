//! The rate of a throughput wait, which may change: pure arithmetic from a rate to the instants of passes.

use leadline_wire::scenario::{OpenStage, ThroughputStage};

use super::arrivals::Rate as _;

/// A rate from an instant on.
#[derive(Clone, Copy, Debug)]
pub struct Throughput<'s> {
    /// When its stages begin, ns.
    pub start_ns: u64,
    /// The rate at the beginning.
    pub per_minute: f64,
    /// How it changes; after the last stage it stays.
    pub stages: &'s [ThroughputStage],
}

impl Throughput<'_> {
    /// Returns when a pass is possible, `from_ns` at the earliest; `None` if the rate stays 0.
    #[must_use]
    pub fn first_ns(&self, from_ns: u64) -> Option<u64> {
        let from_s = self.seconds(from_ns);
        let is_above_0 = |part: &Part| part.left(from_s) > ROUNDING;
        match self.parts().find(is_above_0) {
            Some(part) => Some(from_ns.max(self.instant(part.start_s))),
            None => (self.last_per_s() > 0.0).then(|| from_ns.max(self.instant(self.end_s()))),
        }
    }

    /// Returns when a number of further passes are due after one at `from_ns`; the end of the stages if the rate is 0
    /// before and after that.
    #[must_use]
    pub fn next_ns(&self, from_ns: u64, mut passes: f64) -> u64 {
        let from_s = self.seconds(from_ns);
        for part in self.parts() {
            let left = part.left(from_s);
            if left > 0.0 && left + ROUNDING >= passes {
                let before = part.stage.area(part.local(from_s));
                return self.instant(part.start_s + part.stage.time_of(before + passes)).max(from_ns);
            }
            passes -= left;
        }
        let (end_s, per_s) = (self.end_s().max(from_s), self.last_per_s());
        self.instant(if per_s > 0.0 { end_s + passes / per_s } else { end_s }).max(from_ns)
    }

    fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        let (mut start_s, mut from_per_s) = (0.0, self.per_minute / 60.0);
        self.stages.iter().filter_map(move |stage| {
            let to_per_s = stage.per_minute / 60.0;
            let open = OpenStage { from_per_s, to_per_s, duration_ms: stage.duration_ms, at_once: 0 };
            let part = Part { start_s, stage: open };
            start_s += open.seconds();
            from_per_s = to_per_s;
            (stage.duration_ms > 0).then_some(part)
        })
    }

    fn end_s(&self) -> f64 {
        self.stages.iter().map(|stage| stage.duration_ms as f64 / 1e3).sum()
    }

    fn last_per_s(&self) -> f64 {
        self.stages.last().map_or(self.per_minute, |stage| stage.per_minute) / 60.0
    }

    fn seconds(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    fn instant(&self, seconds: f64) -> u64 {
        self.start_ns.saturating_add((seconds * 1e9).round() as u64)
    }
}

/// A stage, and when it begins.
#[derive(Clone, Copy, Debug)]
struct Part {
    start_s: f64,
    stage: OpenStage,
}

impl Part {
    /// The time of the stage that has passed at an instant.
    fn local(&self, at_s: f64) -> f64 {
        (at_s - self.start_s).clamp(0.0, self.stage.seconds())
    }

    /// Passes that are due in the stage after an instant.
    fn left(&self, at_s: f64) -> f64 {
        self.stage.area(self.stage.seconds()) - self.stage.area(self.local(at_s))
    }
}

/// Areas are sums of products of decimal fractions and of instants in whole ns; this part of a pass is rounding.
const ROUNDING: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(per_minute: f64, stages: &[(f64, u64)]) -> Vec<u64> {
        let stages: Vec<ThroughputStage> = stages
            .iter()
            .map(|(per_minute, duration_ms)| ThroughputStage { per_minute: *per_minute, duration_ms: *duration_ms })
            .collect();
        let rate = Throughput { start_ns: 5_000_000_000, per_minute, stages: &stages };
        let first = rate.first_ns(rate.start_ns);
        let all = std::iter::successors(first, |last_ns| rate.first_ns(rate.next_ns(*last_ns, 1.0)));
        all.take(7).map(|at_ns| (at_ns - rate.start_ns) / 1_000_000).collect()
    }

    #[test]
    fn passes_are_due_when_the_area_of_the_rate_reaches_whole_numbers() {
        assert_eq!(passes(600.0, &[]), [0, 100, 200, 300, 400, 500, 600]);
        // 0 to 10 a second in 10 s: area t² / 2.
        assert_eq!(passes(0.0, &[(600.0, 10_000)]), [0, 1414, 2000, 2449, 2828, 3162, 3464]);
        assert_eq!(passes(60.0, &[(60.0, 2000), (600.0, 0)]), [0, 1000, 2000, 2100, 2200, 2300, 2400]);
        assert_eq!(passes(0.0, &[(0.0, 3000), (600.0, 0)]), [3000, 3100, 3200, 3300, 3400, 3500, 3600]);
    }

    #[test]
    fn no_pass_follows_a_rate_that_stays_0() {
        assert_eq!(passes(600.0, &[(600.0, 300), (0.0, 0)]), [0, 100, 200]);
        assert_eq!(passes(0.0, &[(0.0, 1000)]), [0u64; 0]);
    }
}
