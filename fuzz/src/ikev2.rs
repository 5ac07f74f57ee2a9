//! IKEv2 and ESP from a hostile peer: whatever is parsed is bounded by its bytes, and no input without the keys is
//! accepted.

use std::sync::Arc;

use leadline_tunnel::ikev2::client::{Client, Event, Output};
use leadline_tunnel::ikev2::config::{ClientConfig, Endpoints, Identity, LocalAuth, RemoteAuth};
use leadline_tunnel::ikev2::configuration::{read_requested_versions, Assigned};
use leadline_tunnel::ikev2::eap::Eap;
use leadline_tunnel::ikev2::fragments::Reassembly;
use leadline_tunnel::ikev2::identification::Id;
use leadline_tunnel::ikev2::message::{payload, read_key_exchange, read_payloads, Header, HEADER_BYTES, MAX_PAYLOADS};
use leadline_tunnel::ikev2::notify::{Delete, Notify};
use leadline_tunnel::ikev2::proposal::{read_proposals, write_proposals, Offer};
use leadline_tunnel::ikev2::random::Random;
use leadline_tunnel::ikev2::route::{route, Path};
use leadline_tunnel::ikev2::secret_bytes::SecretBytes;
use leadline_tunnel::ikev2::traffic_selector::{read_selectors, write_selectors};
use leadline_tunnel::protocol::Received;
use leadline_tunnel::secret::Secret;

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 1] = [("ikev2_message", message)];

/// The bytes as a message, as each payload's body, as fragments, and as datagrams to a client: an answer to its first
/// message, whose lengths and SPIs are mended so that they reach the payloads.
pub fn message(data: &[u8]) {
    if let Ok(header) = Header::parse(data) {
        read_message(header.next, &data[HEADER_BYTES..]);
    }
    let (first, chain) = data.split_first().map_or((0, data), |(first, chain)| (*first, chain));
    read_message(first, chain);
    for kind in payload::SA..=payload::EAP {
        read_body(kind, data);
    }
    let mut reassembly = Reassembly::default();
    for part in data.chunks(9).filter(|part| part.len() == 9) {
        let numbers = (u16::from_be_bytes([part[1], part[2]]), u16::from_be_bytes([part[3], part[4]]));
        if let Some((_, whole)) = reassembly.push((u32::from(part[0]), true), numbers, part[5], &part[6..]) {
            assert!(whole.len() <= data.len());
        }
    }
    answer_client(data);
}

fn read_message(first: u8, chain: &[u8]) {
    let Ok(payloads) = read_payloads(first, chain) else { return };
    assert!(payloads.len() <= MAX_PAYLOADS);
    let bytes: usize = payloads.iter().map(|payload| payload.body.len() + 4).sum();
    assert_eq!(bytes, chain.len(), "every byte belongs to one payload");
    for payload in payloads {
        read_body(payload.kind, payload.body);
    }
}

fn read_body(kind: u8, body: &[u8]) {
    match kind {
        payload::SA => {
            if let Ok(proposals) = read_proposals(body) {
                let mut written = Vec::new();
                write_proposals(&proposals, &mut written);
                assert_eq!(read_proposals(&written), Ok(proposals));
            }
        }
        payload::TS_I | payload::TS_R => {
            if let Ok(selectors) = read_selectors(body) {
                let mut written = Vec::new();
                write_selectors(&selectors, &mut written);
                assert_eq!(read_selectors(&written), Ok(selectors));
            }
        }
        payload::NOTIFY => {
            if let Some(notify) = Notify::parse(body) {
                assert_eq!(4 + notify.spi.len() + notify.data.len(), body.len());
            }
        }
        payload::DELETE => {
            let _ = Delete::parse(body);
        }
        payload::KE => {
            let _ = read_key_exchange(body);
        }
        payload::ID_I | payload::ID_R => drop(Id::from_body(body).map(|id| id.to_string())),
        payload::CP => {
            let _ = (Assigned::parse(body), read_requested_versions(body));
        }
        payload::EAP => drop(Eap::new("user", &Secret::from("password")).handle(body, [1; 16])),
        _ => {}
    }
}

fn answer_client(data: &[u8]) {
    let ike = Offer::parse_ike("aes128gcm16-prfsha256-x25519").expect("the offer is valid");
    let esp = Offer::parse_esp("aes128gcm16").expect("the offer is valid");
    let config = ClientConfig::new(ike, esp, RemoteAuth::SharedKey);
    let shared_key = Some(SecretBytes::from(&b"key"[..]));
    let identity = Identity { id: Id::parse("c@test"), auth: LocalAuth::SharedKey, shared_key };
    let endpoints = Endpoints { local: ([127, 0, 0, 1], 500).into(), peer: ([127, 0, 0, 1], 500).into() };
    let mut client = Client::new(&Arc::new(config), &Arc::new(identity), endpoints, Random::new([1; 32]), 0);
    let mut out = Vec::new();
    assert!(matches!(client.poll(0, &mut out), Output::Send(Path::Port500)));
    let spi = *out.first_chunk::<8>().expect("a message");
    for (path, offset) in [(Path::Port500, 0), (Path::Port4500, 4), (Path::RawEsp, 0)] {
        let _ = route(path, data);
        let _: Received<'_> = client.handle(1, path, &mut data.to_vec());
        if data.len() < offset + HEADER_BYTES {
            continue;
        }
        let mut mended = data.to_vec();
        let length = (mended.len() - offset) as u32;
        let message = &mut mended[offset..];
        message[..8].copy_from_slice(&spi);
        message[17..24].copy_from_slice(&[0x20, 34, 0x20, 0, 0, 0, 0]);
        message[24..28].copy_from_slice(&length.to_be_bytes());
        let received = client.handle(1, path, &mut mended);
        assert!(!matches!(received, Received::Payload(_)), "no packet is delivered without the keys");
    }
    for _ in 0..100 {
        match client.poll(2, &mut out) {
            Output::Event(event) => assert!(!matches!(event, Event::IkeUp | Event::ChildUp)),
            Output::Send(_) => assert!(out.len() < 2000),
            Output::Wait(_) => return,
        }
    }
    panic!("a client sends without end");
}
