//! What messages of rtnetlink(7) have in common: sockets, headers, attributes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Length of a `nlmsghdr`.
pub const HEADER_BYTES: usize = 16;
/// The kernel fills at most this much at once.
pub const BUFFER_BYTES: usize = 32 * 1024;

/// Opens a socket of a protocol of netlink in the network namespace of this thread.
fn open_protocol(protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: plain socket(2); a non-negative result is a descriptor that no other object owns.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Opens a socket of the generic families (genetlink).
pub fn open_generic() -> io::Result<OwnedFd> {
    open_protocol(libc::NETLINK_GENERIC)
}

/// Opens a socket of the network namespace of this thread; it joins the multicast groups of the mask `groups`.
pub fn open(groups: u32) -> io::Result<OwnedFd> {
    let socket = open_protocol(libc::NETLINK_ROUTE)?;
    if groups != 0 {
        // SAFETY: a `sockaddr_nl` of zeros is valid; the pointer and length are those of a live one.
        let bound = unsafe {
            let mut address: libc::sockaddr_nl = std::mem::zeroed();
            address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
            address.nl_groups = groups;
            let length = std::mem::size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}

/// Asks for everything of a kind: `nlmsghdr`, then a body of zeros.
pub fn request_dump(socket: &OwnedFd, kind: u16, body_bytes: usize, sequence: u32) -> io::Result<()> {
    send(socket, kind, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, &vec![0; body_bytes], sequence)
}

/// Asks for one thing.
pub fn request(socket: &OwnedFd, kind: u16, body: &[u8], sequence: u32) -> io::Result<()> {
    send(socket, kind, libc::NLM_F_REQUEST, body, sequence)
}

fn send(socket: &OwnedFd, kind: u16, flags: libc::c_int, body: &[u8], sequence: u32) -> io::Result<()> {
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(flags as u16).to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    // The kernel fills in the sender's number.
    message.resize(HEADER_BYTES, 0);
    message.extend_from_slice(body);
    // SAFETY: the pointer and length are those of a live buffer. An unaddressed netlink message goes to the kernel.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits for a datagram.
pub fn receive<'buffer>(socket: &OwnedFd, buffer: &'buffer mut [u8]) -> io::Result<&'buffer [u8]> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
    let length = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_TRUNC) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    Ok(buffer.get(..length).ok_or(io::ErrorKind::InvalidData)?)
}

/// One message: its kind, its sequence number and its body.
pub type Message<'datagram> = (u16, u32, &'datagram [u8]);

/// The messages of a datagram; a cut one is an error, and the last.
pub fn messages(mut rest: &[u8]) -> impl Iterator<Item = io::Result<Message<'_>>> {
    std::iter::from_fn(move || {
        if rest.len() < HEADER_BYTES {
            return None;
        }
        let length = word(rest, 0).unwrap_or(0) as usize;
        let Some(message) = rest.get(..length).filter(|_| length >= HEADER_BYTES) else {
            rest = &[];
            return Some(Err(io::ErrorKind::InvalidData.into()));
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let (kind, sequence) = (half(message, 4).unwrap_or(0), word(message, 8).unwrap_or(0));
        Some(Ok((kind, sequence, &message[HEADER_BYTES..])))
    })
}

/// The error that an `NLMSG_ERROR` has.
pub fn error_of(body: &[u8]) -> io::Error {
    io::Error::from_raw_os_error((word(body, 0).unwrap_or(0) as i32).saturating_neg())
}

/// The attributes (`rtattr`) of a message, up to the first that does not fit.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits say how the value is made.
        Some((kind & 0x3fff, value))
    })
}

/// Eight bytes.
pub fn long(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}

/// Four bytes.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Two bytes.
pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
pub mod tests {
    use super::HEADER_BYTES;

    /// An attribute with its padding.
    pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Numbers in this machine's order.
    pub fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    /// A message with its header.
    pub fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&0u16.to_ne_bytes());
        bytes.extend(words(&[sequence, 0]));
        bytes.extend_from_slice(body);
        bytes
    }
}
