//! CPU time of the calling thread, and its current CPU.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// CPU time of one thread, s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadUsage {
    /// In user mode.
    pub user_s: f64,
    /// In the kernel, including soft interrupts that ran on its time.
    pub system_s: f64,
    /// Runnable and waiting for a CPU; `None` if the kernel keeps no schedstat.
    pub runnable_wait_s: Option<f64>,
}

/// Reads one thread's usage repeatedly, without opening a file in between.
#[derive(Debug)]
pub struct ThreadAccount {
    /// `None` if the kernel keeps none.
    schedstat: Option<File>,
}

/// Larger than three numbers of 64 bits in decimal.
const SCHEDSTAT_BYTES: usize = 64;

impl ThreadAccount {
    /// Creates the account of the calling thread, the only thread that may read it.
    pub fn of_this_thread() -> Self {
        Self { schedstat: File::open("/proc/thread-self/schedstat").ok() }
    }

    /// Returns the thread's usage since it began.
    pub fn now(&self) -> ThreadUsage {
        // SAFETY: an all-zero rusage is valid and the kernel fills it; RUSAGE_THREAD exists since Linux 2.6.26.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        // rusage lacks what a running thread has used since the last tick; its clock does not.
        let (used_s, user_s) = (thread_cpu_s(), seconds(usage.ru_utime));
        ThreadUsage {
            user_s,
            system_s: (used_s - user_s).max(seconds(usage.ru_stime)),
            runnable_wait_s: self.runnable_wait_s(),
        }
    }

    /// Returns the second field of schedstat: ns spent on a run queue.
    fn runnable_wait_s(&self) -> Option<f64> {
        let mut text = [0; SCHEDSTAT_BYTES];
        let length = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let waited_ns: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(waited_ns as f64 / 1e9)
    }
}

impl ThreadUsage {
    /// Returns the calling thread's usage since it began.
    pub fn now() -> Self {
        ThreadAccount::of_this_thread().now()
    }

    /// Both parts.
    fn total_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// Returns the usage since an earlier reading of the same thread. The time since a tick counts as the kernel's until the
    /// next tick says whose it was: neither part may become negative by that.
    pub fn since(&self, earlier: &Self) -> Self {
        let used_s = (self.total_s() - earlier.total_s()).max(0.0);
        let user_s = (self.user_s - earlier.user_s).clamp(0.0, used_s);
        Self {
            user_s,
            system_s: used_s - user_s,
            runnable_wait_s: self.runnable_wait_s.zip(earlier.runnable_wait_s).map(|(now, then)| now - then),
        }
    }
}

/// CPU time of the calling thread since it began, s: the sum alone, at the price of one system call.
pub fn thread_cpu_s() -> f64 {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `used` is a valid timespec; a thread's own CPU clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut used) };
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// CPUs that the calling thread may run on, in order.
pub fn allowed_cpus() -> Vec<u32> {
    // SAFETY: an all-zero set is valid, the kernel fills it, and CPU_ISSET reads numbers within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).map(|cpu| cpu as u32).collect()
    }
}

/// CPUs of this machine that are in use, whichever of them this process may run on; 1 where that is not known.
pub fn cpus_online() -> usize {
    // SAFETY: asks for a number; negative where it is not known.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1).max(1)
}

/// Returns how many CPUs the machine can have, online or not: their numbers are below this.
pub fn cpus_possible() -> usize {
    // SAFETY: asks for a number; negative where it is not known.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(0, |last| last + 1).max(usize::try_from(configured).unwrap_or(1)).max(1)
}

/// The CPU on which the calling thread runs at this moment; `None` where that is not known.
pub fn this_cpu() -> Option<u32> {
    // SAFETY: a plain query of this thread.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Let the calling thread run on one CPU alone.
///
/// # Errors
/// The system's: a CPU that is not there, or not allowed.
pub fn pin_to(cpu: u32) -> io::Result<()> {
    // SAFETY: an all-zero set is valid; CPU_SET ignores numbers beyond it, which leaves the set empty and is refused.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if (cpu as usize) < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu as usize, &mut set);
        }
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_pinned_to_an_online_cpu() {
        std::thread::spawn(|| {
            assert!(pin_to(u32::MAX).is_err() && pin_to(1023).is_err());
            assert!((0..1023).any(|cpu| pin_to(cpu).is_ok()));
            assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn allowed_cpus_are_those_that_can_be_pinned_to() {
        std::thread::spawn(|| {
            let allowed = allowed_cpus();
            assert_eq!(allowed.len(), std::thread::available_parallelism().unwrap().get());
            assert!(allowed.iter().all(|cpu| pin_to(*cpu).is_ok()));
            assert_eq!(allowed_cpus(), allowed[allowed.len() - 1..]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn usage_has_what_the_thread_has_used_since_the_last_tick() {
        std::thread::spawn(|| {
            for _ in 0..1000 {
                let (before_s, usage) = (thread_cpu_s(), ThreadUsage::now());
                assert!(usage.total_s() >= before_s - 1e-9, "{usage:?} after {before_s} s");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn part_of_a_tick_that_turns_out_as_the_other_mode_makes_no_part_negative() {
        let usage = |user_s, system_s| ThreadUsage { user_s, system_s, runnable_wait_s: None };
        assert_eq!(usage(2.0, 1.0).since(&usage(0.5, 2.0)), usage(0.5, 0.0));
        assert_eq!(usage(1.0, 3.0).since(&usage(0.5, 2.0)), usage(0.5, 1.0));
    }

    #[test]
    fn thread_cpu_time_counts_a_spin() {
        let before = ThreadUsage::now();
        let mut spent = before;
        while spent.user_s + spent.system_s < before.user_s + before.system_s + 0.02 {
            spent = ThreadUsage::now();
        }
        let used = spent.since(&before);
        assert!(thread_cpu_s() >= spent.user_s + spent.system_s - 0.02);
        assert!(used.user_s >= 0.0 && used.system_s >= 0.0 && used.user_s + used.system_s >= 0.02);
    }
}
