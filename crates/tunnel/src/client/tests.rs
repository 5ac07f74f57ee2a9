//! Tests of clients in virtual time, against our own server machine: counts, causes and times, exact to the
//! nanosecond unless randomness is involved.

mod data_path;
mod returns;
mod world;

use std::io;

use self::world::{an_address_each, Behaviour, Wanted, World, MS, SECOND};
use super::effects::{Close, Metric, SocketError};
use super::expectation::Expectation;
use super::phase::{Occasion, Phase};
use super::{Action, Input, Progress};
use crate::openvpn::client::Event;
use crate::openvpn::profile::Transport;
use crate::openvpn::server::PeerEvent;

fn with(behaviour: Behaviour) -> Wanted {
    Wanted { behaviour, ..Wanted::default() }
}

#[test]
fn a_client_is_configured_verified_and_says_farewell() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut world = World::arrived(3, with(Behaviour { transport, ..Behaviour::default() }));
        world.run(SECOND);
        assert!(world.failures().is_empty(), "{:?}", world.failures());
        for driven in &world.clients {
            let client = &driven.client;
            let steps = client.attempt().unwrap().steps;
            let done =
                [steps.sent_ns, steps.answered_ns, steps.tls_ns, steps.keys_ns, steps.pushed_ns, steps.configured_ns];
            assert!(done.is_sorted() && done.iter().all(Option::is_some), "{steps:?}");
            assert_eq!((client.phase(), driven.sink.arrival_ended_ns), (Phase::Configured, steps.configured_ns));
            let each = [Metric::Connect, Metric::Answer, Metric::Tls, Metric::Keys, Metric::Push, Metric::FirstData];
            assert_eq!(each.map(|metric| driven.sink.times(metric)), [1; 6]);
            assert_eq!((driven.sink.times(Metric::Late), driven.sink.counts.resets_sent), (1, 1));
        }
        (0..3).for_each(|client| world.hand(client, Input::Leave));
        world.run(2 * SECOND);
        assert_eq!(world.server.happened(&PeerEvent::Left), 3);
        assert!(
            world.clients.iter().all(|driven| !driven.client.is_session_waiting()),
            "the exit notification is acknowledged"
        );
    }
}

#[test]
fn a_tcp_client_connects_before_it_asks() {
    let mut world = World::arrived(1, with(Behaviour { transport: Transport::Tcp, ..Behaviour::default() }));
    assert_eq!(world.phase(0), Phase::Connecting);
    world.run(MS);
    assert_eq!(world.phase(0), Phase::Asking);
    world.run(SECOND);
    let expected = [Phase::Connecting, Phase::Asking, Phase::Negotiating, Phase::Proving, Phase::Configured];
    assert_eq!(world.clients[0].sink.phases, expected);
}

#[test]
fn a_tcp_handshake_without_an_answer_ends_with_the_attempts_time() {
    let behaviour = Behaviour { transport: Transport::Tcp, accepts: false, ..Behaviour::default() };
    let mut world = World::arrived(1, Wanted { attempt_ns: 5 * SECOND, ..with(behaviour) });
    world.run(5 * SECOND - 1);
    assert_eq!(world.phase(0), Phase::Connecting);
    world.run(5 * SECOND);
    assert_eq!((world.phase(0), world.failures()), (Phase::Failed, [("connect_timeout", 1)].into()));
}

#[test]
fn a_connection_that_is_taken_and_closed_fails_unanswered() {
    let behaviour = Behaviour { transport: Transport::Tcp, answers: |number| number < 2, ..Behaviour::default() };
    let mut world = World::arrived(4, with(behaviour));
    world.run(SECOND);
    assert_eq!(world.failures(), [("closed_unanswered", 2)].into());
    let phases = [0, 1, 2, 3].map(|client| world.phase(client));
    assert_eq!(phases, [Phase::Configured, Phase::Configured, Phase::Failed, Phase::Failed]);
}

#[test]
fn a_connection_that_could_not_be_made_fails_by_the_systems_code() {
    let mut world = World::arrived(1, with(Behaviour { transport: Transport::Tcp, ..Behaviour::default() }));
    let refused = SocketError::new("connection_refused", io::ErrorKind::ConnectionRefused.into());
    world.hand(0, Input::ConnectFailed(refused));
    assert_eq!((world.phase(0), world.failures()), (Phase::Failed, [("connection_refused", 1)].into()));
    assert_eq!(world.clients[0].sink.closed, [Close::Orderly]);
}

