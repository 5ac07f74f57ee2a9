//! The client's parser: responses from bytes that arrive in pieces of any size. Owns the status line, the choice of
//! framing (RFC 9112, 6.3), and skipping interim responses. Keeps the status, the sizes and whether the connection
//! stays open; a caller that needs more passes a [`Sink`].

use crate::body::{BodyReader, Framing};
use crate::fields::{minor_version, Coding, Field, Fields};
use crate::head::{HeadLines, HeadReader};
use crate::scan::holds_return_or_nul;
use crate::sink::Sink;
use crate::Malformed;

/// A response that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code, 200 to 999.
    pub status: u16,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
    /// Body size without chunk framing, bytes.
    pub body_bytes: u64,
}

/// The result of [`ResponseParser::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FedResponse {
    /// Bytes consumed; the rest belongs to the next response.
    pub consumed: usize,
    /// The response that these bytes completed.
    pub response: Option<Response>,
}

/// What the end of the connection means for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No response had begun.
    Clean,
    /// The end of the connection completed a response without other framing.
    Response(Response),
    /// The end of the connection truncated a response.
    Early,
}

/// Maximum length of a head that is kept for comparison, bytes.
const KNOWN_LIMIT_BYTES: usize = 512;

/// Maximum number of interim responses (1xx) before a response.
pub const INTERIM_LIMIT: u8 = 16;

/// A parser that reads one response after another. Holds at most one unfinished line and one short head, and no body.
#[derive(Debug)]
pub struct ResponseParser {
    head: HeadReader,
    known: KnownHead,
    line: StatusLine,
    state: State,
    answers_head: bool,
    interim: u8,
}

#[derive(Debug)]
enum State {
    Head,
    Body(BodyReader),
    Failed(Malformed),
}

/// A parsed status line.
#[derive(Clone, Copy, Debug, Default)]
struct StatusLine {
    minor_version: u8,
    status: u16,
}

/// The last head that arrived in one piece, and its meaning. A server usually repeats the same head, and comparing it
/// costs a tenth of parsing it.
#[derive(Debug, Default)]
struct KnownHead {
    bytes: Vec<u8>,
    line: StatusLine,
    fields: Fields,
}

/// The handler of a response's head lines.
struct Lines<'p, S> {
    line: &'p mut StatusLine,
    sink: &'p mut S,
}

impl<S: Sink> HeadLines for Lines<'_, S> {
    #[inline]
    fn start(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        *self.line = status_line(line)?;
        self.sink.status(self.line.status);
        // The version, the status and the spaces around it have 13 bytes.
        self.sink.reason(line.get(13..).unwrap_or_default());
        Ok(true)
    }

    #[inline]
    fn field(&mut self, field: Field<'_>) -> Result<(), Malformed> {
        self.sink.field(field.name, field.value);
        Ok(())
    }
}

impl ResponseParser {
    /// Creates a parser. `answers_head` says that responses have no body, as those to HEAD;
    /// [`ResponseParser::expect_no_body`] changes it.
    #[must_use]
    pub fn new(answers_head: bool) -> Self {
        Self {
            head: HeadReader::default(),
            known: KnownHead::default(),
            line: StatusLine::default(),
            state: State::Head,
            answers_head,
            interim: 0,
        }
    }

    /// Sets whether the next response and those after it have no body, as those to HEAD. No byte of the next response
    /// may have been read.
    #[inline]
    pub fn expect_no_body(&mut self, answers_head: bool) {
        self.answers_head = answers_head;
    }

    /// Forgets all state, for a new connection.
    pub fn reset(&mut self) {
        let (head, known) = (std::mem::take(&mut self.head), std::mem::take(&mut self.known));
        *self = Self { head: head.cleared(), known, ..Self::new(self.answers_head) };
    }

    /// Consumes bytes up to the end of the first response, or all of them.
    ///
    /// # Errors
    /// What is wrong with the response. Every later call returns the same error until [`ResponseParser::reset`].
    #[inline]
    pub fn feed(&mut self, input: &[u8]) -> Result<FedResponse, Malformed> {
        self.feed_into(input, &mut ())
    }

    /// Like [`ResponseParser::feed`], and passes the response to `sink`.
    ///
    /// # Errors
    /// As [`ResponseParser::feed`].
    #[inline]
    pub fn feed_into(&mut self, input: &[u8], sink: &mut impl Sink) -> Result<FedResponse, Malformed> {
        let fed = self.advance(input, sink);
        if let Err(cause) = fed {
            self.state = State::Failed(cause);
        }
        fed
    }

