//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echo requests that carry their number and time, their replies, and the errors that routers
//! and hosts send about a packet of ours, by name. No state is kept: a reply brings back all that is needed to account for it.

use std::net::IpAddr;

use super::ip::{protocol, Ends, Packet, PacketError};
use crate::offload::checksum;
use crate::offload::layout::{put_u16, u16_at, u32_at};

/// Bytes of an echo message's header.
const ECHO_BYTES: usize = 8;
/// What a reply must bring back to be believed: the number and the time of the request.
const STAMP_BYTES: usize = 16;
const V4_ECHO_REPLY: u8 = 0;
const V4_ECHO_REQUEST: u8 = 8;
const V6_ECHO_REQUEST: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;

/// An ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Somebody asks for an answer.
    EchoRequest(EchoMessage<'a>),
    /// An answer.
    EchoReply(EchoMessage<'a>),
    /// A packet did not get where it should.
    Error {
        /// Why, in snake case: `host_unreachable`, `packet_too_big` ...
        name: &'static str,
        /// The largest packet that would have passed, bytes, where that was the reason and is told.
        mtu: Option<u32>,
        /// As much of the packet as came back; cut short by most.
        packet: &'a [u8],
    },
    /// Of another type: neighbours, routers, groups.
    Other(u8),
}

/// What request and reply of an echo have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoMessage<'a> {
    /// Whose it is.
    pub identifier: u16,
    /// Which one.
    pub sequence: u16,
    /// What is sent back.
    pub data: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the message that a packet carries; none where the packet carries something else.
    ///
    /// # Errors
    /// Of ICMP that is cut short or whose checksum is wrong.
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
            // RFC 1191, section 4: a router of old leaves it 0.
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

/// A reply to a request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's number.
    pub sequence: u64,
    /// When the request was sent, ns, as it was told to `build`.
    pub sent_ns: u64,
    /// Bytes of the IP packet.
    pub packet_bytes: usize,
}

impl Echo {
    /// From this address of the client's to that one; none if their families differ. The identifier tells echoes of one address
    /// apart: of several kinds of use, each takes its own.
    pub fn new(source: IpAddr, destination: IpAddr, identifier: u16) -> Option<Self> {
        Some(Self { ends: Ends::new(source, destination)?, identifier })
    }

    /// Whence and where to.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// The smallest request, bytes of its IP packet: 44 over IPv4, 64 over IPv6.
    pub fn least_bytes(&self) -> usize {
        self.ends.header_bytes() + ECHO_BYTES + STAMP_BYTES
    }

    /// Appends an echo request of so many bytes, IP header included, but at least `least_bytes` and at most 65,535.
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

    /// The reply that a packet from the tunnel is, if it is one to a request of ours.
    pub fn matches(&self, packet: &[u8]) -> Option<Reply> {
        let packet = Packet::parse(packet).ok()?;
        if packet.ends != self.ends.reversed() {
            return None;
        }
        let Ok(Some(Message::EchoReply(echo))) = Message::parse(&packet) else { return None };
        let (sequence, sent_ns) = self.stamp(&echo)?;
        Some(Reply { sequence, sent_ns, packet_bytes: packet.packet_bytes() })
    }

    /// The name of the error that a packet from the tunnel is, if it is one about a request of ours. Who sends it is not asked: any
    /// router on the way may.
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

/// The transport part of a quoted packet of ours, as much as came back, if these were its ends and its protocol. Its checksum and
/// length are not asked: routers cut what they quote, and count its hops down.
pub fn quotes(quoted: &[u8], ends: Ends, wanted: u8) -> Option<&[u8]> {
    match ends {
        Ends::V4 { source, destination } => {
            let header_bytes = usize::from(quoted.first()? & 0xf) * 4;
            let header = quoted.get(..header_bytes.max(20))?;
            let ours = header[0] >> 4 == 4
                && header[9] == wanted
                && header[12..16] == source.octets()
                && header[16..20] == destination.octets();
            ours.then_some(&quoted[header.len()..])
        }
        Ends::V6 { source, destination } => {
            let header = quoted.get(..40)?;
            let ours = header[0] >> 4 == 6
                && header[6] == wanted
                && header[8..24] == source.octets()
                && header[24..40] == destination.octets();
            ours.then_some(&quoted[40..])
        }
    }
}

/// What a kernel does with an echo request: appends the reply to `out`. False, and nothing appended, for any other packet.
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

/// Appends the headers of an echo message, its checksum yet to come.
fn begin(ends: Ends, kind: u8, identifier: u16, sequence: u16, message_bytes: usize, out: &mut Vec<u8>) {
    let protocol = if ends.is_v6() { protocol::ICMP_V6 } else { protocol::ICMP };
    ends.write(protocol, message_bytes, out);
    let mut header = [kind, 0, 0, 0, 0, 0, 0, 0];
    put_u16(&mut header, 4, identifier);
    put_u16(&mut header, 6, sequence);
    out.extend_from_slice(&header);
}

/// Fills in the checksum of the message that `out` ends with.
fn finish(ends: Ends, message_bytes: usize, out: &mut [u8]) {
    let start = out.len() - message_bytes;
    // RFC 4443, section 2.3: ICMPv6's covers the pseudo-header; ICMP's has none.
    let pseudo = if ends.is_v6() { ends.pseudo_header(protocol::ICMP_V6, message_bytes) } else { 0 };
    let checksum = checksum::finish(checksum::sum(&out[start..]) + pseudo);
    put_u16(&mut out[start..], 2, checksum);
}
