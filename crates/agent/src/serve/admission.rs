//! What a client may ask of a session listener: limits of time, flows and memory, and why a request is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use leadline_pace::Pace;
use leadline_transport::{Open, Refusal, Work, HEADER_BYTES};
use leadline_wire::{Direction, Protocol};

use crate::flows::datagram;
use crate::flows::stream::PacedBlocks;

/// What one client may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest test, ms.
    pub longest_ms: u64,
    /// The most flows.
    pub most_flows: u32,
}

const LARGEST_BLOCK_BYTES: u32 = 16 << 20;
const LARGEST_DATAGRAM_BYTES: u32 = 65_507;
/// What the buffers of all sessions together may take, bytes.
const MOST_MEMORY_BYTES: u64 = 1 << 30;
/// What a flow takes besides its thread's buffers, bytes: above all the window of a datagram receiver.
const FLOW_BYTES: u64 = 40 << 10;

/// Memory that sessions hold; given back when the session drops its share.
#[derive(Debug, Default)]
pub struct Budget {
    taken_bytes: AtomicU64,
}

/// A session's share of the budget.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Grant what is asked for, or say why not.
pub fn admit(open: &Open, limits: Limits, budget: &Arc<Budget>) -> Result<Share, Refusal> {
    check(open, limits)?;
    let bytes = memory_bytes(open);
    let share = Share { budget: Arc::clone(budget), bytes };
    if budget.taken_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > MOST_MEMORY_BYTES {
        let message = format!("{bytes} bytes of buffers are more than this server has left for sessions");
        return Err(refusal("too_much_memory", message));
    }
    Ok(share)
}

/// Threads that serve a session: the client asks, but more than there are CPUs would only disturb each other.
pub fn threads(open: &Open) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    open.threads.clamp(1, u32::try_from(cpus).unwrap_or(u32::MAX))
}

fn memory_bytes(open: &Open) -> u64 {
    let ways = if open.direction == Direction::Both { 2 } else { 1 };
    let per_thread = match open.work {
        Work::Tcp { block_bytes, .. } => u64::from(block_bytes),
        Work::Udp { datagram_bytes, .. } => 2 * datagram::BATCH as u64 * (u64::from(datagram_bytes) + 1),
        Work::Rr { request_bytes, response_bytes, .. } => u64::from(request_bytes) + u64::from(response_bytes),
    };
    let groups = u64::from(threads(open).min(open.flows));
    ways * (groups * per_thread + u64::from(open.flows) * FLOW_BYTES)
}

fn refusal(code: &str, message: impl Into<String>) -> Refusal {
    Refusal { code: code.to_owned(), message: message.into() }
}

fn check(open: &Open, limits: Limits) -> Result<(), Refusal> {
    if open.flows == 0 || open.duration_ms == 0 || open.interval_ms < 10 {
        return Err(refusal("bad_request", "flows and duration must be at least 1, the interval at least 10 ms"));
    }
    if open.flows > limits.most_flows {
        let message = format!("{} flows; this server allows {}", open.flows, limits.most_flows);
        return Err(refusal("too_many_flows", message));
    }
    if open.duration_ms > limits.longest_ms {
        let message = format!("{} ms; this server allows tests of {} ms", open.duration_ms, limits.longest_ms);
        return Err(refusal("too_long", message));
    }
    let paced = match open.work {
        Work::Tcp { block_bytes, rate_bps } => {
            rate_bps.is_none_or(|rate| PacedBlocks::new(rate, block_bytes).is_some())
        }
        Work::Udp { rate_pps, .. } => rate_pps.is_none_or(|rate| Pace::per_second(rate).is_some()),
        Work::Rr { .. } => true,
    };
    if !paced {
        return Err(refusal("bad_rate", "that rate is none"));
    }
    let header = HEADER_BYTES as u32;
    let (sizes, allowed) = match open.work {
        Work::Tcp { block_bytes, .. } => ([block_bytes; 2], 1..=LARGEST_BLOCK_BYTES),
        Work::Udp { datagram_bytes, .. } => ([datagram_bytes; 2], header..=LARGEST_DATAGRAM_BYTES),
        Work::Rr { protocol: Protocol::Tcp, request_bytes, response_bytes } => {
            ([request_bytes, response_bytes], 1..=LARGEST_BLOCK_BYTES)
        }
        Work::Rr { protocol: Protocol::Udp, request_bytes, response_bytes } => {
            ([request_bytes, response_bytes], header..=LARGEST_DATAGRAM_BYTES)
        }
    };
    if sizes.iter().any(|size| !allowed.contains(size)) {
        let message = format!("sizes must lie between {} and {} bytes", allowed.start(), allowed.end());
        return Err(refusal("bad_size", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { longest_ms: 10_000, most_flows: 8 };
    const TCP: Work = Work::Tcp { block_bytes: 1 << 17, rate_bps: None };

    fn open(work: Work) -> Open {
        Open {
            work,
            flows: 1,
            threads: 1,
            direction: Direction::Up,
            duration_ms: 1000,
            congestion: None,
            interval_ms: 100,
            takes_turns: false,
        }
    }

    fn code(open: &Open) -> String {
        check(open, LIMITS).map_or_else(|refusal| refusal.code, |()| "granted".to_owned())
    }

    #[test]
    fn what_a_client_may_ask_for_is_bounded() {
        assert_eq!(code(&open(TCP)), "granted");
        assert_eq!(code(&Open { flows: 9, ..open(TCP) }), "too_many_flows");
        assert_eq!(code(&Open { duration_ms: 10_001, ..open(TCP) }), "too_long");
        assert_eq!(code(&Open { flows: 0, ..open(TCP) }), "bad_request");
        for rate in [0, u64::MAX] {
            assert_eq!(code(&open(Work::Tcp { block_bytes: 1, rate_bps: Some(rate) })), "bad_rate", "{rate}");
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let work = Work::Udp { datagram_bytes: 100, rate_pps: Some(rate), number: None };
            assert_eq!(code(&open(work)), "bad_rate", "{rate}");
        }
        let rr = |protocol, request_bytes, response_bytes| open(Work::Rr { protocol, request_bytes, response_bytes });
        let udp = |datagram_bytes| open(Work::Udp { datagram_bytes, rate_pps: None, number: None });
        for request in [
            rr(Protocol::Tcp, 1, u32::MAX),
            rr(Protocol::Tcp, 0, 1),
            rr(Protocol::Udp, 39, 40),
            rr(Protocol::Udp, 40, 65_508),
            udp(39),
            udp(16 << 20),
        ] {
            assert_eq!(code(&request), "bad_size", "{request:?}");
        }
    }

    #[test]
    fn memory_is_lent_and_given_back() {
        let budget = Arc::new(Budget::default());
        let greedy = open(Work::Rr {
            protocol: Protocol::Tcp,
            request_bytes: LARGEST_BLOCK_BYTES,
            response_bytes: LARGEST_BLOCK_BYTES,
        });
        let mut shares = Vec::new();
        let refused = loop {
            match admit(&greedy, LIMITS, &budget) {
                Ok(share) => shares.push(share),
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(refused.code, "too_much_memory");
        assert_eq!(shares.len() as u64, MOST_MEMORY_BYTES / memory_bytes(&greedy));
        drop(shares);
        assert_eq!(budget.taken_bytes.load(Ordering::Relaxed), 0);
    }
}
