//! The rate at which this host may send to one peer. Sessions reserve a part of it when they are admitted; the rest is
//! for HTTP, whose connections book their turns, and for request-response, whose answers are counted. Pure arithmetic on
//! atomics: the callers bring the time.

use std::sync::atomic::{AtomicU64, Ordering};

const NS_PER_S: u64 = 1_000_000_000;
/// A connection books this much time of the rate at once, within these bounds, ns and bytes: short turns let the peer's
/// other connections send, and long ones save wake-ups.
const TURN_NS: u64 = 10_000_000;
const MIN_TURN_BYTES: u64 = 1460;
const MAX_TURN_BYTES: u64 = 256 << 10;
/// HTTP that was silent may send this much of the rate at once, ns.
const BURST_NS: u64 = 50_000_000;
/// Answers may be ahead of the rate by this much, ns: when they are asked for is not known beforehand.
const MAX_AHEAD_NS: u64 = NS_PER_S;
/// When to try again while sessions have reserved everything, ns.
const RETRY_NS: u64 = 100_000_000;

/// When a connection may send, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The bytes; 0 if nothing could be booked.
    pub bytes: usize,
    /// From when on they may be sent, or when to ask again, ns.
    pub at_ns: u64,
}

/// What this host may still send to a peer.
#[derive(Debug)]
pub struct PeerRate {
    limit_bps: u64,
    reserved_bps: AtomicU64,
    /// Until when the rate is booked by HTTP, ns.
    booked_ns: AtomicU64,
    /// Until when the rate is used up by answers, ns.
    answered_ns: AtomicU64,
}

impl PeerRate {
    /// Returns a rate of which nothing is used.
    pub fn new(limit_bps: u64) -> Self {
        let (reserved_bps, booked_ns, answered_ns) = Default::default();
        Self { limit_bps, reserved_bps, booked_ns, answered_ns }
    }

    /// Sets how much sessions have reserved.
    pub fn reserve(&self, reserved_bps: u64) {
        self.reserved_bps.store(reserved_bps, Ordering::Relaxed);
    }

    /// Returns the rate that sessions have not reserved, bit/s.
    pub fn left_bps(&self) -> u64 {
        self.limit_bps.saturating_sub(self.reserved_bps.load(Ordering::Relaxed))
    }

    /// Books the next turn of an HTTP connection that has this many bytes to send. Turns come in the order of booking.
    pub fn book(&self, now_ns: u64, wanted: usize) -> Turn {
        let left_bps = self.left_bps();
        if left_bps == 0 {
            return Turn { bytes: 0, at_ns: now_ns.saturating_add(RETRY_NS) };
        }
        let turn = u128::from(left_bps) * u128::from(TURN_NS) / 8 / u128::from(NS_PER_S);
        let turn = turn.clamp(MIN_TURN_BYTES.into(), MAX_TURN_BYTES.into()) as usize;
        let bytes = wanted.min(turn);
        let length_ns = duration_ns(bytes as u64, left_bps);
        let oldest_ns = now_ns.saturating_sub(BURST_NS);
        let booked = self.booked_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |booked_ns| {
            Some(booked_ns.max(oldest_ns).saturating_add(length_ns))
        });
        // The closure always returns a value.
        let (Ok(before_ns) | Err(before_ns)) = booked;
        Turn { bytes, at_ns: before_ns.max(oldest_ns) }
    }

    /// Counts answers that were sent; returns false if they are more than a second ahead of the rate. What they use,
    /// HTTP waits for.
    pub fn count_answers(&self, now_ns: u64, bytes: u64) -> bool {
        if bytes == 0 {
            return true;
        }
        let length_ns = duration_ns(bytes, self.left_bps().max(1));
        let add = |account: &AtomicU64, oldest_ns: u64, length_ns: u64| {
            let add = |until_ns: u64| Some(until_ns.max(oldest_ns).saturating_add(length_ns));
            let (Ok(before_ns) | Err(before_ns)) = account.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
            before_ns.max(oldest_ns).saturating_add(length_ns)
        };
        add(&self.booked_ns, now_ns.saturating_sub(BURST_NS), length_ns.min(MAX_AHEAD_NS));
        add(&self.answered_ns, now_ns, length_ns) <= now_ns.saturating_add(MAX_AHEAD_NS)
    }

    /// Whether nothing is owed: a peer that is forgotten now and comes again gains nothing.
    pub fn is_settled(&self, now_ns: u64) -> bool {
        let booked_ns = self.booked_ns.load(Ordering::Relaxed);
        booked_ns <= now_ns.saturating_sub(BURST_NS) && self.answered_ns.load(Ordering::Relaxed) <= now_ns
    }
}

