//! The messages of a session between client and server.

use std::collections::BTreeMap;

use leadline_wire::{
    DatagramReport, Direction, FlowProgress, LoadReport, Protocol, SizeShare, StreamOptions, TcpReport,
};
use serde::{Deserialize, Serialize};

use crate::key::Hex32;

/// The workload of a session's flows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Work {
    /// Bulk TCP.
    Tcp {
        /// Bytes per read and write call.
        block_bytes: u32,
        /// Payload rate per flow, bit/s; unlimited if absent.
        rate_bps: Option<u64>,
        /// How both ends set up and use their sockets.
        #[serde(default)]
        options: StreamOptions,
    },
    /// Paced datagrams.
    Udp {
        /// UDP payload, bytes.
        datagram_bytes: u32,
        /// Datagrams per second and flow; unlimited if absent.
        rate_pps: Option<f64>,
        /// Datagrams per flow.
        number: Option<u64>,
    },
    /// Request-response transactions.
    Rr {
        /// TCP or UDP.
        protocol: Protocol,
        /// Request payload, bytes.
        request_bytes: u32,
        /// Response payload, bytes.
        response_bytes: u32,
        /// Whether each transaction has a connection, or a source port, of its own. The session then has one TCP flow,
        /// which carries nothing, and transactions go to the port in `ready`.
        #[serde(default)]
        connect: bool,
        /// Outstanding transactions per flow.
        #[serde(default = "one_at_a_time")]
        outstanding: u32,
    },
}

fn one_at_a_time() -> u32 {
    1
}

/// A client's request for a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The workload of the flows.
    pub work: Work,
    /// Flows per direction.
    pub flows: u32,
    /// Threads that the server may use.
    pub threads: u32,
    /// Direction of the payload, as seen from the client.
    pub direction: Direction,
    /// Duration, ms.
    pub duration_ms: u64,
    /// Congestion control algorithm of the server's sending flows.
    pub congestion: Option<String>,
    /// Time between `progress` messages, ms.
    pub interval_ms: u32,
    /// Whether the server's paced flows are staggered: flow i of n starts i/n of the gap between two datagrams later
    /// than the first.
    #[serde(default)]
    pub takes_turns: bool,
    /// How datagrams are sent and received.
    #[serde(default, skip_serializing_if = "DatagramOptions::is_default")]
    pub datagrams: DatagramOptions,
}

/// Options of UDP flows beyond their size and rate, and of request-response; the default is that of clients which have
/// none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramOptions {
    /// Whether they pass the kernel in batches (UDP_SEGMENT and UDP_GRO).
    #[serde(default)]
    pub gso: bool,
    /// UDP payloads in turn, instead of one size; empty for one size.
    #[serde(default)]
    pub sizes: Vec<SizeShare>,
    /// The differentiated services code point; the host's default if absent.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// The send and the receive buffers of UDP flows at both ends, bytes; large ones if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u32>,
}

impl DatagramOptions {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromClient {
    /// The first message.
    Open {
        /// The requested session.
        open: Box<Open>,
        /// A fresh nonce, if the client has a key.
        nonce: Option<Hex32>,
    },
    /// The client proves that it has the key.
    Prove {
        /// `SharedKey::client_proof`.
        proof: Hex32,
    },
    /// A query of the server's clock.
    Clock {
        /// Repeated in the response.
        id: u32,
    },
    /// Begin at this time on the server's monotonic clock.
    Begin {
        /// Time, ns.
        at_ns: u64,
    },
    /// Stop the server's senders early.
    Stop {},
    /// The client's senders are done.
    End {
        /// Units sent per upward flow, in the flows' order; empty for byte streams.
        sent_units: Vec<u64>,
    },
}

/// A message of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromServer {
    /// The client has to prove that it has the key.
    Challenge {
        /// A fresh nonce.
        nonce: Hex32,
    },
    /// The session is granted.
    Accepted {
        /// The token with which data flows introduce themselves.
        token: u64,
        /// `SharedKey::server_proof`, if a key is used.
        proof: Option<Hex32>,
        /// A fingerprint of the server's monotonic clock: the same for two hosts only if they share the clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clock: Option<Hex32>,
    },
    /// The session is refused.
    Refused(Refusal),
    /// The response to `clock`.
    Clock {
        /// The query's id.
        id: u32,
        /// When the query was read, ns.
        received_ns: u64,
        /// When the response was written, ns.
        sent_ns: u64,
    },
    /// Every data flow has arrived.
    Ready {
        /// The session's own port, if each transaction has a connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// The server's counters.
    Progress {
        /// When they were read, ns on the server's clock.
        t_ns: u64,
        /// Cumulative counters.
        flows: Vec<FlowProgress>,
    },
    /// The server's senders are done.
    Sent {
        /// Units sent per downward flow, in the flows' order.
        units: Vec<u64>,
    },
    /// The server's results; the last message.
    Report {
        /// One row per flow.
        flows: Vec<SideReport>,
        /// The server's CPU and memory usage.
        load: Box<LoadReport>,
        /// Operations that failed on the server, by name.
        errors: BTreeMap<String, u64>,
    },
}

/// Why a server refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Stable name in snake case.
    pub code: String,
    /// One line for the user.
    pub message: String,
}

