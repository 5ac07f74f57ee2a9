//! How many descriptors the parts of a server may use, so that all of them together fit the process's limit: HTTP
//! connections, sessions, and connections without an introduction. Pure arithmetic.

use super::http;

/// Descriptors that no peer causes: threads' polls, rings and wake sockets, and files that are read now and then; and a
/// part of the limit for other tasks of the agent, and for what is closed a moment later than it was given back.
const OWN_DESCRIPTORS: u64 = 128;
const SPARE_PART: u64 = 16;
/// The maximum number of connections without an introduction of one listener, in total and per peer.
const MAX_PENDING: u64 = 2048;
const MAX_PENDING_OF_PEER: u64 = 512;
/// However few descriptors there are, each part may use this many.
const MIN_PART: u64 = 8;

/// What a server opens.
#[derive(Clone, Copy, Debug)]
pub struct Doors {
    /// Listeners for sessions.
    pub session_listeners: u64,
    /// Whether there is HTTP.
    pub has_http: bool,
}

/// The descriptors of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// Of HTTP connections and sessions together.
    pub all: u64,
    /// Of HTTP connections, and of those of one peer.
    pub http: u64,
    pub http_of_peer: u64,
    /// Of sessions, and of those of one peer.
    pub sessions: u64,
    pub sessions_of_peer: u64,
    /// Connections without an introduction, of each listener, and of those of one peer.
    pub pending: u64,
    pub pending_of_peer: u64,
}

/// Divides a limit of which some are used already. If there are both HTTP and sessions, each may use three quarters, so
/// that a quarter remains for the other; and one peer of either three quarters of that, so that others have a share.
pub fn divide(limit: u64, used: u64, doors: Doors) -> DescriptorBudget {
    let free = limit.saturating_sub(used + OWN_DESCRIPTORS + limit / SPARE_PART);
    let listeners = doors.session_listeners;
    let pending = free.checked_div(4 * listeners).map_or(0, |pending| pending.clamp(MIN_PART, MAX_PENDING));
    let all = free.saturating_sub(pending * listeners).max(MIN_PART);
    let part = if doors.has_http && listeners > 0 { three_quarters(all) } else { all };
    let http = if doors.has_http { part.min(http::MAX_CONNECTIONS as u64) } else { 0 };
    let sessions = if listeners > 0 { part } else { 0 };
    DescriptorBudget {
        all,
        http,
        http_of_peer: three_quarters(http),
        sessions,
        sessions_of_peer: three_quarters(sessions),
        pending,
        pending_of_peer: (pending / 2).clamp(1, MAX_PENDING_OF_PEER),
    }
}

fn three_quarters(number: u64) -> u64 {
    number - number / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Doors = Doors { session_listeners: 2, has_http: true };

    #[test]
    fn all_parts_fit_the_limit_and_leave_a_share_to_others() {
        for doors in [BOTH, Doors { has_http: false, ..BOTH }, Doors { session_listeners: 0, ..BOTH }] {
            for limit in [256, 1024, 4096, 20_000, 524_288, 1 << 30] {
                let budget = divide(limit, 30, doors);
                let pending = budget.pending * doors.session_listeners;
                assert!(budget.all + pending + 30 <= limit, "{limit}: {budget:?}");
                assert!(budget.http <= budget.all && budget.sessions <= budget.all);
                if doors.has_http && doors.session_listeners > 0 {
                    assert!(budget.http + budget.all / 4 <= budget.all, "sessions have a quarter: {budget:?}");
                    assert!(budget.sessions + budget.all / 4 <= budget.all, "HTTP has a quarter: {budget:?}");
                }
                if doors.has_http {
                    assert!(budget.http - budget.http_of_peer >= budget.http / 4, "{budget:?}");
                }
            }
        }
    }

    #[test]
    fn usual_limits_leave_what_tests_need() {
        let budget = divide(20_000, 30, BOTH);
        assert!(budget.http_of_peer > 8_000 && budget.sessions_of_peer > 8_000, "{budget:?}");
        assert_eq!((budget.pending, budget.pending_of_peer), (2048, 512));
        assert_eq!(divide(1 << 20, 30, BOTH).http, 65_536);
        let narrow = divide(1024, 30, BOTH);
        assert!(narrow.http_of_peer > 300 && narrow.sessions_of_peer > 300, "{narrow:?}");
    }

    #[test]
    fn impossible_limit_leaves_each_part_a_few() {
        let budget = divide(10, 30, BOTH);
        assert_eq!((budget.all, budget.http, budget.sessions, budget.pending), (8, 6, 6, 8));
    }
}
