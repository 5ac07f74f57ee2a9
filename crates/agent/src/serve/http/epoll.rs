//! The responder's loop over epoll, for hosts without io_uring. Reads and writes while the socket is ready, with a
//! limit of calls per connection and turn; no allocation per request.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;

use leadline_http::{Responder, Stream};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll, Ready};

use super::balancer::{AcceptedConnection, Handed, Placement};
use super::table::Connection;
use super::worker::{Worker, WorkerContext};

/// The maximum that one read takes, bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Blocks of a body per system call, and calls per connection and turn.
const BLOCKS_PER_WRITE: usize = 16;
const CALLS_PER_TURN: usize = 8;
/// Ready connections per wait.
const BATCH: usize = 512;

/// The first token of a listener; the last token is the wake socket.
const LISTENERS: u64 = 1 << 32;
const WAKE: u64 = u64::MAX;

/// The events for which a connection's socket is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// None: its responses are not due, and it may not send more.
    Nothing,
    Read,
    Write,
}

/// The loop of one thread.
pub struct EpollWorker {
    worker: Worker<Watch>,
    poll: Poll,
    buffer: Box<[u8]>,
    ready: Vec<Ready>,
}

impl EpollWorker {
    pub fn new(context: WorkerContext) -> io::Result<Self> {
        let poll = Poll::new(BATCH)?;
        for (token, listener) in (LISTENERS..).zip(&context.listeners) {
            listener.socket.set_nonblocking(true)?;
            poll.add(&listener.socket, token, Interest::Read)?;
        }
        context.wake_socket.set_nonblocking(true)?;
        poll.add(&context.wake_socket, WAKE, Interest::Read)?;
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        let most = context.limits.connections;
        Ok(Self { worker: Worker::new(context, most), poll, buffer, ready: Vec::with_capacity(BATCH) })
    }

    /// Serves until the signal stops it, or the poll fails.
    pub fn run(mut self) -> io::Result<()> {
        while !self.worker.context.signal.stopped() {
            if let Err(error) = self.run_once() {
                self.worker.close_all();
                return Err(error);
            }
        }
        Ok(())
    }

    fn run_once(&mut self) -> io::Result<()> {
        let now_ns = monotonic_ns();
        if self.worker.take_accept_resumed(now_ns) {
            for (token, listener) in (LISTENERS..).zip(&self.worker.context.listeners) {
                self.poll.add(&listener.socket, token, Interest::Read)?;
            }
        }
        for index in self.worker.table.overdue(now_ns) {
            self.worker.context.responder.expired();
            self.worker.close(index);
        }
        self.ready.clear();
        self.ready.extend(self.poll.wait(Some(self.worker.wait_until_ns(now_ns)))?);
        let mut now_ns = self.worker.now_after_stall();
        self.fire_timers(now_ns);
        for place in 0..self.ready.len() {
            if self.worker.is_timed() {
                now_ns = self.worker.now_after_stall();
                self.fire_timers(now_ns);
            }
            let ready = self.ready[place];
            match (ready.token, ready.token.checked_sub(LISTENERS)) {
                (WAKE, _) => self.take_handed_over(now_ns),
                (_, Some(listener)) => self.accept(listener as usize, now_ns)?,
                (index, None) => self.serve(index as usize, now_ns),
            }
        }
        Ok(())
    }

    /// Sends the responses that are due.
    fn fire_timers(&mut self, now_ns: u64) {
        while let Some(index) = self.worker.table.pop_due(now_ns) {
            if let Some(connection) = self.worker.table.find(index) {
                connection.peer.wake(&mut self.worker.context.responder, now_ns);
                self.serve(index, now_ns);
            }
        }
    }

