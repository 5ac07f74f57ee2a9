//! The admission of sessions: limits of time, flows, rate and memory, of all sessions and of each peer, and the
//! reason for a refusal. A peer is an IPv4 address, or an IPv6 network of 64 bits, because a host owns all addresses
//! of such a network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use leadline_pace::Pace;
use leadline_sys::net;
use leadline_transport::{DatagramSizes, Open, Refusal, Work, HEADER_BYTES, SHORT_HEADER_BYTES};
use leadline_wire::{Direction, PeerLimits, Protocol, StreamOptions, StreamPayload};

use crate::flows::datagram_io;
use crate::flows::stream::PacedBlocks;
use crate::locking::lock;

/// The limits of sessions.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest test, ms.
    pub longest_ms: u64,
    /// The maximum number of flows of one session in each direction.
    pub most_flows: u32,
    /// The limits of all sessions of one peer together.
    pub per_peer: PeerLimits,
}

const LARGEST_BLOCK_BYTES: u32 = 16 << 20;
/// The kernel's own limits of a segment's payload, bytes.
const MSS_BYTES: std::ops::RangeInclusive<u32> = 88..=32_767;
const LARGEST_DATAGRAM_BYTES: u32 = 65_507;
/// The maximum number of sessions at once: a bound on the server's threads.
const MOST_SESSIONS: u32 = 1024;
/// The maximum memory of the buffers of all sessions together, and of one peer's, bytes.
const MOST_MEMORY_BYTES: u64 = 1 << 30;
const MOST_PEER_MEMORY_BYTES: u64 = 512 << 20;
/// The memory of a flow in addition to its thread's buffers, bytes: mostly the window and the gaps of a datagram
/// receiver.
const FLOW_BYTES: u64 = 66 << 10;

/// The memory of an outstanding transaction that has a connection, bytes.
const CONNECTION_BYTES: u64 = 512;
/// The blocks of many small requests and responses, bytes.
const RR_BLOCKS_BYTES: u64 = 128 << 10;
/// The maximum number of outstanding transactions of a session.
const MOST_OUTSTANDING: u64 = 65_536;

/// Returns the peer to which an address belongs.
pub fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    }
}

/// The resources in use, by all sessions and by each peer; a peer without sessions is removed.
#[derive(Debug, Default)]
pub struct Occupancy {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: Amount,
    by_peer: HashMap<IpAddr, Amount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    sessions: u32,
    flows: u64,
    bytes: u64,
}

/// The resources of one session; returned when this is dropped.
#[derive(Debug)]
pub struct Share {
    occupancy: Arc<Occupancy>,
    peer: IpAddr,
    amount: Amount,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.occupancy.taken);
        taken.all.take(self.amount);
        if let Some(of_peer) = taken.by_peer.get_mut(&self.peer) {
            of_peer.take(self.amount);
            if of_peer.sessions == 0 {
                taken.by_peer.remove(&self.peer);
            }
        }
    }
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            flows: self.flows + other.flows,
            bytes: self.bytes + other.bytes,
        }
    }

    fn take(&mut self, other: Self) {
        self.sessions -= other.sessions;
        self.flows -= other.flows;
        self.bytes -= other.bytes;
    }
}

/// Grants a request from this address, or returns the reason for its refusal.
pub fn admit(open: &Open, limits: &Limits, client: IpAddr, occupancy: &Arc<Occupancy>) -> Result<Share, Refusal> {
    check(open, limits)?;
    let peer = peer_of(client);
    let amount = Amount { sessions: 1, flows: flows(open), bytes: memory_bytes(open) };
    let mut taken = lock(&occupancy.taken);
    let all = taken.all.plus(amount);
    let of_peer = taken.by_peer.get(&peer).copied().unwrap_or_default().plus(amount);
    let per_peer = &limits.per_peer;
    if of_peer.sessions > per_peer.sessions {
        let message = format!("{peer} has {} sessions open already, the most that a peer may have", per_peer.sessions);
        return Err(refusal("too_many_sessions", message));
    }
    if of_peer.flows > u64::from(per_peer.flows) {
        let message =
            format!("{peer} would have {} flows; this server allows a peer {}", of_peer.flows, per_peer.flows);
        return Err(refusal("too_many_flows", message));
    }
    if all.sessions > MOST_SESSIONS {
        return Err(refusal("too_many_sessions", format!("{MOST_SESSIONS} sessions run already")));
    }
    if of_peer.bytes > MOST_PEER_MEMORY_BYTES || all.bytes > MOST_MEMORY_BYTES {
        let message = format!("{} bytes of buffers are more than this server has left for sessions", amount.bytes);
        return Err(refusal("too_much_memory", message));
    }
    taken.all = all;
    taken.by_peer.insert(peer, of_peer);
    Ok(Share { occupancy: Arc::clone(occupancy), peer, amount })
}

