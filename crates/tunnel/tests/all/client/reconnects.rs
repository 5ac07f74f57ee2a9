//! Tests of clients that fail, lose their tunnel, renew their keys or share an address: what is counted, and when
//! they reconnect.

use std::collections::BTreeMap;

use super::simulation::DrivenClient;
use super::*;

#[test]
fn unanswered_client_fails_and_reconnects() {
    // Each attempt has its own port, so that the server sees a different client.
    let behaviour = Behaviour { responds: |number| number >= 3, ..Behaviour::default() };
    let mut simulation = Simulation::arrived(3, TestSettings { attempt_ns: 6 * SECOND, retries: 3, ..with(behaviour) });
    simulation.run(6 * SECOND);
    assert_eq!((simulation.phase(0), simulation.clients[0].client.deadline_ns()), (Phase::Resting, Some(7 * SECOND)));
    let detail = &simulation.clients[0].recorder.failures[0].1;
    assert!(detail.ends_with("ended by the attempt's time limit, 6 s"), "{detail}");
    simulation.run(8 * SECOND);
    assert_eq!(simulation.failures(), [("reset_unanswered", 3)].into());
    for driven in &simulation.clients {
        let attempt = driven.client.attempt().unwrap();
        assert_eq!((driven.client.phase(), attempt.number, attempt.occasion), (Phase::Configured, 2, Occasion::Retry));
        assert_eq!((attempt.steps.due_ns, driven.client.first_due_ns()), (7 * SECOND, Some(0)));
        assert_eq!((driven.recorder.counts.recovered, driven.recorder.times(Metric::Recovered)), (1, 1));
        assert_eq!(driven.recorder.times(Metric::Connect), 0);
    }
}

#[test]
fn retry_delays_double_up_to_five_minutes() {
    let behaviour = Behaviour { responds: |_| false, ..Behaviour::default() };
    let mut simulation = Simulation::arrived(1, TestSettings { attempt_ns: SECOND, retries: 12, ..with(behaviour) });
    let mut rests_s = Vec::new();
    while simulation.phase(0) != Phase::Failed {
        simulation.run_while(u64::MAX, |simulation| !matches!(simulation.phase(0), Phase::Resting | Phase::Failed));
        if let (Phase::Resting, Some(retry_ns)) = (simulation.phase(0), simulation.clients[0].client.deadline_ns()) {
            rests_s.push((retry_ns - simulation.now_ns) / SECOND);
            simulation.run_while(u64::MAX, |simulation| simulation.phase(0) == Phase::Resting);
        }
    }
    assert_eq!(rests_s, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    assert_eq!(simulation.clients[0].recorder.counts.attempts, 13);
}

#[test]
fn client_that_reconnects_without_an_address_is_counted_as_partial() {
    let pushes = |number| if number == 2 { unique_address(number) } else { Vec::new() };
    let behaviour = Behaviour { responds: |number| number >= 2, pushes, ..Behaviour::default() };
    let mut simulation = Simulation::arrived(2, TestSettings { attempt_ns: 6 * SECOND, retries: 3, ..with(behaviour) });
    simulation.run(20 * SECOND);
    assert_eq!(simulation.count(|counts| counts.recovered), 1);
    assert_eq!(simulation.count(|counts| counts.recovered_partial), 1);
    assert_eq!(simulation.failures(), [("reset_unanswered", 2), ("partial_no_address", 1)].into());
}

#[test]
fn a_final_failure_is_not_retried() {
    let failures = [
        ("auth_failed", Phase::Failed),
        ("halted_by_server", Phase::Failed),
        ("ping_exit", Phase::Failed),
        ("too_many_open_files", Phase::Failed),
        ("ping_restart", Phase::Resting),
        ("auth_token_refused", Phase::Resting),
    ];
    for (name, phase) in failures {
        let mut simulation = Simulation::arrived(1, TestSettings { retries: 3, ..TestSettings::default() });
        simulation.pass(0, Input::SocketFailed(SocketError::new(name, io::ErrorKind::Other.into())));
        assert_eq!(simulation.phase(0), phase, "{name}");
    }
}

#[test]
fn a_restarting_server_breaks_the_traffic_of_a_client_that_returns() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let behaviour = Behaviour { transport, message: Some((1, "RESTART")), ..Behaviour::default() };
        let mut simulation = Simulation::arrived(1, TestSettings { retries: 1, ..with(behaviour) });
        simulation.run_while(SECOND, |simulation| simulation.phase(0) != Phase::Resting);
        let recorder = &simulation.clients[0].recorder;
        assert_eq!((recorder.counts.lost, recorder.broken_traffic.as_slice()), (1, ["tunnel_broke"].as_slice()));
        assert_eq!(simulation.failures(), [("restarted_by_server", 1)].into());
        simulation.server.behaviour.message = None;
        simulation.run_while(3 * SECOND, |simulation| simulation.phase(0) != Phase::Configured);
        assert_eq!(simulation.count(|counts| counts.recovered), 1);
    }
}

