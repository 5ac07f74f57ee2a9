//! Lines of a stream with bounded memory. Owns the buffer; knows nothing of what the lines say.

use std::io::{self, Read};
use std::ops::Range;

/// How long a line may be, bytes.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;
/// What one call of `read` may give, bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// A line of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A line, without its end, as a range of `bytes`.
    Line(Range<usize>),
    /// The last line, which no line end is behind.
    Last(Range<usize>),
    /// A line that was too long; it was passed over.
    TooLong,
    End,
}

/// Reads lines.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// What is read but not given.
    unread: Range<usize>,
    /// Up to where `unread` has no line end.
    searched: usize,
    is_skipping: bool,
    is_at_end: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Self { reader, buffer, unread: 0..0, searched: 0, is_skipping: false, is_at_end: false }
    }

    /// Finds the next line. Where reading fails, nothing is lost: a further call goes on.
    ///
    /// # Errors
    /// Reading fails, also because nothing is there yet.
    pub(super) fn find_next(&mut self) -> io::Result<Found> {
        loop {
            let from = self.unread.start + self.searched;
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[from..self.unread.end]) {
                let line = self.unread.start..from + found;
                (self.unread.start, self.searched) = (line.end + 1, 0);
                if std::mem::take(&mut self.is_skipping) || line.len() > MAX_LINE_BYTES {
                    return Ok(Found::TooLong);
                }
                return Ok(Found::Line(line));
            }
            self.searched = self.unread.len();
            if self.searched > MAX_LINE_BYTES {
                self.is_skipping = true;
                (self.unread, self.searched) = (0..0, 0);
            }
            if self.is_at_end {
                return Ok(self.give_last());
            }
            self.fill()?;
        }
    }

    /// The bytes of a line that was found just now.
    pub(super) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buffer[line]
    }

    /// What is read but not given, and whether nothing follows it.
    pub(super) fn peek(&self) -> (&[u8], bool) {
        (&self.buffer[self.unread.clone()], self.is_at_end)
    }

    /// Reads on without giving a line, to see more of the beginning; false if there is no more, or no room for more.
    pub(super) fn read_ahead(&mut self) -> io::Result<bool> {
        let has_room = self.unread.len() < BUFFER_BYTES / 2;
        if self.is_at_end || !has_room {
            return Ok(false);
        }
        self.fill()?;
        Ok(!self.is_at_end)
    }

    /// Passes over the mark of UTF-8 that some editors put first.
    pub(super) fn skip_byte_order_mark(&mut self) {
        if self.peek().0.starts_with(b"\xef\xbb\xbf") {
            self.unread.start += 3;
        }
    }

    fn give_last(&mut self) -> Found {
        let line = std::mem::replace(&mut self.unread, 0..0);
        self.searched = 0;
        if std::mem::take(&mut self.is_skipping) {
            Found::TooLong
        } else if line.is_empty() {
            Found::End
        } else {
            Found::Last(line)
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.buffer.len() - self.unread.end < BUFFER_BYTES / 4 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        loop {
            match self.reader.read(&mut self.buffer[self.unread.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(bytes) => {
                    self.is_at_end = bytes == 0;
                    self.unread.end += bytes;
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives this many bytes at a time, and an error before each.
    struct Pieces<'b> {
        rest: &'b [u8],
        size: usize,
        is_ready: bool,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.is_ready = !self.is_ready;
            if !self.is_ready {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let (piece, rest) = self.rest.split_at(self.size.min(self.rest.len()).min(buffer.len()));
            buffer[..piece.len()].copy_from_slice(piece);
            self.rest = rest;
            Ok(piece.len())
        }
    }

    fn read(bytes: &[u8], size: usize) -> Vec<String> {
        let mut lines = Lines::new(Pieces { rest: bytes, size, is_ready: true });
        let mut found = Vec::new();
        loop {
            match lines.find_next() {
                Err(_) => {}
                Ok(Found::End) => return found,
                Ok(Found::TooLong) => found.push("too long".to_owned()),
                Ok(Found::Line(line)) => found.push(String::from_utf8_lossy(lines.bytes(line)).into_owned()),
                Ok(Found::Last(line)) => found.push(format!("{}?", String::from_utf8_lossy(lines.bytes(line)))),
            }
        }
    }

    #[test]
    fn lines_are_the_same_wherever_reads_end() {
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let longer = "y".repeat(3 * BUFFER_BYTES);
        let fits = "z".repeat(MAX_LINE_BYTES);
        let text = format!("a\n\n{long}\nb\n{longer}\n{fits}\nc");
        let expected = ["a", "", "too long", "b", "too long", fits.as_str(), "c?"];
        for size in [1, 7, 4096, MAX_LINE_BYTES, BUFFER_BYTES, usize::MAX] {
            assert_eq!(read(text.as_bytes(), size), expected, "{size}");
        }
        assert_eq!(read(longer.as_bytes(), 1000), ["too long"]);
        assert!(read(b"", 1).is_empty());
    }
}
