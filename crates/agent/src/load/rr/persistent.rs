//! A flow that makes all of its transactions over one connection or one UDP socket. A connection answers in order;
//! datagrams carry their number.

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Ready};
use leadline_sys::ports;
use leadline_transport::{Answer, Header, HeaderKind, Requester, Step, HEADER_BYTES};

use super::thread_state::{FlowTimes, ThreadState, PAUSE_NS};
use crate::events::error_code;
use crate::metering::FlowCounters;

/// Datagrams that one flow reads before the next flow's turn.
const PER_TURN: u32 = 64;

/// The socket of a flow.
pub enum FlowSocket {
    /// One connection.
    Tcp(TcpStream),
    /// One connected socket.
    Udp(UdpSocket),
}

/// The flow.
pub struct PersistentFlow {
    /// Its number within the session.
    pub id: u32,
    /// Its transactions.
    pub machine: Requester,
    /// Its counters.
    pub counters: Arc<FlowCounters>,
    /// Its first and last events.
    pub times: FlowTimes,
    socket: FlowSocket,
    token: u64,
    is_open: bool,
    /// Bytes of a response that has not arrived completely (TCP).
    partial: usize,
    /// Bytes of requests for which the socket had no room (TCP).
    unwritten: usize,
    watched: Option<Interest>,
    /// No request is sent before this instant, ns, if sending has failed; one that has passed holds nothing back.
    paused_until_ns: Option<u64>,
}

impl PersistentFlow {
    /// Creates a flow over an open socket.
    pub fn new(id: u32, socket: FlowSocket, counters: Arc<FlowCounters>, machine: Requester) -> Self {
        Self {
            id,
            machine,
            counters,
            times: FlowTimes::default(),
            socket,
            token: 0,
            is_open: true,
            partial: 0,
            unwritten: 0,
            watched: None,
            paused_until_ns: None,
        }
    }

    /// Adds the socket to the poll.
    pub fn register(&mut self, token: u64, state: &ThreadState) -> io::Result<()> {
        self.token = token;
        match &self.socket {
            FlowSocket::Tcp(stream) => stream.set_nonblocking(true)?,
            FlowSocket::Udp(socket) => socket.set_nonblocking(true)?,
        }
        if state.spins {
            // Where the kernel refuses it, this thread polls without its help.
            let _ = ports::busy_poll(&self.socket);
        }
        self.watched = Some(Interest::Read);
        state.poll.add(&self.socket, token, Interest::Read)
    }

    /// Whether it has not ended.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Sends what is due and gives up what has timed out; returns when to call again.
    pub fn advance(&mut self, now: u64, state: &mut ThreadState) -> io::Result<Option<u64>> {
        self.expire(now, state);
        let again_ns = if !self.is_open {
            None
        } else if self.unwritten > 0 {
            self.machine.timeout_ns()
        } else if let Some(until_ns) = self.paused_until_ns.filter(|until_ns| now < *until_ns) {
            Some(self.machine.timeout_ns().map_or(until_ns, |timeout_ns| timeout_ns.min(until_ns)))
        } else {
            match self.socket {
                FlowSocket::Tcp(_) => self.send_stream(now, state),
                FlowSocket::Udp(_) => self.send_datagrams(now, state),
            }
        };
        self.watch(state)?;
        Ok(again_ns)
    }

    /// Reads and writes what the socket allows; returns the time after that.
    pub fn on_ready(&mut self, source: Ready, state: &mut ThreadState) -> io::Result<u64> {
        if !self.is_open {
            return Ok(monotonic_ns());
        }
        if source.writable && self.unwritten > 0 {
            self.write_rest(state);
            if self.unwritten == 0 {
                self.machine.handle_room(monotonic_ns());
            }
        }
        if source.readable && self.is_open {
            return Ok(match self.socket {
                FlowSocket::Tcp(_) => self.read_stream(state),
                FlowSocket::Udp(_) => self.read_datagrams(state),
            });
        }
        Ok(monotonic_ns())
    }

