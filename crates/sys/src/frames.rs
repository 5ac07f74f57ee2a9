//! Ethernet frames of one interface, received and sent whole through packet sockets (packet(7)), in batches.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::clock::monotonic_ns;
use crate::connect::stamp_received;
use crate::links::interface_index;
use crate::net::wall_clock_ahead_ns;
use crate::pinned::Pinned;
use crate::ring::{stamp_ns, CONTROL_BYTES};
use crate::socket_option::set_int;

/// Memory for frames that wait for their receiver, bytes.
const RECEIVE_BUFFER_BYTES: libc::c_int = 32 << 20;
/// `virtio_net_hdr` in front of every frame: flags, GSO type, four 16-bit numbers.
const OFFLOAD_HEADER_BYTES: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
/// A bundle of segments may take 64 KiB of IP; nothing longer is received.
const LONGEST_FRAME_BYTES: usize = (64 << 10) + 64;
/// A timestamp further in the past is that of another wall clock.
const OLDEST_STAMP_NS: u64 = 1_000_000_000;

/// A packet socket for every frame that arrives at one interface, whatever its destination.
#[derive(Debug)]
pub struct FrameSocket {
    socket: OwnedFd,
}

impl FrameSocket {
    /// Opens a socket for what an interface of this network namespace receives.
    pub fn open(interface: &str) -> io::Result<Self> {
        Self::bind(interface, false)
    }

    /// Opens a socket for what an interface receives and sends; of a loopback interface, which receives what it sends,
    /// for what it receives.
    pub fn open_both_ways(interface: &str) -> io::Result<Self> {
        Self::bind(interface, interface != "lo")
    }

    fn bind(interface: &str, sees_outgoing: bool) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: a plain system call; a non-negative result is a descriptor that no other object owns. Without a
        // protocol the socket receives nothing until it is bound.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let this = Self { socket };
        this.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        this.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        // For one that passes frames on, what the other direction sends through this interface must not come back.
        this.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, libc::c_int::from(!sees_outgoing))?;
        this.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        // Beyond the host's limit if privileged. A smaller buffer overruns earlier, which is counted.
        let _ = this.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES);
        stamp_received(&this)?;
        // SAFETY: an all-zero sockaddr_ll is valid; the kernel reads as many bytes as it has.
        let bound = unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = interface_index(interface)? as libc::c_int;
            libc::bind(
                this.socket.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(this)
    }

    /// Returns the frames that found no room in the receive buffer since the last call.
    pub fn overruns(&self) -> io::Result<u64> {
        let mut statistics = [0u32; 2]; // tpacket_stats: packets, drops
        let mut length = size_of::<[u32; 2]>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `statistics`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                statistics.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u64::from(statistics[1]))
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        set_int(&self.socket, level, option, value)
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A frame as the kernel delivered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedFrame<'a> {
    /// Its bytes from the Ethernet header on.
    pub bytes: &'a [u8],
    /// False if it is longer than a batch takes, or a bundle of segments (GSO).
    pub is_single: bool,
    /// The VLAN tag that the kernel took out: its protocol and its control information.
    pub tag: Option<(u16, u16)>,
    /// A checksum that the sender left to its network card: where the covered bytes begin, and its place from there on.
    pub checksum: Option<(u16, u16)>,
    /// When the kernel had it, ns.
    pub arrived_ns: u64,
}

/// Aligned for the headers in it.
type Control = [u64; CONTROL_BYTES / 8];

/// Room for frames that one system call receives.
pub struct FrameBatch {
    bytes: Pinned<u8>,
    control: Pinned<Control>,
    vectors: Pinned<libc::iovec>,
    headers: Pinned<libc::mmsghdr>,
    received: usize,
    received_ns: u64,
    ahead_ns: u64,
}

// SAFETY: the raw pointers in `vectors` and `headers` point into memory of the same value, which does not move.
unsafe impl Send for FrameBatch {}

const SLOT_BYTES: usize = OFFLOAD_HEADER_BYTES + LONGEST_FRAME_BYTES;

impl FrameBatch {
    /// Creates room for this many frames.
    pub fn new(count: usize) -> Self {
        let bytes = Pinned::new(vec![0u8; count * SLOT_BYTES].into_boxed_slice());
        let control: Pinned<Control> = Pinned::new(vec![[0; CONTROL_BYTES / 8]; count].into_boxed_slice());
        let vector = |index| libc::iovec { iov_base: bytes.place(index * SLOT_BYTES).cast(), iov_len: SLOT_BYTES };
        let vectors = Pinned::new((0..count).map(vector).collect());
        let header = |index| {
            // SAFETY: an all-zero mmsghdr is valid: no address.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = vectors.place(index);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.place(index).cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
            header
        };
        let headers = Pinned::new((0..count).map(header).collect());
        Self { bytes, control, vectors, headers, received: 0, received_ns: 0, ahead_ns: 0 }
    }

