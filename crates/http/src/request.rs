//! The server's parser: requests from bytes that arrive in pieces of any size. Owns the request line, the required
//! fields of a request (RFC 9112, 3.2 and 6.3), and skipping its body. Keeps the target of the latest request in one
//! buffer, and nothing else of a request; a caller that needs more passes a [`Sink`].

use crate::body::{BodyReader, Framing};
use crate::fields::{is_token, minor_version, Coding, Field};
use crate::head::{HeadLines, HeadReader};
use crate::sink::Sink;
use crate::Malformed;

/// The methods that the responder distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD: the response has no body.
    Head,
    /// Any other method.
    Other,
}

/// A request that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
    /// Whether the request is HTTP/1.0, where a persistent connection has to be announced.
    pub is_http10: bool,
    /// Body size without chunk framing, bytes.
    pub body_bytes: u64,
}

/// An event in the bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEvent {
    /// The head is complete and the client waits for `100 Continue` before it sends the body.
    ContinueExpected,
    /// The request is complete.
    Request(Request),
}

/// The result of [`RequestParser::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FedRequest {
    /// Bytes consumed; the caller passes the rest to the next call.
    pub consumed: usize,
    /// The event; `None` means that all bytes were consumed.
    pub event: Option<RequestEvent>,
}

/// A parser that reads one request after another. Holds at most one unfinished line and one target.
#[derive(Debug, Default)]
pub struct RequestParser {
    head: HeadReader,
    line: RequestLine,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Body(BodyReader),
    Failed(Malformed),
}

/// A parsed request line.
#[derive(Debug)]
struct RequestLine {
    method: Method,
    minor_version: u8,
    target: Vec<u8>,
}

impl Default for RequestLine {
    fn default() -> Self {
        Self { method: Method::Other, minor_version: 0, target: Vec::new() }
    }
}

/// The handler of a request's head lines.
struct Lines<'p, S> {
    line: &'p mut RequestLine,
    sink: &'p mut S,
}

impl<S: Sink> HeadLines for Lines<'_, S> {
    #[inline]
    fn start(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        // RFC 9112, 2.2: "a server ... SHOULD ignore at least one empty line (CRLF) received prior to the request-line".
        if line.is_empty() {
            return Ok(false);
        }
        let (method, target, minor_version) = request_line(line)?;
        self.line.target.clear();
        self.line.target.extend_from_slice(target);
        self.line.method = match method {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            _ => Method::Other,
        };
        self.line.minor_version = minor_version;
        self.sink.request(method, target);
        Ok(true)
    }

    /// RFC 9112, 5.2: a server that receives a folded field in a request "MUST either reject the message by sending a
    /// 400" or replace it.
    #[inline]
    fn field(&mut self, field: Field<'_>) -> Result<(), Malformed> {
        if field.name.is_empty() {
            return Err(Malformed::FoldedField);
        }
        self.sink.field(field.name, field.value);
        Ok(())
    }
}

