//! A client's side of the syntax: responses out of bytes that arrive in any pieces.
//! Owns the status line, which framing a response has (RFC 9112, 6.3), and skipping interim responses. Keeps of a
//! response what load measuring asks: status, sizes, whether the connection lives on.

use crate::body::{BodyReader, Framing};
use crate::fields::{minor_version, Coding, Fields};
use crate::lines::{LineReader, Next, HEAD_LIMIT_BYTES};
use crate::Malformed;

/// A response that has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code, 200 to 999.
    pub status: u16,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// Bytes of the body, chunk framing not counted.
    pub body_bytes: u64,
}

/// What feeding some bytes gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FedResponse {
    /// How many bytes were taken; the rest belongs to what follows this response.
    pub consumed: usize,
    /// The response that these bytes completed.
    pub response: Option<Response>,
}

/// What the end of the connection means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No response had begun.
    Clean,
    /// It completed a response whose end is the connection's.
    Response(Response),
    /// It cut a response off.
    Early,
}

/// Reads one response after another. Holds at most one unfinished line, and nothing of a body.
#[derive(Debug)]
pub struct ResponseParser {
    lines: LineReader,
    state: State,
    answers_head: bool,
    status: u16,
    minor_version: u8,
    fields: Fields,
    head_bytes: usize,
}

#[derive(Debug)]
enum State {
    StatusLine,
    Fields,
    Body(BodyReader),
    Failed(Malformed),
}

impl ResponseParser {
    /// A parser for the responses to one kind of request: those to HEAD have no body, whatever they say.
    #[must_use]
    pub fn new(answers_head: bool) -> Self {
        Self {
            lines: LineReader::default(),
            state: State::StatusLine,
            answers_head,
            status: 0,
            minor_version: 0,
            fields: Fields::default(),
            head_bytes: 0,
        }
    }

    /// Forgets everything, for a new connection.
    pub fn reset(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        *self = Self { lines: lines.emptied(), ..Self::new(self.answers_head) };
    }

    /// Takes bytes up to the end of the first response among them, or all of them.
    ///
    /// # Errors
    /// What is wrong with the response; from then on every call gives the same error until [`ResponseParser::reset`].
    #[inline]
    pub fn feed(&mut self, input: &[u8]) -> Result<FedResponse, Malformed> {
        let fed = self.advance(input);
        if let Err(cause) = fed {
            self.state = State::Failed(cause);
        }
        fed
    }

    /// Says what it means that the connection ended here.
    pub fn finish(&mut self) -> End {
        match &self.state {
            State::StatusLine if self.head_bytes == 0 && self.lines.is_empty() => End::Clean,
            State::Body(body) if body.ends_with_connection() => End::Response(self.completed(body.bytes)),
            _ => End::Early,
        }
    }

    fn advance(&mut self, input: &[u8]) -> Result<FedResponse, Malformed> {
        let mut at = 0;
        loop {
            match &mut self.state {
                State::Failed(cause) => return Err(*cause),
                State::Body(body) => {
                    at += body.feed(&input[at..], &mut self.lines)?;
                    let response = body.is_done().then_some(body.bytes).map(|bytes| self.completed(bytes));
                    return Ok(FedResponse { consumed: at, response });
                }
                State::StatusLine | State::Fields => {}
            }
            match self.lines.next(&input[at..], HEAD_LIMIT_BYTES - self.head_bytes) {
                Next::More => return Ok(FedResponse { consumed: input.len(), response: None }),
                Next::TooLong => return Err(Malformed::HeadTooLong),
                Next::Line { text, used, size } => {
                    at += used;
                    self.head_bytes += size;
                    match self.state {
                        State::StatusLine => {
                            (self.minor_version, self.status) = status_line(text)?;
                            self.state = State::Fields;
                        }
                        _ if text.is_empty() => self.end_of_head()?,
                        _ => self.fields.take(text)?,
                    }
                }
            }
        }
    }

    /// RFC 9112, 6.3, in its order.
    fn end_of_head(&mut self) -> Result<(), Malformed> {
        self.fields.check(self.minor_version)?;
        let framing = match (self.status, self.fields.coding, self.fields.length) {
            (101, ..) => return Err(Malformed::UnexpectedUpgrade),
            (100..=199, ..) => {
                // RFC 9110, 15.2: "A client MUST be able to parse one or more 1xx responses received prior to a
                // final response".
                self.begin();
                return Ok(());
            }
            _ if self.answers_head => Framing::Length(0),
            (204 | 304, ..) => Framing::Length(0),
            (_, Coding::Chunked, _) => Framing::Chunked,
            (_, Coding::Other, _) => Framing::UntilClose,
            (_, Coding::None, Some(length)) => Framing::Length(length),
            (_, Coding::None, None) => Framing::UntilClose,
        };
        self.state = State::Body(BodyReader::new(framing));
        Ok(())
    }

    fn completed(&mut self, body_bytes: u64) -> Response {
        let until_close = matches!(&self.state, State::Body(body) if body.ends_with_connection());
        let keep_alive = !until_close && self.fields.persists(self.minor_version);
        let response = Response { status: self.status, keep_alive, body_bytes };
        self.begin();
        response
    }