    /// Receives pending frames without waiting; returns how many.
    pub fn receive(&mut self, socket: &FrameSocket) -> io::Result<usize> {
        // The last call set the lengths to the bytes written; this one needs the lengths available.
        self.headers[..self.received].iter_mut().for_each(|header| header.msg_hdr.msg_controllen = CONTROL_BYTES);
        // SAFETY: the headers point to vectors, bytes and control memory that live as long as `self`, with their true
        // lengths; no time-out is given.
        let received = unsafe {
            libc::recvmmsg(
                socket.socket.as_raw_fd(),
                self.headers.place(0),
                self.vectors.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        self.received = usize::try_from(received).unwrap_or(0);
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        self.received_ns = monotonic_ns();
        self.ahead_ns = wall_clock_ahead_ns();
        Ok(received)
    }

    /// Returns a frame of the last `receive`; `None` beyond them.
    pub fn frame(&self, index: usize) -> Option<ReceivedFrame<'_>> {
        let header = self.headers[..self.received].get(index)?;
        let length = (header.msg_len as usize).min(SLOT_BYTES);
        let (offload, bytes) = self.bytes[index * SLOT_BYTES..][..length].split_at_checked(OFFLOAD_HEADER_BYTES)?;
        // SAFETY: the same memory, as bytes, which have no wrong values and want no alignment.
        let control = unsafe { std::slice::from_raw_parts(self.control[index].as_ptr().cast::<u8>(), CONTROL_BYTES) };
        let control = control.get(..header.msg_hdr.msg_controllen)?;
        let number = |at: usize| u16::from_ne_bytes([offload[at], offload[at + 1]]);
        Some(ReceivedFrame {
            bytes,
            is_single: offload[1] == 0 && header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0,
            tag: tag_of(control),
            checksum: (offload[0] & NEEDS_CHECKSUM != 0).then(|| (number(6), number(8))),
            arrived_ns: self.arrived_ns(control),
        })
    }

    fn arrived_ns(&self, control: &[u8]) -> u64 {
        let stamp = stamp_ns(control).map(|stamp| stamp.wrapping_sub(self.ahead_ns).min(self.received_ns));
        stamp.filter(|stamp| self.received_ns - stamp < OLDEST_STAMP_NS).unwrap_or(self.received_ns)
    }
}

/// Returns the VLAN tag of `tpacket_auxdata`, the data of a control message PACKET_AUXDATA.
fn tag_of(control: &[u8]) -> Option<(u16, u16)> {
    // `cmsghdr`: length (8 bytes), level (4), type (4).
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let word = |at: usize| Some(u64::from_ne_bytes(control.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(i32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    let short = |at: usize| Some(u16::from_ne_bytes(control.get(at..at + 2)?.try_into().ok()?));
    let mut at = 0;
    while let Some(length) = word(at) {
        if half(at + 8)? == libc::SOL_PACKET && half(at + 12)? == libc::PACKET_AUXDATA {
            // status, length, captured length (4 bytes each), offsets of MAC and network header, tag, tag's protocol.
            let status = half(at + HEADER)? as u32;
            let is_tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
            let protocol =
                if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { short(at + HEADER + 18)? } else { 0x8100 };
            return is_tagged.then_some((protocol, short(at + HEADER + 16)?));
        }
        at += usize::try_from(length).ok()?.max(HEADER).next_multiple_of(8);
    }
    None
}

/// Sends frames that are complete: they have their checksums, and are no bundles.
pub struct FrameSender {
    offload: Pinned<u8>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: outside of `send`, which fills them again, the pointers in `vectors` and `headers` are not used.
unsafe impl Send for FrameSender {}

impl FrameSender {
    /// Creates a sender.
    pub fn new() -> Self {
        let offload = Pinned::new(vec![0; OFFLOAD_HEADER_BYTES].into_boxed_slice());
        Self { offload, vectors: Vec::new(), headers: Vec::new() }
    }

    /// Sends frames in order; returns how many the kernel did not accept.
    pub fn send<'a>(&mut self, socket: &FrameSocket, frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        self.vectors.clear();
        self.headers.clear();
        for frame in frames {
            self.vectors.push(libc::iovec { iov_base: self.offload.place(0).cast(), iov_len: OFFLOAD_HEADER_BYTES });
            // The kernel only reads what is sent.
            self.vectors.push(libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() });
        }
        let first = self.vectors.as_mut_ptr();
        for index in 0..self.vectors.len() / 2 {
            // SAFETY: an all-zero mmsghdr is valid: no address, no control data. Two vectors per frame lie in place.
            unsafe {
                let mut header: libc::mmsghdr = zeroed();
                header.msg_hdr.msg_iov = first.add(2 * index);
                header.msg_hdr.msg_iovlen = 2;
                self.headers.push(header);
            }
        }
        self.send_all(socket)
    }

    fn send_all(&mut self, socket: &FrameSocket) -> u64 {
        let (mut at, mut refused) = (0, 0);
        while at < self.headers.len() {
            let rest = &mut self.headers[at..];
            // SAFETY: the headers point to vectors, and those to frames that the caller of `send` still borrows out.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => at += sent,
                // The first of the rest is the one that was not accepted.
                _ => (at, refused) = (at + 1, refused + 1),
            }
        }
        refused
    }
}

impl Default for FrameSender {
    fn default() -> Self {
        Self::new()
    }
}

/// A packet socket that only sends, past the interface's queue discipline, with memory for the frames of one call.
pub struct FrameOutlet {
    socket: OwnedFd,
    bytes: Pinned<u8>,
    slot_bytes: usize,
    vectors: Pinned<libc::iovec>,
    headers: Pinned<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `headers` point into memory of the same value, which does not move.
unsafe impl Send for FrameOutlet {}

impl FrameOutlet {
    /// Opens a socket for an interface of this network namespace; each call sends at most `slots` frames of at most
    /// `slot_bytes`.
    ///
    /// # Errors
    /// The system's: `ENODEV`, `EPERM`.
    pub fn open(interface: &str, slots: usize, slot_bytes: usize) -> io::Result<Self> {
        let index = interface_index(interface)?;
        // SAFETY: a plain system call; a non-negative result is a descriptor that no other object owns. It has no
        // protocol: it receives nothing.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        set_int(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        let _ = set_int(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, RECEIVE_BUFFER_BYTES);
        // SAFETY: an all-zero sockaddr_ll is valid; the kernel reads as many bytes as it has.
        let bound = unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = index as libc::c_int;
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length)
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes = Pinned::new(vec![0u8; slots * slot_bytes].into_boxed_slice());
        let vector = |slot| libc::iovec { iov_base: bytes.place(slot * slot_bytes).cast(), iov_len: 0 };
        let vectors = Pinned::new((0..slots).map(vector).collect());
        let header = |slot| {
            // SAFETY: an all-zero mmsghdr is valid: no address, no control data.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = vectors.place(slot);
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = Pinned::new((0..slots).map(header).collect());
        Ok(Self { socket, bytes, slot_bytes, vectors, headers })
    }

    /// Memory for a frame of this length.
    ///
    /// # Panics
    /// If there is no such slot, or it is too short.
    #[inline]
    pub fn slot(&mut self, slot: usize, length: usize) -> &mut [u8] {
        assert!(length <= self.slot_bytes, "a frame of {length} bytes in a slot of {}", self.slot_bytes);
        self.vectors[slot].iov_len = length;
        &mut self.bytes[slot * self.slot_bytes..][..length]
    }

    /// Sends the frames of the slots `from` up to, and without, `to`; returns how many the kernel took.
    ///
    /// # Errors
    /// The system's, if it did not take the first: `ENOBUFS` if the driver's queue is full, so that a later try may do.
    #[inline]
    pub fn send(&mut self, from: usize, to: usize) -> io::Result<usize> {
        assert!(from < to && to <= self.headers.len(), "slots {from} to {to}");
        // SAFETY: headers, vectors and bytes live as long as `self`, with their true lengths.
        let sent = unsafe {
            libc::sendmmsg(self.socket.as_raw_fd(), self.headers.place(from), (to - from) as libc::c_uint, 0)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + data.len() as u64).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&level.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn tag_is_read_behind_other_messages_and_only_if_valid() {
        let mut data = vec![0; 20];
        data[16..18].copy_from_slice(&42u16.to_ne_bytes());
        data[18..20].copy_from_slice(&0x88a8u16.to_ne_bytes());
        let with_status = |status: u32| {
            let mut data = data.clone();
            data[..4].copy_from_slice(&status.to_ne_bytes());
            let stamp = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &[0; 48]);
            [stamp, message(libc::SOL_PACKET, libc::PACKET_AUXDATA, &data)].concat()
        };
        let (valid, with_protocol) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
        assert_eq!(tag_of(&with_status(0)), None);
        assert_eq!(tag_of(&with_status(valid)), Some((0x8100, 42)));
        assert_eq!(tag_of(&with_status(valid | with_protocol)), Some((0x88a8, 42)));
        let whole = with_status(valid | with_protocol);
        for length in 0..whole.len() - 4 {
            assert_eq!(tag_of(&whole[..length]), None, "{length}");
        }
        assert_eq!(tag_of(&[0; 64]), None);
    }

    #[test]
    fn missing_interface_is_an_error() {
        let error = FrameSocket::open("no-such-device").unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
        assert!(FrameSocket::open("a\0b").is_err());
    }
}
