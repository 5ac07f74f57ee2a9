//! A line that was taken apart, made into a request. Owns what the fields mean together: which request it was, when it
//! began, and whose it was.

use std::borrow::Cow;

use super::meaning::{is_session_name, Meaning, Slot, Stamp};
use super::steps::Span;
use super::text::{push_field, push_target, split_url, Escapes};
use super::times::{read_decimal, read_number, SECOND_NS};
use crate::recorded::{Cause, Recorded, RecordedAnswer};

/// HAProxy keeps this much of a target (tune.http.logurilen) and of a line; what is longer is cut off.
const HAPROXY_CUT_BYTES: usize = 900;
const MAX_METHOD_BYTES: usize = 32;
/// Fields that belong to the connection or say how the body was carried.
const UNSENT_FIELDS: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "expect",
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
];

/// How the lines of a format become requests.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    meaning: Meaning,
    /// The fields that a replay sends.
    sent: Vec<(Vec<u8>, Slot)>,
    stamp: Option<Stamp>,
    escapes: Escapes,
    /// Whether a `+` in a path is a space, as IIS writes it.
    has_plus_for_space: bool,
    agent: Option<Slot>,
    forwarded: Option<Slot>,
    cookies: Option<Slot>,
    content_length: Option<Slot>,
}

/// A line and its fields.
#[derive(Clone, Copy)]
struct Line<'l> {
    bytes: &'l [u8],
    spans: &'l [Span],
}

impl<'l> Line<'l> {
    fn raw(self, slot: Slot) -> &'l [u8] {
        self.spans.get(usize::from(slot)).map_or(&[], |span| &self.bytes[span.from as usize..span.to as usize])
    }

    /// A field that has a value.
    fn get(self, slot: Option<Slot>) -> Option<&'l [u8]> {
        let text = self.raw(slot?);
        (!text.is_empty() && text != b"-").then_some(text)
    }
}

impl Entries {
    pub(super) fn new(meaning: Meaning, escapes: Escapes, has_plus_for_space: bool) -> Self {
        let field = |name: &str| {
            let found = meaning.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            found.map(|(_, slot)| *slot)
        };
        Self {
            stamp: meaning.stamp(),
            sent: meaning
                .headers
                .iter()
                .filter(|(name, _)| is_sent(name))
                .map(|(name, slot)| (name.clone().into_bytes(), *slot))
                .collect(),
            agent: field("user-agent"),
            forwarded: field("x-forwarded-for"),
            cookies: field("cookie"),
            content_length: field("content-length"),
            meaning,
            escapes,
            has_plus_for_space,
        }
    }

    /// How many slots a line has.
    pub(super) fn slots(&self) -> usize {
        self.meaning.slots()
    }

    /// Why a line does not have the format: HAProxy cuts its lines off.
    pub(super) fn refine_cause(&self, cause: Cause, line: &[u8]) -> Cause {
        let may_be_cut = self.escapes == Escapes::Hash && line.len() >= HAPROXY_CUT_BYTES;
        if may_be_cut && cause == Cause::Malformed {
            Cause::CutOff
        } else {
            cause
        }
    }

