//! Thread priorities: threads that keep a schedule run before threads that count and report. Works without privileges
//! and only among the agent's own threads; other processes lose no time.
#![allow(unsafe_code)]

use std::io;

/// A tenth of the default weight: enough to make progress beside a thread that never sleeps.
const LOW_PRIORITY: libc::c_int = 10;
const LOWEST_PRIORITY: libc::c_int = 19;

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

/// Lets this thread run only while no other thread wants its CPU.
///
/// # Errors
/// The system's.
pub fn run_only_when_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is valid; 0 is this thread, and SCHED_IDLE needs no privilege. Its time counts as niced.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST_PRIORITY);
        if libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives the session of this process the least weight where the kernel groups processes by session; changes nothing
/// where it does not. Every process and thread of the session is affected.
pub fn lower_session_weight() {
    set_session_weight("self", LOWEST_PRIORITY);
}

/// Gives the session of another process its default weight back, so that a killed process soon gets the CPU to end.
pub fn restore_session_weight(pid: u32) {
    set_session_weight(&pid.to_string(), 0);
}

fn set_session_weight(process: &str, nice: libc::c_int) {
    // Refused by kernels that do not group by session.
    let _ = std::fs::write(format!("/proc/{process}/autogroup"), nice.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> libc::c_int {
        // SAFETY: reads this thread's own priority.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn idle_thread_yields_to_a_busy_one_on_its_cpu() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::sync::Barrier;

        use crate::usage::{allowed_cpus, pin_to, thread_cpu_s};
        /// The busy thread's CPU time decides how long both run, however much of it the machine gives them.
        const BUSY_S: f64 = 0.3;
        let (cpu, both, is_over) = (allowed_cpus()[0], Barrier::new(2), AtomicBool::new(false));
        let idle_s = std::thread::scope(|scope| {
            let idle = scope.spawn(|| {
                pin_to(cpu).unwrap();
                run_only_when_idle().unwrap();
                both.wait();
                let before_s = thread_cpu_s();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                thread_cpu_s() - before_s
            });
            scope.spawn(|| {
                pin_to(cpu).unwrap();
                both.wait();
                let until_s = thread_cpu_s() + BUSY_S;
                while thread_cpu_s() < until_s {}
                is_over.store(true, Ordering::Relaxed);
            });
            idle.join().unwrap()
        });
        assert!(idle_s < 0.2 * BUSY_S, "idle {idle_s} s, busy {BUSY_S} s");
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
