//! IP headers (RFC 791, RFC 8200): written before a transport part, and parsed from a packet. Sends no fragments;
//! received fragments are refused with their own error, because packets are not reassembled here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::offload::checksum;
use crate::offload::layout::{place, put_u16, u16_at};

/// Hop limit of sent packets, as in Linux.
const HOP_LIMIT: u8 = 64;
/// IPv4: the packet must not be fragmented.
const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4: bits that only a fragment has: `more fragments` and the offset.
const V4_FRAGMENT_BITS: u16 = 0x3fff;
/// IPv6: the same bits of its fragment header (RFC 8200, section 4.5).
const V6_FRAGMENT_BITS: u16 = 0xfff9;
/// Maximum number of extension headers before the transport part.
const MAX_EXTENSIONS: usize = 8;

/// IANA protocol numbers.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMP_V6: u8 = 58;
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
}

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than its headers, or than the length in its header.
    #[error("cut short")]
    Short,
    /// Neither IPv4 nor IPv6.
    #[error("neither IPv4 nor IPv6")]
    Version,
    /// The checksum of the header or of the transport part is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// A fragment.
    #[error("a fragment")]
    Fragment,
    /// Too many or unsupported extension headers.
    #[error("unsupported extension headers")]
    Extensions,
    /// A length inside the packet contradicts the packet's length.
    #[error("lengths that contradict each other")]
    Length,
}

/// Source and destination of a packet: two addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// Over IPv4.
    V4 {
        /// The sender.
        source: Ipv4Addr,
        /// The receiver.
        destination: Ipv4Addr,
    },
    /// Over IPv6.
    V6 {
        /// The sender.
        source: Ipv6Addr,
        /// The receiver.
        destination: Ipv6Addr,
    },
}

impl Ends {
    /// Creates ends from two addresses; `None` if their families differ.
    pub fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// Swaps source and destination.
    pub fn reversed(self) -> Self {
        match self {
            Self::V4 { source, destination } => Self::V4 { source: destination, destination: source },
            Self::V6 { source, destination } => Self::V6 { source: destination, destination: source },
        }
    }

    /// The sender.
    pub fn source(self) -> IpAddr {
        match self {
            Self::V4 { source, .. } => source.into(),
            Self::V6 { source, .. } => source.into(),
        }
    }

    /// The receiver.
    pub fn destination(self) -> IpAddr {
        match self {
            Self::V4 { destination, .. } => destination.into(),
            Self::V6 { destination, .. } => destination.into(),
        }
    }

    /// Whether it is IPv6.
    pub fn is_v6(self) -> bool {
        matches!(self, Self::V6 { .. })
    }

    /// Length of the header that `write` appends, bytes.
    pub fn header_bytes(self) -> usize {
        if self.is_v6() {
            place::V6_BYTES
        } else {
            place::V4_BYTES
        }
    }

    /// Appends the header of a packet whose transport part has this protocol and length, at most 65,515 bytes.
    pub fn write(self, protocol: u8, transport_bytes: usize, out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Self::V4 { source, destination } => {
                let mut header = [0; place::V4_BYTES];
                header[0] = 0x45;
                put_u16(&mut header, place::V4_LENGTH, (place::V4_BYTES + transport_bytes) as u16);
                // RFC 6864, section 4.1: the identification of an unfragmentable packet has no meaning.
                put_u16(&mut header, place::V4_FRAGMENT, DONT_FRAGMENT);
                header[8] = HOP_LIMIT;
                header[place::V4_PROTOCOL] = protocol;
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                out.extend_from_slice(&header);
                let checksum = checksum::finish(checksum::sum(&out[start..]));
                put_u16(&mut out[start..], place::V4_CHECKSUM, checksum);
            }
            Self::V6 { source, destination } => {
                let mut header = [0; place::V6_BYTES];
                header[0] = 0x60;
                put_u16(&mut header, place::V6_LENGTH, transport_bytes as u16);
                header[place::V6_PROTOCOL] = protocol;
                header[7] = HOP_LIMIT;
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
                out.extend_from_slice(&header);
            }
        }
    }

    /// The sum of the pseudo-header for a transport checksum (RFC 9293, section 3.1; RFC 8200, section 8.1).
    pub fn pseudo_header(self, protocol: u8, transport_bytes: usize) -> u64 {
        let addresses = match self {
            Self::V4 { source, destination } => checksum::sum(&source.octets()) + checksum::sum(&destination.octets()),
            Self::V6 { source, destination } => checksum::sum(&source.octets()) + checksum::sum(&destination.octets()),
        };
        addresses + u64::from(protocol) + transport_bytes as u64
    }
}

