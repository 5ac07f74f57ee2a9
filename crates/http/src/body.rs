//! Where a body ends. Owns the three framings of RFC 9112, 6.3 and the chunk syntax of 7.1; counts a body's bytes and
//! passes them to the caller's sink.

use crate::lines::{LineReader, Next, HEAD_LIMIT_BYTES};
use crate::sink::Sink;
use crate::Malformed;

/// Maximum length of the line that introduces a chunk, extensions included, bytes.
const CHUNK_LINE_LIMIT_BYTES: usize = 4096;

/// What ends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// This number of bytes.
    Length(u64),
    /// The chunk of size 0 and its trailers.
    Chunked,
    /// The end of the connection.
    UntilClose,
}

/// A reader's position in a body.
#[derive(Debug)]
pub(crate) struct BodyReader {
    state: State,
    /// Body bytes read so far, without chunk framing.
    pub(crate) bytes: u64,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length {
        left: u64,
    },
    ChunkLine,
    ChunkData {
        left: u64,
    },
    /// The part of the line end after a chunk that has not arrived.
    ChunkEnd(&'static [u8]),
    Trailer,
    UntilClose,
    Done,
}

impl BodyReader {
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::ChunkLine,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, bytes: 0, trailer_bytes: 0 }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub(crate) fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Consumes bytes of the body and returns how many it consumed: all of them unless the body is complete.
    #[inline]
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        lines: &mut LineReader,
        sink: &mut impl Sink,
    ) -> Result<usize, Malformed> {
        let mut at = 0;
        while self.state != State::Done && at < input.len() {
            at += self.step(&input[at..], lines, sink)?;
        }
        Ok(at)
    }

    /// Passes over bytes that are not there to be read; returns false, and does nothing, if they may be more than this
    /// body, or within its framing.
    pub(crate) fn pass_over(&mut self, bytes: u64) -> bool {
        self.state = match self.state {
            State::Length { left } if bytes == left => State::Done,
            State::Length { left } if bytes < left => State::Length { left: left - bytes },
            State::ChunkData { left } if bytes == left => State::ChunkEnd(b"\r\n"),
            State::ChunkData { left } if bytes < left => State::ChunkData { left: left - bytes },
            State::UntilClose => State::UntilClose,
            _ => return false,
        };
        self.bytes = self.bytes.saturating_add(bytes);
        true
    }

    fn step(&mut self, input: &[u8], lines: &mut LineReader, sink: &mut impl Sink) -> Result<usize, Malformed> {
        match self.state {
            State::Length { left } => Ok(self.skip(input, left, State::Done, |left| State::Length { left }, sink)),
            State::ChunkData { left } => {
                Ok(self.skip(input, left, State::ChunkEnd(b"\r\n"), |left| State::ChunkData { left }, sink))
            }
            State::UntilClose => {
                self.bytes += input.len() as u64;
                sink.body(input);
                Ok(input.len())
            }
            State::ChunkLine => match lines.next(input, CHUNK_LINE_LIMIT_BYTES) {
                Next::More => Ok(input.len()),
                Next::TooLong => Err(Malformed::ChunkLineTooLong),
                Next::Line { text, used, .. } => {
                    self.state = match chunk_size(text)? {
                        0 => State::Trailer,
                        left => State::ChunkData { left },
                    };
                    Ok(used)
                }
            },
            // Requires CR and LF. With LF alone, "hello CR LF" with a size that is one too large would look valid.
            State::ChunkEnd(due) => {
                let used = due.len().min(input.len());
                if due[..used] != input[..used] {
                    return Err(Malformed::ChunkEnd);
                }
                self.state = if used == due.len() { State::ChunkLine } else { State::ChunkEnd(&due[used..]) };
                Ok(used)
            }
            State::Trailer => match lines.next(input, HEAD_LIMIT_BYTES - self.trailer_bytes) {
                Next::More => Ok(input.len()),
                Next::TooLong => Err(Malformed::TrailerTooLong),
                Next::Line { text, used, size } => {
                    self.trailer_bytes += size;
                    if text.is_empty() {
                        self.state = State::Done;
                    }
                    Ok(used)
                }
            },
            State::Done => Ok(0),
        }
    }

    fn skip(
        &mut self,
        input: &[u8],
        left: u64,
        after: State,
        during: impl Fn(u64) -> State,
        sink: &mut impl Sink,
    ) -> usize {
        let used = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
        self.bytes += used as u64;
        sink.body(&input[..used]);
        let left = left - used as u64;
        self.state = if left == 0 { after } else { during(left) };
        used
    }
}

/// Parses a chunk size; extensions after `;` are allowed and ignored (RFC 9112, 7.1.1).
fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let rest = crate::fields::trim(&line[digits..]);
    if digits == 0 || !(rest.is_empty() || rest[0] == b';') {
        return Err(Malformed::ChunkSize);
    }
    line[..digits].iter().try_fold(0u64, |size, &byte| {
        if size >> 60 != 0 {
            return Err(Malformed::ChunkSize);
        }
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        Ok(size << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::{chunk_size, Malformed};

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        assert_eq!(chunk_size(b"0"), Ok(0));
        assert_eq!(chunk_size(b"1aF"), Ok(0x1af));
        assert_eq!(chunk_size(b"000000000000000000000005"), Ok(5));
        assert_eq!(chunk_size(b"5;name=\"value\""), Ok(5));
        assert_eq!(chunk_size(b"5 ; name"), Ok(5));
        assert_eq!(chunk_size(b"ffffffffffffffff"), Ok(u64::MAX));
        for bad in [&b""[..], b";x", b"g", b"5 5", b"-5", b"0x5", b" 5", b"10000000000000000"] {
            assert_eq!(chunk_size(bad), Err(Malformed::ChunkSize), "{bad:?}");
        }
    }
}