    fn expire(&mut self, now: u64, state: &mut ThreadState) {
        while let Some(transaction) = self.machine.handle_time(now) {
            state.given_up(transaction, now);
            state.count_error("timeout");
            // TCP answers in order: without this response the next one cannot arrive either.
            if matches!(self.socket, FlowSocket::Tcp(_)) {
                self.give_up_rest(now, state, "timeout");
                self.machine.fail();
                self.close(now);
            }
        }
    }

    /// Sends the requests that are due, as many as fit with one call.
    fn send_stream(&mut self, now: u64, state: &mut ThreadState) -> Option<u64> {
        loop {
            let most = ((state.requests.len() - HEADER_BYTES) / state.request_bytes) as u64;
            let mut count = 0;
            let step = loop {
                match self.machine.poll(now) {
                    Step::Request { due_ns, .. } if count < most => {
                        state.sent_late(self.machine.handle_sent(due_ns, now));
                        count += 1;
                    }
                    step => break step,
                }
            };
            if count > 0 {
                self.times.start_ns.get_or_insert(now);
                self.unwritten = count as usize * state.request_bytes;
                self.counters.sent(self.unwritten as u64, count);
                self.write_rest(state);
            }
            match step {
                _ if !self.is_open => return None,
                _ if self.unwritten > 0 => return self.machine.timeout_ns(),
                Step::Request { .. } => {}
                Step::AwaitUntil(instant) => return Some(instant),
                Step::Done => {
                    self.close(now);
                    return None;
                }
            }
        }
    }

    fn send_datagrams(&mut self, mut now: u64, state: &mut ThreadState) -> Option<u64> {
        loop {
            match self.machine.poll(now) {
                // The outstanding transactions are waited for at the end, up to their own timeout: leaving them out
                // would make the tail look better.
                Step::AwaitUntil(instant) => return Some(instant),
                Step::Done => {
                    self.close(now);
                    return None;
                }
                Step::Request { sequence, due_ns } => {
                    let FlowSocket::Udp(socket) = &self.socket else { return None };
                    let request = &mut state.requests[HEADER_BYTES..HEADER_BYTES + state.request_bytes];
                    Header { kind: HeaderKind::Request, token: state.token, flow: self.id, sequence, sent_ns: now }
                        .write(request);
                    let sent = socket.send(request);
                    state.sent_late(self.machine.handle_sent(due_ns, now));
                    self.times.start_ns.get_or_insert(now);
                    if let Err(error) = sent {
                        self.end_one(sequence, now, error_code(&error), state);
                        return Some(self.pause(now));
                    }
                    self.counters.sent(state.request_bytes as u64, 1);
                    now = monotonic_ns();
                }
            }
        }
    }

    /// Sends nothing for a while; returns until when, ns.
    fn pause(&mut self, now: u64) -> u64 {
        let until_ns = now + PAUSE_NS;
        self.paused_until_ns = Some(until_ns);
        self.machine.handle_room(until_ns);
        until_ns
    }

    /// Continues requests: their time runs from their first byte.
    fn write_rest(&mut self, state: &mut ThreadState) {
        let FlowSocket::Tcp(stream) = &self.socket else { return };
        let end = state.requests.len();
        match write_some(stream, &state.requests[end - self.unwritten..]) {
            Ok(unwritten) => self.unwritten = unwritten,
            Err(error) => self.fail(error_code(&error), state),
        }
    }

