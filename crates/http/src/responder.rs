//! What the responder says to which target, and what it counts. Owns the answers' heads and the block that bodies are
//! streamed from; one [`Responder`] a thread, whose counters only that thread writes, so that counting needs no lock.
//! Refuses bodies beyond [`LARGEST_BODY_BYTES`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::fields::decimal;
use crate::Method;

/// A body's size where the target asks for none, in bytes.
pub const DEFAULT_BODY_BYTES: u64 = LINE.len() as u64;

/// The longest body that can be asked for, in bytes.
pub const LARGEST_BODY_BYTES: u64 = 1 << 30;

/// What bodies are made of, again and again.
pub static BODY_BLOCK: [u8; BLOCK_BYTES] = body_block();

const LINE: &[u8; 12] = b"by the mark\n";
const BLOCK_BYTES: usize = 64 * 1024;

/// Everything under this prefix is the responder's own and not load.
const OWN_PREFIX: &[u8] = b"/_leadline/";

/// What one thread has done. Written by that thread alone, read by any.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    values: [AtomicU64; Counter::ALL.len()],
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Requests that arrived whole, the responder's own targets not counted.
    Requests,
    /// Requests for the responder's own targets.
    OwnRequests,
    /// Bytes read from all connections.
    BytesReceived,
    /// Bytes written to all connections.
    BytesSent,
    /// Connections accepted.
    Connections,
    /// Of these, closed at once because there were too many.
    Refused,
    /// Of these, closed because nothing had moved on them for too long.
    Expired,
    /// Answers 2xx, the responder's own targets not counted.
    Status2xx,
    /// Answers 4xx.
    Status4xx,
    /// Connections given up because a request was malformed.
    Malformed,
}

impl Counter {
    const ALL: [(Counter, &'static str); 10] = [
        (Counter::Requests, "requests"),
        (Counter::OwnRequests, "own_requests"),
        (Counter::BytesReceived, "bytes_received"),
        (Counter::BytesSent, "bytes_sent"),
        (Counter::Connections, "connections"),
        (Counter::Refused, "refused"),
        (Counter::Expired, "expired"),
        (Counter::Status2xx, "status_2xx"),
        (Counter::Status4xx, "status_4xx"),
        (Counter::Malformed, "malformed"),
    ];
}

impl Counters {
    fn add(&self, counter: Counter, amount: u64) {
        // There is one writer, so a load and a store lose nothing and need no locked instruction.
        let value = &self.values[counter as usize];
        value.store(value.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Ordering::Relaxed)
    }
}

/// One thread's view of the responder.
#[derive(Debug)]
pub struct Responder {
    own: usize,
    all: Arc<[Counters]>,
}

/// Which answer a target gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Body { bytes: u64 },
    Stats,
    NotFound,
    BadSize,
    BadTarget,
}

impl Responder {
    /// One responder for each of `threads` threads; each tells the sum of all.
    #[must_use]
    pub fn group(threads: usize) -> Vec<Self> {
        let all: Arc<[Counters]> = (0..threads).map(|_| Counters::default()).collect();
        (0..threads).map(|own| Self { own, all: Arc::clone(&all) }).collect()
    }

    /// Counts a connection.
    pub fn accepted(&self) {
        self.count(Counter::Connections, 1);
    }

    /// Counts a connection that was closed as soon as it was accepted.
    pub fn refused(&self) {
        self.count(Counter::Refused, 1);
    }

    /// Counts a connection that was closed because nothing had moved on it for too long.
    pub fn expired(&self) {
        self.count(Counter::Expired, 1);
    }

    /// Requests that arrived whole on any thread, the responder's own targets not counted.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.sum(Counter::Requests)
    }

    pub(crate) fn count(&self, counter: Counter, amount: u64) {
        self.all[self.own].add(counter, amount);
    }

    fn sum(&self, counter: Counter) -> u64 {
        self.all.iter().map(|counters| counters.value(counter)).sum()
    }

    /// All counters as a JSON object.
    pub(crate) fn stats(&self) -> String {
        let fields = Counter::ALL.map(|(counter, name)| format!("\"{name}\":{}", self.sum(counter)));
        format!("{{{}}}\n", fields.join(","))
    }
}

/// Which answer a target gets. Every path but the responder's own answers with a body.
pub(crate) fn route(target: &[u8]) -> Route {
    let Some(path) = origin_form(target) else { return Route::BadTarget };
    let mut parts = path.splitn(2, |&byte| byte == b'?');
    let path = parts.next().unwrap_or_default();
    if path == b"/_leadline/stats" {
        return Route::Stats;
    }
    if path.starts_with(OWN_PREFIX) || path == OWN_PREFIX.strip_suffix(b"/").unwrap_or(OWN_PREFIX) {
        return Route::NotFound;
    }
    let query = parts.next().unwrap_or_default();
    match query.split(|&byte| byte == b'&').find_map(|pair| pair.strip_prefix(b"size=")) {
        None => Route::Body { bytes: DEFAULT_BODY_BYTES },
        Some(size) => match decimal(size) {
            Some(bytes) if bytes <= LARGEST_BODY_BYTES => Route::Body { bytes },
            _ => Route::BadSize,
        },
    }
}

