//! Tests of clients that fail, lose their tunnel, renew their keys or share an address: what is counted, and when
//! they reconnect.

use std::collections::BTreeMap;

use super::*;
use crate::client::tests::world::Driven;

#[test]
fn an_unanswered_client_fails_by_name_and_comes_back() {
    // Each attempt has its own port, so that the server sees a different client.
    let behaviour = Behaviour { answers: |number| number >= 3, ..Behaviour::default() };
    let mut world = World::arrived(3, Wanted { attempt_ns: 6 * SECOND, retries: 3, ..with(behaviour) });
    world.run(6 * SECOND);
    assert_eq!((world.phase(0), world.clients[0].client.deadline_ns()), (Phase::Resting, Some(7 * SECOND)));
    let said = &world.clients[0].sink.failures[0].1;
    assert!(said.ends_with("ended by the attempt's time limit, 6 s"), "{said}");
    world.run(8 * SECOND);
    assert_eq!(world.failures(), [("reset_unanswered", 3)].into());
    for driven in &world.clients {
        let attempt = driven.client.attempt().unwrap();
        assert_eq!((driven.client.phase(), attempt.number, attempt.occasion), (Phase::Configured, 2, Occasion::Retry));
        assert_eq!((attempt.steps.due_ns, driven.client.first_due_ns()), (7 * SECOND, Some(0)));
        assert_eq!((driven.sink.counts.recovered, driven.sink.times(Metric::Recovered)), (1, 1));
        assert_eq!(driven.sink.times(Metric::Connect), 0);
    }
}

#[test]
fn rests_double_up_to_five_minutes() {
    let behaviour = Behaviour { answers: |_| false, ..Behaviour::default() };
    let mut world = World::arrived(1, Wanted { attempt_ns: SECOND, retries: 12, ..with(behaviour) });
    let mut rests_s = Vec::new();
    while world.phase(0) != Phase::Failed {
        world.run_while(u64::MAX, |world| !matches!(world.phase(0), Phase::Resting | Phase::Failed));
        if let (Phase::Resting, Some(retry_ns)) = (world.phase(0), world.clients[0].client.deadline_ns()) {
            rests_s.push((retry_ns - world.now_ns) / SECOND);
            world.run_while(u64::MAX, |world| world.phase(0) == Phase::Resting);
        }
    }
    assert_eq!(rests_s, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    assert_eq!(world.clients[0].sink.counts.attempts, 13);
}

#[test]
fn a_returned_client_without_an_address_is_counted_apart() {
    let gives = |number| if number == 2 { an_address_each(number) } else { Vec::new() };
    let behaviour = Behaviour { answers: |number| number >= 2, gives, ..Behaviour::default() };
    let mut world = World::arrived(2, Wanted { attempt_ns: 6 * SECOND, retries: 3, ..with(behaviour) });
    world.run(20 * SECOND);
    assert_eq!(world.count(|counts| counts.recovered), 1);
    assert_eq!(world.count(|counts| counts.recovered_partial), 1);
    assert_eq!(world.failures(), [("reset_unanswered", 2), ("partial_no_address", 1)].into());
}

#[test]
fn a_final_failure_is_not_retried() {
    let fates = [
        ("auth_failed", Phase::Failed),
        ("halted_by_server", Phase::Failed),
        ("ping_exit", Phase::Failed),
        ("too_many_open_files", Phase::Failed),
        ("ping_restart", Phase::Resting),
        ("auth_token_refused", Phase::Resting),
    ];
    for (name, phase) in fates {
        let mut world = World::arrived(1, Wanted { retries: 3, ..Wanted::default() });
        let Driven { client, sink } = &mut world.clients[0];
        client.fail(0, name, "", sink);
        assert_eq!(client.phase(), phase, "{name}");
    }
}

#[test]
fn a_restarting_server_breaks_the_traffic_of_a_client_that_returns() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let behaviour = Behaviour { transport, says: Some((1, "RESTART")), ..Behaviour::default() };
        let mut world = World::arrived(1, Wanted { retries: 1, ..with(behaviour) });
        world.run_while(SECOND, |world| world.phase(0) != Phase::Resting);
        let sink = &world.clients[0].sink;
        assert_eq!((sink.counts.lost, sink.broken_traffic.as_slice()), (1, ["tunnel_broke"].as_slice()));
        assert_eq!(world.failures(), [("restarted_by_server", 1)].into());
        world.server.behaviour.says = None;
        world.run_while(3 * SECOND, |world| world.phase(0) != Phase::Configured);
        assert_eq!(world.count(|counts| counts.recovered), 1);
    }
}

