//! Child processes that cannot outlive the agent, and signals as events.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Starts a child in its own process group. The kernel kills it when the *thread* that started it ends: start it from
/// a thread that lives as long as the agent does.
pub fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    bind_to_this_thread(command);
    command.process_group(0).spawn()
}

/// Does the same for a child in its own session, which the kernel may schedule as a group with a weight of its own.
pub fn spawn_bound_session(command: &mut Command) -> io::Result<Child> {
    bind_to_this_thread(command);
    // SAFETY: setsid is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
    }
    command.spawn()
}

/// Starts a child in its own session that outlives this process. `kill_descendants` leaves it running; there is one of
/// them at most.
pub fn spawn_survivor(command: &mut Command) -> io::Result<Child> {
    // SAFETY: setsid is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
    }
    let child = command.spawn()?;
    SURVIVOR.store(child.id(), Ordering::Relaxed);
    Ok(child)
}

/// The process id of the child that `spawn_survivor` started; 0 for none.
static SURVIVOR: AtomicU32 = AtomicU32::new(0);

fn bind_to_this_thread(command: &mut Command) {
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
            if let Some(limit) = FILE_LIMIT.get() {
                libc::setrlimit(libc::RLIMIT_NOFILE, limit);
            }
            Ok(())
        });
    }
}

/// The limit that this process inherited; a child gets the same.
static FILE_LIMIT: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises the limit of open files to the maximum, because every flow is one. Children keep the inherited limit.
pub fn raise_file_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills a live rlimit, and reads one.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    FILE_LIMIT.get_or_init(|| limit);
    Ok(())
}

/// Returns the limit of open files, if the system reports it.
pub fn file_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills a live rlimit.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (result == 0).then_some(limit.rlim_cur)
}

/// Returns how many files this process has open; 0 if the system does not say.
pub fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

/// Makes this process the parent of every orphaned descendant, so that none escapes. The kernel assigns them to the
/// main thread, which therefore must start no children itself.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: plain prctl.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Reaps adopted children that have ended; the thread that started a child waits for it itself.
pub fn reap_orphans() {
    children_of(std::process::id()).into_iter().for_each(reap);
}

/// Kills every descendant but the survivor, including those in other sessions: the children of a killed child become
/// ours. Returns
/// whether all have ended within `patience`. A thread that waits for a child meanwhile may find it reaped.
pub fn kill_descendants(patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let children: Vec<libc::pid_t> = threads.flat_map(children_of).collect();
        if children.is_empty() {
            return true;
        }
        for pid in children {
            // SAFETY: plain kill; the process is our own child until it is reaped below.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            reap(pid);
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the children of one of our threads, without the survivor; none if the kernel does not report them
/// (CONFIG_PROC_CHILDREN).
fn children_of(thread: u32) -> Vec<libc::pid_t> {
    let list = std::fs::read_to_string(format!("/proc/self/task/{thread}/children")).unwrap_or_default();
    let survivor = SURVIVOR.load(Ordering::Relaxed) as libc::pid_t;
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != survivor).collect()
}

fn reap(pid: libc::pid_t) {
    // SAFETY: a null status is allowed; WNOHANG returns at once if it lives, or if another thread was faster.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
}

/// Makes the kernel end this process when its parent ends.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: plain prctl.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes `die_with_parent` back.
pub fn outlive_parent() {
    // SAFETY: plain prctl, which cannot fail with these arguments.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0 as libc::c_ulong, 0, 0, 0) };
}

/// Waits until a child has ended and leaves it to be reaped (waitid with WNOWAIT); returns at once for another
/// process's child.
pub fn await_exit(pid: u32) {
    // SAFETY: an all-zero siginfo is valid for the kernel to fill; the child is not reaped, so its `Child` stays whole.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT) != 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
        {}
    }
}

/// What a process that has ended used, with the children that it waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedUsage {
    /// CPU time in user mode, s.
    pub user_s: f64,
    /// CPU time in the kernel, s.
    pub system_s: f64,
    /// The largest resident memory of one of these processes, bytes.
    pub max_resident_bytes: u64,
}

