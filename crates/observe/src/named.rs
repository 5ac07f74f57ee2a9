//! Finds processes by the name of their program.

use std::fs;

/// The kernel keeps this many bytes of a program's name in /proc/PID/comm.
const COMM_BYTES: usize = 15;

/// Returns the processes of these programs, each with the program's name, in order of their ids. A program is named as
/// in /proc/PID/comm, or by the last part of its path in /proc/PID/cmdline.
pub fn processes_of(programs: &[String]) -> Vec<(String, u32)> {
    if programs.is_empty() {
        return Vec::new();
    }
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let named = |pid: u32| {
        let comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_of = |program: &&String| is_named(program.as_bytes(), comm.trim_ascii_end(), &cmdline);
        programs.iter().find(is_of).map(|program| (program.clone(), pid))
    };
    pids.into_iter().filter_map(named).collect()
}

fn is_named(program: &[u8], comm: &[u8], cmdline: &[u8]) -> bool {
    let path = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    file == program || comm == &program[..program.len().min(COMM_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_either_name() {
        assert!(is_named(b"nginx", b"nginx", b"nginx: worker process\0"));
        assert!(is_named(b"a-very-long-program", b"a-very-long-pro", b"/usr/bin/a-very-long-program\0-x\0"));
        assert!(is_named(b"openvpn", b"renamed", b"/usr/sbin/openvpn\0"));
        assert!(!is_named(b"open", b"openvpn", b"/usr/sbin/openvpn\0") && !is_named(b"vpn", b"openvpn", b""));
    }

    #[test]
    fn this_process_is_found() {
        let comm = fs::read_to_string("/proc/self/comm").unwrap().trim().to_owned();
        assert!(processes_of(&[comm]).iter().any(|(_, pid)| *pid == std::process::id()));
        assert!(processes_of(&[]).is_empty() && processes_of(&["no such program".to_owned()]).is_empty());
    }
}
