//! Children that cannot outlive us, and signals as events.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

/// Start a child in a process group of its own that the kernel kills when the *thread* that started it ends: start it
/// from a thread that lives as long as the agent does.
pub fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls and touches no heap.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the line above took effect.
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            reset_signals();
            Ok(())
        });
    }
    command.process_group(0).spawn()
}

/// Die with our own parent, whatever it is that we are doing then.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain prctl.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Wait until a child has ended and leave it to be reaped (waitid with WNOWAIT); returns at once for a stranger.
pub fn await_exit(pid: u32) {
    // SAFETY: an all-zero siginfo is valid for the kernel to fill; the child is not reaped, so its `Child` stays whole.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT) != 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
        {}
    }
}

/// A signal for a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Please end.
    Terminate,
    /// End now.
    Kill,
}

/// Send a signal to a child's whole group; a group that has gone already is no error.
pub fn signal_group(leader: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    let Ok(group) = libc::pid_t::try_from(leader) else { return Err(io::Error::from_raw_os_error(libc::ESRCH)) };
    // SAFETY: plain kill; the group is our own child's.
    if unsafe { libc::killpg(group, number) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ESRCH) {
            return Err(error);
        }
    }
    Ok(())
}

static TERMINATION: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT and SIGTERM only raise the flag that `termination_asked` reads, and interrupt blocking calls.
pub fn catch_termination() -> io::Result<()> {
    for number in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic; sa_flags without SA_RESTART makes blocking calls return EINTR.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note_termination as extern "C" fn(libc::c_int) as libc::sighandler_t;
            libc::sigaction(number, &action, std::ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Leave SIGINT to whoever commands us: a terminal sends it to the whole foreground group.
pub fn ignore_interrupts() {
    // SAFETY: SIG_IGN is always a valid action.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}

/// Whether SIGINT or SIGTERM came.
pub fn termination_asked() -> bool {
    TERMINATION.load(Ordering::Relaxed)
}

extern "C" fn note_termination(_: libc::c_int) {
    TERMINATION.store(true, Ordering::Relaxed);
}

/// What we ignore or catch is not for a child to inherit (async-signal-safe).
fn reset_signals() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: SIG_DFL is always a valid action; called between fork and exec in a single thread.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Write our own process id into a cgroup's list, so that we and every child are accounted there.
pub fn join_cgroup(directory: &std::path::Path) -> io::Result<()> {
    std::fs::write(directory.join("cgroup.procs"), std::process::id().to_string())
}

/// Eight unpredictable bytes: a token that a stranger cannot guess.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most eight bytes into `bytes`; so few are never cut short.
    if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    #[test]
    fn a_group_is_ended_whole() {
        let mut child =
            spawn_bound(Command::new("sh").args(["-c", "sleep 1000 & wait"]).stdout(Stdio::null())).unwrap();
        signal_group(child.id(), Signal::Kill).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        signal_group(child.id(), Signal::Terminate).unwrap();
    }
}
