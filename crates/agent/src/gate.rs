//! How a task learns that it is to begin or to end: set by the command reader, waited for by the task's thread, glanced at
//! by its hot loops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leadline_sys::clock::{monotonic_ns, sleep_until};

/// One task's start signal and stop flag.
#[derive(Debug, Default)]
pub struct Gate {
    start_ns: Mutex<Option<u64>>,
    changed: Condvar,
    stopped: AtomicBool,
    abandoned: AtomicBool,
}

/// A condition variable may wake this much late; the rest of the way to an instant is slept precisely.
const COARSE_NS: u64 = 5_000_000;

impl Gate {
    /// Let the task begin at an instant of the monotonic clock; only the first call counts.
    pub fn open(&self, at_ns: u64) {
        self.locked().get_or_insert(at_ns);
        self.changed.notify_all();
    }

    /// Ask the task to end.
    pub fn stop(&self) {
        let _start = self.locked();
        self.stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Give the task up: nobody wants what is still under way. Stops it too.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// Whether nothing is to be waited for any more.
    #[inline]
    pub fn abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether the task was asked to end. Cheap: hot loops ask on every turn.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Wait for the start; `None` when the task was stopped before it began.
    pub fn wait_for_start(&self) -> Option<u64> {
        let waiting = |start: &mut Option<u64>| start.is_none() && !self.stopped();
        let start = self.changed.wait_while(self.locked(), waiting).unwrap_or_else(PoisonError::into_inner);
        if self.stopped() {
            return None;
        }
        *start
    }

    /// Sleep until an instant of the monotonic clock, or until the task is asked to end.
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

    /// Wait until the task is asked to end.
    pub fn wait_for_stop(&self) {
        let going_on = |_: &mut Option<u64>| !self.stopped();
        drop(self.changed.wait_while(self.locked(), going_on).unwrap_or_else(PoisonError::into_inner));
    }

    fn locked(&self) -> MutexGuard<'_, Option<u64>> {
        // The guarded value is a plain option: a panic elsewhere cannot have left it half-written.
        self.start_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_once_and_for_good() {
        let gate = Gate::default();
        gate.open(5);
        gate.open(9);
        assert_eq!(gate.wait_for_start(), Some(5));
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_for_start());
            gate.stop();
            assert_eq!(waiting.join().unwrap(), None);
        });
        assert!(gate.stopped());
    }

    #[test]
    fn a_sleep_ends_when_it_is_due_or_with_a_stop() {
        let gate = Gate::default();
        let due_ns = monotonic_ns() + 8_000_000;
        gate.sleep_until(due_ns);
        assert!(monotonic_ns() >= due_ns);
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| gate.sleep_until(u64::MAX));
            gate.abandon();
            sleeping.join().unwrap();
        });
        assert!(gate.stopped() && gate.abandoned());
    }
}
