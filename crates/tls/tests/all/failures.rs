//! Failures of TLS: each cause has its own name on the side that detects it and on the side that receives the alert.
//! Also the options that a configuration refuses.

use std::collections::BTreeSet;

use crate::tls_pair::{self, certificate, client_options, server_options, special_certificate, strings, Pair};
use leadline_tls::{
    self_signed_certificate, ClientTls, SelfSignedCertificate, ServerOptions, ServerTls, TlsClient, TlsOptions,
    TlsServer, TlsSetupError, TlsVersion,
};
use proptest::prelude::*;

const VERSIONS: [TlsVersion; 2] = [TlsVersion::V1_2, TlsVersion::V1_3];

/// Returns the names under which both sides count a connection: the client's, the server's.
fn names(client: &TlsOptions, server: &ServerOptions) -> (&'static str, &'static str) {
    let mut pair = Pair::new(&ClientTls::new(client).unwrap(), &ServerTls::new(server).unwrap());
    pair.server.write(b"never to be read without a handshake");
    pair.carry(&[50]);
    assert!(pair.client.peer_closed() || pair.client_failed.is_some() || !pair.at_client.is_empty());
    let name = |failure: &Option<leadline_tls::TlsFailure>| failure.as_ref().map_or("", |failure| failure.name);
    (name(&pair.client_failed), name(&pair.server_failed))
}

/// Like `names`, for a server with this certificate, which the client trusts.
fn names_with(generated: &SelfSignedCertificate) -> (&'static str, &'static str) {
    names(&client_options(&generated.certificate_pem), &server_options(generated))
}

/// A certificate of version 1, as old tools create them, without extensions.
const OF_VERSION_1: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBIDCBxwIUf3G6Xuic3tnbw7W0Aud4vF27xdQwCgYIKoZIzj0EAwIwEjEQMA4G\n\
A1UEAwwHdjEudGVzdDAgFw0yNjExMjIwMzI2NDBaGA8yMTI2MTAyOTAzMjY0MFow\n\
EjEQMA4GA1UEAwwHdjEudGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEdh\n\
6etg/OE2Y0sN/pj19hLZg/L5Owd+tlVhWJOdrfueGB7173isy2o1QyqvUU26V4Pv\n\
DxJ1bpPecKPP2eFTlF8wCgYIKoZIzj0EAwIDSAAwRQIgFKtbE55Gf98SL/VmWTWy\n\
P906g/ZIKWYYURC3LMd6W5oCIQDzMD8LDBDROn6im6wjLMe9Hd2VbGQt1XYSgaqu\n\
vEOnmQ==\n\
-----END CERTIFICATE-----\n";

#[test]
fn a_certificate_of_version_1_is_refused_in_words() {
    let generated = certificate();
    let identity = Some((OF_VERSION_1, generated.key_pem.as_str()));
    let client = ClientTls::new(&TlsOptions { identity, ..client_options(&generated.certificate_pem) });
    let server = ServerTls::new(&ServerOptions { certificate_pem: OF_VERSION_1, ..server_options(&generated) });
    for refused in [client.err().unwrap().to_string(), server.err().unwrap().to_string()] {
        assert!(refused.contains("version 3"), "{refused}");
        assert!(!refused.contains("OtherError") && !refused.contains("PRIVATE"), "{refused}");
    }
}

fn year(number: i32) -> impl Fn(&mut rcgen::CertificateParams) {
    move |params| {
        params.not_before = rcgen::date_time_ymd(number, 1, 1);
        params.not_after = rcgen::date_time_ymd(number, 12, 31);
    }
}

#[test]
fn invalid_certificates_fail_by_name() {
    let (generated, other) = (certificate(), special_certificate("example.test", |_| ()));
    let distrusting = client_options(&other.certificate_pem);
    assert_eq!(
        names(&distrusting, &server_options(&generated)),
        ("tls_certificate_unknown_issuer", "tls_alert_unknown_ca")
    );
    // It has the name of the trusted certificate, but another key.
    let twin = certificate();
    assert_eq!(
        names(&client_options(&twin.certificate_pem), &server_options(&generated)),
        ("tls_certificate_signature", "tls_alert_decrypt_error")
    );
    let expired = special_certificate("example.test", year(2001));
    assert_eq!(names_with(&expired), ("tls_certificate_expired", "tls_alert_certificate_expired"));
    let future = special_certificate("example.test", year(2999));
    assert_eq!(names_with(&future), ("tls_certificate_not_yet_valid", "tls_alert_certificate_expired"));
    let elsewhere = special_certificate("elsewhere.test", |_| ());
    assert_eq!(names_with(&elsewhere), ("tls_certificate_name_mismatch", "tls_alert_bad_certificate"));
    let client_only = tls_pair::client_certificate();
    let options = TlsOptions { server_name: "client.test", ..client_options(&client_only.certificate_pem) };
    assert_eq!(
        names(&options, &server_options(&client_only)),
        ("tls_certificate_purpose", "tls_alert_unsupported_certificate")
    );
}

