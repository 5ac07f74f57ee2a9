//! Tests of clients in virtual time, against our own server machine: counts, causes and times, exact to the
//! nanosecond unless randomness is involved.

mod data_path;
mod reconnects;
mod scripted;
mod simulation;
mod wireguard;

use std::io;

use self::simulation::{unique_address, Behaviour, Simulation, TestSettings, MS, SECOND};
use leadline_tunnel::client::effects::{Close, Metric, SocketError};
use leadline_tunnel::client::expectation::Expectation;
use leadline_tunnel::client::phase::{Occasion, Phase};
use leadline_tunnel::client::{Action, Input, Progress};

use leadline_tunnel::client::server::Transport;
use leadline_tunnel::openvpn::server::{Peer, PeerEvent};

fn with(behaviour: Behaviour) -> TestSettings {
    TestSettings { behaviour, ..TestSettings::default() }
}

#[test]
fn client_is_verified_configured_and_sends_an_exit_notification() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut simulation = Simulation::arrived(3, with(Behaviour { transport, ..Behaviour::default() }));
        simulation.run(SECOND);
        assert!(simulation.failures().is_empty(), "{:?}", simulation.failures());
        for driven in &simulation.clients {
            let client = &driven.client;
            let steps = client.attempt().unwrap().steps;
            let done =
                [steps.sent_ns, steps.answered_ns, steps.tls_ns, steps.keys_ns, steps.pushed_ns, steps.configured_ns];
            assert!(done.is_sorted() && done.iter().all(Option::is_some), "{steps:?}");
            assert_eq!((client.phase(), driven.recorder.arrival_ended_ns), (Phase::Configured, steps.configured_ns));
            let each = [Metric::Connect, Metric::Answer, Metric::Tls, Metric::Keys, Metric::Push, Metric::FirstData];
            assert_eq!(each.map(|metric| driven.recorder.times(metric)), [1; 6]);
            assert_eq!((driven.recorder.times(Metric::Late), driven.recorder.counts.resets_sent), (1, 1));
        }
        (0..3).for_each(|client| simulation.pass(client, Input::Leave));
        simulation.run(2 * SECOND);
        assert_eq!(simulation.server.happened(&PeerEvent::Left), 3);
        assert!(
            simulation.clients.iter().all(|driven| !driven.client.is_session_waiting()),
            "the exit notification is acknowledged"
        );
    }
}

#[test]
fn tcp_client_connects_before_its_first_reset() {
    let mut simulation = Simulation::arrived(1, with(Behaviour { transport: Transport::Tcp, ..Behaviour::default() }));
    assert_eq!(simulation.phase(0), Phase::Connecting);
    simulation.run(MS);
    assert_eq!(simulation.phase(0), Phase::Asking);
    simulation.run(SECOND);
    let expected = [Phase::Connecting, Phase::Asking, Phase::Negotiating, Phase::Proving, Phase::Configured];
    assert_eq!(simulation.clients[0].recorder.phases, expected);
}

#[test]
fn unanswered_tcp_handshake_ends_at_the_attempts_time_limit() {
    let behaviour = Behaviour { transport: Transport::Tcp, accepts: false, ..Behaviour::default() };
    let mut simulation = Simulation::arrived(1, TestSettings { attempt_ns: 5 * SECOND, ..with(behaviour) });
    simulation.run(5 * SECOND - 1);
    assert_eq!(simulation.phase(0), Phase::Connecting);
    simulation.run(5 * SECOND);
    assert_eq!((simulation.phase(0), simulation.failures()), (Phase::Failed, [("connect_timeout", 1)].into()));
}

#[test]
fn connection_closed_before_any_response_fails_unanswered() {
    let behaviour = Behaviour { transport: Transport::Tcp, responds: |number| number < 2, ..Behaviour::default() };
    let mut simulation = Simulation::arrived(4, with(behaviour));
    simulation.run(SECOND);
    assert_eq!(simulation.failures(), [("closed_unanswered", 2)].into());
    let phases = [0, 1, 2, 3].map(|client| simulation.phase(client));
    assert_eq!(phases, [Phase::Configured, Phase::Configured, Phase::Failed, Phase::Failed]);
}

#[test]
fn failed_connection_has_the_systems_error_code() {
    let mut simulation = Simulation::arrived(1, with(Behaviour { transport: Transport::Tcp, ..Behaviour::default() }));
    let refused = SocketError::new("connection_refused", io::ErrorKind::ConnectionRefused.into());
    simulation.pass(0, Input::ConnectFailed(refused));
    assert_eq!((simulation.phase(0), simulation.failures()), (Phase::Failed, [("connection_refused", 1)].into()));
    assert_eq!(simulation.clients[0].recorder.closed, [Close::Orderly]);
}

