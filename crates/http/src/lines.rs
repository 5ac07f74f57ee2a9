//! Splits bytes that arrive in pieces of any size into lines. Owns the buffer of an unfinished line; a line that
//! arrives in one piece is returned without a copy. Refuses lines longer than the caller's limit.

use crate::scan::newline;

/// Maximum length of a head, and of a trailer section, bytes.
pub const HEAD_LIMIT_BYTES: usize = 64 * 1024;

/// A reader of lines, with the unfinished line.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    carry: Vec<u8>,
    handed_out: bool,
}

/// The result of looking for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A complete line.
    Line {
        /// The line without its end (CRLF or LF).
        text: &'a [u8],
        /// Bytes of this input that belong to the line.
        used: usize,
        /// Total length of the line, its end included, bytes.
        size: usize,
    },
    /// The whole input was consumed and the line is not complete.
    More,
    /// The line is longer than the limit.
    TooLong,
}

impl LineReader {
    /// Whether no byte of a line has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.handed_out || self.carry.is_empty()
    }

    /// Capacity of the buffer, bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.carry.capacity()
    }

    /// Returns the reader with the same buffer, without the unfinished line.
    pub(crate) fn cleared(mut self) -> Self {
        self.carry.clear();
        Self { carry: self.carry, handed_out: false }
    }

    /// Reads the next line, of at most `limit` bytes with its end.
    ///
    /// RFC 9112, 2.2: "a recipient MAY recognize a single LF as a line terminator and ignore any preceding CR".
    #[inline]
    pub(crate) fn next<'a>(&'a mut self, input: &'a [u8], limit: usize) -> Next<'a> {
        if self.handed_out {
            self.carry.clear();
            self.handed_out = false;
        }
        let room = limit.saturating_sub(self.carry.len());
        let window = &input[..input.len().min(room)];
        match newline(window) {
            Some(at) if self.carry.is_empty() => {
                Next::Line { text: without_return(&input[..at]), used: at + 1, size: at + 1 }
            }
            Some(at) => {
                self.carry.extend_from_slice(&input[..at]);
                self.handed_out = true;
                Next::Line { text: without_return(&self.carry), used: at + 1, size: self.carry.len() + 1 }
            }
            None if window.len() == room => Next::TooLong,
            None => {
                self.carry.extend_from_slice(window);
                Next::More
            }
        }
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::{LineReader, Next};

    #[test]
    fn line_in_pieces_is_reassembled() {
        let mut lines = LineReader::default();
        assert_eq!(lines.next(b"ab", 10), Next::More);
        assert!(!lines.is_empty());
        assert_eq!(lines.next(b"c\r", 10), Next::More);
        assert_eq!(lines.next(b"\nde\n", 10), Next::Line { text: b"abc", used: 1, size: 5 });
        assert!(lines.is_empty());
        assert_eq!(lines.next(b"de\n", 10), Next::Line { text: b"de", used: 3, size: 3 });
    }

    #[test]
    fn line_limit_holds_at_any_split() {
        let mut whole = LineReader::default();
        assert_eq!(whole.next(b"12345\n", 5), Next::TooLong);
        let mut split = LineReader::default();
        assert_eq!(split.next(b"123", 5), Next::More);
        assert_eq!(split.next(b"45", 5), Next::TooLong);
        let mut fits = LineReader::default();
        assert_eq!(fits.next(b"1234\n", 5), Next::Line { text: b"1234", used: 5, size: 5 });
    }
}
