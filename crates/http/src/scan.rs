//! Searches bytes eight at a time in plain integers: most of the cost of parsing a head is looking at each of its
//! bytes. Owns two searches; each gives the same result as a loop over single bytes.

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Position of the first LF.
#[inline]
pub(crate) fn newline(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = word_at(bytes, at) {
        let matches = zeros(word ^ (ONES * u64::from(b'\n')));
        if matches != 0 {
            return Some(at + first(matches));
        }
        at += 8;
    }
    bytes[at..].iter().position(|&byte| byte == b'\n').map(|place| at + place)
}

/// Whether the bytes contain a CR or a NUL.
#[inline]
pub(crate) fn holds_return_or_nul(bytes: &[u8]) -> bool {
    let low = |matches, &byte: &u8| matches | (byte <= b'\r');
    let chunks = bytes.chunks_exact(16);
    let low = chunks.remainder().iter().fold(false, low) | chunks.flatten().fold(false, low);
    // Rare: usually a tab.
    low && bytes.iter().any(|&byte| byte == b'\r' || byte == 0)
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// Position of the first byte whose highest bit is set. At least one must be set.
#[inline]
fn first(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// Sets the highest bit of the first zero byte, and possibly of some bytes after it.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{holds_return_or_nul, newline};

    fn check(bytes: &[u8]) {
        assert_eq!(newline(bytes), bytes.iter().position(|&byte| byte == b'\n'), "{bytes:?}");
        assert_eq!(holds_return_or_nul(bytes), bytes.iter().any(|&byte| byte == b'\r' || byte == 0), "{bytes:?}");
    }

    #[test]
    fn every_byte_is_found_at_every_position() {
        for length in 0..20 {
            for place in 0..length {
                for byte in 0..=255 {
                    for around in [b'a', b'-', 0x80, 0xff, 0x0b] {
                        let mut bytes = vec![around; length];
                        bytes[place] = byte;
                        check(&bytes);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn search_agrees_with_a_simple_loop(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r'), Just(b'-'), Just(0)], 0..60)) {
            check(&bytes);
        }
    }
}
