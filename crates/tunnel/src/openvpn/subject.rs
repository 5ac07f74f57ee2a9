//! Who a certificate is for, read out of its bytes as far as a client compares it: the subject's names as OpenVPN writes them
//! (`verify-x509-name`), and where the public key is. It judges nothing; what is no certificate has no name.

use std::fmt::Write;

use rustls::pki_types::CertificateDer;

/// The common name: the last one where there are several, as OpenVPN takes it. None where there is none.
#[must_use]
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let names = attributes(certificate)?;
    let last = names.iter().flatten().rev().find(|(kind, _)| *kind == COMMON_NAME)?;
    text(last.1)
}

/// The whole subject: `C=DE, O=Example, CN=server`, a plus between names that stand in one set.
#[must_use]
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let mut sets = Vec::new();
    for set in attributes(certificate)? {
        let written: Option<Vec<_>> =
            set.into_iter().map(|(kind, value)| Some(format!("{}={}", name_of(kind)?, shown(&text(value)?)))).collect();
        sets.push(written?.join(" + "));
    }
    Some(sets.join(", "))
}

/// A certificate from its public key (`SubjectPublicKeyInfo`) on.
#[must_use]
pub fn public_key_onwards<'c>(certificate: &'c CertificateDer<'_>) -> Option<&'c [u8]> {
    Some(element(subject_onwards(certificate)?)?.2)
}

/// A kind of name by its object identifier, and the name as an element.
type Attribute<'c> = (&'c [u8], &'c [u8]);

/// The subject's sets of names, in their order.
fn attributes<'c>(certificate: &'c CertificateDer<'_>) -> Option<Vec<Vec<Attribute<'c>>>> {
    let (SEQUENCE, mut names, _) = element(subject_onwards(certificate)?)? else { return None };
    let mut found = Vec::new();
    while !names.is_empty() {
        let (SET, mut set, behind) = element(names)? else { return None };
        names = behind;
        let mut together = Vec::new();
        while !set.is_empty() {
            let (SEQUENCE, attribute, behind) = element(set)? else { return None };
            set = behind;
            let (OBJECT, kind, value) = element(attribute)? else { return None };
            together.push((kind, value));
        }
        found.push(together);
    }
    Some(found)
}

/// Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version, serialNumber, signature, issuer, validity, subject,
/// subjectPublicKeyInfo, .. } .. }; of version 1 it does not say so.
fn subject_onwards<'c>(certificate: &'c CertificateDer<'_>) -> Option<&'c [u8]> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in ["serialNumber", "signature", "issuer", "validity"] {
        rest = element(rest)?.2;
    }
    Some(rest)
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
/// The tag `[0]`.
const VERSION: u8 = 0xa0;
/// The object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// OpenSSL's short names of what is under 2.5.4, by the last number.
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
/// Those that are elsewhere: 1.2.840.113549.1.9.1, .2, 0.9.2342.19200300.100.1.1 and .25.
const SHORT_ELSEWHERE: [(&[u8], &str); 4] = [
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2], "unstructuredName"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

/// A kind's short name, or its numbers.
fn name_of(kind: &[u8]) -> Option<String> {
    let short = match kind {
        [0x55, 0x04, last] => SHORT.iter().find(|(number, _)| number == last).map(|(_, short)| *short),
        _ => SHORT_ELSEWHERE.iter().find(|(known, _)| *known == kind).map(|(_, short)| *short),
    };
    short.map(str::to_owned).or_else(|| numbers(kind))
}

/// `1.2.840.113549`: the first byte is two numbers, and the highest bit says that a number goes on.
fn numbers(kind: &[u8]) -> Option<String> {
    let mut written = String::new();
    let mut number = 0u64;
    for byte in kind {
        number = number.checked_mul(128)? + u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = match written.is_empty() {
            true => write!(written, "{}.{}", (number / 40).min(2), number - 40 * (number / 40).min(2)),
            false => write!(written, ".{number}"),
        };
        number = 0;
    }
    kind.last().is_some_and(|last| last & 0x80 == 0).then_some(written)
}

/// A name's text, by the kind of string that it is.
fn text(value: &[u8]) -> Option<String> {
    let (kind, bytes, _) = element(value)?;
    match kind {
        // UTF8String.
        12 => String::from_utf8(bytes.to_vec()).ok(),
        // NumericString, PrintableString, TeletexString, IA5String, VisibleString: a byte for each letter.
        18 | 19 | 20 | 22 | 26 => Some(bytes.iter().copied().map(char::from).collect()),
        // BMPString.
        30 => {
            let pairs: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&pairs).ok().filter(|_| bytes.len() % 2 == 0)
        }
        _ => None,
    }
}

/// As OpenSSL shows what cannot be printed.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        if letter.is_ascii_control() {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\{:02X}", u32::from(letter));
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// DER: a tag, what is in the element, and what is behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(*first) {
        length @ 0..=0x7f => (length, rest),
        // No certificate is longer than a length of four bytes can say.
        marked @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(marked - 0x80)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (inside, behind) = rest.split_at_checked(length)?;
    Some((*tag, inside, behind))
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

    /// Word for word what `openssl x509 -subject -nameopt sep_comma_plus_space,sname,utf8,esc_ctrl` prints of such certificates.
    #[test]
    fn subjects_are_written_as_openvpn_writes_them() {
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
        assert_eq!(numbers(&[0x88, 0x37, 3]).as_deref(), Some("2.999.3"));
        assert_eq!((numbers(&[0x2a, 0x86]), numbers(&[])), (None, None));
    }

    #[test]
    fn a_certificate_that_is_cut_has_no_name() {
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
            let _ = (common_name(&changed), subject(&changed), public_key_onwards(&changed));
        }
        let nameless = named([]);
        assert_eq!((common_name(&nameless), subject(&nameless).as_deref()), (None, Some("")));
    }
}
