//! Timers that may be set: a monotonic instant in ns, or `None`.

/// Whether a timer that may be set has run out.
#[inline]
pub fn is_due(timer_ns: Option<u64>, now_ns: u64) -> bool {
    timer_ns.is_some_and(|timer_ns| now_ns >= timer_ns)
}

/// The earlier of two timers that may be set.
#[inline]
pub fn earlier(one_ns: Option<u64>, other_ns: Option<u64>) -> Option<u64> {
    match (one_ns, other_ns) {
        (Some(one_ns), Some(other_ns)) => Some(one_ns.min(other_ns)),
        (one_ns, other_ns) => one_ns.or(other_ns),
    }
}
