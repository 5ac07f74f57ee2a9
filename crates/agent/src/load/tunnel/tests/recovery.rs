//! Clients of one fleet to which the same address is assigned, and the report on attempts and lost packets.

use super::life::{arrive, phase, worker};
use super::*;
use crate::load::tunnel::worker::{Worker, TIMER_BATCH};
use leadline_tunnel::client::phase::Phase;
use leadline_tunnel::client::Input;
use leadline_wire::{FailureCause, TunnelOccasion as Occasion, TunnelTraffic};

const TURN_NS: u64 = 10_000_000;

/// Runs a thread's clients until a condition holds.
fn run_until_state(worker: &mut Worker, until: impl Fn(&Worker) -> bool) {
    while !until(worker) {
        let now_ns = monotonic_ns();
        worker.free_claims(now_ns);
        worker.expire(now_ns, TIMER_BATCH);
        worker.poll_io(now_ns + TURN_NS, || false).unwrap();
    }
}

/// Returns two clients of a server that assigns one address to both: the first is configured, the second waits until
/// the address is free.
fn with_one_address() -> (Gateway, Worker) {
    let gateway =
        Gateway::start(ServerBehaviour { pushed_options: |_| an_address_each(0), ..ServerBehaviour::default() });
    let mut worker = worker(&spec(&gateway, 2));
    for (index, reached) in [Phase::Configured, Phase::Contested].into_iter().enumerate() {
        arrive(&mut worker, index);
        run_until_state(&mut worker, |worker| phase(worker, index) == reached);
    }
    (gateway, worker)
}

#[test]
fn dead_tunnels_address_configures_the_next_client() {
    let (_gateway, mut worker) = with_one_address();
    // No packet came from the server after the other client got the address.
    worker.run_action(0, monotonic_ns(), TunnelActionKind::Reconnect);
    run_until_state(&mut worker, |worker| phase(worker, 1) == Phase::Configured);
    assert_eq!((worker.clients[1].machine.cause(), worker.failures.counts.len()), (None, 0));
    let steps = worker.clients[1].machine.attempt().unwrap().steps;
    assert!(steps.configured_ns >= steps.pushed_ns && steps.pushed_ns.is_some());
}

#[test]
fn address_shared_by_live_tunnels_is_an_error() {
    let (_gateway, mut worker) = with_one_address();
    worker.run_action(0, monotonic_ns(), TunnelActionKind::Renegotiate);
    run_until_state(&mut worker, |worker| worker.clients[0].machine.refusable_until_ns().is_some());
    worker.run_action(0, monotonic_ns(), TunnelActionKind::Reconnect);
    worker.free_claims(monotonic_ns());
    assert_eq!(phase(&worker, 1), Phase::Contested);
    worker.hand(1, monotonic_ns(), Input::Leave);
    assert_eq!(worker.failures.counts, errors(&[("partial_address_not_unique", 1)]));
    assert_eq!((phase(&worker, 1), worker.phases[Phase::Partial as usize]), (Phase::Partial, 1));
}

#[test]
fn every_attempt_is_reported() {
    // Over TCP an unanswered attempt fails at once; an attempt with a time limit could exceed it if it is answered late.
    let answers = |client| client >= 2;
    let gateway = Gateway::start(ServerBehaviour { transport: Transport::Tcp, answers, ..ServerBehaviour::default() });
    let actions = vec![TunnelAction { at_ms: 0, what: TunnelActionKind::Reconnect, over_ms: 0 }];
    let outcome = run(&TunnelSpec { actions, settled: 2, retries: 1, ..spec(&gateway, 2) });
    let rows = outcome.tunnel.unwrap().attempts;
    let attempts_of = |client: u32| {
        let own = rows.iter().filter(|row| row.client == client);
        own.map(|row| {
            (row.attempt, row.occasion, row.cause.as_ref().map(FailureCause::name), row.configured_ns.is_some())
        })
        .collect::<Vec<_>>()
    };
    for client in 0..2 {
        let expected = [
            (1, Occasion::Arrival, Some("closed_unanswered"), false),
            (2, Occasion::Retry, None, true),
            (3, Occasion::Reconnect, None, true),
        ];
        assert_eq!(attempts_of(client), expected);
    }
    for row in &rows {
        assert_eq!((row.ended_ns.is_some(), row.server.as_str()), (row.attempt < 3, &*gateway.address.to_string()));
        assert_eq!((row.addresses.len(), row.local.is_some()), (usize::from(row.attempt > 1), true));
    }
    let addresses: BTreeSet<_> = rows.iter().flat_map(|row| &row.addresses).collect();
    assert_eq!(addresses.len(), 4, "one for each tunnel");
}

#[test]
fn blackholed_traffic_reports_the_sizes_that_pass() {
    let gateway = Gateway::start(ServerBehaviour { most_bytes: 1250, ..ServerBehaviour::default() });
    let echo = |packet_bytes| TunnelTraffic::Echo { to: None, rate_pps: 50.0, packet_bytes, duration_ms: 200 };
    let sizes = |packet_bytes| {
        let outcome = run(&TunnelSpec { traffic: Some(echo(packet_bytes)), ..spec(&gateway, 2) });
        let received: u64 = outcome.flows.iter().filter_map(|flow| flow.received_units).sum();
        let sizes = outcome.tunnel.unwrap().packet_sizes;
        (received > 0, sizes.map(|sizes| (sizes.answered_bytes, sizes.unanswered_bytes)))
    };
    assert_eq!(sizes(1400), (false, Some((1216, 1311))));
    assert_eq!(sizes(1200), (true, None));
}
