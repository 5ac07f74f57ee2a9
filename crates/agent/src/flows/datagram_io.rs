//! Batches of a worker's datagrams between its buffers and its sockets: several by one system call, or several that the
//! kernel handles as one (UDP_SEGMENT, UDP_GRO). Owns the buffers.

use std::io;
use std::net::UdpSocket;

use leadline_sys::connect::stamp_received;
use leadline_sys::net::{DatagramBatch, MOST_MERGED_BYTES};
use leadline_sys::segments;
use leadline_transport::{DatagramFormat, DatagramSizes, HEADER_BYTES};

use super::payload::Payload;

/// Datagrams per system call.
pub const BATCH: usize = 64;
/// Buffers for merged datagrams, each of them for as many as the kernel merges.
const MERGED_BATCH: usize = 8;

/// Returns the memory of a sending or receiving worker's buffers, bytes, for datagrams of this size.
pub fn buffer_bytes(largest: u32, gso: bool) -> u64 {
    let plain = BATCH as u64 * (u64::from(largest) + 1);
    if gso {
        plain.max((MERGED_BATCH * MOST_MERGED_BYTES) as u64)
    } else {
        plain
    }
}

/// The datagrams of the next send.
pub struct Outgoing {
    batch: DatagramBatch,
    sizes: DatagramSizes,
    format: DatagramFormat,
}

impl Outgoing {
    /// Allocates the buffers and fills them with the payload.
    pub fn new(count: usize, sizes: DatagramSizes, format: DatagramFormat, payload: Payload) -> Self {
        let mut batch = DatagramBatch::new(count, sizes.largest());
        for index in 0..batch.capacity() {
            payload.fill(batch.slot(index));
        }
        Self { batch, sizes, format }
    }

    /// Returns how many datagrams one call sends at most.
    pub fn most(&self, segmented: bool) -> usize {
        let by_bytes = if segmented { segments::MOST_BYTES / self.sizes.largest().max(1) } else { BATCH };
        by_bytes.clamp(1, self.batch.capacity())
    }

    /// Writes the headers of the next `count` datagrams of a flow.
    pub fn prepare(&mut self, flow: u32, first: u64, count: usize, sent_ns: u64) {
        let is_mixed = !self.sizes.is_fixed();
        for slot in 0..count {
            let sequence = first + slot as u64;
            self.format.write(flow, sequence, sent_ns, self.batch.slot(slot));
            if is_mixed {
                self.batch.set_length(slot, self.sizes.of(sequence));
            }
        }
    }

    /// Sends the first `count` datagrams; returns how many the socket accepted.
    pub fn send(&mut self, socket: &UdpSocket, count: usize, segmented: bool) -> io::Result<usize> {
        if !segmented || count < 2 {
            return self.batch.send(socket, count);
        }
        let each = self.sizes.largest();
        segments::send_together(socket, self.batch.slots(count), each).map(|bytes| bytes / each)
    }
}

/// The datagrams of the last receive.
pub struct Incoming {
    batch: DatagramBatch,
}

impl Incoming {
    /// Allocates the buffers.
    pub fn new(sizes: &DatagramSizes, gso: bool) -> Self {
        let batch = if gso {
            DatagramBatch::merged(MERGED_BATCH)
        } else {
            // A longer datagram comes from a stranger: one more byte of buffer shows it.
            DatagramBatch::stamped(BATCH, sizes.largest().max(HEADER_BYTES) + 1)
        };
        Self { batch }
    }

    /// Prepares a socket. Both options only make figures better: without them, datagrams arrive one by one and when
    /// they are read.
    pub fn prepare(socket: &UdpSocket, gso: bool) {
        if gso {
            segments::merge_received(socket);
        } else {
            let _ = stamp_received(socket);
        }
    }

    /// Receives pending datagrams without waiting; returns how many buffers are filled.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.batch.receive(socket)
    }

    /// Whether a receive that filled this many buffers left more datagrams behind.
    pub fn is_full(&self, count: usize) -> bool {
        count == self.batch.capacity()
    }

    /// Returns a filled buffer: when it arrived, ns, its bytes, and the length of the datagrams in it, the last of which
    /// may be shorter.
    #[inline]
    pub fn datagrams(&self, index: usize) -> (u64, &[u8], usize) {
        let bytes = self.batch.received(index);
        (self.batch.arrived_ns(index), bytes, self.batch.merged_bytes(index).unwrap_or(bytes.len()))
    }
}
