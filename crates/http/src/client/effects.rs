//! What passes between the machine and its caller: inputs, and the effects that they have. Owns the names of the distributions.

use std::net::SocketAddr;
use std::ops::Range;

use crate::Timing;
use leadline_tls::TlsFailure;

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The server's name was looked up.
    Resolved {
        /// Its address, or why there is none.
        address: Result<SocketAddr, String>,
        /// How long that took, ns.
        took_ns: u64,
    },
    /// TCP's handshake has ended, well or not.
    Connected,
    /// Bytes came; [`Effects::received`] has them.
    Received,
    /// The system took this many bytes of what [`Effects::send`] or [`Effects::send_copy`] did not promise.
    Sent(usize),
    /// Sending failed. What is left of it is dropped.
    NotSent {
        /// Bytes that were promised and not taken.
        missing: usize,
        /// Why.
        failure: Failure,
    },
    /// The peer ended the connection, or it broke; nothing more will come.
    Ended(Result<(), Failure>),
}

/// Why a step failed: under which name it is counted, and what there is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable name.
    pub name: &'static str,
    /// The first one of a name is shown to the user.
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
    /// Which connection.
    pub index: usize,
    /// Which of its lives: an answer for an earlier one is of no use.
    pub epoch: u32,
    /// When the attempt is given up, ns.
    pub give_up_ns: u64,
    /// The address; the load's server where absent.
    pub address: Option<SocketAddr>,
}

/// What an attempt begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The name is looked up; [`Input::Resolved`] follows.
    Resolving,
    /// TCP's handshake; [`Input::Connected`] follows.
    Connecting,
}

/// What becomes of a socket that its connection no longer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketUse {
    /// It is closed.
    Close,
    /// Requests are outstanding at the load's end: it is kept, so that the server can read them.
    Keep,
}

/// What became of a connection's last send by the time that its socket was detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// Bytes that were promised and not taken.
    pub unsent_bytes: usize,
    /// Bytes that were not promised and were taken, without an [`Input::Sent`].
    pub taken_bytes: usize,
}

/// What is recorded as a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// From due to answered.
    Latency,
    /// From sent to answered.
    Service,
    /// From when a request was due and a connection was free to sent.
    Late,
    /// Looking a name up.
    Dns,
    /// TCP's handshake.
    Connect,
    /// A TLS handshake that authenticated.
    TlsFull,
    /// A TLS handshake that resumed a session.
    TlsResumed,
    /// From sent to the first byte of the response.
    FirstByte,
    /// From the first byte of the response to its last.
    Transfer,
    /// How long received bytes waited in the kernel.
    KernelWait,
    /// Ages of requests that had no answer when they were given up or the time was over: their latency is at least that.
    LatencyCensored,
    /// The same from sent, of those that were.
    ServiceCensored,
}

impl Metric {
    /// Names in the results, in the order of the variants.
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

/// What the machine does to the world: sockets by the number of their connection, counts and distributions. On the way of
/// a request each call is one of a type known at compile time, so that it costs no more than code written in its place.
pub trait Effects {
    /// The time after all effects so far, ns. Effects take time; what begins after them is timed by this, and not by the
    /// instant of the input.
    fn now_ns(&self) -> u64;

    /// Begin to open a connection.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open(&mut self, attempt: Attempt) -> Result<Opening, Failure>;

    /// Take up a socket whose TCP handshake has ended: receive on it from now on.
    ///
    /// # Errors
    /// Why it is not connected.
    fn take_up(&mut self, index: usize) -> Result<(), Failure>;

    /// Send this part of [`Settings::payload`]. Returns how many bytes the system takes at once; [`Input::Sent`] tells of
    /// the others, and [`Input::NotSent`] corrects a promise.
    ///
    /// # Errors
    /// Why nothing can be sent.
    fn send(&mut self, index: usize, piece: Range<usize>) -> Result<usize, Failure>;

    /// Send a copy of these bytes after all that was given before; returns the same.
    ///
    /// # Errors
    /// As [`Effects::send`].
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> Result<usize, Failure>;

    /// When the last of what was sent so far was handed to the kernel, ns; `None` while some of it is queued.
    fn handed_over_ns(&self) -> Option<u64>;

    /// The bytes of [`Input::Received`].
    fn received(&self) -> &[u8];

    /// Take a connection's socket away; no input tells of it any more. `None` where it has none.
    fn detach(&mut self, index: usize, then: SocketUse) -> Option<Detached>;

    /// Count what was sent.
    fn count_sent(&mut self, bytes: u64, requests: u64);

    /// Correct what was counted as sent.
    fn take_back(&mut self, bytes: u64, requests: u64);

    /// Count what was received.
    fn count_received(&mut self, bytes: u64, responses: u64);

    /// Count failed requests under one name. The first one's detail is shown.
    fn count_failure(&mut self, name: &'static str, requests: u64, detail: impl FnOnce() -> String);

    /// Keep the first example of something that is counted elsewhere.
    fn keep_example(&mut self, name: &'static str, detail: impl FnOnce() -> String);

    /// Record a duration of an operation. What was due before the warm-up's end is warm-up; what has no `due_ns` is not.
    fn record(&mut self, metric: Metric, due_ns: Option<u64>, value_ns: u64);

    /// Record how late a request was sent.
    fn record_late(&mut self, due_ns: u64, late_ns: u64);

    /// Record a response's latency, service time, time to the first byte and transfer time.
    fn record_response(&mut self, timing: &Timing);
}
