//! Tests of key renewal: when it is due, and what happens to the tunnel meanwhile. A client is not polled between its
//! deadlines here.

use super::{assert_carries, of_2_6};
use leadline_testkit::openvpn::{Pair, Pki, Setup};
use leadline_tunnel::openvpn::client::Event;
use leadline_tunnel::openvpn::data::DataCipher;
use leadline_tunnel::openvpn::message::peer_info::Protocols;
use leadline_tunnel::openvpn::role::Role;
use leadline_tunnel::openvpn::server::PeerEvent;
use leadline_tunnel::openvpn::wrap::{StaticKey, WrapKeys};

const SECOND_NS: u64 = 1_000_000_000;

/// Events of a failed renewal and of the session that replaces it.
const RENEWED_BY_A_SESSION: [Event; 3] =
    [Event::RenegotiationFailed, Event::Renegotiated, Event::RenegotiationAccepted];

fn renewed(pair: &Pair) -> usize {
    pair.events.iter().filter(|event| **event == Event::Renegotiated).count()
}

#[test]
fn exhausted_keys_are_renewed() {
    let mut setup = Setup::new(&Pki::new());
    setup.client.renegotiate_after.packets = Some(50);
    setup.client.renegotiate_after_ns = Some(3600 * SECOND_NS);
    let mut pair = setup.pair();
    pair.run_a_second();
    for _ in 0..6 {
        assert_carries(&mut pair, "while keys are used up");
    }
    assert_eq!(renewed(&pair), 2);
    pair.run(3700 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(renewed(&pair), 3);
}

#[test]
fn byte_limit_renews_keys_for_either_direction() {
    let pki = Pki::new();
    for sends_up in [true, false] {
        let mut setup = Setup::new(&pki);
        setup.client.renegotiate_after.bytes = Some(10_000);
        let mut pair = setup.pair();
        pair.run_a_second();
        for packet in 0..20u8 {
            assert_eq!(renewed(&pair), usize::from(packet > 9), "packet {packet}, up: {sends_up}");
            match sends_up {
                true => pair.send_up(&[packet; 1000], &mut |_| Some(1)),
                false => pair.send_down(&[packet; 1000], &mut |_| Some(1)),
            }
            pair.run_a_second();
        }
        assert_eq!(renewed(&pair), 2, "up: {sends_up}");
    }
}

#[test]
fn retransmits_are_counted_across_renegotiations() {
    let mut pair = Setup::new(&Pki::new()).pair();
    let mut is_lost = true;
    pair.run(20 * SECOND_NS, &mut |_| (!std::mem::replace(&mut is_lost, false)).then_some(1_000_000));
    assert_eq!(pair.client.retransmits(), 1);
    pair.server.as_mut().expect("a server").renegotiate(pair.now_ns);
    pair.run_a_second();
    assert_eq!((renewed(&pair), pair.client.retransmits()), (1, 1));
    // The last packet of the old keys is lost, and retransmitted after the new ones are in use.
    pair.client.renegotiate(pair.now_ns);
    pair.run(pair.now_ns + 10 * SECOND_NS, &mut |packet| (packet[0] >> 3 != 3).then_some(1_000_000));
    let before = pair.client.retransmits();
    assert!(before > 1, "resets were lost");
    pair.run_a_second();
    pair.run(pair.now_ns + 20 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(renewed(&pair), 2);
    pair.server.as_mut().expect("a server").renegotiate(pair.now_ns);
    pair.run_a_second();
    assert!(pair.client.retransmits() >= before);
}

#[test]
fn renegotiation_before_push_reply_succeeds() {
    let mut setup = Setup::new(&Pki::new());
    // It pushes only on request, a second after the keys.
    setup.client.peer_info = setup.client.peer_info.replace("IV_PROTO", "IV_NO_PROTO");
    let mut pair = setup.pair();
    pair.run(SECOND_NS / 2, &mut |_| Some(1_000_000));
    assert_eq!(pair.events, [Event::Answered, Event::TlsDone, Event::KeysDone]);
    pair.server.as_mut().expect("a server").renegotiate(pair.now_ns);
    pair.run(10 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(pair.events.last(), Some(&Event::Up));
    assert_carries(&mut pair, "with the second keys");
}

#[test]
fn old_keys_expire_after_the_transition_window() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    pair.run_a_second();
    assert_eq!(renewed(&pair), 1);
    let now_ns = pair.now_ns + 3600 * SECOND_NS;
    let spent = allocation_counter::measure(|| {
        pair.client.poll(now_ns, &mut Vec::new());
    });
    // The memory of the TLS library is not counted.
    assert!(spent.bytes_current < 0, "{} bytes", spent.bytes_current);
}

/// Whether a packet belongs to the control channel.
fn is_control(packet: &[u8]) -> bool {
    !matches!(packet[0] >> 3, 6 | 9)
}

#[test]
fn failed_renewal_keeps_old_keys_until_a_new_session() {
    let pki = Pki::new();
    for wrapped in [false, true] {
        let mut setup = Setup::new(&pki);
        if wrapped {
            let key = || StaticKey::from_bytes(std::array::from_fn(|at| at as u8));
            setup.client.wrap = WrapKeys::crypt(&key(), Role::Client);
            setup.server.wrap = WrapKeys::crypt(&key(), Role::Server);
        }
        let mut pair = setup.pair();
        pair.run_a_second();
        pair.client.renegotiate(pair.now_ns);
        for _ in 0..70 {
            let (up, down) = (pair.at_server.len(), pair.at_client.len());
            pair.send_up(b"up", &mut |_| Some(1));
            pair.send_down(b"down", &mut |_| Some(1));
            pair.run(pair.now_ns + SECOND_NS, &mut |packet| (!is_control(packet)).then_some(1_000_000));
            assert_eq!((pair.at_server.len() - up, pair.at_client.len() - down), (1, 1), "the old keys are in use");
        }
        assert_eq!(pair.events.last(), Some(&Event::RenegotiationFailed));
        pair.run(pair.now_ns + 20 * SECOND_NS, &mut |_| Some(1_000_000));
        assert_eq!(pair.events[4..], RENEWED_BY_A_SESSION);
        assert_carries(&mut pair, "with the new session's keys");
        pair.client.renegotiate(pair.now_ns);
        pair.run_a_second();
        assert_eq!(renewed(&pair), 2, "the new session's keys are renewed as well");
        assert_carries(&mut pair, "with renewed keys of the new session");
        pair.client.leave(pair.now_ns);
        pair.run_a_second();
        assert_eq!(pair.peer_events.last(), Some(&PeerEvent::Left));
    }
}

#[test]
fn unrenewed_keys_last_one_hour() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    pair.run(3599 * SECOND_NS, &mut |packet| (!is_control(packet)).then_some(1_000_000));
    assert!(pair.events[4..].iter().all(|event| *event == Event::RenegotiationFailed), "{:?}", pair.events);
    assert_eq!(pair.events.len() - 4, 59, "once for each window");
    pair.send_down(b"still", &mut |_| Some(1));
    pair.run(3700 * SECOND_NS, &mut |packet| (!is_control(packet)).then_some(1_000_000));
    assert_eq!(pair.at_client.last().map(Vec::as_slice), Some(&b"still"[..]));
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert_eq!(failure.name, "renegotiation_timeout");
}

#[test]
fn broken_renewal_is_reported_immediately_and_retried() {
    let protocols = of_2_6().without(Protocols::DYNAMIC_TLS_CRYPT);
    let mut pair = Setup::with(&Pki::new(), DataCipher::Aes256Gcm, protocols).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    // The server's TLS bytes under the second keys (control packets, key 1) are damaged; only TLS protects them here.
    let mut damage = |packet: &mut Vec<u8>| {
        if packet[0] == 4 << 3 | 1 && packet.len() > 600 {
            *packet.last_mut().expect("the packet has bytes") ^= 1;
        }
        Some(1_000_000)
    };
    pair.run(pair.now_ns + SECOND_NS, &mut damage);
    assert_eq!(pair.events[4..], [Event::RenegotiationFailed]);
    assert_carries(&mut pair, "with the old keys");
    pair.run(120 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(pair.events[4..], RENEWED_BY_A_SESSION);
    assert_carries(&mut pair, "with the new session's keys");
}

#[test]
fn renewal_timeout_over_tcp_ends_the_tunnel() {
    let mut setup = Setup::new(&Pki::new());
    setup.client.is_stream = true;
    let mut pair = setup.pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    pair.run(100 * SECOND_NS, &mut |_| None);
    let Some(Event::Failed(failure)) = pair.events.last() else { panic!("{:?}", pair.events) };
    assert_eq!((failure.name, pair.events.len()), ("renegotiation_timeout", 5));
}

#[test]
fn server_data_on_new_keys_accepts_them() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    pair.run(pair.now_ns + 100 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(pair.events[4..], [Event::Renegotiated], "the server is silent");
    pair.send_up(b"up", &mut |_| Some(1));
    pair.run_a_second();
    assert_eq!(pair.events[4..], [Event::Renegotiated], "data of the client accepts no keys");
    assert_carries(&mut pair, "with the new keys");
    assert_eq!(pair.events[4..], [Event::Renegotiated, Event::RenegotiationAccepted], "reported once");
    pair.server.as_mut().expect("a server").renegotiate(pair.now_ns);
    pair.run_a_second();
    pair.server.as_mut().expect("a server").send_message("PUSH_REPLY,auth-token next");
    pair.run_a_second();
    assert_eq!(
        pair.events[6..],
        [Event::Renegotiated, Event::RenegotiationAccepted],
        "options accept the keys as well"
    );
}

#[test]
fn auth_failed_after_key_exchange_refuses_the_renewal() {
    let mut setup = Setup::new(&Pki::new());
    setup.identity.user = Some(("user".to_owned(), "password".into()));
    let mut pair = setup.pair();
    pair.run_a_second();
    pair.server.as_mut().expect("a server").admit(vec![("other".to_owned(), "password".to_owned())]);
    pair.client.renegotiate(pair.now_ns);
    pair.run_a_second();
    let [Event::Renegotiated, Event::RenegotiationRefused, Event::Failed(failure)] = &pair.events[4..] else {
        panic!("{:?}", pair.events)
    };
    assert_eq!(failure.name, "auth_failed");
}

#[test]
fn auth_failed_on_accepted_keys_does_not_refuse_the_renewal() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    pair.run_a_second();
    assert_carries(&mut pair, "with the new keys");
    pair.server.as_mut().expect("a server").send_message("AUTH_FAILED");
    pair.run_a_second();
    let events = &pair.events[4..];
    assert!(matches!(events, [Event::Renegotiated, Event::RenegotiationAccepted, Event::Failed(_)]), "{events:?}");
}
