//! How long an idle CPU takes to wake up: a thread sleeps for a millisecond at a time, and wakes up another one, which
//! waits on another CPU. Between wake-ups both CPUs are idle, as those of two hosts are that exchange one request after
//! the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::{self, Thread};

use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::priority::minimize_timer_slack;
use leadline_sys::usage::{allowed_cpus, pin_to};
use leadline_wire::WakeUpFacts;

const WAKE_UPS: usize = 200;
const IDLE_NS: u64 = 1_000_000;
/// The first ones touch cold code.
const DISCARDED: usize = 10;
/// A busy machine is late for each sleep: it measures fewer of them.
const LONGEST_NS: u64 = 400_000_000;
/// Fewer do not make a percentile.
const FEWEST: usize = 20;

/// Measures for under half a second; `None` if the machine was too busy, or its threads could not be started.
pub fn measure() -> Option<WakeUpFacts> {
    let allowed = allowed_cpus();
    let waking = *allowed.first()?;
    // The second half of the CPUs are other cores, where the first ones are the two threads of one core.
    let woken = allowed[allowed.len() / 2];
    let sleeper = Sleeper::start(woken)?;
    let (give, timers) = mpsc::channel();
    let thread = thread::Builder::new();
    let waker = thread.spawn(move || {
        let timer_ns = wake_up(waking, &sleeper);
        let thread_ns = sleeper.end();
        let _ = give.send((timer_ns, thread_ns));
    });
    waker.ok()?.join().ok()?;
    let (mut timer_ns, mut thread_ns) = timers.recv().ok()?;
    let samples = timer_ns.len().min(thread_ns.len());
    if samples < FEWEST + DISCARDED {
        return None;
    }
    let us = |times: &mut Vec<u64>, percent| percentile(&mut times[DISCARDED..], percent) as f64 / 1e3;
    Some(WakeUpFacts {
        samples: (samples - DISCARDED) as u32,
        timer_p50_us: us(&mut timer_ns, 50),
        timer_p99_us: us(&mut timer_ns, 99),
        thread_p50_us: us(&mut thread_ns, 50),
        thread_p99_us: us(&mut thread_ns, 99),
        cpus: [waking, woken],
    })
}

/// Sleeps and wakes the other thread up in turn; returns how late each sleep ended.
fn wake_up(cpu: u32, sleeper: &Sleeper) -> Vec<u64> {
    // Unpinned, the time is that of whatever CPU the kernel chose.
    let _ = pin_to(cpu);
    minimize_timer_slack();
    let mut late_ns = Vec::with_capacity(WAKE_UPS);
    let end_ns = monotonic_ns() + LONGEST_NS;
    while late_ns.len() < WAKE_UPS + DISCARDED && monotonic_ns() < end_ns {
        let due_ns = monotonic_ns() + IDLE_NS;
        sleep_until(due_ns);
        late_ns.push(monotonic_ns().saturating_sub(due_ns));
        sleeper.wake_up();
    }
    late_ns
}

/// The thread that is woken up.
struct Sleeper {
    thread: Thread,
    shared: Arc<Shared>,
    times: mpsc::Receiver<Vec<u64>>,
}

#[derive(Default)]
struct Shared {
    /// When it was last woken up, ns; 0 before.
    woken_ns: AtomicU64,
    over: AtomicBool,
}

impl Sleeper {
    fn start(cpu: u32) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let (give, times) = mpsc::channel();
        let handle = thread::Builder::new().spawn(move || {
            let _ = pin_to(cpu);
            let _ = give.send(of_thread.sleep());
        });
        Some(Self { thread: handle.ok()?.thread().clone(), shared, times })
    }

    fn wake_up(&self) {
        self.shared.woken_ns.store(monotonic_ns(), Ordering::Release);
        self.thread.unpark();
    }

    fn end(&self) -> Vec<u64> {
        self.finish();
        self.times.recv().unwrap_or_default()
    }

    fn finish(&self) {
        self.shared.over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    /// Sleeps until it is over; returns the time of each wake-up.
    fn sleep(&self) -> Vec<u64> {
        let mut took_ns = Vec::with_capacity(WAKE_UPS);
        let mut seen_ns = 0;
        loop {
            thread::park();
            let now_ns = monotonic_ns();
            if self.over.load(Ordering::Acquire) {
                return took_ns;
            }
            let woken_ns = self.woken_ns.load(Ordering::Acquire);
            if woken_ns != seen_ns {
                seen_ns = woken_ns;
                took_ns.push(now_ns.saturating_sub(woken_ns));
            }
        }
    }
}

/// The value that this share of the values does not exceed, by nearest rank.
fn percentile(values: &mut [u64], percent: usize) -> u64 {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut values: Vec<u64> = (1..=200).rev().collect();
        assert_eq!((percentile(&mut values, 50), percentile(&mut values, 99)), (100, 198));
        assert_eq!((percentile(&mut [7], 99), percentile(&mut [], 50)), (7, 0));
    }

    #[test]
    fn wake_ups_take_some_time_and_are_few() {
        let began_ns = monotonic_ns();
        let Some(found) = measure() else { return println!("skipped: the machine is too busy") };
        // Each sample slept first.
        assert!(monotonic_ns() - began_ns >= u64::from(found.samples) * IDLE_NS);
        assert!(
            found.samples >= FEWEST as u32 && found.samples <= WAKE_UPS as u32 && found.thread_p50_us > 0.0,
            "{found:?}"
        );
        assert!(found.timer_p50_us <= found.timer_p99_us && found.thread_p50_us <= found.thread_p99_us, "{found:?}");
    }
}
