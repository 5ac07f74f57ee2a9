//! One session of a replay: its cookies, the values that its answers gave, and the bytes of its requests.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::correlate::Values;
use super::request::ReplayRequest;
use crate::browser::cookies::{Destination, Jar};
use crate::outgoing::Outgoing;

/// A session of the source.
#[derive(Default)]
pub(super) struct Session {
    pub key: u64,
    pub number: u32,
    pub jar: Jar,
    pub values: Values,
    pub outstanding: Vec<Sent>,
    pub waiting: VecDeque<ReplayRequest>,
    /// When the answers so far were complete in the source, ns by its clock.
    pub source_end_ns: i64,
    /// When the last answer came, ns.
    pub answered_ns: u64,
    pub used_ns: u64,
}

/// A request that awaits its answer.
pub(super) struct Sent {
    pub exchange: u32,
    pub request: ReplayRequest,
    pub due_ns: u64,
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
    let mut current = |text: &[u8]| -> Option<Vec<u8>> {
        let (text, count) = session.values.replace(text)?;
        replaced += count;
        Some(text)
    };
    let (mut url, mut fields, mut cookie, mut body) = (request.url.clone(), None, None, None);
    if !session.values.is_empty() {
        if let Some(target) = current(request.url.target.as_bytes()).and_then(|target| String::from_utf8(target).ok()) {
            url.target = target.into();
        }
        (fields, cookie, body) = (current(&request.fields), current(&request.cookie), current(&request.body));
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