#[test]
fn an_exhausted_pool_leaves_a_client_partial() {
    let gives = |number| if number < 2 { an_address_each(number) } else { Vec::new() };
    let mut world = World::arrived(3, with(Behaviour { gives, ..Behaviour::default() }));
    world.run(SECOND);
    assert_eq!((world.phase(2), world.failures()), (Phase::Partial, [("partial_no_address", 1)].into()));
    assert!(world.clients[2].sink.failures[0].1.contains("ifconfig-pool"));
    assert_eq!(world.clients[2].client.cause(), Some("partial_no_address"));
}

#[test]
fn a_missing_option_is_named() {
    let missing = |expectation| {
        let behaviour = Behaviour { echoes: false, ..Behaviour::default() };
        let mut world = World::arrived(1, Wanted { expectation, first_data_ns: 300 * MS, ..with(behaviour) });
        world.run(SECOND);
        world.failures().into_keys().collect::<Vec<_>>()
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
    let wanted = Wanted { first_data_ns: 50 * MS, ..with(Behaviour { loses: 1, ..Behaviour::default() }) };
    let mut world = World::arrived(1, wanted);
    world.run(400 * MS);
    assert_eq!((world.phase(0), world.failures()), (Phase::Overdue, [("partial_no_data", 1)].into()));
    assert_eq!(world.clients[0].client.cause(), Some("partial_no_data"));
    world.run(SECOND);
    let driven = &world.clients[0];
    assert_eq!(
        (driven.client.phase(), driven.client.cause(), driven.sink.counts.recovered),
        (Phase::Configured, None, 0)
    );
    let steps = driven.client.attempt().unwrap().steps;
    assert_eq!(steps.configured_ns.unwrap() - steps.pushed_ns.unwrap(), 502 * MS);
}

#[test]
fn an_overdue_client_stays_partial_once_its_attempts_time_is_over() {
    let behaviour = Behaviour { echoes: false, ..Behaviour::default() };
    let wanted = Wanted { attempt_ns: 3 * SECOND, first_data_ns: SECOND, ..with(behaviour) };
    let mut world = World::arrived(1, wanted);
    world.run(3 * SECOND - 1);
    assert_eq!(world.phase(0), Phase::Overdue);
    world.run(3 * SECOND);
    assert_eq!((world.phase(0), world.failures()), (Phase::Partial, [("partial_no_data", 1)].into()));
}

#[test]
fn the_first_reply_has_its_own_time_after_a_short_attempt() {
    // Requests are sent after 0, 0.5 and 1.5 s; the first two are lost.
    let wanted = Wanted { attempt_ns: SECOND, ..with(Behaviour { loses: 2, ..Behaviour::default() }) };
    let mut world = World::arrived(1, wanted);
    world.run(5 * SECOND);
    assert_eq!((world.phase(0), world.failures().len()), (Phase::Configured, 0));
    let steps = world.clients[0].client.attempt().unwrap().steps;
    assert_eq!(steps.configured_ns.unwrap() - steps.pushed_ns.unwrap(), 1502 * MS);
}

#[test]
fn silence_within_the_hand_window_is_explained() {
    let behaviour = Behaviour { answers: |_| false, ..Behaviour::default() };
    let mut world = World::arrived(1, Wanted { hand_window_ns: SECOND, ..with(behaviour) });
    world.run(2 * SECOND);
    let (name, detail) = &world.clients[0].sink.failures[0];
    assert_eq!((*name, world.phase(0)), ("reset_unanswered", Phase::Failed));
    assert!(detail.starts_with("no answer to any reset") && detail.ends_with("hand-window, 1 s"), "{detail}");
}

#[test]
fn a_client_that_the_fleet_leaves_behind_is_unfinished() {
    let mut world = World::arrived(1, with(Behaviour { answers: |_| false, ..Behaviour::default() }));
    // The first reset is repeated after 2 s and 4 s more.
    world.run(7 * SECOND);
    world.hand(0, Input::Leave);
    let driven = &world.clients[0];
    assert_eq!(world.failures(), [("unfinished", 1)].into());
    assert_eq!(
        (driven.sink.counts.resets_sent, driven.sink.counts.retransmits, driven.client.retransmits()),
        (3, 2, 2)
    );
    assert_eq!((driven.client.deadline_ns(), driven.sink.connection), (None, None));
}

#[test]
fn a_reset_that_the_socket_refuses_has_no_time() {
    let mut world = World::new(2, Wanted::default());
    let refused = SocketError::new("network_unreachable", io::ErrorKind::NetworkUnreachable.into());
    world.clients[0].sink.refuses_control = Some(refused);
    (0..2).for_each(|client| world.hand(client, Input::Arrive { due_ns: 0 }));
    let sent_ns = [0, 1].map(|client: usize| world.clients[client].client.attempt().unwrap().steps.sent_ns);
    assert_eq!(sent_ns, [None, Some(0)]);
    assert_eq!(world.failures(), [("network_unreachable", 1)].into());
}

#[test]
fn a_server_that_asks_for_more_time_is_given_it() {
    let mut world = World::arrived(1, with(Behaviour { answers: |_| false, ..Behaviour::default() }));
    let world::Driven { client, sink } = &mut world.clients[0];
    assert_eq!(client.session_event(0, Event::Answered, sink), None);
    assert_eq!(client.session_event(0, Event::Pending { until_ns: 1000 * SECOND }, sink), None);
    assert_eq!((client.deadline_ns() <= Some(1000 * SECOND), sink.counts.auth_pending), (true, 1));
    assert_eq!(client.handle(1000 * SECOND, Input::TimerDue, sink), Progress::Wait);
    let said = &sink.failures[0].1;
    assert!(
        said.ends_with("the attempt's time limit, 30 s, which the server's AUTH_PENDING extended to 1000.0 s"),
        "{said}"
    );
}

#[test]
fn a_late_datagram_error_is_counted_and_ends_nothing() {
    let mut world = World::arrived(1, Wanted::default());
    world.run(SECOND);
    for (code, kind) in [("connection_refused", io::ErrorKind::ConnectionRefused), ("timeout", io::ErrorKind::TimedOut)]
    {
        world.hand(0, Input::SocketFailed(SocketError::new(code, kind.into())));
    }
    let counts = &world.clients[0].sink.counts;
    assert_eq!((world.phase(0), counts.refused, counts.socket_errors), (Phase::Configured, 1, 1));
}

#[test]
fn packets_that_came_twice_are_counted() {
    let mut world = World::arrived(2, with(Behaviour { repeats: true, ..Behaviour::default() }));
    world.run(SECOND);
    assert_eq!((world.count(|counts| counts.replayed), world.phase(0)), (2, Phase::Configured));
}

#[test]
fn settled_clients_ping_spread_over_one_gap() {
    let mut world = World::arrived(4, Wanted { ping_gap_ns: Some(100 * MS), ..Wanted::default() });
    world.run(SECOND);
    for client in 0..4 {
        world.clients[client].sink.pings_since_ns = Some(2 * SECOND);
        world.hand(client, Input::StartPings);
    }
    let due_ns = [0, 1, 2, 3].map(|client: usize| world.clients[client].client.deadline_ns());
    assert_eq!(due_ns, [2000, 2025, 2050, 2075].map(|ms| Some(ms * MS)));
    world.run(3 * SECOND - 1);
    assert_eq!(world.count(|counts| counts.pings.sent), 40);
    assert_eq!(world.count(|counts| counts.pings.answered), 40);
    (0..4).for_each(|client| world.hand(client, Input::StopPings));
    world.run(4 * SECOND);
    assert_eq!(world.count(|counts| counts.pings.sent), 40);
    let driven = &world.clients[0];
    assert_eq!((driven.client.pings(), driven.sink.times(Metric::PingDuring)), ((10, 10), 10));
    assert!(driven.sink.recorded.contains(&(Metric::PingDuring, 2 * MS)), "the delay of the links in both directions");
}

#[test]
fn pings_that_a_late_thread_missed_are_counted_as_not_sent() {
    let mut world = World::arrived(1, Wanted { ping_gap_ns: Some(100 * MS), ..Wanted::default() });
    world.run(SECOND);
    world.clients[0].sink.pings_since_ns = Some(SECOND);
    world.hand(0, Input::StartPings);
    world.now_ns = SECOND + 350 * MS;
    world.hand(0, Input::TimerDue);
    let pings = world.clients[0].sink.counts.pings;
    assert_eq!((pings.sent, pings.unsent, world.clients[0].client.deadline_ns()), (1, 3, Some(SECOND + 400 * MS)));
}

#[test]
fn a_server_that_takes_the_address_back_stops_no_timer() {
    let behaviour = Behaviour { says: Some((1, "PUSH_UPDATE,-ifconfig")), ..Behaviour::default() };
    let mut world = World::arrived(1, Wanted { ping_gap_ns: Some(100 * MS), ..with(behaviour) });
    world.run(SECOND);
    world.clients[0].sink.pings_since_ns = Some(SECOND);
    world.hand(0, Input::StartPings);
    world.run(2 * SECOND - 1);
    let driven = &world.clients[0];
    assert_eq!((driven.client.phase(), driven.client.assigned().unwrap().ipv4), (Phase::Configured, None));
    assert_eq!((driven.sink.counts.pings.sent, driven.sink.counts.pings.unsent), (0, 10));
    assert_eq!(driven.client.deadline_ns(), Some(2 * SECOND));
}

#[test]
fn packets_that_the_socket_refuses_are_taken_back() {
    let mut world = World::arrived(1, Wanted::default());
    world.run(SECOND);
    let world::Driven { client, sink } = &mut world.clients[0];
    let sent = client.packets_sent();
    assert!(client.send(SECOND, &[0x45; 40], sink));
    sink.refuses_data = Some(SocketError::new("message_too_long", io::Error::from_raw_os_error(90)));
    client.flush(SECOND, sink);
    assert_eq!((client.packets_sent(), sink.counts.socket_errors), (sent, 1));
}

#[test]
fn a_packet_for_the_traffic_is_delivered_and_a_ping_is_answered() {
    let mut world = World::arrived(1, Wanted::default());
    world.run(SECOND);
    let datagram = [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17][..], &[0; 18]].concat();
    let sealed = |world: &mut World, payload: &[u8]| {
        let mut out = Vec::new();
        world.server.with(0, |peer| peer.send(payload, &mut out).unwrap());
        out
    };
    let mut packet = sealed(&mut world, &datagram);
    let world::Driven { client, sink } = &mut world.clients[0];
    client.receive(SECOND, SECOND, &mut packet, sink);
    assert_eq!((sink.delivered.as_slice(), client.packets_received()), ([datagram].as_slice(), 2));
    assert_eq!(client.handle(SECOND, Input::BatchReceived, sink), Progress::Wait);
}

