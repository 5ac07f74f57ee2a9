//! When users and iterations of a population begin: pure arithmetic from a load model to instants. A thread has every
//! n-th user or iteration.

use std::collections::VecDeque;

use leadline_wire::scenario::{Arrivals, FirstArrival, OpenStage, Spacing, UserStage};

use super::program::Population;
use super::random::Random;

/// A user begins or is no longer wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserChange {
    /// When, ns after the population's beginning.
    pub at_ns: u64,
    /// The user's index, from 0.
    pub user: u32,
    /// Whether it begins.
    pub begins: bool,
}

/// Returns when each user of a closed model begins and is no longer wanted, in order.
#[must_use]
pub fn user_changes(initial: u32, stages: &[UserStage], first: FirstArrival) -> VecDeque<UserChange> {
    let mut changes: VecDeque<UserChange> =
        (0..initial).map(|user| UserChange { at_ns: 0, user, begins: true }).collect();
    let (mut users, mut start_ns) = (initial, 0u64);
    for stage in stages {
        let duration_ns = stage.duration_ms.saturating_mul(1_000_000);
        let change = u64::from(stage.users.abs_diff(users));
        let begins = stage.users > users;
        for step in 0..change {
            let step_due = if begins && first == FirstArrival::AtStart { step } else { step + 1 };
            let offset_ns = (u128::from(duration_ns) * u128::from(step_due) / u128::from(change)) as u64;
            let user = if begins { users + step as u32 } else { users - 1 - step as u32 };
            changes.push_back(UserChange { at_ns: start_ns + offset_ns, user, begins });
        }
        users = stage.users;
        start_ns = start_ns.saturating_add(duration_ns);
    }
    changes
}

/// When the iterations of an open model are due, one after another, ns after the population's beginning.
#[derive(Debug)]
pub struct DueTimes {
    stages: VecDeque<Stage>,
    /// Iterations of the stage that have been given out, of those at once and of those at the rate.
    at_once: u64,
    given: u64,
    /// The part of a random stage that is left after its last due time, from 1 to 0.
    left: f64,
    /// Area of the stages before, in iterations.
    carried: f64,
    first: FirstArrival,
    random: Option<Random>,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    start_ns: u64,
    stage: OpenStage,
}

impl DueTimes {
    /// Returns the due times of a rate's stages.
    #[must_use]
    pub fn new(stages: &[OpenStage], spacing: Spacing, first: FirstArrival, seed: u64) -> Self {
        let mut start_ns = 0u64;
        let placed = stages.iter().map(|stage| {
            let placed = Stage { start_ns, stage: *stage };
            start_ns = start_ns.saturating_add(stage.duration_ms.saturating_mul(1_000_000));
            placed
        });
        Self {
            stages: placed.collect(),
            at_once: 0,
            given: 0,
            left: 1.0,
            carried: 0.0,
            first,
            random: (spacing == Spacing::Poisson).then(|| Random::of(seed, u32::MAX, 0)),
        }
    }

    /// Returns the next due time; `None` after the last one.
    pub fn next_ns(&mut self) -> Option<u64> {
        loop {
            let Stage { start_ns, stage } = *self.stages.front()?;
            if self.at_once < stage.at_once {
                self.at_once += 1;
                return Some(start_ns);
            }
            if let Some(offset_ns) = self.next_in(&stage) {
                self.given += 1;
                return Some(start_ns + offset_ns);
            }
            // The part of an iteration that is left over belongs to the next stage.
            self.carried += stage.area(stage.seconds()) - self.given as f64;
            (self.at_once, self.given, self.left) = (0, 0, 1.0);
            self.stages.pop_front();
        }
    }

