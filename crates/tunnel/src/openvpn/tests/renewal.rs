//! New keys: when they are due, and what becomes of the tunnel meanwhile. Nobody asks a client between its deadlines here.

use super::assert_carries;
use crate::openvpn::client::Event;
use crate::openvpn::pair::{Pair, Pki, Setup};

const SECOND_NS: u64 = 1_000_000_000;

fn renewed(pair: &Pair) -> usize {
    pair.events.iter().filter(|event| **event == Event::Renegotiated).count()
}

#[test]
fn keys_that_are_worn_are_renewed() {
    let mut setup = Setup::new(&Pki::new());
    setup.client.renegotiate_after.packets = Some(50);
    setup.client.renegotiate_after_ns = Some(3600 * SECOND_NS);
    let mut pair = setup.pair();
    pair.run_a_second();
    for _ in 0..6 {
        assert_carries(&mut pair, "while keys wear");
    }
    assert_eq!(renewed(&pair), 2);
    pair.run(3700 * SECOND_NS, &mut |_| Some(1_000_000));
    assert_eq!(renewed(&pair), 3);
}

#[test]
fn keys_that_have_carried_their_bytes_are_renewed_whoever_sent_them() {
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
fn what_was_sent_again_is_counted_through_every_change_of_keys() {
    let mut pair = Setup::new(&Pki::new()).pair();
    let mut is_lost = true;
    pair.run(20 * SECOND_NS, &mut |_| (!std::mem::replace(&mut is_lost, false)).then_some(1_000_000));
    assert_eq!(pair.client.retransmits(), 1);
    pair.server.as_mut().expect("a server").renegotiate(pair.now_ns);
    pair.run_a_second();
    assert_eq!((renewed(&pair), pair.client.retransmits()), (1, 1));
    // The last packet of the old keys is lost, and sent again under the new ones' reign.
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
fn a_server_that_renews_keys_before_it_gives_options_is_followed() {
    let mut setup = Setup::new(&Pki::new());
    // It pushes only when asked, a second after the keys.
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
fn keys_before_the_newest_are_forgotten_in_time() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    pair.run_a_second();
    assert_eq!(renewed(&pair), 1);
    let now_ns = pair.now_ns + 3600 * SECOND_NS;
    let spent = allocation_counter::measure(|| {
        pair.client.poll(now_ns, &mut Vec::new());
    });
    // What the library keeps of them is not counted.
    assert!(spent.bytes_current < 0, "{} bytes", spent.bytes_current);
}
