//! Receives responses, in clear or through TLS. Owns the outcome that each response counts as, so that each request
//! has exactly one, and what follows: the next request, a redirect, or the end of the connection.

use super::channel::Unsealed;
use super::connection::Connection;
use super::effects::{Effects, SocketUse};
use super::redirect;
use super::shared::Shared;
use super::source::{Script, Source};
use super::tally::STATUS_CLASSES;
use crate::{Answer, Batch, Closed, Malformed};

/// Where the bytes of responses are stored.
#[derive(Clone, Copy)]
enum Bytes<'b> {
    /// As they were received.
    Received,
    /// Plaintext after TLS.
    Plain(&'b [u8]),
}

impl Bytes<'_> {
    /// The bytes from `at` on.
    #[inline]
    fn after<'s>(&'s self, at: usize, effects: &'s impl Effects) -> &'s [u8] {
        match self {
            Bytes::Received => &effects.received()[at..],
            Bytes::Plain(bytes) => &bytes[at..],
        }
    }
}

impl Connection {
    /// Handles received bytes.
    #[inline]
    pub(super) fn receive(&mut self, at_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        if self.session.channel.is_sealed() {
            self.unseal(at_ns, shared, effects);
        } else {
            self.feed(Bytes::Received, at_ns, shared, effects);
        }
    }

    /// Reads bytes of responses until the connection closes; returns whether it is still open.
    #[inline]
    fn feed(
        &mut self,
        bytes: Bytes<'_>,
        at_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) -> bool {
        let epoch = self.epoch;
        let mut at = 0;
        loop {
            let rest = bytes.after(at, effects);
            let length = rest.len();
            if length == 0 {
                return true;
            }
            let fed = match &mut self.capture {
                None => self.session.exchange.receive(rest, at_ns, &mut ()),
                Some(capture) => self.session.exchange.receive(rest, at_ns, &mut **capture),
            };
            match fed {
                Ok((used, answer)) => {
                    at += used;
                    effects.count_received(used as u64, 0);
                    if let Some(answer) = answer {
                        self.on_response(&answer, used < length, shared, effects);
                    }
                    if self.epoch != epoch {
                        return false;
                    }
                }
                Err(cause) => {
                    effects.count_received(length as u64, 0);
                    self.fail(cause.name(), || cause.explanation().to_owned(), shared, effects);
                    return false;
                }
            }
        }
    }

    /// Handles a response. No new request begins while unread bytes of the same piece are left.
    #[inline]
    fn on_response(
        &mut self,
        answer: &Answer,
        is_more: bool,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        if answer.left > 0 {
            self.count_response(answer, shared, effects);
            if !answer.keeps_connection() {
                self.on_early_close(answer, shared, effects);
            }
            return;
        }
        if is_more {
            return self.on_excess_bytes(answer, shared, effects);
        }
        if shared.settings.redirects > 0 && self.follow(answer, shared, effects) {
            return;
        }
        self.count_response(answer, shared, effects);
        self.served += u64::from(self.session.exchange.batch_requests());
        let is_used_up = shared.settings.requests_per_connection.is_some_and(|limit| self.served >= limit);
        if answer.keeps_connection() && !is_used_up {
            self.next(answer.timing.done_ns, answer.timing.done_ns, shared, effects);
        } else {
            self.reopen(Some(answer.timing.done_ns), shared, effects);
        }
    }

    /// Handles unsolicited bytes after a response. It is unknown which bytes are the response, so the request fails
    /// and the connection is closed.
    fn on_excess_bytes(&mut self, answer: &Answer, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.session.answered_early += u32::from(!answer.was_sent);
        shared.tally.last_ns = Some(answer.timing.done_ns);
        let cause = Malformed::UnsolicitedBytes;
        effects.count_failure(cause.name(), 1, || cause.explanation().to_owned());
        self.reopen(None, shared, effects);
    }

    /// Handles a server that closes the connection before it has answered the whole batch.
    fn on_early_close(&mut self, answer: &Answer, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.record_age(answer.timing.done_ns, effects);
        let message = "the server closed the connection before it responded to all pipelined requests";
        effects.count_failure("closed_early", u64::from(answer.left), || message.to_owned());
        self.reopen(Some(answer.timing.done_ns), shared, effects);
    }

