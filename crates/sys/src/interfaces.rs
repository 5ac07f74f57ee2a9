//! The interfaces of this thread's network namespace: their states and addresses (getifaddrs(3), netdevice(7)), what their
//! drivers can do (the netlink family `netdev`), and the neighbours behind them.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::netlink::{self, attributes, half, long, word, BUFFER_BYTES};

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its Ethernet address; `None` if it has none.
    pub mac: Option<[u8; 6]>,
    /// Whether it is set up.
    pub is_up: bool,
    /// Whether it is the loopback.
    pub is_loopback: bool,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
    /// The most bytes of a packet in one of its frames; `None` if unreadable.
    pub mtu: Option<u32>,
}

/// Returns all interfaces.
///
/// # Errors
/// The system's.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: stores a list that `freeifaddrs` below returns.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: Vec<Interface> = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list, whose strings and addresses live as long as it; the address's family says its type.
        let entry = unsafe { &*next };
        // SAFETY: a terminated string of the entry.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        take(&mut found, name, entry);
        next = entry.ifa_next;
    }
    // SAFETY: the list of `getifaddrs`, returned once.
    unsafe { libc::freeifaddrs(list) };
    for interface in &mut found {
        interface.mtu = mtu(&interface.name);
    }
    Ok(found)
}

fn take(found: &mut Vec<Interface>, name: String, entry: &libc::ifaddrs) {
    let at = found.iter().position(|interface| interface.name == name).unwrap_or_else(|| {
        let flags = entry.ifa_flags as libc::c_int;
        found.push(Interface {
            name,
            index: 0,
            mac: None,
            is_up: flags & libc::IFF_UP != 0,
            is_loopback: flags & libc::IFF_LOOPBACK != 0,
            addresses: Vec::new(),
            mtu: None,
        });
        found.len() - 1
    });
    let interface = &mut found[at];
    if entry.ifa_addr.is_null() {
        return;
    }
    // SAFETY: not null; every address begins with its family, and each cast below is to the type of that family.
    unsafe {
        match libc::c_int::from((*entry.ifa_addr).sa_family) {
            libc::AF_PACKET => {
                let address = &*entry.ifa_addr.cast::<libc::sockaddr_ll>();
                interface.index = address.sll_ifindex as u32;
                let bytes = address.sll_addr.first_chunk::<6>().copied();
                interface.mac = bytes.filter(|_| address.sll_halen == 6 && address.sll_hatype == libc::ARPHRD_ETHER);
            }
            libc::AF_INET => {
                let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                interface.addresses.push(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into());
            }
            libc::AF_INET6 => {
                let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                interface.addresses.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
            }
            _ => {}
        }
    }
}

fn mtu(name: &str) -> Option<u32> {
    // SAFETY: plain system calls on a new socket; `ifreq` of zeros is valid, and its name stays terminated.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let socket = (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))?;
        let mut request: libc::ifreq = zeroed();
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let result = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request);
        (result == 0).then(|| u32::try_from(request.ifr_ifru.ifru_mtu).ok())?
    }
}

/// A neighbour on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface.
    pub interface: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: [u8; 6],
}

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NEIGHBOUR_BYTES: usize = 12;
/// States in which a neighbour's address holds: reachable, stale, delayed, probed, permanent, or without need of a proof.
const KNOWN_STATES: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// Returns the neighbours whose Ethernet addresses are known.
///
/// # Errors
/// The system's.
pub fn neighbours() -> io::Result<Vec<Neighbour>> {
    let socket = netlink::open(0)?;
    netlink::request_dump(&socket, libc::RTM_GETNEIGH, NEIGHBOUR_BYTES, 1)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut found = Vec::new();
    loop {
        for message in netlink::messages(netlink::receive(&socket, &mut buffer)?) {
            let (kind, _, body) = message?;
            match libc::c_int::from(kind) {
                libc::NLMSG_DONE => return Ok(found),
                libc::NLMSG_ERROR => return Err(netlink::error_of(body)),
                _ => found.extend(neighbour(body)),
            }
        }
    }
}

fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let (interface, state) = (word(body, 4)?, half(body, 8)?);
    let (mut address, mut mac) = (None, None);
    for (kind, value) in attributes(body.get(NEIGHBOUR_BYTES..)?) {
        match (kind, value.len()) {
            (NDA_DST, 4) => address = value.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
            (NDA_DST, 16) => address = value.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)),
            (NDA_LLADDR, 6) => mac = value.first_chunk::<6>().copied(),
            _ => {}
        }
    }
    (state & KNOWN_STATES != 0).then_some(())?;
    Some(Neighbour { interface, address: address?, mac: mac? })
}

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 1 << 2;
const GENERIC_HEADER_BYTES: usize = 4;

/// Whether an interface's driver sends frames that XDP redirects to it, at this moment: a veth does while its other end has
/// a program or GRO. `None` on kernels that do not say (before 6.3).
pub fn takes_redirected_frames(interface: u32) -> Option<bool> {
    let socket = netlink::open_generic().ok()?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let family = ask(&socket, &mut buffer, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0")?;
    let family = attributes(&family).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID).and_then(|(_, id)| half(id, 0))?;
    let index = interface.to_ne_bytes();
    let device = ask(&socket, &mut buffer, family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &index)?;
    let features = attributes(&device).find(|(kind, _)| *kind == NETDEV_A_DEV_XDP_FEATURES);
    features.and_then(|(_, value)| long(value)).map(|features| features & NETDEV_XDP_ACT_NDO_XMIT != 0)
}

fn ask(socket: &OwnedFd, buffer: &mut [u8], family: u16, command: u8, attribute: u16, value: &[u8]) -> Option<Vec<u8>> {
    let mut body = vec![command, 1, 0, 0];
    body.extend(((4 + value.len()) as u16).to_ne_bytes());
    body.extend(attribute.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
    netlink::request(socket, family, &body, 1).ok()?;
    let (kind, _, answer) = netlink::messages(netlink::receive(socket, buffer).ok()?).next()?.ok()?;
    (kind == family).then(|| answer.get(GENERIC_HEADER_BYTES..).map(<[u8]>::to_vec))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_an_interface_with_its_address() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.is_loopback).unwrap();
        assert_eq!((loopback.name.as_str(), loopback.mac), ("lo", None));
        assert!(loopback.mtu.is_some_and(|mtu| mtu >= 1280) && loopback.index > 0);
        assert!(!loopback.is_up || loopback.addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn neighbours_are_read_without_an_error() {
        neighbours().unwrap();
    }

    #[test]
    fn only_a_known_neighbour_counts() {
        use crate::netlink::tests::attribute;
        let body = |state: u16| {
            let mut body = vec![2, 0, 0, 0];
            body.extend(7u32.to_ne_bytes());
            body.extend(state.to_ne_bytes());
            body.extend([0, 1]);
            body.extend(attribute(NDA_DST, &[10, 0, 0, 1]));
            body.extend(attribute(NDA_LLADDR, &[2, 0, 0, 0, 0, 9]));
            body
        };
        let known = Neighbour { interface: 7, address: "10.0.0.1".parse().unwrap(), mac: [2, 0, 0, 0, 0, 9] };
        assert_eq!(neighbour(&body(2)), Some(known));
        assert_eq!(neighbour(&body(0x20)), None);
        let whole = body(2);
        assert!((0..whole.len() - 4).all(|length| neighbour(&whole[..length]).is_none()));
    }
}
