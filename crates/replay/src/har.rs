//! HAR 1.2: what a browser or a proxy recorded. A whole file is read, up to a limit; its entries are given by their start
//! times, each parsed when its turn comes. A session is a connection, where entries have one, else a page, else the file.

use std::io::Read;

use base64::prelude::{Engine, BASE64_STANDARD};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::Value;

use crate::instant::parse_instant;
use crate::message::{is_dropped, push_field};
use crate::recorded::{Cause, Causes, Recorded, RecordedAnswer, Source, SourceError};
use crate::session::number_session;
use crate::target::{push_form, split_url};

/// The largest file that is read.
pub const MAX_HAR_BYTES: u64 = 256 << 20;

/// Requests of a HAR file.
pub struct HarSource {
    text: Vec<u8>,
    /// Where entries lie in it, by their start times, the last one first.
    entries: Vec<Entry>,
    causes: Causes,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    start_ns: i64,
    from: usize,
    to: usize,
    precision_ns: u32,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    log: Log<'a>,
}

#[derive(Deserialize)]
struct Log<'a> {
    #[serde(borrow)]
    entries: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(rename = "startedDateTime")]
    started: String,
}

impl HarSource {
    /// Reads a file.
    ///
    /// # Errors
    /// Why it is none, and where.
    pub fn read(input: impl Read) -> Result<Self, SourceError> {
        let mut text = Vec::new();
        input.take(MAX_HAR_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_HAR_BYTES {
            let limit = MAX_HAR_BYTES >> 20;
            return Err(SourceError::Format(format!("the HAR is larger than {limit} MiB; record it in parts")));
        }
        if text.starts_with(b"\xef\xbb\xbf") {
            text.drain(..3);
        }
        let file: File<'_> =
            serde_json::from_slice(&text).map_err(|error| SourceError::Format(format!("not a HAR: {error}")))?;
        let (mut entries, mut causes) = (Vec::new(), Causes::default());
        for raw in file.log.entries {
            let start = serde_json::from_str::<Start>(raw.get()).ok().and_then(|start| parse_instant(&start.started));
            let Some((start_ns, precision_ns)) = start else {
                causes.add(Cause::Malformed);
                continue;
            };
            let from = raw.get().as_ptr() as usize - text.as_ptr() as usize;
            entries.push(Entry { start_ns, from, to: from + raw.get().len(), precision_ns });
        }
        entries.sort_unstable_by(|one, other| other.cmp(one));
        Ok(Self { text, entries, causes })
    }
}

impl Source for HarSource {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        while let Some(entry) = self.entries.pop() {
            let value = serde_json::from_slice(self.text.get(entry.from..entry.to).unwrap_or_default());
            match value.map_err(|_| Cause::Malformed).and_then(|value| read_entry(&value)) {
                Ok(recorded) => {
                    let Entry { start_ns, precision_ns, .. } = entry;
                    return Ok(Some(Recorded { start_ns, precision_ns, ..recorded }));
                }
                Err(cause) => self.causes.add(cause),
            }
        }
        Ok(None)
    }

    fn causes(&self) -> &Causes {
        &self.causes
    }
}

fn read_entry(entry: &Value) -> Result<Recorded, Cause> {
    let (request, response) = (&entry["request"], &entry["response"]);
    let url = request["url"].as_str().ok_or(Cause::Malformed)?;
    let method = request["method"].as_str().filter(|method| !method.is_empty()).ok_or(Cause::Malformed)?;
    let upgrades = fields_of(request)
        .any(|(name, value)| name.eq_ignore_ascii_case("upgrade") && value.eq_ignore_ascii_case("websocket"));
    if upgrades || response["status"].as_u64() == Some(101) || url.starts_with("ws:") || url.starts_with("wss:") {
        return Err(Cause::Upgraded);
    }
    let is_cached = entry["_fromCache"].as_str().is_some_and(|cache| !cache.is_empty());
    let place = split_url(url.as_bytes()).filter(|_| !is_cached && method != "CONNECT").ok_or(Cause::NoRequest)?;
    let mut fields = Vec::new();
    let mut has_cookie = false;
    for (name, value) in fields_of(request).filter(|(name, _)| !is_dropped(name.as_bytes())) {
        has_cookie |= name.eq_ignore_ascii_case("cookie");
        push_field(&mut fields, name.as_bytes(), value.as_bytes());
    }
    if let (false, Some(cookies)) = (has_cookie, cookies_of(request)) {
        push_field(&mut fields, b"Cookie", cookies.as_bytes());
    }
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    let session = match (text("connection"), text("pageref")) {
        ("", page) => number_session(&[b"page", page.as_bytes()]),
        (connection, _) => number_session(&[b"connection", connection.as_bytes(), &place.host]),
    };
    Ok(Recorded {
        session,
        method: method.as_bytes().to_vec(),
        target: place.target,
        host: place.host,
        fields,
        body: body_of(request, method),
        answer: read_answer(entry, response, method),
        ..Recorded::default()
    })
}

