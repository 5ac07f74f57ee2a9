//! How a late sender catches up: faster than its rate, but not all at once. A stalled thread would otherwise send what
//! fell due meanwhile as one burst, which queues on the path drop. The later it is, the faster it catches up. Owns no clock.

use crate::Pace;

/// Limits how many of the operations that are due may begin by now.
#[derive(Clone, Copy, Debug)]
pub struct CatchUp {
    pace: Pace,
    /// How many operations may be late before the limit holds.
    tolerated: u64,
    /// How many late operations may begin together: what falls due while a thread is woken up.
    together: u64,
    /// From how many late operations on there is no such bound.
    far: u64,
    end: Option<End>,
    behind: Option<Behind>,
}

/// When the operations end.
#[derive(Clone, Copy, Debug)]
struct End {
    /// When the last one should have begun, ns.
    at_ns: u64,
    /// How much later it may begin, ns.
    later_ns: u64,
}

/// A driver that catches up.
#[derive(Clone, Copy, Debug)]
struct Behind {
    /// Since when, ns.
    since_ns: u64,
    /// How many had begun by then.
    begun: u64,
    /// The rate meanwhile.
    faster: Pace,
}

/// How long it takes to catch up, ns, where the bounds of its rate do not make this longer or shorter.
const CAUGHT_UP_NS: f64 = 100e6;
/// The lowest and the highest rate of catching up, in parts of the rate: short stalls, of a twentieth of the time in all,
/// must not add up, and more than this would be a burst.
const FASTER: (f64, f64) = (1.06, 1.5);
/// How much later than due the last operation may begin, in parts of the time of all: this changes their rate by as much.
const LATER_AT_END: f64 = 0.000_75;
/// Near the end, what is late leaves in this time, ns, on top of the rate: a fifth of it in the worst millisecond.
const FOR_THE_END_NS: f64 = 5e6;
/// The limit holds if more is late than falls due in this time, ns.
const TOLERATED_NS: u64 = 20_000;
/// What falls due in this time may begin together, ns: waking up may take this long.
const TOGETHER_NS: u64 = 100_000;
/// A driver that is this late, ns, has no CPU of its own: only bursts as long as its stalls keep its rate.
const FAR_NS: u64 = 50_000_000;

impl CatchUp {
    /// Returns the limit for operations at this rate.
    pub fn new(pace: Pace) -> Self {
        let within = |ns: u64| pace.count_within(ns).max(1);
        Self {
            pace,
            tolerated: within(TOLERATED_NS),
            together: within(TOGETHER_NS),
            far: within(FAR_NS),
            end: None,
            behind: None,
        }
    }

    /// Returns the limit for operations that are due from `begin_ns` to `end_ns`. Near the end it catches up faster: what
    /// begins after it lengthens their time, and so lowers their rate.
    pub fn between(pace: Pace, begin_ns: u64, end_ns: u64) -> Self {
        let later_ns = end_ns.saturating_sub(begin_ns) as f64 * LATER_AT_END;
        Self { end: Some(End { at_ns: end_ns, later_ns: later_ns as u64 }), ..Self::new(pace) }
    }

    /// Returns how many operations may have begun at `now_ns`, of which `due` are due and `begun` have begun.
    #[inline]
    pub fn allowed(&mut self, now_ns: u64, due: u64, begun: u64) -> u64 {
        let late = due.saturating_sub(begun);
        if late == 0 || self.behind.is_none() && late <= self.tolerated {
            self.behind = None;
            return due;
        }
        let behind = self.behind.unwrap_or_else(|| self.behind_since(now_ns, begun, late));
        self.behind = Some(behind);
        let in_this_time = behind.faster.due_count(now_ns.saturating_sub(behind.since_ns));
        let allowed = behind.begun.saturating_add(in_this_time);
        if allowed >= due && late <= self.tolerated {
            self.behind = None;
            return due;
        }
        let most = begun + self.together;
        if allowed <= most || late > self.far {
            return due.min(allowed);
        }
        // It was stalled again: what it missed is left for later.
        self.behind = Some(self.behind_since(now_ns, begun, late));
        due.min(most)
    }

    fn behind_since(&self, since_ns: u64, begun: u64, late: u64) -> Behind {
        let late_ns = self.pace.due_ns(late) as f64;
        let factor = (1.0 + late_ns / CAUGHT_UP_NS).max(self.for_the_end(since_ns, late_ns));
        Behind { since_ns, begun, faster: self.pace.scaled(factor.clamp(FASTER.0, FASTER.1)) }
    }

    /// Returns the rate, in parts of the rate, at which the last operation begins late enough for no burst, and early
    /// enough for the rate of all.
    fn for_the_end(&self, now_ns: u64, late_ns: f64) -> f64 {
        let Some(end) = self.end else { return 0.0 };
        let due_ns = end.at_ns.saturating_sub(now_ns) as f64 + late_ns;
        let left_ns = end.at_ns.saturating_add(end.later_ns).saturating_sub(now_ns).max(1) as f64;
        (due_ns / left_ns).min(1.0 + late_ns / FOR_THE_END_NS)
    }

