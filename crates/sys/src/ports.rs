//! Source ports: the range from which the system chooses them, sockets that use each in turn, and busy polling.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use crate::socket_option::set_int;

/// The kernel's default range.
const DEFAULT_RANGE: RangeInclusive<u16> = 32_768..=60_999;
/// How long the kernel polls the device's queue in a read that would wait, µs.
const BUSY_POLL_US: libc::c_int = 50;

/// Returns the range from which the kernel chooses source ports, in this network namespace.
pub fn local_port_range() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    parse_range(&text).unwrap_or(DEFAULT_RANGE)
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut bounds = text.split_whitespace().map(str::parse);
    let (first, last) = (bounds.next()?.ok()?, bounds.next()?.ok()?);
    (first <= last).then_some(first..=last)
}

/// The source ports of a task's datagrams: each port of the range is used before any is used again.
#[derive(Debug)]
pub struct SourcePorts {
    first: u16,
    count: u32,
    next: AtomicU32,
}

impl SourcePorts {
    /// Begins at a place of the range that differs from task to task.
    pub fn new(range: &RangeInclusive<u16>, seed: u64) -> Self {
        let count = u32::from(range.end() - range.start()) + 1;
        Self { first: *range.start(), count, next: AtomicU32::new((seed % u64::from(count)) as u32) }
    }

    /// Returns a socket that is connected to `peer` from the next free port; it does not block.
    ///
    /// # Errors
    /// `AddrNotAvailable` if every port of the range is in use; otherwise the system's error.
    pub fn connect(&self, from: Option<IpAddr>, peer: SocketAddr) -> io::Result<UdpSocket> {
        let any = if peer.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let socket = Socket::new(Domain::for_address(peer), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        for _ in 0..self.count {
            let place = self.next.fetch_add(1, Ordering::Relaxed) % self.count;
            let port = self.first + place as u16;
            match socket.bind(&SocketAddr::new(from.unwrap_or(any), port).into()) {
                Ok(()) => return socket.connect(&peer.into()).map(|()| socket.into()),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrNotAvailable.into())
    }
}

/// Makes the kernel poll the device's queue instead of waiting for its interrupt (SO_BUSY_POLL). Needs a privilege if
/// the value exceeds the host's own, and a device that supports it.
pub fn busy_poll(socket: impl AsFd) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, BUSY_POLL_US)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn range_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse_range("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(parse_range("5 4"), None);
        assert_eq!(parse_range(""), None);
    }

    #[test]
    fn ports_are_used_in_turn_and_their_end_is_an_error() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer_address = peer.local_addr().unwrap();
        // Outside of the range from which other sockets get their ports.
        let ports = SourcePorts::new(&(20_001..=20_008), 5);
        let open: Vec<UdpSocket> = (0..8).map_while(|_| ports.connect(None, peer_address).ok()).collect();
        let used: BTreeSet<u16> = open.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        assert_eq!(used.len(), open.len());
        let error = ports.connect(None, peer_address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        drop(open);
        // A process that another test of this program starts has copies of the sockets until it runs its own program.
        let deadline = Instant::now() + Duration::from_secs(60);
        while ports.connect(None, peer_address).is_err() {
            assert!(Instant::now() < deadline, "a port is still in use after its socket's end");
            std::thread::yield_now();
        }
    }
}