    /// The request of a line.
    ///
    /// # Errors
    /// Why it gives none.
    pub(super) fn read(&self, bytes: &[u8], spans: &[Span]) -> Result<Recorded, Cause> {
        let line = Line { bytes, spans };
        let stamp = self.stamp.as_ref().ok_or(Cause::Malformed)?;
        let (stamp_ns, precision_ns) = stamp.read(|slot| line.get(Some(slot))).ok_or(Cause::Malformed)?;
        let mut recorded = Recorded { precision_ns, ..Recorded::default() };
        self.read_request(line, &mut recorded)?;
        let duration_ns = self.meaning.duration.and_then(|(slot, unit)| read_decimal(line.get(Some(slot))?, unit));
        let lead_ns = duration_ns.filter(|_| stamp.is_end).unwrap_or(0);
        recorded.lead_ns = lead_ns.unsigned_abs();
        recorded.start_ns = stamp_ns - lead_ns;
        self.push_fields(line, &mut recorded);
        // Not with what no field Host may have, such as the end of a line.
        if !recorded.host.iter().all(|byte| (0x21..0x7f).contains(byte)) {
            recorded.host.clear();
        }
        recorded.session = self.choose_session(line, &recorded);
        let may_have_body = !matches!(recorded.method.as_slice(), b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" | b"TRACE");
        let is_empty = !may_have_body || line.get(self.content_length) == Some(b"0");
        recorded.body = is_empty.then(Vec::new);
        recorded.answer = self.read_answer(line, duration_ns);
        Ok(recorded)
    }

    fn read_answer(&self, line: Line<'_>, duration_ns: Option<i64>) -> RecordedAnswer {
        let status = line.get(self.meaning.status).and_then(read_number).filter(|code| (100..1000).contains(code));
        let body_bytes = self.meaning.body_bytes.map(|slot| line.raw(slot)).and_then(|text| match text {
            b"-" => Some(0),
            text => read_number(text),
        });
        let parts = self.meaning.latency.iter().map(|(slot, unit)| read_decimal(line.get(Some(*slot))?, *unit));
        let latency_ns = match self.meaning.latency.as_slice() {
            [] => duration_ns,
            _ => add_parts(parts).or(duration_ns),
        };
        RecordedAnswer {
            status: status.map(|code| code as u16),
            body_bytes: body_bytes.map(i64::unsigned_abs),
            latency_ns: latency_ns.map(i64::unsigned_abs),
            ..RecordedAnswer::default()
        }
    }

    fn read_request(&self, line: Line<'_>, recorded: &mut Recorded) -> Result<(), Cause> {
        if let Some(slot) = self.meaning.request {
            let request = self.escapes.undo(line.get(Some(slot)).ok_or(Cause::NoRequest)?);
            let (method, target) = split_request(&request, self.escapes)?;
            return self.place_request(method, target, line, recorded);
        }
        let method = self.escapes.undo(line.get(self.meaning.method).ok_or(Cause::NoRequest)?);
        if let Some(target) = line.get(self.meaning.target) {
            return self.place_request(&method, &self.undo_in_target(target), line, recorded);
        }
        if let Some(target) = line.get(self.meaning.host_target) {
            return self.place_host_target(&method, &self.escapes.undo(target), line, recorded);
        }
        if let Some(target) = line.get(self.meaning.dashed_target) {
            let target = target.strip_suffix(b"?-").unwrap_or(match target.strip_suffix(b"-") {
                Some(path) if !path.contains(&b'?') => path,
                _ => target,
            });
            return self.place_request(&method, &self.escapes.undo(target), line, recorded);
        }
        let path = self.undo_in_target(line.get(self.meaning.path).ok_or(Cause::NoRequest)?);
        let path = if self.has_plus_for_space { spell_spaces(path) } else { path };
        self.place_request(&method, &path, line, recorded)?;
        let query = line.get(self.meaning.query).map(|query| self.undo_in_target(query));
        if let Some(query) = query {
            recorded.target.push(b'?');
            push_target(query.strip_prefix(b"?").unwrap_or(&query), &mut recorded.target);
        }
        Ok(())
    }

    /// A URL's own escapes stay in a target.
    fn undo_in_target<'l>(&self, text: &'l [u8]) -> Cow<'l, [u8]> {
        if self.escapes == Escapes::Url {
            Cow::Borrowed(text)
        } else {
            self.escapes.undo(text)
        }
    }

    fn place_host_target(
        &self,
        method: &[u8],
        text: &[u8],
        line: Line<'_>,
        recorded: &mut Recorded,
    ) -> Result<(), Cause> {
        let slash = memchr::memchr(b'/', text).ok_or(Cause::NoRequest)?;
        self.place_request(method, &text[slash..], line, recorded)?;
        if slash > 0 {
            recorded.host = text[..slash].to_vec();
        }
        Ok(())
    }

    /// Takes over a method and a target, which may be an absolute URL.
    fn place_request(
        &self,
        method: &[u8],
        target: &[u8],
        line: Line<'_>,
        recorded: &mut Recorded,
    ) -> Result<(), Cause> {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        if method.is_empty() || method.len() > MAX_METHOD_BYTES || !method.iter().all(is_token) {
            return Err(Cause::NoRequest);
        }
        let (mut host, mut origin): (&[u8], &[u8]) = (&[], target);
        match target.first() {
            Some(b'/') => {}
            Some(b'*') if target == b"*" && method == b"OPTIONS" => {}
            _ => (host, origin) = split_url(target).filter(|(host, _)| !host.is_empty()).ok_or(Cause::NoRequest)?,
        }
        recorded.method = method.to_vec();
        recorded.target = Vec::with_capacity(origin.len() + 1);
        if !matches!(origin.first(), Some(b'/' | b'*')) {
            recorded.target.push(b'/');
        }
        // A fragment never belongs to a request.
        let origin = if origin.first() == Some(&b'#') { &[] } else { origin };
        push_target(origin, &mut recorded.target);
        let named = line
            .get(self.meaning.host)
            .or_else(|| line.get(self.meaning.server_name).filter(|name| !matches!(*name, b"_" | b"localhost")));
        recorded.host = if host.is_empty() { named.map(<[u8]>::to_vec).unwrap_or_default() } else { host.to_vec() };
        Ok(())
    }

    fn push_fields(&self, line: Line<'_>, recorded: &mut Recorded) {
        let bytes = self.sent.iter().map(|(name, slot)| name.len() + line.raw(*slot).len() + 4).sum();
        recorded.fields = Vec::with_capacity(bytes);
        for (name, slot) in &self.sent {
            if let Some(value) = line.get(Some(*slot)) {
                push_field(name, &self.escapes.undo(value), &mut recorded.fields);
            }
        }
        let Some((names, slot)) = &self.meaning.captures else { return };
        for (name, value) in names.iter().zip(line.raw(*slot).split(|byte| *byte == b'|')) {
            if value.is_empty() {
            } else if name.eq_ignore_ascii_case("host") {
                if recorded.host.is_empty() {
                    recorded.host = self.escapes.undo(value).into_owned();
                }
            } else if is_sent(name) {
                push_field(name.as_bytes(), &self.escapes.undo(value), &mut recorded.fields);
            }
        }
    }

    /// The session: a logged cookie or user; else the connection; else address and agent.
    fn choose_session(&self, line: Line<'_>, recorded: &Recorded) -> u64 {
        let cookie = line.get(self.meaning.cookie.as_ref().map(|(_, slot)| *slot));
        let cookie = cookie.or_else(|| find_session_cookie(line.get(self.cookies)?));
        if let Some(cookie) = cookie.or_else(|| find_session_cookie(line.get(self.meaning.cookie_pair)?)) {
            return hash(b"cookie", &[cookie]);
        }
        if let Some(user) = line.get(self.meaning.user) {
            return hash(b"user", &[user]);
        }
        let forwarded = self.find_forwarded(line, recorded);
        let (address, port) = self.read_client(line);
        if forwarded.is_none() {
            // What is behind a proxy has the proxy's connection.
            let connection = port.or_else(|| line.get(self.meaning.connection));
            if let Some(connection) = connection {
                return hash(b"connection", &[address.unwrap_or_default(), connection]);
            }
        }
        match forwarded.or(address) {
            Some(address) => {
                let agent = line.get(self.agent).or_else(|| find_field(&recorded.fields, b"user-agent"));
                hash(b"address", &[address, agent.unwrap_or_default()])
            }
            // A session of its own: users who are not known apart must not wait for one another.
            None => hash(b"line", &[line.bytes]),
        }
    }

    /// The client in front of the proxies, by X-Forwarded-For.
    fn find_forwarded<'l>(&self, line: Line<'l>, recorded: &'l Recorded) -> Option<&'l [u8]> {
        let list = line.get(self.forwarded).or_else(|| {
            self.meaning.captures.as_ref()?;
            find_field(&recorded.fields, b"x-forwarded-for")
        })?;
        let first = list.split(|byte| *byte == b',').next()?.trim_ascii();
        (!first.is_empty() && first != b"-").then_some(first)
    }

    /// The address and port; a prefix of syslog is before the address of a line that begins with it.
    fn read_client<'l>(&self, line: Line<'l>) -> (Option<&'l [u8]>, Option<&'l [u8]>) {
        let last_word = |text: &'l [u8]| memchr::memrchr(b' ', text).map_or(text, |space| &text[space + 1..]);
        if let Some(client) = line.get(self.meaning.address_port).map(last_word) {
            return match memchr::memrchr(b':', client) {
                Some(colon) => (Some(&client[..colon]), Some(&client[colon + 1..])),
                None => (Some(client), None),
            };
        }
        (line.get(self.meaning.address).map(last_word), line.get(self.meaning.port))
    }

    /// Which requests belong together, in words.
    pub(super) fn describe_session(&self) -> String {
        let meaning = &self.meaning;
        let mut bases = Vec::new();
        if let Some((name, _)) = &meaning.cookie {
            bases.push(format!("the cookie {name}"));
        } else if self.cookies.is_some() || meaning.cookie_pair.is_some() {
            bases.push("a cookie whose name says that it is a session's or a user's".to_owned());
        }
        bases.extend(meaning.user.map(|_| "the user".to_owned()));
        if meaning.address_port.or(meaning.port).is_some() {
            bases.push("the client's address and port, which is one connection".to_owned());
        } else if meaning.connection.is_some() {
            bases.push("the connection's number".to_owned());
        } else if meaning.address.or(self.forwarded).is_some() {
            let agent = if self.agent.is_some() { " and agent, which are the same for some users" } else { "" };
            bases.push(format!("the client's address{agent}"));
        } else if bases.is_empty() {
            return "none: the log names no client, so each request is a session of its own".to_owned();
        }
        let forwarded = if self.forwarded.is_some() { "; behind a proxy by X-Forwarded-For" } else { "" };
        format!("{}{forwarded}", bases.join(", else "))
    }

    /// Where starts come from, in words.
    pub(super) fn describe_start(&self) -> String {
        let Some(stamp) = &self.stamp else { return "the format has no time".to_owned() };
        let exact = if stamp.precision_ns >= SECOND_NS { "in whole seconds" } else { "in fractions of a second" };
        match (stamp.is_end, self.meaning.duration.is_some()) {
            (false, _) => format!("the logged time of the request, {exact}"),
            (true, true) => format!("the logged time of the request's end, {exact}, less its duration"),
            (true, false) => format!("the logged time of the request's end, {exact}: the log has no duration"),
        }
    }
}

