//! The server's side of transactions that have a connection, or a source port, each. The session has a port of its own,
//! so that one thread accepts and answers: passing each connection on from another thread would be part of what is
//! measured. A connection shows the session's token first, and a datagram has it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::tcp;
use leadline_transport::{Header, HeaderKind, SideReport, HEADER_BYTES};
use leadline_wire::Protocol;

use super::answer::AnswerWork;
use super::{count_error, Span, WorkerReport, DRAIN_NS, TURN_NS};
use crate::control_signal::ControlSignal;
use crate::events::error_code;
use crate::metering::{FlowCounters, ThreadMeter};

/// Connections that are accepted, or datagrams that are answered, before the others' turn.
const PER_TURN: usize = 64;
/// How long a connection may take to send its request, ns.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Connections beyond the client's outstanding ones: those whose client has given up.
const SPARE_CONNECTIONS: usize = 64;
const LISTENER: u64 = u64::MAX;

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
    accepted_ns: u64,
    preface: [u8; HEADER_BYTES],
    /// Bytes received: first the preface, then the request.
    received: usize,
    /// Bytes of the response that were written.
    written: usize,
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
    /// The connections in the order of their acceptance, by number and time; some have ended.
    accepted: VecDeque<(usize, u64)>,
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
        // A client may open the next connection before this end has closed the last.
        let most = 2 * work.outstanding * counters.len() + SPARE_CONNECTIONS;
        Self {
            work,
            times: vec![(None, None); counters.len()],
            counters,
            block: vec![0; HEADER_BYTES + work.request_bytes + 1],
            response: vec![0; work.response_bytes.max(HEADER_BYTES)],
            errors: BTreeMap::new(),
            connections: (0..most).map(|_| None).collect(),
            idle: (0..most).rev().collect(),
            accepted: VecDeque::new(),
        }
    }

    fn accept(&mut self, listener: &TcpListener, poll: &Poll) -> io::Result<()> {
        for _ in 0..PER_TURN {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) {
                        count_error(&mut self.errors, error_code(&error));
                        self.drop_oldest();
                    }
                    return Ok(());
                }
            };
            stream.set_nonblocking(true)?;
            // Fails on a connection that its client has reset; reading it shows that.
            let _ = stream.set_nodelay(true);
            if self.idle.is_empty() {
                self.drop_oldest();
            }
            let Some(index) = self.idle.pop() else { return Ok(()) };
            let now = monotonic_ns();
            let preface = [0; HEADER_BYTES];
            let connection = Connection { stream, accepted_ns: now, preface, received: 0, written: 0 };
            self.connections[index] = Some(connection);
            self.accepted.push_back((index, now));
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
        match connection.serve(&mut self.block, &self.response, self.work, self.counters.len()) {
            Ok(None) => return true,
            Ok(Some(flow)) => {
                let counters = &self.counters[flow];
                counters.received(self.work.request_bytes as u64, 1);
                counters.sent(self.work.response_bytes as u64, 1);
                let (start_ns, end_ns) = &mut self.times[flow];
                start_ns.get_or_insert(now);
                *end_ns = Some(now);
            }
            // A client that checks the port, or that has given up, closes without a request.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => count_error(&mut self.errors, error_code(&error)),
        }
        self.close(index);
        false
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
        // Connections mostly end in their order; behind one that does not, the others must not pile up.
        if self.accepted.len() > 2 * self.connections.len() {
            let connections = &self.connections;
            self.accepted.retain(|(index, accepted_ns)| holds(connections, *index, *accepted_ns));
        }
        while self.accepted.front().is_some_and(|(index, accepted_ns)| !holds(&self.connections, *index, *accepted_ns))
        {
            self.accepted.pop_front();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((index, _)) = self.accepted.front().copied() {
            self.close(index);
        }
    }

    fn drop_silent(&mut self, now: u64) {
        while let Some((index, accepted_ns)) = self.accepted.front().copied() {
            if now < accepted_ns.saturating_add(PATIENCE_NS) {
                break;
            }
            self.close(index);
            count_error(&mut self.errors, "timeout");
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

fn holds(connections: &[Option<Connection>], index: usize, accepted_ns: u64) -> bool {
    connections[index].as_ref().is_some_and(|connection| connection.accepted_ns == accepted_ns)
}

impl Connection {
    /// What it waits for.
    fn interest(&self, work: AnswerWork) -> Interest {
        if self.received < HEADER_BYTES + work.request_bytes {
            Interest::Read
        } else {
            Interest::Write
        }
    }

    /// Reads and writes once; returns the flow whose transaction has ended.
    fn serve(
        &mut self,
        block: &mut [u8],
        response: &[u8],
        work: AnswerWork,
        flows: usize,
    ) -> io::Result<Option<usize>> {
        let whole = HEADER_BYTES + work.request_bytes;
        if self.received < whole {
            let room = whole - self.received;
            match self.stream.read(&mut block[..=room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    let missing = &mut self.preface[self.received.min(HEADER_BYTES)..];
                    let wanted = missing.len().min(read);
                    missing[..wanted].copy_from_slice(&block[..wanted]);
                    self.received += read;
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            if self.received > whole {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.received >= HEADER_BYTES {
                self.flow(work.token, flows)?;
            }
            if self.received < whole {
                return Ok(None);
            }
        }
        while self.written < work.response_bytes {
            match self.stream.write(&response[self.written..work.response_bytes]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.flow(work.token, flows).map(Some)
    }

    fn flow(&self, token: u64, flows: usize) -> io::Result<usize> {
        match Header::parse(&self.preface) {
            Ok(header)
                if header.kind == HeaderKind::Stream && header.token == token && (header.flow as usize) < flows =>
            {
                Ok(header.flow as usize)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WORK: AnswerWork = AnswerWork { token: 9, request_bytes: 10, response_bytes: 20, outstanding: 1 };
    const UDP_WORK: AnswerWork = AnswerWork { request_bytes: HEADER_BYTES, response_bytes: 60, ..WORK };
    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Runs a server while `client` talks to its port; returns the server's report.
    fn served(protocol: Protocol, client: impl FnOnce(SocketAddr)) -> WorkerReport {
        let port = ConnectPort::open(LOCAL, protocol, LOCAL).unwrap();
        let at = SocketAddr::new(LOCAL, port.number().unwrap());
        let signal = Arc::new(ControlSignal::default());
        let stop = Arc::clone(&signal);
        let now = monotonic_ns();
        let span = Span { at_ns: now, end_ns: now + 60_000_000_000 };
        let work = if protocol == Protocol::Udp { UDP_WORK } else { WORK };
        let server = std::thread::spawn(move || drive(port, work, vec![Arc::default()], span, &signal).unwrap());
        client(at);
        stop.stop();
        server.join().unwrap()
    }

    fn request(kind: HeaderKind, token: u64, flow: u32, bytes: usize) -> Vec<u8> {
        let mut request = vec![0; HEADER_BYTES + bytes];
        Header { kind, token, flow, sequence: 5, sent_ns: 0 }.write(&mut request);
        request
    }

    fn connected(at: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends these pieces over a connection of their own; returns the whole answer, empty if the server closed it.
    fn exchange(at: SocketAddr, pieces: &[&[u8]]) -> Vec<u8> {
        let mut stream = connected(at);
        let mut answer = Vec::new();
        for piece in pieces {
            // The server may have closed the connection already.
            let _ = stream.write_all(piece);
        }
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    #[test]
    fn connection_is_answered_once_and_closed() {
        let report = served(Protocol::Tcp, |at| {
            let whole = request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes);
            assert_eq!(exchange(at, &[&whole]).len(), WORK.response_bytes);
            let bytes: Vec<&[u8]> = whole.chunks(1).collect();
            assert_eq!(exchange(at, &bytes).len(), WORK.response_bytes);
        });
        let row = &report.flows[0];
        assert_eq!((row.received_units, row.sent_units), (Some(2), Some(2)));
        assert_eq!((row.received_bytes, row.sent_bytes), (20, 40));
        assert!(report.errors.is_empty());
    }

    #[test]
    fn request_may_arrive_in_two_pieces_of_any_length() {
        let listener = TcpListener::bind((LOCAL, 0)).unwrap();
        let whole = request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes);
        for cut in 1..whole.len() {
            let mut client = connected(listener.local_addr().unwrap());
            // It blocks, so that each call reads one piece.
            let (stream, _) = listener.accept().unwrap();
            let preface = [0; HEADER_BYTES];
            let mut connection = Connection { stream, accepted_ns: 0, preface, received: 0, written: 0 };
            let (mut block, response) = (vec![0; whole.len() + 1], [0; 20]);
            client.write_all(&whole[..cut]).unwrap();
            assert_eq!(connection.serve(&mut block, &response, WORK, 1).unwrap(), None, "cut at {cut}");
            assert_eq!(connection.received, cut);
            client.write_all(&whole[cut..]).unwrap();
            assert_eq!(connection.serve(&mut block, &response, WORK, 1).unwrap(), Some(0), "cut at {cut}");
        }
    }

    #[test]
    fn strangers_and_liars_get_no_answer_and_delay_no_client() {
        let report = served(Protocol::Tcp, |at| {
            // More silent connections than there is room for: the oldest make room.
            let silent: Vec<TcpStream> = (0..200).map(|_| connected(at)).collect();
            for bad in [
                request(HeaderKind::Stream, 8, 0, WORK.request_bytes),
                request(HeaderKind::Stream, WORK.token, 1, WORK.request_bytes),
                request(HeaderKind::Request, WORK.token, 0, WORK.request_bytes),
                request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes + 1),
                vec![b'x'; 4096],
            ] {
                assert_eq!(exchange(at, &[&bad]), b"", "{bad:?}");
            }
            drop(connected(at));
            let whole = request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes);
            assert_eq!(exchange(at, &[&whole]).len(), WORK.response_bytes);
            drop(silent);
        });
        assert_eq!(report.flows[0].received_units, Some(1));
    }

    #[test]
    fn only_whole_requests_of_the_session_get_datagrams() {
        let report = served(Protocol::Udp, |at| {
            let socket = UdpSocket::bind((LOCAL, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            for bad in [
                request(HeaderKind::Request, 8, 0, 0),
                request(HeaderKind::Request, WORK.token, 1, 0),
                request(HeaderKind::Data, WORK.token, 0, 0),
                request(HeaderKind::Request, WORK.token, 0, 3),
                vec![0; 4],
            ] {
                socket.send_to(&bad, at).unwrap();
            }
            let mut good = request(HeaderKind::Request, WORK.token, 0, 0);
            good[39] = 77;
            good.truncate(UDP_WORK.request_bytes);
            socket.send_to(&good, at).unwrap();
            let mut answer = [0; 100];
            let read = socket.recv(&mut answer).unwrap();
            let header = Header::parse(&answer[..read]).unwrap();
            assert_eq!((read, header.kind, header.sequence, header.sent_ns), (60, HeaderKind::Response, 5, 77));
        });
        assert_eq!(report.flows[0].received_units, Some(1));
    }
}
