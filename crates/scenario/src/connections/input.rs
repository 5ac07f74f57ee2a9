//! What happens on connections: connected, received, sent, ended.

use leadline_http::client::{DialPlan, DialStep, Failure, Input, Sent, Unsealed};
use leadline_http::{Answer, Closed, Malformed};

use super::connection::Stage;
use super::effects::Effects;
use super::Connections;
use crate::programs::flow::ExchangeEnd;

impl Connections {
    /// Handles an event of a connection.
    #[inline]
    pub fn handle(&mut self, slot: u32, at_ns: u64, input: Input, effects: &mut impl Effects) {
        let Some(stage) = self.slots[slot as usize].as_ref().map(|connection| connection.stage) else { return };
        match (input, stage) {
            (Input::Received, Stage::Handshaking) => self.handshake(slot, at_ns, effects),
            (Input::Received, _) => self.receive(slot, at_ns, effects),
            (Input::Sent(bytes), _) => self.sent(slot, bytes, effects),
            (Input::Connected, Stage::Connecting) => self.connected(slot, at_ns, effects),
            (Input::Connected | Input::Resolved { .. }, _) => {}
            (Input::NotSent { missing, failure }, _) => {
                self.take_back(slot, missing, effects);
                self.not_sent(slot, failure, at_ns, effects);
            }
            (Input::Ended(outcome), _) => self.ended(slot, outcome, at_ns, effects),
        }
    }

    fn take_back(&mut self, slot: u32, missing: usize, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let Sent { bytes, requests } = connection.session.take_back(missing);
        connection.sent_bytes = connection.sent_bytes.saturating_sub(bytes);
        effects.take_back(bytes, requests);
    }

    /// Handles that the socket took bytes.
    #[inline]
    fn sent(&mut self, slot: u32, bytes: usize, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let sent = connection.session.on_taken(bytes);
        self.count_sent(slot, sent, effects);
    }

    /// Counts what was sent of a request.
    #[inline]
    pub(super) fn count_sent(&mut self, slot: u32, sent: Sent, effects: &mut impl Effects) {
        if let Some(connection) = &mut self.slots[slot as usize] {
            connection.sent_bytes += sent.bytes;
        }
        effects.count_sent(sent.bytes, sent.requests);
    }

    /// Handles a failed send: what was received before may still hold a response.
    pub(super) fn not_sent(&mut self, slot: u32, failure: Failure, now_ns: u64, effects: &mut impl Effects) {
        if failure.name == "reset" {
            if let Some(connection) = &mut self.slots[slot as usize] {
                connection.broken = Some(failure);
            }
        } else {
            self.fail(slot, failure, now_ns, effects);
        }
    }

    fn connected(&mut self, slot: u32, at_ns: u64, effects: &mut impl Effects) {
        if let Err(failure) = effects.take_up(slot) {
            return self.fail(slot, failure, at_ns, effects);
        }
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        self.tally.counts.connections_opened += 1;
        let took_ns = at_ns.saturating_sub(connection.since_ns);
        self.tally.phases.connect.record(took_ns);
        connection.opening.get_or_insert_default().connect_ns = took_ns;
        let tls = match connection.origin.is_https.then(|| effects.tls(&connection.origin.host)).transpose() {
            Ok(tls) => tls,
            Err(failure) => return self.fail(slot, failure, at_ns, effects),
        };
        let plan = DialPlan { proxy_request: None, tls: tls.as_ref() };
        let dialled = connection.session.channel.dial(plan, &mut self.buffers, effects);
        self.on_dialled(slot, dialled, at_ns, effects);
    }

    /// Handles bytes of a handshake.
    fn handshake(&mut self, slot: u32, at_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let dialled = connection.session.channel.continue_dial(&mut self.buffers, effects);
        self.on_dialled(slot, dialled, at_ns, effects);
    }

    /// Handles a step towards the request.
    fn on_dialled(&mut self, slot: u32, dialled: Result<DialStep, Failure>, at_ns: u64, effects: &mut impl Effects) {
        match dialled {
            Err(failure) => self.fail(slot, failure, at_ns, effects),
            Ok(DialStep::Pending) => {}
            Ok(DialStep::Began) => self.enter(slot, Stage::Handshaking, at_ns),
            Ok(DialStep::Ready(handshake)) => {
                if let Some(handshake) = handshake {
                    self.count_handshake(slot, handshake.resumed, at_ns);
                }
                self.established(slot, at_ns, effects);
            }
        }
    }

    fn count_handshake(&mut self, slot: u32, resumed: bool, at_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let took_ns = at_ns.saturating_sub(connection.since_ns);
        connection.opening.get_or_insert_default().tls_ns = Some(took_ns);
        let (counts, phases) = (&mut self.tally.counts, &mut self.tally.phases);
        let (count, phase) = if resumed {
            (&mut counts.tls_resumed, &mut phases.tls_resumed)
        } else {
            (&mut counts.tls_full, &mut phases.tls_full)
        };
        *count.get_or_insert(0) += 1;
        phase.record(took_ns);
    }

