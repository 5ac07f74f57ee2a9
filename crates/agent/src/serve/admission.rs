//! The admission of sessions: what a request may ask for, what it amounts to, and the reason for a refusal.
//! `occupancy` knows what is in use already.

use std::net::IpAddr;
use std::sync::Arc;

use leadline_pace::Pace;
use leadline_sys::net;
use leadline_transport::{DatagramSizes, Open, Refusal, Work, HEADER_BYTES, SHORT_HEADER_BYTES};
use leadline_wire::{Direction, PeerLimits, Protocol, StreamOptions, StreamPayload};

use super::descriptors::DescriptorBudget;
use super::occupancy::{Occupancy, SessionActivity, SessionShare};
use super::shares::{peer_of, Amounts, Excess, Resource, ShareLimits};
use crate::flows::connect_answer::max_connections;
use crate::flows::datagram_io;
use crate::flows::stream::PacedBlocks;
use crate::rate_text::format_rate;

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

/// The descriptors of a thread of a session: its poll, the file or memory that it sends, and its figures in /proc.
const THREAD_DESCRIPTORS: u64 = 3;

/// Returns the limits of what peers hold at once.
pub fn share_limits(limits: &Limits, budget: &DescriptorBudget) -> ShareLimits {
    use Resource::{Bytes, Descriptors, Flows, HttpConnections, RateBps, SessionDescriptors, Sessions};
    let PeerLimits { sessions, flows, connections, rate_bps, .. } = limits.per_peer;
    let per_peer = Amounts::UNLIMITED
        .with(Sessions, sessions.into())
        .with(Flows, flows.into())
        .with(HttpConnections, u64::from(connections).min(budget.http_of_peer))
        .with(SessionDescriptors, budget.sessions_of_peer)
        .with(Bytes, MOST_PEER_MEMORY_BYTES)
        .with(RateBps, rate_bps.unwrap_or(u64::MAX));
    let all = Amounts::UNLIMITED
        .with(Sessions, MOST_SESSIONS.into())
        .with(HttpConnections, budget.http)
        .with(SessionDescriptors, budget.sessions)
        .with(Descriptors, budget.all)
        .with(Bytes, MOST_MEMORY_BYTES);
    ShareLimits { per_peer, all, rate_bps }
}

/// Grants a request from this address, or returns the reason for its refusal.
pub fn admit(
    open: &Open,
    limits: &Limits,
    client: IpAddr,
    occupancy: &Arc<Occupancy>,
    activity: Arc<SessionActivity>,
) -> Result<SessionShare, Refusal> {
    check(open, limits)?;
    let peer = peer_of(client);
    let amounts = amounts(open, limits.per_peer.rate_bps.is_some());
    let share = occupancy.take_session(peer, amounts, activity);
    let share = share.map_err(|excess| explain(excess, peer, amounts, limits))?;
    if let (Work::Rr { .. }, Some(0)) = (&open.work, share.rate.as_ref().map(|rate| rate.left_bps())) {
        return Err(refusal("too_fast", format!("the sessions of {peer} have all of the rate that it may have")));
    }
    Ok(share)
}

fn explain(excess: Excess, peer: IpAddr, amounts: Amounts, limits: &Limits) -> Refusal {
    let PeerLimits { sessions, flows, rate_bps, .. } = limits.per_peer;
    match excess {
        Excess::OfPeer(Resource::Sessions, _) => refusal(
            "too_many_sessions",
            format!("{peer} has {sessions} sessions open already, the most that a peer may have"),
        ),
        Excess::OfPeer(Resource::Flows, wanted) => {
            refusal("too_many_flows", format!("{peer} would have {wanted} flows; this server allows a peer {flows}"))
        }
        Excess::OfPeer(Resource::RateBps, wanted) => {
            let (wanted, most) = (format_rate(wanted), format_rate(rate_bps.unwrap_or(u64::MAX)));
            let message = format!("the sessions of {peer} would have {wanted}; this server allows a peer {most}");
            refusal("too_fast", message)
        }
        Excess::OfAll(Resource::Sessions) => {
            refusal("too_many_sessions", format!("{MOST_SESSIONS} sessions run already"))
        }
        Excess::OfPeer(Resource::Bytes, _) | Excess::OfAll(Resource::Bytes) => {
            let bytes = amounts.of(Resource::Bytes);
            refusal(
                "too_much_memory",
                format!("{bytes} bytes of buffers are more than this server has left for sessions"),
            )
        }
        Excess::OfPeer(..) | Excess::OfAll(_) => {
            let files = amounts.of(Resource::SessionDescriptors);
            let message = format!("{files} open files are more than this server has left for sessions (ulimit -n)");
            refusal("too_many_files", message)
        }
    }
}

/// Returns what a session holds until it ends.
fn amounts(open: &Open, is_rate_limited: bool) -> Amounts {
    let descriptors = descriptors(open);
    // The conversion saturates, and so does an unlimited rate, which `check` has refused.
    let rate_bps = if is_rate_limited { asked_bps(open).map_or(u64::MAX, |bps| bps.ceil() as u64) } else { 0 };
    Amounts::default()
        .with(Resource::Sessions, 1)
        .with(Resource::Flows, flows(open))
        .with(Resource::SessionDescriptors, descriptors)
        .with(Resource::Descriptors, descriptors)
        .with(Resource::Bytes, memory_bytes(open))
        .with(Resource::RateBps, rate_bps)
}

