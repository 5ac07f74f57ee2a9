//! Samples of a host from the kernel's own accounting: /proc, PSI and cgroups. Owns the parsers of those files, the
//! `Observer` that samples them, the host's fingerprint and its routes, and the soaker's counting. Computes no rates and no verdicts: every
//! figure is the kernel's cumulative count, and a count that the kernel does not provide is `None`, never 0. Makes no
//! system calls except open, read and readdir; code that needs an ioctl or a socket is in `leadline-sys`.
//!
//! Network files are read through /proc/thread-self/net: they describe the network namespace of the calling thread,
//! which may differ from that of the process.

mod capabilities;
mod cgroup;
mod facts;
mod hardware;
mod named;
mod observer;
pub mod parse;
mod process;
mod quota;
mod reread;
mod routes;
pub mod soaker;

pub use capabilities::capabilities;
pub use cgroup::CgroupPaths;
pub use facts::{boot_id, facts};
pub use named::processes_of;
pub use observer::Observer;
pub use quota::Quota;
pub use routes::routes;
