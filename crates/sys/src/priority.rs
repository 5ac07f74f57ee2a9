//! Thread priorities: threads that keep a schedule run before threads that count and report. Works without privileges
//! and only among the agent's own threads; other processes lose no time.
#![allow(unsafe_code)]

/// A tenth of the default weight: enough to make progress beside a thread that never sleeps.
const LOW_PRIORITY: libc::c_int = 10;

/// Makes this thread's sleeps end when they are due: by default the kernel adds 50 µs of slack to save power.
pub fn minimize_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes a plain number and affects this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

/// Lowers this thread's priority below threads that keep a schedule. Threads that it starts from now on inherit that.
pub fn lower_priority() {
    // SAFETY: both take plain numbers; 0 is this thread, and lowering one's own priority is always allowed.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, own.max(LOW_PRIORITY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> libc::c_int {
        // SAFETY: reads this thread's own priority.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn lowered_priority_affects_only_its_thread() {
        let before = own();
        let lowered = std::thread::spawn(|| {
            lower_priority();
            own()
        });
        assert_eq!(lowered.join().unwrap(), LOW_PRIORITY.max(before));
        assert_eq!(own(), before);
    }
}
