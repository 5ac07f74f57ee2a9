//! The client's side: what a load has in common for all servers, the state that its connections to one server share, and the
//! beginning of each connection. Owns the options and the sessions that later connections resume; never selects a server name
//! or a default.

use std::sync::Arc;

use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::ClientConfig;

use super::connection::TlsConnection;
use super::records::Records;
use super::sessions::Sessions;
use super::setup::{alpn, certificates, negotiable, private_key};
use super::trust::verifier;
use super::{TlsFailure, TlsSetupError, TlsVersion};

/// What a client offers and accepts.
#[derive(Clone, Debug)]
pub struct TlsOptions<'a> {
    /// Whether the server's certificate is verified.
    pub verify: bool,
    /// Certificates to trust, PEM; the host's own if absent.
    pub ca_pem: Option<&'a str>,
    /// The client's certificate with its intermediate certificates, and its key, both PEM.
    pub identity: Option<(&'a str, &'a str)>,
    /// The oldest version that is offered.
    pub oldest: TlsVersion,
    /// The newest version that is offered.
    pub newest: TlsVersion,
    /// Cipher suites by their IANA names, in order; all available ones if empty.
    pub cipher_suites: &'a [String],
    /// Protocols that are offered (ALPN), in order.
    pub alpn: &'a [String],
    /// The host name that is sent (SNI) and verified, or the IP address that is verified (which SNI cannot carry).
    pub server_name: &'a str,
    /// Whether connections after the first resume its session.
    pub resumption: bool,
    /// The number of connections at once, and of stored sessions of each server.
    pub connections: usize,
    /// Whether data may be sent before the end of a resumed handshake (0-RTT).
    pub early_data: bool,
}

/// What the connections of one load to all servers have in common: the versions, the client's certificate, and the verifier
/// of servers' certificates. It has no sessions.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    config: ClientConfig,
    /// The number of stored sessions of each server, if they are resumed.
    sessions: Option<usize>,
}

impl ClientSettings {
    /// Prepares the connections. Reads the host's root certificates if they are needed. The name of the server is not
    /// used.
    ///
    /// # Errors
    ///
    /// The invalid option, and what would be right.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsSetupError> {
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
        config.resumption = Resumption::disabled();
        config.enable_early_data = options.early_data && options.resumption;
        Ok(Self { config, sessions: options.resumption.then_some(options.connections) })
    }

    /// Returns the state of the connections to a server, with its own sessions. Reads no file.
    ///
    /// # Errors
    ///
    /// No certificate can be issued for the name.
    pub fn server(&self, server_name: &str) -> Result<ClientTls, TlsSetupError> {
        let bare = server_name.trim_start_matches('[').trim_end_matches(']');
        let name =
            ServerName::try_from(bare.to_owned()).map_err(|_| TlsSetupError::ServerName(server_name.to_owned()))?;
        let mut config = self.config.clone();
        if let Some(sessions) = self.sessions {
            config.resumption = Resumption::store(Arc::new(Sessions::new(sessions)));
        }
        Ok(ClientTls { config: Arc::new(config), name })
    }
}

/// The state that the connections of one load to one server share; cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// Prepares the connections. Reads the host's root certificates if they are needed.
    ///
    /// # Errors
    ///
    /// The invalid option, and what would be right.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsSetupError> {
        ClientSettings::new(options)?.server(options.server_name)
    }
}

/// A client's connection to a server.
pub type TlsClient = TlsConnection<UnbufferedClientConnection>;

impl TlsClient {
    /// Begins a connection; its hello is ready to be sent.
    ///
    /// # Errors
    ///
    /// `tls_internal` if the system has no random bytes or no time of day.
    pub fn new(shared: &ClientTls) -> Result<Self, TlsFailure> {
        let connection = UnbufferedClientConnection::new(shared.config.clone(), shared.name.clone())
            .map_err(|error| TlsFailure::of(&error))?;
        Ok(Self::over(Records::client(connection, shared.config.enable_early_data), shared.config.clone()))
    }

    /// Whether data that is written now is sent as early data: a session is resumed whose server allows it, and
    /// nothing has been received yet.
    #[must_use]
    pub fn offers_early_data(&self) -> bool {
        self.records().may_write_early()
    }

    /// Whether the server accepted the early data; `None` if none was sent or the handshake has not ended.
    #[must_use]
    pub fn early_data_accepted(&self) -> Option<bool> {
        (self.records().has_written_early() && !self.is_handshaking()).then(|| self.records().early_accepted())
    }
}