    /// Returns when the next operation may begin if `begun` have begun, ns; `None` while none is late.
    pub fn next_ns(&self, begun: u64) -> Option<u64> {
        let behind = self.behind?;
        Some(behind.since_ns.saturating_add(behind.faster.due_ns(begun.saturating_sub(behind.begun))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Datagrams of 1400 bytes at 100 Mbit/s and at 1 Gbit/s.
    const RATES: [f64; 2] = [100e6 / 8.0 / 1400.0, 1e9 / 8.0 / 1400.0];

    /// What a sender did that reads its clock each `step_ns`, except in its stalls (from when, and for how long, ns).
    struct Sent {
        /// In all.
        count: u64,
        /// In the worst millisecond.
        worst: u64,
        /// How late it was at the end, ns.
        late_ns: u64,
    }

    fn sent(rate: f64, step_ns: u64, stalls: &[(u64, u64)], limits: bool) -> Sent {
        let pace = Pace::per_second(rate).unwrap();
        let mut catch_up = CatchUp::new(pace);
        let (mut now_ns, mut begun, mut worst) = (0, 0, 0);
        let mut recent = std::collections::VecDeque::new();
        while now_ns < 1000 * MS {
            let due = pace.due_count(now_ns);
            let allowed = if limits { catch_up.allowed(now_ns, due, begun).max(begun) } else { due };
            recent.extend((begun..allowed).map(|_| now_ns));
            while recent.front().is_some_and(|at_ns| at_ns + MS <= now_ns) {
                recent.pop_front();
            }
            (begun, worst) = (allowed, worst.max(recent.len() as u64));
            let stall = stalls.iter().find(|(from_ns, _)| (now_ns..now_ns + step_ns).contains(from_ns));
            now_ns += step_ns + stall.map_or(0, |(_, for_ns)| *for_ns);
        }
        Sent { count: begun, worst, late_ns: now_ns.saturating_sub(pace.due_ns(begun)) }
    }

    #[test]
    fn stalled_sender_catches_up_without_a_burst() {
        for step_ns in [1_000, 10_000, 50_000] {
            let Sent { worst, late_ns, .. } = sent(100_000.0, step_ns, &[(12 * MS, 5 * MS), (20 * MS, 3 * MS)], true);
            // The second stall makes it 6 to 7 ms late in all.
            assert!((100..=147).contains(&worst), "{worst} in 1 ms, steps of {step_ns} ns");
            assert!(late_ns <= 60_000, "{late_ns} ns late, steps of {step_ns} ns");
        }
    }

    #[test]
    fn rate_is_exact_with_stalls_and_its_bursts_are_a_quarter_of_those_without_a_limit() {
        for rate in RATES {
            for stall_ns in [2 * MS, 5 * MS, 15 * MS, 40 * MS] {
                let stalls: Vec<(u64, u64)> = (1..8).map(|n| (n * 120 * MS, stall_ns)).collect();
                let [ours, others] = [true, false].map(|limits| sent(rate, 5_000, &stalls, limits));
                let error = (ours.count as f64 / rate - 1.0).abs();
                assert!(error <= 0.001, "{error} at {rate}/s with stalls of {stall_ns} ns");
                // As the benchmark counts: what exceeds the rate in the worst millisecond, plus one.
                let [ours, others] = [ours, others].map(|sent| sent.worst as f64 - rate / 1000.0 + 1.0);
                assert!(ours <= others / 4.0, "{ours} and {others} at {rate}/s with stalls of {stall_ns} ns");
            }
        }
    }

    #[test]
    fn stalls_of_a_tenth_of_a_millisecond_move_no_rate() {
        for rate in RATES {
            let stalls: Vec<(u64, u64)> = (1..500).map(|n| (n * 2 * MS, MS / 10)).collect();
            let Sent { count, worst, .. } = sent(rate, 1_000, &stalls, true);
            assert!((count as f64 / rate - 1.0).abs() <= 0.001, "{count} at {rate}/s");
            assert!(worst as f64 <= rate / 1000.0 * 1.06 + 2.0, "{worst} in 1 ms at {rate}/s");
        }
    }

    #[test]
    fn starved_sender_keeps_its_rate() {
        let pace = Pace::per_second(10_000.0).unwrap();
        for step_ns in [1_000_000, 7_000_000, 30_000_000, 200_000_000] {
            let mut catch_up = CatchUp::new(pace);
            let mut begun = 0;
            for call in 1..=2_000_000_000 / step_ns {
                begun = catch_up.allowed(call * step_ns, pace.due_count(call * step_ns), begun).max(begun);
            }
            let late = pace.due_count(2_000_000_000 / step_ns * step_ns) - begun;
            assert!(late <= pace.due_count(FAR_NS + step_ns), "{late} late, woken every {step_ns} ns");
        }
    }

    #[test]
    fn punctual_sender_is_not_limited() {
        let pace = Pace::per_second(1000.0).unwrap();
        let mut catch_up = CatchUp::new(pace);
        for n in 0..100 {
            assert_eq!(catch_up.allowed(pace.due_ns(n), n + 1, n), n + 1);
            assert_eq!(catch_up.next_ns(n + 1), None);
        }
        // Four are late: one is sent at once, the next one earlier than after a gap.
        assert_eq!(catch_up.allowed(103_000_000, 104, 100), 101);
        assert_eq!(catch_up.next_ns(101), Some(103_943_396));
    }
}
