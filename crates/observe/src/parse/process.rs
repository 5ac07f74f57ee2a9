//! Parsers of one process: /proc/PID/stat for its CPU time and threads, /proc/PID/task/TID/status for memory and
//! switches.

use super::{decimal, fields, lines, number_after, seconds};

/// The figures of /proc/PID/stat for a whole process, including threads that have ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessTimes {
    /// The leader's state, as in `R`, `S`, `T` (stopped), `Z` (zombie).
    pub state: char,
    /// CPU time in user mode, s.
    pub user_s: f64,
    /// CPU time in the kernel, s.
    pub system_s: f64,
    /// Threads; 0 while the process is being reaped, when its times are unreliable too.
    pub threads: u32,
}

/// Parses /proc/PID/stat.
pub fn times(stat: &[u8]) -> Option<ProcessTimes> {
    // The command's name is in parentheses and may contain spaces and parentheses; the following columns have none.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut columns = fields(stat[name_end + 1..].trim_ascii());
    let &[state] = columns.next()? else { return None };
    // Column numbers of proc(5): state is 3, utime 14, stime 15, num_threads 20.
    let user_s = seconds(decimal(columns.nth(10)?)?);
    let system_s = seconds(decimal(columns.next()?)?);
    let threads = u32::try_from(decimal(columns.nth(4)?)?).ok()?;
    Some(ProcessTimes { state: char::from(state), user_s, system_s, threads })
}

/// What the scheduler keeps of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadSchedule {
    /// CPU time, s.
    pub used_s: f64,
    /// Time that it was runnable and waited for a CPU, s.
    pub waited_s: f64,
}

/// Parses /proc/PID/schedstat, which is of the process's first thread, or /proc/PID/task/TID/schedstat. `None` also where
/// the kernel keeps none, which it shows as zeros.
pub fn schedule(schedstat: &[u8]) -> Option<ThreadSchedule> {
    let mut columns = fields(schedstat.trim_ascii());
    let (used_ns, waited_ns) = (decimal(columns.next()?)?, decimal(columns.next()?)?);
    (used_ns > 0).then_some(ThreadSchedule { used_s: used_ns as f64 / 1e9, waited_s: waited_ns as f64 / 1e9 })
}

/// The figures of a thread's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStatus {
    /// Resident memory of its process, bytes; absent in a zombie and in a kernel thread, which have none.
    pub resident_bytes: Option<u64>,
    /// Voluntary context switches of this thread.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches of this thread.
    pub involuntary_switches: Option<u64>,
}

/// Parses /proc/PID/status or /proc/PID/task/TID/status. Memory is taken from here rather than from `stat`, whose
/// figure lags by the per-CPU counts that are not merged yet.
pub fn status(text: &[u8]) -> ThreadStatus {
    let mut found = ThreadStatus::default();
    for line in lines(text) {
        match line.first() {
            Some(b'V') => {
                if let Some(kibibytes) = number_after(line, b"VmRSS:") {
                    found.resident_bytes = kibibytes.checked_mul(1024);
                }
            }
            Some(b'v') => {
                found.voluntary_switches = found.voluntary_switches.or(number_after(line, b"voluntary_ctxt_switches:"));
            }
            Some(b'n') => {
                found.involuntary_switches =
                    found.involuntary_switches.or(number_after(line, b"nonvoluntary_ctxt_switches:"));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_columns() {
        let stat =
            b"7526 (a) R 1) (b) S 7506 7506 4479 0 -1 4194304 101 0 0 0 150 25 9 9 20 0 3 0 117481 3133440 407 1\n";
        assert_eq!(times(stat), Some(ProcessTimes { state: 'S', user_s: 1.5, system_s: 0.25, threads: 3 }));
        assert_eq!(times(b"7526 (cat) R 7506"), None);
        assert_eq!(times(b"7526 (cat)"), None);
        assert_eq!(times(b""), None);
    }

    #[test]
    fn zeros_of_a_kernel_without_a_scheduler_clock_are_no_time() {
        let known = ThreadSchedule { used_s: 1.5, waited_s: 0.25 };
        assert_eq!(schedule(b"1500000000 250000000 3\n"), Some(known));
        assert_eq!(schedule(b"0 0 0\n"), None);
        assert_eq!(schedule(b"1500000000\n"), None);
        assert_eq!(schedule(b""), None);
    }

    #[test]
    fn status_of_a_living_thread() {
        let text = b"Name:\tcat\nVmHWM:\t    1764 kB\nVmRSS:\t    1760 kB\nThreads:\t1\n\
            voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(
            status(text),
            ThreadStatus {
                resident_bytes: Some(1760 * 1024),
                voluntary_switches: Some(12),
                involuntary_switches: Some(3)
            }
        );
    }

    #[test]
    fn status_of_a_zombie_has_no_memory() {
        let text = b"Name:\tcat\nState:\tZ (zombie)\nvoluntary_ctxt_switches:\t0\n";
        let expected = ThreadStatus { voluntary_switches: Some(0), ..ThreadStatus::default() };
        assert_eq!(status(text), expected);
    }
}
