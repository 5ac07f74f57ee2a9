//! Reads a message's head from bytes in pieces of any size: first line, field lines, end. Owns the loop over the
//! lines and their size limit, which are the same for requests and responses. The caller interprets the first line.

use crate::fields::{Field, Fields};
use crate::lines::{LineReader, Next, HEAD_LIMIT_BYTES};
use crate::Malformed;

/// The handler of a head's lines, for requests or responses.
pub(crate) trait HeadLines {
    /// Handles a first line; returns false if the line is to be ignored.
    fn start(&mut self, line: &[u8]) -> Result<bool, Malformed>;

    /// Handles a well-formed field line.
    fn field(&mut self, field: Field<'_>) -> Result<(), Malformed>;
}

/// A reader of one head at a time.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    /// The unfinished line of the head or of the body framing after it.
    pub(crate) lines: LineReader,
    /// What the fields have declared so far.
    pub(crate) fields: Fields,
    started: bool,
    bytes: usize,
}

impl HeadReader {
    /// Reads lines from `at` on until the head is complete or the input ends; returns whether the head is complete.
    #[inline]
    pub(crate) fn read(&mut self, input: &[u8], at: &mut usize, into: &mut impl HeadLines) -> Result<bool, Malformed> {
        loop {
            match self.lines.next(&input[*at..], HEAD_LIMIT_BYTES - self.bytes) {
                Next::More => {
                    *at = input.len();
                    return Ok(false);
                }
                Next::TooLong => return Err(Malformed::HeadTooLong),
                Next::Line { text, used, size } => {
                    *at += used;
                    self.bytes += size;
                    if !self.started {
                        self.started = into.start(text)?;
                    } else if text.is_empty() {
                        return Ok(true);
                    } else {
                        into.field(self.fields.take(text)?)?;
                    }
                }
            }
        }
    }

    /// Whether the next byte is the first one of a head.
    #[inline]
    pub(crate) fn is_at_start(&self) -> bool {
        !self.started && !self.has_begun()
    }

    /// Whether a head has begun and its message is not complete.
    pub(crate) fn has_begun(&self) -> bool {
        self.bytes != 0 || !self.lines.is_empty()
    }

    /// Starts the next message's head; its lines continue where this message ended.
    pub(crate) fn begin(&mut self) {
        self.fields = Fields::default();
        self.started = false;
        self.bytes = 0;
    }

    /// Returns an empty reader for another connection, with the same buffer.
    pub(crate) fn cleared(self) -> Self {
        Self { lines: self.lines.cleared(), ..Self::default() }
    }
}
