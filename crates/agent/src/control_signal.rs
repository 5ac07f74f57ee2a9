//! The signal that starts and stops a task: the command reader sets it, the task's thread waits for it, and the
//! task's hot loops poll it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leadline_sys::clock::{monotonic_ns, sleep_until};

/// The start signal and stop flag of one task.
#[derive(Debug, Default)]
pub struct ControlSignal {
    start_ns: Mutex<Option<u64>>,
    changed: Condvar,
    stopped: AtomicBool,
    abandoned: AtomicBool,
}

/// How late a condition variable may wake up, ns; the rest of the time to an instant is slept precisely.
const COARSE_NS: u64 = 5_000_000;

impl ControlSignal {
    /// Starts the task at an instant of the monotonic clock; only the first call counts.
    pub fn start_at(&self, at_ns: u64) {
        self.locked().get_or_insert(at_ns);
        self.changed.notify_all();
    }

    /// Asks the task to end.
    pub fn stop(&self) {
        let _start = self.locked();
        self.stopped.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Aborts the task: its outstanding work is not needed. Also stops it.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// Whether the task was aborted.
    #[inline]
    pub fn abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether the task was asked to end. This check is cheap: hot loops make it on every turn. What was written before the
    /// stop, as that the task was aborted, is visible to a thread that sees it.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits for the start; `None` if the task was stopped before it began.
    pub fn wait_for_start(&self) -> Option<u64> {
        let waiting = |start: &mut Option<u64>| start.is_none() && !self.stopped();
        let start = self.changed.wait_while(self.locked(), waiting).unwrap_or_else(PoisonError::into_inner);
        if self.stopped() {
            return None;
        }
        *start
    }

    /// Sleeps until an instant of the monotonic clock, or until the task is asked to end.
    pub fn sleep_until(&self, at_ns: u64) {
        let mut guard = self.locked();
        while !self.stopped() {
            let left_ns = at_ns.saturating_sub(monotonic_ns());
            if left_ns <= COARSE_NS {
                drop(guard);
                return sleep_until(at_ns);
            }
            let coarse = Duration::from_nanos(left_ns - COARSE_NS);
            guard = self.changed.wait_timeout(guard, coarse).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the task is asked to end.
    pub fn wait_for_stop(&self) {
        let going_on = |_: &mut Option<u64>| !self.stopped();
        drop(self.changed.wait_while(self.locked(), going_on).unwrap_or_else(PoisonError::into_inner));
    }

    fn locked(&self) -> MutexGuard<'_, Option<u64>> {
        // The guarded value is a plain option: a panic in another thread cannot have left it half-written.
        self.start_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_start_counts() {
        let signal = ControlSignal::default();
        signal.start_at(5);
        signal.start_at(9);
        assert_eq!(signal.wait_for_start(), Some(5));
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let signal = ControlSignal::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| signal.wait_for_start());
            signal.stop();
            assert_eq!(waiting.join().unwrap(), None);
        });
        assert!(signal.stopped());
    }

    #[test]
    fn a_sleep_ends_at_its_instant_or_with_a_stop() {
        let signal = ControlSignal::default();
        let due_ns = monotonic_ns() + 8_000_000;
        signal.sleep_until(due_ns);
        assert!(monotonic_ns() >= due_ns);
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| signal.sleep_until(u64::MAX));
            signal.abandon();
            sleeping.join().unwrap();
        });
        assert!(signal.stopped() && signal.abandoned());
    }
}
