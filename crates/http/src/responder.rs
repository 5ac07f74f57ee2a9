//! Chooses the response to each target and counts requests. Each thread has one [`Responder`], which keeps the last
//! request and the last rendered responses, so a load of equal requests costs comparisons and copies only. Knows
//! neither connections nor clocks.

mod counters;
mod render;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub use self::render::{Stream, BLOCKS};

pub(crate) use self::counters::Counter;
pub(crate) use self::render::{push_head, Answer, BodyFraming, Persistence, Rendered, PLAIN};

use self::counters::CounterTable;
use crate::behaviour::{Behaviour, Random, Share, Stalls};
use crate::{Malformed, Request};

/// Targets under this prefix belong to the responder itself and are not load.
const OWN_PREFIX: &[u8] = b"/_leadline/";
/// Requests up to this size, bytes, are recognised by their bytes.
const LARGEST_CACHED_REQUEST_BYTES: usize = 1024;
/// Number of rendered responses that are kept.
const CACHED_RESPONSES: usize = 8;
/// Number of separate accumulators for error shares.
const ERROR_SUMS: usize = 64;

/// Settings that all threads of a responder share.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The response to requests that set nothing else.
    pub behaviour: Behaviour,
    /// The stalls of the whole responder.
    pub stalls: Option<Stalls>,
    /// Start time on the monotonic clock, ns; stalls count from here.
    pub started_ns: u64,
    /// Description of the I/O backend, without quotes or backslashes.
    pub engine: String,
}

/// The responder of one thread.
#[derive(Debug)]
pub struct Responder {
    own: usize,
    shared: Arc<Shared>,
    random: Random,
    known: Known,
    kept: [Rendered; CACHED_RESPONSES],
}

#[derive(Debug)]
struct Shared {
    setup: Setup,
    counters: CounterTable,
    /// One accumulator per error share. Each request adds its share; when the sum passes a whole number, that request
    /// gets an error. Shares with the same hash use the same accumulator, and their total is still exact.
    error_sums: [AtomicU64; ERROR_SUMS],
}

/// The last request.
#[derive(Debug)]
struct Known {
    /// Its bytes, if it was short and had no body.
    bytes: Vec<u8>,
    request: Option<Request>,
    target: Vec<u8>,
    route: Route,
}

/// How a target is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Load(Behaviour),
    Stats,
    NotFound,
    /// A value in the query is out of bounds; the text says what is allowed.
    Unclear(&'static str),
    BadTarget,
}

impl Responder {
    /// Creates one responder for each of `threads` threads; each reports the sum of all.
    #[must_use]
    pub fn group(threads: usize, setup: Setup) -> Vec<Self> {
        let route = Route::Load(setup.behaviour);
        let error_sums = [const { AtomicU64::new(0) }; ERROR_SUMS];
        let shared = Arc::new(Shared { setup, counters: CounterTable::new(threads), error_sums });
        (0..threads)
            .map(|own| Self {
                own,
                shared: Arc::clone(&shared),
                random: Random(own as u64),
                known: Known { bytes: Vec::new(), request: None, target: b"/".to_vec(), route },
                kept: Default::default(),
            })
            .collect()
    }

    /// End of the current stall, ns; `None` outside a stall. Nothing may be read or written until then.
    #[inline]
    #[must_use]
    pub fn stalled_until(&self, now_ns: u64) -> Option<u64> {
        let Setup { stalls, started_ns, .. } = &self.shared.setup;
        stalls.as_ref()?.end(now_ns.saturating_sub(*started_ns)).map(|end_ns| started_ns + end_ns)
    }

    /// Beginning of the next stall, ns; `None` if stalls are not configured.
    #[inline]
    #[must_use]
    pub fn next_stall(&self, now_ns: u64) -> Option<u64> {
        let Setup { stalls, started_ns, .. } = &self.shared.setup;
        stalls.as_ref().map(|stalls| started_ns.saturating_add(stalls.next(now_ns.saturating_sub(*started_ns))))
    }

    /// Whether stalls are configured.
    #[inline]
    #[must_use]
    pub fn has_stalls(&self) -> bool {
        self.shared.setup.stalls.is_some()
    }

    /// Counts a connection.
    pub fn accepted(&self) {
        self.count(Counter::Connections, 1);
    }

    /// Counts a connection that was closed immediately after it was accepted.
    pub fn refused(&self) {
        self.count(Counter::Refused, 1);
    }

    /// Counts a connection that was closed after an idle timeout.
    pub fn expired(&self) {
        self.count(Counter::Expired, 1);
    }

