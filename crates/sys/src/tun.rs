//! TUN devices: created, configured with addresses and an MTU, brought up; then IP packets are read and written
//! without blocking. Runs no external program, and sets no routes beyond those of an address. Closing the descriptor
//! removes the device.
#![allow(unsafe_code)]

mod gso_socket;
mod netlink;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

pub use gso_socket::{GsoBatch, GsoSocket, GSO_MAX_BYTES, GSO_MAX_DATAGRAMS};

/// A TUN device: a network interface whose link is this file.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    index: u32,
    offloads: bool,
}

impl Tun {
    /// Creates the device in the calling thread's network namespace, down and without addresses. With `offloads` each
    /// packet is preceded by a `virtio_net_hdr`, and may be a large one that still has to be segmented.
    ///
    /// # Errors
    /// `EBUSY` if the name is taken, `EPERM` without CAP_NET_ADMIN, `ENOENT` without `/dev/net/tun`.
    pub fn create(name: &str, offloads: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut request = request_for(name)?;
        let header = if offloads { libc::IFF_VNET_HDR } else { 0 };
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL | header) as libc::c_short;
        // SAFETY: `request` is a live ifreq with a terminated name, which is what TUNSETIFF reads and writes.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &mut request) })?;
        // SAFETY: `ifr_name` is still terminated. Zero means that the interface does not exist.
        let index = unsafe { libc::if_nametoindex(request.ifr_name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let tun = Self { file, name: name.to_string(), index, offloads };
        if offloads {
            tun.enable_segmentation();
        }
        Ok(tun)
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the interface's number in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns true if each packet has a `virtio_net_hdr` before it.
    pub fn offloads(&self) -> bool {
        self.offloads
    }

    /// Adds an address with its prefix, and so the route to that prefix. Can be called repeatedly for either family.
    pub fn add_address(&self, address: IpAddr, prefix_length: u8) -> io::Result<()> {
        netlink::add_address(self.index, address, prefix_length)
    }

    /// Brings the interface up with this MTU and a queue of this many unread packets; the kernel drops (and counts)
    /// packets beyond that.
    pub fn bring_up(&self, mtu_bytes: u16, queue_packets: u16) -> io::Result<()> {
        netlink::bring_up(self.index, mtu_bytes, queue_packets)
    }

    /// Reads the next packet that the host sends; `WouldBlock` if there is none.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(packet)
    }

    /// Passes a whole packet to the host. `WouldBlock` means that the host has no room.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        (&self.file).write(packet)
    }

    /// Enables large packets, for UDP too if the kernel supports it (6.2). A kernel that refuses delivers ordinary
    /// packets, with the header.
    fn enable_segmentation(&self) {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        for features in [tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6, tcp] {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            let result = unsafe {
                libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD as libc::Ioctl, libc::c_ulong::from(features))
            };
            if result == 0 {
                return;
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns an empty request that names an interface.
fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid ifreq: an empty name and a union of plain numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays zero as the terminator.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(['\0', '/', '%']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not an interface name")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_interface_names_are_refused() {
        for name in ["", "sixteen-letters-", "a/b", "wg%d", "a\0"] {
            assert_eq!(request_for(name).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput), "{name}");
        }
        assert!(request_for("fifteen-letters").is_ok());
    }
}
