//! The server's direction of a connection: answers, and the requests that wait for them.

use std::collections::VecDeque;

use leadline_http::{End, Malformed, Response, ResponseParser};

use super::counts::Out;
use super::parts::{Begun, Means, Part, Pending, Stage};
use crate::message::AnswerDraft;
use crate::recorded::{Cause, Recorded, RecordedAnswer};

/// What a request that waits costs beside its bytes.
const PENDING_BYTES: usize = 320;

/// Answers and who waits for them.
#[derive(Debug)]
pub(super) struct Answers {
    parser: ResponseParser,
    draft: AnswerDraft,
    stage: Stage,
    first_ns: u64,
    /// The request of the answer that is read; `None` if that is not known.
    current: Option<Pending>,
    waiting: VecDeque<Pending>,
    waiting_bytes: usize,
    limit: usize,
    /// Whether answers are missing, so that the next one does not belong to the request that waits longest.
    is_lost: bool,
    is_over: bool,
    early: Early,
}

/// An answer to a request that has not arrived in full.
#[derive(Debug)]
enum Early {
    None,
    /// It is being read.
    Amid,
    /// It was read.
    Done(RecordedAnswer),
}

impl Answers {
    /// Creates them for a connection; `body_bytes` of a body are kept, and requests of `limit` bytes in all may wait.
    pub(super) fn new(has_syn: bool, body_bytes: usize, limit: usize) -> Self {
        Self {
            parser: ResponseParser::new(false),
            draft: AnswerDraft::new(body_bytes),
            stage: if has_syn { Stage::Between } else { Stage::Lost },
            first_ns: 0,
            current: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            limit,
            is_lost: !has_syn,
            is_over: false,
            early: Early::None,
        }
    }

