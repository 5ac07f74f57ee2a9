//! Reassembly of a message that came in fragments (RFC 7383). Bounded: one message at a time, of at most
//! [`MAX_FRAGMENTS`] fragments and [`MAX_BYTES`] bytes; fragments of another message replace it.

/// The largest number of fragments of one message.
pub const MAX_FRAGMENTS: u16 = 64;
/// The largest length of a reassembled message, bytes.
pub const MAX_BYTES: usize = 32 << 10;

/// Fragments of one message, each opened.
#[derive(Default)]
pub struct Reassembly {
    message_id: u32,
    is_response: bool,
    total: u16,
    first_payload: u8,
    parts: Vec<Option<Vec<u8>>>,
    bytes: usize,
}

impl Reassembly {
    /// Takes the content of an authentic fragment; returns the first payload's type and the chain once it is complete.
    pub fn push(
        &mut self,
        (message_id, is_response): (u32, bool),
        (number, total): (u16, u16),
        first_payload: u8,
        content: &[u8],
    ) -> Option<(u8, Vec<u8>)> {
        if number == 0 || number > total || total > MAX_FRAGMENTS {
            return None;
        }
        let is_same = (self.message_id, self.is_response) == (message_id, is_response) && !self.parts.is_empty();
        // RFC 7383, section 2.6: a larger total replaces the fragments received so far; a smaller one is discarded.
        if is_same && total < self.total {
            return None;
        }
        if !is_same || total > self.total {
            let parts = (0..total).map(|_| None).collect();
            *self = Self { message_id, is_response, total, first_payload: 0, parts, bytes: 0 };
        }
        let part = &mut self.parts[usize::from(number) - 1];
        if part.is_none() {
            if self.bytes + content.len() > MAX_BYTES {
                *self = Self::default();
                return None;
            }
            self.bytes += content.len();
            *part = Some(content.to_vec());
            if number == 1 {
                self.first_payload = first_payload;
            }
        }
        if self.parts.iter().any(Option::is_none) {
            return None;
        }
        let whole = std::mem::take(self);
        Some((whole.first_payload, whole.parts.into_iter().flatten().flatten().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_in_any_order_make_one_message() {
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.push((1, true), (3, 3), 0, b"c"), None);
        assert_eq!(reassembly.push((1, true), (1, 3), 33, b"a"), None);
        assert_eq!(reassembly.push((1, true), (1, 3), 33, b"a"), None);
        assert_eq!(reassembly.push((1, true), (2, 3), 0, b"b"), Some((33, b"abc".to_vec())));
        assert_eq!(reassembly.push((2, true), (1, 1), 41, b"x"), Some((41, b"x".to_vec())));
    }

    #[test]
    fn lying_numbers_and_endless_bytes_are_dropped() {
        let mut reassembly = Reassembly::default();
        for numbers in [(0, 2), (3, 2), (1, MAX_FRAGMENTS + 1), (1, u16::MAX)] {
            assert_eq!(reassembly.push((1, true), numbers, 33, b"a"), None);
        }
        assert!(reassembly.parts.is_empty());
        for number in 1..=MAX_FRAGMENTS {
            reassembly.push((1, true), (number, MAX_FRAGMENTS), 33, &[0; 1000]);
            assert!(reassembly.bytes <= MAX_BYTES);
        }
        // A larger total begins again, a smaller one does not.
        let mut reassembly = Reassembly::default();
        reassembly.push((1, true), (1, 2), 33, b"a");
        reassembly.push((1, true), (1, 3), 33, b"A");
        assert_eq!(reassembly.push((1, true), (2, 2), 0, b"b"), None);
        reassembly.push((1, true), (2, 3), 0, b"B");
        assert_eq!(reassembly.push((1, true), (3, 3), 0, b"C"), Some((33, b"ABC".to_vec())));
    }
}
