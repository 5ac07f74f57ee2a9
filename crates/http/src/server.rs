//! One connection as the responder serves it: request bytes in, answer bytes out. Owns the answers that wait to be
//! sent, in a buffer whose size is bounded; longer bodies are streamed from a static block. Refuses to read on while
//! answers wait, so that a peer that sends and does not read is held off by TCP.

use crate::responder::{is_default, push_default, push_head, route, Counter, Persistence, Route, BODY_BLOCK};
use crate::{Malformed, Method, Request, RequestEvent, RequestParser, Responder};

/// Bodies up to this size are copied behind their head, so that a small answer is one piece.
const INLINE_BODY_BYTES: u64 = 4096;

/// Once so much waits to be sent, no more requests are answered.
const OUTPUT_LIMIT_BYTES: usize = 16 * 1024;

const PLAIN: &str = "text/plain";

/// One connection's state.
#[derive(Debug, Default)]
pub struct ServerConnection {
    parser: RequestParser,
    out: Vec<u8>,
    out_sent: usize,
    body_left: u64,
    /// Input behind a request whose answer has to go first.
    held: Vec<u8>,
    closing: bool,
}

impl ServerConnection {
    /// Takes bytes from the peer.
    #[inline]
    pub fn receive(&mut self, responder: &Responder, input: &[u8]) {
        responder.count(Counter::BytesReceived, input.len() as u64);
        if !self.held.is_empty() {
            self.held.extend_from_slice(input);
            return;
        }
        let used = self.process(responder, input);
        if used < input.len() {
            self.held.extend_from_slice(&input[used..]);
        }
    }

    /// Takes the peer's end of its stream: what waits is still sent, then the connection is finished.
    pub fn end_of_input(&mut self) {
        if self.held.is_empty() {
            self.closing = true;
        }
    }

    /// Whether reading makes sense now.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.closing && !self.has_output() && self.held.is_empty()
    }

    /// Whether there is something to send.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.out_sent < self.out.len() || self.body_left > 0
    }

    /// Whether everything has been sent and the connection is to be closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.closing && !self.has_output()
    }

    /// What to send: heads and small bodies, then how many bytes out of [`BODY_BLOCK`], repeated, follow them.
    #[must_use]
    pub fn output(&self) -> (&[u8], u64) {
        (&self.out[self.out_sent..], self.body_left)
    }

    /// The same as two pieces that can be sent as they are: the second is a part of the body, all of it if short.
    #[must_use]
    pub fn pieces(&self) -> (&[u8], &'static [u8]) {
        let body = usize::try_from(self.body_left).map_or(BODY_BLOCK.len(), |left| left.min(BODY_BLOCK.len()));
        (&self.out[self.out_sent..], &BODY_BLOCK[..body])
    }

    /// Takes note of bytes that the system accepted, and goes on with input that waited for that.
    #[inline]
    pub fn sent(&mut self, responder: &Responder, bytes: usize) {
        responder.count(Counter::BytesSent, bytes as u64);
        let from_out = bytes.min(self.out.len() - self.out_sent);
        self.out_sent += from_out;
        self.body_left -= self.body_left.min((bytes - from_out) as u64);
        if self.has_output() {
            return;
        }
        self.out.clear();
        self.out_sent = 0;
        if !self.held.is_empty() {
            let mut held = std::mem::take(&mut self.held);
            let used = self.process(responder, &held);
            held.drain(..used);
            self.held = held;
        }
    }

    /// Answers requests until the input or the room for answers is used up; says how much input that was.
    fn process(&mut self, responder: &Responder, input: &[u8]) -> usize {
        let mut at = 0;
        while at < input.len() && self.body_left == 0 && self.out.len() < OUTPUT_LIMIT_BYTES {
            if self.closing {
                return input.len();
            }
            match self.parser.feed(&input[at..]) {
                Ok(fed) => {
                    at += fed.consumed;
                    match fed.event {
                        Some(RequestEvent::Request(request)) => self.answer(responder, request),
                        Some(RequestEvent::ContinueExpected) => {
                            self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                        }
                        None => {}
                    }
                }
                Err(cause) => {
                    responder.count(Counter::Malformed, 1);
                    self.refuse(responder, &format!("{cause} ({})\n", cause.name()));
                    return input.len();
                }
            }
        }
        at
    }

    fn answer(&mut self, responder: &Responder, request: Request) {
        let persistence = match (request.keep_alive, request.is_http10) {
            (true, false) => Persistence::Implied,
            (true, true) => Persistence::KeepAlive,
            (false, _) => Persistence::Close,
        };
        self.closing = !request.keep_alive;
        let route = route(self.parser.target());
        let is_own = matches!(route, Route::Stats | Route::NotFound);
        responder.count(if is_own { Counter::OwnRequests } else { Counter::Requests }, 1);
        match route {
            Route::Body { bytes } => {
                responder.count(Counter::Status2xx, 1);
                self.answer_body(request.method, bytes, persistence);
            }
            Route::Stats => {
                let text = responder.stats();
                self.answer_text("200 OK", "application/json", &text, request.method, persistence);
            }
            Route::NotFound => {
                responder.count(Counter::Status4xx, 1);
                self.answer_text("404 Not Found", PLAIN, "there is /_leadline/stats\n", request.method, persistence);
            }
            Route::BadSize => self.refuse(responder, "size is a number of bytes, at most 1073741824\n"),
            Route::BadTarget => self.refuse(responder, &format!("{}\n", Malformed::Target)),
        }
    }

    fn answer_body(&mut self, method: Method, bytes: u64, persistence: Persistence) {
        if is_default(method, bytes, persistence) {
            return push_default(&mut self.out);
        }
        push_head(&mut self.out, "200 OK", PLAIN, bytes, persistence);
        match usize::try_from(bytes) {
            _ if method == Method::Head => {}
            Ok(small) if bytes <= INLINE_BODY_BYTES => self.out.extend_from_slice(&BODY_BLOCK[..small]),
            _ => self.body_left = bytes,
        }
    }

    fn answer_text(&mut self, status: &str, media_type: &str, text: &str, method: Method, persistence: Persistence) {
        push_head(&mut self.out, status, media_type, text.len() as u64, persistence);
        if method != Method::Head {
            self.out.extend_from_slice(text.as_bytes());
        }
    }

    fn refuse(&mut self, responder: &Responder, why: &str) {
        responder.count(Counter::Status4xx, 1);
        self.answer_text("400 Bad Request", PLAIN, why, Method::Get, Persistence::Close);
        self.closing = true;
    }
}
