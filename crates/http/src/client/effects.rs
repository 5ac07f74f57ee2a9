//! The interface between the machine and its caller: inputs and effects. Owns the names of the distributions.

use std::net::SocketAddr;
use std::ops::Range;

use crate::Timing;
use leadline_tls::TlsFailure;

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The lookup of the server's name has ended.
    Resolved {
        /// The address, or why there is none.
        address: Result<SocketAddr, String>,
        /// Duration of the lookup, ns.
        took_ns: u64,
    },
    /// The TCP handshake has ended, with or without success.
    Connected,
    /// Bytes arrived; [`Effects::received`] returns them.
    Received,
    /// The system took this many of the bytes that [`Effects::send`] or [`Wire::send_copy`] did not promise.
    Sent(usize),
    /// Sending failed. The unsent rest is dropped.
    NotSent {
        /// Bytes that were promised and not taken.
        missing: usize,
        /// Why it failed.
        failure: Failure,
    },
    /// The peer ended the connection, or the connection broke; no further input comes.
    Ended(Result<(), Failure>),
}

/// Why a step failed: the name of its counter and a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The stable name of the counter.
    pub name: &'static str,
    /// A description; the user sees the first one of each name.
    pub detail: String,
}

impl From<TlsFailure> for Failure {
    fn from(failure: TlsFailure) -> Self {
        Self { name: failure.name, detail: failure.detail }
    }
}

/// One attempt to open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Index of the connection.
    pub index: usize,
    /// The connection's epoch; a result for an earlier epoch is ignored.
    pub epoch: u32,
    /// When the attempt times out, ns.
    pub give_up_ns: u64,
    /// The address; `None` means the load's server.
    pub address: Option<SocketAddr>,
}

/// The first step of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Name lookup; [`Input::Resolved`] follows.
    Resolving,
    /// The TCP handshake; [`Input::Connected`] follows.
    Connecting,
}

/// What happens to a detached socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketUse {
    /// It is closed.
    Close,
    /// It is kept open, because requests are outstanding at the load's end and the server must be able to read them.
    Keep,
}

/// The outcome of a connection's last send when its socket was detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// Bytes that were promised and not taken.
    pub unsent_bytes: usize,
    /// Bytes that were not promised and were taken without an [`Input::Sent`].
    pub taken_bytes: usize,
}

/// A distribution that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// From due to response.
    Latency,
    /// From sent to response.
    Service,
    /// From the time when a request was due and a connection was free, to sent.
    Late,
    /// Name lookup.
    Dns,
    /// TCP handshake.
    Connect,
    /// TLS handshake with a certificate.
    TlsFull,
    /// TLS handshake that resumed a session.
    TlsResumed,
    /// From sent to the first byte of the response.
    FirstByte,
    /// From the first byte of the response to the last.
    Transfer,
    /// Time that received bytes waited in the kernel.
    KernelWait,
    /// Age, since due, of requests without a response when they failed or the load ended: a lower bound of their
    /// latency.
    LatencyCensored,
    /// The same age since sent, for requests that were sent.
    ServiceCensored,
}

impl Metric {
    /// The names in the results, in the order of the variants.
    pub const NAMES: &'static [&'static str] = &[
        "latency",
        "service",
        "late",
        "dns",
        "connect",
        "tls_full",
        "tls_resumed",
        "first_byte",
        "transfer",
        "kernel_wait",
        "latency_censored",
        "service_censored",
    ];
}

/// The bytes of connections, by connection index.
pub trait Wire {
    /// Sends a copy of these bytes after all earlier ones. Returns how many bytes the system takes immediately;
    /// [`Input::Sent`] reports the others, and [`Input::NotSent`] corrects a promise.
    ///
    /// # Errors
    /// Why nothing can be sent.
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> Result<usize, Failure>;

    /// Returns the bytes of [`Input::Received`].
    fn received(&self) -> &[u8];
}

/// The machine's actions: sockets by connection index, counts and distributions. The implementation is a type
/// parameter, so calls on a request's path are as cheap as inlined code.
pub trait Effects: Wire {
    /// Returns the current time, ns. Effects take time, so later steps use this time and not the time of the input.
    fn now_ns(&self) -> u64;

    /// Starts to open a connection.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open(&mut self, attempt: Attempt) -> Result<Opening, Failure>;

    /// Takes over a socket whose TCP handshake has ended, and starts to receive on it.
    ///
    /// # Errors
    /// Why it is not connected.
    fn take_up(&mut self, index: usize) -> Result<(), Failure>;

    /// Sends this part of [`Settings::payload`]; returns the same as [`Wire::send_copy`].
    ///
    /// # Errors
    /// Why nothing can be sent.
    fn send(&mut self, index: usize, piece: Range<usize>) -> Result<usize, Failure>;

    /// When the last bytes were handed to the kernel, ns; `None` while some are queued.
    fn handed_over_ns(&self) -> Option<u64>;

    /// Detaches a connection's socket; no more inputs follow. `None` if it has no socket.
    fn detach(&mut self, index: usize, then: SocketUse) -> Option<Detached>;

    /// Counts sent bytes and requests.
    fn count_sent(&mut self, bytes: u64, requests: u64);

    /// Corrects the count of sent bytes and requests.
    fn take_back(&mut self, bytes: u64, requests: u64);

    /// Counts received bytes and responses.
    fn count_received(&mut self, bytes: u64, responses: u64);

    /// Counts failed requests under one name. The user sees the first detail of each name.
    fn count_failure(&mut self, name: &'static str, requests: u64, detail: impl FnOnce() -> String);

    /// Keeps the first example of an event that is counted elsewhere.
    fn keep_example(&mut self, name: &'static str, detail: impl FnOnce() -> String);

    /// Records the duration of an operation. It is warm-up if `due_ns` is before the warm-up's end; without `due_ns`
    /// it is not.
    fn record(&mut self, metric: Metric, due_ns: Option<u64>, value_ns: u64);

    /// Records how late a request was sent.
    fn record_late(&mut self, due_ns: u64, late_ns: u64);

    /// Records a response's latency, service time, time to first byte and transfer time.
    fn record_response(&mut self, timing: &Timing);
}
