//! Sockets beyond socket2: batches of datagrams, pacing, drops of a socket's own buffer.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::clock::{monotonic_ns, realtime_ns};
use crate::pinned::Pinned;
use crate::ring::{stamp_ns, CONTROL_BYTES};
use crate::segments::merged_bytes;
use crate::socket_option::set_int;

/// Two readings of both clocks differ by no more than this, ns, unless the wall clock was set or the thread waited in
/// between.
const CLOCKS_APART_NS: u64 = 100_000;
/// How often both clocks are read, unless two readings of the monotonic clock around one of the other are closer
/// together than this, ns.
const CLOCK_READINGS: usize = 5;
const NEAR_NS: u64 = 1_000;
/// Size of buffers that hold a fast sender's data while a receiver waits for its CPU, bytes.
const DATAGRAM_BUFFER_BYTES: usize = 4 << 20;
/// The maximum size of merged datagrams, bytes: IP's length field counts them as one.
pub const MOST_MERGED_BYTES: usize = 1 << 16;

/// Creates a UDP socket with large buffers. `shared` lets several sockets use the port: a connected one then receives
/// its own peer's datagrams, an unconnected one the rest.
pub fn udp_socket(at: SocketAddr, peer: Option<SocketAddr>, shared: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(shared)?;
    enlarge_buffers(&socket);
    socket.bind(&at.into())?;
    if let Some(peer) = peer {
        socket.connect(&peer.into())?;
    }
    Ok(socket.into())
}

/// Requests large buffers: beyond the host's limit if privileged, otherwise up to it. Neither is an error, because
/// drops are counted.
fn enlarge_buffers(socket: &Socket) {
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        let size = DATAGRAM_BUFFER_BYTES as libc::c_int;
        for option in [force, plain] {
            if set_int(socket, libc::SOL_SOCKET, option, size).is_ok() {
                break;
            }
        }
    }
}

/// From linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of nine values.
const SO_MEMINFO: libc::c_int = 55;
const MEMINFO_VALUES: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// Returns the datagrams that this socket's receive buffer had no room for; `None` if the kernel does not report
/// them.
pub fn receive_drops(socket: impl AsFd) -> Option<u64> {
    let mut values = [0u32; MEMINFO_VALUES];
    let mut length = size_of::<[u32; MEMINFO_VALUES]>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `values`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &mut length,
        )
    };
    (result == 0 && length as usize >= size_of::<[u32; MEMINFO_VALUES]>()).then(|| u64::from(values[MEMINFO_DROPS]))
}

/// Equal-sized datagrams, sent or received by one system call, over memory that is allocated once.
pub struct DatagramBatch {
    bytes: Pinned<u8>,
    slot_bytes: usize,
    vectors: Pinned<libc::iovec>,
    headers: Pinned<libc::mmsghdr>,
    /// The kernel's timestamps; empty without them.
    control: Pinned<Control>,
    /// How many datagrams the last `receive` returned, and when it ended, ns.
    received: usize,
    received_ns: u64,
    /// The wall clock minus the monotonic clock at that time, ns; and whether it is reliable.
    ahead_ns: u64,
    is_steady: bool,
}

/// Aligned for the headers in it.
type Control = [u64; CONTROL_BYTES / 8];

// SAFETY: the raw pointers in `vectors` and `headers` point into memory of the same value, which does not move.
unsafe impl Send for DatagramBatch {}

