//! Where the layers of a frame lie: VLAN tags, the IP header, the transport's header. Trusts no length.

use crate::checksum;

pub(super) const ETHERNET_BYTES: usize = 14;
const ADDRESSES_BYTES: usize = 12;
/// Tags of 802.1Q, 802.1ad, and the older one for two tags.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// ARP for IPv4 over Ethernet: types and lengths, then four addresses.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_BYTES: usize = 28;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const UDP_LITE: u8 = 136;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// What is above Ethernet. Positions are from the frame's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// ARP for IPv4.
    Arp { at: usize },
    /// IPv4, whose header is there in full.
    V4(Ip),
    /// IPv6, whose header is there in full.
    V6(Ip),
    /// Anything else, or cut.
    Other,
}

/// An IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip {
    /// Where its header begins.
    pub(super) at: usize,
    /// How long that is, without extensions.
    pub(super) header_bytes: usize,
    /// The transport above it; `None` in a later fragment and where it is not known.
    pub(super) transport: Option<Transport>,
    /// The protocol of the transport if this is a later fragment.
    pub(super) later_fragment_of: Option<u8>,
}

/// The header above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    /// Its protocol.
    pub(super) protocol: u8,
    /// Where it begins.
    pub(super) at: usize,
    /// Where IP says that it ends; may be beyond the frame.
    pub(super) end: usize,
    /// Whether the packet is the first of several fragments, so that its checksum covers what is elsewhere.
    pub(super) is_fragment: bool,
    /// Whether a routing header, not the IP header, has the destination that the checksum covers.
    pub(super) is_routed: bool,
}

impl Transport {
    /// Returns where its checksum lies, and whether that covers the addresses; `None` if it has none, or not this kind.
    pub(super) fn checksum(&self) -> Option<(usize, bool)> {
        match self.protocol {
            TCP => Some((self.at + 16, true)),
            UDP | UDP_LITE | DCCP => Some((self.at + 6, true)),
            ICMPV6 => Some((self.at + 2, true)),
            ICMP => Some((self.at + 2, false)),
            _ => None,
        }
    }

    /// Whether a checksum of zero means none; one that comes out as zero is sent as all ones (RFC 768).
    pub(super) fn zero_is_none(&self) -> bool {
        self.protocol == UDP
    }

    /// Whether its checksum covers it to its end. UDP-Lite and DCCP may cover less.
    pub(super) fn is_covered(&self) -> bool {
        matches!(self.protocol, TCP | UDP | ICMP | ICMPV6)
    }
}

/// Returns where the tags of a frame lie (their control information) and the type of what they carry, with its place.
pub(super) fn read_tags(frame: &[u8], found: impl FnMut(usize)) -> Option<(u16, usize)> {
    read_tags_at(frame, ADDRESSES_BYTES, found)
}

fn read_tags_at(frame: &[u8], mut at: usize, mut found: impl FnMut(usize)) -> Option<(u16, usize)> {
    loop {
        let kind = u16_at(frame, at)?;
        if !TAGS.contains(&kind) {
            return Some((kind, at + 2));
        }
        u16_at(frame, at + 2)?;
        found(at + 2);
        at += 4;
    }
}

/// Finds what a frame carries.
pub(super) fn parse(frame: &[u8]) -> Network {
    parse_typed(frame, ADDRESSES_BYTES)
}

/// Finds what a frame carries whose Ethernet type, or first tag, lies at `at`.
pub(super) fn parse_typed(frame: &[u8], at: usize) -> Network {
    let Some((kind, at)) = read_tags_at(frame, at, |_| {}) else { return Network::Other };
    parse_kind(frame, kind, at)
}

/// Finds what a frame carries whose IP header begins at `at`.
pub(super) fn parse_ip(frame: &[u8], at: usize) -> Network {
    match frame.get(at).map(|byte| byte >> 4) {
        Some(4) => parse_kind(frame, IPV4, at),
        Some(6) => parse_kind(frame, IPV6, at),
        _ => Network::Other,
    }
}

/// Finds what a frame carries by the Ethernet type.
pub(super) fn parse_kind(frame: &[u8], kind: u16, at: usize) -> Network {
    match kind {
        IPV4 => parse_v4(frame, at).map_or(Network::Other, Network::V4),
        IPV6 => parse_v6(frame, at).map_or(Network::Other, Network::V6),
        ARP if frame.get(at..at + ARP_BYTES).is_some_and(|arp| arp.starts_with(&ARP_HEAD)) => Network::Arp { at },
        _ => Network::Other,
    }
}

/// Returns the sum of the pseudo-header of a transport, without a fold.
pub(super) fn pseudo_header(frame: &[u8], ip: &Ip, protocol: u8, bytes: usize) -> u64 {
    let addresses = if ip.header_bytes == IPV6_BYTES && frame[ip.at] >> 4 == 6 { 8..40 } else { 12..20 };
    checksum::sum(&frame[ip.at + addresses.start..ip.at + addresses.end]) + u64::from(protocol) + bytes as u64
}

fn parse_v4(frame: &[u8], at: usize) -> Option<Ip> {
    let header = frame.get(at..at + IPV4_BYTES)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_bytes < IPV4_BYTES || frame.len() < at + header_bytes {
        return None;
    }
    let (total, fragment) = (usize::from(u16_at(header, 2)?), u16_at(header, 6)?);
    let transport = (fragment & 0x1fff == 0).then_some(Transport {
        protocol: header[9],
        at: at + header_bytes,
        end: at + total.max(header_bytes),
        is_fragment: fragment & 0x2000 != 0,
        is_routed: false,
    });
    let later_fragment_of = transport.is_none().then_some(header[9]);
    Some(Ip { at, header_bytes, transport, later_fragment_of })
}

fn parse_v6(frame: &[u8], at: usize) -> Option<Ip> {
    let header = frame.get(at..at + IPV6_BYTES)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let end = at + IPV6_BYTES + usize::from(u16_at(header, 4)?);
    let mut later_fragment_of = None;
    let transport = find_transport(frame, header[6], at + IPV6_BYTES, end, &mut later_fragment_of);
    Some(Ip { at, header_bytes: IPV6_BYTES, transport, later_fragment_of })
}

fn find_transport(
    frame: &[u8],
    mut protocol: u8,
    mut at: usize,
    end: usize,
    later_fragment_of: &mut Option<u8>,
) -> Option<Transport> {
    let (mut is_fragment, mut is_routed) = (false, false);
    loop {
        let extension = frame.get(at..end.min(frame.len()))?;
        let words = || extension.get(1).map(|words| usize::from(*words));
        let bytes = match protocol {
            HOP_BY_HOP | DESTINATION => (words()? + 1) * 8,
            ROUTING => {
                // Segments left: the IP header has the next hop, not the destination.
                is_routed |= *extension.get(3)? != 0;
                (words()? + 1) * 8
            }
            FRAGMENT => {
                let offset_and_more = u16_at(extension, 2)?;
                if offset_and_more & 0xfff8 != 0 {
                    *later_fragment_of = extension.first().copied();
                    return None;
                }
                is_fragment |= offset_and_more & 1 != 0;
                8
            }
            AUTHENTICATION => (words()? + 2) * 4,
            _ => return Some(Transport { protocol, at, end, is_fragment, is_routed }),
        };
        (protocol, at) = (*extension.first()?, at + bytes);
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
