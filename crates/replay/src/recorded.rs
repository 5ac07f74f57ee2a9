//! What every source gives: requests as they were recorded, and what could not be replayed, by cause.

use std::io;

/// A request as it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// When it began, ns since 1970 by the source's clock.
    pub start_ns: i64,
    /// How exact that is, ns: 1,000,000,000 for logs with whole seconds.
    pub precision_ns: u32,
    /// How long before the source's stamp it began, ns: a log's line is stamped at the end, where it has a duration. 0: the
    /// stamp is the start.
    pub lead_ns: u64,
    /// Its session: requests with the same number belong to one user and keep their order. A hash of what the source has:
    /// the connection, a cookie, or address and agent.
    pub session: u64,
    /// Its method.
    pub method: Vec<u8>,
    /// Its target in origin form: path and query, with unreadable bytes percent-encoded.
    pub target: Vec<u8>,
    /// The host that it was for, with its port if it has one; empty if the source does not say.
    pub host: Vec<u8>,
    /// Its header fields as lines `Name: value\r\n`, without Host and without those that say how its body was carried
    /// (Content-Length, Transfer-Encoding, Expect) or that concern its connection (Connection, Keep-Alive).
    pub fields: Vec<u8>,
    /// Its body, with the transfer's framing removed; `None` if it may have had one that the source does not have.
    pub body: Option<Vec<u8>>,
    /// Its answer, as far as the source has it.
    pub answer: RecordedAnswer,
}

/// What a source has of an answer; what it does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedAnswer {
    /// Status code.
    pub status: Option<u16>,
    /// Header fields as lines `Name: value\r\n`, all of them.
    pub fields: Option<Vec<u8>>,
    /// The body as it was carried, with the transfer's framing removed and its content coding kept.
    pub body: Option<Vec<u8>>,
    /// The size of the body, bytes, by itself.
    pub body_bytes: Option<u64>,
    /// From the request's last byte to the answer's first one, ns, or what the source has instead (a log's whole time).
    pub latency_ns: Option<u64>,
}

/// Why a part of a source gives no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A line or record that does not have the format.
    Malformed,
    /// A line that was cut off where it was written.
    CutOff,
    /// An entry for something that was no request: bytes of TLS, an empty target, `<BADREQ>`.
    NoRequest,
    /// A connection whose bytes are TLS.
    Tls,
    /// Bytes of a connection that the capture does not have.
    Gap,
    /// A message whose end the source does not have.
    Unfinished,
    /// A connection that became another protocol.
    Upgraded,
    /// More than is kept of one message or connection.
    TooLarge,
    /// Its time lies further back than the stream is put in order.
    OutOfOrder,
}

/// Counts by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    counts: std::collections::BTreeMap<Cause, u64>,
}

impl Causes {
    /// Counts one.
    pub fn add(&mut self, cause: Cause) {
        *self.counts.entry(cause).or_default() += 1;
    }

    /// Counts several.
    pub fn add_count(&mut self, cause: Cause, count: u64) {
        if count > 0 {
            *self.counts.entry(cause).or_default() += count;
        }
    }

    /// Returns how many of a cause there were.
    #[must_use]
    pub fn count(&self, cause: Cause) -> u64 {
        self.counts.get(&cause).copied().unwrap_or(0)
    }

    /// Returns the counts that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        self.counts.iter().map(|(cause, count)| (*cause, *count))
    }
}

/// Why a source cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It does not have the format, in words: what, where, and what would be right.
    #[error("{0}")]
    Format(String),
}

/// A stream of recorded requests.
pub trait Source: Send {
    /// Returns the next request, or that there is none; in the order of the source.
    ///
    /// # Errors
    /// Why the source cannot be read any further.
    fn next(&mut self) -> Result<Option<Recorded>, SourceError>;

    /// What gave no request so far.
    fn causes(&self) -> &Causes;
}
