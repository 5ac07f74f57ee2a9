//! The client's end of a session's control connection as a state machine: it receives bytes and times, and returns
//! what to send and what has happened. Owns the order of messages and the clock comparison. The driver owns the
//! connection and the flows.
//!
//! | Stage     | message of the server   | next stage                                   |
//! |-----------|-------------------------|----------------------------------------------|
//! | asking    | `accepted`, without key | comparing, with the first clock query        |
//! | asking    | `challenge`, with a key | proving, with the client's proof             |
//! | proving   | `accepted`, proven      | comparing, with the first clock query        |
//! | any       | `refused`               | an error                                     |
//! | comparing | `clock`                 | the next query; after the last: granted      |
//! | granted   | `ready`                 | ready                                        |
//! | ready     | `progress`, `sent`      | the same                                     |
//! | ready     | `report`                | reported                                     |

use std::collections::BTreeMap;

use leadline_wire::{FlowProgress, LoadReport, Side};

use crate::frame::{encode_frame, FrameDecoder, FrameError, MAGIC};
use crate::key::{clock_fingerprint, Hex32, SharedKey, Transcript};
use crate::session::{FromClient, FromServer, Open, Refusal, SideReport};

/// Number of clock queries; the response with the shortest round trip counts.
const CLOCK_EXCHANGES: u32 = 16;

/// An event of a session; times are on the client's clock.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// The session is granted and the clocks are compared: flows can introduce themselves with this token.
    Granted {
        /// The session's secret.
        token: u64,
    },
    /// Every flow has arrived: the session can begin.
    Ready {
        /// The session's own port on the server, if each transaction has a connection.
        port: Option<u16>,
    },
    /// The server's counters.
    Progress {
        /// When they were read, ns.
        t_ns: u64,
        /// Cumulative counters.
        flows: Vec<FlowProgress>,
    },
    /// Units that the server's senders sent, in the order of the downward flows.
    Sent {
        /// One value per downward flow.
        units: Vec<u64>,
    },
    /// The server's results; the session is over.
    Report {
        /// One row per flow.
        flows: Vec<SideReport>,
        /// The server's CPU and memory usage.
        load: Box<LoadReport>,
        /// Operations that failed on the server, by name.
        errors: BTreeMap<String, u64>,
    },
}

/// Why a session ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The server refuses the session.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The server sent an invalid message.
    #[error("the server sent an invalid message: {0}")]
    InvalidMessage(#[from] FrameError),
    /// The server sent a message that is not allowed at this stage.
    #[error("the server sent an unexpected message")]
    OutOfTurn,
    /// The server granted the session without a proof that it has the key.
    #[error("the server does not have the key")]
    Unproven,
}

/// A client's credentials for a server with a key.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The shared key.
    pub key: SharedKey,
    /// A fresh nonce for each session.
    pub nonce: Hex32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asking,
    Proving,
    Comparing { id: u32, queried_ns: u64 },
    Granted,
    Ready,
    Reported,
}

/// The client side of one session.
#[derive(Debug)]
pub struct ClientSession {
    stage: Stage,
    decoder: FrameDecoder,
    outgoing: Vec<u8>,
    token: u64,
    /// The key, and the transcript that its proofs cover; it has the server's nonce once that is known.
    secret: Option<(SharedKey, Transcript)>,
    /// The smallest round trip of the clock comparison, ns, and the server's clock minus the client's in that
    /// exchange.
    best: Option<(u64, i64)>,
    /// The fingerprint of the server's clock, if it sent one.
    server_clock: Option<Hex32>,
}

/// The server's clock minus the client's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockDifference {
    /// The best estimate, ns.
    pub ahead_ns: i64,
    /// The true difference is at most this far from the estimate, ns; 0 if both ends have the same clock.
    pub bound_ns: u64,
}

