//! The cost that a hostile peer of a TLS connection can cause: memory is bounded whatever it sends, and floods of
//! useless records end the connection with a named failure.

use std::sync::Arc;

use crate::tls_pair::{certificate, client_options, raw_server_config, server_options, Pair, RawServer};
use leadline_tls::{ClientTls, ServerTls, TlsClient, TlsFailure, TlsServer, PENDING_LIMIT_BYTES};

/// Vectors grow by doubling.
const HELD_LIMIT_BYTES: usize = 2 * (PENDING_LIMIT_BYTES + 1_000);

fn client() -> TlsClient {
    let shared = ClientTls::new(&client_options(&certificate().certificate_pem)).unwrap();
    let mut client = TlsClient::new(&shared).unwrap();
    client.take_output(&mut Vec::new());
    client
}

fn server() -> TlsServer {
    TlsServer::new(&ServerTls::new(&server_options(&certificate())).unwrap()).unwrap()
}

fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 3, 3];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Sends pieces until the machine refuses; returns the number of bytes, and the failure.
fn flood(
    pieces: impl Iterator<Item = Vec<u8>>,
    mut receive: impl FnMut(&[u8]) -> (Result<(), TlsFailure>, usize),
) -> (usize, TlsFailure) {
    let mut sent = 0;
    for piece in pieces.take(1_000_000) {
        sent += piece.len();
        let (received, held) = receive(&piece);
        assert!(held <= HELD_LIMIT_BYTES, "{held} bytes are held after {sent}");
        if let Err(failure) = received {
            return (sent, failure);
        }
    }
    panic!("{sent} bytes were taken without an end");
}

fn flood_both(pieces: impl Fn(u8) -> Box<dyn Iterator<Item = Vec<u8>>>) -> [(usize, TlsFailure); 2] {
    let (mut client, mut server) = (client(), server());
    let (server_hello, client_hello) = (2, 1);
    [
        flood(pieces(server_hello), |piece| (client.receive(piece), client.held_bytes())),
        flood(pieces(client_hello), |piece| (server.receive(piece), server.held_bytes())),
    ]
}

#[test]
fn an_endless_handshake_message_in_tiny_records_is_refused() {
    let ended = flood_both(|hello| {
        let header = record(22, &[hello, 0, 0xff, 0xff]);
        Box::new(std::iter::once(header).chain(std::iter::repeat_with(|| record(22, &[0]))))
    });
    for (sent, failure) in ended {
        assert_eq!(failure.name, "tls_too_large");
        assert!(sent <= PENDING_LIMIT_BYTES + 1_000, "{sent}");
    }
}

#[test]
fn a_handshake_message_with_a_huge_length_is_refused() {
    for (sent, failure) in flood_both(|hello| Box::new(std::iter::repeat(record(22, &[hello, 0xff, 0xff, 0xff, 0])))) {
        assert_eq!(failure.name, "tls_too_large");
        assert!(sent < 100, "{sent}");
    }
}

#[test]
fn the_largest_record_that_never_ends_and_one_that_is_too_large() {
    for (sent, failure) in flood_both(|_| Box::new(std::iter::once(vec![22, 3, 3, 0xff, 0xff]))) {
        assert_eq!((failure.name, sent), ("tls_too_large", 5));
    }
    let (mut client, mut server) = (client(), server());
    for connection in 0..2 {
        let mut bytes = record(22, &[0; 16_384]);
        bytes.pop();
        for byte in bytes {
            let (received, held) = match connection {
                0 => (client.receive(&[byte]), client.held_bytes()),
                _ => (server.receive(&[byte]), server.held_bytes()),
            };
            assert!(received.is_ok() && held <= HELD_LIMIT_BYTES);
        }
    }
    assert_eq!(client.end().unwrap_err().name, "tls_handshake_cut");
}

#[test]
fn useless_records_before_the_keys_are_bounded() {
    let (change_cipher_spec, warning, empty) = (record(20, &[1]), record(21, &[1, 90]), record(22, &[]));
    for nothing in [change_cipher_spec, warning, empty] {
        for (sent, failure) in flood_both(|_| Box::new(std::iter::repeat(nothing.clone()))) {
            assert!(["tls_unexpected_message", "tls_flood", "tls_malformed"].contains(&failure.name), "{failure}");
            assert!(sent <= 1_000, "{sent}");
        }
    }
}

#[test]
fn endless_renewal_of_keys_is_a_flood() {
    let generated = certificate();
    let shared = ClientTls::new(&client_options(&generated.certificate_pem)).unwrap();
    let mut connection = TlsClient::new(&shared).unwrap();
    let mut server = RawServer::new(Arc::new(raw_server_config(&generated)));
    server.carry(&mut connection).unwrap();
    let renewals = std::iter::repeat_with(|| {
        server.connection.refresh_traffic_keys().unwrap();
        server.output()
    });
    let (sent, failure) = flood(renewals, |piece| (connection.receive(piece), connection.held_bytes()));
    assert_eq!(failure.name, "tls_flood");
    assert!(sent < 10_000, "{sent}");
}

#[test]
fn any_amount_of_data_costs_no_memory() {
    let generated = certificate();
    let shared = ClientTls::new(&client_options(&generated.certificate_pem)).unwrap();
    let mut pair = Pair::new(&shared, &ServerTls::new(&server_options(&generated)).unwrap());
    pair.settle();
    let (block, mut wire, mut buffer) = (vec![7; 100_000], Vec::new(), vec![0; 30_000]);
    let before = resident_kib();
    let mut received = 0;
    for round in 0..640 {
        wire.clear();
        pair.server.write_to(&block, &mut wire);
        for piece in wire.chunks_mut(3_000 + round) {
            match round % 3 {
                0 => pair.client.receive(piece).unwrap(),
                1 => pair.client.receive_with(piece, |bytes| received += bytes.len()).unwrap(),
                _ => pair.client.receive_in_place(piece, |bytes| received += bytes.len()).unwrap(),
            }
            while let Ok(count @ 1..) = pair.client.read(&mut buffer) {
                received += count;
            }
            assert!(pair.client.held_bytes() <= 80_000, "{}", pair.client.held_bytes());
        }
        assert!(pair.server.held_bytes() <= 16_000);
    }
    assert_eq!(received, 64_000_000);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 16_000, "{grown} KiB more are resident after 64 MB");
}

#[test]
fn an_idle_connection_holds_next_to_nothing() {
    let generated = certificate();
    let shared = ClientTls::new(&client_options(&generated.certificate_pem)).unwrap();
    let mut pair = Pair::new(&shared, &ServerTls::new(&server_options(&generated)).unwrap());
    pair.client.write(&[1; 50_000]);
    pair.server.write(&[2; 50_000]);
    pair.settle();
    assert!(pair.client.held_bytes() <= 20_000, "{}", pair.client.held_bytes());
    assert!(pair.server.held_bytes() <= 20_000, "{}", pair.server.held_bytes());
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
