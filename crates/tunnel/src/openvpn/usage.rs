//! Compares the usages of a server's certificate with the requirements of OpenVPN (OpenSSL's purpose of a TLS server)
//! and of a profile (`remote-cert-tls`, `remote-cert-ku`, `remote-cert-eku`). `tls` verifies the chain.

use leadline_tls::UnmetDemand;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, NSCertType, ParsedExtension};
use x509_parser::parse_x509_certificate;

use super::profile::Profile;

/// If a TLS server's certificate has a key usage, it includes one of these: digitalSignature, keyEncipherment,
/// keyAgreement.
const SERVER_KEY_USAGES: u16 = 0x80 | 0x20 | 0x08;

/// A profile's requirements of the server's certificate besides its chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredUsage {
    /// Whether the extended key usage must include TLS servers.
    pub server_usage: bool,
    /// If set, the key usage must be present and include all usages of one entry, if there is an entry.
    pub key_usage: Option<Vec<u16>>,
}

impl RequiredUsage {
    /// The requirements of a profile.
    pub fn of(profile: &Profile) -> Self {
        Self { server_usage: profile.server_usage, key_usage: profile.key_usage.clone() }
    }

    /// Checks a certificate with a valid chain.
    ///
    /// # Errors
    /// The unmet requirement.
    pub fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), UnmetDemand> {
        let unmet = |what: &str| Err(UnmetDemand(what.to_owned()));
        let Ok((_, certificate)) = parse_x509_certificate(certificate) else {
            return unmet("its extensions cannot be read");
        };
        if !is_for_server(&certificate) {
            return unmet("its usages do not allow TLS servers");
        }
        if let Some(required) = &self.key_usage {
            let Some(usages) = key_usage(&certificate) else {
                return unmet("it has no key usage, which `remote-cert-tls` and `remote-cert-ku` require");
            };
            if !required.is_empty() && !required.iter().any(|required| usages & required == *required) {
                return unmet(&format!("its key usage is {usages:02x}, and `remote-cert-ku` requires another"));
            }
        }
        if self.server_usage && !extended_key_usage(&certificate).is_some_and(|usage| usage.server_auth) {
            return unmet(
                "its extended key usage does not include TLS servers, which `remote-cert-tls server` requires",
            );
        }
        Ok(())
    }
}

/// The first eight usages as OpenVPN writes them: the first one, digitalSignature, is the highest bit.
fn key_usage(certificate: &X509Certificate<'_>) -> Option<u16> {
    let flags = certificate.key_usage().ok()??.value.flags;
    Some((0..8).filter(|bit| flags >> bit & 1 == 1).fold(0, |usages, bit| usages | 0x80 >> bit))
}

fn extended_key_usage<'c>(certificate: &'c X509Certificate<'_>) -> Option<&'c ExtendedKeyUsage<'c>> {
    Some(certificate.extended_key_usage().ok()??.value)
}

fn netscape_types<'c>(certificate: &'c X509Certificate<'_>) -> Option<&'c NSCertType> {
    certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::NSCertType(types) => Some(types),
        _ => None,
    })
}

/// Checks OpenSSL's purpose of a TLS server, which `ns-cert-type server` requires too: an absent extension forbids
/// nothing.
fn is_for_server(certificate: &X509Certificate<'_>) -> bool {
    extended_key_usage(certificate).is_none_or(|usage| usage.server_auth)
        && key_usage(certificate).is_none_or(|usages| usages & SERVER_KEY_USAGES != 0)
        && netscape_types(certificate).is_none_or(NSCertType::ssl_server)
}