/// The sum, if each part is there.
fn add_parts(mut parts: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    parts.try_fold(0_i64, |sum, part| sum.checked_add(part?))
}

fn is_sent(name: &str) -> bool {
    !UNSENT_FIELDS.iter().any(|unsent| unsent.eq_ignore_ascii_case(name))
}

/// `GET /path HTTP/1.1` as method and target.
fn split_request(request: &[u8], escapes: Escapes) -> Result<(&[u8], &[u8]), Cause> {
    let space = memchr::memchr(b' ', request).ok_or(Cause::NoRequest)?;
    let (method, rest) = (&request[..space], &request[space + 1..]);
    let target = match memchr::memrchr(b' ', rest) {
        Some(version) if rest[version + 1..].starts_with(b"HTTP/") => &rest[..version],
        _ if escapes == Escapes::Hash && request.len() >= HAPROXY_CUT_BYTES => return Err(Cause::CutOff),
        _ => rest,
    };
    // A target with a space is none: servers answer 400.
    if target.is_empty() || target.contains(&b' ') {
        return Err(Cause::NoRequest);
    }
    Ok((method, target))
}

/// IIS writes a path's spaces as `+`.
fn spell_spaces(path: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if path.contains(&b'+') {
        path.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect::<Vec<_>>().into()
    } else {
        path
    }
}