impl RequestParser {
    /// The target of the last complete request, as the client sent it.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        &self.line.target
    }

    /// Capacity of the buffers, bytes.
    #[inline]
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.head.lines.held_bytes() + self.line.target.capacity()
    }

    /// Whether part of a request has arrived.
    #[must_use]
    pub fn is_amid_request(&self) -> bool {
        self.head.has_begun()
    }

    /// Consumes bytes up to the first event, or all of them.
    ///
    /// # Errors
    /// What is wrong with the request. Every later call returns the same error, because the beginning of the next
    /// request is unknown.
    #[inline]
    pub fn feed(&mut self, input: &[u8]) -> Result<FedRequest, Malformed> {
        self.feed_into(input, &mut ())
    }

    /// Like [`RequestParser::feed`], and passes the request to `sink`.
    ///
    /// # Errors
    /// As [`RequestParser::feed`].
    #[inline]
    pub fn feed_into(&mut self, input: &[u8], sink: &mut impl Sink) -> Result<FedRequest, Malformed> {
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

    fn advance(&mut self, input: &[u8], sink: &mut impl Sink) -> Result<FedRequest, Malformed> {
        let mut at = 0;
        if let State::Head = self.state {
            if !self.head.read(input, &mut at, &mut Lines { line: &mut self.line, sink })? {
                return Ok(FedRequest { consumed: at, event: None });
            }
            if self.end_of_head()? {
                return Ok(FedRequest { consumed: at, event: Some(RequestEvent::ContinueExpected) });
            }
        }
        match &mut self.state {
            State::Failed(cause) => Err(*cause),
            State::Body(body) => {
                at += body.feed(&input[at..], &mut self.head.lines, sink)?;
                let event = body.is_done().then_some(body.bytes).map(|bytes| self.completed(bytes));
                Ok(FedRequest { consumed: at, event })
            }
            State::Head => Ok(FedRequest { consumed: at, event: None }),
        }
    }

    /// Begins the body; returns whether the client waits for `100 Continue`.
    fn end_of_head(&mut self) -> Result<bool, Malformed> {
        let (fields, minor_version) = (&self.head.fields, self.line.minor_version);
        fields.check(minor_version)?;
        match fields.hosts {
            0 if minor_version >= 1 => return Err(Malformed::MissingHost),
            0 | 1 => {}
            _ => return Err(Malformed::RepeatedHost),
        }
        let framing = match (fields.coding, fields.length) {
            (Coding::Chunked, _) => Framing::Chunked,
            // RFC 9112, 6.3: where chunked is not the final coding in a request, "the message body length cannot be
            // determined reliably; the server MUST respond with the 400".
            (Coding::Other, _) => return Err(Malformed::TransferEncoding),
            (Coding::None, length) => Framing::Length(length.unwrap_or(0)),
        };
        let body = BodyReader::new(framing);
        let waits = fields.expects_continue && minor_version >= 1 && !body.is_done();
        self.state = State::Body(body);
        Ok(waits)
    }

    fn completed(&mut self, body_bytes: u64) -> RequestEvent {
        let request = Request {
            method: self.line.method,
            keep_alive: self.head.fields.persists(self.line.minor_version),
            is_http10: self.line.minor_version == 0,
            body_bytes,
        };
        self.state = State::Head;
        self.head.begin();
        RequestEvent::Request(request)
    }
}

/// Parses `METHOD SP TARGET SP HTTP/1.x`.
fn request_line(line: &[u8]) -> Result<(&[u8], &[u8], u8), Malformed> {
    let first = line.iter().position(|&byte| byte == b' ').ok_or(Malformed::RequestLine)?;
    let last =
        line.iter().rposition(|&byte| byte == b' ').filter(|&last| last > first).ok_or(Malformed::RequestLine)?;
    let (method, target, version) = (&line[..first], &line[first + 1..last], &line[last + 1..]);
    let minor = minor_version(version).ok_or(Malformed::RequestLine)??;
    if !is_token(method) || target.is_empty() {
        return Err(Malformed::RequestLine);
    }
    if target.iter().any(|byte| !byte.is_ascii_graphic()) {
        return Err(Malformed::Target);
    }
    Ok((method, target, minor))
}

#[cfg(test)]
mod tests {
    use super::{Method, Request, RequestEvent, RequestParser};
    use crate::{Malformed, Sink, HEAD_LIMIT_BYTES};

    fn fed(text: &str) -> Result<(Option<RequestEvent>, usize), Malformed> {
        RequestParser::default().feed(text.as_bytes()).map(|fed| (fed.event, fed.consumed))
    }

    fn request(method: Method, keep_alive: bool, is_http10: bool, body_bytes: u64) -> Option<RequestEvent> {
        Some(RequestEvent::Request(Request { method, keep_alive, is_http10, body_bytes }))
    }

