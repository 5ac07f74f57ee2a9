//! The state of interfaces as the kernel reports each change of it (rtnetlink(7), RTMGRP_LINK): set up or down, and with
//! or without a carrier.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

use crate::netlink::{self, attributes, word, BUFFER_BYTES};

/// Length of an `ifinfomsg`.
const MESSAGE_BYTES: usize = 16;
/// Of linux/if_link.h.
const IFLA_IFNAME: u16 = 3;
const IFLA_CARRIER_DOWN_COUNT: u16 = 48;
const IFF_LOWER_UP: u32 = 1 << 16;

/// The state of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Its number.
    pub interface: u32,
    /// Its name.
    pub name: String,
    /// Whether it is set up; its host decides that.
    pub is_up: bool,
    /// Whether the other end of its cable is there.
    pub has_carrier: bool,
    /// Times that it lost its carrier since it was made; `None` on old kernels.
    pub carrier_losses: Option<u32>,
    /// Whether it is gone from this host.
    pub is_removed: bool,
}

/// Returns the number of an interface of this thread's network namespace.
///
/// # Errors
/// `ENODEV` if there is none of this name.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        index => Ok(index),
    }
}

/// A socket that receives every change.
pub struct LinkMonitor {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl LinkMonitor {
    /// Opens the socket in the network namespace of this thread.
    pub fn open() -> io::Result<Self> {
        let socket = netlink::open(libc::RTMGRP_LINK as u32)?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// Asks for the state of all interfaces; `read` returns them.
    pub fn request_all(&mut self) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        netlink::request_dump(&self.socket, libc::RTM_GETLINK, MESSAGE_BYTES, self.sequence)
    }

    /// Waits for states, and appends them; returns whether they are the last of all interfaces that were asked for.
    /// `ENOBUFS` means that changes are lost: ask for all.
    pub fn read(&mut self, states: &mut Vec<LinkState>) -> io::Result<bool> {
        take_states(netlink::receive(&self.socket, &mut self.buffer)?, self.sequence, states)
    }
}

fn take_states(datagram: &[u8], sequence: u32, states: &mut Vec<LinkState>) -> io::Result<bool> {
    let mut is_last = false;
    for message in netlink::messages(datagram) {
        let (kind, of, body) = message?;
        match libc::c_int::from(kind) {
            libc::NLMSG_DONE => is_last |= of == sequence,
            libc::NLMSG_ERROR => return Err(netlink::error_of(body)),
            _ if kind == libc::RTM_NEWLINK => states.extend(state(body, false)),
            _ if kind == libc::RTM_DELLINK => states.extend(state(body, true)),
            _ => {}
        }
    }
    Ok(is_last)
}

/// `None` for what concerns an interface only as the port of a bridge, and for messages that are cut.
fn state(body: &[u8], is_removed: bool) -> Option<LinkState> {
    // ifinfomsg: family and padding, type, interface, flags, changes.
    let (family, interface, flags) = (*body.first()?, word(body, 4)?, word(body, 8)?);
    let mut found = LinkState {
        interface,
        name: String::new(),
        is_up: !is_removed && flags & libc::IFF_UP as u32 != 0,
        has_carrier: !is_removed && flags & IFF_LOWER_UP != 0,
        carrier_losses: None,
        is_removed,
    };
    for (kind, value) in attributes(body.get(MESSAGE_BYTES..)?) {
        match kind {
            IFLA_IFNAME => found.name = CStr::from_bytes_until_nul(value).ok()?.to_string_lossy().into_owned(),
            IFLA_CARRIER_DOWN_COUNT => found.carrier_losses = word(value, 0),
            _ => {}
        }
    }
    (i32::from(family) == libc::AF_UNSPEC && !found.name.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::tests::{attribute, message, words};

    fn link(family: u32, flags: u32, losses: u32) -> Vec<u8> {
        let mut body = words(&[family, 7, flags, u32::MAX]);
        body.extend(attribute(IFLA_IFNAME, b"wan\0"));
        body.extend(attribute(IFLA_CARRIER_DOWN_COUNT, &losses.to_ne_bytes()));
        body
    }

    #[test]
    fn flags_and_losses_are_read_from_changes_and_dumps() {
        let up = libc::IFF_UP as u32;
        let mut datagram = message(libc::RTM_NEWLINK, 3, &link(0, up | IFF_LOWER_UP, 1));
        datagram.extend(message(libc::RTM_NEWLINK, 0, &link(0, up, 2)));
        datagram.extend(message(libc::RTM_NEWLINK, 0, &link(libc::AF_BRIDGE as u32, up, 9)));
        datagram.extend(message(libc::RTM_DELLINK, 0, &link(0, up | IFF_LOWER_UP, 3)));
        let mut states = Vec::new();
        assert!(!take_states(&datagram, 3, &mut states).unwrap());
        let found: Vec<_> =
            states.iter().map(|one| (one.is_up, one.has_carrier, one.carrier_losses, one.is_removed)).collect();
        assert_eq!(found, [(true, true, Some(1), false), (true, false, Some(2), false), (false, false, Some(3), true)]);
        assert!(states.iter().all(|one| one.name == "wan" && one.interface == 7));
        let done = message(libc::NLMSG_DONE as u16, 3, &words(&[0]));
        assert!(take_states(&done, 3, &mut states).unwrap() && !take_states(&done, 4, &mut states).unwrap());
    }

    #[test]
    fn cut_messages_are_errors_or_left_out() {
        let whole = message(libc::RTM_NEWLINK, 3, &link(0, 1, 1));
        for end in crate::netlink::HEADER_BYTES..whole.len() {
            assert!(take_states(&whole[..end], 3, &mut Vec::new()).is_err());
        }
        assert!((0..MESSAGE_BYTES).all(|end| state(&link(0, 1, 1)[..end], false).is_none()));
        let refused = message(libc::NLMSG_ERROR as u16, 3, &words(&[(-libc::EPERM) as u32]));
        assert_eq!(take_states(&refused, 3, &mut Vec::new()).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn this_namespace_has_a_loopback() {
        let mut monitor = LinkMonitor::open().unwrap();
        monitor.request_all().unwrap();
        let mut states = Vec::new();
        while !monitor.read(&mut states).unwrap() {}
        assert!(states.iter().any(|one| one.name == "lo"));
    }
}
