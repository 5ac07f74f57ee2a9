//! The Internet checksum (RFC 1071), whole and by increments (RFC 1624).

/// Adds bytes, as words of 16 bits, to a sum that is not folded yet.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let rest = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    rest + words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>()
}

/// Folds a sum and complements it.
pub(crate) fn finish(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What changed under a checksum: words taken out and put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change(u64);

impl Change {
    /// Notes that bytes at an even place were replaced by others of the same, even length.
    pub(crate) fn replace(&mut self, old: &[u8], new: &[u8]) {
        self.0 += sum_of_inverted(old) + sum(new);
    }

    /// Adds what changed elsewhere under the same checksum.
    pub(crate) fn join(&mut self, other: Self) {
        self.0 += other.0;
    }

    /// Puts a checksum right that lies at `at`. RFC 1624: "HC' = ~(~HC + ~m + m')".
    pub(crate) fn apply(self, bytes: &mut [u8], at: usize) {
        if self.0 == 0 {
            return;
        }
        let Some(place) = bytes.get_mut(at..at + 2) else { return };
        let old = u16::from_be_bytes([place[0], place[1]]);
        place.copy_from_slice(&finish(u64::from(!old) + self.0).to_be_bytes());
    }
}

fn sum_of_inverted(bytes: &[u8]) -> u64 {
    let words = (bytes.len() / 2) as u64;
    words * 0xffff - sum(bytes)
}
