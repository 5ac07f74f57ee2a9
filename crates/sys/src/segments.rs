//! Many datagrams of one length in one system call: UDP's segmentation offload (UDP_SEGMENT, Linux 4.18), and its
//! counterpart on receipt (UDP_GRO, Linux 5.0). Owns the calls and the fallback if one is refused; the caller decides
//! which datagrams go together.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// The maximum number of datagrams per call (the smallest UDP_MAX_SEGMENTS of all kernels).
pub const MOST_SEGMENTS: usize = 64;
/// The maximum size per call, bytes: for IP's length field they are one datagram, headers included.
pub const MOST_BYTES: usize = 65_000;

/// From linux/udp.h.
const UDP_SEGMENT: libc::c_int = 103;
/// A control message with two bytes, whose header needs the alignment of a `usize`.
const CONTROL_WORDS: usize = 4;

/// Sends `bytes` over a connected socket as datagrams of `segment` bytes, the last one shorter, without waiting.
/// Returns how many bytes were sent: all of them, or fewer in whole datagrams if the socket accepted no more.
///
/// # Errors
/// The socket's, if not even the first datagram was sent.
pub fn send(socket: &UdpSocket, bytes: &[u8], segment: usize) -> io::Result<usize> {
    if bytes.len() <= segment {
        return socket.send(bytes);
    }
    match send_together(socket, bytes, segment) {
        Err(error) if is_refusal(&error) => send_apart(socket, bytes, segment),
        result => result,
    }
}

/// Whether datagrams cannot be sent together: the device does not have this offload, or a segment is longer than its
/// MTU, so that IP would have to fragment it.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO | libc::EMSGSIZE))
}

/// Asks the kernel to merge datagrams of one length that arrive together; returns whether it does.
pub fn merge_received(socket: &UdpSocket) -> bool {
    let on: libc::c_int = 1;
    // SAFETY: passes a live int and its size.
    let result = unsafe {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, std::ptr::from_ref(&on).cast(), size)
    };
    result == 0
}

/// Returns the length of merged datagrams from control messages, as the kernel wrote them; `None` for a single one.
pub(crate) fn merged_bytes(control: &[u8]) -> Option<usize> {
    // `cmsghdr`: length (8 bytes), level (4), type (4); then the data, an int.
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let word = |at: usize| Some(u64::from_ne_bytes(control.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(i32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    let mut at = 0;
    while let Some(length) = word(at) {
        if half(at + 8)? == libc::SOL_UDP && half(at + 12)? == libc::UDP_GRO {
            return usize::try_from(half(at + HEADER)?).ok().filter(|bytes| *bytes > 0);
        }
        at += usize::try_from(length).ok()?.max(HEADER).next_multiple_of(8);
    }
    None
}

/// Sends like `send`, but fails if the datagrams cannot be sent together.
///
/// # Errors
/// The socket's; see `is_refusal`.
pub fn send_together(socket: &UdpSocket, bytes: &[u8], segment: usize) -> io::Result<usize> {
    let segment = u16::try_from(segment).map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
    let mut control = [0usize; CONTROL_WORDS];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: an all-zero msghdr is valid. The vector's bytes are only read; the control memory is aligned for its header,
    // larger than what CMSG_SPACE asks for two bytes, and all of it outlives the call.
    let sent = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment);
        libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn send_apart(socket: &UdpSocket, bytes: &[u8], segment: usize) -> io::Result<usize> {
    let mut sent = 0;
    for datagram in bytes.chunks(segment) {
        match socket.send(datagram) {
            Ok(_) => sent += datagram.len(),
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmented_send_arrives_as_separate_datagrams() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..250).collect();
        for how in [send, send_together, send_apart] {
            assert_eq!(how(&sender, &bytes, 100).unwrap(), 250);
            let mut datagram = [0; 300];
            for expected in bytes.chunks(100) {
                let length = receiver.recv(&mut datagram).unwrap();
                assert_eq!(&datagram[..length], expected);
            }
        }
    }

    #[test]
    fn unsegmentable_datagrams_are_sent_separately() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        // More segments than any kernel accepts in one call.
        let bytes = [7; 1000];
        assert!(send_together(&sender, &bytes, 1).is_err());
        assert_eq!(send(&sender, &bytes, 1).unwrap(), 1000);
        let mut datagram = [0; 4];
        assert_eq!(receiver.recv(&mut datagram).unwrap(), 1);
    }
}
