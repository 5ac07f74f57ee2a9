//! The offsets of IP, TCP and UDP header fields, and functions to read and write them. Owns offsets and byte order; checks no
//! lengths.

/// Maximum size of an IP packet, bytes.
pub const PACKET_MAX_BYTES: usize = 65_535;
/// Offsets in the headers of IP (RFC 791, RFC 8200), TCP (RFC 9293) and UDP (RFC 768).
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
pub(crate) mod protocol {
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
