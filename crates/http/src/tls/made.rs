//! A certificate for whom nobody has given one: self-signed, ECDSA P-256, for this host's loopback and the names asked
//! for. Owns what stands in it; refuses to keep it.

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

use super::TlsSetupError;

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct MadeCertificate {
    /// The certificate; also what a client has to trust.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl std::fmt::Debug for MadeCertificate {
    /// Without the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("MadeCertificate")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

/// Makes a certificate for `localhost`, `127.0.0.1`, `::1` and `names` (host names or IP addresses).
///
/// # Errors
/// A name that no certificate can hold.
pub fn made_certificate(names: &[String]) -> Result<MadeCertificate, TlsSetupError> {
    let made = |error: rcgen::Error| TlsSetupError::Made(error.to_string());
    let mut all: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let mut params = CertificateParams::new(all).map_err(made)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "leadline responder");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(made)?;
    let certificate = params.self_signed(&key).map_err(made)?;
    Ok(MadeCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}
