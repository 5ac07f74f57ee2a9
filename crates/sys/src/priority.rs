//! Whose turn it is where threads want a CPU at the same time: those that keep a schedule come first, those that count and tell
//! give way. All of it without privileges, and among one's own threads: nobody else's time is taken.
#![allow(unsafe_code)]

/// A tenth of a usual thread's weight: enough to come through beside one that never rests.
const LOW_PRIORITY: libc::c_int = 10;

/// Let this thread's sleeps end when they are due: the kernel otherwise adds 50 µs of slack to save power.
pub fn minimize_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes a plain number and affects this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

/// Let this thread's work wait while threads that keep a schedule have some. What it starts from now on inherits that.
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
        // SAFETY: asks for this thread's own priority.
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