#[test]
fn an_authority_as_a_server_is_trusted_only_for_its_own_names_and_time() {
    let authority = |name: &str, dates: &dyn Fn(&mut rcgen::CertificateParams)| {
        special_certificate(name, |params| {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            dates(params);
        })
    };
    assert_eq!(names_with(&authority("example.test", &|_| ())), ("", ""));
    assert_eq!(names_with(&authority("elsewhere.test", &|_| ())).0, "tls_certificate_name_mismatch");
    assert_eq!(names_with(&authority("example.test", &year(2001))).0, "tls_certificate_expired");
    let (given, own) = (certificate(), authority("example.test", &|_| ()));
    assert_eq!(names(&client_options(&given.certificate_pem), &server_options(&own)).0, "tls_certificate_is_authority");
}

#[test]
fn parameters_without_overlap_fail_by_name() {
    let generated = certificate();
    let (old, new) = VERSIONS.into();
    let server = ServerOptions { newest: old, ..server_options(&generated) };
    let client = TlsOptions { oldest: new, ..client_options(&generated.certificate_pem) };
    assert_eq!(names(&client, &server), ("tls_alert_protocol_version", "tls_version"));
    let server = ServerOptions { oldest: new, ..server_options(&generated) };
    let client = TlsOptions { newest: old, ..client_options(&generated.certificate_pem) };
    assert_eq!(names(&client, &server), ("tls_alert_protocol_version", "tls_version"));

    let pairs = [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ];
    for (of_client, of_server) in pairs {
        let (of_client, of_server) = (strings(&[of_client]), strings(&[of_server]));
        let server = ServerOptions { cipher_suites: &of_server, ..server_options(&generated) };
        let client = TlsOptions { cipher_suites: &of_client, ..client_options(&generated.certificate_pem) };
        assert_eq!(names(&client, &server), ("tls_alert_handshake_failure", "tls_cipher_suite"));
    }

    let (of_client, of_server) = (strings(&["h2"]), strings(&["http/1.1"]));
    let server = ServerOptions { alpn: &of_server, ..server_options(&generated) };
    let client = TlsOptions { alpn: &of_client, ..client_options(&generated.certificate_pem) };
    assert_eq!(names(&client, &server), ("tls_alert_no_application_protocol", "tls_alpn"));
}

#[test]
fn a_missing_or_unknown_client_certificate_fails_by_name() {
    let (generated, authority, stranger) =
        (certificate(), tls_pair::client_certificate(), tls_pair::client_certificate());
    for newest in VERSIONS {
        let server = ServerOptions { client_ca_pem: Some(&authority.certificate_pem), ..server_options(&generated) };
        let client = TlsOptions { newest, ..client_options(&generated.certificate_pem) };
        assert_eq!(names(&client, &server), ("tls_alert_certificate_required", "tls_certificate_missing"));
        let identity = Some((stranger.certificate_pem.as_str(), stranger.key_pem.as_str()));
        let client = TlsOptions { identity, ..client };
        // It has the authority's name, but another key.
        assert_eq!(names(&client, &server), ("tls_alert_decrypt_error", "tls_certificate_signature"));
    }
}

#[test]
fn an_early_end_is_named_by_its_phase() {
    let generated = certificate();
    let server = ServerTls::new(&server_options(&generated)).unwrap();
    let client = ClientTls::new(&client_options(&generated.certificate_pem)).unwrap();
    let mut cut = TlsClient::new(&client).unwrap();
    assert_eq!(cut.end().unwrap_err().name, "tls_handshake_cut");
    assert_eq!(cut.receive(b"more").unwrap_err().name, "tls_handshake_cut");

    let mut pair = Pair::new(&client, &server);
    pair.server.write(b"half of");
    assert_eq!(pair.settle().at_client, b"half of");
    assert_eq!(pair.client.end().unwrap_err().name, "tls_truncated");
    assert_eq!(pair.server.end().unwrap_err().name, "tls_truncated");

    // The same in the middle of a record.
    let mut pair = Pair::new(&client, &server);
    pair.settle();
    let mut wire = Vec::new();
    pair.server.write_to(b"a record", &mut wire);
    assert_eq!(pair.client.receive(&wire[..wire.len() - 1]), Ok(()));
    assert_eq!(pair.client.read(&mut [0; 10]), Ok(0));
    assert_eq!(pair.client.end().unwrap_err().name, "tls_truncated");
}

