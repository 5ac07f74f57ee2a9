//! The server's side, for the responder: the state that all connections share, and the beginning of each connection.
//! Owns the resumption of sessions; does not select among several certificates.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls::ServerConfig;

use super::connection::TlsConnection;
use super::records::Records;
use super::self_signed::self_signed_certificate;
use super::setup::{alpn, certificates, negotiable, private_key};
use super::trust::given_roots;
use super::{TlsFailure, TlsSetupError, TlsVersion};

/// Sessions that a server stores if it cannot issue tickets that contain them, as with early data.
const REMEMBERED_SESSIONS: usize = 16_384;

/// What a server offers and requires.
#[derive(Clone, Debug)]
pub struct ServerOptions<'a> {
    /// The certificate and its intermediate certificates, PEM.
    pub certificate_pem: &'a str,
    /// Its key, PEM.
    pub key_pem: &'a str,
    /// The oldest version that is accepted.
    pub oldest: TlsVersion,
    /// The newest version that is accepted.
    pub newest: TlsVersion,
    /// Cipher suites by their IANA names; all available ones if empty.
    pub cipher_suites: &'a [String],
    /// Protocols that are accepted (ALPN), in order.
    pub alpn: &'a [String],
    /// The authorities of client certificates, PEM; clients need no certificate if absent.
    pub client_ca_pem: Option<&'a str>,
    /// Whether clients can resume sessions.
    pub resumption: bool,
    /// How much early data a client may send, bytes; none if 0.
    pub early_data_bytes: u32,
}

/// The state that a server's connections share; cheap to clone.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// Prepares the connections.
    ///
    /// # Errors
    ///
    /// The invalid option, and what would be right.
    pub fn new(options: &ServerOptions) -> Result<Self, TlsSetupError> {
        let negotiable = negotiable(options.oldest, options.newest, options.cipher_suites)?;
        let building = ServerConfig::builder_with_provider(negotiable.provider.clone())
            .with_protocol_versions(&negotiable.versions)?;
        let building = match options.client_ca_pem {
            None => building.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(given_roots("client CA file", pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, negotiable.provider)
                    .build()
                    .map_err(|error| TlsSetupError::Refused(error.to_string()))?;
                building.with_client_cert_verifier(verifier)
            }
        };
        let mut config = building
            .with_single_cert(
                certificates("server certificate", options.certificate_pem)?,
                private_key("server certificate's key", options.key_pem)?,
            )
            .map_err(|error| TlsSetupError::identity("server certificate", &error))?;
        config.alpn_protocols = alpn(options.alpn)?;
        resume(&mut config, options)?;
        Ok(Self { config: Arc::new(config) })
    }

    /// Prepares connections with this certificate and key, both PEM: all versions and suites, HTTP/1.1, and sessions
    /// that can be resumed.
    ///
    /// # Errors
    ///
    /// What cannot be read.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, TlsSetupError> {
        Self::new(&ServerOptions {
            certificate_pem,
            key_pem,
            oldest: TlsVersion::V1_2,
            newest: TlsVersion::V1_3,
            cipher_suites: &[],
            alpn: &["http/1.1".to_owned()],
            client_ca_pem: None,
            resumption: true,
            early_data_bytes: 0,
        })
    }

    /// Like [`ServerTls::from_pem`], with a self-signed certificate for `localhost`, `127.0.0.1`, `::1` and `names`;
    /// also returns the certificate's PEM, for clients to trust.
    ///
    /// # Errors
    ///
    /// A name that no certificate can contain.
    pub fn self_signed(names: &[String]) -> Result<(Self, String), TlsSetupError> {
        let generated = self_signed_certificate(names)?;
        Ok((Self::from_pem(&generated.certificate_pem, &generated.key_pem)?, generated.certificate_pem))
    }
}

/// Tickets that contain the session cost a server no memory. With early data the server must store sessions instead,
/// so that no attacker can replay the data (RFC 8446, 8.1).
fn resume(config: &mut ServerConfig, options: &ServerOptions) -> Result<(), TlsSetupError> {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if !options.resumption {
        config.send_tls13_tickets = 0;
    } else if options.early_data_bytes > 0 {
        config.session_storage = ServerSessionMemoryCache::new(REMEMBERED_SESSIONS);
        config.max_early_data_size = options.early_data_bytes;
    } else {
        config.ticketer = Ticketer::new()?;
    }
    Ok(())
}

/// A server's connection from a client.
pub type TlsServer = TlsConnection<UnbufferedServerConnection>;

impl TlsServer {
    /// Begins a connection.
    ///
    /// # Errors
    ///
    /// `tls_internal` if the configuration cannot serve.
    pub fn new(shared: &ServerTls) -> Result<Self, TlsFailure> {
        let connection =
            UnbufferedServerConnection::new(shared.config.clone()).map_err(|error| TlsFailure::of(&error))?;
        Ok(Self::over(Records::server(connection), shared.config.clone()))
    }
}