#[test]
fn exhausted_pool_leaves_a_client_partial() {
    let pushes = |number| if number < 2 { unique_address(number) } else { Vec::new() };
    let mut simulation = Simulation::arrived(3, with(Behaviour { pushes, ..Behaviour::default() }));
    simulation.run(SECOND);
    assert_eq!((simulation.phase(2), simulation.failures()), (Phase::Partial, [("partial_no_address", 1)].into()));
    assert!(simulation.clients[2].recorder.failures[0].1.contains("ifconfig-pool"));
    assert_eq!(simulation.clients[2].client.cause(), Some("partial_no_address"));
}

#[test]
fn a_missing_option_is_named() {
    let missing = |expectation| {
        let behaviour = Behaviour { echoes: false, ..Behaviour::default() };
        let mut simulation =
            Simulation::arrived(1, TestSettings { expectation, first_data_ns: 300 * MS, ..with(behaviour) });
        simulation.run(SECOND);
        simulation.failures().into_keys().collect::<Vec<_>>()
    };
    let routes = vec!["10.1.0.0/16".parse().unwrap()];
    assert_eq!(missing(Expectation { routes, ..Expectation::default() }), ["partial_route_missing"]);
    let dns = vec!["10.8.0.1".parse().unwrap()];
    assert_eq!(missing(Expectation { dns, ..Expectation::default() }), ["partial_dns_missing"]);
    assert_eq!(missing(Expectation::default()), ["partial_no_data"]);
}

#[test]
fn a_late_first_reply_configures_a_partial_client() {
    // The first request is lost; the second is sent after 500 ms.
    let settings =
        TestSettings { first_data_ns: 50 * MS, ..with(Behaviour { lost_echoes: 1, ..Behaviour::default() }) };
    let mut simulation = Simulation::arrived(1, settings);
    simulation.run(400 * MS);
    assert_eq!((simulation.phase(0), simulation.failures()), (Phase::Overdue, [("partial_no_data", 1)].into()));
    assert_eq!(simulation.clients[0].client.cause(), Some("partial_no_data"));
    simulation.run(SECOND);
    let driven = &simulation.clients[0];
    assert_eq!(
        (driven.client.phase(), driven.client.cause(), driven.recorder.counts.recovered),
        (Phase::Configured, None, 0)
    );
    let steps = driven.client.attempt().unwrap().steps;
    assert_eq!(steps.configured_ns.unwrap() - steps.pushed_ns.unwrap(), 502 * MS);
}

#[test]
fn overdue_client_stays_partial_after_the_attempts_time_limit() {
    let behaviour = Behaviour { echoes: false, ..Behaviour::default() };
    let settings = TestSettings { attempt_ns: 3 * SECOND, first_data_ns: SECOND, ..with(behaviour) };
    let mut simulation = Simulation::arrived(1, settings);
    simulation.run(3 * SECOND - 1);
    assert_eq!(simulation.phase(0), Phase::Overdue);
    simulation.run(3 * SECOND);
    assert_eq!((simulation.phase(0), simulation.failures()), (Phase::Partial, [("partial_no_data", 1)].into()));
}

#[test]
fn first_reply_has_its_own_time_limit_after_a_short_attempt() {
    // Requests are sent after 0, 0.5 and 1.5 s; the first two are lost.
    let settings = TestSettings { attempt_ns: SECOND, ..with(Behaviour { lost_echoes: 2, ..Behaviour::default() }) };
    let mut simulation = Simulation::arrived(1, settings);
    simulation.run(5 * SECOND);
    assert_eq!((simulation.phase(0), simulation.failures().len()), (Phase::Configured, 0));
    let steps = simulation.clients[0].client.attempt().unwrap().steps;
    assert_eq!(steps.configured_ns.unwrap() - steps.pushed_ns.unwrap(), 1502 * MS);
}

#[test]
fn silence_within_the_hand_window_is_explained() {
    let behaviour = Behaviour { responds: |_| false, ..Behaviour::default() };
    let mut simulation = Simulation::arrived(1, TestSettings { hand_window_ns: SECOND, ..with(behaviour) });
    simulation.run(2 * SECOND);
    let (name, detail) = &simulation.clients[0].recorder.failures[0];
    assert_eq!((*name, simulation.phase(0)), ("reset_unanswered", Phase::Failed));
    assert!(detail.starts_with("no answer to any reset") && detail.ends_with("hand-window, 1 s"), "{detail}");
}

#[test]
fn client_that_is_connecting_when_the_fleet_leaves_is_unfinished() {
    let mut simulation = Simulation::arrived(1, with(Behaviour { responds: |_| false, ..Behaviour::default() }));
    // The first reset is repeated after 2 s and 4 s more.
    simulation.run(7 * SECOND);
    simulation.pass(0, Input::Leave);
    let driven = &simulation.clients[0];
    assert_eq!(simulation.failures(), [("unfinished", 1)].into());
    assert_eq!(
        (driven.recorder.counts.resets_sent, driven.recorder.counts.retransmits, driven.client.retransmits()),
        (3, 2, 2)
    );
    assert_eq!((driven.client.deadline_ns(), driven.recorder.connection), (None, None));
}

