//! How a late sender catches up: faster than its rate, but not all at once. A stalled thread would otherwise send what
//! fell due meanwhile as one burst, which queues on the path drop. Owns no clock.

use crate::Pace;

/// Limits how many of the operations that are due may begin by now.
#[derive(Clone, Copy, Debug)]
pub struct CatchUp {
    /// The rate while it catches up.
    faster: Pace,
    /// How many operations may be late before the limit holds.
    tolerated: u64,
    /// How many late operations may begin together: what falls due while a thread is woken up.
    together: u64,
    /// From how many late operations on there is no such bound.
    far: u64,
    /// When it began to catch up, ns, and how many had begun by then.
    behind: Option<(u64, u64)>,
}

/// The rate of catching up, in parts of the rate.
const FASTER: f64 = 1.25;
/// The limit holds if more is late than falls due in this time, ns.
const TOLERATED_NS: u64 = 20_000;
/// What falls due in this time may begin together, ns: waking up may take this long.
const TOGETHER_NS: u64 = 200_000;
/// A driver that is this late, ns, has no CPU of its own: only bursts as long as its stalls keep its rate.
const FAR_NS: u64 = 50_000_000;

impl CatchUp {
    /// Returns the limit for operations at this rate.
    pub fn new(pace: Pace) -> Self {
        let within = |ns: u64| pace.count_within(ns).max(1);
        Self {
            faster: pace.scaled(FASTER),
            tolerated: within(TOLERATED_NS),
            together: within(TOGETHER_NS),
            far: within(FAR_NS),
            behind: None,
        }
    }

    /// Returns how many operations may have begun at `now_ns`, of which `due` are due and `begun` have begun.
    #[inline]
    pub fn allowed(&mut self, now_ns: u64, due: u64, begun: u64) -> u64 {
        let late = due.saturating_sub(begun);
        if late <= self.tolerated {
            self.behind = None;
            return due;
        }
        let (since_ns, begun_then) = *self.behind.get_or_insert((now_ns, begun));
        let allowed = begun_then.saturating_add(self.faster.due_count(now_ns.saturating_sub(since_ns)));
        let most = begun + self.together;
        if allowed <= most || late > self.far {
            return due.min(allowed);
        }
        // It was stalled again: what it missed is left for later.
        self.behind = Some((now_ns, begun));
        due.min(most)
    }

    /// Returns when the next operation may begin if `begun` have begun, ns; `None` while none is late.
    pub fn next_ns(&self, begun: u64) -> Option<u64> {
        let (since_ns, begun_then) = self.behind?;
        Some(since_ns.saturating_add(self.faster.due_ns(begun.saturating_sub(begun_then))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends at 100,000/s with a stall of 5 ms and, while it catches up, one of 3 ms; returns the worst number in any millisecond and the lateness at the
    /// end, ns.
    fn stalled(step_ns: u64) -> (usize, u64) {
        let pace = Pace::per_second(100_000.0).unwrap();
        let mut catch_up = CatchUp::new(pace);
        let (mut begun, mut sent): (u64, Vec<u64>) = (0, Vec::new());
        let mut now_ns = 0;
        while now_ns < 70_000_000 {
            let allowed = catch_up.allowed(now_ns, pace.due_count(now_ns), begun);
            sent.extend((begun..allowed).map(|_| now_ns));
            begun = allowed.max(begun);
            now_ns += match now_ns {
                12_000_000 => 5_000_000,
                20_000_000 => 3_000_000,
                _ => step_ns,
            };
        }
        let worst = sent.iter().map(|from| sent.iter().filter(|at| (*from..from + 1_000_000).contains(*at)).count());
        (worst.max().unwrap(), now_ns - pace.due_ns(begun))
    }

    #[test]
    fn stalled_sender_catches_up_without_a_burst() {
        for step_ns in [1_000, 10_000, 50_000] {
            let (worst, late_ns) = stalled(step_ns);
            assert!((100..=146).contains(&worst), "{worst} in 1 ms, steps of {step_ns} ns");
            assert!(late_ns <= 60_000, "{late_ns} ns late, steps of {step_ns} ns");
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
        // Two are late: one is sent at once, the next one 0.8 ms later.
        assert_eq!(catch_up.allowed(103_000_000, 104, 100), 101);
        assert_eq!(catch_up.next_ns(101), Some(103_800_000));
    }
}
