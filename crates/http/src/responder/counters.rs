//! The counters of a responder. Each thread writes only its own counters, so counting needs no lock; every thread may
//! read all of them. Failed handshakes are rare and share one table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::Malformed;

/// Status codes that a response can have.
pub(crate) const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;
const STATUS_COUNT: usize = 400;

/// The counters of one thread. Only that thread writes them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counters {
    values: [AtomicU64; Counter::ALL.len()],
    by_status: [AtomicU64; STATUS_COUNT],
    by_cause: [AtomicU64; Malformed::ALL.len()],
}

/// A counter's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Complete requests, without the responder's own targets.
    Requests,
    /// Requests for the responder's own targets.
    OwnRequests,
    /// HTTP bytes read from all connections.
    BytesReceived,
    /// HTTP bytes written to all connections.
    BytesSent,
    /// Connections accepted.
    Connections,
    /// Accepted connections that were closed immediately because of the connection limit.
    Refused,
    /// Accepted connections that were closed after an idle timeout.
    Expired,
    /// Accepted connections that were closed because of the common memory limit.
    Shed,
    /// Accepted connections that were closed while idle to make room for another peer's.
    Displaced,
    /// Responses with status 500 because of an error share.
    Errors,
    /// Responses that were delayed.
    Delayed,
    /// TLS handshakes with a certificate.
    HandshakesFull,
    /// TLS handshakes that resumed a session.
    HandshakesResumed,
}

impl Counter {
    const ALL: [(Counter, &'static str); 13] = [
        (Counter::Requests, "requests"),
        (Counter::OwnRequests, "own_requests"),
        (Counter::BytesReceived, "bytes_received"),
        (Counter::BytesSent, "bytes_sent"),
        (Counter::Connections, "connections"),
        (Counter::Refused, "refused"),
        (Counter::Expired, "expired"),
        (Counter::Shed, "shed"),
        (Counter::Displaced, "displaced"),
        (Counter::Errors, "errors"),
        (Counter::Delayed, "delayed"),
        (Counter::HandshakesFull, "handshakes_full"),
        (Counter::HandshakesResumed, "handshakes_resumed"),
    ];
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            values: Default::default(),
            by_status: [const { AtomicU64::new(0) }; STATUS_COUNT],
            by_cause: Default::default(),
        }
    }
}

impl Counters {
    #[inline]
    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        add(&self.values[counter as usize], amount);
    }

    /// Counts a response to a load request.
    #[inline]
    pub(crate) fn answered(&self, status: u16) {
        if let Some(value) = self.by_status.get(usize::from(status).wrapping_sub(usize::from(*STATUSES.start()))) {
            add(value, 1);
        }
    }

    pub(crate) fn malformed(&self, cause: Malformed) {
        add(&self.by_cause[cause.index()], 1);
    }
}

/// Adds with a load and a store: there is one writer, so no locked instruction is needed.
#[inline]
fn add(value: &AtomicU64, amount: u64) {
    value.store(value.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// The counters of all threads.
#[derive(Debug, Default)]
pub(crate) struct CounterTable {
    pub(crate) threads: Box<[Counters]>,
    tls_failures: Mutex<BTreeMap<&'static str, u64>>,
}

impl CounterTable {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads: (0..threads).map(|_| Counters::default()).collect(), tls_failures: Mutex::default() }
    }

    /// Counts a failed handshake or record by its name.
    pub(crate) fn tls_failed(&self, name: &'static str) {
        *self.tls_failures.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }

    pub(crate) fn sum(&self, counter: Counter) -> u64 {
        self.total(|counters| &counters.values[counter as usize])
    }

    fn total(&self, of: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.threads.iter().map(|counters| of(counters).load(Ordering::Relaxed)).sum()
    }

    /// All counters as the fields of a JSON object, without its braces.
    pub(crate) fn fields(&self) -> String {
        let mut text = String::new();
        for (counter, name) in Counter::ALL {
            let _ = write!(text, "\"{name}\":{},", self.sum(counter));
        }
        let by_status: Vec<(u16, u64)> = STATUSES
            .zip(0..)
            .map(|(status, place): (u16, usize)| (status, self.total(|counters| &counters.by_status[place])))
            .collect();
        for class in 2..=5 {
            let answers: u64 = by_status.iter().filter(|(status, _)| status / 100 == class).map(|(_, n)| n).sum();
            let _ = write!(text, "\"status_{class}xx\":{answers},");
        }
        let malformed = Malformed::ALL.map(|cause| (cause.name(), self.total(|all| &all.by_cause[cause.index()])));
        let all_malformed: u64 = malformed.iter().map(|(_, n)| n).sum();
        let failures = self.tls_failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all_failures: u64 = failures.values().sum();
        let _ = write!(text, "\"malformed\":{all_malformed},\"tls_failures\":{all_failures}");
        push_object(&mut text, "by_status", by_status);
        push_object(&mut text, "malformed_by_cause", malformed);
        push_object(&mut text, "tls_failures_by_name", failures);
        text
    }
}

/// Appends `,"name":{...}` with the counters that are not 0.
fn push_object<K: std::fmt::Display>(text: &mut String, name: &str, counts: impl IntoIterator<Item = (K, u64)>) {
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let inner: Vec<String> = counts.map(|(key, count)| format!("\"{key}\":{count}")).collect();
    let _ = write!(text, ",\"{name}\":{{{}}}", inner.join(","));
}

#[cfg(test)]
mod tests {
    use super::{Counter, CounterTable};
    use crate::Malformed;

    #[test]
    fn counters_are_listed_in_index_order() {
        for (place, (counter, _)) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, place);
        }
    }

    #[test]
    fn sums_are_over_all_threads() {
        let counters = CounterTable::new(2);
        for thread in &counters.threads {
            thread.add(Counter::Requests, 3);
            thread.answered(503);
            thread.malformed(Malformed::FieldLine);
        }
        for outside in [0, 199, 600, u16::MAX] {
            counters.threads[0].answered(outside);
        }
        counters.tls_failed("tls_malformed");
        let fields = counters.fields();
        for field in [
            "\"requests\":6,",
            "\"status_5xx\":2,",
            "\"status_2xx\":0,",
            "\"malformed\":2,",
            "\"by_status\":{\"503\":2}",
            "\"malformed_by_cause\":{\"malformed_field_line\":2}",
            "\"tls_failures_by_name\":{\"tls_malformed\":1}",
        ] {
            assert!(fields.contains(field), "{field} in {fields}");
        }
    }
}
