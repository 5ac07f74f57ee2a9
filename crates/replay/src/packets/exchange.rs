//! HTTP over the two directions of a connection: requests as they come, each with its answer. Answers belong to requests by
//! their order; where bytes are lost, by the acknowledgement that a request had: its answer begins there. Which side is
//! the client is known once one has sent a request line.

use leadline_http::{Malformed, RequestEvent, RequestParser};

use super::answers::Answers;
use super::counts::Out;
use super::parts::{Begun, Means, Part, Pending, Stage};
use crate::message::RequestDraft;
use crate::recorded::{Cause, Recorded};

/// Methods at which reading may begin amid a connection.
const METHODS: [&[u8]; 13] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"TRACE ",
    b"PROPFIND ",
    b"REPORT ",
    b"MKCOL ",
    b"SEARCH ",
    b"PURGE ",
];

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not known yet.
    Unknown,
    /// HTTP, whose client is this direction.
    Http { client: usize },
    /// Something that is not read any further: its cause was counted.
    Ignored,
}

/// The exchanges of a connection.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) kind: Kind,
    session: u64,
    has_syn: bool,
    has_bytes: bool,
    /// Whether the beginning of a direction is lost.
    has_lost: [bool; 2],
    requests: u64,
    parser: RequestParser,
    draft: RequestDraft,
    stage: Stage,
    start_ns: u64,
    last_ns: u64,
    answer_at: Option<i64>,
    is_after_gap: bool,
    lacks_body: bool,
    /// Whether the client has asked for another protocol, so that what it sends next depends on the answer.
    is_paused: bool,
    pub(super) answers: Answers,
}

impl Exchange {
    pub(super) fn new(session: u64, has_syn: bool, message_bytes: usize, keeps_bodies: bool) -> Self {
        Self {
            kind: Kind::Unknown,
            session,
            has_syn,
            has_bytes: false,
            has_lost: [false; 2],
            requests: 0,
            parser: RequestParser::default(),
            draft: RequestDraft::new(message_bytes),
            stage: if has_syn { Stage::Between } else { Stage::Lost },
            start_ns: 0,
            last_ns: 0,
            answer_at: None,
            is_after_gap: !has_syn,
            lacks_body: false,
            is_paused: false,
            answers: Answers::new(has_syn, if keeps_bodies { message_bytes } else { 0 }, message_bytes),
        }
    }

    /// Whether bytes of this direction may be passed on now.
    pub(super) fn may_pass(&self, from: usize) -> bool {
        !(self.is_paused && self.kind == Kind::Http { client: from })
    }

    /// Whether what this direction sends depends on what the other one sent, so that it has to wait for it: answers come
    /// after their requests, wherever a capture has put them.
    pub(super) fn follows_peer(&self, from: usize) -> bool {
        !self.is_paused && self.kind != Kind::Http { client: from }
    }

    /// Whether nothing of a request has been seen, so that reading may begin at an earlier byte.
    pub(super) fn is_fresh(&self) -> bool {
        self.kind == Kind::Unknown
    }