#[test]
fn data_received_before_a_failure_can_be_read() {
    for newest in VERSIONS {
        let generated = certificate();
        let server = ServerTls::new(&server_options(&generated)).unwrap();
        let client = ClientTls::new(&TlsOptions { newest, ..client_options(&generated.certificate_pem) }).unwrap();
        let mut pair = Pair::new(&client, &server);
        pair.settle();
        let mut wire = Vec::new();
        pair.server.write_to(b"good", &mut wire);
        let good = wire.len();
        pair.server.write_to(b"changed on the way", &mut wire);
        let last = wire.len() - 1;
        wire[last] ^= 1;
        assert!(good < last);
        let failure = pair.client.receive(&wire).unwrap_err();
        assert_eq!((failure.name, failure.is_alert()), ("tls_decrypt", false));
        let mut buffer = [0; 100];
        assert_eq!(pair.client.read(&mut buffer), Ok(4));
        assert!(buffer.starts_with(b"good"));
        assert_eq!(pair.client.read(&mut buffer), Err(failure.clone()));
        assert_eq!(pair.client.receive(b""), Err(failure.clone()));
        assert_eq!(pair.client.end(), Err(failure));
        pair.client.write(b"in vain");
        pair.settle();
        let told = pair.server_failed.unwrap();
        assert_eq!((told.name, told.is_alert()), ("tls_alert_bad_record_mac", true));
        assert_eq!(pair.at_server, b"");
    }
}

#[test]
fn non_tls_bytes_fail_by_name_and_get_an_alert() {
    let generated = certificate();
    let client = ClientTls::new(&client_options(&generated.certificate_pem)).unwrap();
    let mut connection = TlsClient::new(&client).unwrap();
    let mut out = Vec::new();
    connection.take_output(&mut out);
    out.clear();
    let failure = connection.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err();
    assert_eq!(failure.name, "tls_malformed");
    assert!(failure.detail.contains("does not speak TLS"), "{failure}");
    connection.take_output(&mut out);
    assert_eq!(out.first(), Some(&21)); // an alert (RFC 8446, 5.1)

    let server = ServerTls::new(&server_options(&generated)).unwrap();
    let mut connection = TlsServer::new(&server).unwrap();
    assert_eq!(connection.receive(b"GET / HTTP/1.1\r\n\r\n").unwrap_err().name, "tls_malformed");
}

/// Whether it is a possible name for changed or invented bytes.
fn is_known(name: &str) -> bool {
    let own = [
        "tls_malformed",
        "tls_unexpected_message",
        "tls_too_large",
        "tls_decrypt",
        "tls_version",
        "tls_cipher_suite",
        "tls_alpn",
        "tls_key_exchange",
        "tls_signature_scheme",
        "tls_incompatible",
        "tls_misbehaved",
        "tls_flood",
    ];
    own.contains(&name) || name.starts_with("tls_alert_") || name.starts_with("tls_certificate_")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_bytes_never_panic(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 0..6),
        kind in 20_u8..25,
        framed in any::<bool>(),
        established in any::<bool>(),
        newest in proptest::sample::select(&VERSIONS[..]),
    ) {
        let generated = certificate();
        let server = ServerTls::new(&server_options(&generated)).unwrap();
        let client = ClientTls::new(&TlsOptions { newest, ..client_options(&generated.certificate_pem) }).unwrap();
        let mut pair = Pair::new(&client, &server);
        if established {
            pair.settle();
        }
        for piece in pieces {
            let mut bytes = Vec::new();
            if framed {
                bytes.extend([kind, 3, 3]);
                bytes.extend((piece.len() as u16).to_be_bytes());
            }
            bytes.extend(piece);
            for failure in [pair.client.receive(&bytes).err(), pair.server.receive(&bytes).err()].into_iter().flatten() {
                prop_assert!(is_known(failure.name), "{}", failure);
            }
        }
        pair.client.write(b"x");
        pair.server.write(b"x");
        pair.client.close();
        pair.server.close();
        pair.settle();
    }

    #[test]
    fn a_changed_handshake_fails_on_both_sides_by_name(
        place in any::<proptest::sample::Index>(),
        change in 1_u8..=255,
        changes_hello in any::<bool>(),
        newest in proptest::sample::select(&VERSIONS[..]),
    ) {
        let generated = certificate();
        let server = ServerTls::new(&server_options(&generated)).unwrap();
        let client = ClientTls::new(&TlsOptions { newest, ..client_options(&generated.certificate_pem) }).unwrap();
        let mut pair = Pair::new(&client, &server);
        let changed = |bytes: &mut Vec<u8>| {
            let at = place.index(bytes.len());
            bytes[at] ^= change;
        };
        let (mut hello, mut answer) = (Vec::new(), Vec::new());
        pair.client.take_output(&mut hello);
        if changes_hello {
            changed(&mut hello);
        }
        let first_at_server = pair.server.receive(&hello);
        pair.server.take_output(&mut answer);
        if !changes_hello {
            changed(&mut answer);
        }
        let first_at_client = pair.client.receive(&answer);
        pair.settle();
        let ended = [pair.client.end().unwrap_err(), pair.server.end().unwrap_err()];
        for (first, ended) in [first_at_client, first_at_server].into_iter().zip(&ended) {
            if let Err(failure) = first {
                prop_assert_eq!(&failure, ended);
                prop_assert!(is_known(failure.name), "{}", failure);
            }
        }
        // If a handshake succeeded, only the version of a record was changed, which is ignored (RFC 8446, 5.1).
        if let (Some(of_client), Some(of_server)) = (pair.client.handshake(), pair.server.handshake()) {
            prop_assert_eq!(of_client, of_server);
            prop_assert!(ended.iter().all(|failure| failure.name == "tls_truncated"), "{:?}", ended);
        }
    }
}

