//! `virtio_net_hdr`, in the host's byte order, as Linux puts it before each packet of a TUN device opened with `IFF_VNET_HDR`.

use super::layout::PACKET_MAX_BYTES;

/// Its length in bytes.
pub const HEADER_BYTES: usize = 10;
/// The largest frame of the device: its header and the largest packet (an IPv6 length does not count the 40 bytes of its header).
pub const FRAME_MAX_BYTES: usize = HEADER_BYTES + PACKET_MAX_BYTES + 40;

/// The transport checksum is yet to be filled in.
const NEEDS_CHECKSUM: u8 = 1;
/// Bit of the kind that says that the packet may carry ECN's CWR.
const ECN: u8 = 0x80;

/// What the kernel says of a packet, or is told of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Only the pseudo-header is in the checksum field so far.
    pub needs_checksum: bool,
    /// Whether and into what the packet is to be segmented.
    pub kind: Kind,
    /// Bytes of all headers; a hint only.
    pub headers_bytes: u16,
    /// Payload bytes of each packet that is segmented from it.
    pub segment_bytes: u16,
    /// Where the transport header starts.
    pub checksum_start: u16,
    /// Where the checksum is, from there.
    pub checksum_offset: u16,
}

/// What a packet is to be segmented into (`VIRTIO_NET_HDR_GSO_*`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: it is an ordinary packet.
    #[default]
    Whole,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either.
    Udp,
    /// Something that was not asked for.
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

    /// The header's bytes.
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
