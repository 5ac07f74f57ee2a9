//! What the machine of the connections asks of its caller.

use std::sync::Arc;

use leadline_http::client::{ClientTls, Failure, Opening, SocketUse, Wire};

use super::connection::Origin;
use crate::figures::Age;
use crate::programs::flow::{ExchangeEnd, ExchangeFailure, Send};

/// What the machine does. The caller owns sockets, the resolver, the clock, and the users. A connection's index is its slot.
pub trait Effects: Wire {
    /// Connects to an origin, if its address is known; else [`super::Connections::resolved`] follows.
    ///
    /// # Errors
    /// Why it cannot be reached.
    fn open(&mut self, slot: u32, origin: &Origin) -> Result<Opening, Failure>;

    /// Begins to receive on a connection whose TCP handshake has ended.
    ///
    /// # Errors
    /// Why the handshake failed.
    fn take_up(&mut self, slot: u32) -> Result<(), Failure>;

    /// Returns what TLS connections to a host have in common.
    ///
    /// # Errors
    /// Why there is no TLS.
    fn tls(&mut self, host: &Arc<str>) -> Result<ClientTls, Failure>;

    /// When the last send was handed to the kernel, ns; `None` while a send is queued.
    fn handed_over_ns(&self) -> Option<u64>;

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
