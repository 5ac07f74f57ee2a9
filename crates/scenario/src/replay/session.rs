//! One session of a replay: its cookies, the values that its answers gave, and the bytes of its requests.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::correlate::{Form, Values};
use super::request::ReplayRequest;
use crate::browser::cookies::{Destination, Jar};
use crate::outgoing::Outgoing;
use crate::samples::Opening;

/// A session of the source.
#[derive(Default)]
pub(super) struct Session {
    pub key: u64,
    pub number: u32,
    pub jar: Jar,
    pub values: Values,
    pub outstanding: Vec<Sent>,
    pub waiting: VecDeque<ReplayRequest>,
    /// When the last answer came, ns.
    pub answered_ns: u64,
    pub used_ns: u64,
}

impl Session {
    /// Whether a request began in the source after the end of an answer that is outstanding here: it may depend on it. An
    /// answer whose end the source does not have ended before the next request.
    pub fn awaits_answer_before(&self, request: &ReplayRequest) -> bool {
        let end_ns = |sent: &Sent| sent.request.source_end_ns.unwrap_or(sent.request.source_ns);
        self.outstanding.iter().any(|sent| end_ns(sent) <= request.source_ns)
    }
}

/// A request that awaits its answer.
pub(super) struct Sent {
    pub exchange: u32,
    pub request: ReplayRequest,
    pub due_ns: u64,
}

/// How an exchange ended.
#[derive(Default)]
pub(super) struct Outcome {
    pub sent_ns: Option<u64>,
    pub first_ns: Option<u64>,
    pub done_ns: Option<u64>,
    pub status: Option<u16>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub opening: Option<Opening>,
    pub failure: Option<(Cow<'static, str>, String)>,
}

/// Why an answer counts as a failure: it says that it is one, and in the source it was none.
pub(super) fn failure_of(request: &ReplayRequest, status: u16) -> Option<(Cow<'static, str>, String)> {
    let was = request.before.as_ref().and_then(|before| before.status);
    if status < 400 || was.is_some_and(|was| was >= 400) {
        return None;
    }
    let was = was.map_or_else(String::new, |was| format!("; in the source it was {was}"));
    Some((format!("status_{status}").into(), format!("status {status}{was}")))
}

/// Returns the bytes of a request, with the session's cookies and values, and how many were replaced.
pub(super) fn outgoing(session: &Session, request: &ReplayRequest, now_s: i64) -> (Outgoing, u64) {
    let mut replaced = 0;
    let mut current = |text: &[u8], form: Form| -> Option<Vec<u8>> {
        let (text, count) = session.values.replace(text, form)?;
        replaced += count;
        Some(text)
    };
    let (mut url, mut fields, mut cookie, mut body) = (request.url.clone(), None, None, None);
    if !session.values.is_empty() {
        let target = current(request.url.target.as_bytes(), Form::Target);
        if let Some(target) = target.and_then(|target| String::from_utf8(target).ok()) {
            url.target = target.into();
        }
        fields = Some(current_fields(&request.fields, &mut |value| current(value, Form::Plain)));
        cookie = current(&request.cookie, Form::Plain);
        body = current(&request.body, Form::of_body(&request.body));
    }
    let fields = fields.as_deref().unwrap_or(&request.fields);
    let cookie = cookies(session, cookie.as_deref().unwrap_or(&request.cookie), &url, now_s);
    let body = body.as_deref().unwrap_or(&request.body);
    let mut bytes = Vec::with_capacity(64 + url.target.len() + fields.len() + cookie.len() + body.len());
    for part in [&*request.method, b" ", url.target.as_bytes(), b" HTTP/1.1\r\n", fields] {
        bytes.extend_from_slice(part);
    }
    if !cookie.is_empty() {
        for part in [b"Cookie: ".as_slice(), cookie.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    if !body.is_empty() || matches!(&*request.method, b"POST" | b"PUT" | b"PATCH") {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    let is_idempotent = matches!(&*request.method, b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE");
    let outgoing = Outgoing {
        url,
        bytes: bytes.into(),
        kept_fields: 0..0,
        credentials: 0..0,
        is_head: &*request.method == b"HEAD",
        is_idempotent,
        closes: false,
    };
    (outgoing, replaced)
}

/// Returns header fields with the values of now; their names stay, and so does Host.
fn current_fields(fields: &[u8], current: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.len() + 64);
    for line in fields.split_inclusive(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':').map_or(line.len(), |colon| colon + 1);
        let (name, value) = line.split_at(colon);
        out.extend_from_slice(name);
        match current(value).filter(|_| !name.eq_ignore_ascii_case(b"host:")) {
            Some(value) => out.extend_from_slice(&value),
            None => out.extend_from_slice(value),
        }
    }
    out
}

/// Returns the Cookie field's value: the recorded cookies, each with the value that the target gave it, and those that
/// only the target gave.
fn cookies(session: &Session, recorded: &[u8], url: &leadline_http::Url, now_s: i64) -> String {
    if session.jar.is_empty() {
        return String::from_utf8_lossy(recorded).into_owned();
    }
    let mut own = String::new();
    session.jar.send(&Destination::of(url, now_s), &mut own);
    let recorded = String::from_utf8_lossy(recorded);
    let has = |name: &str| own.split("; ").filter_map(|pair| pair.split_once('=')).any(|(other, _)| other == name);
    let mut all: Vec<&str> = recorded.split(';').map(str::trim).collect();
    all.retain(|pair| !pair.is_empty() && !has(pair.split('=').next().unwrap_or_default()));
    all.extend((!own.is_empty()).then_some(own.as_str()));
    all.join("; ")
}
