//! Samples of a host from the kernel's own accounting: /proc, PSI and cgroups. Owns the parsers of those files, the
//! `Observer` that samples them, the host's fingerprint and its routes. Computes no rates and no verdicts: every
//! figure is the kernel's cumulative count, and a count that the kernel does not provide is `None`, never 0. Makes no
//! system calls except open, read and readdir; code that needs an ioctl or a socket is in `leadline-sys`.
//!
//! Network files are read through /proc/thread-self/net: they describe the network namespace of the calling thread,
//! which may differ from that of the process.

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
