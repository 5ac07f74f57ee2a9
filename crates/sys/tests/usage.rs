//! A thread's account in a process that can open nothing more: alone in its binary, as the limit is the whole process's.
#![allow(unsafe_code)]

use leadline_sys::usage::{ThreadAccount, ThreadUsage};

#[test]
fn thread_usage_is_read_without_opening_files() {
    let account = ThreadAccount::of_this_thread();
    let before = account.now();
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads a live rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
    assert!(std::fs::File::open("/proc/self/stat").is_err(), "no descriptor is left");
    while account.now().since(&before).user_s < 0.01 {}
    let after = account.now();
    assert_eq!(after.runnable_wait_s.is_some(), before.runnable_wait_s.is_some());
    assert!(after.runnable_wait_s >= before.runnable_wait_s);
    // A reading that opens its file has no such figure here.
    assert_eq!(ThreadUsage::now().runnable_wait_s, None);
}