impl ClientSession {
    /// Creates a session and requests it; `output` has the first message immediately.
    ///
    /// # Errors
    /// The request is longer than a frame allows.
    pub fn new(open: Open, credentials: Option<Credentials>) -> Result<Self, SessionError> {
        let nonce = credentials.as_ref().map(|credentials| credentials.nonce);
        let frame = encode_frame(&FromClient::Open { open: Box::new(open), nonce })?;
        let secret = credentials.map(|Credentials { key, nonce: client }| {
            (key, Transcript { client, server: Hex32([0; 32]), request: frame[4..].to_vec() })
        });
        let outgoing = [MAGIC, &frame].concat();
        Ok(Self {
            stage: Stage::Asking,
            decoder: FrameDecoder::default(),
            outgoing,
            token: 0,
            secret,
            best: None,
            server_clock: None,
        })
    }

    /// The bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.outgoing
    }

    /// Records that this many bytes were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.outgoing.drain(..bytes.min(self.outgoing.len()));
    }

    /// Takes received bytes; call `next_event` afterwards until it returns `None`.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// Why the session is over.
    pub fn next_event(&mut self, now_ns: u64) -> Result<Option<SessionEvent>, SessionError> {
        while let Some(message) = self.decoder.next_message()? {
            if let Some(event) = self.handle_message(now_ns, message)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Sends the time at which both sides begin, ns on the client's clock.
    ///
    /// # Errors
    /// The message is too long, which does not occur in practice.
    pub fn begin(&mut self, at_ns: u64) -> Result<(), SessionError> {
        let offset_ns = self.offset_ns();
        self.send(&FromClient::Begin { at_ns: at_ns.saturating_add_signed(offset_ns) })
    }

    /// Reports that the client's senders are done, and how many units each upward flow has sent.
    ///
    /// # Errors
    /// As `begin`.
    pub fn end(&mut self, sent_units: Vec<u64>) -> Result<(), SessionError> {
        self.send(&FromClient::End { sent_units })
    }

    /// Stops the server's senders early.
    ///
    /// # Errors
    /// As `begin`.
    pub fn stop(&mut self) -> Result<(), SessionError> {
        self.send(&FromClient::Stop {})
    }

    fn handle_message(&mut self, now_ns: u64, message: FromServer) -> Result<Option<SessionEvent>, SessionError> {
        match (self.stage, message) {
            (Stage::Asking, FromServer::Challenge { nonce }) => {
                let (key, transcript) = self.secret.as_mut().ok_or(SessionError::OutOfTurn)?;
                transcript.server = nonce;
                let proof = key.client_proof(transcript);
                self.stage = Stage::Proving;
                self.send(&FromClient::Prove { proof })?;
                Ok(None)
            }
            (Stage::Asking | Stage::Proving, FromServer::Accepted { token, proof, clock }) => {
                let is_proven = match &self.secret {
                    None => true,
                    Some((key, transcript)) => {
                        let shows = |proof| key.is_server(transcript, token, proof);
                        self.stage == Stage::Proving && proof.is_some_and(shows)
                    }
                };
                if !is_proven {
                    return Err(SessionError::Unproven);
                }
                (self.token, self.server_clock) = (token, clock);
                self.ask(0, now_ns)?;
                Ok(None)
            }
            (_, FromServer::Refused(refusal)) => Err(SessionError::Refused(refusal)),
            (Stage::Comparing { id, queried_ns }, FromServer::Clock { id: answered, received_ns, sent_ns })
                if id == answered =>
            {
                self.compare([queried_ns, received_ns, sent_ns, now_ns])?;
                if id + 1 < CLOCK_EXCHANGES {
                    self.ask(id + 1, now_ns)?;
                    return Ok(None);
                }
                self.stage = Stage::Granted;
                Ok(Some(SessionEvent::Granted { token: self.token }))
            }
            (Stage::Granted, FromServer::Ready { port }) => {
                self.stage = Stage::Ready;
                Ok(Some(SessionEvent::Ready { port }))
            }
            (Stage::Ready, FromServer::Progress { t_ns, flows }) => {
                Ok(Some(SessionEvent::Progress { t_ns: self.local(t_ns), flows }))
            }
            (Stage::Ready, FromServer::Sent { units }) => Ok(Some(SessionEvent::Sent { units })),
            (Stage::Ready, FromServer::Report { mut flows, load, errors }) => {
                self.stage = Stage::Reported;
                for row in &mut flows {
                    row.start_ns = row.start_ns.map(|t_ns| self.local(t_ns));
                    row.end_ns = row.end_ns.map(|t_ns| self.local(t_ns));
                }
                let load = Box::new(LoadReport { side: Side::Peer, ..*load });
                Ok(Some(SessionEvent::Report { flows, load, errors }))
            }
            _ => Err(SessionError::OutOfTurn),
        }
    }

    fn ask(&mut self, id: u32, now_ns: u64) -> Result<(), SessionError> {
        self.stage = Stage::Comparing { id, queried_ns: now_ns };
        self.send(&FromClient::Clock { id })
    }

    /// RFC 5905, section 8: theta = ((T2 - T1) + (T3 - T4)) / 2, its error at most half of the round trip.
    fn compare(&mut self, [queried, received, sent, answered]: [u64; 4]) -> Result<(), SessionError> {
        let round_trip = answered.saturating_sub(queried).saturating_sub(sent.saturating_sub(received));
        let twice = i128::from(received) - i128::from(queried) + i128::from(sent) - i128::from(answered);
        let offset = i64::try_from(twice / 2).map_err(|_| SessionError::OutOfTurn)?;
        if self.best.is_none_or(|(least, _)| round_trip < least) {
            self.best = Some((round_trip, offset));
        }
        Ok(())
    }

    /// Compares this host's clock with the server's by its identity; on the same clock, times need no conversion. A
    /// server that claims the same clock is believed only if the clock queries agree.
    pub fn compare_identity(&mut self, clock: &str) {
        let is_same = self.server_clock == Some(clock_fingerprint(clock, self.token));
        if is_same && self.best.is_some_and(|(round_trip, offset)| offset.unsigned_abs() <= round_trip / 2 + 1) {
            self.best = Some((0, 0));
        }
    }

    /// Returns the difference of the clocks, once they have been compared.
    pub fn clock_difference(&self) -> Option<ClockDifference> {
        self.best.map(|(round_trip, ahead_ns)| ClockDifference { ahead_ns, bound_ns: round_trip.div_ceil(2) })
    }

    fn offset_ns(&self) -> i64 {
        self.best.map_or(0, |(_, offset)| offset)
    }

    fn local(&self, server_ns: u64) -> u64 {
        server_ns.saturating_add_signed(self.offset_ns().saturating_neg())
    }

    fn send(&mut self, message: &FromClient) -> Result<(), SessionError> {
        self.outgoing.extend(encode_frame(message)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leadline_wire::{Direction, StreamOptions};

    use super::*;
    use crate::session::{DatagramOptions, Work};

    const AHEAD_NS: u64 = 7_000_000_000;

    fn open() -> Open {
        Open {
            work: Work::Tcp { block_bytes: 1000, rate_bps: None, options: StreamOptions::DEFAULT },
            flows: 1,
            threads: 1,
            direction: Direction::Up,
            duration_ms: 1000,
            congestion: None,
            interval_ms: 100,
            takes_turns: false,
            datagrams: DatagramOptions::default(),
        }
    }

    /// The messages that the client has sent since the last call.
    fn sent_messages(session: &mut ClientSession) -> Vec<FromClient> {
        let bytes = session.output().to_vec();
        session.sent(bytes.len());
        let mut decoder = FrameDecoder::default();
        decoder.feed(bytes.strip_prefix(MAGIC).unwrap_or(&bytes));
        std::iter::from_fn(|| decoder.next_message().unwrap()).collect()
    }

    fn tell(
        session: &mut ClientSession,
        now_ns: u64,
        message: &FromServer,
    ) -> Result<Option<SessionEvent>, SessionError> {
        session.receive(&encode_frame(message).unwrap());
        session.next_event(now_ns)
    }

    fn granted() -> ClientSession {
        let mut session = ClientSession::new(open(), None).unwrap();
        assert_eq!(sent_messages(&mut session), [FromClient::Open { open: Box::new(open()), nonce: None }]);
        assert_eq!(tell(&mut session, 0, &FromServer::Accepted { token: 9, proof: None, clock: None }).unwrap(), None);
        let mut now_ns = 0;
        for id in 0..CLOCK_EXCHANGES {
            assert_eq!(sent_messages(&mut session), [FromClient::Clock { id }]);
            // The way to the server takes 1 µs; the way back takes as long the third time, and longer otherwise.
            let received_ns = AHEAD_NS + now_ns + 1000;
            now_ns += if id == 2 { 2000 } else { 9000 };
            let event = tell(&mut session, now_ns, &FromServer::Clock { id, received_ns, sent_ns: received_ns });
            let last = id + 1 == CLOCK_EXCHANGES;
            assert_eq!(event.unwrap(), last.then_some(SessionEvent::Granted { token: 9 }));
        }
        session
    }

    #[test]
    fn server_times_are_converted_by_the_quickest_exchange() {
        let mut session = granted();
        assert_eq!(session.offset_ns(), AHEAD_NS as i64);
        assert_eq!(
            tell(&mut session, 0, &FromServer::Ready { port: None }).unwrap(),
            Some(SessionEvent::Ready { port: None })
        );
        session.begin(500).unwrap();
        session.end(vec![3]).unwrap();
        let expected = [FromClient::Begin { at_ns: AHEAD_NS + 500 }, FromClient::End { sent_units: vec![3] }];
        assert_eq!(sent_messages(&mut session), expected);
        let event = tell(&mut session, 0, &FromServer::Progress { t_ns: AHEAD_NS + 70, flows: Vec::new() }).unwrap();
        assert_eq!(event, Some(SessionEvent::Progress { t_ns: 70, flows: Vec::new() }));
        let row = SideReport { start_ns: Some(AHEAD_NS + 1), end_ns: Some(AHEAD_NS + 2), ..SideReport::default() };
        let load = LoadReport {
            side: Side::Local,
            wall_s: 1.0,
            threads: Vec::new(),
            pushback: 0,
            late_p99_us: None,
            socket_drops: None,
            engine: None,
            engine_reason: None,
            machine: None,
            quota: None,
        };
        let report = FromServer::Report { flows: vec![row], load: Box::new(load), errors: BTreeMap::new() };
        let Some(SessionEvent::Report { flows, load, .. }) = tell(&mut session, 0, &report).unwrap() else { panic!() };
        assert_eq!((flows[0].start_ns, flows[0].end_ns, load.side), (Some(1), Some(2), Side::Peer));
        assert!(tell(&mut session, 0, &FromServer::Ready { port: None }).is_err(), "no message may follow the report");
    }

    #[test]
    fn unexpected_message_ends_the_session() {
        let mut session = ClientSession::new(open(), None).unwrap();
        assert!(matches!(tell(&mut session, 0, &FromServer::Ready { port: None }), Err(SessionError::OutOfTurn)));
        let mut session = granted();
        let clock = FromServer::Clock { id: 1, received_ns: 0, sent_ns: 0 };
        assert!(matches!(tell(&mut session, 0, &clock), Err(SessionError::OutOfTurn)));
        let mut session = granted();
        let refusal = Refusal { code: "too_long".into(), message: "no".into() };
        let refused = tell(&mut session, 0, &FromServer::Refused(refusal.clone()));
        assert!(matches!(refused, Err(SessionError::Refused(received_refusal)) if received_refusal == refusal));
        let mut session = ClientSession::new(open(), None).unwrap();
        session.receive(&u32::MAX.to_be_bytes());
        assert!(matches!(session.next_event(0), Err(SessionError::InvalidMessage(_))));
    }

    #[test]
    fn impossible_times_never_panic() {
        let mut session = ClientSession::new(open(), None).unwrap();
        tell(&mut session, u64::MAX, &FromServer::Accepted { token: 9, proof: None, clock: None }).unwrap();
        let clock = FromServer::Clock { id: 0, received_ns: u64::MAX, sent_ns: 0 };
        let _ = tell(&mut session, 0, &clock);
    }
}
