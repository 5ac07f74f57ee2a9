//! The backend over io_uring: the kernel receives without a call per read, several requests are submitted together,
//! and most of the remaining system calls are the waits.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use leadline_http::client::SocketUse;
use leadline_sys::ring::{Completion, Left, Options, Ring, Sending};
use socket2::Socket;

use super::backend::{Detached, IoBackend};

/// The maximum number of requests per submission. The kernel sends them one after another, and the last one waits for
/// the others: a larger batch saves little and shows as latency.
const BATCH: u32 = 8;
/// Receive buffers, and their size in bytes: as many as one wait returns completions, and large enough for long
/// bodies.
const BUFFERS: u16 = 64;
const BUFFER_BYTES: u32 = 32 * 1024;

/// The io_uring backend of one thread.
pub struct UringBackend {
    ring: Ring,
    sockets: Vec<Option<Socket>>,
    /// An error of the ring itself that the next wait returns.
    failed: Option<io::Error>,
}

impl UringBackend {
    /// Returns a backend for `connections` sockets, or the reason why io_uring is not available.
    pub fn new(payload: &Arc<[u8]>, connections: usize, awake_ns: u64) -> io::Result<Self> {
        let options =
            Options { slots: connections as u32, buffers: BUFFERS, buffer_bytes: BUFFER_BYTES, batch: BATCH, awake_ns };
        let ring = Ring::new(&options, payload.as_ref().into())?;
        Ok(Self { ring, sockets: (0..connections).map(|_| None).collect(), failed: None })
    }
}

impl IoBackend for UringBackend {
    fn begin(&mut self) -> io::Result<()> {
        self.ring.enable()
    }

    fn connect(&mut self, index: usize, socket: Socket) -> io::Result<()> {
        self.ring.watch(index, &socket)?;
        self.sockets[index] = Some(socket);
        Ok(())
    }

    fn connected(&mut self, index: usize, stamped: bool) -> io::Result<()> {
        let Some(socket) = &self.sockets[index] else { return Err(io::ErrorKind::NotConnected.into()) };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        // The ring waits only for blocking sockets. On others, an operation that would block is reported as an error.
        socket.set_nonblocking(false)?;
        self.ring.attach(index, socket, stamped)
    }

    #[inline]
    fn send(&mut self, index: usize, piece: Range<usize>) -> io::Result<usize> {
        let bytes = piece.len();
        let sending = self.ring.send(index, piece)?;
        Ok(if sending == Sending::Assumed { bytes } else { 0 })
    }

    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> io::Result<usize> {
        self.ring.send_copy(index, bytes)?;
        Ok(0)
    }

    fn detach(&mut self, index: usize, _then: SocketUse) -> Option<Detached> {
        let socket = self.sockets[index].take()?;
        let detached = self.ring.detach(index).and_then(|left| {
            socket.set_nonblocking(true)?;
            Ok(left)
        });
        let Left { unsent_bytes, taken_bytes } = detached.unwrap_or_else(|error| {
            self.failed = Some(error);
            Left::default()
        });
        Some(Detached { socket, unsent_bytes, taken_bytes })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ring.flush()
    }

    #[inline]
    fn handed_over_ns(&self) -> Option<u64> {
        self.ring.handed_over_ns()
    }

    fn wait(&mut self, until_ns: u64) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.ring.wait(until_ns),
        }
    }

    #[inline]
    fn completion(&mut self) -> io::Result<Option<(usize, u64, Completion)>> {
        self.ring.completion()
    }

    #[inline]
    fn received(&self) -> &[u8] {
        self.ring.received()
    }

    #[inline]
    fn stamp_ns(&self) -> Option<u64> {
        self.ring.stamp_ns()
    }

    fn spun_ns(&self) -> u64 {
        self.ring.spun_ns()
    }

    fn socket(&self, index: usize) -> Option<&Socket> {
        self.sockets[index].as_ref()
    }

    fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().flatten()
    }
}
