//! Records one after another, each up to a limit. What is wrong with one ends at the next separator.

use std::io::{self, BufRead, Read};

use crate::recorded::Cause;

/// The longest record that is read.
pub(super) const MAX_RECORD_BYTES: usize = 16 << 20;
/// The last line of a record.
const SEPARATOR: &[u8] = "🐵🙈🙉\n".as_bytes();
const READ_BYTES: u64 = 64 << 10;
/// IDs have 24 digits, or 40.
const MAX_ID_BYTES: usize = 64;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    /// The original answer.
    Answer,
    /// The answer of a target that the file was replayed to.
    Replayed,
}

/// A record, whose payload is not read yet.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) kind: Kind,
    pub(super) id: Box<[u8]>,
    /// When its first packet came.
    pub(super) at_ns: i64,
    /// From its first packet to its last one; for an answer of a replay, its round trip.
    pub(super) length_ns: i64,
    pub(super) payload: Vec<u8>,
    /// Whether the file ends without its separator.
    pub(super) is_cut: bool,
}

/// Reads records.
pub(super) struct Records<R> {
    input: R,
    is_over: bool,
    /// Whether what it was decompressed from is cut.
    is_damaged: bool,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, is_over: false, is_damaged: false }
    }

    /// Whether the file was read to its end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads the next record, or why it is none; `None` at the end.
    pub(super) fn read(&mut self) -> io::Result<Option<Result<Raw, Cause>>> {
        let read = self.read_bytes()?;
        if self.is_damaged {
            return Ok(Some(Err(Cause::CutOff)));
        }
        let Some((bytes, is_too_large)) = read else { return Ok(None) };
        if is_too_large {
            return Ok(Some(Err(Cause::TooLarge)));
        }
        let is_cut = self.is_over;
        Ok(Some(parse(bytes, is_cut).ok_or(if is_cut { Cause::CutOff } else { Cause::Malformed })))
    }

    /// Reads up to a separator, or to the end; returns the bytes before it, and whether they are cut since they are too
    /// many.
    fn read_bytes(&mut self) -> io::Result<Option<(Vec<u8>, bool)>> {
        let (mut record, mut line_at, mut is_too_large) = (Vec::new(), 0, false);
        loop {
            let read = match self.input.by_ref().take(READ_BYTES).read_until(b'\n', &mut record) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.is_damaged = true;
                    0
                }
                read => read?,
            };
            if read == 0 {
                self.is_over = true;
                let is_empty = record.iter().all(u8::is_ascii_whitespace) && !is_too_large;
                return Ok((!is_empty).then_some((record, is_too_large)));
            }
            if record.ends_with(b"\n") {
                if record[line_at..] == *SEPARATOR {
                    record.truncate(line_at.saturating_sub(1));
                    return Ok(Some((record, is_too_large)));
                }
                line_at = record.len();
            }
            if record.len() > MAX_RECORD_BYTES {
                is_too_large = true;
                // What is left tells whether the next bytes are at the beginning of a line.
                let is_at_line = line_at == record.len();
                record.clear();
                record.extend_from_slice(if is_at_line { b"" } else { b"." });
                line_at = 0;
            }
        }
    }
}

/// Splits a record into its header and its payload.
fn parse(mut bytes: Vec<u8>, is_cut: bool) -> Option<Raw> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let payload = bytes.split_off(end + 1);
    let header = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut parts = header.trim_end_matches('\r').split(' ');
    let kind = match parts.next()? {
        "1" => Kind::Request,
        "2" => Kind::Answer,
        "3" => Kind::Replayed,
        _ => return None,
    };
    let id = parts.next().filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES)?;
    let at_ns = parts.next()?.parse().ok()?;
    // Old files have none.
    let length_ns = parts.next().map_or(Some(0), |text| text.parse().ok())?;
    let is_whole = parts.next().is_none();
    is_whole.then(|| Raw { kind, id: id.as_bytes().into(), at_ns, length_ns, payload, is_cut })
}
