//! What an iperf3 client asks for: the session that it amounts to, its pace, and how it is refused.

use leadline_transport::iperf3::{ErrorNumber, Iperf3Parameters, Iperf3Protocol, Iperf3Server};
use leadline_transport::{DatagramOptions, Open, Refusal, Work, HEADER_BYTES};
use leadline_wire::{Direction, StreamOptions};

use crate::flows::stream::PacedBlocks;
use crate::rate_text::format_rate;

/// Returns the session that a client's parameters amount to, for the server's limits.
pub fn as_session(asked: &Iperf3Parameters, longest_ms: u64) -> Open {
    let work = match asked.protocol() {
        Iperf3Protocol::Tcp => Work::Tcp {
            block_bytes: asked.block_bytes(),
            rate_bps: asked.rate_bps(),
            options: StreamOptions::default(),
        },
        Iperf3Protocol::Udp => Work::Udp {
            // iperf3's header is shorter than a session's.
            datagram_bytes: asked.block_bytes().max(HEADER_BYTES as u32),
            rate_pps: packets_per_s(asked),
            number: None,
        },
    };
    Open {
        work,
        flows: asked.flows(),
        threads: asked.flows(),
        direction: match (asked.bidirectional, asked.reverse) {
            (true, _) => Direction::Both,
            (_, true) => Direction::Down,
            _ => Direction::Up,
        },
        duration_ms: asked.length_ns().map_or(longest_ms, |length_ns| length_ns / 1_000_000),
        congestion: asked.congestion.clone(),
        interval_ms: 1000,
        takes_turns: false,
        datagrams: DatagramOptions::default(),
    }
}

/// Returns the bytes that tell a client why it is not admitted.
pub fn refusal(refusal: &Refusal, asked: &Iperf3Parameters) -> Vec<u8> {
    let (number, errno) = match (refusal.code.as_str(), asked.protocol()) {
        ("too_many_flows", _) => (ErrorNumber::Flows, 0),
        ("too_long", _) => (ErrorNumber::Duration, 0),
        ("bad_size", Iperf3Protocol::Tcp) => (ErrorNumber::BlockSize, 0),
        ("bad_size", Iperf3Protocol::Udp) => (ErrorNumber::DatagramSize, 0),
        ("bad_rate" | "too_fast", _) => (ErrorNumber::Rate, 0),
        ("unknown_congestion", _) => (ErrorNumber::SetCongestion, libc::ENOENT),
        ("too_many_sessions", _) => (ErrorNumber::Accept, libc::EBUSY),
        ("too_much_memory", _) => (ErrorNumber::Accept, libc::ENOMEM),
        ("too_many_files", _) => (ErrorNumber::Accept, libc::EMFILE),
        _ => (ErrorNumber::Parameters, libc::EINVAL),
    };
    Iperf3Server::fail(number, errno)
}

/// Returns the blocks of a test's TCP flows, `None` if it has no rate. Refuses a rate that no schedule can keep, and bursts
/// of more than a second of the rate that a peer may have: a burst leaves at once.
pub fn check_bursts(asked: &Iperf3Parameters, most_bps: Option<u64>) -> Result<Option<PacedBlocks>, Refusal> {
    let Some(rate_bps) = asked.rate_bps() else { return Ok(None) };
    let paced = paced_blocks(asked, rate_bps);
    if asked.protocol() == Iperf3Protocol::Tcp && paced.is_none() {
        let message = format!("no schedule keeps {} in blocks of {} bytes", format_rate(rate_bps), asked.block_bytes());
        return Err(Refusal { code: "bad_rate".to_owned(), message });
    }
    let ways = if asked.bidirectional { 2 } else { 1 };
    let flows = u128::from(asked.flows()) * ways;
    let burst_bits = flows * u128::from(asked.burst()) * u128::from(asked.block_bytes()) * 8;
    match most_bps {
        Some(most_bps) if asked.burst() > 1 && burst_bits > most_bps.into() => {
            let message = format!("bursts of {burst_bits} bits; this server allows a peer {}", format_rate(most_bps));
            Err(Refusal { code: "too_fast".to_owned(), message })
        }
        _ => Ok(paced),
    }
}

/// Returns the blocks of a TCP flow; `None` if no schedule can keep the rate.
fn paced_blocks(asked: &Iperf3Parameters, rate_bps: u64) -> Option<PacedBlocks> {
    match asked.burst() {
        1 => PacedBlocks::new(rate_bps, asked.block_bytes()),
        burst => PacedBlocks::in_bursts(rate_bps, asked.block_bytes(), burst),
    }
}

/// Returns the datagrams per second of a UDP flow; `None` if it has no rate.
pub fn packets_per_s(asked: &Iperf3Parameters) -> Option<f64> {
    asked.rate_bps().map(|rate| rate as f64 / 8.0 / f64::from(asked.block_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(rate: u64, burst: u64, block_bytes: u64, protocol: Iperf3Protocol) -> Iperf3Parameters {
        let is_udp = protocol == Iperf3Protocol::Udp;
        let bandwidth = Some(rate);
        Iperf3Parameters {
            tcp: !is_udp,
            udp: is_udp,
            bandwidth,
            burst: Some(burst),
            len: Some(block_bytes),
            ..Iperf3Parameters::default()
        }
    }

    #[test]
    fn bursts_are_at_most_a_second_of_the_allowed_rate() {
        use Iperf3Protocol::{Tcp, Udp};
        let code = |asked: &Iperf3Parameters, most_bps| {
            check_bursts(asked, most_bps).map_or_else(|refusal| refusal.code, |_| "granted".to_owned())
        };
        for protocol in [Tcp, Udp] {
            let at_once = asked(1000, 1000, 1000, protocol);
            assert_eq!(code(&at_once, Some(8_000_000)), "granted");
            assert_eq!(code(&at_once, Some(7_999_999)), "too_fast");
            assert_eq!(code(&at_once, None), "granted", "without a limit the client decides");
            assert_eq!(code(&asked(1000, 1, 60_000, protocol), Some(1000)), "granted");
            let both = Iperf3Parameters { bidirectional: true, ..asked(1000, 500, 1000, protocol) };
            assert_eq!(
                (code(&both, Some(8_000_000)), code(&both, Some(7_999_999))),
                ("granted".to_owned(), "too_fast".to_owned())
            );
        }
        // A block of 1 MiB at 4 bit/s is due every 24 days: no schedule counts that slowly, and none means unlimited.
        assert_eq!(code(&asked(4, 2, 1 << 20, Tcp), None), "bad_rate");
        assert_eq!(code(&asked(0, 2, 1 << 20, Tcp), None), "granted", "0 is unlimited");
    }
}