/// One side's results of one flow; unknown values are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// The flow's number within the session.
    pub flow: u32,
    /// First byte, ns on the reporting side's clock.
    pub start_ns: Option<u64>,
    /// When a sender stopped (end of time, number reached, stop or error), or when a receiver read its last byte, ns.
    pub end_ns: Option<u64>,
    /// Payload bytes sent by this side.
    pub sent_bytes: u64,
    /// Payload bytes received by this side.
    pub received_bytes: u64,
    /// Units sent by this side.
    pub sent_units: Option<u64>,
    /// Distinct units received by this side.
    pub received_units: Option<u64>,
    /// Datagrams that were due and could not be sent before the end.
    pub unsent_units: Option<u64>,
    /// Datagrams received more than once.
    pub duplicates: Option<u64>,
    /// Datagrams received after one with a higher number.
    pub reordered: Option<u64>,
    /// Datagrams too late to distinguish from duplicates: counted neither as received nor as duplicates.
    pub stale: Option<u64>,
    /// Packets on the flow's socket that did not belong to the flow.
    pub strays: Option<u64>,
    /// Responses to transactions that had timed out, or that came twice.
    pub late_answers: Option<u64>,
    /// Responses that came again.
    pub duplicate_answers: Option<u64>,
    /// Requests that were due while as many as allowed were outstanding, and were sent later.
    pub due_while_busy: Option<u64>,
    /// Units of `unsent_units` that waited for the peer.
    pub unsent_while_busy: Option<u64>,
    /// Connections, or source ports, that this side used.
    pub connections_opened: Option<u64>,
    /// Mean interarrival jitter, µs.
    pub jitter_us: Option<f64>,
    /// Segments that this side retransmitted.
    pub retransmits: Option<u64>,
    /// Mean of sampled round-trip times, µs.
    pub rtt_mean_us: Option<f64>,
    /// Datagrams that this side's socket buffer dropped.
    pub socket_drops: Option<u64>,
    /// More figures of numbered datagrams. Delays are the receiver's clock minus the sender's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Box<DatagramReport>>,
    /// The kernel's figures of this side's end of a byte stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Box<TcpReport>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{encode_frame, FrameDecoder};
    use proptest::prelude::*;

    fn messages() -> Vec<Vec<u8>> {
        let open = Open {
            work: Work::Udp { datagram_bytes: 1400, rate_pps: Some(1e5), number: Some(7) },
            flows: 3,
            threads: 2,
            direction: Direction::Both,
            duration_ms: 10_000,
            congestion: Some("cubic".into()),
            interval_ms: 100,
            takes_turns: true,
            datagrams: DatagramOptions {
                gso: true,
                sizes: vec![SizeShare { bytes: 64, count: 7 }, SizeShare { bytes: 1472, count: 1 }],
                dscp: Some(46),
                window_bytes: Some(65_536),
            },
        };
        let load = LoadReport {
            side: leadline_wire::Side::Local,
            wall_s: 1.5,
            threads: Vec::new(),
            pushback: 3,
            late_p99_us: Some(2.5),
            socket_drops: None,
            engine: None,
            engine_reason: None,
            machine: None,
            quota: None,
        };
        let row = SideReport { flow: 1, start_ns: Some(u64::MAX), ..SideReport::default() };
        let errors = BTreeMap::from([("timeout".to_owned(), 3)]);
        let frames = [
            encode_frame(&FromClient::Open { open: Box::new(open), nonce: Some(Hex32([7; 32])) }),
            encode_frame(&FromClient::Prove { proof: Hex32([0xab; 32]) }),
            encode_frame(&FromServer::Challenge { nonce: Hex32([1; 32]) }),
            encode_frame(&FromClient::End { sent_units: vec![0, u64::MAX] }),
            encode_frame(&FromServer::Clock { id: 1, received_ns: 2, sent_ns: 3 }),
            encode_frame(&FromServer::Report { flows: vec![row], load: Box::new(load), errors }),
        ];
        frames.into_iter().map(Result::unwrap).collect()
    }

    fn read_all(bytes: &[u8]) {
        let mut decoder = FrameDecoder::with_limit(4096);
        decoder.feed(bytes);
        while let Ok(Some(_)) = decoder.next_message::<FromClient>() {}
        let mut decoder = FrameDecoder::default();
        decoder.feed(bytes);
        while let Ok(Some(_)) = decoder.next_message::<FromServer>() {}
    }

    proptest! {
        #[test]
        fn damaged_messages_never_panic(which in 0usize..6, damage in proptest::collection::vec(any::<(u16, u8)>(), 0..6),
                                        length in 0usize..1000) {
            let mut frame = messages().swap_remove(which);
            for (at, byte) in damage {
                let at = at as usize % frame.len();
                frame[at] = byte;
            }
            frame.truncate(length);
            read_all(&frame);
        }

        #[test]
        fn any_text_in_a_frame_never_panics(text in r#"\{"say":"[a-z]{0,8}"[ -~]{0,60}"#) {
            read_all(&[&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat());
        }
    }

    #[test]
    fn too_large_number_is_refused() {
        let text = br#"{"say":"begin","at_ns":18446744073709551616}"#;
        let mut decoder = FrameDecoder::default();
        decoder.feed(&[&(text.len() as u32).to_be_bytes()[..], text].concat());
        assert!(decoder.next_message::<FromClient>().is_err());
    }
}
