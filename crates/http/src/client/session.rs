//! An HTTP/1.1 session: the exchange of a connection over its channel, one request or batch at a time. Owns what of a
//! request was sent, and what the end of the peer's stream means. The caller owns what a request is, and when it is due.

use super::channel::{Buffers, Channel};
use super::effects::{Failure, Wire};
use crate::{ClientConnection, Closed};

/// The session of one connection.
#[derive(Default)]
pub struct Session {
    /// What carries the exchange.
    pub channel: Channel,
    /// The outstanding request or batch.
    pub exchange: ClientConnection,
    /// Number of requests that were answered before they were known to be sent completely.
    pub answered_early: u32,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of requests.
    pub bytes: u64,
    /// Requests that are sent completely.
    pub requests: u64,
}

impl Session {
    /// Returns the session of a connection without a socket.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self { channel: Channel::new(index), ..Self::default() }
    }

    /// Sends bytes of the request that has begun.
    ///
    /// # Errors
    /// Why nothing can be sent.
    #[inline]
    pub fn send(&mut self, bytes: &[u8], buffers: &mut Buffers, wire: &mut impl Wire) -> Result<Sent, Failure> {
        let taken = self.channel.send(bytes, buffers, wire)?;
        Ok(self.on_taken(taken))
    }

    /// Handles that the socket took bytes; returns what was sent by that.
    #[inline]
    pub fn on_taken(&mut self, bytes: usize) -> Sent {
        let bytes = self.channel.count_taken(bytes, self.exchange.unsent_bytes());
        if !self.exchange.is_sending() && self.answered_early == 0 {
            return Sent::default();
        }
        let whole = self.exchange.sent(bytes);
        Sent { bytes: bytes as u64, requests: if whole { u64::from(self.exchange.batch_requests()) } else { 0 } }
    }

    /// Handles that the socket did not take bytes that it had promised to take; returns what was not sent.
    pub fn take_back(&mut self, bytes: usize) -> Sent {
        // Of a request in TLS records nothing counts as sent before all of them are; none of them is promised.
        if bytes == 0 || self.channel.is_sealed() {
            return Sent::default();
        }
        let was_sent = self.exchange.outstanding().is_some_and(|outstanding| outstanding.was_sent);
        self.exchange.take_back(bytes);
        // A request that was answered still counts as sent.
        Sent { bytes: bytes as u64, requests: if was_sent { u64::from(self.exchange.batch_requests()) } else { 0 } }
    }

    /// Handles the end of the peer's stream. Without the end that TLS announces, a response that ends with the connection
    /// may be truncated: it is none, and the failure says why.
    pub fn end(&mut self, at_ns: u64) -> (Closed, Option<Failure>) {
        let Some(outstanding) = self.exchange.outstanding() else { return (self.exchange.ended(at_ns), None) };
        match self.channel.end() {
            Ok(()) => (self.exchange.ended(at_ns), None),
            Err(cut) => {
                self.exchange.close();
                (Closed::Early(outstanding), Some(cut))
            }
        }
    }

    /// Closes the session; its index stays.
    pub fn close(&mut self) {
        self.exchange.close();
        self.channel.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Outstanding};

    /// A socket that takes this many bytes at once.
    struct Taking(usize);

    impl Wire for Taking {
        fn send_copy(&mut self, _index: usize, bytes: &[u8]) -> Result<usize, Failure> {
            Ok(bytes.len().min(self.0))
        }

        fn received(&self) -> &[u8] {
            &[]
        }
    }

    #[test]
    fn a_request_counts_when_all_of_it_is_taken_and_until_it_is_taken_back() {
        let mut session = Session::new(3);
        session.exchange.opened();
        session.exchange.begin(0, 1, Batch { bytes: 6, requests: 2, expects_no_body: false });
        let sent = session.send(b"abcdef", &mut Buffers::default(), &mut Taking(2)).unwrap();
        assert_eq!(sent, Sent { bytes: 2, requests: 0 });
        assert_eq!(session.take_back(1), Sent { bytes: 1, requests: 0 });
        assert_eq!(session.on_taken(5), Sent { bytes: 5, requests: 2 });
        assert_eq!(session.on_taken(5), Sent::default());
        assert_eq!(session.take_back(2), Sent { bytes: 2, requests: 2 });
        assert_eq!(session.end(2), (Closed::Early(Outstanding { requests: 2, was_sent: false }), None));
        assert_eq!(session.end(3), (Closed::Idle, None));
    }
}
