//! Facts about a host that need system calls: interface addresses and offloads.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

/// One address of an interface, or an interface without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface's name.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// Address and prefix length, if it has one.
    pub address: Option<(IpAddr, u8)>,
}

/// Returns every interface of this network namespace with its addresses, by getifaddrs(3).
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs fills `head` with a list that stays valid until freeifaddrs, which follows after the last use.
    unsafe {
        if libc::getifaddrs(&mut head) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut addresses = Vec::new();
        let mut entry = head;
        while let Some(item) = entry.as_ref() {
            let name = CStr::from_ptr(item.ifa_name).to_string_lossy().into_owned();
            let up = item.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
            let address = ip_of(item.ifa_addr).zip(ip_of(item.ifa_netmask)).map(|(ip, mask)| (ip, prefix_of(mask)));
            if address.is_some() || !addresses.iter().any(|seen: &InterfaceAddress| seen.name == name) {
                addresses.push(InterfaceAddress { name, up, address });
            }
            entry = item.ifa_next;
        }
        libc::freeifaddrs(head);
        Ok(addresses)
    }
}

/// # Safety
/// `address` is null or points to a socket address as long as its family says.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    match i32::from(address.as_ref()?.sa_family) {
        libc::AF_INET => {
            let v4 = &*address.cast::<libc::sockaddr_in>();
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            let v6 = &*address.cast::<libc::sockaddr_in6>();
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

fn prefix_of(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(mask) => u32::from(mask).leading_ones() as u8,
        IpAddr::V6(mask) => u128::from(mask).leading_ones() as u8,
    }
}

/// An interface's offloads; each `None` if the driver does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// TCP segmentation offload.
    pub tso: Option<bool>,
    /// Generic segmentation offload.
    pub gso: Option<bool>,
    /// Generic receive offload.
    pub gro: Option<bool>,
}

/// From linux/sockios.h; libc does not define it.
const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GGRO: u32 = 0x2b;

/// Reads an interface's MTU and offloads.
pub fn offloads(name: &str) -> io::Result<Offloads> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    Ok(Offloads {
        mtu: mtu(&socket, name),
        tso: ethtool_flag(&socket, name, ETHTOOL_GTSO),
        gso: ethtool_flag(&socket, name, ETHTOOL_GGSO),
        gro: ethtool_flag(&socket, name, ETHTOOL_GGRO),
    })
}

/// struct ethtool_value of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

fn ethtool_flag(socket: &Socket, name: &str, command: u32) -> Option<bool> {
    let mut value = EthtoolValue { command, data: 0 };
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the request names the interface and points to an ethtool_value that outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
    (result == 0).then_some(value.data != 0)
}

fn mtu(socket: &Socket, name: &str) -> Option<u32> {
    let mut request = interface_request(name)?;
    // SAFETY: the request names the interface; the kernel writes the MTU into the union, which is read as such.
    unsafe {
        (libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) == 0)
            .then_some(request.ifr_ifru.ifru_mtu)
            .and_then(|mtu| u32::try_from(mtu).ok())
    }
}

fn interface_request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_mtu() {
        let all = interface_addresses().unwrap();
        let loopback = all.iter().find(|entry| entry.address == Some((IpAddr::V4(Ipv4Addr::LOCALHOST), 8)));
        assert_eq!(loopback.map(|entry| entry.name.as_str()), Some("lo"));
        assert!(offloads("lo").unwrap().mtu.is_some());
    }

    #[test]
    fn unknown_interface_yields_nothing() {
        assert_eq!(offloads("no-such-interface-at-all").unwrap(), Offloads::default());
    }
}
