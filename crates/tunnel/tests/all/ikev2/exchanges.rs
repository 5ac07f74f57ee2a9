//! Exchanges of a client in virtual time: each completes, also over a bad link, and each refusal has its cause.

use leadline_tunnel::ikev2::client::{Cause, Event};
use leadline_tunnel::ikev2::dh::Group;
use leadline_tunnel::ikev2::message::ExchangeType;
use leadline_tunnel::ikev2::notify::kind;
use leadline_tunnel::ikev2::secret_bytes::SecretBytes;

use super::link::{identity, settings, Faults, Simulation, ESP, IKE, MS, S};
use super::responder::Options;
use super::responder_sa::Task;

const BAD: Faults = Faults { loss: 16, duplicates: 8, jitter_ns: 60 * MS };

fn simulation(options: Options) -> Simulation {
    Simulation::new(settings(IKE, ESP), identity(), options, Faults::default(), 1)
}

fn failure(simulation: &mut Simulation) -> Cause {
    simulation.run_until(|one| one.events.iter().any(|event| matches!(event, Event::Failed(_))));
    match simulation.events.last() {
        Some(Event::Failed(failure)) => failure.cause,
        other => panic!("no failure but {other:?}"),
    }
}

#[test]
fn tunnel_comes_up_step_by_step_and_carries_packets_both_ways() {
    let mut simulation = Simulation::good();
    assert!(simulation.run_until(|one| one.has(&Event::ChildUp)));
    assert!(matches!(
        simulation.events.as_slice(),
        [Event::SaInitAnswered, Event::IkeUp, Event::AddressAssigned(_), Event::ChildUp]
    ));
    assert!(simulation.ping());
    let steps = *simulation.client.steps();
    let times = [
        steps.started_ns,
        steps.sa_init_answered_ns,
        steps.ike_up_ns,
        steps.ip_assigned_ns,
        steps.child_up_ns,
        steps.first_packet_ns,
    ];
    assert_eq!(times.map(|time| time.map(|time| time / MS)), [0, 10, 20, 20, 20, 30].map(Some));
    let now_ns = simulation.now_ns;
    simulation.client.leave(now_ns);
    assert!(simulation.run_until(|one| one.has(&Event::Left { is_confirmed: true })));
    assert!(simulation.gateway.sas.is_empty());
    assert_eq!(simulation.client.deadline_ns(), None);
}

#[test]
fn cookies_and_another_group_are_taken_in_any_order() {
    for (cookies, group, messages) in
        [(1, None, 2), (3, None, 4), (0, Some(Group::Ecp256), 2), (2, Some(Group::Ecp256), 4)]
    {
        let mut simulation = simulation(Options { cookies, group, ..Options::default() });
        assert!(simulation.run_until(|one| one.has(&Event::ChildUp)), "{:?}", simulation.events);
        assert!(simulation.ping());
        let counters = simulation.client.counters();
        assert_eq!((counters.cookies, counters.group_changes), (cookies, u32::from(group.is_some())));
        assert_eq!(simulation.client.steps().sa_init_answered_ns, Some(messages * 10 * MS));
    }
    let mut endless = simulation(Options { cookies: 1000, ..Options::default() });
    assert_eq!(failure(&mut endless), Cause::TooManyRestarts);
    let mut refused = simulation(Options { group: Some(Group::Ecp384), ..Options::default() });
    assert_eq!(failure(&mut refused), Cause::NoCommonGroup);
}

#[test]
fn unauthenticated_error_ends_an_attempt_only_after_a_grace() {
    for (error, cause) in [
        (kind::NO_PROPOSAL_CHOSEN, Cause::NoProposalChosen),
        (kind::REDIRECT, Cause::Redirected),
        (kind::INVALID_SYNTAX, Cause::InvalidSyntax),
        (9999, Cause::Notified(9999)),
    ] {
        let options = Options { init_error: Some((error, 1)), ..Options::default() };
        let mut refused = simulation(options.clone());
        assert_eq!(failure(&mut refused), cause);
        assert!(refused.now_ns >= S);
        // A right answer that follows the error counts.
        let repeated = Faults { duplicates: 1, ..Faults::default() };
        let mut answered = Simulation::new(settings(IKE, ESP), identity(), options, repeated, 1);
        assert!(answered.run_until(|one| one.has(&Event::ChildUp)), "{cause:?}: {:?}", answered.events);
    }
}

