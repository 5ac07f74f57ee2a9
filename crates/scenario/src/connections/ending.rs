//! How connections and exchanges end without a response: failures, time limits, cancelled users, the end of the test.

use std::collections::VecDeque;

use leadline_http::client::{Failure, SocketUse};

use super::connection::Stage;
use super::effects::Effects;
use super::Connections;
use crate::figures::Age;
use crate::programs::flow::{ExchangeFailure, Send};

/// A request that is outstanding for longer than this when it is given up counts as a failure, ns.
const LONG_NS: u64 = 1_000_000_000;

impl Connections {
    /// Forgets the exchanges of a user.
    pub fn cancel(&mut self, user: u32, now_ns: u64, effects: &mut impl Effects) {
        let mut unsent = std::mem::take(&mut self.user(user).pending);
        let (own, waiting) = self.waiting.drain(..).partition::<VecDeque<_>, _>(|send| send.user == user);
        self.waiting = waiting;
        unsent.extend(own);
        unsent.iter().for_each(|send| self.give_up(send, None, false, now_ns, effects));
        for slot in self.users[user as usize].open.clone() {
            let stage = self.slots[slot as usize].as_ref().map(|connection| connection.stage);
            if stage.is_some_and(|stage| stage != Stage::Idle) {
                self.abandon(slot, now_ns, effects);
            }
        }
        self.serve(None, now_ns, effects);
    }

    /// Closes the connections of a user that carry no request.
    pub fn close_idle(&mut self, user: u32, now_ns: u64, effects: &mut impl Effects) {
        for slot in self.user(user).open.clone() {
            if self.slots[slot as usize].as_ref().is_some_and(|connection| connection.stage == Stage::Idle) {
                self.close(slot, effects);
            }
        }
        self.serve(None, now_ns, effects);
    }

    /// Fails the connections whose time limit has passed.
    pub fn check_deadlines(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let mut late = Vec::new();
        while let Some(slot) = self.deadlines.take(now_ns) {
            let connection = self.slots[slot as usize].as_ref().filter(|one| one.stage != Stage::Idle);
            match connection.map(|one| one.deadline_ns) {
                Some(deadline_ns) if deadline_ns <= now_ns => late.push(slot),
                Some(deadline_ns) => self.deadlines.set(slot, deadline_ns),
                None => {}
            }
        }
        late.sort_unstable();
        for slot in late {
            let Some(connection) = &self.slots[slot as usize] else { continue };
            let limit_ms = connection.deadline_ns.saturating_sub(connection.since_ns) / 1_000_000;
            let name = match connection.stage {
                Stage::Resolving => "dns_timeout",
                Stage::Connecting => "connect_timeout",
                Stage::Handshaking => connection.session.channel.timeout_name(),
                Stage::Idle | Stage::Busy => "response_timeout",
            };
            let detail = format!("{} did not answer within {limit_ms} ms", connection.origin.host);
            self.fail(slot, Failure { name, detail }, now_ns, effects);
        }
    }

    /// Closes all connections at the end.
    pub fn finish(&mut self, now_ns: u64, effects: &mut impl Effects) {
        for slot in 0..self.slots.len() as u32 {
            match self.slots[slot as usize].as_ref().map(|connection| connection.stage) {
                Some(Stage::Idle) => self.close(slot, effects),
                Some(_) => self.abandon(slot, now_ns, effects),
                None => {}
            }
        }
        let pending: Vec<_> = self.users.iter_mut().flat_map(|user| user.pending.drain(..)).collect();
        let waiting = std::mem::take(&mut self.waiting);
        pending.iter().chain(&waiting).for_each(|send| self.give_up(send, None, false, now_ns, effects));
    }

    /// Ends an exchange, or the opening of its connection, by a failure.
    pub(super) fn fail(&mut self, slot: u32, failure: Failure, now_ns: u64, effects: &mut impl Effects) {
        let Some(connection) = &mut self.slots[slot as usize] else { return };
        let (sent_ns, timed_out) = (connection.sent_ns, failure.name == "response_timeout");
        let (sent_bytes, received_bytes) = (connection.sent_bytes, connection.received_bytes);
        let Failure { name, detail } = connection.broken.take().unwrap_or(failure);
        // A connection that was not opened has no time of its opening.
        let was_opened = matches!(connection.stage, Stage::Idle | Stage::Busy);
        let opening = connection.opening.take().filter(|_| was_opened);
        let send = connection.send.take();
        self.close(slot, effects);
        self.tally.last_ns = Some(now_ns);
        let user = send.map(|send| {
            let cause = name.into();
            let failure = ExchangeFailure { cause, detail, timed_out, sent_ns, sent_bytes, received_bytes, opening };
            effects.failed(&send, failure, now_ns);
            send.user
        });
        self.serve(user, now_ns, effects);
    }

    /// Counts a request that is outstanding when it is given up, and tells its age.
    fn give_up(&mut self, send: &Send, sent_ns: Option<u64>, was_sent: bool, now_ns: u64, effects: &mut impl Effects) {
        let since = |at_ns: u64| now_ns.saturating_sub(at_ns);
        let counts = &mut self.tally.counts;
        if was_sent {
            counts.unanswered += 1;
            counts.unanswered_over_1s += u64::from(since(send.due_ns) > LONG_NS);
        } else {
            counts.unsent += 1;
        }
        effects.given_up(send, Age { latency_ns: Some(since(send.due_ns)), service_ns: sent_ns.map(since) });
    }

    /// Closes a connection whose exchange is forgotten. Its socket stays open for a while if a request was sent, so that
    /// the server can still read it.
    fn abandon(&mut self, slot: u32, now_ns: u64, effects: &mut impl Effects) {
        let Some(mut connection) = self.slots[slot as usize].take() else { return };
        let was_sent = connection.stage == Stage::Busy && !connection.session.exchange.is_sending();
        if let Some(send) = connection.send.take() {
            self.give_up(&send, connection.sent_ns, was_sent, now_ns, effects);
        }
        effects.close(slot, if was_sent { SocketUse::Keep } else { SocketUse::Close });
        self.users[connection.user as usize].open.retain(|other| *other != slot);
        self.vacant.push(slot);
    }
}
