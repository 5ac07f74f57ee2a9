//! What the sockets report: connected, received, sent, ended.

use std::io;

use leadline_http::{Answer, Closed, Malformed};
use leadline_script::scenario::ExchangeEnd;

use super::Connections;
use crate::load::http::effects::failure;
use crate::load::http::io_backend::{Completion, IoBackend};
use crate::load::scenario::connection::Stage;

impl<B: IoBackend> Connections<B> {
    /// Handles an event of a socket.
    pub fn handle(&mut self, slot: usize, at_ns: u64, completion: Completion) {
        let place = slot as u32;
        let Some(stage) = self.slots[slot].as_ref().map(|connection| connection.stage) else { return };
        match (completion, stage) {
            (Completion::Writable, Stage::Connecting) => self.connected(place, at_ns),
            (Completion::Received, Stage::Securing) => self.on_handshake(place, at_ns),
            (Completion::Received, _) => self.receive(place, at_ns),
            (Completion::Sent(bytes), _) => self.sent(place, bytes),
            (Completion::NotSent(missing, error), _) => {
                if missing > 0 {
                    self.take_back(place, missing);
                }
                self.not_sent(place, failure(error), at_ns);
            }
            (Completion::Ended(outcome), _) => self.ended(place, outcome, at_ns),
            (Completion::Writable | Completion::Accepted(_), _) => {}
        }
    }

    fn take_back(&mut self, slot: u32, missing: usize) {
        if let Some(connection) = &mut self.slots[slot as usize] {
            if connection.stage == Stage::Busy && connection.tls.is_none() {
                let was_sent = !connection.exchange.is_sending();
                connection.exchange.take_back(missing);
                connection.sent_bytes = connection.sent_bytes.saturating_sub(missing as u64);
                self.counters.not_sent(missing as u64, u64::from(was_sent));
            }
        }
    }

    fn connected(&mut self, slot: u32, at_ns: u64) {
        if let Err(error) = self.backend.connected(slot as usize, false) {
            let failure = failure(error);
            return self.fail(slot, failure.name, failure.detail, at_ns);
        }
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        self.counts.connections_opened += 1;
        let took_ns = at_ns.saturating_sub(connection.since_ns);
        self.phases.connect.record(took_ns);
        connection.opening.get_or_insert_default().connect_ns = took_ns;
        if connection.origin.is_https {
            self.secure(slot, at_ns);
        } else {
            self.established(slot, at_ns);
        }
    }

    fn on_handshake(&mut self, slot: u32, at_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let Some(tls) = &mut connection.tls else { return };
        let taken = tls.receive(self.backend.received());
        self.out.clear();
        tls.take_output(&mut self.out);
        let handshake = (!tls.is_handshaking()).then(|| tls.handshake()).flatten();
        let took_ns = at_ns.saturating_sub(connection.since_ns);
        self.send_records(slot, at_ns);
        match (taken, handshake) {
            (Err(failure), _) => self.fail(slot, failure.name, failure.detail, at_ns),
            (Ok(()), Some(handshake)) => {
                if let Some(connection) = &mut self.slots[slot as usize] {
                    connection.opening.get_or_insert_default().tls_ns = Some(took_ns);
                }
                if handshake.resumed {
                    *self.counts.tls_resumed.get_or_insert(0) += 1;
                    self.phases.tls_resumed.record(took_ns);
                } else {
                    *self.counts.tls_full.get_or_insert(0) += 1;
                    self.phases.tls_full.record(took_ns);
                }
                self.established(slot, at_ns);
            }
            (Ok(()), None) => {}
        }
    }

    fn receive(&mut self, slot: u32, at_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let Some(tls) = &mut connection.tls else {
            self.feed(slot, None, at_ns);
            return;
        };
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let taken = tls.receive_with(self.backend.received(), |bytes| plain.extend_from_slice(bytes));
        self.out.clear();
        if tls.has_output() {
            tls.take_output(&mut self.out);
        }
        let is_over = tls.peer_closed();
        self.send_records(slot, at_ns);
        let goes_on = self.feed(slot, Some(&plain), at_ns);
        self.plain = plain;
        if goes_on {
            match taken {
                Err(failure) => self.fail(slot, failure.name, failure.detail, at_ns),
                Ok(()) if is_over => self.ended(slot, Ok(()), at_ns),
                Ok(()) => {}
            }
        }
    }

    /// Reads bytes of a response; returns whether the connection is still there.
    fn feed(&mut self, slot: u32, plain: Option<&[u8]>, at_ns: u64) -> bool {
        let Some(connection) = &mut self.slots[slot as usize] else { return false };
        let bytes = plain.unwrap_or_else(|| self.backend.received());
        if bytes.is_empty() {
            return true;
        }
        let length = bytes.len();
        let fed = if connection.kept.keeps_head || connection.kept.keeps_body {
            connection.exchange.receive(bytes, at_ns, &mut connection.kept)
        } else {
            connection.exchange.receive(bytes, at_ns, &mut ())
        };
        connection.received_bytes += length as u64;
        self.counters.received(length as u64, 0);
        match fed {
            Ok((used, Some(_))) if used < length => self.fail_malformed(slot, Malformed::UnsolicitedBytes, at_ns),
            Ok((_, Some(answer))) => self.on_answer(slot, &answer, at_ns),
            Ok((_, None)) => return true,
            Err(cause) => self.fail_malformed(slot, cause, at_ns),
        }
        self.slots[slot as usize].is_some()
    }