#[test]
fn refused_parts_leave_the_ike_sa_with_their_own_causes() {
    let cases = [
        (Some(kind::INTERNAL_ADDRESS_FAILURE), None, Some(Cause::NoAddress), Cause::NoAddress),
        (None, Some(kind::NO_PROPOSAL_CHOSEN), None, Cause::NoProposalChosen),
        (None, Some(kind::TS_UNACCEPTABLE), None, Cause::TrafficSelectorsRefused),
        (Some(kind::FAILED_CP_REQUIRED), None, Some(Cause::AddressRequestRequired), Cause::AddressRequestRequired),
        (None, Some(kind::NO_ADDITIONAL_SAS), None, Cause::NoAdditionalSas),
    ];
    for (address_error, child_error, address_cause, child_cause) in cases {
        let mut simulation = simulation(Options { address_error, child_error, ..Options::default() });
        assert!(simulation.run_until(|one| one.has(&Event::ChildRefused(child_cause))), "{:?}", simulation.events);
        assert!(simulation.has(&Event::IkeUp) && simulation.client.is_up() && !simulation.client.has_child());
        assert_eq!(
            simulation.events.iter().any(|event| matches!(event, Event::AddressAssigned(_))),
            address_cause.is_none()
        );
        assert!(address_cause.is_none_or(|cause| simulation.has(&Event::AddressRefused(cause))));
    }
}

#[test]
fn wrong_key_silence_and_foreign_identity_have_their_causes() {
    let mut other = identity();
    other.shared_key = Some(SecretBytes::from(&b"other"[..]));
    let mut wrong = Simulation::new(settings(IKE, ESP), other, Options::default(), Faults::default(), 1);
    assert_eq!(failure(&mut wrong), Cause::AuthenticationRefused);

    let mut config = settings(IKE, ESP);
    config.remote_id = Some(leadline_tunnel::ikev2::identification::Id::parse("@other.test"));
    let mut foreign = Simulation::new(config, identity(), Options::default(), Faults::default(), 1);
    assert_eq!(failure(&mut foreign), Cause::PeerIdentity);
    foreign.run_until(|one| one.gateway.sas.is_empty());
    assert!(foreign.gateway.sas.is_empty(), "the gateway receives a deletion, and keeps nothing");

    let silent = Faults { loss: 1, ..Faults::default() };
    let mut silence = Simulation::new(settings(IKE, ESP), identity(), Options::default(), silent, 1);
    assert_eq!(failure(&mut silence), Cause::NoAnswer(ExchangeType::SaInit));
    assert_eq!(silence.now_ns / S, 165);
    assert_eq!(silence.client.counters().retransmits, 5);
}

#[test]
fn every_exchange_completes_over_a_bad_link() {
    for seed in 1..=40 {
        let options = Options { fragment_bytes: (seed % 2 == 0).then_some(200), ..Options::default() };
        let mut config = settings(IKE, ESP);
        config.fragment_bytes = options.fragment_bytes;
        let mut simulation = Simulation::new(config, identity(), options, BAD, seed);
        assert!(simulation.run_until(|one| one.has(&Event::ChildUp)), "{seed}: {:?}", simulation.events);
        assert!(simulation.ping(), "{seed}");
        for round in 0..3 {
            let now_ns = simulation.now_ns;
            match round {
                0 => simulation.client.rekey_child(now_ns),
                1 => simulation.client.rekey_ike(now_ns),
                _ => simulation.client.probe(now_ns),
            }
            assert!(simulation.run_until(Simulation::is_settled), "{seed}");
            assert!(simulation.ping(), "{seed}: {:?} {:?}", simulation.events, simulation.client);
            simulation.peer_task([Task::RekeyIke, Task::RekeyChild, Task::Probe][round]);
            assert!(simulation.run_until(Simulation::is_settled), "{seed}");
            assert!(simulation.ping(), "{seed}: {:?} {:?}", simulation.events, simulation.client);
        }
        for by_peer in [false, true] {
            assert!(simulation.has(&Event::ChildRekeyed { by_peer }), "{seed}");
            assert!(simulation.has(&Event::IkeRekeyed { by_peer }), "{seed}");
        }
        let now_ns = simulation.now_ns;
        simulation.client.leave(now_ns);
        assert!(simulation.run_until(|one| one.gateway.sas.is_empty()), "{seed}");
    }
}

