//! The parts of a configuration, before the first connection: versions, cipher suites, certificates and keys. Owns
//! the one-line errors that name the wrong option and what would be right; never guesses.

use std::sync::Arc;

use rustls::crypto::{aws_lc_rs, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};
use thiserror::Error;

use super::{TlsFailure, TlsVersion};

/// The reason why TLS cannot be set up with the options.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TlsSetupError {
    /// The oldest version is newer than the newest.
    #[error("TLS from {oldest} to {newest} leaves no version; the oldest has to be at most the newest")]
    Versions {
        /// The oldest allowed version.
        oldest: &'static str,
        /// The newest allowed version.
        newest: &'static str,
    },
    /// An unknown cipher suite.
    #[error("there is no cipher suite `{name}`; there are {known}")]
    UnknownSuite {
        /// The requested name.
        name: String,
        /// All available suites.
        known: String,
    },
    /// A cipher suite of a version that is not allowed.
    #[error("cipher suite `{name}` is of TLS {version}, which is not offered; those offered have {known}")]
    SuiteOfOtherVersion {
        /// The requested name.
        name: String,
        /// The version of the suite.
        version: &'static str,
        /// All suites of the allowed versions.
        known: String,
    },
    /// An ALPN protocol with an impossible length.
    #[error("ALPN protocol `{0}` is not between 1 and 255 bytes long")]
    Alpn(String),
    /// A name that no certificate can be issued for.
    #[error("`{0}` is not a server name; it has to be a host name or an IP address")]
    ServerName(String),
    /// Unreadable certificates.
    #[error("the {role} cannot be read: {reason}; it has to be PEM with at least one CERTIFICATE")]
    Certificate {
        /// The file's role.
        role: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// An unreadable key.
    #[error(
        "the {role} cannot be read: {reason}; it has to be an unencrypted PEM PRIVATE KEY (PKCS #8, PKCS #1 or SEC 1)"
    )]
    Key {
        /// The file's role.
        role: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A certificate that no peer accepts, or a key that does not belong to it.
    #[error("the {role} and its key cannot be used: {reason}")]
    Identity {
        /// The file's role.
        role: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The host has no root certificates.
    #[error("this host has no root certificates ({0}); give a CA file, or turn verification off")]
    NoRoots(String),
    /// A certificate for these names cannot be created.
    #[error("no certificate can be made: {0}")]
    SelfSigned(String),
    /// Another refusal of rustls.
    #[error("TLS cannot be set up: {0}")]
    Refused(String),
}

impl TlsSetupError {
    /// Returns the error of rustls about a certificate and its key.
    pub(super) fn identity(role: &'static str, error: &rustls::Error) -> Self {
        Self::Identity { role, reason: TlsFailure::of(error).detail }
    }
}

impl From<rustls::Error> for TlsSetupError {
    fn from(error: rustls::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// The IANA names of all available cipher suites, those of TLS 1.3 first.
#[must_use]
pub fn cipher_suite_names() -> Vec<&'static str> {
    aws_lc_rs::ALL_CIPHER_SUITES.iter().map(|suite| suite_name(suite.suite())).collect()
}

/// What may be negotiated: the provider with the selected suites, and the versions that have one of them.
pub(super) struct Negotiable {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
}

/// # Errors
///
/// A suite that is unknown or of a version outside the range, or an empty range.
pub(super) fn negotiable(
    oldest: TlsVersion,
    newest: TlsVersion,
    suites: &[String],
) -> Result<Negotiable, TlsSetupError> {
    if oldest > newest {
        return Err(TlsSetupError::Versions { oldest: oldest.name(), newest: newest.name() });
    }
    let allowed = |suite: &SupportedCipherSuite| (oldest..=newest).contains(&version_of(*suite));
    let mut provider = aws_lc_rs::default_provider();
    if suites.is_empty() {
        provider.cipher_suites.retain(allowed);
    } else {
        provider.cipher_suites = suites
            .iter()
            .map(|name| wanted_suite(name, allowed))
            .collect::<Result<Vec<SupportedCipherSuite>, TlsSetupError>>()?;
    }
    let versions = [(TlsVersion::V1_3, &rustls::version::TLS13), (TlsVersion::V1_2, &rustls::version::TLS12)]
        .into_iter()
        .filter(|(version, _)| provider.cipher_suites.iter().any(|&suite| version_of(suite) == *version))
        .map(|(_, known)| known)
        .collect();
    Ok(Negotiable { provider: Arc::new(provider), versions })
}

fn wanted_suite(
    name: &str,
    allowed: impl Fn(&SupportedCipherSuite) -> bool,
) -> Result<SupportedCipherSuite, TlsSetupError> {
    let all = aws_lc_rs::ALL_CIPHER_SUITES;
    let listed = |keep: &dyn Fn(&SupportedCipherSuite) -> bool| {
        all.iter().filter(|suite| keep(suite)).map(|suite| suite_name(suite.suite())).collect::<Vec<_>>().join(", ")
    };
    match all.iter().find(|suite| suite_name(suite.suite()).eq_ignore_ascii_case(name)) {
        None => Err(TlsSetupError::UnknownSuite { name: name.to_owned(), known: listed(&|_| true) }),
        Some(suite) if !allowed(suite) => Err(TlsSetupError::SuiteOfOtherVersion {
            name: name.to_owned(),
            version: version_of(*suite).name(),
            known: listed(&allowed),
        }),
        Some(suite) => Ok(*suite),
    }
}

pub(super) fn version_of(suite: SupportedCipherSuite) -> TlsVersion {
    if suite.tls13().is_some() {
        TlsVersion::V1_3
    } else {
        TlsVersion::V1_2
    }
}

/// Returns a suite's name in the IANA registry. rustls has different names for those of TLS 1.3.
pub(super) fn suite_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}

/// Returns the protocols in the form of the hello.
pub(super) fn alpn(protocols: &[String]) -> Result<Vec<Vec<u8>>, TlsSetupError> {
    protocols
        .iter()
        .map(|protocol| match protocol.len() {
            1..=255 => Ok(protocol.as_bytes().to_vec()),
            _ => Err(TlsSetupError::Alpn(protocol.clone())),
        })
        .collect()
}

/// Returns all certificates of a PEM text, in order; at least one.
pub(super) fn certificates(role: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let failed = |reason: String| TlsSetupError::Certificate { role, reason };
    let found = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed(error.to_string()))?;
    if found.is_empty() {
        return Err(failed("there is no certificate in it".to_owned()));
    }
    Ok(found)
}

