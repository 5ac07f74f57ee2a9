//! The server's side of transactions that have a connection, or a source port, each. The session has a port of its own,
//! so that one thread accepts and answers: passing each connection on from another thread would be part of what is
//! measured. A connection shows the session's token first, and a datagram has it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::tcp;
use leadline_transport::{Header, HeaderKind, SideReport, HEADER_BYTES};
use leadline_wire::Protocol;

use super::answer::{AnswerWork, BYTES_PER_TURN};
use super::{count_error, Span, WorkerReport, DRAIN_NS, TURN_NS};
use crate::control_signal::ControlSignal;
use crate::events::error_code;
use crate::metering::{FlowCounters, ThreadMeter};

/// Connections that are accepted, or datagrams that are answered, before the others' turn.
const PER_TURN: usize = 64;
/// How long a connection may take to send its request, and then for each next part of its response, ns.
const PATIENCE_NS: u64 = 10_000_000_000;
/// How long a port without a descriptor for the next connection rests, if it has no connection to close.
const STARVED_REST: Duration = Duration::from_millis(20);
/// Connections beyond the client's outstanding ones: those whose client has given up.
const SPARE_CONNECTIONS: usize = 64;
const LISTENER: u64 = u64::MAX;

/// Returns how many connections a session may have at once: a client may open the next one before this end has closed
/// the last.
pub fn max_connections(outstanding: usize, flows: usize) -> usize {
    2 * outstanding * flows + SPARE_CONNECTIONS
}

/// The session's own port.
pub enum ConnectPort {
    /// Accepts connections.
    Tcp(TcpListener),
    /// Receives datagrams; only those from the client's address are answered.
    Udp(UdpSocket, IpAddr),
}

impl ConnectPort {
    /// Opens a free port at this address for a client.
    pub fn open(at: IpAddr, protocol: Protocol, client: IpAddr) -> io::Result<Self> {
        let at = SocketAddr::new(at, 0);
        Ok(match protocol {
            Protocol::Tcp => {
                let listener = tcp::listen(at)?;
                listener.set_nonblocking(true)?;
                Self::Tcp(listener)
            }
            Protocol::Udp => {
                let socket = net::udp_socket(at, None, false)?;
                socket.set_nonblocking(true)?;
                Self::Udp(socket, client)
            }
        })
    }

    /// The port's number.
    pub fn number(&self) -> io::Result<u16> {
        Ok(match self {
            Self::Tcp(listener) => listener.local_addr()?.port(),
            Self::Udp(socket, _) => socket.local_addr()?.port(),
        })
    }
}

/// A connection that has been accepted.
struct Connection {
    stream: TcpStream,
    /// When it was accepted, or was last given a part of its response.
    since_ns: u64,
    preface: [u8; HEADER_BYTES],
    /// Bytes received: first the preface, then the request.
    received: usize,
    /// Bytes of the response that were written.
    written: usize,
    /// The flow that its preface names, once it has shown the session's token.
    flow: Option<usize>,
}

/// What one turn did for a connection.
#[derive(Debug, Default, PartialEq)]
struct Turn {
    /// Whether the request has now arrived as a whole.
    has_request: bool,
    written_bytes: usize,
    /// Whether the whole response was written.
    is_answered: bool,
}

struct Answering {
    work: AnswerWork,
    counters: Vec<Arc<FlowCounters>>,
    times: Vec<(Option<u64>, Option<u64>)>,
    block: Vec<u8>,
    response: Vec<u8>,
    errors: BTreeMap<String, u64>,
    connections: Vec<Option<Connection>>,
    idle: Vec<usize>,
    /// The connections in the order of their `since_ns`, by number and time; some have ended or gone on since.
    waiting: VecDeque<(usize, u64)>,
    /// Whether the last attempt to accept a connection failed.
    starved: bool,
}

/// Answers until the signal stops the worker.
pub fn drive(
    port: ConnectPort,
    work: AnswerWork,
    counters: Vec<Arc<FlowCounters>>,
    span: Span,
    signal: &ControlSignal,
) -> io::Result<WorkerReport> {
    let mut poll = Poll::new(PER_TURN)?;
    match &port {
        ConnectPort::Tcp(listener) => poll.add(listener, LISTENER, Interest::Read)?,
        ConnectPort::Udp(socket, _) => poll.add(socket, LISTENER, Interest::Read)?,
    }
    let mut answering = Answering::new(work, counters);
    while !signal.stopped() && monotonic_ns() < span.at_ns {
        if poll.wait(Some(span.at_ns.min(monotonic_ns() + TURN_NS)))?.next().is_some() {
            break;
        }
    }
    let mut ready: Vec<Ready> = Vec::new();
    let mut meter = ThreadMeter::begin("rr-serve", monotonic_ns());
    while !signal.stopped() && monotonic_ns() < span.end_ns + DRAIN_NS {
        ready.clear();
        ready.extend(poll.wait(Some(monotonic_ns() + TURN_NS))?);
        // The wait for the session's end after the last response does not count.
        if ready.is_empty() {
            meter.rest(monotonic_ns());
        } else {
            meter.go_on();
        }
        answering.drop_silent(monotonic_ns());
        for source in &ready {
            match (&port, source.token) {
                (ConnectPort::Tcp(listener), LISTENER) => answering.accept(listener, &poll)?,
                (ConnectPort::Udp(socket, client), _) => answering.answer_datagrams(socket, *client),
                (ConnectPort::Tcp(_), token) => answering.serve(token as usize, &poll),
            }
        }
    }
    Ok(WorkerReport {
        thread: meter.end(monotonic_ns()),
        flows: answering.reports(),
        pushback: 0,
        errors: answering.errors,
        late: None,
    })
}

