//! The HTTP responder's loop: threads that accept for themselves, each with a poll over its connections. Owns sockets;
//! what is answered is `leadline_http::ServerConnection`'s business. No allocation per request. Refuses connections beyond
//! a number, and parts from those that fall silent, so that a peer cannot use up the host's descriptors.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// What peers may take up.
#[derive(Clone, Copy)]
struct Limits {
    /// Connections open at once, over all threads.
    connections: usize,
    /// How long a connection may be silent that is owed nothing, ns.
    idle_ns: u64,
    /// How long a peer may leave an answer untaken, ns.
    stalled_ns: u64,
}

const LIMITS: Limits = Limits { connections: 65_536, idle_ns: 60_000_000_000, stalled_ns: 600_000_000_000 };
/// Silent connections are looked for this many times while one becomes overdue.
const SWEEPS: u64 = 4;

/// Answer on these listeners until the gate stops; returns at once.
pub fn listen(listeners: Vec<TcpListener>, gate: Arc<Gate>) -> io::Result<()> {
    listen_within(LIMITS, listeners, gate)
}

fn listen_within(limits: Limits, listeners: Vec<TcpListener>, gate: Arc<Gate>) -> io::Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    for (index, responder) in Responder::group(threads).into_iter().enumerate() {
        let listeners = listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
        let mut service = Service::new(listeners, responder, limits, Arc::clone(&open))?;
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
    limits: Limits,
    /// How many connections are open on all threads.
    open: Arc<AtomicUsize>,
    /// When this turn began, ns.
    now_ns: u64,
    next_sweep_ns: u64,
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
    /// The turn in which it last moved, ns.
    seen_ns: u64,
    /// Once the last answer is out: how much more input is taken and dropped.
    linger_bytes: Option<usize>,
}

/// Tokens from here on are listeners.
const LISTENERS: u64 = 1 << 32;

impl Service {
    fn new(
        listeners: Vec<TcpListener>,
        responder: Responder,
        limits: Limits,
        open: Arc<AtomicUsize>,
    ) -> io::Result<Self> {
        let poll = Poll::new(BATCH)?;
        for (token, listener) in (LISTENERS..).zip(&listeners) {
            listener.set_nonblocking(true)?;
            poll.add(listener, token, Interest::Read)?;
        }
        Ok(Self {
            listeners,
            rest_until_ns: None,
            responder,
            limits,
            open,
            now_ns: 0,
            next_sweep_ns: 0,
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
        self.now_ns = now_ns;
        if now_ns >= self.next_sweep_ns {
            self.sweep();
        }
        self.ready.clear();
        self.ready.extend(self.poll.wait(Some(self.next_sweep_ns.min(now_ns + TURN_NS)))?);
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
                if self.open.load(Ordering::Relaxed) >= self.limits.connections {
                    self.responder.refused();
                    return Ok(());
                }
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
        let seen_ns = self.now_ns;
        let connection = Connection { socket, machine, watches_write: false, seen_ns, linger_bytes: None };
        self.connections[index] = Some(connection);
        // Threads that accept at the same moment may pass the limit by one each, which is no harm.
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn close(&mut self, index: usize) {
        self.connections[index] = None;
        self.free.push(index);
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes what has been silent for too long.
    fn sweep(&mut self) {
        self.next_sweep_ns = self.now_ns + self.limits.idle_ns / SWEEPS;
        for index in 0..self.connections.len() {
            let Some(connection) = &self.connections[index] else { continue };
            let owed = connection.machine.has_output();
            let allowed_ns = if owed { self.limits.stalled_ns } else { self.limits.idle_ns };
            if self.now_ns.saturating_sub(connection.seen_ns) > allowed_ns {
                self.responder.expired();
                self.close(index);
            }
        }
    }

    fn serve(&mut self, ready: Ready) {
        let index = ready.token as usize;
        let Some(connection) = &mut self.connections[index] else { return };
        connection.seen_ns = self.now_ns;
        let outcome = connection.advance(&self.responder, &mut self.buffer).and_then(|goes_on| {
            if goes_on {
                connection.watch(&self.poll, index as u64)?;
            }
            Ok(goes_on)
        });
        if !matches!(outcome, Ok(true)) {
            self.close(index);
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpStream};
    use std::sync::Arc;

    use leadline_sys::net;

    use super::{listen_within, Limits, LIMITS};
    use crate::gate::Gate;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    fn responder(limits: Limits) -> (SocketAddr, Arc<Gate>) {
        let listener = net::listen_tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Arc::new(Gate::default());
        listen_within(limits, vec![listener], Arc::clone(&gate)).unwrap();
        (address, gate)
    }

    /// Whether a request on this connection is answered.
    fn is_answered(mut socket: &TcpStream) -> bool {
        socket.write_all(REQUEST).is_ok() && matches!(socket.read(&mut [0; 4096]), Ok(read) if read > 0)
    }

    #[test]
    fn connections_beyond_the_limit_are_closed_and_there_is_room_again_after() {
        let (address, gate) = responder(Limits { connections: 2, ..LIMITS });
        let connect = || TcpStream::connect(address).unwrap();
        let (first, second) = (connect(), connect());
        assert!(is_answered(&first) && is_answered(&second));
        assert!(!is_answered(&connect()));
        assert!(is_answered(&first), "those inside go on");
        drop(first);
        while !is_answered(&connect()) {}
        gate.stop();
    }

    #[test]
    fn a_silent_connection_is_closed() {
        let (address, gate) = responder(Limits { idle_ns: 10_000_000, ..LIMITS });
        let mut silent = TcpStream::connect(address).unwrap();
        assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "it was closed, and not reset");
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(&REQUEST[..9]).unwrap();
        assert!(half.read(&mut [0; 16]).map_or(true, |read| read == 0), "half a request does not hold it");
        gate.stop();
    }
}
