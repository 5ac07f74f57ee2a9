//! A TCP stream per client and direction to or from a `leadline serve` behind the gateway, in the same session
//! protocol as outside a tunnel.

use std::net::SocketAddr;

use leadline_transport::{Header, HeaderKind, SharedKey, SideReport, Work, HEADER_BYTES};
use leadline_tunnel::inside::tcp::{Buffers, Connection, Stack};
use leadline_tunnel::timer::{earlier, is_due};
use leadline_wire::{Direction, StreamOptions};

use super::interface::{count, Channel, ClientContext, Figures, PeerProgress, Traffic, TrafficPlan};
use super::schedule::Latency;
use super::session::{FlowAssignment, SessionOutcome, SessionSpec, Sessions};
use super::session_client::{SessionClient, View};
use crate::flows::{DRAIN_NS, MAX_DRAIN_NS};

/// Bytes per read and write call on the server.
const BLOCK_BYTES: u32 = 128 << 10;
/// The memory of the buffers of all clients' streams together, and the bounds of each one's, bytes. More than a few
/// hundred packets in flight would only fill the gateway's queues, and after a loss there smoltcp retransmits all
/// that followed.
const ALL_BUFFERS_BYTES: usize = 64 << 20;
const LEAST_BUFFER_BYTES: usize = 32 << 10;
const MOST_BUFFER_BYTES: usize = 256 << 10;
/// The buffer of the direction without payload, bytes.
const IDLE_BUFFER_BYTES: usize = 2 << 10;
/// The congestion control in the tunnel.
const CONGESTION: &str = "reno";

/// The TCP traffic of all clients.
pub struct TcpPlan {
    sessions: Sessions,
    duration_ns: u64,
    seed: u64,
}

impl TcpPlan {
    /// Returns the plan of streams to or from this server.
    pub fn new(server: SocketAddr, direction: Direction, duration_ms: u64, key: Option<SharedKey>, seed: u64) -> Self {
        let work = Work::Tcp { block_bytes: BLOCK_BYTES, rate_bps: None, options: StreamOptions::default() };
        let sessions = Sessions::new(SessionSpec { server, work, direction, duration_ms, key });
        Self { sessions, duration_ns: duration_ms.saturating_mul(1_000_000), seed }
    }
}

impl TrafficPlan for TcpPlan {
    fn client(&self, context: &ClientContext) -> Result<Box<dyn Traffic>, &'static str> {
        let server = self.sessions.spec().server;
        let has_address = if server.is_ipv4() { context.ipv4.is_some() } else { context.ipv6.is_some() };
        if !has_address {
            return Err("no_address");
        }
        context.carries_tcp()?;
        let participant = self.sessions.join(context.client);
        Ok(Box::new(TcpTraffic {
            session: SessionClient::new(participant, context, self.seed, true),
            server,
            buffer_bytes: (ALL_BUFFERS_BYTES / context.clients.max(1) as usize)
                .clamp(LEAST_BUFFER_BYTES, MOST_BUFFER_BYTES),
            duration_ns: self.duration_ns,
            up: None,
            down: None,
            deadline_ns: Some(0),
        }))
    }

    fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    fn counts_units(&self) -> bool {
        false
    }

    fn take_peer_progress(&self) -> PeerProgress {
        self.sessions.take_peer_progress()
    }
}

struct TcpTraffic {
    session: SessionClient,
    server: SocketAddr,
    buffer_bytes: usize,
    duration_ns: u64,
    up: Option<Stream>,
    down: Option<Stream>,
    /// The next look at the session and its streams: at the session's beginning, its end, and often after that. `None` once it is
    /// done.
    deadline_ns: Option<u64>,
}

/// One stream.
struct Stream {
    id: u32,
    connection: Connection,
    /// The rest of its introduction.
    preface: Vec<u8>,
    bytes: u64,
    /// When the first and the last payload moved, ns; both or neither are set.
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// When the stream ended, was given up or failed, ns; nothing moves after that.
    ended_ns: Option<u64>,
}

impl TcpTraffic {
    /// Begins a new round: streams start again.
    fn begin_round(&mut self, assignment: FlowAssignment, now_ns: u64) {
        self.drop_streams();
        let Some(stack) = &mut self.session.stack else { return };
        let up = Buffers { receive_bytes: IDLE_BUFFER_BYTES, send_bytes: self.buffer_bytes };
        let down = Buffers { receive_bytes: self.buffer_bytes, send_bytes: IDLE_BUFFER_BYTES };
        for (id, buffers, slot) in [(assignment.up, up, &mut self.up), (assignment.down, down, &mut self.down)] {
            let Some(id) = id else { continue };
            let mut preface = vec![0; HEADER_BYTES];
            Header { kind: HeaderKind::Stream, token: assignment.token, flow: id, sequence: 0, sent_ns: now_ns }
                .write(&mut preface);
            match stack.connect(now_ns, self.server, buffers) {
                Ok(connection) => {
                    let (first_ns, last_ns, ended_ns) = (None, None, None);
                    *slot = Some(Stream { id, connection, preface, bytes: 0, first_ns, last_ns, ended_ns });
                }
                Err(error) => count(&mut self.session.errors, error.name()),
            }
        }
    }

    /// Drops the streams of an earlier round; other clients may use their numbers by now.
    fn drop_streams(&mut self) {
        let Some(stack) = &mut self.session.stack else { return };
        for old in [self.up.take(), self.down.take()].into_iter().flatten() {
            stack.abort(old.connection);
            stack.release(old.connection);
        }
    }