    fn begin(&mut self) {
        self.state = State::StatusLine;
        self.fields = Fields::default();
        self.head_bytes = 0;
    }
}

/// `HTTP/1.x NNN reason`; the reason, and the space before it, may be missing.
fn status_line(line: &[u8]) -> Result<(u8, u16), Malformed> {
    let (version, rest) = line.split_at_checked(8).ok_or(Malformed::StatusLine)?;
    let minor = minor_version(version).ok_or(Malformed::StatusLine)??;
    match rest {
        [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9']
        | [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b' ', ..] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok((minor, digit(a) * 100 + digit(b) * 10 + digit(c)))
        }
        _ => Err(Malformed::StatusLine),
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Response, ResponseParser};
    use crate::{Malformed, HEAD_LIMIT_BYTES};

    fn one(text: &str) -> Result<(Option<Response>, usize), Malformed> {
        ResponseParser::new(false).feed(text.as_bytes()).map(|fed| (fed.response, fed.consumed))
    }

    fn whole(status: u16, keep_alive: bool, body_bytes: u64) -> Option<Response> {
        Some(Response { status, keep_alive, body_bytes })
    }

    #[test]
    fn framings() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", whole(200, true, 5)),
            ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", whole(200, true, 0)),
            ("HTTP/1.1 200 OK\nContent-Length: 1\n\nx", whole(200, true, 1)),
            ("HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", whole(404, false, 1)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", whole(200, false, 1)),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", whole(200, true, 1)),
            ("HTTP/1.1 204 No Content\r\n\r\n", whole(204, true, 0)),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", whole(304, true, 0)),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n", whole(204, true, 0)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n", whole(200, true, 13)),
        ];
        for (text, expected) in cases {
            assert_eq!(one(text), Ok((expected, text.len())), "{text:?}");
        }
    }

    #[test]
    fn a_head_answer_has_no_body() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let fed = ResponseParser::new(true).feed(text).unwrap();
        assert_eq!((fed.response, fed.consumed), (whole(200, true, 0), text.len()));
    }

    #[test]
    fn what_follows_is_left() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n";
        assert_eq!(one(text), Ok((whole(200, true, 2), text.len() - 17)));
    }

    #[test]
    fn the_end_of_the_connection() {
        let mut parser = ResponseParser::new(false);
        assert_eq!(parser.finish(), End::Clean);
        parser.feed(b"HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
        assert_eq!(parser.finish(), End::Response(Response { status: 200, keep_alive: false, body_bytes: 3 }));
        for cut in ["H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"] {
            let mut parser = ResponseParser::new(false);
            parser.feed(cut.as_bytes()).unwrap();
            assert_eq!(parser.finish(), End::Early, "{cut:?}");
        }
    }

    #[test]
    fn malformed() {
        let long_field = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "y".repeat(HEAD_LIMIT_BYTES));
        let many_fields = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(HEAD_LIMIT_BYTES / 6));
        let long_chunk_line = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(5000));
        let long_trailer = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}",
            "X: y\r\n".repeat(HEAD_LIMIT_BYTES / 6 + 1)
        );
        let cases = [
            ("\r\n", Malformed::StatusLine),
            ("SSH-2.0-x\r\n", Malformed::StatusLine),
            ("HTTP/1.1 20 OK\r\n", Malformed::StatusLine),
            ("HTTP/1.1 2000 OK\r\n", Malformed::StatusLine),
            ("HTTP/1.1 000 OK\r\n", Malformed::StatusLine),
            ("HTTP/1.1  200 OK\r\n", Malformed::StatusLine),
            ("HTTP/2.0 200 OK\r\n", Malformed::Version),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", Malformed::UnexpectedUpgrade),
            ("HTTP/1.1 200 OK\r\nno colon\r\n", Malformed::FieldLine),
            ("HTTP/1.1 200 OK\r\nX : y\r\n", Malformed::FieldLine),
            ("HTTP/1.1 200 OK\r\nX: a\rb\r\n", Malformed::ControlCharacter),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n", Malformed::FoldedField),
            ("HTTP/1.1 200 OK\r\nContent-Length: one\r\n", Malformed::ContentLength),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n", Malformed::ContentLengthConflict),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Malformed::LengthAndCoding),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Malformed::TransferEncodingInHttp10),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n", Malformed::TransferEncoding),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", Malformed::ChunkSize),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", Malformed::ChunkEnd),
            (&long_field, Malformed::HeadTooLong),
            (&many_fields, Malformed::HeadTooLong),
            (&long_chunk_line, Malformed::ChunkLineTooLong),
            (&long_trailer, Malformed::TrailerTooLong),
        ];
        for (text, cause) in cases {
            let mut parser = ResponseParser::new(false);
            assert_eq!(parser.feed(text.as_bytes()), Err(cause), "{:?}", &text[..text.len().min(80)]);
            assert_eq!(parser.feed(b"HTTP/1.1 204 x\r\n\r\n"), Err(cause), "the error stays");
            parser.reset();
            assert_eq!(parser.feed(b"HTTP/1.1 204 x\r\n\r\n").unwrap().response, whole(204, true, 0));
        }
    }
}
