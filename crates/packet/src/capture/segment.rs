//! The TCP segment of a frame, for those who read what connections carried. Checksums are not looked at: the sender's own
//! capture has them before the interface computed them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::layers::{self, Ip, Network};
use super::link_type::LinkType;

const TCP: u8 = 6;
const TCP_BYTES: usize = 20;
const LOOPBACK_BYTES: usize = 4;
/// Where the Ethernet type lies in a cooked frame: at the end of its header.
const COOKED_TYPE_AT: usize = 14;
/// The header of version 2 begins with the Ethernet type.
const COOKED2_BYTES: usize = 20;
const VLAN: u16 = 0x8100;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Its sender.
    pub source: SocketAddr,
    /// Its receiver.
    pub destination: SocketAddr,
    /// The number of its first byte, or of its SYN.
    pub sequence: u32,
    /// The number of the next byte that its sender waits for; `None` without the flag.
    pub acknowledged: Option<u32>,
    flags: u8,
    /// What was captured of its payload.
    pub payload: &'a [u8],
    /// How many bytes of its payload were cut off where it was captured.
    pub missing_bytes: u32,
}

impl Segment<'_> {
    /// Whether it begins a connection.
    pub fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    /// Whether its sender sends nothing after it.
    pub fn is_fin(&self) -> bool {
        self.flags & FIN != 0
    }

    /// Whether it breaks a connection off.
    pub fn is_rst(&self) -> bool {
        self.flags & RST != 0
    }
}

/// What a frame has for a reader of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A segment of TCP.
    Segment(Segment<'a>),
    /// A fragment of one; they are not put together.
    Fragment,
    /// The beginning of one that was cut off within its headers, or whose header is none.
    Headless,
    /// Something else.
    Other,
}

/// Finds the segment of a frame that had `original_bytes` on the wire.
pub fn find_segment(link: LinkType, frame: &[u8], original_bytes: u32) -> Found<'_> {
    let (network, is_v6) = match find_network(link, frame) {
        Network::V4(ip) => (ip, false),
        Network::V6(ip) => (ip, true),
        Network::Arp { .. } | Network::Other => return Found::Other,
    };
    let Some(transport) = network.transport else {
        return if network.later_fragment_of == Some(TCP) { Found::Fragment } else { Found::Other };
    };
    if transport.protocol != TCP {
        return Found::Other;
    }
    if transport.is_fragment {
        return Found::Fragment;
    }
    // Captures of packets that the interface cuts into segments may have no length in the IP header.
    let end = if transport.end == transport.at { original_bytes as usize } else { transport.end };
    let addresses = read_addresses(frame, &network, is_v6);
    read_tcp(frame, addresses, transport.at, end.max(transport.at)).map_or(Found::Headless, Found::Segment)
}

fn find_network(link: LinkType, frame: &[u8]) -> Network {
    match link {
        LinkType::Ethernet => layers::parse(frame),
        LinkType::Ip => layers::parse_ip(frame, 0),
        // The number of IPv6's family differs between systems, and the byte order between machines.
        LinkType::Loopback => layers::parse_ip(frame, LOOPBACK_BYTES),
        LinkType::Cooked => layers::parse_typed(frame, COOKED_TYPE_AT),
        LinkType::Cooked2 => match frame.first_chunk().map(|kind| u16::from_be_bytes(*kind)) {
            // The tag's control information and the type that it hides.
            Some(VLAN) => layers::parse_typed(frame, COOKED2_BYTES + 2),
            Some(kind) => layers::parse_kind(frame, kind, COOKED2_BYTES),
            None => Network::Other,
        },
    }
}

/// The IP header is there in full.
fn read_addresses(frame: &[u8], ip: &Ip, is_v6: bool) -> [IpAddr; 2] {
    fn address<const BYTES: usize>(frame: &[u8], at: usize) -> [u8; BYTES] {
        frame.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; BYTES])
    }
    if is_v6 {
        [8, 24].map(|at| IpAddr::V6(Ipv6Addr::from(address::<16>(frame, ip.at + at))))
    } else {
        [12, 16].map(|at| IpAddr::V4(Ipv4Addr::from(address::<4>(frame, ip.at + at))))
    }
}

fn read_tcp(frame: &[u8], [source, destination]: [IpAddr; 2], at: usize, end: usize) -> Option<Segment<'_>> {
    let header = frame.get(at..at + TCP_BYTES)?;
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let header_bytes = usize::from(header[12] >> 4) * 4;
    let (from, flags) = (at + header_bytes, header[13]);
    if header_bytes < TCP_BYTES || from > end {
        return None;
    }
    let payload = frame.get(from..end.min(frame.len()).max(from)).unwrap_or_default();
    let missing_bytes = u32::try_from(end - from - payload.len()).ok()?;
    Some(Segment {
        source: SocketAddr::new(source, u16_at(0)),
        destination: SocketAddr::new(destination, u16_at(2)),
        sequence: u32_at(4),
        acknowledged: (flags & ACK != 0).then(|| u32_at(8)),
        flags,
        payload,
        missing_bytes,
    })
}
