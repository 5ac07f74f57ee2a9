//! The client's side: what all connections of a load share, and one connection.
//! Owns the options and the sessions that later connections resume; refuses to choose a server name or a default.

use std::sync::Arc;

use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::ClientConfig;

use super::records::Records;
use super::sessions::Sessions;
use super::setup::{alpn, certificates, negotiable, private_key};
use super::trust::verifier;
use super::{Handshake, TlsFailure, TlsSetupError, TlsVersion};

/// What a client offers and accepts.
#[derive(Clone, Debug)]
pub struct TlsOptions<'a> {
    /// Whether the server's certificate is checked.
    pub verify: bool,
    /// Certificates to trust, PEM; the host's own where absent.
    pub ca_pem: Option<&'a str>,
    /// Our certificate with those between it and its root, and its key, both PEM.
    pub identity: Option<(&'a str, &'a str)>,
    /// The oldest version that is offered.
    pub oldest: TlsVersion,
    /// The newest version that is offered.
    pub newest: TlsVersion,
    /// Cipher suites by their IANA names, in order; all there are where empty.
    pub cipher_suites: &'a [String],
    /// Protocols that are offered (ALPN), in order.
    pub alpn: &'a [String],
    /// The host name that is asked for (SNI) and checked, or the IP address that is checked (which SNI cannot carry).
    pub server_name: &'a str,
    /// Whether connections after the first resume its session.
    pub resumption: bool,
    /// How many connections there are at once, for as many sessions are kept.
    pub connections: usize,
    /// Whether data may travel before a resumed handshake's end (0-RTT).
    pub early_data: bool,
}

/// What the connections of one load share; cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// Prepares for connections as told. Reads the host's root certificates where they are needed.
    ///
    /// # Errors
    /// The option that cannot be, and what would be right.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsSetupError> {
        let bare = options.server_name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|_| TlsSetupError::ServerName(options.server_name.to_owned()))?;
        let negotiable = negotiable(options.oldest, options.newest, options.cipher_suites)?;
        let verifier = verifier(options.verify, options.ca_pem, &negotiable.provider)?;
        let building = ClientConfig::builder_with_provider(negotiable.provider)
            .with_protocol_versions(&negotiable.versions)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match options.identity {
            None => building.with_no_client_auth(),
            Some((certificate, key)) => building
                .with_client_auth_cert(
                    certificates("client certificate", certificate)?,
                    private_key("client certificate's key", key)?,
                )
                .map_err(|error| TlsSetupError::identity("client certificate", &error))?,
        };
        config.alpn_protocols = alpn(options.alpn)?;
        config.resumption = if options.resumption {
            Resumption::store(Arc::new(Sessions::new(options.connections)))
        } else {
            Resumption::disabled()
        };
        config.enable_early_data = options.early_data && options.resumption;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// One connection to a server. Call [`TlsClient::take_output`] after each other call, and send what it gives.
pub struct TlsClient {
    records: Records<UnbufferedClientConnection>,
    config: Arc<ClientConfig>,
    early_written: bool,
}

impl TlsClient {
    /// Begins a connection; its hello is there to be sent.
    ///
    /// # Errors
    /// `tls_internal` where the system has no random bytes or no time of day.
    pub fn new(shared: &ClientTls) -> Result<Self, TlsFailure> {
        let connection = UnbufferedClientConnection::new(shared.config.clone(), shared.name.clone())
            .map_err(|error| TlsFailure::of(&error))?;
        let records = Records::client(connection, shared.config.enable_early_data);
        Ok(Self { records, config: shared.config.clone(), early_written: false })
    }

    /// Takes ciphertext in pieces of any size; its plaintext waits for [`TlsClient::read`].
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
    /// As [`TlsClient::receive`]; what came before has been delivered.
    pub fn receive_with(&mut self, ciphertext: &[u8], mut deliver: impl FnMut(&[u8])) -> Result<(), TlsFailure> {
        self.records.receive_with(ciphertext, &mut deliver)
    }

    /// As [`TlsClient::receive_with`], but decrypts where the bytes lie, which saves copying them: the way for bulk.
    /// What is left in `ciphertext` has no meaning.
    ///
    /// # Errors
    /// As [`TlsClient::receive_with`].
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
    /// `tls_handshake_cut` during the handshake, `tls_truncated` where the server has not said that nothing follows
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

    /// Sends plaintext. Before the handshake's end it is queued, or sent with the hello as early data where that is
    /// allowed; early data that the server refuses is sent again after the handshake.
    pub fn write(&mut self, plaintext: &[u8]) {
        if self.records.may_write_early() {
            self.early_written |= !plaintext.is_empty();
            self.records.write_early(plaintext);
        } else {
            self.records.write(plaintext);
        }
    }

    /// As [`TlsClient::write`] and [`TlsClient::take_output`] in one, without copying the ciphertext.
    pub fn write_to(&mut self, plaintext: &[u8], out: &mut Vec<u8>) {
        if self.records.is_handshaking() {
            self.write(plaintext);
            self.take_output(out);
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
        self.records.handshake(&self.config.alpn_protocols)
    }

    /// Whether the server has said that nothing follows (close_notify).
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.records.peer_closed()
    }

    /// Whether what is written now travels as early data: a session is resumed whose server allows it, and nothing has
    /// been received yet.
    #[must_use]
    pub fn offers_early_data(&self) -> bool {
        self.records.may_write_early()
    }

    /// Whether the server took the early data; none where none was sent or the handshake goes on.
    #[must_use]
    pub fn early_data_accepted(&self) -> Option<bool> {
        (self.early_written && !self.is_handshaking()).then(|| self.records.early_accepted())
    }
}