impl Answering {
    fn new(work: AnswerWork, counters: Vec<Arc<FlowCounters>>) -> Self {
        let most = max_connections(work.outstanding, counters.len());
        Self {
            work,
            times: vec![(None, None); counters.len()],
            counters,
            block: vec![0; HEADER_BYTES + work.request_bytes + 1],
            response: vec![0; work.response_bytes.max(HEADER_BYTES)],
            errors: BTreeMap::new(),
            connections: (0..most).map(|_| None).collect(),
            idle: (0..most).rev().collect(),
            waiting: VecDeque::new(),
            starved: false,
        }
    }

    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        for _ in 0..PER_TURN {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) {
                        self.starve(&error);
                    }
                    return Ok(());
                }
            };
            self.starved = false;
            stream.set_nonblocking(true)?;
            // Fails on a connection that its client has reset; reading it shows that.
            let _ = stream.set_nodelay(true);
            if self.idle.is_empty() {
                self.drop_oldest();
            }
            let Some(index) = self.idle.pop() else { return Ok(()) };
            let now = monotonic_ns();
            self.connections[index] = Some(Connection::new(stream, now));
            self.waiting.push_back((index, now));
            // The request is often here already: most connections never enter the poll.
            if self.serve_once(index, now) {
                if let Some(connection) = &self.connections[index] {
                    poll.add(&connection.stream, index as u64, connection.interest(self.work))?;
                }
            }
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, poll: &Poll) {
        if self.serve_once(index, monotonic_ns()) {
            if let Some(connection) = &self.connections[index] {
                if connection.interest(self.work) == Interest::Write {
                    // The kernel may only lack memory; the client's timeout ends the transaction then.
                    let _ = poll.modify(&connection.stream, index as u64, Interest::Write);
                }
            }
        }
    }

    /// Reads and answers one connection; returns whether it remains open.
    fn serve_once(&mut self, index: usize, now: u64) -> bool {
        let Some(connection) = &mut self.connections[index] else { return false };
        let served = connection.serve(&mut self.block, &self.response, self.work, self.counters.len());
        // A stranger's connection is no part of the test, and neither are its errors.
        let flow = connection.flow;
        match (served, flow) {
            (Ok(turn), Some(flow)) => {
                let counters = &self.counters[flow];
                if turn.has_request {
                    counters.received(self.work.request_bytes as u64, 1);
                }
                if turn.written_bytes > 0 {
                    // Bytes count at once: they bound what a session may send, and a response may be long.
                    counters.sent(turn.written_bytes as u64, turn.is_answered.into());
                }
                if !turn.is_answered {
                    if turn.written_bytes > 0 {
                        connection.since_ns = now;
                        self.waiting.push_back((index, now));
                        self.forget_ended();
                    }
                    return true;
                }
                let (start_ns, end_ns) = &mut self.times[flow];
                start_ns.get_or_insert(now);
                *end_ns = Some(now);
            }
            (Ok(_), None) => return true,
            // A client that checks the port, or that has given up, closes without a request.
            (Err(error), Some(_)) if error.kind() != io::ErrorKind::UnexpectedEof => {
                count_error(&mut self.errors, error_code(&error));
            }
            (Err(_), _) => {}
        }
        self.close(index);
        false
    }

    /// Closes the connection that has waited longest, for its descriptor. Without one the port rests: its listener
    /// remains readable, and nothing else is served.
    fn starve(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.starved, true) {
            count_error(&mut self.errors, error_code(error));
        }
        if self.waiting.is_empty() {
            std::thread::sleep(STARVED_REST);
        } else {
            self.drop_oldest();
        }
    }

    fn answer_datagrams(&mut self, socket: &UdpSocket, client: IpAddr) {
        for _ in 0..PER_TURN {
            let (read, from) = match socket.recv_from(&mut self.block) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An earlier response was refused; the client counts it as lost.
                Err(_) => continue,
            };
            let Ok(header) = Header::parse(&self.block[..read]) else { continue };
            let flow = header.flow as usize;
            let is_request = (header.kind, header.token) == (HeaderKind::Request, self.work.token);
            if !is_request || flow >= self.counters.len() || from.ip() != client || read != self.work.request_bytes {
                continue;
            }
            Header { kind: HeaderKind::Response, ..header }.write(&mut self.response);
            let now = monotonic_ns();
            self.counters[flow].received(read as u64, 1);
            self.times[flow].0.get_or_insert(now);
            self.times[flow].1 = Some(now);
            match socket.send_to(&self.response[..self.work.response_bytes], from) {
                Ok(sent) => self.counters[flow].sent(sent as u64, 1),
                Err(error) => count_error(&mut self.errors, error_code(&error)),
            }
        }
    }

    fn close(&mut self, index: usize) {
        if self.connections[index].take().is_some() {
            self.idle.push(index);
        }
        self.forget_ended();
    }

    /// Removes entries of connections that have ended or gone on.
    fn forget_ended(&mut self) {
        let connections = &self.connections;
        // They mostly end in their order; behind one that does not, the others must not pile up.
        if self.waiting.len() > 2 * connections.len() {
            self.waiting.retain(|(index, since_ns)| holds(connections, *index, *since_ns));
        }
        while self.waiting.front().is_some_and(|(index, since_ns)| !holds(connections, *index, *since_ns)) {
            self.waiting.pop_front();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((index, _)) = self.waiting.front().copied() {
            self.close(index);
        }
    }

    fn drop_silent(&mut self, now: u64) {
        while let Some((index, since_ns)) = self.waiting.front().copied() {
            if now < since_ns.saturating_add(PATIENCE_NS) {
                break;
            }
            if self.connections[index].as_ref().is_some_and(|connection| connection.flow.is_some()) {
                count_error(&mut self.errors, "timeout");
            }
            self.close(index);
        }
    }

    fn reports(&self) -> Vec<SideReport> {
        let flows = (0..).zip(self.counters.iter().zip(&self.times));
        let reports = flows.map(|(flow, (counters, (start_ns, end_ns)))| SideReport {
            flow,
            start_ns: *start_ns,
            end_ns: *end_ns,
            sent_bytes: counters.sent_bytes(),
            received_bytes: counters.received_bytes(),
            sent_units: Some(counters.sent_units()),
            received_units: Some(counters.received_units()),
            ..SideReport::default()
        });
        reports.collect()
    }
}

