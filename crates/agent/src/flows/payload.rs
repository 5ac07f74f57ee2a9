//! What senders send: the bytes of a block or datagram, and how many bytes a test has in all.

use std::sync::atomic::{AtomicU64, Ordering};

use leadline_wire::StreamPayload;

/// The bytes of a block, and of a datagram behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Zeros.
    Zeros,
    /// Bytes that cannot be compressed; the same ones each time.
    Random,
    /// Of each 1024 bytes this percentage is zeros; the others cannot be compressed.
    Repeated(u8),
    /// The digits 0 to 9, again and again: what iperf3 calls a repeating payload.
    Digits,
}

impl Payload {
    /// Fills a buffer.
    pub fn fill(self, buffer: &mut [u8]) {
        match self {
            Self::Zeros => buffer.fill(0),
            Self::Digits => buffer.iter_mut().zip((b'0'..=b'9').cycle()).for_each(|(byte, digit)| *byte = digit),
            Self::Repeated(percent) => {
                Self::Random.fill(buffer);
                let zeros = PIECE_BYTES * usize::from(percent.min(100)) / 100;
                buffer.chunks_mut(PIECE_BYTES).for_each(|piece| {
                    let count = zeros.min(piece.len());
                    piece[..count].fill(0);
                });
            }
            Self::Random => {
                let mut state = 0x9e37_79b9_7f4a_7c15_u64;
                for piece in buffer.chunks_mut(8) {
                    // xorshift64*.
                    state ^= state >> 12;
                    state ^= state << 25;
                    state ^= state >> 27;
                    let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
                    piece.copy_from_slice(&random[..piece.len()]);
                }
            }
        }
    }
}

/// The pieces of a payload with a share of repeated bytes: less than a packet has, so that each packet has this share.
const PIECE_BYTES: usize = 1024;

impl From<StreamPayload> for Payload {
    fn from(payload: StreamPayload) -> Self {
        match payload {
            StreamPayload::Zeros => Self::Zeros,
            StreamPayload::Random => Self::Random,
            StreamPayload::Repeated(percent) => Self::Repeated(percent),
        }
    }
}

/// The bytes that several flows may still send together.
#[derive(Debug)]
pub struct ByteBudget(AtomicU64);

impl ByteBudget {
    /// Returns a budget of this many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes at most `most` bytes from it; 0 once it is spent.
    pub fn take(&self, most: usize) -> usize {
        let granted = |left: u64| left.min(most as u64);
        let update = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - granted(left)));
        update.map_or(0, |before| granted(before) as usize)
    }

    /// Returns bytes that were taken and not sent.
    pub fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_differ_as_they_should() {
        let mut buffer = [1; 25];
        Payload::Digits.fill(&mut buffer);
        assert_eq!(&buffer, b"0123456789012345678901234");
        Payload::Random.fill(&mut buffer);
        assert!(buffer.windows(2).filter(|pair| pair[0] == pair[1]).count() < 3);
        Payload::Zeros.fill(&mut buffer);
        assert_eq!(buffer, [0; 25]);
        let mut long = [1; 4096];
        Payload::Repeated(75).fill(&mut long);
        let zeros = long.iter().filter(|byte| **byte == 0).count();
        assert!((3072..3090).contains(&zeros), "{zeros}");
    }

    #[test]
    fn budget_gives_its_bytes_once() {
        let budget = ByteBudget::new(10);
        assert_eq!([budget.take(4), budget.take(4), budget.take(4), budget.take(4)], [4, 4, 2, 0]);
        budget.give_back(3);
        assert_eq!([budget.take(4), budget.take(4)], [3, 0]);
    }
}
