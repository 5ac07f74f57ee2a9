//! Messages while their bytes arrive: what the parsers of HTTP pass on, kept up to a limit, in the form of a recorded
//! request or answer.

use leadline_http::Sink;

use crate::recorded::{Recorded, RecordedAnswer};
use crate::target::split_url;

/// Fields that say how a body was carried or that concern one connection.
const DROPPED: [&[u8]; 12] = [
    b"host",
    b"content-length",
    b"transfer-encoding",
    b"expect",
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"upgrade",
    b"http2-settings",
    b"te",
    b"trailer",
    b"proxy-authorization",
];

/// Whether a field of a request is one of those that are not kept.
pub(crate) fn is_dropped(name: &[u8]) -> bool {
    DROPPED.iter().any(|dropped| name.eq_ignore_ascii_case(dropped))
}

/// Appends a field as a line.
pub(crate) fn push_field(fields: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        fields.extend_from_slice(part);
    }
}

/// A body that is kept up to a limit.
#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Body {
    fn push(&mut self, bytes: &[u8], limit: usize) {
        if self.is_cut {
            return;
        }
        if self.bytes.len() + bytes.len() > limit {
            *self = Self { bytes: Vec::new(), is_cut: true };
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns it whole, with the memory that it needs.
    fn take(&mut self) -> Option<Vec<u8>> {
        let Self { mut bytes, is_cut } = std::mem::take(self);
        if bytes.capacity() > bytes.len() + 4096 {
            bytes.shrink_to_fit();
        }
        (!is_cut).then_some(bytes)
    }
}

/// A request while its bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct RequestDraft {
    method: Vec<u8>,
    target: Vec<u8>,
    host: Vec<u8>,
    fields: Vec<u8>,
    body: Body,
    limit: usize,
    is_absolute: bool,
    has_upgrade: bool,
}

impl RequestDraft {
    /// Creates one that keeps bodies up to a limit.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Whether the connection is to become another protocol.
    pub(crate) fn is_upgrade(&self) -> bool {
        self.has_upgrade || self.is_connect()
    }

    /// Whether it asks for a tunnel.
    pub(crate) fn is_connect(&self) -> bool {
        self.method == b"CONNECT"
    }

    /// Whether its answer has no body.
    pub(crate) fn is_head(&self) -> bool {
        self.method == b"HEAD"
    }

    /// Memory that it holds, bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.method.capacity() + self.target.capacity() + self.fields.capacity() + self.body.bytes.capacity()
    }

    /// Returns the request, without a body if that was longer than the limit, and begins another one.
    pub(crate) fn take(&mut self) -> Recorded {
        let limit = self.limit;
        let mut draft = std::mem::replace(self, Self::new(limit));
        Recorded {
            method: draft.method,
            target: draft.target,
            host: draft.host,
            fields: draft.fields,
            body: draft.body.take(),
            ..Recorded::default()
        }
    }
}

impl Sink for RequestDraft {
    fn request(&mut self, method: &[u8], target: &[u8]) {
        *self = Self::new(self.limit);
        self.method = method.to_vec();
        match split_url(target) {
            Some(place) => (self.host, self.target, self.is_absolute) = (place.host, place.target, true),
            None => self.target = target.to_vec(),
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        // RFC 9112, 3.2.2: a recipient of the absolute form "MUST ignore the received Host header field (if any)".
        if name.eq_ignore_ascii_case(b"host") && !self.is_absolute {
            self.host = value.to_vec();
        }
        self.has_upgrade |= name.eq_ignore_ascii_case(b"upgrade");
        if !is_dropped(name) {
            push_field(&mut self.fields, name, value);
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.push(bytes, self.limit);
    }
}

/// An answer while its bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct AnswerDraft {
    status: Option<u16>,
    has_interim: bool,
    fields: Vec<u8>,
    body: Body,
    limit: usize,
}

impl AnswerDraft {
    /// Creates one that keeps bodies up to a limit.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The status of the final head, once its first line is there.
    pub(crate) fn final_status(&self) -> Option<u16> {
        self.status.filter(|status| *status >= 200)
    }

    /// Whether an interim answer came first.
    pub(crate) fn has_interim(&self) -> bool {
        self.has_interim
    }

    /// Memory that it holds, bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.fields.capacity() + self.body.bytes.capacity()
    }

    /// Marks that bytes of its body are not there.
    pub(crate) fn lose_body(&mut self) {
        self.body = Body { bytes: Vec::new(), is_cut: true };
    }

    /// Returns the answer and begins another one. `body_bytes` is the size of its body, `None` if it did not end.
    pub(crate) fn take(&mut self, body_bytes: Option<u64>) -> RecordedAnswer {
        let limit = self.limit;
        let mut draft = std::mem::replace(self, Self::new(limit));
        let status = draft.final_status();
        RecordedAnswer {
            status,
            fields: (status.is_some() && body_bytes.is_some()).then_some(draft.fields),
            body: draft.body.take().filter(|_| body_bytes.is_some()),
            body_bytes,
            ..RecordedAnswer::default()
        }
    }
}

impl Sink for AnswerDraft {
    fn status(&mut self, status: u16) {
        self.has_interim |= self.status.is_some_and(|earlier| earlier < 200);
        self.status = Some(status);
        self.fields.clear();
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        if name.is_empty() && self.fields.ends_with(b"\r\n") {
            self.fields.truncate(self.fields.len() - 2);
            for part in [b" ", value, b"\r\n"] {
                self.fields.extend_from_slice(part);
            }
        } else if !name.is_empty() {
            push_field(&mut self.fields, name, value);
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.push(bytes, self.limit);
    }
}
