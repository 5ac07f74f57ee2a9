//! Sending requests: from the set of requests or from a script; in clear or through TLS; one by one or several in one piece.
//! Owns which request a connection sends next, when a request counts as sent, and how a count of sent bytes is corrected.

use std::cmp::Reverse;
use std::sync::Arc;

use super::connection::Connection;
use super::effects::{Effects, Failure};
use super::shared::{Begun, Delayed, Idle, Shared};
use super::source::{Script, Source};
use crate::{expect_no_bodies, expects_no_body, Batch};

impl Connection {
    /// Gives the connection its next request, or lets it wait for one. It is wanted since `wanted_ns` and the connection can
    /// carry one since `free_ns`: later, where it had to be opened again in between.
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
                    // The request that was to wait fails, where one is due; else it is an error without a request.
                    let requests = script.batch();
                    let is_due = shared.take(free_ns, wanted_ns).is_some();
                    return shared.script_failed(&error, if is_due { requests } else { 1 }, effects);
                }
            }
        }
        self.offer(wanted_ns, free_ns, shared, effects);
    }

    /// As [`Connection::next`], once a script has let the connection go on.
    #[inline]
    pub(super) fn offer(
        &mut self,
        wanted_ns: u64,
        free_ns: u64,
        shared: &mut Shared<impl Script>,
        effects: &mut impl Effects,
    ) {
        // Whether it is time is asked of the instant when it became free: answers of one wait are all there at once.
        match shared.take(free_ns, wanted_ns) {
            Some(due_ns) => {
                // The longest idle connection could have taken it, had this one not come first.
                let free_ns = shared.idle.front().map_or(free_ns, |idle| idle.free_ns);
                self.begin(due_ns, free_ns, shared, effects);
            }
            None => {
                self.is_idle = true;
                shared.idle.push_back(Idle { index: self.index, free_ns });
            }
        }
    }

    /// Sends a request, or a batch; `free_ns` says since when some connection was free for it. Until then it waited for the
    /// server, which is in its latency; only what came after that is our own lateness.
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
        self.exchange.begin(due_ns, wanted_ns, batch);
        shared.begun.push(Begun { index: self.index, epoch: self.epoch, due_ns, wanted_ns });
        if self.tls.is_some() {
            let settings = Arc::clone(&shared.settings);
            self.send_sealed(&settings.payload[range], shared, effects);
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
                    let says = "of more than 64 requests in one piece all or none may be HEAD";
                    shared.script_failed(says, requests, effects);
                } else {
                    self.exchange.begin(due_ns, wanted_ns, batch);
                    if let Some(Some(mask)) = mixed {
                        self.exchange.expect_no_bodies(mask);
                    }
                    shared.begun.push(Begun { index: self.index, epoch: self.epoch, due_ns, wanted_ns });
                    self.send_whole(&request, shared, effects);
                }
            }
            Err(error) => shared.script_failed(&error, requests, effects),
        }
        shared.out = request;
    }

    /// Sends a request whose bytes are not among the settings'.
    pub(super) fn send_whole(&mut self, bytes: &[u8], shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        if self.tls.is_some() {
            return self.send_sealed(bytes, shared, effects);
        }
        match effects.send_copy(self.index, bytes) {
            Ok(bytes) => self.sent(bytes, shared, effects),
            Err(failure) => self.not_sent(failure, shared, effects),
        }
    }

    fn send_sealed(&mut self, bytes: &[u8], shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let Some(tls) = &mut self.tls else { return };
        let mut sealed = std::mem::take(&mut shared.sealed);
        sealed.clear();
        tls.write_to(bytes, &mut sealed);
        let given = self.send_records(&sealed, effects);
        shared.sealed = sealed;
        match given {
            Ok(()) => self.sent(0, shared, effects),
            Err(failure) => self.not_sent(failure, shared, effects),
        }
    }

    /// Sends records of TLS, or the request for a proxy: no requests by themselves.
    pub(super) fn send_records(&mut self, bytes: &[u8], effects: &mut impl Effects) -> Result<(), Failure> {
        let taken = effects.send_copy(self.index, bytes)?;
        self.records_left += bytes.len() - taken;
        Ok(())
    }

    /// Counts what the system took of a request. Records of TLS count once they are all gone.
    #[inline]
    pub(super) fn sent(&mut self, bytes: usize, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        let mut bytes = bytes;
        // What a handshake or a proxy was sent goes before the request.
        let records = bytes.min(self.records_left);
        self.records_left -= records;
        bytes -= records;
        if self.tls.is_some() {
            bytes = if self.records_left == 0 { self.exchange.unsent_bytes() } else { 0 };
        }
        if !self.exchange.is_sending() {
            return;
        }
        let requests = self.exchange.batch_requests();
        let whole = self.exchange.sent(bytes);
        effects.count_sent(bytes as u64, if whole { u64::from(requests) } else { 0 });
        if bytes > 0 && !whole && !self.is_pushed_back {
            self.is_pushed_back = true;
            shared.tally.pushback += 1;
        }
    }

    /// Sending failed. Where the connection has gone, the server may have answered before it hung up: that is seen, and
    /// the failure counted, when receiving ends.
    pub(super) fn not_sent(&mut self, failure: Failure, shared: &mut Shared<impl Script>, effects: &mut impl Effects) {
        match failure.name {
            name @ "reset" => self.broken = Some(name),
            name => self.fail(name, || failure.detail, shared, effects),
        }
    }

    /// Corrects what was counted as sent.
    pub(super) fn take_back(&mut self, bytes: usize, effects: &mut impl Effects) {
        if bytes > 0 {
            self.exchange.take_back(bytes);
            // A request that was answered all the same has been a request.
            let requests = if self.exchange.is_answered() { 0 } else { self.exchange.batch_requests() };
            effects.take_back(bytes as u64, u64::from(requests));
        }
    }
}