    fn fail_malformed(&mut self, slot: u32, cause: Malformed, at_ns: u64) {
        self.fail(slot, cause.name(), cause.explanation().to_owned(), at_ns);
    }

    /// Passes a response to the machine of the users, after the connection is free for what follows.
    fn on_answer(&mut self, slot: u32, answer: &Answer, at_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let Some(send) = connection.send.take() else { return };
        if !answer.was_sent {
            self.counters.sent(0, 1);
        }
        self.counters.received(0, 1);
        let status = answer.response.status;
        self.status[usize::from(status / 100) % 10] += 1;
        self.counts.body_bytes += answer.response.body_bytes;
        self.last_ns = Some(at_ns);
        connection.served += 1;
        let mut kept = std::mem::take(&mut connection.kept);
        let (sent_bytes, received_bytes) = (connection.sent_bytes, connection.received_bytes);
        let opening = connection.opening.take();
        if answer.keeps_connection() && !send.outgoing.closes {
            self.enter_idle(slot, at_ns);
        } else {
            self.close(slot);
        }
        let end = ExchangeEnd {
            status,
            reason: &kept.reason,
            head: &kept.head,
            body: &kept.body,
            body_bytes: answer.response.body_bytes,
            sent_ns: answer.timing.sent_ns,
            first_ns: answer.timing.first_ns,
            done_ns: answer.timing.done_ns,
            sent_bytes,
            received_bytes,
            opening,
        };
        self.machine.answered(send.user, send.exchange, &end, at_ns);
        kept.end();
        if let Some(connection) = &mut self.slots[slot as usize] {
            if connection.user == send.user {
                connection.kept = kept;
            }
        }
        if !self.users[send.user as usize].pending.is_empty() {
            self.serve_pending(send.user, at_ns);
        }
        if !self.waiting.is_empty() {
            self.make_room(slot, at_ns);
        }
    }

    /// Closes an idle connection for a request that waits for a vacant one.
    fn make_room(&mut self, slot: u32, at_ns: u64) {
        self.obey(at_ns);
        if self.vacant.is_empty() && self.slots[slot as usize].as_ref().is_some_and(|one| one.stage == Stage::Idle) {
            self.close(slot);
        }
        self.serve_waiting(at_ns);
    }

    /// Handles the end of the peer's stream.
    fn ended(&mut self, slot: u32, outcome: io::Result<()>, at_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        match (connection.stage, outcome) {
            (Stage::Idle, _) => {
                self.close(slot);
                self.serve_waiting(at_ns);
            }
            (Stage::Busy, Ok(())) => {
                let cut = connection.tls.as_mut().and_then(|tls| tls.end().err());
                match connection.exchange.ended(at_ns) {
                    Closed::Answered(answer) if cut.is_none() => self.on_last_answer(slot, &answer, at_ns),
                    Closed::Early(_) if self.may_repeat(slot) => self.repeat(slot, at_ns),
                    _ => {
                        let detail = "the server closed the connection before it responded".to_owned();
                        let (cause, detail) = cut.map_or(("closed_early", detail), |cut| (cut.name, cut.detail));
                        self.fail(slot, cause, detail, at_ns);
                    }
                }
            }
            (_, Ok(())) => {
                let cut = connection.tls.as_mut().and_then(|tls| tls.end().err());
                let (cause, detail) =
                    cut.map_or(("closed_early", "closed while opening".to_owned()), |cut| (cut.name, cut.detail));
                self.fail(slot, cause, detail, at_ns);
            }
            (_, Err(error)) => {
                let failure = failure(error);
                self.fail(slot, failure.name, failure.detail, at_ns);
            }
        }
    }

    /// Handles a response that ends with the connection.
    fn on_last_answer(&mut self, slot: u32, answer: &Answer, at_ns: u64) {
        let mut answer = *answer;
        answer.response.keep_alive = false;
        self.on_answer(slot, &answer, at_ns);
    }

    /// Whether the request may be sent again: the server closed a kept connection in order before it responded, as it
    /// does when both sides act at once (RFC 9112, 9.3.1).
    fn may_repeat(&self, slot: u32) -> bool {
        self.slots[slot as usize].as_ref().is_some_and(|connection| {
            connection.served > 0
                && connection.received_bytes == 0
                && connection.send.as_ref().is_some_and(|send| send.outgoing.is_idempotent)
        })
    }

    fn repeat(&mut self, slot: u32, at_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let send = connection.send.take();
        self.close(slot);
        if let Some(send) = send {
            // It stays one request, with one fate.
            *self.counts.repeated.get_or_insert(0) += 1;
            self.send(send, at_ns);
        }
    }
}
