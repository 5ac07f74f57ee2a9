//! TLS in the control channel: a stream of bytes that another layer splits into packets. Owns which certificates are
//! accepted, by OpenVPN's rules: by their chain to the given authority, not by a host name.

use std::io::{Read, Write};
use std::sync::Arc;

use leadline_tls::{ChainVerifier, TlsFailure};
use rustls::client::Resumption;
use rustls::crypto::{aws_lc_rs, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, ClientConnection, Connection, Error, NamedGroup, RootCertStore,
    ServerConfig, ServerConnection, SupportedProtocolVersion,
};
use zeroize::Zeroize;

use super::certificate_subject::{common_name, public_key, subject};
use super::profile::{Profile, TlsVersion, VerifyName};
use super::role::Role;
use super::usage::RequiredUsage;

/// Creates the TLS of new key states.
#[derive(Clone)]
pub enum TlsMaker {
    /// As a client.
    Client(Arc<ClientConfig>),
    /// As a server.
    Server(Arc<ServerConfig>),
}

impl TlsMaker {
    /// Creates TLS for one more key state.
    ///
    /// # Errors
    /// The configuration offers nothing.
    pub fn make(&self) -> Result<TlsLine, TlsFailure> {
        match self {
            Self::Client(config) => TlsLine::client(config),
            Self::Server(config) => TlsLine::server(config),
        }
    }

    /// The role of this end.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Client(_) => Role::Client,
            Self::Server(_) => Role::Server,
        }
    }
}

/// The TLS of one key state.
pub struct TlsLine {
    connection: Box<Connection>,
}

impl TlsLine {
    /// Creates the client's end. Its first message is in the output immediately.
    ///
    /// # Errors
    /// The configuration offers nothing.
    pub fn client(config: &Arc<ClientConfig>) -> Result<Self, TlsFailure> {
        let name = ServerName::try_from("openvpn").expect("the name is valid");
        let connection = ClientConnection::new(config.clone(), name).map_err(|error| TlsFailure::of(&error))?;
        Ok(Self { connection: Box::new(connection.into()) })
    }

    /// Creates the server's end.
    ///
    /// # Errors
    /// The configuration offers nothing.
    pub fn server(config: &Arc<ServerConfig>) -> Result<Self, TlsFailure> {
        let connection = ServerConnection::new(config.clone()).map_err(|error| TlsFailure::of(&error))?;
        Ok(Self { connection: Box::new(connection.into()) })
    }

    /// Handles the stream's next bytes; appends plaintext to `plain`, including what was complete before an error.
    ///
    /// # Errors
    /// The handshake or the stream failed; an alert for the peer may be in the output.
    pub fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsFailure> {
        while !bytes.is_empty() {
            let read = self.connection.read_tls(&mut bytes).map_err(TlsFailure::internal)?;
            let processed = self.connection.process_new_packets();
            self.drain(plain);
            processed.map_err(|error| TlsFailure::of(&error))?;
            if read == 0 {
                // The peer has closed the stream; later bytes are ignored.
                break;
            }
        }
        Ok(())
    }

    /// Messages that a peer sends just before its alert contain its reason, and count.
    fn drain(&mut self, plain: &mut Vec<u8>) {
        let mut piece = [0; 1024];
        // From memory: an error means that there is no more.
        while let Ok(length @ 1..) = self.connection.reader().read(&mut piece) {
            plain.extend_from_slice(&piece[..length]);
        }
        piece.zeroize();
    }

    /// Queues plaintext; it is sent after the handshake.
    pub fn write(&mut self, plaintext: &[u8]) {
        // Into memory; rustls takes 64 KiB before it refuses, and our messages are far smaller.
        let _ = self.connection.writer().write_all(plaintext);
    }

    /// Whether output is pending.
    pub fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Replaces `chunk` with up to `most` bytes of output.
    pub fn take_output(&mut self, most: usize, chunk: &mut Vec<u8>) {
        chunk.clear();
        while chunk.len() < most && self.connection.wants_write() {
            let room = most - chunk.len();
            // Into memory, which does not fail.
            let _ = self.connection.write_tls(&mut Limited { into: chunk, room });
        }
    }

