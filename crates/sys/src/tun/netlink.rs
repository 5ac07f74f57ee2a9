//! The rtnetlink requests for a TUN device (rtnetlink(7)): MTU, queue length and up; addresses. Unlike the older
//! ioctls they work alike for both families, keep existing addresses, and need no privileges outside a user
//! namespace.
#![allow(unsafe_code)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// `IFLA_INET6_ADDR_GEN_MODE` and its `IN6_ADDR_GEN_MODE_NONE` of linux/if_link.h: no link-local address.
const ADDRESS_GENERATION: u16 = 8;
const GENERATE_NO_ADDRESS: u8 = 1;

/// Sets the MTU in bytes and the queue length in packets, and brings the interface up without an automatic link-local
/// address: a peer would refuse packets from it, because it is no peer's allowed address.
pub fn bring_up(index: u32, mtu_bytes: u16, queue_packets: u16) -> io::Result<()> {
    let mut plain = link_message(index, 0);
    let mode = attribute(ADDRESS_GENERATION, &[GENERATE_NO_ADDRESS]);
    plain.extend(attribute(libc::IFLA_AF_SPEC, &attribute(libc::AF_INET6 as u16, &mode)));
    match request(libc::RTM_NEWLINK, 0, &plain) {
        // A host without IPv6 creates no such address either.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {}
        result => result?,
    }
    let mut body = link_message(index, libc::IFF_UP as u32);
    body.extend(attribute(libc::IFLA_MTU, &u32::from(mtu_bytes).to_ne_bytes()));
    body.extend(attribute(libc::IFLA_TXQLEN, &u32::from(queue_packets).to_ne_bytes()));
    request(libc::RTM_NEWLINK, 0, &body)
}

/// Adds an address to an interface, without duplicate address detection: a tunnel has no link for it, and a tentative
/// address could not be bound to.
pub fn add_address(index: u32, address: IpAddr, prefix_length: u8) -> io::Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    request(libc::RTM_NEWADDR, flags, &address_message(index, address, prefix_length))
}

/// `ifinfomsg`: family, padding, type, index, flags, and which flags to change.
fn link_message(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [index, flags, flags] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body
}

fn address_message(index: u32, address: IpAddr, prefix_length: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(four) => (libc::AF_INET, four.octets().to_vec()),
        IpAddr::V6(six) => (libc::AF_INET6, six.octets().to_vec()),
    };
    // ifaddrmsg: family, prefix length, flags, scope (0 is global), interface.
    let mut body = vec![family as u8, prefix_length, libc::IFA_F_NODAD as u8, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    // On a point-to-point device IFA_ADDRESS would be the far end; equal to IFA_LOCAL it stands for the whole prefix.
    body.extend(attribute(libc::IFA_LOCAL, &octets));
    body.extend(attribute(libc::IFA_ADDRESS, &octets));
    body
}

/// `rtattr`: length without the padding, kind, value, padding to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Sends one request and waits for the kernel's response.
fn request(kind: u16, flags: libc::c_int, body: &[u8]) -> io::Result<()> {
    // nlmsghdr: length, type, flags, sequence, port.
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16).to_ne_bytes());
    message.resize(HEADER_BYTES, 0);
    message.extend_from_slice(body);
    // SAFETY: plain socket(2); a non-negative result is a descriptor that no other object owns.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: the pointer and length are those of a live buffer. An unaddressed netlink message goes to the kernel.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0u8; 1024];
    // SAFETY: the kernel writes at most `answer.len()` bytes into `answer`.
    let length = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    acknowledged(&answer[..length])
}

/// Reads `NLMSG_ERROR`: after the header an errno, negative, or 0 for success.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's response is not an acknowledgement");
    let kind = answer.get(4..6).ok_or_else(unexpected)?;
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).ok_or_else(unexpected)?;
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
    fn netlink_attributes_are_padded_and_keep_their_length() {
        let bytes = attribute(7, &[1]);
        assert_eq!(bytes.len(), 8);
        assert_eq!(bytes[..2], 5u16.to_ne_bytes());
        assert_eq!(address_message(3, "fd83::1".parse().unwrap(), 64).len(), 8 + 2 * 20);
    }

    #[test]
    fn netlink_refusal_and_malformed_answer_are_errors() {
        let mut answer = [0u8; 20];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert!(acknowledged(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EEXIST).to_ne_bytes());
        assert_eq!(acknowledged(&answer).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        assert!(acknowledged(&answer[..17]).is_err());
    }

    #[test]
    fn missing_interface_is_an_error() {
        let error = add_address(u32::MAX >> 1, "10.83.0.1".parse().unwrap(), 16).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
    }
}