#[test]
fn a_reconnect_takes_a_new_socket_without_a_farewell() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut world = World::arrived(1, with(Behaviour { transport, ..Behaviour::default() }));
        world.run(SECOND);
        let before = world.clients[0].client.local();
        world.hand(0, Input::Act { action: Action::Reconnect, due_ns: SECOND - 5 });
        world.run(2 * SECOND);
        let driven = &world.clients[0];
        assert_eq!(
            (driven.client.phase(), driven.sink.closed.as_slice()),
            (Phase::Configured, [Close::Silent].as_slice())
        );
        assert_ne!(driven.client.local(), before);
        let counts = &driven.sink.counts;
        assert_eq!((counts.attempts, counts.reconnects_begun, counts.lost, counts.recovered), (2, 1, 0, 0));
        assert_eq!((driven.sink.times(Metric::Connect), driven.sink.times(Metric::Reconnect)), (1, 1));
        let attempt = driven.client.attempt().unwrap();
        assert_eq!((attempt.occasion, attempt.steps.due_ns), (Occasion::Reconnect, SECOND - 5));
        assert_eq!(driven.sink.broken_traffic, ["tunnel_broke"]);
        assert_eq!(world.server.happened(&PeerEvent::Left), 0);
    }
}

#[test]
fn an_action_without_a_tunnel_or_during_a_renewal_is_skipped() {
    let mut world = World::new(1, Wanted::default());
    let renegotiate = || Input::Act { action: Action::Renegotiate, due_ns: 0 };
    world.hand(0, renegotiate());
    world.hand(0, Input::Arrive { due_ns: 0 });
    world.run(SECOND);
    world.hand(0, renegotiate());
    world.hand(0, renegotiate());
    let counts = &world.clients[0].sink.counts;
    assert_eq!((counts.actions_skipped, counts.renewals_asked, counts.renewals_pending), (2, 1, 1));
}
