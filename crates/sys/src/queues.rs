//! The counters of the queues that packets leave by (queueing disciplines, rtnetlink(7)). /proc/net/dev does not count
//! what they drop.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `nlmsghdr`, `tcmsg`.
const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 20;
/// Of linux/rtnetlink.h and linux/gen_stats.h.
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;
const STATS_PACKETS: u16 = 8;
/// Parent of a queue that no other one holds.
const ROOT: u32 = u32::MAX;
/// The kind of an interface that has none.
const NO_QUEUE: &str = "noqueue";
/// The kernel fills at most this much at once.
const BUFFER_BYTES: usize = 32 * 1024;
/// More datagrams than any dump has; ends one that a kernel never ends.
const MOST_DATAGRAMS: usize = 100_000;

/// One interface's queue for sending, with the queues inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Number of the interface.
    pub interface: u32,
    /// Name of the discipline: `fq_codel`, `tbf`.
    pub kind: String,
    /// Packets that left it; a bundle of segments counts as many.
    pub packets: u64,
    /// Packets dropped. The kernel's count begins again at 2^32, as the next one does.
    pub drops: u32,
    /// Times that it had to hold packets back for its rate.
    pub overlimits: u32,
    /// Bytes that wait in it now.
    pub backlog_bytes: u32,
}

/// A netlink socket of the network namespace of the thread that opened it.
pub struct Queues {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Queues {
    /// Opens the socket.
    pub fn open() -> io::Result<Self> {
        // SAFETY: plain socket(2); a non-negative result is a descriptor that no other object owns.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// Reads the queue of each interface that has one.
    pub fn read(&mut self) -> io::Result<Vec<QueueCounters>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = dump_request(self.sequence);
        // SAFETY: the pointer and length are those of a live buffer. An unaddressed netlink message goes to the kernel.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut rows = Vec::new();
        for _ in 0..MOST_DATAGRAMS {
            // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
            let length = unsafe {
                libc::recv(self.socket.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len(), libc::MSG_TRUNC)
            };
            let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
            let datagram = self.buffer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
            if take_rows(datagram, self.sequence, &mut rows)? {
                return Ok(rows);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// The name of an interface by its number; `None` if it is gone.
pub fn interface_name(index: u32) -> Option<String> {
    let mut name = [0 as libc::c_char; libc::IF_NAMESIZE];
    // SAFETY: `name` has room for the longest name, and the kernel's name ends in a zero byte inside it.
    let name = unsafe {
        if libc::if_indextoname(index, name.as_mut_ptr()).is_null() {
            return None;
        }
        CStr::from_ptr(name.as_ptr())
    };
    Some(name.to_string_lossy().into_owned())
}

/// A request for all queues: `nlmsghdr`, then a `tcmsg` of zeros.
fn dump_request(sequence: u32) -> Vec<u8> {
    let mut message = ((HEADER_BYTES + MESSAGE_BYTES) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&libc::RTM_GETQDISC.to_ne_bytes());
    message.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.resize(HEADER_BYTES + MESSAGE_BYTES, 0);
    message
}

/// Appends the rows of one datagram; returns whether it ends the dump. Rests of an earlier dump are skipped.
fn take_rows(datagram: &[u8], sequence: u32, rows: &mut Vec<QueueCounters>) -> io::Result<bool> {
    let mut rest = datagram;
    while rest.len() >= HEADER_BYTES {
        let length = word(rest, 0).unwrap_or(0) as usize;
        let message = rest.get(..length).filter(|_| length >= HEADER_BYTES).ok_or(io::ErrorKind::InvalidData)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let kind = libc::c_int::from(half(message, 4).unwrap_or(0));
        if word(message, 8) != Some(sequence) {
            continue;
        }
        match kind {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let errno = word(message, HEADER_BYTES).unwrap_or(0) as i32;
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            _ if kind == libc::c_int::from(libc::RTM_NEWQDISC) => rows.extend(row(&message[HEADER_BYTES..])),
            _ => {}
        }
    }
    Ok(false)
}

/// A queue that no other one holds, whose counters include those of the queues inside it.
fn row(body: &[u8]) -> Option<QueueCounters> {
    // tcmsg: family and padding, interface, handle, parent, info.
    let (interface, parent) = (word(body, 4)?, word(body, 12)?);
    let mut found = QueueCounters { interface, ..QueueCounters::default() };
    for (kind, value) in attributes(body.get(MESSAGE_BYTES..)?) {
        match kind {
            TCA_KIND => found.kind = CStr::from_bytes_until_nul(value).ok()?.to_string_lossy().into_owned(),
            TCA_STATS2 => count(&mut found, value)?,
            _ => {}
        }
    }
    (parent == ROOT && found.kind != NO_QUEUE).then_some(found)
}

fn count(found: &mut QueueCounters, statistics: &[u8]) -> Option<()> {
    for (kind, value) in attributes(statistics) {
        match kind {
            // gnet_stats_basic: bytes (64 bits), packets (32 bits).
            STATS_BASIC => found.packets = u64::from(word(value, 8)?),
            // Follows if 32 bits are too few.
            STATS_PACKETS => found.packets = long(value)?,
            // gnet_stats_queue: packets in it, bytes in it, drops, requeues, overlimits.
            STATS_QUEUE => {
                found.backlog_bytes = word(value, 4)?;
                found.drops = word(value, 8)?;
                found.overlimits = word(value, 16)?;
            }
            _ => {}
        }
    }
    Some(())
}

/// The attributes (`rtattr`) of a message, up to the first that does not fit.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits say how the value is made.
        Some((kind & 0x3fff, value))
    })
}

fn long(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&0u16.to_ne_bytes());
        bytes.extend(words(&[sequence, 0]));
        bytes.extend_from_slice(body);
        bytes
    }

