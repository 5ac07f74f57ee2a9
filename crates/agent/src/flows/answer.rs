//! The server's side of request-response: reads a request and writes its response at once.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_transport::{Header, HeaderKind, SideReport, HEADER_BYTES};

use super::datagram::answer_hello;
use super::{count_error, Span, WorkerReport, DRAIN_NS, TURN_NS};
use crate::control_signal::ControlSignal;
use crate::events::error_code;
use crate::metering::{FlowCounters, ThreadMeter};

/// Datagrams that one flow answers before the next flow's turn.
const DATAGRAMS_PER_TURN: usize = 64;
/// Bytes that one flow sends before the next flow's turn.
pub const BYTES_PER_TURN: usize = 1 << 20;

/// A flow's socket.
pub enum AnswerSocket {
    /// One connection per flow: requests are separated by their length.
    Tcp(TcpStream),
    /// One connected socket per flow: requests carry a header.
    Udp(UdpSocket),
}

/// One flow with requests to answer.
pub struct AnswerFlow {
    /// Its number within the session.
    pub id: u32,
    /// Open, and introduced to the session.
    pub socket: AnswerSocket,
    /// Counters that the reporter reads.
    pub counters: Arc<FlowCounters>,
}

/// The parameters that all flows of a worker share.
#[derive(Clone, Copy, Debug)]
pub struct AnswerWork {
    /// The session's token.
    pub token: u64,
    /// Request payload, bytes.
    pub request_bytes: usize,
    /// Response payload, bytes.
    pub response_bytes: usize,
    /// Outstanding requests per flow.
    pub outstanding: usize,
}

/// The size of the buffers for many small requests or responses, bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Answers requests until the client has closed every connection, or the signal stops the worker.
pub fn drive(
    flows: Vec<AnswerFlow>,
    work: AnswerWork,
    span: Span,
    signal: &ControlSignal,
    thread: &str,
) -> io::Result<WorkerReport> {
    let mut poll = Poll::new(flows.len().min(256))?;
    for (index, flow) in flows.iter().enumerate() {
        match &flow.socket {
            AnswerSocket::Tcp(stream) => stream.set_nonblocking(true)?,
            AnswerSocket::Udp(socket) => socket.set_nonblocking(true)?,
        }
        poll.add(flow, index as u64, Interest::Read)?;
    }
    let mut flows: Vec<Answering> = flows.into_iter().map(Answering::new).collect();
    let many = |bytes: usize| bytes.saturating_mul(work.outstanding).min(BLOCK_BYTES.max(bytes));
    let mut block = vec![0; many(work.request_bytes).max(HEADER_BYTES) + 1];
    let mut response = vec![0; many(work.response_bytes).max(HEADER_BYTES)];
    let mut errors = BTreeMap::new();
    // The time before the start does not count; a request may arrive slightly early, because the clocks differ.
    while !signal.stopped() && monotonic_ns() < span.at_ns {
        if poll.wait(Some(span.at_ns.min(monotonic_ns() + TURN_NS)))?.next().is_some() {
            break;
        }
    }
    let mut ready: Vec<Ready> = Vec::new();
    let mut meter = ThreadMeter::begin(thread, monotonic_ns());
    while !signal.stopped() && monotonic_ns() < span.end_ns + DRAIN_NS && flows.iter().any(|flow| flow.open) {
        ready.clear();
        ready.extend(poll.wait(Some(monotonic_ns() + TURN_NS))?);
        // The wait for the session's end after the last response does not count.
        if ready.is_empty() {
            meter.rest(monotonic_ns());
        }
        for source in &ready {
            let flow = &mut flows[source.token as usize];
            let answered_ns = flow.end_ns;
            if let Err(error) = flow.serve(&mut block, &mut response, work) {
                if error.kind() != io::ErrorKind::UnexpectedEof {
                    count_error(&mut errors, error_code(&error));
                }
                flow.open = false;
                poll.remove(&flow.flow)?;
            } else if flow.waits_for_room != (flow.owed > 0) {
                flow.waits_for_room = flow.owed > 0;
                let interest = if flow.waits_for_room { Interest::Write } else { Interest::Read };
                poll.modify(&flow.flow, source.token, interest)?;
            }
            if flow.end_ns != answered_ns {
                meter.go_on();
            }
        }
    }
    Ok(WorkerReport {
        thread: meter.end(monotonic_ns()),
        flows: flows.iter().map(Answering::report).collect(),
        pushback: 0,
        errors,
        late: None,
    })
}

impl AsFd for AnswerFlow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            AnswerSocket::Tcp(stream) => stream.as_fd(),
            AnswerSocket::Udp(socket) => socket.as_fd(),
        }
    }
}

struct Answering {
    flow: AnswerFlow,
    open: bool,
    /// Bytes of a request that has not arrived completely.
    partial: usize,
    /// Bytes of responses for which the socket had no room: nothing is read before they are sent.
    owed: usize,
    /// Whether the poll waits for room in the socket.
    waits_for_room: bool,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
}

