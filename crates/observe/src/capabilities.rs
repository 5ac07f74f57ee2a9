//! The features that this host allows an agent, each with the reason if it does not. Tries a feature if that changes
//! nothing; otherwise reads the kernel's own setting.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use leadline_wire::Capability;

use crate::cgroup::CgroupPaths;
use crate::parse;

/// Returns the capabilities `tun`, `psi`, `irq_pressure`, `cgroup` (of the given paths), `io_uring` and `soaker`.
pub fn capabilities(cgroup: &CgroupPaths) -> Vec<Capability> {
    vec![
        capability("tun", openable("/dev/net/tun")),
        capability("psi", readable("/proc/pressure/cpu")),
        capability("irq_pressure", readable("/proc/pressure/irq")),
        capability("cgroup", cgroup_readable(cgroup)),
        capability("io_uring", io_uring()),
        capability("soaker", soaker()),
    ]
}

fn capability(name: &str, outcome: Result<(), String>) -> Capability {
    Capability { name: name.to_string(), available: outcome.is_ok(), reason: outcome.err() }
}

/// Checks that a file opens for reading and writing; creating a TUN device needs CAP_NET_ADMIN as well.
fn openable(path: &str) -> Result<(), String> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(drop)
        .map_err(|error| format!("{path}: {}", reason(&error)))
}

/// Returns the system's reason without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" (os error ").map_or(text.as_str(), |(plain, _)| plain).to_lowercase()
}

/// Checks that a file can be read: a kernel started with psi=0 opens the file and then refuses to read it.
fn readable(path: &str) -> Result<(), String> {
    let first = |mut file: File| file.read(&mut [0; 256]);
    match File::open(path).and_then(first) {
        Ok(0) => Err(format!("{path} is empty")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("this kernel does not provide it: {path} does not exist"))
        }
        Err(error) => Err(format!("{path}: {}", reason(&error))),
    }
}

/// Checks that the cgroup's CPU time can be read, in either version.
fn cgroup_readable(paths: &CgroupPaths) -> Result<(), String> {
    let version_2 = paths.v2.as_ref().map(|folder| folder.join("cpu.stat"));
    let version_1 = paths.v1_cpuacct.as_ref().map(|folder| folder.join("cpuacct.usage"));
    let mut reasons = Vec::new();
    for file in [version_2, version_1].into_iter().flatten() {
        match readable(&file.to_string_lossy()) {
            Ok(()) => return Ok(()),
            Err(reason) => reasons.push(reason),
        }
    }
    if reasons.is_empty() {
        reasons.push("the agent has no cgroup with CPU accounting".to_string());
    }
    Err(reasons.join("; "))
}

/// Checks kernel.io_uring_disabled (Linux 6.6): 0 allows all users, 1 only CAP_SYS_ADMIN and the group
/// kernel.io_uring_group, 2 none. Older kernels have no such setting, and allow it. A seccomp filter may still refuse it.
fn io_uring() -> Result<(), String> {
    const SETTING: &str = "/proc/sys/kernel/io_uring_disabled";
    let setting = match fs::read(SETTING) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        setting => setting.map_err(|error| format!("unknown: {SETTING}: {}", reason(&error)))?,
    };
    match setting.trim_ascii() {
        b"0" => Ok(()),
        b"1" if is_administrator() || is_in_ring_group() => Ok(()),
        b"1" => {
            Err("kernel.io_uring_disabled is 1: needs CAP_SYS_ADMIN or the group kernel.io_uring_group".to_string())
        }
        b"2" => Err("kernel.io_uring_disabled is 2: switched off".to_string()),
        other => Err(format!("kernel.io_uring_disabled is {}, which is unknown", String::from_utf8_lossy(other))),
    }
}

/// Checks that a thread of policy SCHED_IDLE yields to all others. Inside a group with a CPU weight it yields to the
/// threads of that group only: the group as a whole competes with the others by its weight.
fn soaker() -> Result<(), String> {
    let groups = parse::cgroup::cpu_groups(&fs::read("/proc/self/cgroup").unwrap_or_default());
    let weighted = |path: &str| {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let below = |mount: &str| Path::new(mount).join(path.trim_start_matches('/'));
        mounts.iter().any(|mount| below(mount).ancestors().any(|group| group.join("cpu.weight").exists()))
    };
    let v2 = groups.v2.filter(|path| weighted(path));
    match groups.v1.filter(|path| path != "/").or(v2) {
        Some(group) => Err(format!("the CPU weight of the group {group} lets it take CPU from other groups")),
        None => Ok(()),
    }
}

/// Returns true if this thread has CAP_SYS_ADMIN where the kernel checks it: in the initial user namespace.
fn is_administrator() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let read = |name: &str| fs::read(format!("/proc/thread-self/{name}")).unwrap_or_default();
    let effective = parse::host::effective_capabilities(&read("status"));
    effective.is_some_and(|bits| bits & CAP_SYS_ADMIN != 0) && parse::host::is_initial_user_namespace(&read("uid_map"))
}

/// Returns true if this thread is in the group that kernel.io_uring_group names; -1 there means none.
fn is_in_ring_group() -> bool {
    let named = fs::read_to_string("/proc/sys/kernel/io_uring_group").ok();
    let Some(named) = named.and_then(|text| text.trim().parse::<u64>().ok()) else { return false };
    parse::host::groups(&fs::read("/proc/thread-self/status").unwrap_or_default()).contains(&named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_one_has_a_reason() {
        let listed = capabilities(&CgroupPaths::default());
        let names: Vec<_> = listed.iter().map(|capability| capability.name.as_str()).collect();
        assert_eq!(names, ["tun", "psi", "irq_pressure", "cgroup", "io_uring", "soaker"]);
        for capability in &listed {
            assert_eq!(capability.available, capability.reason.is_none(), "{capability:?}");
        }
        assert!(!listed[3].available);
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_named() {
        let paths = CgroupPaths { v2: Some("/proc/self/nowhere".into()), ..CgroupPaths::default() };
        assert!(cgroup_readable(&paths).unwrap_err().contains("/proc/self/nowhere/cpu.stat"));
    }
}
