//! Tests of the client machine against the server machine, in virtual time.

use std::collections::HashSet;
use std::sync::Arc;

use leadline_testkit::openvpn::{Pair, Pki, Setup};
use leadline_tunnel::openvpn::client::{Client, ClientConfig, Event, Output};
use leadline_tunnel::openvpn::data::DataCipher;
use leadline_tunnel::openvpn::digest::Digest;
use leadline_tunnel::openvpn::message::peer_info::Protocols;
use leadline_tunnel::openvpn::profile;
use leadline_tunnel::openvpn::role::Role;
use leadline_tunnel::openvpn::server::PeerEvent;
use leadline_tunnel::openvpn::wrap::{StaticKey, WrapKeys};

mod certificates;
mod hostile;
mod options;
mod renewal;
mod token;
mod wrapped_key;

const SECOND_NS: u64 = 1_000_000_000;

/// All features of 2.6, Debian's newest version.
fn of_2_6() -> Protocols {
    Protocols::ALL.without(Protocols::DATA_EPOCH)
}

fn assert_carries(pair: &mut Pair, what: &str) {
    let (up, down) = (pair.at_server.len(), pair.at_client.len());
    for number in 0..10 {
        pair.send_up(&[number; 100], &mut |_| Some(1));
        pair.send_down(&[number; 200], &mut |_| Some(1));
    }
    pair.run_a_second();
    assert_eq!((pair.at_server.len() - up, pair.at_client.len() - down), (10, 10), "{what}");
}

fn assert_connects_and_renews(setup: Setup, what: &str) {
    let mut pair = setup.pair();
    pair.run_a_second();
    assert_eq!(pair.events, [Event::Answered, Event::TlsDone, Event::KeysDone, Event::Up], "{what}");
    assert_eq!(pair.peer_events, [PeerEvent::Up], "{what}");
    assert_carries(&mut pair, what);
    pair.client.renegotiate(pair.now_ns);
    pair.run_a_second();
    assert_eq!(pair.events.last(), Some(&Event::Renegotiated), "{what}");
    assert_carries(&mut pair, what);
    pair.server.as_mut().expect("a server").renegotiate(pair.now_ns);
    pair.run_a_second();
    let renewed = pair.events.iter().filter(|event| **event == Event::Renegotiated).count();
    assert_eq!(renewed, 2, "{what}");
    assert_eq!(pair.peer_events[1..], [PeerEvent::Renegotiated, PeerEvent::Renegotiated], "{what}");
    assert_carries(&mut pair, what);
    pair.client.leave(pair.now_ns);
    pair.run_a_second();
    assert_eq!(pair.peer_events.last(), Some(&PeerEvent::Left), "{what}");
    assert_eq!(pair.client.retransmits(), 0, "{what}");
    assert_eq!((pair.client.counters().rejected, pair.client.counters().replayed), (0, 0), "{what}");
}

#[test]
fn every_cipher_connects_and_renews() {
    let pki = Pki::new();
    for cipher in DataCipher::ALL {
        assert_connects_and_renews(Setup::with(&pki, cipher, of_2_6()), cipher.name());
    }
}

#[test]
fn every_wrap_connects_and_renews_with_and_without_dynamic_keys() {
    let pki = Pki::new();
    let key = || StaticKey::from_bytes(std::array::from_fn(|at| at as u8));
    for protocols in [of_2_6(), of_2_6().without(Protocols::DYNAMIC_TLS_CRYPT)] {
        for (name, client, server) in [
            ("none", WrapKeys::None, WrapKeys::None),
            ("auth", WrapKeys::auth(&key(), None, Digest::Sha1), WrapKeys::auth(&key(), None, Digest::Sha1)),
            ("crypt", WrapKeys::crypt(&key(), Role::Client), WrapKeys::crypt(&key(), Role::Server)),
        ] {
            let mut setup = Setup::with(&pki, DataCipher::Aes256Gcm, protocols);
            setup.client.wrap = client;
            setup.server.wrap = server;
            assert_connects_and_renews(setup, name);
        }
    }
}

