//! One connection of the responder: request bytes and a time in, response bytes and a wake-up time out. Owns the
//! order of responses, the delayed ones, and a buffer of bounded size; longer bodies are streamed from a static
//! block. Stops reading while responses wait to be sent or too many are delayed, so TCP flow control stops a peer
//! that sends and does not read.

use std::collections::VecDeque;

use crate::behaviour::Behaviour;
use crate::responder::{push_head, Answer, BodyFraming, Counter, Persistence, Route, Stream, PLAIN};
use crate::{Malformed, Method, Request, RequestEvent, RequestParser, Responder};

/// Output limit, bytes: above it no more requests are answered.
const OUTPUT_LIMIT_BYTES: usize = 16 * 1024;
/// Maximum number of delayed responses of one connection; above it no more requests are read.
const MOST_WAITING: usize = 128;

/// One connection's state.
#[derive(Debug, Default)]
pub struct ServerConnection {
    parser: RequestParser,
    out: Vec<u8>,
    out_sent: usize,
    /// The body after `out`, and the bytes after the body.
    stream: Stream,
    ending: &'static [u8],
    /// Delayed responses in the order of their requests.
    waiting: VecDeque<Waiting>,
    /// Input that waits until earlier output is sent.
    held: Vec<u8>,
    answers: u64,
    /// Whether all further requests are ignored.
    closing: bool,
    input_ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    due_ns: u64,
    reply: Reply,
}

/// A reply before it is rendered.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Load(Answer),
    Continue,
    Stats { head_only: bool, persistence: Persistence },
    NotFound { head_only: bool, persistence: Persistence },
    Unclear(&'static str),
    Malformed(Malformed),
}

impl ServerConnection {
    /// Handles bytes that the peer sent by `now_ns`.
    #[inline]
    pub fn receive(&mut self, responder: &mut Responder, now_ns: u64, input: &[u8]) {
        responder.count(Counter::BytesReceived, input.len() as u64);
        if !self.held.is_empty() {
            self.held.extend_from_slice(input);
            return;
        }
        let used = self.process(responder, now_ns, input);
        if used < input.len() {
            self.held.extend_from_slice(&input[used..]);
        }
    }

    /// Handles the end of the peer's stream: pending responses are still sent, then the connection is finished.
    pub fn end_of_input(&mut self) {
        self.input_ended = true;
    }

