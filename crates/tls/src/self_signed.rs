//! A self-signed certificate (ECDSA P-256) for a responder without a certificate: for the host's loopback and
//! requested names. Owns its content; stores nothing.

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

use super::TlsSetupError;

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct SelfSignedCertificate {
    /// The certificate, which a client has to trust.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl std::fmt::Debug for SelfSignedCertificate {
    /// Omits the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SelfSignedCertificate")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

/// Creates a certificate for `localhost`, `127.0.0.1`, `::1` and `names` (host names or IP addresses).
///
/// # Errors
///
/// A name that no certificate can contain.
pub fn self_signed_certificate(names: &[String]) -> Result<SelfSignedCertificate, TlsSetupError> {
    let failed = |error: rcgen::Error| TlsSetupError::SelfSigned(error.to_string());
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let mut params = CertificateParams::new(all).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "leadline responder");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(SelfSignedCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}
