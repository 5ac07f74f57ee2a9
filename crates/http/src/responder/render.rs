//! Renders responses. Owns heads, chunk framing, and the static blocks from which long bodies are streamed, so that a
//! body of any length needs no memory.

use std::ops::Range;

use crate::behaviour::DEFAULT_BODY_BYTES;

/// The content of bodies, repeated: lines for plain bodies, then whole chunks for chunked ones.
pub static BLOCKS: [u8; BLOCK_BYTES + CHUNKS * FRAMED_BYTES] = blocks();

const LINE: &[u8; DEFAULT_BODY_BYTES as usize] = b"by the mark\n";
const BLOCK_BYTES: usize = 64 * 1024;
const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 8192;
const CHUNK_HEAD: &[u8; 6] = b"2000\r\n";
const FRAMED_BYTES: usize = CHUNK_HEAD.len() + CHUNK_BYTES + 2;
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Bodies up to this size, bytes, are copied after their head, so that a small response is sent in one piece.
const INLINE_BODY_BYTES: u64 = 4096;

pub(crate) const PLAIN: &str = "text/plain";

/// What the head says about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Nothing: HTTP/1.1 connections are persistent by default.
    Implied,
    /// The connection stays open (HTTP/1.0).
    KeepAlive,
    /// The connection closes.
    Close,
}

/// Everything that determines a response's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) chunked: bool,
    /// Whether the request was HEAD, so the response has no body.
    pub(crate) head_only: bool,
    pub(crate) persistence: Persistence,
}

/// The rest of a body: a range of [`BLOCKS`], repeated. Yields pieces that can be sent without a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    begin: usize,
    end: usize,
    at: usize,
    left: u64,
}

impl Stream {
    fn plain(bytes: u64) -> Self {
        Self { begin: 0, end: BLOCK_BYTES, at: 0, left: bytes }
    }

    fn chunks(chunks: u64) -> Self {
        Self { begin: BLOCK_BYTES, end: BLOCKS.len(), at: BLOCK_BYTES, left: chunks * FRAMED_BYTES as u64 }
    }

    /// The next piece's range in [`BLOCKS`]; empty at the end.
    #[must_use]
    pub fn place(&self) -> Range<usize> {
        let to = usize::try_from(self.left).map_or(self.end, |left| self.at.saturating_add(left).min(self.end));
        self.at..to
    }

    /// Bytes left to send.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Records that bytes were sent.
    pub(crate) fn advance(&mut self, bytes: u64) {
        if self.left > 0 {
            let bytes = bytes.min(self.left);
            self.left -= bytes;
            let length = (self.end - self.begin) as u64;
            self.at = self.begin + (((self.at - self.begin) as u64 + bytes) % length) as usize;
        }
    }
}

impl Iterator for Stream {
    type Item = &'static [u8];

    fn next(&mut self) -> Option<&'static [u8]> {
        let piece = &BLOCKS[self.place()];
        self.advance(piece.len() as u64);
        (!piece.is_empty()).then_some(piece)
    }
}

/// A rendered response: its first bytes, the streamed body, and the final bytes.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    of: Option<Answer>,
    pub(crate) head: Vec<u8>,
    pub(crate) stream: Stream,
    pub(crate) ending: &'static [u8],
}

impl Rendered {
    /// Renders this response, unless it is already rendered.
    #[inline]
    pub(crate) fn render_if_changed(&mut self, answer: &Answer) {
        if self.of.as_ref() != Some(answer) {
            self.render(answer);
        }
    }

    fn render(&mut self, answer: &Answer) {
        self.head.clear();
        (self.stream, self.ending) = (Stream::default(), b"");
        // RFC 9110, 15.3.5 and 15.4.5: a 204 or a 304 has no content; RFC 9112, 6.3 ends both with their heads.
        let is_empty = matches!(answer.status, 204 | 304);
        let framing = match answer {
            _ if is_empty => BodyFraming::None,
            Answer { chunked: true, .. } => BodyFraming::Chunked,
            _ => BodyFraming::Length(answer.body_bytes),
        };
        push_head(&mut self.head, answer.status, PLAIN, framing, answer.persistence);
        if !is_empty && !answer.head_only {
            match answer.chunked {
                true => self.add_chunks(answer.body_bytes),
                false => self.add_body(answer.body_bytes),
            }
        }
        self.of = Some(*answer);
    }

    fn add_body(&mut self, bytes: u64) {
        if bytes <= INLINE_BODY_BYTES {
            self.head.extend_from_slice(&BLOCKS[..bytes as usize]);
        } else {
            self.stream = Stream::plain(bytes);
        }
    }