#[test]
fn a_changed_address_breaks_the_traffic_and_keeps_the_tunnel() {
    let update = "PUSH_UPDATE,ifconfig 10.8.9.9 255.255.0.0";
    let mut world = World::arrived(1, with(Behaviour { says: Some((1, update)), ..Behaviour::default() }));
    world.run(SECOND);
    let driven = &world.clients[0];
    assert_eq!((driven.client.phase(), driven.sink.counts.updated), (Phase::Configured, 1));
    assert_eq!(driven.sink.broken_traffic, ["address_changed"]);
    assert_eq!(driven.client.assigned().unwrap().ipv4, Some("10.8.9.9".parse().unwrap()));
}

#[test]
fn a_change_that_cannot_be_applied_makes_a_client_connect_again() {
    let behaviour = Behaviour { says: Some((1, "PUSH_UPDATE,cipher AES-128-GCM")), ..Behaviour::default() };
    let mut world = World::arrived(1, with(behaviour));
    world.run_while(10 * SECOND, |world| world.count(|counts| counts.attempts) < 3);
    assert_eq!(world.failures(), [("push_update_rejected", 2)].into());
    assert!(world.clients[0].sink.failures[0].1.contains("cipher"));
}

#[test]
fn a_token_outlives_its_tunnel_until_it_is_refused() {
    let gives = |number| [an_address_each(number), vec!["auth-token given".into()]].concat();
    // The first server accepts the token as a password, the second only the password itself.
    let servers: [&[(&str, &str)]; 2] = [&[("user", "password"), ("user", "given")], &[("user", "password")]];
    for (users, refused) in servers.into_iter().zip([0, 1]) {
        let behaviour = Behaviour { users, gives, ..Behaviour::default() };
        let wanted = Wanted { user: Some(("user", "password")), retries: 1, ..with(behaviour) };
        let mut world = World::arrived(1, wanted);
        world.run(SECOND);
        world.hand(0, Input::Act { action: Action::Reconnect, due_ns: SECOND });
        world.run(10 * SECOND);
        let failures: BTreeMap<_, _> = (refused > 0).then_some(("auth_token_refused", refused)).into_iter().collect();
        assert_eq!((world.failures(), world.phase(0)), (failures, Phase::Configured));
        let counts = &world.clients[0].sink.counts;
        assert_eq!((counts.attempts, counts.recovered), (2 + refused as u64, refused as u64));
    }
}

