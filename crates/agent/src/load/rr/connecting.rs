//! A flow that makes each transaction over a new connection, or from a new source port. A transaction takes one lane:
//! connect, send, receive, close. The server closes first, so that its end waits in TIME-WAIT (RFC 9293, 3.6) and the
//! source port is free at once.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::{self, Remote, TcpOptions};
use leadline_sys::poll::{Interest, Ready};
use leadline_sys::ports::{self, SourcePorts};
use leadline_transport::{Answer, Header, HeaderKind, Requester, Step, HEADER_BYTES};
use leadline_wire::Protocol;

use super::super::session_runner::PORTS_EXHAUSTED;
use super::thread_state::{FlowTimes, ThreadState, PAUSE_NS};
use crate::events::error_code;
use crate::metering::FlowCounters;

/// Where transactions go, and from where.
#[derive(Debug)]
pub struct Destination {
    /// The session's own port on the server.
    pub to: SocketAddr,
    /// The local address.
    pub from: Option<IpAddr>,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The source ports of datagrams; the kernel chooses those of connections.
    pub ports: SourcePorts,
}

/// The flow.
pub struct ConnectingFlow {
    /// Its number within the session.
    pub id: u32,
    /// Its transactions.
    pub machine: Requester,
    /// Its counters.
    pub counters: Arc<FlowCounters>,
    /// Its first and last events.
    pub times: FlowTimes,
    /// Connections, or source ports, used so far.
    pub connections_opened: u64,
    destination: Arc<Destination>,
    lanes: Vec<Lane>,
    idle: Vec<usize>,
    /// Lanes whose transaction has ended, and whose connection the server has not closed yet.
    closing: VecDeque<usize>,
    first_token: u64,
    is_open: bool,
    /// No transaction begins before this instant, ns, if one could not begin; one that has passed holds nothing back.
    paused_until_ns: Option<u64>,
}

enum LaneSocket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

#[derive(Default)]
enum Lane {
    #[default]
    Idle,
    Connecting {
        stream: TcpStream,
        sequence: u64,
        due_ns: u64,
        began_ns: u64,
    },
    Sending {
        stream: TcpStream,
        sequence: u64,
        written: usize,
    },
    Receiving {
        socket: LaneSocket,
        sequence: u64,
        received: usize,
    },
    Closing {
        stream: TcpStream,
    },
}

impl Lane {
    fn sequence(&self) -> Option<u64> {
        match self {
            Self::Connecting { sequence, .. } | Self::Sending { sequence, .. } | Self::Receiving { sequence, .. } => {
                Some(*sequence)
            }
            Self::Idle | Self::Closing { .. } => None,
        }
    }
}

impl ConnectingFlow {
    /// Creates a flow with lanes for this many transactions at once, and as many connections that are being closed.
    pub fn new(
        id: u32,
        destination: Arc<Destination>,
        counters: Arc<FlowCounters>,
        machine: Requester,
        outstanding: u32,
    ) -> Self {
        let lanes = 2 * outstanding as usize;
        Self {
            id,
            machine,
            counters,
            times: FlowTimes::default(),
            connections_opened: 0,
            destination,
            lanes: (0..lanes).map(|_| Lane::Idle).collect(),
            idle: (0..lanes).rev().collect(),
            closing: VecDeque::with_capacity(lanes),
            first_token: 0,
            is_open: true,
            paused_until_ns: None,
        }
    }

    /// The number of its lanes: each has a token.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Sets the token of its first lane.
    pub fn register(&mut self, first: u64) {
        self.first_token = first;
    }

    /// Whether it has not ended.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Begins the transactions that are due and gives up those that have timed out; returns when to call again.
    pub fn advance(&mut self, mut now: u64, state: &mut ThreadState) -> io::Result<Option<u64>> {
        while let Some(transaction) = self.machine.handle_time(now) {
            state.given_up(transaction, now);
            let lane = self.lanes.iter().position(|lane| lane.sequence() == Some(transaction.sequence));
            let is_connecting = lane.is_some_and(|lane| matches!(self.lanes[lane], Lane::Connecting { .. }));
            state.count_error(if is_connecting { "connect_timeout" } else { "timeout" });
            if let Some(lane) = lane {
                self.free(lane);
            }
        }
        loop {
            match self.machine.poll(now) {
                Step::AwaitUntil(instant) => return Ok(Some(instant)),
                Step::Done => {
                    self.is_open = false;
                    self.times.closed_ns = Some(now);
                    self.lanes.clear();
                    return Ok(None);
                }
                Step::Request { sequence, due_ns } => {
                    if let Some(until_ns) = self.paused_until_ns.filter(|until_ns| now < *until_ns) {
                        let timeout_ns = self.machine.timeout_ns();
                        return Ok(Some(timeout_ns.map_or(until_ns, |timeout_ns| timeout_ns.min(until_ns))));
                    }
                    self.begin(sequence, due_ns, now, state);
                    now = monotonic_ns();
                }
            }
        }
    }

