//! What a pool counts besides what [`Effects`](super::Effects) counts at once.

/// Counts of one thread's requests and connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests whose last byte was sent and whose response was not complete when the time was over.
    pub unanswered: u64,
    /// Those of them that had been sent more than a second before.
    pub unanswered_long: u64,
    /// Requests that were due and not sent whole when the time was over.
    pub unsent: u64,
    /// Those of them that waited for the server: no connection was free, or the socket did not take them.
    pub unsent_while_busy: u64,
    /// Those of them that were too many to take the age of each.
    pub unsent_without_age: u64,
    /// Requests that were sent, and fell due while no connection was free.
    pub due_while_busy: u64,
    /// Connections that could not be opened again by the end.
    pub connections_down: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Connections whose TCP handshake ended well.
    pub connections_opened: u64,
    /// TLS handshakes that authenticated.
    pub tls_full: u64,
    /// TLS handshakes that resumed a session.
    pub tls_resumed: u64,
    /// Redirects that were followed.
    pub redirects: u64,
    /// Requests that the socket did not take at once.
    pub pushback: u64,
    /// Responses by their status code's first digit.
    pub status: [u64; 10],
    /// When the first request was sent, ns.
    pub first_sent_ns: Option<u64>,
    /// When the last request ended, answered or not, ns.
    pub last_ns: Option<u64>,
    /// When the load ended, ns.
    pub end_ns: Option<u64>,
}

/// Names of [`Tally::status`], by place.
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
