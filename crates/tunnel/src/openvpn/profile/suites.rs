//! Names of TLS versions, cipher suites and groups in profiles: OpenSSL's names, IANA's with dashes, IANA's. Owns
//! which of them are supported: those of rustls.

use rustls::{CipherSuite, NamedGroup};

/// A supported version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

const SUITES: [(CipherSuite, &str, &str); 9] = [
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS-AES-256-GCM-SHA384", ""),
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS-AES-128-GCM-SHA256", ""),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS-CHACHA20-POLY1305-SHA256", ""),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS-ECDHE-ECDSA-WITH-AES-128-GCM-SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS-ECDHE-ECDSA-WITH-CHACHA20-POLY1305-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS-ECDHE-RSA-WITH-AES-256-GCM-SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS-ECDHE-RSA-WITH-AES-128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS-ECDHE-RSA-WITH-CHACHA20-POLY1305-SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

const GROUPS: [(NamedGroup, &[&str]); 3] = [
    (NamedGroup::X25519, &["X25519"]),
    (NamedGroup::secp256r1, &["SECP256R1", "PRIME256V1", "P-256"]),
    (NamedGroup::secp384r1, &["SECP384R1", "P-384"]),
];

/// Combines the suites of TLS 1.2 (`tls-cipher`) and of TLS 1.3 (`tls-ciphersuites`): an empty list selects all of
/// its version, and two empty lists select all.
pub(super) fn combine(older: &[CipherSuite], newer: &[CipherSuite]) -> Vec<CipherSuite> {
    if older.is_empty() && newer.is_empty() {
        return Vec::new();
    }
    let all = |is_newer: bool| {
        SUITES.iter().filter(move |(_, _, openssl)| openssl.is_empty() == is_newer).map(|(suite, ..)| *suite)
    };
    let mut suites = newer.to_vec();
    if newer.is_empty() {
        suites.extend(all(true));
    }
    suites.extend_from_slice(older);
    if older.is_empty() {
        suites.extend(all(false));
    }
    suites
}

/// The supported suites of `tls-cipher` or `tls-ciphersuites`, in order; empty if the list leaves the choice
/// (`DEFAULT` and similar).
///
/// # Errors
/// The list names suites, and none is supported.
pub(super) fn suites(list: &str) -> Result<Vec<CipherSuite>, String> {
    // Words like DEFAULT or HIGH, and exclusions like !RC4, name no suite: rustls has no suite that they would
    // exclude.
    let open = |word: &str| word.starts_with(['!', '-', '+', '@']) || !word.contains(['-', '_']);
    if list.split(':').all(|word| open(word.trim())) {
        return Ok(Vec::new());
    }
    let supported: Vec<CipherSuite> = list
        .split(':')
        .filter_map(|word| {
            let word = word.trim().to_ascii_uppercase().replace('_', "-");
            SUITES.iter().find(|(_, iana, openssl)| word == *iana || (!openssl.is_empty() && word == *openssl))
        })
        .map(|(suite, ..)| *suite)
        .collect();
    if supported.is_empty() {
        let known: Vec<_> = SUITES.iter().map(|(_, iana, _)| *iana).collect();
        return Err(format!("none of these suites is supported; supported are: {}", known.join(", ")));
    }
    Ok(supported)
}

/// The supported groups of `tls-groups`, in order.
///
/// # Errors
/// No group is supported.
pub(super) fn groups(list: &str) -> Result<Vec<NamedGroup>, String> {
    let supported: Vec<NamedGroup> = list
        .split(':')
        .filter_map(|word| GROUPS.iter().find(|(_, names)| names.contains(&word.trim().to_ascii_uppercase().as_str())))
        .map(|(group, _)| *group)
        .collect();
    if supported.is_empty() {
        return Err("none of these groups is supported; supported are: X25519, secp256r1, secp384r1".into());
    }
    Ok(supported)
}

/// The minimum version of `tls-version-min`.
///
/// # Errors
/// Not a version of TLS.
pub(super) fn lowest(parameters: &[&str]) -> Result<TlsVersion, String> {
    match parameters {
        // Profiles that allow older versions also allow 1.2, which is the oldest supported one.
        ["1.0" | "1.1" | "1.2"] | ["1.0" | "1.1" | "1.2", "or-highest"] => Ok(TlsVersion::Tls12),
        ["1.3"] | [_, "or-highest"] => Ok(TlsVersion::Tls13),
        _ => Err("write tls-version-min 1.2 or 1.3".into()),
    }
}

/// The maximum version of `tls-version-max`.
///
/// # Errors
/// Not a supported version.
pub(super) fn highest(parameters: &[&str]) -> Result<TlsVersion, String> {
    match parameters {
        ["1.2"] => Ok(TlsVersion::Tls12),
        ["1.3"] => Ok(TlsVersion::Tls13),
        _ => Err("TLS 1.2 and 1.3 are supported: write tls-version-max 1.2 or 1.3".into()),
    }
}