/// Names and values, without the pseudo fields of HTTP/2 and what no field line may have.
fn fields_of(message: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = message["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let pairs = all.iter().filter_map(|field| Some((field["name"].as_str()?, field["value"].as_str()?)));
    pairs.filter(|(name, value)| {
        !name.is_empty() && !name.contains([':', '\r', '\n', '\0', ' ']) && !value.contains(['\r', '\n', '\0'])
    })
}

fn cookies_of(request: &Value) -> Option<String> {
    let all = request["cookies"].as_array()?.iter();
    let pairs: Vec<String> =
        all.filter_map(|one| Some(format!("{}={}", one["name"].as_str()?, one["value"].as_str()?))).collect();
    let is_clean = !pairs.iter().any(|pair| pair.contains(['\r', '\n', '\0']));
    (is_clean && !pairs.is_empty()).then(|| pairs.join("; "))
}

/// The body of a request; `None` if it had one that is not there.
fn body_of(request: &Value, method: &str) -> Option<Vec<u8>> {
    let data = &request["postData"];
    if let Some(text) = data["text"].as_str().filter(|text| !text.is_empty()) {
        let is_base64 = data["encoding"].as_str() == Some("base64");
        return if is_base64 { BASE64_STANDARD.decode(text).ok() } else { Some(text.as_bytes().to_vec()) };
    }
    let params = data["params"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !params.is_empty() {
        let kind = data["mimeType"].as_str().unwrap_or_default();
        return kind.starts_with("application/x-www-form-urlencoded").then(|| form_of(params));
    }
    let length = fields_of(request).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.parse().ok()).or(request["bodySize"].as_i64());
    // -1 is not known.
    let is_empty = match length {
        Some(0) => true,
        Some(1..) => false,
        _ => data.is_object() || !matches!(method, "POST" | "PUT" | "PATCH"),
    };
    is_empty.then(Vec::new)
}

fn form_of(params: &[Value]) -> Vec<u8> {
    let mut text = Vec::new();
    for param in params {
        if !text.is_empty() {
            text.push(b'&');
        }
        push_form(&mut text, param["name"].as_str().unwrap_or_default().as_bytes());
        text.push(b'=');
        push_form(&mut text, param["value"].as_str().unwrap_or_default().as_bytes());
    }
    text
}

/// Status 0 is that of a request without an answer.
fn read_answer(entry: &Value, response: &Value, method: &str) -> RecordedAnswer {
    let status = response["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let Some(status) = status.filter(|status| (200..1000).contains(status)) else { return RecordedAnswer::default() };
    let mut fields = Vec::new();
    for (name, value) in fields_of(response) {
        push_field(&mut fields, name.as_bytes(), value.as_bytes());
    }
    let has_none = method == "HEAD" || matches!(status, 204 | 304);
    let body = if has_none { Some(Vec::new()) } else { content_of(response) };
    let size = response["content"]["size"].as_u64();
    let body_bytes = body.as_ref().map(|body| body.len() as u64).or(size);
    let wait_ms = entry["timings"]["wait"].as_f64().filter(|wait_ms| (0.0..1e9).contains(wait_ms));
    let latency_ns = wait_ms.map(|wait_ms| (wait_ms * 1e6).round() as u64);
    RecordedAnswer { status: Some(status), fields: Some(fields), body, body_is_decoded: true, body_bytes, latency_ns }
}

/// The decoded body of an answer; `None` if it is not there, or not the bytes that were sent.
fn content_of(response: &Value) -> Option<Vec<u8>> {
    let content = &response["content"];
    let Some(text) = content["text"].as_str() else {
        let is_empty =
            content["size"].as_i64() == Some(0) && response["bodySize"].as_i64().is_none_or(|size| size <= 0);
        return is_empty.then(Vec::new);
    };
    if content["encoding"].as_str() == Some("base64") {
        return BASE64_STANDARD.decode(text).ok();
    }
    // Text is in UTF-8 here, whatever it was in on its way.
    let kind = content["mimeType"].as_str().unwrap_or_default().to_ascii_lowercase();
    let charset = kind.split("charset=").nth(1).map(|name| name.trim_matches(['"', ' ', ';']));
    let is_same =
        text.is_ascii() || (!text.contains('\u{fffd}') && charset.is_none_or(|name| name.starts_with("utf-8")));
    is_same.then(|| text.as_bytes().to_vec())
}
