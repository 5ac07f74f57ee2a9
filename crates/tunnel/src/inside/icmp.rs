//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echo requests that carry their number and time, their replies, and the names
//! of errors that routers and hosts send about a packet of ours. Keeps no state: a reply contains all data that is
//! needed to match it.

use std::net::IpAddr;

use super::ip::{protocol, Ends, Packet, PacketError};
use crate::offload::checksum;
use crate::offload::layout::{put_u16, u16_at, u32_at};

/// Length of an echo message's header, bytes.
const ECHO_BYTES: usize = 8;
/// Length of the stamp that a reply must return: the number and the time of the request, bytes.
const STAMP_BYTES: usize = 16;
const V4_ECHO_REPLY: u8 = 0;
const V4_ECHO_REQUEST: u8 = 8;
const V6_ECHO_REQUEST: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;

/// An ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A request for a reply.
    EchoRequest(EchoMessage<'a>),
    /// A reply.
    EchoReply(EchoMessage<'a>),
    /// A packet was not delivered.
    Error {
        /// The reason in snake case: `host_unreachable`, `packet_too_big` and others.
        name: &'static str,
        /// The largest packet that would have passed, bytes, if that was the reason and the message contains it.
        mtu: Option<u32>,
        /// The returned part of the packet; most senders truncate it.
        packet: &'a [u8],
    },
    /// Another type, such as neighbour or router messages.
    Other(u8),
}

/// The common part of an echo request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoMessage<'a> {
    /// Identifier of the sender.
    pub identifier: u16,
    /// Sequence number.
    pub sequence: u16,
    /// Data that the reply returns.
    pub data: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses the message in a packet; `None` if the packet has another protocol.
    ///
    /// # Errors
    /// The message is truncated, or its checksum is wrong.
    pub fn parse(packet: &Packet<'a>) -> Result<Option<Self>, PacketError> {
        let is_v6 = packet.ends.is_v6();
        if packet.protocol != (if is_v6 { protocol::ICMP_V6 } else { protocol::ICMP }) {
            return Ok(None);
        }
        let message = packet.transport;
        if message.len() < ECHO_BYTES {
            return Err(PacketError::Short);
        }
        let sound = if is_v6 { packet.checks() } else { checksum::finish(checksum::sum(message)) == 0 };
        if !sound {
            return Err(PacketError::Checksum);
        }
        let echo =
            EchoMessage { identifier: u16_at(message, 4), sequence: u16_at(message, 6), data: &message[ECHO_BYTES..] };
        let error = |name, mtu| Self::Error { name, mtu, packet: &message[ECHO_BYTES..] };
        Ok(Some(match (is_v6, message[0], message[1]) {
            (false, V4_ECHO_REQUEST, _) | (true, V6_ECHO_REQUEST, _) => Self::EchoRequest(echo),
            (false, V4_ECHO_REPLY, _) | (true, V6_ECHO_REPLY, _) => Self::EchoReply(echo),
            // RFC 1191, section 4: an old router leaves it 0.
            (false, 3, 4) => error("packet_too_big", Some(u16_at(message, 6).into()).filter(|mtu| *mtu > 0)),
            (true, 2, _) => error("packet_too_big", Some(u32_at(message, 4))),
            (false, kind, code) => v4_error(kind, code).map_or(Self::Other(kind), |name| error(name, None)),
            (true, kind, code) => v6_error(kind, code).map_or(Self::Other(kind), |name| error(name, None)),
        }))
    }
}

fn v4_error(kind: u8, code: u8) -> Option<&'static str> {
    Some(match (kind, code) {
        (3, 0) => "network_unreachable",
        (3, 1) => "host_unreachable",
        (3, 2) => "protocol_unreachable",
        (3, 3) => "port_unreachable",
        (3, 9 | 10 | 13) => "administratively_prohibited",
        (3, _) => "destination_unreachable",
        (4, _) => "source_quench",
        (5, _) => "redirected",
        (11, 0) => "hops_exceeded",
        (11, _) => "reassembly_timeout",
        (12, _) => "parameter_problem",
        _ => return None,
    })
}

fn v6_error(kind: u8, code: u8) -> Option<&'static str> {
    Some(match (kind, code) {
        (1, 0) => "network_unreachable",
        (1, 1) => "administratively_prohibited",
        (1, 3) => "host_unreachable",
        (1, 4) => "port_unreachable",
        (1, 5) => "source_address_rejected",
        (1, 6) => "route_rejected",
        (1, _) => "destination_unreachable",
        (3, 0) => "hops_exceeded",
        (3, _) => "reassembly_timeout",
        (4, _) => "parameter_problem",
        _ => return None,
    })
}

/// Echo requests of one client to one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    ends: Ends,
    identifier: u16,
}

/// A reply to one of our requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's number.
    pub sequence: u64,
    /// When the request was sent, ns, as passed to `build`.
    pub sent_ns: u64,
    /// Length of the IP packet, bytes.
    pub packet_bytes: usize,
}

impl Echo {
    /// Creates an echo between two addresses; `None` if their families differ. The identifier distinguishes several
    /// uses of one address.
    pub fn new(source: IpAddr, destination: IpAddr, identifier: u16) -> Option<Self> {
        Some(Self { ends: Ends::new(source, destination)?, identifier })
    }

