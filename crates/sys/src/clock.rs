//! CLOCK_MONOTONIC: the only clock of all figures.
#![allow(unsafe_code)]

use std::io;

/// Returns the current time, ns. Namespaces of one machine share this clock.
#[inline]
pub fn monotonic_ns() -> u64 {
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
    fn sleep_until_the_past_returns_at_once() {
        sleep_until(0);
    }
}