/// Returns the number of flows in both directions.
fn flows(open: &Open) -> u64 {
    u64::from(open.flows) * ways(open)
}

fn ways(open: &Open) -> u64 {
    if open.direction == Direction::Both {
        2
    } else {
        1
    }
}

/// The payload rate that a session requests for all of its flows, bit/s; `None` if it is unlimited. Request-response
/// requests none.
fn asked_bps(open: &Open) -> Option<f64> {
    let per_flow = match open.work {
        Work::Tcp { rate_bps, .. } => rate_bps? as f64,
        Work::Udp { datagram_bytes, rate_pps, .. } => {
            rate_pps? * sizes(open, datagram_bytes).map_or(f64::INFINITY, |sizes| sizes.mean()) * 8.0
        }
        Work::Rr { .. } => 0.0,
    };
    Some(per_flow * flows(open) as f64)
}

/// Threads that serve a session: the client's number, but no more than there are CPUs, because more would only slow
/// each other down.
pub fn threads(open: &Open) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    open.threads.clamp(1, u32::try_from(cpus).unwrap_or(u32::MAX))
}

fn memory_bytes(open: &Open) -> u64 {
    let ways = ways(open);
    let per_thread = match open.work {
        Work::Tcp { block_bytes, .. } => u64::from(block_bytes),
        Work::Udp { datagram_bytes, .. } => {
            let largest = sizes(open, datagram_bytes).map_or(0, |sizes| sizes.largest());
            2 * datagram_io::buffer_bytes(largest as u32, open.datagrams.gso)
        }
        Work::Rr { request_bytes, response_bytes, .. } => {
            u64::from(request_bytes) + u64::from(response_bytes) + RR_BLOCKS_BYTES
        }
    };
    let groups = u64::from(threads(open).min(open.flows));
    let connections = match open.work {
        Work::Rr { outstanding, .. } => u64::from(open.flows) * u64::from(outstanding) * CONNECTION_BYTES,
        _ => 0,
    };
    ways * (groups * per_thread + u64::from(open.flows) * FLOW_BYTES) + connections
}

fn refusal(code: &str, message: impl Into<String>) -> Refusal {
    Refusal { code: code.to_owned(), message: message.into() }
}

fn check(open: &Open, limits: &Limits) -> Result<(), Refusal> {
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
        Work::Tcp { block_bytes, rate_bps, .. } => {
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
        Work::Udp { datagram_bytes, .. } => {
            let sizes = sizes(open, datagram_bytes).ok_or_else(|| refusal("bad_size", "that mix of sizes is none"))?;
            let bounds = [sizes.smallest() as u32, sizes.largest() as u32];
            (bounds, SHORT_HEADER_BYTES as u32..=LARGEST_DATAGRAM_BYTES)
        }
        Work::Rr { protocol: Protocol::Tcp, request_bytes, response_bytes, .. } => {
            ([request_bytes, response_bytes], 1..=LARGEST_BLOCK_BYTES)
        }
        Work::Rr { protocol: Protocol::Udp, request_bytes, response_bytes, .. } => {
            ([request_bytes, response_bytes], header..=LARGEST_DATAGRAM_BYTES)
        }
    };
    if sizes.iter().any(|size| !allowed.contains(size)) {
        let message = format!("sizes must lie between {} and {} bytes", allowed.start(), allowed.end());
        return Err(refusal("bad_size", message));
    }
    check_outstanding(open)?;
    if let Work::Tcp { options, .. } = &open.work {
        check_options(options)?;
    }
    check_rate(open, limits)?;
    check_congestion(open)
}

/// With a connection each, outstanding transactions are descriptors here.
fn check_outstanding(open: &Open) -> Result<(), Refusal> {
    let Work::Rr { outstanding, .. } = open.work else { return Ok(()) };
    let all = u64::from(outstanding) * u64::from(open.flows);
    if (1..=MOST_OUTSTANDING).contains(&all) {
        return Ok(());
    }
    let message = format!("{all} outstanding transactions; this server allows 1 to {MOST_OUTSTANDING}");
    Err(refusal("too_many_outstanding", message))
}

