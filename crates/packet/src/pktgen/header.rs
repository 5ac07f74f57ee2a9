//! The first bytes of the content of pktgen's datagrams (`struct pktgen_hdr`), by which a receiver knows and counts them.
//! In the network's order: a constant, the number of the frame from 1 on, and the time of day, which says nothing to a
//! monotonic clock.

use crate::trailer::SEQUENCE_BITS;

/// The constant.
pub const MAGIC: u32 = 0xbe9b_e955;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Where the header is at least: behind Ethernet, IPv4 and UDP.
pub const FIRST_AT: usize = 42;
/// Where it is at most: behind IPv6 and 12 tags or labels of 4 bytes.
pub const LAST_AT: usize = 110;
/// Every tag and label, and what IPv6 is longer, is a multiple of this.
pub const STEP: usize = 4;
/// Bytes from the source port of UDP to the header.
pub const PORT_BEFORE: usize = 8;

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number within its thread of the generator, from 0, below 2^28.
    pub sequence: u32,
    /// The source port.
    pub source_port: u16,
}

impl Header {
    /// Finds it in a frame; `None` if the frame is not one of pktgen.
    pub fn find(frame: &[u8]) -> Option<Self> {
        let word =
            |at: usize| frame.get(at..at + 4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let at = (FIRST_AT..=LAST_AT).step_by(STEP).find(|at| word(*at) == Some(MAGIC))?;
        let number = word(at + 4)?;
        let source_port = u16::from_be_bytes([frame[at - PORT_BEFORE], frame[at - PORT_BEFORE + 1]]);
        Some(Self { sequence: number.wrapping_sub(1) & ((1 << SEQUENCE_BITS) - 1), source_port })
    }

    /// The stream of the frame: that of its source port; `ports` is 0 for a single stream.
    pub fn stream(&self, first_port: u16, ports: u16) -> u32 {
        match ports {
            0 => 0,
            ports => self.source_port.checked_sub(first_port).map_or(u32::MAX, |place| u32::from(place / ports)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(at: usize, number: u32) -> Vec<u8> {
        let mut frame = vec![0; at + 18];
        frame[at - 8..at - 6].copy_from_slice(&1027u16.to_be_bytes());
        frame[at..at + 4].copy_from_slice(&MAGIC.to_be_bytes());
        frame[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
        frame
    }

    #[test]
    fn header_is_found_behind_tags_labels_and_either_version() {
        for at in [42, 46, 50, 62, 70, 110] {
            assert_eq!(Header::find(&frame(at, 7)), Some(Header { sequence: 6, source_port: 1027 }), "{at}");
        }
        assert_eq!(Header::find(&frame(44, 7)), None);
        assert_eq!(Header::find(&frame(114, 7)), None);
        assert_eq!(Header::find(&frame(42, 7)[..45]), None);
        assert_eq!(Header::find(&frame(42, 7)[..49]), None);
        assert_eq!(Header::find(&[]), None);
    }

    #[test]
    fn streams_differ_in_their_source_ports() {
        let header = Header { sequence: 0, source_port: 1027 };
        assert_eq!((header.stream(1024, 0), header.stream(1024, 2), header.stream(1020, 2)), (0, 1, 3));
        assert_eq!(header.stream(2000, 1), u32::MAX);
    }
}