#[test]
fn rekeyings_that_collide_leave_one_sa_at_both_ends() {
    let mut winners = [0, 0];
    for seed in 1..=30 {
        for (faults, is_child) in [(Faults::default(), true), (Faults::default(), false), (BAD, true), (BAD, false)] {
            let mut simulation = Simulation::new(settings(IKE, ESP), identity(), Options::default(), faults, seed);
            assert!(simulation.run_until(|one| one.has(&Event::ChildUp)), "{seed}");
            let now_ns = simulation.now_ns;
            if is_child {
                simulation.client.rekey_child(now_ns);
                simulation.peer_task(Task::RekeyChild);
            } else {
                simulation.client.rekey_ike(now_ns);
                simulation.peer_task(Task::RekeyIke);
            }
            assert!(simulation.run_until(Simulation::is_settled), "{seed} {is_child} {:?}", simulation.events);
            assert!(simulation.ping(), "{seed} {is_child} {:?}", simulation.events);
            simulation.run_for(400 * S);
            assert_eq!(simulation.client.local_spis().0.count(), 1, "{seed} {is_child}");
            assert_eq!(simulation.client.local_spis().1.count(), 1, "{seed} {is_child}");
            assert!(simulation.ping(), "{seed} {is_child}");
            let by_peer = simulation.events.iter().any(|event| {
                matches!(event, Event::ChildRekeyed { by_peer: true } | Event::IkeRekeyed { by_peer: true })
            });
            winners[usize::from(by_peer)] += 1;
        }
    }
    assert!(winners[0] > 10 && winners[1] > 10, "both ends win: {winners:?}");
}

#[test]
fn different_rekeyings_at_once_are_put_off_and_done() {
    for (is_child, task) in [(true, Task::RekeyIke), (false, Task::RekeyChild)] {
        let mut simulation = Simulation::good();
        assert!(simulation.run_until(|one| one.has(&Event::ChildUp)));
        let now_ns = simulation.now_ns;
        if is_child {
            simulation.client.rekey_child(now_ns);
        } else {
            simulation.client.rekey_ike(now_ns);
        }
        simulation.peer_task(task);
        simulation.run_for(60 * S);
        assert!(simulation.is_settled() && simulation.ping());
    }
}

#[test]
fn lifetimes_probes_and_keepalives_follow_the_clock() {
    let mut config = settings(IKE, ESP);
    config.child_lifetime.rekey_ns = Some(600 * S);
    config.child_lifetime.spread_ns = 60 * S;
    config.ike_lifetime.rekey_ns = Some(1000 * S);
    config.ike_lifetime.spread_ns = 0;
    config.dpd_ns = Some(30 * S);
    config.keepalive_ns = Some(20 * S);
    let mut simulation = Simulation::new(config, identity(), Options::default(), Faults::default(), 1);
    assert!(simulation.run_until(|one| one.has(&Event::ChildUp)));
    simulation.run_for(539 * S);
    assert!(!simulation.has(&Event::ChildRekeyed { by_peer: false }));
    assert!(simulation.gateway.requests > 16, "an idle client asks every 30 s: {}", simulation.gateway.requests);
    assert!(simulation.client.counters().keepalives > 10);
    simulation.run_for(62 * S);
    assert!(simulation.has(&Event::ChildRekeyed { by_peer: false }));
    simulation.run_for(400 * S);
    assert!(simulation.has(&Event::IkeRekeyed { by_peer: false }));
    assert!(simulation.ping());
}

#[test]
fn gateway_that_deletes_or_falls_silent_is_noticed() {
    let mut deleted = Simulation::good();
    assert!(deleted.run_until(|one| one.has(&Event::ChildUp)));
    deleted.peer_task(Task::DeleteIke);
    assert_eq!(failure(&mut deleted), Cause::DeletedByPeer);
    assert!(deleted.run_until(|one| one.gateway.sas.is_empty()), "its deletion is answered");

    let mut silent = Simulation::good();
    assert!(silent.run_until(|one| one.has(&Event::ChildUp)));
    silent.gateway.sas.clear();
    let now_ns = silent.now_ns;
    silent.client.probe(now_ns);
    assert_eq!(failure(&mut silent), Cause::NoAnswer(ExchangeType::Informational));
    assert_eq!((silent.now_ns - now_ns) / S, 165);
}

#[test]
fn esn_and_each_cipher_carry_packets() {
    for esp in ["aes256gcm16-esn", "aes128-sha256-esn", "aes256-sha512-ecp384", "chacha20poly1305-x25519-noesn"] {
        for ike in ["aes256-sha384-ecp384", "chacha20poly1305-prfsha512-ecp256"] {
            let mut simulation =
                Simulation::new(settings(ike, esp), identity(), Options::default(), Faults::default(), 1);
            simulation.gateway = super::responder::Responder::new(ike, esp, Options::default());
            assert!(simulation.run_until(|one| one.has(&Event::ChildUp)), "{ike} {esp}");
            assert!(simulation.ping(), "{ike} {esp}");
            let now_ns = simulation.now_ns;
            simulation.client.rekey_child(now_ns);
            assert!(simulation.run_until(Simulation::is_settled) && simulation.ping(), "{ike} {esp}");
        }
    }
}