    fn queue(kind: &[u8], parent: u32) -> Vec<u8> {
        let mut basic = 9_000_000_000u64.to_ne_bytes().to_vec();
        basic.extend(words(&[6_000_000, 0]));
        let queue = attribute(STATS_QUEUE, &words(&[3, 4500, 17, 0, 99]));
        let statistics = [attribute(STATS_BASIC, &basic), attribute(STATS_PACKETS, &(1u64 << 33).to_ne_bytes()), queue];
        let mut body = words(&[0, 2, 0x10_0000, parent, 1]);
        body.extend(attribute(TCA_KIND, kind));
        body.extend(attribute(TCA_STATS2, &statistics.concat()));
        body
    }

    #[test]
    fn dump_of_a_bucket_and_of_the_queue_inside_it() {
        let mut datagram = message(libc::RTM_NEWQDISC, 7, &queue(b"tbf\0", ROOT));
        datagram.extend(message(libc::RTM_NEWQDISC, 7, &queue(b"bfifo\0", 0x10_0001)));
        datagram.extend(message(libc::RTM_NEWQDISC, 6, &queue(b"old\0", ROOT)));
        datagram.extend(message(libc::RTM_NEWQDISC, 7, &queue(b"noqueue\0", ROOT)));
        let mut rows = Vec::new();
        assert!(!take_rows(&datagram, 7, &mut rows).unwrap());
        let expected = QueueCounters {
            interface: 2,
            kind: "tbf".into(),
            packets: 1 << 33,
            drops: 17,
            overlimits: 99,
            backlog_bytes: 4500,
        };
        assert_eq!(rows, [expected]);
        assert!(take_rows(&message(libc::NLMSG_DONE as u16, 7, &words(&[0])), 7, &mut rows).unwrap());
    }

    #[test]
    fn cut_or_refused_answers_are_errors() {
        let whole = message(libc::RTM_NEWQDISC, 7, &queue(b"tbf\0", ROOT));
        for end in HEADER_BYTES..whole.len() {
            assert!(take_rows(&whole[..end], 7, &mut Vec::new()).is_err());
        }
        let refused = message(libc::NLMSG_ERROR as u16, 7, &words(&[(-libc::EPERM) as u32]));
        assert_eq!(take_rows(&refused, 7, &mut Vec::new()).unwrap_err().raw_os_error(), Some(libc::EPERM));
        // Attributes that lie about their length end the list.
        let mut lying = queue(b"tbf\0", ROOT);
        lying[MESSAGE_BYTES..MESSAGE_BYTES + 2].copy_from_slice(&u16::MAX.to_ne_bytes());
        assert_eq!(row(&lying).unwrap().kind, "");
    }

    #[test]
    fn this_namespace_has_queues_whose_interfaces_have_names() {
        let mut queues = Queues::open().unwrap();
        let first = queues.read().unwrap();
        assert_eq!(queues.read().unwrap().len(), first.len());
        assert!(first.iter().all(|row| !row.kind.is_empty() && interface_name(row.interface).is_some()));
        assert_eq!(interface_name(u32::MAX), None);
    }
}