    /// Decrypts received bytes.
    fn unseal(&mut self, at_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let Unsealed { handshake, is_over } = self.session.channel.unseal(&mut shared.buffers, effects);
        if let Some(handshake) = handshake {
            let since_ns = self.session.exchange.outstanding_since_ns().unwrap_or(at_ns);
            self.count_handshake(&handshake, since_ns, at_ns, shared, effects);
        }
        let plain = std::mem::take(&mut shared.buffers.plain);
        let still_stands = self.feed(Bytes::Plain(&plain), at_ns, shared, effects);
        shared.buffers.plain = plain;
        if !still_stands {
            return;
        }
        match is_over {
            Err(failure) => self.fail(failure.name, || failure.detail, shared, effects),
            Ok(true) => self.ended(at_ns, shared, effects),
            Ok(false) => {}
        }
    }

    /// Counts a response, unless the script that reads it fails: then the request counts as failed.
    #[inline]
    fn count_response(&mut self, answer: &Answer, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.session.answered_early += u32::from(!answer.was_sent);
        shared.tally.last_ns = Some(answer.timing.done_ns);
        if let Source::Script(script) = &mut shared.source {
            let status = answer.response.status;
            if let Some(Err(error)) = self.capture.as_deref().map(|capture| script.on_response(status, capture)) {
                return shared.script_failed(&error, 1, effects);
            }
            if script.has_stopped() {
                shared.stopped_ns = Some(answer.timing.done_ns);
            }
        }
        effects.count_received(0, 1);
        let status = answer.response.status;
        shared.tally.body_bytes += answer.response.body_bytes;
        shared.tally.status[usize::from(status / 100) % 10] += 1;
        if status >= 400 {
            self.keep_bad_status(status, shared, effects);
        }
        effects.record_response(&answer.timing);
    }

    /// Keeps the first example of each status class.
    fn keep_bad_status(&self, status: u16, shared: &Shared<impl Script>, effects: &mut impl Effects) {
        let sources = &shared.settings.sources;
        let source = self.redirected.as_deref().or_else(|| sources.get(self.request as usize).or(sources.last()));
        let Some(source) = source else { return };
        effects.keep_example(STATUS_CLASSES[usize::from(status / 100) % 10], || {
            format!("{} {}: {status}", source.method, source.url.target)
        });
    }

    /// Follows a redirect if the settings allow it; returns whether it did.
    #[inline]
    fn follow(&mut self, answer: &Answer, shared: &mut Shared<impl Script>, effects: &mut impl Effects) -> bool {
        if self.redirects_left == 0 || answer.response.status / 100 != 3 || !answer.keeps_connection() {
            return false;
        }
        let Some(location) = self.capture.as_ref().and_then(|capture| capture.field("location")) else {
            return false;
        };
        // RFC 9110, 10.2.2: a relative reference is resolved against the URI of the request that was redirected.
        let source = self.redirected.as_deref().unwrap_or(&shared.settings.sources[self.request as usize]);
        let Some((source, next)) = redirect::next(source, answer.response.status, location) else { return false };
        let batch = Batch { bytes: next.bytes().len(), requests: 1, expects_no_body: next.expects_no_body() };
        shared.tally.redirects += 1;
        shared.tally.body_bytes += answer.response.body_bytes;
        self.redirects_left -= 1;
        self.redirected = Some(Box::new(source));
        self.session.exchange.follow(batch);
        // The request was already counted when it was first sent.
        effects.take_back(0, 1);
        self.send_whole(next.bytes(), shared, effects);
        true
    }

    /// Handles the end of the peer's stream.
    pub(super) fn ended(&mut self, at_ns: u64, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        self.detach(SocketUse::Close, shared, effects);
        match self.session.end(at_ns) {
            (Closed::Idle, _) => self.lost_idle(shared, effects),
            (Closed::Answered(answer), _) => {
                self.count_response(&answer, shared, effects);
                if answer.left > 0 {
                    return self.on_early_close(&answer, shared, effects);
                }
                self.reopen(Some(at_ns), shared, effects);
            }
            (Closed::Early(outstanding), cut) => {
                shared.tally.count_cut_off(outstanding);
                shared.tally.last_ns = Some(effects.now_ns());
                let message = "the server closed the connection before it responded";
                let (name, detail) = cut.map_or(("closed_early", message.to_owned()), |cut| (cut.name, cut.detail));
                let name = self.broken.unwrap_or(name);
                effects.count_failure(name, u64::from(outstanding.requests), || detail);
                self.reopen(None, shared, effects);
            }
        }
    }
}