/// The value of a cookie whose name says that it names a session.
fn find_session_cookie(cookies: &[u8]) -> Option<&[u8]> {
    cookies.split(|byte| *byte == b';').find_map(|pair| {
        let pair = pair.strip_prefix(b"+").unwrap_or(pair).trim_ascii();
        let equals = memchr::memchr(b'=', pair)?;
        (is_session_name(&pair[..equals]) && equals + 1 < pair.len()).then(|| &pair[equals + 1..])
    })
}

fn find_field<'f>(fields: &'f [u8], name: &[u8]) -> Option<&'f [u8]> {
    fields.split(|byte| *byte == b'\n').find_map(|line| {
        let (head, value) = line.split_at_checked(name.len())?;
        (head.eq_ignore_ascii_case(name) && value.starts_with(b":")).then(|| value[1..].trim_ascii())
    })
}

/// A hash of texts, eight bytes at a time; the same in each run.
fn hash(kind: &[u8], texts: &[&[u8]]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = 0_u64;
    for text in std::iter::once(&kind).chain(texts) {
        state = (state ^ text.len() as u64).wrapping_mul(FACTOR);
        let mut chunks = text.chunks_exact(8);
        for chunk in &mut chunks {
            let word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            state = (state.rotate_left(23) ^ word).wrapping_mul(FACTOR);
        }
        let tail = chunks.remainder().iter().fold(1, |word, byte| word << 8 | u64::from(*byte));
        state = (state.rotate_left(23) ^ tail).wrapping_mul(FACTOR);
    }
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}
