//! TLS client against TLS server, in memory and in pieces of any size: full and resumed handshakes, data both ways,
//! early data, closing. Failures are in `failures.rs`, the cost of a hostile peer in `bounds.rs`.

use std::sync::Arc;

use crate::tls_pair::{self, certificate, client_options, raw_server_config, server_options, strings, Pair, RawServer};
use leadline_tls::{
    cipher_suite_names, self_signed_certificate, ClientTls, ServerOptions, ServerTls, TlsClient, TlsOptions, TlsVersion,
};
use proptest::prelude::*;

const VERSIONS: [TlsVersion; 2] = [TlsVersion::V1_2, TlsVersion::V1_3];

#[test]
fn a_full_handshake_carries_data_in_both_directions() {
    let (server, pem) = ServerTls::self_signed(&strings(&["example.test"])).unwrap();
    let alpn = strings(&["h2", "http/1.1"]);
    let client = ClientTls::new(&TlsOptions { alpn: &alpn, ..client_options(&pem) }).unwrap();
    let mut pair = Pair::new(&client, &server);
    assert!(pair.client.is_handshaking() && pair.client.handshake().is_none() && pair.client.has_output());
    pair.client.write(b"early bird");
    pair.server.write(b"welcome");
    pair.settle();
    assert_eq!((pair.at_server.as_slice(), pair.at_client.as_slice()), (&b"early bird"[..], &b"welcome"[..]));
    let agreed = pair.client.handshake().unwrap();
    assert!(!agreed.resumed);
    assert_eq!((agreed.version, agreed.version.name(), agreed.alpn), (TlsVersion::V1_3, "1.3", Some(1)));
    assert_eq!(agreed.suite, "TLS_AES_256_GCM_SHA384");
    assert_eq!(pair.server.handshake().unwrap().alpn, Some(0));
    assert_eq!(pair.client.early_data_accepted(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn data_arrives_complete_over_any_split(
        first in proptest::collection::vec(1_usize..3_000, 1..6),
        second in proptest::collection::vec(1_usize..60_000, 1..6),
        lengths in proptest::collection::vec(0_usize..70_000, 1..4),
        newest in proptest::sample::select(&VERSIONS[..]),
    ) {
        let (server, pem) = ServerTls::self_signed(&strings(&["example.test"])).unwrap();
        let client = ClientTls::new(&TlsOptions { newest, ..client_options(&pem) }).unwrap();
        for (connection, sizes) in [first, second].iter().enumerate() {
            let mut pair = Pair::new(&client, &server);
            let mut expected = Vec::new();
            for (index, &length) in lengths.iter().enumerate() {
                let data: Vec<u8> = (0..length).map(|at| (at * 31 + index) as u8).collect();
                pair.client.write(&data);
                pair.server.write(&data);
                pair.carry(sizes);
                expected.extend(data);
            }
            prop_assert_eq!(&pair.client_failed, &None);
            prop_assert!(pair.at_client == expected && pair.at_server == expected);
            prop_assert_eq!(pair.client.handshake().unwrap().resumed, connection == 1);
            pair.server.close();
            pair.client.close();
            pair.carry(sizes);
            prop_assert!(pair.client.peer_closed() && pair.server.peer_closed());
            prop_assert!(pair.client.end().is_ok() && pair.server.end().is_ok());
        }
    }
}

#[test]
fn bulk_is_encrypted_where_it_is_sent_from_and_buffers_stay_small() {
    for newest in VERSIONS {
        let (server, pem) = ServerTls::self_signed(&strings(&["example.test"])).unwrap();
        let client = ClientTls::new(&TlsOptions { newest, ..client_options(&pem) }).unwrap();
        let mut pair = Pair::new(&client, &server);
        pair.settle();
        let block: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8).collect();
        let mut wire = Vec::new();
        let mut received = Vec::new();
        for _ in 0..20 {
            wire.clear();
            pair.server.write_to(&block, &mut wire);
            assert!(!pair.server.has_output());
            for piece in wire.chunks_mut(65_536) {
                pair.client.receive_in_place(piece, |bytes| received.extend_from_slice(bytes)).unwrap();
            }
        }
        assert!(received == block.repeat(20));
        assert!(pair.client.held_bytes() <= 64 * 1024, "{} bytes", pair.client.held_bytes());
        wire.clear();
        pair.client.write_to(&block, &mut wire);
        pair.server.receive(&wire).unwrap();
        let mut buffer = vec![0; block.len()];
        assert_eq!(pair.server.read(&mut buffer), Ok(block.len()));
        assert!(buffer == block);
        assert_eq!(pair.server.read(&mut buffer), Ok(0));
        assert!(pair.server.held_bytes() <= 16 * 1024, "{} bytes", pair.server.held_bytes());
    }
}

#[test]
fn the_first_connections_are_full_and_later_ones_resume() {
    for newest in VERSIONS {
        let (server, pem) = ServerTls::self_signed(&strings(&["example.test"])).unwrap();
        let client = ClientTls::new(&TlsOptions { newest, ..client_options(&pem) }).unwrap();
        for round in 0..3 {
            // All connections of a round handshake at the same time.
            let mut pairs: Vec<Pair> = (0..16).map(|_| Pair::new(&client, &server)).collect();
            for pair in &mut pairs {
                let agreed = pair.carry(&[100]).client.handshake().unwrap();
                assert_eq!((agreed.resumed, agreed.version), (round > 0, newest));
                assert_eq!(pair.server.handshake().unwrap().resumed, round > 0);
            }
        }
    }
}

#[test]
fn threads_share_the_sessions_of_a_load() {
    let (server, pem) = ServerTls::self_signed(&strings(&["example.test"])).unwrap();
    let client = ClientTls::new(&client_options(&pem)).unwrap();
    Pair::new(&client, &server).settle();
    let resumed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let kinds =
                        (0..20).map(|_| Pair::new(&client, &server).settle().client.handshake().unwrap().resumed);
                    kinds.filter(|&resumed| resumed).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // Each connection takes one ticket and receives two, and the first received two: there is always one for each
    // thread.
    assert_eq!(resumed, 40);
}

#[test]
fn no_more_tickets_are_kept_than_there_are_connections() {
    let generated = certificate();
    let mut config = raw_server_config(&generated);
    config.send_tls13_tickets = 50;
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    let config = Arc::new(config);
    let client = ClientTls::new(&TlsOptions { connections: 10, ..client_options(&generated.certificate_pem) }).unwrap();
    let mut first = RawServer::new(config.clone());
    let mut connection = TlsClient::new(&client).unwrap();
    first.carry(&mut connection).unwrap();
    let mut later: Vec<TlsClient> = (0..20).map(|_| TlsClient::new(&client).unwrap()).collect();
    let kinds: Vec<bool> = later
        .iter_mut()
        .map(|connection| {
            RawServer::new(config.clone()).carry(connection).unwrap();
            connection.handshake().unwrap().resumed
        })
        .collect();
    assert_eq!(kinds.iter().filter(|&&resumed| resumed).count(), 10);
}

#[test]
fn resumption_can_be_off_on_either_side() {
    let generated = certificate();
    for newest in VERSIONS {
        for (client_side, server_side) in [(false, true), (true, false)] {
            let options = ServerOptions { resumption: server_side, ..server_options(&generated) };
            let server = ServerTls::new(&options).unwrap();
            let options = TlsOptions { newest, resumption: client_side, ..client_options(&generated.certificate_pem) };
            let client = ClientTls::new(&options).unwrap();
            for _ in 0..2 {
                let mut pair = Pair::new(&client, &server);
                assert!(!pair.settle().client.handshake().unwrap().resumed);
            }
        }
    }
}

#[test]
fn each_cipher_suite_can_be_selected() {
    // The generated certificate is an ECDSA one, so suites that authenticate with RSA cannot be negotiated.
    for suite in cipher_suite_names().into_iter().filter(|name| !name.contains("_RSA_")) {
        let (server, pem) = ServerTls::self_signed(&strings(&["example.test"])).unwrap();
        let suites = strings(&[suite]);
        let client = ClientTls::new(&TlsOptions { cipher_suites: &suites, ..client_options(&pem) }).unwrap();
        let mut pair = Pair::new(&client, &server);
        pair.client.write(b"data");
        assert_eq!(pair.settle().client.handshake().unwrap().suite, suite);
        assert_eq!(pair.at_server, b"data");
    }
}

#[test]
fn server_names_can_be_addresses() {
    let (server, pem) = ServerTls::self_signed(&strings(&["192.0.2.7"])).unwrap();
    for server_name in ["localhost", "127.0.0.1", "::1", "[::1]", "192.0.2.7"] {
        let client = ClientTls::new(&TlsOptions { server_name, ..client_options(&pem) }).unwrap();
        assert!(Pair::new(&client, &server).settle().client.handshake().is_some(), "{server_name}");
    }
}

#[test]
fn without_verification_any_certificate_is_accepted() {
    let other = certificate();
    for newest in VERSIONS {
        let (server, _) = ServerTls::self_signed(&[]).unwrap();
        let options = TlsOptions { verify: false, newest, ..client_options(&other.certificate_pem) };
        let client = ClientTls::new(&options).unwrap();
        assert!(Pair::new(&client, &server).settle().client.handshake().is_some());
    }
}

#[test]
fn a_client_certificate_is_sent_on_request() {
    let (generated, own) = (certificate(), self_signed_certificate(&[]).unwrap());
    for newest in VERSIONS {
        // The generated certificate has the wrong purpose for a client: this test only checks that it is sent.
        let options = ServerOptions { client_ca_pem: Some(&own.certificate_pem), ..server_options(&generated) };
        let server = ServerTls::new(&options).unwrap();
        let identity = Some((own.certificate_pem.as_str(), own.key_pem.as_str()));
        let options = TlsOptions { newest, identity, ..client_options(&generated.certificate_pem) };
        let mut pair = Pair::new(&ClientTls::new(&options).unwrap(), &server);
        pair.settle();
        assert_eq!(pair.server_failed.unwrap().name, "tls_certificate_purpose");

        let own = tls_pair::client_certificate();
        let options = ServerOptions { client_ca_pem: Some(&own.certificate_pem), ..server_options(&generated) };
        let server = ServerTls::new(&options).unwrap();
        let identity = Some((own.certificate_pem.as_str(), own.key_pem.as_str()));
        let options = TlsOptions { newest, identity, ..client_options(&generated.certificate_pem) };
        let mut pair = Pair::new(&ClientTls::new(&options).unwrap(), &server);
        pair.server.write(b"known");
        assert_eq!(pair.settle().at_client, b"known");
    }
}

#[test]
fn a_self_signed_authority_is_trusted_as_a_server_where_it_is_given_itself() {
    let authority = tls_pair::authority_certificate("example.test");
    let server = ServerTls::from_pem(&authority.certificate_pem, &authority.key_pem).unwrap();
    let client = ClientTls::new(&client_options(&authority.certificate_pem)).unwrap();
    assert!(Pair::new(&client, &server).settle().client.handshake().is_some());
}

#[test]
fn a_second_hello_is_a_full_handshake() {
    let generated = certificate();
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::SECP384R1];
    let config = tls_pair::raw_server_config_with(&generated, provider);
    let client = ClientTls::new(&client_options(&generated.certificate_pem)).unwrap();
    let mut connection = TlsClient::new(&client).unwrap();
    RawServer::new(Arc::new(config)).carry(&mut connection).unwrap();
    assert!(!connection.handshake().unwrap().resumed);
}

