//! Tests of certificates that old tools and wrong instructions create: which are sent and which are refused.

use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use rcgen::{CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::CertificateDer;

use super::SECOND_NS;
use leadline_testkit::openvpn::{Pki, Setup};
use leadline_tunnel::openvpn::client::Event;
use leadline_tunnel::openvpn::profile;
use leadline_tunnel::openvpn::tls::{client_config, server_config, ClientTrust, Trust};
use leadline_tunnel::openvpn::usage::RequiredUsage;

/// The content of a DER element, and the bytes after it.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let (digits, rest) = match der[1] {
        small @ 0..=0x7f => return der[2..].split_at(usize::from(small)),
        marked => der[2..].split_at(usize::from(marked - 0x80)),
    };
    rest.split_at(digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)))
}

fn sequence(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a short certificate").to_be_bytes();
    let head = match length {
        [0, small @ ..=0x7f] => vec![0x30, small],
        [0, small] => vec![0x30, 0x81, small],
        [high, low] => vec![0x30, 0x82, high, low],
    };
    [&head, content].concat()
}

/// The certificate as `openssl x509 -req` creates it without -extfile: it has no version field, which means version
/// 1. Its signature is not verified here.
fn of_version_1(pem: &str) -> String {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let (described, signature) = element(element(&der).0);
    let described = described.strip_prefix(&[0xa0, 3, 2, 1, 2]).expect("version 3");
    let made = sequence(&[&sequence(described), signature].concat());
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(made))
}

#[test]
fn version_1_client_certificate_is_sent_and_server_certificate_refused() {
    let pki = Pki::new();
    let (old, trust) = (of_version_1(&pki.client.0), pki.client_trust());
    assert!(client_config(&trust, Some((&old, &pki.client.1))).is_ok(), "the server has to decide");
    let unsupported_key = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";
    let error = client_config(&trust, Some((&old, unsupported_key))).expect_err("the kind is unknown");
    assert!(error.contains("is not supported"), "{error}");
    let other = client_config(&trust, Some((&old, &pki.server.1))).expect_err("the key belongs to another certificate");
    assert!(other.contains("does not belong"), "{other}");

    let mut setup = Setup::new(&pki);
    let server = server_config(&pki.trust(), (&of_version_1(&pki.server.0), &pki.server.1), true);
    setup.server.tls = Arc::new(server.expect("a server sends any certificate"));
    let mut pair = setup.pair();
    pair.run(SECOND_NS, &mut |_| Some(1_000_000));
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert_eq!(failure.name, "tls_certificate_version");
    assert!(failure.detail.contains("X.509 version 3") && failure.detail.contains("-extfile"), "{failure:?}");
}

#[test]
fn invalid_certificate_error_names_its_place() {
    let pki = Pki::new();
    let damaged = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode("none"));
    let error =
        client_config(&pki.client_trust(), Some((&damaged, &pki.client.1))).expect_err("the certificate is damaged");
    assert!(error.starts_with("cert: cannot be read"), "{error}");
    let both = format!("{}{damaged}", pki.authority);
    let error = ClientTrust::new(&Trust { authority_pem: both, ..pki.trust() }).err().expect("the second is damaged");
    assert!(error.starts_with("ca: certificate 2 cannot be read"), "{error}");
}

fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut parameters = CertificateParams::default();
    change(&mut parameters);
    parameters.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().clone()
}

/// Netscape's extension with these bits.
fn netscape(types: u8) -> CustomExtension {
    CustomExtension::from_oid_content(&[2, 16, 840, 1, 113_730, 1, 1], vec![3, 2, 0, types])
}

/// The results of OpenVPN 2.6.14 with OpenSSL 3.0 for certificates that `openssl x509 -extfile` creates with these
/// extensions.
#[test]
fn server_certificate_must_have_the_demanded_usage() {
    let demands = |option: &str| {
        let text = format!("client\nremote 192.0.2.1\n{option}\n<ca>\n{}</ca>\n", Pki::new().authority);
        RequiredUsage::of(&profile::parse(&text).expect("a good profile"))
    };
    let plain = certificate(|_| {});
    let usage = certificate(|it| it.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    let extended = certificate(|it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let both = certificate(|it| {
        it.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let of_client = certificate(|it| {
        it.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let signing = certificate(|it| it.key_usages = vec![KeyUsagePurpose::ContentCommitment]);
    let old = certificate(|it| it.custom_extensions = vec![netscape(0x40)]);
    let old_client = certificate(|it| it.custom_extensions = vec![netscape(0x80)]);
    let all = [&plain, &usage, &extended, &both, &of_client, &signing, &old, &old_client];
    for (option, expected) in [
        ("nobind", [true, true, true, true, false, false, true, false]),
        ("remote-cert-tls server", [false, false, false, true, false, false, false, false]),
        ("remote-cert-eku serverAuth", [false, false, true, true, false, false, false, false]),
        ("remote-cert-ku", [false, true, false, true, false, false, false, false]),
        ("remote-cert-ku a0 88", [false, false, false, true, false, false, false, false]),
        ("remote-cert-ku 80", [false, true, false, true, false, false, false, false]),
        ("ns-cert-type server", [true, true, true, true, false, false, true, false]),
    ] {
        let demands = demands(option);
        assert_eq!(all.map(|certificate| demands.check(certificate).is_ok()), expected, "{option}");
    }
}

#[test]
fn non_server_certificate_has_its_own_error() {
    let pki = Pki::without_usages();
    let mut setup = Setup::new(&pki);
    setup.client.trust = pki.client_trust();
    let mut pair = setup.pair();
    pair.run(SECOND_NS, &mut |_| Some(1_000_000));
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert_eq!(failure.name, "tls_certificate_purpose");
    assert!(failure.detail.contains("extended key usage"), "{failure:?}");
}
