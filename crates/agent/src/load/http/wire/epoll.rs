//! The wire by epoll: level-triggered readiness, one read and one write per request.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll, Ready};

use super::{Completion, Parted, Wire};
use crate::load::http::worker::Plan;

/// One read takes at most this much, bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads per ready connection and wait, so that a long body does not starve the others.
const READS_PER_TURN: u32 = 8;
/// Ready connections per wait.
const BATCH: usize = 512;

struct Socket {
    stream: TcpStream,
    is_up: bool,
    watches_write: bool,
}

/// See the file's head.
pub struct EpollWire {
    plan: Arc<Plan>,
    poll: Poll,
    sockets: Vec<Option<Socket>>,
    ready: Vec<Ready>,
    next: usize,
    /// Reads that the connection at `next` may still have.
    reads_left: u32,
    buffer: Box<[u8]>,
    filled: usize,
}

impl EpollWire {
    /// A wire for `connections` sockets.
    pub fn new(plan: &Arc<Plan>, connections: usize) -> io::Result<Self> {
        Ok(Self {
            plan: Arc::clone(plan),
            poll: Poll::new(connections.min(BATCH))?,
            sockets: (0..connections).map(|_| None).collect(),
            ready: Vec::with_capacity(BATCH),
            next: 0,
            reads_left: READS_PER_TURN,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            filled: 0,
        })
    }

    /// Done with the connection at `next`.
    fn advance(&mut self) {
        self.next += 1;
        self.reads_left = READS_PER_TURN;
    }

    /// Reads once; `None` where there is nothing.
    #[inline]
    fn read(&mut self, index: usize) -> Option<Completion> {
        let Some(Socket { stream, .. }) = &mut self.sockets[index] else { return None };
        loop {
            return match stream.read(&mut self.buffer) {
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
}

impl Wire for EpollWire {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn connect(&mut self, index: usize, stream: TcpStream) -> io::Result<()> {
        self.poll.add(&stream, index as u64, Interest::Write)?;
        self.sockets[index] = Some(Socket { stream, is_up: false, watches_write: false });
        Ok(())
    }

    fn connected(&mut self, index: usize) -> io::Result<()> {
        let Some(socket) = &mut self.sockets[index] else { return Err(io::ErrorKind::NotConnected.into()) };
        if let Some(error) = socket.stream.take_error()? {
            return Err(error);
        }
        socket.is_up = true;
        self.poll.modify(&socket.stream, index as u64, Interest::Read)
    }

    fn open(&mut self, index: usize, stream: TcpStream) -> io::Result<()> {
        self.poll.add(&stream, index as u64, Interest::Read)?;
        self.sockets[index] = Some(Socket { stream, is_up: true, watches_write: false });
        Ok(())
    }

    #[inline]
    fn send(&mut self, index: usize, from: usize) -> io::Result<Option<usize>> {
        let Some(socket) = &mut self.sockets[index] else { return Err(io::ErrorKind::NotConnected.into()) };
        let unsent = &self.plan.template.bytes()[from..];
        let written = match socket.stream.write(unsent) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        let wants_write = written < unsent.len();
        if wants_write != socket.watches_write {
            socket.watches_write = wants_write;
            let interest = if wants_write { Interest::ReadWrite } else { Interest::Read };
            self.poll.modify(&socket.stream, index as u64, interest)?;
        }
        Ok(Some(written))
    }

    fn part(&mut self, index: usize) -> Option<Parted> {
        let Socket { stream, .. } = self.sockets[index].take()?;
        // Closing it takes it out of the poll, which costs less than asking for it; what lives on is parted with at the end.
        if self.ready.get(self.next).is_some_and(|ready| ready.token == index as u64) {
            self.advance();
        }
        Some(Parted { socket: stream, unsent_bytes: 0 })
    }

    fn wait(&mut self, until_ns: u64) -> io::Result<()> {
        self.ready.clear();
        self.next = 0;
        self.ready.extend(self.poll.wait(Some(until_ns))?);
        Ok(())
    }

    #[inline]
    fn completion(&mut self) -> io::Result<Option<(usize, u64, Completion)>> {
        while let Some(&ready) = self.ready.get(self.next) {
            let index = ready.token as usize;
            let is_up = self.sockets[index].as_ref().is_some_and(|socket| socket.is_up);
            if is_up && ready.readable && self.reads_left > 0 {
                self.reads_left -= 1;
                let completion = self.read(index);
                // A read that did not fill the buffer was the last one, and without room to write there is no more here.
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
            if ready.writable && self.sockets[index].is_some() {
                return Ok(Some((index, monotonic_ns(), Completion::Writable)));
            }
        }
        Ok(None)
    }

    #[inline]
    fn received(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.sockets.iter().flatten().map(|socket| &socket.stream)
    }
}