/// Returns the sizes of a session's datagrams, unless its mix is invalid.
fn sizes(open: &Open, datagram_bytes: u32) -> Option<DatagramSizes> {
    DatagramSizes::new(datagram_bytes, &open.datagrams.sizes)
}

fn check_options(options: &StreamOptions) -> Result<(), Refusal> {
    let repeats = !matches!(options.payload, StreamPayload::Repeated(percent) if percent > 100);
    let marks = options.dscp.is_none_or(|dscp| dscp < 64);
    let segments = options.mss_bytes.is_none_or(|bytes| MSS_BYTES.contains(&bytes));
    if repeats && marks && segments {
        return Ok(());
    }
    let message = format!(
        "a DSCP is at most 63, a share of repeated bytes at most 100 %, and an MSS from {} to {} bytes",
        MSS_BYTES.start(),
        MSS_BYTES.end()
    );
    Err(refusal("bad_options", message))
}

fn check_rate(open: &Open, limits: &Limits) -> Result<(), Refusal> {
    let Some(most_bps) = limits.per_peer.rate_bps else { return Ok(()) };
    let requested = match asked_bps(open) {
        Some(asked_bps) if asked_bps <= most_bps as f64 => return Ok(()),
        Some(asked_bps) => format!("{asked_bps:.0} bit/s"),
        None => "as fast as possible".to_owned(),
    };
    let message = format!("{requested}; this server allows a session {most_bps} bit/s: give --rate");
    Err(refusal("too_fast", message))
}

