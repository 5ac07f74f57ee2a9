//! Signatures with their algorithms (RFC 7427) and the certificates behind them: a client's own key and chain, and the
//! check of a gateway's. Names are compared with the gateway's identity, not with a host name.

use std::sync::Arc;

use aws_lc_rs::digest::{digest, SHA1_FOR_LEGACY_USE_ONLY};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SigningKey;
use rustls::{CertificateError, Error, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::identification::Id;

/// X.509 certificate, as a CERT or CERTREQ payload names its encoding.
pub const ENCODING_X509: u8 = 4;
/// The largest number of certificates that are read of a peer.
pub const MAX_CERTIFICATES: usize = 8;

/// A signature algorithm with its number among hashes (RFC 7427, section 4) and its `AlgorithmIdentifier`.
struct Algorithm {
    scheme: SignatureScheme,
    hash: u16,
    identifier: &'static [u8],
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm {
        scheme: SignatureScheme::ECDSA_NISTP256_SHA256,
        hash: 2,
        identifier: &[0x30, 0x0A, 6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2],
    },
    Algorithm {
        scheme: SignatureScheme::ECDSA_NISTP384_SHA384,
        hash: 3,
        identifier: &[0x30, 0x0A, 6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 3],
    },
    Algorithm {
        scheme: SignatureScheme::RSA_PKCS1_SHA256,
        hash: 2,
        identifier: &[0x30, 0x0D, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 0x0B, 5, 0],
    },
    Algorithm {
        scheme: SignatureScheme::RSA_PKCS1_SHA384,
        hash: 3,
        identifier: &[0x30, 0x0D, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 0x0C, 5, 0],
    },
    Algorithm {
        scheme: SignatureScheme::RSA_PKCS1_SHA512,
        hash: 4,
        identifier: &[0x30, 0x0D, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 0x0D, 5, 0],
    },
];

/// The data of a notification of the hashes that are supported: SHA2-256, -384, -512.
pub const HASHES: [u8; 6] = [0, 2, 0, 3, 0, 4];

/// A client's key and its chain of certificates.
pub struct Signer {
    key: Arc<dyn SigningKey>,
    chain: Vec<CertificateDer<'static>>,
}

impl Signer {
    /// Reads a chain, the client's own certificate first, and its private key.
    ///
    /// # Errors
    /// One line on what is not valid; it contains nothing of the key.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, String> {
        let chain = read_certificates(chain)?;
        if chain.is_empty() {
            return Err("a certificate is missing".to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| "the private key is not PEM".to_owned())?;
        let key = any_supported_type(&key).map_err(|_| "the private key is neither ECDSA nor RSA".to_owned())?;
        Ok(Self { key, chain })
    }

    /// The chain, the client's own certificate first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The subject of the client's certificate, as an identity.
    #[must_use]
    pub fn subject(&self) -> Option<Id> {
        let (_, certificate) = X509Certificate::from_der(&self.chain[0]).ok()?;
        Some(Id::from_der_name(certificate.subject().as_raw()))
    }

    /// The AUTH data over `octets`, by the first algorithm whose hash the peer supports; `None` if there is none.
    /// `hashes` is the data of the peer's notification.
    #[must_use]
    pub fn sign(&self, octets: &[u8], hashes: &[u8]) -> Option<Vec<u8>> {
        let is_supported = |algorithm: &&Algorithm| {
            hashes.chunks_exact(2).any(|hash| u16::from_be_bytes([hash[0], hash[1]]) == algorithm.hash)
        };
        for algorithm in ALGORITHMS.iter().filter(is_supported) {
            if let Some(signer) = self.key.choose_scheme(&[algorithm.scheme]) {
                let signature = signer.sign(octets).ok()?;
                let length = [algorithm.identifier.len() as u8];
                return Some([&length, algorithm.identifier, &signature].concat());
            }
        }
        None
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Signer").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

/// Why a peer's certificate or signature is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It sent no certificate.
    Missing,
    /// No trusted authority issued it.
    UnknownAuthority,
    /// It has expired, or is not valid yet.
    Expired,
    /// It does not contain the peer's identity.
    WrongIdentity,
    /// It cannot be read, or may not be used for this.
    Invalid,
    /// The signature is wrong.
    BadSignature,
    /// The signature has an algorithm that is not supported.
    UnsupportedAlgorithm,
}

/// The authorities that gateways are accepted by.
#[derive(Debug)]
pub struct PeerVerifier {
    roots: RootCertStore,
    /// SHA-1 of each authority's public key: the data of a CERTREQ.
    authorities: Vec<u8>,
}

impl PeerVerifier {
    /// Reads authorities.
    ///
    /// # Errors
    /// One line on what is not valid.
    pub fn from_pem(authorities: &str) -> Result<Self, String> {
        let certificates = read_certificates(authorities)?;
        let mut roots = RootCertStore::empty();
        let mut hashes = Vec::new();
        for certificate in certificates {
            let (_, parsed) =
                X509Certificate::from_der(&certificate).map_err(|_| "an authority is no certificate".to_owned())?;
            hashes.extend_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, parsed.public_key().raw).as_ref());
            roots.add(certificate.clone()).map_err(|error| format!("an authority is not valid: {error}"))?;
        }
        if roots.is_empty() {
            return Err("a certificate of an authority is missing".to_owned());
        }
        Ok(Self { roots, authorities: hashes })
    }

    /// The data of a CERTREQ payload after its encoding.
    #[must_use]
    pub fn authorities(&self) -> &[u8] {
        &self.authorities
    }

    /// Checks a peer's chain, its own certificate first, and its signature over `octets`.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        id: &Id,
        octets: &[u8],
        auth_data: &[u8],
        unix_s: u64,
    ) -> Result<(), Refusal> {
        let (own, intermediates) = chain.split_first().ok_or(Refusal::Missing)?;
        let parsed = ParsedCertificate::try_from(own).map_err(|_| Refusal::Invalid)?;
        let algorithms = default_provider().signature_verification_algorithms;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(unix_s));
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms.all)
            .map_err(|error| refusal_of(&error))?;
        let (_, certificate) = X509Certificate::from_der(own).map_err(|_| Refusal::Invalid)?;
        if !has_identity(&certificate, id) {
            return Err(Refusal::WrongIdentity);
        }
        let (&length, rest) = auth_data.split_first().ok_or(Refusal::BadSignature)?;
        let (identifier, signature) = rest.split_at_checked(usize::from(length)).ok_or(Refusal::BadSignature)?;
        let known = ALGORITHMS.iter().find(|algorithm| algorithm.identifier == identifier);
        let scheme = known.ok_or(Refusal::UnsupportedAlgorithm)?.scheme;
        let key = &certificate.public_key().subject_public_key.data;
        let mut candidates = algorithms.mapping.iter().filter(|(one, _)| *one == scheme).flat_map(|(_, list)| *list);
        let is_right = candidates.any(|algorithm| algorithm.verify_signature(key, octets, signature).is_ok());
        is_right.then_some(()).ok_or(Refusal::BadSignature)
    }
}

fn refusal_of(error: &Error) -> Refusal {
    let Error::InvalidCertificate(problem) = error else { return Refusal::Invalid };
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Refusal::UnknownAuthority,
        CertificateError::Expired
        | CertificateError::NotValidYet
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYetContext { .. } => Refusal::Expired,
        _ => Refusal::Invalid,
    }
}

/// Whether a certificate's subject or one of its alternative names is `id`.
fn has_identity(certificate: &X509Certificate<'_>, id: &Id) -> bool {
    if id.is_der_name() {
        return certificate.subject().as_raw() == id.data();
    }
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) => {
            id.address().is_none() && name.as_bytes().eq_ignore_ascii_case(id.data())
        }
        GeneralName::IPAddress(address) => id.address().is_some() && *address == id.data(),
        _ => false,
    })
}

fn read_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    read.map_err(|error| format!("a certificate is not PEM: {error}"))
}