    /// Memory that they hold, bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.draft.held_bytes() + self.waiting_bytes + self.current.as_ref().map_or(0, bytes_of)
    }

    /// Notes that what began the connection is missing.
    pub(super) fn lose_beginning(&mut self) {
        (self.stage, self.is_lost) = (Stage::Lost, true);
    }

    /// Takes a request that waits for its answer.
    pub(super) fn expect(&mut self, mut pending: Pending, out: &mut Out) {
        match std::mem::replace(&mut self.early, Early::None) {
            Early::None => {}
            Early::Amid => return self.current = Some(pending),
            Early::Done(answer) => return give(&mut pending, answer, out),
        }
        if self.is_over {
            return give(&mut pending, RecordedAnswer::default(), out);
        }
        self.waiting_bytes += bytes_of(&pending);
        self.waiting.push_back(pending);
        while self.waiting_bytes > self.limit {
            self.give_current(out);
            let Some(mut first) = self.take_first() else { return };
            give(&mut first, RecordedAnswer::default(), out);
            self.is_lost = true;
        }
    }

    /// Notes that the request that has begun will not be complete.
    pub(super) fn forget_begun(&mut self) {
        self.early = Early::None;
    }

    /// Gives requests without waiting any longer for the answers of those that were complete before `until_ns`.
    pub(super) fn give_up_waiting(&mut self, until_ns: u64, out: &mut Out) {
        if self.current.as_ref().is_some_and(|current| !is_late(current, until_ns)) {
            return;
        }
        self.give_current(out);
        for pending in &mut self.waiting {
            if !is_late(pending, until_ns) {
                break;
            }
            self.waiting_bytes -= bytes_of(pending);
            give(pending, RecordedAnswer::default(), out);
            self.waiting_bytes += bytes_of(pending);
        }
    }

    /// Gives the request of the answer that is read, with what is known of that.
    fn give_current(&mut self, out: &mut Out) {
        let Some(current) = &mut self.current else { return };
        let status = self.draft.final_status();
        let latency_ns = status.and_then(|_| self.first_ns.checked_sub(current.done_ns));
        give(current, RecordedAnswer { status, latency_ns, ..RecordedAnswer::default() }, out);
    }

    /// Reads bytes, and returns how many it took: not those behind an answer that means something for the connection.
    /// `begun` is a request that has not arrived in full.
    pub(super) fn read(&mut self, part: Part<'_>, begun: Option<Begun>, out: &mut Out) -> (usize, Means) {
        if self.stage == Stage::Lost {
            if !part.bytes.starts_with(b"HTTP/1.") {
                return (part.bytes.len(), Means::Nothing);
            }
            self.stage = Stage::Between;
        }
        let mut at = 0;
        while at < part.bytes.len() {
            if self.stage == Stage::Between {
                self.begin(part.offset + at as i64, begun, out);
                self.first_ns = part.at_ns;
            }
            let (used, means) = self.feed(Part { bytes: &part.bytes[at..], ..part }, out);
            at = used.map_or(part.bytes.len(), |used| at + used);
            if means != Means::Nothing {
                return (at, means);
            }
        }
        (at, Means::Nothing)
    }

    /// Takes that bytes are lost, how many if that is known.
    pub(super) fn lose(&mut self, bytes: Option<u64>, out: &mut Out) -> Means {
        if self.stage == Stage::Amid && bytes.is_some_and(|bytes| self.parser.skip(bytes)) {
            self.draft.lose_body();
            return self.feed(Part { bytes: &[], at_ns: self.first_ns, offset: 0, acknowledged: None }, out).1;
        }
        self.lose_place(out);
        Means::Nothing
    }

    /// Takes the end of the server's direction.
    pub(super) fn end(&mut self, out: &mut Out) {
        if self.stage == Stage::Amid {
            match self.parser.finish() {
                End::Response(response) => {
                    self.complete(response, out);
                }
                End::Clean | End::Early => self.lose_place(out),
            }
        }
        self.close(out);
    }

    /// Gives what waits: no answer comes any more.
    pub(super) fn close(&mut self, out: &mut Out) {
        self.lose_place(out);
        while let Some(mut pending) = self.take_first() {
            give(&mut pending, RecordedAnswer::default(), out);
        }
        self.is_over = true;
    }

    /// Passes bytes to the parser; returns how many it took, `None` if reading cannot go on from there.
    fn feed(&mut self, part: Part<'_>, out: &mut Out) -> (Option<usize>, Means) {
        let had_status = self.draft.final_status().is_some();
        let fed = match self.parser.feed_into(part.bytes, &mut self.draft) {
            Ok(fed) => fed,
            Err(Malformed::UnexpectedUpgrade) => return (None, self.upgrade()),
            Err(_) => {
                self.lose_place(out);
                return (None, Means::Kept);
            }
        };
        let status = self.draft.final_status();
        if self.draft.has_interim() && !had_status && status.is_some() {
            self.first_ns = part.at_ns;
        }
        let is_connect = self.current.as_ref().is_some_and(|current| current.is_connect);
        if is_connect && status.is_some_and(|status| status < 300) {
            return (None, self.upgrade());
        }
        let means = fed.response.map_or(Means::Nothing, |response| self.complete(response, out));
        (Some(fed.consumed), means)
    }

    /// Begins an answer: finds the request that it belongs to.
    fn begin(&mut self, offset: i64, begun: Option<Begun>, out: &mut Out) {
        self.stage = Stage::Amid;
        self.parser.expect_no_body(false);
        let is_free = matches!(self.early, Early::None);
        if self.is_lost
            || self.waiting.front().map_or(begun.is_some_and(|begun| begun.is_after_gap), |first| first.is_after_gap)
        {
            let waiting = self.waiting.iter().position(|pending| pending.answer_at == Some(offset));
            let is_early = is_free && begun.is_some_and(|begun| begun.answer_at == Some(offset));
            let Some(given_up) = waiting.or(is_early.then_some(self.waiting.len())) else { return };
            for _ in 0..given_up {
                if let Some(mut pending) = self.take_first() {
                    give(&mut pending, RecordedAnswer::default(), out);
                }
            }
            self.is_lost = false;
        }
        self.current = self.take_first();
        if let Some(current) = &self.current {
            self.parser.expect_no_body(current.is_head);
        } else if begun.is_some() && is_free {
            self.early = Early::Amid;
        } else {
            // Nothing is known that it answers, so that the next request may not be the one of the next answer.
            self.is_lost = true;
        }
    }

    fn complete(&mut self, response: Response, out: &mut Out) -> Means {
        self.stage = Stage::Between;
        let answer = self.draft.take(Some(response.body_bytes));
        let Some(mut pending) = self.current.take() else {
            self.end_early(answer);
            return Means::Nothing;
        };
        let latency_ns = self.first_ns.checked_sub(pending.done_ns);
        give(&mut pending, RecordedAnswer { latency_ns, ..answer }, out);
        if pending.is_upgrade {
            return Means::Kept;
        }
        Means::Nothing
    }

    fn end_early(&mut self, answer: RecordedAnswer) {
        if matches!(self.early, Early::Amid) {
            self.early = Early::Done(answer);
        }
    }

    /// The request that asked for it is none that can be replayed.
    fn upgrade(&mut self) -> Means {
        self.current = None;
        Means::Upgraded
    }

    /// Gives up the answer that is read; which one comes next is not known.
    fn lose_place(&mut self, out: &mut Out) {
        let answer = self.draft.take(None);
        if let Some(mut pending) = self.current.take() {
            let latency_ns = answer.status.and_then(|_| self.first_ns.checked_sub(pending.done_ns));
            give(&mut pending, RecordedAnswer { latency_ns, ..answer }, out);
        } else {
            self.end_early(answer);
        }
        self.parser = ResponseParser::new(false);
        (self.stage, self.is_lost) = (Stage::Lost, true);
    }

    fn take_first(&mut self) -> Option<Pending> {
        let first = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes_of(&first);
        Some(first)
    }
}

/// Whether a request has waited long enough. One for another protocol is none if its answer says so.
fn is_late(pending: &Pending, until_ns: u64) -> bool {
    pending.done_ns < until_ns && !pending.is_upgrade
}

/// Gives a request, once. One for a tunnel that was refused has no target that could be asked for again.
fn give(pending: &mut Pending, answer: RecordedAnswer, out: &mut Out) {
    let Some(recorded) = pending.recorded.take() else { return };
    if pending.is_connect {
        return out.causes.add(Cause::NoRequest);
    }
    out.counts.without_answer += u64::from(answer.fields.is_none());
    out.ready.push_back(Recorded { answer, ..recorded });
}

fn bytes_of(pending: &Pending) -> usize {
    let kept = pending.recorded.as_ref().map_or(0, |recorded| {
        let parts = [&recorded.method, &recorded.target, &recorded.host, &recorded.fields];
        parts.iter().map(|part| part.capacity()).sum::<usize>() + recorded.body.as_ref().map_or(0, Vec::capacity)
    });
    kept + PENDING_BYTES
}
