//! A message's head out of bytes that arrive in any pieces: its first line, its field lines, its end. Owns the loop over the
//! lines and their bound, which are the same on both sides; what a first line means is its caller's business.

use crate::fields::{Field, Fields};
use crate::lines::{LineReader, Next, HEAD_LIMIT_BYTES};
use crate::Malformed;

/// What a side does with the lines of its heads.
pub(crate) trait HeadLines {
    /// Takes a first line; says whether it was one, or nothing that counts.
    fn start(&mut self, line: &[u8]) -> Result<bool, Malformed>;

    /// Takes a field line that is well-formed.
    fn field(&mut self, field: Field<'_>) -> Result<(), Malformed>;
}

/// One head.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    /// The unfinished line, of the head or of what follows it.
    pub(crate) lines: LineReader,
    /// What the fields said so far.
    pub(crate) fields: Fields,
    started: bool,
    bytes: usize,
}

impl HeadReader {
    /// Takes lines from `at` on until the head is whole, which it says, or the input used up.
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

    /// Whether the next byte is a head's first.
    #[inline]
    pub(crate) fn is_at_start(&self) -> bool {
        !self.started && !self.has_begun()
    }

    /// Whether a head has begun, or is whole and the message not.
    pub(crate) fn has_begun(&self) -> bool {
        self.bytes != 0 || !self.lines.is_empty()
    }

    /// The next message's; its lines go on where this one ended.
    pub(crate) fn begin(&mut self) {
        self.fields = Fields::default();
        self.started = false;
        self.bytes = 0;
    }

    /// The same buffer for another connection.
    pub(crate) fn emptied(self) -> Self {
        Self { lines: self.lines.emptied(), ..Self::default() }
    }
}
