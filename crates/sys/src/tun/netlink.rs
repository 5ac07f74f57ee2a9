//! The one rtnetlink request that is needed: adding an address (rtnetlink(7)). The old ioctl replaces IPv4's first address and has
//! another form for IPv6; netlink adds either the same way.
#![allow(unsafe_code)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `NLMSG_ERROR` carries this after its header: an errno, negative, or 0 for success.
const HEADER_BYTES: usize = 16;
const ERROR_BYTES: usize = 4;

/// Adds an address to an interface and waits for the kernel's answer. Duplicate address detection is left out: a tunnel has no link
/// to ask on, and a tentative address could not be bound to.
pub fn add_address(index: u32, address: IpAddr, prefix_length: u8) -> io::Result<()> {
    let request = address_request(index, address, prefix_length);
    // SAFETY: plain socket(2); a non-negative result is a descriptor that nobody else owns.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the pointer and length are those of a live buffer. An unaddressed netlink message goes to the kernel.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0u8; 1024];
    // SAFETY: the kernel writes at most `answer.len()` bytes into `answer`.
    let length = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    acknowledged(&answer[..length])
}

fn address_request(index: u32, address: IpAddr, prefix_length: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(four) => (libc::AF_INET, four.octets().to_vec()),
        IpAddr::V6(six) => (libc::AF_INET6, six.octets().to_vec()),
    };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let attribute_bytes = 4 + octets.len();
    let total = HEADER_BYTES + 8 + 2 * attribute_bytes;
    let mut message = Vec::with_capacity(total);
    // nlmsghdr: length, type, flags, sequence, port.
    message.extend_from_slice(&(total as u32).to_ne_bytes());
    message.extend_from_slice(&libc::RTM_NEWADDR.to_ne_bytes());
    message.extend_from_slice(&(flags as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // ifaddrmsg: family, prefix length, flags, scope (0 is global), interface.
    message.extend_from_slice(&[family as u8, prefix_length, libc::IFA_F_NODAD as u8, 0]);
    message.extend_from_slice(&index.to_ne_bytes());
    // On a point-to-point device IFA_ADDRESS would be the far end; being equal to IFA_LOCAL it stands for the whole prefix.
    for kind in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
        message.extend_from_slice(&(attribute_bytes as u16).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&octets);
    }
    message
}

fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is no acknowledgement");
    let kind = answer.get(4..6).ok_or_else(unexpected)?;
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + ERROR_BYTES).ok_or_else(unexpected)?;
    if kind != (libc::NLMSG_ERROR as u16).to_ne_bytes() {
        return Err(unexpected());
    }
    match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_as_long_as_it_says() {
        for (address, total) in [("10.83.0.1", 40), ("fd83::1", 64)] {
            let message = address_request(7, address.parse().unwrap(), 16);
            assert_eq!(message.len(), total);
            assert_eq!(message[..4], (total as u32).to_ne_bytes());
        }
    }

    #[test]
    fn a_refusal_is_an_error_and_nonsense_too() {
        let mut answer = [0u8; 20];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert!(acknowledged(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EEXIST).to_ne_bytes());
        assert_eq!(acknowledged(&answer).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        assert!(acknowledged(&answer[..17]).is_err());
    }
}
