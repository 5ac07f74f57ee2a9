//! The certificates that a client accepts: either those with a chain to a trusted root that a judge accepts, or all
//! of them. Owns where roots come from; never falls back from one way to the other.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_name, VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::setup::certificates;
use super::{is_authority, TlsSetupError};

/// Returns the verifier of the server's certificate.
pub(super) fn verifier(
    verify: bool,
    ca_pem: Option<&str>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsSetupError> {
    if !verify {
        return Ok(Arc::new(AnyCertificate { algorithms: provider.signature_verification_algorithms }));
    }
    let (roots, given) = match ca_pem {
        Some(pem) => (given_roots("CA file", pem)?, certificates("CA file", pem)?),
        None => (host_roots()?, Vec::new()),
    };
    let judge = move |checked, certificate: &CertificateDer<'_>, name: &ServerName<'_>| match checked {
        // Self-signed certificates that tools create by default may also issue others.
        Err(Error::InvalidCertificate(problem)) if is_authority(&problem) && given.contains(certificate) => {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
        }
        checked => checked,
    };
    let verifier = ChainVerifier::new(roots, provider.clone(), judge);
    Ok(Arc::new(verifier.map_err(|error| TlsSetupError::Refused(error.to_string()))?))
}

/// Returns the certificates of a PEM text as roots.
pub(super) fn given_roots(role: &'static str, pem: &str) -> Result<RootCertStore, TlsSetupError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(role, pem)? {
        roots.add(certificate).map_err(|error| TlsSetupError::Certificate { role, reason: error.to_string() })?;
    }
    Ok(roots)
}

fn host_roots() -> Result<RootCertStore, TlsSetupError> {
    let parsed = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some hosts have a few roots that are too old to be parsed; the others are valid.
    let (added, _) = roots.add_parsable_certificates(parsed.certs);
    if added == 0 {
        let reason = parsed.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
        return Err(TlsSetupError::NoRoots(reason));
    }
    Ok(roots)
}

/// Decides on a server's certificate after the check of its chain and of the requested name: it may accept what the
/// check refused, or require more.
type Judge = dyn Fn(Result<(), Error>, &CertificateDer<'_>, &ServerName<'_>) -> Result<(), Error> + Send + Sync;

/// Accepts certificates by their chain to a root and by the decision of a judge.
pub struct ChainVerifier {
    chains: Arc<WebPkiServerVerifier>,
    judge: Box<Judge>,
}

impl ChainVerifier {
    /// Returns a verifier that trusts `roots`; `judge` receives the result of the check of chain and name.
    ///
    /// # Errors
    ///
    /// There are no roots.
    pub fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
        judge: impl Fn(Result<(), Error>, &CertificateDer<'_>, &ServerName<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<Self, VerifierBuilderError> {
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { chains, judge: Box::new(judge) })
    }
}

impl std::fmt::Debug for ChainVerifier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ChainVerifier").field("chains", &self.chains).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked = self.chains.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        (self.judge)(checked.map(|_| ()), certificate, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Accepts every certificate. The peer's possession of the key is still checked if the certificate can be read.
#[derive(Debug)]
struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unless_unreadable(verify_tls12_signature(message, certificate, signed, &self.algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unless_unreadable(verify_tls13_signature(message, certificate, signed, &self.algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A wrong signature, or one of a kind that was not offered, is the peer's error; an unreadable certificate (such as
/// one of X.509 version 1) is accepted like the others.
fn unless_unreadable(checked: Result<HandshakeSignatureValid, Error>) -> Result<HandshakeSignatureValid, Error> {
    match checked {
        Err(Error::InvalidCertificate(problem)) if problem != CertificateError::BadSignature => {
            Ok(HandshakeSignatureValid::assertion())
        }
        other => other,
    }
}
