//! What a TUN device with offloads trades in: TCP and UDP packets of up to 64 KiB that are yet to be segmented, with checksums
//! yet to be filled in, behind a `virtio_net_hdr` (VIRTIO 1.2, section 5.1.6). `Segmenter` makes ordinary packets of one,
//! `Coalescer` makes one of ordinary packets, so that the kernel's cost per packet is paid once for dozens. Pure bytes;
//! anything odd passes as it is.

pub(crate) mod checksum;
mod coalesce;
mod header;
mod segment;

pub use coalesce::Coalescer;
pub use header::{Header, HEADER_BYTES};
pub use segment::Segmenter;

/// The largest IP packet.
pub const PACKET_MAX_BYTES: usize = 65_535;
/// The largest frame of the device: its header and the largest packet (an IPv6 length does not count the 40 bytes of its header).
pub const FRAME_MAX_BYTES: usize = HEADER_BYTES + PACKET_MAX_BYTES + 40;

/// Places in the headers of IP (RFC 791, RFC 8200), TCP (RFC 9293) and UDP (RFC 768), from the start of each.
pub(crate) mod place {
    pub const V4_BYTES: usize = 20;
    pub const V4_LENGTH: usize = 2;
    pub const V4_ID: usize = 4;
    pub const V4_FRAGMENT: usize = 6;
    pub const V4_PROTOCOL: usize = 9;
    pub const V4_CHECKSUM: usize = 10;
    pub const V4_ADDRESSES: std::ops::Range<usize> = 12..20;
    pub const V6_BYTES: usize = 40;
    pub const V6_LENGTH: usize = 4;
    pub const V6_PROTOCOL: usize = 6;
    pub const V6_ADDRESSES: std::ops::Range<usize> = 8..40;
    pub const TCP_BYTES: usize = 20;
    pub const TCP_SEQUENCE: usize = 4;
    pub const TCP_OFFSET: usize = 12;
    pub const TCP_FLAGS: usize = 13;
    pub const TCP_CHECKSUM: usize = 16;
    pub const UDP_BYTES: usize = 8;
    pub const UDP_LENGTH: usize = 4;
    pub const UDP_CHECKSUM: usize = 6;
}

/// IANA protocol numbers.
mod protocol {
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
}

/// TCP flags.
pub(crate) mod flag {
    pub const FIN: u8 = 0x01;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const CWR: u8 = 0x80;
}

pub(crate) fn u16_at(bytes: &[u8], place: usize) -> u16 {
    u16::from_be_bytes([bytes[place], bytes[place + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_be_bytes([bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]])
}

pub(crate) fn put_u16(bytes: &mut [u8], place: usize, value: u16) {
    bytes[place..place + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes the length of an IP packet and, for IPv4, the checksum of its header.
fn put_ip_length(packet: &mut [u8], transport: usize, length: usize) {
    if packet[0] >> 4 == 6 {
        put_u16(packet, place::V6_LENGTH, (length - place::V6_BYTES) as u16);
        return;
    }
    put_u16(packet, place::V4_LENGTH, length as u16);
    put_u16(packet, place::V4_CHECKSUM, 0);
    let sum = checksum::finish(checksum::sum(&packet[..transport]));
    put_u16(packet, place::V4_CHECKSUM, sum);
}

#[cfg(test)]
mod tests;
