//! Sends requests: from the set or from a script, in clear or through TLS, one by one or as a batch. Owns which
//! request a connection sends next, when a request counts as sent, and how a count of sent bytes is corrected.

use std::cmp::Reverse;
use std::sync::Arc;

use super::connection::{Connection, ConnectionState};
use super::effects::{Effects, Failure};
use super::session::Sent;
use super::shared::{Begun, Delayed, Idle, Shared};
use super::source::{Script, Source};
use crate::{expect_no_bodies, expects_no_body, Batch};

impl Connection {
    /// Gives the connection its next request, or makes it wait for one. The request is wanted since `wanted_ns`; the
    /// connection is free since `free_ns`, which is later if the connection had to be reopened.
    #[inline]
    pub(super) fn next(
        &mut self,
        wanted_ns: u64,
        free_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        if let Source::Script(script) = &mut shared.source {
            if shared.stopped_ns.is_some() {
                return;
            }
            match script.delay_ms() {
                Ok(0) => {}
                Ok(delay_ms) => {
                    let ready_ns = effects.now_ns() + delay_ms * 1_000_000;
                    let (index, epoch) = (self.index, self.epoch);
                    return shared.delayed.push(Reverse(Delayed { ready_ns, index, epoch }));
                }
                Err(error) => {
                    // If a request is due, it fails; else the error has no request.
                    let requests = script.batch();
                    let is_due = shared.take(free_ns, wanted_ns).is_some();
                    return shared.script_failed(&error, if is_due { requests } else { 1 }, effects);
                }
            }
        }
        self.offer(wanted_ns, free_ns, shared, effects);
    }

    /// Like [`Connection::next`], after a script's delay.
    #[inline]
    pub(super) fn offer(
        &mut self,
        wanted_ns: u64,
        free_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        // `free_ns` decides whether a request is due, because the responses of one wait all arrive together.
        match shared.take(free_ns, wanted_ns) {
            Some(due_ns) => {
                // The longest idle connection could have sent it if this one had not come first.
                let free_ns = shared.idle.front().map_or(free_ns, |idle| idle.free_ns);
                self.begin(due_ns, free_ns, shared, effects);
            }
            None => {
                self.is_idle = true;
                shared.idle.push_back(Idle { index: self.index, free_ns });
            }
        }
    }

    /// Sends a request or a batch; `free_ns` is the time since which some connection was free for it. Earlier waiting
    /// counts as latency, because it is due to the server; later waiting counts as our lateness.
    #[inline]
    pub(super) fn begin(
        &mut self,
        due_ns: u64,
        free_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        shared.tally.due_while_busy += u64::from(free_ns > due_ns);
        self.is_pushed_back = false;
        let wanted_ns = due_ns.max(free_ns);
        let Source::Fixed(picker) = &mut shared.source else {
            return self.begin_scripted(due_ns, wanted_ns, shared, effects);
        };
        let number = picker.next();
        let piece = shared.settings.requests.get(number);
        let range = piece.from as usize..piece.to as usize;
        (self.request, self.redirects_left) = (number as u32, shared.settings.redirects);
        self.redirected = None;
        let batch = Batch { bytes: range.len(), requests: 1, expects_no_body: piece.expects_no_body };
        self.session.exchange.begin(due_ns, wanted_ns, batch);
        shared.begun.push(Begun { index: self.index, epoch: self.epoch, due_ns, wanted_ns });
        if self.session.channel.is_sealed() {
            let settings = Arc::clone(&shared.settings);
            self.send_whole(&settings.payload[range], shared, effects);
        } else {
            match effects.send(self.index, range) {
                Ok(bytes) => self.sent(bytes, shared, effects),
                Err(failure) => self.not_sent(failure, shared, effects),
            }
        }
    }

    fn begin_scripted(
        &mut self,
        due_ns: u64,
        wanted_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        let Source::Script(script) = &mut shared.source else { return };
        let mut request = std::mem::take(&mut shared.out);
        request.clear();
        let (made, requests) = (script.request(&mut request), script.batch());
        match made {
            Ok(()) => {
                let batch = Batch { bytes: request.len(), requests, expects_no_body: expects_no_body(&request) };
                let mixed = (requests > 1).then(|| expect_no_bodies(&request));
                if let Some(None) = mixed {
                    let message = "a batch of more than 64 requests must be all HEAD or contain no HEAD";
                    shared.script_failed(message, requests, effects);
                } else {
                    self.session.exchange.begin(due_ns, wanted_ns, batch);
                    if let Some(Some(mask)) = mixed {
                        self.session.exchange.expect_no_bodies(mask);
                    }
                    shared.begun.push(Begun { index: self.index, epoch: self.epoch, due_ns, wanted_ns });
                    self.send_whole(&request, shared, effects);
                }
            }
            Err(error) => shared.script_failed(&error, requests, effects),
        }
        shared.out = request;
    }

    /// Sends a request whose bytes are not part of the settings.
    pub(super) fn send_whole(&mut self, bytes: &[u8], shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        match self.session.send(bytes, &mut shared.buffers, effects) {
            Ok(sent) => self.count_sent(sent, shared, effects),
            Err(failure) => self.not_sent(failure, shared, effects),
        }
    }

    /// Counts what the system took of a request. TLS records count when all of them are sent.
    #[inline]
    pub(super) fn sent(&mut self, bytes: usize, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let sent = self.session.on_taken(bytes);
        self.count_sent(sent, shared, effects);
    }

    #[inline]
    fn count_sent(&mut self, sent: Sent, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        effects.count_sent(sent.bytes, sent.requests);
        if sent.bytes > 0 && sent.requests == 0 && !self.is_pushed_back {
            self.is_pushed_back = true;
            shared.tally.pushback += 1;
        }
    }

    /// Handles a failed send. If the server closed the connection, it may have responded before; the end of receiving
    /// shows that and counts the failure.
    pub(super) fn not_sent(&mut self, failure: Failure, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        match failure.name {
            name @ "reset" => self.broken = Some(name),
            name => self.fail(name, || failure.detail, shared, effects),
        }
    }

    /// Corrects the count of sent bytes. A request that was answered, and whose rest the system did not take, is cut off.
    pub(super) fn take_back(&mut self, bytes: usize, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let was_answered = self.session.exchange.is_answered();
        let Sent { bytes, mut requests } = self.session.take_back(bytes);
        // Without an answer on this connection, the bytes are those of a handshake.
        let is_request = self.state == ConnectionState::Up && self.served > 0;
        if bytes > 0 && was_answered && is_request && self.session.answered_early == 0 {
            requests = u64::from(self.session.exchange.batch_requests());
            shared.tally.cut_off += requests;
        }
        effects.take_back(bytes, requests);
    }

    /// Counts requests that were answered before they were known to be sent, once it is known what the system took.
    pub(super) fn settle_early_answers(&mut self, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let requests = u64::from(std::mem::take(&mut self.session.answered_early));
        if self.session.exchange.unsent_bytes() == 0 {
            effects.count_sent(0, requests);
        } else {
            shared.tally.cut_off += requests;
        }
    }
}
