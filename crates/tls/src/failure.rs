//! The ways in which TLS can fail, each with a stable name for counting. Owns the names, which depend on the problem
//! and not on the side that detected it. Holds no keys and no plaintext. A failure that the peer reported in an alert
//! has the alert's own name (RFC 8446, 6).

use std::fmt;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible, PeerMisbehaved};

/// The reason why a connection's TLS cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFailure {
    /// The stable name under which it is counted, such as `tls_alert_handshake_failure`.
    pub name: &'static str,
    /// A description in one line.
    pub detail: String,
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, self.detail)
    }
}

impl std::error::Error for TlsFailure {}

impl TlsFailure {
    /// Returns the failure of an unfinished message that exceeds the size limit.
    #[must_use]
    pub fn too_large(limit_bytes: usize) -> Self {
        Self { name: "tls_too_large", detail: format!("a message is longer than {limit_bytes} bytes") }
    }

    /// Returns the failure of a connection that ended without a close_notify.
    pub fn ended(handshaking: bool) -> Self {
        if handshaking {
            Self { name: "tls_handshake_cut", detail: "the connection ended during the handshake".to_owned() }
        } else {
            Self { name: "tls_truncated", detail: "the connection ended without a close_notify".to_owned() }
        }
    }

    /// Returns a failure that no peer can cause: an internal error.
    pub fn internal(detail: impl fmt::Display) -> Self {
        Self { name: "tls_internal", detail: detail.to_string() }
    }

    /// Returns true if the peer reported the failure in an alert, false if this side detected it.
    #[must_use]
    pub fn is_alert(&self) -> bool {
        self.name.starts_with("tls_alert_")
    }

    /// Returns the failure for an error of rustls.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        Self { name: name_of(error), detail: detail_of(error) }
    }
}

fn name_of(error: &Error) -> &'static str {
    match error {
        Error::AlertReceived(alert) => alert_name(*alert),
        Error::InvalidCertificate(problem) => certificate_name(problem),
        Error::NoCertificatesPresented => "tls_certificate_missing",
        Error::UnsupportedNameType => "tls_certificate_name_mismatch",
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => "tls_unexpected_message",
        Error::InvalidMessage(problem) => message_name(*problem),
        Error::PeerSentOversizedRecord => "tls_too_large",
        Error::DecryptError => "tls_decrypt",
        Error::PeerIncompatible(problem) => incompatible_name(problem),
        Error::PeerMisbehaved(problem) => misbehaved_name(problem),
        Error::NoApplicationProtocol => "tls_alpn",
        // rustls has no variant for this failure, although the peer causes it: the client's hello offers no signature
        // scheme that our key supports.
        Error::General(text) if text == "incompatible signing key" => "tls_signature_scheme",
        _ => "tls_internal",
    }
}

fn message_name(problem: InvalidMessage) -> &'static str {
    match problem {
        InvalidMessage::CertificatePayloadTooLarge
        | InvalidMessage::HandshakePayloadTooLarge
        | InvalidMessage::MessageTooLarge => "tls_too_large",
        InvalidMessage::UnexpectedMessage(_) => "tls_unexpected_message",
        _ => "tls_malformed",
    }
}

fn incompatible_name(problem: &PeerIncompatible) -> &'static str {
    match problem {
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => "tls_version",
        PeerIncompatible::NoCipherSuitesInCommon => "tls_cipher_suite",
        PeerIncompatible::NoKxGroupsInCommon => "tls_key_exchange",
        PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
        | PeerIncompatible::NoSignatureSchemesInCommon => "tls_signature_scheme",
        _ => "tls_incompatible",
    }
}

fn misbehaved_name(problem: &PeerMisbehaved) -> &'static str {
    match problem {
        PeerMisbehaved::SelectedUnofferedCipherSuite | PeerMisbehaved::SelectedUnusableCipherSuiteForVersion => {
            "tls_cipher_suite"
        }
        PeerMisbehaved::SelectedUnofferedApplicationProtocol => "tls_alpn",
        PeerMisbehaved::TooManyEmptyFragments
        | PeerMisbehaved::TooManyKeyUpdateRequests
        | PeerMisbehaved::TooManyRenegotiationRequests
        | PeerMisbehaved::TooManyWarningAlertsReceived
        | PeerMisbehaved::TooMuchEarlyDataReceived => "tls_flood",
        _ => "tls_misbehaved",
    }
}