    /// The chunk of odd size comes first, so that all others are equal.
    fn add_chunks(&mut self, bytes: u64) {
        let (chunks, rest_bytes) = (bytes / CHUNK_BYTES as u64, (bytes % CHUNK_BYTES as u64) as usize);
        if rest_bytes > 0 {
            self.head.extend_from_slice(format!("{rest_bytes:x}\r\n").as_bytes());
            self.head.extend_from_slice(&BLOCKS[..rest_bytes]);
            self.head.extend_from_slice(b"\r\n");
        }
        if chunks == 0 {
            self.head.extend_from_slice(LAST_CHUNK);
        } else {
            self.stream = Stream::chunks(chunks);
            self.ending = LAST_CHUNK;
        }
    }
}

/// The framing header field of a response.
#[derive(Clone, Copy)]
pub(crate) enum BodyFraming {
    None,
    Chunked,
    Length(u64),
}

/// Appends a response's head.
pub(crate) fn push_head(
    out: &mut Vec<u8>,
    status: u16,
    media_type: &str,
    framing: BodyFraming,
    persistence: Persistence,
) {
    let framing = match framing {
        BodyFraming::None => String::new(),
        BodyFraming::Chunked => format!("\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked"),
        BodyFraming::Length(bytes) => format!("\r\nContent-Type: {media_type}\r\nContent-Length: {bytes}"),
    };
    let connection = match persistence {
        Persistence::Implied => "",
        Persistence::KeepAlive => "\r\nConnection: keep-alive",
        Persistence::Close => "\r\nConnection: close",
    };
    let reason = reason(status);
    out.extend_from_slice(
        format!("HTTP/1.1 {status} {reason}\r\nServer: leadline{framing}{connection}\r\n\r\n").as_bytes(),
    );
}

/// The reason phrase (RFC 9110); empty for codes without one, which RFC 9112, 4 allows.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}

const fn blocks() -> [u8; BLOCK_BYTES + CHUNKS * FRAMED_BYTES] {
    let mut blocks = [0; BLOCK_BYTES + CHUNKS * FRAMED_BYTES];
    let mut at = 0;
    while at < BLOCK_BYTES {
        blocks[at] = LINE[at % LINE.len()];
        at += 1;
    }
    while at < blocks.len() {
        let place = (at - BLOCK_BYTES) % FRAMED_BYTES;
        blocks[at] = if place < CHUNK_HEAD.len() {
            CHUNK_HEAD[place]
        } else if place < CHUNK_HEAD.len() + CHUNK_BYTES {
            LINE[(place - CHUNK_HEAD.len()) % LINE.len()]
        } else if place == FRAMED_BYTES - 2 {
            b'\r'
        } else {
            b'\n'
        };
        at += 1;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::{Answer, Persistence, Rendered};
    use crate::{Response, ResponseParser};

    const PLAIN: Answer =
        Answer { status: 200, body_bytes: 12, chunked: false, head_only: false, persistence: Persistence::Implied };

    fn rendered(answer: Answer) -> Vec<u8> {
        let mut rendered = Rendered::default();
        rendered.render_if_changed(&answer);
        let mut bytes = rendered.head.clone();
        rendered.stream.for_each(|piece| bytes.extend_from_slice(piece));
        bytes.extend_from_slice(rendered.ending);
        bytes
    }

    fn parsed(answer: Answer) -> Response {
        let bytes = rendered(answer);
        let fed = ResponseParser::new(answer.head_only).feed(&bytes).unwrap();
        assert_eq!(fed.consumed, bytes.len(), "{answer:?}");
        fed.response.unwrap()
    }

    #[test]
    fn default_response_has_fixed_bytes() {
        let text = "HTTP/1.1 200 OK\r\nServer: leadline\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nby the mark\n";
        assert_eq!(rendered(PLAIN), text.as_bytes());
    }

    #[test]
    fn every_response_body_matches_its_head() {
        for body_bytes in [0, 1, 12, 4096, 4097, 8191, 8192, 8193, 65_536, 65_537, 1_000_000] {
            for chunked in [false, true] {
                for status in [200, 204, 206, 304, 404, 500, 599] {
                    for head_only in [false, true] {
                        let answer = Answer { status, body_bytes, chunked, head_only, ..PLAIN };
                        let response = parsed(answer);
                        let expected = if head_only || matches!(status, 204 | 304) { 0 } else { body_bytes };
                        assert_eq!((response.status, response.body_bytes), (status, expected), "{answer:?}");
                        assert!(response.keep_alive);
                    }
                }
            }
        }
        assert!(!parsed(Answer { persistence: Persistence::Close, ..PLAIN }).keep_alive);
    }

    #[test]
    fn partly_sent_stream_resumes_at_its_position() {
        let whole = rendered(Answer { body_bytes: 200_000, chunked: true, ..PLAIN });
        let mut rendered = Rendered::default();
        rendered.render_if_changed(&Answer { body_bytes: 200_000, chunked: true, ..PLAIN });
        let mut bytes = rendered.head.clone();
        while let Some(piece) = { rendered.stream }.next() {
            let taken = piece.len().min(777);
            bytes.extend_from_slice(&piece[..taken]);
            rendered.stream.advance(taken as u64);
        }
        bytes.extend_from_slice(rendered.ending);
        assert_eq!(bytes, whole);
    }
}