    fn next_in(&mut self, stage: &OpenStage) -> Option<u64> {
        if stage.duration_ms == 0 {
            return None;
        }
        // Areas are sums of products of decimal fractions; a billionth of an iteration is rounding.
        const ROUNDING: f64 = 1e-9;
        let total = stage.area(stage.seconds());
        if let Some(random) = &mut self.random {
            let count = (total + self.carried + ROUNDING).floor().max(0.0) as u64;
            let remaining = count.checked_sub(self.given).filter(|remaining| *remaining > 0)?;
            // The least of n numbers that are uniform between 0 and 1 is 1 less the n-th root of one of them, and the
            // others are uniform between it and 1: in ascending order, one at a time.
            self.left *= (-random.exponential() / remaining as f64).exp();
            return Some((stage.time_of((1.0 - self.left) * total) * 1e9) as u64);
        }
        let number = self.given as f64 + if self.first == FirstArrival::AtStart { 0.0 } else { 1.0 };
        let target = number - self.carried;
        let is_within = match self.first {
            FirstArrival::AtStart => target < total - ROUNDING,
            FirstArrival::AfterInterval => target <= total + ROUNDING,
        };
        is_within.then(|| (stage.time_of(target.max(0.0)) * 1e9).round() as u64)
    }
}

/// What a stage's rate comes to.
pub(super) trait Rate {
    fn seconds(&self) -> f64;
    /// Iterations in its first seconds.
    fn area(&self, seconds: f64) -> f64;
    /// After how many seconds the area is reached.
    fn time_of(&self, area: f64) -> f64;
}

impl Rate for OpenStage {
    fn seconds(&self) -> f64 {
        self.duration_ms as f64 / 1e3
    }

    fn area(&self, seconds: f64) -> f64 {
        let change = if self.duration_ms == 0 { 0.0 } else { (self.to_per_s - self.from_per_s) / self.seconds() };
        seconds * (self.from_per_s + change * seconds / 2.0)
    }

    fn time_of(&self, area: f64) -> f64 {
        let slope = (self.to_per_s - self.from_per_s) / self.seconds();
        let root = (self.from_per_s * self.from_per_s + 2.0 * slope * area).max(0.0).sqrt();
        let seconds = if area <= 0.0 { 0.0 } else { 2.0 * area / (self.from_per_s + root) };
        seconds.min(self.seconds())
    }
}

