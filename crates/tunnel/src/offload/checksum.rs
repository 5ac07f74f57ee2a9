//! The Internet checksum (RFC 1071): the one's complement of the one's complement sum of 16-bit words.

use super::layout::{place, put_u16};

/// Adds up bytes as 16-bit words in network byte order; sums of even-length pieces can be added.
pub fn sum(bytes: &[u8]) -> u64 {
    // RFC 1071, section 2: the sum does not depend on byte order, and wider words may be added if the carries are
    // folded at the end. A packet has at most 2^14 words of 32 bits, so 64 bits never overflow.
    let mut words = bytes.chunks_exact(4);
    let total: u64 =
        words.by_ref().map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))).sum();
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    u64::from(u16::from_be(fold(total + u64::from(u32::from_ne_bytes(last)))))
}

/// Folds a sum to 16 bits.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of a sum.
pub fn finish(sum: u64) -> u16 {
    !fold(sum)
}

/// The sum of the pseudo-header (RFC 9293, section 3.1; RFC 8200, section 8.1) of a packet whose transport part has this length.
pub fn pseudo_header(packet: &[u8], protocol: u8, transport_bytes: usize) -> u64 {
    let addresses = if packet[0] >> 4 == 6 { place::V6_ADDRESSES } else { place::V4_ADDRESSES };
    sum(&packet[addresses]) + u64::from(protocol) + transport_bytes as u64
}

/// Writes the length of an IP packet and, for IPv4, the checksum of its header.
pub fn put_ip_length(packet: &mut [u8], transport: usize, length: usize) {
    if packet[0] >> 4 == 6 {
        put_u16(packet, place::V6_LENGTH, (length - place::V6_BYTES) as u16);
        return;
    }
    put_u16(packet, place::V4_LENGTH, length as u16);
    put_u16(packet, place::V4_CHECKSUM, 0);
    let sum = finish(sum(&packet[..transport]));
    put_u16(packet, place::V4_CHECKSUM, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
        assert_eq!(finish(sum(&bytes)), !0xddf2);
    }

    #[test]
    fn every_length_agrees_with_a_simple_sum() {
        let bytes: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(73)).collect();
        for length in 0..bytes.len() {
            let plain = |word: &[u8]| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
            let expected: u64 = bytes[..length].chunks(2).map(plain).sum();
            assert_eq!(fold(sum(&bytes[..length])), fold(expected), "{length}");
        }
    }
}