    /// Whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Exports keying material (RFC 5705) without a context.
    ///
    /// # Errors
    /// The handshake is not done.
    pub fn export<const N: usize>(&self, label: &[u8]) -> Result<[u8; N], TlsFailure> {
        let made = match &*self.connection {
            Connection::Client(connection) => connection.export_keying_material([0; N], label, None),
            Connection::Server(connection) => connection.export_keying_material([0; N], label, None),
        };
        made.map_err(|error| TlsFailure::of(&error))
    }
}

struct Limited<'v> {
    into: &'v mut Vec<u8>,
    room: usize,
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.room);
        self.into.extend_from_slice(&bytes[..taken]);
        self.room -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The TLS parameters of one end, and the authorities that it trusts.
#[derive(Clone, Debug)]
pub struct Trust {
    /// Certificates of the authorities, PEM.
    pub authority_pem: String,
    /// The minimum and maximum version.
    pub versions: (TlsVersion, TlsVersion),
    /// Cipher suites in order; all if empty.
    pub suites: Vec<CipherSuite>,
    /// Groups of the key exchange in order; all if empty.
    pub groups: Vec<NamedGroup>,
    /// The required usage of a server's certificate.
    pub demands: RequiredUsage,
    /// The required name of a server's certificate (`verify-x509-name`).
    pub name: Option<VerifyName>,
}

impl Trust {
    /// The parameters of a profile.
    pub fn of(profile: &Profile) -> Self {
        Self {
            authority_pem: profile.ca.clone(),
            versions: (profile.tls_min, profile.tls_max),
            suites: profile.tls_ciphers.clone(),
            groups: profile.tls_groups.clone(),
            demands: RequiredUsage::of(profile),
            name: profile.verify_name.clone(),
        }
    }

    fn provider(&self) -> CryptoProvider {
        let mut provider = aws_lc_rs::default_provider();
        if !self.suites.is_empty() {
            let find = |suite: &CipherSuite| provider.cipher_suites.iter().find(|one| one.suite() == *suite).copied();
            provider.cipher_suites = self.suites.iter().filter_map(find).collect();
        }
        if !self.groups.is_empty() {
            let all = aws_lc_rs::ALL_KX_GROUPS;
            let find = |group: &NamedGroup| all.iter().find(|one| one.name() == *group).copied();
            provider.kx_groups = self.groups.iter().filter_map(find).collect();
        }
        provider
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let (oldest, newest) = self.versions;
        let known = [(TlsVersion::Tls12, &rustls::version::TLS12), (TlsVersion::Tls13, &rustls::version::TLS13)];
        known.into_iter().filter(|(version, _)| (oldest..=newest).contains(version)).map(|(_, known)| known).collect()
    }
}

/// TLS data that all clients of a profile share, so that each of thousands stores only its own certificate.
pub struct ClientTrust {
    provider: Arc<CryptoProvider>,
    verifier: Arc<ChainVerifier>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

impl ClientTrust {
    /// Loads the authorities.
    ///
    /// # Errors
    /// One line on what is invalid.
    pub fn new(trust: &Trust) -> Result<Self, String> {
        let provider = Arc::new(trust.provider());
        let roots = roots(&trust.authority_pem)?;
        let (demands, name) = (trust.demands.clone(), trust.name.clone());
        let verifier = ChainVerifier::new(roots, provider.clone(), move |checked, certificate, _| {
            check_certificate(&demands, name.as_ref(), checked, certificate)
        });
        let verifier = Arc::new(verifier.map_err(|error| format!("ca: {error}"))?);
        Ok(Self { provider, verifier, versions: trust.versions() })
    }
}

/// The TLS configuration of a client's connections. Without an identity it sends no certificate.
///
/// # Errors
/// One line on what is invalid.
pub fn client_config(trust: &ClientTrust, identity: Option<(&str, &str)>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(trust.provider.clone())
        .with_protocol_versions(&trust.versions)
        .map_err(|error| format!("TLS versions: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(trust.verifier.clone());
    let mut config = match identity {
        Some((certificate, key)) => {
            let shown = certified(certificate, key, &trust.provider)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown)))
        }
        None => builder.with_no_client_auth(),
    };
    // OpenVPN performs a full handshake each time, so that keys are independent.
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// The TLS configuration of a server's connections. Clients need a certificate only if `clients_need_one` is set.
///
/// # Errors
/// One line on what is invalid.
pub fn server_config(trust: &Trust, identity: (&str, &str), clients_need_one: bool) -> Result<ServerConfig, String> {
    let provider = Arc::new(trust.provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(&trust.authority_pem)?), provider.clone());
    let verifier = if clients_need_one { verifier } else { verifier.allow_unauthenticated() };
    let verifier = verifier.build().map_err(|error| format!("ca: {error}"))?;
    let shown = certified(identity.0, identity.1, &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&trust.versions())
        .map_err(|error| format!("TLS versions: {error}"))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(shown)));
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (certificate, number) in certificates("ca", pem)?.into_iter().zip(1..) {
        let refused = |_| format!("ca: certificate {number} cannot be read: it is damaged, or not X.509");
        roots.add(certificate).map_err(refused)?;
    }
    Ok(roots)
}