#[test]
fn every_server_version_negotiates_with_the_client() {
    let pki = Pki::new();
    let keys_from_key_methods = of_2_6().without(Protocols::TLS_KEY_EXPORT).without(Protocols::CONTROL_EXIT);
    for (name, protocols) in [("2.7", Protocols::ALL), ("2.6", of_2_6()), ("2.4", keys_from_key_methods)] {
        let protocols = if name == "2.4" { protocols.without(Protocols::DYNAMIC_TLS_CRYPT) } else { protocols };
        assert_connects_and_renews(Setup::with(&pki, DataCipher::Aes128Gcm, protocols), name);
    }
}

/// A random link that is the same each time (SplitMix64).
struct RandomLink(u64);

impl RandomLink {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next() % n == 0
    }

    /// 1/16 dropped, 1/32 damaged, 1/8 so late that later packets overtake it.
    fn delivery(&mut self, packet: &mut [u8]) -> Option<u64> {
        if self.one_in(16) {
            return None;
        }
        if self.one_in(32) {
            let at = self.next() as usize % packet.len();
            packet[at] ^= 1 << (self.next() % 8);
        }
        Some(10_000_000 + if self.one_in(8) { self.next() % 50_000_000 } else { 0 })
    }
}

#[test]
fn lossy_link_delivers_every_payload_once() {
    let pki = Pki::new();
    let key = || StaticKey::from_bytes(std::array::from_fn(|at| (at * 7) as u8));
    for seed in 0..12 {
        let mut link = RandomLink(seed);
        let mut setup = Setup::new(&pki);
        setup.client.wrap = WrapKeys::crypt(&key(), Role::Client);
        setup.server.wrap = WrapKeys::crypt(&key(), Role::Server);
        let mut pair = setup.pair();
        pair.run(30 * SECOND_NS, &mut |packet| link.delivery(packet));
        assert!(pair.events.contains(&Event::Up), "seed {seed}: {:?}", pair.events);
        let mut sent = 0u32;
        for second in 31..150 {
            for _ in 0..10 {
                sent += 1;
                pair.send_up(&sent.to_be_bytes(), &mut |packet| link.delivery(packet));
                pair.send_down(&sent.to_be_bytes(), &mut |packet| link.delivery(packet));
            }
            match second % 40 {
                0 => pair.client.renegotiate(pair.now_ns),
                20 => pair.server.as_mut().expect("a server").renegotiate(pair.now_ns),
                _ => {}
            }
            pair.run(second * SECOND_NS, &mut |packet| link.delivery(packet));
        }
        pair.run(210 * SECOND_NS, &mut |_| Some(1_000_000));
        assert!(!pair.events.iter().any(|event| matches!(event, Event::Failed(_))), "seed {seed}: {:?}", pair.events);
        let renewed = pair.events.iter().filter(|event| **event == Event::Renegotiated).count();
        assert_eq!(renewed, 6, "seed {seed}");
        for (role, arrived) in [("client", &pair.at_client), ("server", &pair.at_server)] {
            let distinct: HashSet<_> = arrived.iter().collect();
            assert_eq!(distinct.len(), arrived.len(), "seed {seed}: a packet arrived twice at the {role}");
            let numbers: Vec<u32> =
                arrived.iter().map(|p| u32::from_be_bytes(p[..].try_into().expect("as sent"))).collect();
            assert!(numbers.iter().all(|number| (1..=sent).contains(number)), "seed {seed}: the number was never sent");
            // 1/16 dropped and 1/32 damaged leave 90.8 %; packets that are later than the replay window are rare.
            assert!(arrived.len() > sent as usize * 8 / 10, "seed {seed}: {} of {sent} at the {role}", arrived.len());
        }
        pair.at_client.clear();
        pair.at_server.clear();
        assert_carries(&mut pair, "after the faults");
    }
}