    /// Passes over bytes of a body that are not there to be read, as those that a capture has not; returns false, and does
    /// nothing, if they may be more than bytes of this body.
    #[must_use]
    pub fn skip(&mut self, bytes: u64) -> bool {
        let State::Body(body) = &mut self.state else { return false };
        body.pass_over(bytes)
    }

    /// Returns what the end of the connection means at this point.
    pub fn finish(&mut self) -> End {
        match &self.state {
            State::Head if !self.head.has_begun() && self.interim == 0 => End::Clean,
            State::Body(body) if body.ends_with_connection() => End::Response(self.completed(body.bytes)),
            _ => End::Early,
        }
    }

    fn advance(&mut self, input: &[u8], sink: &mut impl Sink) -> Result<FedResponse, Malformed> {
        let mut at = 0;
        while let State::Head = self.state {
            if !self.read_head(input, &mut at, sink)? {
                return Ok(FedResponse { consumed: at, response: None });
            }
            self.end_of_head()?;
        }
        match &mut self.state {
            State::Failed(cause) => Err(*cause),
            State::Body(body) => {
                at += body.feed(&input[at..], &mut self.head.lines, sink)?;
                let response = body.is_done().then_some(body.bytes).map(|bytes| self.completed(bytes));
                Ok(FedResponse { consumed: at, response })
            }
            State::Head => Ok(FedResponse { consumed: at, response: None }),
        }
    }

    /// Reads lines from `at` on until the head is complete or the input ends; returns whether the head is complete.
    #[inline]
    fn read_head<S: Sink>(&mut self, input: &[u8], at: &mut usize, sink: &mut S) -> Result<bool, Malformed> {
        let (from, at_start, known) = (*at, self.head.is_at_start(), &mut self.known);
        if !S::WANTS_HEADS && at_start && !known.bytes.is_empty() && input[from..].starts_with(&known.bytes) {
            (self.line, self.head.fields) = (known.line, known.fields);
            *at += known.bytes.len();
            return Ok(true);
        }
        let whole = self.head.read(input, at, &mut Lines { line: &mut self.line, sink })?;
        if whole && !S::WANTS_HEADS && at_start && *at - from <= KNOWN_LIMIT_BYTES {
            known.bytes.clear();
            known.bytes.extend_from_slice(&input[from..*at]);
            (known.line, known.fields) = (self.line, self.head.fields);
        }
        Ok(whole)
    }