impl Population {
    /// Returns the population's duration, ns, if it has one of its own.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        let ms = match &self.arrivals {
            Arrivals::Users { duration_ms, .. } | Arrivals::SharedIterations { duration_ms, .. } => (*duration_ms)?,
            Arrivals::Open { stages, .. } => stages.iter().map(|stage| stage.duration_ms).sum(),
            Arrivals::Schedule { due_us, .. } => due_us.last().map_or(0, |last| last / 1000 + 1),
        };
        Some(ms.saturating_mul(1_000_000))
    }

    /// Returns the number of users of a closed model.
    #[must_use]
    pub fn planned_users(&self) -> Option<u32> {
        match self.arrivals {
            Arrivals::Users { .. } | Arrivals::SharedIterations { .. } => self.most_users(),
            Arrivals::Open { .. } | Arrivals::Schedule { .. } => None,
        }
    }

    /// Returns the largest number of users that is planned; `None` if it is not limited.
    #[must_use]
    pub fn most_users(&self) -> Option<u32> {
        match &self.arrivals {
            Arrivals::Users { initial, stages, .. } => {
                Some(stages.iter().map(|stage| stage.users).fold(*initial, u32::max))
            }
            Arrivals::SharedIterations { users, .. } => Some(*users),
            Arrivals::Open { users_at_start, users_most, .. }
            | Arrivals::Schedule { users_at_start, users_most, .. } => users_most.map(|most| most.max(*users_at_start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(from_per_s: f64, to_per_s: f64, duration_ms: u64) -> OpenStage {
        OpenStage { from_per_s, to_per_s, duration_ms, at_once: 0 }
    }

    fn due_ms(stages: &[OpenStage], first: FirstArrival) -> Vec<u64> {
        let mut times = DueTimes::new(stages, Spacing::Even, first, 1);
        std::iter::from_fn(|| times.next_ns()).map(|ns| ns / 1_000_000).collect()
    }

    #[test]
    fn users_of_jmeters_ramp_begin_at_i_of_n() {
        let changes = user_changes(0, &[UserStage { users: 4, duration_ms: 1000 }], FirstArrival::AtStart);
        let begun: Vec<u64> = changes.iter().map(|change| change.at_ns / 1_000_000).collect();
        assert_eq!(begun, [0, 250, 500, 750]);
    }

    #[test]
    fn users_of_k6s_ramps_begin_and_end_when_a_whole_one_is_reached() {
        let stages = [UserStage { users: 3, duration_ms: 400 }, UserStage { users: 0, duration_ms: 300 }];
        let changes = user_changes(1, &stages, FirstArrival::AfterInterval);
        let all: Vec<(u64, u32, bool)> =
            changes.iter().map(|change| (change.at_ns / 1_000_000, change.user, change.begins)).collect();
        assert_eq!(
            all,
            [(0, 0, true), (200, 1, true), (400, 2, true), (500, 2, false), (600, 1, false), (700, 0, false)]
        );
    }

    #[test]
    fn constant_rate_starts_at_once_and_counts_exactly() {
        assert_eq!(due_ms(&[stage(4.0, 4.0, 1000)], FirstArrival::AtStart), [0, 250, 500, 750]);
        for (rate, ms, count) in [(5000.0, 10_000, 50_000), (0.3, 10_000, 3), (7.0, 1_000, 7), (1.0 / 3.0, 9_000, 3)] {
            assert_eq!(due_ms(&[stage(rate, rate, ms)], FirstArrival::AtStart).len(), count, "{rate}");
        }
    }

    #[test]
    fn ramping_rate_fires_when_the_area_reaches_whole_numbers() {
        // 0 to 10/s in 1 s: area 5 t²; event n at sqrt(n / 5) s.
        let expected: Vec<u64> = (1..=5).map(|n| ((f64::from(n) / 5.0).sqrt() * 1e3) as u64).collect();
        assert_eq!(due_ms(&[stage(0.0, 10.0, 1000)], FirstArrival::AfterInterval), expected);
        // Half an iteration of the first stage is completed in the second one.
        assert_eq!(
            due_ms(&[stage(1.0, 1.0, 1500), stage(1.0, 1.0, 1500)], FirstArrival::AfterInterval),
            [1000, 2000, 3000]
        );
    }

    #[test]
    fn random_spacing_keeps_the_number_and_iterations_at_once_come_first() {
        let mut times = DueTimes::new(&[stage(100.0, 100.0, 1000)], Spacing::Poisson, FirstArrival::AtStart, 7);
        let due: Vec<u64> = std::iter::from_fn(|| times.next_ns()).collect();
        assert!(due.len() == 100 && due.is_sorted() && due[0] != 0);
        // A tenth of the time has a tenth of the iterations, to five standard errors.
        let mut times = DueTimes::new(&[stage(1000.0, 1000.0, 10_000)], Spacing::Poisson, FirstArrival::AtStart, 7);
        let mut tenths = [0u32; 10];
        std::iter::from_fn(|| times.next_ns()).for_each(|ns| tenths[(ns / 1_000_000_000) as usize] += 1);
        assert!(
            tenths.iter().sum::<u32>() == 10_000 && tenths.iter().all(|count| count.abs_diff(1000) < 150),
            "{tenths:?}"
        );
        // A day of 432 million iterations needs no more memory than a second.
        let mut times = DueTimes::new(&[stage(5000.0, 5000.0, 86_400_000)], Spacing::Poisson, FirstArrival::AtStart, 7);
        let first = std::iter::from_fn(|| times.next_ns()).nth(9_999).unwrap();
        assert!(first.abs_diff(2_000_000_000) < 100_000_000, "{first}");
        let at_once = OpenStage { at_once: 3, ..stage(0.0, 0.0, 0) };
        assert_eq!(due_ms(&[at_once, stage(1.0, 1.0, 2000)], FirstArrival::AtStart), [0, 0, 0, 0, 1000]);
    }
}