#[test]
fn bad_setups_fail_in_one_line() {
    let generated = certificate();
    let other = self_signed_certificate(&[]).unwrap();
    let base = client_options(&generated.certificate_pem);
    let (long, empty) = (strings(&[&"x".repeat(256)]), strings(&[""]));
    let twisted = TlsOptions { oldest: TlsVersion::V1_3, newest: TlsVersion::V1_2, ..base.clone() };
    let unknown = strings(&["TLS_RSA_WITH_RC4_128_SHA"]);
    let refused = [
        twisted,
        TlsOptions { cipher_suites: &unknown, ..base.clone() },
        TlsOptions { alpn: &long, ..base.clone() },
        TlsOptions { alpn: &empty, ..base.clone() },
        TlsOptions { server_name: "no name", ..base.clone() },
        TlsOptions { server_name: "", ..base.clone() },
        TlsOptions { ca_pem: Some("not PEM"), ..base.clone() },
        TlsOptions { ca_pem: Some(&generated.key_pem), ..base.clone() },
        TlsOptions { identity: Some(("", &generated.key_pem)), ..base.clone() },
        TlsOptions { identity: Some((&generated.certificate_pem, "")), ..base.clone() },
        TlsOptions { identity: Some((&generated.certificate_pem, &other.key_pem)), ..base.clone() },
    ];
    let texts: Vec<String> = refused.iter().map(|options| ClientTls::new(options).unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| !text.contains('\n') && text.len() > 20), "{texts:#?}");
    assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), texts.len() - 1, "{texts:#?}"); // no certificate, twice
    assert!(texts[1].contains("TLS_AES_128_GCM_SHA256"));

    let broken = generated.certificate_pem.replace("MII", "AAA");
    let cut = ClientTls::new(&TlsOptions { ca_pem: Some(&broken), ..base }).unwrap_err();
    assert!(matches!(cut, TlsSetupError::Certificate { role: "CA file", .. }), "{cut}");
    assert!(matches!(
        ServerTls::from_pem(&generated.certificate_pem, &other.key_pem).unwrap_err(),
        TlsSetupError::Identity { .. }
    ));
    assert!(matches!(ServerTls::self_signed(&strings(&["nicht\u{fc}blich"])), Err(TlsSetupError::SelfSigned(_))));
}

#[test]
fn keys_are_in_no_message() {
    let generated = certificate();
    assert!(!format!("{generated:?}").contains("PRIVATE KEY"));
    let secret = "c2VjcmV0IHNlY3JldA";
    let key = format!("-----BEGIN PRIVATE KEY-----\n{secret}");
    let options =
        TlsOptions { identity: Some((&generated.certificate_pem, &key)), ..client_options(&generated.certificate_pem) };
    assert!(!ClientTls::new(&options).unwrap_err().to_string().contains(secret));
}