/// The path and query of a target.
///
/// RFC 9112, 3.2.2: "a server MUST accept the absolute-form in requests".
fn origin_form(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") || target == b"*" {
        return Some(target);
    }
    let scheme_end = target.windows(3).position(|window| window == b"://")?;
    let authority = &target[scheme_end + 3..];
    let path = authority.iter().position(|&byte| byte == b'/').unwrap_or(authority.len());
    target[..scheme_end].eq_ignore_ascii_case(b"http").then_some(&authority[path..])
}

/// What the head says about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Nothing: it lives on, as HTTP/1.1 has it.
    Implied,
    /// That it lives on, for HTTP/1.0.
    KeepAlive,
    /// That it ends.
    Close,
}

/// Appends an answer's head.
pub(crate) fn push_head(out: &mut Vec<u8>, status: &str, media_type: &str, length: u64, persistence: Persistence) {
    let mut digits = [0; 20];
    let connection: &[u8] = match persistence {
        Persistence::Implied => b"\r\n\r\n",
        Persistence::KeepAlive => b"\r\nConnection: keep-alive\r\n\r\n",
        Persistence::Close => b"\r\nConnection: close\r\n\r\n",
    };
    for part in [
        b"HTTP/1.1 ",
        status.as_bytes(),
        b"\r\nServer: leadline\r\nContent-Type: ",
        media_type.as_bytes(),
        b"\r\nContent-Length: ",
        decimal_digits(length, &mut digits),
        connection,
    ] {
        out.extend_from_slice(part);
    }
}

/// Appends the commonest head of all, which is one copy: a body of the default size over HTTP/1.1.
pub(crate) fn push_default(out: &mut Vec<u8>) {
    out.extend_from_slice(DEFAULT_ANSWER);
}

const DEFAULT_ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: leadline\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nby the mark\n";

/// Whether a request gets the precomputed answer.
pub(crate) fn is_default(method: Method, bytes: u64, persistence: Persistence) -> bool {
    method != Method::Head && bytes == DEFAULT_BODY_BYTES && persistence == Persistence::Implied
}

fn decimal_digits(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[at..];
        }
    }
}

const fn body_block() -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut at = 0;
    while at < BLOCK_BYTES {
        block[at] = LINE[at % LINE.len()];
        at += 1;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::{
        decimal_digits, push_default, push_head, route, Counter, Persistence, Route, BODY_BLOCK, DEFAULT_BODY_BYTES,
        LARGEST_BODY_BYTES,
    };

    #[test]
    fn routes() {
        let default = Route::Body { bytes: DEFAULT_BODY_BYTES };
        let cases: [(&[u8], Route); 14] = [
            (b"/", default),
            (b"*", default),
            (b"/index.html?x=1", default),
            (b"/?size=0", Route::Body { bytes: 0 }),
            (b"/a?x=1&size=100", Route::Body { bytes: 100 }),
            (b"/?size=1073741824", Route::Body { bytes: LARGEST_BODY_BYTES }),
            (b"/?size=1073741825", Route::BadSize),
            (b"/?size=-1", Route::BadSize),
            (b"/?size=", Route::BadSize),
            (b"/_leadline/stats", Route::Stats),
            (b"/_leadline/other", Route::NotFound),
            (b"/_leadline", Route::NotFound),
            (b"http://a:80/?size=7", Route::Body { bytes: 7 }),
            (b"a:80", Route::BadTarget),
        ];
        for (target, expected) in cases {
            assert_eq!(route(target), expected, "{}", String::from_utf8_lossy(target));
        }
    }

    #[test]
    fn the_precomputed_answer_is_the_computed_one() {
        let (mut precomputed, mut computed) = (Vec::new(), Vec::new());
        push_default(&mut precomputed);
        push_head(&mut computed, "200 OK", "text/plain", DEFAULT_BODY_BYTES, Persistence::Implied);
        computed.extend_from_slice(&BODY_BLOCK[..DEFAULT_BODY_BYTES as usize]);
        assert_eq!(precomputed, computed);
    }

    #[test]
    fn digits_and_counters() {
        for value in [0, 9, 10, 12345, u64::MAX] {
            assert_eq!(decimal_digits(value, &mut [0; 20]), value.to_string().as_bytes());
        }
        for (place, (counter, _)) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, place);
        }
    }
}
