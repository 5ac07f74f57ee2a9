//! TLS client against TLS server, in memory and in pieces of any size: handshakes full and resumed, data both ways,
//! early data, closing. What goes wrong is in `tls_failures.rs`.

mod tls_pair;

use leadline_http::tls::{ClientTls, ServerTls, TlsOptions, TlsVersion};
use tls_pair::{client_options, strings, Pair};

#[test]
fn a_full_handshake_and_data_both_ways() {
    let (server, pem) = ServerTls::made(&strings(&["example.test"])).unwrap();
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

#[test]
fn the_first_connections_are_full_and_later_ones_resume() {
    for newest in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let (server, pem) = ServerTls::made(&strings(&["example.test"])).unwrap();
        let client = ClientTls::new(&TlsOptions { newest, ..client_options(&pem) }).unwrap();
        for round in 0..3 {
            // All of a round shake hands at the same time.
            let mut pairs: Vec<Pair> = (0..16).map(|_| Pair::new(&client, &server)).collect();
            for pair in &mut pairs {
                let agreed = pair.carry(&[100]).client.handshake().unwrap();
                assert_eq!((agreed.resumed, agreed.version), (round > 0, newest));
                assert_eq!(pair.server.handshake().unwrap().resumed, round > 0);
            }
        }
    }
}
