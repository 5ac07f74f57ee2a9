//! Fleets against a real socket: a server machine on loopback that assigns, echoes and answers as each test requires.
//! The tests compare counts, which do not depend on speed.

mod life;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_tunnel::client::server::Transport;
use leadline_wire::{
    Outcome, RateStage, TunnelAction, TunnelActionKind, TunnelExpectation, TunnelIdentities, TunnelSpec, TunnelState,
};

use super::prepare;
use crate::control_signal::ControlSignal;
use crate::events::Events;
use crate::task::Task;
use leadline_testkit::gateway::{an_address_each, Gateway, GatewayCounts, ServerBehaviour};
use leadline_testkit::until;

fn spec(gateway: &Gateway, clients: u32) -> TunnelSpec {
    TunnelSpec {
        profile: gateway.profile.clone(),
        clients,
        threads: 2,
        identities: TunnelIdentities::Profile {},
        users: Vec::new(),
        bind: Vec::new(),
        arrivals: Vec::new(),
        settled: 0,
        settling_ms: 60_000,
        duration_ms: 60_000,
        attempt_ms: 30_000,
        retries: 0,
        expect: TunnelExpectation::default(),
        first_data_ms: 30_000,
        ping_ms: None,
        pinged_ms: None,
        actions: Vec::new(),
        traffic: None,
        interval_ms: 20,
    }
}

fn run_at(spec: &TunnelSpec, signal: Arc<ControlSignal>) -> Outcome {
    let task = Task { trial: "t".into(), name: "fleet".into(), signal, events: Events::to(Box::new(std::io::sink())) };
    prepare(spec).unwrap().run(monotonic_ns(), &task).unwrap()
}

fn run(spec: &TunnelSpec) -> Outcome {
    run_at(spec, Arc::default())
}

fn count(outcome: &Outcome, name: &str) -> u64 {
    outcome.counts.get(name).copied().unwrap_or(0)
}

fn recorded(outcome: &Outcome, metric: &str) -> u64 {
    outcome.histograms.iter().find(|histogram| histogram.metric == metric).map_or(0, |histogram| histogram.count)
}

fn errors(named: &[(&str, u64)]) -> BTreeMap<String, u64> {
    named.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn states(outcome: &Outcome) -> Vec<TunnelState> {
    outcome.tunnel.as_ref().unwrap().clients.iter().map(|client| client.state).collect()
}

#[test]
fn every_client_connects_is_verified_and_disconnects() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let gateway = Gateway::start(ServerBehaviour { transport, ..ServerBehaviour::default() });
        let expect = TunnelExpectation {
            pools: vec!["10.8.0.0/16".into()],
            routes: vec!["10.9.0.0/16".into()],
            options: vec!["topology subnet".into()],
            ..TunnelExpectation::default()
        };
        let outcome = run(&TunnelSpec { expect, ..spec(&gateway, 30) });
        assert_eq!(outcome.errors, errors(&[]));
        assert_eq!(states(&outcome), [TunnelState::Configured; 30]);
        let names = ["configured", "attempts", "partial", "failed", "waiting"];
        assert_eq!(names.map(|name| count(&outcome, name)), [30, 30, 0, 0, 0]);
        let metrics = ["connect", "answer", "tls", "keys", "push", "first_data", "late"];
        assert_eq!(metrics.map(|metric| recorded(&outcome, metric)), [30; 7]);
        let tunnel = outcome.tunnel.unwrap();
        let addresses: BTreeSet<&String> = tunnel.clients.iter().flat_map(|client| &client.addresses).collect();
        let numbers: BTreeSet<Option<u32>> = tunnel.clients.iter().map(|client| client.peer_id).collect();
        assert_eq!((addresses.len(), numbers.len()), (30, 30));
        for client in &tunnel.clients {
            let steps = [
                client.sent_ns,
                client.answered_ns,
                client.tls_ns,
                client.keys_ns,
                client.pushed_ns,
                client.configured_ns,
            ];
            assert!(steps.is_sorted() && steps[0].is_some(), "{client:?}");
            assert_eq!(client.cipher.as_deref(), Some("AES-256-GCM"));
        }
        assert_eq!(gateway.seen.up.load(Ordering::Relaxed), 30);
        // Exit notifications leave before the fleet ends.
        until("every client leaves", || (gateway.seen.left.load(Ordering::Relaxed) == 30).then_some(()));
    }
}

