//! Parsers of a cgroup's accounting: version 2's cpu.stat, cpu.max and memory.current, version 1's cpuacct.* and
//! memory.usage_in_bytes; and of /proc/PID/cgroup.

use super::{decimal, fields, labelled, lines, seconds};

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

/// Returns the periods in which a quota was used up, and the time of its threads' waiting, s, from cpu.stat of either
/// version: version 2 counts µs and version 1 ns.
pub fn throttling(cpu_stat: &[u8]) -> Option<(u64, f64)> {
    let throttled_us = labelled(cpu_stat, b"throttled_usec").map(|us| us as f64 / 1e6);
    let throttled_s = throttled_us.or_else(|| labelled(cpu_stat, b"throttled_time").map(|ns| ns as f64 / 1e9));
    Some((labelled(cpu_stat, b"nr_throttled")?, throttled_s?))
}

/// Returns the CPUs of version 2's cpu.max, `200000 100000`; `None` for `max`.
pub fn cpu_max(text: &[u8]) -> Option<f64> {
    let mut numbers = fields(text.trim_ascii()).map(decimal);
    let (quota, period) = (numbers.next()??, numbers.next()??);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// The groups of a process that schedule CPUs, each as a path below its mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuGroups {
    /// In version 2.
    pub v2: Option<String>,
    /// In version 1's hierarchy of the cpu controller.
    pub v1: Option<String>,
}

/// Parses /proc/PID/cgroup: lines of a number, controllers and a path, separated by colons.
pub fn cpu_groups(membership: &[u8]) -> CpuGroups {
    let mut found = CpuGroups::default();
    for line in lines(membership) {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let path = || Some(String::from_utf8_lossy(path).into_owned());
        if controllers.is_empty() {
            found.v2 = path();
        } else if controllers.split(|byte| *byte == b',').any(|name| name == b"cpu") {
            found.v1 = path();
        }
    }
    found
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
    fn throttling_and_quotas_of_both_versions() {
        let v2 = b"usage_usec 1\nnr_periods 9\nnr_throttled 3\nthrottled_usec 250000\n";
        assert_eq!(throttling(v2), Some((3, 0.25)));
        assert_eq!(throttling(b"nr_periods 9\nnr_throttled 3\nthrottled_time 250000000\n"), Some((3, 0.25)));
        assert_eq!(throttling(b"usage_usec 1\n"), None);
        assert_eq!((cpu_max(b"150000 100000\n"), cpu_max(b"max 100000\n"), cpu_max(b"1 0\n")), (Some(1.5), None, None));
    }

    #[test]
    fn groups_of_both_versions() {
        let hybrid = cpu_groups(b"4:memory:/m\n1:cpu,cpuacct:/a:b\n0::/user.slice\n");
        assert_eq!(hybrid, CpuGroups { v2: Some("/user.slice".into()), v1: Some("/a:b".into()) });
        assert_eq!(cpu_groups(b"2:cpuacct:/\nrubbish\n"), CpuGroups::default());
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