    /// Begins the request.
    fn established(&mut self, slot: u32, now_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        connection.session.exchange.opened();
        if let Some(send) = connection.send.take() {
            self.begin(slot, send, now_ns, effects);
        } else {
            self.enter_idle(slot, now_ns);
        }
    }

    /// Receives bytes of a response, in clear or through TLS.
    #[inline]
    fn receive(&mut self, slot: u32, at_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        if !connection.session.channel.is_sealed() {
            return self.feed(slot, None, at_ns, effects);
        }
        let Unsealed { is_over, .. } = connection.session.channel.unseal(&mut self.buffers, effects);
        let plain = std::mem::take(&mut self.buffers.plain);
        self.feed(slot, Some(&plain), at_ns, effects);
        self.buffers.plain = plain;
        // A connection that the response has closed is over: its place may belong to another one.
        if !self.slots[slot as usize].as_ref().is_some_and(|connection| connection.session.channel.is_sealed()) {
            return;
        }
        match is_over {
            Err(failure) => self.fail(slot, failure, at_ns, effects),
            Ok(true) => self.ended(slot, Ok(()), at_ns, effects),
            Ok(false) => {}
        }
    }

    /// Reads bytes of a response: those of `plain`, or those that were received.
    #[inline]
    fn feed(&mut self, slot: u32, plain: Option<&[u8]>, at_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let bytes = plain.unwrap_or_else(|| effects.received());
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        let fed = if connection.kept.keeps_head || connection.kept.keeps_body {
            connection.session.exchange.receive(bytes, at_ns, &mut connection.kept)
        } else {
            connection.session.exchange.receive(bytes, at_ns, &mut ())
        };
        connection.received_bytes += length as u64;
        effects.count_received(length as u64, 0);
        match fed {
            Ok((used, Some(_))) if used < length => {
                self.fail_malformed(slot, Malformed::UnsolicitedBytes, at_ns, effects);
            }
            Ok((_, Some(answer))) => self.on_answer(slot, &answer, at_ns, effects),
            Ok((_, None)) => {}
            Err(cause) => self.fail_malformed(slot, cause, at_ns, effects),
        }
    }

    fn fail_malformed(&mut self, slot: u32, cause: Malformed, at_ns: u64, effects: &mut impl Effects) {
        let failure = Failure { name: cause.name(), detail: cause.explanation().to_owned() };
        self.fail(slot, failure, at_ns, effects);
    }

    /// Passes a response to the users, after the connection is free for what follows.
    fn on_answer(&mut self, slot: u32, answer: &Answer, at_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let Some(send) = connection.send.take() else { return };
        if !answer.was_sent {
            effects.count_sent(0, 1);
        }
        effects.count_received(0, 1);
        let status = answer.response.status;
        self.tally.status[usize::from(status / 100) % 10] += 1;
        self.tally.counts.body_bytes += answer.response.body_bytes;
        self.tally.last_ns = Some(at_ns);
        connection.served += 1;
        let mut kept = std::mem::take(&mut connection.kept);
        let (sent_bytes, received_bytes) = (connection.sent_bytes, connection.received_bytes);
        let opening = connection.opening.take();
        if answer.keeps_connection() && !send.outgoing.closes {
            self.enter_idle(slot, at_ns);
        } else {
            self.close(slot, effects);
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
        effects.answered(&send, &end, at_ns);
        kept.end();
        if let Some(connection) = &mut self.slots[slot as usize] {
            connection.kept = kept;
        }
        if !self.users[send.user as usize].pending.is_empty() {
            self.serve_pending(send.user, at_ns, effects);
        }
        if !self.waiting.is_empty() {
            self.freed = Some(slot);
        }
    }

    /// Handles the end of the peer's stream.
    fn ended(&mut self, slot: u32, outcome: Result<(), Failure>, at_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let failure = match (connection.stage, outcome) {
            (Stage::Idle, _) => {
                self.close(slot, effects);
                return self.serve(None, at_ns, effects);
            }
            (_, Err(failure)) => failure,
            (Stage::Busy, Ok(())) => match connection.session.end(at_ns) {
                (Closed::Answered(mut answer), _) => {
                    // The response ends with the connection.
                    answer.response.keep_alive = false;
                    return self.on_answer(slot, &answer, at_ns, effects);
                }
                (Closed::Early(_), _) if self.may_repeat(slot) => return self.repeat(slot, at_ns, effects),
                (_, Some(cut)) => cut,
                _ => closed_early("the server closed the connection before it responded"),
            },
            (Stage::Handshaking, Ok(())) => connection.session.channel.fail_dial(Ok(())),
            (Stage::Resolving | Stage::Connecting, Ok(())) => closed_early("closed while opening"),
        };
        self.fail(slot, failure, at_ns, effects);
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

    fn repeat(&mut self, slot: u32, at_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let send = connection.send.take();
        self.close(slot, effects);
        if let Some(send) = send {
            // It stays one request, with one fate.
            *self.tally.counts.repeated.get_or_insert(0) += 1;
            self.send(send, at_ns, effects);
        }
    }
}

fn closed_early(detail: &str) -> Failure {
    Failure { name: "closed_early", detail: detail.to_owned() }
}