#[test]
fn a_key_update_of_the_server_is_followed() {
    let generated = certificate();
    let client = ClientTls::new(&client_options(&generated.certificate_pem)).unwrap();
    let mut server = RawServer::new(Arc::new(raw_server_config(&generated)));
    let mut connection = TlsClient::new(&client).unwrap();
    server.carry(&mut connection).unwrap();
    for round in 0..5 {
        server.connection.refresh_traffic_keys().unwrap();
        server.write(&[round; 100]);
        connection.write(&[round; 50]);
        server.carry(&mut connection).unwrap();
    }
    assert_eq!(server.at_server.len(), 250);
    assert_eq!(server.at_client.len(), 500);
}

/// Returns a client that has a ticket with early data of such a server.
fn early(early_data_bytes: u32) -> (ClientTls, ServerTls, leadline_tls::SelfSignedCertificate) {
    let generated = certificate();
    let server = ServerTls::new(&ServerOptions { early_data_bytes, ..server_options(&generated) }).unwrap();
    let client =
        ClientTls::new(&TlsOptions { early_data: true, ..client_options(&generated.certificate_pem) }).unwrap();
    let mut pair = Pair::new(&client, &server);
    assert!(!pair.client.offers_early_data());
    pair.client.write(b"first");
    assert_eq!(pair.settle().at_server, b"first");
    assert_eq!(pair.client.early_data_accepted(), None);
    (client, server, generated)
}

