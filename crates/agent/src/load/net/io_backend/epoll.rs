//! The backend over epoll: level-triggered readiness, one read and one write per request.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use leadline_http::client::SocketUse;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::receive_stamped;
use leadline_sys::poll::{Interest, Poll, Ready};
use socket2::Socket;

use super::backend::{Completion, Detached, IoBackend};

/// The maximum that one read takes, bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads per ready connection and wait, so that a long body does not starve the others.
const READS_PER_TURN: u32 = 8;
/// A poll that takes longer than this was interrupted by another thread, ns.
const LONGEST_STEP_NS: u64 = 5_000;
/// Ready connections per wait.
const BATCH: usize = 512;

struct EpollSocket {
    socket: Socket,
    is_up: bool,
    is_stamped: bool,
    watches_write: bool,
    /// What the socket has not accepted yet: a part of the payload, then copies.
    piece: Range<usize>,
    copies: Vec<u8>,
}

/// The epoll backend of one thread.
pub struct EpollBackend {
    payload: Arc<[u8]>,
    poll: Poll,
    connections: Vec<Option<EpollSocket>>,
    ready: Vec<Ready>,
    next: usize,
    /// Reads that the connection at `next` may still do in this turn.
    reads_left: u32,
    buffer: Box<[u8]>,
    filled: usize,
    stamp_ns: Option<u64>,
    awake_ns: u64,
    spun_ns: u64,
    /// When the last send began, ns.
    handed_over_ns: u64,
}

impl EpollBackend {
    /// Returns a backend for `connections` sockets.
    pub fn new(payload: &Arc<[u8]>, connections: usize, awake_ns: u64) -> io::Result<Self> {
        Ok(Self {
            payload: Arc::clone(payload),
            poll: Poll::new(connections.min(BATCH))?,
            connections: (0..connections).map(|_| None).collect(),
            ready: Vec::with_capacity(BATCH),
            next: 0,
            reads_left: READS_PER_TURN,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            filled: 0,
            stamp_ns: None,
            awake_ns,
            spun_ns: 0,
            handed_over_ns: 0,
        })
    }

    /// Goes on to the next ready connection.
    fn advance(&mut self) {
        self.next += 1;
        self.reads_left = READS_PER_TURN;
    }