/// Returns the first private key of a PEM text.
pub(super) fn private_key(role: &'static str, pem: &str) -> Result<PrivateKeyDer<'static>, TlsSetupError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| {
        let reason = match error {
            rustls::pki_types::pem::Error::NoItemsFound => "there is no private key in it".to_owned(),
            other => other.to_string(),
        };
        TlsSetupError::Key { role, reason }
    })
}

#[cfg(test)]
mod tests {
    use super::{cipher_suite_names, negotiable, TlsSetupError, TlsVersion};

    #[test]
    fn every_suite_has_its_registered_name() {
        let names = cipher_suite_names();
        assert!(names.len() >= 9);
        assert!(names.iter().all(|name| name.starts_with("TLS_")), "{names:?}");
    }

    #[test]
    fn suites_choose_the_versions() {
        let only = |suite: &str| negotiable(TlsVersion::V1_2, TlsVersion::V1_3, &[suite.to_owned()]).unwrap();
        assert_eq!(only("TLS_AES_128_GCM_SHA256").versions, [&rustls::version::TLS13]);
        assert_eq!(only("tls_ecdhe_rsa_with_aes_128_gcm_sha256").versions, [&rustls::version::TLS12]);
        assert_eq!(negotiable(TlsVersion::V1_2, TlsVersion::V1_3, &[]).unwrap().versions.len(), 2);
    }

    #[test]
    fn contradicting_tls_options_are_refused_with_the_possible_ones() {
        let asked = |oldest, newest, suite: &str| negotiable(oldest, newest, &[suite.to_owned()]).err().unwrap();
        let unknown = asked(TlsVersion::V1_2, TlsVersion::V1_3, "RC4-MD5").to_string();
        assert!(unknown.contains("`RC4-MD5`") && unknown.contains("TLS_AES_128_GCM_SHA256"), "{unknown}");
        let contradiction = asked(TlsVersion::V1_3, TlsVersion::V1_3, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
        assert!(matches!(contradiction, TlsSetupError::SuiteOfOtherVersion { version: "1.2", .. }));
        assert!(!contradiction.to_string().ends_with("have "));
        assert!(matches!(
            negotiable(TlsVersion::V1_3, TlsVersion::V1_2, &[]).err().unwrap(),
            TlsSetupError::Versions { .. }
        ));
    }
}