#[test]
fn renewed_keys_count_once_the_server_has_accepted_them() {
    let mut world = World::arrived(1, Wanted::default());
    world.run(SECOND);
    world.hand(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
    world.run(2 * SECOND);
    assert_eq!(world.server.happened(&PeerEvent::Renegotiated), 1);
    let Driven { client, sink } = &mut world.clients[0];
    assert_eq!(
        (sink.counts.renegotiated, sink.counts.renewals_pending),
        (0, 0),
        "the server has not used the new keys"
    );
    let until_ns = client.refusable_until_ns().unwrap();
    client.accept_silence(until_ns - 1, sink);
    assert_eq!(sink.counts.renegotiated, 0);
    client.accept_silence(until_ns, sink);
    assert_eq!((sink.counts.renegotiated, sink.times(Metric::Renegotiate)), (1, 1));
    let (_, took_ns) = sink.recorded.last().unwrap();
    assert_eq!(until_ns, SECOND + took_ns + 3 * SECOND);
}

#[test]
fn data_under_renewed_keys_accepts_them() {
    let mut world = World::arrived(1, Wanted { ping_gap_ns: Some(100 * MS), ..Wanted::default() });
    world.clients[0].sink.pings_since_ns = Some(0);
    world.run(SECOND);
    world.hand(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
    world.run(2 * SECOND);
    let sink = &world.clients[0].sink;
    assert_eq!((sink.counts.renegotiated, sink.counts.renewals_unfinished), (1, 0));
}

#[test]
fn keys_that_are_refused_after_their_exchange_were_not_renewed() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut world = World::arrived(1, with(Behaviour { transport, refuses_renewed: true, ..Behaviour::default() }));
        world.run(SECOND);
        world.hand(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
        world.run(10 * SECOND);
        let driven = &world.clients[0];
        let counts = &driven.sink.counts;
        let renewals = (counts.renegotiated, counts.renewals_failed, counts.renewals_unfinished, counts.lost);
        assert_eq!((renewals, driven.client.phase()), ((0, 1, 1, 1), Phase::Failed), "{transport:?}");
        assert_eq!((world.failures(), driven.sink.times(Metric::Renegotiate)), ([("auth_failed", 1)].into(), 0));
    }
}

#[test]
fn a_renewal_that_the_tunnels_end_cuts_off_is_unfinished() {
    let mut world = World::arrived(1, Wanted::default());
    world.run(SECOND);
    world.hand(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
    world.hand(0, Input::Act { action: Action::Reconnect, due_ns: SECOND });
    let counts = &world.clients[0].sink.counts;
    assert_eq!((counts.renewals_unfinished, counts.renewals_pending, counts.renegotiated), (1, 0, 0));
}

#[test]
fn a_contested_client_is_configured_once_it_holds_its_address_alone() {
    let mut world = World::new(2, with(Behaviour { gives: |_| an_address_each(0), ..Behaviour::default() }));
    world.hand(0, Input::Arrive { due_ns: 0 });
    world.run(SECOND);
    world.hand(1, Input::Arrive { due_ns: SECOND });
    world.run(2 * SECOND);
    let driven = &world.clients[1];
    assert_eq!((driven.client.phase(), driven.sink.failures.len()), (Phase::Contested, 0));
    assert_eq!(driven.client.cause(), Some("partial_address_not_unique"));
    assert!(driven.sink.arrival_ended_ns.is_some());
    let Driven { client, sink } = &mut world.clients[0];
    client.fail(2 * SECOND, "ping_restart", "", sink);
    world.hand(1, Input::ClaimFreed);
    let client = &world.clients[1].client;
    assert_eq!((client.phase(), client.cause()), (Phase::Configured, None), "the reply came earlier");
}

#[test]
fn a_contest_that_is_not_decided_leaves_the_later_client_partial() {
    let mut world = World::arrived(3, with(Behaviour { gives: |_| an_address_each(0), ..Behaviour::default() }));
    world.run(SECOND);
    assert_eq!([0, 1, 2].map(|client| world.phase(client)), [Phase::Configured, Phase::Contested, Phase::Contested]);
    (0..3).for_each(|client| world.hand(client, Input::Leave));
    assert_eq!([1, 2].map(|client| world.phase(client)), [Phase::Partial; 2]);
    assert_eq!(world.failures(), [("partial_address_not_unique", 2)].into());
}

#[test]
fn every_attempt_is_kept_with_its_cause() {
    let behaviour = Behaviour { answers: |number| number >= 1, ..Behaviour::default() };
    let mut world = World::arrived(1, Wanted { attempt_ns: 3 * SECOND, retries: 1, ..with(behaviour) });
    world.run(5 * SECOND);
    world.hand(0, Input::Act { action: Action::Reconnect, due_ns: 5 * SECOND });
    world.run(6 * SECOND);
    let client = &world.clients[0].client;
    let attempts: Vec<_> = client.earlier_attempts().chain(client.attempt()).collect();
    let told: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt.number, attempt.occasion, attempt.cause, attempt.steps.configured_ns.is_some()))
        .collect();
    let expected = [
        (1, Occasion::Arrival, Some("reset_unanswered"), false),
        (2, Occasion::Retry, None, true),
        (3, Occasion::Reconnect, None, true),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        attempts.iter().map(|attempt| attempt.ended_ns).collect::<Vec<_>>(),
        [Some(3 * SECOND), Some(5 * SECOND), None]
    );
    let assigned: Vec<_> = attempts.iter().map(|attempt| attempt.assigned.is_some()).collect();
    assert_eq!(assigned, [false, true, true]);
}
