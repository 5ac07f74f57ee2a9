//! Raw frames: generators that send them into an interface, and receivers that count them. A generator and a receiver are
//! two tasks, on one host or on two; a test's number in each frame ties them together.
//!
//! `link` is the interface and the way to the next hop. `generator` chooses a path into it (`xdp_sender`, `socket_sender`)
//! and runs its threads; `receiver` does so for the way out (`xdp_counter`, `socket_counter`).

mod generator;
mod link;
mod receiver;
mod socket_counter;
mod socket_sender;
#[cfg(test)]
mod tests;
mod xdp_counter;
mod xdp_sender;

pub use generator::prepare as prepare_generator;
pub use receiver::prepare as prepare_receiver;

use std::io;

use leadline_sys::bpf::SharedMap;
use leadline_wire::{ErrorReport, FlowReport};

use crate::events::input_error;

/// Why a path cannot be used, and whether it may be another one that can.
#[derive(Debug)]
struct NoPath {
    code: &'static str,
    reason: String,
}

impl NoPath {
    fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    fn refuse(self) -> ErrorReport {
        input_error(self.code, self.reason)
    }
}

/// Refuses BPF where this process may not use it.
fn require_bpf() -> Result<(), NoPath> {
    match SharedMap::new(8) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(NoPath::new("no_bpf", "this agent may not use BPF; that needs root, or CAP_BPF and CAP_NET_ADMIN"))
        }
        Err(error) => Err(NoPath::new("no_bpf", format!("BPF cannot be used here: {error}"))),
    }
}

/// The one row of flows of a generator or a receiver: its frames are of many flows, which have counters of their own.
fn flow_report(due_ns: u64, times: (Option<u64>, Option<u64>)) -> FlowReport {
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
const REPORTED_FLOWS: u32 = 64;