#[test]
fn early_data_arrives_before_the_handshake_ends() {
    for sizes in [&[1_usize][..], &[7, 100], &[100_000]] {
        let (client, server, _) = early(1_000);
        let mut pair = Pair::new(&client, &server);
        assert!(pair.client.offers_early_data());
        pair.client.write(b"quick");
        let mut wire = Vec::new();
        pair.client.take_output(&mut wire);
        pair.server.receive(&wire).unwrap();
        let mut buffer = [0; 10];
        assert_eq!(pair.server.read(&mut buffer), Ok(5));
        assert!(buffer.starts_with(b"quick") && pair.server.is_handshaking() && pair.client.offers_early_data());
        assert_eq!(pair.client.early_data_accepted(), None);
        pair.client.write(b" and more");
        pair.carry(sizes);
        assert_eq!(pair.client.early_data_accepted(), Some(true));
        assert!(pair.client.handshake().unwrap().resumed && !pair.client.offers_early_data());
        assert_eq!(pair.at_server, b" and more");
    }
}

#[test]
fn early_data_beyond_the_server_limit_waits() {
    for size in [20_000, 999, 1_000, 1_001] {
        let (client, server, _) = early(1_000);
        let mut pair = Pair::new(&client, &server);
        let data: Vec<u8> = (0..size).map(|at| at as u8).collect();
        pair.client.write(&data[..10]);
        pair.client.write(&data[10..]);
        pair.carry(&[300]);
        assert_eq!(pair.client.early_data_accepted(), Some(true));
        assert!(pair.at_server == data);
    }
}

