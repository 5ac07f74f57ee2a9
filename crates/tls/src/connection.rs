//! One connection, of a client or of a server: it turns ciphertext into plaintext and plaintext into ciphertext. Owns
//! what both sides have in common; their beginnings are in `client` and `server`.

use std::sync::Arc;

use super::records::{Records, Side};
use super::{Handshake, TlsFailure};

/// One connection. Call [`TlsConnection::take_output`] after each other call, and send the result.
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
    ///
    /// The reason why the connection cannot continue; every later call returns the same. Earlier data can still be
    /// read, and there may be an alert to send.
    pub fn receive(&mut self, ciphertext: &[u8]) -> Result<(), TlsFailure> {
        self.records.receive(ciphertext)
    }

    /// Takes ciphertext and passes its plaintext to `deliver`, piece by piece, without another copy.
    ///
    /// # Errors
    ///
    /// As [`TlsConnection::receive`]; earlier data has been delivered.
    pub fn receive_with(&mut self, ciphertext: &[u8], mut deliver: impl FnMut(&[u8])) -> Result<(), TlsFailure> {
        self.records.receive_with(ciphertext, &mut deliver)
    }

    /// Like [`TlsConnection::receive_with`], but decrypts in place, which saves a copy: use it for bulk data. The
    /// remaining content of `ciphertext` is undefined.
    ///
    /// # Errors
    ///
    /// As [`TlsConnection::receive_with`].
    pub fn receive_in_place(
        &mut self,
        ciphertext: &mut [u8],
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<(), TlsFailure> {
        self.records.receive_in_place(ciphertext, &mut deliver)
    }

    /// Judges the end of the connection, after which nothing is received.
    ///
    /// # Errors
    ///
    /// `tls_handshake_cut` during the handshake, `tls_truncated` without a close_notify of the peer (RFC 8446, 6.1),
    /// or an earlier failure.
    pub fn end(&mut self) -> Result<(), TlsFailure> {
        self.records.end()
    }

    /// Moves plaintext into `buffer`; returns the number of bytes, 0 if there are none now.
    ///
    /// # Errors
    ///
    /// The reason why no more will follow.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TlsFailure> {
        self.records.read(buffer)
    }

    /// Sends plaintext. Before the end of the handshake it is queued; a client's is sent with the hello as early data
    /// if that is allowed. Early data that the server refuses is sent again after the handshake.
    pub fn write(&mut self, plaintext: &[u8]) {
        if self.records.may_write_early() {
            self.records.write_early(plaintext);
        } else {
            self.records.write(plaintext);
        }
    }

    /// Does the same as [`TlsConnection::write`] and [`TlsConnection::take_output`] together, without copying the
    /// ciphertext.
    pub fn write_to(&mut self, plaintext: &[u8], out: &mut Vec<u8>) {
        if self.records.may_write_early() {
            self.records.write_early(plaintext);
            self.records.take_output(out);
        } else {
            self.records.write_to(plaintext, out);
        }
    }

    /// Appends the ciphertext that must be sent to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        self.records.take_output(out);
    }

    /// The memory of the buffers before and after the protocol, bytes. The part that the peer controls is at most
    /// twice [`PENDING_LIMIT_BYTES`](super::PENDING_LIMIT_BYTES), as long as all plaintext is read.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.records.held_bytes()
    }

    /// Whether there is ciphertext to send.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.records.has_output()
    }

    /// Announces the end of the data (close_notify); data that is written later is dropped.
    pub fn close(&mut self) {
        self.records.close();
    }

    /// Whether the handshake has not ended, or has failed.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.records.is_handshaking()
    }

    /// The result of the handshake, once it has ended.
    #[must_use]
    pub fn handshake(&self) -> Option<Handshake> {
        self.records.handshake(S::protocols(&self.config))
    }

    /// Whether the peer has announced the end of its data (close_notify).
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.records.peer_closed()
    }
}
