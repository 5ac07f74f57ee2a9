//! The UDP socket of a tunnel: batches of datagrams of equal length to or from one address pass the kernel as one
//! (`UDP_SEGMENT`, `UDP_GRO`; udp(7)), so that its per-datagram cost is paid once for dozens.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val, zeroed, MaybeUninit};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::SockAddr;

use crate::net;

/// The maximum number of datagrams in one batch (`UDP_MAX_SEGMENTS` of every kernel that has it).
pub const GSO_MAX_DATAGRAMS: usize = 64;
/// The maximum size of a batch, bytes: the largest UDP payload over IPv4.
pub const GSO_MAX_BYTES: usize = 65_507;

/// Room for one control message with an int, with the alignment that the kernel requires.
type Control = [u64; 4];

/// An unconnected UDP socket that never blocks.
#[derive(Debug)]
pub struct GsoSocket {
    socket: UdpSocket,
    segments: bool,
}

/// The result of one receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GsoBatch {
    /// The sender's address.
    pub from: SocketAddr,
    /// Total bytes of all datagrams.
    pub bytes: usize,
    /// Bytes of each datagram except the last, which may be shorter.
    pub datagram_bytes: usize,
}

impl GsoSocket {
    /// Binds the socket, with large buffers. With `gso` it asks the kernel to deliver datagrams in batches.
    pub fn bind(at: SocketAddr, gso: bool) -> io::Result<Self> {
        let socket = net::udp_socket(at, None, false)?;
        socket.set_nonblocking(true)?;
        let on: libc::c_int = 1;
        // SAFETY: passes a live int and its size.
        let result = unsafe {
            let option = std::ptr::from_ref(&on).cast();
            let size = size_of_val(&on) as libc::socklen_t;
            gso.then(|| libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, option, size))
        };
        // A kernel without UDP_GRO (before 5.0) has no fast way of sending batches either: datagrams are then sent
        // one by one.
        Ok(Self { socket, segments: result == Some(0) })
    }

    /// Returns the socket, for polling and for its drop count.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends a batch of datagrams of `datagram_bytes` each; the last one may be shorter. Returns how many datagrams
    /// the system refused.
    pub fn send(&mut self, to: SocketAddr, bytes: &[u8], datagram_bytes: usize) -> u64 {
        let count = bytes.len().div_ceil(datagram_bytes.max(1));
        if count > 1 && self.segments {
            match self.send_batch(to, bytes, datagram_bytes) {
                Ok(()) => return 0,
                // The route's device cannot compute checksums, and never will.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => self.segments = false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return count as u64,
                // For example too long for the route's MTU: single datagrams may be fragmented, a batch may not.
                Err(_) => {}
            }
        }
        let lost = bytes.chunks(datagram_bytes.max(1)).filter(|datagram| self.socket.send_to(datagram, to).is_err());
        lost.count() as u64
    }

    /// Receives the next batch or datagram; `WouldBlock` if there is none. `space` should hold 64 KiB.
    pub fn receive(&self, space: &mut [u8]) -> io::Result<GsoBatch> {
        let mut vector = libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() };
        let mut control = MaybeUninit::<Control>::zeroed();
        // SAFETY: the header's pointers are to `vector`, `control` and the address storage that `try_init` lends, all
        // of which outlive the call, with their true lengths. `try_init` uses the address only on success.
        let (received, address) = unsafe {
            SockAddr::try_init(|storage, length| {
                let mut header: libc::msghdr = zeroed();
                header.msg_name = storage.cast();
                header.msg_namelen = *length;
                header.msg_iov = &mut vector;
                header.msg_iovlen = 1;
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = size_of::<Control>() as _;
                let bytes = libc::recvmsg(self.socket.as_raw_fd(), &mut header, libc::MSG_DONTWAIT);
                let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
                *length = header.msg_namelen;
                Ok((bytes, datagram_bytes(&header)))
            })?
        };
        let (bytes, datagram_bytes) = received;
        let from = address.as_socket().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(GsoBatch { from, bytes, datagram_bytes: datagram_bytes.unwrap_or(bytes) })
    }

    fn send_batch(&self, to: SocketAddr, bytes: &[u8], datagram_bytes: usize) -> io::Result<()> {
        let address = SockAddr::from(to);
        let datagram_bytes = u16::try_from(datagram_bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = MaybeUninit::<Control>::zeroed();
        // SAFETY: the header's pointers are to `address`, `vector` and `control`, which outlive the call, with their true lengths; the
        // kernel only reads them. `Control` holds one message with a u16, so CMSG_FIRSTHDR is not null.
        let sent = unsafe {
            let mut header: libc::msghdr = zeroed();
            header.msg_name = address.as_ptr().cast_mut().cast();
            header.msg_namelen = address.len();
            header.msg_iov = &mut vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_UDP;
            (*message).cmsg_type = libc::UDP_SEGMENT;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(message).cast::<u16>().write_unaligned(datagram_bytes);
            libc::sendmsg(self.socket.as_raw_fd(), &header, libc::MSG_DONTWAIT)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Returns the length of a batch's datagrams, if the kernel reported one.
///
/// # Safety
/// `header` must be as recvmsg filled it, and its control buffer alive.
unsafe fn datagram_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel wrote whole control messages within msg_controllen, which these walk; a UDP_GRO message carries an int.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        if message.is_null() || (*message).cmsg_level != libc::SOL_UDP || (*message).cmsg_type != libc::UDP_GRO {
            return None;
        }
        let bytes = libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned();
        usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gso_batch_arrives_whole_and_in_order() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut from, to) = (bound(address), bound(address));
            let bytes: Vec<u8> = (0..3300).map(|n| (n / 1000) as u8).collect();
            let at = to.socket().local_addr().unwrap();
            assert_eq!(from.send(at, &bytes, 1000), 0);
            let mut arrived = Vec::new();
            let mut space = vec![0; 1 << 16];
            while arrived.len() < bytes.len() {
                let batch = to.receive(&mut space).unwrap();
                assert_eq!(batch.from, from.socket().local_addr().unwrap());
                for datagram in space[..batch.bytes].chunks(batch.datagram_bytes) {
                    assert!(datagram.iter().all(|byte| *byte == datagram[0]));
                    arrived.extend_from_slice(datagram);
                }
            }
            assert_eq!(arrived, bytes);
            assert_eq!(to.receive(&mut space).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn without_gso_datagrams_are_sent_one_by_one() {
        let to = GsoSocket::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let mut from = GsoSocket::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        assert_eq!(from.send(to.socket().local_addr().unwrap(), &[7; 250], 100), 0);
        let mut space = [0; 1000];
        let lengths: Vec<usize> = (0..3).map(|_| to.receive(&mut space).unwrap().bytes).collect();
        assert_eq!(lengths, [100, 100, 50]);
    }

    fn bound(address: &str) -> GsoSocket {
        GsoSocket::bind(address.parse().unwrap(), true).unwrap()
    }
}