fn certificate_name(problem: &CertificateError) -> &'static str {
    use CertificateError as Of;
    #[allow(deprecated)] // a verifier may still return the older variants without context
    match problem {
        Of::BadEncoding => "tls_certificate_malformed",
        Of::Expired | Of::ExpiredContext { .. } => "tls_certificate_expired",
        Of::NotValidYet | Of::NotValidYetContext { .. } => "tls_certificate_not_yet_valid",
        Of::Revoked => "tls_certificate_revoked",
        Of::UnhandledCriticalExtension => "tls_certificate_critical_extension",
        Of::UnknownIssuer => "tls_certificate_unknown_issuer",
        Of::UnknownRevocationStatus | Of::ExpiredRevocationList | Of::ExpiredRevocationListContext { .. } => {
            "tls_certificate_revocation_unknown"
        }
        Of::BadSignature => "tls_certificate_signature",
        Of::UnsupportedSignatureAlgorithm
        | Of::UnsupportedSignatureAlgorithmContext { .. }
        | Of::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => "tls_certificate_algorithm",
        Of::NotValidForName | Of::NotValidForNameContext { .. } => "tls_certificate_name_mismatch",
        Of::InvalidPurpose | Of::InvalidPurposeContext { .. } => "tls_certificate_purpose",
        problem if unmet_demand(problem).is_some() => "tls_certificate_purpose",
        Of::InvalidOcspResponse => "tls_certificate_ocsp",
        problem if is_authority(problem) => "tls_certificate_is_authority",
        problem if is_of_old_version(problem) => "tls_certificate_version",
        _ => "tls_certificate_rejected",
    }
}

/// Returns an alert's name in the RFCs: RFC 8446, 6, and RFC 5246, 7.2 and RFC 6066, 9 for alerts that TLS 1.3
/// removed.
fn alert_name(alert: AlertDescription) -> &'static str {
    use AlertDescription as Of;
    match alert {
        Of::CloseNotify => "tls_alert_close_notify",
        Of::UnexpectedMessage => "tls_alert_unexpected_message",
        Of::BadRecordMac => "tls_alert_bad_record_mac",
        Of::DecryptionFailed => "tls_alert_decryption_failed",
        Of::RecordOverflow => "tls_alert_record_overflow",
        Of::DecompressionFailure => "tls_alert_decompression_failure",
        Of::HandshakeFailure => "tls_alert_handshake_failure",
        Of::NoCertificate => "tls_alert_no_certificate",
        Of::BadCertificate => "tls_alert_bad_certificate",
        Of::UnsupportedCertificate => "tls_alert_unsupported_certificate",
        Of::CertificateRevoked => "tls_alert_certificate_revoked",
        Of::CertificateExpired => "tls_alert_certificate_expired",
        Of::CertificateUnknown => "tls_alert_certificate_unknown",
        Of::IllegalParameter => "tls_alert_illegal_parameter",
        Of::UnknownCA => "tls_alert_unknown_ca",
        Of::AccessDenied => "tls_alert_access_denied",
        Of::DecodeError => "tls_alert_decode_error",
        Of::DecryptError => "tls_alert_decrypt_error",
        Of::ExportRestriction => "tls_alert_export_restriction",
        Of::ProtocolVersion => "tls_alert_protocol_version",
        Of::InsufficientSecurity => "tls_alert_insufficient_security",
        Of::InternalError => "tls_alert_internal_error",
        Of::InappropriateFallback => "tls_alert_inappropriate_fallback",
        Of::UserCanceled => "tls_alert_user_canceled",
        Of::NoRenegotiation => "tls_alert_no_renegotiation",
        Of::MissingExtension => "tls_alert_missing_extension",
        Of::UnsupportedExtension => "tls_alert_unsupported_extension",
        Of::CertificateUnobtainable => "tls_alert_certificate_unobtainable",
        Of::UnrecognisedName => "tls_alert_unrecognized_name",
        Of::BadCertificateStatusResponse => "tls_alert_bad_certificate_status_response",
        Of::BadCertificateHashValue => "tls_alert_bad_certificate_hash_value",
        Of::UnknownPSKIdentity => "tls_alert_unknown_psk_identity",
        Of::CertificateRequired => "tls_alert_certificate_required",
        Of::NoApplicationProtocol => "tls_alert_no_application_protocol",
        Of::EncryptedClientHelloRequired => "tls_alert_ech_required",
        Of::Unknown(117) => "tls_alert_general_error",
        _ => "tls_alert_unknown",
    }
}

