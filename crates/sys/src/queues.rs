//! The counters of the queues that packets leave by (queueing disciplines, rtnetlink(7)). /proc/net/dev does not count
//! what they drop.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use crate::netlink::{self, attributes, long, word, BUFFER_BYTES};

/// Length of a `tcmsg`.
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
        Ok(Self { socket: netlink::open(0)?, buffer: vec![0; BUFFER_BYTES], sequence: 0 })
    }

    /// Reads the queue of each interface that has one.
    pub fn read(&mut self) -> io::Result<Vec<QueueCounters>> {
        self.sequence = self.sequence.wrapping_add(1);
        netlink::request_dump(&self.socket, libc::RTM_GETQDISC, MESSAGE_BYTES, self.sequence)?;
        let mut rows = Vec::new();
        for _ in 0..MOST_DATAGRAMS {
            let datagram = netlink::receive(&self.socket, &mut self.buffer)?;
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

/// Appends the rows of one datagram; returns whether it ends the dump. Rests of an earlier dump are skipped.
fn take_rows(datagram: &[u8], sequence: u32, rows: &mut Vec<QueueCounters>) -> io::Result<bool> {
    for message in netlink::messages(datagram) {
        let (kind, of, body) = message?;
        if of != sequence {
            continue;
        }
        match libc::c_int::from(kind) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => return Err(netlink::error_of(body)),
            _ if kind == libc::RTM_NEWQDISC => rows.extend(row(body)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::tests::{attribute, message, words};
    use crate::netlink::HEADER_BYTES;

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