    /// Reads once; `None` if nothing has arrived.
    #[inline]
    fn read(&mut self, index: usize) -> Option<Completion> {
        let Some(EpollSocket { socket, is_stamped, .. }) = &mut self.connections[index] else { return None };
        self.stamp_ns = None;
        loop {
            let read = if *is_stamped {
                receive_stamped(&*socket, &mut self.buffer).map(|(read, stamp_ns)| {
                    self.stamp_ns = stamp_ns;
                    read
                })
            } else {
                socket.read(&mut self.buffer)
            };
            return match read {
                Ok(0) => Some(Completion::Ended(Ok(()))),
                Ok(read) => {
                    self.filled = read;
                    Some(Completion::Received)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Some(Completion::Ended(Err(error))),
            };
        }
    }

    /// Writes the rest of a send; `None` if there is no rest, or still no room in the socket.
    fn write_rest(&mut self, index: usize) -> Option<Completion> {
        let connection = self.connections[index].as_mut()?;
        match connection.write(&self.payload) {
            Ok(0) => None,
            Ok(written) => match connection.watch(&self.poll, index) {
                Ok(()) => Some(Completion::Sent(written)),
                Err(error) => Some(Completion::NotSent(0, error)),
            },
            Err(error) => Some(Completion::NotSent(0, error)),
        }
    }
}

impl EpollSocket {
    /// Writes as much of the rest as the socket accepts; returns the number of bytes.
    fn write(&mut self, payload: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while !self.is_all_written() {
            let rest = if self.piece.is_empty() { &self.copies[..] } else { &payload[self.piece.clone()] };
            match self.socket.write(rest) {
                Ok(bytes) => {
                    written += bytes;
                    if self.piece.is_empty() {
                        self.copies.drain(..bytes);
                    } else {
                        self.piece.start += bytes;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The written bytes are reported first; the next attempt fails again.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn is_all_written(&self) -> bool {
        self.piece.is_empty() && self.copies.is_empty()
    }

    /// Watches for writability while a rest is left, and only then.
    #[inline]
    fn watch(&mut self, poll: &Poll, index: usize) -> io::Result<()> {
        let wants_write = !self.is_all_written();
        if wants_write == self.watches_write {
            return Ok(());
        }
        self.watches_write = wants_write;
        let interest = if wants_write { Interest::ReadWrite } else { Interest::Read };
        poll.modify(&self.socket, index as u64, interest)
    }
}

impl IoBackend for EpollBackend {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn connect(&mut self, index: usize, socket: Socket) -> io::Result<()> {
        self.poll.add(&socket, index as u64, Interest::Write)?;
        self.connections[index] = Some(EpollSocket {
            socket,
            is_up: false,
            is_stamped: false,
            watches_write: false,
            piece: 0..0,
            copies: Vec::new(),
        });
        Ok(())
    }

    fn connected(&mut self, index: usize, stamped: bool) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Err(io::ErrorKind::NotConnected.into()) };
        if let Some(error) = connection.socket.take_error()? {
            return Err(error);
        }
        (connection.is_up, connection.is_stamped) = (true, stamped);
        self.poll.modify(&connection.socket, index as u64, Interest::Read)
    }

    #[inline]
    fn send(&mut self, index: usize, piece: Range<usize>) -> io::Result<usize> {
        let Some(connection) = &mut self.connections[index] else { return Err(io::ErrorKind::NotConnected.into()) };
        connection.piece = piece;
        self.handed_over_ns = monotonic_ns();
        let written = connection.write(&self.payload)?;
        connection.watch(&self.poll, index)?;
        Ok(written)
    }

    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> io::Result<usize> {
        let Some(connection) = &mut self.connections[index] else { return Err(io::ErrorKind::NotConnected.into()) };
        self.handed_over_ns = monotonic_ns();
        if !connection.is_all_written() {
            connection.copies.extend_from_slice(bytes);
            return Ok(0);
        }
        let written = match connection.socket.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        connection.copies.extend_from_slice(&bytes[written..]);
        connection.watch(&self.poll, index)?;
        Ok(written)
    }

    fn detach(&mut self, index: usize, then: SocketUse) -> Option<Detached> {
        let EpollSocket { socket, .. } = self.connections[index].take()?;
        // Closing the socket removes it from the poll without another system call. What arrives on one that stays open
        // would wake the loop again and again.
        if then == SocketUse::Keep {
            // Fails only if the kernel does not know the socket.
            let _ = self.poll.remove(&socket);
        }
        if self.ready.get(self.next).is_some_and(|ready| ready.token == index as u64) {
            self.advance();
        }
        Some(Detached { socket, unsent_bytes: 0, taken_bytes: 0 })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    #[inline]
    fn handed_over_ns(&self) -> Option<u64> {
        Some(self.handed_over_ns)
    }

    fn wait(&mut self, until_ns: u64) -> io::Result<()> {
        self.ready.clear();
        self.next = 0;
        let mut now_ns = monotonic_ns();
        if until_ns.saturating_sub(now_ns) > self.awake_ns {
            self.ready.extend(self.poll.wait(Some(until_ns))?);
            return Ok(());
        }
        loop {
            self.ready.extend(self.poll.wait(Some(0))?);
            if !self.ready.is_empty() || now_ns >= until_ns {
                return Ok(());
            }
            let before_ns = std::mem::replace(&mut now_ns, monotonic_ns());
            // A longer step means that another thread ran.
            if now_ns - before_ns < LONGEST_STEP_NS {
                self.spun_ns += now_ns - before_ns;
            }
        }
    }

    #[inline]
    fn completion(&mut self) -> io::Result<Option<(usize, u64, Completion)>> {
        while let Some(&ready) = self.ready.get(self.next) {
            let index = ready.token as usize;
            let is_up = self.connections[index].as_ref().is_some_and(|connection| connection.is_up);
            if is_up && ready.readable && self.reads_left > 0 {
                self.reads_left -= 1;
                let completion = self.read(index);
                // A read that did not fill the buffer was the last one. If the socket is not writable, this
                // connection has nothing more to do.
                if !matches!(completion, Some(Completion::Received)) || self.filled < self.buffer.len() {
                    self.reads_left = 0;
                    if !ready.writable {
                        self.advance();
                    }
                }
                if let Some(completion) = completion {
                    return Ok(Some((index, monotonic_ns(), completion)));
                }
                continue;
            }
            self.advance();
            if !ready.writable || self.connections[index].is_none() {
                continue;
            }
            let completion = if is_up { self.write_rest(index) } else { Some(Completion::Writable) };
            if let Some(completion) = completion {
                return Ok(Some((index, monotonic_ns(), completion)));
            }
        }
        Ok(None)
    }

    #[inline]
    fn received(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    #[inline]
    fn stamp_ns(&self) -> Option<u64> {
        self.stamp_ns
    }

    fn spun_ns(&self) -> u64 {
        self.spun_ns
    }

    fn socket(&self, index: usize) -> Option<&Socket> {
        self.connections[index].as_ref().map(|connection| &connection.socket)
    }

    fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.connections.iter().flatten().map(|connection| &connection.socket)
    }
}