impl DatagramBatch {
    /// Creates a batch of `count` datagrams of at most `slot_bytes`.
    pub fn new(count: usize, slot_bytes: usize) -> Self {
        let bytes = Pinned::new(vec![0u8; count * slot_bytes].into_boxed_slice());
        let vector = |index| libc::iovec { iov_base: bytes.place(index * slot_bytes).cast(), iov_len: slot_bytes };
        let vectors = Pinned::new((0..count).map(vector).collect());
        let header = |index| {
            // SAFETY: an all-zero mmsghdr is valid: no address, no control data.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = vectors.place(index);
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = Pinned::new((0..count).map(header).collect());
        let (control, ahead_ns) = (Pinned::new(Box::default()), ahead_ns(read_clocks));
        Self { bytes, slot_bytes, vectors, headers, control, received: 0, received_ns: 0, ahead_ns, is_steady: false }
    }

    /// Like `new`; `arrived_ns` also returns the kernel's timestamps of sockets with
    /// [`crate::connect::stamp_received`].
    pub fn stamped(count: usize, slot_bytes: usize) -> Self {
        let mut batch = Self::new(count, slot_bytes);
        batch.control = Pinned::new(vec![[0; CONTROL_BYTES / 8]; count].into_boxed_slice());
        for (index, header) in batch.headers.iter_mut().enumerate() {
            header.msg_hdr.msg_control = batch.control.place(index).cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        batch
    }

    /// Creates a batch for sockets with [`crate::segments::merge_received`]: each of `count` slots takes as many
    /// datagrams as the kernel merges.
    pub fn merged(count: usize) -> Self {
        Self::stamped(count, MOST_MERGED_BYTES)
    }

    /// Sets how many bytes of a slot `send` sends.
    pub fn set_length(&mut self, index: usize, bytes: usize) {
        self.vectors[index].iov_len = bytes.min(self.slot_bytes);
    }

    /// Returns the first `count` slots in one piece.
    pub fn slots(&self, count: usize) -> &[u8] {
        &self.bytes[..count * self.slot_bytes]
    }

    /// Returns the length of the datagrams in a slot, except the last one, which may be shorter; `None` if there is only
    /// one.
    #[inline]
    pub fn merged_bytes(&self, index: usize) -> Option<usize> {
        let written = self.headers[index].msg_hdr.msg_controllen;
        merged_bytes(bytes_of(self.control.get(index)?).get(..written)?)
    }

    /// Returns how many datagrams fit.
    pub fn capacity(&self) -> usize {
        self.vectors.len()
    }

    /// Returns the memory of one datagram.
    pub fn slot(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[index * self.slot_bytes..][..self.slot_bytes]
    }

    /// Returns a received datagram: its bytes, as far as they fit.
    pub fn received(&self, index: usize) -> &[u8] {
        let length = (self.headers[index].msg_len as usize).min(self.slot_bytes);
        &self.bytes[index * self.slot_bytes..][..length]
    }

    /// Like `received`, for a reader that changes the bytes in place.
    pub fn received_mut(&mut self, index: usize) -> &mut [u8] {
        let length = (self.headers[index].msg_len as usize).min(self.slot_bytes);
        &mut self.bytes[index * self.slot_bytes..][..length]
    }

    /// Sends the first `count` slots, whole or as far as `set_length` says, over a connected socket; returns how many the socket accepted.
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        let count = count.min(self.capacity());
        // SAFETY: the headers point to vectors and bytes that live as long as `self` and are `count` at least.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.headers.place(0), count as libc::c_uint, libc::MSG_DONTWAIT)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives pending datagrams without waiting; returns how many arrived.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let count = self.capacity() as libc::c_uint;
        // The last call set the lengths to the bytes written; this one needs the lengths available.
        let stamped = self.received.min(self.control.len());
        self.headers[..stamped].iter_mut().for_each(|header| header.msg_hdr.msg_controllen = CONTROL_BYTES);
        // SAFETY: as in `send`; no time-out is given, and the kernel writes no more control bytes than their lengths.
        let received = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), self.headers.place(0), count, libc::MSG_DONTWAIT, std::ptr::null_mut())
        };
        self.received = usize::try_from(received).unwrap_or(0);
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        self.received_ns = monotonic_ns();
        if !self.control.is_empty() {
            let ahead_ns = ahead_ns(read_clocks);
            self.is_steady = ahead_ns.wrapping_sub(self.ahead_ns).wrapping_add(CLOCKS_APART_NS) <= 2 * CLOCKS_APART_NS;
            self.ahead_ns = ahead_ns;
        }
        Ok(received)
    }

    /// Returns when the last `receive` ended, ns.
    #[inline]
    pub fn received_ns(&self) -> u64 {
        self.received_ns
    }

    /// Returns when the kernel had a datagram of the last `receive`, ns on the monotonic clock; the end of that call
    /// if the kernel does not report it, or if the wall clock, on which the kernel reports it, was set since the call
    /// before.
    #[inline]
    pub fn arrived_ns(&self, index: usize) -> u64 {
        let Some(control) = self.control.get(index) else { return self.received_ns };
        let written = self.headers[index].msg_hdr.msg_controllen;
        let stamp = stamp_ns(bytes_of(control).get(..written).unwrap_or_default());
        let arrived = stamp.filter(|_| self.is_steady).map(|stamp| stamp.wrapping_sub(self.ahead_ns));
        // The timestamp of a datagram that arrived during the call may seem later by the time between two clock
        // readings.
        arrived.map_or(self.received_ns, |arrived_ns| arrived_ns.min(self.received_ns))
    }
}

