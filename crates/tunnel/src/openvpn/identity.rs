//! Certificates of a fleet's clients, issued by a given authority: each client has its own, as real clients have,
//! without thousands of files. Owns their properties (ECDSA P-256, for TLS clients, named by prefix and number).
//! Reads no clock and stores nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    date_time_ymd, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, RootCertStore};

use crate::secret::Secret;

/// Validity before the given time, because clocks may differ: two days.
const BEFORE: Duration = Duration::from_secs(2 * 86_400);
/// Validity after the given time: no run lasts longer than 90 days.
const AFTER: Duration = Duration::from_secs(90 * 86_400);
/// Maximum length of a common name in X.509, bytes.
const LONGEST_NAME: usize = 64;

/// An authority that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    now_unix_s: u64,
}

/// A client's certificate and key.
#[derive(Clone, Debug)]
pub struct IssuedIdentity {
    /// The certificate without a chain, PEM.
    pub certificate_pem: String,
    /// The private key, PKCS #8, PEM.
    pub key_pem: Secret,
}

/// Why a certificate cannot be issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The authority's certificate is invalid.
    #[error("the authority's certificate cannot be read: it should be one PEM section, -----BEGIN CERTIFICATE-----")]
    Certificate,
    /// The authority's key is invalid.
    #[error("the authority's key cannot be read: it should be one PEM section without a passphrase")]
    Key,
    /// The key does not belong to the certificate.
    #[error("the authority's key does not belong to its certificate: its signatures do not verify")]
    Mismatch,
    /// The certificate is not an authority's.
    #[error("the authority's certificate may not sign others: it is not a CA certificate")]
    NoAuthority,
    /// The common name is too long or empty.
    #[error("the common name `{0}` is not 1 to {LONGEST_NAME} bytes long")]
    Name(String),
    /// The library returned an error.
    #[error("the certificate was not created: {0}")]
    Library(String),
}

impl fmt::Debug for Authority {
    /// Does not print the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authority(..)")
    }
}