fn holds(connections: &[Option<Connection>], index: usize, since_ns: u64) -> bool {
    connections[index].as_ref().is_some_and(|connection| connection.since_ns == since_ns)
}

impl Connection {
    fn new(stream: TcpStream, now: u64) -> Self {
        Self { stream, since_ns: now, preface: [0; HEADER_BYTES], received: 0, written: 0, flow: None }
    }

    /// What it waits for.
    fn interest(&self, work: AnswerWork) -> Interest {
        if self.received < HEADER_BYTES + work.request_bytes {
            Interest::Read
        } else {
            Interest::Write
        }
    }

    /// Reads once, and writes up to a turn's bytes.
    fn serve(&mut self, block: &mut [u8], response: &[u8], work: AnswerWork, flows: usize) -> io::Result<Turn> {
        let mut turn = Turn::default();
        let whole = HEADER_BYTES + work.request_bytes;
        if self.received < whole {
            self.read(&mut block[..=whole - self.received])?;
            if self.received >= HEADER_BYTES && self.flow.is_none() {
                self.flow = Some(named_flow(&self.preface, work.token, flows)?);
            }
            if self.received > whole {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.received < whole {
                return Ok(turn);
            }
            turn.has_request = true;
        }
        let before = self.written;
        let last = work.response_bytes.min(before + BYTES_PER_TURN);
        while self.written < last {
            match self.stream.write(&response[self.written..last]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // What was written counts first; the next attempt fails again.
                Err(_) if self.written > before => break,
                Err(error) => return Err(error),
            }
        }
        turn.written_bytes = self.written - before;
        turn.is_answered = self.written == work.response_bytes;
        Ok(turn)
    }

    /// Reads once, if there is anything to read.
    fn read(&mut self, block: &mut [u8]) -> io::Result<()> {
        let read = match self.stream.read(block) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => return Err(error),
        };
        let missing = &mut self.preface[self.received.min(HEADER_BYTES)..];
        let wanted = missing.len().min(read);
        missing[..wanted].copy_from_slice(&block[..wanted]);
        self.received += read;
        Ok(())
    }
}

/// Returns the flow that a preface names, if it shows the session's token.
fn named_flow(preface: &[u8], token: u64, flows: usize) -> io::Result<usize> {
    match Header::parse(preface) {
        Ok(header) if header.kind == HeaderKind::Stream && header.token == token && (header.flow as usize) < flows => {
            Ok(header.flow as usize)
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