#[test]
fn early_data_that_is_refused_is_sent_again() {
    let (client, _, generated) = early(40_000);
    // This server does not know the ticket. rustls counts the skipped bytes again with each piece.
    let options = ServerOptions { early_data_bytes: 100_000_000, ..server_options(&generated) };
    let other = ServerTls::new(&options).unwrap();
    let mut pair = Pair::new(&client, &other);
    let data: Vec<u8> = (0..70_000).map(|at| (at / 3) as u8).collect();
    assert!(pair.client.offers_early_data());
    pair.client.write(&data[..30_000]);
    pair.client.write(&data[30_000..]);
    pair.carry(&[1_000, 70_000]);
    assert_eq!(pair.client.early_data_accepted(), Some(false));
    assert!(!pair.client.handshake().unwrap().resumed);
    assert!(pair.at_server == data);
}

#[test]
fn early_data_can_be_refused_while_the_session_is_resumed() {
    let generated = certificate();
    let mut first = raw_server_config(&generated);
    first.max_early_data_size = 1_000_000;
    first.alpn_protocols = vec![b"a".to_vec()];
    // The same sessions, but another protocol than the one of the early data.
    let mut second = first.clone();
    second.alpn_protocols = vec![b"b".to_vec()];
    let protocols = strings(&["a", "b"]);
    let options = TlsOptions { early_data: true, alpn: &protocols, ..client_options(&generated.certificate_pem) };
    let client = ClientTls::new(&options).unwrap();
    RawServer::new(Arc::new(first)).carry(&mut TlsClient::new(&client).unwrap()).unwrap();
    let mut server = RawServer::new(Arc::new(second));
    let mut connection = TlsClient::new(&client).unwrap();
    assert!(connection.offers_early_data());
    connection.write(b"for a");
    server.carry(&mut connection).unwrap();
    assert_eq!(connection.early_data_accepted(), Some(false));
    let agreed = connection.handshake().unwrap();
    assert_eq!((agreed.resumed, agreed.alpn), (true, Some(1)));
    assert_eq!(server.at_server, b"for a");
}

#[test]
fn nothing_is_written_after_closing() {
    let (server, pem) = ServerTls::self_signed(&strings(&["example.test"])).unwrap();
    let client = ClientTls::new(&client_options(&pem)).unwrap();
    let mut pair = Pair::new(&client, &server);
    pair.client.write(b"last words");
    pair.client.close();
    pair.client.write(b"lost");
    pair.settle();
    assert_eq!(pair.at_server, b"last words");
    assert!(pair.server.peer_closed() && !pair.client.peer_closed());
    pair.server.write(b"answer");
    pair.server.close();
    assert_eq!(pair.settle().at_client, b"answer");
    assert!(pair.client.peer_closed());
    assert_eq!(pair.client.receive(b"what follows is ignored"), Ok(()));
}
