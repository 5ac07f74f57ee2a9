//! Batches of a worker's datagrams between its buffers and its sockets: several by one system call, or several that the
//! kernel handles as one (UDP_SEGMENT, UDP_GRO). Owns the buffers.

use std::io;
use std::net::UdpSocket;

use leadline_sys::connect::stamp_received;
use leadline_sys::net::{DatagramBatch, MOST_MERGED_BYTES};
use leadline_sys::segments;
use leadline_transport::{DatagramFormat, DatagramSizes, HEADER_BYTES};

use super::payload::Payload;

/// Separate datagrams per system call.
const BATCH: usize = 64;
/// Buffers for merged datagrams, each of them for as many as the kernel merges.
const MERGED_BATCH: usize = 8;

/// The maximum number of datagrams per call that newer kernels send as one (their UDP_MAX_SEGMENTS); where this is refused,
/// fewer are tried.
pub const MOST_SEGMENTS: usize = 128;

/// Returns how many datagrams to send as one after the kernel refused this many: as many as every kernel takes, or 1 if that
/// was not too many.
pub fn fewer_segments(refused: usize) -> usize {
    if refused > segments::MOST_SEGMENTS {
        segments::MOST_SEGMENTS
    } else {
        1
    }
}

/// Returns the receive buffer of a socket, bytes, as the kernel accounts it: payload and overhead; 0 if it does not say.
pub fn receive_buffer_bytes(socket: &UdpSocket) -> usize {
    socket2::SockRef::from(socket).recv_buffer_size().unwrap_or(0)
}

/// Returns the memory of a sending or receiving worker's buffers, bytes, for datagrams of this size.
pub fn buffer_bytes(largest: u32, gso: bool) -> u64 {
    let plain = BATCH as u64 * (u64::from(largest) + 1);
    if gso {
        plain.max((MERGED_BATCH * MOST_MERGED_BYTES) as u64)
    } else {
        plain
    }
}

/// Returns how many datagrams of these sizes a call may have to send.
pub fn most_together(sizes: &DatagramSizes, gso: bool) -> usize {
    let segments = if gso { segments::MOST_BYTES / sizes.largest().max(1) } else { 0 };
    segments.clamp(BATCH, MOST_SEGMENTS)
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

    /// Returns how many datagrams one call sends at most, if the kernel takes `segments` together, or 1.
    pub fn most(&self, segments: usize) -> usize {
        let most = if segments > 1 { segments.min(segments::MOST_BYTES / self.sizes.largest().max(1)) } else { BATCH };
        most.clamp(1, self.batch.capacity())
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
        }
        let _ = stamp_received(socket);
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

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_sys::clock::{monotonic_ns, sleep_until};
    use leadline_sys::net::udp_socket;
    use leadline_testkit::until;

    #[test]
    fn one_call_sends_as_many_as_the_kernel_and_the_length_of_ip_allow() {
        let most = |bytes: u32, gso, segments| {
            let sizes = DatagramSizes::fixed(bytes);
            let count = most_together(&sizes, gso);
            Outgoing::new(count, sizes, DatagramFormat::Short(1), Payload::Zeros).most(segments)
        };
        assert_eq!([64, 500, 512, 1400, 65_507].map(|bytes| most(bytes, true, 128)), [128, 128, 126, 46, 1]);
        // After a refusal: as many as older kernels take, then separate datagrams.
        assert_eq!([most(64, true, 64), most(64, true, 1), most(64, false, 1)], [64, 64, 64]);
    }

    #[test]
    fn refused_datagrams_are_sent_fewer_as_one_and_then_separately() {
        assert_eq!([128, 65, 64, 46, 2].map(fewer_segments), [64, 64, 1, 1, 1]);
    }

    #[test]
    fn merged_datagrams_have_the_kernels_time_of_arrival() {
        const NEAR_NS: u64 = 100_000;
        let at = "127.0.0.1:0".parse().unwrap();
        let receiver = udp_socket(at, None, false).unwrap();
        let sender = udp_socket(at, Some(receiver.local_addr().unwrap()), false).unwrap();
        Incoming::prepare(&receiver, true);
        let mut incoming = Incoming::new(&DatagramSizes::fixed(100), true);
        // The kernel begins to stamp some time after the first socket has requested it, and a machine may wait between
        // two readings of its clocks.
        until("the kernel stamps", || {
            segments::send_together(&sender, &[7; 300], 100).unwrap();
            let sent_ns = monotonic_ns();
            sleep_until(sent_ns + 10 * NEAR_NS);
            let count = incoming.receive(&receiver).unwrap();
            assert_eq!((0..count).map(|index| incoming.datagrams(index).1.len()).sum::<usize>(), 300);
            (0..count).all(|index| incoming.datagrams(index).0 <= sent_ns + NEAR_NS).then_some(())
        });
    }
}
