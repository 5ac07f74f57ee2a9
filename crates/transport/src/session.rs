//! The messages of a session: what a client asks of a server, and what the server tells it.

use std::collections::BTreeMap;

use leadline_wire::{Direction, FlowProgress, LoadReport, Protocol};
use serde::{Deserialize, Serialize};

use crate::key::Hex32;

/// What a session's flows do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Work {
    /// Bulk TCP.
    Tcp {
        /// Bytes per read and write call.
        block_bytes: u32,
        /// Payload rate per flow, bit/s; unlimited where absent.
        rate_bps: Option<u64>,
    },
    /// Paced datagrams.
    Udp {
        /// UDP payload, bytes.
        datagram_bytes: u32,
        /// Datagrams per second and flow; unlimited where absent.
        rate_pps: Option<f64>,
        /// Datagrams per flow.
        number: Option<u64>,
    },
    /// Request and response.
    Rr {
        /// Over TCP or UDP.
        protocol: Protocol,
        /// Request payload, bytes.
        request_bytes: u32,
        /// Response payload, bytes.
        response_bytes: u32,
    },
}

/// A client's request for a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// What the flows do.
    pub work: Work,
    /// Flows per direction.
    pub flows: u32,
    /// Threads that the server may use.
    pub threads: u32,
    /// Which way the payload goes, as the client sees it.
    pub direction: Direction,
    /// How long, ms.
    pub duration_ms: u64,
    /// Congestion control for the server's sending flows.
    pub congestion: Option<String>,
    /// Time between `progress` messages, ms.
    pub interval_ms: u32,
    /// Whether the server's paced datagrams take turns: flow i of n is due i/n of the time between two later than the first.
    #[serde(default)]
    pub takes_turns: bool,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromClient {
    /// The first message.
    Open {
        /// What is asked for.
        open: Open,
        /// A fresh nonce, from a client that has a key.
        nonce: Option<Hex32>,
    },
    /// The client knows the key.
    Prove {
        /// `SharedKey::client_proof`.
        proof: Hex32,
    },
    /// What time is it there?
    Clock {
        /// Repeated in the answer.
        id: u32,
    },
    /// Begin at this instant of the server's monotonic clock.
    Begin {
        /// When, ns.
        at_ns: u64,
    },
    /// The server's senders are to end before their time.
    Stop {},
    /// The client's senders are done.
    End {
        /// Units sent per upward flow, in the flows' order; empty for byte streams.
        sent_units: Vec<u64>,
    },
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromServer {
    /// Whether the client knows the key is to be shown first.
    Challenge {
        /// A fresh nonce.
        nonce: Hex32,
    },
    /// The session is granted.
    Accepted {
        /// What the data flows introduce themselves with.
        token: u64,
        /// `SharedKey::server_proof`, where a key was asked for.
        proof: Option<Hex32>,
    },
    /// It is not.
    Refused(Refusal),
    /// Answer to `clock`.
    Clock {
        /// The question's.
        id: u32,
        /// When the question was read, ns.
        received_ns: u64,
        /// When the answer was written, ns.
        sent_ns: u64,
    },
    /// Every data flow has arrived.
    Ready {},
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
    /// The server's figures; the last message.
    Report {
        /// One row per flow.
        flows: Vec<SideReport>,
        /// What it cost the server.
        load: LoadReport,
        /// Operations that failed there, by name.
        errors: BTreeMap<String, u64>,
    },
}

/// Why a server refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Stable name in snake case.
    pub code: String,
    /// One line for a person.
    pub message: String,
}

/// One side's view of one flow; what it does not know is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// The flow's number within the session.
    pub flow: u32,
    /// First byte, ns on the reporting side's clock.
    pub start_ns: Option<u64>,
    /// When a sender stopped trying, by its time, its number, a stop or an error; a receiver's last byte; ns.
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
    /// Datagrams received again.
    pub duplicates: Option<u64>,
    /// Datagrams received after a later one.
    pub reordered: Option<u64>,
    /// Datagrams too late to tell from duplicates: neither received nor duplicates.
    pub stale: Option<u64>,
    /// Packets that came to the flow's socket and were not the flow's.
    pub strays: Option<u64>,
    /// Answers to transactions that had been given up, or that came twice.
    pub late_answers: Option<u64>,
    /// Mean interarrival jitter, µs.
    pub jitter_us: Option<f64>,
    /// Segments sent again by this side.
    pub retransmits: Option<u64>,
    /// Mean of sampled round-trip times, µs.
    pub rtt_mean_us: Option<f64>,
    /// Datagrams that this side's socket buffer dropped.
    pub socket_drops: Option<u64>,
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
        };
        let row = SideReport { flow: 1, start_ns: Some(u64::MAX), ..SideReport::default() };
        let errors = BTreeMap::from([("timeout".to_owned(), 3)]);
        let frames = [
            encode_frame(&FromClient::Open { open, nonce: Some(Hex32([7; 32])) }),
            encode_frame(&FromClient::Prove { proof: Hex32([0xab; 32]) }),
            encode_frame(&FromServer::Challenge { nonce: Hex32([1; 32]) }),
            encode_frame(&FromClient::End { sent_units: vec![0, u64::MAX] }),
            encode_frame(&FromServer::Clock { id: 1, received_ns: 2, sent_ns: 3 }),
            encode_frame(&FromServer::Report { flows: vec![row], load, errors }),
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
    fn a_number_that_is_too_large_is_refused() {
        let text = br#"{"say":"begin","at_ns":18446744073709551616}"#;
        let mut decoder = FrameDecoder::default();
        decoder.feed(&[&(text.len() as u32).to_be_bytes()[..], text].concat());
        assert!(decoder.next_message::<FromClient>().is_err());
    }
}