#[test]
fn a_changed_address_breaks_the_traffic_and_keeps_the_tunnel() {
    let update = "PUSH_UPDATE,ifconfig 10.8.9.9 255.255.0.0";
    let mut simulation = Simulation::arrived(1, with(Behaviour { message: Some((1, update)), ..Behaviour::default() }));
    simulation.run(SECOND);
    let driven = &simulation.clients[0];
    assert_eq!((driven.client.phase(), driven.recorder.counts.updated), (Phase::Configured, 1));
    assert_eq!(driven.recorder.broken_traffic, ["address_changed"]);
    assert_eq!(driven.client.assigned().unwrap().ipv4, Some("10.8.9.9".parse().unwrap()));
}

#[test]
fn rejected_option_update_makes_a_client_reconnect() {
    let behaviour = Behaviour { message: Some((1, "PUSH_UPDATE,cipher AES-128-GCM")), ..Behaviour::default() };
    let mut simulation = Simulation::arrived(1, with(behaviour));
    simulation.run_while(10 * SECOND, |simulation| simulation.count(|counts| counts.attempts) < 3);
    assert_eq!(simulation.failures(), [("push_update_rejected", 2)].into());
    assert!(simulation.clients[0].recorder.failures[0].1.contains("cipher"));
}

#[test]
fn token_is_kept_after_its_tunnel_until_it_is_refused() {
    let pushes = |number| [unique_address(number), vec!["auth-token given".into()]].concat();
    // The first server accepts the token as a password, the second only the password itself.
    let servers: [&[(&str, &str)]; 2] = [&[("user", "password"), ("user", "given")], &[("user", "password")]];
    for (users, refused) in servers.into_iter().zip([0, 1]) {
        let behaviour = Behaviour { users, pushes, ..Behaviour::default() };
        let settings = TestSettings { user: Some(("user", "password")), retries: 1, ..with(behaviour) };
        let mut simulation = Simulation::arrived(1, settings);
        simulation.run(SECOND);
        simulation.pass(0, Input::Act { action: Action::Reconnect, due_ns: SECOND });
        simulation.run(10 * SECOND);
        let failures: BTreeMap<_, _> = (refused > 0).then_some(("auth_token_refused", refused)).into_iter().collect();
        assert_eq!((simulation.failures(), simulation.phase(0)), (failures, Phase::Configured));
        let counts = &simulation.clients[0].recorder.counts;
        assert_eq!((counts.attempts, counts.recovered), (2 + refused as u64, refused as u64));
    }
}