#[test]
fn repeated_packets_are_dropped_and_counted() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    let mut packets = Vec::new();
    for number in 0..100u8 {
        pair.send_down(&[number], &mut |packet| {
            packets.push(packet.clone());
            Some(1)
        });
    }
    pair.run_a_second();
    assert_eq!(pair.at_client.len(), 100);
    for packet in &mut packets {
        pair.client.handle(pair.now_ns, packet);
    }
    assert_eq!(pair.at_client.len(), 100);
    assert_eq!(pair.client.counters().replayed, 100);
}

#[test]
fn silence_is_named_by_the_handshake_step_it_ends() {
    let pki = Pki::new();
    let failed = |pair: &Pair| match pair.events.last() {
        Some(Event::Failed(failure)) => failure.name,
        other => panic!("{other:?}"),
    };
    let mut unanswered = Setup::new(&pki).pair();
    unanswered.run(61 * SECOND_NS, &mut |_| None);
    assert_eq!(failed(&unanswered), "reset_unanswered");
    // After the first reset and 2 + 4 + 8 + 16 s, four more fit in the hand window.
    assert_eq!(unanswered.client.retransmits(), 4);

    let mut answered = Setup::new(&pki).pair();
    let mut seen = 0;
    answered.run(61 * SECOND_NS, &mut |_| {
        seen += 1;
        (seen <= 2).then_some(1)
    });
    assert_eq!(failed(&answered), "silence_after_reset");
}

#[test]
fn wrong_password_and_unoffered_cipher_have_different_errors() {
    let pki = Pki::new();
    let failure = |setup: Setup| {
        let mut pair = setup.pair();
        pair.run_a_second();
        match pair.events.pop() {
            Some(Event::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        }
    };
    let mut refused = Setup::new(&pki);
    refused.server.users = vec![("user".to_owned(), "right".to_owned())];
    refused.identity.user = Some(("user".to_owned(), "wrong".into()));
    assert_eq!(failure(refused).name, "auth_failed");
    let mut foreign = Setup::new(&pki);
    foreign.server.ciphers = vec![DataCipher::Aes128Cbc];
    let failure = failure(foreign);
    assert_eq!(failure.name, "auth_failed");
    assert!(failure.detail.contains("no shared cipher"), "{failure:?}");
}

#[test]
fn certificate_of_another_authority_fails_both_ends() {
    let mut setup = Setup::new(&Pki::new());
    setup.identity = Pki::new().identity();
    let mut pair = setup.pair();
    pair.run_a_second();
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert!(failure.name.starts_with("tls_certificate_"), "{failure:?}");
}

#[test]
fn client_sends_push_request_to_a_server_that_waits_for_it() {
    let mut setup = Setup::new(&Pki::new());
    // Such a server ignores the client's features: keys come from the key methods.
    setup.client.peer_info = setup.client.peer_info.replace("IV_PROTO", "IV_NO_PROTO");
    let mut pair = setup.pair();
    pair.run(SECOND_NS / 2, &mut |_| Some(1_000_000));
    assert_eq!(pair.events, [Event::Answered, Event::TlsDone, Event::KeysDone]);
    // The first request is lost; it is retransmitted, because the control channel is reliable.
    let mut lost = false;
    pair.run(2 * SECOND_NS, &mut |_| std::mem::replace(&mut lost, true).then_some(1_000_000));
    assert!(!pair.events.contains(&Event::Up));
    pair.run(4 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(pair.events.last(), Some(&Event::Up));
    assert_carries(&mut pair, "with keys from the key methods");
}

#[test]
fn idle_client_sends_keepalives_and_detects_a_silent_server() {
    let mut setup = Setup::new(&Pki::new());
    setup.server.push.extend(["ping 10".to_owned(), "ping-restart 60".to_owned()]);
    let mut pair = setup.pair();
    pair.run(100 * SECOND_NS, &mut |_| Some(1_000_000));
    // Our server does not ping by itself; its last acknowledgement arrived in the first second.
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert_eq!(failure.name, "ping_restart");
    assert_eq!(pair.server.as_ref().expect("a server").counters().pings, 5);
}

#[test]
fn exit_during_a_renegotiation_reaches_the_server() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    pair.client.leave(pair.now_ns);
    // No packet of the renewal arrives: resets of key states (3) are dropped.
    pair.run(pair.now_ns + SECOND_NS, &mut |packet| (packet[0] >> 3 != 3).then_some(1_000_000));
    assert_eq!(pair.peer_events, [PeerEvent::Up, PeerEvent::Left]);
}

#[test]
fn invalid_packets_are_counted_and_change_no_state() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    let mut link = RandomLink(1);
    for length in 0..2000 {
        let mut packet: Vec<u8> = (0..length).map(|_| link.next() as u8).collect();
        pair.client.handle(pair.now_ns, &mut packet);
    }
    assert_eq!(pair.client.counters().rejected, 2000);
    assert_carries(&mut pair, "after the noise");
}

