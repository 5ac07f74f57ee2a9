//! Coalesces ordinary TCP packets into one large packet (receive offload). Only packets that segmentation would
//! restore (except for IPv4's identification) are coalesced: consecutive, of one flow, equal in every field that the
//! large packet has once, with right checksums. All other packets pass separately.

use super::checksum::{self, put_ip_length};
use super::header::{Header, Kind, FRAME_MAX_BYTES, HEADER_BYTES};
use super::layout::{flag, place, protocol, put_u16, u16_at, u32_at, PACKET_MAX_BYTES};

/// Collects packets in one frame for the device.
pub struct Coalescer {
    frame: Box<[u8]>,
    /// Used bytes of the frame; 0 if it is empty.
    length: usize,
    /// The run of packets in the frame, if more may follow.
    run: Option<Run>,
    packets: usize,
}

/// A run of TCP packets in the frame.
struct Run {
    first: Shape,
    next_sequence: u32,
    /// Whether the run ends with a short packet or one with PSH.
    closed: bool,
}

/// A TCP packet that can be coalesced.
#[derive(Clone, Copy)]
struct Shape {
    transport: usize,
    headers: usize,
    payload: usize,
}

impl Coalescer {
    /// Allocates the frame.
    pub fn new() -> Self {
        Self { frame: vec![0; FRAME_MAX_BYTES].into_boxed_slice(), length: 0, run: None, packets: 0 }
    }

    /// Adds a packet. Returns false if it cannot join the current ones: call `take` first. An empty coalescer takes
    /// any packet that fits into a frame.
    pub fn push(&mut self, packet: &[u8]) -> bool {
        let shape = Shape::of(packet);
        if self.length == 0 {
            let Some(room) = self.frame.get_mut(HEADER_BYTES..HEADER_BYTES + packet.len()) else { return false };
            room.copy_from_slice(packet);
            self.length = HEADER_BYTES + packet.len();
            self.packets = 1;
            self.run = shape.map(|first| Run::new(first, packet));
            return true;
        }
        let (Some(run), Some(shape)) = (&mut self.run, shape) else { return false };
        let there = &self.frame[HEADER_BYTES..self.length];
        if !run.continues(there, packet, shape) {
            return false;
        }
        let payload = &packet[shape.headers..];
        self.frame[self.length..self.length + payload.len()].copy_from_slice(payload);
        self.length += payload.len();
        self.packets += 1;
        run.extend(&mut self.frame[HEADER_BYTES..], packet, shape);
        true
    }

    /// Returns the frame to write and its number of packets, and empties the coalescer. `None` if the frame is empty.
    pub fn take(&mut self) -> Option<(&[u8], usize)> {
        if self.length == 0 {
            return None;
        }
        let header = match &self.run {
            Some(run) if self.packets > 1 => run.seal(&mut self.frame[HEADER_BYTES..self.length]),
            _ => Header::default(),
        };
        self.frame[..HEADER_BYTES].copy_from_slice(&header.bytes());
        self.run = None;
        Some((&self.frame[..std::mem::take(&mut self.length)], self.packets))
    }
}

impl Default for Coalescer {
    fn default() -> Self {
        Self::new()
    }
}

impl Run {
    fn new(first: Shape, packet: &[u8]) -> Self {
        let sequence = u32_at(packet, first.transport + place::TCP_SEQUENCE);
        Self {
            first,
            next_sequence: sequence.wrapping_add(first.payload as u32),
            closed: packet[first.transport + place::TCP_FLAGS] & flag::PSH != 0,
        }
    }

    fn continues(&self, there: &[u8], packet: &[u8], shape: Shape) -> bool {
        let transport = shape.transport;
        let same = |places: std::ops::Range<usize>| there[places.clone()] == packet[places];
        let ip = match packet[0] >> 4 {
            // Version and traffic class; fragment bits; time to live and protocol; addresses.
            4 => same(0..2) && same(6..10) && same(place::V4_ADDRESSES),
            // Version, traffic class and flow label; next header and hop limit; addresses.
            _ => same(0..4) && same(6..40),
        };
        !self.closed
            && transport == self.first.transport
            && shape.headers == self.first.headers
            && shape.payload <= self.first.payload
            && there.len() + shape.payload <= PACKET_MAX_BYTES
            && u32_at(packet, transport + place::TCP_SEQUENCE) == self.next_sequence
            && ip
            // Ports; acknowledgement and header length (flags were checked before); window; urgent pointer and
            // options.
            && same(transport..transport + 4)
            && same(transport + 8..transport + 13)
            && same(transport + 14..transport + 16)
            && same(transport + 18..shape.headers)
    }

    fn extend(&mut self, frame: &mut [u8], packet: &[u8], shape: Shape) {
        self.next_sequence = self.next_sequence.wrapping_add(shape.payload as u32);
        let flags = packet[shape.transport + place::TCP_FLAGS];
        frame[shape.transport + place::TCP_FLAGS] |= flags & flag::PSH;
        self.closed = shape.payload < self.first.payload || flags & flag::PSH != 0;
    }

    /// Changes the first packet's headers to those of the large packet.
    fn seal(&self, packet: &mut [u8]) -> Header {
        let Shape { transport, headers, payload } = self.first;
        let v4 = packet[0] >> 4 == 4;
        put_ip_length(packet, transport, packet.len());
        let pseudo = checksum::pseudo_header(packet, protocol::TCP, packet.len() - transport);
        put_u16(packet, transport + place::TCP_CHECKSUM, checksum::fold(pseudo));
        Header {
            needs_checksum: true,
            kind: if v4 { Kind::TcpV4 } else { Kind::TcpV6 },
            headers_bytes: headers as u16,
            segment_bytes: payload as u16,
            checksum_start: transport as u16,
            checksum_offset: place::TCP_CHECKSUM as u16,
        }
    }
}

impl Shape {
    /// `None` unless the packet is plain TCP data with a right checksum.
    fn of(packet: &[u8]) -> Option<Self> {
        let (transport, length, protocol) = match packet.first()? {
            // Four and five: IPv4 without options.
            0x45 if packet.len() >= place::V4_BYTES => {
                let fragment = u16_at(packet, place::V4_FRAGMENT) & 0x3fff != 0;
                let sound = checksum::finish(checksum::sum(&packet[..place::V4_BYTES])) == 0;
                if fragment || !sound {
                    return None;
                }
                (place::V4_BYTES, usize::from(u16_at(packet, place::V4_LENGTH)), packet[place::V4_PROTOCOL])
            }
            first if first >> 4 == 6 && packet.len() >= place::V6_BYTES => {
                let length = place::V6_BYTES + usize::from(u16_at(packet, place::V6_LENGTH));
                (place::V6_BYTES, length, packet[place::V6_PROTOCOL])
            }
            _ => return None,
        };
        if protocol != protocol::TCP || length != packet.len() || length < transport + place::TCP_BYTES {
            return None;
        }
        let offset = usize::from(packet[transport + place::TCP_OFFSET] >> 4) * 4;
        let headers = transport + offset;
        // Other flags than ACK and PSH mean more than data.
        let plain = packet[transport + place::TCP_FLAGS] & !flag::PSH == flag::ACK;
        if offset < place::TCP_BYTES || headers >= length || !plain {
            return None;
        }
        // The kernel trusts the checksum of a large packet, so the checksum of each part is verified here.
        let pseudo = checksum::pseudo_header(packet, protocol::TCP, length - transport);
        let sound = checksum::finish(pseudo + checksum::sum(&packet[transport..])) == 0;
        sound.then_some(Self { transport, headers, payload: length - headers })
    }
}