/// Returns what a child used that has ended, and leaves it to be reaped; `None` if it has not ended.
pub fn usage_of_ended(pid: u32) -> Option<EndedUsage> {
    let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
    // SAFETY: all-zero values are valid for the kernel to fill. Its waitid has a fifth parameter, which libc's lacks.
    let (result, info, usage) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let mut usage: libc::rusage = std::mem::zeroed();
        let result = libc::syscall(libc::SYS_waitid, libc::P_PID, pid, &mut info, options, &mut usage);
        (result, info, usage)
    };
    // SAFETY: waitid fills the fields of a child's end; its pid stays 0 if no child has ended.
    if result != 0 || unsafe { info.si_pid() } == 0 {
        return None;
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Some(EndedUsage {
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        max_resident_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    })
}

/// A signal for a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ask to end (SIGTERM).
    Terminate,
    /// End now (SIGKILL).
    Kill,
}

/// Sends a signal to a child's whole process group; a group that no longer exists is not an error.
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

/// Makes SIGINT and SIGTERM only set the flag that `termination_asked` reads, and interrupt blocking calls.
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

/// Ignores SIGINT: a terminal sends it to the whole foreground group, and the controlling process handles it.
pub fn ignore_interrupts() {
    // SAFETY: SIG_IGN is always a valid action.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}

/// Returns true if SIGINT or SIGTERM arrived.
pub fn termination_asked() -> bool {
    TERMINATION.load(Ordering::Relaxed)
}

extern "C" fn note_termination(_: libc::c_int) {
    TERMINATION.store(true, Ordering::Relaxed);
}

/// Ignores what asks a process to end: SIGHUP, SIGINT and SIGTERM.
pub fn ignore_termination() {
    for number in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: SIG_IGN is always a valid action.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// Resets ignored and caught signals, which a child must not inherit (async-signal-safe).
fn reset_signals() {
    for number in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: SIG_DFL is always a valid action; called between fork and exec in a single thread.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Writes our own process id into a cgroup's list, so that we and every child are accounted there.
pub fn join_cgroup(directory: &std::path::Path) -> io::Result<()> {
    std::fs::write(directory.join("cgroup.procs"), std::process::id().to_string())
}

/// Returns eight unpredictable bytes: a token that a third party cannot guess.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most eight bytes into `bytes`; requests this short are never cut.
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
    fn child_keeps_the_original_file_limit() {
        let soft = |command: &mut Command| command.args(["-c", "ulimit -n"]).stdout(Stdio::piped()).spawn();
        let before = soft(&mut Command::new("sh")).unwrap().wait_with_output().unwrap().stdout;
        raise_file_limit().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n"]).stdout(Stdio::piped());
        assert_eq!(spawn_bound(&mut command).unwrap().wait_with_output().unwrap().stdout, before);
    }

    #[test]
    fn usage_of_an_ended_child_is_read_before_it_is_reaped() {
        let mut child =
            spawn_bound(Command::new("sh").args(["-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"])).unwrap();
        await_exit(child.id());
        let usage = usage_of_ended(child.id()).unwrap();
        assert!(usage.user_s + usage.system_s > 0.0 && usage.max_resident_bytes > 100_000, "{usage:?}");
        assert!(child.wait().unwrap().success());
        assert_eq!(usage_of_ended(child.id()), None);
        let mut running = spawn_bound(Command::new("sleep").arg("1000")).unwrap();
        assert_eq!(usage_of_ended(running.id()), None);
        signal_group(running.id(), Signal::Kill).unwrap();
        running.wait().unwrap();
    }

    #[test]
    fn kill_ends_the_whole_process_group() {
        let mut child =
            spawn_bound(Command::new("sh").args(["-c", "sleep 1000 & wait"]).stdout(Stdio::null())).unwrap();
        signal_group(child.id(), Signal::Kill).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        signal_group(child.id(), Signal::Terminate).unwrap();
    }
}
