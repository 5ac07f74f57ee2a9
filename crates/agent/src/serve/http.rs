//! The HTTP responder's loop: threads that accept for themselves, each with a poll over its connections. Owns sockets;
//! what is answered is `leadline_http::ServerConnection`'s business. No allocation per request.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use leadline_http::{Responder, ServerConnection, BODY_BLOCK};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll, Ready};

use crate::flows::TURN_NS;
use crate::gate::Gate;

/// More threads than this find nothing to do that the rest of the host would not rather do.
const MOST_THREADS: usize = 16;
/// One read takes at most this much, bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Blocks of a body per system call, and calls per connection and turn.
const BLOCKS_PER_WRITE: usize = 16;
const CALLS_PER_TURN: usize = 8;
/// Ready connections per wait.
const BATCH: usize = 512;
/// What a peer may still send after the last answer, bytes: closing with it unread would reset the answer.
const LINGER_BYTES: usize = 1024 * 1024;
/// Rest from accepting when the host has no descriptors or memory left, ns.
const REST_NS: u64 = 100_000_000;

/// Answer on these listeners until the gate stops; returns at once.
pub fn listen(listeners: Vec<TcpListener>, gate: Arc<Gate>) -> io::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    for (index, responder) in Responder::group(threads).into_iter().enumerate() {
        let listeners = listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
        let mut service = Service::new(listeners, responder)?;
        let gate = Arc::clone(&gate);
        std::thread::Builder::new().name(format!("http-serve-{index}")).spawn(move || {
            // A poll that fails leaves nothing to serve with; clients see their connections close.
            while !gate.stopped() && service.turn().is_ok() {}
        })?;
    }
    Ok(())
}

struct Service {
    listeners: Vec<TcpListener>,
    /// When listeners that rest are watched again, ns.
    rest_until_ns: Option<u64>,
    responder: Responder,
    poll: Poll,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Box<[u8]>,
    ready: Vec<Ready>,
}

struct Connection {
    socket: TcpStream,
    machine: ServerConnection,
    watches_write: bool,
    /// Once the last answer is out: how much more input is taken and dropped.
    linger_bytes: Option<usize>,
}

/// Tokens from here on are listeners.
const LISTENERS: u64 = 1 << 32;

impl Service {
    fn new(listeners: Vec<TcpListener>, responder: Responder) -> io::Result<Self> {
        let poll = Poll::new(BATCH)?;
        for (token, listener) in (LISTENERS..).zip(&listeners) {
            listener.set_nonblocking(true)?;
            poll.add(listener, token, Interest::Read)?;
        }
        Ok(Self {
            listeners,
            rest_until_ns: None,
            responder,
            poll,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            ready: Vec::with_capacity(BATCH),
        })
    }

    fn turn(&mut self) -> io::Result<()> {
        let now_ns = monotonic_ns();
        if self.rest_until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            self.rest_until_ns = None;
            for (token, listener) in (LISTENERS..).zip(&self.listeners) {
                self.poll.add(listener, token, Interest::Read)?;
            }
        }
        self.ready.clear();
        self.ready.extend(self.poll.wait(Some(now_ns + TURN_NS))?);
        for place in 0..self.ready.len() {
            let ready = self.ready[place];
            match ready.token.checked_sub(LISTENERS) {
                Some(listener) => self.accept(listener as usize)?,
                None => self.serve(ready),
            }
        }
        Ok(())
    }

    /// Takes one connection: the other threads, which wake too, get theirs.
    fn accept(&mut self, listener: usize) -> io::Result<()> {
        match self.listeners[listener].accept() {
            Ok((socket, _)) => {
                self.responder.accepted();
                // A connection that fails here is one that its peer has already given up.
                let _ = self.adopt(socket);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::ConnectionAborted | ErrorKind::Interrupted => Ok(()),
                _ => self.rest(),
            },
        }
    }

    /// The host is short of something: accepting again at once would only spin.
    fn rest(&mut self) -> io::Result<()> {
        if self.rest_until_ns.is_none() {
            self.rest_until_ns = Some(monotonic_ns() + REST_NS);
            for listener in &self.listeners {
                self.poll.remove(listener)?;
            }
        }
        Ok(())
    }

    fn adopt(&mut self, socket: TcpStream) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        if let Err(error) = self.poll.add(&socket, index as u64, Interest::Read) {
            self.free.push(index);
            return Err(error);
        }
        let machine = ServerConnection::default();
        self.connections[index] = Some(Connection { socket, machine, watches_write: false, linger_bytes: None });
        Ok(())
    }

    fn serve(&mut self, ready: Ready) {
        let index = ready.token as usize;
        let Some(connection) = &mut self.connections[index] else { return };
        let outcome = connection.advance(&self.responder, &mut self.buffer).and_then(|goes_on| {
            if goes_on {
                connection.watch(&self.poll, index as u64)?;
            }
            Ok(goes_on)
        });
        if !matches!(outcome, Ok(true)) {
            self.connections[index] = None;
            self.free.push(index);
        }
    }
}

