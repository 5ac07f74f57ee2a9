//! CLOCK_MONOTONIC: the only clock of all figures.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// A clock that is ahead of this machine's, and runs faster or slower: another machine's, for tests on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// How far it is ahead when the process starts, ns; negative if it is behind.
    pub offset_ns: i64,
    /// How much faster it runs, parts per billion; negative if it is slower.
    pub drift_ppb: i64,
}

static IS_SHIFTED: AtomicBool = AtomicBool::new(false);
static SHIFT: OnceLock<(Shift, u64)> = OnceLock::new();

/// Shifts the clock of this process from here on. Instants of the kernel's own (packets' stamps, BPF) are not shifted.
pub fn shift(by: Shift) {
    let _ = SHIFT.set((by, kernel_ns()));
    IS_SHIFTED.store(true, Ordering::Release);
}

/// Returns the current time, ns. Namespaces of one machine share this clock.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now_ns = kernel_ns();
    // One load of a constant beside a call into the vDSO.
    if IS_SHIFTED.load(Ordering::Relaxed) {
        return SHIFT.get().map_or(now_ns, |(by, begin_ns)| by.shifted(now_ns, *begin_ns));
    }
    now_ns
}

impl Shift {
    /// Returns this clock's instant for one of the kernel's; `begin_ns` is when it was shifted.
    fn shifted(self, now_ns: u64, begin_ns: u64) -> u64 {
        let passed_ns = i128::from(now_ns) - i128::from(begin_ns);
        let drifted_ns = passed_ns * i128::from(self.drift_ppb) / 1_000_000_000;
        (i128::from(now_ns) + i128::from(self.offset_ns) + drifted_ns).max(0) as u64
    }

    /// Returns the kernel's instant for one of this clock's, rounded up: a sleep until then does not end early.
    fn unshifted(self, at_ns: u64, begin_ns: u64) -> u64 {
        let passed_ns = i128::from(at_ns) - i128::from(self.offset_ns) - i128::from(begin_ns);
        let kernel_passed_ns = passed_ns * 1_000_000_000 / (1_000_000_000 + i128::from(self.drift_ppb));
        (i128::from(begin_ns) + kernel_passed_ns + 1).max(0) as u64
    }
}

#[inline]
fn kernel_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec; CLOCK_MONOTONIC always exists, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the identity of this clock: the same in two processes only if they read the same clock. `None` if the kernel
/// does not tell.
pub fn identity() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A time namespace has a clock of its own (time_namespaces(7)).
    let namespace = std::fs::read_link("/proc/self/ns/time").ok();
    Some(format!("{} {}", boot.trim(), namespace.unwrap_or_default().display()))
}

/// Returns the wall clock, ns since 1970: only for comparison with the kernel's timestamps.
pub fn realtime_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above; CLOCK_REALTIME always exists too.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the wall clock, s since 1970: for peers that want to know it.
pub fn unix_s() -> i64 {
    (realtime_ns() / 1_000_000_000) as i64
}

/// Sleeps until an instant of `monotonic_ns`; returns at once if it has passed.
pub fn sleep_until(at_ns: u64) {
    let at_ns = SHIFT.get().map_or(at_ns, |(by, begin_ns)| by.unshifted(at_ns, *begin_ns));
    let until = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `until` is valid and no remainder is requested. A signal ends the sleep early, so the loop resumes it.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &until, std::ptr::null_mut()) }
        == libc::EINTR
    {}
}

/// Returns the smallest step between successive reads, ns, out of a few thousand.
pub fn resolution_ns() -> Option<u64> {
    let mut last = monotonic_ns();
    let steps = (0..5000).map(|_| {
        let now = monotonic_ns();
        let step = now - last;
        last = now;
        step
    });
    steps.filter(|step| *step > 0).min()
}

/// The state of the kernel's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Whether it is synchronised (NTP, PTP).
    pub synchronised: bool,
    /// The kernel's bound on its error, µs.
    pub max_error_us: u64,
}

/// Queries adjtimex(2) without changing anything.
pub fn wall_clock() -> io::Result<WallClock> {
    // SAFETY: an all-zero timex is valid and, with `modes` 0, queries without setting.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut timex), timex)
    };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let synchronised = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    Ok(WallClock { synchronised, max_error_us: timex.maxerror.max(0) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_never_ends_early() {
        crate::priority::minimize_timer_slack();
        for _ in 0..20 {
            let due = monotonic_ns() + 200_000;
            sleep_until(due);
            assert!(monotonic_ns() >= due);
        }
    }

    #[test]
    fn shifted_clock_is_ahead_by_the_offset_and_the_drift() {
        let begin_ns = 5_000_000_000;
        let by = Shift { offset_ns: -2_000_000_000, drift_ppb: 100_000 };
        assert_eq!(by.shifted(begin_ns, begin_ns), 3_000_000_000);
        assert_eq!(by.shifted(begin_ns + 10_000_000_000, begin_ns), 13_001_000_000);
        for at_ns in [3_000_000_000, 13_001_000_000, 4_000_000_007] {
            let kernel_ns = by.unshifted(at_ns, begin_ns);
            assert!(by.shifted(kernel_ns, begin_ns) >= at_ns && by.shifted(kernel_ns - 3, begin_ns) < at_ns);
        }
        assert_eq!(by.shifted(0, 0), 0, "no instant is before the clock's own begin");
    }

    #[test]
    fn sleep_until_the_past_returns_at_once() {
        sleep_until(0);
    }
}
