//! GoReplay's files: records of requests and answers, each with a header line, raw HTTP and a separator. An answer is joined
//! to its request by their ID, whichever comes first; a bounded number of records waits for that. Requests are given in the
//! order of the file. Opens no file: several parts, one after the other, are one input.

mod join;
mod records;

use std::io::BufRead;

use leadline_http::{End, Malformed, RequestEvent, RequestParser, ResponseParser};

use self::join::{Join, Waiting};
use self::records::{Kind, Raw, Records};
use crate::message::{AnswerDraft, RequestDraft};
use crate::recorded::{Cause, Causes, Recorded, RecordedAnswer, Source, SourceError};
use crate::session::number_session;

/// Digits of an ID that says where a request came from, and of its part that is the same for all of a connection.
const ID_DIGITS: usize = 24;
const CONNECTION_DIGITS: usize = 16;

/// Requests of a `.gor` file.
pub struct GorSource<R> {
    records: Records<R>,
    join: Join,
    keeps_answer_bodies: bool,
    causes: Causes,
    counts: GorCounts,
}

/// What a file had beside its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GorCounts {
    /// Answers whose request was not found.
    pub strange_answers: u64,
    /// Answers of another target, to which the file was replayed before: they are not read.
    pub replayed_answers: u64,
    /// Requests that are given without an answer.
    pub without_answer: u64,
}

impl<R: BufRead> GorSource<R> {
    /// Reads a file, or its parts in order. The sizes of bodies of answers are known whether they are kept or not.
    pub fn new(input: R, keeps_answer_bodies: bool) -> Self {
        let (causes, counts) = (Causes::default(), GorCounts::default());
        Self { records: Records::new(input), join: Join::default(), keeps_answer_bodies, causes, counts }
    }

    /// What the file had beside its requests, so far.
    pub fn counts(&self) -> &GorCounts {
        &self.counts
    }

    /// Reads records until a request can be given.
    fn find_next(&mut self) -> Result<Option<Recorded>, SourceError> {
        loop {
            let is_over = self.records.is_over();
            while let Some(waiting) = self.join.take_ready(is_over) {
                if let Some(recorded) = self.give(waiting) {
                    return Ok(Some(recorded));
                }
            }
            if is_over {
                self.counts.strange_answers += self.join.forget_early();
                return Ok(None);
            }
            match self.records.read()? {
                Some(Ok(raw)) => self.take(raw),
                Some(Err(cause)) => self.causes.add(cause),
                None => {}
            }
        }
    }

    fn take(&mut self, raw: Raw) {
        match raw.kind {
            Kind::Request => match read_request(&raw) {
                Ok(mut waiting) => {
                    if let Some(early) = self.join.take_early(&raw.id) {
                        self.answer(&mut waiting, &early);
                    }
                    self.join.push(waiting);
                }
                Err(cause) => self.causes.add(cause),
            },
            // An answer may have no other end than that of its record.
            Kind::Answer if raw.is_cut => self.causes.add(Cause::CutOff),
            Kind::Answer => match self.join.take_unanswered(&raw.id) {
                Some((number, mut waiting)) => {
                    self.answer(&mut waiting, &raw);
                    self.join.put_back(number, waiting);
                }
                None => self.counts.strange_answers += self.join.push_early(raw),
            },
            Kind::Replayed => self.counts.replayed_answers += 1,
        }
    }

    fn answer(&self, waiting: &mut Waiting, raw: &Raw) {
        waiting.is_answered = true;
        match read_answer(raw, waiting.is_head, self.keeps_answer_bodies) {
            Ok(answer) => {
                let latency_ns = raw.at_ns.checked_sub(waiting.done_ns).and_then(|ns| u64::try_from(ns).ok());
                waiting.recorded.answer = RecordedAnswer { latency_ns, ..answer };
            }
            Err(Malformed::UnexpectedUpgrade) => waiting.is_upgraded = true,
            Err(_) => {}
        }
    }

    fn give(&mut self, waiting: Waiting) -> Option<Recorded> {
        if waiting.is_upgraded {
            self.causes.add(Cause::Upgraded);
            return None;
        }
        self.counts.without_answer += u64::from(waiting.recorded.answer.fields.is_none());
        Some(waiting.recorded)
    }
}

impl<R: BufRead + Send> Source for GorSource<R> {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        self.find_next()
    }

    fn causes(&self) -> &Causes {
        &self.causes
    }
}

/// Reads the request of a record.
fn read_request(raw: &Raw) -> Result<Waiting, Cause> {
    let (mut parser, mut draft, mut rest) = (RequestParser::default(), RequestDraft::new(usize::MAX), &raw.payload[..]);
    loop {
        let fed = parser.feed_into(rest, &mut draft).map_err(|_| Cause::Malformed)?;
        rest = &rest[fed.consumed..];
        match fed.event {
            Some(RequestEvent::Request(_)) => break,
            Some(RequestEvent::ContinueExpected) => {}
            None => return Err(if raw.is_cut { Cause::CutOff } else { Cause::Unfinished }),
        }
    }
    if draft.is_connect() {
        return Err(Cause::NoRequest);
    }
    let is_head = draft.is_head();
    let (start_ns, session) = (raw.at_ns, session_of(&raw.id));
    let recorded = Recorded { start_ns, precision_ns: 1, session, ..draft.take() };
    let done_ns = raw.at_ns.saturating_add(raw.length_ns);
    Ok(Waiting { id: raw.id.clone(), recorded, done_ns, is_head, is_answered: false, is_upgraded: false })
}

/// Reads the answer of a record; one without other framing ends with the record.
fn read_answer(raw: &Raw, is_head: bool, keeps_body: bool) -> Result<RecordedAnswer, Malformed> {
    let mut parser = ResponseParser::new(is_head);
    let mut draft = AnswerDraft::new(if keeps_body { usize::MAX } else { 0 });
    let response = match parser.feed_into(&raw.payload, &mut draft)?.response {
        Some(response) => Some(response),
        None => match parser.finish() {
            End::Response(response) => Some(response),
            End::Clean | End::Early => None,
        },
    };
    Ok(draft.take(response.map(|response| response.body_bytes)))
}

/// Older IDs are random: each of their requests is a session by itself.
fn session_of(id: &[u8]) -> u64 {
    let has_connection = id.len() == ID_DIGITS && id.iter().all(u8::is_ascii_hexdigit);
    number_session(&[if has_connection { &id[..CONNECTION_DIGITS] } else { id }])
}
