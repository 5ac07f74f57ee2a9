//! What a connection carries below HTTP: bytes as they are, or TLS records. Owns which bytes the socket has not taken yet,
//! and what of a request is sent when it takes some. `dial` establishes it.

use leadline_tls::{ClientTls, Handshake, TlsClient};

use super::effects::{Failure, Wire};
use crate::ResponseParser;

/// The channel of one connection. After TCP it is ready, or becomes so by handshakes.
#[derive(Default)]
pub struct Channel {
    /// The connection's index, which identifies its socket.
    pub(super) index: usize,
    pub(super) tls: Option<Box<TlsClient>>,
    /// The proxy, until it accepts the connection.
    pub(super) proxy: Option<Box<Proxy>>,
    /// Bytes of handshakes and TLS records that the socket has not taken yet.
    records_left: usize,
}

/// A proxy that has not accepted the connection yet.
pub(super) struct Proxy {
    pub(super) parser: ResponseParser,
    /// TLS with the server behind it.
    pub(super) tls: Option<ClientTls>,
}

/// Buffers that the channels of a thread share.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Received plaintext.
    pub plain: Vec<u8>,
    /// TLS records of a request.
    sealed: Vec<u8>,
    /// Bytes of handshakes.
    pub(super) out: Vec<u8>,
}

/// What became of received TLS records; their plaintext is in [`Buffers::plain`].
#[derive(Debug)]
pub struct Unsealed {
    /// The handshake, if these records ended it.
    pub handshake: Option<Handshake>,
    /// Whether the peer announced the end of its data, or why the records cannot be read.
    pub is_over: Result<bool, Failure>,
}

impl Channel {
    /// Returns the channel of a connection without a socket.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self { index, ..Self::default() }
    }

    /// Forgets everything of the last socket.
    pub fn reset(&mut self) {
        *self = Self::new(self.index);
    }

    /// Whether it carries TLS records.
    #[inline]
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.tls.is_some()
    }

    /// Sends bytes of a request. Returns how many bytes the socket takes immediately, for [`Channel::count_taken`].
    ///
    /// # Errors
    /// Why nothing can be sent.
    #[inline]
    pub fn send(&mut self, bytes: &[u8], buffers: &mut Buffers, wire: &mut impl Wire) -> Result<usize, Failure> {
        let Some(tls) = &mut self.tls else { return wire.send_copy(self.index, bytes) };
        let sealed = &mut buffers.sealed;
        sealed.clear();
        tls.write_to(bytes, sealed);
        self.send_records(sealed, wire).map(|()| 0)
    }

    /// Sends TLS records, or the request to a proxy; they do not count as requests.
    pub(super) fn send_records(&mut self, bytes: &[u8], wire: &mut impl Wire) -> Result<(), Failure> {
        let taken = wire.send_copy(self.index, bytes)?;
        self.records_left += bytes.len() - taken;
        Ok(())
    }

    /// Returns how many bytes of a request, of which `unsent_bytes` are left, are sent now that the socket took this many
    /// bytes. Those in TLS records are sent when all records are.
    #[inline]
    pub fn count_taken(&mut self, bytes: usize, unsent_bytes: usize) -> usize {
        // Bytes for the handshake or the proxy come before the request.
        let records = bytes.min(self.records_left);
        self.records_left -= records;
        match &self.tls {
            None => bytes - records,
            Some(_) if self.records_left == 0 => unsent_bytes,
            Some(_) => 0,
        }
    }

    /// Decrypts received records. The plaintext is copied once, because a borrow would last too long.
    pub fn unseal(&mut self, buffers: &mut Buffers, wire: &mut impl Wire) -> Unsealed {
        let Some(tls) = &mut self.tls else { return Unsealed { handshake: None, is_over: Ok(false) } };
        let Buffers { plain, out, .. } = buffers;
        plain.clear();
        let was_handshaking = tls.is_handshaking();
        let taken = tls.receive_with(wire.received(), |bytes| plain.extend_from_slice(bytes));
        out.clear();
        if tls.has_output() {
            tls.take_output(out);
        }
        let handshake = if was_handshaking && !tls.is_handshaking() { tls.handshake() } else { None };
        let is_over = taken.map(|()| tls.peer_closed()).map_err(Failure::from);
        if !out.is_empty() {
            // If it cannot be sent, the end of the connection reports it.
            let _ = self.send_records(out, wire);
        }
        Unsealed { handshake, is_over }
    }

    /// Judges the end of the peer's stream, after which nothing is received.
    ///
    /// # Errors
    /// Without a close_notify of the peer, a response that ends with the connection may be truncated.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.end().map_err(Failure::from))
    }
}
