//! Tests of the settings of profile and server, and their defaults: waiting, silence, ciphers.

use super::{assert_carries, assert_connects_and_renews, of_2_6};
use leadline_testkit::openvpn::{Pair, Pki, Setup};
use leadline_tunnel::openvpn::client::{ClientConfig, Event, Failure};
use leadline_tunnel::openvpn::config::{NoCipher, Silence};
use leadline_tunnel::openvpn::data::DataCipher;
use leadline_tunnel::openvpn::message::peer_info::Protocols;
use leadline_tunnel::openvpn::profile::{self, TlsVersion};
use leadline_tunnel::openvpn::tls::{client_config, server_config, ClientTrust, Trust};

const SECOND_NS: u64 = 1_000_000_000;

/// The name and the time (s) of a client's failure.
fn failed(pair: &mut Pair, until_s: u64) -> (Failure, u64) {
    loop {
        assert!(pair.now_ns < until_s * SECOND_NS, "{:?}", pair.events);
        let next_ns = (pair.now_ns / SECOND_NS + 1) * SECOND_NS;
        pair.run(next_ns, &mut |_| Some(1_000_000));
        if let Some(Event::Failed(failure)) = pair.events.last() {
            return (failure.clone(), pair.now_ns / SECOND_NS);
        }
    }
}

#[test]
fn last_ping_option_decides_how_silence_ends() {
    let pki = Pki::new();
    let silence = |more: &str| {
        let text = format!("client\nauth-user-pass\n{more}\n<ca>\n{}</ca>\n", pki.authority);
        let profile = profile::parse(&text).expect("a good profile");
        ClientConfig::new(&profile, 0).expect("good keys").silence
    };
    assert_eq!(silence("remote 192.0.2.1"), Some(Silence::Restart(120)));
    assert_eq!(silence("remote 192.0.2.1 1194 tcp-client"), None);
    assert_eq!(silence("remote 192.0.2.1\nping-restart 0"), Some(Silence::Restart(0)));
    assert_eq!(silence("remote 192.0.2.1\nkeepalive 10 60"), Some(Silence::Restart(60)));
    assert_eq!(silence("remote 192.0.2.1\nping-restart 60\nping-exit 30"), Some(Silence::Exit(30)));
    assert_eq!(silence("remote 192.0.2.1\nping-exit 30\nping-restart 60"), Some(Silence::Restart(60)));
}