impl Answering {
    fn new(flow: AnswerFlow) -> Self {
        Self { flow, open: true, partial: 0, owed: 0, waits_for_room: false, start_ns: None, end_ns: None }
    }

    /// Reads and answers requests; `UnexpectedEof` is the client's orderly end.
    fn serve(&mut self, block: &mut [u8], response: &mut [u8], work: AnswerWork) -> io::Result<()> {
        let (sent_bytes, answered) = match &self.flow.socket {
            AnswerSocket::Udp(socket) => {
                let mut answered = 0;
                // One outstanding request needs one call.
                for _ in 0..work.outstanding.min(DATAGRAMS_PER_TURN) {
                    match answer_datagram(socket, block, response, work)? {
                        Some(sent) => answered += sent,
                        None => break,
                    }
                }
                (answered * work.response_bytes, answered)
            }
            AnswerSocket::Tcp(stream) => {
                if self.owed == 0 {
                    let (read, requests) = read_requests(stream, block, self.partial, work.request_bytes)?;
                    self.partial = (self.partial + read) % work.request_bytes;
                    self.owed = requests * work.response_bytes;
                    let units = requests as u64;
                    self.flow.counters.received(units * work.request_bytes as u64, units);
                }
                let before = self.owed;
                self.owed = write_owed(stream, response, self.owed)?;
                // A response counts when its last byte was written.
                let answered = before.div_ceil(work.response_bytes) - self.owed.div_ceil(work.response_bytes);
                (before - self.owed, answered)
            }
        };
        if sent_bytes > 0 {
            // Bytes count at once: they bound what a session may send, and a response may be long.
            self.flow.counters.sent(sent_bytes as u64, answered as u64);
        }
        if answered > 0 {
            let now = monotonic_ns();
            self.start_ns.get_or_insert(now);
            self.end_ns = Some(now);
            let units = answered as u64;
            if matches!(self.flow.socket, AnswerSocket::Udp(_)) {
                self.flow.counters.received(units * work.request_bytes as u64, units);
            }
        }
        Ok(())
    }

    fn report(&self) -> SideReport {
        SideReport {
            flow: self.flow.id,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            sent_bytes: self.flow.counters.sent_bytes(),
            received_bytes: self.flow.counters.received_bytes(),
            sent_units: Some(self.flow.counters.sent_units()),
            received_units: Some(self.flow.counters.received_units()),
            ..SideReport::default()
        }
    }
}

/// Reads once; returns the bytes, and how many requests they complete.
fn read_requests(mut stream: &TcpStream, block: &mut [u8], partial: usize, size: usize) -> io::Result<(usize, usize)> {
    match stream.read(block) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => Ok((read, (partial + read) / size)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok((0, 0)),
        Err(error) => Err(error),
    }
}

/// Writes outstanding bytes while the socket has room, up to a turn's; returns the rest. Between turns the signal stops the
/// worker, and the session checks its rate.
fn write_owed(mut stream: &TcpStream, response: &[u8], mut owed: usize) -> io::Result<usize> {
    let least_owed = owed.saturating_sub(BYTES_PER_TURN);
    while owed > least_owed {
        let piece = &response[..response.len().min(owed - least_owed)];
        match stream.write(piece) {
            Ok(count) => {
                owed -= count;
                if count < piece.len() {
                    return Ok(owed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(owed),
            Err(error) => return Err(error),
        }
    }
    Ok(owed)
}

/// Answers one datagram; returns the number of requests answered, or `None` if there is no datagram.
fn answer_datagram(
    socket: &UdpSocket,
    block: &mut [u8],
    response: &mut [u8],
    work: AnswerWork,
) -> io::Result<Option<usize>> {
    let read = match socket.recv(block) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        // An earlier response was refused; the client counts it as lost.
        Err(_) => return Ok(Some(0)),
    };
    let Ok(header) = Header::parse(&block[..read]) else { return Ok(Some(0)) };
    if header.token != work.token {
        return Ok(Some(0));
    }
    match header.kind {
        HeaderKind::Hello => answer_hello(socket, header),
        HeaderKind::Request if read == work.request_bytes => {
            let response = &mut response[..work.response_bytes];
            Header { kind: HeaderKind::Response, ..header }.write(response);
            return Ok(Some(socket.send(response).map_or(0, |_| 1)));
        }
        _ => {}
    }
    Ok(Some(0))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connection_that_always_has_room_waits_for_its_next_turn() {
        const OWED: usize = 1 << 30;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let reader = std::thread::spawn(move || io::copy(&mut far, &mut io::sink()).unwrap());
        // A blocking socket has room whenever it returns.
        let owed = write_owed(&near, &[0; 4096], OWED).unwrap();
        assert_eq!(owed, OWED - BYTES_PER_TURN);
        assert_eq!(write_owed(&near, &[0; 4096], 5000).unwrap(), 0);
        drop(near);
        assert_eq!(reader.join().unwrap(), BYTES_PER_TURN as u64 + 5000);
    }
}
