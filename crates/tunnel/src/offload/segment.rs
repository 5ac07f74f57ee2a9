//! Splits a large packet into ordinary ones (TCP and UDP segmentation), as a network card does.

use super::checksum::{self, put_ip_length};
use super::header::{Header, Kind};
use super::layout::{flag, place, protocol, put_u16, u16_at, u32_at, PACKET_MAX_BYTES};

/// Segments one frame after another in memory that is allocated once.
pub struct Segmenter {
    packet: Box<[u8]>,
}

/// How a large packet is segmented.
struct Plan {
    /// Offset of the transport header.
    transport: usize,
    /// Length of all headers, bytes.
    headers: usize,
    /// Payload of each segment but the last, bytes.
    segment: usize,
    tcp: bool,
}

impl Segmenter {
    /// Allocates the memory.
    pub fn new() -> Self {
        Self { packet: vec![0; PACKET_MAX_BYTES].into_boxed_slice() }
    }

    /// Passes on the ordinary packets of a frame in order, with complete checksums. Returns false if the frame is
    /// invalid.
    pub fn segment(&mut self, frame: &mut [u8], mut each: impl FnMut(&[u8])) -> bool {
        let Some((header, packet)) = Header::split(frame) else { return false };
        if header.kind == Kind::Whole {
            let sound = !header.needs_checksum || fill_checksum(&header, packet);
            if sound {
                each(packet);
            }
            return sound;
        }
        let Some(plan) = Plan::new(&header, packet) else { return false };
        let payload = &packet[plan.headers..];
        let count = payload.len().div_ceil(plan.segment);
        for (number, piece) in payload.chunks(plan.segment).enumerate() {
            let out = &mut self.packet[..plan.headers + piece.len()];
            out[..plan.headers].copy_from_slice(&packet[..plan.headers]);
            out[plan.headers..].copy_from_slice(piece);
            plan.number(out, number, number + 1 == count);
            each(out);
        }
        true
    }
}

impl Default for Segmenter {
    fn default() -> Self {
        Self::new()
    }
}

impl Plan {
    fn new(header: &Header, packet: &[u8]) -> Option<Self> {
        let version = packet.first()? >> 4;
        let (least, tcp) = match (header.kind, version) {
            (Kind::TcpV4, 4) => (place::V4_BYTES, true),
            (Kind::TcpV6, 6) => (place::V6_BYTES, true),
            (Kind::Udp, 4) => (place::V4_BYTES, false),
            (Kind::Udp, 6) => (place::V6_BYTES, false),
            _ => return None,
        };
        let transport = usize::from(header.checksum_start);
        let transport_bytes = match tcp {
            true => usize::from(packet.get(transport + place::TCP_OFFSET)? >> 4) * 4,
            false => place::UDP_BYTES,
        };
        let headers = transport + transport_bytes;
        let segment = usize::from(header.segment_bytes);
        let sound = transport >= least
            && transport_bytes >= if tcp { place::TCP_BYTES } else { place::UDP_BYTES }
            && packet.len() > headers
            && segment > 0
            && headers + segment <= PACKET_MAX_BYTES;
        sound.then_some(Self { transport, headers, segment, tcp })
    }

    /// Adapts the copied headers to the segment with this number.
    fn number(&self, packet: &mut [u8], number: usize, last: bool) {
        if packet[0] >> 4 == 4 {
            // RFC 6864 requires distinct identifications; a network card increments them, too.
            let id = u16_at(packet, place::V4_ID).wrapping_add(number as u16);
            put_u16(packet, place::V4_ID, id);
        }
        put_ip_length(packet, self.transport, packet.len());
        if self.tcp {
            self.number_tcp(packet, number, last);
        } else {
            put_u16(packet, self.transport + place::UDP_LENGTH, (packet.len() - self.transport) as u16);
        }
        let (protocol, offset) = match self.tcp {
            true => (protocol::TCP, place::TCP_CHECKSUM),
            false => (protocol::UDP, place::UDP_CHECKSUM),
        };
        put_u16(packet, self.transport + offset, 0);
        let pseudo = checksum::pseudo_header(packet, protocol, packet.len() - self.transport);
        let sum = checksum::finish(pseudo + checksum::sum(&packet[self.transport..]));
        // RFC 768: "If the computed checksum is zero, it is transmitted as all ones". For TCP it means the same.
        put_u16(packet, self.transport + offset, if sum == 0 && !self.tcp { 0xffff } else { sum });
    }

    fn number_tcp(&self, packet: &mut [u8], number: usize, last: bool) {
        let at = self.transport + place::TCP_SEQUENCE;
        let sequence = u32_at(packet, at).wrapping_add((number * self.segment) as u32);
        packet[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        let flags = &mut packet[self.transport + place::TCP_FLAGS];
        if number > 0 {
            // RFC 3168, section 6.1.2: only the first packet has CWR.
            *flags &= !flag::CWR;
        }
        if !last {
            *flags &= !(flag::FIN | flag::PSH);
        }
    }
}

/// Completes a checksum whose field contains the pseudo-header's sum.
fn fill_checksum(header: &Header, packet: &mut [u8]) -> bool {
    let start = usize::from(header.checksum_start);
    let at = start + usize::from(header.checksum_offset);
    if at + 2 > packet.len() {
        return false;
    }
    let sum = checksum::finish(checksum::sum(&packet[start..]));
    let udp = usize::from(header.checksum_offset) == place::UDP_CHECKSUM;
    put_u16(packet, at, if sum == 0 && udp { 0xffff } else { sum });
    true
}