#[test]
fn a_reset_that_the_socket_refuses_has_no_time() {
    let mut simulation = Simulation::new(2, TestSettings::default());
    let refused = SocketError::new("network_unreachable", io::ErrorKind::NetworkUnreachable.into());
    simulation.clients[0].recorder.control_error = Some(refused);
    (0..2).for_each(|client| simulation.pass(client, Input::Arrive { due_ns: 0 }));
    let sent_ns = [0, 1].map(|client: usize| simulation.clients[client].client.attempt().unwrap().steps.sent_ns);
    assert_eq!(sent_ns, [None, Some(0)]);
    assert_eq!(simulation.failures(), [("network_unreachable", 1)].into());
}

#[test]
fn auth_pending_extends_the_attempts_time_limit() {
    let settings = TestSettings { hand_window_ns: 1000 * SECOND, ..TestSettings::default() };
    let mut simulation = Simulation::arrived(1, settings);
    let steps = |simulation: &Simulation| simulation.clients[0].client.attempt().unwrap().steps;
    simulation.run_while(SECOND, |simulation| steps(simulation).answered_ns.is_none());
    simulation.server.with(0, Peer::hold);
    simulation.run_while(SECOND, |simulation| steps(simulation).keys_ns.is_none());
    simulation.server.with(0, |peer| peer.send_message("AUTH_PENDING,timeout 1000"));
    simulation.run(999 * SECOND);
    assert_eq!(simulation.count(|counts| counts.auth_pending), 1);
    assert!(simulation.failures().is_empty() && simulation.phase(0) == Phase::Negotiating);
    simulation.run(1001 * SECOND);
    let detail = &simulation.clients[0].recorder.failures[0].1;
    assert!(
        detail.ends_with("the attempt's time limit, 30 s, which the server's AUTH_PENDING extended to 1000.0 s"),
        "{detail}"
    );
}

#[test]
fn late_datagram_error_is_counted_and_does_not_end_the_tunnel() {
    let mut simulation = Simulation::arrived(1, TestSettings::default());
    simulation.run(SECOND);
    for (code, kind) in [("connection_refused", io::ErrorKind::ConnectionRefused), ("timeout", io::ErrorKind::TimedOut)]
    {
        simulation.pass(0, Input::SocketFailed(SocketError::new(code, kind.into())));
    }
    let counts = &simulation.clients[0].recorder.counts;
    assert_eq!((simulation.phase(0), counts.refused, counts.socket_errors), (Phase::Configured, 1, 1));
}

#[test]
fn duplicate_packets_are_counted() {
    let mut simulation = Simulation::arrived(2, with(Behaviour { duplicates_replies: true, ..Behaviour::default() }));
    simulation.run(SECOND);
    assert_eq!((simulation.count(|counts| counts.replayed), simulation.phase(0)), (2, Phase::Configured));
}

#[test]
fn settled_clients_ping_spread_over_one_gap() {
    let mut simulation =
        Simulation::arrived(4, TestSettings { ping_gap_ns: Some(100 * MS), ..TestSettings::default() });
    simulation.run(SECOND);
    for client in 0..4 {
        simulation.clients[client].recorder.pings_since_ns = Some(2 * SECOND);
        simulation.pass(client, Input::StartPings);
    }
    let due_ns = [0, 1, 2, 3].map(|client: usize| simulation.clients[client].client.deadline_ns());
    assert_eq!(due_ns, [2000, 2025, 2050, 2075].map(|ms| Some(ms * MS)));
    simulation.run(3 * SECOND - 1);
    assert_eq!(simulation.count(|counts| counts.pings.sent), 40);
    assert_eq!(simulation.count(|counts| counts.pings.answered), 40);
    (0..4).for_each(|client| simulation.pass(client, Input::StopPings));
    simulation.run(4 * SECOND);
    assert_eq!(simulation.count(|counts| counts.pings.sent), 40);
    let driven = &simulation.clients[0];
    assert_eq!((driven.client.pings(), driven.recorder.times(Metric::PingDuring)), ((10, 10), 10));
    assert!(
        driven.recorder.recorded.contains(&(Metric::PingDuring, 2 * MS)),
        "the delay of the links in both directions"
    );
}