fn duration_ns(bytes: u64, rate_bps: u64) -> u64 {
    let ns = u128::from(bytes) * 8 * u128::from(NS_PER_S) / u128::from(rate_bps);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5 * NS_PER_S;

    /// Sends as much as the turns allow from `NOW` until this long after it, over several connections; returns the bytes.
    fn bytes_within(rate: &PeerRate, ns: u64, connections: usize) -> Vec<u64> {
        let mut waiting: Vec<(Turn, usize)> = (0..connections).map(|one| (rate.book(NOW, 1 << 20), one)).collect();
        let mut sent = vec![0; connections];
        loop {
            waiting.sort_by_key(|(turn, one)| (turn.at_ns, *one));
            let (turn, one) = waiting.remove(0);
            if turn.at_ns >= NOW + ns {
                return sent;
            }
            sent[one] += turn.bytes as u64;
            waiting.push((rate.book(turn.at_ns.max(NOW), 1 << 20), one));
        }
    }

    #[test]
    fn connections_of_a_peer_share_its_rate_evenly() {
        for connections in [1, 2, 10] {
            let rate = PeerRate::new(10_000_000);
            let sent = bytes_within(&rate, 10 * NS_PER_S, connections);
            let all: u64 = sent.iter().sum();
            // 10 s of 1.25 MB, what silence had saved, and a turn of each connection that has just begun.
            let most = 12_500_000 + 62_500 + 12_500 * connections as u64;
            assert!((12_500_000..=most).contains(&all), "{all} bytes over {connections}");
            let (least, largest) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            assert!(largest - least <= 12_500 * 2, "{sent:?}");
        }
    }

    #[test]
    fn what_sessions_reserve_is_not_sent_twice() {
        let rate = PeerRate::new(10_000_000);
        rate.reserve(7_500_000);
        let all: u64 = bytes_within(&rate, 8 * NS_PER_S, 2).iter().sum();
        assert!((2_500_000..2_530_000).contains(&all), "{all}");
        rate.reserve(10_000_000);
        assert_eq!(rate.book(NOW, 1000), Turn { bytes: 0, at_ns: NOW + RETRY_NS });
        assert!(!rate.count_answers(NOW, 1), "and none is left for answers");
    }

    #[test]
    fn slowest_and_fastest_rates_have_turns() {
        let slow = PeerRate::new(1);
        assert_eq!(slow.book(NOW, 1 << 20), Turn { bytes: 1460, at_ns: NOW - BURST_NS });
        assert_eq!(slow.book(NOW, 1 << 20).at_ns, NOW - BURST_NS + 1460 * 8 * NS_PER_S);
        let fast = PeerRate::new(u64::MAX);
        assert_eq!(fast.book(NOW, usize::MAX).bytes, 256 << 10);
        assert!(fast.count_answers(NOW, u64::MAX / 1000));
        assert_eq!(PeerRate::new(1000).book(u64::MAX, 1).bytes, 1);
    }

    #[test]
    fn answers_may_be_a_second_ahead_of_the_rate_and_no_more() {
        let rate = PeerRate::new(8_000_000);
        assert!(rate.count_answers(NOW, 1_000_000));
        assert!(!rate.count_answers(NOW, 1));
        assert!(rate.count_answers(NOW + NS_PER_S, 999_000));
        // A long silence saves nothing up.
        assert!(rate.count_answers(NOW + 100 * NS_PER_S, 1_000_000));
        assert!(!rate.count_answers(NOW + 100 * NS_PER_S, 1_000_000));
    }

    #[test]
    fn http_waits_for_what_answers_have_used() {
        let rate = PeerRate::new(8_000_000);
        assert!(rate.count_answers(NOW, 500_000));
        assert_eq!(rate.book(NOW, 1).at_ns, NOW - BURST_NS + NS_PER_S / 2);
        assert!(!rate.is_settled(NOW + NS_PER_S / 4) && rate.is_settled(NOW + NS_PER_S));
    }
}