    /// Counts a connection that was closed because all connections together used too much memory and this one used
    /// much.
    pub fn shed(&self) {
        self.count(Counter::Shed, 1);
    }

    /// Counts a connection that was closed while idle to make room for another peer's.
    pub fn displaced(&self) {
        self.count(Counter::Displaced, 1);
    }

    /// Counts a TLS handshake.
    pub fn handshake_completed(&self, resumed: bool) {
        self.count(if resumed { Counter::HandshakesResumed } else { Counter::HandshakesFull }, 1);
    }

    /// Counts a failed TLS connection by the failure's stable name.
    pub fn tls_failed(&self, name: &'static str) {
        self.shared.counters.tls_failed(name);
    }

    /// Number of complete requests on all threads, without the responder's own targets.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.counters.sum(Counter::Requests)
    }

    #[inline]
    pub(crate) fn count(&self, counter: Counter, amount: u64) {
        self.shared.counters.threads[self.own].add(counter, amount);
    }

    #[inline]
    pub(crate) fn count_answer(&self, status: u16) {
        self.shared.counters.threads[self.own].answered(status);
    }

    pub(crate) fn count_malformed(&self, cause: Malformed) {
        self.shared.counters.threads[self.own].malformed(cause);
    }

    /// All counters as a JSON object; times are on the responder's monotonic clock.
    pub(crate) fn stats(&self, now_ns: u64) -> String {
        let Setup { stalls, started_ns, engine, .. } = &self.shared.setup;
        let stalls = stalls.map_or(0, |stalls| stalls.begun(now_ns.saturating_sub(*started_ns)));
        let threads = self.shared.counters.threads.len();
        let fields = self.shared.counters.fields();
        format!(
            "{{{fields},\"stalls\":{stalls},\"threads\":{threads},\"engine\":\"{engine}\",\
             \"started_ns\":{started_ns},\"now_ns\":{now_ns}}}\n"
        )
    }

    /// Returns the previous request and its length if `input` begins with the same bytes.
    #[inline]
    pub(crate) fn recognise(&self, input: &[u8]) -> Option<(Request, Route, usize)> {
        let request = self.known.request?;
        input.starts_with(&self.known.bytes).then_some((request, self.known.route, self.known.bytes.len()))
    }

    /// Stores the bytes of a complete request with its parsed form.
    #[inline]
    pub(crate) fn remember(&mut self, bytes: &[u8], request: Request) {
        self.known.request =
            (request.body_bytes == 0 && bytes.len() <= LARGEST_CACHED_REQUEST_BYTES).then_some(request);
        if self.known.request.is_some() {
            self.known.bytes.clear();
            self.known.bytes.extend_from_slice(bytes);
        }
    }

    /// Chooses how to handle a target. Every path outside [`OWN_PREFIX`] is load.
    #[inline]
    pub(crate) fn route(&mut self, target: &[u8]) -> Route {
        if self.known.target != target {
            self.known.route = route(&self.shared.setup.behaviour, target);
            // The stored bytes belong to the previous target.
            self.known.request = None;
            self.known.target.clear();
            self.known.target.extend_from_slice(target);
        }
        self.known.route
    }

    /// Draws the delay of a response, ns.
    #[inline]
    pub(crate) fn draw_delay(&mut self, behaviour: &Behaviour) -> u64 {
        if behaviour.delay_ns == 0 {
            return 0;
        }
        behaviour.shape.draw(behaviour.delay_ns, &mut self.random)
    }

    /// Whether the next request gets an error, according to this share.
    #[inline]
    pub(crate) fn draw_error(&self, share: Share) -> bool {
        let parts = share.parts();
        if parts == 0 {
            return false;
        }
        // A multiplicative hash: its high bits depend on all bits of the share.
        let place = (parts.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        let before = self.shared.error_sums[place].fetch_add(parts, Ordering::Relaxed);
        before / Share::WHOLE != before.wrapping_add(parts) / Share::WHOLE
    }

    /// Returns the bytes of a response, from the cache if possible.
    #[inline]
    pub(crate) fn rendered(&mut self, answer: &Answer) -> &Rendered {
        let place = usize::from(answer.status) ^ answer.body_bytes as usize ^ (answer.persistence as usize) << 1;
        let kept = &mut self.kept[place % CACHED_RESPONSES];
        kept.render_if_changed(answer);
        kept
    }
}