fn detail_of(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => {
            let name = alert_name(*alert).trim_start_matches("tls_alert_");
            format!("the peer sent the alert {name} ({})", u8::from(*alert))
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "the peer sent something that is not a TLS record; perhaps the port does not speak TLS".to_owned()
        }
        Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig) => {
            "the server selected a version of TLS that was not offered".to_owned()
        }
        Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13) => {
            "the server speaks neither TLS 1.2 nor TLS 1.3".to_owned()
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the certificate is not issued by a trusted authority".to_owned()
        }
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            "a signature does not verify: it was made with another key, or with a key that is refused (RSA under 2048 bits)"
                .to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForName) => {
            "the certificate's name is not the expected one; a profile sets it with verify-x509-name".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => {
            format!("the certificate is for {}, not for {}", listed(presented), expected.to_str())
        }
        Error::InvalidCertificate(problem) if is_authority(problem) => {
            "the certificate is that of an authority (CA:TRUE, as self-signed ones often are), and is not itself trusted"
                .to_owned()
        }
        Error::InvalidCertificate(problem) if is_of_old_version(problem) => {
            "the certificate is not of X.509 version 3, which TLS requires; `openssl x509` creates one with -extfile"
                .to_owned()
        }
        Error::InvalidCertificate(problem) if unmet_demand(problem).is_some() => {
            unmet_demand(problem).map(ToString::to_string).unwrap_or_default()
        }
        Error::InvalidCertificate(CertificateError::Other(cause)) => format!("the certificate is refused: {cause}"),
        Error::General(text) => text.clone(),
        Error::NoCertificatesPresented => "the peer sent no certificate".to_owned(),
        other => other.to_string(),
    }
}

/// The error for a certificate with a valid chain that does not meet a required use: a description of what it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmetDemand(pub String);

impl fmt::Display for UnmetDemand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the certificate is refused: {}", self.0)
    }
}

impl std::error::Error for UnmetDemand {}

impl From<UnmetDemand> for Error {
    fn from(unmet: UnmetDemand) -> Self {
        Self::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(unmet))))
    }
}

fn unmet_demand(problem: &CertificateError) -> Option<&UnmetDemand> {
    match problem {
        CertificateError::Other(cause) => cause.0.downcast_ref(),
        _ => None,
    }
}

/// Returns true if a server's certificate was refused only because it may issue others. webpki checks the dates
/// before, and the name after.
pub fn is_authority(problem: &CertificateError) -> bool {
    matches!(problem, CertificateError::Other(cause) if cause.to_string() == "CaUsedAsEndEntity")
}

/// Returns true if a certificate was refused because it is of X.509 version 1, which `openssl x509 -req` creates
/// without extensions.
fn is_of_old_version(problem: &CertificateError) -> bool {
    matches!(problem, CertificateError::Other(cause) if cause.to_string() == "UnsupportedCertVersion")
}

/// Returns the names in a certificate, given as `DnsName("a.example")` or `IpAddress(192.0.2.1)`; only the first ones
/// of a long list.
fn listed(presented: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        inner.trim_matches('"').to_owned()
    };
    match presented {
        [] => "no name (subjectAltName)".to_owned(),
        few if few.len() <= LISTED_NAMES => few.iter().map(bare).collect::<Vec<_>>().join(", "),
        many => {
            let first: Vec<_> = many[..LISTED_NAMES].iter().map(bare).collect();
            format!("{} and {} more", first.join(", "), many.len() - LISTED_NAMES)
        }
    }
}

/// The maximum number of a certificate's names in a message.
const LISTED_NAMES: usize = 4;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustls::{AlertDescription, CertificateError, Error};

    use super::{alert_name, listed, TlsFailure};

    #[test]
    fn every_alert_has_its_own_name() {
        let known: Vec<&str> = (0..=255)
            .map(|code| alert_name(AlertDescription::from(code)))
            .filter(|&name| name != "tls_alert_unknown")
            .collect();
        assert_eq!(known.len(), 36);
        assert_eq!(known.iter().collect::<BTreeSet<_>>().len(), known.len());
        assert_eq!(alert_name(AlertDescription::from(40)), "tls_alert_handshake_failure");
    }

    #[test]
    fn details_are_one_line() {
        let alert = TlsFailure::of(&Error::AlertReceived(AlertDescription::from(48)));
        assert_eq!(alert.to_string(), "tls_alert_unknown_ca: the peer sent the alert unknown_ca (48)");
        assert!(alert.is_alert());
        let expired = TlsFailure::of(&Error::InvalidCertificate(CertificateError::Expired));
        assert_eq!(expired.name, "tls_certificate_expired");
        assert!(!expired.is_alert() && !expired.detail.contains('\n'));
    }

    #[test]
    fn names_are_listed_bare_and_not_all() {
        let dns = |name: &str| format!("DnsName({name:?})");
        assert_eq!(listed(&[]), "no name (subjectAltName)");
        assert_eq!(listed(&[dns("a.test"), "IpAddress(192.0.2.1)".to_owned()]), "a.test, 192.0.2.1");
        assert_eq!(listed(&vec![dns("a"); 9]), "a, a, a, a and 5 more");
    }
}
