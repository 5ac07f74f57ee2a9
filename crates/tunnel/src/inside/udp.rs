//! UDP (RFC 768) between two ports of two addresses: builds datagrams as whole IP packets, and parses received ones.
//! Does not interpret payloads.

use std::net::SocketAddr;

use super::icmp::{quotes, Message};
use super::ip::{protocol, Ends, Packet};
use crate::offload::checksum;
use crate::offload::layout::{place, put_u16, u16_at};

/// One flow of datagrams, as seen by the end that sends from `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    ends: Ends,
    source_port: u16,
    destination_port: u16,
}

impl Udp {
    /// Creates a flow between two addresses; `None` if their families differ.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let ends = Ends::new(source.ip(), destination.ip())?;
        Some(Self { ends, source_port: source.port(), destination_port: destination.port() })
    }

    /// The flow as seen by the other end.
    pub fn reversed(self) -> Self {
        Self { ends: self.ends.reversed(), source_port: self.destination_port, destination_port: self.source_port }
    }

    /// Source address and port.
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(self.ends.source(), self.source_port)
    }

    /// Destination address and port.
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.ends.destination(), self.destination_port)
    }

    /// Length of all headers before a payload, bytes.
    pub fn overhead_bytes(&self) -> usize {
        self.ends.header_bytes() + place::UDP_BYTES
    }

    /// Appends a packet whose payload is `head` followed by zeros up to `payload_bytes`; zeros need no summing.
    /// Longer payloads than one packet carries are truncated.
    pub fn build(&self, head: &[u8], payload_bytes: usize, out: &mut Vec<u8>) {
        let payload_bytes = payload_bytes.max(head.len()).min(usize::from(u16::MAX) - self.overhead_bytes());
        let head = &head[..head.len().min(payload_bytes)];
        let length = place::UDP_BYTES + payload_bytes;
        self.ends.write(protocol::UDP, length, out);
        let mut header = [0; place::UDP_BYTES];
        put_u16(&mut header, 0, self.source_port);
        put_u16(&mut header, 2, self.destination_port);
        put_u16(&mut header, place::UDP_LENGTH, length as u16);
        let sum = self.ends.pseudo_header(protocol::UDP, length) + checksum::sum(&header) + checksum::sum(head);
        // RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
        put_u16(&mut header, place::UDP_CHECKSUM, Some(checksum::finish(sum)).filter(|sum| *sum != 0).unwrap_or(!0));
        out.extend_from_slice(&header);
        out.extend_from_slice(head);
        out.resize(out.len() + payload_bytes - head.len(), 0);
    }

    /// The payload of a received packet of this flow.
    pub fn matches<'p>(&self, packet: &'p [u8]) -> Option<&'p [u8]> {
        let packet = Packet::parse(packet).ok()?;
        let (received_flow, payload) = datagram(&packet)?;
        (received_flow == self.reversed()).then_some(payload)
    }

    /// The name of the error in a packet from the tunnel, if it is about a datagram of this flow.
    pub fn refusal(&self, packet: &[u8]) -> Option<&'static str> {
        let packet = Packet::parse(packet).ok()?;
        let Ok(Some(Message::Error { name, packet: ours, .. })) = Message::parse(&packet) else { return None };
        let header = quotes(ours, self.ends, protocol::UDP)?;
        let ports =
            header.len() >= 4 && u16_at(header, 0) == self.source_port && u16_at(header, 2) == self.destination_port;
        ports.then_some(name)
    }
}

/// The flow, as seen by its sender, and the payload of a packet with a valid datagram.
pub fn datagram<'p>(packet: &Packet<'p>) -> Option<(Udp, &'p [u8])> {
    let header: &[u8; place::UDP_BYTES] = packet.transport.first_chunk()?;
    let length = usize::from(u16_at(header, place::UDP_LENGTH));
    if packet.protocol != protocol::UDP || length != packet.transport.len() {
        return None;
    }
    // RFC 768: zero means "no checksum". RFC 8200, section 8.1: not over IPv6.
    let unsummed = u16_at(header, place::UDP_CHECKSUM) == 0;
    if if unsummed { packet.ends.is_v6() } else { !packet.checks() } {
        return None;
    }
    let flow = Udp { ends: packet.ends, source_port: u16_at(header, 0), destination_port: u16_at(header, 2) };
    Some((flow, &packet.transport[place::UDP_BYTES..]))
}
