//! Waits that end when they are due: asleep until shortly before, and busy from then on, because waking up takes tens of
//! microseconds. Owns the right to be busy: one CPU of the host is always left to others.

use std::sync::atomic::{AtomicUsize, Ordering};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::usage::cpus_online;

/// Threads of this process that may be busy while they wait.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// How early to wake up, ns: at first, and at least and at most.
const MARGIN_NS: u64 = 60_000;
const LEAST_MARGIN_NS: u64 = 5_000;
const MOST_MARGIN_NS: u64 = 150_000;
/// The longest step between two readings of the clock, ns; a longer one means that another thread ran.
const LONGEST_STEP_NS: u64 = 2_000;

/// The waits of one thread.
#[derive(Debug)]
pub struct PunctualWait {
    may_be_busy: bool,
    /// How much earlier than due to wake up, ns: a little more than the last sleeps took to end.
    margin_ns: u64,
    spun_ns: u64,
}

impl PunctualWait {
    /// Returns waits that may be busy if this is wanted and a CPU is free for it.
    pub fn new(is_wanted: bool) -> Self {
        let most = cpus_online() - 1;
        let take = |busy: usize| (is_wanted && busy < most).then_some(busy + 1);
        let may_be_busy = BUSY.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        Self { may_be_busy, margin_ns: MARGIN_NS, spun_ns: 0 }
    }

    /// Returns when to wake up for something that is due at `due_ns`.
    pub fn wake_ns(&self, due_ns: u64) -> u64 {
        if self.may_be_busy {
            due_ns.saturating_sub(self.margin_ns)
        } else {
            due_ns
        }
    }

    /// Records that a sleep until `wake_ns`, which nothing else ended, was over at `now_ns`.
    pub fn woke(&mut self, wake_ns: u64, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(wake_ns);
        let wanted_ns = (late_ns + late_ns / 4).max(self.margin_ns - self.margin_ns / 16);
        self.margin_ns = wanted_ns.clamp(LEAST_MARGIN_NS, MOST_MARGIN_NS);
    }

    /// Waits busily until an instant; returns at once if this thread may not.
    pub fn spin_until(&mut self, due_ns: u64) {
        if !self.may_be_busy {
            return;
        }
        let mut now_ns = monotonic_ns();
        while now_ns < due_ns {
            std::hint::spin_loop();
            let before_ns = std::mem::replace(&mut now_ns, monotonic_ns());
            if now_ns - before_ns < LONGEST_STEP_NS {
                self.spun_ns += now_ns - before_ns;
            }
        }
    }

    /// Returns the time of busy waits so far, s; `None` if there are none.
    pub fn spun_s(&self) -> Option<f64> {
        self.may_be_busy.then_some(self.spun_ns as f64 / 1e9)
    }
}

impl Drop for PunctualWait {
    fn drop(&mut self) {
        if self.may_be_busy {
            BUSY.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margin_follows_how_late_sleeps_end() {
        let mut wait = PunctualWait { may_be_busy: false, margin_ns: MARGIN_NS, spun_ns: 0 };
        wait.woke(1_000_000, 1_080_000);
        assert_eq!(wait.margin_ns, 100_000);
        wait.woke(1_000_000, 9_000_000);
        assert_eq!(wait.margin_ns, MOST_MARGIN_NS);
        (0..200).for_each(|_| wait.woke(1_000_000, 1_010_000));
        assert!((12_500..13_400).contains(&wait.margin_ns), "{}", wait.margin_ns);
        assert_eq!((wait.wake_ns(500), wait.spun_s()), (500, None));
    }

    #[test]
    fn unwanted_waits_are_never_busy() {
        let mut wait = PunctualWait::new(false);
        wait.spin_until(u64::MAX);
        assert_eq!(wait.spun_s(), None);
    }
}