#[test]
fn ping_exit_ends_and_ping_restart_reconnects() {
    let pki = Pki::new();
    let silent = |silence: Silence, pushed: &[&str]| {
        let mut setup = Setup::new(&pki);
        setup.client.silence = Some(silence);
        setup.server.push.extend(pushed.iter().map(|option| (*option).to_owned()));
        let mut pair = setup.pair();
        let (failure, at_s) = failed(&mut pair, 200);
        (failure.name, at_s)
    };
    assert_eq!(silent(Silence::Exit(30), &[]), ("ping_exit", 31));
    assert_eq!(silent(Silence::Restart(120), &[]), ("ping_restart", 121));
    assert_eq!(silent(Silence::Exit(30), &["ping-restart 60"]), ("ping_restart", 61));
    assert_eq!(silent(Silence::Restart(120), &["ping-restart 90", "ping-exit 60"]), ("ping_exit", 61));
    let mut setup = Setup::new(&pki);
    setup.client.silence = Some(Silence::Restart(0));
    let mut pair = setup.pair();
    pair.run(10_000 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(pair.events.last(), Some(&Event::Up));
}

#[test]
fn push_reply_has_its_own_hand_window() {
    let mut pair = Setup::new(&Pki::new()).pair();
    // The reset that arrives is the one of 30 s.
    pair.run(29 * SECOND_NS, &mut |_| None);
    pair.run(30 * SECOND_NS + 2_500_000, &mut |_| Some(1_000_000));
    pair.server.as_mut().expect("a server").hold();
    let (failure, at_s) = failed(&mut pair, 200);
    let detail = "ended by the profile's hand-window, 60 s";
    assert_eq!((failure.name, failure.detail.as_str(), at_s), ("no_push_reply", detail, 91));
}

/// A client that waits for the options of a server which asked for more time.
fn pending(pki: &Pki, request: &str) -> Pair {
    let mut setup = Setup::new(pki);
    setup.client.renegotiate_after_ns = Some(3600 * SECOND_NS);
    let mut pair = setup.pair();
    pair.run(1_500_000, &mut |_| Some(1_000_000));
    pair.server.as_mut().expect("a server").hold();
    pair.run(SECOND_NS / 2, &mut |_| Some(1_000_000));
    assert_eq!(pair.events.last(), Some(&Event::KeysDone));
    pair.server.as_mut().expect("a server").send_message(request);
    pair
}

#[test]
fn auth_pending_extends_the_wait_as_openvpn_does() {
    let pki = Pki::new();
    for (request, limit_s) in [
        ("AUTH_PENDING,timeout 300", 300),
        ("AUTH_PENDING,timeout 20", 20),
        ("AUTH_PENDING", 60),
        ("AUTH_PENDING,timeout 4294967295", 1800),
    ] {
        let mut pair = pending(&pki, request);
        let (failure, at_s) = failed(&mut pair, 2000);
        assert_eq!((failure.name, at_s), ("no_push_reply", limit_s + 1), "{request}");
        assert!(failure.detail.ends_with(&format!(", {limit_s} s")), "{request}: {}", failure.detail);
        assert_eq!(failure.detail.contains("AUTH_PENDING"), limit_s != 60, "{request}: {}", failure.detail);
        let until_s = pair.events.iter().find_map(|event| match event {
            Event::Pending { until_ns } => Some(until_ns / SECOND_NS),
            _ => None,
        });
        assert_eq!(until_s, Some(limit_s), "{request}");
    }
}

#[test]
fn silence_after_auth_pending_ends_the_wait() {
    let mut pair = pending(&Pki::new(), "AUTH_PENDING,timeout 300");
    pair.run(100 * SECOND_NS, &mut |_| Some(1_000_000));
    pair.run(170 * SECOND_NS, &mut |_| None);
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert_eq!(failure.name, "no_push_reply");
    assert!(failure.detail.contains("hand-window, 60 s without a packet"), "{}", failure.detail);
}

#[test]
fn options_string_cipher_is_used_without_negotiation() {
    let pki = Pki::new();
    let connect = |ciphers: &[DataCipher], fallback: Option<DataCipher>, options: &str| {
        let mut setup = Setup::with(&pki, DataCipher::Aes256Cbc, of_2_6().without(Protocols::TLS_KEY_EXPORT));
        setup.client.ciphers = ciphers.to_vec();
        setup.client.fallback = fallback;
        let mut pair = setup.pair();
        pair.run(1_500_000, &mut |_| Some(1_000_000));
        pair.server.as_mut().expect("a server").fix_options(options);
        pair.run_a_second();
        pair
    };
    let named = "V4,dev-type tun,cipher AES-256-CBC,auth SHA256";
    let cbc = DataCipher::Aes256Cbc;
    assert_carries(&mut connect(&[DataCipher::Aes128Gcm, cbc], None, named), "the cipher in its options string");
    assert_carries(&mut connect(&[DataCipher::Aes128Gcm], Some(cbc), "V4,dev-type tun"), "the fallback cipher");
    let name = |pair: Pair| match pair.events.last() {
        Some(Event::Failed(failure)) => failure.name,
        other => panic!("{other:?}"),
    };
    // The server uses the cipher that it names: with the fallback, no packet could be opened.
    assert_eq!(name(connect(&[DataCipher::Aes128Gcm], Some(DataCipher::Aes128Gcm), named)), "cipher_not_offered");
    assert_eq!(name(connect(&[cbc], None, "V4,dev-type tun")), "no_cipher");
}

#[test]
fn pushed_cipher_overrides_the_options_string() {
    let mut config = Setup::new(&Pki::new()).client;
    config.ciphers = vec![DataCipher::Aes256Gcm, DataCipher::Aes128Gcm];
    let not_offered = NoCipher::NotOffered("BF-CBC".to_owned());
    assert_eq!(config.cipher_for(Some("AES-128-GCM"), Some("AES-256-GCM")), Ok(DataCipher::Aes128Gcm));
    assert_eq!(config.cipher_for(Some("BF-CBC"), Some("AES-256-GCM")), Err(not_offered));
    assert_eq!(config.cipher_for(None, None), Err(NoCipher::NoneNamed));
}

#[test]
fn tls_1_2_renews_with_exported_and_prf_keys() {
    let pki = Pki::new();
    for protocols in [of_2_6(), of_2_6().without(Protocols::TLS_KEY_EXPORT)] {
        let mut setup = Setup::with(&pki, DataCipher::Aes256Gcm, protocols);
        let trust = Trust { versions: (TlsVersion::Tls12, TlsVersion::Tls12), ..pki.trust() };
        let certificate = |pair: &'_ (String, String)| (pair.0.clone(), pair.1.clone());
        let (server, client) = (certificate(&pki.server), certificate(&pki.client));
        let only = server_config(&trust, (&server.0, &server.1), true).expect("a good server");
        setup.server.tls = only.into();
        let trust = ClientTrust::new(&trust).expect("a good authority");
        setup.identity.tls = client_config(&trust, Some((&client.0, &client.1))).expect("a good identity").into();
        assert_connects_and_renews(setup, &format!("{protocols:?}"));
    }
}

#[test]
fn inapplicable_push_update_is_reported_and_keeps_the_tunnel() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.server.as_mut().expect("a server").send_message("PUSH_UPDATE,cipher AES-128-GCM");
    pair.run_a_second();
    let Some(Event::UpdateRejected(why)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert!(why.contains("cipher"), "{why}");
}
