//! The hello that opens a UDP flow, and the header of its datagrams: seconds, microseconds, number, all big-endian.

/// What a client sends to open a UDP flow, from iperf3 3.12 on.
pub const HELLO: [u8; 4] = *b"9876";
/// What a server answers.
pub const HELLO_ANSWER: [u8; 4] = *b"6789";
/// The hello of iperf3 3.11 and older, from a little-endian host.
const OLD_HELLO: [u8; 4] = 123_456_789u32.to_le_bytes();

/// Whether a datagram opens a UDP flow.
pub fn is_hello(datagram: &[u8]) -> bool {
    datagram == HELLO || datagram == OLD_HELLO
}

/// The first bytes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// When it was sent, on the sender's own clock, ns; a multiple of 1000 after parsing.
    pub sent_ns: u64,
    /// Its number; the first one is 1.
    pub number: u64,
}

impl DatagramHeader {
    /// Its length, bytes; the number has 64 or 32 bits.
    pub fn bytes(wide: bool) -> usize {
        if wide {
            16
        } else {
            12
        }
    }

    /// Writes it to the start of a datagram that is long enough.
    pub fn write(&self, wide: bool, datagram: &mut [u8]) {
        let seconds = (self.sent_ns / 1_000_000_000) as u32;
        let microseconds = (self.sent_ns % 1_000_000_000 / 1000) as u32;
        datagram[..4].copy_from_slice(&seconds.to_be_bytes());
        datagram[4..8].copy_from_slice(&microseconds.to_be_bytes());
        if wide {
            datagram[8..16].copy_from_slice(&self.number.to_be_bytes());
        } else {
            // The number of 32 bits wraps, which the receiver takes into account.
            datagram[8..12].copy_from_slice(&(self.number as u32).to_be_bytes());
        }
    }

    /// Reads it; `None` if the datagram is too short. `near` is the number that is expected, from which a wrapped number
    /// of 32 bits is completed.
    pub fn parse(wide: bool, datagram: &[u8], near: u64) -> Option<Self> {
        let number = |at: usize| datagram.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let sent_ns = u64::from(number(0)?) * 1_000_000_000 + u64::from(number(4)?) % 1_000_000 * 1000;
        let number =
            if wide { u64::from(number(8)?) << 32 | u64::from(number(12)?) } else { completed(number(8)?, near) };
        Some(Self { sent_ns, number })
    }
}

/// The number with these low 32 bits that is nearest to another one.
pub fn completed(low: u32, near: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32);
    if ahead < 1 << 31 {
        near.saturating_add(ahead.into())
    } else {
        near.checked_sub((1 << 32) - u64::from(ahead)).unwrap_or_else(|| low.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_the_wire() {
        let header = DatagramHeader { sent_ns: 7_000_001_000, number: 5 };
        for wide in [false, true] {
            let mut datagram = [0; 20];
            header.write(wide, &mut datagram);
            assert_eq!(DatagramHeader::parse(wide, &datagram, 5), Some(header));
            let short = DatagramHeader::bytes(wide) - 1;
            assert_eq!(DatagramHeader::parse(wide, &datagram[..short], 5), None);
        }
    }

    #[test]
    fn number_of_32_bits_is_completed_across_its_wrap() {
        let wrap = 1u64 << 32;
        for number in [wrap - 2, wrap - 1, wrap, wrap + 1, 3 * wrap + 7] {
            for near in [number.saturating_sub(1000), number, number + 1000] {
                let mut datagram = [0; 12];
                DatagramHeader { sent_ns: 0, number }.write(false, &mut datagram);
                assert_eq!(DatagramHeader::parse(false, &datagram, near).unwrap().number, number);
            }
        }
        assert_eq!(completed(1, 0), 1);
        assert_eq!(completed(u32::MAX, 0), u64::from(u32::MAX), "there is no number before 0");
    }

    #[test]
    fn hellos_of_all_versions_are_known() {
        assert!(is_hello(b"9876") && is_hello(&[0x15, 0xcd, 0x5b, 0x07]));
        assert!(!is_hello(b"6789") && !is_hello(b"98760") && !is_hello(b""));
    }
}