/// Returns the descriptors of a session: its control connection, its flows and its threads. With a connection for each
/// transaction, it has one flow, and a port with all connections.
fn descriptors(open: &Open) -> u64 {
    let connections = match open.work {
        Work::Rr { connect: true, protocol: Protocol::Udp, .. } => 2,
        Work::Rr { connect: true, outstanding, .. } => {
            2 + max_connections(outstanding as usize, open.flows as usize) as u64
        }
        _ => flows(open),
    };
    1 + connections + ways(open) * THREAD_DESCRIPTORS * u64::from(threads(open).min(open.flows))
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
        Some(asked_bps) => format_rate(asked_bps.round() as u64),
        None => "as fast as possible".to_owned(),
    };
    let message = format!("{requested}; this server allows a peer {}: give --rate", format_rate(most_bps));
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

    const BUDGET: DescriptorBudget = DescriptorBudget {
        all: 100_000,
        http: 50_000,
        http_of_peer: 40_000,
        sessions: 50_000,
        sessions_of_peer: 40_000,
        pending: 100,
        pending_of_peer: 10,
    };

    fn empty(limits: &Limits, budget: &DescriptorBudget) -> Arc<Occupancy> {
        Arc::new(Occupancy::new(share_limits(limits, budget), 1))
    }

    fn admitted(
        open: &Open,
        limits: &Limits,
        client: IpAddr,
        occupancy: &Arc<Occupancy>,
    ) -> Result<SessionShare, String> {
        let activity = Arc::new(SessionActivity::new(0, || {}));
        admit(open, limits, client, occupancy, activity).map_err(|refusal| refusal.code)
    }

    #[test]
    fn sessions_and_flows_of_a_peer_are_limited_and_given_back() {
        let per_peer = PeerLimits { sessions: 3, flows: 10, ..PeerLimits::default() };
        let limits = Limits { per_peer, ..limits() };
        let occupancy = empty(&limits, &BUDGET);
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
        let occupancy = empty(&limits(), &BUDGET);
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
        assert_eq!((occupancy.total(Resource::Bytes), occupancy.total(Resource::Sessions)), (0, 0));
    }

    #[test]
    fn sessions_of_a_peer_have_its_rate_together() {
        let per_peer = PeerLimits { rate_bps: Some(1_000_000), ..PeerLimits::default() };
        let limits = Limits { per_peer, ..limits() };
        let occupancy = empty(&limits, &BUDGET);
        let tcp = |rate| open(Work::Tcp { block_bytes: 1000, rate_bps: Some(rate), options: StreamOptions::DEFAULT });
        let rr = open(Work::Rr {
            protocol: Protocol::Tcp,
            request_bytes: 1,
            response_bytes: 1,
            connect: false,
            outstanding: 1,
        });
        let first = admitted(&tcp(600_000), &limits, ONE, &occupancy).unwrap();
        assert_eq!(admitted(&tcp(400_001), &limits, ONE, &occupancy).unwrap_err(), "too_fast");
        let answers = admitted(&rr, &limits, ONE, &occupancy).unwrap();
        assert_eq!(answers.rate.as_ref().unwrap().left_bps(), 400_000);
        let _second = admitted(&tcp(400_000), &limits, ONE, &occupancy).unwrap();
        assert_eq!(admitted(&rr, &limits, ONE, &occupancy).unwrap_err(), "too_fast", "nothing is left");
        assert!(admitted(&tcp(1_000_000), &limits, OTHER, &occupancy).is_ok(), "another peer has its own");
        drop(first);
        assert_eq!(answers.rate.as_ref().unwrap().left_bps(), 600_000);
    }

    #[test]
    fn descriptors_are_lent_within_the_budget_and_a_part_remains_for_others() {
        let budget = DescriptorBudget { sessions: 100, sessions_of_peer: 75, ..BUDGET };
        let occupancy = empty(&limits(), &budget);
        let many = Open { flows: 8, ..open(TCP) };
        let each = descriptors(&many);
        assert!((12..=12 + 8 * THREAD_DESCRIPTORS).contains(&each));
        let mut held: Vec<SessionShare> = Vec::new();
        let refused = loop {
            match admitted(&many, &limits(), ONE, &occupancy) {
                Ok(share) => held.push(share),
                Err(code) => break code,
            }
        };
        assert_eq!((refused.as_str(), held.len() as u64), ("too_many_files", 75 / each));
        assert!(admitted(&open(TCP), &limits(), OTHER, &occupancy).is_ok());
        let connect =
            Work::Rr { protocol: Protocol::Tcp, request_bytes: 1, response_bytes: 1, connect: true, outstanding: 100 };
        assert_eq!(admitted(&open(connect), &limits(), OTHER, &occupancy).unwrap_err(), "too_many_files");
    }
}
