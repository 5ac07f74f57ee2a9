//! Counters of a pool beside those that [`Effects`](super::Effects) keeps.

use crate::Outstanding;

/// Counts of one thread's requests and connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that were sent completely and had no complete response when the load ended.
    pub unanswered: u64,
    /// Unanswered requests that were sent more than a second before the end.
    pub unanswered_long: u64,
    /// Requests that were due and not sent completely when the load ended.
    pub unsent: u64,
    /// Unsent requests that waited for the server: no connection was free, or the socket did not take them.
    pub unsent_while_busy: u64,
    /// Unsent requests whose age was not recorded because there were too many.
    pub unsent_without_age: u64,
    /// Requests that were sent, and were due while no connection was free.
    pub due_while_busy: u64,
    /// Connections that could not be reopened by the end.
    pub connections_down: u64,
    /// Bytes of response bodies.
    pub body_bytes: u64,
    /// Connections whose TCP handshake succeeded.
    pub connections_opened: u64,
    /// TLS handshakes with a certificate.
    pub tls_full: u64,
    /// TLS handshakes that resumed a session.
    pub tls_resumed: u64,
    /// Redirects that were followed.
    pub redirects: u64,
    /// Requests that the socket did not take completely at once.
    pub pushback: u64,
    /// Requests that ended, with a response or an error, before their last byte was sent.
    pub cut_off: u64,
    /// Responses by the first digit of their status code.
    pub status: [u64; 10],
    /// When the first request was sent, ns.
    pub first_sent_ns: Option<u64>,
    /// When the last request ended, with or without a response, ns.
    pub last_ns: Option<u64>,
    /// When the load ended, ns.
    pub end_ns: Option<u64>,
}

impl Tally {
    /// Counts requests that end without a response, if they were not sent completely.
    pub fn count_cut_off(&mut self, ended: Outstanding) {
        self.cut_off += if ended.was_sent { 0 } else { u64::from(ended.requests) };
    }
}

/// Names of the elements of [`Tally::status`].
pub const STATUS_CLASSES: [&str; 10] = [
    "status_0xx",
    "status_1xx",
    "status_2xx",
    "status_3xx",
    "status_4xx",
    "status_5xx",
    "status_6xx",
    "status_7xx",
    "status_8xx",
    "status_9xx",
];
