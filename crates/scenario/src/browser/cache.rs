//! A user's cache of responses (RFC 9111): when they are fresh, and what revalidates them. Owns the bounds of a cache, in
//! responses and in bytes. It keeps no bodies: what a fresh response would give was taken when it arrived.

use std::collections::HashMap;

use super::cookies::http_date;

/// The most responses of a user; the one that was kept first makes room.
const MOST_RESPONSES: usize = 5000;
/// The most bytes of a user's responses; the ones that were kept first make room.
const MOST_BYTES: usize = 4 << 20;
/// The longest value that is kept, bytes.
const LONGEST_BYTES: usize = 1024;
/// The longest URL whose response is kept, bytes.
const LONGEST_URL_BYTES: usize = 8192;
/// The most names in the `Vary` fields of a response that is kept.
const MOST_VARY_NAMES: usize = 32;
/// The longest values of the request's fields that a response depends on, bytes together.
const LONGEST_VARIES_BYTES: usize = 16_384;
/// The longest time for which a response is fresh, s.
const LONGEST_FRESH_S: i64 = 10 * 365 * 86_400;

/// The header fields by which a response varies, and their values in its request.
type Varies = Box<[(Box<str>, Box<str>)]>;

/// What is kept of a response.
#[derive(Clone, Debug)]
struct Kept {
    etag: Option<Box<str>>,
    modified: Option<Box<str>>,
    fresh_until_ms: i64,
    /// The fields of requests that it depends on, with the values of its own request.
    varies: Varies,
    number: u64,
}

impl Kept {
    /// What it takes up besides its place in the map, bytes.
    fn bytes(&self, url: &str) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let pair_bytes = size_of::<(Box<str>, Box<str>)>();
        let varies = self.varies.iter().map(|(name, value)| pair_bytes + name.len() + value.len());
        url.len() + text(&self.etag) + text(&self.modified) + varies.sum::<usize>()
    }
}

/// What a cache says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing.
    Absent,
    /// The response is known and fresh.
    Fresh,
    /// The response is known; these fields ask whether it has changed.
    Stale(String),
}

/// The cache of one user.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    responses: HashMap<Box<str>, Kept>,
    next: u64,
    /// The sum of [`Kept::bytes`].
    bytes: usize,
}

impl Cache {
    /// Says what is known about a request.
    #[must_use]
    pub fn lookup(&self, url: &str, request: &[u8], now_ms: i64) -> Lookup {
        let Some(kept) = self.responses.get(url).filter(|_| request.starts_with(b"GET ")) else {
            return Lookup::Absent;
        };
        let head = head_of(request);
        let is_conditional = |name| field(&head, name).is_some();
        if is_conditional("if-none-match") || is_conditional("if-modified-since") || is_conditional("range") {
            return Lookup::Absent;
        }
        if kept.varies.iter().any(|(name, value)| field(&head, name).unwrap_or_default() != &**value) {
            return Lookup::Absent;
        }
        if now_ms < kept.fresh_until_ms {
            return Lookup::Fresh;
        }
        let mut fields = String::new();
        let mut add = |name: &str, value: &Option<Box<str>>| {
            value.iter().for_each(|value| fields.extend([name, ": ", &**value, "\r\n"]));
        };
        add("If-None-Match", &kept.etag);
        add("If-Modified-Since", &kept.modified);
        if fields.is_empty() {
            Lookup::Absent
        } else {
            Lookup::Stale(fields)
        }
    }

    /// Keeps a response, or forgets the one before. `head` has lines `Name: value`.
    pub fn receive(&mut self, url: &str, request: &[u8], status: u16, head: &str, now_ms: i64) {
        if !request.starts_with(b"GET ") || !matches!(status, 200 | 304) || url.len() > LONGEST_URL_BYTES {
            return;
        }
        let control = Control::read(head);
        let Some(varies) = varies(head, request).filter(|_| !control.is_forbidden) else {
            return self.remove(url);
        };
        let short = |name: &str| field(head, name).filter(|value| value.len() <= LONGEST_BYTES).map(Box::<str>::from);
        let (etag, modified) = (short("etag"), short("last-modified"));
        let fresh_until_ms = now_ms.saturating_add(control.fresh_s(head, now_ms).saturating_mul(1000));
        if status == 304 {
            if let Some(kept) = self.responses.get_mut(url) {
                self.bytes -= kept.bytes(url);
                kept.fresh_until_ms = fresh_until_ms;
                kept.etag = etag.or(kept.etag.take());
                kept.modified = modified.or(kept.modified.take());
                self.bytes += kept.bytes(url);
            }
            return self.make_room();
        }
        self.remove(url);
        if etag.is_none() && modified.is_none() && fresh_until_ms <= now_ms {
            return;
        }
        let kept = Kept { etag, modified, fresh_until_ms, varies, number: self.next };
        self.next += 1;
        self.bytes += kept.bytes(url);
        self.responses.insert(url.into(), kept);
        self.make_room();
    }