/// Returns the wall clock minus the monotonic clock, ns, for the kernel's timestamps.
pub(crate) fn wall_clock_ahead_ns() -> u64 {
    ahead_ns(read_clocks)
}

/// Reads both clocks, ns: the monotonic one, the wall clock, and the monotonic one again.
fn read_clocks() -> (u64, u64, u64) {
    let before_ns = monotonic_ns();
    (before_ns, realtime_ns(), monotonic_ns())
}

/// Returns the minimum by which the wall clock is ahead of the monotonic one, ns; the true value may be larger by up
/// to the time between the two readings around it. No timestamp therefore seems earlier than its event, as a reading
/// whose thread lost its CPU in between would make it, and the closest of several readings is off by very little.
fn ahead_ns(mut read_clocks: impl FnMut() -> (u64, u64, u64)) -> u64 {
    let apart_ns = |(before_ns, _, after_ns): (u64, u64, u64)| after_ns - before_ns;
    let mut nearest = read_clocks();
    for _ in 1..CLOCK_READINGS {
        if apart_ns(nearest) <= NEAR_NS {
            break;
        }
        let next = read_clocks();
        if apart_ns(next) < apart_ns(nearest) {
            nearest = next;
        }
    }
    nearest.1.wrapping_sub(nearest.2)
}

fn bytes_of(control: &Control) -> &[u8] {
    // SAFETY: the same memory, of the same length, as bytes, which have no wrong values and want no alignment.
    unsafe { std::slice::from_raw_parts(control.as_ptr().cast(), CONTROL_BYTES) }
}

/// Closes with a reset instead of an orderly end, so that no data stays in the kernel's buffers.
pub fn reset(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

/// Sends as much of these bytes as the socket has room for, without waiting, whatever its mode; failures are ignored: the
/// caller is about to close the connection.
pub fn send_now(stream: &TcpStream, bytes: &[u8]) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let _ = socket2::SockRef::from(stream).send_with_flags(bytes, flags);
}

/// Makes the kernel end a connection whose peer acknowledges nothing for this long (TCP_USER_TIMEOUT).
pub fn give_up_after(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(silence))
}

/// Sets a connection's congestion control by the kernel's name for it.
pub fn set_congestion(stream: &TcpStream, name: &str) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_congestion(name.as_bytes())
}

/// Sets the buffers of a socket; the kernel grants at most `net.core.wmem_max` and `net.core.rmem_max`.
pub fn set_buffers(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let socket = socket2::SockRef::from(&socket);
    socket.set_send_buffer_size(bytes)?;
    socket.set_recv_buffer_size(bytes)
}

/// Sets the type of service, or the traffic class, of what a socket sends.
pub fn set_type_of_service(socket: impl AsFd, value: u32) -> io::Result<()> {
    let socket = socket2::SockRef::from(&socket);
    if socket.local_addr()?.is_ipv6() {
        socket.set_tclass_v6(value)
    } else {
        socket.set_tos_v4(value)
    }
}

