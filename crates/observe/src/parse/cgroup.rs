//! Parsers of a cgroup's accounting: version 2's cpu.stat and memory.current, version 1's cpuacct.* and
//! memory.usage_in_bytes.

use super::{decimal, labelled, seconds};

/// A cgroup's CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgroupCpu {
    /// Total, s.
    pub usage_s: f64,
    /// Part of it in user mode, s.
    pub user_s: Option<f64>,
    /// Part of it in the kernel, s.
    pub system_s: Option<f64>,
    /// Time throttled by a limit, s; absent if the cpu controller is off for this cgroup.
    pub throttled_s: Option<f64>,
}

/// Parses version 2's cpu.stat, which counts µs.
pub fn cpu_stat(text: &[u8]) -> Option<CgroupCpu> {
    let figure_s = |label: &[u8]| labelled(text, label).map(|microseconds| microseconds as f64 / 1e6);
    Some(CgroupCpu {
        usage_s: figure_s(b"usage_usec")?,
        user_s: figure_s(b"user_usec"),
        system_s: figure_s(b"system_usec"),
        throttled_s: figure_s(b"throttled_usec"),
    })
}

/// Parses version 1's cpuacct.usage, ns, into s.
pub fn cpuacct_usage_s(text: &[u8]) -> Option<f64> {
    bytes(text).map(|nanoseconds| nanoseconds as f64 / 1e9)
}

/// Parses version 1's cpuacct.stat, ticks, into user and system time, s.
pub fn cpuacct_stat_s(text: &[u8]) -> (Option<f64>, Option<f64>) {
    (labelled(text, b"user").map(seconds), labelled(text, b"system").map(seconds))
}

/// Parses a file of one number: memory.current, memory.usage_in_bytes.
pub fn bytes(text: &[u8]) -> Option<u64> {
    decimal(text.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_with_and_without_the_cpu_controller() {
        let bare = b"usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n";
        let expected = CgroupCpu { usage_s: 1.5, user_s: Some(1.0), system_s: Some(0.5), throttled_s: None };
        assert_eq!(cpu_stat(bare), Some(expected));
        let full = [&bare[..], b"nr_periods 0\nnr_throttled 0\nthrottled_usec 250000\n"].concat();
        assert_eq!(cpu_stat(&full), Some(CgroupCpu { throttled_s: Some(0.25), ..expected }));
        assert_eq!(cpu_stat(b"user_usec 1\n"), None);
    }

    #[test]
    fn version_1() {
        assert_eq!(cpuacct_usage_s(b"2500000000\n"), Some(2.5));
        assert_eq!(cpuacct_stat_s(b"user 150\nsystem 25\n"), (Some(1.5), Some(0.25)));
        assert_eq!(cpuacct_stat_s(b"user 150\n"), (Some(1.5), None));
        assert_eq!(bytes(b"4096\n"), Some(4096));
        assert_eq!(bytes(b"max\n"), None);
    }
}