    /// Memory that it holds, bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.draft.held_bytes() + self.parser.held_bytes() + self.answers.held_bytes()
    }

    /// Takes bytes of one direction, and returns how many it took: what is behind an answer that frees the other direction
    /// depends on what waits there.
    pub(super) fn data(&mut self, from: usize, part: Part<'_>, out: &mut Out) -> usize {
        self.has_bytes = true;
        if self.kind == Kind::Unknown {
            self.judge(from, part.bytes, out);
        }
        match self.kind {
            Kind::Http { client } if client == from => self.read_requests(part, out),
            Kind::Http { .. } => {
                let (answer_at, is_after_gap) = (self.answer_at, self.is_after_gap);
                let begun = (self.stage == Stage::Amid).then_some(Begun { answer_at, is_after_gap });
                let (used, means) = self.answers.read(part, begun, out);
                self.obey(means, out);
                return used;
            }
            Kind::Unknown | Kind::Ignored => {}
        }
        part.bytes.len()
    }

    /// Takes that bytes of one direction are lost, how many if that is known.
    pub(super) fn lose(&mut self, from: usize, bytes: Option<u64>, out: &mut Out) {
        match self.kind {
            Kind::Http { client } if client == from => self.lose_requests(bytes, out),
            Kind::Http { .. } => {
                let means = self.answers.lose(bytes, out);
                self.is_paused = false;
                self.obey(means, out);
            }
            Kind::Unknown => self.lose_beginning(from),
            Kind::Ignored => {}
        }
    }

    /// Takes the end of one direction.
    pub(super) fn end(&mut self, from: usize, out: &mut Out) {
        match self.kind {
            Kind::Http { client } if client == from => self.end_requests(Cause::Unfinished, out),
            Kind::Http { .. } => {
                self.answers.end(out);
                self.is_paused = false;
            }
            Kind::Unknown | Kind::Ignored => {}
        }
    }

    /// Takes the end of the whole. `cause` is that of a request whose end is not there.
    pub(super) fn close(&mut self, cause: Cause, out: &mut Out) {
        match self.kind {
            Kind::Http { .. } => {
                self.end_requests(cause, out);
                self.answers.close(out);
            }
            Kind::Unknown if self.has_bytes => out.counts.unrecognised += 1,
            Kind::Unknown | Kind::Ignored => {}
        }
        self.kind = Kind::Ignored;
    }

    /// Finds out what the connection carries, by the first bytes of a direction or, amid it, of a segment.
    fn judge(&mut self, from: usize, bytes: &[u8], out: &mut Out) {
        let Some(first) = bytes.first() else { return };
        let is_answer = bytes.starts_with(b"HTTP/1.");
        let is_request = if self.has_syn {
            first.is_ascii_alphabetic() || matches!(first, b'\r' | b'\n')
        } else {
            starts_like_request(bytes)
        };
        if is_tls(bytes) || (self.has_syn && *first == 0x16) {
            out.causes.add(Cause::Tls);
            self.kind = Kind::Ignored;
        } else if is_answer || is_request {
            let client = if is_answer { 1 - from } else { from };
            self.kind = Kind::Http { client };
            if self.has_lost[client] {
                out.causes.add(Cause::Gap);
            }
        } else if self.has_syn {
            out.causes.add(Cause::NoRequest);
            self.kind = Kind::Ignored;
        }
    }

    fn read_requests(&mut self, mut part: Part<'_>, out: &mut Out) {
        if self.stage == Stage::Lost {
            if !starts_like_request(part.bytes) {
                return;
            }
            self.stage = Stage::Between;
        }
        while !part.bytes.is_empty() && self.kind != Kind::Ignored {
            if self.stage == Stage::Between {
                let blank = part.bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
                part.bytes = &part.bytes[blank..];
                if part.bytes.is_empty() {
                    return;
                }
                (self.stage, self.start_ns, self.last_ns) = (Stage::Amid, part.at_ns, part.at_ns);
                self.answer_at = part.acknowledged;
            }
            let Some(used) = self.feed(part, out) else { return };
            part.bytes = &part.bytes[used..];
        }
    }

    /// Passes bytes to the parser; returns how many it took, `None` if reading cannot go on from there.
    fn feed(&mut self, part: Part<'_>, out: &mut Out) -> Option<usize> {
        let fed = match self.parser.feed_into(part.bytes, &mut self.draft) {
            Ok(fed) => fed,
            Err(Malformed::RequestLine | Malformed::Version | Malformed::HeadTooLong) if self.is_unproven() => {
                out.causes.add(Cause::NoRequest);
                self.kind = Kind::Ignored;
                return None;
            }
            Err(_) => {
                out.causes.add(Cause::Malformed);
                self.lose_place();
                return None;
            }
        };
        self.last_ns = self.last_ns.max(part.at_ns);
        if let Some(RequestEvent::Request(_)) = fed.event {
            self.complete(out);
        }
        Some(fed.consumed)
    }

    /// Whether the connection may be one of another protocol.
    fn is_unproven(&self) -> bool {
        self.requests == 0 && self.has_syn
    }

    fn complete(&mut self, out: &mut Out) {
        self.stage = Stage::Between;
        self.requests += 1;
        let (is_head, is_connect, is_upgrade) =
            (self.draft.is_head(), self.draft.is_connect(), self.draft.is_upgrade());
        let recorded = Recorded {
            start_ns: i64::try_from(self.start_ns).unwrap_or(i64::MAX),
            precision_ns: 1000,
            session: self.session,
            ..self.draft.take()
        };
        let lacks_body = std::mem::take(&mut self.lacks_body);
        if lacks_body {
            out.causes.add(Cause::Gap);
        } else if recorded.body.is_none() {
            out.causes.add(Cause::TooLarge);
        }
        self.is_paused = is_upgrade;
        let pending = Pending {
            recorded: Some(recorded).filter(|recorded| recorded.body.is_some() && !lacks_body),
            done_ns: self.last_ns,
            answer_at: self.answer_at,
            is_after_gap: std::mem::take(&mut self.is_after_gap),
            is_head,
            is_connect,
            is_upgrade,
        };
        self.answers.expect(pending, out);
    }

    fn lose_requests(&mut self, bytes: Option<u64>, out: &mut Out) {
        if self.stage == Stage::Amid && bytes.is_some_and(|bytes| self.parser.skip(bytes)) {
            self.lacks_body = true;
            let part = Part { bytes: &[], at_ns: self.last_ns, offset: 0, acknowledged: None };
            self.feed(part, out);
            return;
        }
        if self.stage != Stage::Lost {
            out.causes.add(Cause::Gap);
        }
        self.lose_place();
    }

    fn lose_place(&mut self) {
        (self.parser, self.stage) = (RequestParser::default(), Stage::Lost);
        (self.is_after_gap, self.lacks_body) = (true, false);
        self.draft.take();
        self.answers.forget_begun();
    }

    fn lose_beginning(&mut self, from: usize) {
        self.has_lost[from] = true;
        (self.has_syn, self.stage, self.is_after_gap) = (false, Stage::Lost, true);
        self.answers.lose_beginning();
    }

    fn end_requests(&mut self, cause: Cause, out: &mut Out) {
        if self.stage == Stage::Amid {
            out.causes.add(cause);
        }
        self.lose_place();
    }

    /// Follows what an answer means for the connection.
    fn obey(&mut self, means: Means, out: &mut Out) {
        match means {
            Means::Nothing => {}
            Means::Kept => self.is_paused = false,
            Means::Upgraded => {
                out.causes.add(Cause::Upgraded);
                self.answers.close(out);
                self.kind = Kind::Ignored;
            }
        }
    }
}

/// Whether bytes begin like a request whose method is known.
pub(super) fn starts_like_request(bytes: &[u8]) -> bool {
    let target = METHODS.iter().find_map(|method| bytes.strip_prefix(*method));
    target.is_some_and(|target| matches!(target.first(), Some(b'/' | b'h' | b'H' | b'*')))
}

/// Whether bytes begin like a record of TLS.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x14..=0x17, 3, 0..=4, ..])
}