/// Forbids the fragmentation of what a socket sends over IPv4; a datagram longer than the path takes is an error then.
pub fn forbid_fragments(socket: impl AsFd) -> io::Result<()> {
    if socket2::SockRef::from(&socket).local_addr()?.is_ipv6() {
        return Ok(());
    }
    set_int(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
}

/// Sets the differentiated services code point of what a socket sends; without one the host's default stays.
pub fn set_dscp(socket: impl AsFd, code_point: Option<u8>) -> io::Result<()> {
    code_point.map_or(Ok(()), |code_point| set_type_of_service(socket, u32::from(code_point) << 2))
}

/// Makes the kernel pace what a socket sends, bytes/s (SO_MAX_PACING_RATE).
pub fn set_pacing(socket: impl AsFd, bytes_per_s: u64) -> io::Result<()> {
    let value = libc::c_ulong::try_from(bytes_per_s).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: the pointer and the length are those of `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            std::ptr::from_ref(&value).cast(),
            size_of::<libc::c_ulong>() as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns how many bytes of a connection its peer has not acknowledged yet, sent or not (SIOCOUTQ).
pub fn unacknowledged_bytes(stream: &TcpStream) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one `int`, to which the pointer points.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, std::ptr::from_mut(&mut bytes)) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Returns the congestion controls that connections of this network namespace can use without loading a kernel
/// module; empty if the kernel does not list them.
pub fn available_congestion() -> Vec<String> {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    names.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Returns a connection's congestion control.
pub fn congestion(stream: impl AsFd) -> Option<String> {
    let name = socket2::SockRef::from(&stream).tcp_congestion().ok()?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8(name[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::stamp_received;
    use std::net::Ipv4Addr;

    #[test]
    fn fragments_are_forbidden() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        forbid_fragments(&socket).unwrap();
        let (mut value, mut length) = (-1, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the kernel writes at most `length` bytes into `value`.
        let result = unsafe {
            let value = std::ptr::from_mut(&mut value).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value, &mut length)
        };
        assert_eq!((result, value), (0, libc::IP_PMTUDISC_DO));
    }

    #[test]
    fn closest_clock_reading_gives_the_offset() {
        const AHEAD_NS: u64 = 1_000_000_000_000;
        // Each reading: the time from the first clock to the wall clock, and from that to the first clock again.
        let ahead_of = |looks: &[(u64, u64)]| {
            let (mut now_ns, mut looks, mut count) = (5_000, looks.iter(), 0);
            let ahead_ns = ahead_ns(|| {
                let (between_ns, after_ns) = looks.next().unwrap();
                count += 1;
                let before_ns = now_ns;
                now_ns += between_ns + after_ns;
                (before_ns, before_ns + between_ns + AHEAD_NS, now_ns)
            });
            (AHEAD_NS - ahead_ns, count)
        };
        assert_eq!(ahead_of(&[(20, 30)]), (30, 1));
        // The thread lost its CPU between the first two clocks, then between the last two.
        assert_eq!(ahead_of(&[(90_000, 20), (20, 90_000), (30, 40)]), (40, 3));
        // Slow clocks, or a machine under constant load: the closest of all readings.
        assert_eq!(ahead_of(&[(5000, 9000), (4000, 2000), (9000, 2), (8000, 9), (7000, 7)]), (2000, 5));
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let receiver = udp_socket(any, None, false).unwrap();
        let sender = udp_socket(any, Some(receiver.local_addr().unwrap()), false).unwrap();
        (sender, receiver)
    }

    #[test]
    fn batch_is_received_by_datagram() {
        let (sender, receiver) = pair();
        let mut out = DatagramBatch::new(8, 100);
        for index in 0..8 {
            out.slot(index).fill(index as u8);
        }
        assert_eq!(out.send(&sender, 8).unwrap(), 8);
        let mut input = DatagramBatch::new(16, 60);
        assert_eq!(input.receive(&receiver).unwrap(), 8);
        assert!((0..8).all(|index| input.received(index) == [index as u8; 60]));
        assert_eq!(input.receive(&receiver).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(receive_drops(&receiver), Some(0));
    }

    #[test]
    fn merged_datagrams_arrive_with_their_length() {
        let (sender, receiver) = pair();
        assert!(crate::segments::merge_received(&receiver));
        let bytes: Vec<u8> = (0..=255).cycle().take(950).collect();
        assert_eq!(crate::segments::send_together(&sender, &bytes, 100).unwrap(), 950);
        let mut input = DatagramBatch::merged(16);
        let count = input.receive(&receiver).unwrap();
        let mut arrived: Vec<Vec<u8>> = Vec::new();
        for index in 0..count {
            let received = input.received(index);
            let each = input.merged_bytes(index).unwrap_or(received.len());
            arrived.extend(received.chunks(each).map(<[u8]>::to_vec));
        }
        assert_eq!(arrived, bytes.chunks(100).map(<[u8]>::to_vec).collect::<Vec<_>>());
        sender.send(&[7; 30]).unwrap();
        assert_eq!(
            (input.receive(&receiver).unwrap(), input.merged_bytes(0), input.received(0)),
            (1, None, &[7; 30][..])
        );
    }

    #[test]
    fn slots_are_sent_as_far_as_their_lengths_say() {
        let (sender, receiver) = pair();
        let mut out = DatagramBatch::new(2, 100);
        out.set_length(0, 60);
        out.set_length(1, 1000);
        assert_eq!(out.send(&sender, 2).unwrap(), 2);
        let mut input = DatagramBatch::new(4, 200);
        assert_eq!(input.receive(&receiver).unwrap(), 2);
        assert_eq!((input.received(0).len(), input.received(1).len()), (60, 100));
    }

    #[test]
    fn kernel_timestamps_are_converted_to_the_monotonic_clock() {
        let (sender, receiver) = pair();
        stamp_received(&receiver).unwrap();
        let (mut out, mut input) = (DatagramBatch::new(2, 10), DatagramBatch::stamped(4, 10));
        // The kernel begins to stamp some time after the first socket has requested it, and a machine may wait
        // between two clocks.
        let deadline_ns = monotonic_ns() + 60_000_000_000;
        while monotonic_ns() < deadline_ns {
            let before_ns = monotonic_ns();
            out.send(&sender, 2).unwrap();
            let between_ns = monotonic_ns();
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(input.receive(&receiver).unwrap(), 2);
            let arrived_ns = [input.arrived_ns(0), input.arrived_ns(1)];
            if arrived_ns[1] < input.received_ns() {
                assert!(before_ns.saturating_sub(CLOCKS_APART_NS) <= arrived_ns[0] && arrived_ns[0] <= arrived_ns[1]);
                assert!(arrived_ns[1] <= between_ns + CLOCKS_APART_NS);
                return;
            }
        }
        panic!("no stamp came");
    }

    #[test]
    fn without_timestamps_arrival_is_the_receive_time() {
        let (sender, receiver) = pair();
        for mut input in [DatagramBatch::new(2, 10), DatagramBatch::stamped(2, 10)] {
            sender.send(&[1]).unwrap();
            let before_ns = monotonic_ns();
            assert_eq!(input.receive(&receiver).unwrap(), 1);
            assert_eq!(input.arrived_ns(0), input.received_ns());
            assert!((before_ns..=monotonic_ns()).contains(&input.received_ns()));
        }
    }

    #[test]
    fn moved_batch_keeps_valid_pointers() {
        let (sender, receiver) = pair();
        let mut out = DatagramBatch::new(2, 10);
        out.slot(1).fill(9);
        let mut moved = Box::new(out);
        moved.send(&sender, 2).unwrap();
        let mut input = DatagramBatch::new(2, 10);
        assert_eq!(input.receive(&receiver).unwrap(), 2);
        assert_eq!(input.received(1), [9; 10]);
    }

    #[test]
    fn connection_has_a_congestion_control() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(congestion(&stream).is_some_and(|name| !name.is_empty()));
        assert!(set_congestion(&stream, "no-such-algorithm").is_err());
        assert!(available_congestion().contains(&congestion(&stream).unwrap()));
    }
}