    /// Writes introductions and as much of the upward stream as there is room for; reads the downward stream.
    fn move_payload(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        let Some(stack) = &mut self.session.stack else { return };
        let begin_ns = self.session.participant.begin_ns();
        let end_ns = begin_ns.map(|begin_ns| begin_ns.saturating_add(self.duration_ns));
        for stream in self.up.iter_mut().chain(&mut self.down) {
            stream.introduce(stack);
            if let Some(error) = stack.error(stream.connection).filter(|_| stream.ended_ns.is_none()) {
                stream.ended_ns = Some(now_ns);
                count(&mut self.session.errors, error.name());
            }
        }
        let has_begun = begin_ns.is_some_and(|begin_ns| now_ns >= begin_ns);
        if let Some(up) = self.up.as_mut().filter(|up| has_begun && up.ended_ns.is_none()) {
            if let Some(end_ns) = end_ns.filter(|end_ns| now_ns >= *end_ns) {
                stack.close(up.connection);
                up.ended_ns = Some(end_ns);
            } else {
                let filled = stack.fill(now_ns, up.connection);
                up.moved(filled, now_ns);
                channel.counters.sent(filled as u64, 0);
            }
        }
        if let Some(down) = self.down.as_mut().filter(|down| down.ended_ns.is_none()) {
            let read = stack.read(down.connection, <[u8]>::len);
            down.moved(read, now_ns);
            channel.counters.received(read as u64, 0);
            let too_long_ns = end_ns.map(|end_ns| {
                let quiet_since_ns = down.last_ns.map_or(end_ns, |last_ns| last_ns.max(end_ns));
                quiet_since_ns.saturating_add(DRAIN_NS).min(end_ns.saturating_add(MAX_DRAIN_NS))
            });
            if stack.is_at_end(down.connection) {
                stack.close(down.connection);
                down.ended_ns = Some(now_ns);
            } else if is_due(too_long_ns, now_ns) {
                stack.abort(down.connection);
                down.ended_ns = Some(now_ns);
                count(&mut self.session.errors, "no_end_of_stream");
            }
        }
    }

    fn view(&self, direction: Direction, stream: &Stream, due_ns: u64, now_ns: u64) -> View {
        let stack = self.session.stack.as_ref();
        let is_up = direction == Direction::Up;
        let local = SideReport {
            flow: stream.id,
            start_ns: stream.first_ns,
            end_ns: stream.first_ns.map(|_| stream.ended_ns.unwrap_or(now_ns)),
            sent_bytes: if is_up { stream.bytes } else { 0 },
            received_bytes: if is_up { 0 } else { stream.bytes },
            retransmits: stack.filter(|_| is_up).map(|stack| stack.retransmits(stream.connection)),
            ..SideReport::default()
        };
        let ends = stack.map(|stack| (stack.local(stream.connection), self.server));
        let congestion = is_up.then_some(CONGESTION);
        View { direction, due_ns, local, latency: Latency::default(), ends, congestion }
    }

    fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.up.iter().chain(&self.down)
    }
}

impl Stream {
    fn introduce(&mut self, stack: &mut Stack) {
        if !self.preface.is_empty() && stack.is_writable(self.connection) {
            let written = stack.write(self.connection, &self.preface);
            self.preface.drain(..written);
        }
    }

    fn moved(&mut self, bytes: usize, now_ns: u64) {
        if bytes > 0 {
            self.bytes += bytes as u64;
            self.first_ns.get_or_insert(now_ns);
            self.last_ns = Some(now_ns);
        }
    }
}

impl Traffic for TcpTraffic {
    fn is_ready(&self) -> bool {
        self.session.left_out.is_some() || self.session.participant.is_ready()
    }

    fn start(&mut self, start_ns: u64) {
        self.session.participant.start(start_ns);
        self.deadline_ns = Some(0);
    }

    fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        match self.session.participant.poll_assignment() {
            Some(Some(assignment)) => self.begin_round(assignment, now_ns),
            Some(None) => {
                self.session.left_out = Some("stream_unanswered");
                self.drop_streams();
            }
            None => {}
        }
        self.move_payload(now_ns, channel);
        let (is_some, is_known) = (self.streams().count() > 0, self.streams().all(|stream| stream.preface.is_empty()));
        if is_some && is_known {
            self.session.participant.introduced();
        }
        let begin_ns = self.session.participant.begin_ns();
        if begin_ns.is_some() && self.up.as_ref().is_none_or(|up| up.ended_ns.is_some()) {
            self.session.participant.ended();
        }
        self.session.poll(now_ns, channel);
        let next_ns = begin_ns.map(|begin_ns| {
            let marks_ns = [begin_ns, begin_ns.saturating_add(self.duration_ns)];
            marks_ns.into_iter().find(|at_ns| now_ns < *at_ns).unwrap_or(now_ns + DRAIN_NS / 10)
        });
        self.deadline_ns = if self.is_done() { None } else { earlier(next_ns, self.session.deadline_ns(now_ns)) };
    }

    fn payload(&mut self, now_ns: u64, packet: &[u8], _channel: &mut Channel<'_>) {
        if let Some(stack) = &mut self.session.stack {
            stack.handle(now_ns, packet);
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn is_done(&self) -> bool {
        let is_lost = matches!(self.session.participant.outcome(), Some(SessionOutcome::Lost { .. }));
        is_lost || self.session.is_over() && self.streams().all(|stream| stream.ended_ns.is_some())
    }

    fn finish(&mut self, now_ns: u64, _channel: &mut Channel<'_>) -> Figures {
        let due_ns = self.session.participant.begin_ns().unwrap_or(now_ns);
        let directions = [(Direction::Up, &self.up), (Direction::Down, &self.down)];
        let views = directions
            .into_iter()
            .filter_map(|(direction, stream)| Some(self.view(direction, stream.as_ref()?, due_ns, now_ns)))
            .collect();
        self.session.figures(views)
    }
}