    #[test]
    fn requests() {
        let cases = [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", request(Method::Get, true, false, 0)),
            ("\r\nHEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", request(Method::Head, false, false, 0)),
            ("GET / HTTP/1.0\r\n\r\n", request(Method::Get, false, true, 0)),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", request(Method::Get, true, true, 0)),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", request(Method::Other, true, false, 3)),
            (
                "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                request(Method::Other, true, false, 2),
            ),
        ];
        for (text, event) in cases {
            assert_eq!(fed(text), Ok((event, text.len())), "{text:?}");
        }
    }

    #[test]
    fn a_request_with_expect_gets_a_continue() {
        let head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
        let mut parser = RequestParser::default();
        let fed = parser.feed(head.as_bytes()).unwrap();
        assert_eq!((fed.consumed, fed.event), (head.len(), Some(RequestEvent::ContinueExpected)));
        assert_eq!(parser.feed(b"abc").unwrap().event, request(Method::Other, true, false, 3));
        assert_eq!(parser.target(), b"/x");
    }

    /// A sink that records everything.
    #[derive(Default)]
    struct Recorder(String);

    impl Sink for Recorder {
        fn request(&mut self, method: &[u8], target: &[u8]) {
            self.0 += &format!("<{} {}>", String::from_utf8_lossy(method), String::from_utf8_lossy(target));
        }

        fn field(&mut self, name: &[u8], value: &[u8]) {
            self.0 += &format!("{}={};", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        }

        fn body(&mut self, bytes: &[u8]) {
            self.0 += &String::from_utf8_lossy(bytes);
        }
    }

    #[test]
    fn a_sink_sees_the_request_without_its_chunks() {
        let text = "PATCH /a?b HTTP/1.1\r\nHost: h\r\nX:  y z \r\nTransfer-Encoding: chunked\r\n\r\n\
                    3;e=f\r\nabc\r\n1\r\nd\r\n0\r\nTrailer: no\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
        for size in [1, 2, 7, text.len()] {
            let (mut parser, mut recorder, mut requests) = (RequestParser::default(), Recorder::default(), 0);
            for mut piece in text.as_bytes().chunks(size) {
                while !piece.is_empty() {
                    let fed = parser.feed_into(piece, &mut recorder).unwrap();
                    requests += usize::from(fed.event.is_some());
                    piece = &piece[fed.consumed..];
                }
            }
            assert_eq!(requests, 2);
            assert_eq!(recorder.0, "<PATCH /a?b>Host=h;X=y z;Transfer-Encoding=chunked;abcd<GET /b>Host=h;");
        }
    }

    #[test]
    fn bytes_that_are_not_there_are_passed_over_within_a_body_alone() {
        let mut parser = RequestParser::default();
        assert!(!parser.skip(1), "before a head");
        parser.feed(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\na").unwrap();
        assert!(!parser.skip(6) && parser.skip(4));
        assert_eq!(parser.feed(b"f").unwrap().event, request(Method::Other, true, false, 6));
        parser.feed(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\na").unwrap();
        assert!(parser.skip(5));
        assert_eq!(parser.feed(b"").unwrap().event, request(Method::Other, true, false, 6));
    }

    #[test]
    fn malformed_requests_are_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD_LIMIT_BYTES));
        let cases = [
            ("GET /\r\n", Malformed::RequestLine),
            ("GET\r\n", Malformed::RequestLine),
            ("GET  HTTP/1.1\r\n", Malformed::RequestLine),
            ("G@T / HTTP/1.1\r\n", Malformed::RequestLine),
            ("GET / HTTP/1.1 \r\n", Malformed::RequestLine),
            ("GET /a b HTTP/1.1\r\n", Malformed::Target),
            ("PRI * HTTP/2.0\r\n", Malformed::Version),
            ("GET / HTTP/1.1\r\n\r\n", Malformed::MissingHost),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Malformed::RepeatedHost),
            ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n", Malformed::FoldedField),
            ("GET / HTTP/1.1\r\n X: b\r\n", Malformed::FoldedField),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n", Malformed::ContentLengthConflict),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Malformed::LengthAndCoding,
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", Malformed::TransferEncoding),
            ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nq\r\n", Malformed::ChunkSize),
            (&long, Malformed::HeadTooLong),
        ];
        for (text, cause) in cases {
            assert_eq!(fed(text), Err(cause), "{:?}", &text[..text.len().min(80)]);
        }
    }
}
