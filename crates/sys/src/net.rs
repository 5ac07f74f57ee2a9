//! Sockets beyond what socket2 offers: batches of datagrams, TCP_INFO, drops of a socket's own buffer.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Buffers that hold what a fast sender emits while a receiver waits for its CPU, bytes.
const DATAGRAM_BUFFER_BYTES: usize = 4 << 20;

/// Open a blocking TCP connection with Nagle's algorithm off.
pub fn connect_tcp(to: SocketAddr, from: Option<IpAddr>, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&SockAddr::from(to), timeout)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Listen for TCP; an IPv6 socket takes IPv6 alone, so that both families can have the same port.
pub fn listen_tcp(at: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// A UDP socket with room for bursts. `shared` lets several sockets have the port: a connected one then gets its own
/// peer's datagrams, an unconnected one the rest.
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

/// Ask for large buffers: beyond the host's limit where we may, up to it where not. Neither is an error: drops are counted.
fn enlarge_buffers(socket: &Socket) {
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        let size = DATAGRAM_BUFFER_BYTES as libc::c_int;
        for option in [force, plain] {
            // SAFETY: passes a live int and its size.
            let result = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    std::ptr::from_ref(&size).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
            if result == 0 {
                break;
            }
        }
    }
}

/// What the kernel knows of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Segments sent again since the connection began.
    pub retransmits: u32,
}

/// Ask TCP_INFO.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    // SAFETY: an all-zero tcp_info is valid and the kernel writes at most `length` bytes into it.
    let info = unsafe {
        let mut info: libc::tcp_info = zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let result = libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        );
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        info
    };
    Ok(TcpInfo { rtt_us: info.tcpi_rtt, retransmits: info.tcpi_total_retrans })
}

/// linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of nine values.
const SO_MEMINFO: libc::c_int = 55;
const MEMINFO_VALUES: usize = 9;
const MEMINFO_DROPS: usize = 8;

/// Datagrams that this socket's receive buffer had no room for; `None` where the kernel does not tell.
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
    bytes: Box<[u8]>,
    slot_bytes: usize,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the raw pointers in `vectors` and `headers` point into the boxes of the same value, which move with it.
unsafe impl Send for DatagramBatch {}

impl DatagramBatch {
    /// Room for `count` datagrams of at most `slot_bytes`.
    pub fn new(count: usize, slot_bytes: usize) -> Self {
        let mut bytes = vec![0u8; count * slot_bytes].into_boxed_slice();
        let mut vectors: Box<[libc::iovec]> = bytes
            .chunks_exact_mut(slot_bytes)
            .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot_bytes })
            .collect();
        let headers = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: an all-zero mmsghdr is valid: no address, no control data.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self { bytes, slot_bytes, vectors, headers }
    }

    /// How many datagrams fit.
    pub fn capacity(&self) -> usize {
        self.vectors.len()
    }

    /// The memory of one datagram.
    pub fn slot(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[index * self.slot_bytes..][..self.slot_bytes]
    }

    /// A datagram that `receive` brought: its bytes, as far as they fit.
    pub fn received(&self, index: usize) -> &[u8] {
        let length = (self.headers[index].msg_len as usize).min(self.slot_bytes);
        &self.bytes[index * self.slot_bytes..][..length]
    }

    /// As `received`, for a reader that changes the bytes in place.
    pub fn received_mut(&mut self, index: usize) -> &mut [u8] {
        let length = (self.headers[index].msg_len as usize).min(self.slot_bytes);
        &mut self.bytes[index * self.slot_bytes..][..length]
    }

    /// Send the first `count` slots, whole, over a connected socket; returns how many the socket took.
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        let count = count.min(self.capacity());
        // SAFETY: the headers point to vectors and bytes that live as long as `self` and are `count` at least.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count as libc::c_uint, libc::MSG_DONTWAIT)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Take what is there without waiting; returns how many datagrams came.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let count = self.capacity() as libc::c_uint;
        // SAFETY: as in `send`; no time-out is given.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }
}

/// Close with a reset instead of an orderly end, so that nothing lingers in the kernel's buffers.
pub fn reset(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

/// Have the kernel end a connection whose peer acknowledges nothing for so long (TCP_USER_TIMEOUT).
pub fn give_up_after(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(silence))
}

/// Choose a connection's congestion control by the kernel's name for it.
pub fn set_congestion(stream: &TcpStream, name: &str) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_congestion(name.as_bytes())
}

/// The congestion control that a connection uses.
pub fn congestion(stream: impl AsFd) -> Option<String> {
    let name = socket2::SockRef::from(&stream).tcp_congestion().ok()?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8(name[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn pair() -> (UdpSocket, UdpSocket) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let receiver = udp_socket(any, None, false).unwrap();
        let sender = udp_socket(any, Some(receiver.local_addr().unwrap()), false).unwrap();
        (sender, receiver)
    }

    #[test]
    fn a_batch_arrives_datagram_by_datagram() {
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
    fn a_moved_batch_still_points_to_its_own_memory() {
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
    fn tcp_tells_its_round_trip_and_congestion_control() {
        let listener = listen_tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let stream = connect_tcp(listener.local_addr().unwrap(), None, Duration::from_secs(5)).unwrap();
        assert!(tcp_info(&stream).unwrap().rtt_us > 0);
        assert!(congestion(&stream).is_some_and(|name| !name.is_empty()));
        assert!(set_congestion(&stream, "no-such-algorithm").is_err());
    }
}