    /// Source and destination.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// Minimum length of a request's IP packet, bytes: 44 over IPv4, 64 over IPv6.
    pub fn least_bytes(&self) -> usize {
        self.ends.header_bytes() + ECHO_BYTES + STAMP_BYTES
    }

    /// Appends an echo request of this length, IP header included, between `least_bytes` and 65,535 bytes.
    pub fn build(&self, sequence: u64, sent_ns: u64, packet_bytes: usize, out: &mut Vec<u8>) {
        let packet_bytes = packet_bytes.clamp(self.least_bytes(), usize::from(u16::MAX));
        let message_bytes = packet_bytes - self.ends.header_bytes();
        let kind = if self.ends.is_v6() { V6_ECHO_REQUEST } else { V4_ECHO_REQUEST };
        begin(self.ends, kind, self.identifier, sequence as u16, message_bytes, out);
        let message = out.len();
        out.extend_from_slice(&sequence.to_be_bytes());
        out.extend_from_slice(&sent_ns.to_be_bytes());
        out.resize(message + message_bytes - ECHO_BYTES, 0);
        finish(self.ends, message_bytes, out);
    }

    /// The reply in a packet from the tunnel, if it answers one of our requests.
    pub fn matches(&self, packet: &[u8]) -> Option<Reply> {
        let packet = Packet::parse(packet).ok()?;
        if packet.ends != self.ends.reversed() {
            return None;
        }
        let Ok(Some(Message::EchoReply(echo))) = Message::parse(&packet) else { return None };
        let (sequence, sent_ns) = self.stamp(&echo)?;
        Some(Reply { sequence, sent_ns, packet_bytes: packet.packet_bytes() })
    }

    /// The name of the error in a packet from the tunnel, if it is about one of our requests. The error's sender is
    /// not checked: every router on the path may send it.
    pub fn refusal(&self, packet: &[u8]) -> Option<&'static str> {
        let packet = Packet::parse(packet).ok()?;
        let Ok(Some(Message::Error { name, packet: ours, .. })) = Message::parse(&packet) else { return None };
        quotes(ours, self.ends, if self.ends.is_v6() { protocol::ICMP_V6 } else { protocol::ICMP })
            .filter(|request| request.len() >= ECHO_BYTES && u16_at(request, 4) == self.identifier)
            .map(|_| name)
    }

    fn stamp(&self, echo: &EchoMessage<'_>) -> Option<(u64, u64)> {
        let word = |at: usize| echo.data.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let sequence = word(0)?;
        (echo.identifier == self.identifier && echo.sequence == sequence as u16).then_some((sequence, word(8)?))
    }
}

/// The returned transport part of a packet of ours, if it has these ends and this protocol. Its checksum and length
/// are not checked: routers truncate the packet and decrement its hop limit.
pub fn quotes(quoted: &[u8], ends: Ends, protocol_number: u8) -> Option<&[u8]> {
    match ends {
        Ends::V4 { source, destination } => {
            let header_bytes = usize::from(quoted.first()? & 0xf) * 4;
            let header = quoted.get(..header_bytes.max(20))?;
            let ours = header[0] >> 4 == 4
                && header[9] == protocol_number
                && header[12..16] == source.octets()
                && header[16..20] == destination.octets();
            ours.then_some(&quoted[header.len()..])
        }
        Ends::V6 { source, destination } => {
            let header = quoted.get(..40)?;
            let ours = header[0] >> 4 == 6
                && header[6] == protocol_number
                && header[8..24] == source.octets()
                && header[24..40] == destination.octets();
            ours.then_some(&quoted[40..])
        }
    }
}

/// Answers an echo request as a kernel does: appends the reply to `out`. Returns false, and appends nothing, for any
/// other packet.
pub fn answer(packet: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(packet) = Packet::parse(packet) else { return false };
    let Ok(Some(Message::EchoRequest(echo))) = Message::parse(&packet) else { return false };
    let ends = packet.ends.reversed();
    if ends.header_bytes() + packet.transport.len() > usize::from(u16::MAX) {
        return false;
    }
    let kind = if ends.is_v6() { V6_ECHO_REPLY } else { V4_ECHO_REPLY };
    begin(ends, kind, echo.identifier, echo.sequence, packet.transport.len(), out);
    out.extend_from_slice(echo.data);
    finish(ends, packet.transport.len(), out);
    true
}

/// Appends the headers of an echo message, without its checksum.
fn begin(ends: Ends, kind: u8, identifier: u16, sequence: u16, message_bytes: usize, out: &mut Vec<u8>) {
    let protocol = if ends.is_v6() { protocol::ICMP_V6 } else { protocol::ICMP };
    ends.write(protocol, message_bytes, out);
    let mut header = [kind, 0, 0, 0, 0, 0, 0, 0];
    put_u16(&mut header, 4, identifier);
    put_u16(&mut header, 6, sequence);
    out.extend_from_slice(&header);
}

/// Fills in the checksum of the message at the end of `out`.
fn finish(ends: Ends, message_bytes: usize, out: &mut [u8]) {
    let start = out.len() - message_bytes;
    // RFC 4443, section 2.3: ICMPv6's covers the pseudo-header; ICMP's has none.
    let pseudo = if ends.is_v6() { ends.pseudo_header(protocol::ICMP_V6, message_bytes) } else { 0 };
    let checksum = checksum::finish(checksum::sum(&out[start..]) + pseudo);
    put_u16(&mut out[start..], 2, checksum);
}