#[test]
fn issued_identities_give_each_client_a_certificate() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let identities = TunnelIdentities::Issued {
        authority_pem: gateway.authority_pem.clone(),
        authority_key_pem: gateway.authority_key_pem.clone(),
        name_prefix: "client-".into(),
    };
    let outcome = run(&TunnelSpec { identities, ..spec(&gateway, 4) });
    assert_eq!((count(&outcome, "configured"), outcome.errors), (4, errors(&[])));
}

#[test]
fn shared_address_leaves_later_clients_partial() {
    let gateway =
        Gateway::start(ServerBehaviour { pushed_options: |_| an_address_each(0), ..ServerBehaviour::default() });
    let outcome = run(&spec(&gateway, 5));
    assert_eq!((count(&outcome, "configured"), count(&outcome, "partial")), (1, 4));
    assert_eq!(outcome.errors, errors(&[("partial_address_not_unique", 4)]));
}

#[test]
fn each_missing_expectation_has_its_error() {
    let gateway = Gateway::start(ServerBehaviour { echoes: |_| false, ..ServerBehaviour::default() });
    let missing = |expect| {
        let outcome = run(&TunnelSpec { expect, first_data_ms: 300, ..spec(&gateway, 3) });
        assert_eq!(states(&outcome), [TunnelState::Partial; 3]);
        outcome.errors
    };
    let expect = TunnelExpectation::default();
    let routes = vec!["10.1.0.0/16".into()];
    assert_eq!(missing(TunnelExpectation { routes, ..expect.clone() }), errors(&[("partial_route_missing", 3)]));
    let dns = vec!["10.8.0.1".into()];
    assert_eq!(missing(TunnelExpectation { dns, ..expect.clone() }), errors(&[("partial_dns_missing", 3)]));
    assert_eq!(missing(expect), errors(&[("partial_no_data", 3)]));
}

#[test]
fn connections_closed_before_an_answer_have_their_error() {
    let answers = |client| client < 4;
    let gateway = Gateway::start(ServerBehaviour { transport: Transport::Tcp, answers, ..ServerBehaviour::default() });
    let outcome = run(&spec(&gateway, 7));
    assert_eq!((count(&outcome, "configured"), count(&outcome, "failed")), (4, 3));
    assert_eq!(outcome.errors, errors(&[("closed_unanswered", 3)]));
}

#[test]
fn refused_connection_fails_at_once() {
    let mut gone = spec(&Gateway::start(ServerBehaviour::default()), 4);
    // Only root may listen on this port, and no connection comes from it.
    let lines = gone.profile.lines().map(|line| if line.starts_with("remote ") { "remote 127.0.0.1 1" } else { line });
    gone.profile = lines.fold(String::new(), |text, line| text + line + "\n");
    for profile in [gone.profile.clone(), gone.profile.replace("proto udp", "proto tcp-client")] {
        let outcome = run(&TunnelSpec { profile, ..gone.clone() });
        assert_eq!(
            (states(&outcome), outcome.errors),
            (vec![TunnelState::Failed; 4], errors(&[("connection_refused", 4)]))
        );
    }
}

#[test]
fn shared_peer_id_is_accepted_over_tcp_only() {
    let gateway = Gateway::start(ServerBehaviour {
        transport: Transport::Tcp,
        shares_peer_id: true,
        ..ServerBehaviour::default()
    });
    let outcome = run(&spec(&gateway, 5));
    assert_eq!((count(&outcome, "configured"), outcome.errors), (5, errors(&[])));
    assert!(outcome.tunnel.unwrap().clients.iter().all(|client| client.peer_id == Some(0)));
    let gateway = Gateway::start(ServerBehaviour { shares_peer_id: true, ..ServerBehaviour::default() });
    let outcome = run(&spec(&gateway, 5));
    assert_eq!(outcome.errors, errors(&[("partial_peer_id_not_unique", 4)]), "over UDP it identifies clients");
}

#[test]
fn remote_without_an_address_of_its_family_is_skipped() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let good = spec(&gateway, 2);
    let profile = format!("remote 127.0.0.1 {} udp6\n{}", gateway.address.port(), good.profile);
    let outcome = run(&TunnelSpec { profile, ..good.clone() });
    assert_eq!((count(&outcome, "configured"), count(&outcome, "attempts")), (2, 2), "{:?}", outcome.errors);
    assert_eq!(outcome.tunnel.unwrap().ignored_options[0], "remote 127.0.0.1: 127.0.0.1 has no IPv6 address");
    let profile = good.profile.replace("proto udp", "proto udp6");
    let refused = prepare(&TunnelSpec { profile, ..good }).err().unwrap();
    assert_eq!(refused.code, "no_address");
    assert!(refused.message.contains("has no IPv6 address; add it, or give"), "{}", refused.message);
}

