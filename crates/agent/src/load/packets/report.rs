//! What generators and receivers report alike.

use leadline_wire::FlowReport;

/// The one row of flows of a generator or a receiver: its frames are of many flows, which have counters of their own.
pub fn flow_report(due_ns: u64, times: (Option<u64>, Option<u64>)) -> FlowReport {
    FlowReport {
        flow: 0,
        direction: leadline_wire::Direction::Up,
        due_ns,
        start_ns: times.0,
        end_ns: times.1,
        sent_bytes: None,
        received_bytes: None,
        sent_units: None,
        received_units: None,
        lost: None,
        duplicates: None,
        reordered: None,
        jitter_us: None,
        latency_mean_us: None,
        latency_max_us: None,
        retransmits: None,
        rtt_mean_us: None,
        congestion: None,
        peer_congestion: None,
        local: None,
        remote: None,
        sender_tcp: None,
        receiver_tcp: None,
        datagrams: None,
    }
}

/// The flows whose counters are reported, the first ones: a report is no table of a million rows.
pub const REPORTED_FLOWS: u32 = 64;
