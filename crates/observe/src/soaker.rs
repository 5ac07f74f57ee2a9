//! The soaker: how much of a CPU was left, by a thread that uses all of it. Owns its loop and its counter; the caller
//! starts one thread per CPU, pins it, gives it the policy SCHED_IDLE, and passes a clock and the stop.
//!
//! The thread does arithmetic in slices of a fixed number of rounds, and reads the clock once per slice, some tens of
//! µs. Whatever else runs on the CPU (processes, interrupts, soft interrupts, another virtual machine) makes a slice
//! take longer. The fastest slice is what a slice takes on a CPU that is all its own: slices times that, by the time that
//! has passed, is the share of the CPU that was left. Each round needs the result of the one before, so that it takes
//! the same number of cycles whatever the CPU's other units do.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use leadline_wire::SoakerSample;

/// Rounds of arithmetic per slice: about 30 µs at 2.6 GHz.
const SLICE_ROUNDS: u32 = 16_384;

/// The counter of one CPU. One thread writes it; `sample` may be called on another one.
#[derive(Debug)]
pub struct Counter {
    slices: AtomicU64,
    /// ns; `u64::MAX` before the first slice.
    fastest_ns: AtomicU64,
    /// The same since the last sample.
    recent_ns: AtomicU64,
}

impl Default for Counter {
    fn default() -> Self {
        let unknown = || AtomicU64::new(u64::MAX);
        Self { slices: AtomicU64::new(0), fastest_ns: unknown(), recent_ns: unknown() }
    }
}

impl Counter {
    /// Counts slices until `stopped`; `clock_ns` is a monotonic clock.
    pub fn run(&self, clock_ns: impl Fn() -> u64, stopped: impl Fn() -> bool) {
        let mut state = 1;
        let mut before_ns = clock_ns();
        while !stopped() {
            state = slice(state);
            let now_ns = clock_ns();
            self.add(now_ns.saturating_sub(before_ns));
            before_ns = now_ns;
        }
    }

    /// Returns the counts so far of the CPU with this number. `cpu_s` is the CPU time that the thread was charged.
    pub fn sample(&self, cpu: u32, cpu_s: Option<f64>) -> SoakerSample {
        let known = |ns: u64| (ns != u64::MAX).then_some(ns);
        SoakerSample {
            cpu,
            slices: self.slices.load(Ordering::Relaxed),
            fastest_ns: known(self.fastest_ns.load(Ordering::Relaxed)),
            recent_ns: known(self.recent_ns.swap(u64::MAX, Ordering::Relaxed)),
            cpu_s,
        }
    }

    fn add(&self, took_ns: u64) {
        self.slices.fetch_add(1, Ordering::Relaxed);
        self.fastest_ns.fetch_min(took_ns, Ordering::Relaxed);
        self.recent_ns.fetch_min(took_ns, Ordering::Relaxed);
    }
}

/// One slice: each round depends on the one before it.
#[inline(never)]
fn slice(mut state: u64) -> u64 {
    for _ in 0..SLICE_ROUNDS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^= state >> 29;
    }
    black_box(state)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn slices_are_counted_and_the_fastest_one_is_kept() {
        let counter = Counter::default();
        assert_eq!((counter.sample(3, None).slices, counter.sample(3, None).fastest_ns), (0, None));
        let times = [0, 50, 80, 200].map(Cell::new);
        let read = Cell::new(0);
        let clock = || {
            read.set(read.get() + 1);
            times[read.get() - 1].get()
        };
        counter.run(clock, || read.get() == times.len());
        let first = counter.sample(3, Some(0.5));
        assert_eq!((first.cpu, first.slices, first.fastest_ns, first.recent_ns), (3, 3, Some(30), Some(30)));
        let later = counter.sample(3, None);
        assert_eq!((later.fastest_ns, later.recent_ns, first.cpu_s), (Some(30), None, Some(0.5)));
    }
}
