//! Whose turn it is on a CPU that several threads want: the ones that keep a schedule come first, those that count and tell give
//! way. All of it without privileges, and within one process's fair share: nobody else's time is taken.
#![allow(unsafe_code)]

/// The shortest turn that the kernel lets a thread ask for, ns. Who asks for short turns is let in sooner when it wakes (EEVDF,
/// Linux 6.12 and later), and gets no more time than others in the long run.
const SHORT_TURN_NS: u64 = 100_000;
/// A tenth of a usual thread's weight: enough to come through beside one that never rests.
const LOW_PRIORITY: libc::c_int = 10;

/// Let this thread run when it is due: its sleeps end in time (the kernel otherwise adds 50 µs of slack to save power), and what
/// else runs on its CPU is interrupted for it where the kernel knows how.
pub fn be_punctual() {
    // SAFETY: PR_SET_TIMERSLACK takes a plain number and affects this thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
    let attributes = libc::sched_attr {
        size: std::mem::size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        // SAFETY: asks for this thread's own priority.
        sched_nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) },
        sched_priority: 0,
        sched_runtime: SHORT_TURN_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: `attributes` is valid and of the size that it tells; 0 is this thread. Older kernels pass over the turn's length,
    // and where a policy forbids the call the thread runs as it did.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) };
}

/// Let this thread's work wait while threads that keep a schedule have some. What it starts from now on inherits that.
pub fn give_way() {
    // SAFETY: both take plain numbers; 0 is this thread, and lowering one's own priority is always allowed.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, own.max(LOW_PRIORITY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> libc::sched_attr {
        // SAFETY: an all-zero value is valid, and the kernel is told its size.
        unsafe {
            let mut found: libc::sched_attr = std::mem::zeroed();
            let size = std::mem::size_of_val(&found) as u32;
            assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &mut found, size, 0), 0);
            found
        }
    }

    #[test]
    fn a_punctual_thread_keeps_its_policy_and_has_short_turns_where_there_are_any() {
        std::thread::spawn(|| {
            let before = own();
            be_punctual();
            let after = own();
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
            // Before 6.12 no thread of this kind has turns of its own length.
            assert_eq!(after.sched_runtime, if before.sched_runtime == 0 { 0 } else { SHORT_TURN_NS });
        })
        .join()
        .unwrap();
    }

    #[test]
    fn who_gives_way_does_so_alone() {
        let before = own().sched_nice;
        let lowered = std::thread::spawn(|| {
            give_way();
            own().sched_nice
        });
        assert_eq!(lowered.join().unwrap(), LOW_PRIORITY.max(before));
        assert_eq!(own().sched_nice, before);
    }
}
