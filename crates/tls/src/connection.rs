//! One connection, of a client or of a server: ciphertext in, plaintext out, and the other way round. Owns what both sides have in
//! common; how each begins is in `client` and `server`.

use std::sync::Arc;

use super::records::{Records, Side};
use super::{Handshake, TlsFailure};

/// One connection. Call [`TlsConnection::take_output`] after each other call, and send what it gives.
pub struct TlsConnection<S: Side> {
    records: Records<S>,
    config: Arc<S::Config>,
}

impl<S: Side> TlsConnection<S> {
    pub(super) fn over(records: Records<S>, config: Arc<S::Config>) -> Self {
        Self { records, config }
    }

    pub(super) fn records(&self) -> &Records<S> {
        &self.records
    }

    /// Takes ciphertext in pieces of any size; its plaintext waits for [`TlsConnection::read`].
    ///
    /// # Errors
    /// Why the connection cannot go on; every later call says the same. What came before can still be read, and there
    /// may be an alert to send.
    pub fn receive(&mut self, ciphertext: &[u8]) -> Result<(), TlsFailure> {
        self.records.receive(ciphertext)
    }

    /// Takes ciphertext and hands its plaintext to `deliver`, piece by piece, without another copy.
    ///
    /// # Errors
    /// As [`TlsConnection::receive`]; what came before has been delivered.
    pub fn receive_with(&mut self, ciphertext: &[u8], mut deliver: impl FnMut(&[u8])) -> Result<(), TlsFailure> {
        self.records.receive_with(ciphertext, &mut deliver)
    }

    /// As [`TlsConnection::receive_with`], but decrypts where the bytes lie, which saves copying them: the way for bulk.
    /// What is left in `ciphertext` has no meaning.
    ///
    /// # Errors
    /// As [`TlsConnection::receive_with`].
    pub fn receive_in_place(
        &mut self,
        ciphertext: &mut [u8],
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<(), TlsFailure> {
        self.records.receive_in_place(ciphertext, &mut deliver)
    }

    /// What it means that the connection ends here: nothing more will be received.
    ///
    /// # Errors
    /// `tls_handshake_cut` during the handshake, `tls_truncated` where the peer has not said that nothing follows
    /// (RFC 8446, 6.1), or what had failed before.
    pub fn end(&mut self) -> Result<(), TlsFailure> {
        self.records.end()
    }

    /// Moves plaintext into `buffer`: how many bytes, 0 where there are none now.
    ///
    /// # Errors
    /// Why there will be no more.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TlsFailure> {
        self.records.read(buffer)
    }

    /// Sends plaintext. Before the handshake's end it is queued, or a client's sent with the hello as early data where that
    /// is allowed; early data that the server refuses is sent again after the handshake.
    pub fn write(&mut self, plaintext: &[u8]) {
        if self.records.may_write_early() {
            self.records.write_early(plaintext);
        } else {
            self.records.write(plaintext);
        }
    }

    /// As [`TlsConnection::write`] and [`TlsConnection::take_output`] in one, without copying the ciphertext.
    pub fn write_to(&mut self, plaintext: &[u8], out: &mut Vec<u8>) {
        if self.records.may_write_early() {
            self.records.write_early(plaintext);
            self.records.take_output(out);
        } else {
            self.records.write_to(plaintext, out);
        }
    }

    /// Moves ciphertext that is to be sent to the end of `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        self.records.take_output(out);
    }

    /// How much memory the buffers in front of and behind the protocol take up, bytes. What of it the peer decides on is
    /// at most twice [`PENDING_LIMIT_BYTES`](super::PENDING_LIMIT_BYTES), as long as all plaintext is read.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.records.held_bytes()
    }

    /// Whether there is ciphertext to send.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.records.has_output()
    }

    /// Says that nothing follows (close_notify); what is written later is dropped.
    pub fn close(&mut self) {
        self.records.close();
    }

    /// Whether the handshake goes on, or has failed.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.records.is_handshaking()
    }

    /// What the handshake agreed on, once it has ended.
    #[must_use]
    pub fn handshake(&self) -> Option<Handshake> {
        self.records.handshake(S::protocols(&self.config))
    }

    /// Whether the peer has said that nothing follows (close_notify).
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.records.peer_closed()
    }
}