impl Authority {
    /// Loads an authority's certificate and key, PEM; `now_unix_s` is the approximate time at which its certificates
    /// are used. Issues one certificate as a test.
    ///
    /// # Errors
    /// They are invalid, or their signatures would not verify.
    pub fn new(certificate_pem: &str, key_pem: &str, now_unix_s: u64) -> Result<Self, IdentityError> {
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|_| IdentityError::Certificate)?;
        let key = KeyPair::from_pem(key_pem).map_err(|_| IdentityError::Key)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|_| IdentityError::Certificate)?;
        let authority = Self { issuer, now_unix_s };
        authority.verify_issued(certificate)?;
        Ok(authority)
    }

    /// Issues the certificate of client `number`, with a new key; its common name is `prefix` and the number.
    ///
    /// # Errors
    /// The name is too long, or the library returned an error.
    pub fn issue(&self, prefix: &str, number: u32) -> Result<IssuedIdentity, IdentityError> {
        let name = format!("{prefix}{number}");
        if name.len() > LONGEST_NAME {
            return Err(IdentityError::Name(name));
        }
        let refused = |error: rcgen::Error| IdentityError::Library(error.to_string());
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(refused)?;
        let certificate = self.parameters(name).signed_by(&key, &self.issuer).map_err(refused)?;
        Ok(IssuedIdentity { certificate_pem: certificate.pem(), key_pem: Secret::new(key.serialize_pem()) })
    }

    fn parameters(&self, name: String) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, name);
        // Computed from 1970, because the type of these fields is not exported.
        let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(self.now_unix_s);
        parameters.not_before = now - BEFORE;
        parameters.not_after = now + AFTER;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        parameters
    }

    /// Verifies a certificate as a server does: from its bytes, and not from parsed fields.
    fn verify_issued(&self, certificate: CertificateDer<'_>) -> Result<(), IdentityError> {
        let library = |error: &dyn fmt::Display| IdentityError::Library(error.to_string());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.into_owned()).map_err(|_| IdentityError::Certificate)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|error| library(&error))?;
        let probe = self.issue("probe", 0)?;
        let probe =
            CertificateDer::from_pem_slice(probe.certificate_pem.as_bytes()).map_err(|error| library(&error))?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(self.now_unix_s));
        match verifier.verify_client_cert(&probe, &[], now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::BadSignature | CertificateError::UnknownIssuer,
            )) => Err(IdentityError::Mismatch),
            _ if !self.may_sign() => Err(IdentityError::NoAuthority),
            // The server decides about all other errors: a test may want exactly such a certificate.
            _ => Ok(()),
        }
    }

    /// A certificate without a key usage may be used for anything.
    fn may_sign(&self) -> bool {
        let usages = self.issuer.key_usages();
        usages.is_empty() || usages.contains(&KeyUsagePurpose::KeyCertSign)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, IsCa, PKCS_ED25519};
    use rustls::pki_types::PrivateKeyDer;

    use super::*;
    use crate::openvpn::certificate_subject::common_name;

    const NOW: u64 = 1_800_000_000;

    fn authority(change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, "Test");
        parameters.distinguished_name.push(DnType::CommonName, "Test authority");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        change(&mut parameters);
        (parameters.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    fn verify(authority_pem: &str, certificate: &CertificateDer<'_>, unix_s: u64) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority_pem.as_bytes()).expect("PEM")).expect("a root");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(unix_s));
        verifier.verify_client_cert(certificate, &[], now).map(|_| ())
    }

    #[test]
    fn issued_certificates_verify_as_client_certificates() {
        let (certificate, key) = authority(|_| {});
        let authority = Authority::new(&certificate, &key, NOW).expect("an authority");
        let first = authority.issue("fleet-", 0).expect("a certificate");
        let second = authority.issue("fleet-", 9999).expect("a certificate");
        assert_ne!(first.key_pem, second.key_pem);
        for (identity, name) in [(&first, "fleet-0"), (&second, "fleet-9999")] {
            let der = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).expect("PEM");
            assert_eq!(common_name(&der).as_deref(), Some(name));
            assert_eq!(verify(&certificate, &der, NOW), Ok(()));
            assert!(verify(&certificate, &der, NOW + 91 * 86_400).is_err());
            assert!(verify(&certificate, &der, NOW - 3 * 86_400).is_err());
            // The key belongs to the certificate, and rustls accepts it.
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.expose().as_bytes()).expect("a key");
            let key = aws_lc_rs::sign::any_ecdsa_type(&key).expect("an ECDSA key");
            let public = key.public_key().expect("its public half");
            assert!(der.windows(public.len()).any(|part| part == public.as_ref()));
        }
        assert!(!format!("{first:?} {authority:?}").contains("PRIVATE"));
    }

    #[test]
    fn authority_without_signing_right_is_refused() {
        let (certificate, key) = authority(|_| {});
        let (other, other_key) = authority(|_| {});
        let refused = |certificate: &str, key: &str| Authority::new(certificate, key, NOW).err();
        assert_eq!(refused(&certificate, &other_key), Some(IdentityError::Mismatch));
        assert_eq!(refused(&other, &key), Some(IdentityError::Mismatch));
        assert_eq!(refused("", &key), Some(IdentityError::Certificate));
        assert_eq!(refused(&key, &key), Some(IdentityError::Certificate));
        assert_eq!(refused(&certificate, &certificate), Some(IdentityError::Key));
        let (leaf, key) = authority(|parameters| {
            parameters.is_ca = IsCa::NoCa;
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        });
        assert_eq!(refused(&leaf, &key), Some(IdentityError::NoAuthority));
        let (expired, key) = authority(|parameters| parameters.not_after = date_time_ymd(2001, 1, 1));
        assert_eq!(refused(&expired, &key), None, "the server refuses it");
    }

    #[test]
    fn common_name_length_is_bounded() {
        let (certificate, key) = authority(|_| {});
        let authority = Authority::new(&certificate, &key, NOW).expect("an authority");
        assert!(authority.issue(&"x".repeat(63), 7).is_ok());
        assert_eq!(
            authority.issue(&"x".repeat(63), 10).err(),
            Some(IdentityError::Name(format!("{}10", "x".repeat(63))))
        );
    }
}