fn route(default: &Behaviour, target: &[u8]) -> Route {
    let Some(path) = origin_form(target) else { return Route::BadTarget };
    let mut parts = path.splitn(2, |&byte| byte == b'?');
    let path = parts.next().unwrap_or_default();
    if path == b"/_leadline/stats" {
        return Route::Stats;
    }
    if path.starts_with(OWN_PREFIX) || path == OWN_PREFIX.strip_suffix(b"/").unwrap_or(OWN_PREFIX) {
        return Route::NotFound;
    }
    default.with_query(parts.next().unwrap_or_default()).map_or_else(Route::Unclear, Route::Load)
}

/// Returns the path and query of a target.
///
/// RFC 9112, 3.2.2: "a server MUST accept the absolute-form in requests".
fn origin_form(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") || target == b"*" {
        return Some(target);
    }
    let scheme_end = target.windows(3).position(|window| window == b"://")?;
    let authority = &target[scheme_end + 3..];
    let path = authority.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(authority.len());
    let scheme = &target[..scheme_end];
    (scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")).then_some(&authority[path..])
}

#[cfg(test)]
mod tests {
    use super::{route, Responder, Route, Setup};
    use crate::behaviour::{Behaviour, Share, Stalls, DEFAULT_BODY_BYTES, LARGEST_BODY_BYTES};

    fn setup() -> Setup {
        Setup { behaviour: Behaviour::default(), stalls: None, started_ns: 0, engine: "none".into() }
    }

    #[test]
    fn targets_are_routed() {
        let body = |body_bytes| Route::Load(Behaviour { body_bytes, ..Behaviour::default() });
        let cases: [(&[u8], Route); 13] = [
            (b"/", body(DEFAULT_BODY_BYTES)),
            (b"*", body(DEFAULT_BODY_BYTES)),
            (b"/index.html?x=1", body(DEFAULT_BODY_BYTES)),
            (b"/?size=0", body(0)),
            (b"/a?x=1&size=100", body(100)),
            (b"/?size=1073741824", body(LARGEST_BODY_BYTES)),
            (b"/_leadline/stats", Route::Stats),
            (b"/_leadline/other", Route::NotFound),
            (b"/_leadline", Route::NotFound),
            (b"http://a:80/?size=7", body(7)),
            (b"HTTPS://a:80?size=7", body(7)),
            (b"ftp://a/", Route::BadTarget),
            (b"a:80", Route::BadTarget),
        ];
        for (target, expected) in cases {
            assert_eq!(route(&Behaviour::default(), target), expected, "{}", String::from_utf8_lossy(target));
        }
        for unclear in ["/?size=1073741825", "/?status=99", "/?delay=5&size=1"] {
            assert!(matches!(route(&Behaviour::default(), unclear.as_bytes()), Route::Unclear(_)), "{unclear}");
        }
    }

    #[test]
    fn errors_are_spread_evenly_over_all_threads() {
        for (ratio, requests) in [(0.01, 12_345u64), (0.3, 1000), (1.0, 77), (0.0, 50), (0.000_7, 100_000)] {
            let group = Responder::group(3, setup());
            let share = Share::from_ratio(ratio).unwrap();
            let mut errors = 0;
            for n in 1..=requests {
                errors += u64::from(group[n as usize % 3].draw_error(share));
                let parts = u128::from(n) * u128::from(share.parts());
                assert_eq!(u128::from(errors), parts / u128::from(Share::WHOLE), "{ratio} after {n}");
            }
        }
    }

    #[test]
    fn different_error_shares_are_independent() {
        let responder = Responder::group(1, setup()).remove(0);
        let (often, seldom) = (Share::from_ratio(0.5).unwrap(), Share::from_ratio(0.1).unwrap());
        let drawn: Vec<_> = (0..1000).map(|_| (responder.draw_error(often), responder.draw_error(seldom))).collect();
        assert_eq!(drawn.iter().filter(|(often, _)| *often).count(), 500);
        assert_eq!(drawn.iter().filter(|(_, seldom)| *seldom).count(), 100);
    }

    #[test]
    fn stalls_count_from_the_responders_start() {
        let stalls = Stalls::new(100, 10);
        let responder = Responder::group(1, Setup { stalls, started_ns: 1000, ..setup() }).remove(0);
        assert_eq!((responder.stalled_until(1099), responder.next_stall(1099)), (None, Some(1100)));
        assert_eq!((responder.stalled_until(1100), responder.next_stall(1100)), (Some(1110), Some(1200)));
        assert_eq!(responder.stalled_until(1110), None);
        assert!(responder.stats(1205).contains("\"stalls\":2,"));
    }
}