/// A packet with a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Source and destination.
    pub ends: Ends,
    /// IANA protocol number of the transport.
    pub protocol: u8,
    /// Remaining hops.
    pub hop_limit: u8,
    /// The transport header and its payload, as long as the IP header says.
    pub transport: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a packet; ignores bytes after the packet's length.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_v4(bytes),
            Some(6) => Self::parse_v6(bytes),
            Some(_) => Err(PacketError::Version),
            None => Err(PacketError::Short),
        }
    }

    /// Length of the whole packet without options, bytes.
    pub fn packet_bytes(&self) -> usize {
        self.ends.header_bytes() + self.transport.len()
    }

    /// Whether the transport checksum, which includes the pseudo-header, is right.
    pub fn checks(&self) -> bool {
        let pseudo = self.ends.pseudo_header(self.protocol, self.transport.len());
        checksum::finish(checksum::sum(self.transport) + pseudo) == 0
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let header: &[u8; place::V4_BYTES] = bytes.first_chunk().ok_or(PacketError::Short)?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        let length = usize::from(u16_at(header, place::V4_LENGTH));
        if header_bytes < place::V4_BYTES || length < header_bytes {
            return Err(PacketError::Length);
        }
        let packet = bytes.get(..length).ok_or(PacketError::Short)?;
        if checksum::finish(checksum::sum(&packet[..header_bytes])) != 0 {
            return Err(PacketError::Checksum);
        }
        if u16_at(header, place::V4_FRAGMENT) & V4_FRAGMENT_BITS != 0 {
            return Err(PacketError::Fragment);
        }
        let address = |at: usize| Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Ok(Self {
            ends: Ends::V4 { source: address(12), destination: address(16) },
            protocol: header[place::V4_PROTOCOL],
            hop_limit: header[8],
            transport: &packet[header_bytes..],
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let header: &[u8; place::V6_BYTES] = bytes.first_chunk().ok_or(PacketError::Short)?;
        let length = usize::from(u16_at(header, place::V6_LENGTH));
        let body = bytes[place::V6_BYTES..].get(..length).ok_or(PacketError::Short)?;
        let address = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|index| header[at + index]));
        let (protocol, transport) = after_extensions(header[place::V6_PROTOCOL], body)?;
        Ok(Self {
            ends: Ends::V6 { source: address(8), destination: address(24) },
            protocol,
            hop_limit: header[7],
            transport,
        })
    }
}

/// The transport part after the extension headers that hosts send by default. Others (routing, security) change the
/// meaning of addresses or bytes.
fn after_extensions(mut protocol: u8, mut body: &[u8]) -> Result<(u8, &[u8]), PacketError> {
    for _ in 0..MAX_EXTENSIONS {
        let bytes = match protocol {
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => 8 + 8 * body.get(1).copied().map_or(0, usize::from),
            protocol::FRAGMENT => {
                if body.len() >= 4 && u16_at(body, 2) & V6_FRAGMENT_BITS != 0 {
                    return Err(PacketError::Fragment);
                }
                8
            }
            43 | 51 | 135 | 139 | 140 => return Err(PacketError::Extensions),
            _ => return Ok((protocol, body)),
        };
        protocol = *body.first().ok_or(PacketError::Short)?;
        body = body.get(bytes..).ok_or(PacketError::Short)?;
    }
    Err(PacketError::Extensions)
}
