//! The interface between the machine of the connections and its caller: inputs and effects.

use std::sync::Arc;

use leadline_http::client::{Failure, SocketUse};

use super::connection::Origin;
use crate::figures::Age;
use crate::machine::{ExchangeEnd, ExchangeFailure, Send};

/// An event of a connection. What goes over TLS is passed as the plaintext that it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The TCP handshake has ended, with or without success.
    Connected,
    /// The TLS handshake has ended.
    Secured {
        /// Whether an earlier session was resumed.
        resumed: bool,
    },
    /// Bytes arrived; [`Effects::received`] returns them.
    Received,
    /// The system took this many further bytes of the request.
    Sent(usize),
    /// Sending failed. The unsent rest is dropped.
    NotSent {
        /// Bytes of the request that were reported as taken, and were not.
        missing: usize,
        /// Why it failed.
        failure: Failure,
    },
    /// What arrived cannot be read.
    Unreadable(Failure),
    /// The peer ended the connection, or the connection broke; no further input comes.
    Ended(StreamEnd),
}

/// How a peer's stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// In order.
    Clean,
    /// In order, but before the end that TLS announces.
    Cut(Failure),
    /// The connection broke.
    Broken(Failure),
}

/// The first step towards a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialled {
    /// The name is being resolved; [`super::Connections::resolved`] follows.
    Resolving,
    /// The TCP handshake; [`Input::Connected`] follows.
    Connecting,
}

/// What the machine does. The caller owns sockets, TLS, the resolver, the clock, and the users.
pub trait Effects {
    /// Connects to an origin, if its address is known.
    ///
    /// # Errors
    /// Why it cannot be reached.
    fn open(&mut self, slot: u32, origin: &Origin) -> Result<Dialled, Failure>;

    /// Begins to receive on a connection whose TCP handshake has ended.
    ///
    /// # Errors
    /// Why the handshake failed.
    fn take_up(&mut self, slot: u32) -> Result<(), Failure>;

    /// Begins TLS; [`Input::Secured`] or a failure follows.
    ///
    /// # Errors
    /// Why it cannot begin.
    fn secure(&mut self, slot: u32, host: &Arc<str>) -> Result<(), Failure>;

    /// Sends a request; returns how many of its bytes the system took at once. [`Input::Sent`] reports the others.
    ///
    /// # Errors
    /// Why they were not sent.
    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, Failure>;

    /// When the last send was handed to the kernel, ns; `None` while a send is queued.
    fn handed_over_ns(&self) -> Option<u64>;

    /// The bytes of the last [`Input::Received`].
    fn received(&self) -> &[u8];

    /// Ends a connection; no input of it follows.
    fn close(&mut self, slot: u32, then: SocketUse);

    /// Counts bytes and whole requests that were sent.
    fn count_sent(&mut self, bytes: u64, requests: u64);

    /// Takes back what counted as sent.
    fn take_back(&mut self, bytes: u64, requests: u64);

    /// Counts bytes and whole responses that were received.
    fn count_received(&mut self, bytes: u64, responses: u64);

    /// A request has its response.
    fn answered(&mut self, send: &Send, end: &ExchangeEnd<'_>, now_ns: u64);

    /// A request gets no response.
    fn failed(&mut self, send: &Send, failure: ExchangeFailure, now_ns: u64);

    /// A request was outstanding when it was given up.
    fn given_up(&mut self, send: &Send, age: Age);
}