    fn remove(&mut self, url: &str) {
        if let Some(kept) = self.responses.remove(url) {
            self.bytes -= kept.bytes(url);
        }
    }

    /// Removes the responses that were kept first, until the others are few and small enough.
    fn make_room(&mut self) {
        while self.responses.len() > MOST_RESPONSES || self.bytes > MOST_BYTES {
            let first = self.responses.iter().min_by_key(|(_, kept)| kept.number).map(|(url, _)| url.clone());
            let Some(first) = first else { return };
            self.remove(&first);
        }
    }

    /// Returns the memory of the responses, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes + self.responses.capacity() * (size_of::<Kept>() + 24)
    }
}

/// Returns the fields of a request that its response depends on (`Vary`), each once, with their values. `None` if it
/// depends on more than that: on everything (`*`), or on more than is kept.
fn varies(head: &str, request: &[u8]) -> Option<Varies> {
    if fields(head, "vary").map(str::len).sum::<usize>() > LONGEST_BYTES {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for name in fields(head, "vary").flat_map(|value| value.split(',')).map(str::trim) {
        if name == "*" || names.len() > MOST_VARY_NAMES {
            return None;
        }
        if !name.is_empty() && !names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    let sent = if names.is_empty() { String::new() } else { head_of(request) };
    let values: Vec<&str> = names.iter().map(|name| field(&sent, name).unwrap_or_default()).collect();
    let values_bytes = values.iter().map(|value| value.len()).sum::<usize>();
    if names.len() > MOST_VARY_NAMES || values_bytes > LONGEST_VARIES_BYTES {
        return None;
    }
    Some(names.into_iter().zip(values).map(|(name, value)| (name.into(), value.into())).collect())
}

/// The Cache-Control field of a response.
#[derive(Debug, Default)]
struct Control {
    is_forbidden: bool,
    must_ask: bool,
    max_age_s: Option<i64>,
}

impl Control {
    fn read(head: &str) -> Self {
        let mut control = Self::default();
        for directive in fields(head, "cache-control").flat_map(|value| value.split(',')) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" => control.is_forbidden = true,
                "no-cache" => control.must_ask = true,
                "max-age" => control.max_age_s = value.trim().trim_matches('"').parse().ok(),
                _ => {}
            }
        }
        control
    }

    /// For how long the response is fresh, s: as the server says, or a tenth of its age when it does not.
    fn fresh_s(&self, head: &str, now_ms: i64) -> i64 {
        if self.must_ask {
            return 0;
        }
        let date = |name: &str| field(head, name).and_then(http_date);
        let at_s = date("date").unwrap_or_else(|| now_ms.div_euclid(1000));
        let age_s = field(head, "age").and_then(|age| age.parse::<i64>().ok()).unwrap_or(0).max(0);
        let fresh_s = match (self.max_age_s, field(head, "expires")) {
            (Some(max_age_s), _) => max_age_s.saturating_sub(age_s),
            (None, Some(expires)) => http_date(expires).map_or(0, |expires_s| expires_s.saturating_sub(at_s)),
            (None, None) => date("last-modified").map_or(0, |modified_s| at_s.saturating_sub(modified_s) / 10),
        };
        fresh_s.clamp(0, LONGEST_FRESH_S)
    }
}

/// Adds header fields, as lines, to a request.
#[must_use]
pub fn with_fields(request: &[u8], fields: &str) -> Vec<u8> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").map_or(request.len(), |end| end + 2);
    [&request[..end], fields.as_bytes(), &request[end..]].concat()
}

