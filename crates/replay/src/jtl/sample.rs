//! A sample of either form, as a request.

use crate::message::{is_dropped, push_field};
use crate::recorded::{Cause, Recorded, RecordedAnswer};
use crate::session::number_session;
use crate::target::split_url;

const MILLI_NS: i64 = 1_000_000;

/// What a sample has, as text; empty where it has nothing.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) start_ms: String,
    pub(super) latency_ms: String,
    pub(super) connect_ms: String,
    pub(super) code: String,
    pub(super) thread: String,
    pub(super) url: String,
    pub(super) method: String,
    pub(super) query: String,
    pub(super) head: String,
    pub(super) cookies: String,
}

impl Sample {
    /// Returns it as a request, or why it is none.
    pub(super) fn record(self) -> Result<Recorded, Cause> {
        // Samples of controllers and of other protocols.
        let place = split_url(self.url.as_bytes()).ok_or(Cause::NoRequest)?;
        let start_ms: i64 = self.start_ms.parse().map_err(|_| Cause::Malformed)?;
        let start_ns = start_ms.checked_mul(MILLI_NS).ok_or(Cause::Malformed)?;
        Ok(Recorded {
            lead_ns: 0,
            start_ns,
            precision_ns: MILLI_NS as u32,
            session: number_session(&[self.thread.as_bytes()]),
            fields: self.fields(),
            body: self.body(),
            answer: self.answer(),
            method: if self.method.is_empty() { b"GET".to_vec() } else { self.method.into_bytes() },
            target: place.target,
            host: place.host,
        })
    }

    fn fields(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        let mut has_cookie = false;
        for (name, value) in self.head.lines().filter_map(|line| line.split_once(':')) {
            // JMeter adds the address that it sent from.
            let is_own = name.starts_with("X-LocalAddress") || name.contains(' ');
            if !name.is_empty() && !is_own && !is_dropped(name.as_bytes()) {
                has_cookie |= name.eq_ignore_ascii_case("cookie");
                push_field(&mut fields, name.as_bytes(), value.trim().as_bytes());
            }
        }
        if !has_cookie && !self.cookies.is_empty() && !self.cookies.contains(['\r', '\n']) {
            push_field(&mut fields, b"Cookie", self.cookies.as_bytes());
        }
        fields
    }

    fn body(&self) -> Option<Vec<u8>> {
        let may_have_one = !matches!(self.method.as_str(), "GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE");
        match (may_have_one, self.query.as_str()) {
            (false, _) => Some(Vec::new()),
            (true, "") => None,
            (true, query) if query.contains("<actual file content, not shown here>") => None,
            (true, query) => Some(query.as_bytes().to_vec()),
        }
    }

    /// Latency includes the time to connect, if there was one.
    fn answer(&self) -> RecordedAnswer {
        let number = |text: &str| text.parse::<u64>().ok();
        let latency_ms = number(&self.latency_ms).filter(|latency_ms| *latency_ms > 0);
        let latency_ms = latency_ms.and_then(|ms| ms.checked_sub(number(&self.connect_ms).unwrap_or(0)));
        let status = self.code.parse().ok().filter(|status| (200..1000).contains(status));
        let latency_ns = status.and(latency_ms).and_then(|ms| ms.checked_mul(MILLI_NS as u64));
        RecordedAnswer { status, latency_ns, ..RecordedAnswer::default() }
    }
}