    fn read_stream(&mut self, state: &mut ThreadState) -> u64 {
        let FlowSocket::Tcp(stream) = &self.socket else { return monotonic_ns() };
        let read = (&mut &*stream).read(&mut state.responses);
        let now = monotonic_ns();
        match read {
            Ok(0) => self.fail("closed_early", state),
            Ok(read) => {
                let arrived = self.partial + read;
                self.partial = arrived % state.response_bytes;
                for _ in 0..arrived / state.response_bytes {
                    self.handle_response(now, None, state);
                }
                if self.is_open && self.partial > 0 && self.machine.outstanding() == 0 {
                    self.fail("unasked_answer", state);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => self.fail(error_code(&error), state),
        }
        now
    }

    fn read_datagrams(&mut self, state: &mut ThreadState) -> u64 {
        let mut now = 0;
        for _ in 0..PER_TURN {
            let FlowSocket::Udp(socket) = &self.socket else { return now };
            let read = socket.recv(&mut state.responses);
            now = monotonic_ns();
            match read {
                Ok(read) => match Header::parse(&state.responses[..read]) {
                    Ok(header) if header.kind == HeaderKind::Response && header.token == state.token => {
                        if read == state.response_bytes {
                            self.handle_response(now, Some(header.sequence), state);
                        } else {
                            // The transaction ends: waiting for another answer would hide what came.
                            self.end_one(header.sequence, now, "wrong_length", state);
                        }
                    }
                    // The answer to a repeated hello, or a stranger's.
                    _ => {}
                },
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return now;
                }
                // An earlier request was refused. Which one is unknown: its own timeout would count it again.
                Err(error) => {
                    if let Some(transaction) = self.machine.give_up_oldest(now) {
                        state.given_up(transaction, now);
                    }
                    state.count_error(error_code(&error));
                    self.pause(now);
                    return now;
                }
            }
            if self.machine.outstanding() == 0 {
                return now;
            }
        }
        now
    }

    #[inline]
    fn handle_response(&mut self, now: u64, sequence: Option<u64>, state: &mut ThreadState) {
        match self.machine.handle_response(now, sequence) {
            Answer::Timely(transaction) => {
                state.answered(transaction, now);
                self.counters.received(state.response_bytes as u64, 1);
                self.times.last_ns = Some(now);
            }
            Answer::Unasked if sequence.is_none() && self.is_open => self.fail("unasked_answer", state),
            Answer::Late | Answer::Duplicate | Answer::Unasked => {}
        }
    }

    fn end_one(&mut self, sequence: u64, now: u64, name: &str, state: &mut ThreadState) {
        if let Some(transaction) = self.machine.give_up(sequence, now) {
            state.given_up(transaction, now);
            state.count_error(name);
        }
    }

    /// Ends the flow of a connection, which is useless after an error: each outstanding transaction is one failed
    /// operation.
    fn fail(&mut self, name: &str, state: &mut ThreadState) {
        let now = monotonic_ns();
        if self.machine.outstanding() == 0 {
            state.count_error(name);
        }
        self.give_up_rest(now, state, name);
        self.machine.fail();
        self.close(now);
    }

    fn give_up_rest(&mut self, now: u64, state: &mut ThreadState, name: &str) {
        while let Some(transaction) = self.machine.give_up_oldest(now) {
            state.given_up(transaction, now);
            state.count_error(name);
        }
    }

    fn close(&mut self, now: u64) {
        self.is_open = false;
        self.unwritten = 0;
        self.times.closed_ns.get_or_insert(now);
    }

    /// Makes the poll watch for what this flow waits for.
    #[inline]
    fn watch(&mut self, state: &ThreadState) -> io::Result<()> {
        let interest = match (self.is_open, self.unwritten) {
            (false, _) => None,
            (true, 0) => Some(Interest::Read),
            (true, _) => Some(Interest::ReadWrite),
        };
        if interest != self.watched {
            match interest {
                None => state.poll.remove(&self.socket)?,
                Some(interest) => state.poll.modify(&self.socket, self.token, interest)?,
            }
            self.watched = interest;
        }
        Ok(())
    }
}

/// Writes while there is room; returns the rest.
fn write_some(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<usize> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.len())
}

impl FlowSocket {
    /// The local address and the server's.
    pub fn addresses(&self) -> (Option<String>, Option<String>) {
        let (local, remote) = match self {
            Self::Tcp(stream) => (stream.local_addr(), stream.peer_addr()),
            Self::Udp(socket) => (socket.local_addr(), socket.peer_addr()),
        };
        (local.ok().map(|address| address.to_string()), remote.ok().map(|address| address.to_string()))
    }
}

impl AsFd for FlowSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}