#[test]
fn unreachable_remote_is_skipped_or_refused_at_start() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let good = spec(&gateway, 2);
    // A socket cannot connect to a broadcast address unless it asks for permission.
    let nowhere = "remote 255.255.255.255 1194";
    let before = |profile: &str| format!("{nowhere}\n{profile}");
    let outcome = run(&TunnelSpec { profile: before(&good.profile), ..good.clone() });
    assert_eq!((count(&outcome, "configured"), count(&outcome, "attempts")), (2, 2), "{:?}", outcome.errors);
    let ignored = outcome.tunnel.unwrap().ignored_options;
    assert!(ignored[0].starts_with("remote 255.255.255.255:1194: this host cannot reach it"), "{ignored:?}");
    let own = format!("remote 127.0.0.1 {}", gateway.address.port());
    for protocol in ["proto udp", "proto tcp-client"] {
        let profile = good.profile.replace(&own, nowhere).replace("proto udp", protocol);
        let refused = prepare(&TunnelSpec { profile, ..good.clone() }).err().unwrap();
        assert_eq!((refused.code.as_str(), refused.message.lines().count()), ("permission_denied", 1));
        assert!(refused.message.ends_with("add it, or give the profile another remote"), "{}", refused.message);
    }
}

#[test]
fn scheduled_actions_run_once_per_connected_client() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let gateway = Gateway::start(ServerBehaviour { transport, ..ServerBehaviour::default() });
        // The actions' time begins once the settled clients are configured.
        let run_action = |what| {
            let actions = vec![TunnelAction { at_ms: 10, what, over_ms: 50 }];
            let outcome = run(&TunnelSpec { actions, settled: 8, ..spec(&gateway, 8) });
            assert_eq!(outcome.errors, errors(&[]));
            assert_eq!((count(&outcome, "configured"), count(&outcome, "actions_skipped")), (8, 0));
            outcome
        };
        let outcome = run_action(TunnelActionKind::Renegotiate);
        assert_eq!((count(&outcome, "attempts"), count(&outcome, "renegotiated")), (8, 8));
        let names = ["renegotiations_asked", "renegotiations_unfinished"];
        assert_eq!(names.map(|name| count(&outcome, name)), [8, 0]);
        assert_eq!(recorded(&outcome, "renegotiate"), 8);
        assert_eq!(gateway.seen.renegotiated.load(Ordering::Relaxed), 8);
        let before = gateway.seen.clients.load(Ordering::Relaxed);
        let outcome = run_action(TunnelActionKind::Reconnect);
        assert_eq!(count(&outcome, "reconnects_begun"), 8);
        assert_eq!(gateway.seen.clients.load(Ordering::Relaxed) - before, 16, "each attempt uses a new socket");
        assert_eq!(
            (count(&outcome, "attempts"), recorded(&outcome, "connect"), recorded(&outcome, "reconnect")),
            (16, 8, 8)
        );
        let locals = outcome.tunnel.iter().flat_map(|tunnel| &tunnel.clients).map(|client| client.local.clone());
        assert_eq!(locals.collect::<BTreeSet<_>>().len(), 8);
    }
}

#[test]
fn settled_clients_ping_before_during_and_after_arrivals() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let arrivals = vec![RateStage { from_per_s: 20.0, to_per_s: 20.0, duration_ms: 10_000 }];
    let outcome = run(&TunnelSpec { settled: 4, arrivals, ping_ms: Some(50), duration_ms: 6000, ..spec(&gateway, 12) });
    assert_eq!(outcome.errors, errors(&[]));
    assert_eq!(states(&outcome), [TunnelState::Configured; 12]);
    let times = ["before", "during", "after"];
    for time in times {
        let answered = count(&outcome, &format!("pings_answered_{time}"));
        assert!(answered > 0, "{time}: {:?}", outcome.counts);
        assert_eq!(answered, recorded(&outcome, &format!("ping_{time}")));
    }
    // A thread that the host delays skips some pings, which are counted.
    let before = count(&outcome, "pings_sent_before") + count(&outcome, "pings_unsent");
    assert!(before >= 10 * 4, "the baseline of the arrivals: {:?}", outcome.counts);
    let of_settled: u64 = times.iter().map(|time| count(&outcome, &format!("pings_sent_{time}"))).sum();
    let rows = &outcome.tunnel.as_ref().unwrap().clients;
    assert_eq!(of_settled, rows[..4].iter().map(|client| client.inside["pings_sent"]).sum::<u64>());
    assert_eq!(of_settled, count(&outcome, "pings_sent"));
    assert!(rows[4..].iter().all(|client| !client.inside.contains_key("pings_sent")), "arrivals do not ping");
    // Loopback loses nothing, and the fleet waits for the last responses; each client's first echo proved its tunnel.
    assert_eq!(count(&outcome, "pings_answered"), count(&outcome, "pings_sent"));
    assert_eq!(gateway.seen.echoes.load(Ordering::Relaxed), count(&outcome, "inside_received"));
}

