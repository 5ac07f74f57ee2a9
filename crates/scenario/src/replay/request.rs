//! A recorded request that is ready to be sent, and the answer that the source has for it.

use std::borrow::Cow;
use std::sync::Arc;

use leadline_http::Url;

use crate::compressed::decompressed;
use crate::programs::flow::ExchangeEnd;

/// A recorded request, as it will be sent by one user.
#[derive(Clone, Debug)]
pub struct ReplayRequest {
    /// When it is due, ns after the start.
    pub due_ns: u64,
    /// When it began in the source, ns by the source's clock.
    pub source_ns: i64,
    /// When its answer was complete in the source, ns by the same clock, if that is known.
    pub source_end_ns: Option<i64>,
    /// Its session; those of copies and of other roles differ.
    pub session: u64,
    /// The number of its record and copy; the requests of all its roles have the same.
    pub record: u64,
    /// What it is sent for.
    pub role: Role,
    /// How many roles the record has.
    pub roles: u8,
    /// What it counts for.
    pub label: u32,
    /// Where it goes.
    pub url: Url,
    /// Its method.
    pub method: Box<[u8]>,
    /// Its header fields as lines, without Cookie and Content-Length.
    pub fields: Box<[u8]>,
    /// The value of its Cookie field as recorded; empty if it had none.
    pub cookie: Box<[u8]>,
    /// Its body.
    pub body: Box<[u8]>,
    /// The answer that the source has, if it is to be compared or has values that later requests repeat.
    pub before: Option<Arc<Answer>>,
}

/// What a request is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// For its own answer.
    First,
    /// Once more to the same target: what differs between both differs by itself.
    Again,
    /// To a second target.
    Second,
}

/// What recorded answers are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerUse {
    /// They are compared with those that come.
    pub compares: bool,
    /// Values that they gave are replaced by those of the answers that come.
    pub correlates: bool,
}

/// An answer, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status code.
    pub status: Option<u16>,
    /// Its header fields as lines `Name: value` that end in a line feed; empty if unknown.
    pub head: String,
    /// Its body without its content coding; `None` if unknown.
    pub body: Option<Vec<u8>>,
}

/// A record whose roles are compared with each other.
pub(super) struct OpenRecord {
    pub left: u8,
    pub bytes: usize,
    pub label: u32,
    pub before: Option<Arc<Answer>>,
    pub answers: [Option<Answer>; 3],
}

impl Answer {
    /// Returns an answer as a source has it: `head` as lines, and a body with its content coding.
    #[must_use]
    pub fn recorded(status: Option<u16>, head: String, body: Option<Vec<u8>>) -> Self {
        let body = body.and_then(|body| decompressed(&head, &body).map(Cow::into_owned).ok());
        Self { status, head, body }
    }

    /// Returns an answer as it was received; a body that cannot be read, or was not kept as a whole, is unknown.
    #[must_use]
    pub fn received(end: &ExchangeEnd<'_>) -> Self {
        let body = (end.body.len() as u64 >= end.body_bytes).then(|| end.body.to_vec());
        Self::recorded(Some(end.status), end.head.to_owned(), body)
    }

    /// The memory that it occupies, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.head.len() + self.body.as_ref().map_or(0, Vec::len)
    }

    /// The values of a header field.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

impl ReplayRequest {
    /// Whether the source has its answer's body.
    #[must_use]
    pub fn has_body_before(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.body.is_some())
    }

    /// The memory that it occupies, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = self.fields.len() + self.cookie.len() + self.body.len() + self.url.target.len();
        size_of::<Self>() + texts + self.before.as_ref().map_or(0, |before| before.memory_bytes())
    }
}