    /// Accepts one connection: the other threads, which wake up too, accept theirs.
    fn accept(&mut self, listener: usize, now_ns: u64) -> io::Result<()> {
        let Worker { context, .. } = &self.worker;
        let listener = &context.listeners[listener];
        match listener.socket.accept() {
            Ok((socket, _)) => {
                context.responder.accepted();
                match context.balancer.place(context.own, AcceptedConnection::new(socket, listener.over_tls)) {
                    Placement::Own(accepted) => self.add_connection(accepted, now_ns),
                    Placement::Handed => {}
                    Placement::Refused => context.responder.refused(),
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                _ if self.worker.pause_accepting() => {
                    for listener in &self.worker.context.listeners {
                        self.poll.remove(&listener.socket)?;
                    }
                }
                _ => {}
            },
        }
        Ok(())
    }

    /// Takes connections from other threads, and closes some for others.
    fn take_handed_over(&mut self, now_ns: u64) {
        let mut discarded = [0; 16];
        while matches!((&self.worker.context.wake_socket).read(&mut discarded), Ok(1..)) {}
        for handed in self.worker.context.balancer.take_handed_over(self.worker.context.own) {
            match handed {
                Handed::Connection(accepted) => self.add_connection(accepted, now_ns),
                Handed::CloseIdle(peer, asked) => {
                    for index in self.worker.choose_idle(peer, asked) {
                        self.worker.context.responder.displaced();
                        self.worker.close(index);
                    }
                }
            }
        }
    }

    /// Adds a connection. If this fails, the peer has already closed it.
    fn add_connection(&mut self, accepted: AcceptedConnection, now_ns: u64) {
        let Some(index) = self.worker.admit(accepted, Watch::Nothing, now_ns) else { return };
        let Some(connection) = self.worker.table.find(index) else { return };
        let ready = connection.socket.set_nonblocking(true);
        if ready.and_then(|()| connection.watch(&self.poll, index as u64)).is_err() {
            self.worker.close(index);
        }
    }

    fn serve(&mut self, index: usize, now_ns: u64) {
        let Some(connection) = self.worker.table.find(index) else { return };
        connection.seen_ns = now_ns;
        let advanced = connection.advance(&mut self.worker.context.responder, now_ns, &mut self.buffer);
        let outcome = advanced.and_then(|goes_on| {
            if goes_on {
                connection.watch(&self.poll, index as u64)?;
            }
            Ok(goes_on)
        });
        match outcome {
            Ok(true) if self.worker.is_within_memory(index) => self.worker.table.set_timer(index),
            _ => self.worker.close(index),
        }
    }
}

impl Connection<Watch> {
    /// Reads and writes while possible within a turn; returns whether the connection stays open.
    fn advance(&mut self, responder: &mut Responder, now_ns: u64, buffer: &mut [u8]) -> io::Result<bool> {
        for _ in 0..CALLS_PER_TURN {
            if self.linger_bytes.is_some() {
                return self.drop_input(buffer);
            }
            if self.peer.has_output() && !self.flush(responder, now_ns)? {
                return Ok(true);
            }
            if self.peer.is_finished() {
                self.socket.shutdown(Shutdown::Write)?;
                self.begin_linger();
                continue;
            }
            if !self.peer.wants_input() {
                return Ok(true);
            }
            match self.socket.read(buffer) {
                Ok(0) => self.peer.end_of_input(responder),
                Ok(read) => {
                    self.peer.receive(responder, now_ns, &buffer[..read]);
                    if read < buffer.len() && self.peer.has_output() && !self.flush(responder, now_ns)? {
                        return Ok(true);
                    }
                    if read < buffer.len() && !self.peer.is_finished() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends waiting output; returns whether all of it was sent.
    fn flush(&mut self, responder: &mut Responder, now_ns: u64) -> io::Result<bool> {
        for _ in 0..CALLS_PER_TURN {
            let (out, mut stream) = self.peer.output();
            let result = if self.pacing.is_limited() {
                let piece = if out.is_empty() { stream.next().unwrap_or_default() } else { out };
                match self.pacing.allow(now_ns, piece.len()) {
                    0 => return Ok(false),
                    allowed => self.socket.write(&piece[..allowed]),
                }
            } else if stream.left() == 0 {
                self.socket.write(out)
            } else {
                self.socket.write_vectored(&slices(out, stream))
            };
            match result {
                Ok(bytes) => {
                    self.pacing.spend(bytes);
                    self.peer.sent(responder, now_ns, bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if !self.peer.has_output() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads and discards the peer's data after the last response, until the peer closes.
    fn drop_input(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.socket.read(buffer) {
            Ok(0) => Ok(false),
            Ok(read) => Ok(self.linger(read)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn watch(&mut self, poll: &Poll, token: u64) -> io::Result<()> {
        let desired = match () {
            () if self.pacing.waits_until_ns().is_some() => Watch::Nothing,
            () if self.peer.has_output() => Watch::Write,
            () if self.linger_bytes.is_some() || self.peer.is_finished() || self.peer.wants_input() => Watch::Read,
            () => Watch::Nothing,
        };
        let before = std::mem::replace(&mut self.engine, desired);
        let interest = if desired == Watch::Write { Interest::Write } else { Interest::Read };
        match (before, desired) {
            _ if before == desired => Ok(()),
            // A descriptor in a poll always reports errors, again and again.
            (_, Watch::Nothing) => poll.remove(&self.socket),
            (Watch::Nothing, _) => poll.add(&self.socket, token, interest),
            _ => poll.modify(&self.socket, token, interest),
        }
    }
}

/// Returns a head and the next blocks of a body; the last slices are empty if the body is shorter.
fn slices(head: &[u8], stream: Stream) -> [IoSlice<'_>; BLOCKS_PER_WRITE + 1] {
    let mut slices = [IoSlice::new(&[]); BLOCKS_PER_WRITE + 1];
    slices[0] = IoSlice::new(head);
    for (slice, piece) in slices[1..].iter_mut().zip(stream) {
        *slice = IoSlice::new(piece);
    }
    slices
}