#[test]
fn pings_stop_their_set_time_after_arrivals() {
    let gateway = Gateway::start(ServerBehaviour::default());
    // The stay is far longer than the test runner's time limit.
    let stay = TunnelSpec { settled: 2, ping_ms: Some(20), duration_ms: 86_400_000, ..spec(&gateway, 6) };
    until("a ping is due while the fleet's threads run", || {
        let outcome = run(&TunnelSpec { pinged_ms: Some(1500), ..stay.clone() });
        assert_eq!(states(&outcome), [TunnelState::Configured; 6]);
        (count(&outcome, "pings_answered_after") > 0).then_some(())
    });
}

#[test]
fn settling_time_is_separate_from_the_duration() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let begun_ns = monotonic_ns();
    // Forty clients connect one after another, 10 ms apart: twice as long as the fleet stays after that.
    let outcome = run(&TunnelSpec { settled: 40, duration_ms: 200, ..spec(&gateway, 41) });
    assert_eq!(states(&outcome)[..40], [TunnelState::Configured; 40]);
    assert!(monotonic_ns() - begun_ns >= 390_000_000);
    // A client that is not connected when that time is over is cut off, and the others do not arrive.
    let silent = Gateway::start(ServerBehaviour { answers: |_| false, ..ServerBehaviour::default() });
    let outcome = run(&TunnelSpec { settled: 1, settling_ms: 100, duration_ms: 86_400_000, ..spec(&silent, 2) });
    assert_eq!(count(&outcome, "waiting"), 1, "{:?}", outcome.counts);
}

#[test]
fn stopped_fleet_leaves_undue_clients_waiting() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let arrivals = vec![RateStage { from_per_s: 0.0, to_per_s: 0.2, duration_ms: 100_000 }];
    let spec = TunnelSpec { settled: 3, arrivals, ..spec(&gateway, 5) };
    let signal = Arc::<ControlSignal>::default();
    let seen = Arc::clone(&gateway.seen);
    let stopping = {
        let signal = Arc::clone(&signal);
        std::thread::spawn(move || {
            while seen.echoes.load(Ordering::Relaxed) < 3 {
                std::thread::yield_now();
            }
            signal.stop();
        })
    };
    let outcome = run_at(&spec, signal);
    stopping.join().unwrap();
    assert_eq!(states(&outcome)[3..], [TunnelState::Waiting; 2]);
    assert_eq!((count(&outcome, "waiting"), count(&outcome, "attempts")), (2, 3));
}

#[test]
fn invalid_spec_is_refused_before_sockets_open() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let refused = |spec: TunnelSpec| prepare(&spec).err().map(|error| error.code).unwrap();
    let good = spec(&gateway, 2);
    assert_eq!(refused(TunnelSpec { clients: 0, ..good.clone() }), "bad_tunnel");
    assert_eq!(refused(TunnelSpec { settled: 3, ..good.clone() }), "bad_tunnel");
    assert_eq!(refused(TunnelSpec { profile: "client\nfoo\n".into(), ..good.clone() }), "bad_profile");
    assert_eq!(refused(TunnelSpec { bind: vec!["::1".into()], ..good.clone() }), "no_address");
    assert_eq!(refused(TunnelSpec { bind: vec!["192.0.2.1".into()], ..good.clone() }), "address_not_available");
    assert_eq!(refused(TunnelSpec { clients: 100_000_000, ..good.clone() }), "too_many_open_files");
    let wants_user = good.profile.replace("dev tun", "dev tun\nauth-user-pass");
    assert_eq!(refused(TunnelSpec { profile: wants_user, ..good.clone() }), "no_users");
    let identities = TunnelIdentities::Issued {
        authority_pem: gateway.authority_pem.clone(),
        authority_key_pem: "none".into(),
        name_prefix: String::new(),
    };
    assert_eq!(refused(TunnelSpec { identities, ..good }), "bad_identity");
}
