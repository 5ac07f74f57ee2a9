//! Optional timers: a monotonic time in ns, or `None`.

/// Whether an optional timer has expired.
#[inline]
pub fn is_due(timer_ns: Option<u64>, now_ns: u64) -> bool {
    timer_ns.is_some_and(|timer_ns| now_ns >= timer_ns)
}

/// The earlier of two optional timers.
#[inline]
pub fn earlier(one_ns: Option<u64>, other_ns: Option<u64>) -> Option<u64> {
    match (one_ns, other_ns) {
        (Some(one_ns), Some(other_ns)) => Some(one_ns.min(other_ns)),
        (one_ns, other_ns) => one_ns.or(other_ns),
    }
}
