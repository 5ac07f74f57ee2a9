//! `virtio_net_hdr` in host byte order: Linux puts it before each packet of a TUN device opened with `IFF_VNET_HDR`.

use super::layout::PACKET_MAX_BYTES;

/// Length, bytes.
pub const HEADER_BYTES: usize = 10;
/// Maximum size of a frame, bytes: the header and the largest packet (an IPv6 length does not count the 40 bytes of
/// its header).
pub const FRAME_MAX_BYTES: usize = HEADER_BYTES + PACKET_MAX_BYTES + 40;

/// Flag: the transport checksum is not filled in.
const NEEDS_CHECKSUM: u8 = 1;
/// Bit of the kind: the packet may have ECN's CWR flag.
const ECN: u8 = 0x80;

/// The header of a packet from or to the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Whether the checksum field contains only the pseudo-header's sum.
    pub needs_checksum: bool,
    /// Whether and how the packet is segmented.
    pub kind: Kind,
    /// Length of all headers, bytes; a hint only.
    pub headers_bytes: u16,
    /// Payload of each segment, bytes.
    pub segment_bytes: u16,
    /// Offset of the transport header.
    pub checksum_start: u16,
    /// Offset of the checksum from the transport header.
    pub checksum_offset: u16,
}

/// How a packet is segmented (`VIRTIO_NET_HDR_GSO_*`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not: an ordinary packet.
    #[default]
    Whole,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over IPv4 or IPv6.
    Udp,
    /// A kind that was not enabled.
    Unknown(u8),
}

impl Header {
    /// Splits a frame of the device into its header and packet.
    pub fn split(frame: &mut [u8]) -> Option<(Self, &mut [u8])> {
        if frame.len() < HEADER_BYTES {
            return None;
        }
        let (bytes, packet) = frame.split_at_mut(HEADER_BYTES);
        let word = |place: usize| u16::from_ne_bytes([bytes[place], bytes[place + 1]]);
        let header = Self {
            needs_checksum: bytes[0] & NEEDS_CHECKSUM != 0,
            kind: match bytes[1] & !ECN {
                0 => Kind::Whole,
                1 => Kind::TcpV4,
                4 => Kind::TcpV6,
                5 => Kind::Udp,
                other => Kind::Unknown(other),
            },
            headers_bytes: word(2),
            segment_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        };
        Some((header, packet))
    }

    /// The encoded header.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            Kind::Whole => 0,
            Kind::TcpV4 => 1,
            Kind::TcpV6 => 4,
            Kind::Udp => 5,
            Kind::Unknown(other) => other,
        };
        let mut bytes = [u8::from(self.needs_checksum), kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [self.headers_bytes, self.segment_bytes, self.checksum_start, self.checksum_offset];
        for (to, from) in bytes[2..].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        bytes
    }
}
