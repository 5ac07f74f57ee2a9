//! Tests of hostile servers: whatever they send, it uses bounded memory, even temporarily.

use super::assert_carries;
use leadline_testkit::openvpn::{Pki, Setup};
use leadline_tunnel::openvpn::client::Event;

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn endless_server_messages_use_bounded_memory() {
    let pki = Pki::new();
    let mut pair = Setup::new(&pki).pair();
    pair.run_a_second();
    let spent = allocation_counter::measure(|| {
        for round in 0..200 {
            let peer = pair.server.as_mut().expect("a server");
            // Messages without meaning, and a push that never ends.
            peer.send_message(&format!("INFO,{}", "x".repeat(8000)));
            peer.send_message(&format!("PUSH_REPLY,{},push-continuation 2", "route 10.0.0.0 255.0.0.0,".repeat(300)));
            pair.run((round + 2) * SECOND_NS, &mut |_| Some(1_000));
        }
    });
    assert!(spent.bytes_current < 256 * 1024, "{} bytes", spent.bytes_current);
    assert!(spent.bytes_max < 512 * 1024, "{} bytes at most", spent.bytes_max);
    assert_carries(&mut pair, "after the hostile messages");
}

#[test]
fn endless_push_is_refused() {
    let mut pair = Setup::new(&Pki::new()).pair();
    // Before its options: the server holds them back.
    pair.run(1_500_000, &mut |_| Some(1_000_000));
    pair.server.as_mut().expect("a server").hold();
    pair.run(SECOND_NS / 2, &mut |_| Some(1_000_000));
    assert_eq!(pair.events.last(), Some(&Event::KeysDone));
    let mut pushed_bytes = 0;
    let spent = allocation_counter::measure(|| {
        for number in 0..1000 {
            let route = |last: u32| format!("route 10.{}.{}.{last} 255.255.255.255", number / 250, number % 250);
            let bundle = (0..30).map(route).collect::<Vec<_>>().join(",");
            let bundle = format!("PUSH_REPLY,{bundle},push-continuation 2");
            pushed_bytes += bundle.len();
            pair.server.as_mut().expect("a server").send_message(&bundle);
            pair.run(pair.now_ns + 20_000_000, &mut |_| Some(1_000));
            if matches!(pair.events.last(), Some(Event::Failed(_))) {
                return;
            }
        }
    });
    let Some(Event::Failed(failure)) = pair.events.last() else {
        panic!("{:?} after {pushed_bytes} bytes", pair.events)
    };
    assert_eq!(failure.name, "malformed_push", "{failure:?} after {pushed_bytes} bytes");
    // The stored texts and routes of a push, while both grow.
    assert!(spent.bytes_max < 2 * 1024 * 1024, "{} bytes at most", spent.bytes_max);
}

#[test]
fn messages_on_old_keys_use_bounded_memory() {
    let mut pair = Setup::new(&Pki::new()).pair();
    pair.run_a_second();
    pair.client.renegotiate(pair.now_ns);
    let spent = allocation_counter::measure(|| {
        for _ in 0..200 {
            pair.server.as_mut().expect("a server").send_message(&"x".repeat(8000));
            // The client gets no new keys: resets of key states (3) are dropped.
            pair.run(pair.now_ns + 20_000_000, &mut |packet| (packet[0] >> 3 != 3).then_some(1_000));
        }
    });
    assert!(spent.bytes_max < 256 * 1024, "{} bytes at most", spent.bytes_max);
    // Now the resets arrive.
    pair.run(pair.now_ns + 20 * SECOND_NS, &mut |_| Some(1_000));
    assert_eq!(pair.events.last(), Some(&Event::Renegotiated));
    assert_carries(&mut pair, "with the new keys");
}

#[test]
fn flood_of_resets_is_ignored() {
    let pki = Pki::new();
    let mut pair = Setup::new(&pki).pair();
    let mut first = Vec::new();
    pair.run(SECOND_NS, &mut |packet| {
        // The server's reset: 8 in the upper bits.
        if packet[0] >> 3 == 8 {
            first.clone_from(packet);
        }
        Some(1_000)
    });
    let spent = allocation_counter::measure(|| {
        for number in 0..10_000u32 {
            let mut packet = first.clone();
            packet[1..5].copy_from_slice(&number.to_be_bytes());
            pair.client.handle(pair.now_ns, &mut packet);
            pair.client.handle(pair.now_ns, &mut first.clone());
        }
    });
    assert!(spent.bytes_max < 16 * 1024, "{} bytes at most", spent.bytes_max);
    assert_carries(&mut pair, "after the flood");
}
