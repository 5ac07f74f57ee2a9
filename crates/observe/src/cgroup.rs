//! Where the kernel accounts for the agent's cgroup. Owns the folders; `observer` reads the files in them.

use std::path::PathBuf;

/// The files of the agent's cgroup accounting; version 2 is preferred to version 1, for each account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupPaths {
    /// Folder in a cgroup2 mount: cpu.stat, memory.current.
    pub v2: Option<PathBuf>,
    /// Folder in the version 1 cpuacct hierarchy: cpuacct.usage, cpuacct.stat.
    pub v1_cpuacct: Option<PathBuf>,
    /// Folder in the version 1 memory hierarchy: memory.usage_in_bytes.
    pub v1_memory: Option<PathBuf>,
}
