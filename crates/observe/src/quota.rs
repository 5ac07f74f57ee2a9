//! The CPU quota that holds for the agent's host from above, as a container has: the innermost of the agent's control
//! groups with one. A group that was made for the host itself is left out: its limit is part of what is measured.

use std::fs;
use std::path::{Path, PathBuf};

use leadline_wire::QuotaSample;

use crate::parse;
use crate::reread::{Buffer, Reread};

const MOUNTS_V2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const MOUNTS_V1: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];

/// A quota that was found, whose group's counts can be read again and again.
#[derive(Debug)]
pub struct Quota {
    group: PathBuf,
    cpus: f64,
    stat: Reread,
}

impl Quota {
    /// Finds the quota of this process; `own` is the group that was made for its host.
    pub fn find(own: Option<&Path>) -> Option<Self> {
        let membership = fs::read("/proc/self/cgroup").ok()?;
        let groups = parse::cgroup::cpu_groups(&membership);
        groups
            .v2
            .and_then(|path| Self::among(&MOUNTS_V2, &path, own, limit_v2))
            .or_else(|| groups.v1.and_then(|path| Self::among(&MOUNTS_V1, &path, own, limit_v1)))
    }

    fn among(mounts: &[&str], path: &str, own: Option<&Path>, limit: fn(&Path) -> Option<f64>) -> Option<Self> {
        mounts.iter().find_map(|mount| {
            let mount = Path::new(mount);
            let group = mount.join(path.trim_start_matches('/'));
            group.ancestors().take_while(|group| group.starts_with(mount)).filter(|group| Some(*group) != own).find_map(
                |group| {
                    let cpus = limit(group)?;
                    let stat = Reread::open(group.join("cpu.stat")).ok()?;
                    Some(Self { group: group.to_path_buf(), cpus, stat })
                },
            )
        })
    }

    /// Reads the group's counts now, with a buffer of its own.
    pub fn read(&self) -> Option<QuotaSample> {
        self.sample(&mut Buffer::default())
    }

    pub(crate) fn sample(&self, buffer: &mut Buffer) -> Option<QuotaSample> {
        let (throttled_periods, throttled_s) = parse::cgroup::throttling(self.stat.read(buffer).ok()?)?;
        let group = self.group.to_string_lossy().into_owned();
        Some(QuotaSample { group, cpus: self.cpus, throttled_periods, throttled_s })
    }
}

/// CPUs of `cpu.max`.
fn limit_v2(group: &Path) -> Option<f64> {
    parse::cgroup::cpu_max(&fs::read(group.join("cpu.max")).ok()?)
}

/// CPUs of `cpu.cfs_quota_us`, which is -1 where there is no limit.
fn limit_v1(group: &Path) -> Option<f64> {
    let number = |name: &str| parse::cgroup::bytes(&fs::read(group.join(name)).ok()?);
    let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    (period > 0).then(|| quota as f64 / period as f64)
}
