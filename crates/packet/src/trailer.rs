//! The last bytes of every generated frame, by which a receiver knows and counts it. They are at the end, so that a
//! receiver finds them behind whatever headers there are, or are left: a tag or a tunnel may be gone on the way. Numbers are
//! little-endian, as the programs of most machines store them.
//!
//! From the end: 2 bytes of the flow, its bits from 4 on; 4 bytes with the flow's lowest 4 bits above 28 bits of sequence
//! number; 4 bytes of the test's number; with time, in front of all that, 8 bytes of CLOCK_MONOTONIC, ns, or 0.

/// Bytes without a time.
pub const PLAIN_BYTES: usize = 10;
/// Bytes with a time.
pub const TIMED_BYTES: usize = 18;
/// Bits of a sequence number, which goes on with 0.
pub const SEQUENCE_BITS: u32 = 28;
/// Bits of a flow's number.
pub const FLOW_BITS: u32 = 20;

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The test.
    pub test_id: u32,
    /// The flow within the test, below 2^20.
    pub flow: u32,
    /// The number within the flow, below 2^28.
    pub sequence: u32,
    /// When it was written, ns of the generator's clock; `None` without a time.
    pub time_ns: Option<u64>,
}

impl Trailer {
    /// Writes it to the end of a frame; `is_timed` is whether there is room for a time.
    pub fn write(&self, frame: &mut [u8], is_timed: bool) {
        let length = frame.len();
        let word = self.sequence & mask(SEQUENCE_BITS) | self.flow << SEQUENCE_BITS;
        frame[length - 10..length - 6].copy_from_slice(&self.test_id.to_le_bytes());
        frame[length - 6..length - 2].copy_from_slice(&word.to_le_bytes());
        frame[length - 2..].copy_from_slice(&((self.flow >> 4) as u16).to_le_bytes());
        if is_timed {
            frame[length - 18..length - 10].copy_from_slice(&self.time_ns.unwrap_or(0).to_le_bytes());
        }
    }

    /// Reads it from the end of a frame of this test; `None` if it is of none, or of another one. Whether frames have times
    /// cannot be seen in them.
    pub fn read(frame: &[u8], test_id: u32, is_timed: bool) -> Option<Self> {
        let bytes = frame.last_chunk::<PLAIN_BYTES>()?;
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if number(0) != test_id {
            return None;
        }
        let word = number(4);
        let flow = word >> SEQUENCE_BITS | u32::from(u16::from_le_bytes([bytes[8], bytes[9]])) << 4;
        let time = frame.last_chunk::<TIMED_BYTES>().filter(|_| is_timed).and_then(|bytes| bytes.first_chunk());
        let time_ns = time.map(|bytes| u64::from_le_bytes(*bytes)).filter(|time_ns| *time_ns != 0);
        Some(Self { test_id, flow, sequence: word & mask(SEQUENCE_BITS), time_ns })
    }
}

const fn mask(bits: u32) -> u32 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(test_id: u32, flow in 0u32..1 << 20, sequence in 0u32..1 << 28, time in 1u64..) {
            let trailer = Trailer { test_id, flow, sequence, time_ns: Some(time) };
            let mut frame = [0u8; 61];
            trailer.write(&mut frame, true);
            prop_assert_eq!(Trailer::read(&frame, test_id, true), Some(trailer));
            prop_assert_eq!(Trailer::read(&frame, test_id, false), Some(Trailer { time_ns: None, ..trailer }));
            prop_assert_eq!(Trailer::read(&frame, !test_id, true), None);
        }
    }

    #[test]
    fn short_frame_is_of_no_test() {
        assert_eq!(Trailer::read(&[0; 9], 0, true), None);
        assert!(Trailer::read(&[0; 10], 0, true).is_some());
    }
}
