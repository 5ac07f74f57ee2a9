//! What a host is doing, read from the kernel's own accounts: /proc, PSI and cgroups. Owns the parsers of those
//! files, the `Observer` that samples them, the host's fingerprint and its routes. Refuses to compute rates or to judge:
//! every figure is the kernel's cumulative count, and what the kernel does not give is `None`, never 0.
//! It makes no system call but open, read and readdir; what needs an ioctl or a socket is in `leadline-sys`.
//!
//! Network files are read through /proc/thread-self/net: they tell of the network namespace of the thread that
//! calls, which is not always that of the process.

mod capabilities;
mod facts;
mod observer;
pub mod parse;
mod process;
mod reread;
mod routes;

use std::path::PathBuf;

pub use capabilities::capabilities;
pub use facts::facts;
pub use observer::Observer;
pub use routes::routes;

/// Where the accounts of the agent's cgroup are; version 2 is preferred to version 1, account by account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupPaths {
    /// Folder in a cgroup2 mount: cpu.stat, memory.current.
    pub v2: Option<PathBuf>,
    /// Folder in the version 1 cpuacct hierarchy: cpuacct.usage, cpuacct.stat.
    pub v1_cpuacct: Option<PathBuf>,
    /// Folder in the version 1 memory hierarchy: memory.usage_in_bytes.
    pub v1_memory: Option<PathBuf>,
}