/// The kernel may load a congestion control by name for root; a client may only select one that is available.
fn check_congestion(open: &Open) -> Result<(), Refusal> {
    let Some(name) = &open.congestion else { return Ok(()) };
    let available = net::available_congestion();
    if available.contains(name) {
        return Ok(());
    }
    let message = format!("congestion control {name:?} is not available here; {} are", available.join(", "));
    Err(refusal("unknown_congestion", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { longest_ms: 10_000, most_flows: 8, per_peer: PeerLimits::default() }
    }

    const TCP: Work = Work::Tcp { block_bytes: 1 << 17, rate_bps: None, options: StreamOptions::DEFAULT };

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
            datagrams: leadline_transport::DatagramOptions::default(),
        }
    }

    fn code(open: &Open) -> String {
        check(open, &limits()).map_or_else(|refusal| refusal.code, |()| "granted".to_owned())
    }

    #[test]
    fn options_that_no_socket_has_are_refused() {
        let tcp = |options| code(&open(Work::Tcp { block_bytes: 1000, rate_bps: None, options }));
        let none = StreamOptions::DEFAULT;
        assert_eq!(tcp(StreamOptions { dscp: Some(63), mss_bytes: Some(1400), ..none }), "granted");
        assert_eq!(tcp(StreamOptions { dscp: Some(64), ..none }), "bad_options");
        assert_eq!(tcp(StreamOptions { mss_bytes: Some(20), ..none }), "bad_options");
        assert_eq!(tcp(StreamOptions { payload: StreamPayload::Repeated(101), ..none }), "bad_options");
    }

    #[test]
    fn requests_beyond_the_limits_are_refused() {
        assert_eq!(code(&open(TCP)), "granted");
        assert_eq!(code(&Open { flows: 9, ..open(TCP) }), "too_many_flows");
        assert_eq!(code(&Open { duration_ms: 10_001, ..open(TCP) }), "too_long");
        assert_eq!(code(&Open { flows: 0, ..open(TCP) }), "bad_request");
        for rate in [0, u64::MAX] {
            assert_eq!(
                code(&open(Work::Tcp { block_bytes: 1, rate_bps: Some(rate), options: StreamOptions::DEFAULT })),
                "bad_rate",
                "{rate}"
            );
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let work = Work::Udp { datagram_bytes: 100, rate_pps: Some(rate), number: None };
            assert_eq!(code(&open(work)), "bad_rate", "{rate}");
        }
        let rr = |protocol, request_bytes, response_bytes| {
            open(Work::Rr { protocol, request_bytes, response_bytes, connect: false, outstanding: 1 })
        };
        let udp = |datagram_bytes| open(Work::Udp { datagram_bytes, rate_pps: None, number: None });
        for request in [
            rr(Protocol::Tcp, 1, u32::MAX),
            rr(Protocol::Tcp, 0, 1),
            rr(Protocol::Udp, 39, 40),
            rr(Protocol::Udp, 40, 65_508),
            udp(15),
            udp(16 << 20),
        ] {
            assert_eq!(code(&request), "bad_size", "{request:?}");
        }
    }

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn admitted(open: &Open, limits: &Limits, client: IpAddr, occupancy: &Arc<Occupancy>) -> Result<Share, String> {
        admit(open, limits, client, occupancy).map_err(|refusal| refusal.code)
    }

    #[test]
    fn sessions_and_flows_of_a_peer_are_limited_and_given_back() {
        let occupancy = Arc::new(Occupancy::default());
        let per_peer = PeerLimits { sessions: 3, flows: 10, ..PeerLimits::default() };
        let limits = Limits { per_peer, ..limits() };
        let both = Open { flows: 4, direction: Direction::Both, ..open(TCP) };
        let first = admitted(&both, &limits, ONE, &occupancy).unwrap();
        assert_eq!(admitted(&both, &limits, ONE, &occupancy).unwrap_err(), "too_many_flows");
        let _second = admitted(&open(TCP), &limits, ONE, &occupancy).unwrap();
        let _third = admitted(&open(TCP), &limits, ONE, &occupancy).unwrap();
        assert_eq!(admitted(&open(TCP), &limits, ONE, &occupancy).unwrap_err(), "too_many_sessions");
        assert!(admitted(&both, &limits, OTHER, &occupancy).is_ok(), "the limits count each peer separately");
        drop(first);
        assert!(admitted(&both, &limits, ONE, &occupancy).is_ok());
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let same = ["2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"].map(|text| peer_of(text.parse().unwrap()));
        assert_eq!(same[0], same[1]);
        assert_ne!(same[0], peer_of("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(peer_of("::ffff:192.0.2.1".parse().unwrap()), ONE);
    }

    #[test]
    fn a_session_asks_for_no_more_than_the_rate_that_is_allowed() {
        let per_peer = PeerLimits { rate_bps: Some(1_000_000), ..PeerLimits::default() };
        let limits = Limits { per_peer, ..limits() };
        let code = |open: &Open| check(open, &limits).map_or_else(|refusal| refusal.code, |()| "granted".to_owned());
        let tcp = |rate_bps, flows| Open {
            flows,
            ..open(Work::Tcp { block_bytes: 1000, rate_bps, options: StreamOptions::DEFAULT })
        };
        let udp = |rate_pps| open(Work::Udp { datagram_bytes: 1250, rate_pps, number: None });
        assert_eq!(code(&tcp(Some(500_000), 2)), "granted");
        assert_eq!(code(&tcp(Some(500_001), 2)), "too_fast");
        assert_eq!(code(&Open { direction: Direction::Both, ..tcp(Some(500_000), 2) }), "too_fast");
        assert_eq!(code(&tcp(None, 1)), "too_fast", "as fast as possible is unlimited");
        assert_eq!((code(&udp(Some(100.0))), code(&udp(Some(100.1)))), ("granted".to_owned(), "too_fast".to_owned()));
        assert_eq!(code(&udp(None)), "too_fast");
    }

    #[test]
    fn congestion_control_must_be_available() {
        let asks = |name: &str| code(&Open { congestion: Some(name.to_owned()), ..open(TCP) });
        assert_eq!(asks(&net::available_congestion()[0]), "granted");
        for name in ["", "no-such", "reno cubic", "../reno"] {
            assert_eq!(asks(name), "unknown_congestion", "{name}");
        }
    }

    #[test]
    fn memory_is_lent_and_given_back() {
        let occupancy = Arc::new(Occupancy::default());
        let greedy = open(Work::Rr {
            protocol: Protocol::Tcp,
            request_bytes: LARGEST_BLOCK_BYTES,
            response_bytes: LARGEST_BLOCK_BYTES,
            connect: false,
            outstanding: 1,
        });
        let mut shares = Vec::new();
        let mut fill = |client| {
            let before = shares.len() as u64;
            loop {
                match admitted(&greedy, &limits(), client, &occupancy) {
                    Ok(share) => shares.push(share),
                    Err(refused) => break (refused, shares.len() as u64 - before),
                }
            }
        };
        let per_session = memory_bytes(&greedy);
        let (of_peer, of_all) = (MOST_PEER_MEMORY_BYTES / per_session, MOST_MEMORY_BYTES / per_session);
        assert_eq!(fill(ONE), ("too_much_memory".to_owned(), of_peer));
        assert_eq!(fill(OTHER), ("too_much_memory".to_owned(), of_peer.min(of_all - of_peer)));
        drop(shares);
        let taken = lock(&occupancy.taken);
        assert!(taken.all == Amount::default() && taken.by_peer.is_empty());
    }
}