#[test]
fn renewed_keys_count_once_the_server_has_accepted_them() {
    let mut simulation = Simulation::arrived(1, TestSettings::default());
    simulation.run(SECOND);
    simulation.pass(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
    simulation.run(2 * SECOND);
    assert_eq!(simulation.server.happened(&PeerEvent::Renegotiated), 1);
    let DrivenClient { client, recorder } = &mut simulation.clients[0];
    assert_eq!(
        (recorder.counts.renegotiated, recorder.counts.renewals_pending),
        (0, 0),
        "the server has not used the new keys"
    );
    let until_ns = client.refusable_until_ns().unwrap();
    client.accept_silence(until_ns - 1, recorder);
    assert_eq!(recorder.counts.renegotiated, 0);
    client.accept_silence(until_ns, recorder);
    assert_eq!((recorder.counts.renegotiated, recorder.times(Metric::Renegotiate)), (1, 1));
    let (_, took_ns) = recorder.recorded.last().unwrap();
    assert_eq!(until_ns, SECOND + took_ns + 3 * SECOND);
}

#[test]
fn server_data_under_renewed_keys_accepts_them() {
    let mut simulation =
        Simulation::arrived(1, TestSettings { ping_gap_ns: Some(100 * MS), ..TestSettings::default() });
    simulation.clients[0].recorder.pings_since_ns = Some(0);
    simulation.run(SECOND);
    simulation.pass(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
    simulation.run(2 * SECOND);
    let recorder = &simulation.clients[0].recorder;
    assert_eq!((recorder.counts.renegotiated, recorder.counts.renewals_unfinished), (1, 0));
}

#[test]
fn keys_refused_after_their_exchange_do_not_count_as_renewed() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut simulation =
            Simulation::arrived(1, with(Behaviour { transport, refuses_renewed: true, ..Behaviour::default() }));
        simulation.run(SECOND);
        simulation.pass(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
        simulation.run(10 * SECOND);
        let driven = &simulation.clients[0];
        let counts = &driven.recorder.counts;
        let renewals = (counts.renegotiated, counts.renewals_failed, counts.renewals_unfinished, counts.lost);
        assert_eq!((renewals, driven.client.phase()), ((0, 1, 1, 1), Phase::Failed), "{transport:?}");
        assert_eq!(
            (simulation.failures(), driven.recorder.times(Metric::Renegotiate)),
            ([("auth_failed", 1)].into(), 0)
        );
    }
}

#[test]
fn renewal_interrupted_by_the_tunnels_end_is_unfinished() {
    let mut simulation = Simulation::arrived(1, TestSettings::default());
    simulation.run(SECOND);
    simulation.pass(0, Input::Act { action: Action::Renegotiate, due_ns: SECOND });
    simulation.pass(0, Input::Act { action: Action::Reconnect, due_ns: SECOND });
    let counts = &simulation.clients[0].recorder.counts;
    assert_eq!((counts.renewals_unfinished, counts.renewals_pending, counts.renegotiated), (1, 0, 0));
}

#[test]
fn contested_client_is_configured_when_its_address_is_released() {
    // Over TCP, where an error of the socket ends a tunnel.
    let behaviour = Behaviour { transport: Transport::Tcp, pushes: |_| unique_address(0), ..Behaviour::default() };
    let mut simulation = Simulation::new(2, with(behaviour));
    simulation.pass(0, Input::Arrive { due_ns: 0 });
    simulation.run(SECOND);
    simulation.pass(1, Input::Arrive { due_ns: SECOND });
    simulation.run(2 * SECOND);
    let driven = &simulation.clients[1];
    assert_eq!((driven.client.phase(), driven.recorder.failures.len()), (Phase::Contested, 0));
    assert_eq!(driven.client.cause(), Some("partial_address_not_unique"));
    assert!(driven.recorder.arrival_ended_ns.is_some());
    simulation.pass(0, Input::SocketFailed(SocketError::new("timeout", io::ErrorKind::TimedOut.into())));
    simulation.pass(1, Input::ClaimFreed);
    let client = &simulation.clients[1].client;
    assert_eq!((client.phase(), client.cause()), (Phase::Configured, None), "the reply came earlier");
}

#[test]
fn undecided_contest_leaves_the_later_client_partial() {
    let mut simulation =
        Simulation::arrived(3, with(Behaviour { pushes: |_| unique_address(0), ..Behaviour::default() }));
    simulation.run(SECOND);
    assert_eq!(
        [0, 1, 2].map(|client| simulation.phase(client)),
        [Phase::Configured, Phase::Contested, Phase::Contested]
    );
    (0..3).for_each(|client| simulation.pass(client, Input::Leave));
    assert_eq!([1, 2].map(|client| simulation.phase(client)), [Phase::Partial; 2]);
    assert_eq!(simulation.failures(), [("partial_address_not_unique", 2)].into());
}

#[test]
fn every_attempt_is_logged_with_its_cause() {
    let behaviour = Behaviour { responds: |number| number >= 1, ..Behaviour::default() };
    let mut simulation = Simulation::arrived(1, TestSettings { attempt_ns: 3 * SECOND, retries: 1, ..with(behaviour) });
    simulation.run(5 * SECOND);
    simulation.pass(0, Input::Act { action: Action::Reconnect, due_ns: 5 * SECOND });
    simulation.run(6 * SECOND);
    let client = &simulation.clients[0].client;
    let attempts: Vec<_> = client.earlier_attempts().chain(client.attempt()).collect();
    let logged: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt.number, attempt.occasion, attempt.cause, attempt.steps.configured_ns.is_some()))
        .collect();
    let expected = [
        (1, Occasion::Arrival, Some("reset_unanswered"), false),
        (2, Occasion::Retry, None, true),
        (3, Occasion::Reconnect, None, true),
    ];
    assert_eq!(logged, expected);
    assert_eq!(
        attempts.iter().map(|attempt| attempt.ended_ns).collect::<Vec<_>>(),
        [Some(3 * SECOND), Some(5 * SECOND), None]
    );
    let assigned: Vec<_> = attempts.iter().map(|attempt| attempt.assigned.is_some()).collect();
    assert_eq!(assigned, [false, true, true]);
}