    /// Chooses the framing in the order of RFC 9112, 6.3.
    fn end_of_head(&mut self) -> Result<(), Malformed> {
        let fields = &self.head.fields;
        fields.check(self.line.minor_version)?;
        let framing = match (self.line.status, fields.coding, fields.length) {
            (101, ..) => return Err(Malformed::UnexpectedUpgrade),
            (100..=199, ..) => {
                // RFC 9110, 15.2: "A client MUST be able to parse one or more 1xx responses received prior to a
                // final response". Their number is limited, because a server could send them without end.
                if self.interim == INTERIM_LIMIT {
                    return Err(Malformed::TooManyInterim);
                }
                self.interim += 1;
                self.head.begin();
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
        let keep_alive = !until_close && self.head.fields.persists(self.line.minor_version);
        let response = Response { status: self.line.status, keep_alive, body_bytes };
        self.state = State::Head;
        self.head.begin();
        self.interim = 0;
        response
    }
}

/// Parses `HTTP/1.x NNN reason`; the reason, and the space before it, may be missing.
fn status_line(line: &[u8]) -> Result<StatusLine, Malformed> {
    if holds_return_or_nul(line) {
        return Err(Malformed::ControlCharacter);
    }
    let (version, rest) = line.split_at_checked(8).ok_or(Malformed::StatusLine)?;
    let minor_version = minor_version(version).ok_or(Malformed::StatusLine)??;
    match rest {
        [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9']
        | [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b' ', ..] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok(StatusLine { minor_version, status: digit(a) * 100 + digit(b) * 10 + digit(c) })
        }
        _ => Err(Malformed::StatusLine),
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Response, ResponseParser, Sink, INTERIM_LIMIT};
    use crate::{Malformed, HEAD_LIMIT_BYTES};

    fn one(text: &str) -> Result<(Option<Response>, usize), Malformed> {
        ResponseParser::new(false).feed(text.as_bytes()).map(|fed| (fed.response, fed.consumed))
    }

    fn whole(status: u16, keep_alive: bool, body_bytes: u64) -> Option<Response> {
        Some(Response { status, keep_alive, body_bytes })
    }

    #[test]
    fn every_framing_is_parsed() {
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
    fn bytes_that_are_not_there_are_passed_over_within_a_body_alone() {
        let mut parser = ResponseParser::new(false);
        parser.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        assert!(!parser.skip(1), "the size of a chunk is not known");
        parser.feed(b"5\r\na").unwrap();
        assert!(!parser.skip(5) && parser.skip(4));
        assert_eq!(parser.feed(b"\r\n0\r\n\r\n").unwrap().response, whole(200, true, 5));
        parser.feed(b"HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
        assert!(parser.skip(1 << 40));
        assert_eq!(parser.finish(), End::Response(whole(200, false, 3 + (1 << 40)).unwrap()));
    }

    #[test]
    fn response_to_head_has_no_body() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let fed = ResponseParser::new(true).feed(text).unwrap();
        assert_eq!((fed.response, fed.consumed), (whole(200, true, 0), text.len()));
    }

    /// A sink that records everything.
    #[derive(Default)]
    struct Recorder {
        heads: Vec<(u16, Vec<String>)>,
        body: Vec<u8>,
    }

    impl Sink for Recorder {
        fn status(&mut self, status: u16) {
            self.heads.push((status, Vec::new()));
        }

        fn field(&mut self, name: &[u8], value: &[u8]) {
            let line = format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            self.heads.last_mut().unwrap().1.push(line);
        }

        fn body(&mut self, bytes: &[u8]) {
            assert!(!bytes.is_empty());
            self.body.extend_from_slice(bytes);
        }
    }

    #[test]
    fn a_sink_sees_fields_and_the_body_without_its_chunks() {
        let text = "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nX-a:  b c \r\n\td\r\nTransfer-Encoding: chunked\r\n\r\n\
                    3;e=f\r\nabc\r\n1\r\nd\r\n0\r\nTrailer: no\r\n\r\n";
        for size in [1, 2, 7, text.len()] {
            let (mut parser, mut recorder) = (ResponseParser::new(false), Recorder::default());
            let fed = text.as_bytes().chunks(size).map(|piece| parser.feed_into(piece, &mut recorder).unwrap());
            assert_eq!(fed.filter_map(|fed| fed.response).collect::<Vec<_>>(), Vec::from_iter(whole(200, true, 4)));
            let fields = ["X-a=b c", "=d", "Transfer-Encoding=chunked"].map(str::to_owned).to_vec();
            assert_eq!(recorder.heads, [(103, vec!["Link=x".to_owned()]), (200, fields)]);
            assert_eq!(recorder.body, b"abcd");
        }
    }

    #[test]
    fn head_and_get_responses_alternate_on_one_connection() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        let mut parser = ResponseParser::new(false);
        for answers_head in [true, false, true] {
            parser.expect_no_body(answers_head);
            let response = parser.feed(text).unwrap().response;
            assert_eq!(response.is_some(), answers_head);
            assert_eq!(parser.feed(if answers_head { b"" } else { b"hi" }).unwrap().response.is_some(), !answers_head);
        }
    }

    #[test]
    fn interim_responses_are_bounded() {
        let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(usize::from(INTERIM_LIMIT));
        let done = "HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(one(&(interim.clone() + done)).unwrap().0, whole(204, true, 0));
        assert_eq!(one(&(interim.clone() + "HTTP/1.1 100 x\r\n\r\n" + done)), Err(Malformed::TooManyInterim));
        let mut parser = ResponseParser::new(false);
        for _ in 0..3 {
            assert_eq!(parser.feed((interim.clone() + done).as_bytes()).unwrap().response, whole(204, true, 0));
        }
        parser.feed(interim.as_bytes()).unwrap();
        assert_eq!(parser.finish(), End::Early, "a response had begun");
    }

    #[test]
    fn bytes_after_a_response_are_not_consumed() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n";
        assert_eq!(one(text), Ok((whole(200, true, 2), text.len() - 17)));
    }

    #[test]
    fn end_of_connection_completes_or_truncates_a_response() {
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
    fn malformed_responses_are_refused() {
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
            ("HTTP/1.1 200 O\rK\r\n", Malformed::ControlCharacter),
            ("HTTP/1.1 200 O\0K\r\n", Malformed::ControlCharacter),
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
            assert_eq!(parser.feed(b"HTTP/1.1 204 x\r\n\r\n"), Err(cause), "the error is permanent");
            parser.reset();
            assert_eq!(parser.feed(b"HTTP/1.1 204 x\r\n\r\n").unwrap().response, whole(204, true, 0));
        }
    }
}
