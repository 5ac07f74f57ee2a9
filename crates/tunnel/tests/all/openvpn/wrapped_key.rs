//! Tests of clients with their own keys (`tls-crypt-v2`): what they send of the key, connecting, and renewal.

use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;

use super::{assert_connects_and_renews, of_2_6};
use leadline_testkit::openvpn::{Pki, Setup};
use leadline_tunnel::openvpn::client::{Client, Output};
use leadline_tunnel::openvpn::data::DataCipher;
use leadline_tunnel::openvpn::message::peer_info::Protocols;
use leadline_tunnel::openvpn::packet::{
    write_early_negotiation_flags, ControlBody, Header, Opcode, SessionId, RESEND_WRAPPED_KEY,
};
use leadline_tunnel::openvpn::role::Role;
use leadline_tunnel::openvpn::wrap::{ServerKey, StaticKey, Wrap, WrapKeys, LONGEST_WRAPPED_KEY};

#[test]
fn tls_crypt_v2_client_connects_and_renews() {
    let pki = Pki::new();
    let server_text = armoured("OpenVPN tls-crypt-v2 server key", &[7; 128]);
    let server = ServerKey::parse(&server_text).expect("a server's key");
    let bytes: [u8; StaticKey::LEN] = std::array::from_fn(|at| at as u8);
    let wrapped = server.wrap(&StaticKey::from_bytes(bytes), &[]).expect("room for it");
    let text = armoured("OpenVPN tls-crypt-v2 client key", &[&bytes[..], &wrapped[..]].concat());
    for protocols in [of_2_6(), of_2_6().without(Protocols::DYNAMIC_TLS_CRYPT)] {
        let mut setup = Setup::with(&pki, DataCipher::Aes256Gcm, protocols);
        setup.client.wrap = WrapKeys::crypt_v2(&text).expect("a client's key");
        setup.server.wrap = WrapKeys::crypt_v2_server(&server_text).expect("a server's key");
        assert_connects_and_renews(setup, &format!("{protocols:?}"));
    }
}

/// Kind and length of a client's packets after a stateless server has answered its reset and requested the wrapped
/// key again.
fn first_flight(pki: &Pki, client: WrapKeys, server: WrapKeys) -> Vec<(Opcode, usize)> {
    let mut setup = Setup::new(pki);
    setup.client.wrap = client;
    let mut machine = Client::new(&Arc::new(setup.client), &setup.identity, 0);
    let mut packet = Vec::new();
    assert_eq!(machine.poll(0, &mut packet), Output::Send);
    let mut wrap = Wrap::new(server);
    let peer = wrap.open(&mut packet).expect("the client's reset").session;
    let mut flags = Vec::new();
    write_early_negotiation_flags(RESEND_WRAPPED_KEY, &mut flags);
    let body = ControlBody { acks: [0].into_iter().collect(), peer: Some(peer), id: Some(0), payload: &flags };
    let (mut plain, mut answer) = (Vec::new(), Vec::new());
    body.write(&mut plain);
    let header = Header { opcode: Opcode::HardResetServerV2, key_id: 0 };
    wrap.seal(header, SessionId([9; 8]), &plain, 1_800_000_000, &mut answer);
    machine.handle(1, &mut answer);
    let mut sent = Vec::new();
    loop {
        match machine.poll(1, &mut packet) {
            Output::Send => sent.push((Header::parse(packet[0]).expect("a kind").opcode, packet.len())),
            Output::Event(_) => {}
            Output::Wait(_) => return sent,
        }
    }
}

#[test]
fn resent_wrapped_key_fits_the_minimum_mtu() {
    let pki = Pki::new();
    let server_text = armoured("OpenVPN tls-crypt-v2 server key", &[7; 128]);
    let server = ServerKey::parse(&server_text).expect("a server's key");
    let bytes: [u8; StaticKey::LEN] = std::array::from_fn(|at| at as u8);
    for metadata_bytes in [0, LONGEST_WRAPPED_KEY - 290] {
        let wrapped = server.wrap(&StaticKey::from_bytes(bytes), &vec![0; metadata_bytes]).expect("room for it");
        let text = armoured("OpenVPN tls-crypt-v2 client key", &[&bytes[..], &wrapped[..]].concat());
        let client = WrapKeys::crypt_v2(&text).expect("a client's key");
        let sent = first_flight(&pki, client, WrapKeys::crypt_v2_server(&server_text).expect("a server's key"));
        assert_eq!(sent[0].0, Opcode::ControlWkc, "{sent:?}");
        assert!(sent[1..].iter().all(|(opcode, _)| *opcode == Opcode::Control), "{sent:?}");
        // 1,280 bytes with the headers of IPv6 and UDP.
        assert!(sent.iter().all(|(_, length)| *length <= 1_232), "{sent:?}");
    }
}

#[test]
fn client_without_wrapped_key_resends_none() {
    let pki = Pki::new();
    let key = StaticKey::from_bytes([3; 256]);
    let sent = first_flight(&pki, WrapKeys::crypt(&key, Role::Client), WrapKeys::crypt(&key, Role::Server));
    assert!(!sent.is_empty() && sent.iter().all(|(opcode, _)| *opcode == Opcode::Control), "{sent:?}");
}

fn armoured(name: &str, bytes: &[u8]) -> String {
    format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", STANDARD.encode(bytes))
}
