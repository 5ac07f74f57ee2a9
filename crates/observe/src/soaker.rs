//! The soaker: how much of a CPU was left, by a thread that uses all of it. Owns its loop and its counter; the caller
//! starts one thread per CPU, pins it, gives it the policy SCHED_IDLE, and passes its clocks and the stop.
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

/// Numbers of one counter: a cache line, so that two CPUs do not write to the same one.
pub const NUMBERS: usize = 8;

/// The counter of one CPU, over numbers that may be shared with another process. One thread runs it, and its owner
/// samples it.
#[derive(Clone, Copy, Debug)]
pub struct Counter<'a> {
    slices: &'a AtomicU64,
    /// ns; 0 before the first slice.
    fastest_ns: &'a AtomicU64,
    /// The same since the last sample.
    recent_ns: &'a AtomicU64,
    /// CPU time that its thread was charged when the last slice ended.
    cpu_ns: &'a AtomicU64,
    failed: &'a AtomicU64,
}

impl<'a> Counter<'a> {
    /// Returns the counter over these numbers, which are 0 before it runs.
    pub fn over(numbers: &'a [AtomicU64; NUMBERS]) -> Self {
        let [slices, fastest_ns, recent_ns, cpu_ns, failed, ..] = numbers;
        Self { slices, fastest_ns, recent_ns, cpu_ns, failed }
    }

    /// Counts slices until `stopped`; `clock_ns` is a monotonic clock, `cpu_ns` the CPU time of this thread.
    pub fn run(&self, clock_ns: impl Fn() -> u64, cpu_ns: impl Fn() -> u64, stopped: impl Fn() -> bool) {
        let mut state = 1;
        let mut before_ns = clock_ns();
        while !stopped() {
            state = slice(state);
            self.cpu_ns.store(cpu_ns(), Ordering::Relaxed);
            let now_ns = clock_ns();
            self.add(now_ns.saturating_sub(before_ns));
            before_ns = now_ns;
        }
    }

    /// Says that this CPU cannot be counted.
    pub fn fail(&self) {
        self.failed.store(1, Ordering::Relaxed);
    }

    /// Returns the counts so far of the CPU with this number; `None` if it cannot be counted.
    pub fn sample(&self, cpu: u32) -> Option<SoakerSample> {
        let known = |ns: u64| (ns != 0).then_some(ns);
        let slices = self.slices.load(Ordering::Relaxed);
        (self.failed.load(Ordering::Relaxed) == 0).then(|| SoakerSample {
            cpu,
            slices,
            fastest_ns: known(self.fastest_ns.load(Ordering::Relaxed)),
            recent_ns: known(self.recent_ns.swap(0, Ordering::Relaxed)),
            cpu_s: Some(self.cpu_ns.load(Ordering::Relaxed) as f64 / 1e9),
        })
    }

    fn add(&self, took_ns: u64) {
        self.slices.fetch_add(1, Ordering::Relaxed);
        for least in [self.fastest_ns, self.recent_ns] {
            let known = least.load(Ordering::Relaxed);
            if known == 0 || took_ns < known {
                least.store(took_ns, Ordering::Relaxed);
            }
        }
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
        let numbers = Default::default();
        let counter = Counter::over(&numbers);
        let empty = counter.sample(3).unwrap();
        assert_eq!((empty.slices, empty.fastest_ns, empty.recent_ns), (0, None, None));
        let times = [0, 50, 80, 200].map(Cell::new);
        let read = Cell::new(0);
        let clock = || {
            read.set(read.get() + 1);
            times[read.get() - 1].get()
        };
        counter.run(clock, || 500_000_000, || read.get() == times.len());
        let first = counter.sample(3).unwrap();
        assert_eq!((first.cpu, first.slices, first.fastest_ns, first.recent_ns), (3, 3, Some(30), Some(30)));
        let later = counter.sample(3).unwrap();
        assert_eq!((later.fastest_ns, later.recent_ns, first.cpu_s), (Some(30), None, Some(0.5)));
    }

    #[test]
    fn cpu_that_cannot_be_counted_has_no_sample() {
        let numbers = Default::default();
        Counter::over(&numbers).fail();
        assert_eq!(Counter::over(&numbers).sample(0), None);
    }
}