#[test]
fn unanswered_client_only_sets_timers() {
    let setup = Setup::new(&Pki::new());
    let mut client = Client::new(&Arc::new(setup.client), &setup.identity, 5);
    let mut out = Vec::new();
    assert_eq!(client.poll(5, &mut out), Output::Send);
    assert_eq!(out.len(), 14);
    assert_eq!(client.poll(5, &mut out), Output::Wait(Some(5 + 2 * SECOND_NS)));
    assert!(client.send(5, b"early", &mut out).is_err());
}

#[test]
fn unanswered_reset_starts_no_tls() {
    let setup = Setup::new(&Pki::new());
    let (config, mut out) = (Arc::new(setup.client), Vec::new());
    let mut client = None;
    let spent = allocation_counter::measure(|| {
        client.insert(Client::new(&config, &setup.identity, 0)).poll(0, &mut out);
    });
    // The first message of TLS alone, with its key shares, is as long.
    assert!(spent.bytes_max < 2048, "{} bytes at most", spent.bytes_max);
}

#[test]
fn connected_client_uses_little_memory() {
    let mut pair = Setup::new(&Pki::new()).pair();
    let spent = allocation_counter::measure(|| pair.run_a_second());
    assert!(pair.events.contains(&Event::Up));
    // Both ends together: the states of TLS and of the keys, the data channels, the pushed options.
    assert!(spent.bytes_current < 64 * 1024, "{} bytes", spent.bytes_current);
}

/// The common name of test certificates: rcgen's default.
const NAME: &str = "rcgen self signed cert";

#[test]
fn client_made_from_a_profile_connects() {
    let pki = Pki::new();
    let (certificate, key) = &pki.client;
    let connect = |more: &str| {
        let text = format!(
            "client\nremote 192.0.2.1 1194\nremote-cert-tls server\n{more}\n<ca>\n{}</ca>\n<cert>\n{certificate}</cert>\n\
             <key>\n{key}</key>\n",
            pki.authority
        );
        let profile = profile::parse(&text).expect("a good profile");
        let config = ClientConfig::new(&profile, 1_800_000_000).expect("good keys");
        let key = profile.key.as_ref().expect("a key").expose();
        let identity = config.identity(profile.cert.as_deref().zip(Some(key)), None).expect("a good identity");
        let mut pair = Setup { client: config, identity, ..Setup::new(&pki) }.pair();
        pair.run_a_second();
        pair.events.pop()
    };
    assert_eq!(connect(""), Some(Event::Up));
    assert_eq!(
        connect("auth SHA512\ndata-ciphers AES-256-GCM:CHACHA20-POLY1305\ntls-version-max 1.2"),
        Some(Event::Up)
    );
    assert_eq!(connect(&format!("verify-x509-name '{NAME}' name")), Some(Event::Up));
    assert_eq!(connect("verify-x509-name rcgen name-prefix"), Some(Event::Up));
    let Some(Event::Failed(failure)) = connect("verify-x509-name server name") else { panic!("the name differs") };
    assert_eq!(failure.name, "tls_certificate_name_mismatch");
    let Some(Event::Failed(failure)) = connect("data-ciphers AES-128-GCM") else {
        panic!("the server's cipher differs")
    };
    assert_eq!(failure.name, "auth_failed");
}
