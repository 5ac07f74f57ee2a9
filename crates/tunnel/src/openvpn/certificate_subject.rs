//! The names in a certificate's subject, formatted as OpenVPN does (`verify-x509-name`), and its public key. Verifies
//! nothing; bytes that are not a certificate have no name.

use std::fmt::Write;

use rustls::pki_types::CertificateDer;
use x509_parser::asn1_rs::{Any, Oid, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::parse_x509_certificate;

/// The common name: the last one if there are several, as in OpenVPN; `None` if there is none.
#[must_use]
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = parsed(certificate)?;
    let last = certificate.subject().iter_common_name().last()?;
    text(last.attr_value())
}

/// The whole subject: `C=DE, O=Example, CN=server`, with a plus between names of one set.
#[must_use]
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = parsed(certificate)?;
    let mut sets = Vec::new();
    for set in certificate.subject().iter_rdn() {
        let written: Option<Vec<_>> = set
            .iter()
            .map(|name| Some(format!("{}={}", name_of(name.attr_type()), escaped(&text(name.attr_value())?))))
            .collect();
        sets.push(written?.join(" + "));
    }
    Some(sets.join(", "))
}

/// The public key of a certificate, as `SubjectPublicKeyInfo`.
#[must_use]
pub fn public_key<'c>(certificate: &'c CertificateDer<'_>) -> Option<&'c [u8]> {
    Some(parsed(certificate)?.tbs_certificate.subject_pki.raw)
}

fn parsed<'c>(certificate: &'c CertificateDer<'_>) -> Option<X509Certificate<'c>> {
    Some(parse_x509_certificate(certificate).ok()?.1)
}

/// OpenSSL's short names of the attributes under 2.5.4, by the last number.
const SHORT: [(u8, &str); 20] = [
    (3, "CN"),
    (4, "SN"),
    (5, "serialNumber"),
    (6, "C"),
    (7, "L"),
    (8, "ST"),
    (9, "street"),
    (10, "O"),
    (11, "OU"),
    (12, "title"),
    (13, "description"),
    (15, "businessCategory"),
    (17, "postalCode"),
    (41, "name"),
    (42, "GN"),
    (43, "initials"),
    (44, "generationQualifier"),
    (45, "x500UniqueIdentifier"),
    (46, "dnQualifier"),
    (65, "pseudonym"),
];
/// Short names of other attributes: 1.2.840.113549.1.9.1, .2, 0.9.2342.19200300.100.1.1 and .25.
const SHORT_ELSEWHERE: [(&[u8], &str); 4] = [
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2], "unstructuredName"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

/// The short name of an attribute, or its numbers.
fn name_of(kind: &Oid<'_>) -> String {
    let short = match kind.as_bytes() {
        [0x55, 0x04, last] => SHORT.iter().find(|(number, _)| number == last).map(|(_, short)| *short),
        known => SHORT_ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == known).map(|(_, short)| *short),
    };
    short.map_or_else(|| kind.to_id_string(), str::to_owned)
}

/// The text of a name, according to its string type.
fn text(value: &Any<'_>) -> Option<String> {
    let bytes = value.data;
    match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        // One byte per character.
        Tag::NumericString | Tag::PrintableString | Tag::T61String | Tag::Ia5String | Tag::VisibleString => {
            Some(bytes.iter().copied().map(char::from).collect())
        }
        Tag::BmpString => {
            let pairs: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&pairs).ok().filter(|_| bytes.len() % 2 == 0)
        }
        _ => None,
    }
}

/// Escapes control characters as OpenSSL does.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if letter.is_ascii_control() {
            // Writing to a String cannot fail.
            let _ = write!(escaped, "\\{:02X}", u32::from(letter));
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn named(names: impl IntoIterator<Item = (DnType, DnValue)>) -> CertificateDer<'static> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        names.into_iter().for_each(|(kind, value)| parameters.distinguished_name.push(kind, value));
        let key = KeyPair::generate().expect("a key");
        parameters.self_signed(&key).expect("a certificate").der().clone()
    }

    /// The exact output of `openssl x509 -subject -nameopt sep_comma_plus_space,sname,utf8,esc_ctrl` for such
    /// certificates.
    #[test]
    fn subjects_match_openvpns_format() {
        let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
        let printable = |text: &str| DnValue::PrintableString(text.try_into().expect("printable"));
        let made = named([
            (DnType::CountryName, printable("DE")),
            (DnType::StateOrProvinceName, utf8("Baden-Württemberg")),
            (DnType::OrganizationName, utf8("Example, Inc.\n")),
            (
                DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]),
                DnValue::Ia5String("a@b.de".try_into().expect("ASCII")),
            ),
            (DnType::CustomDnType(vec![2, 5, 4, 41]), utf8("EasyRSA")),
            (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 55_555, 2]), utf8("own")),
            (DnType::CommonName, DnValue::BmpString("server".try_into().expect("BMP"))),
        ]);
        let expected = "C=DE, ST=Baden-Württemberg, O=Example, Inc.\\0A, emailAddress=a@b.de, name=EasyRSA, \
                        1.3.6.1.4.1.55555.2=own, CN=server";
        assert_eq!(subject(&made).as_deref(), Some(expected));
        assert_eq!(common_name(&made).as_deref(), Some("server"));
    }

    #[test]
    fn truncated_certificate_has_no_name() {
        let whole = named([(DnType::CommonName, DnValue::Utf8String("Test authority".to_owned()))]);
        assert_eq!(common_name(&whole).as_deref(), Some("Test authority"));
        for length in 0..whole.len() {
            let cut = CertificateDer::from(&whole[..length]);
            assert_eq!((common_name(&cut), subject(&cut)), (None, None), "{length} bytes");
        }
        for byte in 0..whole.len().min(200) {
            let mut changed = whole.to_vec();
            changed[byte] ^= 0xff;
            let changed = CertificateDer::from(changed);
            let _ = (common_name(&changed), subject(&changed), public_key(&changed));
        }
        let nameless = named([]);
        assert_eq!((common_name(&nameless), subject(&nameless).as_deref()), (None, Some("")));
    }
}