/// Loads a chain and the key of its first certificate. The other end decides whether it is valid: OpenVPN also sends
/// a certificate of X.509 version 1, which rustls would not.
fn certified(certificate: &str, key: &str, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = certificates("cert", certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("key: {error}; it has to be an unencrypted PEM private key"))?;
    let kinds = "RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, Ed25519";
    let unsupported = |_| format!("key: its kind is not supported; supported are: {kinds}");
    let key = provider.key_provider.load_private_key(key).map_err(unsupported)?;
    let own = key.public_key();
    match chain.first().and_then(public_key) {
        None => Err("cert: cannot be read: it is damaged, or not X.509".into()),
        Some(shown) if own.is_some_and(|own| *shown != *own) => {
            Err("cert and key: the key does not belong to the (first) certificate: use a matching pair".into())
        }
        Some(_) => Ok(CertifiedKey::new(chain, key)),
    }
}

fn certificates(what: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(format!("{what}: there is no certificate in it; it has to be PEM")),
        Err(error) => Err(format!("{what}: {error}; it has to be PEM")),
    }
}

/// Accepts a certificate that the authority has issued for the required use, by the profile's name of the server and
/// not by a host name.
fn check_certificate(
    demands: &RequiredUsage,
    name: Option<&VerifyName>,
    checked: Result<(), Error>,
    certificate: &CertificateDer<'_>,
) -> Result<(), Error> {
    use CertificateError as Of;
    match checked {
        // The host name is checked last, so the chain is valid.
        Ok(()) | Err(Error::InvalidCertificate(Of::NotValidForName | Of::NotValidForNameContext { .. })) => {}
        Err(other) => return Err(other),
    }
    demands.check(certificate)?;
    match name {
        Some(required) if !is_named(certificate, required) => Err(Error::InvalidCertificate(Of::NotValidForName)),
        _ => Ok(()),
    }
}

fn is_named(certificate: &CertificateDer<'_>, required: &VerifyName) -> bool {
    match required {
        VerifyName::CommonName(required) => common_name(certificate).is_some_and(|name| name == *required),
        VerifyName::CommonNamePrefix(required) => {
            common_name(certificate).is_some_and(|name| name.starts_with(required))
        }
        VerifyName::Subject(required) => subject(certificate).is_some_and(|subject| subject == *required),
    }
}

#[cfg(test)]
mod tests {
    use leadline_tls::TemporaryAuthority;

    use super::*;

    #[test]
    fn plaintext_before_a_tls_failure_is_delivered() {
        let authority = TemporaryAuthority::new().expect("a certificate");
        let (certificate, key) = authority.issue_server().expect("a certificate");
        let profile = Profile { ca: authority.certificate_pem, server_usage: true, ..Profile::default() };
        let trust = Trust::of(&profile);
        let config = server_config(&trust, (&certificate, &key), false).expect("a good server");
        let client = client_config(&ClientTrust::new(&trust).expect("a good authority"), None).expect("a good client");
        let mut server = TlsMaker::Server(Arc::new(config)).make().expect("a server");
        let mut client = TlsMaker::Client(Arc::new(client)).make().expect("a client");
        let (mut bytes, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            client.take_output(usize::MAX, &mut bytes);
            server.receive(&bytes, &mut plain).expect("a handshake");
            server.take_output(usize::MAX, &mut bytes);
            client.receive(&bytes, &mut plain).expect("a handshake");
        }
        server.write(b"AUTH_FAILED");
        server.take_output(usize::MAX, &mut bytes);
        // A record that no end has sealed.
        bytes.extend_from_slice(&[23, 3, 3, 0, 17]);
        bytes.extend_from_slice(&[0; 17]);
        client.receive(&bytes, &mut plain).expect_err("the last record is forged");
        assert_eq!(plain, b"AUTH_FAILED");
    }
}