    /// Whether the caller should read from the socket.
    #[inline]
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.closing
            && !self.input_ended
            && !self.has_output()
            && self.held.is_empty()
            && self.waiting.len() < MOST_WAITING
    }

    /// Whether so much input or output is pending that the caller must not read.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.held.is_empty() || self.waiting.len() >= MOST_WAITING
    }

    /// Capacity of the buffers, bytes.
    #[inline]
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let waiting = self.waiting.capacity() * size_of::<Waiting>();
        self.parser.held_bytes() + self.out.capacity() + self.held.capacity() + waiting
    }

    /// Whether there is output to send.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.out_sent < self.out.len() || self.stream.left() > 0
    }

    /// Whether all output is sent and the connection is to be closed.
    #[inline]
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let ends = self.closing || self.input_ended && self.held.is_empty();
        ends && !self.has_output() && self.waiting.is_empty()
    }

    /// When to call [`ServerConnection::wake`], ns; `None` if no response is delayed.
    #[inline]
    #[must_use]
    pub fn wake_at(&self) -> Option<u64> {
        self.waiting.front().filter(|_| !self.has_output()).map(|first| first.due_ns)
    }

    /// Releases the responses that are due by `now_ns`.
    pub fn wake(&mut self, responder: &mut Responder, now_ns: u64) {
        self.go_on(responder, now_ns);
    }

    /// The output: heads and small bodies, then the streamed body.
    #[inline]
    #[must_use]
    pub fn output(&self) -> (&[u8], Stream) {
        (&self.out[self.out_sent..], self.stream)
    }

    /// The output as two slices; the second is part of the streamed body, or all of it if short.
    #[must_use]
    pub fn pieces(&self) -> (&[u8], &'static [u8]) {
        let (out, mut stream) = self.output();
        (out, stream.next().unwrap_or_default())
    }

    /// Records that the socket took bytes by `now_ns`, and continues with what waited for that.
    #[inline]
    pub fn sent(&mut self, responder: &mut Responder, now_ns: u64, bytes: usize) {
        responder.count(Counter::BytesSent, bytes as u64);
        let from_out = bytes.min(self.out.len() - self.out_sent);
        self.out_sent += from_out;
        self.stream.advance((bytes - from_out) as u64);
        if self.has_output() {
            return;
        }
        self.out.clear();
        self.out_sent = 0;
        if self.out.capacity() > OUTPUT_LIMIT_BYTES {
            self.out.shrink_to(OUTPUT_LIMIT_BYTES);
        }
        self.out.extend_from_slice(std::mem::take(&mut self.ending));
        if !self.waiting.is_empty() || !self.held.is_empty() {
            self.go_on(responder, now_ns);
        }
    }

    /// Releases the responses that are due, then reads the held input.
    fn go_on(&mut self, responder: &mut Responder, now_ns: u64) {
        while self.has_room() {
            match self.waiting.front().copied() {
                Some(first) if first.due_ns <= now_ns => {
                    self.waiting.pop_front();
                    self.give(responder, now_ns, first.reply);
                }
                _ => break,
            }
        }
        if !self.held.is_empty() && self.has_room() {
            let mut held = std::mem::take(&mut self.held);
            let used = self.process(responder, now_ns, &held);
            held.drain(..used);
            self.held = if held.is_empty() { Vec::new() } else { held };
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.stream.left() == 0 && self.ending.is_empty() && self.out.len() < OUTPUT_LIMIT_BYTES
    }

    /// Reads requests until the input ends or the output is full; returns how many bytes it consumed.
    #[inline]
    fn process(&mut self, responder: &mut Responder, now_ns: u64, input: &[u8]) -> usize {
        let mut at = 0;
        while at < input.len() && self.has_room() && self.waiting.len() < MOST_WAITING {
            if self.closing {
                return input.len();
            }
            let rest = &input[at..];
            let begins = !self.parser.is_amid_request();
            if let Some((request, route, length)) = responder.recognise(rest).filter(|_| begins) {
                at += length;
                self.answer(responder, now_ns, request, route);
                continue;
            }
            match self.parser.feed(rest) {
                Ok(fed) => {
                    at += fed.consumed;
                    match fed.event {
                        Some(RequestEvent::Request(request)) => {
                            let route = responder.route(self.parser.target());
                            if begins {
                                responder.remember(&rest[..fed.consumed], request);
                            }
                            self.answer(responder, now_ns, request, route);
                        }
                        Some(RequestEvent::ContinueExpected) => self.reply(responder, now_ns, 0, Reply::Continue),
                        None => {}
                    }
                }
                Err(cause) => {
                    self.closing = true;
                    self.reply(responder, now_ns, 0, Reply::Malformed(cause));
                    return input.len();
                }
            }
        }
        at
    }

    #[inline]
    fn answer(&mut self, responder: &mut Responder, now_ns: u64, request: Request, route: Route) {
        let is_own = matches!(route, Route::Stats | Route::NotFound);
        responder.count(if is_own { Counter::OwnRequests } else { Counter::Requests }, 1);
        self.closing = !request.keep_alive;
        let head_only = request.method == Method::Head;
        match route {
            Route::Load(behaviour) => self.answer_load(responder, now_ns, request, &behaviour),
            Route::Stats => {
                let reply = Reply::Stats { head_only, persistence: self.persistence(request) };
                self.reply(responder, now_ns, 0, reply);
            }
            Route::NotFound => {
                let reply = Reply::NotFound { head_only, persistence: self.persistence(request) };
                self.reply(responder, now_ns, 0, reply);
            }
            Route::Unclear(message) => {
                self.closing = true;
                self.reply(responder, now_ns, 0, Reply::Unclear(message));
            }
            Route::BadTarget => {
                self.closing = true;
                self.reply(responder, now_ns, 0, Reply::Malformed(Malformed::Target));
            }
        }
    }

    #[inline]
    fn answer_load(&mut self, responder: &mut Responder, now_ns: u64, request: Request, behaviour: &Behaviour) {
        self.answers += 1;
        self.closing |= behaviour.close_after.is_some_and(|most| self.answers >= most);
        let mut status = behaviour.status;
        if responder.draw_error(behaviour.errors) {
            responder.count(Counter::Errors, 1);
            status = 500;
        }
        let answer = Answer {
            status,
            body_bytes: behaviour.body_bytes,
            // RFC 9112, 7.1: "A sender MUST NOT send a message ... in the chunked transfer coding" to HTTP/1.0.
            chunked: behaviour.chunked && !request.is_http10,
            head_only: request.method == Method::Head,
            persistence: self.persistence(request),
        };
        let delay_ns = responder.draw_delay(behaviour);
        self.reply(responder, now_ns, delay_ns, Reply::Load(answer));
    }

    #[inline]
    fn persistence(&self, request: Request) -> Persistence {
        match (self.closing, request.is_http10) {
            (true, _) => Persistence::Close,
            (false, true) => Persistence::KeepAlive,
            (false, false) => Persistence::Implied,
        }
    }

    /// Sends a reply immediately if possible, or queues it.
    #[inline]
    fn reply(&mut self, responder: &mut Responder, now_ns: u64, delay_ns: u64, reply: Reply) {
        if delay_ns > 0 {
            responder.count(Counter::Delayed, 1);
        }
        if delay_ns == 0 && self.waiting.is_empty() {
            return self.give(responder, now_ns, reply);
        }
        self.waiting.push_back(Waiting { due_ns: now_ns.saturating_add(delay_ns), reply });
    }

    #[inline]
    fn give(&mut self, responder: &mut Responder, now_ns: u64, reply: Reply) {
        if let Reply::Load(answer) = &reply {
            responder.count_answer(answer.status);
            let rendered = responder.rendered(answer);
            self.out.extend_from_slice(&rendered.head);
            (self.stream, self.ending) = (rendered.stream, rendered.ending);
        } else {
            self.give_text(responder, now_ns, reply);
        }
    }

    #[cold]
    fn give_text(&mut self, responder: &mut Responder, now_ns: u64, reply: Reply) {
        let (status, media_type, text, head_only, persistence) = match reply {
            Reply::Load(_) => return,
            Reply::Continue => return self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
            Reply::Stats { head_only, persistence } => {
                (200, "application/json", responder.stats(now_ns), head_only, persistence)
            }
            Reply::NotFound { head_only, persistence } => {
                (404, PLAIN, "there is /_leadline/stats\n".to_owned(), head_only, persistence)
            }
            Reply::Unclear(message) => (400, PLAIN, format!("{message}\n"), false, Persistence::Close),
            Reply::Malformed(cause) => {
                responder.count_malformed(cause);
                (400, PLAIN, format!("{cause} ({})\n", cause.name()), false, Persistence::Close)
            }
        };
        if status != 200 {
            responder.count_answer(status);
        }
        push_head(&mut self.out, status, media_type, BodyFraming::Length(text.len() as u64), persistence);
        if !head_only {
            self.out.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