impl Connection {
    /// Reads and writes as far as it goes within a turn; says whether the connection goes on.
    fn advance(&mut self, responder: &Responder, buffer: &mut [u8]) -> io::Result<bool> {
        if self.linger_bytes.is_some() {
            return self.linger(buffer);
        }
        for _ in 0..CALLS_PER_TURN {
            if self.machine.has_output() && !self.flush(responder)? {
                return Ok(true);
            }
            if self.machine.is_finished() {
                self.socket.shutdown(Shutdown::Write)?;
                self.linger_bytes = Some(LINGER_BYTES);
                return self.linger(buffer);
            }
            match self.socket.read(buffer) {
                Ok(0) => {
                    self.machine.end_of_input();
                    return Ok(false);
                }
                Ok(read) => {
                    self.machine.receive(responder, &buffer[..read]);
                    if read < buffer.len() && self.machine.has_output() && !self.flush(responder)? {
                        return Ok(true);
                    }
                    if read < buffer.len() && !self.machine.is_finished() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends what waits; says whether all of it has gone.
    fn flush(&mut self, responder: &Responder) -> io::Result<bool> {
        for _ in 0..CALLS_PER_TURN {
            let (head, body_bytes) = self.machine.output();
            let result = if body_bytes == 0 {
                self.socket.write(head)
            } else {
                self.socket.write_vectored(&slices(head, body_bytes))
            };
            match result {
                Ok(bytes) => self.machine.sent(responder, bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if !self.machine.has_output() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes in and drops what the peer sends after the last answer, until it ends.
    fn linger(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.socket.read(buffer) {
            Ok(0) => Ok(false),
            Ok(read) => {
                self.linger_bytes = self.linger_bytes.and_then(|left| left.checked_sub(read));
                Ok(self.linger_bytes.is_some())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn watch(&mut self, poll: &Poll, token: u64) -> io::Result<()> {
        let wants_write = self.machine.has_output();
        if wants_write == self.watches_write {
            return Ok(());
        }
        self.watches_write = wants_write;
        poll.modify(&self.socket, token, if wants_write { Interest::Write } else { Interest::Read })
    }
}

/// A head, then a body's next blocks; empty slices at the end where the body is shorter.
fn slices(head: &[u8], body_bytes: u64) -> [IoSlice<'_>; BLOCKS_PER_WRITE + 1] {
    let mut slices = [IoSlice::new(&[]); BLOCKS_PER_WRITE + 1];
    slices[0] = IoSlice::new(head);
    let mut left = usize::try_from(body_bytes).unwrap_or(usize::MAX);
    for slice in &mut slices[1..] {
        let bytes = left.min(BODY_BLOCK.len());
        *slice = IoSlice::new(&BODY_BLOCK[..bytes]);
        left -= bytes;
    }
    slices
}