/// The header fields of a request as lines.
fn head_of(request: &[u8]) -> String {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(request.len());
    String::from_utf8_lossy(&request[..end]).into_owned()
}

fn fields<'h>(head: &'h str, name: &'h str) -> impl Iterator<Item = &'h str> {
    let pairs = head.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn field<'h>(head: &'h str, name: &'h str) -> Option<&'h str> {
    fields(head, name).next()
}

#[cfg(test)]
mod tests {
    use super::{with_fields, Cache, Kept, Lookup, LONGEST_URL_BYTES, MOST_BYTES, MOST_RESPONSES, MOST_VARY_NAMES};

    const URL: &str = "http://a.test/x";
    const GET: &[u8] = b"GET /x HTTP/1.1\r\nHost: a.test\r\nAccept-Language: en\r\n\r\n";

    /// What a cache says some seconds after this response.
    fn after(head: &str, seconds: i64) -> Lookup {
        let mut cache = Cache::default();
        cache.receive(URL, GET, 200, head, 1_445_412_480_000);
        cache.lookup(URL, GET, 1_445_412_480_000 + seconds * 1000)
    }

    #[test]
    fn freshness_is_as_the_server_says() {
        assert_eq!(after("Cache-Control: public, max-age=10\n", 9), Lookup::Fresh);
        assert_eq!(after("Cache-Control: max-age=10\n", 10), Lookup::Absent);
        assert_eq!(after("Cache-Control: max-age=10\nAge: 4\n", 6), Lookup::Absent);
        assert_eq!(after("Cache-Control: no-store, max-age=10\nETag: \"a\"\n", 0), Lookup::Absent);
        let stale = |fields: &str| Lookup::Stale(fields.to_owned());
        assert_eq!(after("Cache-Control: no-cache, max-age=10\nETag: \"a\"\n", 0), stale("If-None-Match: \"a\"\r\n"));
        let expires = "Date: Wed, 21 Oct 2015 07:28:00 GMT\nExpires: Wed, 21 Oct 2015 07:28:20 GMT\n";
        assert_eq!((after(expires, 19), after(expires, 20)), (Lookup::Fresh, Lookup::Absent));
        let modified = "Last-Modified: Wed, 21 Oct 2015 07:26:20 GMT\n";
        let asked = stale("If-Modified-Since: Wed, 21 Oct 2015 07:26:20 GMT\r\n");
        assert_eq!((after(modified, 9), after(modified, 10)), (Lookup::Fresh, asked));
        assert_eq!(after("Server: x\n", 0), Lookup::Absent);
    }

    #[test]
    fn unchanged_response_is_fresh_again() {
        let mut cache = Cache::default();
        cache.receive(URL, GET, 200, "Cache-Control: max-age=1\nETag: \"a\"\n", 0);
        assert_eq!(cache.lookup(URL, GET, 2000), Lookup::Stale("If-None-Match: \"a\"\r\n".to_owned()));
        cache.receive(URL, GET, 304, "Cache-Control: max-age=5\n", 2000);
        assert_eq!(cache.lookup(URL, GET, 6000), Lookup::Fresh);
        cache.receive(URL, GET, 500, "Cache-Control: max-age=5\n", 2000);
        assert_eq!(cache.lookup(URL, GET, 7000), Lookup::Stale("If-None-Match: \"a\"\r\n".to_owned()));
    }

    #[test]
    fn other_requests_are_not_answered() {
        let mut cache = Cache::default();
        cache.receive(URL, GET, 200, "Cache-Control: max-age=9\nVary: Accept-Language\n", 0);
        assert_eq!(cache.lookup(URL, GET, 0), Lookup::Fresh);
        assert_eq!(cache.lookup(URL, b"GET /x HTTP/1.1\r\nAccept-Language: de\r\n\r\n", 0), Lookup::Absent);
        assert_eq!(cache.lookup(URL, b"HEAD /x HTTP/1.1\r\nAccept-Language: en\r\n\r\n", 0), Lookup::Absent);
        assert_eq!(cache.lookup(URL, &with_fields(GET, "If-None-Match: \"b\"\r\n"), 0), Lookup::Absent);
        cache.receive(URL, GET, 200, "Cache-Control: max-age=9\nVary: *\n", 0);
        assert_eq!(cache.lookup(URL, GET, 0), Lookup::Absent);
        cache.receive(URL, b"POST /x HTTP/1.1\r\n\r\n", 200, "Cache-Control: max-age=9\n", 0);
        assert_eq!(cache.lookup(URL, GET, 0), Lookup::Absent);
    }

    #[test]
    fn cache_is_bounded() {
        let mut cache = Cache::default();
        for number in 0..=MOST_RESPONSES {
            cache.receive(&format!("http://a.test/{number}"), GET, 200, "Cache-Control: max-age=9\n", 0);
        }
        assert_eq!(cache.responses.len(), MOST_RESPONSES);
        assert_eq!(cache.lookup("http://a.test/0", GET, 0), Lookup::Absent);
        assert!(cache.memory_bytes() < 1_500_000);
    }

    /// What a cache says after a response with these `Vary` fields, and how many bytes it keeps.
    fn varied(vary: &str) -> (Lookup, usize) {
        let mut cache = Cache::default();
        cache.receive(URL, GET, 200, &format!("Cache-Control: max-age=9\n{vary}"), 0);
        (cache.lookup(URL, GET, 0), cache.bytes)
    }

    #[test]
    fn response_that_varies_by_too_much_is_not_kept() {
        let names = |count: usize| (0..count).map(|number| format!("x{number}")).collect::<Vec<_>>().join(",");
        let absent = (Lookup::Absent, 0);
        assert_eq!(varied(&format!("Vary: {}\n", "a,".repeat(32_768))), absent);
        assert_eq!(varied(&"Vary: aaaaaaaaaaaaaaaa\n".repeat(65)), absent);
        assert_eq!(varied(&format!("Vary: {}\n", names(MOST_VARY_NAMES + 1))), absent);
        assert_eq!(varied(&format!("Vary: {}\n", names(MOST_VARY_NAMES))).0, Lookup::Fresh);
        assert_eq!(varied("Vary: a\nVary: *\n"), absent);
        let once = varied("Vary: Accept-Language\n");
        assert_eq!(once.0, Lookup::Fresh);
        assert_eq!(varied("Vary: Accept-Language, accept-language\nVary: ACCEPT-LANGUAGE,,\n"), once);
        let mut cache = Cache::default();
        let long = format!("GET /x HTTP/1.1\r\nCookie: {}\r\n\r\n", "c".repeat(32_768));
        cache.receive(URL, long.as_bytes(), 200, "Cache-Control: max-age=9\nVary: Cookie\n", 0);
        assert_eq!((cache.lookup(URL, long.as_bytes(), 0), cache.memory_bytes()), (Lookup::Absent, 0));
    }

    #[test]
    fn cache_is_bounded_in_bytes() {
        let url = |number: usize| format!("http://a.test/{number:0>width$}", width = LONGEST_URL_BYTES - 14);
        let mut cache = Cache::default();
        let head = format!("Cache-Control: max-age=9\nETag: \"{}\"\n", "e".repeat(1000));
        for number in 0..2000 {
            cache.receive(&url(number), GET, 200, "Cache-Control: max-age=9\n", 0);
            cache.receive(&url(number), GET, 304, &head, 0);
            let map_bytes = cache.responses.capacity() * (size_of::<Kept>() + 24);
            assert!(cache.memory_bytes() <= MOST_BYTES + map_bytes);
        }
        assert_eq!(cache.bytes, cache.responses.iter().map(|(url, kept)| kept.bytes(url)).sum::<usize>());
        assert!(cache.bytes > MOST_BYTES - 2 * LONGEST_URL_BYTES);
        assert_eq!((cache.lookup(&url(0), GET, 0), cache.lookup(&url(1999), GET, 0)), (Lookup::Absent, Lookup::Fresh));
        let long = url(0) + "0";
        cache.receive(&long, GET, 200, "Cache-Control: max-age=9\n", 0);
        assert_eq!(cache.lookup(&long, GET, 0), Lookup::Absent);
    }

    #[test]
    fn fields_follow_those_of_the_request() {
        let asked = with_fields(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody", "If-None-Match: x\r\n");
        assert_eq!(asked, b"GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: x\r\n\r\nbody");
    }
}
