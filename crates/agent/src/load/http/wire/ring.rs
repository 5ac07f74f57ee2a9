//! The wire by io_uring: sockets receive by themselves, requests go out several at a time, and most of the system calls
//! that are left are the waits.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use leadline_sys::ring::{Completion, Options, Ring, Sending};

use super::{Parted, Wire};
use crate::load::http::worker::Plan;

/// Requests that are handed over by one system call at most. The kernel sends one after the other, so the last one waits
/// for the others: more of them spare little and would be seen as latency.
const BATCH: u32 = 8;
/// Receive buffers, and their size in bytes: as many as one wait brings completions, and enough for long bodies.
const BUFFERS: u16 = 64;
const BUFFER_BYTES: u32 = 32 * 1024;

/// See the file's head.
pub struct RingWire {
    ring: Ring,
    payload_bytes: usize,
    sockets: Vec<Option<TcpStream>>,
    /// What went wrong with the ring itself where it could not be told at once.
    failed: Option<io::Error>,
}

impl RingWire {
    /// A wire for `connections` sockets, or the reason why there is no io_uring here.
    pub fn new(plan: &Arc<Plan>, connections: usize) -> io::Result<Self> {
        let options = Options { slots: connections as u32, buffers: BUFFERS, buffer_bytes: BUFFER_BYTES, batch: BATCH };
        let ring = Ring::new(&options, plan.template.bytes().into())?;
        Ok(Self {
            ring,
            payload_bytes: plan.template.bytes().len(),
            sockets: (0..connections).map(|_| None).collect(),
            failed: None,
        })
    }

    /// The ring waits for blocking sockets only; for others it would report what it cannot do at once as an error.
    fn attach(&mut self, index: usize) -> io::Result<()> {
        let Some(stream) = &self.sockets[index] else { return Err(io::ErrorKind::NotConnected.into()) };
        stream.set_nonblocking(false)?;
        self.ring.attach(index, stream, false)
    }
}

impl Wire for RingWire {
    fn begin(&mut self) -> io::Result<()> {
        self.ring.enable()
    }

    fn connect(&mut self, index: usize, stream: TcpStream) -> io::Result<()> {
        self.ring.watch(index, &stream)?;
        self.sockets[index] = Some(stream);
        Ok(())
    }

    fn connected(&mut self, index: usize) -> io::Result<()> {
        let pending = self.sockets[index].as_ref().and_then(|stream| stream.take_error().transpose());
        pending.map_or(Ok(()), |error| Err(error.unwrap_or_else(|error| error)))?;
        self.attach(index)
    }

    fn open(&mut self, index: usize, stream: TcpStream) -> io::Result<()> {
        self.sockets[index] = Some(stream);
        self.attach(index)
    }

    #[inline]
    fn send(&mut self, index: usize, from: usize) -> io::Result<Option<usize>> {
        let to = self.payload_bytes;
        let sending = self.ring.send(index, from..to)?;
        Ok((sending == Sending::Assumed).then_some(to - from))
    }

    fn part(&mut self, index: usize) -> Option<Parted> {
        let stream = self.sockets[index].take()?;
        let detached = self.ring.detach(index).and_then(|unsent_bytes| {
            stream.set_nonblocking(true)?;
            Ok(unsent_bytes)
        });
        let unsent_bytes = detached.unwrap_or_else(|error| {
            self.failed = Some(error);
            0
        });
        Some(Parted { socket: stream, unsent_bytes })
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

    fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.sockets.iter().flatten()
    }
}