    /// Reads and writes what a lane's socket allows; returns the time after that.
    pub fn on_ready(&mut self, source: Ready, state: &mut ThreadState) -> io::Result<u64> {
        let index = (source.token - self.first_token) as usize;
        if source.writable {
            self.write_lane(index, state)?;
        }
        if source.readable {
            return Ok(self.read_lane(index, state));
        }
        Ok(monotonic_ns())
    }

    fn begin(&mut self, sequence: u64, due_ns: u64, now: u64, state: &mut ThreadState) {
        state.sent_late(self.machine.handle_sent(due_ns, now));
        self.times.start_ns.get_or_insert(now);
        let index = self.free_lane();
        let token = self.first_token + index as u64;
        let begun = match self.destination.protocol {
            Protocol::Tcp => self.begin_tcp(token, sequence, due_ns, now, state),
            Protocol::Udp => self.begin_udp(token, sequence, now, state),
        };
        match begun {
            Ok(lane) => {
                self.lanes[index] = lane;
                self.connections_opened += 1;
            }
            Err(error) => {
                self.idle.push(index);
                self.give_up(sequence, now, state);
                let is_exhausted = matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse);
                state.count_error(if is_exhausted { PORTS_EXHAUSTED } else { error_code(&error) });
                self.pause(now);
            }
        }
    }

    fn begin_tcp(
        &self,
        token: u64,
        sequence: u64,
        due_ns: u64,
        began_ns: u64,
        state: &ThreadState,
    ) -> io::Result<Lane> {
        let Destination { to, from, .. } = &*self.destination;
        let socket = connect::begin(&Remote::Inet(*to), *from, &TcpOptions::default())?;
        if state.spins {
            let _ = ports::busy_poll(&socket);
        }
        let stream = TcpStream::from(socket);
        state.poll.add(&stream, token, Interest::ReadWrite)?;
        Ok(Lane::Connecting { stream, sequence, due_ns, began_ns })
    }

    fn begin_udp(&self, token: u64, sequence: u64, now: u64, state: &mut ThreadState) -> io::Result<Lane> {
        let socket = self.destination.ports.connect(self.destination.from, self.destination.to)?;
        if state.spins {
            let _ = ports::busy_poll(&socket);
        }
        let request = &mut state.requests[HEADER_BYTES..HEADER_BYTES + state.request_bytes];
        Header { kind: HeaderKind::Request, token: state.token, flow: self.id, sequence, sent_ns: now }.write(request);
        socket.send(request)?;
        state.poll.add(&socket, token, Interest::Read)?;
        self.counters.sent(state.request_bytes as u64, 1);
        Ok(Lane::Receiving { socket: LaneSocket::Udp(socket), sequence, received: 0 })
    }

    /// Continues a lane whose socket has room: it is connected, has failed, or takes more of the request.
    fn write_lane(&mut self, index: usize, state: &mut ThreadState) -> io::Result<()> {
        let (mut stream, sequence, mut written) = match std::mem::take(&mut self.lanes[index]) {
            Lane::Connecting { stream, sequence, due_ns, began_ns } => {
                if let Some(error) = stream.take_error()? {
                    self.fail(index, sequence, error_code(&error), state);
                    return Ok(());
                }
                state.connected(due_ns, monotonic_ns().saturating_sub(began_ns));
                (stream, sequence, 0)
            }
            Lane::Sending { stream, sequence, written } => (stream, sequence, written),
            other => {
                self.lanes[index] = other;
                return Ok(());
            }
        };
        let bytes = &mut state.requests[..HEADER_BYTES + state.request_bytes];
        Header { kind: HeaderKind::Stream, token: state.token, flow: self.id, sequence, sent_ns: 0 }.write(bytes);
        while written < bytes.len() {
            match stream.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.lanes[index] = Lane::Sending { stream, sequence, written };
                    return Ok(());
                }
                Err(error) => {
                    self.fail(index, sequence, error_code(&error), state);
                    return Ok(());
                }
            }
        }
        self.counters.sent(state.request_bytes as u64, 1);
        state.poll.modify(&stream, self.first_token + index as u64, Interest::Read)?;
        self.lanes[index] = Lane::Receiving { socket: LaneSocket::Tcp(stream), sequence, received: 0 };
        Ok(())
    }

    fn read_lane(&mut self, index: usize, state: &mut ThreadState) -> u64 {
        match std::mem::take(&mut self.lanes[index]) {
            Lane::Receiving { socket: LaneSocket::Tcp(stream), sequence, received } => {
                self.read_stream(index, stream, sequence, received, state)
            }
            Lane::Receiving { socket: LaneSocket::Udp(socket), sequence, .. } => {
                self.read_datagram(index, socket, sequence, state)
            }
            Lane::Closing { mut stream } => {
                match stream.read(&mut state.responses) {
                    Ok(1..) => state.count_error("unasked_answer"),
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                        self.lanes[index] = Lane::Closing { stream };
                        return monotonic_ns();
                    }
                    Ok(0) | Err(_) => {}
                }
                self.closing.retain(|one| *one != index);
                self.idle.push(index);
                monotonic_ns()
            }
            other => {
                self.lanes[index] = other;
                monotonic_ns()
            }
        }
    }

    fn read_stream(
        &mut self,
        index: usize,
        mut stream: TcpStream,
        sequence: u64,
        received: usize,
        state: &mut ThreadState,
    ) -> u64 {
        let read = stream.read(&mut state.responses);
        let now = monotonic_ns();
        let received = match read {
            Ok(0) => {
                self.fail(index, sequence, "closed_early", state);
                return now;
            }
            Ok(read) => received + read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => received,
            Err(error) => {
                self.fail(index, sequence, error_code(&error), state);
                return now;
            }
        };
        if received < state.response_bytes {
            self.lanes[index] = Lane::Receiving { socket: LaneSocket::Tcp(stream), sequence, received };
            return now;
        }
        if received > state.response_bytes {
            self.fail(index, sequence, "unasked_answer", state);
            return now;
        }
        self.handle_response(now, sequence, state);
        self.lanes[index] = Lane::Closing { stream };
        self.closing.push_back(index);
        now
    }

    fn read_datagram(&mut self, index: usize, socket: UdpSocket, sequence: u64, state: &mut ThreadState) -> u64 {
        let read = socket.recv(&mut state.responses);
        let now = monotonic_ns();
        let is_answer = |header: Header| {
            (header.kind, header.token, header.sequence) == (HeaderKind::Response, state.token, sequence)
        };
        match read {
            Ok(read) if Header::parse(&state.responses[..read]).is_ok_and(is_answer) => {
                if read == state.response_bytes {
                    self.handle_response(now, sequence, state);
                    self.idle.push(index);
                } else {
                    self.fail(index, sequence, "wrong_length", state);
                }
            }
            Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.fail(index, sequence, error_code(&error), state);
            }
            _ => self.lanes[index] = Lane::Receiving { socket: LaneSocket::Udp(socket), sequence, received: 0 },
        }
        now
    }

    fn handle_response(&mut self, now: u64, sequence: u64, state: &mut ThreadState) {
        if let Answer::Timely(transaction) = self.machine.handle_response(now, Some(sequence)) {
            state.answered(transaction, now);
            self.counters.received(state.response_bytes as u64, 1);
            self.times.last_ns = Some(now);
        }
    }

    /// Ends a transaction without an answer; its lane is empty already. A host that refuses connections refuses the
    /// next one too, so the flow pauses.
    fn fail(&mut self, index: usize, sequence: u64, name: &str, state: &mut ThreadState) {
        let now = monotonic_ns();
        state.count_error(name);
        self.give_up(sequence, now, state);
        self.idle.push(index);
        self.pause(now);
    }

    /// Ends a transaction without an answer; its latency is at least its age.
    fn give_up(&mut self, sequence: u64, now: u64, state: &mut ThreadState) {
        if let Some(transaction) = self.machine.give_up(sequence, now) {
            state.given_up(transaction, now);
        }
    }

    /// Begins no transaction for a while.
    fn pause(&mut self, now: u64) {
        let until_ns = now + PAUSE_NS;
        self.paused_until_ns = Some(until_ns);
        self.machine.handle_room(until_ns);
    }

    /// Returns a free lane; there are more lanes than transactions, so the others are being closed.
    fn free_lane(&mut self) -> usize {
        if let Some(index) = self.idle.pop() {
            return index;
        }
        let index = self.closing.pop_front().unwrap_or(0);
        self.lanes[index] = Lane::Idle;
        index
    }

    fn free(&mut self, index: usize) {
        self.lanes[index] = Lane::Idle;
        self.idle.push(index);
    }
}
