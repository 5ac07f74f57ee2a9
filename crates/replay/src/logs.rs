//! Access logs: lines of nginx, Apache, HAProxy, Envoy, Traefik, load balancers of clouds, IIS, and JSON by pattern. A
//! format is compiled once; lines are then taken apart without an allocation, and only what a request needs is copied.
//! Leaves the order of requests to `order`, and decompression to the reader.

mod apache;
mod columns;
mod entry;
mod envoy;
mod format;
mod haproxy;
mod json;
mod lines;
mod meaning;
mod names;
mod nginx;
mod steps;
mod text;
mod times;

use std::io::Read;

pub use format::LogFormat;
use format::MAX_FIRST_LINES;
use lines::{Found, Lines};

use crate::recorded::{Cause, Causes, Recorded, Source, SourceError};

/// A log as a stream of requests, in the order of its lines.
pub struct Log<R> {
    lines: Lines<R>,
    format: LogFormat,
    causes: Causes,
}

impl<R: Read> Log<R> {
    /// Reads a log. Without a format it is recognised by the first lines, as far as the first reads give them: the
    /// reader of a log that is followed is not waited for once it gave a line that fits.
    ///
    /// # Errors
    /// Reading fails, or no format fits: in words.
    pub fn open(reader: R, format: Option<LogFormat>) -> Result<Self, SourceError> {
        let mut lines = Lines::new(reader);
        while lines.peek().0.len() < 3 && lines.read_ahead()? {}
        lines.skip_byte_order_mark();
        let format = match format {
            Some(format) => format,
            None => recognise(&mut lines)?,
        };
        Ok(Self { lines, format, causes: Causes::default() })
    }

    /// The format; of a W3C log the columns are those that the last directive named.
    pub fn format(&self) -> &LogFormat {
        &self.format
    }

    /// Which requests belong to one session, for the user.
    pub fn session_basis(&self) -> String {
        self.format.session_basis()
    }
}

impl<R: Read + Send> Source for Log<R> {
    /// The next request. Where the reader fails, also by `WouldBlock`, nothing is lost: a further call goes on.
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        loop {
            let (line, is_last) = match self.lines.find_next()? {
                Found::Line(line) => (line, false),
                Found::Last(line) => (line, true),
                Found::TooLong => {
                    self.causes.add(Cause::TooLarge);
                    continue;
                }
                Found::End => return Ok(None),
            };
            match self.format.read_line(self.lines.bytes(line)) {
                Ok(Some(recorded)) => return Ok(Some(recorded)),
                Ok(None) => {}
                // The last line has no end: it was not written as a whole.
                Err(Cause::Malformed) if is_last => self.causes.add(Cause::CutOff),
                Err(cause) => self.causes.add(cause),
            }
        }
    }

    fn causes(&self) -> &Causes {
        &self.causes
    }
}

/// The format by the lines that are there; reads on only while none fits them.
fn recognise<R: Read>(lines: &mut Lines<R>) -> Result<LogFormat, SourceError> {
    loop {
        let (bytes, is_at_end) = lines.peek();
        let whole = match memchr::memrchr(b'\n', bytes) {
            Some(end) if !is_at_end => &bytes[..end],
            _ if is_at_end => bytes,
            _ => &[],
        };
        let strip = |line| <[u8]>::strip_suffix(line, b"\r").unwrap_or(line);
        let first: Vec<&[u8]> = whole
            .split(|byte| *byte == b'\n')
            .map(strip)
            .filter(|line| !line.is_empty())
            .take(MAX_FIRST_LINES)
            .collect();
        let found = LogFormat::recognise(&first);
        if found.is_ok() || first.len() >= MAX_FIRST_LINES || is_at_end {
            return found;
        }
        if !lines.read_ahead()? && !lines.peek().1 {
            return found;
        }
    }
}