#[test]
fn pings_missed_by_a_late_thread_count_as_not_sent() {
    let mut simulation =
        Simulation::arrived(1, TestSettings { ping_gap_ns: Some(100 * MS), ..TestSettings::default() });
    simulation.run(SECOND);
    simulation.clients[0].recorder.pings_since_ns = Some(SECOND);
    simulation.pass(0, Input::StartPings);
    simulation.now_ns = SECOND + 350 * MS;
    simulation.pass(0, Input::TimerDue);
    let pings = simulation.clients[0].recorder.counts.pings;
    assert_eq!((pings.sent, pings.unsent, simulation.clients[0].client.deadline_ns()), (1, 3, Some(SECOND + 400 * MS)));
}

#[test]
fn withdrawn_address_stops_no_timer() {
    let behaviour = Behaviour { message: Some((1, "PUSH_UPDATE,-ifconfig")), ..Behaviour::default() };
    let mut simulation = Simulation::arrived(1, TestSettings { ping_gap_ns: Some(100 * MS), ..with(behaviour) });
    simulation.run(SECOND);
    simulation.clients[0].recorder.pings_since_ns = Some(SECOND);
    simulation.pass(0, Input::StartPings);
    simulation.run(2 * SECOND - 1);
    let driven = &simulation.clients[0];
    assert_eq!((driven.client.phase(), driven.client.assigned().unwrap().ipv4), (Phase::Configured, None));
    assert_eq!((driven.recorder.counts.pings.sent, driven.recorder.counts.pings.unsent), (0, 10));
    assert_eq!(driven.client.deadline_ns(), Some(2 * SECOND));
}

#[test]
fn packets_refused_by_the_socket_are_not_counted_as_sent() {
    let mut simulation = Simulation::arrived(1, TestSettings::default());
    simulation.run(SECOND);
    let simulation::DrivenClient { client, recorder } = &mut simulation.clients[0];
    let sent = client.packets_sent();
    assert!(client.send(SECOND, &[0x45; 40], recorder));
    recorder.flush_error = Some(SocketError::new("message_too_long", io::Error::from_raw_os_error(90)));
    client.flush(SECOND, recorder);
    assert_eq!((client.packets_sent(), recorder.counts.socket_errors), (sent, 1));
}

#[test]
fn traffic_packet_is_delivered_and_ping_is_answered() {
    let mut simulation = Simulation::arrived(1, TestSettings::default());
    simulation.run(SECOND);
    let datagram = [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17][..], &[0; 18]].concat();
    let sealed = |simulation: &mut Simulation, payload: &[u8]| {
        let mut out = Vec::new();
        simulation.server.with(0, |peer| peer.send(payload, &mut out).unwrap());
        out
    };
    let mut packet = sealed(&mut simulation, &datagram);
    let simulation::DrivenClient { client, recorder } = &mut simulation.clients[0];
    client.receive(SECOND, SECOND, &mut packet, recorder);
    assert_eq!((recorder.delivered.as_slice(), client.packets_received()), ([datagram].as_slice(), 2));
    assert_eq!(client.handle(SECOND, Input::BatchReceived, recorder), Progress::Wait);
}

#[test]
fn reconnect_uses_a_new_socket_without_an_exit_notification() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut simulation = Simulation::arrived(1, with(Behaviour { transport, ..Behaviour::default() }));
        simulation.run(SECOND);
        let before = simulation.clients[0].client.local();
        simulation.pass(0, Input::Act { action: Action::Reconnect, due_ns: SECOND - 5 });
        simulation.run(2 * SECOND);
        let driven = &simulation.clients[0];
        assert_eq!(
            (driven.client.phase(), driven.recorder.closed.as_slice()),
            (Phase::Configured, [Close::Silent].as_slice())
        );
        assert_ne!(driven.client.local(), before);
        let counts = &driven.recorder.counts;
        assert_eq!((counts.attempts, counts.reconnects_begun, counts.lost, counts.recovered), (2, 1, 0, 0));
        assert_eq!((driven.recorder.times(Metric::Connect), driven.recorder.times(Metric::Reconnect)), (1, 1));
        let attempt = driven.client.attempt().unwrap();
        assert_eq!((attempt.occasion, attempt.steps.due_ns), (Occasion::Reconnect, SECOND - 5));
        assert_eq!(driven.recorder.broken_traffic, ["tunnel_broke"]);
        assert_eq!(simulation.server.happened(&PeerEvent::Left), 0);
    }
}

#[test]
fn an_action_without_a_tunnel_or_during_a_renewal_is_skipped() {
    let mut simulation = Simulation::new(1, TestSettings::default());
    let renegotiate = || Input::Act { action: Action::Renegotiate, due_ns: 0 };
    simulation.pass(0, renegotiate());
    simulation.pass(0, Input::Arrive { due_ns: 0 });
    simulation.run(SECOND);
    simulation.pass(0, renegotiate());
    simulation.pass(0, renegotiate());
    let counts = &simulation.clients[0].recorder.counts;
    assert_eq!((counts.actions_skipped, counts.renewals_asked, counts.renewals_pending), (2, 1, 1));
}
